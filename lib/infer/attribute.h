/* Direct contributions to a logit ("direct logit attribution": Elhage et al., "A Mathematical Framework for Transformer Circuits", 2021). In families
 * whose layers only add to the residual, the residual after the last layer is a sum: the embedding and what each attention head, bias and
 * feed-forward part added. With its divisor frozen the final norm is linear, and so is the head, so that the logit of a token is the sum of what
 * they make of each term. */
#ifndef LLM_INFER_ATTRIBUTE_H
#define LLM_INFER_ATTRIBUTE_H

#include "infer/activations.h"

struct llm_contribution {
    char name[LLM_PLACE_TEXT + 24]; /* "embedding", "layers.3.attention.heads:5", "layers.3.mlp.output", ... */
    double value;
};
struct llm_attribution {
    struct llm_model *model;       /* borrowed */
    char (*names)[LLM_PLACE_TEXT]; /* [n_places] */
    const char **places;           /* [n_places] what must be taken out of a pass (llm_taking_begin) */
    size_t n_places;
    struct llm_contribution *v;    /* [n] of the last call of llm_attribution_read, in the order of the pass */
    size_t n, room;
};
/* Finds the places. EX_UNAVAILABLE for a model whose logits are no such sum: norms after the sum, no residual, a transform before the head, an
 * encoder, an encoder-decoder. Zero-initialise; release either way. */
int llm_attribution_begin(struct llm_attribution *a, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
void llm_attribution_release(struct llm_attribution *a);
/* The model's logits [1, vocab_size] of what follows token `row` of those taken, scaled as the model does, before a soft-cap. On c->acts; NULL with
 * `e` on failure. */
const float *llm_attribution_logits(const struct llm_attribution *a, struct llm_ctx *c, const struct llm_taking *t, int64_t row, struct llm_err *e);
/* Fills a->v for the logit of `target`, in double from the values of the pass and decoded weights. The sum differs from the model's logit by the
 * rounding of the last residual's sum, and of the head's product: with LLM_COMPUTE_F32 by FP32's. 0 or -1. */
int llm_attribution_read(struct llm_attribution *a, struct llm_ctx *c, const struct llm_taking *t, int64_t row, int32_t target, struct llm_err *e)
    LLM_MUST_CHECK;

#endif
