#include "measure/quality.h"

#include <inttypes.h>
#include <math.h>
#include "base/progress.h"
#include "infer/score.h"
#include "measure/stats.h"

struct counting {
    const struct llm_tokenizer *tokenizer;
    const struct llm_quality_text *text;
    int64_t first; /* of the document at hand */
    struct llm_running nats;
    double bytes;
    struct llm_progress progress;
};

static int count(void *arg, int64_t i, double log_prob, struct llm_err *e)
{
    struct counting *c = arg;
    size_t n = 0;
    i += c->first;
    llm_progress_set(&c->progress, i, NULL);
    if (c->text->mask && !c->text->mask[i]) return 0;
    if (!isfinite(log_prob)) return llm_fail(e, LLM_EX_FAILURE, "token %" PRId64 ": its log-probability is not finite", i);
    llm_running_add(&c->nats, -log_prob);
    int32_t id = c->text->ids[i];
    if (c->tokenizer && !llm_tokenizer_is_special(c->tokenizer, id) && llm_tokenizer_piece(c->tokenizer, id, &n)) c->bytes += (double)n;
    return 0;
}

static int documents(struct llm_engine *g, struct counting *c, struct llm_err *e)
{
    const struct llm_quality_text *t = c->text;
    int status = 0;
    for (size_t d = 0; d <= t->n_ends && status == 0; d++) {
        int64_t end = d < t->n_ends && t->ends[d] < (uint64_t)t->n ? (int64_t)t->ends[d] : t->n;
        if (end - c->first > 1) status = llm_score(g, NULL, t->ids + c->first, end - c->first, count, c, e);
        c->first = end;
    }
    return status;
}

int llm_quality_of(struct llm_engine *g, const struct llm_quality_text *text, struct llm_quality *q, struct llm_err *e)
{
    struct counting c = {.tokenizer = g->model->tokenizer, .text = text};
    llm_progress_start(&c.progress, "quality", "tokens", text->n);
    int status = documents(g, &c, e);
    llm_progress_end(&c.progress);
    if (status != 0) return status;
    if (c.nats.n == 0) {
        return llm_fail(e, EX_DATAERR, "expected a document of at least 2 tokens, found %" PRId64 " in %zu", text->n, text->n_ends + !text->n_ends);
    }
    double per_byte = c.tokenizer && c.bytes > 0 ? (double)c.nats.n / c.bytes / log(2) : (double)NAN;
    *q = (struct llm_quality){.tokens = (int64_t)c.nats.n, .nats = llm_running_mean(&c.nats), .nats_error = llm_running_error(&c.nats),
                              .bytes = c.tokenizer ? c.bytes : (double)NAN};
    q->perplexity = exp(q->nats);
    q->bits_per_byte = q->nats * per_byte;
    q->bits_per_byte_error = q->nats_error * per_byte;
    return 0;
}
