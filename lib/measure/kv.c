#include "measure/kv.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "cpu/pool.h"

struct job {
    const struct llm_kv_file *a, *b;
    struct llm_kv_head *heads;
    struct llm_kv_difference *diffs;
    char what;
    float *maps;
    int64_t n;      /* diff: common tokens */
    bool no_memory; /* any thread sets it, none resets it */
};

/* ---- norms ---- */

struct moments { double mean, sd, first; };

static struct moments norms(const struct llm_kv_file *f, char what, int64_t layer, int64_t head, float *row, float *map)
{
    int64_t d = what == 'v' ? f->shape.d_v : f->shape.d_k;
    struct moments m = {0};
    double squares = 0;
    for (int64_t t = 0; t < f->n; t++) {
        double sum = 0;
        llm_kv_file_decode(f, what, layer, t, head, row);
        for (int64_t i = 0; i < d; i++) sum += (double)row[i] * (double)row[i];
        double norm = sqrt(sum), delta = norm - m.mean;
        if (t == 0) m.first = norm;
        if (map) map[t] = (float)norm;
        m.mean += delta / (double)(t + 1); /* Welford */
        squares += delta * (norm - m.mean);
    }
    m.sd = f->n > 1 ? sqrt(squares / (double)(f->n - 1)) : 0;
    return m;
}

/* ---- attention of the traced queries ---- */

/* Probabilities p[0..t] of one query of a layer at token t. */
static int64_t attend(const struct llm_kv_file *f, int64_t layer, const float *keys, const float *query, int64_t t, double *p)
{
    int64_t d = f->shape.d_k, window = llm_config_window(&f->config, layer), first = 0;
    double max = -INFINITY, sum = 0, scale = llm_config_attention_scale(&f->config), cap = f->config.attn_logit_softcapping;
    while (window > 0 && f->positions[t] - f->positions[first] >= window) first++;
    for (int64_t j = 0; j < first; j++) p[j] = 0;
    for (int64_t j = first; j <= t; j++) {
        double s = 0;
        for (int64_t i = 0; i < d; i++) s += (double)query[i] * (double)keys[j * d + i];
        p[j] = cap > 0 ? cap * tanh(s * scale / cap) : s * scale;
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = first; j <= t; j++) sum += p[j] = exp(p[j] - max);
    for (int64_t j = first; j <= t; j++) p[j] /= sum;
    return first;
}

static void look(const struct llm_kv_file *f, struct llm_kv_head *h, const float *keys, float *query, double *p, float *map)
{
    double n = (double)f->n_queries;
    h->entropy = h->entropy_most = h->sink = h->largest = h->distance = 0;
    for (int64_t j = 0; map && j < f->n; j++) map[j] = 0;
    for (int64_t i = 0; i < f->n_queries; i++) {
        int64_t t = f->n - f->n_queries + i;
        double largest = 0;
        llm_kv_file_decode(f, 'q', h->layer, i, h->head, query);
        int64_t first = attend(f, h->layer, keys, query, t, p);
        for (int64_t j = first; j <= t; j++) {
            if (p[j] > 0) h->entropy -= p[j] * log(p[j]) / n;
            h->distance += p[j] * (double)(f->positions[t] - f->positions[j]) / n;
            largest = p[j] > largest ? p[j] : largest;
            if (map) map[j] += (float)(p[j] / n);
        }
        h->entropy_most += log((double)(t - first + 1)) / n;
        h->sink += p[0] / n;
        h->largest += largest / n;
    }
}

static void head_piece(void *arg, size_t i, int thread)
{
    struct job *job = arg;
    const struct llm_kv_file *f = job->a;
    int64_t heads = f->config.num_attention_heads, layer = (int64_t)i / heads, head = (int64_t)i % heads, d_k = f->shape.d_k;
    int64_t kv_head = head / (heads / f->shape.n_kv_heads), widest = d_k > f->shape.d_v ? d_k : f->shape.d_v;
    float *map = job->maps ? job->maps + (int64_t)i * f->n : NULL;
    size_t keys_bytes = (size_t)(f->n * d_k) * sizeof(float), p_bytes = (size_t)f->n * sizeof(double);
    double *p = llm_scratch(thread, p_bytes + keys_bytes + (size_t)widest * sizeof(float));
    if (!p) {
        job->no_memory = true;
        return;
    }
    float *keys = (float *)(p + f->n), *row = keys + f->n * d_k;
    struct moments k = norms(f, 'k', layer, kv_head, row, job->what == 'k' ? map : NULL);
    struct moments v = norms(f, 'v', layer, kv_head, row, job->what == 'v' ? map : NULL);
    struct llm_kv_head *h = &job->heads[i];
    *h = (struct llm_kv_head){layer, head, kv_head, k.mean, k.sd, k.first, v.mean, v.sd, v.first, NAN, NAN, NAN, NAN, NAN};
    if (f->n_queries == 0) return;
    for (int64_t t = 0; t < f->n; t++) llm_kv_file_decode(f, 'k', layer, t, kv_head, keys + t * d_k);
    look(f, h, keys, row, p, job->what == 'a' ? map : NULL);
}

int llm_kv_heads(const struct llm_kv_file *f, struct llm_kv_head *rows, char what, float *maps, struct llm_err *e)
{
    struct job job = {.a = f, .heads = rows, .what = what, .maps = maps};
    if (what == 'a' && maps && f->n_queries == 0) {
        return llm_fail(e, EX_DATAERR, "expected traced queries (llm-infer --kv-out --trace-queries N), found none");
    }
    llm_parallel((size_t)(f->shape.n_layers * f->config.num_attention_heads), head_piece, &job);
    return job.no_memory ? llm_no_memory(e, "keys of a head") : 0;
}

/* ---- differences ---- */

int64_t llm_kv_common(const struct llm_kv_file *a, const struct llm_kv_file *b)
{
    int64_t n = 0;
    while (n < a->n && n < b->n && a->ids[n] == b->ids[n] && a->positions[n] == b->positions[n]) n++;
    return n;
}

static void diff_piece(void *arg, size_t i, int thread)
{
    struct job *job = arg;
    const struct llm_cache_shape *s = &job->a->shape;
    struct llm_kv_difference *r = &job->diffs[i];
    *r = (struct llm_kv_difference){.layer = (int64_t)i / 2 / s->n_kv_heads, .kv_head = (int64_t)i / 2 % s->n_kv_heads, .what = i % 2 ? 'v' : 'k'};
    int64_t d = r->what == 'v' ? s->d_v : s->d_k;
    float *x = llm_scratch(thread, (size_t)d * 2 * sizeof *x), *y = x + d;
    double xx = 0, yy = 0, xy = 0, all = 0;
    if (!x) {
        job->no_memory = true;
        return;
    }
    for (int64_t t = 0; t < job->n; t++) {
        double dd = 0;
        llm_kv_file_decode(job->a, r->what, r->layer, t, r->kv_head, x);
        llm_kv_file_decode(job->b, r->what, r->layer, t, r->kv_head, y);
        for (int64_t k = 0; k < d; k++) {
            double delta = (double)x[k] - (double)y[k];
            dd += delta * delta;
            xx += (double)x[k] * (double)x[k];
            yy += (double)y[k] * (double)y[k];
            xy += (double)x[k] * (double)y[k];
            r->max_error = fabs(delta) > r->max_error ? fabs(delta) : r->max_error;
        }
        all += dd;
        if (job->maps) job->maps[(int64_t)i * job->n + t] = (float)sqrt(dd / (double)d);
    }
    r->rmse = job->n > 0 ? sqrt(all / (double)(job->n * d)) : 0;
    r->relative = xx > 0 ? sqrt(all / xx) : all > 0 ? INFINITY : 0;
    r->cosine = xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : xx == yy;
}

int llm_kv_diff(const struct llm_kv_file *a, const struct llm_kv_file *b, struct llm_kv_difference *rows, float *maps, struct llm_err *e)
{
    const struct llm_cache_shape *s = &a->shape, *u = &b->shape;
    if (s->n_layers != u->n_layers || s->n_kv_heads != u->n_kv_heads || s->d_k != u->d_k || s->d_v != u->d_v) {
        return llm_fail(e, EX_DATAERR, "expected caches of one shape, found %" PRId64 " layers of %" PRId64 " heads of %" PRId64 " and %" PRId64
                        " layers of %" PRId64 " heads of %" PRId64, s->n_layers, s->n_kv_heads, s->d_k, u->n_layers, u->n_kv_heads, u->d_k);
    }
    struct job job = {.a = a, .b = b, .diffs = rows, .maps = maps, .n = llm_kv_common(a, b)};
    llm_parallel((size_t)(s->n_layers * s->n_kv_heads * 2), diff_piece, &job);
    return job.no_memory ? llm_no_memory(e, "a head") : 0;
}
