#include "infer/lens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "tensor/ops.h"

int llm_lens_check(const struct llm_model *m, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    if (llm_model_must_continue(m, e) < 0) return -1;
    if (c->num_hidden_layers > 1 && llm_place_exists(c, (struct llm_place){LLM_PLACE_RESIDUAL_AFTER, LLM_STACK_MAIN, 0})) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected a model with two or more layers and a residual after each, found a %s of %" PRId64, c->model_type,
                    c->num_hidden_layers);
}

int llm_lens_create(struct llm_lens *l, const struct llm_config *c, struct llm_err *e)
{
    size_t n = c->num_hidden_layers > 1 ? 2 * (size_t)(c->num_hidden_layers - 1) : 0;
    const int64_t shape[] = {c->hidden_size, c->hidden_size};
    l->layers = c->num_hidden_layers;
    l->params = llm_calloc(n, sizeof *l->params, "a lens", e);
    l->list = llm_calloc(n, sizeof *l->list, "a lens", e);
    l->names = llm_calloc(n, sizeof *l->names, "a lens", e);
    if (!l->params || !l->list || !l->names) return -1;
    for (; l->n_params < n; l->n_params++) {
        size_t i = l->n_params;
        bool matrix = i % 2 == 0;
        snprintf(l->names[i], sizeof l->names[i], "layers.%zu.lens.%s", i / 2, matrix ? "weight" : "bias");
        if (llm_param_make(&l->params[i], l->names[i], matrix ? 2 : 1, shape, matrix ? LLM_ROLE_HIDDEN : LLM_ROLE_VECTOR, e) < 0) return -1;
        l->list[i] = &l->params[i];
    }
    return 0;
}

int llm_lens_load(struct llm_lens *l, const char *path, struct llm_model *m, struct llm_err *e)
{
    struct llm_checkpoint *f = llm_lens_check(m, e) < 0 ? NULL : llm_beside_open(path, "lens", m, e);
    int status = f && llm_lens_create(l, &m->config, e) == 0 ? llm_beside_read(f, l->list, l->n_params, e) : -1;
    llm_checkpoint_close(f);
    return status;
}

void llm_lens_release(struct llm_lens *l)
{
    for (size_t i = 0; i < l->n_params; i++) llm_param_release(&l->params[i]);
    free(l->params);
    free(l->list);
    free(l->names);
    *l = (struct llm_lens){0};
}

struct llm_tensor *llm_lens_apply(struct llm_ctx *c, const struct llm_lens *l, int64_t layer, struct llm_tensor *residual)
{
    if (layer >= l->layers - 1) return residual;
    return llm_add(c, residual, llm_linear(c, residual, l->list[2 * layer], l->list[2 * layer + 1]));
}
