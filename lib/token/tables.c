/* The compiled form: plain tensors that need no parsing. "tokenizer.pieces" U8 (all texts), "tokenizer.offsets" U32 [ids + 1],
 * "tokenizer.flags" U8 [ids], "tokenizer.merges" U32 [merges, 4] (left, right, rank, id), "tokenizer.settings" U8 (a small JSON object),
 * "tokenizer.scores" F64 [ids] of a Unigram model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "io/checkpoint.h"
#include "token/internal.h"
#include "token/unicode.h"

/* llm_model_bpe_chars is "bpe" with parts and without ByteLevel among them. */
static const struct llm_model_row *const models[] = {&llm_model_bpe, &llm_model_byte, &llm_model_char, &llm_model_greedy, &llm_model_unigram,
                                                    &llm_model_wordpiece};

static json_t *id_list(const int32_t *ids, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n && list; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static int make_settings(struct llm_tokenizer *t, struct llm_err *e)
{
    json_t *splits = json_array();
    for (int i = 0; i < t->n_splits; i++)
        json_array_append_new(splits, json_string(t->splits[i].row ? t->splits[i].row->name : t->splits[i].pattern));
    json_t *o = json_pack("{s:s, s:s?, s:o, s:b, s:b, s:i, s:o, s:o, s:i, s:i, s:s}", "type", t->model->name, "normalizer",
                          t->normaliser ? t->normaliser->name : NULL, "splits", splits, "ignore_merges", t->ignore_merges, "add_prefix_space",
                          t->add_prefix_space, "unknown", t->unknown, "before", id_list(t->before, t->n_before), "after",
                          id_list(t->after, t->n_after), "bos", t->bos, "eos", t->eos, "id", t->id);
    if (o && t->generic
        && json_object_update_new(o, json_pack("{s:O, s:b, s:b, s:b, s:s, s:I}", "parts", t->parts, "byte_fallback", t->byte_fallback, "fuse_unk",
                                               t->fuse_unknown, "sentencepiece", t->sentencepiece, "prefix", t->prefix ? t->prefix : "",
                                               "max_word", (json_int_t)t->max_word)) < 0) {
        json_decref(o);
        o = NULL;
    }
    if (o && t->suffix && json_object_set_new(o, "suffix", json_string(t->suffix)) < 0) {
        json_decref(o);
        o = NULL;
    }
    int bad = o ? llm_json_dump(o, &t->settings, e) : llm_no_memory(e, "a tokenizer's settings");
    json_decref(o);
    return bad;
}

int llm_tokenizer_tables(const struct llm_tokenizer *t, struct llm_tensor_out *out, size_t *n, struct llm_err *e)
{
    struct llm_tokenizer *own = (struct llm_tokenizer *)(uintptr_t)t; /* for what is made when asked for */
    if (*llm_tokenizer_id(t) == '\0')
        return llm_no_memory(e, "a tokenizer's identity");
    pthread_mutex_lock(&own->lock);
    int bad = t->settings.n ? 0 : make_settings(own, e);
    pthread_mutex_unlock(&own->lock);
    if (bad < 0)
        return -1;
    size_t n_merges;
    const struct llm_bpe_merge *merges = llm_tokenizer_merges(t, &n_merges, e);
    int64_t ids = t->vocab_size;
    if (!merges && n_merges)
        return -1;
    out[(*n)++] = (struct llm_tensor_out){"tokenizer.pieces", LLM_U8, 1, {t->offsets[ids]}, t->pieces};
    out[(*n)++] = (struct llm_tensor_out){"tokenizer.offsets", LLM_U32, 1, {ids + 1}, t->offsets};
    out[(*n)++] = (struct llm_tensor_out){"tokenizer.flags", LLM_U8, 1, {ids}, t->flags};
    out[(*n)++] = (struct llm_tensor_out){"tokenizer.settings", LLM_U8, 1, {(int64_t)t->settings.n}, t->settings.p};
    if (merges)
        out[(*n)++] = (struct llm_tensor_out){"tokenizer.merges", LLM_U32, 2, {(int64_t)n_merges, 4}, merges};
    if (t->scores)
        out[(*n)++] = (struct llm_tensor_out){"tokenizer.scores", LLM_F64, 1, {ids}, t->scores};
    return 0;
}

/* ---- and back ---- */

/* A tensor's bytes, malloced; its first dimension in *rows. */
static void *read_table(struct llm_checkpoint *c, const char *name, enum llm_dtype dtype, int n_dims, int64_t *rows, struct llm_err *e)
{
    const struct llm_entry *t = llm_header_find(llm_checkpoint_header(c), name);
    if (!t || t->dtype != dtype || t->n_dims != n_dims || (n_dims == 2 && t->shape[1] != 4)) {
        llm_fail(e, EX_DATAERR, "tensor '%s': %s", name, t ? "expected another dtype or shape" : "missing");
        return NULL;
    }
    uint64_t count = 1;
    for (int i = 0; i < n_dims; i++)
        count *= (uint64_t)t->shape[i];
    size_t bytes = llm_dtype_bytes(dtype, count);
    void *p = llm_alloc(bytes + 1, 1, name, e);
    if (p && bytes && llm_checkpoint_read(c, t, p, e) < 0) {
        free(p);
        return NULL;
    }
    *rows = t->shape[0];
    return p;
}

static int read_ids(const json_t *o, const char *key, int32_t *ids, int *n, struct llm_err *e)
{
    const json_t *list = json_object_get(o, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_int_t id = json_integer_value(json_array_get(list, i));
        if (i == LLM_MAX_TEMPLATE || id < 0 || id >= LLM_MAX_VOCAB)
            return llm_fail(e, EX_DATAERR, "%s: a bad list of ids", key);
        ids[(*n)++] = (int32_t)id;
    }
    return 0;
}

/* What a tokenizer whose texts are handled as a whole has more. */
static int read_parts(struct llm_tokenizer *t, const json_t *o, struct llm_err *e)
{
    const json_t *parts = json_object_get(o, "parts");
    const char *prefix = "";
    if (!parts)
        return t->model == &llm_model_unigram || t->model == &llm_model_wordpiece ? llm_fail(e, EX_DATAERR, "parts: missing") : 0;
    if (llm_tokenizer_set_parts(t, json_object_get(parts, "normalizer"), json_object_get(parts, "pre_tokenizer"),
                                json_object_get(parts, "decoder"), e) < 0
        || llm_json_bool(o, "byte_fallback", &t->byte_fallback, e) < 0 || llm_json_bool(o, "fuse_unk", &t->fuse_unknown, e) < 0
        || llm_json_bool(o, "sentencepiece", &t->sentencepiece, e) < 0 || llm_json_str(o, "prefix", &prefix, e) < 0
        || llm_json_int(o, "max_word", 0, INT32_MAX, &t->max_word, e) < 0)
        return -1;
    bool bytes = t->model == &llm_model_bpe && t->byte_level;
    if ((t->byte_level && !bytes) || t->model == &llm_model_byte || t->model == &llm_model_char || t->model == &llm_model_greedy)
        return llm_fail(e, EX_DATAERR, "parts: they do not fit a model of type '%s'", t->model->name);
    if (t->model == &llm_model_bpe && !bytes)
        t->model = &llm_model_bpe_chars;
    t->generic = true;
    t->prefix = strdup(prefix);
    return t->prefix ? 0 : llm_no_memory(e, "a tokenizer");
}

static int read_settings(struct llm_tokenizer *t, const json_t *o, struct llm_err *e)
{
    const char *type = "", *normalizer = NULL, *id = "", *suffix = NULL;
    int64_t unknown = -1, bos = -1, eos = -1, max = t->vocab_size - 1;
    const json_t *splits = json_object_get(o, "splits");
    if (llm_json_str(o, "type", &type, e) < 0 || llm_json_str(o, "normalizer", &normalizer, e) < 0 || llm_json_str(o, "id", &id, e) < 0
        || llm_json_bool(o, "ignore_merges", &t->ignore_merges, e) < 0 || llm_json_bool(o, "add_prefix_space", &t->add_prefix_space, e) < 0
        || llm_json_int(o, "unknown", -1, max, &unknown, e) < 0 || llm_json_int(o, "bos", -1, max, &bos, e) < 0
        || llm_json_int(o, "eos", -1, max, &eos, e) < 0 || read_ids(o, "before", t->before, &t->n_before, e) < 0
        || read_ids(o, "after", t->after, &t->n_after, e) < 0)
        return -1;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i]->name, type) == 0)
            t->model = models[i];
    if (!t->model)
        return llm_fail(e, EX_UNAVAILABLE, "model '%s' is not supported", type);
    if (read_parts(t, o, e) < 0 || llm_json_str(o, "suffix", &suffix, e) < 0)
        return -1;
    if (suffix && (!*suffix || (t->model != &llm_model_bpe && t->model != &llm_model_bpe_chars)))
        return llm_fail(e, EX_DATAERR, "suffix: expected one only of type 'bpe'");
    if (suffix && llm_tokenizer_set_suffix(t, suffix, e) < 0)
        return -1;
    t->normaliser = normalizer ? llm_normaliser_find(normalizer) : NULL;
    if (normalizer && !t->normaliser)
        return llm_fail(e, EX_UNAVAILABLE, "normalizer '%s' is not supported", normalizer);
    for (size_t i = 0; i < json_array_size(splits); i++) {
        const char *pattern = json_string_value(json_array_get(splits, i));
        if (!pattern || llm_tokenizer_add_split(t, pattern, e) < 0)
            return pattern ? -1 : llm_fail(e, EX_DATAERR, "splits: expected strings");
    }
    t->unknown = (int32_t)unknown;
    t->bos = (int32_t)bos;
    t->eos = (int32_t)eos;
    if (strlen(id) == 64) {
        memcpy(t->id, id, 65);
        t->id_known = true;
    }
    return 0;
}

static int check_vocab(const struct llm_tokenizer *t, int64_t n_bytes, int64_t n_offsets, int64_t n_flags, struct llm_err *e)
{
    if (n_flags < 1 || n_flags > LLM_MAX_VOCAB || n_offsets != n_flags + 1)
        return llm_fail(e, EX_DATAERR, "tensor 'tokenizer.offsets': expected [%lld], found [%lld]", (long long)n_flags + 1, (long long)n_offsets);
    for (int64_t i = 0; i < n_flags; i++)
        if (t->offsets[i] > t->offsets[i + 1])
            return llm_fail(e, EX_DATAERR, "token %lld: a bad offset", (long long)i);
    if (t->offsets[0] != 0 || t->offsets[n_flags] != n_bytes)
        return llm_fail(e, EX_DATAERR, "tensor 'tokenizer.offsets': expected 0 to %lld", (long long)n_bytes);
    return 0;
}

static int read_merges(struct llm_tokenizer *t, struct llm_checkpoint *c, struct llm_err *e)
{
    struct llm_bpe_merge *merges = NULL;
    int64_t n = 0;
    if (llm_header_find(llm_checkpoint_header(c), "tokenizer.merges")) {
        merges = read_table(c, "tokenizer.merges", LLM_U32, 2, &n, e);
        if (!merges)
            return -1;
    }
    uint32_t ids = (uint32_t)t->vocab_size;
    for (int64_t i = 0; i < n; i++)
        if (merges[i].left >= ids || merges[i].right >= ids || merges[i].id >= ids || merges[i].rank == LLM_BPE_NONE) {
            free(merges);
            return llm_fail(e, EX_DATAERR, "tensor 'tokenizer.merges': row %lld: an id out of range", (long long)i);
        }
    return llm_tokenizer_finish(t, merges, (size_t)n, e);
}

static int read_scores(struct llm_tokenizer *t, struct llm_checkpoint *c, struct llm_err *e)
{
    int64_t n = 0;
    if (t->model != &llm_model_unigram)
        return 0;
    t->scores = read_table(c, "tokenizer.scores", LLM_F64, 1, &n, e);
    if (!t->scores)
        return -1;
    if (n != t->vocab_size)
        return llm_fail(e, EX_DATAERR, "tensor 'tokenizer.scores': expected [%d], found [%lld]", t->vocab_size, (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(t->scores[i]))
            return llm_fail(e, EX_DATAERR, "tensor 'tokenizer.scores': token %lld: not a finite number", (long long)i);
    return 0;
}

/* Models over characters take their tokens for text. */
static int check_texts(const struct llm_tokenizer *t, struct llm_err *e)
{
    for (int32_t id = 0; t->model->encode_new && t->model != &llm_model_bpe && id < t->vocab_size; id++) {
        size_t n;
        const unsigned char *p = llm_model_piece(t, id, &n);
        if (llm_utf8_invalid(p, n) < n)
            return llm_fail(e, EX_DATAERR, "token %d: expected UTF-8", id);
    }
    return 0;
}

static int read_tables(struct llm_tokenizer *t, struct llm_checkpoint *c, struct llm_err *e)
{
    int64_t n_bytes, n_offsets, n_flags, n_settings, n_json;
    t->pieces = read_table(c, "tokenizer.pieces", LLM_U8, 1, &n_bytes, e);
    t->offsets = t->pieces ? read_table(c, "tokenizer.offsets", LLM_U32, 1, &n_offsets, e) : NULL;
    t->flags = t->offsets ? read_table(c, "tokenizer.flags", LLM_U8, 1, &n_flags, e) : NULL;
    if (!t->flags || check_vocab(t, n_bytes, n_offsets, n_flags, e) < 0)
        return -1;
    t->vocab_size = (int32_t)n_flags;
    char *settings = read_table(c, "tokenizer.settings", LLM_U8, 1, &n_settings, e);
    json_t *o = settings ? llm_json_parse(settings, (size_t)n_settings, e) : NULL;
    int bad = o ? read_settings(t, o, e) : -1;
    json_decref(o);
    free(settings);
    if (bad < 0 || check_texts(t, e) < 0 || read_scores(t, c, e) < 0 || read_merges(t, c, e) < 0)
        return -1;
    if (llm_header_find(llm_checkpoint_header(c), "tokenizer.json")) {
        char *text = read_table(c, "tokenizer.json", LLM_U8, 1, &n_json, e);
        if (!text)
            return -1;
        text[n_json] = '\0';
        t->json = (struct llm_buf){text, (size_t)n_json, (size_t)n_json + 1};
    }
    return 0;
}

struct llm_tokenizer *llm_tokenizer_from_checkpoint(struct llm_checkpoint *c, struct llm_err *e)
{
    const struct llm_header *h = llm_checkpoint_header(c);
    struct llm_tokenizer *t = NULL;
    if (llm_checkpoint_gguf(c)) {
        t = llm_tokenizer_from_gguf(llm_checkpoint_gguf(c), e);
    } else if (llm_header_find(h, "tokenizer.pieces")) {
        t = llm_tokenizer_create(e);
        if (t && read_tables(t, c, e) < 0) {
            llm_tokenizer_destroy(t);
            t = NULL;
        }
    } else if (llm_header_find(h, "tokenizer.json")) {
        int64_t n = 0;
        char *text = read_table(c, "tokenizer.json", LLM_U8, 1, &n, e);
        t = text ? llm_tokenizer_from_json(text, (size_t)n, "tensor 'tokenizer.json'", e) : NULL;
        free(text);
    } else {
        llm_fail(e, EX_DATAERR, "it carries no tokenizer (no tensor 'tokenizer.pieces' or 'tokenizer.json')");
    }
    if (!t)
        llm_in(e, "%s", llm_checkpoint_name(c));
    return t;
}
