/* Models to files (model/model.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "cpu/half.h"
#include "cpu/kernels.h"
#include "cpu/pages.h"
#include "model/config/transformers.h"
#include "model/weights/lora.h"
#include "model/weights/model.h"
#include "model/weights/names.h"
#include "model/weights/ngram.h"
#include "model/weights/save_folder.h"

static int append(struct llm_tensor_list *l, const struct llm_tensor_out *t, struct llm_err *e)
{
    if (llm_grow((void **)&l->v, &l->room, l->n + 1, sizeof *l->v, e) < 0) return -1;
    l->v[l->n++] = *t;
    return 0;
}

/* Whether files have a parameter transposed, [in, out]. Quantised matrices never are: their rows are whole blocks. */
static bool is_transposed(const struct llm_param *p)
{
    return p->spec->transposed && !llm_dtypes[p->weight.dtype].is_quantised;
}

/* Elements [first, first + n) of p transposed, square by square so that the cache holds one: rounded to BF16, or their `width` bytes. Inlined, so
 * that a width that is known is no call of memcpy for each element. */
static inline __attribute__((always_inline)) void transpose(const struct llm_param *p, bool rounded, size_t width, size_t first, size_t n, char *out)
{
    const size_t rows = (size_t)p->shape[1], cols = (size_t)p->shape[0], square = 32;
    for (size_t r0 = first / cols; r0 < rows && r0 * cols < first + n; r0 += square) {
        for (size_t c0 = 0; c0 < cols; c0 += square) {
            for (size_t r = r0; r < r0 + square && r < rows; r++) {
                for (size_t c = c0; c < c0 + square && c < cols; c++) {
                    const size_t at = r * cols + c, from = c * rows + r;
                    if (at < first || at - first >= n) continue;
                    const uint16_t x = rounded ? llm_bf16_encode(p->master[from]) : 0;
                    memcpy(out + (at - first) * width, rounded ? (const char *)&x : (const char *)p->weight.data + from * width, width);
                }
            }
        }
    }
}

static void give_transposed(const struct llm_param *p, size_t width, size_t first, size_t n, char *out)
{
    if (p->weight.rounded) transpose(p, true, 2, first, n, out);
    else if (width == 2) transpose(p, false, 2, first, n, out);
    else if (width == 4) transpose(p, false, 4, first, n, out);
    else transpose(p, false, width, first, n, out);
}

/* Elements [first, first + n) of p with its rows in the order of files (llm_row_by_head): rounded to BF16, or its `width` bytes. */
static void give_by_head(const struct llm_config *c, const struct llm_param *p, size_t width, size_t first, size_t n, char *out)
{
    const size_t cols = (size_t)(llm_param_count(p) / p->shape[0]); /* of a bias: 1 */
    for (size_t at = 0, step; at < n; at += step) {
        const size_t column = (first + at) % cols, from = llm_row_by_head(c, (first + at) / cols) * cols + column;
        step = n - at < cols - column ? n - at : cols - column;
        if (p->weight.rounded) llm_k.elementwise.to_bf16((uint16_t *)(void *)out + at, p->master + from, step);
        else memcpy(out + at * width, (const char *)p->weight.data + from * width, step * width);
    }
}

/* Whether what files have of the parameter is made piece by piece as it is written (llm_model_give). Rows of quantised matrices move whole. */
static bool is_given(const struct llm_param *p)
{
    return p->weight.rounded || is_transposed(p) || (p->spec->by_head && !llm_dtypes[p->weight.dtype].is_quantised);
}

void llm_model_give(void *arg, const char *name, uint64_t from, size_t n, void *out)
{
    const struct llm_model *m = arg;
    const struct llm_param *p = llm_model_find(m, name);
    const size_t width = p->weight.rounded ? sizeof(uint16_t) : (size_t)llm_dtypes[p->weight.dtype].block_bytes;
    const size_t first = (size_t)from / width, count = n / width;
    if (p->spec->by_head) give_by_head(&m->config, p, width, first, count, out);
    else if (is_transposed(p)) give_transposed(p, width, first, count, out);
    else llm_k.elementwise.to_bf16(out, p->master + first, count);
}

/* Keeps the copy `made` of parameter i's data, in the order of files, until the next description or the model's end. NULL: no memory. */
static const void *stage(struct llm_model *m, size_t i, void *made, struct llm_err *e)
{
    struct llm_decoder *layout = m->layout;
    if (!made) return NULL;
    if (!layout->staging && !(layout->staging = llm_calloc(m->n_params, sizeof *layout->staging, "staging", e))) {
        free(made);
        return NULL;
    }
    free(layout->staging[i]);
    return layout->staging[i] = made;
}

/* Describes parameter i as files have it; with `data` false, its name and shape alone. If that needs a copy with other rows, it lives until the
 * next description or the model's end. 0 or -1. */
static int describe_param(struct llm_model *m, size_t i, bool data, struct llm_tensor_out *out, struct llm_err *e)
{
    const struct llm_param *p = &m->params[i];
    const struct llm_dtype_row *row = &llm_dtypes[p->weight.dtype];
    *out = (struct llm_tensor_out){.name = p->name, .dtype = p->weight.dtype, .n_dims = p->n_dims, .shape = {p->shape[0], p->shape[1], p->shape[2]},
                                   .data = p->weight.data};
    if (p->spec->file_writes && !row->is_quantised) {
        out->n_dims = p->spec->file_dims;
        memcpy(out->shape, p->spec->file_shape, sizeof p->spec->file_shape);
    }
    if (p->spec->scalar) out->n_dims = 0;
    if (p->weight.rounded) out->dtype = LLM_BF16;
    if (is_transposed(p)) memcpy(out->shape, (int64_t[]){p->shape[1], p->shape[0]}, 2 * sizeof *out->shape);
    if (is_given(p) || !data) out->data = NULL;
    if (is_given(p) || !data || !p->spec->by_head) return 0;
    const size_t bytes = llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p));
    void *made = llm_alloc(bytes, 1, "staging", e);
    if (made) llm_rows_by_head(&m->config, p->weight.data, bytes / (size_t)p->shape[0], true, made);
    out->data = stage(m, i, made, e);
    return out->data ? 0 : -1;
}

static int set_text(json_t *meta, const char *key, const char *text, size_t n, struct llm_err *e)
{
    if (json_object_set_new(meta, key, json_stringn(text, n)) < 0) return llm_no_memory(e, "metadata");
    return 0;
}

static int config_text(const struct llm_model *m, struct llm_buf *b, struct llm_err *e)
{
    json_t *o = llm_config_to_json(&m->config, e);
    int r = o && llm_model_write_labels(m, o) == 0 ? llm_json_dump(o, b, e) : -1;
    json_decref(o);
    return r;
}

/* Nothing reads the tensor in its file for a while. */
static void release_pages(void *model, const char *name, uint64_t from, size_t n)
{
    const struct llm_param *p = llm_model_find(model, name);
    if (!p) return;
    const size_t all = llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p));
    if (!is_given(p)) llm_weight_release_pages(&p->weight, from, n);
    else if (from + n == all) llm_weight_release_pages(&p->weight, 0, all); /* files have its elements in another order */
}

/* Adds a tensor to the hash part by part; one that is described without data is made (llm_model_give). */
static int hash_tensor(struct llm_model *m, struct llm_xxh *h, const struct llm_tensor_out *t, uint64_t bytes, struct llm_err *e)
{
    const uint64_t max = 1 << 20;
    char *part = t->data ? NULL : llm_alloc(max, 1, "a hash", e);
    if (!t->data && !part) return -1;
    for (uint64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < max ? bytes - at : max;
        if (part) llm_model_give(m, t->name, at, n, part);
        llm_xxh_update(h, part ? part : (const char *)t->data + at, n);
        release_pages(m, t->name, at, n);
    }
    free(part);
    return 0;
}

static int hash_model(struct llm_model *m, const struct llm_buf *config, const struct llm_tensor_out *t, size_t n, struct llm_err *e)
{
    struct llm_xxh *h = llm_xxh_create(e);
    if (!h) return -1;
    llm_xxh_update(h, config->p, config->n);
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        llm_xxh_update(h, t[i].name, strlen(t[i].name) + 1);
        uint64_t count = 1;
        for (int d = 0; d < t[i].n_dims; d++) count *= (uint64_t)t[i].shape[d];
        uint64_t bytes = llm_dtype_bytes(t[i].dtype, count);
        if (bytes > 0) r = hash_tensor(m, h, &t[i], bytes, e);
    }
    snprintf(m->fingerprint, sizeof m->fingerprint, "%016llx", (unsigned long long)llm_xxh_digest(h));
    llm_xxh_destroy(h);
    return r;
}

static int describe_tokenizer(struct llm_model *m, struct llm_tensor_list *l, struct llm_err *e)
{
    struct llm_decoder *layout = m->layout;
    struct llm_tensor_out tables[8];
    size_t n = 0;
    if (!m->tokenizer) return 0;
    layout->tokenizer_json.n = 0;
    if (llm_tokenizer_to_json(m->tokenizer, &layout->tokenizer_json, e) < 0 || llm_tokenizer_tables(m->tokenizer, tables, &n, e) < 0) return -1;
    const struct llm_tensor_out text = {.name = LLM_NAME_TOKENIZER_JSON, .dtype = LLM_U8, .n_dims = 1,
                                        .shape = {(int64_t)layout->tokenizer_json.n}, .data = layout->tokenizer_json.p};
    if (append(l, &text, e) < 0) return -1;
    for (size_t i = 0; i < n; i++) {
        if (append(l, &tables[i], e) < 0) return -1;
    }
    return 0;
}

static int describe_weights(struct llm_model *m, bool data, struct llm_tensor_list *tensors, struct llm_err *e)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < m->n_params; i++) {
        struct llm_tensor_out t;
        r = describe_param(m, i, data, &t, e);
        if (r == 0) r = append(tensors, &t, e);
    }
    for (size_t i = 0; r == 0 && m->ngram; i++) {
        const struct llm_ngram_array *a = i < LLM_NGRAM_MAX_TENSORS ? llm_ngram_tensor(m->ngram, i, m->ngram->names[i]) : NULL;
        if (!a) break;
        const struct llm_tensor_out t = {.name = m->ngram->names[i], .dtype = a->dtype, .n_dims = 1, .shape = {(int64_t)a->n}, .data = a->data};
        r = append(tensors, &t, e);
    }
    return r;
}

int llm_model_describe_tensors(struct llm_model *m, bool data, struct llm_tensor_list *tensors, struct llm_err *e)
{
    return describe_weights(m, data, tensors, e) < 0 ? -1 : describe_tokenizer(m, tensors, e);
}

int llm_model_describe(struct llm_model *m, json_t *meta, struct llm_tensor_list *tensors, struct llm_err *e)
{
    struct llm_buf config = {0};
    size_t first = tensors->n;
    int r = config_text(m, &config, e);
    if (r == 0) r = describe_weights(m, true, tensors, e);
    if (r == 0) r = hash_model(m, &config, tensors->v + first, tensors->n - first, e);
    if (r == 0) r = set_text(meta, "format", "pt", 2, e); /* transformers asks for it */
    if (r == 0) r = set_text(meta, LLM_META_CONFIG, config.p, config.n, e);
    if (r == 0) r = set_text(meta, LLM_META_FINGERPRINT, m->fingerprint, strlen(m->fingerprint), e);
    if (r == 0 && m->tokenizer) r = set_text(meta, "llm.tokenizer", llm_tokenizer_id(m->tokenizer), strlen(llm_tokenizer_id(m->tokenizer)), e);
    if (r == 0 && m->chat_template) r = set_text(meta, LLM_META_CHAT_TEMPLATE, m->chat_template, strlen(m->chat_template), e);
    if (r == 0 && m->preprocessor) r = set_text(meta, LLM_META_PREPROCESSOR, m->preprocessor, strlen(m->preprocessor), e);
    if (r == 0) r = describe_tokenizer(m, tensors, e);
    llm_buf_release(&config);
    return r;
}

int llm_model_base_fingerprint(struct llm_model *m, struct llm_err *e)
{
    struct llm_tensor_list l = {0};
    if (m->fingerprint[0]) return 0;
    json_t *meta = json_object();
    int r = meta ? llm_model_describe(m, meta, &l, e) : llm_no_memory(e, "metadata");
    json_decref(meta);
    free(l.v);
    return r;
}

int llm_model_fingerprint(struct llm_model *m, struct llm_err *e)
{
    if (llm_model_base_fingerprint(m, e) < 0) return -1;
    if (!m->lora || m->adapted) return 0;
    m->adapted = true;
    return llm_lora_fingerprint(m, e);
}

int llm_model_save(struct llm_model *m, struct llm_output *o, const struct llm_checkpoint_options *opt, struct llm_err *e)
{
    struct llm_tensor_list l = {0};
    struct llm_checkpoint_options how = *opt;
    json_t *meta = json_object();
    how.give = llm_model_give;
    how.give_arg = m;
    how.written = release_pages;
    how.written_arg = m;
    int r = meta ? llm_model_describe(m, meta, &l, e) : llm_no_memory(e, "metadata");
    if (r == 0) r = llm_checkpoint_write(o, meta, l.v, l.n, &how, e);
    json_decref(meta);
    free(l.v);
    return r;
}

/* The rows of queries and keys of a model that was read from GGUF, in the order that transformers has. tensors [n_params]. 0 or -1. */
static int unpair(struct llm_model *m, struct llm_tensor_out *tensors, struct llm_err *e)
{
    if (llm_config_in_transformers(&m->config).rope_pairing == m->config.rope_pairing) return 0;
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param *p = &m->params[i];
        const enum llm_stem stem = p->spec->stem;
        const bool rotated = stem == LLM_STEM_Q || stem == LLM_STEM_K || stem == LLM_STEM_Q_NORM || stem == LLM_STEM_K_NORM;
        if (!rotated || p->spec->unit != LLM_UNIT_ATTENTION || p->spec->stack != LLM_STACK_MAIN) continue;
        size_t bytes = llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p));
        void *made = llm_alloc(bytes, 1, "staging", e);
        if (made) llm_rows_in_pairs(&m->config, p->weight.data, p->shape[0], bytes / (size_t)p->shape[0], false, made);
        if (!(tensors[i].data = stage(m, i, made, e))) return -1;
    }
    return 0;
}

int llm_model_save_weights(struct llm_model *m, struct llm_output *o, struct llm_err *e)
{
    struct llm_tensor_list l = {0};
    const struct llm_checkpoint_options how = {.plain = true, .give = llm_model_give, .give_arg = m, .written = release_pages,
                                               .written_arg = m};
    json_t *meta = json_pack("{s:s}", "format", "pt"); /* transformers asks for it */
    int r = meta ? describe_weights(m, true, &l, e) : llm_no_memory(e, "metadata");
    if (r == 0) r = unpair(m, l.v, e);
    if (r == 0) r = llm_checkpoint_write(o, meta, l.v, l.n, &how, e);
    json_decref(meta);
    free(l.v);
    return r;
}
