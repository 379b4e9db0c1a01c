/* Neurons of a feed-forward part as keys and values (Geva et al., "Transformer Feed-Forward Layers Are Key-Value Memories", 2021): a key is what
 * makes a hidden unit large, found in texts; its value is the column of the down projection that the unit adds to the residual, read through the
 * head. */
#ifndef LLM_INFER_NEURONS_H
#define LLM_INFER_NEURONS_H

#include "infer/engine.h"
#include "model/forward/watch.h"

/* 0, or -1 (EX_UNAVAILABLE, by name) if the layer has no feed-forward part with one down projection (mixtures, mixers without), if the model has no
 * residual or no head. */
int llm_neurons_check(const struct llm_model *m, int64_t layer, struct llm_err *e) LLM_MUST_CHECK;
/* How many units the layer has. */
int64_t llm_neurons_count(const struct llm_model *m, int64_t layer);
/* What the values of units [first, first + n) add to the logits per unit of activation, but for the divisor of the final norm:
 * logits [n, vocab_size]. Norms on the way give their gains. On c->acts; NULL with `e` on failure. */
const float *llm_neuron_values(struct llm_ctx *c, struct llm_model *m, int64_t layer, int64_t first, int64_t n, struct llm_err *e);

enum { LLM_NEURON_CONTEXT = 8 };
/* A token at which a unit was large. */
struct llm_neuron_hit {
    float value;
    int32_t position;
    int64_t text;                  /* its number */
    int32_t ids[LLM_NEURON_CONTEXT]; /* [n_ids] the tokens up to it */
    int n_ids;
};
/* The largest values of units [first, first + n) of one layer so far; of equals the first seen. */
struct llm_neuron_keys {
    int64_t layer, first, n, top;
    struct llm_neuron_hit *hits;   /* [n, top], the largest first */
    int64_t *n_hits;               /* [n] */
    const int32_t *ids;            /* of the text at hand, by position; set by the caller, with */
    int64_t text;
};
/* Zero-initialise; set layer, first, n and top; release either way. */
int llm_neuron_keys_begin(struct llm_neuron_keys *k, struct llm_err *e) LLM_MUST_CHECK;
void llm_neuron_keys_release(struct llm_neuron_keys *k);
struct llm_watcher llm_neuron_keys_watcher(struct llm_neuron_keys *k);

#endif
