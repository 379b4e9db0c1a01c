/* Places in a forward pass: what observers read, editors replace, files of activations and messages name. One table (place.c) has the spelling and
 * the meaning of each. A place of a layer is written "layers.3.mlp.hidden", one of another stack than the first "encoder.layers.3.mlp.hidden".
 * Not every model has every place: llm_place_exists says which. To add one: its row here and in place.c, llm_visit where the value is made, and its
 * bit in the `places` of the module (model/spec/block.h) that makes it. */
#ifndef LLM_MODEL_SPEC_PLACE_H
#define LLM_MODEL_SPEC_PLACE_H

#include "model/config/config.h"

/* In the order of a forward pass. */
enum llm_place_kind {
    LLM_PLACE_EMBEDDING, LLM_PLACE_LATENTS, LLM_PLACE_NEXT_INPUT,
    LLM_PLACE_RESIDUAL_BEFORE,
    LLM_PLACE_ATTENTION_INPUT, LLM_PLACE_ATTENTION_Q_LATENT, LLM_PLACE_ATTENTION_Q, LLM_PLACE_ATTENTION_K, LLM_PLACE_ATTENTION_V,
    LLM_PLACE_ATTENTION_KV_LATENT, LLM_PLACE_ATTENTION_Q_ROTATED, LLM_PLACE_ATTENTION_Q_PREVIOUS, LLM_PLACE_ATTENTION_Q_EARLIER,
    LLM_PLACE_ATTENTION_K_ROTATED, LLM_PLACE_ATTENTION_K_HEADS, LLM_PLACE_ATTENTION_V_HEADS, LLM_PLACE_ATTENTION_HEADS,
    LLM_PLACE_ATTENTION_OUTPUT,
    LLM_PLACE_MIXER_INPUT, LLM_PLACE_MIXER_CONV, LLM_PLACE_MIXER_TIME, LLM_PLACE_MIXER_HIDDEN, LLM_PLACE_MIXER_OUTPUT,
    LLM_PLACE_RESIDUAL_BETWEEN,
    LLM_PLACE_CROSS_INPUT, LLM_PLACE_CROSS_Q, LLM_PLACE_CROSS_K, LLM_PLACE_CROSS_V, LLM_PLACE_CROSS_HEADS, LLM_PLACE_CROSS_OUTPUT,
    LLM_PLACE_RESIDUAL_CROSS,
    LLM_PLACE_MLP_INPUT, LLM_PLACE_ROUTER, LLM_PLACE_MLP_GATE, LLM_PLACE_MLP_UP, LLM_PLACE_MLP_HIDDEN, LLM_PLACE_MLP_SHARED, LLM_PLACE_MLP_OUTPUT,
    LLM_PLACE_RESIDUAL_AFTER,
    LLM_PLACE_FINAL_NORM, LLM_PLACE_POOLED, LLM_PLACE_CLASSES_INPUT, LLM_PLACE_HEAD_INPUT, LLM_PLACE_LOGITS,
    LLM_N_PLACES,
    LLM_PLACE_NONE = LLM_N_PLACES
};
/* A set of kinds, as modules state theirs. */
#define LLM_PLACE_BIT(name) (UINT64_C(1) << LLM_PLACE_##name)
_Static_assert(LLM_N_PLACES <= 64, "a set of places is one word");

/* Stacks of layers that a model can have. */
enum { LLM_STACK_MAIN, LLM_STACK_ENCODER, LLM_STACK_VISION, LLM_MAX_STACKS };

struct llm_place {
    enum llm_place_kind kind;
    int stack;
    int64_t layer;                 /* counted from 0 in its stack; -1: the place is in no layer */
};
/* What a spelling selects: one kind of place, in layers [first, last] of one stack; first and last are -1 if the place is in no layer. */
struct llm_place_range {
    enum llm_place_kind kind;
    int stack;
    int64_t first, last;
};
/* The passes in which the value is computed. */
enum llm_place_when { LLM_PLACE_ALWAYS, LLM_PLACE_WITHOUT_CACHE, LLM_PLACE_WITH_CACHE };
struct llm_place_row {
    const char *name;              /* after "layers.N." if the place is in a layer: "mlp.hidden" */
    bool in_layer;
    const char *what;              /* for people: what the value is, and its width */
    enum llm_place_when when;
};
extern const struct llm_place_row llm_places[LLM_N_PLACES];

/* "layers.3.mlp.hidden". The text fits if n ≥ LLM_PLACE_TEXT. */
enum { LLM_PLACE_TEXT = 64 };
void llm_place_print(struct llm_place p, char *out, size_t n);
/* Reads a spelling. Instead of a layer's number, "*" selects all layers and "2-5" layers 2 to 5; of several layers those without the place are left
 * out. -1 (LLM_EX_USAGE, with a suggestion) if there is no such place, if models of `c` do not have it, or if a layer is out of range. */
int llm_place_parse(const char *text, const struct llm_config *c, struct llm_place_range *out, struct llm_err *e) LLM_MUST_CHECK;
/* Whether models of `c` have the place. */
bool llm_place_exists(const struct llm_config *c, struct llm_place p);
static inline bool llm_place_within(const struct llm_place_range *r, struct llm_place p)
{
    return r->kind == p.kind && r->stack == p.stack && p.layer >= r->first && p.layer <= r->last;
}

#endif
