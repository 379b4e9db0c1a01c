/* --logits and --embed: streams of tensor messages. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "infer/embed.h"
#include "bin/infer/infer.h"

/* Logits: messages of LLM_SPAN_MAX rows but the last, however the prompt was cut into passes. */
struct run {
    struct session *s;
    struct llm_writer *w;
    json_t *meta;
    const int32_t *ids;
    float *rows;
    int64_t n_rows, first;
};

static int flush(struct run *r, struct llm_err *e)
{
    int32_t positions[LLM_SPAN_MAX];
    if (r->n_rows == 0) return 0;
    for (int64_t i = 0; i < r->n_rows; i++) positions[i] = (int32_t)(r->s->begin.n + r->first + i);
    struct llm_tensor_out t[] = {
        {"logits", LLM_F32, 2, {r->n_rows, r->s->model->config.vocab_size}, r->rows},
        {"ids", LLM_I32, 1, {r->n_rows}, r->ids + r->first},
        {"positions", LLM_I32, 1, {r->n_rows}, positions},
    };
    if (llm_writer_message(r->w, "logits", r->meta, t, 3, e) < 0) return -1;
    r->first += r->n_rows;
    r->n_rows = 0;
    return 0;
}

static int take(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct run *r = arg;
    int64_t vocab = r->s->model->config.vocab_size;
    for (int64_t i = 0; i < s->n; i++) {
        memcpy(r->rows + r->n_rows++ * vocab, s->logits + i * vocab, (size_t)vocab * sizeof(float));
        if (r->n_rows == LLM_SPAN_MAX && flush(r, e) < 0) return -1;
    }
    return 0;
}

static int write_logits(struct run *r, struct llm_kv *kv, int64_t n, struct llm_err *e)
{
    r->rows = llm_alloc((size_t)r->s->model->config.vocab_size, LLM_SPAN_MAX * sizeof *r->rows, "logits to write", e);
    if (!r->rows) return -1;
    int status = llm_engine_prefill(&r->s->engine, kv, r->ids, n, r->s->model->config.prefix_lm && kv->n == 0, true, take, r, e);
    return status == 0 ? flush(r, e) : status;
}

static int write_embedding(struct run *r, struct llm_kv *kv, int64_t n, struct llm_err *e)
{
    int64_t width = llm_config_vector(&r->s->model->config);
    r->rows = llm_alloc((size_t)width, sizeof *r->rows, "an embedding", e);
    if (!r->rows) return -1;
    int status = llm_embed(&r->s->engine, kv, r->ids, n, r->s->pool, r->rows, e);
    int64_t kept = embed_dims(r->s);
    llm_embed_normalize(r->rows, kept, r->s->normalize);
    struct llm_tensor_out t = {"embeddings", LLM_F32, 2, {1, kept}, r->rows};
    return status == 0 ? llm_writer_message(r->w, "embeddings", r->meta, &t, 1, e) : status;
}

int run_tensors(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct run r = {.s = s, .ids = ids};
    struct llm_kv kv;
    int status = -1;
    if (n == 0) return llm_fail(e, EX_DATAERR, "the prompt is empty: there is no token to show");
    llm_kv_init(&kv, &s->engine.pool);
    if (llm_model_fingerprint(s->model, e) == 0) r.meta = json_pack("{s:s}", "llm.fingerprint", s->model->fingerprint);
    long long context = (long long)s->model->rope_context;
    if (r.meta && context > 0) json_object_set_new(r.meta, "llm.rope_context", json_sprintf("%lld", context));
    if (r.meta) r.w = llm_writer_create(s->out, e);
    if (r.w && llm_kv_fork(&kv, &s->begin, e) == 0) {
        status = s->a->logits ? write_logits(&r, &kv, (int64_t)n, e) : write_embedding(&r, &kv, (int64_t)n, e);
    }
    if (status == 0) status = llm_writer_end(r.w, e);
    llm_writer_destroy(r.w);
    json_decref(r.meta);
    free(r.rows);
    llm_kv_release(&kv);
    return status;
}
