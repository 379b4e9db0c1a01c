#include "model/weights/gguf_names.h"

#include <stdlib.h>
#include "base/cli.h"
#include "model/config/arch.h"

const struct llm_arch *llm_gguf_family(const struct llm_arch *arch)
{
    return arch->gguf ? arch : arch->gguf_as ? llm_arch_find(arch->gguf_as) : NULL;
}

void llm_gguf_leave_out(struct llm_config *c, const struct llm_arch *family)
{
    if (family->gguf_names && !family->gguf_names->pooler) c->pooler = false;
    if (family->gguf_names && !family->gguf_names->head_dense) c->head_transform = false;
    c->num_nextn_predict_layers = 0; /* for training */
}

int llm_gguf_names_of(struct llm_gguf_names *n, const struct llm_model *m, struct llm_err *e)
{
    const struct llm_arch *family = llm_gguf_family(m->arch);
    struct llm_config c = m->config;
    if (!family) return llm_fail(e, EX_UNAVAILABLE, "a model of type '%s' has no names of tensors in GGUF", m->config.model_type);
    llm_gguf_leave_out(&c, family);
    if (llm_model_declare_gguf(&c, &n->declared, e) < 0) return -1;
    n->declared.config = NULL; /* c, which ends here */
    n->params = llm_calloc(n->declared.n + 1, sizeof *n->params, "names of tensors", e);
    n->specs = n->params ? llm_calloc(m->n_params + 1, sizeof *n->specs, "names of tensors", e) : NULL;
    if (!n->specs) return -1;
    for (size_t i = 0, at = 0; i < n->declared.n; i++, at++) { /* the same order */
        while (at < m->n_params && !llm_param_spec_same(m->params[at].spec, &n->declared.specs[i])) at++;
        if (at == m->n_params) return llm_fail(e, EX_UNAVAILABLE, "'%s': the model has no such parameter", n->declared.specs[i].name);
        n->params[i] = &m->params[at];
        n->specs[at] = &n->declared.specs[i];
    }
    return 0;
}

void llm_gguf_names_release(struct llm_gguf_names *n)
{
    llm_declare_release(&n->declared);
    free(n->params);
    free(n->specs);
}
