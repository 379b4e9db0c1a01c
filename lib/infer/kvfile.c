#include "infer/kvfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "io/sniff.h"

#define STEP ((size_t)16 << 20) /* memory follows bytes that came, so many at a time */

void llm_kv_file_release(struct llm_kv_file *f)
{
    for (int64_t l = 0; l < f->shape.n_layers; l++) {
        if (f->k) free(f->k[l]);
        if (f->v) free(f->v[l]);
        if (f->q) free(f->q[l]);
    }
    free(f->k);
    free(f->v);
    free(f->q);
    free(f->ids);
    free(f->positions);
    json_decref(f->config_json);
    *f = (struct llm_kv_file){0};
}

/* ---- reading ---- */

static int read_tensor(struct llm_stream *s, const struct llm_entry *t, void **out, struct llm_err *e)
{
    unsigned char *p = NULL;
    for (uint64_t have = 0, step; have < t->bytes || !p; have += step) {
        step = t->bytes - have < STEP ? t->bytes - have : STEP;
        unsigned char *more = realloc(p, have + step + 1);
        if (!more) {
            free(p);
            return llm_no_memory(e, t->name);
        }
        p = more;
        if (step > 0 && llm_stream_read(s, p + have, step, e) < 0) {
            free(p);
            return -1;
        }
        if (t->bytes == 0) break;
    }
    *out = p;
    return 0;
}

static int skip_tensor(struct llm_stream *s, const struct llm_entry *t, struct llm_err *e)
{
    unsigned char scratch[4096];
    for (uint64_t left = t->bytes, step; left > 0; left -= step) {
        step = left < sizeof scratch ? left : sizeof scratch;
        if (llm_stream_read(s, scratch, step, e) < 0) return -1;
    }
    return 0;
}

/* The tensor must have this shape; the first dimension -1: any. */
static int check_shape(const struct llm_entry *t, int n_dims, const int64_t *shape, struct llm_err *e)
{
    bool same = t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++) same = t->shape[i] == shape[i] || (i == 0 && shape[0] < 0);
    if (same) return 0;
    char text[200] = "";
    for (int i = 0, at = 0; i < t->n_dims && at < 160; i++) {
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%" PRId64, i ? ", " : "", t->shape[i]);
    }
    if (n_dims == 1) return llm_fail(e, EX_DATAERR, "tensor '%s': expected [%" PRId64 "] (tokens), found [%s]", t->name, shape[0], text);
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected [%s%" PRId64 ", %" PRId64 ", %" PRId64 "] by its configuration, found [%s]", t->name,
                    shape[0] < 0 ? "any, not " : "", shape[0], shape[1], shape[2], text);
}

static int read_metadata(struct llm_kv_file *f, const struct llm_header *h, struct llm_err *e)
{
    if (!h->kind || strcmp(h->kind, "kvcache") != 0) {
        return llm_fail(e, EX_DATAERR, "expected a KV cache (llm.kind \"kvcache\"), found %s%s%s", h->kind ? "kind \"" : "no llm.kind",
                        h->kind ? h->kind : "", h->kind ? "\"" : "");
    }
    const char *config = llm_header_meta(h, "llm.config"), *fingerprint = llm_header_meta(h, "llm.fingerprint");
    const char *tokenizer = llm_header_meta(h, "llm.tokenizer");
    if (!config) return llm_fail(e, EX_DATAERR, "metadata: expected \"llm.config\", found none");
    f->config_json = llm_json_parse(config, strlen(config), e);
    if (!f->config_json || llm_config_from_json(&f->config, f->config_json, e) < 0) return llm_in(e, "llm.config");
    if ((fingerprint && strlen(fingerprint) >= sizeof f->fingerprint) || (tokenizer && strlen(tokenizer) >= sizeof f->tokenizer)) {
        return llm_fail(e, EX_DATAERR, "metadata: expected identities of at most 64 digits, found longer ones");
    }
    if (fingerprint) memcpy(f->fingerprint, fingerprint, strlen(fingerprint) + 1);
    if (tokenizer) memcpy(f->tokenizer, tokenizer, strlen(tokenizer) + 1);
    return 0;
}

/* The layer and letter of "layers.N.x"; 0 for other names. */
static char parse_name(const char *name, int64_t n_layers, int64_t *layer)
{
    char *end;
    if (strncmp(name, "layers.", 7) != 0 || name[7] < '0' || name[7] > '9' || (name[7] == '0' && name[8] != '.')) return 0;
    *layer = strtoll(name + 7, &end, 10);
    if (*layer >= n_layers || end[0] != '.' || !strchr("kvq", end[1]) || !end[1] || end[2]) return 0;
    return end[1];
}

static int check_tensors(struct llm_kv_file *f, const struct llm_header *h, struct llm_err *e)
{
    const struct llm_entry *ids = llm_header_find(h, "ids"), *positions = llm_header_find(h, "positions");
    const struct llm_entry *first = llm_header_find(h, "layers.0.k"), *traced = llm_header_find(h, "layers.0.q");
    if (!ids || !positions || !first) {
        return llm_fail(e, EX_DATAERR, "expected a tensor '%s', found none", !ids ? "ids" : !positions ? "positions" : "layers.0.k");
    }
    int64_t flat[1] = {ids->n_dims == 1 ? ids->shape[0] : -1};
    if (ids->dtype != LLM_I32 || positions->dtype != LLM_I32) return llm_fail(e, EX_DATAERR, "tensors 'ids' and 'positions': expected I32");
    if (check_shape(ids, 1, flat, e) < 0 || check_shape(positions, 1, flat, e) < 0) return -1;
    f->n = flat[0];
    f->dtype = first->dtype;
    if (f->dtype != LLM_F32 && f->dtype != LLM_F16 && f->dtype != LLM_BF16 && f->dtype != LLM_Q8_0) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected F32, F16, BF16 or Q8_0, found %s", first->name, llm_dtypes[f->dtype].name);
    }
    if (traced) {
        f->n_queries = traced->shape[0];
        if (traced->n_dims != 3 || f->n_queries < 1 || f->n_queries > f->n) {
            return llm_fail(e, EX_DATAERR, "tensor 'layers.0.q': expected queries of 1 to %" PRId64 " tokens", f->n);
        }
    }
    struct llm_cache_shape s = llm_model_cache_shape(&f->config);
    int64_t k[3] = {f->n, s.n_kv_heads, s.d_k}, v[3] = {f->n, s.n_kv_heads, s.d_v};
    int64_t q[3] = {f->n_queries, f->config.num_attention_heads, s.d_k}, seen = 0;
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct llm_entry *t = &h->entries[i];
        int64_t layer;
        char what = parse_name(t->name, s.n_layers, &layer);
        if (!what) continue;
        if (check_shape(t, 3, what == 'k' ? k : what == 'v' ? v : q, e) < 0) return -1;
        enum llm_dtype wanted = what == 'q' ? LLM_F32 : f->dtype;
        if (t->dtype != wanted) {
            return llm_fail(e, EX_DATAERR, "tensor '%s': expected %s, found %s", t->name, llm_dtypes[wanted].name, llm_dtypes[t->dtype].name);
        }
        seen++;
    }
    if (seen != s.n_layers * (f->n_queries ? 3 : 2)) {
        return llm_fail(e, EX_DATAERR, "expected k and v%s of %" PRId64 " layers, found %" PRId64 " such tensors", f->n_queries ? " and q" : "",
                        s.n_layers, seen);
    }
    f->shape = s;
    return 0;
}

static int read_tensors(struct llm_kv_file *f, struct llm_stream *s, const struct llm_header *h, struct llm_err *e)
{
    size_t layers = (size_t)f->shape.n_layers;
    f->k = llm_calloc(layers, sizeof *f->k, "a cache", e);
    f->v = llm_calloc(layers, sizeof *f->v, "a cache", e);
    f->q = llm_calloc(layers, sizeof *f->q, "a cache", e);
    if (!f->k || !f->v || !f->q) return -1;
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct llm_entry *t = &h->entries[i];
        int64_t layer = 0;
        char what = parse_name(t->name, f->shape.n_layers, &layer);
        void *data = NULL;
        if (!what && strcmp(t->name, "ids") != 0 && strcmp(t->name, "positions") != 0) {
            if (skip_tensor(s, t, e) < 0) return -1;
            continue;
        }
        if (read_tensor(s, t, &data, e) < 0) return -1;
        if (what == 'k') f->k[layer] = data;
        else if (what == 'v') f->v[layer] = data;
        else if (what == 'q') f->q[layer] = data;
        else if (t->name[0] == 'i') f->ids = data;
        else f->positions = data;
    }
    return 0;
}

static int check_tokens(const struct llm_kv_file *f, struct llm_err *e)
{
    for (int64_t i = 0; i < f->n; i++) {
        if (f->ids[i] < 0 || f->ids[i] >= f->config.vocab_size) {
            return llm_fail(e, EX_DATAERR, "tensor 'ids': token %" PRId64 ": expected an id below %" PRId64 ", found %" PRId32, i,
                            f->config.vocab_size, f->ids[i]);
        }
        if (f->positions[i] < 0 || (i > 0 && f->positions[i] <= f->positions[i - 1])) {
            return llm_fail(e, EX_DATAERR, "tensor 'positions': token %" PRId64 ": expected ascending positions, found %" PRId32, i,
                            f->positions[i]);
        }
    }
    return 0;
}

/* What clearly is something else is named for what it is, before anything of it is parsed. */
static struct llm_stream *open_cache(const char *path, struct llm_err *e)
{
    enum llm_content content;
    char kind[32];
    struct llm_file *file = llm_file_open(path, e);
    if (!file) return NULL;
    if (llm_sniff(file, &content, e) < 0 || llm_sniff_kind(file, kind, e) < 0) {
        llm_file_close(file);
        return NULL;
    }
    if ((content != LLM_CONTENT_MESSAGE && content != LLM_CONTENT_OTHER) || (kind[0] && strcmp(kind, "kvcache") != 0)) {
        llm_sniff_refuse(file, "a KV cache", e);
        llm_file_close(file);
        return NULL;
    }
    return llm_stream_from_file(file, e);
}

int llm_kv_file_read(struct llm_kv_file *f, const char *path, struct llm_err *e)
{
    const struct llm_header *h;
    struct llm_stream *s = open_cache(path, e);
    if (!s) return -1;
    int got = llm_stream_next(s, &h, e);
    if (got == 0) got = llm_fail(e, EX_DATAERR, "%s: expected a KV cache, found an empty file", llm_stream_name(s));
    if (got > 0 && (read_metadata(f, h, e) < 0 || check_tensors(f, h, e) < 0)) got = llm_in(e, "%s", llm_stream_name(s));
    if (got > 0 && read_tensors(f, s, h, e) < 0) got = -1;
    if (got > 0 && check_tokens(f, e) < 0) got = llm_in(e, "%s", llm_stream_name(s));
    if (got > 0) {
        got = llm_stream_next(s, &h, e);
        if (got > 0) got = llm_fail(e, EX_DATAERR, "%s: expected one KV cache, found another message behind it", llm_stream_name(s));
    }
    llm_stream_destroy(s);
    return got < 0 ? -1 : 0;
}

/* ---- writing ---- */

/* One layer's rows from pages to token order. `value` 0: keys, 1: values. */
static void *gather(const struct llm_kv *kv, int64_t layer, int value, struct llm_err *e)
{
    size_t row = value ? kv->pool->v_row : kv->pool->k_row;
    int64_t heads = kv->pool->shape.n_kv_heads;
    unsigned char *out = llm_alloc((size_t)(kv->n * heads), row, "a cache to write", e);
    for (int64_t t = 0, i = 0; out && t < kv->n; t++) {
        for (int64_t h = 0; h < heads; h++, i++) {
            memcpy(out + (size_t)i * row, value ? llm_kv_value(kv, layer, h, t) : llm_kv_key(kv, layer, h, t), row);
        }
    }
    return out;
}

static float *gather_queries(const struct llm_kv *kv, int64_t layer, int64_t n, struct llm_err *e)
{
    float *out = llm_alloc((size_t)n, (size_t)kv->query_width * sizeof *out, "traced queries to write", e);
    for (int64_t i = 0; out && i < n; i++) {
        int64_t slot = (kv->n - n + i) % kv->n_queries;
        memcpy(out + i * kv->query_width, kv->queries + (layer * kv->n_queries + slot) * kv->query_width,
               (size_t)kv->query_width * sizeof *out);
    }
    return out;
}

static json_t *metadata(struct llm_model *m, struct llm_err *e)
{
    json_t *meta = json_object(), *config = llm_config_to_json(&m->config, e);
    struct llm_buf text = {0};
    bool ok = meta && config && llm_json_dump(config, &text, e) == 0 && llm_model_fingerprint(m, e) == 0;
    ok = ok && json_object_set_new(meta, "llm.config", json_stringn(text.p, text.n)) == 0;
    ok = ok && json_object_set_new(meta, "llm.fingerprint", json_string(m->fingerprint)) == 0;
    if (ok && m->tokenizer) ok = json_object_set_new(meta, "llm.tokenizer", json_string(llm_tokenizer_id(m->tokenizer))) == 0;
    json_decref(config);
    llm_buf_release(&text);
    if (ok) return meta;
    json_decref(meta);
    if (e && e->status == 0) llm_no_memory(e, "a cache's metadata");
    return NULL;
}

struct out_list { struct llm_tensor_out *v; char (*names)[32]; size_t n; };

static int add(struct out_list *l, char what, int64_t layer, enum llm_dtype dtype, int64_t n, int64_t heads, int64_t d, void *data)
{
    snprintf(l->names[l->n], sizeof *l->names, "layers.%" PRId64 ".%c", layer, what);
    l->v[l->n] = (struct llm_tensor_out){l->names[l->n], dtype, 3, {n, heads, d}, data};
    l->n++;
    return data ? 0 : -1;
}

int llm_kv_file_write(const struct llm_kv *kv, struct llm_model *m, struct llm_output *o, struct llm_err *e)
{
    const struct llm_cache_shape *s = &kv->pool->shape;
    size_t room = (size_t)s->n_layers * 3 + 2;
    int64_t traced = kv->n_queries < kv->n ? kv->n_queries : kv->n, heads = m->config.num_attention_heads;
    struct llm_writer *w = NULL;
    json_t *meta = metadata(m, e);
    struct out_list l = {llm_calloc(room, sizeof *l.v, "a cache to write", e), llm_calloc(room, sizeof *l.names, "a cache to write", e), 0};
    int32_t *positions = llm_alloc((size_t)kv->n, sizeof *positions, "positions", e);
    int bad = !meta || !l.v || !l.names || !positions ? -1 : 0;
    for (int64_t i = 0; !bad && i < s->n_layers; i++) {
        bad |= add(&l, 'k', i, kv->pool->dtype, kv->n, s->n_kv_heads, s->d_k, gather(kv, i, 0, e));
        bad |= add(&l, 'v', i, kv->pool->dtype, kv->n, s->n_kv_heads, s->d_v, gather(kv, i, 1, e));
        if (traced > 0) bad |= add(&l, 'q', i, LLM_F32, traced, heads, s->d_k, gather_queries(kv, i, traced, e));
    }
    size_t owned = l.n;
    if (!bad) {
        for (int64_t i = 0; i < kv->n; i++) positions[i] = (int32_t)i;
        l.v[l.n++] = (struct llm_tensor_out){"ids", LLM_I32, 1, {kv->n}, kv->ids};
        l.v[l.n++] = (struct llm_tensor_out){"positions", LLM_I32, 1, {kv->n}, positions};
        w = llm_writer_create(o, e);
        bad = !w || llm_writer_message(w, "kvcache", meta, l.v, l.n, e) < 0 ? -1 : 0;
    }
    llm_writer_destroy(w);
    for (size_t i = 0; i < owned; i++) free((void *)l.v[i].data);
    free(l.v);
    free(l.names);
    free(positions);
    json_decref(meta);
    return bad ? -1 : 0;
}

/* ---- back into a sequence ---- */

void llm_kv_file_decode(const struct llm_kv_file *f, char what, int64_t l, int64_t t, int64_t h, float *out)
{
    int64_t heads = what == 'q' ? f->config.num_attention_heads : f->shape.n_kv_heads, d = what == 'v' ? f->shape.d_v : f->shape.d_k;
    enum llm_dtype dtype = what == 'q' ? LLM_F32 : f->dtype;
    const unsigned char *p = what == 'q' ? (void *)f->q[l] : what == 'v' ? f->v[l] : f->k[l];
    llm_dtypes[dtype].decode(p + (size_t)(t * heads + h) * llm_dtype_bytes(dtype, (uint64_t)d), out, (size_t)d);
}

static int check_model(const struct llm_kv_file *f, struct llm_model *m, struct llm_err *e)
{
    if (llm_model_fingerprint(m, e) < 0) return -1;
    if (strcmp(f->fingerprint, m->fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "expected a cache of this model (fingerprint %s), found one of %s", m->fingerprint,
                        f->fingerprint[0] ? f->fingerprint : "an unknown model");
    }
    struct llm_cache_shape s = llm_model_cache_shape(&m->config);
    if (memcmp(&s, &f->shape, sizeof s) != 0) return llm_fail(e, EX_DATAERR, "the cache's configuration does not agree with the model's");
    if (f->n > 0 && (f->positions[0] != 0 || f->positions[f->n - 1] != f->n - 1)) {
        return llm_fail(e, EX_DATAERR, "expected positions 0 to %" PRId64 ", found %" PRId32 " to %" PRId32 " (a cache with gaps cannot be resumed)",
                        f->n - 1, f->positions[0], f->positions[f->n - 1]);
    }
    return 0;
}

int llm_kv_file_restore(const struct llm_kv_file *f, int64_t n, struct llm_model *m, struct llm_kv *kv, struct llm_err *e)
{
    const struct llm_kv_pool *p = kv->pool;
    if (check_model(f, m, e) < 0 || llm_kv_reserve(kv, n, e) < 0) return -1;
    int64_t widest = f->shape.d_k > f->shape.d_v ? f->shape.d_k : f->shape.d_v;
    float *row = llm_alloc((size_t)widest, sizeof *row, "a cache's row", e);
    if (!row) return -1;
    for (int64_t l = 0; l < f->shape.n_layers; l++)
        for (int64_t t = 0; t < n; t++)
            for (int64_t h = 0; h < f->shape.n_kv_heads; h++) {
                int64_t i = t * f->shape.n_kv_heads + h;
                if (p->dtype == f->dtype) {
                    memcpy(llm_kv_key(kv, l, h, t), (unsigned char *)f->k[l] + (size_t)i * p->k_row, p->k_row);
                    memcpy(llm_kv_value(kv, l, h, t), (unsigned char *)f->v[l] + (size_t)i * p->v_row, p->v_row);
                    continue;
                }
                llm_kv_file_decode(f, 'k', l, t, h, row);
                llm_dtypes[p->dtype].encode(row, llm_kv_key(kv, l, h, t), (size_t)f->shape.d_k);
                llm_kv_file_decode(f, 'v', l, t, h, row);
                llm_dtypes[p->dtype].encode(row, llm_kv_value(kv, l, h, t), (size_t)f->shape.d_v);
            }
    llm_kv_append(kv, f->ids, n);
    free(row);
    return 0;
}
