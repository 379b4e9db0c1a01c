/* Derivatives of terms, whether they have a text, and the rows of their automaton. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "infer/constrain/term_internal.h"

enum { MAX_DEPTH = 1000 /* terms within terms that one derivative may pass through */, ROW_CHUNK = 64, MAX_ROWS = 32768 /* of 1 KiB each */ };

static struct llm_byte_set meet(struct llm_byte_set a, const struct llm_byte_set *b)
{
    for (int i = 0; i < 4; i++) a.w[i] &= b->w[i];
    return a;
}

static struct llm_byte_set without(struct llm_byte_set a, const struct llm_byte_set *b)
{
    for (int i = 0; i < 4; i++) a.w[i] &= ~b->w[i];
    return a;
}

/* ---- derivatives ---- */

/* A partition of bytes that is being made: classes[from..n_classes), each with a chain of targets. */
static void class_add(struct llm_terms *t, struct llm_byte_set set, uint32_t chain)
{
    if (!llm_terms_grow(t, (void **)&t->classes, &t->classes_room, t->n_classes + 1, sizeof *t->classes)) return;
    t->classes[t->n_classes++] = (struct llm_term_class){set, chain};
}

static uint32_t chain_add(struct llm_terms *t, llm_term to, uint32_t next)
{
    if (!llm_terms_grow(t, (void **)&t->chains, &t->chains_room, t->n_chains + 1, sizeof *t->chains)) return 0;
    t->chains[t->n_chains++] = (struct llm_term_chain){to, next};
    return (uint32_t)t->n_chains;
}

/* Bytes of `set` lead to `to` as well. */
static void join_part(struct llm_terms *t, size_t from, struct llm_byte_set set, llm_term to)
{
    for (size_t i = from, n = t->n_classes; i < n && !llm_byte_set_is_empty(&set); i++) {
        struct llm_byte_set both = meet(t->classes[i].set, &set);
        if (llm_byte_set_is_empty(&both)) continue;
        struct llm_byte_set others = without(t->classes[i].set, &both);
        uint32_t before = t->classes[i].chain;
        set = without(set, &both);
        if (!llm_byte_set_is_empty(&others)) class_add(t, others, before);
        t->classes[i].set = both;
        t->classes[i].chain = chain_add(t, to, before);
    }
    if (!llm_byte_set_is_empty(&set)) class_add(t, set, chain_add(t, to, 0));
}

/* Classes whose bytes are in no part of `a` are left out; the others lead to both. */
static void meet_parts(struct llm_terms *t, size_t from, llm_term a)
{
    size_t n = t->n_classes;
    for (size_t i = from; i < n; i++) {
        struct llm_term_class old = t->classes[i];
        for (uint32_t k = 0; k < t->v[a].n_parts; k++) {
            struct llm_term_part p = t->parts[t->v[a].parts + k];
            struct llm_byte_set both = meet(old.set, &t->sets[p.set]);
            if (!llm_byte_set_is_empty(&both)) class_add(t, both, chain_add(t, p.to, old.chain));
        }
    }
    memmove(t->classes + from, t->classes + n, (t->n_classes - n) * sizeof *t->classes);
    t->n_classes -= n - from;
}

static bool ensure_parts(struct llm_terms *t, llm_term a);

static void join_parts(struct llm_terms *t, size_t from, llm_term a, llm_term rest)
{
    if (!ensure_parts(t, a)) return;
    for (uint32_t k = 0; k < t->v[a].n_parts; k++) {
        struct llm_term_part p = t->parts[t->v[a].parts + k];
        join_part(t, from, t->sets[p.set], llm_term_join(t, p.to, rest));
    }
}

static void split_repeat(struct llm_terms *t, size_t from, struct llm_term_node k)
{
    uint32_t max = k.z == LLM_REPEAT_ALWAYS ? k.z : k.z - 1;
    join_parts(t, from, k.x, llm_term_repeat(t, k.x, k.y > 0 ? k.y - 1 : 0, max));
}

static void split_lexeme(struct llm_terms *t, size_t from, llm_term a)
{
    if (!ensure_parts(t, a)) return;
    for (uint32_t k = 0; k < t->v[a].n_parts; k++) {
        struct llm_term_part p = t->parts[t->v[a].parts + k];
        join_part(t, from, t->sets[p.set], llm_term_lexeme(t, p.to));
    }
}

static void split_not(struct llm_terms *t, size_t from, llm_term a)
{
    struct llm_byte_set others = {{~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)}};
    if (!ensure_parts(t, a)) return;
    for (uint32_t k = 0; k < t->v[a].n_parts; k++) {
        struct llm_term_part p = t->parts[t->v[a].parts + k];
        others = without(others, &t->sets[p.set]);
        llm_term to = llm_term_not(t, p.to);
        if (to != LLM_TERM_NOTHING) join_part(t, from, t->sets[p.set], to);
    }
    if (!llm_byte_set_is_empty(&others)) join_part(t, from, others, LLM_TERM_ANYTHING);
}

static void split_both(struct llm_terms *t, size_t from, struct llm_term_node k)
{
    for (uint32_t i = 0; i < k.y; i++) {
        llm_term member = t->lists[k.x + i];
        if (!ensure_parts(t, member)) return;
        if (i == 0) join_parts(t, from, member, LLM_TERM_EMPTY_TEXT);
        else meet_parts(t, from, member);
    }
}

static void split_machine(struct llm_terms *t, size_t from, struct llm_term_node k)
{
    const struct llm_term_machine *m = &t->machines[k.x >> 24];
    for (int b = 0; b < 256; b++) {
        uint32_t y = k.y, z = k.z;
        struct llm_byte_set set = {{0}};
        set.w[b >> 6] = UINT64_C(1) << (b & 63);
        if (m->step(m->arg, k.x & 0xFFFFFF, &y, &z, (unsigned char)b)) {
            join_part(t, from, set, llm_term_machine(t, k.x >> 24, k.x & 0xFFFFFF, y, z));
        }
    }
}

static llm_term expand(struct llm_terms *t, llm_term a)
{
    struct llm_term_node k = t->v[a];
    if (k.expanded != UINT32_MAX) return k.expanded;
    llm_term body = t->kinds[k.x].expand(t->kinds[k.x].arg, k.y, k.z);
    if (!t->err.status) t->v[a].expanded = body;
    return body;
}

/* The targets of a chain as one term: alternatives, or all at once. */
static llm_term target_of(struct llm_terms *t, uint32_t chain, bool all)
{
    llm_term few[32], *v = few, to = t->chains[chain - 1].to;
    size_t n = 0, room = 0;
    for (uint32_t i = chain; i; i = t->chains[i - 1].next) n++;
    if (n == 1) return to;
    if (n > sizeof few / sizeof *few) {
        v = NULL;
        if (!llm_terms_grow(t, (void **)&v, &room, n, sizeof *v)) return LLM_TERM_NOTHING;
    }
    n = 0;
    for (uint32_t i = chain; i; i = t->chains[i - 1].next) v[n++] = t->chains[i - 1].to;
    for (size_t i = 1; all && i < n; i++) to = llm_term_and(t, to, v[i]);
    if (!all) to = llm_term_either(t, v, n);
    if (v != few) free(v);
    return to;
}

/* Works out the parts of a term. */
static bool ensure_parts(struct llm_terms *t, llm_term a)
{
    if (t->v[a].split) return true;
    if (t->err.status) return false;
    if (++t->depth > MAX_DEPTH) {
        struct llm_err e = {0};
        llm_fail(&e, EX_DATAERR, "rules are nested more than %d deep", MAX_DEPTH);
        t->deep = !t->err.status;
        llm_terms_fail(t, &e);
    }
    const struct llm_term_node k = t->v[a];
    size_t from = t->n_classes, chains = t->n_chains;
    if (t->err.status) return false;
    switch (k.kind) {
    case SET: join_part(t, from, t->sets[k.x], LLM_TERM_EMPTY_TEXT); break;
    case JOIN:
        join_parts(t, from, k.x, k.y);
        if (t->v[k.x].nullable) join_parts(t, from, k.y, LLM_TERM_EMPTY_TEXT);
        break;
    case EITHER:
        for (uint32_t i = 0; i < k.y; i++) join_parts(t, from, t->lists[k.x + i], LLM_TERM_EMPTY_TEXT);
        break;
    case BOTH: split_both(t, from, k); break;
    case NOT: split_not(t, from, k.x); break;
    case REPEAT: split_repeat(t, from, k); break;
    case LEXEME: split_lexeme(t, from, k.x); break;
    case LAZY: join_parts(t, from, expand(t, a), LLM_TERM_EMPTY_TEXT); break;
    case MACHINE: split_machine(t, from, k); break;
    default: break;
    }
    size_t n = t->n_classes - from, kept = 0;
    if (llm_terms_grow(t, (void **)&t->parts, &t->parts_room, t->n_parts + n, sizeof *t->parts)) {
        size_t at = t->n_parts;
        t->n_parts += n; /* reserved: making targets makes no parts, but is kept apart all the same */
        for (size_t i = 0; i < n; i++) {
            llm_term to = target_of(t, t->classes[from + i].chain, k.kind == BOTH);
            if (to != LLM_TERM_NOTHING) t->parts[at + kept++] = (struct llm_term_part){llm_terms_set(t, &t->classes[from + i].set), to};
        }
        t->v[a].parts = (uint32_t)at;
        t->v[a].n_parts = (uint32_t)kept;
        t->v[a].split = !t->err.status;
    }
    t->n_classes = from;
    t->n_chains = chains;
    t->depth--;
    return !t->err.status;
}

/* ---- which terms have a text ---- */

struct seen { llm_term term; uint32_t from; };

/* Whether a text belongs to an intersection or a complement: looks for it breadth first. Terms on the way to one are noted as live; if there is none,
 * all that were seen are dead. */
static bool search(struct llm_terms *t, llm_term a)
{
    struct seen *v = NULL;
    size_t n = 0, room = 0, found = SIZE_MAX;
    uint32_t search = ++t->searches;
    if (!llm_terms_grow(t, (void **)&v, &room, 1, sizeof *v)) return true;
    v[n++] = (struct seen){a, 0};
    for (size_t at = 0; at < n && found == SIZE_MAX; at++) {
        llm_term x = v[at].term;
        if (t->v[x].nullable || t->v[x].live == LIVE) {
            found = at;
            break;
        }
        if (t->v[x].live == DEAD) continue;
        if (!ensure_parts(t, x)) break;
        for (uint32_t k = 0; k < t->v[x].n_parts; k++) {
            llm_term to = t->parts[t->v[x].parts + k].to;
            if (t->v[to].seen == search) continue;
            if (!llm_terms_grow(t, (void **)&v, &room, n + 1, sizeof *v)) break;
            t->v[to].seen = search;
            v[n++] = (struct seen){to, (uint32_t)at};
        }
    }
    for (size_t i = found; found != SIZE_MAX; i = v[i].from) {
        t->v[v[i].term].live = LIVE;
        if (i == 0) break;
    }
    for (size_t i = 0; found == SIZE_MAX && !t->err.status && i < n; i++) t->v[v[i].term].live = DEAD;
    free(v);
    return found != SIZE_MAX || t->err.status;
}

bool llm_term_live(struct llm_terms *t, llm_term a)
{
    const llm_term first = a;
    bool live = true;
    while (live && t->v[a].kind == JOIN && t->v[a].live == UNKNOWN) {
        live = llm_term_live(t, t->v[a].x);
        a = t->v[a].y;
    }
    const struct llm_term_node k = t->v[a];
    if (!live || k.live != UNKNOWN) {
        live = live && k.live == LIVE;
    } else if (k.nullable) {
        live = true;
    } else if (k.kind == LEXEME || k.kind == REPEAT) {
        live = llm_term_live(t, k.x);
    } else if (k.kind == EITHER) {
        live = false;
        for (uint32_t i = 0; i < k.y && !live; i++) live = llm_term_live(t, t->lists[k.x + i]);
    } else {
        live = search(t, a);
    }
    if (!t->err.status) t->v[first].live = live ? LIVE : DEAD;
    return live;
}

/* Rows are a cache; if there are many, they are forgotten. Of a text whose rules are nested too deeply nothing was kept. */
void llm_terms_trim(struct llm_terms *t)
{
    if (t->deep) {
        t->err = (struct llm_err){0};
        t->deep = false;
        t->depth = 0;
        t->n_classes = t->n_chains = 0;
    }
    if (t->n_rows < MAX_ROWS) return;
    for (size_t i = 0; i < t->n; i++) t->v[i].row = 0;
    t->n_rows = 0;
}

/* ---- reading ---- */

const llm_term *llm_term_row(struct llm_terms *t, llm_term a)
{
    static const llm_term nothing[256];
    if (t->v[a].row == 0) {
        if (!ensure_parts(t, a)) return nothing;
        size_t chunk = t->n_rows / ROW_CHUNK;
        if (chunk == t->n_chunks) {
            if (!llm_terms_grow(t, (void **)&t->rows, &t->rows_room, chunk + 1, sizeof *t->rows)) return nothing;
            size_t room = 0;
            t->rows[chunk] = NULL;
            if (!llm_terms_grow(t, (void **)&t->rows[chunk], &room, ROW_CHUNK * 256, sizeof **t->rows)) return nothing;
            t->n_chunks++;
        }
        llm_term *row = t->rows[chunk] + t->n_rows % ROW_CHUNK * 256;
        memset(row, 0, 256 * sizeof *row);
        t->v[a].row = (uint32_t)++t->n_rows;
        for (uint32_t k = 0; k < t->v[a].n_parts; k++) {
            struct llm_term_part p = t->parts[t->v[a].parts + k];
            struct llm_byte_set s = t->sets[p.set];
            if (!llm_term_live(t, p.to)) continue;
            for (int w = 0; w < 4; w++)
                for (uint64_t left = s.w[w]; left; left &= left - 1) row[w * 64 + __builtin_ctzll(left)] = p.to;
        }
        if (t->err.status) {
            t->v[a].row = 0;
            return nothing;
        }
    }
    size_t i = t->v[a].row - 1;
    return t->rows[i / ROW_CHUNK] + i % ROW_CHUNK * 256;
}

llm_term llm_term_after(struct llm_terms *t, llm_term a, unsigned char byte)
{
    return llm_term_row(t, a)[byte];
}
