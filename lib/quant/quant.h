/* Storing weights in fewer bits: which tensors change to which type (types.h), the change, and how much it costs. */
#ifndef LLM_QUANT_QUANT_H
#define LLM_QUANT_QUANT_H

#include <regex.h>
#include "base/cli.h"
#include "quant/lowrank.h"
#include "quant/prune.h"
#include "quant/types.h"

struct llm_moments;

/* How scales and codes are chosen. To add one: its name in quant.c. */
enum llm_quant_method {
    LLM_QUANT_AUTO,                /* the type's own: search for K and IQ types and wherever importances are known, else rtn */
    LLM_QUANT_RTN,                 /* each value to the nearest level, scales from the range of values */
    LLM_QUANT_SEARCH,              /* scales with the least weighted error */
    LLM_QUANT_GPTQ,                /* gptq.h; without products of inputs as AUTO */
    LLM_QUANT_KL,                  /* gptq.h with the factors of the curvature (curvature.h); without them as GPTQ */
    LLM_QUANT_METHODS
};
extern const char *const llm_quant_methods[LLM_QUANT_METHODS]; /* "auto", "rtn", … */

/* The result for one tensor. */
struct llm_quant_report {
    const char *name;        /* the model's own */
    int n_dims;
    int64_t shape[4];
    enum llm_dtype from, to;
    const char *kept;        /* why it stayed as it was: "1-D", "rows", "pattern", "exact", "same", "keep"; NULL: it changed */
    uint64_t bytes_from, bytes_to;
    /* of the difference between the values before and after */
    double rmse, max_error;
    double snr_db;           /* 10 log10(Σx² / Σ(x - y)²); infinite where nothing was lost */
    double cosine;
    double bits;             /* a weight, after the change */
    const char *method;      /* "rtn", "search", "gptq", "kl"; NULL: the tensor was kept, or its type has no scales */
    bool weighted;           /* importances were used */
    double damping;          /* GPTQ's or SparseGPT's (factor.h); 0: another method */
    double zeros;            /* the share of elements that are 0 after the change; NaN: the tensor was kept */
    int64_t rank;            /* of the factors that take away some of the error (lowrank.h); 0: there are none */
    double energy;           /* the share of the squared error of the outputs that they take away; NaN: there are none */
    const char *pruned;      /* the method by which it was pruned (prune.h); NULL: it was not */
};

/* The type of the tensors whose names, here or in GGUF, match a shell pattern, or whose names in GGUF have a part that an expression describes. */
struct llm_quant_override {
    const char *pattern;
    enum llm_dtype dtype;
    const regex_t *expression; /* NULL: the pattern is none */
};
/* Who wants the parts of blocks as they are written (quant/refine.h). */
struct llm_block;
struct llm_quant_sink {
    int (*begin)(void *arg, const struct llm_param *p, enum llm_dtype to, struct llm_err *e); /* before p is changed: 1 if it is wanted, 0, or -1 */
    void (*take)(void *arg, size_t param, uint64_t block, const struct llm_block *b); /* block by block, by any thread */
    void *arg;
};
struct llm_quant_plan {
    const struct llm_quant_type *type;
    const struct llm_strs *only, *except; /* shell patterns of names; `only` empty: all. A name that both match stays */
    const struct llm_quant_override *overrides; /* [n_overrides] they win over the mix; of several that match, the first */
    size_t n_overrides;
    const struct llm_param_spec *const *gguf; /* [n_params] as in llm_gguf_names.specs; NULL: overrides match the model's own names alone */
    const enum llm_dtype *chosen; /* [n_params] types that a budget chose (quant/budget.h), LLM_N_DTYPES: none; overrides win over them. NULL */
    /* Whether a budget is for a GGUF file: sizes are those there, and the experts of a layer, which are one tensor there, have one type. */
    bool to_gguf;
    bool pure;               /* a mix gives all matrices its own dtype */
    const enum llm_dtype *output, *embedding; /* types of the head's and of the embedding's matrix; LLM_NO_DTYPE: keep. NULL: as the mix says */
    enum llm_quant_method method;
    const struct llm_prune_pattern *prune; /* what becomes 0 of the matrices that llm_quant_is_inner, before they are rounded; NULL: nothing */
    enum llm_prune_method prune_method;
    const struct llm_quant_sink *sink; /* NULL: nobody wants blocks */
    struct llm_lowrank *lowrank; /* takes the factors of all matrices that llm_lowrank_wants and that change; NULL: there are none */
    struct llm_quant_spool *spool; /* takes the data of matrices that changed (quant/spool.h); NULL: they stay in memory */
    const struct llm_moments *moments; /* of the inputs of matrices (quant/moments.h); NULL: not known */
};
/* The type that the plan gives to `p`, which may be the one it has; *kept (struct llm_quant_report) is set if it stays. What is pruned does not
 * stay. */
enum llm_dtype llm_quant_choose(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan, const char **kept);

/* Whether an override or an option of the plan gives p its type, so that neither mix nor budget does. */
bool llm_quant_is_fixed(const struct llm_model *m, const struct llm_param *p, const struct llm_quant_plan *plan);

/* Changes the model's matrices as the plan says, one after another. Old values are released at once, so at most one tensor
 * is in memory twice. Vectors (norms, biases) stay, as do those that the patterns leave out.
 * `report` is called for every tensor, in the model's order. The model's fingerprint is reset. 0 or -1; a value that is not finite is EX_DATAERR, a
 * pattern of an override that matches no tensor LLM_EX_USAGE. */
int llm_quantize_model(struct llm_model *m, const struct llm_quant_plan *plan,
                       int (*report)(void *arg, const struct llm_quant_report *r, struct llm_err *e), void *arg, struct llm_err *e) LLM_MUST_CHECK;

/* A tensor to change: n values of type `from`, in rows of `row` elements that are whole blocks of both types, to type `to`. */
struct llm_quant_job {
    const void *in;
    const struct llm_weight *mapped; /* the weight that `in` is the data of, if pages of its file are released once they are read; NULL: they stay */
    float *values;           /* [n] what is stored in place of the values of `in`, to which it is compared for the report; NULL: those. Not for GPTQ
                              * and KL. Their pages are released once they are stored: then they are undefined */
    void *out;
    enum llm_dtype from, to;
    uint64_t n;
    int64_t row;
    const float *importance; /* [row] the mean square of each input of the matrix, ≥ 0; NULL: not known */
    const float *products;   /* [row, row] sums of products of the matrix's inputs (llm_moment.products), for GPTQ; NULL: not known */
    const float *gradients;  /* [rows, rows] for KL: the outputs' factor of the curvature (struct llm_kronecker), `products` being the inputs'; NULL:
                              * not known */
    enum llm_quant_method method;
    const struct llm_quant_sink *sink; /* takes the blocks of parameter `param`, whose type has a block kind; NULL */
    size_t param;
};
/* The method that a job's method comes to; for types without scales LLM_QUANT_AUTO. */
enum llm_quant_method llm_quant_method_of(const struct llm_quant_job *j);
/* Fills the error fields of `r` (not its names and types). Works on all threads in pieces of fixed size: the same bytes and sums for any number. */
int llm_quantize_tensor(const struct llm_quant_job *j, struct llm_quant_report *r, struct llm_err *e) LLM_MUST_CHECK;
/* Fills rmse, max_error, snr_db, cosine and zeros by the blocks that `out` has already, of a type that llm_block_kind_of knows. */
int llm_quant_compare(const struct llm_quant_job *j, struct llm_quant_report *r, struct llm_err *e) LLM_MUST_CHECK;

#endif
