/* Optimizers: one row each. To add one: optim/<name>.c (and its kernel in cpu/kernels/optim.c), its row in optim.c. */
#ifndef LLM_TRAIN_OPTIM_H
#define LLM_TRAIN_OPTIM_H

#include "cpu/kernels.h"
#include "tensor/tensor.h"

/* A trained parameter: its llm_param, and its state that is kept across steps. */
struct llm_trainable {
    struct llm_param *p;
    const struct llm_optim *optim;
    float *m, *v;
    double lr_scale;            /* of its learning rate (muP); lr × weight decay stays. 0 counts as 1 */
    float *ema;                 /* exponential moving average of the master; NULL: none is kept */
    bool partly;                /* this rank updates elements [own_from, own_from + own_n) alone, and m and v hold these; else all (train/share.h) */
    size_t own_from, own_n;
    float *own_grad, *own_master; /* [own_n] gradient and master of these elements where p's memory is shared by layers (zero 2, 3); NULL: in p's */
    bool pooled;                /* p->grad is such memory, cleared by train/share.h */
    float *shards;              /* sums of shards that wait for others (train/shards.h); NULL: there are none */
};

/* How Muon's steps are scaled by the shape of a matrix. */
enum llm_muon_scale {
    LLM_MUON_ORIGINAL,          /* sqrt(max(1, rows/cols)): Jordan 2024 */
    LLM_MUON_MATCH_RMS          /* 0.2·sqrt(max(rows, cols)), as large as AdamW's: Liu et al. 2025 */
};

/* The settings of one update of all parameters. */
struct llm_update {
    struct llm_optim_step step; /* weight_decay is for parameters that decay */
    double matrix_lr;           /* Muon's, of hidden matrices */
    enum llm_muon_scale muon_scale;
    enum llm_compute compute;   /* of Muon's products */
    float *work;                /* llm_optim_work's */
    double ema;                 /* decay of the averages */
    int64_t passes;             /* of the step; 0 counts as 1 */
};

/* The numbers that the size of a step depends on. */
enum llm_optim_kind {
    LLM_OPTIM_ADAPTIVE,         /* not on the gradient's: Adam and its kind, element by element */
    LLM_OPTIM_GRADIENT,         /* on the gradient's */
    LLM_OPTIM_ORTHOGONAL        /* on the matrix's shape */
};

struct llm_optim {
    const char *name;
    enum llm_optim_kind kind;
    const char *m, *v;          /* names of the moments it keeps, in checkpoints; NULL: none */
    void (*update)(const struct llm_optim_span *s, const struct llm_optim_step *o); /* element by element; or NULL and: */
    int (*update_matrix)(struct llm_trainable *t, const struct llm_update *u, struct llm_err *e); /* a whole matrix; clears the gradient */
    const char *others;         /* what takes the parameters that are no hidden matrices; NULL: itself */
    double beta2, eps, momentum; /* where the options do not say */
    bool nesterov;
};
extern const struct llm_optim *const llm_optims[]; /* NULL-terminated */
const struct llm_optim *llm_optim_find(const char *name);
/* The optimizer that updates p if the run's optimizer is `o`: o itself, or its `others`. */
const struct llm_optim *llm_optim_of(const struct llm_optim *o, const struct llm_param *p);
/* The number of scratch floats that the update of a parameter needs. */
size_t llm_optim_work(const struct llm_optim *o, const struct llm_param *p);

/* Adds the accumulators of further uses (lookups of a tied embedding, llm_param.grad_use) to p->grad. They become zero. */
void llm_grad_join(struct llm_param *p);
/* Clears the gradients of elements that are 0 of matrices within layers, so that an optimizer that updates element by element leaves them 0: with
 * moments that were always 0 its step is 0. Accumulators of further uses must have joined. */
void llm_grad_keep_zeros(struct llm_trainable *t, size_t n);
/* √Σ g² over all parameters: sums of blocks of 64 Ki elements added in order. Accumulators of further uses must have joined. If a gradient is
 * not finite, *bad is the first such parameter and the result is not finite either. */
double llm_grad_norm(struct llm_trainable *t, size_t n, const struct llm_param **bad);
/* The elements that this rank updates; the first of their gradients; of their masters. */
size_t llm_trainable_own(const struct llm_trainable *t);
float *llm_trainable_grad(const struct llm_trainable *t);
float *llm_trainable_master(const struct llm_trainable *t);
/* Updates all parameters (those that are updated partly in part), clears gradients and moves the averages of what is updated whole. Fails only if
 * memory is short. */
int llm_params_update(struct llm_trainable *t, size_t n, const struct llm_update *u, struct llm_err *e) LLM_MUST_CHECK;
/* Moves the averages of parameters that are updated partly, when their masters are complete. */
void llm_params_average(struct llm_trainable *t, size_t n, double ema);

/* g [rows, cols] becomes about U·Vᵀ of its singular value decomposition: five steps of X ← a·X + (b·A + c·A²)·X, A = X·Xᵀ, from g / |g|
 * (Jordan 2024: a = 3.4445, b = -4.7750, c = 2.0315). work: 2·rows·cols + 2·min(rows, cols)² floats. 0 or -1. */
int llm_newton_schulz(float *g, int64_t rows, int64_t cols, enum llm_compute compute, float *work, struct llm_err *e) LLM_MUST_CHECK;

#endif
