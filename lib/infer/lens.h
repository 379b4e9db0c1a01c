/* A tuned lens (Belrose et al., "Eliciting Latent Predictions from Transformers with the Tuned Lens", 2023): an affine map for each layer but the
 * last, h + A·h + b, which makes of the residual after the layer an estimate of the residual after the last layer. With A and b 0 it is the logit
 * lens. `llm-train --objective lens` learns A and b (train/objective/lens.c). */
#ifndef LLM_INFER_LENS_H
#define LLM_INFER_LENS_H

#include "model/model.h"
#include "model/weights/beside.h"

struct llm_lens {
    int64_t layers;                /* of the model */
    struct llm_param *params;      /* [n_params]: A [hidden, hidden] and b [hidden] of each layer but the last */
    struct llm_param **list;       /* [n_params]: pointers to them */
    size_t n_params;
    char (*names)[64];             /* [n_params] */
};
/* Refuses models that continue no text or have no residual after each layer: -1 (EX_UNAVAILABLE). Else 0. */
int llm_lens_check(const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* The logit lens: A and b are 0. Zero-initialise; release either way. */
int llm_lens_create(struct llm_lens *l, const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* Reads a file of kind "lens", which must be of the model. Zero-initialise; release either way. */
int llm_lens_load(struct llm_lens *l, const char *path, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
void llm_lens_release(struct llm_lens *l);
/* What the lens makes of residuals [rows, hidden] after a layer. After the last layer: the residuals themselves. */
struct llm_tensor *llm_lens_apply(struct llm_ctx *c, const struct llm_lens *l, int64_t layer, struct llm_tensor *residual);

#endif
