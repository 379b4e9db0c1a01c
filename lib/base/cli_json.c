/* Options as members of a JSON object: the same names, types and ranges as on the command line. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cli_internal.h"
#include "base/json.h"

static int take_number(const struct llm_opt *o, const char *key, const json_t *v, void *field, struct llm_err *e)
{
    bool whole = o->type != LLM_REAL, bounded = o->min != 0 || o->max != 0;
    double r = json_number_value(v);
    if (!json_is_number(v)) return llm_fail(e, EX_DATAERR, "'%s': expected %s", key, whole ? "an integer" : "a number");
    if (whole && json_is_real(v) && (r != floor(r) || fabs(r) > 9e15)) return llm_fail(e, EX_DATAERR, "'%s': expected an integer", key);
    if (bounded && (r < o->min || r > o->max)) {
        return llm_fail(e, EX_DATAERR, "'%s': expected %.15g to %.15g, found %.15g", key, o->min, o->max, r);
    }
    if (whole) *(int64_t *)field = json_is_integer(v) ? (int64_t)json_integer_value(v) : (int64_t)r;
    else *(double *)field = r;
    return 0;
}

static int take_value(const struct llm_opt *o, const char *key, const json_t *v, void *args, struct llm_err *e)
{
    void *field = (char *)args + o->offset;
    if (json_is_null(v)) return 0;
    if (o->type == LLM_INT || o->type == LLM_SIZE || o->type == LLM_REAL) return take_number(o, key, v, field, e);
    if (o->type != LLM_FLAG) return llm_fail(e, EX_DATAERR, "'%s': this option cannot be set here", key);
    if (!json_is_boolean(v)) return llm_fail(e, EX_DATAERR, "'%s': expected true or false", key);
    *(int *)field = json_is_true(v);
    return 0;
}

int llm_cli_take_json(const struct llm_cli *cli, const char *allowed, void *args, json_t *object, struct llm_err *e)
{
    const char *key;
    json_t *v;
    void *next;
    const struct llm_opt *taken[32];
    size_t n = 0;
    json_object_foreach_safe(object, next, key, v) {
        const struct llm_opt *o = llm_cli_option(cli, key);
        if (!o || llm_choose(allowed, o->name) < 0) continue;
        for (size_t i = 0; i < n; i++)
            if (taken[i] == o) return llm_fail(e, EX_DATAERR, "'%s': expected option --%s once, found it under two names", key, o->name);
        if (n < sizeof taken / sizeof *taken) taken[n++] = o;
        if (take_value(o, key, v, args, e) < 0) return -1;
        json_object_del(object, key);
    }
    return 0;
}
