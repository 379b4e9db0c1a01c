/* The names that a model's parameters have in GGUF files. */
#include "base/cli.h"
#include "model/config/arch.h"
#include "model/spec/block.h"
#include "model/weights/model.h"

int llm_model_gguf_specs(const struct llm_model *m, struct llm_declare *d, const struct llm_param_spec **of, struct llm_err *e)
{
    const struct llm_arch *arch = m->arch->gguf ? m->arch : m->arch->gguf_as ? llm_arch_find(m->arch->gguf_as) : NULL;
    struct llm_config c = m->config;
    size_t at = 0;
    for (size_t i = 0; i < m->n_params; i++) of[i] = NULL;
    if (!arch) return llm_fail(e, EX_UNAVAILABLE, "a model of type '%s' has no names of tensors in GGUF", m->config.model_type);
    if (arch->gguf_names && !arch->gguf_names->pooler) c.pooler = false;
    if (arch->gguf_names && !arch->gguf_names->head_dense) c.head_transform = false;
    c.num_nextn_predict_layers = 0;
    if (llm_model_declare_gguf(&c, d, e) < 0) return -1;
    for (size_t i = 0; i < d->n; i++) { /* the same order as the model's */
        while (at < m->n_params && !llm_param_spec_same(m->params[at].spec, &d->specs[i])) at++;
        if (at == m->n_params) break;
        of[at++] = &d->specs[i];
    }
    return 0;
}
