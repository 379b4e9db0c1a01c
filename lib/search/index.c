#include "search/index.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "base/json.h"
#include "search/graph.h"

const char *const llm_metrics[] = {"cosine", "dot", "l2", NULL};
const char *const llm_coarses[] = {"f32", "f16", "i8", "none", NULL};
enum { VERSION = 1 };

int llm_id_compare(const char *a, size_t n_a, const char *b, size_t n_b)
{
    if (n_a != n_b) return n_a < n_b ? -1 : 1;
    return n_a ? memcmp(a, b, n_a) : 0;
}

int64_t llm_index_find(const struct llm_index *x, const char *id, size_t n)
{
    int64_t low = 0, high = x->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int c = llm_id_compare(x->ids.bytes + x->ids.at[middle], x->ids.at[middle + 1] - x->ids.at[middle], id, n);
        if (c == 0) return middle;
        if (c < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

void *llm_index_alloc(struct llm_index *x, size_t count, size_t size, struct llm_err *e)
{
    void *p = llm_alloc_huge(count, size, "an index", e);
    if (p) x->owned[x->n_owned++] = p;
    return p;
}

void llm_index_release(struct llm_index *x)
{
    for (int i = 0; i < x->n_owned; i++) free(x->owned[i]);
    llm_checkpoint_close(x->file);
    *x = (struct llm_index){0};
}

/* The arrays of a file: what stands under which name. */
enum { MAX_ARRAYS = 48 };
struct array {
    const char *name;
    enum llm_dtype dtype;
    int n_dims;
    int64_t shape[2];
    void **at;
};

static size_t list(struct llm_index *x, struct array out[MAX_ARRAYS])
{
    size_t n = 0;
    bool bytes = x->coarse == LLM_COARSE_I8;
    out[n++] = (struct array){"ids.at", LLM_U64, 1, {x->n + 1, 0}, (void **)&x->ids.at};
    out[n++] = (struct array){"ids.bytes", LLM_U8, 1, {-1, 0}, (void **)&x->ids.bytes};
    out[n++] = (struct array){"texts.at", LLM_U64, 1, {x->n + 1, 0}, (void **)&x->texts.at};
    out[n++] = (struct array){"texts.bytes", LLM_U8, 1, {-1, 0}, (void **)&x->texts.bytes};
    out[n++] = (struct array){"metadata.at", LLM_U64, 1, {x->n + 1, 0}, (void **)&x->metadata.at};
    out[n++] = (struct array){"metadata.bytes", LLM_U8, 1, {-1, 0}, (void **)&x->metadata.bytes};
    out[n++] = (struct array){"deleted", LLM_U8, 1, {x->n, 0}, (void **)&x->deleted};
    out[n++] = (struct array){"vectors", LLM_F32, 2, {x->n, x->dims}, (void **)&x->vectors};
    out[n++] = (struct array){"lengths", LLM_F32, 1, {x->n, 0}, (void **)&x->lengths};
    out[n++] = (struct array){"words.at", LLM_U64, 1, {x->n_words + 1, 0}, (void **)&x->words.at};
    out[n++] = (struct array){"words.bytes", LLM_U8, 1, {-1, 0}, (void **)&x->words.bytes};
    out[n++] = (struct array){"postings.at", LLM_U64, 1, {x->n_words + 1, 0}, (void **)&x->postings_at};
    out[n++] = (struct array){"postings.rows", LLM_U32, 1, {-2, 0}, (void **)&x->posting_rows};
    out[n++] = (struct array){"postings.counts", LLM_U32, 1, {-2, 0}, (void **)&x->posting_counts};
    out[n++] = (struct array){"lengths_in_words", LLM_U32, 1, {x->n, 0}, (void **)&x->lengths_in_words};
    if (x->coarse == LLM_COARSE_F16 || x->coarse == LLM_COARSE_I8) {
        out[n++] = (struct array){"rounded", bytes ? LLM_U8 : LLM_F16, 2, {x->n, bytes ? x->padded / 32 * 34 : x->padded}, &x->rounded};
    }
    for (int l = 0; l < LLM_GRAPH_LEVELS && x->graph.m > 0; l++) {
        static const char *const names[LLM_GRAPH_LEVELS][3] = {
            {"graph.0.links", "graph.parents", ""}, {"graph.1.links", "graph.1.rows", "graph.1.down"},
            {"graph.2.links", "graph.2.rows", "graph.2.down"}, {"graph.3.links", "graph.3.rows", "graph.3.down"},
            {"graph.4.links", "graph.4.rows", "graph.4.down"}, {"graph.5.links", "graph.5.rows", "graph.5.down"}};
        struct llm_graph_level *v = &x->graph.level[l];
        out[n++] = (struct array){names[l][0], LLM_U32, 2, {v->n, v->width}, (void **)&v->links};
        out[n++] = (struct array){names[l][1], LLM_U32, 1, {v->n, 0}, (void **)(l ? &v->rows : &x->graph.parents)};
        if (l > 0) out[n++] = (struct array){names[l][2], LLM_U32, 1, {v->n, 0}, (void **)&v->down};
    }
    return n;
}

/* XXH64 of all arrays, in the order of the list. */
static uint64_t checksum(struct array *all, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        size_t elements = (size_t)all[i].shape[0] * (size_t)(all[i].n_dims == 2 ? all[i].shape[1] : 1);
        sum = llm_xxh64(*all[i].at, llm_dtype_bytes(all[i].dtype, elements), sum);
    }
    return sum;
}

/* ---- writing ---- */

static int describe(const struct llm_index *x, uint64_t sum, json_t **meta, struct llm_err *e)
{
    char hex[17];
    json_t *graph = NULL;
    snprintf(hex, sizeof hex, "%016" PRIx64, sum);
    json_t *o = json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "version", VERSION, "metric", llm_metrics[x->metric], "vectors",
                          llm_coarses[x->coarse], "dims", (json_int_t)x->dims, "rows", (json_int_t)x->n,
                          "words", (json_int_t)x->n_words, "seed", (json_int_t)x->seed, "checksum", hex);
    if (o && x->graph.m > 0) {
        json_t *levels = json_array();
        for (int l = 0; l < LLM_GRAPH_LEVELS; l++) json_array_append_new(levels, json_integer(x->graph.level[l].n));
        graph = json_pack("{s:I, s:I, s:o}", "neighbours", (json_int_t)x->graph.m, "candidates", (json_int_t)x->graph.ef_build, "levels", levels);
        if (!graph || json_object_set_new(o, "graph", graph) < 0) {
            json_decref(o);
            return llm_no_memory(e, "an index's metadata");
        }
    }
    if (o && x->has_recall && json_object_set_new(o, "recall", json_real(x->recall)) < 0) {
        json_decref(o);
        return llm_no_memory(e, "an index's metadata");
    }
    struct llm_buf text = {0};
    int status = o && llm_json_dump(o, &text, e) == 0 ? 0 : -1;
    *meta = status == 0 ? json_pack("{s:s}", "llm.index", text.p) : NULL;
    if (*meta && x->fingerprint[0] && json_object_set_new(*meta, "llm.fingerprint", json_string(x->fingerprint)) < 0) status = -1;
    if (*meta && x->place[0] && json_object_set_new(*meta, "llm.place", json_string(x->place)) < 0) status = -1;
    json_decref(o);
    llm_buf_release(&text);
    return status == 0 && *meta ? 0 : e->status ? -1 : llm_no_memory(e, "an index's metadata");
}

int llm_index_write(const struct llm_index *x, struct llm_output *o, bool plain, struct llm_err *e)
{
    struct llm_index copy = *x;
    struct array all[MAX_ARRAYS];
    struct llm_tensor_out out[MAX_ARRAYS];
    size_t n = list(&copy, all);
    json_t *meta = NULL;
    for (size_t i = 0; i < n; i++) {
        if (all[i].shape[0] == -1) all[i].shape[0] = (int64_t)((uint64_t *)*all[i - 1].at)[all[i - 1].shape[0] - 1]; /* offsets precede bytes */
        if (all[i].shape[0] == -2) all[i].shape[0] = (int64_t)x->postings_at[x->n_words];
        out[i] = (struct llm_tensor_out){all[i].name, all[i].dtype, all[i].n_dims, {all[i].shape[0], all[i].shape[1]}, *all[i].at};
    }
    const struct llm_checkpoint_options opt = {.kind = "index", .planes = true, .plain = plain};
    int status = describe(x, checksum(all, n), &meta, e);
    if (status == 0) status = llm_checkpoint_write(o, meta, out, n, &opt, e);
    json_decref(meta);
    return status;
}

/* ---- reading ---- */

static int word(const json_t *o, const char *key, const char *const *words, int *out, struct llm_err *e)
{
    const char *s = NULL;
    if (llm_json_str(o, key, &s, e) < 0) return -1;
    for (*out = 0; s && words[*out]; ++*out) {
        if (strcmp(s, words[*out]) == 0) return 0;
    }
    return llm_fail(e, EX_DATAERR, "'%s': expected %s, …, found '%.40s'", key, words[0], s ? s : "");
}

/* "graph": {"neighbours": m, "candidates": ef, "levels": [n, ...]}. */
static int read_graph(struct llm_index *x, const json_t *o, struct llm_err *e)
{
    struct llm_graph *g = &x->graph;
    const json_t *levels = json_object_get(o, "levels");
    if (!o) return 0;
    if (!json_is_object(o) || json_array_size(levels) != LLM_GRAPH_LEVELS) {
        return llm_fail(e, EX_DATAERR, "graph: expected an object with %d levels", LLM_GRAPH_LEVELS);
    }
    if (llm_json_int(o, "neighbours", 4, 128, &g->m, e) < 0 || llm_json_int(o, "candidates", 1, 1 << 20, &g->ef_build, e) < 0) return -1;
    if (g->m == 0) return llm_fail(e, EX_DATAERR, "graph: expected 'neighbours'");
    for (int l = 0; l < LLM_GRAPH_LEVELS; l++) {
        int64_t n = json_integer_value(json_array_get(levels, (size_t)l)), most = l ? g->level[l - 1].n : x->n;
        if (n < 0 || n > most) return llm_fail(e, EX_DATAERR, "graph: level %d: expected 0 to %" PRId64 " rows, found %" PRId64, l, most, n);
        g->level[l] = (struct llm_graph_level){.n = n, .width = l ? g->m : 2 * g->m};
    }
    g->n = g->level[0].n;
    return 0;
}

static int read_settings(struct llm_index *x, uint64_t *sum, struct llm_err *e)
{
    const struct llm_header *h = llm_checkpoint_header(x->file);
    const char *text = h->kind && strcmp(h->kind, "index") == 0 ? llm_header_meta(h, "llm.index") : NULL, *hex = NULL;
    const char *fingerprint = llm_header_meta(h, "llm.fingerprint"), *place = llm_header_meta(h, "llm.place");
    int64_t version = 0, seed = 0;
    int metric = 0, coarse = 0;
    double recall = -1;
    if (!text) return llm_fail(e, EX_DATAERR, "expected an index (llm-index build), found %s", h->kind ? h->kind : "other tensors");
    json_t *o = llm_json_parse(text, strlen(text), e);
    if (!o) return llm_in(e, "llm.index");
    x->dims = x->n = -1;
    int status = json_is_object(o) ? 0 : llm_fail(e, EX_DATAERR, "expected an object");
    if (status == 0) status = llm_json_int(o, "version", 0, INT32_MAX, &version, e);
    if (status == 0 && version != VERSION) status = llm_fail(e, EX_DATAERR, "version: expected %d, found %" PRId64, VERSION, version);
    if (status == 0) status = word(o, "metric", llm_metrics, &metric, e);
    if (status == 0) status = word(o, "vectors", llm_coarses, &coarse, e);
    if (status == 0) status = llm_json_int(o, "dims", 0, LLM_MAX_DIMS_OF_VECTOR, &x->dims, e);
    if (status == 0 && x->dims >= 0 && (x->dims == 0) != (coarse == LLM_COARSE_NONE)) {
        status = llm_fail(e, EX_DATAERR, "dims: expected 0 with 'vectors' none alone, found %" PRId64 " with %s", x->dims, llm_coarses[coarse]);
    }
    if (status == 0 && x->dims == 0 && json_object_get(o, "graph")) status = llm_fail(e, EX_DATAERR, "expected no graph without vectors");
    if (status == 0) status = llm_json_int(o, "rows", 0, INT32_MAX, &x->n, e);
    if (status == 0) status = llm_json_int(o, "words", 0, UINT32_MAX, &x->n_words, e);
    if (status == 0) status = llm_json_int(o, "seed", 0, INT64_MAX, &seed, e);
    if (status == 0) status = read_graph(x, json_object_get(o, "graph"), e);
    if (status == 0) status = llm_json_real(o, "recall", &recall, e);
    if (status == 0 && recall > 1) status = llm_fail(e, EX_DATAERR, "recall: expected 0 to 1, found %g", recall);
    if (status == 0) status = llm_json_str(o, "checksum", &hex, e);
    if (status == 0 && (x->dims < 0 || x->n < 0 || !hex)) status = llm_fail(e, EX_DATAERR, "expected 'dims', 'rows' and 'checksum'");
    x->metric = (enum llm_metric)metric;
    x->coarse = (enum llm_coarse)coarse;
    x->seed = (uint64_t)seed;
    x->recall = recall;
    x->has_recall = recall >= 0;
    x->padded = (x->dims + 31) / 32 * 32;
    if (status == 0) {
        char *end;
        *sum = strtoull(hex, &end, 16);
        if (strlen(hex) != 16 || *end) status = llm_fail(e, EX_DATAERR, "checksum: expected 16 hexadecimal digits, found '%.40s'", hex);
    }
    if (status == 0 && fingerprint) snprintf(x->fingerprint, sizeof x->fingerprint, "%s", fingerprint);
    if (status == 0 && place) snprintf(x->place, sizeof x->place, "%s", place);
    json_decref(o);
    return status < 0 ? llm_in(e, "llm.index") : 0;
}

static int read_array(struct llm_index *x, struct array *a, struct llm_err *e)
{
    const struct llm_entry *t = llm_header_find(llm_checkpoint_header(x->file), a->name);
    if (!t) return llm_fail(e, EX_DATAERR, "tensor '%s': expected in an index, found none", a->name);
    bool fits = t->dtype == a->dtype && t->n_dims == a->n_dims;
    for (int i = 0; fits && i < a->n_dims; i++) {
        if (a->shape[i] < 0) a->shape[i] = t->shape[i];
        fits = t->shape[i] == a->shape[i];
    }
    if (!fits) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected %s [%" PRId64 "%s], found another type or shape", a->name,
                        llm_dtypes[a->dtype].safetensors, a->shape[0], a->n_dims == 2 ? ", …" : "");
    }
    const void *mapped = llm_checkpoint_borrow(x->file, t);
    if (mapped) {
        x->plain = true;
        *a->at = (void *)(uintptr_t)mapped;
        return 0;
    }
    size_t elements = (size_t)a->shape[0] * (size_t)(a->n_dims == 2 ? a->shape[1] : 1);
    *a->at = llm_index_alloc(x, llm_dtype_bytes(a->dtype, elements) + 1, 1, e);
    return *a->at && llm_checkpoint_read(x->file, t, *a->at, e) == 0 ? 0 : -1;
}

static int check_offsets(const uint64_t *at, int64_t n, int64_t end, const char *what, struct llm_err *e)
{
    bool good = at[0] == 0 && at[n] == (uint64_t)end;
    for (int64_t i = 0; good && i < n; i++) good = at[i] <= at[i + 1];
    return good ? 0 : llm_fail(e, EX_DATAERR, "%s: expected offsets that rise from 0 to %" PRId64, what, end);
}

/* Words in their order; the rows of each in theirs. */
static int check_words(const struct llm_index *x, struct llm_err *e)
{
    const struct llm_texts *t = &x->words;
    for (int64_t w = 0; w < x->n_words; w++) {
        size_t n = t->at[w + 1] - t->at[w], before = w ? t->at[w] - t->at[w - 1] : 0, both = n < before ? n : before;
        int c = w ? memcmp(t->bytes + t->at[w - 1], t->bytes + t->at[w], both) : -1;
        bool good = n > 0 && (c < 0 || (c == 0 && before < n)) && x->postings_at[w] < x->postings_at[w + 1];
        for (uint64_t i = x->postings_at[w]; good && i < x->postings_at[w + 1]; i++) {
            good = x->posting_rows[i] < x->n && x->posting_counts[i] > 0 && (i == x->postings_at[w] || x->posting_rows[i - 1] < x->posting_rows[i]);
        }
        if (!good) return llm_fail(e, EX_DATAERR, "word %" PRId64 ": expected words and their rows in order", w);
    }
    return 0;
}

static int check_rows(struct llm_index *x, struct llm_err *e)
{
    const struct llm_texts *t = &x->ids;
    for (int64_t i = 0; i < x->n; i++) {
        size_t n = t->at[i + 1] - t->at[i];
        if (n == 0 || n > LLM_MAX_ID_BYTES) return llm_fail(e, EX_DATAERR, "row %" PRId64 ": expected an id of 1 to %d bytes", i, LLM_MAX_ID_BYTES);
        if (i > 0 && llm_id_compare(t->bytes + t->at[i - 1], t->at[i] - t->at[i - 1], t->bytes + t->at[i], n) >= 0) {
            return llm_fail(e, EX_DATAERR, "row %" PRId64 ": expected ids in their order", i);
        }
        if (x->deleted[i] > 1) return llm_fail(e, EX_DATAERR, "row %" PRId64 ": expected 0 or 1 in 'deleted'", i);
        x->n_deleted += x->deleted[i];
        if (!isfinite(x->lengths[i])) return llm_fail(e, EX_DATAERR, "row %" PRId64 ": expected a finite length", i);
    }
    return 0;
}

int llm_index_open(struct llm_index *x, const char *path, bool trusted, struct llm_err *e)
{
    struct array all[MAX_ARRAYS];
    uint64_t sum = 0;
    x->file = llm_checkpoint_open(path, e);
    if (!x->file) return -1;
    x->name = llm_checkpoint_name(x->file);
    int status = read_settings(x, &sum, e);
    size_t n = status == 0 ? list(x, all) : 0;
    for (size_t i = 0; i < n && status == 0; i++) status = read_array(x, &all[i], e);
    /* An entry that is not in the list would be covered by no checksum. */
    if (status == 0 && llm_checkpoint_header(x->file)->n_entries != n) {
        status = llm_fail(e, EX_DATAERR, "expected %zu tensors, found others beside", n);
    }
    if (status == 0) status = check_offsets(x->ids.at, x->n, all[1].shape[0], "ids", e);
    if (status == 0) status = check_offsets(x->texts.at, x->n, all[3].shape[0], "texts", e);
    if (status == 0) status = check_offsets(x->metadata.at, x->n, all[5].shape[0], "metadata", e);
    if (status == 0) status = check_offsets(x->words.at, x->n_words, all[10].shape[0], "words", e);
    if (status == 0) status = check_offsets(x->postings_at, x->n_words, all[12].shape[0], "postings", e);
    if (status == 0 && all[12].shape[0] != all[13].shape[0]) status = llm_fail(e, EX_DATAERR, "expected as many postings.counts as postings.rows");
    if (status == 0) status = check_words(x, e);
    if (status == 0 && !trusted && checksum(all, n) != sum) {
        status = llm_fail(e, EX_DATAERR, "the checksum of the tensors is wrong: the file is damaged");
    }
    if (status == 0) status = check_rows(x, e);
    if (status == 0 && x->graph.m > 0) status = llm_graph_check(x, e);
    return status < 0 ? llm_in(e, "%s", x->name) : 0;
}
