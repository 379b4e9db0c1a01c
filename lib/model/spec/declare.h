/* Declarations of parameters. The module that owns a parameter declares once what it is, where it stands in the model and how files lay it out.
 * Creating and loading models, training, saving and cost accounting read the declaration. */
#ifndef LLM_MODEL_SPEC_DECLARE_H
#define LLM_MODEL_SPEC_DECLARE_H

#include "model/config/arch.h"

/* The units of a model for which cost is counted. Every parameter belongs to one. */
enum llm_unit {
    LLM_UNIT_EMBEDDINGS, LLM_UNIT_NORMS, LLM_UNIT_ATTENTION, LLM_UNIT_CROSS_ATTENTION, LLM_UNIT_MLP, LLM_UNIT_EXPERTS, LLM_UNIT_RNN, LLM_UNIT_LSTM,
    LLM_UNIT_MAMBA, LLM_UNIT_MAMBA2, LLM_UNIT_HEAD, LLM_UNIT_CLASSES, LLM_UNIT_NEXT_TOKENS,
    LLM_UNIT_ENCODER, /* a row of costs only: the whole encoder of an encoder-decoder */
    LLM_N_UNITS
};
extern const char *const llm_unit_names[LLM_N_UNITS]; /* as tables of cost name them: "embeddings", "norms", "attention", … */

/* What a parameter is at its stem. It decides the end of the parameter's name: ".weight", ".bias", … */
enum llm_piece { LLM_PIECE_WEIGHT, LLM_PIECE_BIAS, LLM_PIECE_MEAN, LLM_PIECE_VAR, LLM_PIECE_WHOLE /* the name has no suffix */ };
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
    int layer;                      /* -1: it belongs to no layer. The encoder's layers are counted after the decoder's */
    int64_t expert;                 /* -1: it belongs to no expert */
    int n_dims;
    int64_t shape[2];               /* in memory: [out, in] */
    enum llm_init init;
    enum llm_role role;
    bool running;                   /* as in struct llm_param */
    int sharers;                    /* as in struct llm_param */
    int64_t parts[LLM_MAX_PARTS];  /* as in struct llm_param */
    bool transposed;                /* in files: [in, out], unless quantised */
    bool by_head;                   /* in files: rows of q, k and v head by head */
    double active;                  /* experts: the share of tokens that it multiplies; 0: all tokens */
    bool exact;                     /* it is no matrix of a product: without weight decay, and left alone by mixes of quantised types */
    bool middle;                    /* in files: [rows, 1, columns] */
    int file_dims;                  /* files have it in another shape, with the same elements in order; 0: as in memory */
    int64_t file_shape[4];
    bool file_writes;               /* it is written in that shape too, unless it is quantised, whose blocks are of rows in memory */
    int64_t part, n_parts;          /* which of the equal parts of the file's tensor it is; n_parts 0: the whole */
    bool minus_exp;                 /* files have -exp of it */
    bool balances;                  /* a router's bias: struct llm_param, balances */
    bool lookup;                    /* rows are looked up, not multiplied: no FLOPs */
    bool gain;                      /* a norm's gain */
    struct llm_param **slot;        /* the pointer of the layout that is to point to the parameter; valid during the declaration */
};
/* Whether two declarations, under whatever names, are of one parameter. */
bool llm_param_spec_same(const struct llm_param_spec *a, const struct llm_param_spec *b);
/* Whether files keep both as parts of one tensor: the same matrix of different experts of a layer. */
bool llm_param_spec_stacked(const struct llm_param_spec *a, const struct llm_param_spec *b);
/* Whether weight decay applies to the parameter: it does to matrices of products. */
static inline bool llm_param_spec_decays(const struct llm_param_spec *s) { return s->n_dims > 1 && !s->exact; }

/* FLOPs of a forward pass per token: 2 for each element of a multiplied matrix, times the share of tokens that it multiplies; 0 for other parameters.
 * */
double llm_param_spec_flops(const struct llm_param_spec *s);

/* Collects declarations. The first error is kept and later calls do nothing, so the caller checks once at the end. */
struct llm_declare {
    const struct llm_config *config;
    const struct llm_arch *arch;
    const struct llm_names *names;  /* the family's, or those of GGUF files */
    bool gguf;                      /* names and layouts are those of GGUF files */
    int layer;
    bool encoder;                   /* layers are those of an encoder-decoder's encoder */
    int layers_before;              /* number of layers in earlier stacks; added to the layer's number in its own stack */
    enum llm_unit unit;
    struct llm_param_spec *specs;
    size_t n, room;
    struct llm_err *err;
    bool failed;
};
void llm_declare_release(struct llm_declare *d);

struct llm_linear_params { struct llm_param *w, *b, *mean, *var; }; /* mean, var: running ones, of BatchNorm */
/* Each of these functions declares a parameter at `stem`: of the current layer, or of the model if stem ≥ LLM_N_STEMS. `dims` names the sizes in
 * error messages ("intermediate_size, hidden_size"). */
/* y = x·wᵀ (+ b) */
void llm_declare_linear(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem, int64_t out, int64_t in, const char *dims, bool bias);
/* A bias [n] alone. */
void llm_declare_bias(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t n, const char *dims);
/* A norm: gain [width], and bias [width] if the norm is a LayerNorm with biases. */
void llm_declare_norm(struct llm_declare *d, struct llm_linear_params *p, enum llm_stem stem, int64_t width, const char *dims);
/* The gain [head_dim] of the norm of head `head` of n heads. GGUF files have all of them in one tensor [n, head_dim]. */
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
/* Vision transformers: a table of rows [rows, cols], whose name has no suffix and which files have as [1, rows, cols]. */
void llm_declare_rows(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t rows, int64_t cols, const char *dims);
/* Vision transformers: the projection of patches, with a bias; files have it as [hidden_size, num_channels, patch_size, patch_size]. */
void llm_declare_patches(struct llm_declare *d, struct llm_linear_params *p);
/* The matrix declared last is a fusion of three matrices with a, b and c rows (c 0: of two). */
void llm_declare_parts(struct llm_declare *d, int64_t a, int64_t b, int64_t c);
/* The parameter declared last is no matrix of a product (llm_param_spec.exact); `middle`: files have it as [rows, 1, columns]. */
void llm_declare_exact(struct llm_declare *d, bool middle);
/* GGUF files have the parameter declared last as [rows, cols]. */
void llm_declare_file_shape(struct llm_declare *d, int64_t rows, int64_t cols);
/* GGUF files have -exp of the parameter declared last. */
void llm_declare_minus_exp(struct llm_declare *d);
/* The parameter declared last is initialised as `init` says. */
void llm_declare_init(struct llm_declare *d, enum llm_init init);

#endif
