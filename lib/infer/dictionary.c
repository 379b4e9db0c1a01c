#include "infer/dictionary.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"

#define META "llm.dictionary"

static const char *const words[] = {"topk", "jumprelu", "l1", NULL};

const char *llm_dictionary_word(int i)
{
    return words[i];
}

int llm_dictionary_create(struct llm_dictionary *d, struct llm_err *e)
{
    const int64_t encoder[] = {d->features, d->in}, decoder[] = {d->out, d->features};
    const struct { const char *name; int n_dims; const int64_t *shape; } rows[] = {
        {"encoder.weight", 2, encoder}, {"encoder.bias", 1, encoder}, {"decoder.weight", 2, decoder}, {"decoder.bias", 1, decoder},
        {"features.rate", 1, encoder}, {"features.threshold", 1, encoder}};
    size_t n = d->kind == LLM_DICTIONARY_JUMPRELU ? LLM_DICTIONARY_MAX_PARAMS : LLM_DICTIONARY_THRESHOLD;
    for (int side = 0; side < 2; side++) {
        if (!(d->mean[side] = llm_calloc((size_t)(side ? d->out : d->in), sizeof *d->mean[side], "a dictionary", e))) return -1;
    }
    for (; d->n_params < n; d->n_params++) {
        size_t i = d->n_params;
        enum llm_role role = rows[i].n_dims == 2 ? LLM_ROLE_HIDDEN : LLM_ROLE_VECTOR;
        if (llm_param_make(&d->params[i], rows[i].name, rows[i].n_dims, rows[i].shape, role, e) < 0) return -1;
        d->params[i].decay = false;
    }
    d->params[LLM_DICTIONARY_RATE].running = true;
    return 0;
}

void llm_dictionary_release(struct llm_dictionary *d)
{
    for (size_t i = 0; i < d->n_params; i++) llm_param_release(&d->params[i]);
    free(d->mean[0]);
    free(d->mean[1]);
    *d = (struct llm_dictionary){.k = 0};
}

int llm_dictionary_place(const char *text, const struct llm_config *c, struct llm_place *p, struct llm_err *e)
{
    struct llm_place_range r;
    if (llm_place_parse(text, c, &r, e) < 0) return -1;
    *p = (struct llm_place){r.kind, r.stack, r.first};
    return r.first == r.last ? 0 : llm_fail(e, LLM_EX_USAGE, "place '%s': expected one layer, found several", text);
}

/* ---- files ---- */

static json_t *means_json(const float *mean, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n && list; i++) json_array_append_new(list, json_real((double)mean[i]));
    return list;
}

int llm_dictionary_describe(const struct llm_dictionary *d, json_t *meta, struct llm_err *e)
{
    char from[LLM_PLACE_TEXT], to[LLM_PLACE_TEXT];
    struct llm_buf text = {0};
    llm_place_print(d->from, from, sizeof from);
    llm_place_print(d->to, to, sizeof to);
    json_t *o = json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:f,s:f,s:o,s:o}", "from", from, "to", to, "kind", words[d->kind], "k", (json_int_t)d->k,
                          "in", (json_int_t)d->in, "out", (json_int_t)d->out, "features", (json_int_t)d->features, "scale_in", d->scale[0],
                          "scale_out", d->scale[1], "mean_in", means_json(d->mean[0], d->in), "mean_out", means_json(d->mean[1], d->out));
    int status = o ? llm_json_dump(o, &text, e) : llm_no_memory(e, "metadata");
    if (status == 0 && json_object_set_new(meta, META, json_stringn(text.p, text.n)) < 0) status = llm_no_memory(e, "metadata");
    json_decref(o);
    llm_buf_release(&text);
    return status;
}

static int read_mean(const json_t *o, const char *key, float *mean, int64_t n, struct llm_err *e)
{
    const json_t *list = json_object_get(o, key), *v;
    size_t i;
    if (!json_is_array(list) || (int64_t)json_array_size(list) != n) return llm_fail(e, EX_DATAERR, "%s: expected %" PRId64 " numbers", key, n);
    json_array_foreach(list, i, v) {
        if (!json_is_number(v)) return llm_fail(e, EX_DATAERR, "%s: expected numbers", key);
        mean[i] = (float)json_number_value(v);
    }
    return 0;
}

static int read_meta(struct llm_dictionary *d, const json_t *o, const struct llm_config *c, struct llm_err *e)
{
    enum { MAX = 1 << 24 };
    const char *from = NULL, *to = NULL, *kind = NULL;
    if (llm_json_str(o, "from", &from, e) < 0 || llm_json_str(o, "to", &to, e) < 0 || llm_json_str(o, "kind", &kind, e) < 0
        || llm_json_int(o, "k", 0, MAX, &d->k, e) < 0 || llm_json_int(o, "in", 1, MAX, &d->in, e) < 0
        || llm_json_int(o, "out", 1, MAX, &d->out, e) < 0 || llm_json_int(o, "features", 1, MAX, &d->features, e) < 0
        || llm_json_real(o, "scale_in", &d->scale[0], e) < 0 || llm_json_real(o, "scale_out", &d->scale[1], e) < 0) {
        return -1;
    }
    int word = 0;
    while (kind && words[word] && strcmp(kind, words[word]) != 0) word++;
    if (!from || !to || !kind || !words[word] || d->in < 1 || d->out < 1 || d->features < 1 || !(d->scale[0] > 0) || !(d->scale[1] > 0)) {
        return llm_fail(e, EX_DATAERR, "expected from, to, kind, in, out, features, scale_in and scale_out");
    }
    d->kind = (enum llm_dictionary_kind)word;
    if (llm_dictionary_place(from, c, &d->from, e) < 0 || llm_dictionary_place(to, c, &d->to, e) < 0) {
        e->status = EX_DATAERR; /* the file, not the command line */
        return -1;
    }
    if (llm_dictionary_create(d, e) < 0) return -1;
    return read_mean(o, "mean_in", d->mean[0], d->in, e) < 0 ? -1 : read_mean(o, "mean_out", d->mean[1], d->out, e);
}

int llm_dictionary_load(struct llm_dictionary *d, const char *path, struct llm_model *m, struct llm_err *e)
{
    struct llm_param *list[LLM_DICTIONARY_MAX_PARAMS];
    struct llm_checkpoint *f = llm_beside_open(path, "dictionary", m, e);
    if (!f) return -1;
    const char *text = llm_header_meta(llm_checkpoint_header(f), META);
    json_t *o = text ? llm_json_parse(text, strlen(text), e) : NULL;
    int status = !text ? llm_fail(e, EX_DATAERR, "expected " META ", found none") : !o ? -1 : read_meta(d, o, &m->config, e);
    if (status < 0) llm_in(e, "%s", path);
    for (size_t i = 0; i < d->n_params; i++) list[i] = &d->params[i];
    if (status == 0) status = llm_beside_read(f, list, d->n_params, e);
    json_decref(o);
    llm_checkpoint_close(f);
    return status;
}

/* ---- computing ---- */

void llm_dictionary_scale(const struct llm_dictionary *d, int side, const float *x, int64_t stride, int64_t rows, float *to)
{
    int64_t n = side ? d->out : d->in;
    float factor = (float)(1 / d->scale[side]);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < n; i++) to[r * n + i] = (x[r * stride + i] - d->mean[side][i]) * factor;
    }
}

/* The k-th largest of v[0..n), 1 ≤ k ≤ n. v is rearranged. */
static float kth_largest(float *v, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1, want = k - 1;
    while (low < high) {
        float pivot = v[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (v[i] > pivot) i++;
            while (v[j] < pivot) j--;
            if (i > j) break;
            float swapped = v[i];
            v[i++] = v[j];
            v[j--] = swapped;
        }
        if (want <= j) high = j;
        else if (want >= i) low = i;
        else break;
    }
    return v[want];
}

void llm_top_k(const float *p, const uint8_t *of, int64_t n, int64_t k, float *f, float *scratch)
{
    int64_t m = 0, above = 0, left;
    for (int64_t i = 0; i < n; i++) {
        if (p[i] > 0 && (!of || of[i])) scratch[m++] = p[i];
    }
    float least = m > k && k > 0 ? kth_largest(scratch, m, k) : 0;
    for (int64_t i = 0; i < n; i++) above += (!of || of[i]) && p[i] > least;
    left = m > k ? k - above : 0; /* how many that equal `least` are taken */
    for (int64_t i = 0; i < n; i++) {
        bool mine = k > 0 && (!of || of[i]), taken = mine && (p[i] > least || (m > k && p[i] == least && left-- > 0));
        f[i] = taken ? p[i] : 0;
    }
}

struct act { const struct llm_dictionary *d; const float *pre; float *f; bool failed; };

static void act_row(void *arg, size_t r, int thread)
{
    struct act *a = arg;
    const struct llm_dictionary *d = a->d;
    const float *p = a->pre + (int64_t)r * d->features, *t = d->params[LLM_DICTIONARY_THRESHOLD].weight.data;
    float *f = a->f + (int64_t)r * d->features;
    if (d->kind == LLM_DICTIONARY_TOPK) {
        float *scratch = llm_scratch(thread, (size_t)d->features * sizeof *scratch);
        if (scratch) llm_top_k(p, NULL, d->features, d->k, f, scratch);
        else a->failed = true;
        return;
    }
    for (int64_t i = 0; i < d->features; i++) f[i] = p[i] > (d->kind == LLM_DICTIONARY_L1 ? 0 : expf(t[i])) ? p[i] : 0;
}

int llm_dictionary_encode(const struct llm_dictionary *d, const float *z, int64_t rows, enum llm_compute compute, float *pre, float *f,
                          struct llm_err *e)
{
    const struct llm_matmul a = {.m = rows, .x = z, .ldx = d->in, .y = pre, .ldy = d->features, .compute = compute,
                                 .bias = d->params[LLM_DICTIONARY_ENCODER_BIAS].weight.data};
    struct act w = {d, pre, f, false};
    if (llm_matmul(&a, (struct llm_weight *)(uintptr_t)&d->params[LLM_DICTIONARY_ENCODER].weight, e) < 0) return -1;
    llm_parallel((size_t)rows, act_row, &w);
    return w.failed ? llm_no_memory(e, "features") : 0;
}

int llm_dictionary_decode(const struct llm_dictionary *d, const float *f, int64_t rows, enum llm_compute compute, float *y, struct llm_err *e)
{
    const struct llm_matmul a = {.m = rows, .x = f, .ldx = d->features, .y = y, .ldy = d->out, .compute = compute,
                                 .bias = d->params[LLM_DICTIONARY_DECODER_BIAS].weight.data};
    return llm_matmul(&a, (struct llm_weight *)(uintptr_t)&d->params[LLM_DICTIONARY_DECODER].weight, e);
}

/* ---- in a model ---- */

int llm_splice_begin(struct llm_splice *s, const char *path, struct llm_model *m, enum llm_compute compute, struct llm_err *e)
{
    s->compute = compute;
    if (llm_dictionary_load(&s->d, path, m, e) < 0) return -1;
    s->sum = llm_calloc((size_t)s->d.out, sizeof *s->sum, "a dictionary", e);
    s->fired = llm_calloc((size_t)s->d.features, sizeof *s->fired, "a dictionary", e);
    return s->sum && s->fired ? 0 : -1;
}

void llm_splice_release(struct llm_splice *s)
{
    llm_dictionary_release(&s->d);
    free(s->made);
    free(s->sum);
    free(s->fired);
    *s = (struct llm_splice){.rows = 0};
}

/* Computes s->made of the values at d.from, and counts features. */
static int make(struct llm_splice *s, const struct llm_sight *x, struct llm_err *e)
{
    const struct llm_dictionary *d = &s->d;
    if (x->cols != d->in) return llm_fail(e, EX_DATAERR, "dictionary: expected a width of %" PRId64 ", found %" PRId64, d->in, x->cols);
    if (llm_grow((void **)&s->made, &s->made_room, (size_t)(x->rows * d->out), sizeof *s->made, e) < 0) return -1;
    float *z = llm_alloc((size_t)x->rows, (size_t)(d->in + 2 * d->features) * sizeof *z, "features", e);
    if (!z) return -1;
    float *pre = z + x->rows * d->in, *f = pre + x->rows * d->features;
    llm_dictionary_scale(d, 0, x->x, x->stride, x->rows, z);
    int status = llm_dictionary_encode(d, z, x->rows, s->compute, pre, f, e);
    if (status == 0) status = llm_dictionary_decode(d, f, x->rows, s->compute, s->made, e);
    for (int64_t r = 0; r < x->rows && status == 0; r++) {
        for (int64_t i = 0; i < d->out; i++) s->made[r * d->out + i] = s->made[r * d->out + i] * (float)d->scale[1] + d->mean[1][i];
        for (int64_t i = 0; i < d->features && s->measures; i++) {
            s->active += f[r * d->features + i] > 0;
            s->fired[i] |= f[r * d->features + i] > 0;
        }
    }
    s->rows = x->rows;
    free(z);
    return status;
}

static int observe_from(void *arg, const struct llm_sight *x, struct llm_err *e)
{
    return make(arg, x, e);
}

static int check_to(const struct llm_splice *s, const struct llm_sight *x, struct llm_err *e)
{
    if (x->cols != s->d.out) return llm_fail(e, EX_DATAERR, "dictionary: expected a width of %" PRId64 ", found %" PRId64, s->d.out, x->cols);
    return x->rows == s->rows ? 0 : llm_fail(e, EX_UNAVAILABLE, "dictionary: expected a row at both places for each token");
}

static int edit_to(void *arg, const struct llm_sight *x, float *to, struct llm_err *e)
{
    struct llm_splice *s = arg;
    for (int64_t r = 0; r < x->rows && s->zero; r++) memset(to + r * x->stride, 0, (size_t)x->cols * sizeof *to);
    if (s->zero) return 0;
    if (check_to(s, x, e) < 0) return -1;
    for (int64_t r = 0; r < x->rows; r++) memcpy(to + r * x->stride, s->made + r * x->cols, (size_t)x->cols * sizeof *to);
    return 0;
}

static int measure_to(void *arg, const struct llm_sight *x, struct llm_err *e)
{
    struct llm_splice *s = arg;
    if (check_to(s, x, e) < 0) return -1;
    for (int64_t r = 0; r < x->rows; r++) {
        for (int64_t i = 0; i < x->cols; i++) {
            double v = (double)x->x[r * x->stride + i], gap = v - (double)s->made[r * x->cols + i];
            s->sum[i] += v;
            s->squares += v * v;
            s->error += gap * gap;
        }
    }
    s->n += (double)x->rows;
    return 0;
}

int llm_splice_watchers(struct llm_splice *s, struct llm_watcher *w)
{
    const struct llm_place *from = &s->d.from, *to = &s->d.to;
    int n = 0;
    if (!s->zero) w[n++] = (struct llm_watcher){.at = {from->kind, from->stack, from->layer, from->layer}, .observe = observe_from, .arg = s};
    w[n] = (struct llm_watcher){.at = {to->kind, to->stack, to->layer, to->layer}, .arg = s};
    if (s->measures) w[n].observe = measure_to;
    else w[n].edit = edit_to;
    return n + 1;
}

double llm_splice_active(const struct llm_splice *s)
{
    return s->active / s->n;
}

double llm_splice_explained(const struct llm_splice *s)
{
    double variance = s->squares;
    for (int64_t i = 0; i < s->d.out; i++) variance -= s->sum[i] * s->sum[i] / s->n;
    return 1 - s->error / variance;
}

double llm_splice_dead(const struct llm_splice *s)
{
    double dead = 0;
    for (int64_t i = 0; i < s->d.features; i++) dead += !s->fired[i];
    return dead / (double)s->d.features;
}
