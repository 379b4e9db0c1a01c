/* Modules: what the layers of a model are made of. One description of each (block/<name>.c: parameters, forward, cost) serves making and
 * loading models, training, inference and accounting. A layer is norms, a mixer (attention; later MLA, Mamba, …) and a feed-forward
 * (MLP; later MoE), chosen by table. To add one: block/<name>.c exporting its struct llm_module_kind, and its use in a family. */
#ifndef LLM_MODEL_BLOCK_H
#define LLM_MODEL_BLOCK_H

#include "model/model.h"
#include "model/forward/watch.h"

/* What the parameters of a model belong to: units in which their cost is counted. */
enum llm_unit {
    LLM_UNIT_EMBEDDINGS, LLM_UNIT_NORMS, LLM_UNIT_ATTENTION, LLM_UNIT_CROSS_ATTENTION, LLM_UNIT_MLP, LLM_UNIT_EXPERTS, LLM_UNIT_RNN, LLM_UNIT_LSTM,
    LLM_UNIT_MAMBA, LLM_UNIT_MAMBA2, LLM_UNIT_HEAD, LLM_UNIT_CLASSES, LLM_UNIT_NEXT_TOKENS,
    LLM_UNIT_ENCODER, /* of costs alone: all of an encoder-decoder's encoder */
    LLM_N_UNITS
};
extern const char *const llm_unit_names[LLM_N_UNITS]; /* as tables of cost name them: "embeddings", "norms", "attention", … */

/* Places of parameters in a layer and, from LLM_N_STEMS on, in the model. A family names each (struct llm_names). */
enum llm_stem {
    LLM_STEM_Q, LLM_STEM_K, LLM_STEM_V, LLM_STEM_QKV, LLM_STEM_OUT, LLM_STEM_GATE, LLM_STEM_UP, LLM_STEM_DOWN, LLM_STEM_NORM_1, LLM_STEM_NORM_2,
    LLM_STEM_POST_1, LLM_STEM_POST_2, LLM_STEM_Q_NORM, LLM_STEM_K_NORM, LLM_STEM_GATE_UP,
    LLM_STEM_ROUTER, LLM_STEM_ROUTER_BIAS, LLM_STEM_EXPERTS, LLM_STEM_EXPERT_GATE, LLM_STEM_EXPERT_UP, LLM_STEM_EXPERT_DOWN, /* EXPERTS: then the
                                     * number, then one of the next three; EXPERTS NULL: files have each of the three as one tensor of all experts */
    LLM_STEM_NEXT_TOKEN_NORM, LLM_STEM_NEXT_HIDDEN_NORM, LLM_STEM_NEXT_JOIN, LLM_STEM_NEXT_NORM,
    LLM_STEM_SINKS,
    LLM_STEM_CROSS_Q, LLM_STEM_CROSS_K, LLM_STEM_CROSS_V, LLM_STEM_CROSS_OUT, LLM_STEM_CROSS_NORM, /* an encoder-decoder's cross-attention */
    LLM_STEM_Q_A, LLM_STEM_Q_A_NORM, LLM_STEM_Q_B, LLM_STEM_KV_A, LLM_STEM_KV_A_NORM, LLM_STEM_KV_B,
    LLM_STEM_SHARED_GATE, LLM_STEM_SHARED_UP, LLM_STEM_SHARED_DOWN,
    LLM_STEM_CONV, LLM_STEM_CONV_BIAS, LLM_STEM_STATES, LLM_STEM_TIME, LLM_STEM_TIME_BIAS, LLM_STEM_DECAY, LLM_STEM_SKIP,
    LLM_STEM_GATED_NORM, /* state-space layers: with their suffixes */
    LLM_STEM_K_B, LLM_STEM_V_B, /* GGUF's halves of KV_B */
    LLM_STEM_INPUTS, LLM_STEM_STATE, LLM_STEM_INPUTS_BIAS, LLM_STEM_STATE_BIAS, /* RNN and LSTM: what multiplies the inputs, and the state before.
                                     * The layer's number follows these names */
    LLM_N_STEMS,
    LLM_STEM_EMBED = LLM_N_STEMS, LLM_STEM_POSITIONS, LLM_STEM_TOKEN_TYPES, LLM_STEM_LATENTS, LLM_STEM_EMBED_NORM, LLM_STEM_DISTANCES,
    LLM_STEM_FINAL_NORM, LLM_STEM_POOLER, LLM_STEM_HEAD_DENSE, LLM_STEM_HEAD_NORM, LLM_STEM_HEAD_BIAS, LLM_STEM_HEAD, LLM_STEM_CLASSES,
    LLM_STEM_LOGIT_SCALE
};
/* What a parameter is at its place: each ends the parameter's name in its own way. */
enum llm_piece { LLM_PIECE_WEIGHT, LLM_PIECE_BIAS, LLM_PIECE_MEAN, LLM_PIECE_VAR, LLM_PIECE_WHOLE /* the name has no suffix */ };
/* How a family names its parameters; ".weight" and ".bias" are added. */
struct llm_names {
    const char *prefix;             /* "model.": also looked for without it */
    const char *embed, *positions, *layer, *final_norm, *head; /* after the prefix; `layer` before the number; head without the prefix */
    const char *latents;                                       /* after the prefix; NULL */
    const char *token_types, *embed_norm, *pooler;             /* after the prefix; NULL where the family has none */
    const char *head_dense, *head_norm, *head_bias;            /* a head's transform and bias, without the prefix; NULL */
    const char *rel_bias;                                      /* after the prefix: the table of LLM_POSITION_BUCKETS */
    const struct llm_names *encoder; /* the other stack's layers, final norm and rel_bias; NULL */
    const char *stem[LLM_N_STEMS];  /* after the layer's name; NULL where the family has none (QKV and GATE_UP: fused or apart) */
};

enum llm_init { LLM_INIT_NORMAL, LLM_INIT_RESIDUAL, LLM_INIT_ZERO, LLM_INIT_ONE, LLM_INIT_UNIT, /* normal(0, 1) */
    LLM_INIT_CONV /* 1/sqrt(3·columns) */, LLM_INIT_TIME_PROJECTION /* 1/sqrt(3·columns) too: of uniform numbers within 1/sqrt(columns) */,
    LLM_INIT_TIME_STEP /* softplus of it within [time_step_min, time_step_max], evenly in the logarithm */,
    LLM_INIT_LOGIT_SCALE /* logit_scale_init */,
    LLM_INIT_LOG_COLUMN /* log(1), log(2), … */ };
/* A parameter as declared: where it stands, what it is, how files lay it out. Each parameter of a model points to its own (llm_param.spec). */
struct llm_param_spec {
    char name[112];
    const char *dims;               /* "intermediate_size, hidden_size", for messages */
    enum llm_unit unit;
    enum llm_stem stem;
    enum llm_piece piece;
    bool encoder;                   /* stands in the encoder of an encoder-decoder */
    int layer;                      /* -1: of no layer. The encoder's layers are counted after the decoder's */
    int64_t expert;                 /* -1: of no expert */
    int n_dims;
    int64_t shape[2];               /* in memory: [out, in] */
    enum llm_init init;
    enum llm_role role;
    bool running;                   /* as in struct llm_param */
    int sharers;                    /* as in struct llm_param */
    int64_t parts[LLM_MOST_PARTS];  /* as in struct llm_param */
    bool transposed;                /* in files: [in, out], unless quantised */
    bool by_head;                   /* in files: rows of q, k and v head by head */
    double active;                  /* the share of tokens that it multiplies: experts; 0: all */
    bool exact;                     /* no matrix of a product: without weight decay */
    bool middle;                    /* in files: [rows, 1, columns] */
    int file_dims;                  /* files have it in another shape, with the same elements in order; 0: as in memory */
    int64_t file_shape[3];
    int64_t part, n_parts;          /* which of the equal parts of the file's tensor it is; n_parts 0: the whole */
    bool minus_exp;                 /* files have -exp of it */
    bool balances;                  /* a router's bias: struct llm_param, balances */
    bool lookup;                    /* rows are looked up, not multiplied: no FLOPs */
    bool gain;                      /* a norm's gain */
    struct llm_param **slot;        /* where the layout wants the pointer; valid during the declaration */
};
/* Whether two declarations, under whatever names, are of one parameter. */
bool llm_param_spec_same(const struct llm_param_spec *a, const struct llm_param_spec *b);
/* Whether files keep both as parts of one tensor: the same matrix of different experts of a layer. */
bool llm_param_spec_stacked(const struct llm_param_spec *a, const struct llm_param_spec *b);
/* Weight decay applies to it. */
static inline bool llm_param_spec_decays(const struct llm_param_spec *s) { return s->n_dims > 1 && !s->exact; }

/* FLOPs of a forward pass per token: of a matrix that is multiplied 2 for each element, for the share of tokens that meet it. */
double llm_param_spec_flops(const struct llm_param_spec *s);

/* Collects declarations. Errors are sticky: checked once at the end. */
struct llm_declare {
    const struct llm_config *config;
    const struct llm_arch *arch;
    const struct llm_names *names;  /* the family's, or those of GGUF files */
    bool gguf;                      /* names and layouts are those of GGUF files */
    int layer;
    bool encoder;                   /* layers are those of an encoder-decoder's encoder */
    int layers_before;              /* layers of the stacks before this one, where the layers of all stacks are counted */
    enum llm_unit unit;
    struct llm_param_spec *specs;
    size_t n, room;
    struct llm_err *err;
    bool failed;
};
void llm_declare_release(struct llm_declare *d);

struct llm_linear_params { struct llm_param *w, *b, *mean, *var; }; /* mean, var: running ones, of BatchNorm */
/* Each of these declares at `stem`: of the current layer, or of the model where stem ≥ LLM_N_STEMS. `dims` names the sizes in messages. */
/* y = x·wᵀ (+ b) */
void llm_declare_linear(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem, int64_t out, int64_t in, const char *dims, bool bias);
/* A bias [n] alone. */
void llm_declare_bias(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t n, const char *dims);
/* Gain [width], and bias for LayerNorm with biases. */
void llm_declare_norm(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem, int64_t width, const char *dims);
/* The gain [head_dim] of the norm of head `head` of n: GGUF files have one tensor [n, head_dim]. */
void llm_declare_head_gain(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t head, int64_t n);
/* One matrix of expert `expert`. */
void llm_declare_expert(struct llm_declare *d, struct llm_param **slot, int64_t expert, enum llm_stem stem, int64_t out, int64_t in,
                        const char *dims);
/* A vector of zeros, whose name has no suffix. `balances`: a router's bias, which has no gradient. */
void llm_declare_vector(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t n, const char *dims, bool balances);
/* A matrix (cols 0: a vector), whose name has no suffix. */
void llm_declare_plain(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t rows, int64_t cols, const char *dims,
                       enum llm_init init);
/* A table of rows, [rows, cols]. lookup: rows are looked up; else the table is multiplied, as a head. */
void llm_declare_table(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t rows, int64_t cols, const char *dims, bool lookup);
/* The matrix declared last consists of three matrices with so many rows each (c 0: of two). */
void llm_declare_parts(struct llm_declare *d, int64_t a, int64_t b, int64_t c);
/* The parameter declared last is no matrix of a product; `middle`: files have it as [rows, 1, columns]. */
void llm_declare_exact(struct llm_declare *d, bool middle);
/* GGUF files have the parameter declared last as [rows, cols]. */
void llm_declare_file_shape(struct llm_declare *d, int64_t rows, int64_t cols);
/* GGUF files have -exp of the parameter declared last. */
void llm_declare_minus_exp(struct llm_declare *d);
/* The parameter declared last begins as `init` says. */
void llm_declare_init(struct llm_declare *d, enum llm_init init);

struct llm_arch;
struct llm_module;
/* Keys and values that the next layers read too. */
struct llm_shared_kv { struct llm_tensor *k, *v; };
/* What a module sees of the pass. */
struct llm_pass {
    const struct llm_config *config;
    const struct llm_batch *batch;
    const struct llm_rope *rope;    /* NULL: this layer's queries and keys do not turn */
    bool bidirectional;             /* tokens see those behind them too */
    struct llm_param *rel_bias;     /* NULL, or the biases of distances, with the bucket of each */
    const int32_t *rel_map;
    struct llm_tensor *memory;      /* what the encoder made of the source, [n_rows · source_len, hidden]; NULL: none, or in batch->memories */
    const int32_t *memory_len;      /* [n_rows]; NULL: all */
    struct llm_shared_kv *shared;
    int64_t layer;                  /* in its stack */
    struct llm_site site;           /* for llm_visit */
    struct llm_site memory_site;    /* of the rows of `memory` */
};
struct llm_module_kind {
    enum llm_unit unit;             /* what its parameters belong to */
    void (*declare)(struct llm_declare *d, struct llm_module *m);
    struct llm_tensor *(*forward)(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x);
    /* FLOPs per token beside 2 × matrix elements, with `context` tokens in sight; NULL: none. */
    double (*extra_flops)(const struct llm_config *c, int64_t layer, int64_t context);
    /* Mixers: what the layer keeps of a sequence. `s` is empty but for source, which is the layer itself. NULL: nothing. */
    void (*state)(const struct llm_config *c, int64_t layer, struct llm_state_shape *s);
    enum llm_place_kind input, output; /* the places of x and of what is added to the residual; LLM_PLACE_NONE: the module shows its own */
    /* The places within, as a set of LLM_PLACE_BIT. */
    uint64_t (*places)(const struct llm_config *c, int64_t layer);
};
struct llm_module {
    const struct llm_module_kind *kind;
    enum llm_stem stem;             /* norms: which of the layer's */
    struct llm_linear_params p[8];  /* by the module's own numbering */
    struct llm_absorbed *absorbed;  /* MLA: its decoding form; owned */
    struct llm_param **experts;     /* mixtures: [3][num_experts]: gates, ups, downs; owned */
    struct llm_param **head_gains;  /* LLM_QK_NORM_EACH: of the norms of all heads of queries, then of all heads of keys; owned */
};
extern const struct llm_module_kind llm_module_cross;
extern const struct llm_module_kind llm_module_attention, llm_module_mlp, llm_module_moe, llm_module_mla, llm_module_norm,
    llm_module_rnn, llm_module_lstm, llm_module_mamba, llm_module_mamba2, llm_module_window;
void llm_absorbed_destroy(struct llm_absorbed *a); /* NULL is fine */
/* The runs of tokens that recurrences of this pass go through, and, `skip` floats into each one's state, where that stands. On `acts`, NULL after a
 * failure. Rows of training begin with 0 and break where documents begin. */
const struct llm_segment *llm_pass_segments(struct llm_ctx *c, const struct llm_pass *p, int64_t skip, int64_t *n);
/* Attention of new tokens within blocks of latents, over a state that holds one block's keys and values (block/latents.c), and that state. */
struct llm_attn;
struct llm_tensor *llm_latents_attend(struct llm_ctx *c, const struct llm_pass *p, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                      const struct llm_attn *a);
void llm_latents_state(const struct llm_config *c, int64_t layer, struct llm_state_shape *s);
/* The norm at hand, also outside layers. */
struct llm_tensor *llm_norm_apply(struct llm_ctx *c, const struct llm_config *config, const struct llm_linear_params *p, struct llm_tensor *x);

/* Norms before and after a sub-layer: mixer, feed-forward, cross-attention (which runs between them); kind NULL: none. */
enum { LLM_SUB_MIXER, LLM_SUB_FFN, LLM_SUB_CROSS, LLM_N_SUBS };
struct llm_layer { struct llm_module before[LLM_N_SUBS], after[LLM_N_SUBS], mixer, ffn, cross; };
/* A stack of layers with its input and its final norm. A model has one or several, each with a configuration: a decoder or an encoder has one, T5 has
 * two. To add one: its number in model/spec/place.h, its configuration in llm_stack_config (stack.c), its declaration. */
struct llm_stack {
    struct llm_config *own;         /* its configuration; NULL: the model's. Owned */
    int first;                      /* number of its first layer, where the layers of all stacks are counted (random numbers, parameters) */
    struct llm_param *embed, *positions, *token_types, *latents; /* NULL: none; embed NULL: the first stack's */
    struct llm_linear_params embed_norm, final_norm; /* w NULL: none */
    struct llm_layer *layers;       /* [n_layers], of the first stack with those that predict further after them */
    int64_t n_layers;
    struct llm_param *rel_bias;     /* NULL, or the biases of distances that all its layers share */
    int32_t *rel_map;               /* [2·rel_max_distance + 1]: the bucket of each distance */
    float *inv_freq[2];             /* global, local; NULL: as global */
    struct llm_rope rope[2];
};
/* Stacks and head: the layout of decoders, encoders and both together. */
struct llm_decoder {
    struct llm_stack stacks[LLM_MAX_STACKS];
    struct llm_param *head;         /* NULL: tied */
    struct llm_param *head_bias, *logit_scale; /* NULL: none */
    struct llm_linear_params pooler, head_dense, head_norm, classes; /* w NULL: none */
    struct llm_next *next;          /* [n_next]; the layer of the k-th is stacks[0].layers[n_layers + k] */
    int64_t n_next;
    struct llm_buf tokenizer_json;  /* of the last description */
    void **staging;                 /* transposed copies made for a save, one a parameter at most */
};
/* Declares everything into `m` (zeroed; n_layers set by it). 0 or -1. */
int llm_decoder_declare(struct llm_declare *d, struct llm_decoder *m);
/* What mixes tokens in a layer; its feed-forward part (NULL: the layer has none). c: the stack's configuration. */
const struct llm_module_kind *llm_decoder_mixer(const struct llm_config *c, int64_t layer);
const struct llm_module_kind *llm_decoder_ffn(const struct llm_config *c, int64_t layer);
/* The configuration of a stack of models of `c`; false: they have no such stack. */
bool llm_stack_config(const struct llm_config *c, int stack, struct llm_config *out);
/* One sub-layer of a layer. */
static inline struct llm_module *llm_layer_part(struct llm_layer *layer, int i)
{
    return i == LLM_SUB_MIXER ? &layer->mixer : i == LLM_SUB_FFN ? &layer->ffn : &layer->cross;
}
/* The encoder's stack of an encoder-decoder alone. */
struct llm_tensor *llm_decoder_encode(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
/* Keys and values of one layer's cross-attention, from encoded tokens; `site`: those tokens'. */
void llm_cross_keys(struct llm_ctx *c, const struct llm_module *m, const struct llm_site *site, struct llm_tensor *memory, struct llm_tensor **k,
                    struct llm_tensor **v);
struct llm_attn llm_cross_attn(const struct llm_config *c);
struct llm_tensor *llm_decoder_forward(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
void llm_decoder_destroy(struct llm_decoder *m, size_t n_params);

/* What predicts the token after the next (DeepSeek-V3, 2024, 2.2), beside a layer of its own (model/forward/next.c). */
struct llm_next { struct llm_linear_params token_norm, hidden_norm, join, norm; };
int llm_next_declare(struct llm_declare *d, struct llm_decoder *m);
/* A layer's parameters, and one layer of the first stack alone. */
void llm_decoder_declare_layer(struct llm_declare *d, struct llm_layer *layer, int64_t number);
struct llm_tensor *llm_decoder_layer(struct llm_ctx *c, const struct llm_model *m, const struct llm_batch *b, int64_t number, struct llm_tensor *x);

/* Rotary frequencies for texts of up to `context` tokens (0: llm_model_default_context). */
int llm_stack_set_rope(struct llm_stack *s, const struct llm_config *c, int64_t context, struct llm_err *e) LLM_MUST_CHECK;

/* The parameters of a configuration, in order; for model.c, load.c and cost.c. Both are released with llm_declare_release and llm_decoder_destroy. */
int llm_model_declare(const struct llm_config *c, struct llm_declare *d, struct llm_decoder **layout, struct llm_err *e) LLM_MUST_CHECK;
/* The same parameters under the names that GGUF files give them. */
int llm_model_declare_gguf(const struct llm_config *c, struct llm_declare *d, struct llm_err *e) LLM_MUST_CHECK;
/* A model with params named and shaped, without data. */
struct llm_model *llm_model_shape(const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;

#endif
