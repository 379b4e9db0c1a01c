/* A model's configuration: Hugging Face config.json keys, whatever family they come from, as one set of parameters that the blocks read.
 * A family (model/arch/<name>.c) maps its own keys and defaults onto these; a variant is a parameter here, not a copy of code. */
#ifndef LLM_MODEL_CONFIG_H
#define LLM_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include "base/json.h"
#include "tensor/ops.h"

enum llm_norm_kind { LLM_NORM_RMS, LLM_NORM_LAYER };
enum llm_norm_place { LLM_NORM_PRE, LLM_NORM_POST };
enum llm_position_kind { LLM_POSITION_ROPE, LLM_POSITION_LEARNED, LLM_POSITION_SINUSOIDAL, LLM_POSITION_NONE };

struct llm_config {
    char model_type[32];           /* "gpt2", "llama" */
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim;
    int64_t max_position_embeddings;
    enum llm_norm_kind norm;
    enum llm_norm_place norm_place;
    double norm_eps;
    enum llm_position_kind position;
    double rope_theta;
    enum llm_rope_pairing rope_pairing;
    int64_t sliding_window;        /* 0: none */
    enum llm_act act;
    bool gated;                    /* SwiGLU / GeGLU: gate_proj and up_proj */
    bool attention_bias, mlp_bias, norm_bias, tie_word_embeddings;
    double logit_scale;            /* multiplies logits; 1, or 1/sqrt(hidden_size) with "logit_scale": "1/sqrt(hidden)" resolved */
    double embd_pdrop, attn_pdrop, resid_pdrop;
    double initializer_range;
    int64_t bos_token_id, eos_token_id; /* -1: none */
};

/* From config.json; the family is looked up by model_type, an unknown one is refused with the list of known ones (EX_DATAERR). Every value is checked
 * (positive, bounded, heads divide, …) so that later code may multiply. */
int llm_config_from_json(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* The family's own keys, in a fixed order; llm_config_from_json gives the same configuration back. New reference. */
json_t *llm_config_to_json(const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* `what`: a preset ("nano", "tiny", "small", "gpt2", "smollm") or a JSON file. `sets`: "key=value" overrides on top, checked against the family's
 * keys. It is for new models: where the file names no bos_token_id or eos_token_id there is none. */
int llm_config_load(struct llm_config *c, const char *what, const char *const *sets, size_t n_sets, struct llm_err *e) LLM_MUST_CHECK;
/* NULL-terminated list of preset names. */
const char *const *llm_config_presets(void);

#endif
