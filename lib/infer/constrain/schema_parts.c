/* Keywords of arrays and objects. */
#include <stdlib.h>
#include <string.h>
#include "infer/constrain/schema_apply.h"

enum { MAX_PREFIX = 1 << 16 };

/* ---- arrays ---- */

/* Items of a list by their places, or one of them is not as it should be. */
static int apply_items(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *list, bool negated)
{
    struct llm_atoms out = {0};
    int status = 0;
    for (size_t i = 0; status == 0 && i < json_array_size(list); i++) {
        struct llm_clause c = {.kind = LLM_C_ITEM, .claim = llm_form_claim(f, part, json_array_get(list, i), negated), .at = (uint32_t)i};
        struct llm_atoms one = {0};
        if (!negated) {
            status = llm_atoms_demand(f, a, &c);
            continue;
        }
        status = llm_atoms_copy_all(f, &one, a);
        if (status == 0) status = llm_atoms_demand(f, &one, &c);
        if (status == 0) llm_atoms_demand_size(&one, (uint32_t)i + 1, LLM_SCHEMA_ALWAYS);
        if (status == 0) status = llm_atoms_move(f, &out, &one);
        llm_atoms_release(&one);
    }
    return negated ? llm_atoms_replace(a, &out, status) : status;
}

/* Items from `at` on. */
static int apply_rest(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *schema, size_t at, bool negated)
{
    struct llm_clause c = {.kind = LLM_C_ITEMS, .at = (uint32_t)at, .min = 1, .max = LLM_SCHEMA_ALWAYS};
    c.claim = llm_form_claim(f, part, schema, negated);
    if (at > MAX_PREFIX) return llm_schema_fail(f->s, "prefixItems: expected at most %d schemas", MAX_PREFIX);
    if (negated) c.kind = LLM_C_CONTAINS;
    return llm_atoms_demand(f, a, &c);
}

int llm_kw_prefix_items(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    return apply_items(f, a, part, v, negated);
}

int llm_kw_items(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    if (json_is_array(v)) return apply_items(f, a, part, v, negated);
    return apply_rest(f, a, part, v, json_array_size(json_object_get(f->s->parts[part].json, "prefixItems")), negated);
}

int llm_kw_additional_items(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    const json_t *items = json_object_get(f->s->parts[part].json, "items");
    if (json_is_array(items)) return apply_rest(f, a, part, v, json_array_size(items), negated);
    if (negated) llm_atoms_clear(a);
    return 0;
}

int llm_kw_contains(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    const json_t *schema = f->s->parts[part].json, *least = json_object_get(schema, "minContains"), *most = json_object_get(schema, "maxContains");
    struct llm_clause c = {.kind = LLM_C_CONTAINS, .claim = llm_form_claim(f, part, v, false)};
    c.min = json_is_number(least) ? llm_schema_count(least) : 1;
    c.max = json_is_number(most) ? llm_schema_count(most) : LLM_SCHEMA_ALWAYS;
    if (!negated) {
        if (c.min > c.max) llm_atoms_clear(a);
        return llm_atoms_demand(f, a, &c);
    }
    struct llm_atoms out = {0};
    int status = 0;
    for (int more = 0; status == 0 && more < 2; more++) {
        struct llm_clause other = c;
        struct llm_atoms one = {0};
        if (more ? c.max == LLM_SCHEMA_ALWAYS : c.min == 0) continue;
        other.min = more ? c.max + 1 : 0;
        other.max = more ? LLM_SCHEMA_ALWAYS : c.min - 1;
        status = llm_atoms_copy_all(f, &one, a);
        if (status == 0) status = llm_atoms_demand(f, &one, &other);
        if (status == 0) status = llm_atoms_move(f, &out, &one);
        llm_atoms_release(&one);
    }
    return llm_atoms_replace(a, &out, status);
}

/* ---- objects ---- */

int llm_kw_properties(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    const char *key;
    json_t *value;
    struct llm_atoms out = {0};
    int status = 0;
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        struct llm_clause c[2] = {{.kind = LLM_C_MEMBER, .claim = llm_form_claim(f, part, value, negated), .key = key, .n_key = strlen(key)},
                                  {.kind = LLM_C_REQUIRED, .key = key, .n_key = strlen(key)}};
        if (status == 0) status = negated ? llm_atoms_branch(f, &out, a, c, 2) : llm_atoms_demand(f, a, c);
    }
    return negated ? llm_atoms_replace(a, &out, status) : status;
}

int llm_kw_pattern_properties(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    const char *key;
    json_t *value;
    struct llm_atoms out = {0};
    int status = 0;
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        struct llm_clause c = {.kind = negated ? LLM_C_SOME : LLM_C_PATTERN, .claim = llm_form_claim(f, part, value, negated)};
        c.at = llm_schema_pattern(f->s, key, strlen(key), "patternProperties");
        if (f->s->err.status) status = -1;
        if (status == 0) status = negated ? llm_atoms_branch(f, &out, a, &c, 1) : llm_atoms_demand(f, a, &c);
    }
    return negated ? llm_atoms_replace(a, &out, status) : status;
}

int llm_kw_additional(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    struct llm_clause c = {.kind = negated ? LLM_C_SOME_REST : LLM_C_REST, .claim = llm_form_claim(f, part, v, negated), .at = part};
    return llm_atoms_demand(f, a, &c);
}

int llm_kw_names(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    if (negated) return llm_schema_fail(f->s, "propertyNames within not, oneOf or if is not supported");
    return llm_atoms_demand(f, a, &(struct llm_clause){.kind = LLM_C_NAMES, .claim = llm_form_claim(f, part, v, false)});
}

int llm_kw_required(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    struct llm_atoms out = {0};
    int status = 0;
    (void)part;
    if (!json_is_array(v) && !json_is_boolean(v)) return llm_schema_fail(f->s, "required: expected another type of value");
    if (!json_is_array(v)) { /* draft 3 has a truth value in the member's schema */
        if (negated) llm_atoms_clear(a);
        return 0;
    }
    for (size_t i = 0; status == 0 && i < json_array_size(v); i++) {
        const json_t *key = json_array_get(v, i);
        if (!json_is_string(key)) return llm_schema_fail(f->s, "required: expected texts");
        struct llm_clause c = {.kind = negated ? LLM_C_FORBIDDEN : LLM_C_REQUIRED, .key = json_string_value(key), .n_key = json_string_length(key)};
        status = negated ? llm_atoms_branch(f, &out, a, &c, 1) : llm_atoms_demand(f, a, &c);
    }
    return negated ? llm_atoms_replace(a, &out, status) : status;
}

/* If the member `key` is there, others are, too (a list), or the object satisfies a schema. */
static int depend(struct llm_form *f, struct llm_atoms *a, struct llm_atoms *out, uint32_t part, const char *key, const json_t *v, bool negated)
{
    struct llm_atoms with = {0}, without = {0};
    const json_t *one = json_is_string(v) ? v : NULL;
    int status = llm_atoms_copy_all(f, &with, a);
    if (status == 0) status = llm_atoms_demand_key(f, &with, LLM_C_REQUIRED, key, strlen(key));
    if (status == 0 && !negated) status = llm_atoms_copy_all(f, &without, a);
    if (status == 0 && !negated) status = llm_atoms_demand_key(f, &without, LLM_C_FORBIDDEN, key, strlen(key));
    if (status == 0 && (json_is_array(v) || one)) {
        struct llm_atoms missing = {0};
        for (size_t i = 0; status == 0 && i < (one ? 1 : json_array_size(v)); i++) {
            const json_t *other = one ? one : json_array_get(v, i);
            struct llm_clause c = {.kind = negated ? LLM_C_FORBIDDEN : LLM_C_REQUIRED, .key = json_string_value(other)};
            if (!c.key) status = llm_schema_fail(f->s, "dependencies: expected texts");
            c.n_key = json_string_length(other);
            if (status == 0) status = negated ? llm_atoms_branch(f, &missing, &with, &c, 1) : llm_atoms_demand(f, &with, &c);
        }
        if (negated) status = llm_atoms_replace(&with, &missing, status);
    } else if (status == 0) {
        status = f->apply(f, &with, llm_form_claim(f, part, v, negated));
    }
    if (!negated) llm_atoms_clear(a);
    if (status == 0) status = llm_atoms_move(f, negated ? out : a, &with);
    if (status == 0 && !negated) status = llm_atoms_move(f, a, &without);
    llm_atoms_release(&with);
    llm_atoms_release(&without);
    return status;
}

int llm_kw_dependencies(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    const char *key;
    json_t *value;
    struct llm_atoms out = {0};
    int status = 0;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
        if (status == 0) status = depend(f, a, &out, part, key, value, negated);
    return negated ? llm_atoms_replace(a, &out, status) : status;
}
