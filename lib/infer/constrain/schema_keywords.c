/* Keywords of all types, and schemas as what their keywords demand together. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "infer/constrain/chars.h"
#include "infer/constrain/schema_apply.h"

enum { MAX_DEPTH = 200 };

/* ---- schemas and their keywords ---- */

static int apply_json(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *schema, bool negated)
{
    return llm_schema_apply(f, a, llm_form_claim(f, part, schema, negated));
}

/* Alternatives of the alternatives: the caller adds to `out`, each time from a copy of *a, and at last replaces *a. */
static int branch(struct llm_form *f, struct llm_atoms *out, const struct llm_atoms *a, uint32_t part, const json_t *schema, bool negated)
{
    struct llm_atoms one = {0};
    int status = llm_atoms_copy_all(f, &one, a);
    if (status == 0) status = apply_json(f, &one, part, schema, negated);
    if (status == 0) return llm_atoms_move(f, out, &one);
    llm_atoms_release(&one);
    return -1;
}

static int kw_ref(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    uint32_t resource = 0;
    const json_t *to = llm_schema_resolve(f->s, f->s->parts[part].resource, json_string_value(v), &resource);
    return to ? llm_schema_apply(f, a, llm_schema_part(f->s, to, resource) << 1 | negated) : -1;
}

/* All of the schemas of a list, or some one of them. */
static int apply_list(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *list, bool negated, bool all)
{
    struct llm_atoms out = {0};
    int status = 0;
    for (size_t i = 0; status == 0 && i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        status = all ? apply_json(f, a, part, v, negated) : branch(f, &out, a, part, v, negated);
    }
    return all ? status : llm_atoms_replace(a, &out, status);
}

static int kw_all_of(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    return apply_list(f, a, part, v, negated, !negated);
}

static int kw_any_of(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    return apply_list(f, a, part, v, negated, negated);
}

/* Takes from an alternative what a schema allows; most often the two have nothing in common. */
static int subtract(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *schema)
{
    struct llm_atoms out = {0}, both = {0};
    int status = 0;
    for (size_t i = 0; status == 0 && i < a->n; i++) {
        bool common = false;
        status = llm_atoms_copy(f, &both, &a->v[i]);
        if (status == 0) status = apply_json(f, &both, part, schema, false);
        for (size_t k = 0; status == 0 && k < both.n && !common; k++) common = f->s->possible(f->s, &both.v[k]);
        llm_atoms_clear(&both);
        if (status < 0) break;
        if (common) {
            struct llm_atoms one = {&a->v[i], 1, 1};
            status = branch(f, &out, &one, part, schema, true);
        } else {
            status = llm_atoms_copy(f, &out, &a->v[i]);
        }
    }
    llm_atoms_release(&both);
    return llm_atoms_replace(a, &out, status);
}

static int kw_one_of(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    struct llm_atoms out = {0};
    int status = 0;
    size_t n = json_array_size(v);
    for (size_t i = 0; status == 0 && i < n; i++) {
        struct llm_atoms one = {0};
        status = llm_atoms_copy_all(f, &one, a);
        if (status == 0) status = apply_json(f, &one, part, json_array_get(v, i), false);
        for (size_t k = 0; status == 0 && k < n; k++) {
            if (!negated && k != i) status = subtract(f, &one, part, json_array_get(v, k));
            if (negated && k > i) status = branch(f, &out, &one, part, json_array_get(v, k), false);
        }
        if (status == 0 && !negated) status = llm_atoms_move(f, &out, &one);
        llm_atoms_release(&one);
    }
    if (status == 0 && negated) { /* none of them */
        struct llm_atoms none = {0};
        status = llm_atoms_copy_all(f, &none, a);
        if (status == 0) status = apply_list(f, &none, part, v, true, true);
        if (status == 0) status = llm_atoms_move(f, &out, &none);
        llm_atoms_release(&none);
    }
    return llm_atoms_replace(a, &out, status);
}

static int kw_not(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    return negated ? apply_json(f, a, part, v, false) : subtract(f, a, part, v);
}

static int kw_if(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    const json_t *schema = f->s->parts[part].json, *branches[2] = {json_object_get(schema, "else"), json_object_get(schema, "then")};
    struct llm_atoms out = {0};
    int status = 0;
    if (!branches[0] && !branches[1]) {
        if (negated) llm_atoms_clear(a);
        return 0;
    }
    for (int i = 0; status == 0 && i < 2; i++) {
        struct llm_atoms one = {0};
        if (negated && !branches[i]) continue;
        status = llm_atoms_copy_all(f, &one, a);
        if (status == 0) status = apply_json(f, &one, part, v, i == 0);
        if (status == 0 && branches[i]) status = apply_json(f, &one, part, branches[i], negated);
        if (status == 0) status = llm_atoms_move(f, &out, &one);
        llm_atoms_release(&one);
    }
    return llm_atoms_replace(a, &out, status);
}

static int kw_type(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    bool is = false, integer = false;
    (void)part;
    for (size_t i = 0; i < (json_is_array(v) ? json_array_size(v) : 1); i++) {
        const char *name = json_string_value(json_is_array(v) ? json_array_get(v, i) : v);
        bool known = name && strcmp(name, "integer") == 0;
        integer = integer || known;
        for (size_t k = 0; name && k < sizeof names / sizeof *names; k++) {
            known = known || strcmp(name, names[k]) == 0;
            is = is || (k == f->type && strcmp(name, names[k]) == 0);
        }
        if (name && strcmp(name, "any") == 0) known = is = true; /* draft 3 */
        if (!known) return llm_schema_fail(f->s, "type: '%s' is not known", name ? name : "");
    }
    if (!is && integer && f->type == LLM_J_NUMBER) {
        if (llm_atoms_demand_text(f, a, f->s->plain_number, false) < 0) return -1;
        return llm_atoms_demand_text(f, a, negated ? f->s->any_integer : f->s->integer, negated);
    }
    if (is == negated) llm_atoms_clear(a);
    return 0;
}

static enum llm_json_type type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return LLM_J_OBJECT;
    case JSON_ARRAY: return LLM_J_ARRAY;
    case JSON_STRING: return LLM_J_STRING;
    case JSON_INTEGER: case JSON_REAL: return LLM_J_NUMBER;
    case JSON_NULL: return LLM_J_NULL;
    default: return LLM_J_BOOL;
    }
}

/* A constant array or object as a schema, which has no "type". NULL: memory is short. */
static json_t *schema_of(const json_t *v)
{
    const char *key;
    json_t *value, *all = json_is_object(v) ? json_object() : json_array(), *names = json_array();
    size_t i;
    if (json_is_object(v)) {
        json_object_foreach((json_t *)(uintptr_t)v, key, value) {
            (void)json_array_append_new(names, json_string(key));
            (void)json_object_set_new(all, key, json_pack("{s:O}", "const", value));
        }
        return json_pack("{s:o,s:o,s:b}", "properties", all, "required", names, "additionalProperties", 0);
    }
    json_array_foreach(v, i, value) (void)json_array_append_new(all, json_pack("{s:O}", "const", value));
    json_decref(names);
    return json_pack("{s:o,s:b,s:I}", "prefixItems", all, "items", 0, "minItems", (json_int_t)json_array_size(v));
}

static int apply_constant(struct llm_form *f, struct llm_atoms *a, const json_t *v, bool negated)
{
    struct llm_schema *s = f->s;
    size_t i = 0;
    while (i < s->n_constants && s->constants[i].value != v) i++;
    if (i == s->n_constants) {
        json_t *made = schema_of(v);
        if (!made || json_array_append_new(s->made, made) < 0
            || llm_grow((void **)&s->constants, &s->constants_room, i + 1, sizeof *s->constants, &s->err) < 0) {
            return s->err.status ? -1 : llm_no_memory(&s->err, "a constant");
        }
        s->constants[i].value = v;
        s->constants[i].part = llm_schema_part(s, made, 0);
        s->n_constants++;
    }
    return llm_schema_apply(f, a, s->constants[i].part << 1 | negated);
}

/* The value is one of a list of constants. */
static int apply_constants(struct llm_form *f, struct llm_atoms *a, const json_t *const *v, size_t n, bool negated)
{
    struct llm_schema *s = f->s;
    struct llm_atoms out = {0};
    bool has[2] = {false, false}, scalar = f->type < LLM_J_ARRAY;
    int status = 0;
    size_t count = 0;
    llm_term *texts = llm_alloc(n + 1, sizeof *texts, "constants", &s->err);
    if (!texts) return -1;
    for (size_t i = 0; status == 0 && i < n; i++) {
        if (type_of(v[i]) != f->type) continue;
        has[json_is_true(v[i])] = true;
        if (f->type == LLM_J_STRING) {
            llm_term text = llm_term_spelled(s->t, json_string_value(v[i]), json_string_length(v[i]), negated ? LLM_SPELL_JSON : LLM_SPELL_USUAL);
            llm_term quote = llm_term_byte(s->t, '"');
            texts[count++] = llm_term_join(s->t, quote, llm_term_join(s->t, text, quote));
            if (llm_schema_failed(s)) status = -1; /* a list may be long */
        } else if (f->type == LLM_J_NUMBER) {
            if (!negated) texts[count++] = llm_form_compared(f, v[i], LLM_EQUAL);
            else status = llm_form_bound(f, a, v[i], LLM_EQUAL, true);
            if (llm_schema_failed(s)) status = -1;
        } else if (!scalar && negated) {
            status = apply_constant(f, a, v[i], true);
        } else if (!scalar) {
            struct llm_atoms one = {0};
            status = llm_atoms_copy_all(f, &one, a);
            if (status == 0) status = apply_constant(f, &one, v[i], false);
            if (status == 0) status = llm_atoms_move(f, &out, &one);
            llm_atoms_release(&one);
        }
    }
    if (f->type == LLM_J_NULL) {
        if (has[0] == negated) llm_atoms_clear(a);
    } else if (f->type == LLM_J_BOOL) {
        for (size_t i = 0; i < a->n; i++)
            for (int k = 0; k < 2; k++) a->v[i].truths[k] = a->v[i].truths[k] && has[k] != negated;
    } else if (f->type == LLM_J_STRING || (f->type == LLM_J_NUMBER && !negated)) {
        if (status == 0 && f->type == LLM_J_NUMBER && count > 0) status = llm_atoms_demand_text(f, a, s->tidy_number, false);
        if (status == 0) status = llm_atoms_demand_text(f, a, llm_term_either(s->t, texts, count), negated);
    } else if (!negated) {
        status = llm_atoms_replace(a, &out, status);
    }
    free(texts);
    return status;
}

static int kw_const(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    (void)part;
    return apply_constants(f, a, &v, 1, negated);
}

static int kw_enum(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated)
{
    size_t n = json_array_size(v);
    const json_t **all = llm_alloc(n + 1, sizeof *all, "constants", &f->s->err);
    (void)part;
    if (!all) return -1;
    for (size_t i = 0; i < n; i++) all[i] = json_array_get(v, i);
    int status = apply_constants(f, a, all, n, negated);
    free(all);
    return status;
}

#define OF(type) (1u << LLM_J_##type)
#define OF_ALL 63u
static const struct keyword {
    const char *name;
    unsigned types;          /* of values that it says something about */
    int (*apply)(struct llm_form *f, struct llm_atoms *a, uint32_t part, const json_t *v, bool negated);
} keywords[] = {
    {"type", OF_ALL, kw_type}, {"const", OF_ALL, kw_const}, {"enum", OF_ALL, kw_enum}, {"$ref", OF_ALL, kw_ref},
    {"minimum", OF(NUMBER), llm_kw_minimum}, {"maximum", OF(NUMBER), llm_kw_maximum}, {"exclusiveMinimum", OF(NUMBER), llm_kw_exclusive_minimum},
    {"exclusiveMaximum", OF(NUMBER), llm_kw_exclusive_maximum}, {"multipleOf", OF(NUMBER), llm_kw_multiple_of},
    {"minLength", OF(STRING), llm_kw_min_size}, {"maxLength", OF(STRING), llm_kw_max_size}, {"pattern", OF(STRING), llm_kw_pattern},
    {"format", OF(STRING), llm_kw_format},
    {"minItems", OF(ARRAY), llm_kw_min_size}, {"maxItems", OF(ARRAY), llm_kw_max_size}, {"prefixItems", OF(ARRAY), llm_kw_prefix_items},
    {"items", OF(ARRAY), llm_kw_items}, {"additionalItems", OF(ARRAY), llm_kw_additional_items}, {"contains", OF(ARRAY), llm_kw_contains},
    {"minProperties", OF(OBJECT), llm_kw_min_size}, {"maxProperties", OF(OBJECT), llm_kw_max_size}, {"required", OF(OBJECT), llm_kw_required},
    {"properties", OF(OBJECT), llm_kw_properties}, {"patternProperties", OF(OBJECT), llm_kw_pattern_properties},
    {"additionalProperties", OF(OBJECT), llm_kw_additional}, {"propertyNames", OF(OBJECT), llm_kw_names},
    {"dependentRequired", OF(OBJECT), llm_kw_dependencies}, {"dependentSchemas", OF(OBJECT), llm_kw_dependencies},
    {"dependencies", OF(OBJECT), llm_kw_dependencies},
    {"allOf", OF_ALL, kw_all_of}, {"anyOf", OF_ALL, kw_any_of}, {"oneOf", OF_ALL, kw_one_of}, {"not", OF_ALL, kw_not},
    {"if", OF_ALL, kw_if}};

/* All alternatives satisfy a claim, too. A schema that is negated is violated by one of its keywords. */
int llm_schema_apply(struct llm_form *f, struct llm_atoms *a, llm_schema_claim claim)
{
    struct llm_schema *s = f->s;
    uint32_t part = claim >> 1;
    const json_t *schema = s->parts[part].json;
    bool negated = claim & 1;
    struct llm_atoms out = {0};
    int status = 0;
    if (llm_schema_failed(s)) return -1;
    if (a->n == 0) return 0;
    if (json_is_boolean(schema)) {
        if (json_is_true(schema) == negated) llm_atoms_clear(a);
        return 0;
    }
    if (!json_is_object(schema)) return llm_schema_fail(s, "expected a schema: an object, true or false");
    if (++s->depth > MAX_DEPTH) return llm_schema_fail(s, "schemas refer to one another without end");
    const json_t *ref = json_object_get(schema, "$ref");
    if (s->old_refs && json_is_string(ref)) {
        status = kw_ref(f, a, part, ref, negated);
        s->depth--;
        return status;
    }
    for (size_t i = 0; status == 0 && i < sizeof keywords / sizeof *keywords; i++) {
        const json_t *v = json_object_get(schema, keywords[i].name);
        if (!v || !(keywords[i].types >> f->type & 1)) continue;
        if (!negated) {
            status = keywords[i].apply(f, a, part, v, false);
            if (a->n == 0) break;
            continue;
        }
        struct llm_atoms one = {0};
        status = llm_atoms_copy_all(f, &one, a);
        if (status == 0) status = keywords[i].apply(f, &one, part, v, true);
        if (status == 0) status = llm_atoms_move(f, &out, &one);
        llm_atoms_release(&one);
    }
    s->depth--;
    return negated ? llm_atoms_replace(a, &out, status) : status;
}
