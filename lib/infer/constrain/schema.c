#include "infer/constrain/schema.h"

#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "infer/constrain/chars.h"
#include "infer/constrain/schema_internal.h"

enum { MAX_PLACES = 1 << 20, MAX_ALTERNATIVES = 1 << 16, MAX_SETS = 1024 /* of conditions, for one object */, BEGIN = 0, BETWEEN = 1 };

/* Alternatives that are gathered. */
struct choices { llm_term *v; size_t n, room; };

static void choose(struct llm_schema *s, struct choices *c, llm_term a)
{
    if (a == LLM_TERM_NOTHING || s->err.status) return;
    if (llm_grow((void **)&c->v, &c->room, c->n + 1, sizeof *c->v, &s->err) == 0) c->v[c->n++] = a;
}

static llm_term chosen(struct llm_schema *s, struct choices *c)
{
    llm_term all = llm_term_either(s->t, c->v, c->n);
    free(c->v);
    if (s->err.status) llm_terms_fail(s->t, &s->err);
    return all;
}

static llm_term joined(struct llm_schema *s, llm_term a, llm_term b, llm_term c)
{
    return llm_term_join(s->t, a, llm_term_join(s->t, b, c));
}

/* ---- places within arrays and objects ----
 * A place is the node, the number of its alternative, and words. Arrays: `at` items were written (as many as matter), a word for each LLM_C_CONTAINS
 * counts those that satisfied it. Objects: `at` members were written (as many as matter), the first word is a set of LLM_C_SOME that were
 * satisfied, others the set of members that were written. */

static uint32_t place_number(struct llm_schema *s, struct llm_place p, const uint32_t *words)
{
    uint64_t h = llm_xxh64(words, p.n * sizeof *words, ((uint64_t)p.node << 32 | p.atom) * 31 + p.at);
    uint32_t *head = &s->place_heads[h >> (64 - LLM_PLACE_BITS)];
    for (uint32_t i = *head; i; i = s->place_next[i - 1]) {
        const struct llm_place *q = &s->places[i - 1];
        if (q->node == p.node && q->atom == p.atom && q->at == p.at && q->n == p.n && memcmp(s->words + q->first, words, p.n * sizeof *words) == 0) {
            return i - 1;
        }
    }
    if (s->n_places >= MAX_PLACES) llm_schema_fail(s, "the text has too many places to remember");
    if (s->err.status || llm_grow((void **)&s->places, &s->places_room, s->n_places + 1, sizeof *s->places, &s->err) < 0
        || llm_grow((void **)&s->place_next, &s->place_next_room, s->n_places + 1, sizeof *s->place_next, &s->err) < 0
        || llm_grow((void **)&s->words, &s->words_room, s->n_words + p.n + 1, sizeof *s->words, &s->err) < 0) return 0;
    p.first = (uint32_t)s->n_words;
    memcpy(s->words + s->n_words, words, p.n * sizeof *words);
    s->n_words += p.n;
    s->places[s->n_places] = p;
    s->place_next[s->n_places] = *head;
    *head = (uint32_t)++s->n_places;
    return *head - 1;
}

static llm_term value_term(struct llm_schema *s, uint32_t node)
{
    return llm_schema_possible(s, node) ? llm_term_lazy(s->t, s->value_kind, node, 0, false) : LLM_TERM_NOTHING;
}

/* ---- arrays ---- */

/* What counts about an array: items of one kind after `prefix`, and so many that can be written. */
struct array { struct llm_atom *a; uint32_t prefix, n_contains, room; const struct llm_clause *contains[4]; };

static struct array array_of(struct llm_schema *s, struct llm_atom *a)
{
    struct array x = {.a = a, .room = a->max};
    for (size_t i = 0; i < a->n; i++) {
        const struct llm_clause *c = &a->clauses[i];
        uint32_t end = c->kind == LLM_C_ITEM ? c->at + 1 : c->at;
        if (end > x.prefix) x.prefix = end;
        if (c->kind == LLM_C_CONTAINS) x.contains[x.n_contains++] = c;
    }
    for (uint32_t i = 0; i <= x.prefix && i < x.room; i++)
        if (!llm_schema_possible(s, llm_schema_item(s, a, i, 0, 0))) x.room = i;
    return x;
}

/* Whether the items that are still wanted find places from `at` on. */
static bool can_satisfy(struct llm_schema *s, const struct array *x, uint32_t at, const uint32_t *counts)
{
    for (uint32_t k = 0; k < x->n_contains; k++) {
        const struct llm_clause *c = x->contains[k];
        uint32_t wanted = c->min > counts[k] ? c->min - counts[k] : 0, i = at > c->at ? at : c->at;
        if (counts[k] > c->max) return false;
        for (; wanted > 0 && i < x->room && i < x->prefix; i++)
            if (llm_schema_possible(s, llm_schema_item(s, x->a, i, 1u << k, 0))) wanted--;
        if (wanted == 0) continue;
        if (i >= x->room || !llm_schema_possible(s, llm_schema_item(s, x->a, i, 1u << k, 0))) return false;
        if (x->room != LLM_SCHEMA_ALWAYS && x->room - i < wanted) return false;
    }
    return true;
}

/* The contains that an item at `at` may satisfy, as bits. */
static uint32_t contains_at(const struct array *x, uint32_t at)
{
    uint32_t here = 0;
    for (uint32_t k = 0; k < x->n_contains; k++) here |= at >= x->contains[k]->at ? 1u << k : 0;
    return here;
}

/* Those of `here` that an item must not satisfy if it satisfies `with` alone: those that have a maximum. */
static uint32_t contains_without(const struct array *x, uint32_t here, uint32_t with)
{
    uint32_t without = 0;
    for (uint32_t k = 0; k < x->n_contains; k++)
        if (here & ~with & 1u << k && x->contains[k]->max != LLM_SCHEMA_ALWAYS) without |= 1u << k;
    return without;
}

static llm_term array_place(struct llm_schema *s, struct llm_place p, const uint32_t *counts)
{
    return llm_term_lazy(s->t, s->array_kind, place_number(s, p, counts), BETWEEN, false);
}

/* The next item and what follows it. */
static llm_term next_item(struct llm_schema *s, const struct array *x, struct llm_place p, const uint32_t *counts)
{
    struct choices all = {0};
    uint32_t limit = x->prefix > x->a->min ? x->prefix : x->a->min, here = contains_at(x, p.at);
    if (p.at >= x->room) return LLM_TERM_NOTHING;
    struct llm_place after = p;
    /* Beyond what counts, places are the same. */
    after.at = x->room != LLM_SCHEMA_ALWAYS || p.at < limit ? p.at + 1 : p.at;
    for (uint32_t with = 0; with < 1u << x->n_contains; with++) {
        uint32_t next[4] = {0};
        if (with & ~here) continue;
        for (uint32_t k = 0; k < x->n_contains; k++) {
            uint32_t most = x->contains[k]->max == LLM_SCHEMA_ALWAYS ? x->contains[k]->min : x->contains[k]->max + 1;
            next[k] = counts[k] + (with >> k & 1);
            if (next[k] > most) next[k] = most;
        }
        if (!can_satisfy(s, x, p.at + 1, next)) continue;
        llm_term item = value_term(s, llm_schema_item(s, x->a, p.at, with, contains_without(x, here, with)));
        if (item != LLM_TERM_NOTHING) choose(s, &all, llm_term_join(s->t, item, array_place(s, after, next)));
    }
    return chosen(s, &all);
}

static llm_term expand_array(void *arg, uint32_t number, uint32_t phase)
{
    struct llm_schema *s = arg;
    const struct llm_place p = s->places[number];
    uint32_t counts[4] = {0};
    memcpy(counts, s->words + p.first, p.n * sizeof *counts);
    struct array x = array_of(s, &s->nodes[p.node].atoms[p.atom]);
    bool may_end = p.at >= x.a->min;
    for (uint32_t k = 0; k < x.n_contains; k++) may_end = may_end && counts[k] >= x.contains[k]->min && counts[k] <= x.contains[k]->max;
    llm_term end = may_end ? llm_term_byte(s->t, ']') : LLM_TERM_NOTHING, item = next_item(s, &x, p, counts);
    if (phase == BEGIN) return llm_term_join(s->t, s->space, llm_term_or(s->t, end, item));
    return llm_term_or(s->t, llm_term_join(s->t, s->space, end), joined(s, llm_term_byte(s->t, ','), s->space, item));
}

/* ---- objects ---- */

static bool is_written(const uint32_t *words, size_t member)
{
    return words[1 + member / 32] >> (member % 32) & 1;
}

/* Whether an object can be completed: members that must still come have room, and some that are asked for can still come. */
static bool can_complete(struct llm_schema *s, const struct llm_atom *a, const struct llm_shape *x, uint32_t at, const uint32_t *words)
{
    uint32_t wanted = 0, open = ~words[0] & ((1u << x->n_some) - 1);
    for (size_t i = 0; i < x->n_members; i++) {
        const struct llm_member *m = &x->members[i];
        if (is_written(words, i) || m->forbidden) continue;
        wanted += m->required;
        for (uint32_t k = 0; k < x->n_some; k++)
            if (open & m->some & 1u << k && llm_schema_possible(s, llm_schema_with(s, m->node, x, 1u << k))) open &= ~(1u << k);
    }
    for (size_t i = 0; i < x->n_cells && open; i++)
        for (uint32_t k = 0; k < x->n_some; k++)
            if (open & x->cells[i].some & 1u << k && llm_schema_possible(s, llm_schema_with(s, x->cells[i].node, x, 1u << k))) open &= ~(1u << k);
    if (open) return false;
    uint32_t missing = ~words[0] & ((1u << x->n_some) - 1);
    if (missing && wanted == 0) wanted = 1;
    return a->max == LLM_SCHEMA_ALWAYS || wanted <= a->max - at;
}

/* Values of a member, each with what follows, for every set of LLM_C_SOME that it satisfies. */
static void choose_member(struct llm_schema *s, struct choices *all, llm_term key, uint32_t node, uint32_t some, struct llm_place p,
                          const struct llm_atom *a, const struct llm_shape *x, uint32_t *words)
{
    const uint32_t before = words[0];
    llm_term colon = llm_term_byte(s->t, ':');
    for (uint32_t with = 0; with < 1u << x->n_some; with++) {
        if (with & ~(some & ~before)) continue;
        words[0] = before | with;
        if (!can_complete(s, a, x, p.at, words)) continue;
        llm_term value = value_term(s, llm_schema_with(s, node, x, with));
        if (value == LLM_TERM_NOTHING) continue;
        llm_term rest = llm_term_lazy(s->t, s->object_kind, place_number(s, p, words), BETWEEN, false);
        choose(s, all, llm_term_join(s->t, key, llm_term_join(s->t, colon, joined(s, s->space, value, rest))));
    }
    words[0] = before;
}

static llm_term expand_object(void *arg, uint32_t number, uint32_t phase)
{
    struct llm_schema *s = arg;
    struct llm_place p = s->places[number];
    struct llm_atom *a = &s->nodes[p.node].atoms[p.atom];
    const struct llm_shape *x = llm_schema_shape(s, a);
    struct choices all = {0};
    uint32_t *words = x ? llm_alloc(p.n, sizeof *words, "an object", &s->err) : NULL;
    bool may_end = p.at >= a->min;
    llm_term quote = llm_term_byte(s->t, '"');
    if (!words) {
        llm_terms_fail(s->t, &s->err);
        return LLM_TERM_NOTHING;
    }
    memcpy(words, s->words + p.first, p.n * sizeof *words);
    may_end = may_end && words[0] == (1u << x->n_some) - 1;
    for (size_t i = 0; i < x->n_members; i++) may_end = may_end && (!x->members[i].required || is_written(words, i));
    struct llm_place after = p;
    if (a->max != LLM_SCHEMA_ALWAYS || p.at < a->min) after.at++; /* beyond what counts, places are the same */
    for (size_t i = 0; i < x->n_members && p.at < a->max; i++) {
        struct llm_member *m = &a->shape->members[i];
        if (m->forbidden || is_written(words, i)) continue;
        words[1 + i / 32] |= 1u << (i % 32);
        if (m->text == LLM_TERM_NOTHING) {
            m->text = llm_term_lexeme(s->t, joined(s, quote, llm_term_spelled(s->t, m->key, m->n_key, LLM_SPELL_USUAL), quote));
        }
        choose_member(s, &all, m->text, m->node, m->some, after, a, x, words);
        words[1 + i / 32] &= ~(1u << (i % 32));
    }
    for (size_t i = 0; i < x->n_cells && p.at < a->max; i++) {
        /* A key that is not named may come again, and its last value counts: what an earlier one satisfied, all later ones satisfy. */
        uint32_t node = llm_schema_with(s, x->cells[i].node, x, words[0] & x->cells[i].some);
        choose_member(s, &all, llm_term_lexeme(s->t, x->cells[i].keys), node, x->cells[i].some, after, a, x, words);
    }
    free(words);
    llm_term members = chosen(s, &all), end = may_end ? llm_term_byte(s->t, '}') : LLM_TERM_NOTHING;
    if (phase == BEGIN) return llm_term_join(s->t, s->space, llm_term_or(s->t, end, members));
    return llm_term_or(s->t, llm_term_join(s->t, s->space, end), joined(s, llm_term_byte(s->t, ','), s->space, members));
}

/* ---- values ---- */

static llm_term begin_array(struct llm_schema *s, uint32_t node, uint32_t atom)
{
    const uint32_t counts[4] = {0};
    struct array x = array_of(s, &s->nodes[node].atoms[atom]);
    struct llm_place p = {.node = node, .atom = atom, .n = x.n_contains};
    return llm_term_join(s->t, llm_term_byte(s->t, '['), llm_term_lazy(s->t, s->array_kind, place_number(s, p, counts), BEGIN, false));
}

static llm_term begin_object(struct llm_schema *s, uint32_t node, uint32_t atom)
{
    struct llm_atom *a = &s->nodes[node].atoms[atom];
    const struct llm_shape *x = llm_atom_possible(s, a) ? llm_schema_shape(s, a) : NULL;
    uint32_t n = x ? 1 + (uint32_t)(x->n_members + 31) / 32 : 1, *words = llm_calloc(n, sizeof *words, "an object", &s->err);
    if (!x || !words) {
        free(words);
        return LLM_TERM_NOTHING;
    }
    struct llm_place p = {.node = node, .atom = atom, .n = n};
    llm_term rest = llm_term_lazy(s->t, s->object_kind, place_number(s, p, words), BEGIN, false);
    free(words);
    return llm_term_join(s->t, llm_term_byte(s->t, '{'), rest);
}

static llm_term expand_value(void *arg, uint32_t node, uint32_t unused)
{
    struct llm_schema *s = arg;
    struct choices all = {0};
    (void)unused;
    (void)llm_schema_form(s, node);
    for (size_t i = 0; i < s->nodes[node].n_atoms && !llm_schema_failed(s); i++) {
        struct llm_atom *a = &s->nodes[node].atoms[i];
        llm_term text;
        switch (a->type) {
        case LLM_J_NULL: choose(s, &all, llm_term_text(s->t, "null", 4)); break;
        case LLM_J_BOOL:
            if (a->truths[0]) choose(s, &all, llm_term_text(s->t, "false", 5));
            if (a->truths[1]) choose(s, &all, llm_term_text(s->t, "true", 4));
            break;
        case LLM_J_NUMBER: case LLM_J_STRING:
            text = llm_atom_text(s, a);
            if (llm_term_live(s->t, text)) choose(s, &all, llm_term_lexeme(s->t, text));
            break;
        case LLM_J_ARRAY:
            if (llm_atom_possible(s, a)) choose(s, &all, begin_array(s, node, (uint32_t)i));
            break;
        default: choose(s, &all, begin_object(s, node, (uint32_t)i)); break;
        }
    }
    return chosen(s, &all);
}

/* ---- making ---- */

static void make_terms(struct llm_schema *s)
{
    static struct llm_char_range every[] = {{0, 0xD7FF}, {0xE000, 0x10FFFF}};
    llm_term quote = llm_term_byte(s->t, '"'), blank = llm_term_or(s->t, llm_term_byte(s->t, ' '), llm_term_byte(s->t, '\t'));
    s->chars = llm_term_chars(s->t, &(struct llm_chars){every, 2, 2}, LLM_SPELL_JSON);
    s->strings = joined(s, quote, llm_term_repeat(s->t, s->chars, 0, LLM_REPEAT_ALWAYS), quote);
    s->any_number = llm_number_any(s->t, true);
    s->plain_number = llm_number_any(s->t, false);
    s->integer = llm_number_integer(s->t, s->old_integers ? 0 : 1);
    s->any_integer = llm_number_integer(s->t, s->old_integers ? 0 : LLM_NUMBER_FRACTION);
    s->tidy_number = llm_number_tidy(s->t);
    /* None, a blank, or a new line with its indentation: bounded, so that no model writes space without end. */
    llm_term line = llm_term_join(s->t, llm_term_byte(s->t, '\n'), llm_term_repeat(s->t, blank, 0, 64));
    s->space = llm_term_either(s->t, (llm_term[]){LLM_TERM_EMPTY_TEXT, llm_term_byte(s->t, ' '), line}, 3);
    s->value_kind = llm_terms_kind(s->t, expand_value, s);
    s->array_kind = llm_terms_kind(s->t, expand_array, s);
    s->object_kind = llm_terms_kind(s->t, expand_object, s);
}

/* Makes the nodes of the items of an array: of what satisfies each of its LLM_C_CONTAINS, and each set of them. */
static void make_items(struct llm_schema *s, struct llm_atom *a)
{
    const struct array x = array_of(s, a);
    for (uint32_t i = 0; i <= x.prefix && i < x.room && x.n_contains > 0; i++) {
        const uint32_t here = contains_at(&x, i);
        for (uint32_t with = 0; with < 1u << x.n_contains; with++) {
            if (with & ~here) continue;
            (void)llm_schema_item(s, a, i, with, contains_without(&x, here, with));
            if (!(with & (with - 1))) (void)llm_schema_item(s, a, i, with, 0);
        }
    }
}

/* Makes the nodes of what has the node `node` and satisfies one of `some`, or with `sets` each set of them. */
static void make_sets(struct llm_schema *s, const struct llm_shape *x, uint32_t node, uint32_t some, bool sets)
{
    for (uint32_t with = 1; with < 1u << x->n_some; with++)
        if (!(with & ~some) && (sets || !(with & (with - 1)))) (void)llm_schema_with(s, node, x, with);
}

/* Makes the nodes of the members that satisfy an object's LLM_C_SOME. */
static void make_members(struct llm_schema *s, struct llm_atom *a)
{
    const struct llm_shape *x = llm_schema_shape(s, a);
    const bool sets = x && (x->n_members + x->n_cells) << x->n_some <= MAX_SETS;
    for (size_t i = 0; x && i < x->n_members; i++) make_sets(s, x, x->members[i].node, x->members[i].some, sets);
    for (size_t i = 0; x && i < x->n_cells; i++) make_sets(s, x, x->cells[i].node, x->cells[i].some, sets);
}

/* Schemas that can come up are brought to their normal form, so that what is not supported is found before the first token: all but those of members
 * that satisfy several conditions at once, if there are very many. */
static int form_all(struct llm_schema *s, uint32_t root)
{
    (void)llm_schema_possible(s, root);
    for (uint32_t i = 0; i < s->n_nodes && !llm_schema_failed(s); i++) {
        (void)llm_schema_form(s, i);
        for (size_t k = 0; k < s->nodes[i].n_atoms && !s->err.status; k++) {
            if (s->nodes[i].atoms[k].type == LLM_J_OBJECT) make_members(s, &s->nodes[i].atoms[k]);
            if (s->nodes[i].atoms[k].type == LLM_J_ARRAY) make_items(s, &s->nodes[i].atoms[k]);
        }
    }
    return llm_schema_failed(s) ? -1 : 0;
}

struct llm_schema *llm_schema_create(struct llm_terms *t, const char *text, size_t n, llm_term *root, struct llm_err *e)
{
    struct llm_schema *s = llm_calloc(1, sizeof *s, "a schema", e);
    if (!s) return NULL;
    s->t = t;
    s->possible = llm_atom_possible;
    s->json = llm_json_parse(text, n, &s->err);
    s->made = json_array();
    s->numbers = llm_numbers_create(t, &s->err);
    s->part_heads = llm_calloc((size_t)1 << LLM_PART_BITS, sizeof *s->part_heads, "a schema", &s->err);
    s->place_heads = llm_calloc((size_t)1 << LLM_PLACE_BITS, sizeof *s->place_heads, "a schema", &s->err);
    if (s->json && s->made && s->numbers && s->part_heads && s->place_heads && llm_schema_scan(s) == 0) {
        make_terms(s);
        llm_schema_claim claim = llm_schema_part(s, s->json, 0) << 1;
        uint32_t node = llm_schema_node(s, &claim, 1);
        if (form_all(s, node) == 0 && !llm_schema_possible(s, node)) llm_schema_fail(s, "no value satisfies it");
        *root = value_term(s, node);
    }
    if (!llm_schema_failed(s)) return s;
    if (e) *e = s->err;
    llm_schema_destroy(s);
    return NULL;
}

void llm_schema_destroy(struct llm_schema *s)
{
    if (!s) return;
    llm_schema_nodes_release(s);
    llm_numbers_destroy(s->numbers);
    json_decref(s->json);
    json_decref(s->made);
    for (size_t i = 0; i < s->n_resources; i++) free(s->resources[i].uri);
    free(s->resources);
    free(s->anchors);
    free(s->parts);
    free(s->part_heads);
    free(s->part_next);
    free(s->claims);
    free(s->constants);
    free(s->places);
    free(s->words);
    free(s->place_heads);
    free(s->place_next);
    free(s);
}
