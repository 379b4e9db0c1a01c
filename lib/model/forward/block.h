/* Modules in a forward pass: what each computes (forward/block/<name>.c). A module's declaration, cost and places are in model/spec/block.h. */
#ifndef LLM_MODEL_FORWARD_BLOCK_H
#define LLM_MODEL_FORWARD_BLOCK_H

#include "model/forward/forward.h"
#include "model/forward/watch.h"
#include "model/spec/block.h"

/* Keys and values of a layer that the following layers of its group (kv_sharing) use as well. */
struct llm_shared_kv { struct llm_tensor *k, *v; };
/* RWKV 7: the values of the first layer, which the others use as well. `outlives`: v is memory that outlives the first layer's activations, and the
 * layer fills it; else the layer sets v to its own tensor. */
struct llm_first_values { struct llm_tensor *v; bool outlives; };
/* What a module sees of the pass. */
struct llm_pass {
    const struct llm_config *config;
    const struct llm_batch *batch;
    const struct llm_rope *rope;    /* NULL: this layer's queries and keys are not rotated */
    bool bidirectional;             /* tokens see later tokens too */
    struct llm_param *rel_bias;     /* NULL, or the biases of distances, with the bucket of each */
    const int32_t *rel_map;
    struct llm_tensor *memory;      /* what the encoder made of the source, [n_rows · source_len, hidden]; NULL: none, or in batch->memories */
    const int32_t *memory_len;      /* [n_rows]; NULL: all */
    struct llm_shared_kv *shared;
    struct llm_first_values *first_values;
    int64_t layer;                  /* number of the layer in its stack */
    struct llm_site site;           /* where the module stands, for llm_visit */
    struct llm_site memory_site;    /* of the rows of `memory` */
};
/* The output of a module for x [n_tokens, width]. NULL after a failure. */
typedef struct llm_tensor *llm_module_forward(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x);
/* A module that can be cut into slices (tensor/slices.h) computes slice j of n, whose parameters `m` has, or the whole module, 0 of 1. */
typedef struct llm_tensor *llm_slice_forward(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x, int64_t j,
                                             int64_t n);
/* The output of such a module: the whole one, or the sum of those of its slices. `last`: the number of its output projection. */
struct llm_tensor *llm_module_slices(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x, int last,
                                     llm_slice_forward *forward);
/* The module with slice j in place of each parameter that is cut. n_experts: of a mixture, whose list of experts is then on `acts`; else 0. */
struct llm_module llm_module_slice(struct llm_ctx *c, const struct llm_module *m, int j, int64_t n_experts);
#define LLM_FORWARD_DECLARED(name) llm_module_forward llm_forward_##name;
LLM_MODULES(LLM_FORWARD_DECLARED)
/* Calls the forward function of the module's kind (blocks.c). */
struct llm_tensor *llm_module_run(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x);

/* The runs of tokens that recurrences of this pass go through, and, `skip` floats into each one's state, where that stands. On `acts`, NULL after a
 * failure. Rows of training begin with 0 and break where documents begin. */
const struct llm_segment *llm_pass_segments(struct llm_ctx *c, const struct llm_pass *p, int64_t skip, int64_t *n);
/* Attention of new tokens within blocks of latents, over a state that holds one block's keys and values (forward/block/latents.c). */
struct llm_tensor *llm_latents_attend(struct llm_ctx *c, const struct llm_pass *p, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                      const struct llm_attn *a);
/* The norm of the configuration's kind with parameters `p`, for norms inside and outside layers. */
struct llm_tensor *llm_norm_apply(struct llm_ctx *c, const struct llm_config *config, const struct llm_linear_params *p, struct llm_tensor *x);
/* Keys and values of one layer's cross-attention, from encoded tokens; `site`: those tokens'. */
void llm_cross_keys(struct llm_ctx *c, const struct llm_module *m, const struct llm_site *site, struct llm_tensor *memory, struct llm_tensor **k,
                    struct llm_tensor **v);
struct llm_attn llm_cross_attn(const struct llm_config *c);

/* The walk through stacks (forward/stack.c): all stacks; the encoder of an encoder-decoder; a single layer of the first stack. */
struct llm_tensor *llm_decoder_forward(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
struct llm_tensor *llm_decoder_encode(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
struct llm_tensor *llm_decoder_layer(struct llm_ctx *c, const struct llm_model *m, const struct llm_batch *b, int64_t number, struct llm_tensor *x);

#endif
