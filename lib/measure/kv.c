#include "measure/kv.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "cpu/pool.h"
#include "measure/look.h"

struct job {
    const struct llm_kv_file *a, *b;
    struct llm_kv_head *heads;
    struct llm_kv_difference *diffs;
    char what;
    float *maps;
    int64_t n;      /* diff: common tokens */
    bool queries;   /* heads: traced queries are looked at */
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
    int64_t d = what == 'v' ? llm_look_value_width(f, layer) : f->layers[layer].shape.d_k;
    struct moments m = {0};
    double squares = 0;
    for (int64_t j = 0; map && j < f->n; j++) map[j] = (float)NAN; /* of evicted tokens nothing is known */
    for (int64_t t = 0; t < f->rows; t++) {
        double sum = 0;
        llm_kv_file_decode(f, what, layer, t, head, row);
        for (int64_t i = 0; i < d; i++) sum += (double)row[i] * (double)row[i];
        double norm = sqrt(sum), delta = norm - m.mean;
        if (t == 0) m.first = norm;
        if (map) map[llm_kv_file_token(f, layer, t, head)] = (float)norm;
        m.mean += delta / (double)(t + 1); /* Welford */
        squares += delta * (norm - m.mean);
    }
    m.sd = f->rows > 1 ? sqrt(squares / (double)(f->rows - 1)) : 0;
    return m;
}

/* ---- attention of the traced queries ---- */

/* Adds what one query at token t, which sees rows [from, to) with probabilities p, says of the roles of its head. */
static void score_roles(const struct llm_kv_file *f, struct llm_kv_head *h, const float *p, int64_t from, int64_t to, int64_t t, int64_t *repeats)
{
    double own = 0, next = 0;
    bool repeated = false;
    int64_t earliest = llm_kv_file_token(f, h->layer, from, h->kv_head);
    for (int64_t j = from; j < to; j++) {
        int64_t token = llm_kv_file_token(f, h->layer, j, h->kv_head);
        if (token == t - 1) h->previous += (double)p[j] / (double)f->n_queries;
        if (token > earliest && token < t && f->ids[token - 1] == f->ids[t]) next += (double)p[j];
        if (token == t || f->ids[token] != f->ids[t]) continue;
        repeated = true;
        own += (double)p[j];
    }
    if (!repeated) return;
    ++*repeats;
    h->duplicate += own;
    h->induction += next;
}

/* Adds what the traced query at token t says of its head: p [rows]. */
static void look_at(const struct llm_kv_file *f, struct llm_kv_head *h, const float *p, int64_t t, float *map, int64_t *repeats)
{
    double n = (double)f->n_queries, largest = 0;
    int64_t from, to;
    llm_look_seen(f, h->layer, h->kv_head, t, &from, &to);
    for (int64_t j = from; j < to; j++) {
        double x = (double)p[j];
        int64_t token = llm_kv_file_token(f, h->layer, j, h->kv_head);
        if (x != 0) h->entropy -= x * log(x) / n; /* NaN stays NaN */
        h->distance += x * fabs((double)(f->positions[t] - f->positions[token])) / n;
        largest = isnan(x) || x > largest ? x : largest;
        if (token == 0) h->sink += x / n;
        if (map) map[token] += (float)(x / n);
    }
    h->entropy_most += log((double)(to - from)) / n;
    h->largest += largest / n;
    if (!f->config.bidirectional) score_roles(f, h, p, from, to, t, repeats);
}

/* keys [rows, d_k], p [LLM_LOOK, rows]: memory. 0, or -1 when memory is short. */
static int look(const struct llm_kv_file *f, struct llm_kv_head *h, float *keys, float *p, float *map)
{
    int64_t repeats = 0;
    h->entropy = h->entropy_most = h->sink = h->largest = h->distance = h->previous = h->duplicate = h->induction = 0;
    for (int64_t j = 0; map && j < f->n; j++) map[j] = 0;
    llm_look_decode(f, 'k', h->layer, h->kv_head, keys);
    for (int64_t first = 0; first < f->n_queries; first += LLM_LOOK) {
        int64_t n = f->n_queries - first < LLM_LOOK ? f->n_queries - first : LLM_LOOK;
        if (llm_look(f, h->layer, h->head, keys, first, n, p) < 0) return -1;
        for (int64_t i = 0; i < n; i++) look_at(f, h, p + i * f->rows, f->n - f->n_queries + first + i, map, &repeats);
    }
    if (f->config.bidirectional) h->previous = (double)NAN; /* patches of a picture do not follow one another */
    h->duplicate = repeats > 0 ? h->duplicate / (double)repeats : (double)NAN;
    h->induction = repeats > 0 ? h->induction / (double)repeats : (double)NAN;
    return 0;
}

static void head_piece(void *arg, size_t i, int thread)
{
    struct job *job = arg;
    const struct llm_kv_file *f = job->a;
    struct llm_kv_head *h = &job->heads[i];
    const struct llm_state_shape *s = &f->layers[h->layer].shape;
    int64_t layer = h->layer, head = h->head, d_k = s->d_k, kv_head = llm_look_kv_head(f, layer, head), widest = d_k > s->d_v ? d_k : s->d_v;
    float *map = job->maps ? job->maps + (int64_t)i * f->n : NULL;
    float *p = llm_scratch(thread, (size_t)((LLM_LOOK + d_k) * f->rows + widest) * sizeof *p), *keys = p + LLM_LOOK * f->rows;
    if (!p) {
        job->no_memory = true;
        return;
    }
    struct moments k = norms(f, 'k', layer, kv_head, keys, job->what == 'k' ? map : NULL);
    struct moments v = norms(f, 'v', layer, kv_head, keys, job->what == 'v' ? map : NULL);
    *h = (struct llm_kv_head){layer, head, kv_head, k.mean, k.sd, k.first, v.mean, v.sd, v.first, NAN, NAN, NAN, NAN, NAN,
                              NAN, NAN, NAN};
    if (!job->queries) return;
    if (look(f, h, keys, p, job->what == 'a' ? map : NULL) < 0) job->no_memory = true;
}

int64_t llm_kv_heads_rows(const struct llm_kv_file *f, int64_t layer)
{
    int64_t n = 0;
    for (int64_t l = 0; l < (layer < 0 ? f->n_layers : layer); l++) n += llm_look_attends(f, l) ? f->config.num_attention_heads : 0;
    return n;
}

int llm_kv_heads(const struct llm_kv_file *f, struct llm_kv_head *rows, char what, float *maps, struct llm_err *e)
{
    struct job job = {.a = f, .heads = rows, .what = what, .maps = maps, .queries = f->n_queries > 0};
    int64_t n = 0;
    for (int64_t l = 0; l < f->n_layers; l++) {
        struct llm_err why = {0};
        if (!llm_look_attends(f, l) || llm_look_check(f, l, &why) == 0) continue;
        if (what == 'a' && maps) return llm_fail(e, why.status, "%s", why.text);
        if (job.queries) llm_note("%s", why.text);
        job.queries = false;
    }
    for (int64_t l = 0; l < f->n_layers; l++) {
        for (int64_t h = 0; h < f->config.num_attention_heads && llm_look_attends(f, l); h++) {
            rows[n++] = (struct llm_kv_head){.layer = l, .head = h};
        }
    }
    llm_parallel((size_t)n, head_piece, &job);
    return job.no_memory ? llm_no_memory(e, "keys of a head") : 0;
}

/* ---- maps of attention ---- */

struct map_job {
    const struct llm_kv_file *f;
    int64_t layer, first_head, n_heads; /* their mean is the map */
    float *const *keys;        /* [n_kv_heads]: [rows, d_k], of the heads that are read */
    const struct llm_kv_map *map;
    int64_t lines;             /* lines of the map that a piece makes */
    bool no_memory;            /* any thread sets it, none resets it */
};

/* row [n] = the mean of the heads' probabilities of n ≤ LLM_LOOK queries; NaN for tokens that no head has or sees, and for all tokens if a head's
 * probabilities are NaN, which those of a query then all are. */
static int mean_of_heads(const struct map_job *m, int64_t first, int64_t n, float *p, float *row)
{
    const struct llm_kv_file *f = m->f;
    bool broken[LLM_LOOK] = {false};
    for (int64_t i = 0; i < n * f->n; i++) row[i] = (float)NAN;
    for (int64_t h = m->first_head; h < m->first_head + m->n_heads; h++) {
        int64_t kv_head = llm_look_kv_head(f, m->layer, h);
        if (llm_look(f, m->layer, h, m->keys[kv_head], first, n, p) < 0) return -1;
        for (int64_t i = 0; i < n; i++) {
            int64_t from, to;
            llm_look_seen(f, m->layer, kv_head, f->n - f->n_queries + first + i, &from, &to);
            broken[i] |= isnan(p[i * f->rows + from]);
            for (int64_t j = from; j < to; j++) {
                float *x = &row[i * f->n + llm_kv_file_token(f, m->layer, j, kv_head)];
                *x = (isnan(*x) ? 0 : *x) + p[i * f->rows + j] / (float)m->n_heads;
            }
        }
    }
    for (int64_t i = 0; i < n * f->n; i++) row[i] = broken[i / f->n] ? (float)NAN : row[i];
    return 0;
}

static struct llm_kv_gaze gaze_of(const float *row, int64_t n)
{
    struct llm_kv_gaze g = {.best = -1, .second = -1, .p = (double)NAN, .second_p = (double)NAN};
    for (int64_t j = 0; j < n; j++) {
        if (isnan(row[j])) continue;
        if (row[j] > 0) g.entropy -= (double)row[j] * log((double)row[j]);
        if (g.best < 0 || row[j] > row[g.best]) {
            g.second = g.best;
            g.best = j;
        } else if (g.second < 0 || row[j] > row[g.second]) g.second = j;
    }
    if (g.best < 0) g.entropy = (double)NAN;
    else g.p = (double)row[g.best];
    if (g.second >= 0) g.second_p = (double)row[g.second];
    return g;
}

/* Raises the cells of a line of the map to what the row has. */
static void put_cells(const struct llm_kv_map *map, const float *row, int64_t n, float *line)
{
    for (int64_t j = 0; j < n; j++) {
        float *cell = &line[j / map->step_x];
        if (!isnan(row[j]) && !(row[j] <= *cell)) *cell = row[j];
    }
}

static void map_piece(void *arg, size_t piece, int thread)
{
    struct map_job *m = arg;
    const struct llm_kv_file *f = m->f;
    const struct llm_kv_map *map = m->map;
    int64_t at = (int64_t)piece * m->lines * map->step_y, end = at + m->lines * map->step_y, width = (f->n + map->step_x - 1) / map->step_x;
    float *p = llm_scratch(thread, (size_t)(LLM_LOOK * (f->rows + f->n)) * sizeof *p), *row = p + LLM_LOOK * f->rows;
    if (end > f->n_queries) end = f->n_queries;
    for (int64_t n; p && at < end; at += n) {
        n = end - at < LLM_LOOK ? end - at : LLM_LOOK;
        if (mean_of_heads(m, at, n, p, row) < 0) break;
        for (int64_t i = 0; i < n; i++) {
            float *line = map->cells ? map->cells + (at + i) / map->step_y * width : NULL;
            for (int64_t c = 0; line && (at + i) % map->step_y == 0 && c < width; c++) line[c] = (float)NAN;
            if (line) put_cells(map, row + i * f->n, f->n, line);
            map->gazes[at + i] = gaze_of(row + i * f->n, f->n);
        }
    }
    if (at < end) m->no_memory = true;
}

int llm_kv_attention(const struct llm_kv_file *f, int64_t layer, int64_t head, const struct llm_kv_map *map, struct llm_err *e)
{
    if (llm_look_check(f, layer, e) < 0) return -1;
    const struct llm_state_shape *s = &f->layers[layer].shape;
    struct map_job m = {.f = f, .layer = layer, .first_head = head < 0 ? 0 : head, .map = map,
                        .n_heads = head < 0 ? f->config.num_attention_heads : 1, .lines = map->step_y < LLM_LOOK ? LLM_LOOK / map->step_y : 1};
    float **keys = llm_calloc((size_t)s->n_kv_heads, sizeof *keys, "keys of a layer", e);
    int status = keys ? 0 : -1;
    for (int64_t k = 0; k < s->n_kv_heads && status == 0; k++) {
        if (head >= 0 && llm_look_kv_head(f, layer, head) != k) continue;
        keys[k] = llm_alloc((size_t)f->rows, (size_t)s->d_k * sizeof **keys, "keys of a layer", e);
        if (keys[k]) llm_look_decode(f, 'k', layer, k, keys[k]);
        else status = -1;
    }
    m.keys = keys;
    int64_t each = m.lines * map->step_y;
    if (status == 0) llm_parallel((size_t)((f->n_queries + each - 1) / each), map_piece, &m);
    for (int64_t k = 0; keys && k < s->n_kv_heads; k++) free(keys[k]);
    free(keys);
    return status < 0 ? -1 : m.no_memory ? llm_no_memory(e, "an attention map") : 0;
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

/* Adds n numbers; their squared difference. Equal infinities and two NaN do not differ; the difference of a NaN from a number is NaN. */
static double compare(struct sums *s, struct llm_kv_difference *r, const float *x, const float *y, int64_t n)
{
    double dd = 0;
    for (int64_t k = 0; k < n; k++) {
        double delta = x[k] == y[k] || (isnan(x[k]) && isnan(y[k])) ? 0 : (double)x[k] - (double)y[k];
        dd += delta * delta;
        s->xx += (double)x[k] * (double)x[k];
        s->yy += (double)y[k] * (double)y[k];
        s->xy += (double)x[k] * (double)y[k];
        r->max_error = isnan(delta) || fabs(delta) > r->max_error ? fabs(delta) : r->max_error;
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
    r->relative = s.xx == 0 ? all > 0 ? INFINITY : all : sqrt(all / s.xx);
    r->cosine = s.xx == 0 || s.yy == 0 ? s.xx == s.yy : s.xy / sqrt(s.xx * s.yy);
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
    if (a->evicted || b->evicted) return llm_fail(e, EX_DATAERR, "expected caches with the keys of all tokens, found an evicted one");
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
