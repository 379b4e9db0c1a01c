#include "train/objective_options.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "train/objective.h"

/* Each name's first row, in the order of llm_objectives. Options are read for each document of a step, so the tables are searched once. */
static struct {
    pthread_once_t once;
    const struct llm_objective_option *option[LLM_MAX_OBJECTIVE_OPTIONS];
    int n;
} rows = {.once = PTHREAD_ONCE_INIT};

static bool listed(const char *name)
{
    for (int i = 0; i < rows.n; i++) {
        if (strcmp(rows.option[i]->name, name) == 0) return true;
    }
    return false;
}

static void list_rows(void)
{
    for (int k = 0; llm_objectives[k]; k++) {
        const struct llm_objective_option *list = llm_objectives[k]->options;
        for (int j = 0; list && list[j].name; j++) {
            if (listed(list[j].name)) continue;
            assert(rows.n < LLM_MAX_OBJECTIVE_OPTIONS);
            rows.option[rows.n++] = &list[j];
        }
    }
}

const struct llm_objective_option *llm_objective_option_at(int i)
{
    pthread_once(&rows.once, list_rows);
    return i < rows.n ? rows.option[i] : NULL;
}

/* Whether two names differ at most in '_' for '-'. */
static bool same(const char *a, const char *b)
{
    while (*a && (*a == *b || (*a == '-' && *b == '_') || (*a == '_' && *b == '-'))) a++, b++;
    return *a == *b;
}

/* The number of an option. */
static int slot(const char *name)
{
    const struct llm_objective_option *option;
    for (int i = 0; (option = llm_objective_option_at(i)); i++) {
        if (same(option->name, name)) return i;
    }
    assert(0 && "an option of some objective");
    return 0;
}

/* The row of an option in the objective in use, else the first with this name. */
static const struct llm_objective_option *row(const struct llm_train_options *o, const char *name)
{
    const struct llm_objective_option *list = llm_objectives[o->objective]->options;
    for (int i = 0; list && list[i].name; i++) {
        if (same(list[i].name, name)) return &list[i];
    }
    return llm_objective_option_at(slot(name));
}

void llm_objective_values_default(struct llm_objective_values *v)
{
    const struct llm_objective_option *option;
    memset(v, 0, sizeof *v);
    for (int i = 0; (option = llm_objective_option_at(i)); i++) {
        if (option->type == LLM_REAL) v->v[i].r = NAN;
        else if (option->type == LLM_INT) v->v[i].i = INT64_MIN;
        else if (option->type == LLM_FLAG || option->type == LLM_CHOICE) v->v[i].word = INT_MIN;
    }
}

static bool given(const struct llm_objective_option *option, const union llm_option_value *v)
{
    if (option->type == LLM_REAL) return !isnan(v->r);
    if (option->type == LLM_INT) return v->i != INT64_MIN;
    return option->type == LLM_FLAG || option->type == LLM_CHOICE ? v->word != INT_MIN : v->text != NULL;
}

bool llm_option_given(const struct llm_train_options *o, const char *name)
{
    int i = slot(name);
    return given(llm_objective_option_at(i), &o->own.v[i]);
}

double llm_option_real(const struct llm_train_options *o, const char *name)
{
    return llm_option_given(o, name) ? o->own.v[slot(name)].r : row(o, name)->fallback;
}

int64_t llm_option_int(const struct llm_train_options *o, const char *name)
{
    return llm_option_given(o, name) ? o->own.v[slot(name)].i : (int64_t)row(o, name)->fallback;
}

int llm_option_word(const struct llm_train_options *o, const char *name)
{
    return llm_option_given(o, name) ? o->own.v[slot(name)].word : (int)row(o, name)->fallback;
}

const char *llm_option_text(const struct llm_train_options *o, const char *name)
{
    return o->own.v[slot(name)].text;
}

void llm_option_set_real(struct llm_train_options *o, const char *name, double value)
{
    o->own.v[slot(name)].r = value;
}

void llm_option_set_word(struct llm_train_options *o, const char *name, int value)
{
    o->own.v[slot(name)].word = value;
}

void llm_option_set_text(struct llm_train_options *o, const char *name, const char *value)
{
    o->own.v[slot(name)].text = value;
}

/* ---- training states ---- */

void llm_option_key(const char *name, char key[64])
{
    snprintf(key, 64, "%s", name);
    for (char *p = key; *p; p++) *p = *p == '-' ? '_' : *p;
}

/* Word i of a choice. NULL after the last. */
static const char *word(const struct llm_objective_option *option, int i, char room[64])
{
    const struct llm_opt opt = {.type = LLM_CHOICE, .choices = option->choices};
    const struct llm_cli none = {.name = NULL};
    return llm_cli_word(&none, &opt, i, room);
}

json_t *llm_option_to_json(const struct llm_train_options *o, const char *name)
{
    char room[64];
    const struct llm_objective_option *option = row(o, name);
    switch (option->type) {
    case LLM_REAL: return json_real(llm_option_real(o, name));
    case LLM_INT: return json_integer(llm_option_int(o, name));
    case LLM_FLAG: return json_boolean(llm_option_word(o, name));
    case LLM_CHOICE: return json_string(word(option, llm_option_word(o, name), room));
    default: return json_string(llm_option_text(o, name));
    }
}

static int from_word(const struct llm_objective_option *option, const char *key, const json_t *state, int *out, struct llm_err *e)
{
    char room[64];
    const char *found = NULL, *known;
    if (llm_json_str(state, key, &found, e) < 0) return -1;
    for (int i = 0; found && (known = word(option, i, room)); i++) {
        if (strcmp(known, found) != 0) continue;
        *out = i;
        return 0;
    }
    return found ? llm_fail(e, EX_DATAERR, "%s: expected a known one, found '%s'", key, found) : 0;
}

int llm_option_from_json(struct llm_train_options *o, const char *name, const json_t *state, struct llm_err *e)
{
    char key[64];
    const struct llm_objective_option *option = row(o, name);
    union llm_option_value *v = &o->own.v[slot(name)];
    llm_option_key(name, key);
    if (!json_object_get(state, key)) return 0;
    if (option->type == LLM_CHOICE) return from_word(option, key, state, &v->word, e);
    if (option->type == LLM_INT) return llm_json_int(state, key, (int64_t)option->min, INT64_MAX / 2, &v->i, e);
    if (option->type == LLM_FLAG) {
        bool flag = false;
        if (llm_json_bool(state, key, &flag, e) < 0) return -1;
        v->word = flag;
        return 0;
    }
    if (option->type != LLM_REAL) return llm_json_str(state, key, &v->text, e);
    if (llm_json_real(state, key, &v->r, e) < 0) return -1;
    if ((option->min == 0 && option->max == 0) || (v->r >= option->min && v->r <= option->max)) return 0;
    return llm_fail(e, EX_DATAERR, "%s: expected a number within [%g, %g], found %g", key, option->min, option->max, v->r);
}

/* ---- the command line ---- */

const struct llm_opt *llm_objective_command_line(const struct llm_opt *base, const char *after, size_t offset)
{
    static struct llm_opt table[256];
    const struct llm_objective_option *own;
    size_t n = 0;
    if (table[0].help) return table;
    for (size_t i = 0; base[i].name || base[i].type == LLM_HEADING; i++) {
        table[n++] = base[i];
        if (!base[i].name || strcmp(base[i].name, after) != 0) continue;
        for (int k = 0; (own = llm_objective_option_at(k)); k++) {
            table[n++] = (struct llm_opt){0, own->name, own->arg, own->help, own->type, offset + (size_t)k * sizeof(union llm_option_value),
                                          own->min, own->max, own->choices};
        }
        assert(n < sizeof table / sizeof *table);
    }
    return table;
}
