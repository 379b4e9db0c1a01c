#include "measure/quality.h"

#include <inttypes.h>
#include <math.h>
#include "base/log.h"
#include "infer/score.h"
#include "measure/stats.h"

struct counting {
    const struct llm_tokenizer *tokenizer;
    const int32_t *ids;
    struct llm_running nats;
    double bytes;
    struct llm_progress progress;
};

static int count(void *arg, int64_t i, double log_prob, struct llm_err *e)
{
    struct counting *c = arg;
    size_t n = 0;
    if (!isfinite(log_prob)) return llm_fail(e, LLM_EX_FAILURE, "token %" PRId64 ": its log-probability is not finite", i);
    llm_running_add(&c->nats, -log_prob);
    if (c->tokenizer && llm_tokenizer_piece(c->tokenizer, c->ids[i], &n)) c->bytes += (double)n;
    llm_progress_set(&c->progress, i, NULL);
    return 0;
}

int llm_quality_of(struct llm_engine *g, const int32_t *ids, int64_t n, struct llm_quality *q, struct llm_err *e)
{
    struct counting c = {.tokenizer = g->model->tokenizer, .ids = ids};
    if (n < 2) return llm_fail(e, EX_DATAERR, "expected at least 2 tokens, found %" PRId64, n);
    llm_progress_start(&c.progress, "quality", "tokens", n);
    int status = llm_score(g, NULL, ids, n, count, &c, e);
    llm_progress_end(&c.progress);
    if (status != 0) return status;
    double per_byte = c.tokenizer && c.bytes > 0 ? (double)c.nats.n / c.bytes / log(2) : (double)NAN;
    *q = (struct llm_quality){.tokens = (int64_t)c.nats.n, .nats = llm_running_mean(&c.nats), .nats_error = llm_running_error(&c.nats),
                              .bytes = c.tokenizer ? c.bytes : (double)NAN};
    q->perplexity = exp(q->nats);
    q->bits_per_byte = q->nats * per_byte;
    q->bits_per_byte_error = q->nats_error * per_byte;
    return 0;
}
