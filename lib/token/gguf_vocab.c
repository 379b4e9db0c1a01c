/* The vocabulary of a GGUF file: llama (SentencePiece's BPE), gpt2 (byte-level BPE), bert (WordPiece), t5 (Unigram). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "io/gguf.h"
#include "token/internal.h"
#include "token/norm/charsmap.h"
#include "token/unicode.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
static const char mark[] = "\xE2\x96\x81";

struct reader {
    const struct llm_gguf *g;
    struct llm_tokenizer *t;
    const struct llm_gguf_value *tokens, *types, *scores;
    struct llm_vocab vocab;
    struct llm_buf texts;       /* texts that are not as in the file; kept in place by reserving all of it first */
    int64_t bos, eos, unknown;  /* -1: none */
    bool add_bos, add_eos;
};

static const struct llm_gguf_value *array(const struct llm_gguf *g, const char *key, bool strings, uint64_t n, bool must, struct llm_err *e)
{
    const struct llm_gguf_value *v = llm_gguf_find(g, key);
    if (!v && must)
        llm_fail(e, EX_DATAERR, "%s: missing", key);
    if (!v)
        return NULL;
    if (!v->is_array || (v->type == LLM_GGUF_STRING) != strings || (n && v->n != n)) {
        llm_fail(e, EX_DATAERR, "%s: expected an array of %s%s", key, strings ? "texts" : "numbers", n ? ", one for each token" : "");
        return NULL;
    }
    return v;
}

static int open_arrays(struct reader *r, bool scores, struct llm_err *e)
{
    r->tokens = array(r->g, "tokenizer.ggml.tokens", true, 0, true, e);
    if (!r->tokens)
        return -1;
    if (r->tokens->n == 0 || r->tokens->n > LLM_MAX_VOCAB)
        return llm_fail(e, EX_DATAERR, "tokenizer.ggml.tokens: %llu tokens", (unsigned long long)r->tokens->n);
    r->vocab.limit = (int64_t)r->tokens->n;
    const char *optional = "tokenizer.ggml.token_type";
    r->types = array(r->g, optional, false, r->tokens->n, false, e);
    if (!r->types && llm_gguf_find(r->g, optional))
        return -1;
    r->scores = scores ? array(r->g, "tokenizer.ggml.scores", false, r->tokens->n, true, e) : NULL;
    return scores && !r->scores ? -1 : 0;
}

/* Ids that documents begin and end with; the defaults are the caller's. */
static int read_ids(struct reader *r, struct llm_err *e)
{
    int64_t max = (int64_t)r->tokens->n - 1;
    if (llm_gguf_int(r->g, "tokenizer.ggml.bos_token_id", 0, max, &r->bos, e) < 0
        || llm_gguf_int(r->g, "tokenizer.ggml.eos_token_id", 0, max, &r->eos, e) < 0
        || llm_gguf_int(r->g, "tokenizer.ggml.unknown_token_id", 0, max, &r->unknown, e) < 0
        || llm_gguf_bool(r->g, "tokenizer.ggml.add_bos_token", &r->add_bos, e) < 0
        || llm_gguf_bool(r->g, "tokenizer.ggml.add_eos_token", &r->add_eos, e) < 0)
        return -1;
    struct llm_tokenizer *t = r->t;
    t->bos = r->bos <= max ? (int32_t)r->bos : -1;
    t->eos = r->eos <= max ? (int32_t)r->eos : -1;
    t->unknown = r->unknown <= max ? (int32_t)r->unknown : -1;
    if (r->add_bos && t->bos >= 0)
        t->before[t->n_before++] = t->bos;
    if (r->add_eos && t->eos >= 0)
        t->after[t->n_after++] = t->eos;
    return 0;
}

/* What converters write where a model has more embeddings than its tokenizer tokens: no token. */
static bool is_padding(int64_t id, const char *s, size_t n)
{
    char text[32];
    int len = snprintf(text, sizeof text, "[PAD%lld]", (long long)id);
    return n == (size_t)len && memcmp(text, s, n) == 0;
}

/* Every token through `put`, with its type. */
static int each_token(struct reader *r, int (*put)(struct reader *, int64_t, int, const char *, size_t, struct llm_err *), struct llm_err *e)
{
    uint64_t at = 0, room = 0;
    const char *s;
    size_t n;
    for (uint64_t i = 0; llm_gguf_next(r->tokens, &at, &s, &n); i++)
        room += 2 + n;
    if (llm_buf_reserve(&r->texts, room, e) < 0)
        return -1;
    at = 0;
    for (int64_t id = 0; llm_gguf_next(r->tokens, &at, &s, &n); id++) {
        int64_t type = r->types ? llm_gguf_whole(r->types, (uint64_t)id) : NORMAL;
        if (n == 0 || (type == UNUSED && is_padding(id, s, n)))
            continue;
        if (put(r, id, type < NORMAL || type > BYTE ? UNUSED : (int)type, s, n, e) < 0)
            return -1;
        double score = r->scores ? llm_gguf_number(r->scores, (uint64_t)id) : 0;
        if (!isfinite(score))
            return llm_fail(e, EX_DATAERR, "tokenizer.ggml.scores: token %lld: expected a finite number", (long long)id);
        r->vocab.v[id].score = score;
    }
    return 0;
}

static int by_text(const void *a, const void *b)
{
    const struct llm_vocab_entry *x = *(const struct llm_vocab_entry *const *)a, *y = *(const struct llm_vocab_entry *const *)b;
    int d = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

/* The token of the model that a text stands for where texts of a byte-level vocabulary are written in GPT-2's alphabet; -1. */
static int32_t written_so(const struct reader *r, const struct llm_vocab_entry *x, struct llm_buf *bytes, struct llm_err *e)
{
    bytes->n = 0;
    if (!r->t->byte_level)
        return llm_tokenizer_whole(r->t, x->text, x->n);
    return llm_byte_text_decode((const char *)x->text, x->n, bytes, e) == 1 ? llm_tokenizer_whole(r->t, (unsigned char *)bytes->p, bytes->n) : -1;
}

/* Two tokens that are written alike would be one in other forms. Those of the model are distinct: the index says so. Added tokens may look like
 * them. */
static int check_distinct(const struct reader *r, struct llm_err *e)
{
    struct llm_buf bytes = {0};
    const struct llm_vocab *v = &r->vocab;
    const struct llm_vocab_entry **others = llm_alloc(v->n, sizeof *others, "a vocabulary", e);
    size_t n = 0;
    if (!others)
        return -1;
    int bad = 0;
    for (size_t i = 0; i < v->n && bad == 0; i++) {
        if (!v->v[i].flags || v->v[i].flags & LLM_TOKEN_MODEL)
            continue;
        others[n++] = &v->v[i];
        bool added = v->v[i].flags & LLM_TOKEN_ADDED && (int64_t)i != r->t->unknown;
        int32_t same = added ? -1 : written_so(r, &v->v[i], &bytes, e);
        if (same >= 0)
            bad = llm_fail(e, EX_DATAERR, "tokens %zu and %d have the same text", i, same);
    }
    if (n && bad == 0)
        qsort(others, n, sizeof *others, by_text);
    for (size_t i = 1; i < n && bad == 0; i++)
        if (by_text(&others[i - 1], &others[i]) == 0)
            bad = llm_fail(e, EX_DATAERR, "tokens %td and %td have the same text", others[i - 1] - v->v, others[i] - v->v);
    free(others);
    llm_buf_release(&bytes);
    return bad;
}

static bool is_there(const struct reader *r, int32_t id)
{
    return id >= 0 && (size_t)id < r->vocab.n && r->vocab.v[id].flags;
}

/* All tokens into the tokenizer. */
static int set_tokens(struct reader *r, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    if (llm_tokenizer_set_vocab(t, &r->vocab, e) < 0 || llm_tokenizer_index_whole(t, e) < 0 || check_distinct(r, e) < 0)
        return -1;
    t->bos = is_there(r, t->bos) ? t->bos : -1;
    t->eos = is_there(r, t->eos) ? t->eos : -1;
    t->unknown = is_there(r, t->unknown) ? t->unknown : -1;
    return 0;
}

static bool is_text(const char *s, size_t n)
{
    return llm_utf8_invalid((const unsigned char *)s, n) == n && !memchr(s, '\0', n);
}

static unsigned char special_flags(int type)
{
    return type == CONTROL || type == UNKNOWN ? LLM_TOKEN_ADDED | LLM_TOKEN_SPECIAL : type == USER_DEFINED ? LLM_TOKEN_ADDED : 0;
}

static int put_text(struct reader *r, int64_t id, int type, const char *s, size_t n, struct llm_err *e)
{
    if (!is_text(s, n))
        return llm_fail(e, EX_DATAERR, "token %lld: expected UTF-8 text", (long long)id);
    if (n == 0)
        type = UNUSED;
    /* user-defined ones are looked for in the text, and the model can make them as well */
    unsigned char flags = special_flags(type) | (type == NORMAL || type == USER_DEFINED ? LLM_TOKEN_MODEL : 0);
    return llm_vocab_put(&r->vocab, id, (const unsigned char *)s, n, flags, e);
}

static int set_parts(struct llm_tokenizer *t, json_t *normalizer, json_t *pre, json_t *decoder, struct llm_err *e)
{
    int bad = !normalizer || !decoder ? llm_no_memory(e, "a tokenizer") : llm_tokenizer_set_parts(t, normalizer, pre, decoder, e);
    json_decref(normalizer);
    json_decref(pre);
    json_decref(decoder);
    t->generic = true;
    return bad;
}

/* ---- llama ---- */

static int read_llama(struct reader *r, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    bool prefix = true;
    if (open_arrays(r, true, e) < 0 || llm_gguf_bool(r->g, "tokenizer.ggml.add_space_prefix", &prefix, e) < 0)
        return -1;
    r->bos = 1;
    r->eos = 2;
    r->unknown = 0;
    r->add_bos = true;
    t->model = &llm_model_bpe_chars;
    t->byte_fallback = t->fuse_unknown = true;
    json_t *replace = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ", "content", mark);
    json_t *normalizer = replace;
    if (prefix)
        normalizer = json_pack("{s:s, s:[{s:s, s:s}, o]}", "type", "Sequence", "normalizers", "type", "Prepend", "prepend", mark, replace);
    json_t *decoder = json_pack("{s:s, s:b, s:b}", "type", "SentencePiece", "add_dummy_prefix", prefix, "remove_extra_whitespaces", 0);
    if (set_parts(t, normalizer, NULL, decoder, e) < 0 || read_ids(r, e) < 0 || each_token(r, put_text, e) < 0
        || set_tokens(r, e) < 0)
        return -1;
    double *scores = llm_alloc((size_t)t->vocab_size, sizeof *scores, "scores", e);
    for (int32_t id = 0; scores && id < t->vocab_size; id++)
        scores[id] = r->vocab.v[id].score;
    int bad = scores ? llm_merge_by_score(t, scores, e) : -1;
    free(scores);
    return bad < 0 ? -1 : llm_tokenizer_finish(t, NULL, 0, e);
}

/* ---- gpt2 ---- */

static int put_bytes(struct reader *r, int64_t id, int type, const char *s, size_t n, struct llm_err *e)
{
    size_t at = r->texts.n;
    int decoded = type == NORMAL ? llm_byte_text_decode(s, n, &r->texts, e) : 0;
    if (decoded < 0)
        return -1;
    if (decoded)
        return llm_vocab_put(&r->vocab, id, (const unsigned char *)r->texts.p + at, r->texts.n - at, LLM_TOKEN_MODEL, e);
    if (!is_text(s, n))
        return llm_fail(e, EX_DATAERR, "token %lld: expected UTF-8 text", (long long)id);
    return llm_vocab_put(&r->vocab, id, (const unsigned char *)s, n, n ? special_flags(type) : 0, e);
}

/* "left right" in GPT-2's alphabet. */
static int read_merge(struct reader *r, const char *s, size_t n, uint32_t rank, struct llm_bpe_merge *m, struct llm_buf *both, struct llm_err *e)
{
    const char *space = n > 1 ? memchr(s + 1, ' ', n - 1) : NULL;
    both->n = 0;
    if (!space || llm_byte_text_decode(s, (size_t)(space - s), both, e) <= 0)
        return llm_fail(e, EX_DATAERR, "tokenizer.ggml.merges[%u]: expected two texts and a space between them", rank);
    size_t cut = both->n;
    if (llm_byte_text_decode(space + 1, n - (size_t)(space - s) - 1, both, e) <= 0)
        return llm_fail(e, EX_DATAERR, "tokenizer.ggml.merges[%u]: expected two texts and a space between them", rank);
    const unsigned char *p = (const unsigned char *)both->p;
    int32_t left = llm_tokenizer_whole(r->t, p, cut), right = llm_tokenizer_whole(r->t, p + cut, both->n - cut);
    int32_t id = llm_tokenizer_whole(r->t, p, both->n);
    if (left < 0 || right < 0 || id < 0)
        return llm_fail(e, EX_DATAERR, "tokenizer.ggml.merges[%u]: '%.*s' is not of the vocabulary", rank, n < 100 ? (int)n : 100, s);
    *m = (struct llm_bpe_merge){(uint32_t)left, (uint32_t)right, rank, (uint32_t)id};
    return 0;
}

static int read_gpt2(struct reader *r, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    const char *name = "default", *s;
    size_t n_name = 7, n;
    uint64_t at = 0;
    if (open_arrays(r, false, e) < 0 || llm_gguf_str(r->g, "tokenizer.ggml.pre", &name, &n_name, e) < 0)
        return -1;
    const struct llm_gguf_pre *pre = llm_gguf_pre_find(name, n_name);
    const struct llm_gguf_value *list = array(r->g, "tokenizer.ggml.merges", true, 0, true, e);
    if (!pre)
        return llm_fail(e, EX_UNAVAILABLE, "tokenizer.ggml.pre '%.*s' is not supported", n_name < 60 ? (int)n_name : 60, name);
    if (!list)
        return -1;
    t->model = &llm_model_bpe;
    t->byte_level = true;
    t->ignore_merges = pre->flags & LLM_GGUF_WHOLE;
    r->add_bos = pre->flags & LLM_GGUF_BOS;
    for (int i = 0; i < LLM_GGUF_MAX_SPLITS && pre->splits[i]; i++)
        if (llm_tokenizer_add_split(t, pre->splits[i], e) < 0)
            return -1;
    if (llm_gguf_bool(r->g, "tokenizer.ggml.add_space_prefix", &t->add_prefix_space, e) < 0 || read_ids(r, e) < 0
        || each_token(r, put_bytes, e) < 0 || set_tokens(r, e) < 0)
        return -1;
    t->unknown = -1; /* every byte has a token */
    struct llm_bpe_merge *merges = llm_alloc((size_t)list->n, sizeof *merges, "merges", e);
    struct llm_buf both = {0};
    int bad = merges ? 0 : -1;
    for (uint32_t i = 0; bad == 0 && llm_gguf_next(list, &at, &s, &n); i++)
        bad = read_merge(r, s, n, i, &merges[i], &both, e);
    llm_buf_release(&both);
    if (bad < 0) {
        free(merges);
        return -1;
    }
    return llm_tokenizer_finish(t, merges, (size_t)list->n, e);
}

/* ---- bert ---- */

/* In the file words begin with "▁" and what goes on is bare; in a WordPiece vocabulary words are bare and what goes on begins with "##". */
static int put_wordpiece(struct reader *r, int64_t id, int type, const char *s, size_t n, struct llm_err *e)
{
    size_t at = r->texts.n;
    bool bracketed = n > 1 && *s == '[' && s[n - 1] == ']', word = n > 3 && memcmp(s, mark, 3) == 0;
    unsigned char flags = special_flags(type) | (type == NORMAL ? LLM_TOKEN_MODEL : 0);
    if (!is_text(s, n))
        return llm_fail(e, EX_DATAERR, "token %lld: expected UTF-8 text", (long long)id);
    if (type != NORMAL || bracketed || n == 0)
        return llm_vocab_put(&r->vocab, id, (const unsigned char *)s, n, n ? flags : 0, e);
    if (!word && llm_buf_put(&r->texts, "##", 2, e) < 0)
        return -1;
    if (llm_buf_put(&r->texts, word ? s + 3 : s, word ? n - 3 : n, e) < 0)
        return -1;
    return llm_vocab_put(&r->vocab, id, (const unsigned char *)r->texts.p + at, r->texts.n - at, flags, e);
}

static int read_bert(struct reader *r, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    if (open_arrays(r, false, e) < 0)
        return -1;
    r->bos = 101;
    r->eos = 102;
    r->unknown = 100;
    r->add_bos = r->add_eos = true;
    int64_t max = (int64_t)r->tokens->n - 1;
    if (llm_gguf_int(r->g, "tokenizer.ggml.cls_token_id", 0, max, &r->bos, e) < 0
        || llm_gguf_int(r->g, "tokenizer.ggml.seperator_token_id", 0, max, &r->eos, e) < 0)
        return -1;
    t->model = &llm_model_wordpiece;
    t->prefix = strdup("##");
    if (!t->prefix)
        return llm_no_memory(e, "a tokenizer");
    if (set_parts(t, json_pack("{s:s}", "type", "BertNormalizer"), json_pack("{s:s}", "type", "BertPreTokenizer"),
                  json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", "##", "cleanup", 1), e) < 0
        || read_ids(r, e) < 0 || each_token(r, put_wordpiece, e) < 0 || set_tokens(r, e) < 0)
        return -1;
    return llm_tokenizer_finish(t, NULL, 0, e);
}

/* ---- t5 ---- */

static int put_unigram(struct reader *r, int64_t id, int type, const char *s, size_t n, struct llm_err *e)
{
    if (put_text(r, id, type, s, n, e) < 0)
        return -1;
    if (type == USER_DEFINED && n) /* of the model, not looked for before it */
        r->vocab.v[id].flags = LLM_TOKEN_PRESENT | LLM_TOKEN_MODEL | LLM_TOKEN_USER;
    return 0;
}

static int read_t5(struct reader *r, struct llm_err *e)
{
    struct llm_tokenizer *t = r->t;
    bool prefix = true, extra = true;
    struct llm_buf map = {0};
    if (open_arrays(r, true, e) < 0 || llm_gguf_bool(r->g, "tokenizer.ggml.add_space_prefix", &prefix, e) < 0
        || llm_gguf_bool(r->g, "tokenizer.ggml.remove_extra_whitespaces", &extra, e) < 0)
        return -1;
    r->eos = 1;
    r->unknown = 2;
    r->add_eos = true;
    r->bos = -1;
    const struct llm_gguf_value *rules = llm_gguf_find(r->g, "tokenizer.ggml.precompiled_charsmap");
    if (rules && (!rules->is_array || rules->bytes != rules->n))
        return llm_fail(e, EX_DATAERR, "tokenizer.ggml.precompiled_charsmap: expected an array of bytes");
    if (rules && llm_base64_encode(rules->p, (size_t)rules->n, &map, e) < 0)
        return -1;
    t->model = &llm_model_unigram;
    t->fuse_unknown = true;
    json_t *normalizer = json_pack("{s:s, s:s, s:b, s:b, s:b}", "type", "SentencePiece", "precompiled_charsmap", map.p ? map.p : "",
                                   "add_dummy_prefix", prefix, "remove_extra_whitespaces", extra, "escape_whitespaces", 1);
    json_t *decoder = json_pack("{s:s, s:b, s:b}", "type", "SentencePiece", "add_dummy_prefix", prefix, "remove_extra_whitespaces", extra);
    int bad = set_parts(t, normalizer, NULL, decoder, e);
    llm_buf_release(&map);
    if (bad < 0 || read_ids(r, e) < 0 || each_token(r, put_unigram, e) < 0)
        return -1;
    for (size_t i = 0; i < r->vocab.n; i++)
        if (r->vocab.v[i].flags & LLM_TOKEN_USER && !(r->vocab.v[i].flags & LLM_TOKEN_ADDED))
            r->vocab.v[i].score = 0; /* scores are logarithms: nothing beats it */
    return set_tokens(r, e) < 0 ? -1 : llm_tokenizer_finish(t, NULL, 0, e);
}

static const struct { const char *name; int (*read)(struct reader *r, struct llm_err *e); } models[] = {
    {"llama", read_llama}, {"gpt2", read_gpt2}, {"bert", read_bert}, {"t5", read_t5}};

struct llm_tokenizer *llm_tokenizer_from_gguf(const struct llm_gguf *g, struct llm_err *e)
{
    struct reader r = {.g = g, .bos = -1, .eos = -1, .unknown = -1};
    const char *name = NULL;
    size_t n = 0;
    if (llm_gguf_str(g, "tokenizer.ggml.model", &name, &n, e) < 0)
        return NULL;
    if (!name) {
        llm_fail(e, EX_DATAERR, "it carries no tokenizer (no 'tokenizer.ggml.model')");
        return NULL;
    }
    int (*read)(struct reader *, struct llm_err *) = NULL;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strlen(models[i].name) == n && memcmp(models[i].name, name, n) == 0)
            read = models[i].read;
    if (!read) {
        llm_fail(e, EX_UNAVAILABLE, "tokenizer.ggml.model '%.*s' is not supported (llama, gpt2, bert and t5 are)", n < 60 ? (int)n : 60, name);
        return NULL;
    }
    r.t = llm_tokenizer_create(e);
    if (r.t && read(&r, e) < 0) {
        llm_tokenizer_destroy(r.t);
        r.t = NULL;
    }
    llm_vocab_release(&r.vocab);
    llm_buf_release(&r.texts);
    return r.t;
}
