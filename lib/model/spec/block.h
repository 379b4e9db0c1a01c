/* Modules: what the layers of a model are made of. A layer is norms, a mixer (attention, MLA, Mamba, …) and a feed-forward part (MLP, mixture of
 * experts), chosen by table (spec/decoder.c). spec/block/<name>.c says which parameters a module has, what it costs, what it keeps of a sequence and
 * which places it has; forward/block/<name>.c computes it. To add one: these two files, and its name in LLM_MODULES. */
#ifndef LLM_MODEL_SPEC_BLOCK_H
#define LLM_MODEL_SPEC_BLOCK_H

#include "model/spec/declare.h"
#include "model/spec/place.h"

/* What a layer keeps of a sequence from one pass to the next: keys and values of each token, and parts whose size does not depend on the sequence. */
#define LLM_STATE_PARTS 2
struct llm_state_part {
    const char *name;              /* as in files: "h", "c", "conv", "ssm", "window" */
    int64_t rows, cols;            /* F32, all 0 before the first token */
};
struct llm_state_shape {
    int64_t n_kv_heads, d_k, d_v;  /* key heads, and channels of a key and of a value, per token; n_kv_heads 0: no keys. d_v 0: a value is the first
                                    * channels of its key (MLA's latent vector) */
    int64_t source;                /* the layer, this one or an earlier one, whose keys and values this layer reads; its own number: it makes them */
    struct llm_state_part parts[LLM_STATE_PARTS]; /* a part without a name is absent */
};
struct llm_state_shape llm_model_state(const struct llm_config *c, int64_t layer);
/* Elements of all parts of a layer. In memory the parts follow each other in the order of `parts`. */
int64_t llm_state_floats(const struct llm_state_shape *s);
/* Whether training can carry the layers' states from one window of a text to the next. */
bool llm_model_can_carry(const struct llm_config *c);

/* All modules, by name. Each has a row llm_module_<name> here and a forward function llm_forward_<name> (model/forward/block.h). */
#define LLM_MODULES(X) X(attention) X(mla) X(cross) X(mlp) X(moe) X(norm) X(gain) X(rnn) X(lstm) X(mamba) X(mamba2) X(window) \
    X(rwkv4) X(rwkv5) X(rwkv6) X(rwkv7) X(rwkv_channels) X(hyena)
#define LLM_MODULE_NUMBER(name) LLM_MODULE_##name,
enum llm_module_number { LLM_MODULE_none, LLM_MODULES(LLM_MODULE_NUMBER) LLM_N_MODULES };

struct llm_module;
struct llm_module_kind {
    enum llm_module_number number;  /* by which the forward pass finds its function */
    enum llm_unit unit;             /* what its parameters belong to */
    void (*declare)(struct llm_declare *d, struct llm_module *m);
    /* FLOPs per token, besides 2 per element of its matrices, of a token that attends to `context` tokens; NULL: none. */
    double (*extra_flops)(const struct llm_config *c, int64_t layer, int64_t context);
    /* Mixers: sets in `s` what the layer keeps of a sequence. On entry `s` is zero, but for `source`, which is the layer's own number. NULL: the
     * layer keeps nothing. */
    void (*state)(const struct llm_config *c, int64_t layer, struct llm_state_shape *s);
    enum llm_place_kind input, output; /* the places of the module's input and of its output, which is added to the residual; LLM_PLACE_NONE: the
                                        * module itself visits the place */
    /* The places inside the module that a layer has, as a set of LLM_PLACE_BIT. */
    uint64_t (*places)(const struct llm_config *c, int64_t layer);
};
struct llm_module {
    const struct llm_module_kind *kind;
    enum llm_stem stem;             /* norms: which norm of the layer it is */
    struct llm_linear_params p[18]; /* numbered by the module: LLM_ATTENTION_Q, LLM_MLP_UP, … below */
    struct llm_absorbed *absorbed;  /* MLA: its decoding form; owned */
    struct llm_hyena_filter *filter;      /* Hyena: its filters for decoding; owned */
    struct llm_param **experts;     /* mixtures: [3][num_experts]: gates, ups, downs; owned */
    struct llm_param **head_gains;  /* LLM_QK_NORM_EACH: gains of the norms of all query heads, then of all key heads; owned */
};
#define LLM_MODULE_DECLARED(name) extern const struct llm_module_kind llm_module_##name;
LLM_MODULES(LLM_MODULE_DECLARED)

/* The numbers of the modules' parameters in llm_module.p. */
enum { LLM_ATTENTION_Q, LLM_ATTENTION_K, LLM_ATTENTION_V, LLM_ATTENTION_OUT, LLM_ATTENTION_QKV, LLM_ATTENTION_Q_NORM, LLM_ATTENTION_K_NORM,
       LLM_ATTENTION_SINKS };
enum { LLM_MLA_Q, LLM_MLA_Q_A, LLM_MLA_Q_A_NORM, LLM_MLA_Q_B, LLM_MLA_KV_A, LLM_MLA_KV_A_NORM, LLM_MLA_KV_B, LLM_MLA_OUT };
enum { LLM_CROSS_Q, LLM_CROSS_K, LLM_CROSS_V, LLM_CROSS_OUT };
enum { LLM_MLP_GATE, LLM_MLP_UP, LLM_MLP_DOWN, LLM_MLP_GATE_UP };
enum { LLM_MOE_ROUTER, LLM_MOE_BIAS, LLM_MOE_SHARED_GATE, LLM_MOE_SHARED_UP, LLM_MOE_SHARED_DOWN };
enum { LLM_RECURRENT_INPUT, LLM_RECURRENT_STATE };
enum { LLM_MAMBA_IN, LLM_MAMBA_CONV, LLM_MAMBA_X_PROJ, LLM_MAMBA_DT, LLM_MAMBA_OUT, LLM_MAMBA_SCAN /* w: A_log, b: D */, LLM_MAMBA_NORM };
enum { LLM_RWKV_K, LLM_RWKV_V, LLM_RWKV_R, LLM_RWKV_OUT, LLM_RWKV_DECAY, LLM_RWKV_FIRST, LLM_RWKV_GATE, LLM_RWKV_NORM,
       LLM_RWKV_MIX_IN, LLM_RWKV_MIX_OUT, LLM_RWKV_DECAY_IN, LLM_RWKV_RATE, LLM_RWKV_RATE_IN, LLM_RWKV_VALUE, LLM_RWKV_VALUE_IN, LLM_RWKV_GATE_IN,
       LLM_RWKV_KEY_SCALE, LLM_RWKV_KEY_MIX };

enum { LLM_HYENA_MAX_INNER = 8 };
enum { LLM_HYENA_IN, LLM_HYENA_CONV, LLM_HYENA_OUT, LLM_HYENA_SKIP, LLM_HYENA_FREQ, LLM_HYENA_POSITIONS, LLM_HYENA_TIME, LLM_HYENA_DECAY,
       LLM_HYENA_FILTER /* layer i of the network is at LLM_HYENA_FILTER + i */ };

/* What the declaration and the forward function of a module both need to know. */
/* Cross-layer attention (Brandon et al. 2024): whether the layer computes keys and values. Of kv_sharing consecutive layers only the first does. */
static inline bool llm_attention_makes_keys(const struct llm_config *c, int64_t layer) { return layer % c->kv_sharing == 0; }
/* Mamba 2: channels of the convolution. */
static inline int64_t llm_mamba2_conv_width(const struct llm_config *c) { return c->intermediate_size + 2 * c->ssm_groups * c->state_size; }
/* Mamba 2 in n slices: whether several slices share a group, its B and C and its norm; else each has whole groups. */
static inline bool llm_mamba2_divides_groups(const struct llm_config *c, int64_t n) { return c->ssm_groups % n != 0; }
/* RWKV: channels of time mixing. */
static inline int64_t llm_rwkv_width(const struct llm_config *c) { return c->num_attention_heads * c->head_dim; }
/* RWKV: whether channel mixing has a gate. Version 7 has none. */
static inline bool llm_rwkv_gates_channels(const struct llm_config *c) { return c->mixer != LLM_MIXER_RWKV7; }
/* RWKV 6: the mixtures whose shares depend on tokens, in the order of their factors: decay, key, value, receptance, gate. */
enum { LLM_RWKV_MIX_DECAY, LLM_RWKV_MIX_K, LLM_RWKV_MIX_V, LLM_RWKV_MIX_R, LLM_RWKV_MIX_GATE, LLM_RWKV_MIXES };
/* Perceivers: tiles of LLM_KV_TILE tokens that hold a block's keys and values. */
static inline int64_t llm_latents_tiles(int64_t block) { return (block + LLM_KV_TILE - 1) / LLM_KV_TILE; }

/* MLA's absorbed matrices of each head, which the first decoding pass makes: from its query to the latent space [rank, nope], and from there to its
 * output [v, rank]. */
struct llm_absorbed {
    bool made;
    int64_t n_heads;
    struct llm_weight *query, *value; /* [n_heads] each */
    void **transposed;              /* [n_heads] memory of `query`, owned */
    float *values;                  /* memory of `value` if the matrix has an adapter, owned; else NULL: it is in the matrix */
};
void llm_absorbed_destroy(struct llm_absorbed *a); /* NULL is fine */

/* Hyena: values of a layer's filters for the first positions, which decoding passes compute as they need them. */
struct llm_hyena_filter { float *values; int64_t n; }; /* [n, (hyena_order - 1)·hidden_size], owned */
void llm_hyena_filter_destroy(struct llm_hyena_filter *f); /* NULL is fine */
/* Channels of all filters of a layer. */
static inline int64_t llm_hyena_filters(const struct llm_config *c) { return (c->hyena_order - 1) * c->hidden_size; }

/* Norms before and after a sub-layer: mixer, feed-forward, cross-attention (which runs between them); kind NULL: none. */
enum { LLM_SUB_MIXER, LLM_SUB_FFN, LLM_SUB_CROSS, LLM_N_SUBS };
struct llm_layer { struct llm_module before[LLM_N_SUBS], after[LLM_N_SUBS], mixer, ffn, cross; };
/* One sub-layer of a layer. */
static inline struct llm_module *llm_layer_part(struct llm_layer *layer, int i)
{
    return i == LLM_SUB_MIXER ? &layer->mixer : i == LLM_SUB_FFN ? &layer->ffn : &layer->cross;
}
/* Attention pooling (Zhai et al. 2023; Lee et al. 2019, Set Transformer): a learned query attends to all tokens of a picture, and a feed-forward part
 * follows. */
struct llm_attention_pool {
    struct llm_param *probe;        /* [1, hidden_size]; NULL: the stack has no such pooling */
    struct llm_linear_params qkv, out, norm, up, down;
};
/* A stack of layers with its input and its final norm. A model has one or several, each with a configuration: a decoder or an encoder has one, T5 has
 * two. To add one: its number in model/spec/place.h, its configuration in llm_stack_config (spec/decoder.c), its declaration. */
struct llm_stack {
    struct llm_config *own;         /* its configuration; NULL: the model's. Owned */
    int first;                      /* number of its first layer, where the layers of all stacks are counted (random numbers, parameters) */
    struct llm_param *embed, *positions, *token_types, *latents; /* NULL: none; embed NULL: the first stack's */
    struct llm_param *registers;    /* [num_registers, hidden_size]; NULL: none */
    struct llm_linear_params patches, embed_norm, final_norm; /* w NULL: none */
    struct llm_layer *layers;       /* [n_layers], of the first stack with those that predict further after them */
    int64_t n_layers, n_run;        /* layers; those that a pass runs: fewer in a tower whose earlier states are wanted, without a norm after
                                     * them */
    struct llm_linear_params projector[2]; /* of these states, in models with llm_config_projects */
    struct llm_param *newline;      /* [1, the language model's hidden_size] ends rows of patches (LLaVA-NeXT); NULL: none does */
    struct llm_linear_params projection; /* of pooled hidden states [projection_dim, hidden_size]; w NULL: none */
    struct llm_attention_pool pool;
    struct llm_param *rel_bias;     /* biases of attention scores by distance, which all its layers share; NULL: none */
    int32_t *rel_map;               /* [2·rel_max_distance + 1]: the bucket of each distance */
    float *inv_freq[2];             /* rotary frequencies of global and of local layers; the second NULL: local layers use the first */
    struct llm_rope rope[2];
};
/* Multi-token prediction (DeepSeek-V3, 2024, 2.2; model/forward/next.c): the parameters of one module that predicts a further token, besides its
 * layer. */
struct llm_next { struct llm_linear_params token_norm, hidden_norm, join, norm; };
/* Stacks and head: the layout of decoders, encoders and both together. */
struct llm_decoder {
    struct llm_stack stacks[LLM_MAX_STACKS];
    struct llm_param *head;         /* NULL: tied */
    struct llm_param *head_bias, *logit_scale, *logit_bias; /* NULL: none */
    struct llm_linear_params pooler, head_dense, head_norm, classes, classes_2; /* w NULL: none */
    struct llm_next *next;          /* [n_next]; the layer of the k-th is stacks[0].layers[n_layers + k] */
    int64_t n_next;
    struct llm_buf tokenizer_json;  /* the tokenizer as JSON, until the model is described for a file again */
    void **staging;                 /* [n_params] transposed copies that a save made; an entry is NULL if its parameter needs none */
};
/* Declares all parameters of a decoder, an encoder or both, and points the fields of `m` (zeroed by the caller) at them. 0 or -1. */
int llm_decoder_declare(struct llm_declare *d, struct llm_decoder *m);
void llm_decoder_destroy(struct llm_decoder *m, size_t n_params);
/* Parameters have changed: Hyena's filters and MLA's absorbed matrices are computed again when they are needed. */
void llm_decoder_changed(struct llm_decoder *m);
/* Parts of llm_decoder_declare: the parameters of layer `number`; those of multi-token prediction. */
void llm_decoder_declare_layer(struct llm_declare *d, struct llm_layer *layer, int64_t number);
int llm_next_declare(struct llm_declare *d, struct llm_decoder *m);
/* What mixes tokens in a layer; its feed-forward part (NULL: the layer has none). c: the stack's configuration. */
const struct llm_module_kind *llm_decoder_mixer(const struct llm_config *c, int64_t layer);
const struct llm_module_kind *llm_decoder_ffn(const struct llm_config *c, int64_t layer);
/* The configuration of a stack of models of `c`; false: they have no such stack. */
bool llm_stack_config(const struct llm_config *c, int stack, struct llm_config *out);
/* Rotary frequencies for texts of up to `context` tokens (0: llm_config_default_context). */
int llm_stack_set_rope(struct llm_stack *s, const struct llm_config *c, int64_t context, struct llm_err *e) LLM_MUST_CHECK;

/* The parameters of a configuration, in order. Both results are released, with llm_declare_release and llm_decoder_destroy. */
int llm_model_declare(const struct llm_config *c, struct llm_declare *d, struct llm_decoder **layout, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_model_declare, with the names and layouts of GGUF files. */
int llm_model_declare_gguf(const struct llm_config *c, struct llm_declare *d, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_model_declare, with the names and values of files of rwkv.cpp, which the family must have (llm_arch.rwkv_cpp_names). */
int llm_model_declare_rwkv_cpp(const struct llm_config *c, struct llm_declare *d, struct llm_err *e) LLM_MUST_CHECK;

#endif
