#include "infer/constrain/tokens.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = (1 << 24) - 1, MAX_TOKEN = 4096 /* bytes of a token that may be chosen */ };

struct text { const unsigned char *p; uint32_t n; int32_t id, chars; };

static int by_bytes(const void *a, const void *b)
{
    const struct text *x = a, *y = b;
    int c = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);
    if (c != 0) return c;
    return x->n != y->n ? (x->n > y->n) - (x->n < y->n) : (x->id > y->id) - (x->id < y->id);
}

static int by_chars(const void *a, const void *b)
{
    const struct llm_plain_token *x = a, *y = b;
    return x->chars != y->chars ? (x->chars > y->chars) - (x->chars < y->chars) : (x->id > y->id) - (x->id < y->id);
}

/* Characters of a plain text; 0: it is none. */
static int32_t plain_chars(const unsigned char *p, size_t n)
{
    int32_t chars = 0;
    for (size_t at = 0; at < n; chars++) {
        uint32_t c;
        int step = llm_utf8_next(p + at, n - at, &c);
        if (step <= 0 || c < 32 || c == '"' || c == '\\') return 0;
        at += (size_t)step;
    }
    return chars;
}

/* A tree that is being made: in preorder, a node's children and theirs follow it, up to `end`. */
struct node { uint32_t end; int32_t token; unsigned char byte; };

static uint32_t build_preorder(struct node *tree, const struct text *v, size_t n, enum llm_token_kinds kinds, int32_t *same)
{
    static const struct text nothing;
    uint32_t path[MAX_TOKEN + 1], count = 1;
    size_t bytes = 0;
    const struct text *before = &nothing;
    path[0] = 0;
    tree[0] = (struct node){0, -1, 0};
    for (size_t i = 0; i < n; i++) {
        if (kinds != LLM_TOKENS_ALL && (v[i].chars > 0) != (kinds == LLM_TOKENS_PLAIN)) continue;
        size_t shared = 0;
        while (shared < before->n && shared < v[i].n && before->p[shared] == v[i].p[shared]) shared++;
        if (shared == v[i].n && shared == before->n && before != &nothing) { /* sorted by id: the later one follows in the chain */
            same[before->id] = v[i].id;
            if (tree[path[bytes]].token >= 0) tree[path[bytes]].token = -2 - tree[path[bytes]].token;
            before = &v[i];
            continue;
        }
        for (size_t k = bytes; k > shared; k--) tree[path[k]].end = count;
        for (size_t k = shared; k < v[i].n; k++) {
            path[k + 1] = count;
            tree[count++] = (struct node){0, -1, v[i].p[k]};
        }
        bytes = v[i].n;
        tree[path[bytes]].token = v[i].id;
        before = &v[i];
    }
    for (size_t k = bytes + 1; k-- > 0;) tree[path[k]].end = count;
    return count;
}

/* A tree of sorted texts. */
static int build(struct llm_token_tree *tree, const struct text *v, size_t n, enum llm_token_kinds kinds, int32_t *same, struct llm_err *e)
{
    size_t room = 1;
    for (size_t i = 0; i < n; i++) room += v[i].n;
    if (room > MAX_NODES) return llm_fail(e, EX_UNAVAILABLE, "a vocabulary of %zu bytes is too large for a constraint", room);
    struct node *from = llm_alloc(room, sizeof *from, "a tree of tokens", e);
    uint32_t *order = NULL, count = from ? build_preorder(from, v, n, kinds, same) : 0, queued = 1;
    if (from) order = llm_alloc(count, sizeof *order, "a tree of tokens", e);
    if (order) tree->v = llm_alloc((size_t)count + 1, sizeof *tree->v, "a tree of tokens", e);
    if (tree->v) {
        order[0] = 0;
        for (uint32_t i = 0; i < count; i++) {
            const struct node *x = &from[order[i]];
            tree->v[i] = (struct llm_token_node){queued << 8 | x->byte, x->token};
            for (uint32_t kid = order[i] + 1; kid < x->end; kid = from[kid].end) order[queued++] = kid;
        }
        tree->v[count] = (struct llm_token_node){count << 8, -1};
        tree->n = count;
    }
    free(order);
    free(from);
    return tree->v ? 0 : -1;
}

static int make_plain_sets(struct llm_tokens *t, const struct text *v, size_t n, struct llm_err *e)
{
    t->longer = llm_alloc(n + 1, sizeof *t->longer, "plain tokens", e);
    if (!t->longer) return -1;
    for (int k = 0; k <= LLM_PLAIN_SETS; k++) {
        t->plain[k] = llm_calloc(t->words, sizeof *t->plain[k], "plain tokens", e);
        if (!t->plain[k]) return -1;
    }
    for (size_t i = 0; i < n; i++) {
        if (v[i].chars == 0) continue;
        if (v[i].chars > LLM_PLAIN_SETS) t->longer[t->n_longer++] = (struct llm_plain_token){v[i].id, v[i].chars};
        for (int k = v[i].chars; k <= LLM_PLAIN_SETS; k++) t->plain[k][v[i].id >> 6] |= UINT64_C(1) << (v[i].id & 63);
        if (v[i].chars > t->max_chars) t->max_chars = v[i].chars;
    }
    qsort(t->longer, t->n_longer, sizeof *t->longer, by_chars);
    return 0;
}

struct llm_tokens *llm_tokens_create(const struct llm_tokenizer *tokenizer, struct llm_err *e)
{
    struct llm_tokens *t = llm_calloc(1, sizeof *t, "tokens", e);
    if (!t) return NULL;
    t->tokenizer = tokenizer;
    t->vocab_size = llm_tokenizer_vocab_size(tokenizer);
    t->words = ((size_t)t->vocab_size + 63) / 64;
    size_t n = 0;
    struct text *v = llm_alloc((size_t)t->vocab_size + 1, sizeof *v, "tokens", e);
    t->same = llm_alloc((size_t)t->vocab_size + 1, sizeof *t->same, "tokens", e);
    int status = v && t->same ? 0 : -1;
    for (int32_t id = 0; status == 0 && id < t->vocab_size; id++) {
        size_t bytes = 0;
        const char *p = llm_tokenizer_is_special(tokenizer, id) ? NULL : llm_tokenizer_piece(tokenizer, id, &bytes);
        t->same[id] = -1;
        if (!p || bytes == 0 || bytes > MAX_TOKEN) continue;
        v[n++] = (struct text){(const unsigned char *)p, (uint32_t)bytes, id, plain_chars((const unsigned char *)p, bytes)};
        if (bytes > t->max_bytes) t->max_bytes = (uint32_t)bytes;
    }
    if (status == 0) {
        qsort(v, n, sizeof *v, by_bytes);
        for (int k = 0; status == 0 && k < 3; k++) status = build(&t->trees[k], v, n, (enum llm_token_kinds)k, t->same, e);
        if (status == 0) status = make_plain_sets(t, v, n, e);
    }
    free(v);
    if (status == 0) return t;
    llm_tokens_destroy(t);
    return NULL;
}

void llm_tokens_destroy(struct llm_tokens *t)
{
    if (!t) return;
    for (int k = 0; k < 3; k++) free(t->trees[k].v);
    free(t->same);
    for (int k = 0; k <= LLM_PLAIN_SETS; k++) free(t->plain[k]);
    free(t->longer);
    free(t);
}
