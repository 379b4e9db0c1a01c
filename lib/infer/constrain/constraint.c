#include "infer/constrain/constraint.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "infer/constrain/grammar.h"
#include "infer/constrain/regex.h"
#include "infer/constrain/schema.h"
#include "infer/constrain/tools.h"

enum { MAX_TERMS = 1 << 20, MAX_CACHED = 64 << 20 /* bytes of remembered masks */, HASH_BITS = 12, MAX_NULLABLE = 256, FEW = 2 /* ids a word */,
       LOST = 1024 /* logits cleared by one copy */, FEW_GONE = 24 /* of a word's 64 */, MAX_GONE = 4096,
       MOST = 64 /* of the 93 printable characters of ASCII that are plain */ };

/* What a state allows by itself, without regard to what follows its first lexeme. */
struct head {
    llm_term term;
    uint32_t next;           /* in the hash table's chain */
    const uint64_t *plain;   /* plain tokens that are allowed, or NULL */
    size_t n_longer;         /* with them, so many of the longer ones */
    int32_t *gone;           /* [n_gone] but not these */
    size_t n_gone;
    uint64_t *bits;          /* other tokens: as a set, or if they are few as a list */
    int32_t *ids;
    size_t n_ids;
    /* Nodes at which the lexeme may be over within a token: what follows the lexeme decides about the nodes below. */
    struct way_out { uint32_t node; enum llm_token_kinds tree; } *out;
    size_t n_out;
};

/* Where the plain characters lead from a state. */
enum plain { PLAIN_UNKNOWN, PLAIN_MIXED, PLAIN_NONE, PLAIN_ONE };
struct plain_step { llm_term term, to; enum plain kind; };

struct llm_constraint {
    pthread_mutex_t lock;
    struct llm_terms *t;
    const struct llm_tokens *v;
    struct llm_grammar *grammar;
    struct llm_schema *schema;
    struct llm_tool_schemas *tools;
    llm_term root;
    struct head *heads;      /* [n_heads] the cache of masks; all are dropped when they take more than MAX_CACHED bytes */
    size_t n_heads, heads_room, bytes;
    uint32_t table[1 << HASH_BITS];
    struct plain_step steps[1 << HASH_BITS];
    int32_t *ids;            /* scratch of a walk */
    size_t n_ids, ids_room;
    struct way_out *out;
    size_t n_out, out_room;
    struct walk_level { uint32_t at, end; llm_term state; bool nullable; const llm_term *row; } *levels; /* [v->max_bytes + 2] */
};

/* ---- making ---- */

static llm_term read_choices(struct llm_constraint *c, const char *text, size_t n, struct llm_err *e)
{
    llm_term *v = NULL, all = LLM_TERM_NOTHING;
    size_t count = 0, room = 0, number = 1, length;
    int status = 0;
    for (size_t at = 0; status == 0 && at < n; at += length + 1, number++) {
        length = strnlen(text + at, n - at);
        if (llm_utf8_invalid((const unsigned char *)text + at, length) < length) status = llm_fail(e, EX_DATAERR, "line %zu: expected UTF-8", number);
        if (status < 0 || length == 0) continue;
        status = llm_grow((void **)&v, &room, count + 1, sizeof *v, e);
        if (status == 0) v[count++] = llm_term_text(c->t, text + at, length);
    }
    if (status == 0 && count == 0) status = llm_fail(e, EX_DATAERR, "expected choices, one a line, found none");
    if (status == 0) all = llm_term_either(c->t, v, count);
    free(v);
    return all;
}

static llm_term read_root(struct llm_constraint *c, enum llm_constraint_kind kind, const char *text, size_t n, struct llm_err *e)
{
    llm_term root = LLM_TERM_NOTHING;
    switch (kind) {
    case LLM_CONSTRAIN_REGEX:
        root = llm_regex_term(c->t, text, n, LLM_REGEX_WHOLE, e);
        break;
    case LLM_CONSTRAIN_CHOICES:
        root = read_choices(c, text, n, e);
        break;
    case LLM_CONSTRAIN_GRAMMAR:
        c->grammar = llm_grammar_create(c->t, text, n, &root, e);
        break;
    case LLM_CONSTRAIN_SCHEMA:
        c->schema = llm_schema_create(c->t, text, n, &root, e);
        break;
    case LLM_CONSTRAIN_TOOLS:
        c->tools = llm_tool_schemas_create(c->t, text, n, &root, e);
        break;
    }
    return root;
}

struct llm_constraint *llm_constraint_create(enum llm_constraint_kind kind, const char *text, size_t n, const struct llm_tokens *v, struct llm_err *e)
{
    struct llm_err own = {0};
    struct llm_constraint *c = llm_calloc(1, sizeof *c, "a constraint", e);
    if (!c) return NULL;
    pthread_mutex_init(&c->lock, NULL);
    c->v = v;
    c->t = llm_terms_create(MAX_TERMS, &own);
    c->levels = llm_alloc((size_t)v->max_bytes + 2, sizeof *c->levels, "a constraint", &own);
    if (!own.status) c->root = read_root(c, kind, text, n, &own);
    if (!own.status && llm_terms_failed(c->t, &own) == 0 && !llm_term_live(c->t, c->root)) {
        llm_fail(&own, EX_DATAERR, "no text satisfies it");
    }
    if (!own.status) (void)llm_term_row(c->t, c->root); /* what fails at once, fails here */
    if (!own.status && llm_terms_failed(c->t, &own) == 0) return c;
    llm_constraint_destroy(c);
    if (e) *e = own;
    return NULL;
}

static void drop_heads(struct llm_constraint *c)
{
    for (size_t i = 0; i < c->n_heads; i++) {
        free(c->heads[i].bits);
        free(c->heads[i].ids);
        free(c->heads[i].gone);
        free(c->heads[i].out);
    }
    c->n_heads = c->bytes = 0;
    memset(c->table, 0, sizeof c->table);
}

void llm_constraint_destroy(struct llm_constraint *c)
{
    if (!c) return;
    drop_heads(c);
    free(c->heads);
    free(c->ids);
    free(c->out);
    free(c->levels);
    llm_grammar_destroy(c->grammar);
    llm_schema_destroy(c->schema);
    llm_tool_schemas_destroy(c->tools);
    llm_terms_destroy(c->t);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

bool llm_constraint_is_half_full(struct llm_constraint *c)
{
    pthread_mutex_lock(&c->lock);
    struct llm_err ignored;
    bool half = llm_terms_count(c->t) > MAX_TERMS / 2 || llm_terms_failed(c->t, &ignored) < 0;
    pthread_mutex_unlock(&c->lock);
    return half;
}

/* ---- masks ---- */

static void put_bit(uint64_t *bits, int32_t id)
{
    bits[id >> 6] |= UINT64_C(1) << (id & 63);
}

static inline int note(struct llm_constraint *c, int32_t id, struct llm_err *e)
{
    if (c->n_ids == c->ids_room && llm_grow((void **)&c->ids, &c->ids_room, c->n_ids + 1, sizeof *c->ids, e) < 0) return -1;
    c->ids[c->n_ids++] = id;
    return 0;
}

/* Finds the tokens below a node, which `state` is at. With `bits` they go there, else to c->ids, and the nodes below which the state's language may
 * be over to c->out. */
static int walk(struct llm_constraint *c, enum llm_token_kinds kinds, uint32_t node, llm_term state, uint64_t *bits, struct llm_err *e)
{
    const struct llm_token_node *v = c->v->trees[kinds].v;
    struct walk_level *level = c->levels;
    bool nullable = llm_term_nullable(c->t, state);
    *level = (struct walk_level){llm_token_kids(&v[node]), llm_token_kids(&v[node + 1]), state, nullable, llm_term_row(c->t, state)};
    for (;;) {
        if (level->at == level->end) {
            if (level == c->levels) return llm_terms_failed(c->t, e);
            level--;
            continue;
        }
        uint32_t i = level->at++;
        llm_term to = level->row[llm_token_byte(&v[i])];
        if (to == LLM_TERM_NOTHING) continue;
        for (int32_t id = llm_token_first(&v[i]); id >= 0; id = llm_token_next(c->v, &v[i], id)) {
            if (bits) put_bit(bits, id);
            else if (note(c, id, e) < 0) return -1;
        }
        uint32_t first = llm_token_kids(&v[i]), end = llm_token_kids(&v[i + 1]);
        if (first == end) continue;
        struct walk_level below = {first, end, to, level->nullable, level->row};
        if (to != level->state) {
            below.nullable = llm_term_nullable(c->t, to);
            below.row = llm_term_row(c->t, to);
        }
        if (!bits && below.nullable) {
            if (llm_grow((void **)&c->out, &c->out_room, c->n_out + 1, sizeof *c->out, e) < 0) return -1;
            c->out[c->n_out++] = (struct way_out){i, kinds};
        }
        *++level = below;
    }
}

/* Whether all continuations of a character lead from the row of its first bytes to `to`. */
static bool ends_in(struct llm_constraint *c, const llm_term *row, int low, int high, int more, llm_term to)
{
    llm_term last = LLM_TERM_NOTHING;
    for (int b = low; b <= high; b++) {
        if (more == 0 && row[b] != to) return false;
        if (more == 0 || (b > low && row[b] == last)) continue;
        last = row[b];
        if (last == LLM_TERM_NOTHING) return false;
        const llm_term *next = llm_term_row(c->t, last);
        int first = b == 0xE0 && more == 2 ? 0xA0 : b == 0xF0 && more == 3 ? 0x90 : 0x80;
        int final = b == 0xED && more == 2 ? 0x9F : b == 0xF4 && more == 3 ? 0x8F : 0xBF;
        if (b < 0xC0) first = 0x80, final = 0xBF;
        if (!ends_in(c, next, first, final, more - 1, to)) return false;
        /* Lead bytes with fewer continuations are looked at by themselves. */
        if (b == 0xE0 || b == 0xED || b == 0xF0 || b == 0xF4) last = LLM_TERM_NOTHING;
    }
    return true;
}

/* Where a plain character leads. */
static struct plain_step plain_step(struct llm_constraint *c, llm_term a)
{
    struct plain_step *s = &c->steps[(a * UINT32_C(2654435769)) >> (32 - HASH_BITS)];
    if (s->term == a && s->kind != PLAIN_UNKNOWN) return *s;
    const llm_term *row = llm_term_row(c->t, a);
    llm_term to = row['a'];
    bool one = to != LLM_TERM_NOTHING, none = true;
    for (int b = 0x20; b < 0x100; b++) {
        if (b == '"' || b == '\\') continue;
        none = none && row[b] == LLM_TERM_NOTHING;
        one = one && (b >= 0x80 || row[b] == to);
    }
    one = one && ends_in(c, row, 0xC2, 0xDF, 1, to) && ends_in(c, row, 0xE0, 0xEF, 2, to) && ends_in(c, row, 0xF0, 0xF4, 3, to);
    const struct plain_step step = {a, to, one ? PLAIN_ONE : none ? PLAIN_NONE : PLAIN_MIXED};
    if (llm_terms_failed(c->t, NULL) == 0) *s = step;
    return step;
}

/* How many plain characters may follow `a`, whichever they are: at most those of the longest token. -1: that depends on them, or the lexeme may be
 * over between them. */
static int32_t plain_run(struct llm_constraint *c, llm_term a, bool whole)
{
    int32_t n = 0;
    while (n < c->v->max_chars) {
        if (!whole && llm_term_nullable(c->t, a)) return -1;
        struct plain_step s = plain_step(c, a);
        if (s.kind == PLAIN_NONE) return n;
        if (s.kind == PLAIN_MIXED) return -1;
        n = s.to == a ? c->v->max_chars : n + 1;
        a = s.to;
    }
    return !whole && llm_term_nullable(c->t, a) ? -1 : n;
}

/* Whether all plain texts may follow. */
static bool is_free(struct llm_constraint *c, llm_term a, bool whole)
{
    return plain_run(c, a, whole) == c->v->max_chars;
}

/* Whether most characters lead to where all plain texts may follow: what a key may be that must not be one of some, for example. */
static bool mostly_free(struct llm_constraint *c, llm_term a, bool whole)
{
    const llm_term *row = llm_term_row(c->t, a);
    llm_term last = LLM_TERM_NOTHING;
    bool free_last = false;
    int n = 0;
    for (int b = 0x20; b < 0x7F; b++) {
        if (b == '"' || b == '\\' || row[b] == LLM_TERM_NOTHING) continue;
        if (row[b] != last) free_last = is_free(c, row[b], whole);
        last = row[b];
        n += free_last;
    }
    return n >= MOST;
}

/* Notes the plain tokens of a node and of all below it, until there are MAX_GONE. 0 or -1. */
static int note_gone(struct llm_constraint *c, uint32_t node, struct llm_err *e)
{
    const struct llm_token_node *v = c->v->trees[LLM_TOKENS_PLAIN].v;
    /* What is below a node at one depth lies side by side, too. */
    for (uint32_t from = node, to = node + 1; from < to && c->n_ids < MAX_GONE;) {
        for (uint32_t i = from; i < to && c->n_ids < MAX_GONE; i++)
            for (int32_t id = llm_token_first(&v[i]); id >= 0; id = llm_token_next(c->v, &v[i], id))
                if (note(c, id, e) < 0) return -1;
        from = llm_token_kids(&v[from]);
        to = llm_token_kids(&v[to]);
    }
    return 0;
}

/* Finds the plain tokens that may not follow: h->gone. Below a node from which all plain texts may follow nothing is looked at. 1; 0: they are many;
 * -1: failed. */
static int walk_plain(struct llm_constraint *c, struct head *h, bool whole, struct llm_err *e)
{
    const struct llm_token_node *v = c->v->trees[LLM_TOKENS_PLAIN].v;
    struct walk_level *level = c->levels;
    llm_term free_last = LLM_TERM_NOTHING; /* most nodes of a state lead to the same one */
    c->n_ids = 0;
    *level = (struct walk_level){llm_token_kids(&v[0]), llm_token_kids(&v[1]), h->term, false, llm_term_row(c->t, h->term)};
    while (c->n_ids < MAX_GONE) {
        if (level->at == level->end) {
            if (level == c->levels) break;
            level--;
            continue;
        }
        uint32_t i = level->at++;
        llm_term to = level->row[llm_token_byte(&v[i])];
        if (to == LLM_TERM_NOTHING && note_gone(c, i, e) < 0) return -1;
        if (to == LLM_TERM_NOTHING || to == free_last) continue;
        uint32_t first = llm_token_kids(&v[i]), end = llm_token_kids(&v[i + 1]);
        if (first == end) continue;
        if (is_free(c, to, whole)) {
            free_last = to;
            continue;
        }
        if (!whole && llm_term_nullable(c->t, to)) {
            if (llm_grow((void **)&c->out, &c->out_room, c->n_out + 1, sizeof *c->out, e) < 0) return -1;
            c->out[c->n_out++] = (struct way_out){i, LLM_TOKENS_PLAIN};
        }
        *++level = (struct walk_level){first, end, to, false, llm_term_row(c->t, to)};
    }
    bool few = c->n_ids < MAX_GONE;
    if (few && c->n_ids > 0) {
        h->gone = llm_alloc(c->n_ids, sizeof *h->gone, "a mask", e);
        if (!h->gone) return -1;
        memcpy(h->gone, c->ids, c->n_ids * sizeof *h->gone);
        h->n_gone = c->n_ids;
        c->bytes += c->n_ids * sizeof *h->gone;
    }
    c->n_ids = 0;
    if (!few) c->n_out = 0;
    return llm_terms_failed(c->t, e) < 0 ? -1 : few;
}

static int fill_head(struct llm_constraint *c, struct head *h, bool whole, struct llm_err *e)
{
    int32_t run = plain_run(c, h->term, whole);
    c->n_ids = c->n_out = 0;
    if (run <= 0 && mostly_free(c, h->term, whole)) {
        int few = walk_plain(c, h, whole, e);
        if (few < 0) return -1;
        if (few > 0) run = c->v->max_chars;
    }
    bool in_rest = run > 0;
    if (in_rest) {
        h->plain = c->v->plain[run < LLM_PLAIN_SETS ? run : LLM_PLAIN_SETS];
        while (h->n_longer < c->v->n_longer && c->v->longer[h->n_longer].chars <= run) h->n_longer++;
    }
    if (!whole && llm_term_nullable(c->t, h->term)) {
        if (llm_grow((void **)&c->out, &c->out_room, 1, sizeof *c->out, e) < 0) return -1;
        c->out[c->n_out++] = (struct way_out){0, LLM_TOKENS_ALL};
    }
    if (walk(c, in_rest ? LLM_TOKENS_REST : LLM_TOKENS_ALL, 0, h->term, NULL, e) < 0) return -1;
    if (c->n_ids > c->v->words * FEW) {
        h->bits = llm_calloc(c->v->words, sizeof *h->bits, "a mask", e);
        if (!h->bits) return -1;
        for (size_t i = 0; i < c->n_ids; i++) put_bit(h->bits, c->ids[i]);
        c->bytes += c->v->words * sizeof *h->bits;
    } else {
        h->ids = llm_alloc(c->n_ids, sizeof *h->ids, "a mask", e);
        if (!h->ids) return -1;
        if (c->n_ids > 0) memcpy(h->ids, c->ids, c->n_ids * sizeof *h->ids);
        h->n_ids = c->n_ids;
        c->bytes += c->n_ids * sizeof *h->ids;
    }
    if (!whole && c->n_out > 0) {
        h->out = llm_alloc(c->n_out, sizeof *h->out, "a mask", e);
        if (!h->out) return -1;
        memcpy(h->out, c->out, c->n_out * sizeof *h->out);
        h->n_out = c->n_out;
        c->bytes += c->n_out * sizeof *h->out;
    }
    c->bytes += sizeof *h;
    return 0;
}

/* What a state allows, from the cache or made now. `whole`: nothing follows the state's term. */
static int find_head(struct llm_constraint *c, llm_term a, bool whole, struct head *out, struct llm_err *e)
{
    uint32_t *slot = &c->table[(a * UINT32_C(2654435769)) >> (32 - HASH_BITS)];
    for (uint32_t i = *slot; i; i = c->heads[i - 1].next) {
        *out = c->heads[i - 1];
        if (out->term == a) return 0;
    }
    if (c->bytes > MAX_CACHED) drop_heads(c);
    *out = (struct head){.term = a, .next = *slot};
    if (fill_head(c, out, whole, e) < 0 || llm_grow((void **)&c->heads, &c->heads_room, c->n_heads + 1, sizeof *c->heads, e) < 0) {
        free(out->bits);
        free(out->ids);
        free(out->gone);
        free(out->out);
        return -1;
    }
    c->heads[c->n_heads] = *out;
    *slot = (uint32_t)++c->n_heads;
    return 0;
}

/* Adds the plain tokens of a head to a mask. */
static void add_plain(const struct llm_constraint *c, const struct head *h, uint64_t *mask)
{
    uint64_t had[MAX_GONE / 64] = {0};
    for (size_t k = 0; k < h->n_gone; k++) had[k >> 6] |= (mask[h->gone[k] >> 6] >> (h->gone[k] & 63) & 1) << (k & 63);
    for (size_t w = 0; h->plain && w < c->v->words; w++) mask[w] |= h->plain[w];
    for (size_t k = 0; k < h->n_longer; k++) put_bit(mask, c->v->longer[k].id);
    for (size_t k = 0; k < h->n_gone; k++)
        if (!(had[k >> 6] >> (k & 63) & 1)) mask[h->gone[k] >> 6] &= ~(UINT64_C(1) << (h->gone[k] & 63));
}

/* Adds the tokens that a state allows to a mask. */
static int add_mask(struct llm_constraint *c, llm_term state, uint64_t *mask, int depth, struct llm_err *e)
{
    size_t n;
    const llm_term *members = llm_term_members(c->t, &state, &n);
    llm_term *v = llm_alloc(n, sizeof *v, "a mask", e);
    int status = v ? 0 : -1;
    if (depth > MAX_NULLABLE) status = llm_fail(e, EX_DATAERR, "more than %d optional parts follow one another", MAX_NULLABLE);
    if (status == 0) memcpy(v, members, n * sizeof *v);
    for (size_t i = 0; status == 0 && i < n; i++) {
        llm_term first, rest;
        struct head h;
        llm_term_split(c->t, v[i], &first, &rest);
        status = find_head(c, first, first == v[i] && !llm_term_is_lexeme(c->t, first), &h, e);
        if (status < 0) break;
        add_plain(c, &h, mask);
        for (size_t w = 0; h.bits && w < c->v->words; w++) mask[w] |= h.bits[w];
        for (size_t k = 0; k < h.n_ids; k++) put_bit(mask, h.ids[k]);
        /* h.out belongs to the cache, which a further head may empty: ways out at the root, which need one, come last. */
        bool at_root = false;
        for (size_t k = 0; status == 0 && k < h.n_out && rest != LLM_TERM_EMPTY_TEXT; k++) {
            if (h.out[k].node == 0) at_root = true;
            else status = walk(c, h.out[k].tree, h.out[k].node, rest, mask, e);
        }
        if (status == 0 && at_root) status = add_mask(c, rest, mask, depth + 1, e);
    }
    free(v);
    return status;
}

/* ---- matchers ---- */

static bool is_end(const struct llm_matcher *m, int32_t id)
{
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < m->ends[k].n; i++)
            if (m->ends[k].v[i] == id) return true;
    return false;
}

/* The state after a token. */
static llm_term after(const struct llm_matcher *m, int32_t id)
{
    const struct llm_constraint *c = m->constraint;
    size_t n = 0;
    llm_term state = m->state;
    if (id < 0 || id >= c->v->vocab_size || llm_tokenizer_is_special(c->v->tokenizer, id)) return LLM_TERM_NOTHING;
    const char *p = llm_tokenizer_piece(c->v->tokenizer, id, &n);
    if (!p || n == 0 || n > c->v->max_bytes) return LLM_TERM_NOTHING;
    for (size_t i = 0; i < n && state != LLM_TERM_NOTHING; i++) state = llm_term_after(c->t, state, (unsigned char)p[i]);
    return state;
}

void llm_matcher_begin(struct llm_matcher *m, struct llm_constraint *c)
{
    m->constraint = c;
    m->state = c->root;
}

bool llm_matcher_may_end(const struct llm_matcher *m)
{
    pthread_mutex_lock(&m->constraint->lock);
    bool may = llm_term_nullable(m->constraint->t, m->state);
    pthread_mutex_unlock(&m->constraint->lock);
    return may;
}

bool llm_matcher_must_end(const struct llm_matcher *m)
{
    return m->state == LLM_TERM_EMPTY_TEXT;
}

bool llm_matcher_allows(const struct llm_matcher *m, int32_t id)
{
    if (is_end(m, id)) return !m->ignore_ends && llm_matcher_may_end(m);
    pthread_mutex_lock(&m->constraint->lock);
    llm_terms_trim(m->constraint->t);
    bool allowed = after(m, id) != LLM_TERM_NOTHING;
    pthread_mutex_unlock(&m->constraint->lock);
    return allowed;
}

int llm_matcher_take(struct llm_matcher *m, int32_t id, struct llm_err *e)
{
    struct llm_constraint *c = m->constraint;
    if (is_end(m, id)) return 0;
    pthread_mutex_lock(&c->lock);
    llm_terms_trim(c->t);
    llm_term state = after(m, id);
    int status = llm_terms_failed(c->t, e);
    pthread_mutex_unlock(&c->lock);
    m->failed = status < 0;
    if (status < 0) return -1;
    if (state == LLM_TERM_NOTHING) return llm_fail(e, LLM_EX_FAILURE, "token %d is not allowed here", id);
    m->state = state;
    return 0;
}

int llm_matcher_take_text(struct llm_matcher *m, const char *text, size_t n, struct llm_err *e)
{
    struct llm_constraint *c = m->constraint;
    llm_term state = m->state;
    pthread_mutex_lock(&c->lock);
    llm_terms_trim(c->t);
    for (size_t i = 0; i < n && state != LLM_TERM_NOTHING; i++) state = llm_term_after(c->t, state, (unsigned char)text[i]);
    int status = llm_terms_failed(c->t, e);
    pthread_mutex_unlock(&c->lock);
    m->failed = status < 0;
    if (status < 0) return -1;
    if (state == LLM_TERM_NOTHING) return 1;
    m->state = state;
    return 0;
}

/* The bytes that must follow, as the automaton has no other: at most `max`. */
static size_t forced_bytes(struct llm_constraint *c, llm_term state, unsigned char *bytes, size_t max)
{
    size_t n = 0;
    while (n < max && !llm_term_nullable(c->t, state)) {
        const llm_term *row = llm_term_row(c->t, state);
        int only = -1;
        for (int b = 0; b < 256; b++) {
            if (row[b] == LLM_TERM_NOTHING) continue;
            if (only >= 0) return n;
            only = b;
        }
        if (only < 0) return n;
        bytes[n++] = (unsigned char)only;
        state = row[only];
    }
    return n;
}

int64_t llm_matcher_guess(const struct llm_matcher *m, int32_t *ids, int64_t max)
{
    enum { MAX_BYTES = 128 };
    struct llm_constraint *c = m->constraint;
    struct llm_err ignored; /* the next step of the matcher reports it */
    unsigned char bytes[MAX_BYTES];
    pthread_mutex_lock(&c->lock);
    llm_terms_trim(c->t);
    size_t n = forced_bytes(c, m->state, bytes, MAX_BYTES);
    if (llm_terms_failed(c->t, &ignored) < 0) n = 0;
    pthread_mutex_unlock(&c->lock);
    int32_t *all = NULL;
    size_t n_ids = 0, same = 0, at = 0;
    if (n == 0 || llm_encode(c->v->tokenizer, (const char *)bytes, n, LLM_ENCODE_INSIDE, &all, &n_ids, &ignored) < 0) n_ids = 0;
    for (; same < n_ids && same < (size_t)max; same++) { /* a tokenizer may have normalised the text */
        size_t length = 0;
        const char *piece = llm_tokenizer_piece(c->v->tokenizer, all[same], &length);
        if (!piece || length > n - at || memcmp(piece, bytes + at, length) != 0) break;
        ids[same] = all[same];
        at += length;
    }
    free(all);
    return (int64_t)same;
}

/* How many bits are set; in line, as there is no instruction for it that every processor has. */
static int count_bits(uint64_t x)
{
    x -= x >> 1 & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + (x >> 2 & UINT64_C(0x3333333333333333));
    return (int)(((x + (x >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F)) * UINT64_C(0x0101010101010101) >> 56);
}

/* Clears those of 64 logits whose bits are not set. `lost`: [64] -infinity each. */
static void clear_word(uint64_t bits, const float *lost, float *logits)
{
    float kept[64];
    size_t n_kept = 0;
    if (count_bits(~bits) <= FEW_GONE) {
        for (uint64_t gone = ~bits; gone; gone &= gone - 1) logits[__builtin_ctzll(gone)] = -INFINITY;
        return;
    }
    for (uint64_t left = bits; left; left &= left - 1) kept[n_kept++] = logits[__builtin_ctzll(left)];
    memcpy(logits, lost, 64 * sizeof *logits);
    n_kept = 0;
    for (uint64_t left = bits; left; left &= left - 1) logits[__builtin_ctzll(left)] = kept[n_kept++];
}

/* Clears the logits of the tokens that are not in the mask. A grammar's marks leave few tokens, so that words without one come in runs, which copies
 * clear faster than a loop over numbers; texts leave most tokens, of which only the others are written. */
static void clear(const uint64_t *mask, size_t words, float *logits, size_t n)
{
    float lost[LOST];
    size_t whole = n / 64 < words ? n / 64 : words, at;
    for (int i = 0; i < LOST; i++) lost[i] = -INFINITY;
    for (size_t w = 0; w < whole; w = at) {
        for (at = w; at < whole && at < w + LOST / 64 && mask[at] == 0; at++) continue;
        if (at > w) {
            memcpy(logits + w * 64, lost, (at - w) * 64 * sizeof *logits);
        } else {
            clear_word(mask[w], lost, logits + w * 64);
            at = w + 1;
        }
    }
    for (size_t i = whole * 64; i < n; i++)
        if (i >= words * 64 || !(mask[i >> 6] >> (i & 63) & 1)) logits[i] = -INFINITY;
}

/* As llm_matcher_mask. *failed: the constraint has failed at this text. */
static int find_mask(const struct llm_matcher *m, uint64_t *mask, bool *failed, struct llm_err *e)
{
    struct llm_constraint *c = m->constraint;
    memset(mask, 0, c->v->words * sizeof *mask);
    pthread_mutex_lock(&c->lock);
    llm_terms_trim(c->t);
    bool may_end = llm_term_nullable(c->t, m->state) && !m->ignore_ends;
    int status = add_mask(c, m->state, mask, 0, e);
    *failed = llm_terms_failed(c->t, status == 0 ? e : NULL) < 0;
    if (*failed) status = -1;
    pthread_mutex_unlock(&c->lock);
    /* End tokens are decided by themselves, as tokenizers have special ones, and others with a text. */
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < m->ends[k].n; i++) {
            int32_t id = m->ends[k].v[i];
            if (id < 0 || (size_t)id >= c->v->words * 64) continue;
            if (may_end) put_bit(mask, id);
            else mask[id >> 6] &= ~(UINT64_C(1) << (id & 63));
        }
    }
    return status;
}

int llm_matcher_mask(const struct llm_matcher *m, uint64_t *mask, struct llm_err *e)
{
    bool ignored;
    return find_mask(m, mask, &ignored, e);
}

int llm_matcher_apply(struct llm_matcher *m, float *logits, size_t n, struct llm_err *e)
{
    const size_t words = m->constraint->v->words;
    uint64_t *mask = llm_alloc(words, sizeof *mask, "a mask", e);
    bool some = false;
    if (!mask || find_mask(m, mask, &m->failed, e) < 0) {
        free(mask);
        return -1;
    }
    for (size_t w = 0; w * 64 < n && w < words && !some; w++) some = (n - w * 64 >= 64 ? mask[w] : mask[w] << (w * 64 + 64 - n)) != 0;
    clear(mask, words, logits, n);
    free(mask);
    m->stuck = !some;
    return some ? 0 : llm_fail(e, EX_DATAERR, "no token of the vocabulary continues the text as the constraint wants it");
}
