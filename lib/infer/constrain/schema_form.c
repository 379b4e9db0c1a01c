/* The normal form of schemas: for each type alternatives that demand something of every part of a value. */
#include <stdlib.h>
#include <string.h>
#include "infer/constrain/chars.h"
#include "infer/constrain/schema_apply.h"

enum { MAX_DEPTH = 200, MAX_NODES = 1 << 18, MAX_PATTERNS = 8 };

static int ascending(const void *a, const void *b)
{
    const llm_schema_claim *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

uint32_t llm_schema_node(struct llm_schema *s, llm_schema_claim *claims, size_t n)
{
    size_t kept = 0;
    if (n > 1) qsort(claims, n, sizeof *claims, ascending);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || claims[kept - 1] != claims[i]) claims[kept++] = claims[i];
    for (size_t i = 0; i < s->n_nodes; i++) {
        const struct llm_schema_node *x = &s->nodes[i];
        if (x->n == kept && (kept == 0 || memcmp(s->claims + x->claims, claims, kept * sizeof *claims) == 0)) return (uint32_t)i;
    }
    if (s->n_nodes >= MAX_NODES) llm_schema_fail(s, "the schema has too many combinations of schemas");
    if (s->err.status || llm_grow((void **)&s->nodes, &s->nodes_room, s->n_nodes + 1, sizeof *s->nodes, &s->err) < 0
        || llm_grow((void **)&s->claims, &s->claims_room, s->n_claims + kept + 1, sizeof *s->claims, &s->err) < 0) return 0;
    s->nodes[s->n_nodes] = (struct llm_schema_node){.claims = (uint32_t)s->n_claims, .n = (uint32_t)kept};
    if (kept > 0) memcpy(s->claims + s->n_claims, claims, kept * sizeof *claims);
    s->n_claims += kept;
    return (uint32_t)s->n_nodes++;
}

const struct llm_schema_node *llm_schema_form(struct llm_schema *s, uint32_t node)
{
    if (s->nodes[node].formed || llm_schema_failed(s)) return &s->nodes[node];
    struct llm_atoms all = {0};
    for (int type = 0; type < LLM_J_TYPES && !s->err.status; type++) {
        struct llm_form f = {s, (enum llm_json_type)type, llm_schema_apply};
        struct llm_atoms a = {0};
        struct llm_atom any = {.type = f.type, .truths = {true, true}, .text = LLM_TERM_ANYTHING, .max = LLM_SCHEMA_ALWAYS};
        int status = llm_atoms_append(&f, &a, &any);
        for (uint32_t i = 0; status == 0 && i < s->nodes[node].n; i++) status = llm_schema_apply(&f, &a, s->claims[s->nodes[node].claims + i]);
        if (status == 0) (void)llm_atoms_move(&f, &all, &a);
        llm_atoms_release(&a);
    }
    s->nodes[node].atoms = all.v;
    s->nodes[node].n_atoms = all.n;
    s->nodes[node].formed = true;
    return &s->nodes[node];
}

bool llm_schema_possible(struct llm_schema *s, uint32_t node)
{
    if (s->nodes[node].possible == 1) s->assumed = true;
    if (s->nodes[node].possible) return s->nodes[node].possible == 2;
    if (++s->depth > MAX_DEPTH) return llm_schema_fail(s, "schemas are nested too deeply") == 0;
    bool before = s->assumed, found = false;
    s->assumed = false;
    s->finding++;
    s->nodes[node].possible = 1;
    (void)llm_schema_form(s, node);
    for (size_t i = 0; i < s->nodes[node].n_atoms && !found && !s->err.status; i++) found = llm_atom_possible(s, &s->nodes[node].atoms[i]);
    s->depth--;
    s->finding--;
    /* Impossible for what was taken for impossible on the way here: it may turn out otherwise. */
    s->nodes[node].possible = found ? 2 : s->assumed && s->finding > 0 ? 0 : 3;
    s->assumed = s->finding > 0 && (s->assumed || before);
    return found;
}

/* ---- arrays ---- */

uint32_t llm_schema_item(struct llm_schema *s, const struct llm_atom *a, uint32_t at, uint32_t with, uint32_t without)
{
    llm_schema_claim *v = llm_alloc(a->n + 1, sizeof *v, "an item", &s->err);
    size_t n = 0;
    uint32_t contains = 0;
    if (!v) return 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct llm_clause *c = &a->clauses[i];
        if ((c->kind == LLM_C_ITEM && c->at == at) || (c->kind == LLM_C_ITEMS && c->at <= at)) v[n++] = c->claim;
        if (c->kind != LLM_C_CONTAINS) continue;
        if (with >> contains & 1) v[n++] = c->claim;
        if (without >> contains & 1) v[n++] = c->claim ^ 1;
        contains++;
    }
    uint32_t node = llm_schema_node(s, v, n);
    free(v);
    return node;
}

static bool array_possible(struct llm_schema *s, const struct llm_atom *a)
{
    uint32_t prefix = 0, contains = 0, room = LLM_SCHEMA_ALWAYS;
    for (size_t i = 0; i < a->n; i++) {
        const struct llm_clause *c = &a->clauses[i];
        uint32_t end = c->kind == LLM_C_ITEM ? c->at + 1 : c->at;
        if (end > prefix) prefix = end;
        contains += c->kind == LLM_C_CONTAINS;
    }
    if (contains > 4) return llm_schema_fail(s, "more than 4 of contains for one array are not supported") == 0;
    for (uint32_t i = 0; i <= prefix && i < a->max && room == LLM_SCHEMA_ALWAYS; i++)
        if (!llm_schema_possible(s, llm_schema_item(s, a, i, 0, 0))) room = i;
    if (a->max < room) room = a->max;
    if (a->min > room) return false;
    uint32_t number = 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct llm_clause *c = &a->clauses[i];
        if (c->kind != LLM_C_CONTAINS) continue;
        uint32_t places = 0;
        for (uint32_t at = c->at; at < room && at <= prefix && places < c->min; at++) {
            if (!llm_schema_possible(s, llm_schema_item(s, a, at, 1u << number, 0))) continue;
            places = at < prefix ? places + 1 : room == LLM_SCHEMA_ALWAYS ? c->min : places + room - at;
        }
        if (places < c->min) return false;
        number++;
    }
    return !s->err.status;
}

/* ---- objects ---- */

static llm_term key_term(struct llm_schema *s, const char *key, size_t n)
{
    llm_term quote = llm_term_byte(s->t, '"');
    return llm_term_join(s->t, quote, llm_term_join(s->t, llm_term_spelled(s->t, key, n, LLM_SPELL_JSON), quote));
}

/* Whether a key, as a JSON string, belongs to a language. */
static bool matches(struct llm_schema *s, llm_term a, const char *key, size_t n)
{
    struct llm_buf b = {0};
    if (llm_json_quote(&b, key, n, &s->err) < 0) return false;
    for (size_t i = 0; i < b.n && a != LLM_TERM_NOTHING; i++) a = llm_term_after(s->t, a, (unsigned char)b.p[i]);
    llm_buf_release(&b);
    return llm_term_nullable(s->t, a);
}

/* Whether a schema names a key in properties or patternProperties. */
static bool names_key(struct llm_schema *s, uint32_t part, const char *key, size_t n)
{
    const json_t *schema = s->parts[part].json;
    const char *pattern;
    json_t *v;
    if (json_object_getn(json_object_get(schema, "properties"), key, n)) return true;
    json_object_foreach(json_object_get(schema, "patternProperties"), pattern, v)
        if (matches(s, llm_schema_pattern(s, pattern, strlen(pattern), "patternProperties"), key, n)) return true;
    return false;
}

static int by_key(const void *a, const void *b)
{
    const struct llm_member *x = a, *y = b;
    int c = memcmp(x->key, y->key, x->n_key < y->n_key ? x->n_key : y->n_key);
    return c ? c : (x->n_key > y->n_key) - (x->n_key < y->n_key);
}

static int put_member(struct llm_schema *s, struct llm_shape *x, const char *key, size_t n)
{
    if (llm_grow((void **)&x->members, &x->members_room, x->n_members + 1, sizeof *x->members, &s->err) < 0) return -1;
    x->members[x->n_members++] = (struct llm_member){.key = key, .n_key = n};
    return 0;
}

static int gather_members(struct llm_schema *s, const struct llm_atom *a, struct llm_shape *x)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct llm_clause *c = &a->clauses[i];
        const char *key;
        json_t *v;
        if (c->key && put_member(s, x, c->key, c->n_key) < 0) return -1;
        if (c->kind != LLM_C_REST && c->kind != LLM_C_SOME_REST) continue;
        json_object_foreach(json_object_get(s->parts[c->at].json, "properties"), key, v)
            if (put_member(s, x, key, strlen(key)) < 0) return -1;
    }
    if (x->n_members > 1) qsort(x->members, x->n_members, sizeof *x->members, by_key);
    for (size_t i = 0; i < x->n_members; i++)
        if (n == 0 || by_key(&x->members[n - 1], &x->members[i]) != 0) x->members[n++] = x->members[i];
    x->n_members = n;
    return 0;
}

/* The language of keys that propertyNames demands. */
static llm_term names_term(struct llm_schema *s, llm_schema_claim claim)
{
    uint32_t node = llm_schema_node(s, &claim, 1);
    llm_term all = LLM_TERM_NOTHING;
    (void)llm_schema_form(s, node);
    for (size_t i = 0; i < s->nodes[node].n_atoms; i++)
        if (s->nodes[node].atoms[i].type == LLM_J_STRING) all = llm_term_or(s->t, all, llm_atom_text(s, &s->nodes[node].atoms[i]));
    return all;
}

static void fill_member(struct llm_schema *s, const struct llm_atom *a, struct llm_shape *x, struct llm_member *m, llm_term names,
                        llm_schema_claim *claims)
{
    size_t n = 0;
    uint32_t some = 0;
    m->forbidden = names != LLM_TERM_ANYTHING && !matches(s, names, m->key, m->n_key);
    for (size_t i = 0; i < a->n; i++) {
        const struct llm_clause *c = &a->clauses[i];
        bool same = c->key && c->n_key == m->n_key && memcmp(c->key, m->key, m->n_key) == 0;
        if (same && c->kind == LLM_C_REQUIRED) m->required = true;
        if (same && c->kind == LLM_C_FORBIDDEN) m->forbidden = true;
        if ((same && c->kind == LLM_C_MEMBER) || (c->kind == LLM_C_PATTERN && matches(s, c->at, m->key, m->n_key))
            || (c->kind == LLM_C_REST && !names_key(s, c->at, m->key, m->n_key))) claims[n++] = c->claim;
        if (c->kind == LLM_C_SOME && matches(s, c->at, m->key, m->n_key)) m->some |= 1u << some;
        if (c->kind == LLM_C_SOME_REST && !names_key(s, c->at, m->key, m->n_key)) m->some |= 1u << some;
        some += c->kind == LLM_C_SOME || c->kind == LLM_C_SOME_REST;
    }
    m->node = llm_schema_node(s, claims, n);
    x->n_required += m->required;
}

/* Patterns that divide the keys that are not named. */
struct patterns { llm_term v[MAX_PATTERNS]; uint32_t n; };

static uint32_t pattern_number(struct llm_schema *s, struct patterns *p, llm_term a)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->v[i] == a) return i;
    if (p->n == MAX_PATTERNS) {
        llm_schema_fail(s, "patternProperties: more than %d patterns for one object are not supported", MAX_PATTERNS);
        return 0;
    }
    p->v[p->n] = a;
    return p->n++;
}

/* The patterns of a schema, as bits. */
static uint32_t patterns_of(struct llm_schema *s, struct patterns *p, uint32_t part)
{
    const char *pattern;
    json_t *v;
    uint32_t all = 0;
    json_object_foreach(json_object_get(s->parts[part].json, "patternProperties"), pattern, v)
        all |= 1u << pattern_number(s, p, llm_schema_pattern(s, pattern, strlen(pattern), "patternProperties"));
    return all;
}

static bool is_false(const struct llm_schema *s, llm_schema_claim claim)
{
    const json_t *schema = s->parts[claim >> 1].json;
    return claim & 1 ? json_is_true(schema) : json_is_false(schema);
}

/* The class of keys that match the patterns of `mask` and no other. */
static int put_cell(struct llm_schema *s, const struct llm_atom *a, struct llm_shape *x, struct patterns *p, uint32_t mask, llm_term keys,
                    llm_schema_claim *claims)
{
    size_t n = 0;
    uint32_t some = 0;
    struct llm_cell cell = {.keys = keys};
    for (size_t i = 0; i < a->n; i++) {
        const struct llm_clause *c = &a->clauses[i];
        bool matched = (c->kind == LLM_C_PATTERN || c->kind == LLM_C_SOME) && mask >> pattern_number(s, p, c->at) & 1;
        if (c->kind == LLM_C_REST || c->kind == LLM_C_SOME_REST) matched = !(patterns_of(s, p, c->at) & mask);
        if (matched && (c->kind == LLM_C_PATTERN || c->kind == LLM_C_REST)) claims[n++] = c->claim;
        if (c->kind != LLM_C_SOME && c->kind != LLM_C_SOME_REST) continue;
        if (matched) cell.some |= 1u << some;
        some++;
    }
    for (size_t i = 0; i < n; i++)
        if (is_false(s, claims[i])) return 0;
    cell.node = llm_schema_node(s, claims, n);
    if (!llm_term_live(s->t, keys)) return 0;
    if (llm_grow((void **)&x->cells, &x->cells_room, x->n_cells + 1, sizeof *x->cells, &s->err) < 0) return -1;
    x->cells[x->n_cells++] = cell;
    return 0;
}

static int fill_cells(struct llm_schema *s, const struct llm_atom *a, struct llm_shape *x, llm_term names, llm_schema_claim *claims)
{
    struct patterns p = {.n = 0};
    llm_term keys = llm_term_and(s->t, s->strings, names), named = LLM_TERM_NOTHING;
    for (size_t i = 0; i < a->n; i++) {
        const struct llm_clause *c = &a->clauses[i];
        if (c->kind == LLM_C_PATTERN || c->kind == LLM_C_SOME) (void)pattern_number(s, &p, c->at);
        if (c->kind == LLM_C_REST || c->kind == LLM_C_SOME_REST) (void)patterns_of(s, &p, c->at);
    }
    llm_term *v = llm_alloc(x->n_members + 1, sizeof *v, "members", &s->err);
    if (!v) return -1;
    for (size_t i = 0; i < x->n_members; i++) v[i] = key_term(s, x->members[i].key, x->members[i].n_key);
    named = llm_term_either(s->t, v, x->n_members);
    free(v);
    keys = llm_term_and(s->t, keys, llm_term_not(s->t, named));
    for (uint32_t mask = 0; mask < 1u << p.n && !llm_schema_failed(s); mask++) {
        llm_term cell = keys;
        for (uint32_t i = 0; i < p.n; i++) cell = llm_term_and(s->t, cell, mask >> i & 1 ? p.v[i] : llm_term_not(s->t, p.v[i]));
        if (put_cell(s, a, x, &p, mask, cell, claims) < 0) return -1;
    }
    return s->err.status ? -1 : 0;
}

uint32_t llm_schema_with(struct llm_schema *s, uint32_t node, const struct llm_shape *x, uint32_t with)
{
    const struct llm_schema_node *from = &s->nodes[node];
    if (with == 0) return node;
    llm_schema_claim *v = llm_alloc(from->n + x->n_some, sizeof *v, "a member", &s->err);
    size_t n = from->n;
    if (!v) return node;
    memcpy(v, s->claims + from->claims, n * sizeof *v);
    for (uint32_t i = 0; i < x->n_some; i++)
        if (with >> i & 1) v[n++] = x->some[i];
    uint32_t made = llm_schema_node(s, v, n);
    free(v);
    return made;
}

const struct llm_shape *llm_schema_shape(struct llm_schema *s, struct llm_atom *a)
{
    if (a->shape) return a->shape;
    struct llm_shape *x = llm_calloc(1, sizeof *x, "an object", &s->err);
    llm_schema_claim *claims = llm_alloc(a->n + 1, sizeof *claims, "an object", &s->err);
    llm_term names = LLM_TERM_ANYTHING;
    int status = x && claims ? gather_members(s, a, x) : -1;
    for (size_t i = 0; status == 0 && i < a->n; i++) {
        const struct llm_clause *c = &a->clauses[i];
        if (c->kind == LLM_C_NAMES) names = llm_term_and(s->t, names, names_term(s, c->claim));
        if (c->kind != LLM_C_SOME && c->kind != LLM_C_SOME_REST) continue;
        if (x->n_some == sizeof x->some / sizeof *x->some) status = llm_schema_fail(s, "not and oneOf ask for more than 8 members of any name");
        else x->some[x->n_some++] = c->claim;
    }
    for (size_t i = 0; status == 0 && i < x->n_members && !s->err.status; i++) fill_member(s, a, x, &x->members[i], names, claims);
    if (status == 0) status = fill_cells(s, a, x, names, claims);
    free(claims);
    if (status == 0 && x->n_cells > 0 && a->min > x->n_required + 1 && a->min > 1) {
        /* Keys that are not named may repeat, and then count once. */
        llm_schema_fail(s, "minProperties above 1 is not supported where members may have any name");
    }
    a->shape = x;
    return x;
}

static bool object_possible(struct llm_schema *s, struct llm_atom *a)
{
    const struct llm_shape *x = llm_schema_shape(s, a);
    uint32_t satisfiable = 0, open = 0;
    if (!x || s->err.status || x->n_required > a->max) return false;
    for (size_t i = 0; i < x->n_members; i++) {
        const struct llm_member *m = &x->members[i];
        if (m->required && (m->forbidden || !llm_schema_possible(s, m->node))) return false;
        if (open < a->min) open += !m->forbidden && llm_schema_possible(s, m->node);
        for (uint32_t k = 0; k < x->n_some && !m->forbidden; k++)
            if (m->some & ~satisfiable & 1u << k && llm_schema_possible(s, llm_schema_with(s, m->node, x, 1u << k))) satisfiable |= 1u << k;
    }
    for (size_t i = 0; i < x->n_cells; i++) {
        const struct llm_cell *c = &x->cells[i];
        if (open < a->min && llm_schema_possible(s, c->node)) open = a->min;
        for (uint32_t k = 0; k < x->n_some; k++)
            if (c->some & ~satisfiable & 1u << k && llm_schema_possible(s, llm_schema_with(s, c->node, x, 1u << k))) satisfiable |= 1u << k;
    }
    return satisfiable == (1u << x->n_some) - 1 && open >= a->min && !s->err.status;
}

bool llm_atom_possible(struct llm_schema *s, struct llm_atom *a)
{
    if (a->min > a->max) return false;
    switch (a->type) {
    case LLM_J_NULL: return true;
    case LLM_J_BOOL: return a->truths[0] || a->truths[1];
    case LLM_J_NUMBER: case LLM_J_STRING: return llm_term_live(s->t, llm_atom_text(s, a));
    case LLM_J_ARRAY: return array_possible(s, a);
    default: break;
    }
    return object_possible(s, a);
}

void llm_schema_nodes_release(struct llm_schema *s)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        struct llm_atoms a = {s->nodes[i].atoms, s->nodes[i].n_atoms, s->nodes[i].n_atoms};
        llm_atoms_release(&a);
    }
    free(s->nodes);
}
