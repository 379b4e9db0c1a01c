/* Gradients and parameters between ranks (train/share.h). */
#include "train/share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/optim.h"
#include "cpu/pool.h"
#include "cpu/profile.h"

/* ---- who owns what ---- */

/* Whether parts of the parameter can be updated by different ranks. */
static bool is_cut(const struct llm_trainable *t)
{
    return !t->p->balances && !t->p->running && !t->optim->update_matrix;
}

static size_t cells_of(const struct llm_trainable *t)
{
    return is_cut(t) ? ((size_t)llm_param_count(t->p) + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK : 1;
}

static int make_cells(struct llm_share *s, struct llm_trainable *t, size_t n_params, struct llm_err *e)
{
    size_t total = 0, k = 0, done = 0;
    for (size_t i = 0; i < n_params; i++) s->n_cells += cells_of(&t[i]);
    s->cells = llm_calloc(s->n_cells, sizeof *s->cells, "the ranks' shares", e);
    s->squares = llm_calloc(s->n_cells, sizeof *s->squares, "the ranks' shares", e);
    s->first_cell = llm_calloc((size_t)s->n + 1, sizeof *s->first_cell, "the ranks' shares", e);
    if (!s->cells || !s->squares || !s->first_cell) return -1;
    for (size_t i = 0; i < n_params; i++) {
        size_t count = (size_t)llm_param_count(t[i].p), step = is_cut(&t[i]) ? LLM_OPTIM_BLOCK : count;
        total += count;
        for (size_t at = 0; at < count; at += step) s->cells[k++] = (struct llm_share_cell){i, at, count - at < step ? count - at : step};
    }
    /* A cell goes to the rank in whose part of the elements its middle lies. */
    int rank = 0;
    for (size_t c = 0; c < s->n_cells; c++) {
        const int owner = (int)((double)s->n * ((double)done + (double)s->cells[c].n / 2) / (double)total);
        while (rank < owner && rank < s->n - 1) s->first_cell[++rank] = c;
        done += s->cells[c].n;
    }
    while (rank < s->n) s->first_cell[++rank] = s->n_cells;
    return 0;
}

static void place_own(struct llm_share *s, struct llm_trainable *t, size_t n_params)
{
    for (size_t i = 0; i < n_params; i++) {
        t[i].partly = s->zero > 0;
        t[i].own_from = t[i].own_n = 0;
    }
    for (size_t c = s->first_cell[s->rank]; s->zero > 0 && c < s->first_cell[s->rank + 1]; c++) {
        struct llm_trainable *q = &t[s->cells[c].param];
        if (q->own_n == 0) q->own_from = s->cells[c].from;
        q->own_n += s->cells[c].n;
    }
}

static int make_nodes(struct llm_share *s, struct llm_err *e)
{
    s->first_node = llm_calloc((size_t)s->n + 1, sizeof *s->first_node, "the ranks' shares", e);
    if (!s->first_node) return -1;
    for (int q = 0; q < s->n; q++) {
        s->first_node[q + 1] = s->first_node[q] + (size_t)llm_shard_nodes(llm_shard_run(q, s->n, s->run.n), NULL);
    }
    s->n_nodes = s->first_node[s->n];
    s->nodes = llm_calloc(s->n_nodes, sizeof *s->nodes, "the ranks' shares", e);
    for (int q = 0; s->nodes && q < s->n; q++) llm_shard_nodes(llm_shard_run(q, s->n, s->run.n), s->nodes + s->first_node[q]);
    return s->nodes ? 0 : -1;
}

/* The end of the run of an owner's cells from `from` that travel together. */
static size_t bucket_end(const struct llm_share *s, int owner, size_t from)
{
    size_t n = 0, c = from, end = s->first_cell[owner + 1];
    while (c < end && (n == 0 || n + s->cells[c].n <= s->bucket)) n += s->cells[c++].n;
    return c;
}

static size_t elements(const struct llm_share *s, size_t from, size_t end)
{
    size_t n = 0;
    for (size_t c = from; c < end; c++) n += s->cells[c].n;
    return n;
}

static size_t own_nodes(const struct llm_share *s)
{
    return s->first_node[s->rank + 1] - s->first_node[s->rank];
}

/* Room for a bucket of each owner, as often as nodes of it leave or arrive. */
static int make_staging(struct llm_share *s, struct llm_err *e)
{
    const size_t staging = (size_t)LLM_COMM_BUCKET / sizeof(float);
    size_t largest = 0, all = 0;
    s->bucket = staging / s->n_nodes > LLM_OPTIM_BLOCK ? staging / s->n_nodes : LLM_OPTIM_BLOCK;
    for (int q = 0; q < s->n; q++) {
        size_t most = 0;
        for (size_t c = s->first_cell[q], end; c < s->first_cell[q + 1]; c = end) {
            end = bucket_end(s, q, c);
            size_t n = elements(s, c, end);
            if (n > most) most = n;
        }
        if (q == s->rank) largest = most;
        all += most;
    }
    size_t leave = own_nodes(s) * all, arrive = s->n_nodes * largest;
    if (arrive < all) arrive = all; /* gathering takes one of each owner's */
    s->send = llm_alloc_huge(leave, sizeof *s->send, "messages", e);
    s->receive = llm_alloc_huge(arrive, sizeof *s->receive, "messages", e);
    s->parts = llm_calloc((size_t)s->n, sizeof *s->parts, "messages", e);
    s->out = llm_calloc((size_t)s->n, sizeof *s->out, "messages", e);
    s->bytes = llm_calloc((size_t)s->n, sizeof *s->bytes, "messages", e);
    s->out_bytes = llm_calloc((size_t)s->n, sizeof *s->out_bytes, "messages", e);
    return s->send && s->receive && s->parts && s->out && s->bytes && s->out_bytes ? 0 : -1;
}

int llm_share_check(int64_t n_ranks, int64_t n_shards, struct llm_err *e)
{
    if (n_ranks <= n_shards) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--grad-shards: expected at least one shard for each of %lld ranks, found %lld", (long long)n_ranks,
                    (long long)n_shards);
}

struct llm_share_cost llm_share_cost(int64_t n_ranks, int64_t n_shards, double n_params)
{
    struct llm_share_cost c = {0};
    double all_nodes = 0, part = n_params / (double)n_ranks, bucket;
    for (int q = 0; q < n_ranks; q++) {
        const struct llm_shard_run run = llm_shard_run(q, (int)n_ranks, n_shards);
        const int64_t nodes = llm_shard_nodes(run, NULL), buffers = llm_shard_buffers(run);
        all_nodes += (double)nodes;
        c.nodes = nodes > c.nodes ? nodes : c.nodes;
        c.buffers = buffers > c.buffers ? buffers : c.buffers;
    }
    if (n_ranks == 1) return c;
    bucket = (double)LLM_COMM_BUCKET / 4 / all_nodes;
    if (bucket < LLM_OPTIM_BLOCK) bucket = LLM_OPTIM_BLOCK;
    if (bucket > part) bucket = part;
    c.staging = 4 * bucket * ((double)c.nodes * (double)n_ranks + all_nodes);
    c.sent = 4 * part * (double)(n_ranks - 1) * (double)(c.nodes + 1);
    return c;
}

int llm_share_init(struct llm_share *s, struct llm_comm *comm, const struct llm_layout *l, struct llm_trainable *t, size_t n_params, int64_t n_shards,
                   struct llm_err *e)
{
    *s = (struct llm_share){.comm = comm, .rank = llm_comm_rank(comm), .n = llm_comm_size(comm), .zero = comm ? (int)l->zero : 0};
    s->run = llm_shard_run(s->rank, s->n, n_shards);
    if (llm_share_check(s->n, n_shards, e) < 0) return -1;
    if (make_cells(s, t, n_params, e) < 0) return -1;
    place_own(s, t, n_params);
    return !comm ? 0 : make_nodes(s, e) < 0 || make_staging(s, e) < 0 ? -1 : 0;
}

void llm_share_release(struct llm_share *s)
{
    free(s->cells);
    free(s->first_cell);
    free(s->nodes);
    free(s->first_node);
    free(s->send);
    free(s->receive);
    free(s->squares);
    free(s->parts);
    free(s->out);
    free(s->bytes);
    free(s->out_bytes);
    *s = (struct llm_share){.comm = NULL};
}

/* ---- gradients ---- */

/* Elements of a cell of the rank's own node number i: the last lies in grad, those before it in buffers. */
static float *node_at(const struct llm_share *s, const struct llm_trainable *t, const struct llm_share_cell *c, size_t i)
{
    const struct llm_trainable *q = &t[c->param];
    float *base = i + 1 == own_nodes(s) ? q->p->grad : q->shards + i * llm_shard_stride(q->p);
    return base + c->from;
}

/* A bucket's cells: where each begins among the elements that travel. */
struct bucket { struct llm_share *s; struct llm_trainable *t; size_t from, end; size_t n; };

static size_t offset_of(const struct bucket *b, size_t cell)
{
    return elements(b->s, b->from, cell);
}

/* Adds the nodes of all ranks, one cell of the bucket, in the order of the tree. */
static void add_cell(void *arg, size_t i, int thread)
{
    const struct bucket *b = arg;
    const struct llm_share *s = b->s;
    const struct llm_share_cell *c = &s->cells[b->from + i];
    size_t at = offset_of(b, b->from + i), depth = 0;
    struct { struct llm_shard_node node; float *x; } stack[80]; /* each at most half of the one before it, but for roots, which join at once */
    (void)thread;
    for (size_t k = 0; k < s->n_nodes; k++) {
        bool own = k >= s->first_node[s->rank] && k < s->first_node[s->rank + 1];
        stack[depth].x = own ? node_at(s, b->t, c, k - s->first_node[s->rank]) : s->receive + k * b->n + at;
        stack[depth++].node = s->nodes[k];
        while (depth > 1 && llm_shard_joins(stack[depth - 2].node, stack[depth - 1].node, s->run.n)) {
            llm_k.elementwise.add(stack[depth - 2].x, stack[depth - 2].x, stack[depth - 1].x, c->n);
            stack[depth - 2].node.end = stack[depth - 1].node.end;
            depth--;
        }
    }
    float *grad = b->t[c->param].p->grad + c->from;
    if (stack[0].x != grad) memcpy(grad, stack[0].x, c->n * sizeof *grad);
}

/* Copies the nodes of a bucket of another owner to `to`, node by node. */
static void pack_nodes(const struct llm_share *s, const struct llm_trainable *t, size_t from, size_t end, float *to)
{
    for (size_t i = 0; i < own_nodes(s); i++) {
        for (size_t c = from; c < end; c++) {
            memcpy(to, node_at(s, t, &s->cells[c], i), s->cells[c].n * sizeof *to);
            to += s->cells[c].n;
        }
    }
}

int llm_share_reduce(struct llm_share *s, struct llm_trainable *t, struct llm_err *e)
{
    if (!s->comm) return 0;
    LLM_PROFILE("ranks: gradients", 0);
    size_t *at = llm_alloc((size_t)s->n, sizeof *at, "messages", e);
    if (!at) return -1;
    memcpy(at, s->first_cell, (size_t)s->n * sizeof *at);
    int got = 0;
    for (bool more = true; more && got == 0;) {
        float *send = s->send;
        const size_t end = bucket_end(s, s->rank, at[s->rank]), n = elements(s, at[s->rank], end);
        struct bucket mine = {s, t, at[s->rank], end, n};
        more = false;
        for (int q = 0; q < s->n; q++) {
            const size_t theirs = bucket_end(s, q, at[q]), leaves = q == s->rank ? 0 : elements(s, at[q], theirs) * own_nodes(s);
            s->out[q] = send;
            s->out_bytes[q] = leaves * sizeof *send;
            if (leaves > 0) pack_nodes(s, t, at[q], theirs, send);
            send += leaves;
            s->parts[q] = s->receive + s->first_node[q] * n;
            s->bytes[q] = q == s->rank ? 0 : (s->first_node[q + 1] - s->first_node[q]) * n * sizeof *send;
            at[q] = theirs;
            more |= theirs < s->first_cell[q + 1];
        }
        got = llm_comm_all_to_all(s->comm, s->out, s->out_bytes, s->parts, s->bytes, e);
        if (got == 0) llm_parallel(mine.end - mine.from, add_cell, &mine);
    }
    free(at);
    return got < 0 ? -1 : s->zero == 0 ? llm_share_gather(s, t, LLM_SHARE_GRADIENTS, e) : 0;
}

int llm_share_gather(struct llm_share *s, struct llm_trainable *t, enum llm_share_what what, struct llm_err *e)
{
    if (!s->comm) return 0;
    LLM_PROFILE("ranks: gathering", 0);
    size_t *at = llm_alloc((size_t)s->n, sizeof *at, "messages", e);
    if (!at) return -1;
    memcpy(at, s->first_cell, (size_t)s->n * sizeof *at);
    int got = 0;
    for (bool more = true; more && got == 0;) {
        float *part = s->receive;
        more = false;
        for (int q = 0; q < s->n; q++) {
            const size_t end = bucket_end(s, q, at[q]), n = elements(s, at[q], end);
            s->parts[q] = part;
            s->bytes[q] = n * sizeof *part;
            for (size_t c = at[q]; q == s->rank && c < end; c++) {
                const struct llm_share_cell *cell = &s->cells[c];
                const struct llm_param *p = t[cell->param].p;
                memcpy(part + elements(s, at[q], c), (what == LLM_SHARE_MASTERS ? p->master : p->grad) + cell->from, cell->n * sizeof *part);
            }
            part += n;
            more |= end < s->first_cell[q + 1];
        }
        got = llm_comm_gather(s->comm, s->parts, s->bytes, e);
        for (int q = 0; q < s->n && got == 0; q++) {
            const size_t end = bucket_end(s, q, at[q]);
            const float *x = s->parts[q];
            for (size_t c = at[q]; c < end; c++) {
                const struct llm_share_cell *cell = &s->cells[c];
                const struct llm_param *p = t[cell->param].p;
                if (q != s->rank) memcpy((what == LLM_SHARE_MASTERS ? p->master : p->grad) + cell->from, x, cell->n * sizeof *x);
                x += cell->n;
            }
            at[q] = end;
        }
    }
    free(at);
    return got;
}

int llm_share_norm(struct llm_share *s, struct llm_trainable *t, size_t n_params, double *norm, const struct llm_param **bad, struct llm_err *e)
{
    if (s->zero == 0) {
        *norm = llm_grad_norm(t, n_params, bad);
        return 0;
    }
    for (size_t c = s->first_cell[s->rank]; c < s->first_cell[s->rank + 1]; c++) {
        const struct llm_param *p = t[s->cells[c].param].p;
        s->squares[c] = p->balances || p->running ? 0 : llm_sum_squares(p->grad + s->cells[c].from, s->cells[c].n);
    }
    for (int q = 0; q < s->n; q++) {
        s->parts[q] = s->squares + s->first_cell[q];
        s->bytes[q] = (s->first_cell[q + 1] - s->first_cell[q]) * sizeof *s->squares;
    }
    if (llm_comm_gather(s->comm, s->parts, s->bytes, e) < 0) return -1;
    double sum = 0;
    *bad = NULL;
    for (size_t c = 0; c < s->n_cells;) {
        const size_t param = s->cells[c].param;
        double mine = 0;
        for (; c < s->n_cells && s->cells[c].param == param; c++) mine += s->squares[c];
        if (!isfinite(mine) && !*bad) *bad = t[param].p;
        if (!t[param].p->balances && !t[param].p->running) sum += mine;
    }
    *norm = sqrt(sum);
    return 0;
}

int llm_share_collect(struct llm_share *s, size_t param, const float *mine, float *all, struct llm_err *e)
{
    for (int q = 0; q < s->n; q++) {
        size_t from = 0, n = 0;
        for (size_t c = s->first_cell[q]; c < s->first_cell[q + 1]; c++) {
            if (s->cells[c].param != param) continue;
            if (n == 0) from = s->cells[c].from;
            n += s->cells[c].n;
        }
        s->out[q] = mine;
        s->out_bytes[q] = 0;
        s->parts[q] = s->rank == 0 ? all + from : NULL;
        s->bytes[q] = s->rank == 0 ? n * sizeof *all : 0;
        if (q == s->rank) s->out_bytes[0] = n * sizeof *all;
    }
    return llm_comm_all_to_all(s->comm, s->out, s->out_bytes, s->parts, s->bytes, e);
}

int llm_share_rows(struct llm_share *s, float *x, int64_t rows, int64_t width, struct llm_err *e)
{
    if (!s->comm) return 0;
    for (int q = 0; q < s->n; q++) {
        const struct llm_shard_run run = llm_shard_run(q, s->n, s->run.n);
        int64_t first = llm_shard_first(run.first, run.n, rows), end = llm_shard_first(run.end, run.n, rows);
        s->parts[q] = x + first * width;
        s->bytes[q] = (size_t)((end - first) * width) * sizeof *x;
    }
    return llm_comm_gather(s->comm, s->parts, s->bytes, e);
}
