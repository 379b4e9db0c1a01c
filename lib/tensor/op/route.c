/* A router: which experts a token goes to, and with what weights. The backward pass also adds the gradients of the router's own losses.
 *
 * Balance loss (Switch Transformer, Fedus et al. 2021, 2.2; transformers' load_balancing_loss_func computes the same for one row). The loss of a row
 * of n tokens, with L routers of E experts, is E·Σ f[i]·P[i] over the experts i. f[i] is the number of times that the row's tokens choose i in all
 * layers, divided by L·n. P[i] is the mean of i's probability over these tokens and layers. The loss is the mean over rows.
 * z-loss (ST-MoE, Zoph et al. 2022, eq. 5), which keeps logits small: logsumexp², summed over layers, the mean over tokens. */
#include <math.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "dist/group.h"
#include "tensor/gradcheck.h"
#include "tensor/ops.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

enum { MAX_EXPERTS = LLM_MAX_EXPERTS };

struct route_args {
    struct llm_route o;
    const float *p;        /* [tokens, experts]: probabilities, or sigmoids */
    const int32_t *ids;    /* [tokens, k]; ~id if the expert had no capacity left */
    const int32_t *load, *own; /* [rows, experts]: how many of a row's tokens chose the expert; of this rank's tokens of the row */
    int64_t row_len, whole;    /* tokens of a row: this rank's, all */
    double token_weight;
};

static int32_t chosen_expert(int32_t id) { return id < 0 ? ~id : id; }

struct work {
    const struct llm_ctx *c;
    const struct llm_route *o;
    const struct llm_tensor *x, *y;
    const float *bias;
    const int32_t *given;  /* [tokens, k] or NULL: choices of an earlier pass */
    float *p;
    int32_t *ids;
    int32_t *load, *own, *before; /* [rows, experts]: of a row's tokens, of this rank's, of those of ranks before it (tensor/sequence.h) */
    int64_t row_len, whole, position; /* of a row: this rank's tokens, all tokens, the position of this rank's first */
};

/* The index of the highest of n scores that is not `out`; of equal scores the lowest index. */
static int64_t highest(const float *score, const bool *out, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!out[i] && (best < 0 || score[i] > score[best])) best = i;
    }
    return best;
}

/* Marks the experts outside the topk_group best groups as `out`. The score of a group is the sum of its group_top highest scores. */
static void limit_groups(const struct llm_route *o, const float *score, int64_t n, bool *out)
{
    float worth[MAX_EXPERTS];
    bool dropped[MAX_EXPERTS] = {false};
    int64_t size = n / o->n_group;
    for (int64_t g = 0; g < o->n_group; g++) {
        bool seen[MAX_EXPERTS] = {false};
        worth[g] = 0;
        for (int64_t i = 0; i < o->group_top && i < size; i++) {
            int64_t best = highest(score + g * size, seen, size);
            worth[g] += score[g * size + best];
            seen[best] = true;
        }
    }
    memset(out, true, (size_t)n);
    for (int64_t i = 0; i < o->topk_group; i++) {
        int64_t g = highest(worth, dropped, o->n_group);
        dropped[g] = true;
        memset(out + g * size, false, (size_t)size);
    }
}

/* Chooses the k experts of a token; ids ascend. */
static void choose(const struct work *w, const float *p, int32_t *ids)
{
    int64_t n = w->x->cols;
    float score[MAX_EXPERTS];
    bool out[MAX_EXPERTS] = {false};
    for (int64_t i = 0; i < n; i++) score[i] = p[i] + (w->bias ? w->bias[i] : 0);
    if (w->o->n_group > 1) limit_groups(w->o, score, n, out);
    for (int64_t s = 0; s < w->o->k; s++) {
        int64_t best = highest(score, out, n), at = s;
        out[best] = true;
        for (; at > 0 && ids[at - 1] > best; at--) ids[at] = ids[at - 1];
        ids[at] = (int32_t)best;
    }
}

static void add_noise(const struct work *w, int64_t row, int64_t position, float *p)
{
    struct llm_rng r = llm_rng_at(w->c->seed, w->c->step, LLM_RNG_ROUTER, w->c->layer, (uint32_t)(w->c->first_row + row), (uint32_t)position);
    for (int64_t i = 0; i < w->x->cols; i++) {
        double u = (double)llm_rng_uniform(&r, (uint32_t)i) + 0x1p-25;
        p[i] = (float)(((double)p[i] - log(-log(u))) / w->o->temperature);
    }
}

static void token(const struct work *w, int64_t row, int64_t t)
{
    const struct llm_route *o = w->o;
    int64_t n = w->x->cols;
    float *p = w->p + t * n, *y = w->y->data + t * w->y->stride;
    int32_t *ids = w->ids + t * o->k;
    memcpy(p, w->x->data + t * w->x->stride, (size_t)n * sizeof *p);
    if (o->gumbel && w->c->training) add_noise(w, row, w->position + t % w->row_len, p);
    if (o->sigmoid) llm_k.elementwise.act[LLM_ACT_SIGMOID](p, p, (size_t)n);
    else llm_k.rows.softmax(p, p, (size_t)n);
    if (w->given) memcpy(ids, w->given + t * o->k, (size_t)o->k * sizeof *ids);
    else choose(w, p, ids);
    double sum = 0;
    for (int64_t s = 0; s < o->k; s++) sum += (double)p[ids[s]];
    for (int64_t s = 0; s < o->k; s++) {
        double weight = o->straight_through ? 1 / (double)o->k : o->normalise ? (double)p[ids[s]] / (sum + 1e-20) : (double)p[ids[s]];
        y[s] = (float)(weight * o->scale);
    }
}

/* Routes the tokens of one row of the batch. */
static void forward_row(void *arg, size_t row, int thread)
{
    const struct work *w = arg;
    const struct llm_route *o = w->o;
    int64_t n = w->x->cols, first = (int64_t)row * w->row_len;
    int32_t *own = w->own + (int64_t)row * n;
    (void)thread;
    memset(own, 0, (size_t)n * sizeof *own);
    for (int64_t t = first; t < first + w->row_len; t++) {
        token(w, (int64_t)row, t);
        for (int64_t s = 0; s < o->k; s++) own[w->ids[t * o->k + s]]++;
    }
}

/* If experts have a capacity: a token that comes after it is used up is dropped. */
static void limit_row(void *arg, size_t row, int thread)
{
    const struct work *w = arg;
    const struct llm_route *o = w->o;
    int64_t n = w->x->cols, first = (int64_t)row * w->row_len, room = (int64_t)ceil(o->capacity * (double)(o->k * w->whole) / (double)n);
    int32_t *load = w->before + (int64_t)row * n;
    (void)thread;
    for (int64_t t = first; t < first + w->row_len; t++) {
        for (int64_t s = 0; s < o->k; s++) {
            int32_t *id = &w->ids[t * o->k + s];
            if (load[*id]++ < room) continue;
            *id = ~*id;
            w->y->data[t * w->y->stride + s] = 0;
        }
    }
}

/* What ranks that divide the rows have chosen: w->load and w->before from their w->own. False after a failure. */
static bool share_load(struct llm_ctx *c, const struct work *w, int64_t n)
{
    const int ranks = c->sequence ? c->sequence->ranks : 1;
    void *parts[LLM_MAX_PARTS_OF_ROW];
    size_t bytes[LLM_MAX_PARTS_OF_ROW];
    memset(w->before, 0, (size_t)n * sizeof *w->before);
    if (ranks == 1) return true;
    int32_t *all = llm_op_alloc(c, ranks * n, sizeof *all);
    for (int q = 0; q < ranks; q++) {
        parts[q] = all + q * n;
        bytes[q] = (size_t)n * sizeof *all;
    }
    if (!all) return false;
    memcpy(all + c->sequence->rank * n, w->own, (size_t)n * sizeof *all);
    if (llm_group_gather(c->sequence->group, parts, bytes, &c->err) < 0) return false;
    memset(w->load, 0, (size_t)n * sizeof *w->load);
    for (int64_t i = 0; i < ranks * n; i++) {
        w->load[i % n] += all[i];
        if (i / n < c->sequence->rank) w->before[i % n] += all[i];
    }
    return true;
}

struct back_work {
    const struct route_args *a;
    const int64_t *pooled; /* [rows, experts]: the load of all layers */
    double layers;
    const struct llm_tensor *x;
    const float *dy;
    int64_t dy_stride;
    struct llm_grad g;
    double *balance, *z;   /* [rows] */
};

/* Sets d[i] to the gradient with respect to p[i] of the token's weights and of the balance loss. */
static void token_by_probability(const struct back_work *w, const int64_t *pooled, int64_t t, double *d, double *balance)
{
    const struct llm_route *o = &w->a->o;
    const int32_t *ids = w->a->ids + t * o->k;
    const float *p = w->a->p + t * w->x->cols, *dy = w->dy + t * w->dy_stride;
    int64_t n = w->x->cols;
    double sum = 1e-20, weighted = 0, all = 0, spread = 0, even = (double)n / ((double)w->a->whole * w->layers);
    for (int64_t i = 0; i < n; i++) {
        d[i] = 0;
        all += (double)p[i];
    }
    if (!o->sigmoid) all = 1;
    bool shares = o->normalise || o->straight_through; /* weights are divided by their sum */
    for (int64_t s = 0; s < o->k; s++) {
        double pull = ids[s] < 0 ? 0 : (double)dy[s], chosen = (double)p[chosen_expert(ids[s])];
        sum += chosen;
        weighted += pull * chosen;
    }
    for (int64_t s = 0; s < o->k; s++) {
        double pull = ids[s] < 0 ? 0 : (double)dy[s];
        d[chosen_expert(ids[s])] = o->scale * (shares ? pull / sum - weighted / (sum * sum) : pull);
    }
    for (int64_t i = 0; i < n; i++) spread += even * (double)pooled[i] * (double)p[i] / all;
    *balance += spread / (double)w->a->whole;
    if (o->balance == 0) return;
    for (int64_t i = 0; i < n; i++) {
        double slope = even * (double)pooled[i];
        d[i] += w->a->token_weight * o->balance / w->layers * (o->sigmoid ? (slope - spread) / all : slope);
    }
}

static void backward_row(void *arg, size_t row, int thread)
{
    const struct back_work *w = arg;
    const struct llm_route *o = &w->a->o;
    int64_t n = w->x->cols, first = (int64_t)row * w->a->row_len;
    const int64_t *pooled = w->pooled + (int64_t)row * n;
    double d[MAX_EXPERTS], z = 0, balance = 0;
    (void)thread;
    for (int64_t t = first; t < first + w->a->row_len; t++) {
        const float *p = w->a->p + t * n, *x = w->x->data + t * w->x->stride;
        float *g = w->g.p + t * w->g.stride;
        double along = 0, top = -INFINITY, sum = 0;
        token_by_probability(w, pooled, t, d, &balance);
        for (int64_t i = 0; i < n; i++) {
            along += d[i] * (double)p[i];
            top = fmax(top, (double)x[i]);
        }
        for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - top);
        double lse = top + log(sum), pull = w->a->token_weight * o->z * 2 * lse;
        z += lse * lse;
        for (int64_t i = 0; i < n; i++) {
            double v = (double)p[i] * (o->sigmoid ? d[i] * (1 - (double)p[i]) : d[i] - along);
            if (o->gumbel) v /= o->temperature;
            if (pull != 0) v += pull * exp((double)x[i] - lse);
            g[i] = w->g.add ? g[i] + (float)v : (float)v;
        }
    }
    w->balance[row] = balance;
    w->z[row] = z;
}

/* Adds how many tokens chose each expert to the grad of the router's bias (llm_param.balances): counts, which are exact in any part's. */
static void count_load(const struct route_args *a, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t load = 0;
        for (int64_t row = 0; row < rows; row++) load += a->own[row * n + i];
        a->o.bias->grad[i] += (float)load;
    }
}

/* Adds the statistics of this router to a report, in the order of rows. */
static void note(struct llm_router_report *r, const struct route_args *a, const struct back_work *w, int64_t rows)
{
    int64_t n = w->x->cols, tokens = rows * a->row_len, max = 0;
    for (int64_t row = 0; row < rows; row++) {
        r->balance += w->balance[row] * (double)a->whole / (double)a->o.k;
        r->z += w->z[row];
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t load = 0;
        for (int64_t row = 0; row < rows; row++) load += a->load[row * n + i];
        if (load > max) max = load;
    }
    for (int64_t i = 0; i < tokens * a->o.k; i++) r->dropped += a->ids[i] < 0;
    r->peak += (double)max * (double)n / (double)a->o.k * (double)a->row_len / (double)a->whole; /* max / (tokens·k / n) × this rank's tokens */
    r->tokens += tokens;
}

static void route_backward(struct llm_ctx *c, struct llm_node *node)
{
    LLM_PROFILE("route backward", 2 * llm_tensor_bytes(node->in[0]));
    const struct route_args *a = node->args;
    struct llm_tensor *x = node->in[0];
    struct back_work w = {.a = a, .pooled = c->router_loads.sum, .layers = (double)c->router_loads.n_layers, .x = x, .dy = node->out->grad,
                          .dy_stride = node->out->grad_stride};
    int64_t rows = x->rows / a->row_len;
    w.balance = llm_op_alloc(c, rows, sizeof *w.balance);
    w.z = llm_op_alloc(c, rows, sizeof *w.z);
    if (llm_ctx_failed(c) || !llm_grad_open(c, x, &w.g)) return;
    llm_parallel((size_t)rows, backward_row, &w);
    if (a->o.bias && a->o.bias->grad) count_load(a, rows, x->cols);
    if (a->o.report) note(a->o.report, a, &w, rows);
}

/* Adds a layer's load to that of the pass. A layer that is recomputed is not added again. */
static void pool_load(struct llm_ctx *c, const int32_t *load, int64_t rows, int64_t experts)
{
    struct llm_router_loads *l = &c->router_loads;
    size_t n = (size_t)(rows * experts), layers = (size_t)c->layer + 1, known = l->n_layers > 0 ? l->n_seen : 0;
    if (llm_ctx_failed(c) || !(c->tape || c->training) || (c->layer < known && l->seen[c->layer])) return;
    if (llm_grow((void **)&l->sum, &l->room, n, sizeof *l->sum, &c->err) < 0
        || llm_grow((void **)&l->seen, &l->seen_room, layers, sizeof *l->seen, &c->err) < 0) return;
    if (l->n_layers == 0) {
        memset(l->sum, 0, n * sizeof *l->sum);
        l->rows = rows;
        l->experts = experts;
    } else if (rows != l->rows || experts != l->experts) {
        llm_op_fail(c, LLM_EX_FAILURE, "router: expected %lld experts and %lld rows, as in other layers, found %lld and %lld", (long long)l->experts,
                    (long long)l->rows, (long long)experts, (long long)rows);
        return;
    }
    if (layers > known) memset(l->seen + known, 0, (layers - known) * sizeof *l->seen);
    l->n_seen = layers > known ? layers : known;
    l->seen[c->layer] = true;
    l->n_layers++;
    for (size_t i = 0; i < n; i++) l->sum[i] += load[i];
}

/* Replay: the kept choices of the next n slots. NULL if choices are not replayed, and after a failure. */
static const int32_t *given_choices(struct llm_ctx *c, int64_t n)
{
    struct llm_choices *k = c->choices;
    if (!k || !k->replay) return NULL;
    k->at += (size_t)n;
    if (k->at <= k->n) return k->ids + k->at - n;
    llm_op_fail(c, LLM_EX_FAILURE, "router: expected a pass like the one whose choices were kept");
    return NULL;
}

static void keep_choices(struct llm_ctx *c, const int32_t *ids, int64_t n)
{
    struct llm_choices *k = c->choices;
    if (!k || k->replay || llm_grow((void **)&k->ids, &k->room, k->n + (size_t)n, sizeof *k->ids, &c->err) < 0) return;
    for (int64_t i = 0; i < n; i++) k->ids[k->n++] = chosen_expert(ids[i]);
}

struct llm_tensor *llm_route(struct llm_ctx *c, struct llm_tensor *x, const struct llm_route *o, const int32_t **experts)
{
    LLM_PROFILE("route", llm_tensor_bytes(x));
    if (llm_ctx_failed(c)) return &c->nothing;
    int64_t n = x->cols, row_len = x->rows ? llm_row_len(c, x->rows) : 1;
    if (n > MAX_EXPERTS || o->k < 1 || o->k > n || (o->n_group > 1 && (n % o->n_group || o->topk_group * (n / o->n_group) < o->k))) {
        return llm_op_fail(c, LLM_EX_FAILURE, "router: expected at most %d experts, of which %lld are chosen, found %lld in %lld groups",
                           (int)MAX_EXPERTS, (long long)o->k, (long long)n, (long long)o->n_group);
    }
    struct llm_node node = {.backward = route_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    node.out = llm_tensor_create(c, x->rows, o->k);
    const int64_t cells = x->rows / row_len * n, ranks = c->sequence ? c->sequence->ranks : 1;
    struct work w = {.c = c, .o = o, .x = x, .y = node.out, .row_len = row_len, .whole = row_len * ranks, .position = llm_sequence_first(c, row_len)};
    w.ids = llm_op_alloc(c, x->rows * o->k, sizeof *w.ids);
    w.p = llm_op_alloc(c, x->rows * n, sizeof *w.p);
    w.own = llm_op_alloc(c, cells, sizeof *w.own);
    w.load = ranks > 1 ? llm_op_alloc(c, cells, sizeof *w.load) : w.own;
    w.bias = o->bias ? llm_op_vector(c, o->bias, n) : NULL;
    w.given = given_choices(c, x->rows * o->k);
    if (llm_ctx_failed(c)) return &c->nothing;
    llm_parallel((size_t)(x->rows / row_len), forward_row, &w);
    const size_t scratch = llm_arena_mark(&c->acts);
    if (!(w.before = llm_op_alloc(c, cells, sizeof *w.before)) || !share_load(c, &w, cells)) return &c->nothing;
    if (o->capacity > 0 && c->training) llm_parallel((size_t)(x->rows / row_len), limit_row, &w);
    llm_arena_pop(&c->acts, scratch);
    keep_choices(c, w.ids, x->rows * o->k);
    pool_load(c, w.load, x->rows / row_len, n);
    *experts = w.ids;
    return llm_record(c, &node, &(struct route_args){*o, w.p, w.ids, w.load, w.own, row_len, w.whole, c->token_weight}, sizeof(struct route_args));
}

/* ---- gradient check ---- */

static const double check_bias[7] = {.1, -.2, .3, 0, .2, -.1, .05};

static void check_probabilities(const double *x, int64_t n, bool sigmoid, double *p)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i]);
    for (int64_t i = 0; i < n; i++) p[i] = sigmoid ? 1 / (1 + exp(-x[i])) : exp(x[i]) / sum;
}

/* The formula's choice: the k highest of p + bias, ids ascending. */
static void check_choice(const double *p, const double *bias, int64_t n, int64_t k, int64_t *ids)
{
    int64_t chosen = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t above = 0;
        for (int64_t j = 0; j < n; j++) above += p[j] + bias[j] > p[i] + bias[i];
        if (above < k) ids[chosen++] = i;
    }
}

static struct llm_tensor *check_softmax(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    const int32_t *experts;
    const struct llm_route o = {.k = 2, .normalise = true, .scale = 1.5};
    (void)p;
    return llm_route(c, in[0], &o, &experts);
}

static struct llm_tensor *check_sigmoid(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    static float values[7];
    static struct llm_param bias = {.name = "bias", .n_dims = 1, .shape = {7}, .weight = {.data = values, .dtype = LLM_F32, .n = 7, .k = 1}};
    const int32_t *experts;
    const struct llm_route o = {.k = 3, .sigmoid = true, .scale = 2.5, .bias = &bias};
    for (int i = 0; i < 7; i++) values[i] = (float)check_bias[i];
    (void)p;
    return llm_route(c, in[0], &o, &experts);
}

static void formula_softmax(const struct llm_gradcheck *g, const double *const *in, const double *const *param, double *y)
{
    static const double none[7];
    (void)param;
    for (int64_t t = 0; t < g->out.rows; t++) {
        double p[7];
        int64_t ids[2];
        check_probabilities(in[0] + t * 7, 7, false, p);
        check_choice(p, none, 7, 2, ids);
        for (int s = 0; s < 2; s++) y[t * 2 + s] = 1.5 * p[ids[s]] / (p[ids[0]] + p[ids[1]]);
    }
}

static void formula_sigmoid(const struct llm_gradcheck *g, const double *const *in, const double *const *param, double *y)
{
    (void)param;
    for (int64_t t = 0; t < g->out.rows; t++) {
        double p[7];
        int64_t ids[3];
        check_probabilities(in[0] + t * 7, 7, true, p);
        check_choice(p, check_bias, 7, 3, ids);
        for (int s = 0; s < 3; s++) y[t * 3 + s] = 2.5 * p[ids[s]];
    }
}

/* The balance loss and z-loss of the routers of two layers, alone: the gradient of the weights is zero. */
static struct llm_tensor *check_losses(struct llm_ctx *c, struct llm_tensor *const *in, bool sigmoid)
{
    const int32_t *experts;
    const struct llm_route o = {.k = 2, .sigmoid = sigmoid, .normalise = true, .scale = 1, .balance = .7, .z = .3};
    c->token_weight = .125;
    for (c->layer = 0; c->layer < 2; c->layer++) llm_tensor_grad(c, llm_route(c, in[c->layer], &o, &experts));
    c->layer = 0;
    return NULL;
}

static struct llm_tensor *check_losses_softmax(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return check_losses(c, in, false);
}

static struct llm_tensor *check_losses_sigmoid(struct llm_ctx *c, struct llm_tensor *const *in, struct llm_param *const *p)
{
    (void)p;
    return check_losses(c, in, true);
}

static void formula_losses(const struct llm_gradcheck *g, const double *const *in, bool sigmoid, double *y)
{
    static const double none[7];
    int64_t row_len = g->in[0].rows / 2;
    *y = 0;
    for (int64_t row = 0; row < 2; row++) {
        double load[7] = {0}, mean[7] = {0};
        for (int64_t at = 0; at < 2 * row_len; at++) {
            const double *x = in[at / row_len];
            int64_t t = row * row_len + at % row_len;
            double p[7], all = 0, sum = 0;
            int64_t ids[2];
            check_probabilities(x + t * 7, 7, sigmoid, p);
            check_choice(p, none, 7, 2, ids);
            for (int s = 0; s < 2; s++) load[ids[s]]++;
            for (int i = 0; i < 7; i++) {
                all += p[i];
                sum += exp(x[t * 7 + i]);
            }
            for (int i = 0; i < 7; i++) mean[i] += p[i] / all / (double)(2 * row_len);
            *y += .125 * .3 * log(sum) * log(sum);
        }
        for (int i = 0; i < 7; i++) *y += .125 * (double)row_len * .7 * 7 * load[i] / (double)(2 * row_len) * mean[i];
    }
}

static void formula_losses_softmax(const struct llm_gradcheck *g, const double *const *in, const double *const *param, double *y)
{
    (void)param;
    formula_losses(g, in, false, y);
}

static void formula_losses_sigmoid(const struct llm_gradcheck *g, const double *const *in, const double *const *param, double *y)
{
    (void)param;
    formula_losses(g, in, true, y);
}

#define LOSSES(kind) \
    {.name = "losses of two routers, " #kind, .in = {{10, 7}, {10, 7}}, .out = {1, 1}, .n_rows = 2, .spread = 1.5, .run = check_losses_##kind, \
     .formula = formula_losses_##kind}
const struct llm_gradcheck llm_gradcheck_route[] = {
    {.name = "router, softmax", .in = {{9, 7}}, .out = {9, 2}, .spread = 1.5, .run = check_softmax, .formula = formula_softmax},
    {.name = "router, sigmoid", .in = {{9, 7}}, .out = {9, 3}, .spread = 1.5, .run = check_sigmoid, .formula = formula_sigmoid},
    LOSSES(softmax), LOSSES(sigmoid), {0}};
