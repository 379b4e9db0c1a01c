#include "quant/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cli.h"
#include "io/gguf_write.h"
#include "model/weights/gguf_names.h"

/* A matrix of the file: a tensor of GGUF's, which has one or more of the model's parameters (the experts of a layer). */
struct matrix {
    const struct llm_param_spec *spec;   /* GGUF's declaration of the first part */
    int64_t parts, k;
    int64_t *record;                     /* [parts] numbers of records; -1: none */
};
struct names {
    struct llm_gguf_names gguf;
    struct matrix *v;
    size_t n;
    int64_t *records;                    /* what the matrices point into */
};

static void release(struct names *s)
{
    llm_gguf_names_release(&s->gguf);
    free(s->v);
    free(s->records);
}

/* The matrices of a GGUF file of the model that have records. */
static int list_names(struct names *s, const struct llm_moments *m, const struct llm_model *model, struct llm_err *e)
{
    if (llm_gguf_names_of(&s->gguf, model, e) < 0) return -1;
    s->v = llm_calloc(s->gguf.declared.n + 1, sizeof *s->v, "names of tensors", e);
    if (s->v) s->records = llm_calloc(s->gguf.declared.n + 1, sizeof *s->records, "names of tensors", e);
    if (!s->records) return -1;
    for (size_t i = 0, used = 0; i < model->n_params; i++) {
        const struct llm_param_spec *spec = s->gguf.specs[i];
        const int64_t record = m->of[i];
        if (!spec || record < 0) continue;
        struct matrix *last = NULL;
        for (size_t k = s->n; spec->n_parts && !last && k > 0; k--) {
            if (llm_param_spec_stacked(s->v[k - 1].spec, spec)) last = &s->v[k - 1];
        }
        if (!last) {
            last = &s->v[s->n++];
            *last = (struct matrix){.spec = spec, .k = m->v[record].k, .record = s->records + used};
            for (int64_t k = 0; k < (spec->n_parts ? spec->n_parts : 1); k++) s->records[used++] = -1;
        }
        if (spec->part < (spec->n_parts ? spec->n_parts : 1)) last->record[spec->part] = record;
        if (spec->part >= last->parts) last->parts = spec->part + 1;
    }
    return 0;
}

static const struct matrix *find(const struct names *s, const char *name, size_t n)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strlen(s->v[i].spec->name) == n && memcmp(s->v[i].spec->name, name, n) == 0) return &s->v[i];
    }
    return NULL;
}

/* ---- reading ---- */

struct reader {
    struct llm_moments *m;
    const struct names *names;
    const char *path;
    size_t known, unknown;
};

/* An entry: sums [parts, k], counts of tokens [parts] or one for all. */
static int take(struct reader *r, const char *name, size_t name_n, const float *sums, uint64_t n, const float *counts, uint64_t n_counts,
                struct llm_err *e)
{
    const struct matrix *t = find(r->names, name, name_n);
    if (!t) {
        r->unknown++;
        return 0;
    }
    if (n != (uint64_t)(t->parts * t->k) || (n_counts != 1 && n_counts != (uint64_t)t->parts)) {
        return llm_fail(e, EX_DATAERR, "%s: tensor '%.*s': expected %lld importances, found %llu", r->path, (int)name_n, name,
                        (long long)(t->parts * t->k), (unsigned long long)n);
    }
    for (int64_t part = 0; part < t->parts; part++) {
        if (t->record[part] < 0) continue;
        struct llm_moment *to = &r->m->v[t->record[part]];
        to->count = (double)counts[n_counts == 1 ? 0 : part];
        for (int64_t j = 0; j < t->k; j++) {
            double v = (double)sums[part * t->k + j], mean = to->count > 0 ? v / to->count : v;
            if (!(v >= 0) || !isfinite((float)mean) || !(to->count >= 0) || !isfinite(to->count)) {
                return llm_fail(e, EX_DATAERR, "%s: tensor '%.*s': expected importances that are finite and not negative, found %g", r->path,
                                (int)name_n, name, mean);
            }
            to->squares[j] = v;
        }
    }
    r->known++;
    return 0;
}

/* The floats of an entry, which may lie unaligned, in memory of their own. */
static float *floats_of(const unsigned char *p, uint64_t n, struct llm_err *e)
{
    float *v = llm_alloc((size_t)n + 1, sizeof *v, "importances", e);
    if (v) memcpy(v, p, (size_t)n * sizeof *v);
    return v;
}

static int read_gguf(struct reader *r, const unsigned char *p, size_t n, struct llm_err *e)
{
    static const char sums_end[] = ".in_sum2";
    struct llm_gguf g;
    struct llm_header h;
    char name[256];
    if (llm_gguf_parse(&g, &h, p, n, r->path, e) < 0) return -1;
    int status = 0;
    for (size_t i = 0; status == 0 && i < h.n_entries; i++) {
        const struct llm_entry *t = &h.entries[i], *counts;
        if (!llm_ends_with(t->name, sums_end)) continue;
        int stem = (int)(strlen(t->name) - strlen(sums_end));
        snprintf(name, sizeof name, "%.*s.counts", stem, t->name);
        counts = llm_header_find(&h, name);
        if (!counts || counts->dtype != LLM_F32 || t->dtype != LLM_F32 || counts->bytes < sizeof(float)) {
            status = llm_fail(e, EX_DATAERR, "%s: tensor '%s': expected F32, with a tensor '%s' of counts, found no such pair", r->path, t->name,
                              name);
            break;
        }
        float *a = floats_of(p + h.header_bytes + t->offset, t->bytes / 4, e);
        float *b = a ? floats_of(p + h.header_bytes + counts->offset, counts->bytes / 4, e) : NULL;
        status = b ? take(r, t->name, (size_t)stem, a, t->bytes / 4, b, counts->bytes / 4, e) : -1;
        free(a);
        free(b);
    }
    llm_gguf_release(&g);
    llm_header_release(&h);
    return status;
}

/* Reading the older form in order. */
struct old { const unsigned char *p; size_t at, n; };

static bool old_int(struct old *o, int32_t *v)
{
    if (o->n - o->at < 4) return false;
    memcpy(v, o->p + o->at, 4);
    o->at += 4;
    return true;
}

static int read_old(struct reader *r, const unsigned char *p, size_t n, struct llm_err *e)
{
    struct old o = {p, 0, n};
    int32_t entries, length, calls, values;
    bool good = old_int(&o, &entries) && entries > 0;
    int status = 0;
    for (int32_t i = 0; good && status == 0 && i < entries; i++) {
        good = old_int(&o, &length) && length > 0 && (size_t)length <= o.n - o.at;
        const char *name = (const char *)p + o.at;
        if (good) o.at += (size_t)length;
        good = good && old_int(&o, &calls) && old_int(&o, &values) && calls >= 0 && values > 0 && (size_t)values <= (o.n - o.at) / 4;
        if (!good) break;
        const float count = calls > 0 ? (float)calls : 1;
        float *v = floats_of(p + o.at, (uint64_t)values, e);
        o.at += (size_t)values * 4;
        status = v ? take(r, name, (size_t)length, v, (uint64_t)values, &count, 1, e) : -1;
        free(v);
    }
    if (good) return status;
    return llm_fail(e, EX_DATAERR, "%s: byte %zu: expected an importance file of llama.cpp (GGUF or .dat), found something else", r->path, o.at);
}

static int read_whole(struct llm_buf *b, const char *path, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    int64_t got = f ? 1 : -1;
    while (got > 0) {
        got = llm_buf_reserve(b, b->n + (1 << 16), e) < 0 ? -1 : llm_file_read_some(f, b->p + b->n, 1 << 16, e);
        if (got > 0) b->n += (size_t)got;
    }
    llm_file_close(f);
    return got < 0 ? -1 : 0;
}

int llm_imatrix_read(struct llm_moments *m, const struct llm_model *model, const char *path, size_t *unknown, struct llm_err *e)
{
    struct llm_buf b = {0};
    struct names names = {.v = NULL};
    struct reader r = {.m = m, .names = &names, .path = strcmp(path, "-") == 0 ? "standard input" : path};
    int status = list_names(&names, m, model, e);
    if (status == 0) status = read_whole(&b, path, e);
    const unsigned char *p = (const unsigned char *)b.p;
    if (status == 0) status = b.n >= 4 && memcmp(p, "GGUF", 4) == 0 ? read_gguf(&r, p, b.n, e) : read_old(&r, p, b.n, e);
    if (status == 0 && r.known == 0) {
        status = llm_fail(e, EX_DATAERR, "%s: expected importances of tensors of this model, found none (%zu of others)", r.path, r.unknown);
    }
    *unknown = r.unknown;
    llm_buf_release(&b);
    release(&names);
    return status;
}

/* ---- writing ---- */

struct writer { const struct llm_moments *m; const struct names *names; };

/* Sums of a matrix's parts to out[parts, k]; counts to counts[parts]. */
static void collect(const struct llm_moments *m, const struct matrix *t, float *out, float *counts)
{
    for (int64_t part = 0; part < t->parts; part++) {
        const struct llm_moment *r = t->record[part] < 0 ? NULL : &m->v[t->record[part]];
        counts[part] = r ? (float)r->count : 0;
        for (int64_t j = 0; j < t->k; j++) out[part * t->k + j] = r ? (float)r->squares[j] : 0;
    }
}

static int put(void *arg, size_t i, struct llm_output *o, struct llm_err *e)
{
    const struct writer *w = arg;
    const struct matrix *t = &w->names->v[i / 2];
    float *v = llm_alloc((size_t)(t->parts * (t->k + 1)), sizeof *v, "importances", e);
    if (!v) return -1;
    collect(w->m, t, v, v + t->parts * t->k);
    int r = i % 2 ? llm_output_write(o, v + t->parts * t->k, (size_t)t->parts * sizeof *v, e)
                  : llm_output_write(o, v, (size_t)(t->parts * t->k) * sizeof *v, e);
    free(v);
    return r;
}

static int write_gguf(struct writer *w, const char *dataset, int64_t chunk_size, struct llm_output *o, struct llm_err *e)
{
    const struct names *s = w->names;
    struct llm_gguf_out values = {.err = e};
    struct llm_tensor_out *t = llm_calloc(2 * s->n + 1, sizeof *t, "importances", e);
    char (*texts)[160] = t ? llm_calloc(2 * s->n + 1, sizeof *texts, "importances", e) : NULL;
    for (size_t i = 0; texts && i < 2 * s->n; i++) {
        const struct matrix *m = &s->v[i / 2];
        snprintf(texts[i], sizeof texts[i], "%s.%s", m->spec->name, i % 2 ? "counts" : "in_sum2");
        t[i] = (struct llm_tensor_out){.name = texts[i], .dtype = LLM_F32, .n_dims = 2, .shape = {m->parts, i % 2 ? 1 : m->k}};
    }
    llm_gguf_put_str(&values, "general.type", "imatrix", 7);
    llm_gguf_put_array(&values, "imatrix.datasets", LLM_GGUF_STRING, 1);
    llm_gguf_add_str(&values, dataset, strlen(dataset));
    llm_gguf_put_u32(&values, "imatrix.chunk_count", (uint32_t)w->m->chunks);
    llm_gguf_put_u32(&values, "imatrix.chunk_size", (uint32_t)chunk_size);
    int r = texts ? llm_gguf_write(o, &values, t, 2 * s->n, put, w, e) : -1;
    llm_gguf_out_release(&values);
    free(t);
    free(texts);
    return r;
}

static int put_int(struct llm_output *o, int64_t v, struct llm_err *e)
{
    int32_t x = (int32_t)v;
    return llm_output_write(o, &x, sizeof x, e);
}

static int write_old_entry(const struct writer *w, const struct matrix *t, struct llm_output *o, struct llm_err *e)
{
    const int64_t n = t->parts * t->k, calls = w->m->chunks > 0 ? w->m->chunks : 1;
    float *v = llm_alloc((size_t)(n + t->parts), sizeof *v, "importances", e);
    if (!v) return -1;
    collect(w->m, t, v, v + n);
    for (int64_t i = 0; i < n; i++) v[i] = v[n + i / t->k] > 0 ? v[i] / v[n + i / t->k] * (float)calls : 0;
    size_t length = strlen(t->spec->name);
    int r = put_int(o, (int64_t)length, e) < 0 || llm_output_write(o, t->spec->name, length, e) < 0 || put_int(o, calls, e) < 0
        || put_int(o, n, e) < 0 || llm_output_write(o, v, (size_t)n * sizeof *v, e) < 0 ? -1 : 0;
    free(v);
    return r;
}

static int write_old(const struct writer *w, const char *dataset, struct llm_output *o, struct llm_err *e)
{
    int r = put_int(o, (int64_t)w->names->n, e);
    for (size_t i = 0; r == 0 && i < w->names->n; i++) r = write_old_entry(w, &w->names->v[i], o, e);
    if (r == 0) r = put_int(o, w->m->chunks, e);
    if (r == 0) r = put_int(o, (int64_t)strlen(dataset), e);
    return r == 0 ? llm_output_write(o, dataset, strlen(dataset), e) : -1;
}

int llm_imatrix_write(const struct llm_moments *m, const struct llm_model *model, bool old, const char *dataset, int64_t chunk_size,
                      struct llm_output *o, struct llm_err *e)
{
    struct names names = {.v = NULL};
    struct writer w = {m, &names};
    int r = list_names(&names, m, model, e);
    if (r == 0) r = old ? write_old(&w, dataset, o, e) : write_gguf(&w, dataset, chunk_size, o, e);
    release(&names);
    return r;
}
