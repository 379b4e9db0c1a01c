/* Gradient checks: each op's file has rows here, a small case of odd sizes and the formula in plain double. The check compares the op's forward with
 * the formula, and its gradients with central differences of the formula.
 *
 * To add one: an array of rows ended by {0} in the op's file, and its name in LLM_GRADCHECKS. */
#ifndef LLM_TENSOR_GRADCHECK_H
#define LLM_TENSOR_GRADCHECK_H

#include "tensor/tensor.h"

enum { LLM_GRADCHECK_INPUTS = 4, LLM_GRADCHECK_PARAMS = 9 };

struct llm_gradcheck {
    const char *name;
    struct { int64_t rows, cols; } in[LLM_GRADCHECK_INPUTS];    /* activations, standard normal; rows 0: no further one */
    struct { int64_t rows, cols; } param[LLM_GRADCHECK_PARAMS]; /* parameters, standard normal; rows 0: no further one; rows 1: a vector */
    struct { int64_t rows, cols; } out;
    int64_t n_rows;      /* rows of the batch; 0: 1 */
    double spread;       /* inputs and parameters are multiplied by it; 0: 1 */
    double tolerance;    /* ‖difference‖ / ‖gradient‖; 0: 1e-5 */
    /* Runs the op. The gradient of the tensor that it returns is a fixed random matrix. A loss, which sets gradients itself, returns NULL; then the
     * formula's single result is differentiated. */
    struct llm_tensor *(*run)(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *param);
    /* Computes the op's result in double; rows are contiguous. */
    void (*formula)(const struct llm_gradcheck *g, const double *const *in, const double *const *param, double *y);
};

#define LLM_GRADCHECKS(X) \
    X(embedding)          \
    X(sinusoidal) X(linear) X(adapter) X(layernorm) X(groupnorm) X(batchnorm) X(rmsnorm) X(rope) X(activation) X(softmax) X(attention) \
    X(add) X(scale) X(gain) \
    X(dropout) X(cross_entropy) \
    X(route) X(mixture) X(heads) X(gather) X(mean) X(unit) X(contrastive) X(match) X(recurrent) X(short_conv) X(window) X(scan) \
    X(token_shift) X(token_mix_rank) X(wkv4) X(wkv) X(rwkv7) X(long_conv) X(hyena_filter) \
    X(edit) X(replace) X(slices) X(slices_common)
#define LLM_GRADCHECK_DECLARE(op) extern const struct llm_gradcheck llm_gradcheck_##op[];
LLM_GRADCHECKS(LLM_GRADCHECK_DECLARE)

/* The arrays of all ops, ended by NULL. */
extern const struct llm_gradcheck *const llm_gradchecks[];

struct llm_gradcheck_result {
    double forward;   /* largest |difference| / largest |value| */
    double worst;     /* largest ‖difference‖ / ‖gradient‖ over inputs and parameters */
    char where[32];   /* which one: "input 1", "parameter 0" */
};
/* Runs one row with inputs and parameters drawn from `seed`. 0, or -1 if the op failed or a difference is above the tolerance (`e` says which). */
int llm_gradcheck_run(const struct llm_gradcheck *g, uint64_t seed, struct llm_gradcheck_result *r, struct llm_err *e) LLM_MUST_CHECK;

#endif
