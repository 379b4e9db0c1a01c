/* A model's configuration: the keys of Hugging Face's config.json of all families as one set of parameters, which the blocks read. A family
 * (model/spec/arch/<name>.c) maps its own keys and defaults onto these. A variant of a family is a parameter here, not a copy of code. */
#ifndef LLM_MODEL_CONFIG_CONFIG_H
#define LLM_MODEL_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include "base/json.h"
#include "base/labels.h"
#include "model/config/rope_scaling.h"
#include "tensor/ops.h"

enum llm_norm_kind {
    LLM_NORM_RMS, LLM_NORM_LAYER,
    LLM_NORM_GROUP,    /* GroupNorm with norm_groups groups of channels */
    LLM_NORM_BATCH     /* BatchNorm: each channel over the tokens of a pass; inference uses running statistics, which are parameters */
};
enum llm_norm_place {
    LLM_NORM_PRE,      /* x + f(norm(x)) */
    LLM_NORM_POST,     /* norm(x + f(x)) */
    LLM_NORM_SANDWICH, /* x + norm(f(norm(x))): Gemma 2 */
    LLM_NORM_OUTPUT,   /* x + norm(f(x)): OLMo 2 */
    LLM_NORM_BARE      /* f(x): networks from before residual connections */
};
/* What mixes the tokens in a layer. */
enum llm_mixer { LLM_MIXER_ATTENTION, LLM_MIXER_RNN, LLM_MIXER_LSTM, LLM_MIXER_MAMBA, LLM_MIXER_MAMBA2, LLM_MIXER_WINDOW,
                 LLM_MIXER_RWKV4, LLM_MIXER_RWKV5, LLM_MIXER_RWKV6, LLM_MIXER_RWKV7, LLM_MIXER_HYENA };
/* Norms of queries and keys: none, RMSNorm of each head with one gain for all heads, or RMSNorm of all heads as one vector. */
enum llm_qk_norm {
    LLM_QK_NORM_NONE, LLM_QK_NORM_HEAD, LLM_QK_NORM_ALL,
    LLM_QK_NORM_EACH   /* LayerNorm without bias of each head, with a gain per head: StableLM */
};
/* How the final hidden states of a text are pooled into one vector. */
enum llm_pool_kind {
    LLM_POOL_UNSET,                /* the model does not say */
    LLM_POOL_MEAN,                 /* the mean over all tokens */
    LLM_POOL_CLS,                  /* the first token */
    LLM_POOL_LAST,                 /* the last token */
    LLM_POOL_EOS,                  /* the first end token, or what CLIP takes for it (llm_config_pooled_token) */
    LLM_POOL_OTHER                 /* a way that is not supported */
};
/* What the classes of a picture are told by: the class token's state; this and the mean of the patches' states, side by side (DINOv2); or the states
 * of the class token and of the next, each by a matrix of its own, whose outputs are averaged (DeiT's heads of class and distillation). */
enum llm_class_vector { LLM_CLASSES_OF_TOKEN, LLM_CLASSES_OF_TOKEN_AND_MEAN, LLM_CLASSES_OF_TWO_TOKENS };
enum llm_position_kind { LLM_POSITION_ROPE, LLM_POSITION_LEARNED, LLM_POSITION_SINUSOIDAL, LLM_POSITION_NONE,
                         LLM_POSITION_BUCKETS /* T5: a learned bias of attention scores for each bucket of distances */ };

/* A router's probabilities: a softmax over all experts, or a sigmoid for each (DeepSeek-V3). */
enum llm_scoring { LLM_SCORING_SOFTMAX, LLM_SCORING_SIGMOID };
/* DeepSeek's topk_method: experts are chosen among all ("greedy"), or within the best groups, whose score is that of their best expert
 * ("group_limited_greedy") or the sum of their best two ("noaux_tc"). */
enum llm_topk_method { LLM_TOPK_GREEDY, LLM_TOPK_GROUPS, LLM_TOPK_NOAUX };
/* How routers are trained: with the gradient through the weights; with Gumbel noise; or straight-through, with equal weights and the gradient of the
 * soft ones. */
enum llm_routing { LLM_ROUTING_SOFT, LLM_ROUTING_GUMBEL, LLM_ROUTING_STRAIGHT_THROUGH };

/* Perceivers: the latents are the last tokens, or learned vectors. */
enum llm_latents { LLM_LATENTS_LAST, LLM_LATENTS_LEARNED };

#define LLM_MAX_LAYERS 1024
#define LLM_MAX_NEXT 4
#define LLM_MAX_EOS 16
#define LLM_NGRAM_MAX_ORDER 16
typedef uint64_t llm_layer_set[LLM_MAX_LAYERS / 64]; /* one bit per layer; see llm_layer_in */

/* The vision tower of a model of two towers (CLIP): what differs from the text tower. */
struct llm_vision {
    int64_t hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
    int64_t image_size, patch_size, num_channels; /* as in struct llm_config; patch_size 0: the model has no such tower */
    enum llm_act act;
    double norm_eps, attn_pdrop;
    bool patches_only, attention_pooling; /* as in struct llm_config */
    bool no_final_norm;            /* mmproj files of LLaVA, whose last state is projected as it is, may lack the norm */
    bool fc_swapped;               /* mmproj files of an older converter name the two matrices of a feed-forward part the other way round */
};

#define LLM_MAX_GRIDS 64
/* Numbers of a picture that it reads. */
static inline int64_t llm_vision_floats(const struct llm_vision *v) { return v->num_channels * v->image_size * v->image_size; }

/* LLaVA and Idefics 3: how states of the vision tower become embeddings of the language model (model/config/picture.h). */
struct llm_projector {
    int64_t image_token;           /* the token that stands for a picture in texts */
    int64_t feature_layer;         /* of the tower; llm_config_feature_layers says how it counts */
    enum { LLM_SELECT_PATCHES, LLM_SELECT_ALL } select; /* ALL: the first state too, which is the class token's if there is one */
    enum llm_act act;
    bool bias;
    int64_t shuffle;               /* Idefics 3: a square of shuffle x shuffle patches is one embedding, after one matrix; 0: each patch is one */
    int64_t n_grids, grids[LLM_MAX_GRIDS][2]; /* LLaVA-NeXT: height and width of what a picture's tiles may cover; 0: a picture is one crop */
};

struct llm_config {
    char model_type[32];           /* "gpt2", "llama", … */
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim;
    int64_t max_position_embeddings;
    enum llm_norm_kind norm;
    enum llm_norm_place norm_place;
    int64_t norm_groups;
    double norm_eps, norm_gain_offset; /* gain_offset: 1 if files store gain - 1, else 0 */
    enum llm_qk_norm qk_norm;
    enum llm_mixer mixer;          /* layers of RNN, LSTM, Mamba and windows have no feed-forward part */
    int64_t embedding_size;        /* width of embeddings if it differs from hidden_size; 0: it does not */
    int64_t context_window;        /* feed-forward language models: the number of tokens that predict the next one */
    bool direct_connections;       /* feed-forward language models: the head also reads the embeddings of these tokens */
    bool recurrent_bias;           /* recurrent cells have biases */
    int64_t state_size, conv_kernel, time_step_rank; /* Mamba: states per channel, taps of the convolution, rank of the time steps' projection */
    int64_t ssm_heads, ssm_head_dim, ssm_groups;     /* Mamba 2 */
    double ssm_expand;             /* intermediate_size / hidden_size */
    bool conv_bias;
    int64_t rwkv_mix_rank;         /* RWKV 6: the rank of what tokens add to shares */
    int64_t rwkv_decay_rank;       /* RWKV 6 and 7: the rank of what tokens add to decays */
    int64_t rwkv_rate_rank, rwkv_value_rank, rwkv_gate_rank; /* RWKV 7: ranks of rates, of shares of the first layer's values, of gates */
    int64_t hyena_order;           /* Hyena: gates and long convolutions, which are one less than that */
    int64_t filter_width, filter_inner, filter_features; /* Hyena: the networks that make filters: width, inner layers, features of a position */
    double filter_freq;            /* Hyena: the initial frequency of their sines */
    double time_step_min, time_step_max, time_step_floor; /* Mamba: initialisation of new models */
    double time_step_min_limit, time_step_max_limit; /* Mamba 2: time steps are clamped to these */
    bool head_bias;                /* the head has a bias */
    int64_t num_encoder_layers;    /* encoder-decoders: layers of the encoder (num_hidden_layers: of the decoder); 0: there is one stack */
    int64_t decoder_start_token_id; /* encoder-decoders: the first token of the decoder; -1: bos, else eos, else 0 */
    int feed_forward_kind;         /* T5's feed_forward_proj, from which `gated` and `act` follow */
    int64_t rel_buckets, rel_max_distance; /* for LLM_POSITION_BUCKETS */
    bool no_final_norm;            /* there is no norm after the last layer */
    bool bidirectional;            /* an encoder: tokens also see later tokens, and nothing is generated */
    int64_t num_labels;            /* a classifier: the number of its classes; it does not predict tokens. 0: no classifier */
    int64_t num_latents;           /* Perceivers: the number of latents; 0: the model is no Perceiver */
    enum llm_latents latents;
    bool contrastive;              /* compares texts by their vectors, with a learned scale; it does not predict tokens */
    bool fixed_logit_scale;        /* the scale of a contrastive model is not trained */
    bool sigmoid_loss;             /* a contrastive model has a bias of its logits, for the sigmoid loss (SigLIP) */
    double logit_scale_init;       /* the initial logarithm of the scale of a contrastive model (CLIP's key) */
    bool prefix_lm;                /* a prefix LM: the tokens of a prompt see each other in both directions, so they are processed in one pass */
    int64_t type_vocab_size;       /* token types (BERT), whose embeddings are added to those of tokens; 0: none */
    bool embedding_norm;           /* a norm after the sum of embeddings */
    bool head_transform;           /* BERT's masked-token head: norm(act(x·W + b)) before the head, and a bias after it */
    bool pooler;                   /* tanh(x·W + b) of a text's first token, for classification */
    enum llm_pool_kind pooling;    /* how the model is meant to embed texts */
    bool normalize_embeddings;     /* vectors of texts are divided by their length */
    bool parallel_residual;        /* x + attention(norm1(x)) + mlp(norm2(x)) */
    bool shared_norm;              /* parallel_residual with one norm for both: x + attention(norm1(x)) + mlp(norm1(x)) (StableLM) */
    bool qk_layernorm;             /* StableLM's key for LLM_QK_NORM_EACH */
    bool use_bidirectional_attention; /* Gemma 3's key, which sets `bidirectional` */
    bool qkv_by_head;              /* order of the rows of the fused projection in files: q, k, v of head 0, then those of head 1, … */
    enum llm_position_kind position;
    double rope_theta, rope_local_theta; /* local: base in layers with a sliding window; 0: rope_theta */
    double partial_rotary_factor;
    int64_t rotary_dim;            /* rotated channels: the first of each head; even */
    struct llm_rope_scaling rope_scaling; /* does not apply to layers that use rope_local_theta */
    llm_layer_set no_rope_layers;  /* layers without positions */
    enum llm_rope_pairing rope_pairing;
    int64_t sliding_window;        /* tokens, in local layers; 0: none */
    llm_layer_set local_layers;    /* layers with a sliding window: as "layer_types" lists them, else as the next three keys say */
    bool use_sliding_window;
    int64_t sliding_window_pattern; /* n: every n-th layer is global; 0: none is */
    int64_t max_window_layers;     /* n: the first n layers are global */
    int64_t no_rope_layer_interval; /* n: every n-th layer has no positions; 0: all have */
    double query_pre_attn_scalar;  /* attention scores are multiplied by 1/sqrt of this; 0: of head_dim */
    bool scale_attn_weights;       /* GPT-2; false: attention scores are not multiplied by 1/sqrt(head_dim) */
    bool scale_attn_by_inverse_layer_idx; /* GPT-2: scores × 1/(layer + 1) as well */
    double attn_logit_softcapping, final_logit_softcapping; /* 0: none */
    enum llm_act act;
    bool gated;                    /* SwiGLU / GeGLU: gate_proj and up_proj */
    int64_t kv_sharing;            /* n: groups of n consecutive layers use the keys and values of their first layer; 1: no sharing */
    int64_t dual_chunk_size, dual_chunk_local; /* dual chunk attention: rotary positions stay below dual_chunk_size, and the last dual_chunk_local
                                    * tokens keep their true distances; 0: plain attention */
    bool attention_sinks;          /* each head has a learned logit in its softmax, which has no value (gpt-oss, 2025) */
    int64_t kv_lora_rank;          /* MLA: elements per token of the latent vector, cached with qk_rope_head_dim rotated ones; 0: plain attention */
    int64_t q_lora_rank;           /* MLA: rank of the queries' projection; 0: it is not factored */
    int64_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    int64_t num_nextn_predict_layers; /* multi-token prediction: layers after the last that predict tokens further ahead (DeepSeek-V3) */
    double mtp_loss_weight;        /* weight, in the training loss, of the sum of the losses of these further predictions */
    int64_t num_experts;           /* experts of a mixture; 0: feed-forward parts are not mixtures */
    int64_t num_experts_per_tok, moe_intermediate_size, n_shared_experts;
    int64_t first_k_dense_replace, moe_layer_freq; /* the first k layers are no mixtures; of the others those whose number, counted from
                                    * 1, is a multiple of moe_layer_freq are */
    llm_layer_set mlp_only_layers; /* further layers that are no mixtures */
    enum llm_scoring router_scoring;
    bool router_bias;              /* "e_score_correction_bias": added to probabilities for the choice of experts, not for their weights */
    bool norm_topk_prob;
    int64_t n_group, topk_group, group_top; /* choice among groups of experts, as in struct llm_route */
    double routed_scaling_factor, router_aux_loss_coef, router_z_loss_coef;
    double router_bias_update_rate, expert_capacity_factor, router_temperature;
    enum llm_topk_method topk_method; /* DeepSeek's key, from which n_group and group_top follow */
    enum llm_routing routing;
    bool attention_bias, attention_out_bias, mlp_bias, norm_bias, tie_word_embeddings;
    double logit_scale;            /* multiplies logits; 1/sqrt(hidden_size) if the file says "1/sqrt(hidden)" */
    double embedding_scale;        /* multiplies embeddings */
    double embd_pdrop, attn_pdrop, resid_pdrop;
    int64_t text_padding;          /* texts that are embedded are filled with this token up to max_position_embeddings (SigLIP); -1: they are not */
    bool projection_bias;          /* the projection of texts' pooled states has a bias */
    int64_t num_registers;         /* vision transformers: learned tokens between the class token and the patches: DINOv2's registers, DeiT's token of
                                    * distillation */
    bool bare_registers;           /* positions are not added to them */
    bool layer_scale;              /* what a sub-layer adds is multiplied by a learned factor for each channel (LayerScale), */
    double layer_scale_init;       /* which is this in new models */
    bool no_key_bias;              /* attention_bias does not apply to keys */
    enum llm_class_vector class_vector;
    int64_t mlp_ratio;             /* DINOv2's key, from which intermediate_size follows */
    bool patches_only;             /* a vision tower without class token and norm of embeddings, with a bias of patches (SigLIP) */
    bool attention_pooling;        /* of such a tower: a learned query attends to all patches */
    int64_t image_size, patch_size, num_channels; /* vision transformers: a side of the picture and of a patch, in pixels; colours. patch_size 0: the
                                    * model reads text */
    struct llm_vision vision;
    struct llm_projector projector; /* of models with llm_config_projects */
    int64_t projection_dim;        /* width of the vectors that both towers are projected to; 0: vectors are pooled hidden states */
    double initializer_range;
    int64_t mup_base_width;        /* for the initialisation of new models (llm_config_mup); not kept in files */
    int64_t bos_token_id, eos_token_id, mask_token_id; /* -1: none. mask: the tokenizer's */
    int64_t more_eos_token_ids[LLM_MAX_EOS]; /* if "eos_token_id" is a list: its further ids */
    int n_more_eos;
    int64_t ngram_order, ngram_begin; /* n-grams: their order; the token before the first of a text, vocab_size: none */
};

/* Reads config.json. model_type says the family; an unknown one is refused with the list of known ones (EX_DATAERR). Every value is checked
 * (positive, bounded, heads divide, …), so that later code may multiply sizes. 0 or -1. */
int llm_config_from_json(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* Makes what a config.json says, which transformers or a person wrote, one of ours: keys that transformers' class of the family ignores are removed
 * from the object. Unless transformers wrote it, each of them is named on standard error. 0 or -1. */
int llm_config_of_file(json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* Says what happens to keys that are neither known nor harmless. true: they are named on standard error and ignored. false, the default: a
 * configuration that has them is refused. */
void llm_config_force(bool on);
/* The configuration under the family's own keys, in a fixed order; llm_config_from_json reads the same configuration from it. New reference. */
json_t *llm_config_to_json(const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* The configuration of a new model. `what`: a preset (llm_config_presets) or a JSON file. `sets`: "key=value" overrides, checked against the family's
 * keys. If the file has no bos_token_id or eos_token_id the model has none, whatever the family's default is. */
int llm_config_load(struct llm_config *c, const char *what, const char *const *sets, size_t n_sets, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_config_load, from the text of a JSON configuration. */
int llm_config_load_text(struct llm_config *c, const char *text, const char *const *sets, size_t n_sets, struct llm_err *e) LLM_MUST_CHECK;
/* Adds a token that ends a text, unless it is one already or there are LLM_MAX_EOS more. */
void llm_config_add_eos(struct llm_config *c, int64_t id);
/* Adds the ids under `key` of a JSON object as tokens that end a text. The value is a number, a list or null; the key may be absent. */
int llm_config_add_eos_from(struct llm_config *c, const json_t *o, const char *key, struct llm_err *e) LLM_MUST_CHECK;
/* Whether the set has the layer. */
bool llm_layer_in(const llm_layer_set s, int64_t layer);
/* The number of consecutive layers that the backward pass must recompute together, because the later ones read what an earlier one computed. */
int64_t llm_config_together(const struct llm_config *c);
/* The width of embeddings. */
int64_t llm_config_embedding(const struct llm_config *c);
/* Vision transformers: patches of a picture, and numbers of a patch. */
static inline int64_t llm_config_patches(const struct llm_config *c) { return (c->image_size / c->patch_size) * (c->image_size / c->patch_size); }
/* Tokens of a picture: the class token, if there is one, registers, and the patches. */
static inline int64_t llm_config_picture_tokens(const struct llm_config *c) { return !c->patches_only + c->num_registers + llm_config_patches(c); }
/* The width of what the classes of a picture are told by. */
static inline int64_t llm_config_class_width(const struct llm_config *c)
{
    return (c->class_vector == LLM_CLASSES_OF_TOKEN ? 1 : 2) * c->hidden_size;
}
static inline int64_t llm_config_patch_width(const struct llm_config *c) { return c->num_channels * c->patch_size * c->patch_size; }
/* The sliding window of a layer's attention, in tokens; 0: none. */
int64_t llm_config_window(const struct llm_config *c, int64_t layer);
/* Block-local attention: the tokens of a block, if the layer's tokens see only their own block; 0: they see all. */
int64_t llm_config_block(const struct llm_config *c, int64_t layer);
/* Whether the final hidden states are those of learned latents, num_latents for each text. */
bool llm_config_learns_latents(const struct llm_config *c);
/* Whether a layer's feed-forward part is a mixture of experts. */
bool llm_config_is_mixture(const struct llm_config *c, int64_t layer);
/* Makes the model a classifier of n classes: it loses its head over the vocabulary. */
void llm_config_classify(struct llm_config *c, int64_t n);
/* Makes the model one that compares texts by their vectors: it loses its head over the vocabulary. */
void llm_config_compare(struct llm_config *c);
/* Whether the model classifies as BERT does, from a pooled first token. Decoders classify from the last token, even with bidirectional attention. */
bool llm_config_like_bert(const struct llm_config *c);
/* How hidden states are pooled into one vector: as the configuration says, else as its classifier needs it. LLM_POOL_UNSET: neither determines it. */
enum llm_pool_kind llm_config_pooling(const struct llm_config *c);
/* The token of ids[0..n), n ≥ 1, whose hidden state is the text's vector if pooling takes one token. LLM_POOL_EOS: the first
 * eos_token_id, or, if that is 2, the first token with the largest id, as in transformers' CLIP. -1: the text has no end token. */
int64_t llm_config_pooled_token(const struct llm_config *c, enum llm_pool_kind pool, const int32_t *ids, int64_t n);
/* The width of the model's vectors of texts and pictures. */
int64_t llm_config_vector(const struct llm_config *c);
/* The configuration of what reads pictures: the model, or its vision tower. false: it reads none. */
bool llm_config_sees(const struct llm_config *c, struct llm_config *out);
/* Whether the model compares texts and pictures: it has a tower for each (CLIP). */
static inline bool llm_config_two_towers(const struct llm_config *c) { return c->vision.patch_size > 0 && c->contrastive; }
/* Whether the model reads pictures as tokens of its texts (LLaVA). */
static inline bool llm_config_projects(const struct llm_config *c) { return c->vision.patch_size > 0 && !c->contrastive; }
/* Such a model: the layers of the tower that run. Layer 0 is the embeddings; numbers below 0 count back from the last layer, which is -1. */
static inline int64_t llm_config_feature_layers(const struct llm_config *c)
{
    return c->projector.feature_layer < 0 ? c->vision.num_hidden_layers + 1 + c->projector.feature_layer : c->projector.feature_layer;
}
/* Whether there is a head over the vocabulary. */
bool llm_config_has_head(const struct llm_config *c);
/* The factor by which the products query · key of a layer are multiplied. */
double llm_config_attention_scale(const struct llm_config *c, int64_t layer);
/* Maximal update parametrisation (Yang et al. 2022, Tensor Programs V, table 8) relative to a base model `base_width` wide with heads base_head_dim
 * wide (0: as wide as this model's). At the width of the base it is the standard parametrisation. Changes: the initial deviation of matrices within
 * layers is multiplied by sqrt(base/width), logits by base/width, and attention scores by 1/width of a head instead of 1/sqrt. train/mup.h has the
 * learning rates. To be called once, on a new model's configuration. */
void llm_config_mup(struct llm_config *c, int64_t base_width, int64_t base_head_dim);
/* Makes the model `width` wide: the number of heads and the intermediate width grow in proportion, the width of a head stays. */
int llm_config_widen(struct llm_config *c, int64_t width, struct llm_err *e) LLM_MUST_CHECK;
/* The context, in tokens, if the user gives none: max_position_embeddings, or the original context of its rotary scaling (longrope). */
int64_t llm_config_default_context(const struct llm_config *c);
/* Whether max_position_embeddings is a limit: later positions have no embeddings or no filter. */
static inline bool llm_config_is_limited(const struct llm_config *c) { return c->position == LLM_POSITION_LEARNED || c->mixer == LLM_MIXER_HYENA; }
/* The token that an encoder-decoder's answer begins with. */
int32_t llm_config_answer_start(const struct llm_config *c);
/* NULL-terminated list of preset names. */
const char *const *llm_config_presets(void);

#endif
