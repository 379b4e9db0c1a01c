/* Declarations of parameters. The module that owns a parameter declares once what it is, where it stands in the model and how files lay it out.
 * Creating and loading models, training, saving and cost accounting read the declaration. */
#ifndef LLM_MODEL_SPEC_DECLARE_H
#define LLM_MODEL_SPEC_DECLARE_H

#include "model/config/arch.h"

/* The units of a model for which cost is counted. Every parameter belongs to one. */
enum llm_unit {
    LLM_UNIT_EMBEDDINGS, LLM_UNIT_NORMS, LLM_UNIT_ATTENTION, LLM_UNIT_CROSS_ATTENTION, LLM_UNIT_MLP, LLM_UNIT_EXPERTS, LLM_UNIT_RNN, LLM_UNIT_LSTM,
    LLM_UNIT_MAMBA, LLM_UNIT_MAMBA2, LLM_UNIT_RWKV, LLM_UNIT_HYENA, LLM_UNIT_HEAD, LLM_UNIT_CLASSES, LLM_UNIT_NEXT_TOKENS,
    LLM_UNIT_ENCODER, /* a row of costs only: all of another stack than the main one */
    LLM_N_UNITS
};
extern const char *const llm_unit_names[LLM_N_UNITS]; /* as tables of cost name them: "embeddings", "norms", "attention", … */

/* What a parameter is at its stem. It decides the end of the parameter's name: ".weight", ".bias", … */
enum llm_piece { LLM_PIECE_WEIGHT, LLM_PIECE_BIAS, LLM_PIECE_MEAN, LLM_PIECE_VAR, LLM_PIECE_FREQ, LLM_PIECE_WHOLE /* the name has no suffix */ };
enum llm_init { LLM_INIT_NORMAL, LLM_INIT_RESIDUAL, LLM_INIT_ZERO, LLM_INIT_ONE, LLM_INIT_UNIT, /* normal(0, 1) */
    LLM_INIT_SMALL /* normal(0, .01/sqrt(3)): the deviation of uniform numbers within .01 */,
    LLM_INIT_CONV /* 1/sqrt(3·columns) */, LLM_INIT_TIME_PROJECTION /* 1/sqrt(3·columns) too: of uniform numbers within 1/sqrt(columns) */,
    LLM_INIT_TIME_STEP /* softplus of it within [time_step_min, time_step_max], evenly in the logarithm */,
    LLM_INIT_LAYER_SCALE /* layer_scale_init */, LLM_INIT_LOGIT_SCALE /* logit_scale_init */,
    LLM_INIT_LOGIT_BIAS /* -10: at first hardly any two are partners (SigLIP) */,
    LLM_INIT_LOG_COLUMN /* log(1), log(2), … */,
    LLM_INIT_DECAY, LLM_INIT_FIRST, LLM_INIT_SHARE, LLM_INIT_RWKV7 /* RWKV: functions of channel and layer (model/weights/create.c) */,
    LLM_INIT_HYENA /* constants of its filters, and frequencies of their sines */ };
/* A parameter as declared: where it stands, what it is, how files lay it out. Each parameter of a model points to its own (llm_param.spec). */
struct llm_param_spec {
    char name[112];
    const char *dims;               /* "intermediate_size, hidden_size", for messages */
    enum llm_unit unit;
    enum llm_stem stem;
    enum llm_piece piece;
    int stack;                      /* LLM_STACK_MAIN, … (model/spec/place.h) */
    int layer;                      /* -1: it belongs to no layer. Layers of other stacks are counted after the main one's */
    int64_t expert;                 /* -1: it belongs to no expert */
    int n_dims;
    int64_t shape[2];               /* in memory: [out, in] */
    enum llm_init init;
    enum llm_role role;
    bool running;                   /* as in struct llm_param */
    int sharers;                    /* as in struct llm_param */
    int64_t parts[LLM_MAX_PARTS];   /* as in struct llm_param */
    int64_t fused[LLM_MAX_PARTS];   /* as in struct llm_slices */
    bool transposed;                /* in files: [in, out], unless quantised */
    bool by_head;                   /* in files: rows of q, k and v head by head */
    double active;                  /* experts: the share of tokens that it multiplies; 0: all tokens */
    bool exact;                     /* it is no matrix of a product: without weight decay, and left alone by mixes of quantised types */
    bool middle;                    /* in files: [rows, 1, columns] */
    int file_dims;                  /* files have it in another shape, with the same elements in order; 0: as in memory */
    int64_t file_shape[4];
    bool scalar;                    /* in files: one element without dimensions */
    bool file_writes;               /* it is written in that shape too, unless it is quantised, whose blocks are of rows in memory */
    int64_t part, n_parts;          /* which of the equal parts of the file's tensor it is; n_parts 0: the whole */
    bool minus_exp;                 /* files have -exp of it */
    bool exp_minus_exp;             /* files have e^(-e^x) of its elements x */
    int64_t blocks;                 /* transposed: it is a pile of `blocks` matrices in memory, each of which files have transposed; 0: one */
    bool balances;                  /* a router's bias: struct llm_param, balances */
    bool lookup;                    /* rows are looked up, not multiplied: no FLOPs */
    bool gain;                      /* a norm's gain */
    bool constant;                  /* it is not trained, and takes no adapter */
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
    bool rwkv_cpp;                  /* names and values are those of files of rwkv.cpp */
    int layer;
    int stack;                      /* the stack that the layers belong to */
    int layers_before;              /* number of layers in earlier stacks; added to the layer's number in its own stack */
    enum llm_unit unit;
    struct llm_param_spec *specs;
    size_t n, room;
    struct llm_err *err;
    bool failed;
};
void llm_declare_release(struct llm_declare *d);

struct llm_linear_params { struct llm_param *w, *b, *mean, *var, *share; }; /* mean, var: running ones, of BatchNorm; share: RWKV's */
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
/* Vision transformers: a table of rows [rows, cols], whose name has no suffix and which files have as [1, rows, cols] (file_dims 3), or, of one row,
 * as [cols] (file_dims 1). */
void llm_declare_rows(struct llm_declare *d, struct llm_param **slot, enum llm_stem stem, int64_t rows, int64_t cols, const char *dims,
                      int file_dims);
/* Vision transformers: the projection of patches; files have it as [hidden_size, num_channels, patch_size, patch_size]. */
void llm_declare_patches(struct llm_declare *d, struct llm_linear_params *p, bool bias);
/* Files have the parameter declared last, of one element, as a scalar. */
void llm_declare_scalar(struct llm_declare *d);
/* The matrix declared last is a fusion of three matrices with a, b and c rows (c 0: of two). */
void llm_declare_parts(struct llm_declare *d, int64_t a, int64_t b, int64_t c);
/* Tensor parallelism cuts the matrix declared last, and its bias, as a fusion of n matrices of so many rows. Optimizers see one matrix. */
void llm_declare_fused(struct llm_declare *d, const int64_t *rows, size_t n);
/* The parameter declared last is no matrix of a product (llm_param_spec.exact); `middle`: files have it as [rows, 1, columns]. */
void llm_declare_exact(struct llm_declare *d, bool middle);
/* GGUF files have the parameter declared last as [rows, cols]. */
void llm_declare_file_shape(struct llm_declare *d, int64_t rows, int64_t cols);
/* Files of transformers have the vector declared last, of n elements, as [1, 1, n]. */
void llm_declare_vector_shape(struct llm_declare *d);
/* Files have the parameter declared last as [a, b, c], or as [a, b] if c is 0. */
void llm_declare_shape(struct llm_declare *d, int64_t a, int64_t b, int64_t c);
/* Files of transformers have the matrix declared last as [in, out]; those of rwkv.cpp have it as it is in memory. */
void llm_declare_transposed(struct llm_declare *d);
/* Files of rwkv.cpp have the vector declared last as row i of a matrix of n rows. */
void llm_declare_row(struct llm_declare *d, int64_t i, int64_t n);
/* Files of rwkv.cpp have the matrix declared last, n matrices one above the other, with each of them transposed; [n, columns, rows of one]. */
void llm_declare_blocks(struct llm_declare *d, int64_t n);
/* Files of rwkv.cpp have e^(-e^x) of the parameter x declared last. */
void llm_declare_exp_minus_exp(struct llm_declare *d);
/* Files of GGUF or of rwkv.cpp have -exp of the parameter declared last. */
void llm_declare_minus_exp(struct llm_declare *d);
/* Layer `number` of the network that makes a filter of Hyena, and the sine after it: y = x·wᵀ (+ b). It is no product of hidden states: exact. */
void llm_declare_filter(struct llm_declare *d, struct llm_linear_params *p, int64_t number, int64_t out, int64_t in, const char *dims, bool bias);
/* The frequencies [n] of the sines of that network, which `uses` sines share. */
void llm_declare_freq(struct llm_declare *d, struct llm_param **slot, int64_t n, int uses);
/* The parameter declared last is not trained, nor multiplied. Files have it with dimensions of 1 around its own: [1, positions, features],
 * [1, positions, 1], [1, 1, channels]. */
void llm_declare_constant(struct llm_declare *d);
/* The parameter declared last is initialised as `init` says. */
void llm_declare_init(struct llm_declare *d, enum llm_init init);

#endif
