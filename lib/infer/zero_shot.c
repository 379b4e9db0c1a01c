#include "infer/zero_shot.h"

#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "infer/classify.h"
#include "infer/embed.h"

int llm_zero_shot_check(const struct llm_model *m, struct llm_err *e)
{
    if (llm_config_two_towers(&m->config)) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "--labels: expected a model that compares pictures with texts (clip, siglip), found another (%s)",
                    m->config.model_type);
}

int llm_zero_shot_init(struct llm_zero_shot *z, struct llm_engine *g, const int32_t *ids, const int64_t *lengths, int64_t n_templates,
                       struct llm_err *e)
{
    const int64_t n = llm_labels_count(&z->labels), width = llm_config_vector(&g->model->config);
    float *texts = llm_alloc((size_t)(n_templates * width), sizeof *texts, "vectors of texts", e);
    double *sum = llm_alloc((size_t)width, sizeof *sum, "vectors of texts", e);
    z->classes = llm_alloc((size_t)n, (size_t)width * sizeof *z->classes, "vectors of classes", e);
    int status = texts && sum && z->classes ? 0 : -1;
    for (int64_t i = 0; i < n && status == 0; i++, lengths += n_templates) {
        float *to = z->classes + i * width;
        status = llm_embed_texts(g, ids, NULL, lengths, n_templates, g->model->config.pooling, texts, e);
        for (int64_t t = 0; t < n_templates && status == 0; t++) {
            llm_embed_normalize(texts + t * width, width, 2);
            for (int64_t k = 0; k < width; k++) sum[k] = (t > 0 ? sum[k] : 0) + (double)texts[t * width + k];
            ids += lengths[t];
        }
        for (int64_t k = 0; k < width && status == 0; k++) to[k] = (float)(sum[k] / (double)n_templates);
        llm_embed_normalize(to, width, status == 0 ? 2 : -1);
    }
    free(texts);
    free(sum);
    return status;
}

void llm_zero_shot_release(struct llm_zero_shot *z)
{
    llm_labels_release(&z->labels);
    free(z->classes);
    *z = (struct llm_zero_shot){.classes = NULL};
}

void llm_zero_shot_classify(const struct llm_zero_shot *z, const struct llm_model *m, float *v, double *out)
{
    const int64_t n = llm_labels_count(&z->labels), width = llm_config_vector(&m->config);
    const double scale = llm_model_logit_scale(m), bias = llm_model_logit_bias(m);
    llm_embed_normalize(v, width, 2);
    for (int64_t i = 0; i < n; i++) {
        double dot = 0;
        for (int64_t k = 0; k < width; k++) dot += (double)z->classes[i * width + k] * (double)v[k];
        out[i] = m->config.sigmoid_loss ? 1 / (1 + exp(-scale * dot - bias)) : scale * dot;
    }
    if (!m->config.sigmoid_loss) llm_classify_softmax(out, n);
}
