/* Keywords of numbers and strings, and of sizes. */
#include <stdlib.h>
#include <string.h>
#include "infer/constrain/chars.h"
#include "infer/constrain/schema_apply.h"

llm_term llm_form_compared(struct llm_form *f, const json_t *v, int relations)
{
    struct llm_buf b = {0};
    llm_term made = LLM_TERM_NOTHING;
    int status = json_is_integer(v) ? llm_buf_printf(&b, &f->s->err, "%" JSON_INTEGER_FORMAT, json_integer_value(v))
                                    : llm_json_number(&b, json_real_value(v), &f->s->err);
    if (status == 0) made = llm_number_compared(f->s->numbers, b.p, relations);
    llm_buf_release(&b);
    return made;
}

int llm_form_bound(struct llm_form *f, struct llm_atoms *a, const json_t *v, int relations, bool negated)
{
    if (llm_atoms_demand_text(f, a, f->s->plain_number, false) < 0) return -1;
    return llm_atoms_demand_text(f, a, llm_form_compared(f, v, negated ? relations ^ LLM_ANY_RELATION : relations), false);
}

/* ---- numbers and strings ---- */

int llm_kw_minimum(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    bool strict = json_is_true(json_object_get(f->s->parts[part].json, "exclusiveMinimum"));
    return llm_form_bound(f, a, v, strict ? LLM_GREATER : LLM_GREATER | LLM_EQUAL, negated);
}

int llm_kw_maximum(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    bool strict = json_is_true(json_object_get(f->s->parts[part].json, "exclusiveMaximum"));
    return llm_form_bound(f, a, v, strict ? LLM_LESS : LLM_LESS | LLM_EQUAL, negated);
}

static int exclusive(struct llm_form *f, struct llm_atoms *a, const json_t *v, int relation, bool negated)
{
    if (json_is_number(v)) return llm_form_bound(f, a, v, relation, negated);
    if (negated) llm_atoms_clear(a); /* draft 4: a truth value that belongs to the bound */
    return 0;
}

int llm_kw_exclusive_minimum(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    (void)part;
    return exclusive(f, a, v, LLM_GREATER, negated);
}

int llm_kw_exclusive_maximum(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    (void)part;
    return exclusive(f, a, v, LLM_LESS, negated);
}

int llm_kw_multiple_of(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    struct llm_buf b = {0};
    (void)part;
    int status = json_is_integer(v) ? llm_buf_printf(&b, &f->s->err, "%" JSON_INTEGER_FORMAT, json_integer_value(v))
                                    : llm_json_number(&b, json_real_value(v), &f->s->err);
    if (status == 0) status = llm_atoms_demand_text(f, a, f->s->plain_number, false);
    if (status == 0) status = llm_atoms_demand_text(f, a, llm_number_multiple(f->s->numbers, b.p), negated);
    llm_buf_release(&b);
    return status;
}

int llm_kw_min_size(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    uint32_t n = llm_schema_count(v);
    (void)part;
    if (n == LLM_SCHEMA_ALWAYS) return llm_schema_fail(f->s, "a minimum of more than %d is not supported", LLM_SCHEMA_MAX_COUNT);
    if (negated && n == 0) llm_atoms_clear(a);
    else if (negated) llm_atoms_demand_size(a, 0, n - 1);
    else llm_atoms_demand_size(a, n, LLM_SCHEMA_ALWAYS);
    return 0;
}

int llm_kw_max_size(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    uint32_t n = llm_schema_count(v);
    (void)f;
    (void)part;
    if (!negated) llm_atoms_demand_size(a, 0, n);
    else if (n == LLM_SCHEMA_ALWAYS) llm_atoms_clear(a);
    else llm_atoms_demand_size(a, n + 1, LLM_SCHEMA_ALWAYS);
    return 0;
}

int llm_kw_pattern(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    (void)part;
    llm_term text = llm_schema_pattern(f->s, json_string_value(v), json_string_length(v), "pattern");
    return f->s->err.status ? -1 : llm_atoms_demand_text(f, a, text, negated);
}

int llm_kw_format(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    const char *pattern = json_is_string(v) ? llm_format_pattern(json_string_value(v)) : NULL;
    (void)part;
    if (!pattern && negated) llm_atoms_clear(a);
    if (!pattern) return 0;
    llm_term text = llm_schema_pattern(f->s, pattern, strlen(pattern), "format");
    return f->s->err.status ? -1 : llm_atoms_demand_text(f, a, text, negated);
}
