/* A model's configuration: Hugging Face config.json keys, whatever family they come from, as one set of parameters that the blocks read.
 * A family (model/arch/<name>.c) maps its own keys and defaults onto these; a variant is a parameter here, not a copy of code. */
#ifndef LLM_MODEL_CONFIG_H
#define LLM_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include "base/json.h"
#include "model/rope_scaling.h"
#include "tensor/ops.h"

enum llm_norm_kind {
    LLM_NORM_RMS, LLM_NORM_LAYER,
    LLM_NORM_GROUP,    /* LayerNorm of norm_groups runs of channels, each by itself */
    LLM_NORM_BATCH     /* each channel over the tokens of a pass; at inference by running statistics, which the model keeps */
};
enum llm_norm_place {
    LLM_NORM_PRE,      /* x + f(norm(x)) */
    LLM_NORM_POST,     /* norm(x + f(x)) */
    LLM_NORM_SANDWICH, /* x + norm(f(norm(x))): Gemma 2 */
    LLM_NORM_OUTPUT,   /* x + norm(f(x)): OLMo 2 */
    LLM_NORM_BARE      /* f(x): networks from before residual connections */
};
/* What mixes tokens in layers. */
enum llm_mixer { LLM_MIXER_ATTENTION, LLM_MIXER_RNN, LLM_MIXER_LSTM, LLM_MIXER_MAMBA, LLM_MIXER_MAMBA2, LLM_MIXER_WINDOW };
/* Norms of queries and keys: none, RMSNorm of each head with one gain for all heads, or RMSNorm of all heads as one vector. */
enum llm_qk_norm {
    LLM_QK_NORM_NONE, LLM_QK_NORM_HEAD, LLM_QK_NORM_ALL,
    LLM_QK_NORM_EACH   /* LayerNorm without bias of each head by itself, each head with a gain of its own: StableLM */
};
/* What makes one vector of a text's final hidden states. */
enum llm_pool_kind {
    LLM_POOL_UNSET,                /* the model does not say */
    LLM_POOL_MEAN,                 /* of all tokens */
    LLM_POOL_CLS,                  /* the first token's */
    LLM_POOL_LAST,                 /* the last token's */
    LLM_POOL_OTHER                 /* in a way that we do not have */
};
enum llm_position_kind { LLM_POSITION_ROPE, LLM_POSITION_LEARNED, LLM_POSITION_SINUSOIDAL, LLM_POSITION_NONE,
                         LLM_POSITION_BUCKETS /* T5: a learned bias of scores for each bucket of distances */ };

/* A router's probabilities: over all experts, or each by itself (DeepSeek-V3). */
enum llm_scoring { LLM_SCORING_SOFTMAX, LLM_SCORING_SIGMOID };
/* Among all experts, or within the best groups (n_group). */
enum llm_topk_method { LLM_TOPK_GREEDY, LLM_TOPK_GROUPS, LLM_TOPK_NOAUX };
/* How routers train: the plain gradient through the weights, with Gumbel noise, or with equal weights and the gradient of the soft ones. */
enum llm_routing { LLM_ROUTING_SOFT, LLM_ROUTING_GUMBEL, LLM_ROUTING_STRAIGHT_THROUGH };

/* Perceivers: latents are the last tokens themselves, or learned vectors. */
enum llm_latents { LLM_LATENTS_LAST, LLM_LATENTS_LEARNED };

#define LLM_MAX_LAYERS 1024
#define LLM_MOST_NEXT 4
#define LLM_MAX_EOS 16
typedef uint64_t llm_layer_set[LLM_MAX_LAYERS / 64]; /* a bit a layer */

struct llm_config {
    char model_type[32];           /* "gpt2", "llama", … */
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim;
    int64_t max_position_embeddings;
    enum llm_norm_kind norm;
    enum llm_norm_place norm_place;
    int64_t norm_groups;
    double norm_eps, norm_gain_offset; /* gain_offset: 1 where files keep gain - 1 */
    enum llm_qk_norm qk_norm;
    enum llm_mixer mixer;          /* layers of others than attention have no feed-forward part */
    int64_t embedding_size;        /* where it is not hidden_size; 0: it is */
    int64_t context_window;        /* feed-forward language models: tokens in sight */
    bool direct_connections;       /* the head sees their embeddings too */
    bool recurrent_bias;           /* of recurrent cells */
    int64_t state_size, conv_kernel, time_step_rank; /* Mamba: states of a channel, taps, width that time steps come from */
    int64_t ssm_heads, ssm_head_dim, ssm_groups;     /* Mamba 2 */
    double ssm_expand;             /* intermediate_size by hidden_size */
    bool conv_bias;
    double time_step_min, time_step_max, time_step_floor; /* of fresh models */
    double time_step_min_limit, time_step_max_limit;
    bool head_bias;                /* a bias behind the head's product */
    int64_t num_encoder_layers;    /* beside num_hidden_layers that decode: an encoder-decoder; 0: there is one stack */
    int64_t decoder_start_token_id; /* before what an encoder-decoder says; -1: bos, else eos, else 0 */
    int feed_forward_kind;         /* T5's feed_forward_proj, which says `gated` and `act` */
    int64_t rel_buckets, rel_max_distance; /* of LLM_POSITION_BUCKETS */
    bool no_final_norm;            /* nothing stands behind the last layer */
    bool bidirectional;            /* an encoder: tokens see those behind them too, and nothing is generated */
    int64_t num_labels;            /* classes that texts are told apart by, in place of predicting tokens; 0: none */
    int64_t num_latents;           /* of Perceivers; 0: the model is none */
    enum llm_latents latents;
    bool contrastive;              /* compares texts by their vectors, with a learned scale, in place of predicting tokens */
    bool fixed_logit_scale;        /* which stays */
    double logit_scale_init;       /* the logarithm of the scale at first; CLIP's */
    bool prefix_lm;                /* trained to see a prompt both ways: its tokens are read together */
    int64_t type_vocab_size;       /* kinds of segments, which are added to embeddings; 0: none */
    bool embedding_norm;           /* a norm behind the sum of embeddings */
    bool head_transform;           /* before the head: norm(act(x·W + b)); behind it a bias: BERT's masked-token head */
    bool pooler;                   /* tanh(x·W + b) of a text's first token, for classifying */
    enum llm_pool_kind pooling;    /* how the model is meant to embed texts */
    bool normalize_embeddings;     /* to length 1 */
    bool parallel_residual;        /* x + attention(norm1(x)) + mlp(norm2(x)) */
    bool shared_norm;              /* parallel_residual with one norm for both: x + attention(norm1(x)) + mlp(norm1(x)) (StableLM) */
    bool qk_layernorm;             /* StableLM's key for LLM_QK_NORM_EACH */
    bool use_bidirectional_attention; /* Gemma 3's key: a decoder's layers whose tokens see both ways; sets `bidirectional` */
    bool qkv_by_head;              /* rows of the fused projection in files: q, k, v of head 0, of head 1, … */
    enum llm_position_kind position;
    double rope_theta, rope_local_theta; /* local: of layers with a window; 0: the same */
    double partial_rotary_factor;
    int64_t rotary_dim;            /* the first channels of each head turn; even */
    struct llm_rope_scaling rope_scaling; /* not of layers with a base of their own */
    llm_layer_set no_rope_layers;  /* without positions */
    enum llm_rope_pairing rope_pairing;
    int64_t sliding_window;        /* of local layers; 0: none */
    llm_layer_set local_layers;    /* what the next four say, unless "layer_types" lists them */
    bool use_sliding_window;
    int64_t sliding_window_pattern; /* each such layer is global; 0: none is */
    int64_t max_window_layers;     /* the first layers, which are global */
    int64_t no_rope_layer_interval; /* each such layer has no positions; 0: none */
    double query_pre_attn_scalar;  /* scores × 1/sqrt of this; 0: head_dim */
    bool scale_attn_weights;       /* GPT-2: false: scores are not multiplied by that */
    bool scale_attn_by_inverse_layer_idx; /* GPT-2: scores × 1/(layer + 1) as well */
    double attn_logit_softcapping, final_logit_softcapping; /* 0: none */
    enum llm_act act;
    bool gated;                    /* SwiGLU / GeGLU: gate_proj and up_proj */
    int64_t kv_sharing;            /* so many layers, one after another, read the keys and values of the first of them; 1: none share */
    int64_t dual_chunk_size, dual_chunk_local; /* dual chunk attention: positions stay below the first, the last so many tokens keep their distances;
                                    * 0: plain */
    bool attention_sinks;          /* a learned logit a head takes probability and gives nothing (gpt-oss, 2025) */
    int64_t kv_lora_rank;          /* 0: attention keeps keys and values; else MLA keeps so many numbers of both, and qk_rope_head_dim beside them */
    int64_t q_lora_rank;           /* MLA: 0: queries come from the hidden state at once */
    int64_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    int64_t num_nextn_predict_layers; /* layers behind the last that learn to predict the tokens after the next (DeepSeek-V3) */
    double mtp_loss_weight;        /* of all their losses together */
    int64_t num_experts;           /* 0: feed-forward parts are not mixtures */
    int64_t num_experts_per_tok, moe_intermediate_size, n_shared_experts;
    int64_t first_k_dense_replace, moe_layer_freq; /* the first layers, and all but each such layer, are no mixtures */
    llm_layer_set mlp_only_layers; /* these layers are no mixtures either */
    enum llm_scoring router_scoring;
    bool router_bias;              /* "e_score_correction_bias": chooses, does not weigh */
    bool norm_topk_prob;
    int64_t n_group, topk_group, group_top; /* choice among groups of experts; see struct llm_route */
    double routed_scaling_factor, router_aux_loss_coef, router_z_loss_coef;
    double router_bias_update_rate, expert_capacity_factor, router_temperature;
    enum llm_topk_method topk_method; /* DeepSeek's word; what follows from it is in n_group */
    enum llm_routing routing;
    bool attention_bias, attention_out_bias, mlp_bias, norm_bias, tie_word_embeddings;
    double logit_scale;            /* multiplies logits; 1, or 1/sqrt(hidden_size) with "logit_scale": "1/sqrt(hidden)" resolved */
    double embedding_scale;        /* multiplies embeddings; 1 */
    double embd_pdrop, attn_pdrop, resid_pdrop;
    double initializer_range;
    int64_t mup_base_width;        /* of fresh weights, not kept in files: llm_config_mup */
    int64_t bos_token_id, eos_token_id, mask_token_id; /* -1: none; mask: the tokenizer's */
    int64_t more_eos_token_ids[LLM_MAX_EOS]; /* where "eos_token_id" is a list: those behind the first */
    int n_more_eos;
    int64_t ngram_order, ngram_begin; /* n-grams: their order; what stands before a text, vocab_size: no token */
};

/* From config.json; the family is looked up by model_type, an unknown one is refused with the list of known ones (EX_DATAERR). Every value is checked
 * (positive, bounded, heads divide, …) so that later code may multiply. */
int llm_config_from_json(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* true: keys that are neither known nor harmless are named on standard error and ignored; false, the default: such a configuration is refused. */
void llm_config_force(bool on);
/* The family's own keys, in a fixed order; llm_config_from_json gives the same configuration back. New reference. */
json_t *llm_config_to_json(const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* `what`: a preset ("nano", "tiny", "small", "gpt2", "smollm") or a JSON file. `sets`: "key=value" overrides on top, checked against the family's
 * keys. It is for new models: where the file names no bos_token_id or eos_token_id there is none. */
int llm_config_load(struct llm_config *c, const char *what, const char *const *sets, size_t n_sets, struct llm_err *e) LLM_MUST_CHECK;
/* The same from the text of a configuration. */
int llm_config_load_text(struct llm_config *c, const char *text, const char *const *sets, size_t n_sets, struct llm_err *e) LLM_MUST_CHECK;
/* One more token that ends a text, unless it is known already or there are too many. */
void llm_config_add_eos(struct llm_config *c, int64_t id);
/* The ids under `key` of a JSON object: a number, a list, null or nothing. */
int llm_config_add_eos_from(struct llm_config *c, const json_t *o, const char *key, struct llm_err *e) LLM_MUST_CHECK;
bool llm_layer_in(const llm_layer_set s, int64_t layer);
/* Channels of an embedding. */
int64_t llm_config_embedding(const struct llm_config *c);
/* The window of a layer's attention, 0: none. */
int64_t llm_config_window(const struct llm_config *c, int64_t layer);
/* Tokens of a block that a layer's attention stays within, 0: it does not. */
int64_t llm_config_block(const struct llm_config *c, int64_t layer);
/* Whether hidden states are those of learned latents, num_latents a text. */
bool llm_config_learns_latents(const struct llm_config *c);
/* Whether a layer's feed-forward part is a mixture of experts. */
bool llm_config_is_mixture(const struct llm_config *c, int64_t layer);
/* The same model with so many classes in place of a head over the vocabulary. */
void llm_config_classify(struct llm_config *c, int64_t n);
/* The same model for comparing texts. */
void llm_config_compare(struct llm_config *c);
/* How hidden states become one vector: as the configuration says, else as its classes want it; LLM_POOL_UNSET: it has none. */
enum llm_pool_kind llm_config_pooling(const struct llm_config *c);
/* Whether there is a head over the vocabulary. */
bool llm_config_has_head(const struct llm_config *c);
/* What multiplies query · key in a layer. */
double llm_config_attention_scale(const struct llm_config *c, int64_t layer);
/* Maximal update parametrisation (Yang et al. 2022, Tensor Programs V, table 8) relative to a model `base_width` wide whose heads are base_head_dim
 * wide (0: as wide as these), with which it agrees at that width: the deviation of fresh matrices within layers × sqrt(base/width), logits ×
 * base/width, scores by 1/width of a head instead of 1/sqrt. Learning rates are train/mup.h's. Once, on a new model's configuration. */
void llm_config_mup(struct llm_config *c, int64_t base_width, int64_t base_head_dim);
/* The same model `width` wide: as many times the heads and the intermediate width, heads as wide as before. */
int llm_config_widen(struct llm_config *c, int64_t width, struct llm_err *e) LLM_MUST_CHECK;
/* NULL-terminated list of preset names. */
const char *const *llm_config_presets(void);

#endif
