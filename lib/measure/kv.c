#include "measure/kv.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
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

/* Channels of a layer's keys ('k') or values ('v'). */
static int64_t width_of(const struct llm_kv_file *f, char what, int64_t layer)
{
    const struct llm_state_shape *s = &f->layers[layer].shape;
    return what == 'v' && s->d_v > 0 ? s->d_v : s->d_k;
}

/* ---- norms ---- */

struct moments { double mean, sd, first; };

static struct moments norms(const struct llm_kv_file *f, char what, int64_t layer, int64_t head, float *row, float *map)
{
    int64_t d = width_of(f, what, layer);
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
    int64_t d = f->layers[layer].shape.d_k, window = llm_config_window(&f->config, layer), first = 0;
    double max = -INFINITY, sum = 0, scale = llm_config_attention_scale(&f->config, layer), cap = f->config.attn_logit_softcapping;
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

/* Adds what one query at token t, with probabilities p from `first` on, says of the roles of its head. */
static void score_roles(const struct llm_kv_file *f, struct llm_kv_head *h, const double *p, int64_t first, int64_t t, int64_t *repeats)
{
    double own = 0, next = 0;
    bool repeated = false;
    if (t > first) h->previous += p[t - 1] / (double)f->n_queries;
    for (int64_t j = first; j < t; j++) {
        if (f->ids[j] != f->ids[t]) continue;
        repeated = true;
        own += p[j];
        if (j + 1 < t) next += p[j + 1];
    }
    if (!repeated) return;
    ++*repeats;
    h->duplicate += own;
    h->induction += next;
}

static void look(const struct llm_kv_file *f, struct llm_kv_head *h, const float *keys, float *query, double *p, float *map)
{
    double n = (double)f->n_queries;
    int64_t repeats = 0;
    h->entropy = h->entropy_most = h->sink = h->largest = h->distance = h->previous = h->duplicate = h->induction = 0;
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
        score_roles(f, h, p, first, t, &repeats);
    }
    h->duplicate = repeats > 0 ? h->duplicate / (double)repeats : (double)NAN;
    h->induction = repeats > 0 ? h->induction / (double)repeats : (double)NAN;
}

static void head_piece(void *arg, size_t i, int thread)
{
    struct job *job = arg;
    const struct llm_kv_file *f = job->a;
    struct llm_kv_head *h = &job->heads[i];
    const struct llm_state_shape *s = &f->layers[h->layer].shape;
    int64_t layer = h->layer, head = h->head, d_k = s->d_k;
    int64_t kv_head = head / (f->config.num_attention_heads / s->n_kv_heads), widest = d_k > s->d_v ? d_k : s->d_v;
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
    *h = (struct llm_kv_head){layer, head, kv_head, k.mean, k.sd, k.first, v.mean, v.sd, v.first, NAN, NAN, NAN, NAN, NAN,
                              NAN, NAN, NAN};
    if (f->n_queries == 0) return;
    for (int64_t t = 0; t < f->n; t++) llm_kv_file_decode(f, 'k', layer, t, kv_head, keys + t * d_k);
    look(f, h, keys, row, p, job->what == 'a' ? map : NULL);
}

int64_t llm_kv_heads_rows(const struct llm_kv_file *f, int64_t layer)
{
    int64_t n = 0;
    for (int64_t l = 0; l < (layer < 0 ? f->n_layers : layer); l++) n += f->layers[l].shape.n_kv_heads > 0 ? f->config.num_attention_heads : 0;
    return n;
}

int llm_kv_heads(const struct llm_kv_file *f, struct llm_kv_head *rows, char what, float *maps, struct llm_err *e)
{
    struct job job = {.a = f, .heads = rows, .what = what, .maps = maps};
    if (what == 'a' && maps && f->n_queries == 0) {
        return llm_fail(e, EX_DATAERR, "expected traced queries (llm-infer --kv-out --trace-queries N), found none");
    }
    int64_t n = 0;
    for (int64_t l = 0; l < f->n_layers; l++) {
        for (int64_t h = 0; h < f->config.num_attention_heads && f->layers[l].shape.n_kv_heads > 0; h++) {
            rows[n++] = (struct llm_kv_head){.layer = l, .head = h};
        }
    }
    llm_parallel((size_t)n, head_piece, &job);
    return job.no_memory ? llm_no_memory(e, "keys of a head") : 0;
}

/* ---- a head's whole map ---- */

struct map_job {
    const struct llm_kv_file *f;
    int64_t layer, head;
    const float *keys; /* [n, d_k] */
    float *out;
    bool no_memory;
};

static void map_row(void *arg, size_t i, int thread)
{
    struct map_job *m = arg;
    const struct llm_kv_file *f = m->f;
    int64_t t = f->n - f->n_queries + (int64_t)i;
    double *p = llm_scratch(thread, (size_t)f->n * sizeof *p + (size_t)f->layers[m->layer].shape.d_k * sizeof(float));
    float *query = (float *)(p + f->n), *out = m->out + (int64_t)i * f->n;
    if (!p) {
        m->no_memory = true;
        return;
    }
    llm_kv_file_decode(f, 'q', m->layer, (int64_t)i, m->head, query);
    attend(f, m->layer, m->keys, query, t, p);
    for (int64_t j = 0; j < f->n; j++) out[j] = j <= t ? (float)p[j] : 0;
}

int llm_kv_attention(const struct llm_kv_file *f, int64_t layer, int64_t head, float *out, struct llm_err *e)
{
    const struct llm_state_shape *s = &f->layers[layer].shape;
    if (f->n_queries == 0) return llm_fail(e, EX_DATAERR, "expected traced queries (llm-infer --kv-out --trace-queries N), found none");
    if (s->n_kv_heads == 0) return llm_fail(e, EX_DATAERR, "layer %" PRId64 ": expected keys of attention, found none", layer);
    float *keys = llm_alloc((size_t)f->n, (size_t)s->d_k * sizeof *keys, "keys of a head", e);
    if (!keys) return -1;
    int64_t kv_head = head / (f->config.num_attention_heads / s->n_kv_heads);
    for (int64_t t = 0; t < f->n; t++) llm_kv_file_decode(f, 'k', layer, t, kv_head, keys + t * s->d_k);
    struct map_job m = {.f = f, .layer = layer, .head = head, .keys = keys, .out = out};
    llm_parallel((size_t)f->n_queries, map_row, &m);
    free(keys);
    return m.no_memory ? llm_no_memory(e, "an attention map") : 0;
}

/* ---- differences ---- */

int64_t llm_kv_common(const struct llm_kv_file *a, const struct llm_kv_file *b)
{
    int64_t n = 0;
    while (n < a->n && n < b->n && a->ids[n] == b->ids[n] && a->positions[n] == b->positions[n]) n++;
    return n;
}

/* Sums of what makes a row. */
struct sums { double xx, yy, xy; };

/* Adds n numbers; their squared difference. */
static double compare(struct sums *s, struct llm_kv_difference *r, const float *x, const float *y, int64_t n)
{
    double dd = 0;
    for (int64_t k = 0; k < n; k++) {
        double delta = (double)x[k] - (double)y[k];
        dd += delta * delta;
        s->xx += (double)x[k] * (double)x[k];
        s->yy += (double)y[k] * (double)y[k];
        s->xy += (double)x[k] * (double)y[k];
        r->max_error = fabs(delta) > r->max_error ? fabs(delta) : r->max_error;
    }
    return dd;
}

/* The part of a layer's state that a row is about: its number. */
static int part_of(const struct llm_state_shape *s, const char *name)
{
    int i = 0;
    while (s->parts[i].name != name) i++;
    return i;
}

static void diff_piece(void *arg, size_t i, int thread)
{
    struct job *job = arg;
    struct llm_kv_difference *r = &job->diffs[i];
    const struct llm_kv_file_layer *a = &job->a->layers[r->layer], *b = &job->b->layers[r->layer];
    struct sums s = {0};
    double all = 0, n;
    if (r->kv_head < 0) {
        int part = part_of(&a->shape, r->what);
        int64_t count = a->shape.parts[part].rows * a->shape.parts[part].cols;
        all = compare(&s, r, a->parts[part], b->parts[part], count);
        n = (double)count;
    } else {
        int64_t d = width_of(job->a, r->what[0], r->layer);
        float *x = llm_scratch(thread, (size_t)d * 2 * sizeof *x), *y = x + d;
        if (!x) {
            job->no_memory = true;
            return;
        }
        for (int64_t t = 0; t < job->n; t++) {
            llm_kv_file_decode(job->a, r->what[0], r->layer, t, r->kv_head, x);
            llm_kv_file_decode(job->b, r->what[0], r->layer, t, r->kv_head, y);
            double dd = compare(&s, r, x, y, d);
            all += dd;
            if (job->maps) job->maps[(int64_t)i * job->n + t] = (float)sqrt(dd / (double)d);
        }
        n = (double)(job->n * d);
    }
    r->rmse = n > 0 ? sqrt(all / n) : 0;
    r->relative = s.xx > 0 ? sqrt(all / s.xx) : all > 0 ? INFINITY : 0;
    r->cosine = s.xx > 0 && s.yy > 0 ? s.xy / sqrt(s.xx * s.yy) : s.xx == s.yy;
}

/* Fills rows' layers, heads and names; rows NULL: only counts. */
static int64_t list_rows(const struct llm_kv_file *f, struct llm_kv_difference *rows)
{
    int64_t n = 0;
    for (int64_t l = 0; l < f->n_layers; l++) {
        const struct llm_kv_file_layer *layer = &f->layers[l];
        for (int64_t h = 0; layer->k && h < layer->shape.n_kv_heads; h++) {
            if (rows) rows[n] = (struct llm_kv_difference){.layer = l, .kv_head = h, .what = "k"};
            n++;
            if (rows && layer->v) rows[n] = (struct llm_kv_difference){.layer = l, .kv_head = h, .what = "v"};
            n += layer->v != NULL;
        }
        for (int i = 0; i < LLM_STATE_PARTS && layer->parts[i]; i++, n++) {
            if (rows) rows[n] = (struct llm_kv_difference){.layer = l, .kv_head = -1, .what = layer->shape.parts[i].name};
        }
    }
    return n;
}

int64_t llm_kv_diff_rows(const struct llm_kv_file *f)
{
    return list_rows(f, NULL);
}

int llm_kv_diff(const struct llm_kv_file *a, const struct llm_kv_file *b, struct llm_kv_difference *rows, float *maps, struct llm_err *e)
{
    if (a->n_layers != b->n_layers) {
        return llm_fail(e, EX_DATAERR, "expected caches of one shape, found %" PRId64 " layers and %" PRId64, a->n_layers, b->n_layers);
    }
    for (int64_t l = 0; l < a->n_layers; l++) {
        const struct llm_state_shape *s = &a->layers[l].shape, *u = &b->layers[l].shape;
        if (memcmp(s, u, sizeof *s) == 0) continue;
        return llm_fail(e, EX_DATAERR, "expected caches of one shape, found in layer %" PRId64 " %" PRId64 " heads of %" PRId64 " and %" PRId64
                        " heads of %" PRId64, l, s->n_kv_heads, s->d_k, u->n_kv_heads, u->d_k);
    }
    struct job job = {.a = a, .b = b, .diffs = rows, .maps = maps, .n = llm_kv_common(a, b)};
    llm_parallel((size_t)list_rows(a, rows), diff_piece, &job);
    return job.no_memory ? llm_no_memory(e, "a head") : 0;
}
