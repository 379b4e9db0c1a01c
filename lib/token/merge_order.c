/* Ranks of a vocabulary whose scores say the order of merges: the higher the score of what two pieces make, the earlier; equal ones from left to
 * right. */
#include <stdlib.h>
#include <string.h>
#include "token/internal.h"
#include "token/unicode.h"

struct scored { double score; int32_t id; };

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score) : (x->id > y->id) - (x->id < y->id);
}

/* The character that is all of the token's text, or 0. */
static uint32_t run_of(const struct llm_tokenizer *t, int32_t id)
{
    size_t n;
    const unsigned char *p = llm_model_piece(t, id, &n);
    uint32_t first = 0, cp;
    for (size_t at = 0; at < n; at += (size_t)llm_utf8_next(p + at, n - at, &cp)) {
        (void)llm_utf8_next(p + at, n - at, &cp);
        if (at && cp != first)
            return 0;
        first = cp;
    }
    return first;
}

/* Ranks of equal scores are equal, but for runs of one character (SentencePiece's spaces): there the longer merges first, as in the lists that
 * Hugging Face's converter writes. It is the same, because a run grows from its left end either way. */
static void rank_group(const struct llm_tokenizer *t, const struct scored *v, size_t n, uint32_t *rank, uint32_t *next)
{
    uint32_t run = run_of(t, v[0].id);
    for (size_t i = 1; i < n; i++)
        if (run_of(t, v[i].id) != run)
            run = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t longer = 0;
        for (size_t k = 0; run && k < n; k++)
            longer += t->offsets[v[k].id + 1] - t->offsets[v[k].id] > t->offsets[v[i].id + 1] - t->offsets[v[i].id];
        rank[v[i].id] = *next + longer;
    }
    *next += run ? (uint32_t)n : 1;
}

/* Texts are looked up as they merge; only a vocabulary with very long ones has a table of merges. */
static int use_ranks(struct llm_tokenizer *t, const uint32_t *rank, struct llm_err *e)
{
    struct llm_bpe_merge *merges = NULL;
    size_t n = 0;
    uint32_t longest = 0;
    for (int32_t id = 0; id < t->vocab_size; id++)
        if (t->flags[id] & LLM_TOKEN_MODEL && t->offsets[id + 1] - t->offsets[id] > longest)
            longest = t->offsets[id + 1] - t->offsets[id];
    if (longest <= LLM_MAX_JOINED)
        return llm_bpe_init_joined(&t->bpe, rank, (size_t)t->vocab_size, llm_joined, t, e);
    if (llm_all_merges(t, rank, &merges, &n, e) == 0)
        return llm_bpe_init(&t->bpe, merges, n, e);
    free(merges);
    return -1;
}

int llm_merge_by_score(struct llm_tokenizer *t, const double *scores, struct llm_err *e)
{
    struct scored *order = llm_alloc((size_t)t->vocab_size, sizeof *order, "merges", e);
    uint32_t *rank = llm_calloc((size_t)t->vocab_size, sizeof *rank, "merges", e), next = 0;
    size_t n_order = 0;
    int bad = order && rank ? 0 : -1;
    for (int32_t id = 0; id < t->vocab_size && bad == 0; id++)
        if (t->flags[id] & LLM_TOKEN_MODEL)
            order[n_order++] = (struct scored){scores[id], id};
    bool sorted = true;
    for (size_t i = 1; i < n_order && bad == 0; i++)
        sorted = sorted && by_score(&order[i - 1], &order[i]) <= 0;
    if (bad == 0 && !sorted)
        qsort(order, n_order, sizeof *order, by_score);
    for (size_t i = 0, end; bad == 0 && i < n_order; i = end) {
        for (end = i + 1; end < n_order && order[end].score == order[i].score; end++) {
        }
        if (end - i <= 4096) {
            rank_group(t, order + i, end - i, rank, &next);
            continue;
        }
        for (size_t k = i; k < end; k++)
            rank[order[k].id] = next;
        next++;
    }
    free(order);
    if (bad == 0)
        bad = use_ranks(t, rank, e);
    free(rank);
    return bad;
}
