/* The plain formula of attention in double, forward and backward, and random problems for it. Shared by the attention tests. */
#ifndef LLM_TEST_ATTENTION_REFERENCE_H
#define LLM_TEST_ATTENTION_REFERENCE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "tensor/ops.h"

/* A row of a table of problems. bias and sinks: with them. documents: where documents begin, ends with 0. */
struct attn_case {
    const char *name;
    int64_t n_rows, row_len;
    struct llm_attn a;
    bool sinks, masked_keys;
    int32_t documents[8];
};

static const struct attn_case plain_case = {"plain", 2, 150, {.n_heads = 4, .n_kv_heads = 2, .d_k = 24, .d_v = 17, .causal = true},
                                            false, false, {0}};
static const struct attn_case packed_case = {"packed", 1, 333, {.n_heads = 4, .n_kv_heads = 2, .d_k = 13, .d_v = 16, .causal = true}, false, false,
                                             {1, 65, 70, 134, 300, 0}};
/* Of the documents that begin at 0, 1, 66 and 140 of two rows. */
static const int32_t prefixes[2 * 190] = {[0] = 1, [1] = 40, [66] = 1, [140] = 50, [191] = 65, [190 + 66] = 30};
static const struct attn_case cases[] = {
    {"one token", 1, 1, {.n_heads = 1, .n_kv_heads = 1, .d_k = 1, .d_v = 1, .causal = true}, false, false, {0}},
    {"causal", 2, 131, {.n_heads = 2, .n_kv_heads = 2, .d_k = 33, .d_v = 33, .causal = true}, false, false, {0}},
    {"bidirectional", 2, 64, {.n_heads = 3, .n_kv_heads = 1, .d_k = 64, .d_v = 64}, false, false, {0}},
    {"grouped, d_k > d_v", 1, 97, {.n_heads = 6, .n_kv_heads = 2, .d_k = 80, .d_v = 7, .causal = true}, false, false, {0}},
    {"window", 1, 200, {.n_heads = 2, .n_kv_heads = 1, .d_k = 16, .d_v = 16, .causal = true, .window = 16}, false, false, {0}},
    {"two-sided window", 1, 170, {.n_heads = 2, .n_kv_heads = 2, .d_k = 8, .d_v = 40, .window = 70}, false, false, {0}},
    {"prefix", 2, 150, {.n_heads = 2, .n_kv_heads = 2, .d_k = 16, .d_v = 16, .causal = true, .prefix = 75, .window = 30}, false, false, {0}},
    {"documents", 2, 190, {.n_heads = 2, .n_kv_heads = 1, .d_k = 16, .d_v = 24, .causal = true, .prefix = 3}, false, false, {1, 66, 140, 0}},
    {"bidirectional documents", 1, 190, {.n_heads = 1, .n_kv_heads = 1, .d_k = 16, .d_v = 16}, false, false, {70, 140, 0}},
    {"cross-attention", 2, 70, {.n_heads = 4, .n_kv_heads = 4, .d_k = 16, .d_v = 32, .kv_row_len = 133}, false, true, {0}},
    {"padded keys", 3, 80, {.n_heads = 1, .n_kv_heads = 1, .d_k = 16, .d_v = 16, .causal = true}, false, true, {0}},
    {"bias", 1, 140, {.n_heads = 4, .n_kv_heads = 2, .d_k = 16, .d_v = 16, .rel_max = 20}, false, false, {0}},
    {"causal bias", 2, 140, {.n_heads = 2, .n_kv_heads = 2, .d_k = 16, .d_v = 16, .rel_max = 200, .causal = true}, false, false, {1, 70, 0}},
    {"sinks", 1, 140, {.n_heads = 4, .n_kv_heads = 2, .d_k = 16, .d_v = 16, .causal = true, .window = 50}, true, false, {0}},
    {"soft-cap", 1, 140, {.n_heads = 2, .n_kv_heads = 1, .d_k = 16, .d_v = 16, .causal = true, .softcap = 3}, false, false, {0}},
    {"dropout", 2, 100, {.n_heads = 4, .n_kv_heads = 2, .d_k = 16, .d_v = 16, .causal = true, .dropout = 0.3f}, false, false, {0}},
    {"chunks", 1, 1100, {.n_heads = 1, .n_kv_heads = 1, .d_k = 8, .d_v = 8, .causal = true}, false, false, {0}},
    {"chunks, two-sided", 1, 20, {.n_heads = 2, .n_kv_heads = 1, .d_k = 8, .d_v = 8, .kv_row_len = 2100}, true, false, {0}},
    {"everything", 2, 210,
     {.n_heads = 6, .n_kv_heads = 3, .d_k = 20, .d_v = 12, .causal = true, .window = 90, .prefix = 5, .softcap = 8, .rel_max = 40, .dropout = 0.1f},
     true, true, {1, 66, 140, 0}},
    {"documents with prefixes of their own", 2, 190, {.n_heads = 4, .n_kv_heads = 2, .d_k = 16, .d_v = 24, .causal = true, .prefixes = prefixes},
     false, false, {1, 66, 140, 0}},
};
static const int n_cases = sizeof cases / sizeof *cases;

struct problem {
    const char *name;
    int64_t n_rows, row_len;
    struct llm_attn a; /* without its parameters */
    float *q, *k, *v, *d_out, *bias, *sinks;
    int32_t *starts, *kv_len;
};

static inline int64_t queries(const struct problem *p) { return p->n_rows * p->row_len; }
static inline int64_t key_row(const struct problem *p) { return p->a.kv_row_len ? p->a.kv_row_len : p->row_len; }
static inline int64_t keys(const struct problem *p) { return p->n_rows * key_row(p); }

static float *normals(uint32_t seed, uint32_t which, int64_t n, float scale)
{
    struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_TEST, which, 0, 0);
    float *x = malloc((size_t)(n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = scale * llm_rng_normal(&r, (uint32_t)i);
    return x;
}

/* q is three times a unit normal, so that scores deviate by 3. */
static struct problem problem_make(const struct attn_case *c, uint32_t seed)
{
    struct problem p = {.name = c->name, .n_rows = c->n_rows, .row_len = c->row_len, .a = c->a};
    struct llm_attn *a = &p.a;
    a->scale = 1 / sqrtf((float)a->d_k);
    p.q = normals(seed, 1, queries(&p) * a->n_heads * a->d_k, 3);
    p.k = normals(seed, 2, keys(&p) * a->n_kv_heads * a->d_k, 1);
    p.v = normals(seed, 3, keys(&p) * a->n_kv_heads * a->d_v, 1);
    p.d_out = normals(seed, 4, queries(&p) * a->n_heads * a->d_v, 1);
    if (a->rel_max) p.bias = normals(seed, 5, a->n_heads * (2 * a->rel_max - 1), 2);
    if (c->sinks) p.sinks = normals(seed, 6, a->n_heads, 2);
    if (c->documents[0]) {
        p.starts = calloc((size_t)queries(&p), sizeof *p.starts);
        for (int64_t t = 0; t < queries(&p); t++)
            for (int d = 0; c->documents[d]; d++)
                if (t % p.row_len >= c->documents[d]) p.starts[t] = c->documents[d];
        a->doc_start = p.starts;
    }
    if (c->masked_keys) { /* the first row sees nothing at all, or little */
        p.kv_len = calloc((size_t)p.n_rows, sizeof *p.kv_len);
        for (int64_t r = 0; r < p.n_rows; r++) p.kv_len[r] = (int32_t)(r * key_row(&p) * 4 / 5);
        a->kv_len = p.kv_len;
    }
    return p;
}

static void problem_release(struct problem *p)
{
    void *all[] = {p->q, p->k, p->v, p->d_out, p->bias, p->sinks, p->starts, p->kv_len};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Tokens [t, t + n) of a problem of one row as a problem of their own, which borrows from p. */
static inline struct problem problem_part(const struct problem *p, int64_t t, int64_t n)
{
    struct problem one = *p;
    one.row_len = n;
    one.a.doc_start = NULL;
    one.q += t * p->a.n_heads * p->a.d_k;
    one.k += t * p->a.n_kv_heads * p->a.d_k;
    one.v += t * p->a.n_kv_heads * p->a.d_v;
    one.d_out += t * p->a.n_heads * p->a.d_v;
    return one;
}

static bool visible(const struct problem *p, int64_t row, int64_t i, int64_t j)
{
    const struct llm_attn *a = &p->a;
    if (a->kv_len && j >= a->kv_len[row]) return false;
    int64_t start = 0;
    if (a->doc_start) {
        start = a->doc_start[row * p->row_len + i];
        if (a->doc_start[row * p->row_len + j] != start) return false;
    }
    if (j - start < (a->prefixes ? a->prefixes[row * p->row_len + start] : a->prefix)) return true;
    if (a->causal && j > i) return false;
    return a->window == 0 || llabs(i - j) < a->window;
}

static int64_t relative(const struct llm_attn *a, int64_t distance)
{
    if (distance > a->rel_max - 1) return 2 * a->rel_max - 2;
    return distance < 1 - a->rel_max ? 0 : distance + a->rel_max - 1;
}

struct reference { double *out, *lse, *dq, *dk, *dv, *d_bias, *d_sinks; };

static void reference_release(struct reference *r)
{
    double *all[] = {r->out, r->lse, r->dq, r->dk, r->dv, r->d_bias, r->d_sinks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* The inputs in double, as differences need them. */
struct inputs { double *q, *k, *v, *bias, *sinks; };

/* One query of one head: scores, probabilities, output, and all gradients it causes. */
static void reference_query(const struct problem *p, const struct inputs *x, struct reference *r, int64_t row, int64_t i, int64_t h)
{
    const struct llm_attn *a = &p->a;
    int64_t n = key_row(p), kv = h / (a->n_heads / a->n_kv_heads), t = row * p->row_len + i, width = 2 * a->rel_max - 1;
    const double *q = x->q + (t * a->n_heads + h) * a->d_k;
    double *s = calloc((size_t)n, sizeof *s), *slope = calloc((size_t)n, sizeof *slope), top = -INFINITY, sum = 0, d = 0;
    double *out = r->out + (t * a->n_heads + h) * a->d_v;
    const float *d_out = p->d_out + (t * a->n_heads + h) * a->d_v;
    struct llm_rng rng = llm_rng_at(11, 5, LLM_RNG_DROPOUT_ATTN, 2, (uint32_t)(3 + row), (uint32_t)i);
    for (int64_t j = 0; j < n; j++) {
        if (!visible(p, row, i, j)) continue;
        const double *k = x->k + ((row * n + j) * a->n_kv_heads + kv) * a->d_k;
        for (int64_t c = 0; c < a->d_k; c++) s[j] += q[c] * k[c];
        s[j] *= a->scale;
        slope[j] = 1;
        if (a->softcap > 0) {
            double y = tanh(s[j] / a->softcap);
            s[j] = a->softcap * y;
            slope[j] = 1 - y * y;
        }
        if (x->bias) s[j] += x->bias[h * width + relative(a, j - i)];
        top = fmax(top, s[j]);
    }
    if (x->sinks) top = fmax(top, x->sinks[h]);
    for (int64_t j = 0; j < n; j++) sum += visible(p, row, i, j) ? exp(s[j] - top) : 0;
    if (x->sinks) sum += exp(x->sinks[h] - top);
    r->lse[t * a->n_heads + h] = top + log(sum);
    for (int pass = 0; pass < 2; pass++) /* out and d first, then gradients */
        for (int64_t j = 0; j < n; j++) {
            if (!visible(p, row, i, j)) continue;
            int64_t key = (row * n + j) * a->n_kv_heads + kv;
            double prob = exp(s[j] - top) / sum, keep = 1, dp = 0;
            if (a->dropout > 0) keep = llm_rng_uniform(&rng, (uint32_t)(h * ((n + 3) / 4 * 4) + j)) < a->dropout ? 0 : 1 / (1 - (double)a->dropout);
            for (int64_t c = 0; c < a->d_v; c++) dp += x->v[key * a->d_v + c] * d_out[c] * keep;
            if (pass == 0) {
                for (int64_t c = 0; c < a->d_v; c++) out[c] += prob * keep * x->v[key * a->d_v + c];
                d += prob * dp;
                continue;
            }
            double ds = prob * (dp - d);
            for (int64_t c = 0; c < a->d_v; c++) r->dv[key * a->d_v + c] += prob * keep * d_out[c];
            if (x->bias) r->d_bias[h * width + relative(a, j - i)] += ds;
            for (int64_t c = 0; c < a->d_k; c++) {
                r->dq[(t * a->n_heads + h) * a->d_k + c] += ds * slope[j] * a->scale * x->k[key * a->d_k + c];
                r->dk[key * a->d_k + c] += ds * slope[j] * a->scale * q[c];
            }
        }
    if (x->sinks) r->d_sinks[h] -= exp(x->sinks[h] - top) / sum * d;
    free(s);
    free(slope);
}

static struct reference reference_at(const struct problem *p, const struct inputs *x)
{
    const struct llm_attn *a = &p->a;
    size_t tq = (size_t)(queries(p) * a->n_heads), tk = (size_t)(keys(p) * a->n_kv_heads), d_k = (size_t)a->d_k, d_v = (size_t)a->d_v;
    struct reference r = {calloc(tq * d_v, 8), calloc(tq, 8), calloc(tq * d_k, 8), calloc(tk * d_k, 8), calloc(tk * d_v, 8),
                          calloc((size_t)(a->n_heads * (2 * a->rel_max + 1)), 8), calloc((size_t)a->n_heads, 8)};
    for (int64_t row = 0; row < p->n_rows; row++)
        for (int64_t i = 0; i < p->row_len; i++)
            for (int64_t h = 0; h < a->n_heads; h++) reference_query(p, x, &r, row, i, h);
    return r;
}

static double *widened(const float *x, int64_t n)
{
    double *y = x ? malloc((size_t)(n + 1) * sizeof *y) : NULL;
    for (int64_t i = 0; x && i < n; i++) y[i] = x[i];
    return y;
}

static struct inputs inputs_of(const struct problem *p)
{
    const struct llm_attn *a = &p->a;
    return (struct inputs){widened(p->q, queries(p) * a->n_heads * a->d_k), widened(p->k, keys(p) * a->n_kv_heads * a->d_k),
                           widened(p->v, keys(p) * a->n_kv_heads * a->d_v), widened(p->bias, a->n_heads * (2 * a->rel_max - 1)),
                           widened(p->sinks, a->n_heads)};
}

static void inputs_release(struct inputs *x)
{
    free(x->q);
    free(x->k);
    free(x->v);
    free(x->bias);
    free(x->sinks);
}

static struct reference reference(const struct problem *p)
{
    struct inputs x = inputs_of(p);
    struct reference r = reference_at(p, &x);
    inputs_release(&x);
    return r;
}

static double reference_norm(const struct problem *p, const struct reference *r)
{
    double s = 0;
    int64_t tq = queries(p) * p->a.n_heads, tk = keys(p) * p->a.n_kv_heads;
    for (int64_t i = 0; i < tq * p->a.d_k; i++) s += r->dq[i] * r->dq[i];
    for (int64_t i = 0; i < tk * p->a.d_k; i++) s += r->dk[i] * r->dk[i];
    for (int64_t i = 0; i < tk * p->a.d_v; i++) s += r->dv[i] * r->dv[i];
    return sqrt(s);
}

/* Σ out·d_out with every input moved by `step` along a random direction; adds gradient · direction to *slope. */
static double reference_moved(const struct problem *p, const struct reference *r, double step, uint32_t seed, double *slope)
{
    struct inputs x = inputs_of(p);
    const struct llm_attn *a = &p->a;
    double *to[] = {x.q, x.k, x.v, x.bias, x.sinks}, *grad[] = {r->dq, r->dk, r->dv, r->d_bias, r->d_sinks}, sum = 0;
    int64_t n[] = {queries(p) * a->n_heads * a->d_k, keys(p) * a->n_kv_heads * a->d_k, keys(p) * a->n_kv_heads * a->d_v,
                   a->n_heads * (2 * a->rel_max - 1), a->n_heads};
    for (uint32_t which = 0; which < 5; which++) {
        float *direction = to[which] ? normals(seed, 20 + which, n[which], 1) : NULL;
        for (int64_t i = 0; direction && i < n[which]; i++) {
            to[which][i] += step * direction[i];
            *slope += grad[which][i] * direction[i];
        }
        free(direction);
    }
    struct reference moved = reference_at(p, &x);
    for (int64_t i = 0; i < queries(p) * a->n_heads * a->d_v; i++) sum += moved.out[i] * p->d_out[i];
    reference_release(&moved);
    inputs_release(&x);
    return sum;
}

/* The relative difference of the gradient and central differences along a random direction. */
static inline double reference_difference(const struct problem *p, uint32_t seed)
{
    struct reference r = reference(p);
    double slope = 0, unused = 0, step = 1e-5;
    double up = reference_moved(p, &r, step, seed, &slope), down = reference_moved(p, &r, -step, seed, &unused);
    double norm = reference_norm(p, &r);
    reference_release(&r);
    return fabs((up - down) / (2 * step) - slope) / fmax(norm, 1e-12);
}

#endif
