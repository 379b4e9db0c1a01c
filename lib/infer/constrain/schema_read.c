/* What a schema consists of: resources, anchors, references; and what is not supported. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "infer/constrain/regex.h"
#include "infer/constrain/schema_internal.h"

enum { MAX_DEPTH = 512 };

int llm_schema_fail(struct llm_schema *s, const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!s->err.status) llm_fail(&s->err, EX_DATAERR, "%s", text);
    return -1;
}

bool llm_schema_failed(struct llm_schema *s)
{
    if (!s->err.status) (void)!llm_terms_failed(s->t, &s->err);
    return s->err.status != 0;
}

static uint32_t slot_of(const json_t *json)
{
    return (uint32_t)(((uintptr_t)json >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - LLM_PART_BITS));
}

static uint32_t find_part(const struct llm_schema *s, const json_t *json)
{
    for (uint32_t i = s->part_heads[slot_of(json)]; i; i = s->part_next[i - 1])
        if (s->parts[i - 1].json == json) return i;
    return 0;
}

uint32_t llm_schema_part(struct llm_schema *s, const json_t *json, uint32_t resource)
{
    uint32_t i = find_part(s, json);
    if (i) return i - 1;
    if (llm_grow((void **)&s->parts, &s->parts_room, s->n_parts + 1, sizeof *s->parts, &s->err) < 0
        || llm_grow((void **)&s->part_next, &s->part_next_room, s->n_parts + 1, sizeof *s->part_next, &s->err) < 0) return 0;
    uint32_t *head = &s->part_heads[slot_of(json)];
    s->parts[s->n_parts] = (struct llm_schema_part){json, resource};
    s->part_next[s->n_parts] = *head;
    *head = (uint32_t)++s->n_parts;
    return *head - 1;
}

/* ---- URIs ---- */

/* `ref` without its fragment, resolved against `base` (RFC 3986, 5.2, without dot segments in the middle). Malloced. */
static char *resolve_uri(struct llm_schema *s, const char *base, const char *ref)
{
    size_t n = strcspn(ref, "#"), keep = 0, base_n = strcspn(base, "#"), scheme = strcspn(ref, ":/?#");
    const char *authority = strstr(base, "://");
    struct llm_buf b = {0};
    if (n == 0) {
        keep = base_n;
    } else if (ref[scheme] == ':') {
        keep = 0;
    } else if (ref[0] == '/' && ref[1] == '/') {
        keep = authority ? (size_t)(authority - base) + 1 : 0;
    } else if (ref[0] == '/') {
        keep = authority ? (size_t)(authority - base) + 3 + strcspn(authority + 3, "/?#") : 0;
    } else {
        size_t path = authority ? (size_t)(authority - base) + 3 : 0;
        keep = base_n;
        while (keep > path && base[keep - 1] != '/') keep--;
        while (n > 3 && strncmp(ref, "../", 3) == 0 && keep > path + 1) {
            for (keep--; keep > path && base[keep - 1] != '/';) keep--;
            ref += 3;
            n -= 3;
        }
        if (n > 2 && strncmp(ref, "./", 2) == 0) {
            ref += 2;
            n -= 2;
        }
    }
    if (llm_buf_put(&b, base, keep, &s->err) < 0 || llm_buf_put(&b, ref, n, &s->err) < 0) {
        llm_buf_release(&b);
        return NULL;
    }
    return b.p;
}

static int hex_digit(int c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* One step of a JSON pointer, decoded; *p moves to the next '/' or the end. */
static int pointer_step(struct llm_schema *s, const char **p, struct llm_buf *key)
{
    key->n = 0;
    for (const char *c = *p;; c++) {
        char x = *c;
        if (x == '\0' || x == '/') {
            *p = c;
            return llm_buf_put(key, "", 0, &s->err);
        }
        if (x == '%' && hex_digit(c[1]) >= 0 && hex_digit(c[2]) >= 0) {
            x = (char)(hex_digit(c[1]) * 16 + hex_digit(c[2]));
            c += 2;
        }
        if (x == '~' && (c[1] == '0' || c[1] == '1')) x = *++c == '0' ? '~' : '/';
        if (llm_buf_put(key, &x, 1, &s->err) < 0) return -1;
    }
}

static const json_t *follow(struct llm_schema *s, const json_t *at, const char *pointer, uint32_t *resource)
{
    struct llm_buf key = {0};
    int64_t index;
    while (at && *pointer == '/') {
        pointer++;
        if (pointer_step(s, &pointer, &key) < 0) at = NULL;
        else if (json_is_object(at)) at = json_object_get(at, key.p ? key.p : "");
        else at = json_is_array(at) && key.n > 0 && llm_parse_int(key.p, &index) == 0 && index >= 0 ? json_array_get(at, (size_t)index) : NULL;
        uint32_t part = at ? find_part(s, at) : 0;
        if (part) *resource = s->parts[part - 1].resource;
    }
    llm_buf_release(&key);
    return at;
}

const json_t *llm_schema_resolve(struct llm_schema *s, uint32_t resource, const char *ref, uint32_t *to)
{
    const char *fragment = strchr(ref, '#');
    char *uri = resolve_uri(s, s->resources[resource].uri, ref);
    const json_t *at = NULL;
    size_t found = s->n_resources;
    if (!uri) return NULL;
    if (ref[0] == '#' || ref[0] == '\0') found = resource;
    else for (found = 0; found < s->n_resources && strcmp(s->resources[found].uri, uri) != 0;) found++;
    free(uri);
    if (found == s->n_resources) {
        llm_schema_fail(s, "$ref: '%s' is not in the schema, and nothing is fetched", ref);
        return NULL;
    }
    fragment = fragment ? fragment + 1 : "";
    *to = (uint32_t)found;
    if (*fragment == '\0') at = s->resources[found].root;
    else if (*fragment == '/') at = follow(s, s->resources[found].root, fragment, to);
    for (size_t i = 0; !at && i < s->n_anchors; i++)
        if (s->anchors[i].resource == found && strcmp(s->anchors[i].name, fragment) == 0) at = s->anchors[i].at;
    if (!at) llm_schema_fail(s, "$ref: '%s' leads nowhere", ref);
    else if (!json_is_object(at) && !json_is_boolean(at)) llm_schema_fail(s, "$ref: '%s' is no schema", ref);
    return s->err.status ? NULL : at;
}

/* ---- the scan ---- */

/* How a keyword holds schemas; a size holds none, and is no negative number and no fraction. */
enum holds { NO_SCHEMA, SIZE, ONE, LIST, MAP, ONE_OR_LIST, DEPENDENCIES };
static const struct keyword { const char *name; enum holds holds; json_type types[2]; } keywords[] = {
    {"$defs", MAP, {JSON_OBJECT}}, {"definitions", MAP, {JSON_OBJECT}}, {"properties", MAP, {JSON_OBJECT}}, {"patternProperties", MAP, {JSON_OBJECT}},
    {"dependentSchemas", MAP, {JSON_OBJECT}}, {"dependencies", DEPENDENCIES, {JSON_OBJECT}}, {"additionalProperties", ONE, {0}},
    {"propertyNames", ONE, {0}}, {"items", ONE_OR_LIST, {0}}, {"additionalItems", ONE, {0}}, {"prefixItems", LIST, {JSON_ARRAY}},
    {"contains", ONE, {0}}, {"allOf", LIST, {JSON_ARRAY}}, {"anyOf", LIST, {JSON_ARRAY}}, {"oneOf", LIST, {JSON_ARRAY}}, {"not", ONE, {0}},
    {"if", ONE, {0}}, {"then", ONE, {0}}, {"else", ONE, {0}}, {"enum", NO_SCHEMA, {JSON_ARRAY}}, {"pattern", NO_SCHEMA, {JSON_STRING}},
    {"minimum", NO_SCHEMA, {JSON_INTEGER, JSON_REAL}}, {"maximum", NO_SCHEMA, {JSON_INTEGER, JSON_REAL}},
    {"multipleOf", NO_SCHEMA, {JSON_INTEGER, JSON_REAL}}, {"minLength", SIZE, {JSON_INTEGER, JSON_REAL}},
    {"maxLength", SIZE, {JSON_INTEGER, JSON_REAL}}, {"minItems", SIZE, {JSON_INTEGER, JSON_REAL}},
    {"maxItems", SIZE, {JSON_INTEGER, JSON_REAL}}, {"minProperties", SIZE, {JSON_INTEGER, JSON_REAL}},
    {"maxProperties", SIZE, {JSON_INTEGER, JSON_REAL}}, {"minContains", SIZE, {JSON_INTEGER, JSON_REAL}},
    {"maxContains", SIZE, {JSON_INTEGER, JSON_REAL}}, {"dependentRequired", NO_SCHEMA, {JSON_OBJECT}},
    {"type", NO_SCHEMA, {JSON_STRING, JSON_ARRAY}}, {"$ref", NO_SCHEMA, {JSON_STRING}}};

static int scan(struct llm_schema *s, const json_t *v, uint32_t resource, int depth);

static int scan_map(struct llm_schema *s, const json_t *v, uint32_t resource, int depth, bool lists)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, key, value) {
        if (!(lists && (json_is_array(value) || json_is_string(value))) && scan(s, value, resource, depth) < 0) return -1;
    }
    return 0;
}

static int scan_list(struct llm_schema *s, const json_t *v, uint32_t resource, int depth)
{
    for (size_t i = 0; i < json_array_size(v); i++)
        if (scan(s, json_array_get(v, i), resource, depth) < 0) return -1;
    return 0;
}

static int add_resource(struct llm_schema *s, const json_t *root, const char *id, uint32_t *resource)
{
    char *uri = resolve_uri(s, s->n_resources > 0 ? s->resources[*resource].uri : "", id);
    if (!uri || llm_grow((void **)&s->resources, &s->resources_room, s->n_resources + 1, sizeof *s->resources, &s->err) < 0) {
        free(uri);
        return -1;
    }
    s->resources[s->n_resources] = (struct llm_schema_resource){uri, root};
    *resource = (uint32_t)s->n_resources++;
    return 0;
}

static int add_anchor(struct llm_schema *s, const json_t *at, const char *name, uint32_t resource)
{
    if (llm_grow((void **)&s->anchors, &s->anchors_room, s->n_anchors + 1, sizeof *s->anchors, &s->err) < 0) return -1;
    s->anchors[s->n_anchors++] = (struct llm_schema_anchor){resource, name, at};
    return 0;
}

static int check_unsupported(struct llm_schema *s, const json_t *v)
{
    static const char *const never[] = {"$dynamicRef", "$recursiveRef", "divisibleBy", "disallow", "extends"};
    static const char *const unless_true[] = {"unevaluatedProperties", "unevaluatedItems"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (json_object_get(v, never[i])) return llm_schema_fail(s, "%s is not supported", never[i]);
    for (size_t i = 0; i < sizeof unless_true / sizeof *unless_true; i++) {
        const json_t *x = json_object_get(v, unless_true[i]);
        if (x && !json_is_true(x)) return llm_schema_fail(s, "%s is not supported", unless_true[i]);
    }
    const json_t *most = json_object_get(v, "maxItems");
    if (json_is_true(json_object_get(v, "uniqueItems")) && !(json_is_number(most) && json_number_value(most) <= 1)) {
        return llm_schema_fail(s, "uniqueItems is not supported");
    }
    return 0;
}

static bool is_type(const json_t *v, const json_type types[2])
{
    return json_typeof(v) == types[0] || (types[1] != JSON_OBJECT && json_typeof(v) == types[1]);
}

/* One schema and those in it. */
static int scan(struct llm_schema *s, const json_t *v, uint32_t resource, int depth)
{
    if (depth > MAX_DEPTH) return llm_schema_fail(s, "schemas are nested more than %d deep", MAX_DEPTH);
    if (json_is_boolean(v)) return 0;
    if (!json_is_object(v)) return llm_schema_fail(s, "expected a schema: an object, true or false");
    const char *id = json_string_value(json_object_get(v, "$id"));
    if (!id) id = json_string_value(json_object_get(v, "id"));
    if (id && id[0] == '#' && add_anchor(s, v, id + 1, resource) < 0) return -1;
    if (id && id[0] != '#' && depth > 0 && !(s->old_refs && json_object_get(v, "$ref")) && add_resource(s, v, id, &resource) < 0) return -1;
    (void)llm_schema_part(s, v, resource);
    const char *anchor = json_string_value(json_object_get(v, "$anchor"));
    if (!anchor) anchor = json_string_value(json_object_get(v, "$dynamicAnchor"));
    if (anchor && add_anchor(s, v, anchor, resource) < 0) return -1;
    if (check_unsupported(s, v) < 0) return -1;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const struct keyword *k = &keywords[i];
        const json_t *x = json_object_get(v, k->name);
        int status = 0;
        if (!x || (s->old_refs && json_object_get(v, "$ref") && k->holds <= SIZE)) continue;
        bool typed = k->holds != ONE && k->holds != ONE_OR_LIST;
        if (typed && !is_type(x, k->types)) return llm_schema_fail(s, "%s: expected another type of value", k->name);
        if (k->holds == SIZE && !(json_number_value(x) >= 0 && json_number_value(x) == floor(json_number_value(x)))) {
            return llm_schema_fail(s, "%s: expected an integer of at least 0", k->name);
        }
        if (k->holds == ONE || (k->holds == ONE_OR_LIST && !json_is_array(x))) status = scan(s, x, resource, depth + 1);
        else if (k->holds == LIST || k->holds == ONE_OR_LIST) status = scan_list(s, x, resource, depth + 1);
        else if (k->holds == MAP || k->holds == DEPENDENCIES) status = scan_map(s, x, resource, depth + 1, k->holds == DEPENDENCIES);
        if (status < 0) return -1;
    }
    return llm_schema_failed(s) ? -1 : 0;
}

int llm_schema_scan(struct llm_schema *s)
{
    uint32_t resource = 0;
    const char *id = json_string_value(json_object_get(s->json, "$id"));
    if (!id) id = json_string_value(json_object_get(s->json, "id"));
    if (add_resource(s, s->json, id && id[0] != '#' ? id : "", &resource) < 0) return -1;
    const char *draft = json_string_value(json_object_get(s->json, "$schema"));
    s->old_integers = draft && (strstr(draft, "draft-03") || strstr(draft, "draft-04"));
    s->old_refs = draft && (strstr(draft, "draft-03") || strstr(draft, "draft-04") || strstr(draft, "draft-06") || strstr(draft, "draft-07"));
    return scan(s, s->json, resource, 0);
}
