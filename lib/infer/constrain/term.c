#include "infer/constrain/term.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/hash.h"
#include "infer/constrain/term_internal.h"

enum { SET_BITS = 12, MAX_JOINING = 64, MAX_PAIRS = 1024 /* of alternatives that are compared */,
       MAX_STEPS = 100, MAX_RESTS = 64 /* of one question whether a term contains another */ };

void llm_terms_fail(struct llm_terms *t, const struct llm_err *e)
{
    if (!t->err.status) t->err = *e;
}

int llm_terms_failed(const struct llm_terms *t, struct llm_err *e)
{
    if (!t->err.status) return 0;
    if (e) *e = t->err;
    return -1;
}

/* An error is a kilobyte, so that only what fails has one. */
static bool grow(struct llm_terms *t, void **array, size_t *room, size_t want, size_t size)
{
    struct llm_err e = {0};
    if (llm_grow(array, room, want, size, &e) == 0) return true;
    llm_terms_fail(t, &e);
    return false;
}

bool llm_terms_grow(struct llm_terms *t, void **array, size_t *room, size_t want, size_t size)
{
    if (t->err.status) return false;
    return want <= *room || grow(t, array, room, want, size);
}

/* ---- sets of bytes ---- */

uint32_t llm_terms_set(struct llm_terms *t, const struct llm_byte_set *s)
{
    uint32_t *head = &t->set_heads[llm_xxh64(s, sizeof *s, 0) >> (64 - SET_BITS)];
    for (uint32_t i = *head; i; i = t->set_next[i - 1])
        if (memcmp(&t->sets[i - 1], s, sizeof *s) == 0) return i - 1;
    if (!llm_terms_grow(t, (void **)&t->sets, &t->sets_room, t->n_sets + 1, sizeof *t->sets)
        || !llm_terms_grow(t, (void **)&t->set_next, &t->set_next_room, t->n_sets + 1, sizeof *t->set_next)) return 0;
    t->sets[t->n_sets] = *s;
    t->set_next[t->n_sets] = *head;
    *head = (uint32_t)++t->n_sets;
    return *head - 1;
}

/* ---- making terms ---- */

static uint64_t hash_of(const struct llm_terms *t, const struct llm_term_node *k)
{
    uint32_t key[4] = {k->kind, k->x, k->y, k->z};
    if (k->kind == EITHER || k->kind == BOTH) return llm_xxh64(t->lists + k->x, k->y * sizeof *t->lists, k->kind);
    return llm_xxh64(key, sizeof key, 0);
}

static bool same(const struct llm_terms *t, const struct llm_term_node *a, const struct llm_term_node *b)
{
    if (a->kind != b->kind || a->y != b->y) return false;
    if (a->kind == EITHER || a->kind == BOTH) return memcmp(t->lists + a->x, t->lists + b->x, a->y * sizeof *t->lists) == 0;
    return a->x == b->x && a->z == b->z;
}

static void rehash(struct llm_terms *t)
{
    struct llm_err e = {0};
    int bits = t->bits + 2;
    uint32_t *heads = llm_calloc((size_t)1 << bits, sizeof *heads, "terms", &e);
    if (!heads) {
        llm_terms_fail(t, &e);
        return;
    }
    free(t->heads);
    t->heads = heads;
    t->bits = bits;
    for (size_t i = 0; i < t->n; i++) {
        uint32_t *head = &heads[hash_of(t, &t->v[i]) >> (64 - bits)];
        t->v[i].next = *head;
        *head = (uint32_t)i + 1;
    }
}

/* The term that is equal to `k`, which is added if there is none. */
static llm_term make(struct llm_terms *t, const struct llm_term_node *k)
{
    if (t->err.status) return LLM_TERM_NOTHING;
    uint64_t h = hash_of(t, k);
    for (uint32_t i = t->heads[h >> (64 - t->bits)]; i; i = t->v[i - 1].next)
        if (same(t, &t->v[i - 1], k)) return i - 1;
    if (t->n >= t->max) {
        struct llm_err e = {0};
        llm_fail(&e, EX_UNAVAILABLE, "the constraint needs more than %zu states", t->max);
        llm_terms_fail(t, &e);
        return LLM_TERM_NOTHING;
    }
    if (!llm_terms_grow(t, (void **)&t->v, &t->room, t->n + 1, sizeof *t->v)) return LLM_TERM_NOTHING;
    if (t->n >= (size_t)1 << t->bits) rehash(t);
    if (t->err.status) return LLM_TERM_NOTHING;
    uint32_t *head = &t->heads[h >> (64 - t->bits)];
    t->v[t->n] = *k;
    t->v[t->n].next = *head;
    *head = (uint32_t)++t->n;
    return *head - 1;
}

llm_term llm_term_set(struct llm_terms *t, const struct llm_byte_set *s)
{
    if (llm_byte_set_is_empty(s)) return LLM_TERM_NOTHING;
    return make(t, &(struct llm_term_node){.kind = SET, .x = llm_terms_set(t, s), .live = LIVE});
}

llm_term llm_term_range(struct llm_terms *t, unsigned char low, unsigned char high)
{
    struct llm_byte_set s = {{0}};
    for (int b = low; b <= high; b++) s.w[b >> 6] |= UINT64_C(1) << (b & 63);
    return llm_term_set(t, &s);
}

llm_term llm_term_byte(struct llm_terms *t, unsigned char byte)
{
    return llm_term_range(t, byte, byte);
}

llm_term llm_term_text(struct llm_terms *t, const char *p, size_t n)
{
    llm_term all = LLM_TERM_EMPTY_TEXT;
    while (n > 0) all = llm_term_join(t, llm_term_byte(t, (unsigned char)p[--n]), all);
    return all;
}

llm_term llm_term_join(struct llm_terms *t, llm_term a, llm_term b)
{
    llm_term spine[64];
    size_t n = 0;
    if (a == LLM_TERM_NOTHING || b == LLM_TERM_NOTHING) return LLM_TERM_NOTHING;
    if (b == LLM_TERM_EMPTY_TEXT) return a;
    /* Joins lean to the right: (x y) b is x (y b). */
    for (; t->v[a].kind == JOIN; a = t->v[a].y) {
        if (n == sizeof spine / sizeof *spine) {
            b = llm_term_join(t, a, b);
            a = LLM_TERM_EMPTY_TEXT;
            break;
        }
        spine[n++] = t->v[a].x;
    }
    if (a != LLM_TERM_EMPTY_TEXT) spine[n++] = a;
    while (n > 0) {
        a = spine[--n];
        b = make(t, &(struct llm_term_node){.kind = JOIN, .x = a, .y = b, .nullable = t->v[a].nullable && t->v[b].nullable});
    }
    return b;
}

static int ascending(const void *a, const void *b)
{
    const llm_term *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Terms that are being gathered. Most are few. */
struct gathered { llm_term few[32], *v; size_t n, room; };

static void gather(struct llm_terms *t, struct gathered *g, llm_term a)
{
    if (!g->v) {
        g->v = g->few;
        g->room = sizeof g->few / sizeof *g->few;
    }
    if (g->n == g->room) {
        struct llm_err e = {0};
        llm_term *v = llm_alloc(g->room * 2, sizeof *v, "terms", &e);
        if (!v) {
            llm_terms_fail(t, &e);
            return;
        }
        memcpy(v, g->v, g->n * sizeof *v);
        if (g->v != g->few) free(g->v);
        g->v = v;
        g->room *= 2;
    }
    g->v[g->n++] = a;
}

static void gathered_release(struct gathered *g)
{
    if (g->v != g->few) free(g->v);
}

/* The term, or the members of a term of `kind`. */
static void gather_members(struct llm_terms *t, struct gathered *g, enum llm_term_kind kind, llm_term a)
{
    if (t->v[a].kind != kind) {
        gather(t, g, a);
        return;
    }
    for (uint32_t i = 0; i < t->v[a].y; i++) gather(t, g, t->lists[t->v[a].x + i]);
}

static void sort_members(struct gathered *g)
{
    size_t n = 0;
    if (g->n < 2) return;
    qsort(g->v, g->n, sizeof *g->v, ascending);
    for (size_t i = 0; i < g->n; i++)
        if (n == 0 || g->v[n - 1] != g->v[i]) g->v[n++] = g->v[i];
    g->n = n;
}

/* A term over sorted members, two or more. */
static llm_term make_list(struct llm_terms *t, enum llm_term_kind kind, const struct gathered *g, bool nullable)
{
    size_t from = t->n_lists, before = t->n;
    if (!llm_terms_grow(t, (void **)&t->lists, &t->lists_room, from + g->n, sizeof *t->lists)) return LLM_TERM_NOTHING;
    memcpy(t->lists + from, g->v, g->n * sizeof *g->v);
    t->n_lists += g->n;
    llm_term made = make(t, &(struct llm_term_node){.kind = (uint8_t)kind, .x = (uint32_t)from, .y = (uint32_t)g->n, .nullable = nullable});
    if (t->n == before) t->n_lists = from;
    return made;
}

struct headed { llm_term head, tail; };

static int by_head(const void *a, const void *b)
{
    const struct headed *x = a, *y = b;
    return x->head != y->head ? (x->head > y->head) - (x->head < y->head) : (x->tail > y->tail) - (x->tail < y->tail);
}

/* Joins members that begin with the same term: x b, x c become x (b or c). Bytes are left alone, as reading them joins what follows. */
static void join_heads(struct llm_terms *t, struct gathered *g)
{
    size_t joins = 0, n = g->n, end, room = 0;
    struct headed few[32], *v = few;
    for (size_t i = 0; i < n; i++) joins += t->v[g->v[i]].kind == JOIN && t->v[t->v[g->v[i]].x].kind != SET;
    if (joins < 2 || t->joining >= MAX_JOINING) return;
    if (n > sizeof few / sizeof *few) {
        v = NULL;
        if (!llm_terms_grow(t, (void **)&v, &room, n, sizeof *v)) return;
    }
    t->joining++;
    for (size_t i = 0; i < n; i++) {
        const struct llm_term_node *k = &t->v[g->v[i]];
        v[i] = k->kind == JOIN && t->v[k->x].kind != SET ? (struct headed){k->x, k->y} : (struct headed){g->v[i], LLM_TERM_EMPTY_TEXT};
    }
    qsort(v, n, sizeof *v, by_head);
    g->n = 0;
    for (size_t i = 0; i < n; i = end) {
        struct gathered tails = {0};
        for (end = i; end < n && v[end].head == v[i].head; end++) gather(t, &tails, v[end].tail);
        gather(t, g, llm_term_join(t, v[i].head, tails.n == 1 ? tails.v[0] : llm_term_either(t, tails.v, tails.n)));
        gathered_release(&tails);
    }
    if (v != few) free(v);
    t->joining--;
}

/* Sets of bytes among the members become one. */
static void join_sets(struct llm_terms *t, struct gathered *g)
{
    struct llm_byte_set all = {{0}};
    size_t n = 0, sets = 0;
    for (size_t i = 0; i < g->n; i++) sets += t->v[g->v[i]].kind == SET;
    if (sets < 2) return;
    for (size_t i = 0; i < g->n; i++) {
        const struct llm_term_node *k = &t->v[g->v[i]];
        if (k->kind != SET) g->v[n++] = g->v[i];
        for (int w = 0; k->kind == SET && w < 4; w++) all.w[w] |= t->sets[k->x].w[w];
    }
    g->n = n;
    gather(t, g, llm_term_set(t, &all));
}

/* ---- alternatives that others contain ---- */

/* Terms that follow one another. */
struct rest { llm_term a; const struct rest *next; };

static bool set_within(const struct llm_byte_set *a, const struct llm_byte_set *b)
{
    return !((a->w[0] & ~b->w[0]) | (a->w[1] & ~b->w[1]) | (a->w[2] & ~b->w[2]) | (a->w[3] & ~b->w[3]));
}

static bool head_within(const struct llm_terms *t, llm_term a, llm_term b)
{
    const struct llm_term_node *x = &t->v[a], *y = &t->v[b];
    if (a == b) return true;
    if (x->kind == SET && y->kind == SET) return set_within(&t->sets[x->x], &t->sets[y->x]);
    return x->kind == REPEAT && y->kind == REPEAT && x->x == y->x && x->y >= y->y && x->z <= y->z;
}

/* Whether `a` is within what `b` and the terms after it join to. */
static bool within(struct llm_terms *t, llm_term a, const struct rest *b, int depth, int *steps)
{
    while (b && b->a == LLM_TERM_EMPTY_TEXT) b = b->next;
    if (!b) return a == LLM_TERM_EMPTY_TEXT;
    if (!b->next && (a == b->a || b->a == LLM_TERM_ANYTHING)) return true;
    if (++*steps > MAX_STEPS || depth == MAX_RESTS) return false;
    const struct llm_term_node k = t->v[b->a];
    if (k.kind == JOIN) {
        const struct rest tail = {k.y, b->next}, head = {k.x, &tail};
        return within(t, a, &head, depth + 1, steps);
    }
    const bool joined = t->v[a].kind == JOIN;
    const llm_term first = joined ? t->v[a].x : a, others = joined ? t->v[a].y : LLM_TERM_EMPTY_TEXT;
    if (head_within(t, first, b->a) && within(t, others, b->next, depth + 1, steps)) return true;
    if (k.nullable && within(t, a, b->next, depth + 1, steps)) return true;
    if (k.kind != REPEAT || a == LLM_TERM_EMPTY_TEXT) return false;
    const uint32_t max = k.z == LLM_REPEAT_ALWAYS ? k.z : k.z - 1;
    const struct rest again = {llm_term_repeat(t, k.x, k.y > 0 ? k.y - 1 : 0, max), b->next}, once = {k.x, &again};
    return within(t, a, &once, depth + 1, steps);
}

/* Whether every text of `a` belongs to `b`, as far as their forms show: false may be wrong. */
static bool is_within(struct llm_terms *t, llm_term a, llm_term b)
{
    const struct rest all = {b, NULL};
    int steps = 0;
    return within(t, a, &all, 0, &steps);
}

static bool begins_with_count(const struct llm_terms *t, llm_term a)
{
    const struct llm_term_node *k = &t->v[a];
    if (k->kind == JOIN) k = &t->v[k->x];
    return k->kind == REPEAT && k->z != LLM_REPEAT_ALWAYS;
}

/* Drops members that another one contains. What begins with bounded repetitions of texts that can be divided in several ways, like
 * (\w{0,30} ?){0,100}, has alternatives after each byte that differ in their counts alone: without those that others contain, a state stays small.
 * Only what begins with a bounded repetition is taken to contain others; every member is compared with each of these, unless there are too many. */
static void drop_contained(struct llm_terms *t, struct gathered *g)
{
    size_t counts = 0;
    for (size_t i = 0; i < g->n; i++) counts += begins_with_count(t, g->v[i]);
    if (counts == 0 || g->n < 2 || counts > MAX_PAIRS / g->n) return;
    for (size_t i = 0; i < g->n; i++) {
        if (!begins_with_count(t, g->v[i])) continue;
        const llm_term all = g->v[i];
        size_t n = 0;
        for (size_t k = 0; k < g->n; k++) {
            if (g->v[k] == all) i = n;
            if (g->v[k] == all || !is_within(t, g->v[k], all)) g->v[n++] = g->v[k];
        }
        g->n = n;
    }
}

llm_term llm_term_either(struct llm_terms *t, const llm_term *v, size_t n)
{
    struct gathered g = {0};
    llm_term made = LLM_TERM_NOTHING;
    bool nullable = false, anything = false;
    for (size_t i = 0; i < n; i++) {
        anything |= v[i] == LLM_TERM_ANYTHING;
        if (v[i] != LLM_TERM_NOTHING) gather_members(t, &g, EITHER, v[i]);
    }
    if (anything) {
        gathered_release(&g);
        return LLM_TERM_ANYTHING;
    }
    sort_members(&g);
    drop_contained(t, &g);
    join_sets(t, &g);
    join_heads(t, &g);
    sort_members(&g);
    for (size_t i = 0; i < g.n; i++) nullable |= t->v[g.v[i]].nullable;
    if (g.n == 1) made = g.v[0];
    else if (g.n > 1) made = make_list(t, EITHER, &g, nullable);
    gathered_release(&g);
    return made;
}

llm_term llm_term_or(struct llm_terms *t, llm_term a, llm_term b)
{
    return llm_term_either(t, (llm_term[]){a, b}, 2);
}

llm_term llm_term_and(struct llm_terms *t, llm_term a, llm_term b)
{
    struct gathered g = {0};
    llm_term made;
    if (a == LLM_TERM_NOTHING || b == LLM_TERM_NOTHING) return LLM_TERM_NOTHING;
    if (a == LLM_TERM_ANYTHING || a == b) return b;
    if (b == LLM_TERM_ANYTHING) return a;
    if (a == LLM_TERM_EMPTY_TEXT || b == LLM_TERM_EMPTY_TEXT) {
        return t->v[a].nullable && t->v[b].nullable ? LLM_TERM_EMPTY_TEXT : LLM_TERM_NOTHING;
    }
    gather_members(t, &g, BOTH, a);
    gather_members(t, &g, BOTH, b);
    sort_members(&g);
    made = g.n == 1 ? g.v[0] : make_list(t, BOTH, &g, t->v[a].nullable && t->v[b].nullable);
    gathered_release(&g);
    return made;
}

llm_term llm_term_not(struct llm_terms *t, llm_term a)
{
    if (a == LLM_TERM_NOTHING) return LLM_TERM_ANYTHING;
    if (a == LLM_TERM_ANYTHING) return LLM_TERM_NOTHING;
    if (t->v[a].kind == NOT) return t->v[a].x;
    return make(t, &(struct llm_term_node){.kind = NOT, .x = a, .nullable = !t->v[a].nullable});
}

struct counts { uint32_t min, max; };

/* Whether (x{low,high}){min,max} is x{least,most}, where `k` is the inner repetition: the ranges n·low to n·high of n = min to max leave no gap. No
 * text has LLM_REPEAT_ALWAYS parts. */
static bool repeats_as_one(const struct llm_term_node *k, uint32_t min, uint32_t max, struct counts *one)
{
    const uint64_t low = k->y, high = k->z, least = low * min, most = high * max;
    if ((min + UINT64_C(1)) * low > high * min + 1 || least >= LLM_REPEAT_ALWAYS) return false;
    *one = (struct counts){(uint32_t)least, most < LLM_REPEAT_ALWAYS ? (uint32_t)most : LLM_REPEAT_ALWAYS};
    return true;
}

llm_term llm_term_repeat(struct llm_terms *t, llm_term a, uint32_t min, uint32_t max)
{
    struct counts counts;
    if (max == 0 || a == LLM_TERM_EMPTY_TEXT) return LLM_TERM_EMPTY_TEXT;
    if (a == LLM_TERM_NOTHING) return min == 0 ? LLM_TERM_EMPTY_TEXT : LLM_TERM_NOTHING;
    if (min == 1 && max == 1) return a;
    if (t->v[a].nullable) min = 0;
    if (a == LLM_TERM_ANYTHING) return a;
    if (t->v[a].kind == REPEAT && repeats_as_one(&t->v[a], min, max, &counts)) {
        a = t->v[a].x;
        min = counts.min;
        max = counts.max;
    }
    return make(t, &(struct llm_term_node){.kind = REPEAT, .x = a, .y = min, .z = max, .nullable = min == 0});
}

llm_term llm_term_lexeme(struct llm_terms *t, llm_term a)
{
    if (a <= LLM_TERM_ANYTHING || t->v[a].kind == LEXEME || t->v[a].kind == SET) return a;
    return make(t, &(struct llm_term_node){.kind = LEXEME, .x = a, .nullable = t->v[a].nullable});
}

uint32_t llm_terms_kind(struct llm_terms *t, llm_term_expand *expand, void *arg)
{
    if (t->n_kinds == MAX_KINDS) return 0;
    t->kinds[t->n_kinds].expand = expand;
    t->kinds[t->n_kinds].arg = arg;
    return t->n_kinds++;
}

llm_term llm_term_lazy(struct llm_terms *t, uint32_t kind, uint32_t x, uint32_t y, bool nullable)
{
    return make(t, &(struct llm_term_node){.kind = LAZY, .x = kind, .y = x, .z = y, .nullable = nullable, .live = LIVE, .expanded = UINT32_MAX});
}

uint32_t llm_terms_machine(struct llm_terms *t, const struct llm_term_machine *m)
{
    if (t->n_machines == MAX_KINDS) return 0;
    t->machines[t->n_machines] = *m;
    return t->n_machines++;
}

llm_term llm_term_machine(struct llm_terms *t, uint32_t machine, uint32_t x, uint32_t y, uint32_t z)
{
    const struct llm_term_machine *m = &t->machines[machine];
    return make(t, &(struct llm_term_node){.kind = MACHINE, .x = machine << 24 | x, .y = y, .z = z, .nullable = m->accepts(m->arg, x, y, z)});
}

struct llm_terms *llm_terms_create(uint32_t max_terms, struct llm_err *e)
{
    struct llm_terms *t = llm_calloc(1, sizeof *t, "terms", e);
    if (!t) return NULL;
    t->max = max_terms;
    t->bits = 10;
    t->heads = llm_calloc((size_t)1 << t->bits, sizeof *t->heads, "terms", e);
    t->set_heads = llm_calloc((size_t)1 << SET_BITS, sizeof *t->set_heads, "terms", e);
    if (!t->heads || !t->set_heads) {
        llm_terms_destroy(t);
        return NULL;
    }
    /* In the order of LLM_TERM_NOTHING, LLM_TERM_EMPTY_TEXT, LLM_TERM_ANYTHING. */
    make(t, &(struct llm_term_node){.kind = NOTHING, .live = DEAD, .split = true});
    make(t, &(struct llm_term_node){.kind = EMPTY_TEXT, .nullable = true, .live = LIVE, .split = true});
    make(t, &(struct llm_term_node){.kind = NOT, .x = LLM_TERM_NOTHING, .nullable = true, .live = LIVE});
    if (llm_terms_failed(t, e) == 0) return t;
    llm_terms_destroy(t);
    return NULL;
}

void llm_terms_destroy(struct llm_terms *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_chunks; i++) free(t->rows[i]);
    free(t->v);
    free(t->heads);
    free(t->sets);
    free(t->set_heads);
    free(t->set_next);
    free(t->lists);
    free(t->parts);
    free(t->rows);
    free(t->chains);
    free(t->classes);
    free(t);
}

uint32_t llm_terms_count(const struct llm_terms *t)
{
    return (uint32_t)t->n;
}

bool llm_term_nullable(const struct llm_terms *t, llm_term a)
{
    return t->v[a].nullable;
}

bool llm_term_is_lexeme(const struct llm_terms *t, llm_term a)
{
    return t->v[a].kind == LEXEME;
}

void llm_term_split(const struct llm_terms *t, llm_term a, llm_term *first, llm_term *rest)
{
    const struct llm_term_node *k = &t->v[a];
    bool begins = k->kind == JOIN && t->v[k->x].kind == LEXEME;
    *first = begins ? k->x : a;
    *rest = begins ? k->y : LLM_TERM_EMPTY_TEXT;
}

const llm_term *llm_term_members(const struct llm_terms *t, const llm_term *a, size_t *n)
{
    const struct llm_term_node *k = &t->v[*a];
    *n = k->kind == EITHER ? k->y : 1;
    return k->kind == EITHER ? t->lists + k->x : a;
}
