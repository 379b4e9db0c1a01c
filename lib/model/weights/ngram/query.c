/* Queries of n-gram tables (model/weights/ngram.h). Offsets come from the file unchecked, so each is bounded by its array here. */
#include <math.h>
#include "model/weights/ngram.h"

struct range { uint64_t begin, end; };

static struct range range_at(const struct llm_ngram_array *offsets, uint64_t i, uint64_t max)
{
    const uint32_t *o = offsets->data;
    struct range r = {o[i], o[i + 1]};
    if (r.end > max) r.end = max;
    if (r.begin > r.end) r.begin = r.end;
    return r;
}

static uint32_t token_at(const struct llm_ngram_array *tokens, uint64_t i)
{
    return tokens->dtype == LLM_U16 ? ((const uint16_t *)tokens->data)[i] : ((const uint32_t *)tokens->data)[i];
}

/* The index of `token` in the range r, which is in ascending order; r.end if it is absent. */
static uint64_t search(const struct llm_ngram_array *tokens, struct range r, uint32_t token)
{
    uint64_t low = r.begin, high = r.end;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (token_at(tokens, middle) < token) low = middle + 1;
        else high = middle;
    }
    return low < r.end && token_at(tokens, low) == token ? low : r.end;
}

void llm_ngram_find(const struct llm_ngram *g, const int32_t *newest, int n, struct llm_ngram_state *s)
{
    float of[LLM_NGRAM_MAX_ORDER + 1] = {0}, sum = 0;
    s->n = 0;
    for (int k = 1; k <= n && k < g->order; k++) {
        uint64_t at = (uint64_t)newest[k - 1];
        if (newest[k - 1] < 0 || at > (uint64_t)g->vocab_size) break;
        if (k > 1) {
            const struct llm_ngram_level *l = &g->level[k];
            struct range r = range_at(&g->level[k - 1].deeper, s->context[k - 1], l->oldest.n);
            at = search(&l->oldest, r, (uint32_t)newest[k - 1]);
            if (at == r.end) break;
        }
        s->context[k] = at;
        of[k] = ((const float *)g->level[k].backoff.data)[at];
        s->n = k;
    }
    for (int k = s->n; k >= 0; k--) {
        s->backoff[k] = sum;
        sum += of[k];
    }
}

float llm_ngram_log_prob(const struct llm_ngram *g, const struct llm_ngram_state *s, int64_t word)
{
    for (int k = s->n; k > 0; k--) {
        const struct llm_ngram_level *l = &g->level[k];
        struct range r = range_at(&l->first, s->context[k], l->word.n);
        uint64_t at = search(&l->word, r, (uint32_t)word);
        if (at < r.end) return ((const float *)l->log_prob.data)[at] + s->backoff[k];
    }
    return ((const float *)g->unigram.data)[word] + s->backoff[0];
}

void llm_ngram_log_probs(const struct llm_ngram *g, const struct llm_ngram_state *s, float *out)
{
    const float *unigram = g->unigram.data;
    for (int64_t w = 0; w < g->vocab_size; w++) out[w] = unigram[w] + s->backoff[0];
    for (int k = 1; k <= s->n; k++) { /* n-grams of a longer context override those of a shorter one */
        const struct llm_ngram_level *l = &g->level[k];
        struct range r = range_at(&l->first, s->context[k], l->word.n);
        for (uint64_t i = r.begin; i < r.end; i++) {
            uint32_t w = token_at(&l->word, i);
            if (w < (uint64_t)g->vocab_size) out[w] = ((const float *)l->log_prob.data)[i] + s->backoff[k];
        }
    }
}
