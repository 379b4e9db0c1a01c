#include "infer/kvfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "io/checksums.h"
#include "io/sniff.h"

#define STEP ((size_t)16 << 20) /* memory follows bytes that came, so many at a time */

void llm_kv_file_release(struct llm_kv_file *f)
{
    for (int64_t l = 0; f->layers && l < f->n_layers; l++) {
        free(f->layers[l].k);
        free(f->layers[l].v);
        free(f->layers[l].q);
        free(f->layers[l].kept);
        for (int i = 0; i < LLM_STATE_PARTS; i++) free(f->layers[l].parts[i]);
    }
    free(f->layers);
    free(f->ids);
    free(f->positions);
    json_decref(f->config_json);
    *f = (struct llm_kv_file){0};
}

static const char *key_name(const struct llm_state_shape *s)
{
    return s->d_v > 0 ? "k" : "latent";
}

struct llm_state_shape llm_kv_file_shape(const struct llm_config *c, int64_t layer)
{
    if (c->patch_size == 0) return llm_model_state(c, layer);
    return (struct llm_state_shape){.n_kv_heads = c->num_key_value_heads, .d_k = c->head_dim, .d_v = c->head_dim, .source = layer};
}

/* Whether the layer has keys and values of its own. */
static bool has_keys(const struct llm_state_shape *s, int64_t layer)
{
    return s->n_kv_heads > 0 && s->source == layer;
}

bool llm_kv_file_slot(struct llm_kv_file *f, const char *name, struct llm_kv_slot *slot)
{
    char *word;
    if (strncmp(name, "layers.", 7) != 0 || name[7] < '0' || name[7] > '9' || (name[7] == '0' && name[8] != '.')) return false;
    int64_t layer = strtoll(name + 7, &word, 10);
    if (layer >= f->n_layers || *word++ != '.') return false;
    struct llm_kv_file_layer *l = &f->layers[layer];
    const struct llm_state_shape *s = &l->shape;
    *slot = (struct llm_kv_slot){.dtype = l->types.k, .n_dims = 3, .shape = {f->rows, s->n_kv_heads, s->d_k}};
    if (has_keys(s, layer) && strcmp(word, key_name(s)) == 0) {
        slot->data = &l->k;
    } else if (has_keys(s, layer) && s->d_v > 0 && strcmp(word, "v") == 0) {
        slot->data = &l->v;
        slot->dtype = l->types.v;
        slot->shape[2] = s->d_v;
    } else if (has_keys(s, layer) && f->evicted && strcmp(word, "positions") == 0) {
        *slot = (struct llm_kv_slot){(void **)&l->kept, LLM_I32, 2, {f->rows, s->n_kv_heads}};
    } else if (s->n_kv_heads > 0 && f->n_queries > 0 && strcmp(word, "q") == 0) {
        *slot = (struct llm_kv_slot){&l->q, LLM_F32, 3, {f->n_queries, f->config.num_attention_heads, s->d_k}};
    }
    for (int i = 0; i < LLM_STATE_PARTS; i++) {
        if (s->parts[i].name && strcmp(word, s->parts[i].name) == 0) {
            *slot = (struct llm_kv_slot){&l->parts[i], LLM_F32, 2, {s->parts[i].rows, s->parts[i].cols}};
        }
    }
    return slot->data != NULL;
}

/* The number of tensors in a cache of this configuration, beside ids and positions. */
static int64_t count_slots(const struct llm_kv_file *f)
{
    int64_t n = 0;
    for (int64_t l = 0; l < f->n_layers; l++) {
        const struct llm_state_shape *s = &f->layers[l].shape;
        if (has_keys(s, l)) n += 1 + (s->d_v > 0) + f->evicted;
        n += s->n_kv_heads > 0 && f->n_queries > 0;
        for (int i = 0; i < LLM_STATE_PARTS; i++) n += s->parts[i].name != NULL;
    }
    return n;
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

/* Checks that the tensor has this shape. */
static int check_shape(const struct llm_entry *t, int n_dims, const int64_t *shape, struct llm_err *e)
{
    char found[200] = "", wanted[100] = "";
    bool same = t->n_dims == n_dims;
    for (int i = 0; same && i < n_dims; i++) same = t->shape[i] == shape[i];
    if (same) return 0;
    for (int i = 0, at = 0; i < t->n_dims && at < 160; i++) {
        at += snprintf(found + at, sizeof found - (size_t)at, "%s%" PRId64, i ? ", " : "", t->shape[i]);
    }
    if (n_dims == 1) return llm_fail(e, EX_DATAERR, "tensor '%s': expected [%" PRId64 "] (tokens), found [%s]", t->name, shape[0], found);
    for (int i = 0, at = 0; i < n_dims; i++) {
        at += snprintf(wanted + at, sizeof wanted - (size_t)at, "%s%" PRId64, i ? ", " : "", shape[i]);
    }
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected [%s] by its configuration, found [%s]", t->name, wanted, found);
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
    const char *context = llm_header_meta(h, "llm.rope_context");
    char *end = NULL;
    if (context) f->rope_context = strtoll(context, &end, 10);
    if (context && (*end || f->rope_context < 1)) {
        return llm_fail(e, EX_DATAERR, "metadata: \"llm.rope_context\": expected a number of tokens, found '%s'", context);
    }
    if (fingerprint) memcpy(f->fingerprint, fingerprint, strlen(fingerprint) + 1);
    if (tokenizer) memcpy(f->tokenizer, tokenizer, strlen(tokenizer) + 1);
    return 0;
}

static int take_layers(struct llm_kv_file *f, struct llm_err *e)
{
    f->layers = llm_calloc((size_t)f->config.num_hidden_layers, sizeof *f->layers, "a cache", e);
    if (!f->layers) return -1;
    f->n_layers = f->config.num_hidden_layers;
    for (int64_t l = 0; l < f->n_layers; l++) f->layers[l].shape = llm_kv_file_shape(&f->config, l);
    return 0;
}

/* The type of keys or values of a layer, as the tensor `name` says it, which a later check misses if it is not there. */
static int look_at_type(const struct llm_header *h, const char *name, enum llm_dtype *type, struct llm_err *e)
{
    const struct llm_entry *t = llm_header_find(h, name);
    if (!t) return 0;
    *type = t->dtype;
    char list[200] = "";
    for (int i = 0; llm_kv_word(i); i++) {
        if (llm_kv_types[i] == t->dtype) return 0;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? "|" : "", llm_kv_word(i));
    }
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected %s, found %s", name, list, llm_dtypes[t->dtype].name);
}

static int look_at_types(struct llm_kv_file *f, const struct llm_header *h, struct llm_err *e)
{
    for (int64_t l = 0; l < f->n_layers; l++) {
        struct llm_kv_file_layer *layer = &f->layers[l];
        const struct llm_state_shape *s = &layer->shape;
        char key[40], value[40];
        snprintf(key, sizeof key, "layers.%" PRId64 ".%s", l, key_name(s));
        snprintf(value, sizeof value, "layers.%" PRId64 ".%s", l, s->d_v > 0 ? "v" : key_name(s));
        layer->types = (struct llm_kv_pair){LLM_F32, LLM_F32};
        if (s->n_kv_heads > 0 && s->source != l) layer->types = f->layers[s->source].types;
        if (has_keys(s, l) && (look_at_type(h, key, &layer->types.k, e) < 0 || look_at_type(h, value, &layer->types.v, e) < 0)) return -1;
        layer->types.v = llm_dtype_unrotated(layer->types.v); /* of a latent, which is both: as --cache-type has it */
    }
    return 0;
}

/* Reads the number of rows of keys and values, and the number of queries, from the first layer that has them. */
static int look_at_keys(struct llm_kv_file *f, const struct llm_header *h, struct llm_err *e)
{
    char key[40], query[40], positions[40];
    int64_t l = 0;
    while (l < f->n_layers && f->layers[l].shape.n_kv_heads == 0) l++;
    if (l == f->n_layers) return 0;
    snprintf(key, sizeof key, "layers.%" PRId64 ".%s", l, key_name(&f->layers[l].shape));
    snprintf(query, sizeof query, "layers.%" PRId64 ".q", l);
    snprintf(positions, sizeof positions, "layers.%" PRId64 ".positions", l);
    const struct llm_entry *first = llm_header_find(h, key), *traced = llm_header_find(h, query);
    if (!first) return llm_fail(e, EX_DATAERR, "expected a tensor '%s', found none", key);
    f->evicted = llm_header_find(h, positions) != NULL;
    if (f->evicted && (first->n_dims != 3 || first->shape[0] < 1 || first->shape[0] > f->n)) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected 1 to %" PRId64 " of the tokens", key, f->n);
    }
    if (f->evicted) f->rows = first->shape[0];
    if (!traced) return 0;
    if (traced->n_dims != 3 || traced->shape[0] < 1 || traced->shape[0] > f->n) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected queries of 1 to %" PRId64 " tokens", query, f->n);
    }
    f->n_queries = traced->shape[0];
    return 0;
}

static int check_tensors(struct llm_kv_file *f, const struct llm_header *h, struct llm_err *e)
{
    const struct llm_entry *ids = llm_header_find(h, "ids"), *positions = llm_header_find(h, "positions");
    int64_t seen = 0;
    if (!ids || !positions) return llm_fail(e, EX_DATAERR, "expected a tensor '%s', found none", !ids ? "ids" : "positions");
    int64_t flat[1] = {ids->n_dims == 1 ? ids->shape[0] : -1};
    if (ids->dtype != LLM_I32 || positions->dtype != LLM_I32) return llm_fail(e, EX_DATAERR, "tensors 'ids' and 'positions': expected I32");
    if (check_shape(ids, 1, flat, e) < 0 || check_shape(positions, 1, flat, e) < 0) return -1;
    f->n = f->rows = flat[0];
    if (take_layers(f, e) < 0 || look_at_types(f, h, e) < 0 || look_at_keys(f, h, e) < 0) return -1;
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct llm_entry *t = &h->entries[i];
        struct llm_kv_slot slot;
        if (!llm_kv_file_slot(f, t->name, &slot)) continue;
        if (check_shape(t, slot.n_dims, slot.shape, e) < 0) return -1;
        if (t->dtype != slot.dtype) {
            return llm_fail(e, EX_DATAERR, "tensor '%s': expected %s, found %s", t->name, llm_dtypes[slot.dtype].name, llm_dtypes[t->dtype].name);
        }
        seen++;
    }
    if (seen == count_slots(f)) return 0;
    return llm_fail(e, EX_DATAERR, "expected %" PRId64 " tensors of %" PRId64 " layers%s, found %" PRId64, count_slots(f), f->n_layers,
                    f->n_queries ? " with their queries" : "", seen);
}

static int read_tensors(struct llm_kv_file *f, struct llm_stream *s, const struct llm_header *h, struct llm_err *e)
{
    for (size_t i = 0; i < h->n_entries; i++) {
        const struct llm_entry *t = &h->entries[i];
        struct llm_kv_slot slot;
        bool is_ids = strcmp(t->name, "ids") == 0, is_positions = strcmp(t->name, "positions") == 0;
        void *data = NULL, **to = llm_kv_file_slot(f, t->name, &slot) ? slot.data : NULL;
        if (!to && !is_ids && !is_positions) {
            if (llm_stream_skip(s, t->bytes, e) < 0) return -1;
            continue;
        }
        if (read_tensor(s, t, &data, e) < 0) return -1;
        if (to) *to = data;
        else if (is_ids) f->ids = data;
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

/* Checks the positions of the rows of one head of an evicted cache, and puts the numbers of the tokens that have them in their place. */
static int check_kept(const struct llm_kv_file *f, int64_t l, int64_t h, struct llm_err *e)
{
    int64_t heads = f->layers[l].shape.n_kv_heads, t = 0;
    int32_t *kept = f->layers[l].kept + h;
    for (int64_t r = 0; r < f->rows; r++, t++) {
        int32_t position = kept[r * heads];
        if (r == f->rows - 1 && t < f->n) t = f->n - 1;
        while (t < f->n && f->positions[t] < position) t++;
        if (t == f->n || f->positions[t] != position) {
            return llm_fail(e, EX_DATAERR, "tensor 'layers.%" PRId64 ".positions': head %" PRId64 ": row %" PRId64
                            ": expected ascending positions of tokens up to the last, found %" PRId32, l, h, r, position);
        }
        kept[r * heads] = (int32_t)t;
    }
    return 0;
}

static int check_evicted(const struct llm_kv_file *f, struct llm_err *e)
{
    for (int64_t l = 0; l < f->n_layers && f->evicted; l++) {
        for (int64_t h = 0; f->layers[l].kept && h < f->layers[l].shape.n_kv_heads; h++) {
            if (check_kept(f, l, h, e) < 0) return -1;
        }
    }
    return 0;
}

/* A file that is recognised as another kind is refused by that kind's name, before anything of it is parsed. */
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
    if (got > 0 && (check_tokens(f, e) < 0 || check_evicted(f, e) < 0)) got = llm_in(e, "%s", llm_stream_name(s));
    if (got > 0) {
        if (!llm_header_meta(h, LLM_META_CHECKSUMS)) {
            llm_note("%s: the cache has no checksums: an earlier version wrote it, and its values cannot be verified", llm_stream_name(s));
        }
        got = llm_stream_next(s, &h, e);
        if (got > 0) got = llm_fail(e, EX_DATAERR, "%s: expected one KV cache, found another message after it", llm_stream_name(s));
    }
    llm_stream_destroy(s);
    return got < 0 ? -1 : 0;
}

/* ---- writing ---- */

/* The positions of the rows of an evicted cache, which are the numbers of their tokens: those that it began with, then all later ones. */
static int32_t *gather_kept(const struct llm_kv *kv, int64_t layer, struct llm_err *e)
{
    const struct llm_kv_kept *k = kv->kept;
    int64_t heads = kv->pool->layers[layer].shape.n_kv_heads, rows = llm_kv_rows(kv);
    int32_t *out = llm_alloc((size_t)rows, (size_t)heads * sizeof *out, "a cache to write", e);
    for (int64_t i = 0; out && i < rows * heads; i++) {
        out[i] = i / heads < k->rows ? k->tokens[layer][i] : (int32_t)(k->n + i / heads - k->rows);
    }
    return out;
}

/* Copies one layer's rows from pages into the order of tokens. `value` 0: keys, 1: values. */
static void *gather(const struct llm_kv *kv, int64_t layer, int value, struct llm_err *e)
{
    const struct llm_kv_layer *l = &kv->pool->layers[layer];
    size_t row = value ? l->v_row : l->k_row;
    int64_t heads = l->shape.n_kv_heads;
    int64_t rows = llm_kv_rows(kv);
    unsigned char *out = llm_alloc((size_t)(rows * heads), row, "a cache to write", e);
    for (int64_t t = 0, i = 0; out && t < rows; t++) {
        for (int64_t h = 0; h < heads; h++, i++) {
            memcpy(out + (size_t)i * row, value ? llm_kv_value(kv, layer, h, t) : llm_kv_key(kv, layer, h, t), row);
        }
    }
    return out;
}

/* Copies the layer's ring, whose rows have a width of their own. */
static float *gather_queries(const struct llm_kv *kv, int64_t layer, int64_t n, int64_t width, struct llm_err *e)
{
    float *out = llm_alloc((size_t)n, (size_t)width * sizeof *out, "traced queries to write", e);
    const float *ring = kv->queries + layer * kv->n_queries * kv->query_width;
    for (int64_t i = 0; out && i < n; i++) {
        memcpy(out + i * width, ring + (llm_kv_rows(kv) - n + i) % kv->n_queries * width, (size_t)width * sizeof *out);
    }
    return out;
}

static float *copy_part(const float *state, int64_t n, struct llm_err *e)
{
    float *out = llm_alloc((size_t)n, sizeof *out, "a state to write", e);
    if (out && state) memcpy(out, state, (size_t)n * sizeof *out);
    else if (out) memset(out, 0, (size_t)n * sizeof *out);
    return out;
}

/* Metadata of a cache: of which model it is. New reference. */
static json_t *metadata(const json_t *config, const char *fingerprint, const char *tokenizer, int64_t rope_context, struct llm_err *e)
{
    json_t *meta = json_object();
    struct llm_buf text = {0};
    bool ok = meta && config && llm_json_dump(config, &text, e) == 0;
    ok = ok && json_object_set_new(meta, "llm.config", json_stringn(text.p, text.n)) == 0;
    ok = ok && json_object_set_new(meta, "llm.fingerprint", json_string(fingerprint)) == 0;
    if (ok && rope_context > 0) ok = json_object_set_new(meta, "llm.rope_context", json_sprintf("%" PRId64, rope_context)) == 0;
    if (ok && tokenizer[0]) ok = json_object_set_new(meta, "llm.tokenizer", json_string(tokenizer)) == 0;
    llm_buf_release(&text);
    if (ok) return meta;
    json_decref(meta);
    if (e && e->status == 0) llm_no_memory(e, "a cache's metadata");
    return NULL;
}

static json_t *metadata_of(struct llm_model *m, struct llm_err *e)
{
    json_t *config = llm_config_to_json(&m->config, e), *meta = NULL;
    if (config && llm_model_fingerprint(m, e) == 0) {
        meta = metadata(config, m->fingerprint, m->tokenizer ? llm_tokenizer_id(m->tokenizer) : "", m->rope_context, e);
    }
    json_decref(config);
    return meta;
}

struct out_list { struct llm_tensor_out *v; char (*names)[48]; size_t n; };

static int add(struct out_list *l, const char *what, int64_t layer, const struct llm_tensor_out *t)
{
    snprintf(l->names[l->n], sizeof *l->names, "layers.%" PRId64 ".%s", layer, what);
    l->v[l->n] = *t;
    l->v[l->n].name = l->names[l->n];
    l->n++;
    return t->data ? 0 : -1;
}

/* Appends all tensors of a layer to the list, which then owns their data. `traced`: with queries. */
static int add_layer(struct out_list *l, const struct llm_kv *kv, int64_t layer, int64_t heads, int64_t traced, struct llm_err *e)
{
    const struct llm_state_shape *s = &kv->pool->layers[layer].shape;
    const float *state = llm_kv_state(kv, layer);
    const struct llm_kv_pair types = kv->pool->layers[layer].types;
    int64_t rows = llm_kv_rows(kv);
    int bad = 0;
    if (has_keys(s, layer)) {
        bad |= add(l, key_name(s), layer, &(struct llm_tensor_out){NULL, types.k, 3, {rows, s->n_kv_heads, s->d_k}, gather(kv, layer, 0, e)});
    }
    if (has_keys(s, layer) && s->d_v > 0) {
        bad |= add(l, "v", layer, &(struct llm_tensor_out){NULL, types.v, 3, {rows, s->n_kv_heads, s->d_v}, gather(kv, layer, 1, e)});
    }
    if (has_keys(s, layer) && kv->kept) {
        bad |= add(l, "positions", layer, &(struct llm_tensor_out){NULL, LLM_I32, 2, {rows, s->n_kv_heads}, gather_kept(kv, layer, e)});
    }
    if (s->n_kv_heads > 0 && traced > 0) {
        float *q = gather_queries(kv, layer, traced, heads * s->d_k, e);
        bad |= add(l, "q", layer, &(struct llm_tensor_out){NULL, LLM_F32, 3, {traced, heads, s->d_k}, q});
    }
    for (int i = 0; i < LLM_STATE_PARTS && s->parts[i].name; i++) {
        int64_t n = s->parts[i].rows * s->parts[i].cols;
        bad |= add(l, s->parts[i].name, layer,
                   &(struct llm_tensor_out){NULL, LLM_F32, 2, {s->parts[i].rows, s->parts[i].cols}, copy_part(state, n, e)});
        if (state) state += n;
    }
    return bad;
}

enum { LAYER_TENSORS = 4 + LLM_STATE_PARTS }; /* at most */

static int put(json_t *meta, const struct out_list *l, struct llm_output *o, struct llm_err *e)
{
    struct llm_writer *w = llm_writer_create(o, e);
    int bad = !w || llm_checksums_add(meta, l->v, l->n, e) < 0 || llm_writer_message(w, "kvcache", meta, l->v, l->n, e) < 0;
    llm_writer_destroy(w);
    return bad ? -1 : 0;
}

int llm_kv_file_write(const struct llm_kv *kv, struct llm_model *m, struct llm_output *o, struct llm_err *e)
{
    int64_t layers = kv->pool->n_layers, traced = kv->n_queries < kv->traced ? kv->n_queries : kv->traced;
    size_t room = (size_t)layers * LAYER_TENSORS + 2;
    json_t *meta = metadata_of(m, e);
    struct out_list l = {llm_calloc(room, sizeof *l.v, "a cache to write", e), llm_calloc(room, sizeof *l.names, "a cache to write", e), 0};
    int32_t *positions = llm_alloc(2 * (size_t)kv->n, sizeof *positions, "positions", e), *ids = positions ? positions + kv->n : NULL;
    int bad = !meta || !l.v || !l.names || !positions ? -1 : 0;
    for (int64_t i = 0; !bad && i < layers; i++) bad = add_layer(&l, kv, i, m->config.num_attention_heads, traced, e);
    size_t owned = l.n;
    if (!bad) {
        for (int64_t i = 0; i < kv->n; i++) {
            positions[i] = (int32_t)i;
            ids[i] = kv->ids[i] < m->config.vocab_size ? kv->ids[i] : (int32_t)m->config.projector.image_token; /* ids of pictures: infer/album.h */
        }
        l.v[l.n++] = (struct llm_tensor_out){"ids", LLM_I32, 1, {kv->n}, ids};
        l.v[l.n++] = (struct llm_tensor_out){"positions", LLM_I32, 1, {kv->n}, positions};
        bad = put(meta, &l, o, e);
    }
    for (size_t i = 0; l.v && i < owned; i++) free((void *)l.v[i].data);
    free(l.v);
    free(l.names);
    free(positions);
    json_decref(meta);
    return bad ? -1 : 0;
}

/* The positions of a layer's rows, as files have them. */
static int32_t *positions_of(const struct llm_kv_file *f, int64_t l, struct llm_err *e)
{
    int64_t n = f->rows * f->layers[l].shape.n_kv_heads;
    int32_t *out = llm_alloc((size_t)n, sizeof *out, "positions", e);
    for (int64_t i = 0; out && i < n; i++) out[i] = f->positions[f->layers[l].kept[i]];
    return out;
}

int llm_kv_file_save(const struct llm_kv_file *f, struct llm_output *o, struct llm_err *e)
{
    size_t room = (size_t)f->n_layers * LAYER_TENSORS + 2;
    json_t *meta = metadata(f->config_json, f->fingerprint, f->tokenizer, f->rope_context, e);
    struct out_list l = {llm_calloc(room, sizeof *l.v, "a cache to write", e), llm_calloc(room, sizeof *l.names, "a cache to write", e), 0};
    int32_t **positions = llm_calloc((size_t)f->n_layers, sizeof *positions, "positions", e);
    int bad = !meta || !l.v || !l.names || !positions ? -1 : 0;
    for (int64_t i = 0; !bad && i < f->n_layers; i++) {
        const struct llm_kv_file_layer *layer = &f->layers[i];
        const struct llm_state_shape *s = &layer->shape;
        if (layer->k) bad |= add(&l, key_name(s), i, &(struct llm_tensor_out){NULL, layer->types.k, 3, {f->rows, s->n_kv_heads, s->d_k}, layer->k});
        if (layer->v) bad |= add(&l, "v", i, &(struct llm_tensor_out){NULL, layer->types.v, 3, {f->rows, s->n_kv_heads, s->d_v}, layer->v});
        if (layer->kept) {
            positions[i] = positions_of(f, i, e);
            bad |= add(&l, "positions", i, &(struct llm_tensor_out){NULL, LLM_I32, 2, {f->rows, s->n_kv_heads}, positions[i]});
        }
        if (layer->q && f->n_queries > 0) {
            bad |= add(&l, "q", i, &(struct llm_tensor_out){NULL, LLM_F32, 3, {f->n_queries, f->config.num_attention_heads, s->d_k}, layer->q});
        }
        for (int p = 0; p < LLM_STATE_PARTS && layer->parts[p]; p++) {
            bad |= add(&l, s->parts[p].name, i,
                       &(struct llm_tensor_out){NULL, LLM_F32, 2, {s->parts[p].rows, s->parts[p].cols}, layer->parts[p]});
        }
    }
    if (!bad) {
        l.v[l.n++] = (struct llm_tensor_out){"ids", LLM_I32, 1, {f->n}, f->ids};
        l.v[l.n++] = (struct llm_tensor_out){"positions", LLM_I32, 1, {f->n}, f->positions};
        bad = put(meta, &l, o, e);
    }
    for (int64_t i = 0; positions && i < f->n_layers; i++) free(positions[i]);
    free(positions);
    free(l.v);
    free(l.names);
    json_decref(meta);
    return bad ? -1 : 0;
}

/* ---- back into a sequence ---- */

int64_t llm_kv_file_token(const struct llm_kv_file *f, int64_t l, int64_t r, int64_t h)
{
    const struct llm_kv_file_layer *source = &f->layers[f->layers[l].shape.source];
    return source->kept ? source->kept[r * source->shape.n_kv_heads + h] : r;
}

const char *llm_kv_file_unevictable(const struct llm_config *c)
{
    if (c->num_encoder_layers > 0) return "it is an encoder-decoder";
    if (c->num_latents > 0) return "it is a Perceiver";
    if (c->bidirectional) return "its tokens see one another in both directions";
    if (c->mixer == LLM_MIXER_HYENA) return "its convolutions are sums over all tokens";
    if (c->dual_chunk_size > 0) return "dual chunk attention rotates by chunks of positions";
    if (c->position == LLM_POSITION_BUCKETS) return "its attention adds a bias for distances";
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        if (llm_config_window(c, l) > 0) return "it has a sliding window, which drops keys itself";
        if (llm_config_block(c, l) > 0) return "its tokens see their own block alone";
    }
    return NULL;
}

void llm_kv_file_decode(const struct llm_kv_file *f, char what, int64_t l, int64_t r, int64_t h, float *out)
{
    const struct llm_kv_file_layer *layer = &f->layers[l], *source = &f->layers[layer->shape.source];
    int64_t heads = what == 'q' ? f->config.num_attention_heads : layer->shape.n_kv_heads;
    int64_t d = what == 'v' && source->v ? layer->shape.d_v : layer->shape.d_k;
    const enum llm_dtype dtype = what == 'q' ? LLM_F32 : what == 'v' && source->v ? source->types.v : source->types.k;
    const unsigned char *p = what == 'q' ? layer->q : what == 'v' && source->v ? source->v : source->k;
    llm_dtypes[dtype].decode(p + (size_t)(r * heads + h) * llm_dtype_bytes(dtype, (uint64_t)d), out, (size_t)d);
}

static int check_model(const struct llm_kv_file *f, struct llm_model *m, struct llm_err *e)
{
    bool same = f->n_layers == m->config.num_hidden_layers;
    if (llm_model_fingerprint(m, e) < 0) return -1;
    if (strcmp(f->fingerprint, m->fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "expected a cache of this model (fingerprint %s), found one of %s", m->fingerprint,
                        f->fingerprint[0] ? f->fingerprint : "an unknown model");
    }
    for (int64_t l = 0; same && l < f->n_layers; l++) {
        struct llm_state_shape s = llm_model_state(&m->config, l);
        same = memcmp(&s, &f->layers[l].shape, sizeof s) == 0;
    }
    if (!same) return llm_fail(e, EX_DATAERR, "the cache's configuration does not agree with the model's");
    if (f->n > 0 && (f->positions[0] != 0 || f->positions[f->n - 1] != f->n - 1)) {
        return llm_fail(e, EX_DATAERR, "expected positions 0 to %" PRId64 ", found %" PRId32 " to %" PRId32 " (a cache with gaps cannot be resumed)",
                        f->n - 1, f->positions[0], f->positions[f->n - 1]);
    }
    return 0;
}

/* `value` 0: keys, 1: values. */
static void restore_rows(const struct llm_kv_file *f, int64_t l, int value, int64_t n, struct llm_kv *kv, float *row)
{
    const struct llm_kv_pool *p = kv->pool;
    const struct llm_state_shape *s = &f->layers[l].shape;
    size_t bytes = value ? p->layers[l].v_row : p->layers[l].k_row;
    const enum llm_dtype type = value ? p->layers[l].types.v : p->layers[l].types.k;
    const unsigned char *from = value ? f->layers[l].v : f->layers[l].k;
    for (int64_t i = 0; i < n * s->n_kv_heads; i++) {
        int64_t t = i / s->n_kv_heads, h = i % s->n_kv_heads;
        void *to = value ? llm_kv_value(kv, l, h, t) : llm_kv_key(kv, l, h, t);
        if (type == (value ? f->layers[l].types.v : f->layers[l].types.k)) {
            memcpy(to, from + (size_t)i * bytes, bytes);
            continue;
        }
        llm_kv_file_decode(f, value ? 'v' : 'k', l, t, h, row);
        llm_dtypes[type].encode(row, to, (size_t)(value ? s->d_v : s->d_k));
    }
}

/* What an evicted cache says of its rows, for the sequences that begin with it; counts one user. NULL: see `e`. */
static struct llm_kv_kept *kept_of(const struct llm_kv_file *f, struct llm_err *e)
{
    struct llm_kv_kept *k = llm_calloc(1, sizeof *k + (size_t)f->n_layers * sizeof *k->tokens, "an evicted cache", e);
    if (!k) return NULL;
    *k = (struct llm_kv_kept){.users = 1, .n = f->n, .rows = f->rows, .recent = f->rows, .n_layers = f->n_layers};
    for (int64_t l = 0; l < f->n_layers; l++) {
        const int32_t *from = f->layers[l].kept;
        int64_t heads = f->layers[l].shape.n_kv_heads;
        if (!from) continue;
        k->tokens[l] = llm_alloc((size_t)(f->rows * heads), sizeof *from, "an evicted cache", e);
        if (!k->tokens[l]) {
            llm_kv_kept_release(k);
            return NULL;
        }
        memcpy(k->tokens[l], from, (size_t)(f->rows * heads) * sizeof *from);
        for (int64_t h = 0; h < heads; h++) {
            while (from[(f->rows - k->recent) * heads + h] != f->n - k->recent) k->recent--; /* row rows - 1 is token n - 1 */
        }
    }
    return k;
}

/* Room in an empty sequence for the first n tokens of the file. */
static int make_room(const struct llm_kv_file *f, int64_t n, struct llm_kv *kv, struct llm_err *e)
{
    const char *why = llm_kv_file_unevictable(&f->config);
    if (!f->evicted) return llm_kv_reserve(kv, n, e);
    if (why) return llm_fail(e, EX_DATAERR, "expected a model whose keys can be evicted, found %s: %s", f->config.model_type, why);
    if (n < f->n) return llm_fail(e, EX_DATAERR, "expected to keep all %" PRId64 " tokens of an evicted cache, found %" PRId64, f->n, n);
    struct llm_kv_kept *kept = kept_of(f, e);
    if (!kept) return -1;
    llm_kv_keep(kv, kept);
    llm_kv_kept_release(kept);
    return llm_kv_reserve(kv, n, e);
}

/* Refuses keys that were rotated for another context, if the rotary frequencies depend on it. */
static int check_context(const struct llm_kv_file *f, const struct llm_model *m, struct llm_err *e)
{
    if (m->rope_context == 0) return 0;
    if (f->rope_context == 0) {
        llm_warn("the cache does not say for which context its keys were rotated: expected %" PRId64 " tokens (-c)", m->rope_context);
        return 0;
    }
    if (llm_rope_same_context(&m->config.rope_scaling, f->rope_context, m->rope_context, m->config.max_position_embeddings)) return 0;
    return llm_fail(e, EX_DATAERR, "expected keys with rotary positions for a context of %" PRId64 " tokens (-c), found %" PRId64, m->rope_context,
                    f->rope_context);
}

int llm_kv_file_restore(const struct llm_kv_file *f, int64_t n, struct llm_model *m, struct llm_kv *kv, struct llm_err *e)
{
    int64_t widest = 1;
    if (check_model(f, m, e) < 0 || check_context(f, m, e) < 0 || make_room(f, n, kv, e) < 0) return -1;
    if (n < f->n && kv->pool->state_floats > 0) {
        return llm_fail(e, EX_DATAERR, "expected to keep all %" PRId64 " tokens: the state of a recurrent model is that after the last", f->n);
    }
    for (int64_t l = 0; l < f->n_layers; l++) {
        const struct llm_state_shape *s = &f->layers[l].shape;
        widest = s->d_k > widest ? s->d_k : widest;
        widest = s->d_v > widest ? s->d_v : widest;
    }
    float *row = llm_alloc((size_t)widest, sizeof *row, "a cache's row", e);
    if (!row) return -1;
    for (int64_t l = 0; l < f->n_layers; l++) {
        const struct llm_kv_file_layer *layer = &f->layers[l];
        float *state = llm_kv_state(kv, l);
        if (layer->k) restore_rows(f, l, 0, f->evicted ? f->rows : n, kv, row);
        if (layer->v) restore_rows(f, l, 1, f->evicted ? f->rows : n, kv, row);
        for (int i = 0; i < LLM_STATE_PARTS && layer->parts[i]; i++) {
            int64_t count = layer->shape.parts[i].rows * layer->shape.parts[i].cols;
            memcpy(state, layer->parts[i], (size_t)count * sizeof *state);
            state += count;
        }
    }
    llm_kv_append(kv, f->ids, n);
    kv->traced = 0; /* these tokens ran elsewhere */
    free(row);
    return 0;
}
