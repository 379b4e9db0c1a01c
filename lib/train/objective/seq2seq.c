/* Sequence to sequence: a document's first tokens, those whose loss mask is 0, are the source, which the encoder reads; the decoder learns to
 * answer with the rest, and with an end. */
#include <string.h>
#include "train/objective.h"

static int check(const struct llm_model *m, struct llm_err *e)
{
    if (m->config.num_encoder_layers > 0) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected an encoder-decoder, found another model (%s)", m->config.model_type);
}

static int document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    const struct llm_model *m = t->model;
    const int32_t *ids = d->ids;
    const uint8_t *mask = d->mask;
    int64_t n = d->n;
    int64_t at = row * rows->row_len, source = 0;
    int32_t eos = (int32_t)m->config.eos_token_id, last = llm_config_answer_start(&m->config);
    while (source < n && !mask[source]) source++;
    int64_t answer = n - source, end = answer > 0 && eos >= 0 && ids[n - 1] != eos;
    if (source == 0 || answer == 0) {
        return llm_fail(e, EX_DATAERR, "expected a source (loss mask 0) and a target behind it, found %lld and %lld tokens", (long long)source,
                        (long long)answer);
    }
    if (source > rows->row_len || answer + end > rows->row_len) {
        return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld of source and %lld of target", (long long)rows->row_len,
                        (long long)source, (long long)(answer + end));
    }
    rows->source_len[row] = (int32_t)source;
    for (int64_t i = 0; i < rows->row_len; i++) {
        bool here = i < answer + end;
        int32_t id = i < answer ? ids[source + i] : eos;
        rows->source[at + i] = i < source ? ids[i] : 0;
        rows->ids[at + i] = here ? last : 0;
        rows->targets[at + i] = here && (i >= answer || mask[source + i]) ? id : -1;
        rows->positions[at + i] = (int32_t)i;
        rows->doc_start[at + i] = 0;
        rows->own[at + i] = here;
        last = id;
    }
    return 0;
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct llm_model *m = t->model;
    c->n_rows = rows->n_rows;
    c->row_len = rows->row_len;
    const struct llm_batch source = llm_rows_source(rows);
    struct llm_batch b = llm_rows_batch(t, rows);
    b.source = &source;
    struct llm_tensor *hidden = llm_model_forward(c, m, &b);
    struct llm_cross_entropy loss = llm_task_loss(t, rows, grad_scale, token_loss);
    loss.bias = NULL;
    loss.logits = llm_model_watched_logits(c, b.n_tokens);
    llm_cross_entropy(c, hidden, llm_model_head(m), &loss);
    if (!llm_ctx_failed(c)) return 0;
    *e = c->err;
    return -1;
}

extern const struct llm_objective llm_objective_seq2seq;
const struct llm_objective llm_objective_seq2seq = {.name = "seq2seq", .summary = "answer a source text", .check = check,
                                                    .document = document, .two_texts = true,
                                                    .run = run};
