/* The gradient as a sum of integers (train/share.h, --gradients int8), unit by unit: the largest magnitude of each block over all shards, the rank's
 * shards as integers of it, their sum, and the sum of the ranks'. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "train/share_internal.h"

enum { BLOCK = 256, LEVELS = 127 };

/* Bytes of an integer that is the sum of so many shards. */
static size_t width(int64_t shards)
{
    return shards == 1 ? 1 : shards * LEVELS <= INT16_MAX ? 2 : 4;
}

double llm_share_int8_sent(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o, double params,
                           double rounded)
{
    const double others = (double)(n_ranks - 1) / (double)n_ranks, part = params * others, largest = 4 * params / BLOCK * (double)(n_ranks - 1);
    const int64_t parts = llm_train_options_parts(o);
    const double back = l->zero > 0 ? sizeof(float) : (double)width(parts); /* weights, or the gradient */
    return part * ((double)width(llm_shard_rows(n_ranks, parts)) + back) - 2 * rounded * others + largest;
}

double llm_share_int8_memory(int64_t n_ranks, const struct llm_train_options *o, double n)
{
    return n * (sizeof(int32_t) + (double)width(llm_train_options_parts(o)) * (2 - 1 / (double)n_ranks));
}

static int64_t shards_of(const struct llm_share *s, int rank)
{
    const struct llm_shard_run run = llm_shard_run(rank, s->n, s->run.n);
    return run.end - run.first;
}

/* A unit at work. Cells are those of llm_share.listed, in that order; elements of a rank are those of its cells, one after the other. */
struct work {
    const struct llm_share *s;
    const struct llm_share_unit *u;
    size_t n_cells, n_blocks, n;    /* elements */
    struct place { size_t block, of_owner; } *places; /* [n_cells] its first block, its first element among those of its owner */
    size_t *elements;               /* [ranks] */
    uint32_t *largest;              /* [n_blocks] magnitudes, as bits of F32, whose order is that of the numbers, with infinities and NaN last */
    int32_t **sums;                 /* [ranks] of each rank's elements, of this rank's shards */
    void **packed, **arrived;       /* [ranks] as they travel */
};

static const struct llm_share_cell *cell_at(const struct work *w, size_t i)
{
    return &w->s->cells[w->s->listed[w->u->first + i]];
}

/* The gradient of the rank's shard number k, where llm_shard_keep has left it. */
static const float *shard_at(const struct work *w, const struct llm_share_cell *c, int64_t k)
{
    const struct llm_trainable *q = &w->s->t[c->param];
    const bool last = k == w->s->run.end - w->s->run.first - 1;
    return (last ? q->p->grad : q->shards + (size_t)k * llm_shard_stride(q->p)) + c->from;
}

static size_t blocks_of(size_t n)
{
    return (n + BLOCK - 1) / BLOCK;
}

static void find_largest(void *arg, size_t i, int thread)
{
    const struct work *w = arg;
    const struct llm_share_cell *c = cell_at(w, i);
    uint32_t *most = w->largest + w->places[i].block;
    (void)thread;
    for (int64_t k = 0; k < w->s->run.end - w->s->run.first; k++) {
        const float *x = shard_at(w, c, k);
        for (size_t j = 0; j < c->n; j++) {
            uint32_t bits;
            memcpy(&bits, &x[j], sizeof bits);
            bits &= INT32_MAX;
            if (bits > most[j / BLOCK]) most[j / BLOCK] = bits;
        }
    }
}

/* What 1 stands for in a block; NaN if a gradient is not finite. */
static float unit_of(uint32_t largest)
{
    float x;
    memcpy(&x, &largest, sizeof x);
    return isfinite(x) ? x / LEVELS : NAN;
}

static void add_shards(void *arg, size_t i, int thread)
{
    const struct work *w = arg;
    const struct llm_share_cell *c = cell_at(w, i);
    int32_t *sum = w->sums[c->owner] + w->places[i].of_owner;
    (void)thread;
    for (int64_t k = 0; k < w->s->run.end - w->s->run.first; k++) {
        const float *x = shard_at(w, c, k);
        for (size_t b = 0; b < blocks_of(c->n); b++) {
            const size_t end = (b + 1) * BLOCK < c->n ? (b + 1) * BLOCK : c->n;
            const float unit = unit_of(w->largest[w->places[i].block + b]);
            if (!(unit > 1e-36f)) continue; /* as good as 0, or not a number: then the result is NaN whatever the sum */
            for (size_t j = b * BLOCK; j < end; j++) sum[j] += (int32_t)lrintf(x[j] / unit);
        }
    }
}

static void put_gradient(void *arg, size_t i, int thread)
{
    const struct work *w = arg;
    const struct llm_share_cell *c = cell_at(w, i);
    const int32_t *sum = w->sums[c->owner] + w->places[i].of_owner;
    float *grad = w->s->t[c->param].p->grad + c->from;
    (void)thread;
    if (w->s->zero > 0 && c->owner != w->s->rank) return;
    for (size_t j = 0; j < c->n; j++) grad[j] = (float)sum[j] * unit_of(w->largest[w->places[i].block + j / BLOCK]);
}

static void pack(void *to, const int32_t *x, size_t n, size_t bytes)
{
    int8_t *bytes1 = to;
    int16_t *bytes2 = to;
    if (bytes == sizeof *x) memcpy(to, x, n * sizeof *x);
    for (size_t i = 0; bytes == 1 && i < n; i++) bytes1[i] = (int8_t)x[i];
    for (size_t i = 0; bytes == 2 && i < n; i++) bytes2[i] = (int16_t)x[i];
}

static void add_packed(int32_t *x, const void *from, size_t n, size_t bytes)
{
    const int8_t *bytes1 = from;
    const int16_t *bytes2 = from;
    const int32_t *bytes4 = from;
    for (size_t i = 0; i < n; i++) x[i] += bytes == 1 ? bytes1[i] : bytes == 2 ? bytes2[i] : bytes4[i];
}

/* The largest of all ranks. */
static int agree_on_largest(struct work *w, struct llm_err *e)
{
    const size_t bytes = w->n_blocks * sizeof *w->largest;
    if (!w->s->comm) return 0;
    uint32_t *all = llm_alloc((size_t)w->s->n * w->n_blocks, sizeof *all, "gradients", e);
    if (!all) return llm_comm_give_up(w->s->comm);
    memcpy(all + (size_t)w->s->rank * w->n_blocks, w->largest, bytes);
    const int got = llm_comm_gather_even(w->s->comm, all, bytes, e);
    for (size_t i = 0; got == 0 && i < (size_t)w->s->n * w->n_blocks; i++) {
        if (all[i] > w->largest[i % w->n_blocks]) w->largest[i % w->n_blocks] = all[i];
    }
    free(all);
    return got;
}

/* The owners add the ranks' sums; with zero 0 every rank then gets these. */
static int exchange(struct work *w, struct llm_err *e)
{
    const struct llm_share *s = w->s;
    const size_t mine = width(shards_of(s, s->rank)), whole = width(s->run.n), own = w->elements[s->rank];
    size_t *out = llm_calloc((size_t)s->n, sizeof *out, "gradients", e), *in = llm_calloc((size_t)s->n, sizeof *in, "gradients", e);
    int got = out && in ? 0 : llm_comm_give_up(s->comm);
    for (int q = 0; q < s->n && got == 0; q++) {
        out[q] = q == s->rank ? 0 : w->elements[q] * mine;
        in[q] = q == s->rank ? 0 : own * width(shards_of(s, q));
        if (q != s->rank) pack(w->packed[q], w->sums[q], w->elements[q], mine);
    }
    if (got == 0) got = llm_comm_all_to_all(s->comm, (const void *const *)w->packed, out, w->arrived, in, e);
    for (int q = 0; q < s->n && got == 0; q++) {
        if (q != s->rank) add_packed(w->sums[s->rank], w->arrived[q], own, width(shards_of(s, q)));
    }
    for (int q = 0; q < s->n && got == 0; q++) out[q] = w->elements[q] * whole;
    if (got == 0 && s->zero == 0) {
        pack(w->packed[s->rank], w->sums[s->rank], own, whole);
        got = llm_comm_gather(s->comm, w->packed, out, e);
        for (int q = 0; q < s->n && got == 0; q++) {
            if (q == s->rank) continue;
            memset(w->sums[q], 0, w->elements[q] * sizeof **w->sums);
            add_packed(w->sums[q], w->packed[q], w->elements[q], whole);
        }
    }
    free(out);
    free(in);
    return got;
}

static void release(struct work *w)
{
    for (int q = 0; q < w->s->n; q++) {
        if (w->sums) free(w->sums[q]);
        if (w->packed) free(w->packed[q]);
        if (w->arrived) free(w->arrived[q]);
    }
    free(w->places);
    free(w->elements);
    free(w->largest);
    free(w->sums);
    free(w->packed);
    free(w->arrived);
}

static int prepare(struct work *w, struct llm_err *e)
{
    const struct llm_share *s = w->s;
    w->n_cells = w->u->end - w->u->first;
    w->places = llm_calloc(w->n_cells, sizeof *w->places, "gradients", e);
    w->elements = llm_calloc((size_t)s->n, sizeof *w->elements, "gradients", e);
    w->sums = llm_calloc((size_t)s->n, sizeof *w->sums, "gradients", e);
    w->packed = llm_calloc((size_t)s->n, sizeof *w->packed, "gradients", e);
    w->arrived = llm_calloc((size_t)s->n, sizeof *w->arrived, "gradients", e);
    if (!w->places || !w->elements || !w->sums || !w->packed || !w->arrived) return -1;
    for (size_t i = 0; i < w->n_cells; i++) {
        const struct llm_share_cell *c = cell_at(w, i);
        w->places[i] = (struct place){w->n_blocks, w->elements[c->owner]};
        w->n_blocks += blocks_of(c->n);
        w->elements[c->owner] += c->n;
    }
    w->largest = llm_calloc(w->n_blocks, sizeof *w->largest, "gradients", e);
    const size_t own = w->elements[s->rank], most = width(s->run.n);
    for (int q = 0; q < s->n; q++) {
        w->sums[q] = llm_calloc(w->elements[q] + 1, sizeof **w->sums, "gradients", e);
        w->packed[q] = s->comm ? llm_alloc(w->elements[q] + 1, most, "gradients", e) : NULL;
        w->arrived[q] = s->comm && q != s->rank ? llm_alloc(own + 1, most, "gradients", e) : NULL;
        if (!w->sums[q] || (s->comm && !w->packed[q]) || (s->comm && q != s->rank && !w->arrived[q])) return -1;
    }
    return w->largest ? 0 : -1;
}

static int add_unit(struct llm_share *s, const struct llm_share_unit *u, struct llm_err *e)
{
    struct work w = {.s = s, .u = u};
    int got = prepare(&w, e) < 0 ? llm_comm_give_up(s->comm) : 0;
    if (got == 0) llm_parallel(w.n_cells, find_largest, &w);
    if (got == 0) got = agree_on_largest(&w, e);
    if (got == 0) llm_parallel(w.n_cells, add_shards, &w);
    if (got == 0 && s->comm) got = exchange(&w, e);
    if (got == 0) llm_parallel(w.n_cells, put_gradient, &w);
    release(&w);
    return got;
}

int llm_share_add_int8(struct llm_share *s, struct llm_err *e)
{
    LLM_PROFILE("gradients: int8", 0);
    for (size_t u = 0; u < s->n_units; u++) {
        if (add_unit(s, &s->units[u], e) < 0) return -1;
    }
    return 0;
}
