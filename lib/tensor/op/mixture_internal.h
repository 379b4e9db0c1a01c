/* What mixtures of experts share (mixture_rows.c), whose experts one rank has (mixture.c) or the ranks of a group divide (mixture_ranks.c). */
#ifndef LLM_TENSOR_OP_MIXTURE_INTERNAL_H
#define LLM_TENSOR_OP_MIXTURE_INTERNAL_H

#include "tensor/ops.h"
#include "tensor/tape.h"

/* A slot (token, s) is a token's s-th chosen expert. Slots whose expert has capacity get a place: places are ordered by expert, then by token. */
struct llm_places {
    int64_t n, k;             /* places; slots per token, set by the caller */
    int64_t *start;           /* [experts + 1]: the first place of each expert */
    int32_t *slot;            /* [n]: the slot of a place, token·k + s */
    int32_t *at;              /* [tokens·k]: the place of a slot; -1: none */
};

/* Finds the places of experts [tokens, k], on `acts`. False after a failure. */
bool llm_places_find(struct llm_ctx *c, struct llm_places *p, const int32_t *experts, int64_t tokens, int64_t n_experts);
/* to[place] = from[token], rows of `cols` floats. */
void llm_places_gather(const struct llm_places *p, const float *from, int64_t from_stride, float *to, int64_t to_stride, int64_t cols);
/* to[token] = Σ over its slots: weight · from[place]; `add`: added to what is there. weights NULL: 1. */
void llm_places_combine(const struct llm_places *p, const float *from, int64_t from_stride, const struct llm_tensor *weights, float *to,
                        int64_t to_stride, int64_t rows, int64_t cols, bool add);

/* y[m, n] (+)= x·wᵀ, or with `back` x·w. False after a failure. */
bool llm_expert_product(struct llm_ctx *c, struct llm_param *p, bool back, const float *x, float *y, int64_t m, bool add);
/* out = act(gate) ⊙ up, [rows, cols] each. */
void llm_expert_act(enum llm_act act, const float *gate, const float *up, float *out, int64_t rows, int64_t cols);
/* Its backward pass: replaces d_inner, the gradient of the output, by that of gate, and `inner` by the gradient of up. */
void llm_expert_act_back(enum llm_act act, const float *gate, const float *up, float *d_inner, float *inner, int64_t rows, int64_t width);
/* One row: d_inner and d_out hold gradients without the router's weight. Returns d_inner · inner, the weight's gradient, and multiplies both by the
 * weight. */
float llm_expert_weigh(float *d_inner, const float *inner, int64_t width, float *d_out, int64_t hidden, float weight);
/* Splits an expert's places [from, to) at the ends of the blocks of LLM_FOLD tokens of the batch; slot[i]: of place i. starts: [blocks + 1], counted
 * from `from`. Returns the number of blocks. */
int64_t llm_expert_folds(const int32_t *slot, int64_t k, int64_t from, int64_t to, int64_t tokens, int64_t row_len, int64_t *starts);
/* Adds the gradients of a matrix, unless it is frozen, and of its adapter, by an expert's places, of which dy and x have the rows and `slot` the
 * slots, and which llm_expert_folds has split. Those of part i of the rows are added to llm_expert_grad number first + i. False after a failure. */
bool llm_expert_gradients(struct llm_ctx *c, struct llm_param *p, int first, const struct llm_folds *folds, const int32_t *slot, int64_t k,
                          const float *dy, const float *x, const int64_t *starts, int64_t blocks);
/* One of the experts' matrices, or of their adapters', that takes a gradient, for the node. NULL: all are frozen. */
struct llm_param *llm_experts_trained(struct llm_param *const *params, int64_t n);

/* ---- mixture_ranks.c ---- */
/* Whether the ranks of the context's group divide the experts: this one lacks the weights of some. */
bool llm_mixture_is_divided(const struct llm_ctx *c, const struct llm_experts *o);
/* llm_mixture of such experts. `node` has all but its output. */
struct llm_tensor *llm_mixture_divided(struct llm_ctx *c, struct llm_node *node, const int32_t *experts, const struct llm_experts *o);

#endif
