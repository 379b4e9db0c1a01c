/* Conditions on the metadata of rows. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "base/json.h"
#include "base/log.h"
#include "cpu/pool.h"
#include "search/search.h"

enum relation { IS, IS_NOT, LESS, AT_MOST, MORE, AT_LEAST };
struct condition {
    char key[256];
    enum relation relation;
    const char *value;
    double number;
    int64_t integer;
    bool is_number, is_integer;
    atomic_bool found; /* some row has the key */
};

/* The longer signs first. */
static const struct { const char *sign; enum relation relation; } signs[] = {
    {"!=", IS_NOT}, {"<=", AT_MOST}, {">=", AT_LEAST}, {"=", IS}, {"<", LESS}, {">", MORE}};

static int parse(const char *text, struct condition *c, struct llm_err *e)
{
    const size_t at = strcspn(text, "!=<>");
    size_t n = at;
    while (n > 0 && text[n - 1] == ' ') n--;
    for (size_t i = 0; i < sizeof signs / sizeof *signs && n > 0 && n < sizeof c->key; i++) {
        if (strncmp(text + at, signs[i].sign, strlen(signs[i].sign)) != 0) continue;
        memcpy(c->key, text, n);
        c->key[n] = 0;
        c->relation = signs[i].relation;
        c->value = text + at + strlen(signs[i].sign);
        c->value += strspn(c->value, " ");
        atomic_init(&c->found, false);
        c->is_number = llm_parse_real(c->value, &c->number) == 0;
        c->is_integer = llm_parse_int(c->value, &c->integer) == 0;
        if (c->is_number || c->relation == IS || c->relation == IS_NOT) return 0;
        return llm_fail(e, LLM_EX_USAGE, "--where: expected a number after '%s', found '%s'", signs[i].sign, c->value);
    }
    return llm_fail(e, LLM_EX_USAGE, "--where: expected KEY=VALUE (or != < <= > >=), found '%s'", text);
}

/* Below 0, 0 or above 0: the number v is less than, equal to or more than that of the condition. Integers, which may be ids of 19 digits, exactly. */
static int compare(const json_t *v, const struct condition *c)
{
    if (json_is_integer(v) && c->is_integer) {
        const json_int_t x = json_integer_value(v);
        return (x > c->integer) - (x < c->integer);
    }
    const double x = json_number_value(v);
    return (x > c->number) - (x < c->number);
}

static bool holds(const struct condition *c, const json_t *v)
{
    const char *text = json_is_true(v) ? "true" : json_is_false(v) ? "false" : json_string_value(v);
    if (json_is_number(v)) {
        if (!c->is_number) return c->relation == IS_NOT;
        const int order = compare(v, c);
        switch (c->relation) {
        case IS: return order == 0;
        case IS_NOT: return order != 0;
        case LESS: return order < 0;
        case AT_MOST: return order <= 0;
        case MORE: return order > 0;
        default: return order >= 0;
        }
    }
    if (!text || (c->relation != IS && c->relation != IS_NOT)) return false;
    return (strcmp(text, c->value) == 0) == (c->relation == IS);
}

static bool member_holds(const struct condition *c, const json_t *v)
{
    size_t i;
    const json_t *element;
    if (!json_is_array(v)) return v && holds(c, v);
    json_array_foreach(v, i, element) {
        if (holds(c, element)) return true;
    }
    return false;
}

/* The member `key`, or where there is none that of the object within: "source.page". NULL: neither. */
static const json_t *member(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    char outer[sizeof ((struct condition *)0)->key];
    for (const char *dot = strchr(key, '.'); dot && !v; dot = strchr(dot + 1, '.')) {
        memcpy(outer, key, (size_t)(dot - key));
        outer[dot - key] = 0;
        v = member(json_object_get(o, outer), dot + 1);
    }
    return v;
}

struct filter {
    const struct llm_index *x;
    struct condition *conditions;
    size_t n;
    uint8_t *allowed;
};
enum { ROWS = 512 };

static void look(void *arg, size_t piece, int thread)
{
    const struct filter *f = arg;
    const struct llm_texts *t = &f->x->metadata;
    (void)thread;
    for (int64_t i = (int64_t)piece * ROWS; i < (int64_t)(piece + 1) * ROWS && i < f->x->n; i++) {
        json_t *o = json_loadb(t->bytes + t->at[i], t->at[i + 1] - t->at[i], 0, NULL);
        bool good = json_is_object(o);
        for (size_t c = 0; c < f->n; c++) {
            const json_t *v = member(o, f->conditions[c].key);
            if (v) atomic_store_explicit(&f->conditions[c].found, true, memory_order_relaxed);
            good = good && member_holds(&f->conditions[c], v);
        }
        f->allowed[i] = good;
        json_decref(o);
    }
}

int llm_search_where(const struct llm_index *x, const char *const *conditions, size_t n, uint8_t *allowed, struct llm_err *e)
{
    struct condition *c = llm_alloc(n, sizeof *c, "conditions", e);
    int status = c ? 0 : -1;
    for (size_t i = 0; i < n && status == 0; i++) status = parse(conditions[i], &c[i], e);
    struct filter f = {x, c, n, allowed};
    json_object_seed(0); /* jansson's table of hashes is made by one thread */
    if (status == 0) llm_parallel(((size_t)x->n + ROWS - 1) / ROWS, look, &f);
    for (size_t i = 0; i < n && status == 0; i++) {
        if (!atomic_load(&c[i].found)) llm_warn("--where: no row has '%s'", c[i].key);
    }
    free(c);
    return status;
}
