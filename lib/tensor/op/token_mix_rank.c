/* RWKV 6's mixtures of a token with the one before it: y = x + d ⊙ (share + h·w), where h, of a low rank, depends on the token. */
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/experts.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/tape.h"

struct mix_args { struct llm_mix_rank m; int64_t first; };
struct work {
    const struct llm_tensor *x, *d, *h, *y;
    const struct mix_args *a;
    struct llm_grad gd, gh;
    float *d_share, *dw;         /* dw: the rows from `first` on */
    size_t share_stride, w_stride; /* from these gradients by one part of the rows to the next (tensor/sequence.h) */
    struct llm_folds folds;
};

static const float *row(const struct llm_tensor *x, int64_t t) { return x->data + t * x->stride; }
static float *grad_row(const struct llm_grad *g, int64_t t) { return g->p ? g->p + t * g->stride : NULL; }

static void mix_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        llm_k.wkv.mix_rank(w->y->data + t * w->y->stride, row(w->x, t), row(w->d, t), row(w->h, t), &w->a->m);
    }
}

static void mix_back_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        const float *dy = w->y->grad + t * w->y->grad_stride;
        llm_k.wkv.mix_rank_back(grad_row(&w->gd, t), grad_row(&w->gh, t), dy, row(w->d, t), row(w->h, t), &w->a->m);
    }
}

/* Sums over tokens for columns [from, to), in the canonical order. The share is a row of w for which h is 1. */
static void mix_back_columns(void *arg, int64_t from, int64_t to, int thread)
{
    enum { RUN = 64, MOST = 32 }; /* columns of a run, rows of w that are summed together */
    const struct work *w = arg;
    static const float one = 1;
    float sum[MOST * RUN];
    const size_t n = (size_t)(to - from), ld = w->a->m.ldw;
    (void)thread;
    for (int64_t t = 0, end; t < w->y->rows; t = end) {
        const size_t part = (size_t)llm_folds_part(&w->folds, t);
        end = llm_fold_end(w->y->rows, w->folds.row_len, t);
        for (int64_t i = w->d_share ? -1 : 0, rows; i < (w->dw ? (int64_t)w->a->m.rank : 0); i += rows) {
            rows = i < 0 ? 1 : (int64_t)w->a->m.rank - i < MOST ? (int64_t)w->a->m.rank - i : MOST;
            memset(sum, 0, sizeof sum);
            for (int64_t j = t; j < end; j++) {
                const float *h = i < 0 ? &one : row(w->h, j) + i;
                llm_k.wkv.mix_rank_dw(sum, w->y->grad + j * w->y->grad_stride + from, row(w->d, j) + from, h, (size_t)rows, RUN, n);
            }
            for (int64_t j = 0; j < rows; j++) {
                float *to_row = i < 0 ? w->d_share + part * w->share_stride + from : w->dw + part * w->w_stride + (size_t)(i + j) * ld + from;
                llm_k.elementwise.add(to_row, to_row, sum + j * RUN, n);
            }
        }
    }
}

static void mix_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("RWKV 6 token mix backward", 4 * llm_tensor_bytes(n->out));
    const struct mix_args *a = n->args;
    const struct llm_param *p = n->param[1];
    struct work w = {.d = n->in[1], .h = n->in[2], .y = n->out, .a = a, .d_share = n->param[0]->grad,
                     .dw = p->grad ? p->grad + a->first * n->out->cols : NULL, .share_stride = llm_grad_stride(n->param[0]),
                     .w_stride = llm_grad_stride(p), .folds = llm_folds_of(c, n->out->rows)};
    if (!llm_grad_open_zeroed(c, n->in[1], &w.gd)) w.gd.p = NULL;
    if (!llm_grad_open_zeroed(c, n->in[2], &w.gh)) w.gh.p = NULL;
    if (llm_ctx_failed(c)) return;
    llm_for_rows(w.y->rows, w.y->cols * w.h->cols, mix_back_rows, &w);
    llm_for_columns(w.y->cols, mix_back_columns, &w);
    llm_grad_pass(c, n->in[0], n->out);
}

struct llm_tensor *llm_token_mix_rank(struct llm_ctx *c, struct llm_tensor *x, struct llm_tensor *d, struct llm_tensor *h, struct llm_param *share,
                                      struct llm_param *w, int64_t first)
{
    LLM_PROFILE("RWKV 6 token mix", 3 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = mix_backward, .mark = llm_arena_mark(&c->acts), .in = {x, d, h}, .param = {share, w}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    const float *shares = llm_op_vector(c, share, x->cols), *all = llm_op_vector(c, w, w->shape[0] * x->cols);
    if (llm_ctx_failed(c)) return &c->nothing;
    const struct mix_args a = {{shares, all + first * x->cols, (size_t)h->cols, (size_t)x->cols, (size_t)x->cols}, first};
    llm_for_rows(x->rows, x->cols * h->cols, mix_rows, &(struct work){.x = x, .d = d, .h = h, .y = n.out, .a = &a});
    return llm_record(c, &n, &a, sizeof a);
}

/* ---- gradient check ---- */

enum { TOKENS = 11, CHANNELS = 19, RANK = 5 };

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    struct llm_tensor *a = llm_token_mix_rank(c, in[0], in[1], llm_columns(c, in[2], RANK, RANK), p[0], p[1], RANK);
    return llm_add(c, a, llm_token_mix_rank(c, in[0], in[1], llm_columns(c, in[2], 0, RANK), p[2], p[1], 0));
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)g;
    for (int i = 0; i < TOKENS * CHANNELS; i++) {
        double share = p[0][i % CHANNELS] + p[2][i % CHANNELS];
        for (int j = 0; j < 2 * RANK; j++) share += in[2][i / CHANNELS * 2 * RANK + j] * p[1][j * CHANNELS + i % CHANNELS];
        y[i] = 2 * in[0][i] + in[1][i] * share;
    }
}

const struct llm_gradcheck llm_gradcheck_token_mix_rank[] = {
    {.name = "RWKV 6 token mix", .in = {{TOKENS, CHANNELS}, {TOKENS, CHANNELS}, {TOKENS, 2 * RANK}},
     .param = {{1, CHANNELS}, {2 * RANK, CHANNELS}, {1, CHANNELS}}, .out = {TOKENS, CHANNELS}, .run = check_run, .formula = check_formula},
    {0}};
