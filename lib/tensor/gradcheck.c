/* Analytic gradients against central differences of a formula in double (tensor/gradcheck.h). */
#include "tensor/gradcheck.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/rng.h"

#define LISTED(op) llm_gradcheck_##op,
const struct llm_gradcheck *const llm_gradchecks[] = {LLM_GRADCHECKS(LISTED) NULL};

enum { VALUES = LLM_GRADCHECK_INPUTS + LLM_GRADCHECK_PARAMS };

/* One input or parameter: its elements in float and in double, and the gradient that the op computes. */
struct value { int64_t rows, cols, n; float *single; double *exact; float *grad; };

struct check {
    const struct llm_gradcheck *g;
    struct llm_ctx c;
    struct value v[VALUES];                       /* inputs, then parameters */
    const double *in[LLM_GRADCHECK_INPUTS], *param[LLM_GRADCHECK_PARAMS];
    struct llm_tensor *tensor[LLM_GRADCHECK_INPUTS];
    struct llm_param params[LLM_GRADCHECK_PARAMS], *param_at[LLM_GRADCHECK_PARAMS];
    int64_t n_out;
    double *y, *weight;                           /* the formula's result, and the gradient of it with which the backward pass begins */
};

static int draw(struct check *k, uint64_t seed, struct llm_err *e)
{
    const struct llm_gradcheck *g = k->g;
    double spread = g->spread > 0 ? g->spread : 1;
    for (int j = 0; j < VALUES; j++) {
        struct value *v = &k->v[j];
        bool is_param = j >= LLM_GRADCHECK_INPUTS;
        v->rows = is_param ? g->param[j - LLM_GRADCHECK_INPUTS].rows : g->in[j].rows;
        v->cols = is_param ? g->param[j - LLM_GRADCHECK_INPUTS].cols : g->in[j].cols;
        v->n = v->rows * v->cols;
        if (v->n == 0) continue;
        v->single = llm_calloc((size_t)v->n, sizeof *v->single, "gradient check", e);
        v->exact = llm_calloc((size_t)v->n, sizeof *v->exact, "gradient check", e);
        v->grad = llm_calloc((size_t)v->n, sizeof *v->grad, "gradient check", e);
        if (!v->single || !v->exact || !v->grad) return -1;
        struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_TEST, (uint32_t)j, 0, 0);
        for (int64_t i = 0; i < v->n; i++) {
            v->single[i] = (float)(spread * (double)llm_rng_normal(&r, (uint32_t)i));
            v->exact[i] = (double)v->single[i];
        }
        if (is_param) k->param[j - LLM_GRADCHECK_INPUTS] = v->exact;
        else k->in[j] = v->exact;
    }
    k->n_out = g->out.rows * g->out.cols;
    k->y = llm_calloc((size_t)k->n_out, sizeof *k->y, "gradient check", e);
    k->weight = llm_calloc((size_t)k->n_out, sizeof *k->weight, "gradient check", e);
    if (!k->y || !k->weight) return -1;
    struct llm_rng r = llm_rng_at(seed, 1, LLM_RNG_TEST, 0, 0, 0);
    for (int64_t i = 0; i < k->n_out; i++) k->weight[i] = (double)llm_rng_normal(&r, (uint32_t)i);
    return 0;
}

/* Runs the op forward and backward; gradients land in v[].grad, *forward is the largest relative difference. */
static int run(struct check *k, double *forward)
{
    const struct llm_gradcheck *g = k->g;
    struct llm_ctx *c = &k->c;
    c->n_rows = g->n_rows > 0 ? g->n_rows : 1;
    for (int j = 0; j < VALUES; j++) {
        struct value *v = &k->v[j];
        if (v->n == 0) continue;
        if (j >= LLM_GRADCHECK_INPUTS) {
            struct llm_param *p = &k->params[j - LLM_GRADCHECK_INPUTS];
            *p = (struct llm_param){.name = "parameter", .n_dims = v->rows == 1 ? 1 : 2, .grad = v->grad, .master = v->single,
                                    .weight = {.data = v->single, .dtype = LLM_F32, .n = v->rows, .k = v->cols}};
            p->shape[0] = v->rows == 1 ? v->cols : v->rows;
            p->shape[1] = v->cols;
            k->param_at[j - LLM_GRADCHECK_INPUTS] = p;
            continue;
        }
        if (j == 0) c->row_len = v->rows / c->n_rows;
        k->tensor[j] = llm_tensor_create(c, v->rows, v->cols);
        if (llm_ctx_failed(c)) return -1;
        k->tensor[j]->needs_grad = true;
        memcpy(k->tensor[j]->data, v->single, (size_t)v->n * sizeof(float));
    }
    struct llm_tensor *y = g->run(c, k->tensor, k->param_at);
    if (llm_ctx_failed(c)) return -1;
    g->formula(g, k->in, k->param, k->y);
    *forward = 0;
    if (!y) {
        k->weight[0] = 1;
    } else {
        float *dy = llm_tensor_grad(c, y);
        double size = 0, difference = 0;
        for (int64_t i = 0; i < k->n_out; i++) {
            difference = fmax(difference, fabs((double)y->data[i] - k->y[i]));
            size = fmax(size, fabs(k->y[i]));
            if (dy) dy[i] = (float)k->weight[i];
            k->weight[i] = (double)(float)k->weight[i];
        }
        *forward = difference / size;
    }
    llm_backward(c);
    for (int j = 0; j < LLM_GRADCHECK_INPUTS; j++) {
        struct llm_tensor *t = k->tensor[j];
        if (t && t->grad) memcpy(k->v[j].grad, t->grad, (size_t)k->v[j].n * sizeof(float));
    }
    for (int j = 0; j < LLM_GRADCHECK_PARAMS; j++) llm_weight_release(&k->params[j].weight);
    return llm_ctx_failed(c) ? -1 : 0;
}

static double loss(struct check *k)
{
    double sum = 0;
    k->g->formula(k->g, k->in, k->param, k->y);
    for (int64_t i = 0; i < k->n_out; i++) sum += k->y[i] * k->weight[i];
    return sum;
}

/* ‖gradient - central difference‖ / ‖central difference‖ of one value. */
static double compare(struct check *k, struct value *v)
{
    const double h = 1e-5;
    double difference = 0, size = 0;
    for (int64_t i = 0; i < v->n; i++) {
        double x = v->exact[i];
        v->exact[i] = x + h;
        double above = loss(k);
        v->exact[i] = x - h;
        double slope = (above - loss(k)) / (2 * h);
        v->exact[i] = x;
        difference += (slope - (double)v->grad[i]) * (slope - (double)v->grad[i]);
        size += slope * slope;
    }
    return sqrt(difference / size);
}

static void release(struct check *k)
{
    for (int j = 0; j < VALUES; j++) {
        free(k->v[j].single);
        free(k->v[j].exact);
        free(k->v[j].grad);
    }
    free(k->y);
    free(k->weight);
    llm_ctx_release(&k->c);
}

static int check(struct check *k, uint64_t seed, struct llm_gradcheck_result *r, struct llm_err *e)
{
    double tolerance = k->g->tolerance > 0 ? k->g->tolerance : 1e-5;
    if (draw(k, seed, e) < 0 || llm_ctx_init(&k->c, (size_t)64 << 20, (size_t)64 << 20, true, e) < 0) return -1;
    if (run(k, &r->forward) < 0) return llm_fail(e, k->c.err.status, "%s: %s", k->g->name, k->c.err.text);
    for (int j = 0; j < VALUES; j++) {
        bool is_param = j >= LLM_GRADCHECK_INPUTS;
        if (k->v[j].n == 0) continue;
        double found = compare(k, &k->v[j]);
        if (found <= r->worst) continue;
        r->worst = found;
        snprintf(r->where, sizeof r->where, "%s %d", is_param ? "parameter" : "input", is_param ? j - LLM_GRADCHECK_INPUTS : j);
    }
    if (!(r->forward <= tolerance)) {
        return llm_fail(e, LLM_EX_FAILURE, "%s: forward: expected within %.1e of the formula, found %.1e", k->g->name, tolerance, r->forward);
    }
    if (!(r->worst <= tolerance)) {
        return llm_fail(e, LLM_EX_FAILURE, "%s: gradient of %s: expected within %.1e of central differences, found %.1e", k->g->name, r->where,
                        tolerance, r->worst);
    }
    return 0;
}

int llm_gradcheck_run(const struct llm_gradcheck *g, uint64_t seed, struct llm_gradcheck_result *r, struct llm_err *e)
{
    struct check k = {.g = g};
    *r = (struct llm_gradcheck_result){0};
    int status = check(&k, seed, r, e);
    release(&k);
    return status;
}
