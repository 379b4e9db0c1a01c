#include "infer/classify.h"

#include <math.h>
#include <string.h>
#include "base/signals.h"
#include "tensor/tape.h"

int llm_classify_check(const struct llm_model *m, struct llm_err *e)
{
    if (m->config.num_labels > 0) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected a model that tells classes apart (llm-train --objective classify), found another (%s)",
                    m->config.model_type);
}

int llm_score_reward_check(const struct llm_model *m, struct llm_err *e)
{
    if (m->config.num_labels == 1) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected a model of one score (llm-train --objective reward, a cross-encoder), found another (%s)",
                    m->config.model_type);
}

/* The head's outputs [num_labels] for pooled hidden states; on the engine's context. NULL: see `e`. */
static const float *logits_of(struct llm_engine *g, const float *v, struct llm_err *e)
{
    const struct llm_config *f = &g->model->config;
    llm_ctx_reset(&g->ctx);
    struct llm_tensor *x = llm_tensor_create(&g->ctx, 1, f->hidden_size);
    if (!llm_ctx_failed(&g->ctx)) memcpy(x->data, v, (size_t)f->hidden_size * sizeof *v);
    const struct llm_tensor *logits = llm_model_class_logits(&g->ctx, g->model, llm_model_before_classes(&g->ctx, g->model, x));
    if (!llm_ctx_failed(&g->ctx)) return logits->data;
    llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
    return NULL;
}

int llm_score_reward(struct llm_engine *g, const float *v, double *out, struct llm_err *e)
{
    const float *logits = logits_of(g, v, e);
    if (logits) *out = (double)logits[0];
    return logits ? 0 : -1;
}

void llm_classify_softmax(double *x, int64_t n)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, x[i]);
    for (int64_t i = 0; i < n; i++) sum += x[i] = exp(x[i] - max);
    for (int64_t i = 0; i < n; i++) x[i] /= sum;
}

int llm_classify_pictures(struct llm_engine *g, const float *pixels, int64_t n, double *out, struct llm_err *e)
{
    const struct llm_config *f = &g->model->config;
    const int64_t length = llm_config_picture_tokens(f), size = f->num_channels * f->image_size * f->image_size;
    const int64_t together = g->batch / length > 1 ? g->batch / length : 1;
    for (int64_t at = 0, some; at < n; at += some) {
        some = n - at < together ? n - at : together;
        if (llm_signal_caught()) return 1;
        struct llm_tensor *hidden = llm_engine_see(g, pixels + at * size, some, e);
        int32_t *lengths = hidden ? llm_op_alloc(&g->ctx, some, sizeof *lengths) : NULL;
        for (int64_t i = 0; lengths && i < some; i++) lengths[i] = (int32_t)length;
        if (!hidden) return -1;
        struct llm_tensor *x = llm_model_pool(&g->ctx, g->model, hidden, NULL, lengths, some);
        const struct llm_tensor *logits = llm_model_class_logits(&g->ctx, g->model, llm_model_before_classes(&g->ctx, g->model, x));
        if (llm_ctx_failed(&g->ctx)) return llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
        for (int64_t i = 0; i < some; i++) {
            double *p = out + (at + i) * f->num_labels;
            for (int64_t k = 0; k < f->num_labels; k++) p[k] = (double)logits->data[i * logits->stride + k];
            llm_classify_softmax(p, f->num_labels);
        }
    }
    return 0;
}

int llm_classify(struct llm_engine *g, const float *v, double *out, struct llm_err *e)
{
    const struct llm_config *f = &g->model->config;
    const float *logits = logits_of(g, v, e);
    if (!logits) return -1;
    for (int64_t i = 0; i < f->num_labels; i++) out[i] = (double)logits[i];
    llm_classify_softmax(out, f->num_labels);
    return 0;
}
