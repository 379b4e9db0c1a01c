/* Rotary position embeddings (RoPE): pairs of each head's channels are rotated by position · frequency. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "tensor/gradcheck.h"
#include "tensor/op/rope_internal.h"
#include "tensor/ops.h"

/* ---- the tables of cos and sin ---- */

/* A table of cosines and sines for one list of positions and frequencies. All heads and layers, q and k, forward and backward pass share it, and so
 * do steps with the same positions: a context keeps the last few tables. */
struct table {
    int64_t tokens, half, grid, grid_first;
    float magnitude;
    size_t room;              /* floats in `memory` */
    float *memory;            /* inv_freq [half], cos, sin, -sin [tokens][half] each */
    int32_t *positions;       /* [tokens] */
    size_t positions_room;
    float *cos, *sin, *minus_sin;
};
struct llm_rope_tables { struct table slot[4]; int next; };

/* The angle of pair i at a position (struct llm_rope). */
static double angle_of(const struct table *t, int64_t position, int64_t i)
{
    if (t->grid == 0) return (double)position * (double)t->memory[i];
    const int64_t place = position - t->grid_first;
    if (place < 0) return 0;
    const double at = (double)(i < t->half / 2 ? place / t->grid : place % t->grid);
    return 2 * M_PI * (2 * (at + .5) / (double)t->grid - 1) * (double)t->memory[i];
}

static void table_rows(void *arg, int64_t from, int64_t to, int thread)
{
    struct table *t = arg;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        for (int64_t i = 0; i < t->half; i++) {
            double angle = angle_of(t, t->positions[r], i);
            t->cos[r * t->half + i] = (float)(cos(angle) * (double)t->magnitude);
            t->sin[r * t->half + i] = (float)(sin(angle) * (double)t->magnitude);
            t->minus_sin[r * t->half + i] = -t->sin[r * t->half + i];
        }
    }
}

static bool table_fits(const struct table *t, const int32_t *positions, int64_t tokens, const struct llm_rope *r)
{
    int64_t half = r->rotary_dim / 2;
    return t->memory && t->tokens == tokens && t->half == half && t->magnitude == r->magnitude
        && t->grid == r->grid && t->grid_first == r->grid_first
        && memcmp(t->positions, positions, (size_t)tokens * sizeof *positions) == 0
        && memcmp(t->memory, r->inv_freq, (size_t)half * sizeof *r->inv_freq) == 0;
}

static int table_make(struct table *t, const int32_t *positions, int64_t tokens, const struct llm_rope *r, struct llm_err *e)
{
    int64_t half = r->rotary_dim / 2;
    t->tokens = 0;
    if (llm_grow((void **)&t->memory, &t->room, (size_t)(half + 3 * tokens * half), sizeof *t->memory, e) < 0
        || llm_grow((void **)&t->positions, &t->positions_room, (size_t)tokens, sizeof *t->positions, e) < 0) return -1;
    t->tokens = tokens;
    t->half = half;
    t->magnitude = r->magnitude;
    t->grid = r->grid;
    t->grid_first = r->grid_first;
    memcpy(t->memory, r->inv_freq, (size_t)half * sizeof *t->memory);
    memcpy(t->positions, positions, (size_t)tokens * sizeof *positions);
    t->cos = t->memory + half;
    t->sin = t->cos + tokens * half;
    t->minus_sin = t->sin + tokens * half;
    llm_for_rows(tokens, half * 64, table_rows, t); /* an angle costs about as much as 64 additions */
    return 0;
}

static const struct table *table_for(struct llm_ctx *c, const int32_t *positions, int64_t tokens, const struct llm_rope *r)
{
    if (!c->rope_tables) c->rope_tables = llm_calloc(1, sizeof *c->rope_tables, "rotary tables", &c->err);
    if (!c->rope_tables) return NULL;
    enum { SLOTS = sizeof c->rope_tables->slot / sizeof *c->rope_tables->slot };
    for (int i = 0; i < SLOTS; i++) {
        if (table_fits(&c->rope_tables->slot[i], positions, tokens, r)) return &c->rope_tables->slot[i];
    }
    struct table *t = &c->rope_tables->slot[c->rope_tables->next];
    c->rope_tables->next = (c->rope_tables->next + 1) % SLOTS;
    return table_make(t, positions, tokens, r, &c->err) == 0 ? t : NULL;
}

void llm_rope_tables_destroy(struct llm_rope_tables *t)
{
    for (size_t i = 0; t && i < sizeof t->slot / sizeof *t->slot; i++) {
        free(t->slot[i].memory);
        free(t->slot[i].positions);
    }
    free(t);
}

/* ---- the op ---- */

struct rope_args { const int32_t *positions; struct llm_rope rope; };
struct work {
    const struct llm_rope *r;
    const float *cos, *sin, *from;
    float *to;
    int64_t from_stride, to_stride, cols;
    bool add;
};

static void rotate_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    size_t half = (size_t)w->r->rotary_dim / 2, first = (size_t)w->r->first, rest = (size_t)(w->r->head_dim - w->r->rotary_dim) - first;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        for (int64_t h = 0; h < w->cols; h += w->r->head_dim) {
            const float *x = w->from + t * w->from_stride + h, *cos = w->cos + (size_t)t * half, *sin = w->sin + (size_t)t * half;
            float *y = w->to + t * w->to_stride + h;
            if (w->add) llm_k.elementwise.add(y, y, x, first);
            else if (first && x != y) memcpy(y, x, first * sizeof *y);
            x += first;
            y += first;
            if (w->r->pairing == LLM_ROPE_HALVES) llm_k.elementwise.rope_halves(y, x, cos, sin, w->add, half);
            else llm_k.elementwise.rope_interleaved(y, x, cos, sin, w->add, half);
            if (w->add) llm_k.elementwise.add(y + 2 * half, y + 2 * half, x + 2 * half, rest);
            else if (rest && x != y) memcpy(y + 2 * half, x + 2 * half, rest * sizeof *y);
        }
    }
}

/* The transpose of a rotation is the rotation by the negative angle. */
static void rope_backward(struct llm_ctx *c, struct llm_node *n)
{
    LLM_PROFILE("rope backward", 2 * llm_tensor_bytes(n->out));
    const struct rope_args *a = n->args;
    struct llm_tensor *x = n->in[0];
    struct work w = {.r = &a->rope, .from = n->out->grad, .from_stride = n->out->grad_stride, .cols = x->cols};
    const struct table *table = table_for(c, a->positions, x->rows, &a->rope);
    struct llm_grad g;
    if (!table || !llm_grad_open_over(c, x, n->out, &g)) return;
    w.cos = table->cos;
    w.sin = table->minus_sin;
    w.to = g.p;
    w.to_stride = g.stride;
    w.add = g.add;
    llm_for_rows(x->rows, x->cols, rotate_rows, &w);
}

struct llm_tensor *llm_rope(struct llm_ctx *c, struct llm_tensor *x, const int32_t *positions, const struct llm_rope *r)
{
    LLM_PROFILE("rope", 2 * llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    if (r->head_dim <= 0 || x->cols % r->head_dim || r->rotary_dim < 0 || r->first + r->rotary_dim > r->head_dim || r->rotary_dim % 2) {
        return llm_op_fail(c, LLM_EX_FAILURE, "rope: expected heads of %lld of which %lld (even) are rotated, found %lld columns",
                           (long long)r->head_dim, (long long)r->rotary_dim, (long long)x->cols);
    }
    struct llm_node n = {.backward = rope_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows, x->cols);
    const struct table *table = llm_ctx_failed(c) ? NULL : table_for(c, positions, x->rows, r);
    if (!table) return &c->nothing;
    struct work w = {.r = r, .cos = table->cos, .sin = table->sin, .from = x->data, .from_stride = x->stride, .to = n.out->data,
                     .to_stride = n.out->stride, .cols = x->cols};
    llm_for_rows(x->rows, x->cols, rotate_rows, &w);
    return llm_record(c, &n, &(struct rope_args){positions, *r}, sizeof(struct rope_args));
}

/* ---- gradient check ---- */

static const int32_t check_positions[5] = {0, 1, 2, 900, 5};
static const float check_frequencies[5] = {1, 0.3f, 0.1f, 0.03f, 0.01f};
static const struct llm_rope check_halves = {.head_dim = 17, .rotary_dim = 10, .pairing = LLM_ROPE_HALVES, .inv_freq = check_frequencies,
                                             .magnitude = 1, .first = 3};
static const struct llm_rope check_pairs = {.head_dim = 17, .rotary_dim = 10, .pairing = LLM_ROPE_INTERLEAVED, .inv_freq = check_frequencies,
                                            .magnitude = 1.25f};
static const struct llm_rope check_grid = {.head_dim = 17, .rotary_dim = 8, .pairing = LLM_ROPE_HALVES, .inv_freq = check_frequencies,
                                           .magnitude = 1, .grid = 31, .grid_first = 2};

static struct llm_tensor *run_halves(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_rope(c, llm_columns(c, in[0], 3, 51), check_positions, &check_halves);
}

static struct llm_tensor *run_pairs(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_add(c, llm_rope(c, in[0], check_positions, &check_pairs), llm_rope(c, in[0], check_positions, &check_halves));
}

static struct llm_tensor *run_grid(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return llm_rope(c, in[0], check_positions, &check_grid);
}

static double check_angle(const struct llm_rope *r, int64_t t, int64_t i)
{
    const double f = (double)check_frequencies[i], y = (check_positions[t] - 2) / 31 + .5, x = (check_positions[t] - 2) % 31 + .5;
    if (r->grid == 0) return check_positions[t] * f;
    return check_positions[t] < 2 ? 0 : 2 * M_PI * f * (2 * (i < 2 ? y : x) / 31 - 1);
}

/* y += x rotated; x has 3 heads of 17 channels */
static void formula(const struct llm_rope *r, const double *x, int64_t ldx, double *y)
{
    const bool halves = r->pairing == LLM_ROPE_HALVES;
    const int64_t n = r->rotary_dim / 2;
    for (int64_t t = 0; t < 5; t++) {
        for (int64_t h = 0; h < 51; h += 17) {
            const double *in = x + t * ldx + h;
            double *out = y + t * 51 + h;
            for (int64_t i = 0; i < n; i++) {
                int64_t a = r->first + (halves ? i : 2 * i), b = r->first + (halves ? i + n : 2 * i + 1);
                double angle = check_angle(r, t, i), m = (double)r->magnitude;
                out[a] += m * (in[a] * cos(angle) - in[b] * sin(angle));
                out[b] += m * (in[b] * cos(angle) + in[a] * sin(angle));
            }
            for (int64_t i = 0; i < 17; i++) out[i] += i < r->first || i >= r->first + 2 * n ? in[i] : 0;
        }
    }
}

static void formula_halves(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    memset(y, 0, (size_t)(g->out.rows * g->out.cols) * sizeof *y);
    formula(&check_halves, in[0] + 3, g->in[0].cols, y);
}

static void formula_pairs(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    memset(y, 0, (size_t)(g->out.rows * g->out.cols) * sizeof *y);
    formula(&check_pairs, in[0], 51, y);
    formula(&check_halves, in[0], 51, y);
}

static void formula_grid(const struct llm_gradcheck *g, const double *const *in, const double *const *p, double *y)
{
    (void)p;
    memset(y, 0, (size_t)(g->out.rows * g->out.cols) * sizeof *y);
    formula(&check_grid, in[0], 51, y);
}

const struct llm_gradcheck llm_gradcheck_rope[] = {
    {.name = "rope of a grid", .in = {{5, 51}}, .out = {5, 51}, .run = run_grid, .formula = formula_grid},
    {.name = "rope of halves of a view", .in = {{5, 56}}, .out = {5, 51}, .run = run_halves, .formula = formula_halves},
    {.name = "rope of both pairings", .in = {{5, 51}}, .out = {5, 51}, .run = run_pairs, .formula = formula_pairs}, {0}};
