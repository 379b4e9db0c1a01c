/* The texts that end a repetition of DRY, found in the vocabulary as llama.cpp finds them, but that no space is put before the rest of a text. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "infer/sample/dry.h"

static int add_sequence(struct llm_dry_breakers *b, int32_t head, size_t tail, struct llm_err *e)
{
    if (llm_grow((void **)&b->v, &b->room, b->n + 1, sizeof *b->v, e) < 0) return -1;
    b->v[b->n++] = (struct llm_dry_sequence){head, tail};
    b->marks[head] |= LLM_DRY_BEGINS;
    return 0;
}

/* The first tokens of the text without its first 1, 2, … bytes, each a tail. */
static int add_tails(struct llm_dry_breakers *b, const struct llm_tokenizer *t, const char *text, size_t n, struct llm_err *e)
{
    for (size_t at = 1; at < n; at++) {
        struct llm_dry_tail tail = {0};
        if (llm_grow((void **)&b->tails, &b->tails_room, b->n_tails + 1, sizeof *b->tails, e) < 0
            || llm_encode(t, text + at, n - at, LLM_ENCODE_INSIDE, &tail.ids, &tail.n, e) < 0) return -1;
        if (tail.n > LLM_DRY_TAIL) tail.n = LLM_DRY_TAIL;
        b->tails[b->n_tails++] = tail;
    }
    return 0;
}

static int add_text(struct llm_dry_breakers *b, const struct llm_tokenizer *t, int64_t vocab_size, const char *text, struct llm_err *e)
{
    const int64_t n_ids = llm_tokenizer_vocab_size(t);
    const size_t length = strnlen(text, LLM_DRY_TEXT), first = b->n_tails;
    if (add_tails(b, t, text, length, e) < 0) return -1;
    for (int32_t id = 0; id < vocab_size && id < n_ids; id++) {
        size_t n = 0;
        const char *piece = llm_tokenizer_piece(t, id, &n);
        if (!piece) continue;
        if (memmem(piece, n, text, length)) {
            b->marks[id] |= LLM_DRY_ENDS;
            continue;
        }
        for (size_t begun = 1; begun < length && begun <= n; begun++) { /* bytes of the text that the token ends in */
            const size_t tail = first + begun - 1;
            if (b->tails[tail].n == 0 || memcmp(piece + n - begun, text, begun) != 0) continue; /* some tokenizers drop white space */
            if (add_sequence(b, id, tail, e) < 0) return -1;
        }
    }
    return 0;
}

static int by_head(const void *a, const void *b)
{
    const struct llm_dry_sequence *x = a, *y = b;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    return (x->tail > y->tail) - (x->tail < y->tail);
}

int llm_dry_breakers_init(struct llm_dry_breakers *b, const struct llm_tokenizer *t, int64_t vocab_size, const char *const *texts, size_t n_texts,
                          struct llm_err *e)
{
    if (!t || n_texts == 0 || (n_texts == 1 && strcmp(texts[0], "none") == 0)) return 0;
    b->marks = llm_calloc((size_t)vocab_size, 1, "sequence breakers", e);
    if (!b->marks) return -1;
    for (size_t i = 0; i < n_texts; i++) {
        if (add_text(b, t, vocab_size, texts[i], e) < 0) return -1;
    }
    if (b->n > 0) qsort(b->v, b->n, sizeof *b->v, by_head);
    return 0;
}

void llm_dry_breakers_release(struct llm_dry_breakers *b)
{
    for (size_t i = 0; i < b->n_tails; i++) free(b->tails[i].ids);
    free(b->tails);
    free(b->v);
    free(b->marks);
    *b = (struct llm_dry_breakers){0};
}

/* The first sequence whose head is `id`, or a later one. */
static size_t first_of(const struct llm_dry_breakers *b, int32_t id)
{
    size_t from = 0, to = b->n;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (b->v[middle].head < id) from = middle + 1;
        else to = middle;
    }
    return from;
}

int64_t llm_dry_breaker_at(const struct llm_dry_breakers *b, const int32_t *ids, int64_t n, int64_t at)
{
    int64_t longest = llm_dry_ends(b, ids[at]) ? 0 : -1;
    if (!b || !b->marks || !(b->marks[ids[at]] & LLM_DRY_BEGINS)) return longest;
    for (size_t i = first_of(b, ids[at]); i < b->n && b->v[i].head == ids[at]; i++) {
        const struct llm_dry_tail *t = &b->tails[b->v[i].tail];
        if ((int64_t)t->n > longest && (int64_t)t->n < n - at && memcmp(ids + at + 1, t->ids, t->n * sizeof *t->ids) == 0) longest = (int64_t)t->n;
    }
    return longest;
}
