/* The n-gram line (train/ngram_bar.h). */
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/log.h"
#include "train/ngram_bar.h"

static uint64_t learned(const struct llm_train_data *d)
{
    return (uint64_t)((double)llm_tokens_count(d->train) * (1 - d->val_share));
}

struct llm_ngram_source llm_ngram_source_of(const struct llm_train_data *d, const struct llm_tokenizer *t, int64_t vocab_size)
{
    return (struct llm_ngram_source){.tokens = d->train, .n = learned(d), .vocab_size = vocab_size, .bos = t ? llm_tokenizer_bos(t) : -1,
                                     .eos = t ? llm_tokenizer_eos(t) : -1};
}

/* The ends of documents after token `first`, as offsets from it. *ends is malloced. */
static int ends_behind(const struct llm_tokens *t, uint64_t first, uint64_t **ends, size_t *n, struct llm_err *e)
{
    size_t all;
    const uint64_t *v = llm_tokens_doc_ends(t, &all);
    *ends = llm_alloc(all + 1, sizeof **ends, "document ends", e);
    *n = 0;
    for (size_t i = 0; *ends && i < all; i++) {
        if (v[i] > first) (*ends)[(*n)++] = v[i] - first;
    }
    return *ends ? 0 : -1;
}

int llm_ngram_validate(struct llm_model *m, const struct llm_train_data *d, bool cross_document, struct llm_quality *q, struct llm_err *e)
{
    const struct llm_tokens *t = d->val ? d->val : d->train;
    uint64_t first = d->val ? 0 : learned(d), n = llm_tokens_count(t) - first, *ends = NULL;
    size_t n_ends = 0;
    const struct llm_engine_options o = {.compute = LLM_COMPUTE_F32, .batch = 4096};
    struct llm_engine g = {0};
    int32_t *ids = llm_alloc((size_t)n, sizeof *ids, "validation data", e);
    uint8_t *mask = llm_alloc((size_t)n, 1, "validation data", e);
    int got = ids && mask ? ends_behind(t, first, &ends, &n_ends, e) : -1;
    if (got == 0) got = llm_engine_init(&g, m, &o, e);
    if (got == 0) {
        llm_tokens_get(t, first, (size_t)n, ids, mask);
        const struct llm_quality_text text = {.ids = ids, .mask = mask, .n = (int64_t)n, .ends = ends, .n_ends = cross_document ? 0 : n_ends};
        got = llm_quality_of(&g, &text, q, e);
        if (got < 0) llm_in(e, "validation data");
    }
    llm_engine_release(&g);
    free(ids);
    free(mask);
    free(ends);
    return got;
}

static int try_order(const struct llm_train_data *d, struct llm_tokenizer *t, int64_t vocab_size, const struct llm_ngram_options *o,
                     struct llm_quality *q, struct llm_err *e)
{
    struct llm_ngram_report report;
    struct llm_ngram_source s = llm_ngram_source_of(d, t, vocab_size);
    struct llm_ngram *g = NULL;
    int got = llm_ngram_estimate(&s, o, &g, &report, e);
    if (got != 0) return got;
    struct llm_model *m = llm_ngram_model(g, s.bos, s.eos, e);
    if (!m) return -1;
    m->tokenizer = t;
    got = llm_ngram_validate(m, d, o->cross_document, q, e);
    m->tokenizer = NULL;
    llm_model_destroy(m);
    return got;
}

int llm_ngram_bar(const struct llm_train_data *d, struct llm_tokenizer *t, int64_t vocab_size, const struct llm_ngram_options *o,
                  struct llm_ngram_bar *best, struct llm_err *e)
{
    struct llm_ngram_options one = *o;
    int max = o->order ? o->order : llm_ngram_order_limit((uint64_t)vocab_size);
    *best = (struct llm_ngram_bar){.nats = INFINITY};
    for (one.order = o->order ? o->order : 1; one.order <= max; one.order++) {
        struct llm_quality q;
        int got = try_order(d, t, vocab_size, &one, &q, e);
        if (got != 0) return got;
        llm_verbose("n-grams of order %d: validation %.4f", one.order, q.nats);
        if (!(q.nats < best->nats)) break;
        *best = (struct llm_ngram_bar){one.order, q.nats, q.bits_per_byte};
    }
    return 0;
}
