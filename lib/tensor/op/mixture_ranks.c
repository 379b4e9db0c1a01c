/* A mixture whose experts the ranks of a group divide (expert parallelism; Lepikhin et al. 2021, GShard). Of n experts and E ranks, rank r has
 * experts [r·n/E, (r + 1)·n/E). Each rank has tokens of its own. It sends the hidden state of each slot to the rank that has the slot's expert, gets
 * the expert's output back, and adds the outputs of a token in the order of its slots. In the backward pass the hidden state travels once more, with
 * the gradient of the output and the router's weight; the gradients of the hidden state and of the weight come back.
 *
 * What a token gets does not depend on which other tokens an expert has, so all outputs and gradients of activations have the bits of one process. */
#include <string.h>
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "dist/group.h"
#include "tensor/sequence.h"
#include "tensor/op/mixture_internal.h"

/* What a rank says of its tokens: the slots of each of the receiver's experts, then: */
enum { TOKENS, ROW_LEN, SAID };

struct divided {
    struct llm_experts o;
    struct llm_places home;   /* of this rank's slots */
    int ranks, rank;
    int64_t own;              /* experts of each rank */
    int64_t *said;            /* [ranks, own + SAID] of each rank */
    int64_t n, *from;         /* slots that arrive; [ranks + 1]: the first of each rank's, in the order of arrival */
    int64_t *start;           /* [own·ranks + 1]: slots are sorted by expert, then by rank: the first of each such block */
    int32_t *row;             /* [n]: the number, in the order of arrival, of each sorted slot */
    float *gate, *up;         /* [n, width], sorted */
};

bool llm_mixture_is_divided(const struct llm_ctx *c, const struct llm_experts *o)
{
    return c->experts && (!o->gate[0]->weight.data || !o->gate[o->n - 1]->weight.data);
}

/* ---- messages ---- */

/* Tells each rank what is to come, and hears it from each. */
static bool announce(struct llm_ctx *c, struct divided *d, int64_t tokens)
{
    const int64_t each = d->own + SAID;
    int64_t *say = llm_op_alloc(c, d->ranks * each, sizeof *say);
    void **parts = llm_op_alloc(c, 2 * d->ranks, sizeof *parts);
    size_t *bytes = llm_op_alloc(c, d->ranks, sizeof *bytes);
    if (llm_ctx_failed(c)) return false;
    for (int q = 0; q < d->ranks; q++) {
        for (int64_t e = 0; e < d->own; e++) say[q * each + e] = d->home.start[q * d->own + e + 1] - d->home.start[q * d->own + e];
        say[q * each + d->own + TOKENS] = tokens;
        say[q * each + d->own + ROW_LEN] = tokens ? llm_row_len(c, tokens) : 1;
        parts[q] = say + q * each;
        parts[d->ranks + q] = d->said + q * each;
        bytes[q] = (size_t)each * sizeof *say;
    }
    return llm_group_exchange(c->experts, parts, bytes, parts + d->ranks, bytes, &c->err) == 0;
}

/* Rows of `cols` floats go from `home`, where they are in the order of places, to `there`, where they are in the order of arrival; or `back`. */
static bool travel(struct llm_ctx *c, const struct divided *d, float *home, float *there, int64_t cols, bool back)
{
    LLM_PROFILE("experts: exchange", 0);
    void **parts = llm_op_alloc(c, 2 * d->ranks, sizeof *parts);
    size_t *bytes = llm_op_alloc(c, 2 * d->ranks, sizeof *bytes);
    if (llm_ctx_failed(c)) return false;
    for (int q = 0; q < d->ranks; q++) {
        const int64_t first = d->home.start[q * d->own], end = d->home.start[(q + 1) * d->own];
        parts[q] = home + first * cols;
        parts[d->ranks + q] = there + d->from[q] * cols;
        bytes[q] = (size_t)((end - first) * cols) * sizeof *home;
        bytes[d->ranks + q] = (size_t)((d->from[q + 1] - d->from[q]) * cols) * sizeof *there;
    }
    const int out = back ? d->ranks : 0, in = d->ranks - out;
    return llm_group_exchange(c->experts, parts + out, bytes + out, parts + in, bytes + in, &c->err) == 0;
}

/* ---- order ---- */

/* Where the slots that arrive are sorted to. */
static bool sort(struct llm_ctx *c, struct divided *d)
{
    const int64_t each = d->own + SAID;
    d->from = llm_op_alloc(c, d->ranks + 1, sizeof *d->from);
    d->start = llm_op_alloc(c, d->own * d->ranks + 1, sizeof *d->start);
    int64_t *next = llm_op_alloc(c, d->ranks, sizeof *next), n = 0;
    if (llm_ctx_failed(c)) return false;
    for (int q = 0; q < d->ranks; q++) {
        d->from[q] = next[q] = n;
        for (int64_t e = 0; e < d->own; e++) n += d->said[q * each + e];
    }
    d->from[d->ranks] = d->n = n;
    if (n > INT32_MAX) llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected at most 2^31 - 1 slots, found %lld", d->o.gate[0]->name, (long long)n);
    d->row = llm_op_alloc(c, n, sizeof *d->row);
    if (llm_ctx_failed(c)) return false;
    n = 0;
    for (int64_t b = 0; b < d->own * d->ranks; b++) {
        const int64_t q = b % d->ranks;
        d->start[b] = n;
        for (int64_t i = d->said[q * each + b / d->ranks]; i > 0; i--) d->row[n++] = (int32_t)next[q]++;
    }
    d->start[d->own * d->ranks] = n;
    return true;
}

struct sort_work { const int32_t *row; float *arrived, *sorted; int64_t arrived_stride, cols; bool back; };

static void sort_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct sort_work *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        float *arrived = w->arrived + w->row[i] * w->arrived_stride, *sorted = w->sorted + i * w->cols;
        memcpy(w->back ? arrived : sorted, w->back ? sorted : arrived, (size_t)w->cols * sizeof *sorted);
    }
}

/* Copies columns of the rows that have arrived to sorted ones; or `back`. */
static void copy_sorted(const struct divided *d, float *arrived, int64_t arrived_stride, float *sorted, int64_t cols, bool back)
{
    struct sort_work w = {d->row, arrived, sorted, arrived_stride, cols, back};
    llm_for_rows(d->n, cols, sort_rows, &w);
}

/* ---- forward ---- */

static bool forward(struct llm_ctx *c, const struct divided *d, const struct llm_tensor *x, const struct llm_tensor *weights, struct llm_tensor *y)
{
    const int64_t hidden = x->cols, width = d->o.gate[0]->weight.n;
    float *home = llm_op_alloc(c, d->home.n * hidden, sizeof *home), *there = llm_op_alloc(c, d->n * hidden, sizeof *there);
    float *rows = llm_op_alloc(c, d->n * hidden, sizeof *rows), *inner = llm_op_alloc(c, d->n * width, sizeof *inner);
    if (llm_ctx_failed(c)) return false;
    llm_places_gather(&d->home, x->data, x->stride, home, hidden, hidden);
    if (!travel(c, d, home, there, hidden, false)) return false;
    copy_sorted(d, there, hidden, rows, hidden, false);
    for (int64_t e = 0; e < d->own; e++) {
        const int64_t at = d->start[e * d->ranks], m = d->start[(e + 1) * d->ranks] - at, number = d->rank * d->own + e;
        float *gate = d->gate + at * width, *up = d->up + at * width;
        if (m == 0) continue;
        if (!llm_expert_product(c, d->o.gate[number], false, rows + at * hidden, gate, m, false)) return false;
        if (!llm_expert_product(c, d->o.up[number], false, rows + at * hidden, up, m, false)) return false;
        llm_expert_act(d->o.act, gate, up, inner + at * width, m, width);
        /* The rows that gate and up have read are then free. */
        if (!llm_expert_product(c, d->o.down[number], false, inner + at * width, rows + at * hidden, m, false)) return false;
    }
    copy_sorted(d, there, hidden, rows, hidden, true);
    if (!travel(c, d, home, there, hidden, true)) return false;
    llm_places_combine(&d->home, home, hidden, weights, y->data, y->stride, y->rows, y->cols, false);
    return true;
}

/* ---- backward ---- */

/* A row of a message: the hidden state, the gradient of the output, the router's weight, the slot. Its answer: the gradients of the hidden state and
 * of the weight. */
static int64_t ask_cols(int64_t hidden) { return 2 * hidden + 2; }
static int64_t answer_cols(int64_t hidden) { return hidden + 1; }

/* Sorted slots that have arrived. */
struct back {
    const struct divided *d;
    const float *ask;         /* [n, ask_cols], in the order of arrival */
    float *answer;            /* [n, answer_cols], likewise */
    float *x, *d_out;         /* [n, hidden] */
    float *inner, *d_inner;   /* [n, width] */
    int32_t *slot;            /* [n] */
    int64_t *starts;          /* [n + 1] */
    int64_t hidden, width, k;
};

static void weigh_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct back *w = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        const int64_t at = w->d->row[i];
        const float weight = w->ask[at * ask_cols(w->hidden) + 2 * w->hidden];
        w->answer[at * answer_cols(w->hidden) + w->hidden] = llm_expert_weigh(w->d_inner + i * w->width, w->inner + i * w->width, w->width,
                                                                               w->d_out + i * w->hidden, w->hidden, weight);
    }
}

/* The gradients of a matrix of expert e of this rank, by each part of the rows of each rank. dy and x: [n, p's rows and columns] */
static bool gradients(struct llm_ctx *c, const struct back *w, int64_t e, struct llm_param *p, const float *dy, const float *x)
{
    const struct divided *d = w->d;
    const int64_t parts = llm_sequence_parts(c);
    for (int q = 0; q < d->ranks; q++) {
        const int64_t *start = d->start + e * d->ranks + q, *said = d->said + q * (d->own + SAID) + d->own;
        const struct llm_folds folds = {.row_len = said[ROW_LEN] / parts, .parts = parts};
        const int64_t blocks = llm_expert_folds(w->slot, w->k, start[0], start[1], said[TOKENS], folds.row_len, w->starts);
        const float *own_dy = dy + start[0] * p->weight.n, *own_x = x + start[0] * p->weight.k;
        if (!llm_expert_gradients(c, p, q * (int)parts, &folds, w->slot + start[0], w->k, own_dy, own_x, w->starts, blocks)) return false;
    }
    return true;
}

/* What this rank's experts do with the slots that have arrived. */
static bool answer(struct llm_ctx *c, const struct back *w)
{
    const struct divided *d = w->d;
    llm_expert_act(d->o.act, d->gate, d->up, w->inner, d->n, w->width);
    for (int64_t e = 0; e < d->own; e++) {
        const int64_t at = d->start[e * d->ranks], m = d->start[(e + 1) * d->ranks] - at;
        struct llm_param *down = d->o.down[d->rank * d->own + e];
        if (m > 0 && !llm_expert_product(c, down, true, w->d_out + at * w->hidden, w->d_inner + at * w->width, m, false)) return false;
    }
    llm_for_rows(d->n, w->width, weigh_rows, (void *)w);
    for (int64_t e = 0; e < d->own; e++) {
        if (!gradients(c, w, e, d->o.down[d->rank * d->own + e], w->d_out, w->inner)) return false;
    }
    llm_expert_act_back(d->o.act, d->gate, d->up, w->d_inner, w->inner, d->n, w->width);
    for (int64_t e = 0; e < d->own; e++) {
        const int64_t at = d->start[e * d->ranks], m = d->start[(e + 1) * d->ranks] - at, number = d->rank * d->own + e;
        struct llm_param *gate = d->o.gate[number], *up = d->o.up[number];
        float *dx = w->d_out + at * w->hidden;
        if (m == 0) continue;
        if (!gradients(c, w, e, gate, w->d_inner, w->x) || !gradients(c, w, e, up, w->inner, w->x)) return false;
        if (!llm_expert_product(c, gate, true, w->d_inner + at * w->width, dx, m, false)
            || !llm_expert_product(c, up, true, w->inner + at * w->width, dx, m, true)) return false;
    }
    copy_sorted(d, w->answer, answer_cols(w->hidden), w->d_out, w->hidden, true);
    return true;
}

static void divided_backward(struct llm_ctx *c, struct llm_node *node)
{
    LLM_PROFILE("mixture backward", 0);
    const struct divided *d = node->args;
    const struct llm_places *p = &d->home;
    struct llm_tensor *x = node->in[0], *weights = node->in[1], *y = node->out;
    struct llm_grad g;
    struct back w = {.d = d, .hidden = x->cols, .width = d->o.gate[0]->weight.n, .k = p->k};
    const int64_t ask = ask_cols(w.hidden), answers = answer_cols(w.hidden);
    float *home = llm_op_alloc(c, p->n * ask, sizeof *home), *there = llm_op_alloc(c, d->n * ask, sizeof *there);
    w.ask = there;
    w.answer = llm_op_alloc(c, d->n * answers, sizeof *w.answer);
    w.x = llm_op_alloc(c, d->n * w.hidden, sizeof *w.x);
    w.d_out = llm_op_alloc(c, d->n * w.hidden, sizeof *w.d_out);
    w.inner = llm_op_alloc(c, d->n * w.width, sizeof *w.inner);
    w.d_inner = llm_op_alloc(c, d->n * w.width, sizeof *w.d_inner);
    w.slot = llm_op_alloc(c, d->n, sizeof *w.slot);
    w.starts = llm_op_alloc(c, d->n + 1, sizeof *w.starts);
    if (llm_ctx_failed(c)) return;
    llm_places_gather(p, x->data, x->stride, home, ask, w.hidden);
    llm_places_gather(p, y->grad, y->grad_stride, home + w.hidden, ask, w.hidden);
    for (int64_t i = 0; i < p->n; i++) {
        float *end = home + i * ask + 2 * w.hidden;
        end[0] = weights->data[p->slot[i] / p->k * weights->stride + p->slot[i] % p->k];
        memcpy(end + 1, &p->slot[i], sizeof *p->slot);
    }
    if (!travel(c, d, home, there, ask, false)) return;
    copy_sorted(d, there, ask, w.x, w.hidden, false);
    copy_sorted(d, there + w.hidden, ask, w.d_out, w.hidden, false);
    for (int64_t i = 0; i < d->n; i++) memcpy(&w.slot[i], there + d->row[i] * ask + 2 * w.hidden + 1, sizeof *w.slot);
    if (!answer(c, &w) || !travel(c, d, home, w.answer, answers, true)) return;
    if (llm_grad_open_zeroed(c, weights, &g)) { /* each slot has one place */
        for (int64_t i = 0; i < p->n; i++) g.p[p->slot[i] / p->k * g.stride + p->slot[i] % p->k] += home[i * answers + w.hidden];
    }
    if (llm_grad_open(c, x, &g)) llm_places_combine(p, home, answers, NULL, g.p, g.stride, x->rows, w.hidden, g.add);
}

struct llm_tensor *llm_mixture_divided(struct llm_ctx *c, struct llm_node *node, const int32_t *experts, const struct llm_experts *o)
{
    const struct llm_tensor *x = node->in[0], *weights = node->in[1];
    struct divided d = {.o = *o, .home = {.k = weights->cols}, .ranks = llm_group_size(c->experts), .rank = llm_group_rank(c->experts)};
    if (o->inner) return llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected no observer of experts that ranks divide", o->gate[0]->name);
    node->backward = divided_backward;
    d.own = o->n / d.ranks;
    node->out = llm_tensor_create(c, x->rows, x->cols);
    const bool wanted = llm_tape_wants(c, node);
    const size_t scratch = llm_arena_mark(&c->acts);
    d.said = llm_op_alloc(c, d.ranks * (d.own + SAID), sizeof *d.said);
    if (llm_ctx_failed(c) || !llm_places_find(c, &d.home, experts, x->rows, o->n)) return &c->nothing;
    if (!announce(c, &d, x->rows) || !sort(c, &d)) return &c->nothing;
    d.gate = llm_op_alloc(c, d.n * o->gate[0]->weight.n, sizeof *d.gate);
    d.up = llm_op_alloc(c, d.n * o->gate[0]->weight.n, sizeof *d.up);
    const size_t kept = llm_arena_mark(&c->acts);
    if (llm_ctx_failed(c) || !forward(c, &d, x, weights, node->out)) return &c->nothing;
    llm_arena_pop(&c->acts, wanted ? kept : scratch);
    node->out->spare = true;
    return llm_record(c, node, &d, sizeof d);
}
