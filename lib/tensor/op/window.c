/* y[t] is the concatenation of x[t - k + 1], …, x[t]: the input of a feed-forward language model with a window of k tokens. */
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

struct window { int64_t k; struct llm_segment *segments; int64_t n_segments; };
struct window_args { struct window v; };

/* Writes the last k - 1 inputs of each segment to llm_segment.to, which may be `from`: rows are only moved to lower addresses. */
static void keep_inputs(const struct window *v, const struct llm_tensor *x)
{
    size_t bytes = (size_t)x->cols * sizeof(float);
    for (int64_t i = 0; i < v->n_segments; i++) {
        const struct llm_segment *s = &v->segments[i];
        for (int64_t j = 0; s->to && j < v->k - 1; j++) {
            int64_t at = s->n + j - (v->k - 1);
            if (at >= 0) memmove(s->to + j * x->cols, x->data + (s->first + at) * x->stride, bytes);
            else if (s->from) memmove(s->to + j * x->cols, s->from + (s->n + j) * x->cols, bytes);
            else memset(s->to + j * x->cols, 0, bytes);
        }
    }
}

/* Where ranks divide rows: adds what the first k - 1 tokens of the rank after say of this rank's last inputs, in the order of tokens. */
static void add_later(struct llm_ctx *c, const struct window *v, const struct llm_grad *g, const struct llm_tensor *y)
{
    const int64_t more = v->k - 1, cols = y->cols / v->k, own = llm_row_len(c, y->rows), row = more * y->cols, all = y->rows / own * row;
    float *in = llm_op_alloc(c, 2 * all, sizeof *in), *out = in + all;
    if (!in) return;
    for (int64_t i = 0; i < y->rows / own * more; i++) {
        memcpy(out + i * y->cols, y->grad + (i / more * own + i % more) * y->grad_stride, (size_t)y->cols * sizeof *out);
    }
    if (!llm_sequence_shift(c, false, out, in, all)) return;
    for (int64_t i = 0; i < v->n_segments; i++) {
        const struct llm_segment *s = &v->segments[i];
        const float *later = in + s->first / own * row;
        for (int64_t t = 0; t < s->follows && t < more; t++) {
            for (int64_t j = 0; j < more - t; j++) {
                const int64_t from = s->first + s->n + t - more + j;
                float *to = g->p + from * g->stride;
                if (from >= s->first) llm_k.elementwise.add(to, to, later + t * y->cols + j * cols, (size_t)cols);
            }
        }
    }
}

static void window_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("window backward", 2 * llm_tensor_bytes(n->out));
    const struct window *v = &((const struct window_args *)n->args)->v;
    struct llm_tensor *x = n->in[0], *y = n->out;
    struct llm_grad g;
    if (!llm_grad_open_zeroed(c, x, &g)) return;
    for (int64_t i = 0; i < v->n_segments; i++) {
        const struct llm_segment *s = &v->segments[i];
        for (int64_t t = s->first; t < s->first + s->n; t++) {
            for (int64_t j = 0; j < v->k; j++) {
                int64_t from = t - v->k + 1 + j;
                float *to = g.p + from * g.stride;
                if (from >= s->first) llm_k.elementwise.add(to, to, y->grad + t * y->grad_stride + j * x->cols, (size_t)x->cols);
            }
        }
    }
    if (llm_sequence_is_divided(c) && v->k > 1) add_later(c, v, &g, y);
}

struct llm_tensor *llm_window(struct llm_ctx *c, struct llm_tensor *x, int64_t k, const struct llm_segment *segments, int64_t n_segments)
{
    LLM_PROFILE("window", (double)(1 + k) * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_node n = {.backward = window_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    struct window v = {k, llm_op_alloc(c, n_segments, sizeof *segments), n_segments};
    n.out = llm_tensor_create(c, x->rows, x->cols * k);
    if (llm_ctx_failed(c)) return &c->nothing;
    memcpy(v.segments, segments, (size_t)n_segments * sizeof *segments);
    if (llm_sequence_is_divided(c) && k > 1 && !llm_sequence_inputs(c, v.segments, n_segments, x, k - 1)) return &c->nothing;
    for (int64_t i = 0; i < n_segments; i++) {
        const struct llm_segment *s = &v.segments[i];
        for (int64_t t = s->first; t < s->first + s->n; t++) {
            for (int64_t j = 0; j < k; j++) {
                int64_t from = t - k + 1 + j;
                float *to = n.out->data + t * n.out->stride + j * x->cols;
                const float *row = from >= s->first ? x->data + from * x->stride : s->from ? s->from + (t - s->first + j) * x->cols : NULL;
                if (row) memcpy(to, row, (size_t)x->cols * sizeof *to);
                else memset(to, 0, (size_t)x->cols * sizeof *to);
            }
        }
    }
    keep_inputs(&v, x);
    return llm_record(c, &n, &(struct window_args){v}, sizeof(struct window_args));
}

/* ---- gradient check ---- */

static const float check_state[2 * 5] = {.5f, -1, 2, .25f, 1, -2, .75f, 3, 1.5f, -.5f};
static const struct llm_segment check_segments[] = {{.first = 0, .n = 1}, {.first = 1, .n = 4, .from = check_state}, {.first = 5, .n = 6}};

static struct llm_tensor *check_run(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_window(c, in[0], 3, check_segments, 3);
}

static void check_formula(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)g, (void)p;
    for (int s = 0; s < 3; s++) {
        const struct llm_segment *q = &check_segments[s];
        for (int64_t t = q->first; t < q->first + q->n; t++) {
            for (int64_t j = 0; j < 3; j++) {
                for (int64_t i = 0; i < 5; i++) {
                    int64_t from = t - 2 + j;
                    double before = q->from && from < q->first ? (double)q->from[(t - q->first + j) * 5 + i] : 0;
                    y[t * 15 + j * 5 + i] = from >= q->first ? in[0][from * 5 + i] : before;
                }
            }
        }
    }
}

const struct llm_gradcheck llm_gradcheck_window[] = {
    {.name = "window of embeddings", .in = {{11, 5}}, .out = {11, 15}, .run = check_run, .formula = check_formula}, {0}};
