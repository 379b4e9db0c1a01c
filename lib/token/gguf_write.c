/* A tokenizer as the metadata of a GGUF file: the inverse of gguf_vocab.c, under the names that llama.cpp knows. What comes out is read again and
 * compared, so that what GGUF cannot say (a normaliser, a pre-tokenizer without a name) is found here and not by who reads the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "io/gguf_write.h"
#include "token/internal.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE }; /* llama.cpp's types of tokens */
static const char mark[] = "\xE2\x96\x81";

/* ---- tokens ---- */

static int type_of(const struct llm_tokenizer *t, int32_t id)
{
    unsigned f = id < t->vocab_size ? t->flags[id] : 0;
    size_t n = 0;
    if (!f) return UNUSED;
    int byte = llm_byte_piece(llm_model_piece(t, id, &n), t->offsets[id + 1] - t->offsets[id]);
    if (t->byte_fallback && byte >= 0 && t->byte_token[byte] == id) return BYTE;
    if (id == t->unknown) return UNKNOWN;
    if (f & LLM_TOKEN_SPECIAL) return CONTROL;
    if (f & LLM_TOKEN_ADDED || f & LLM_TOKEN_USER) return USER_DEFINED;
    return f & LLM_TOKEN_MODEL ? NORMAL : UNUSED;
}

/* The text of a token of the model as the file has it. */
static int model_text(const struct llm_tokenizer *t, const unsigned char *p, size_t n, struct llm_buf *out, struct llm_err *e)
{
    if (t->model == &llm_model_bpe || t->model == &llm_model_byte) return llm_byte_text_encode(p, n, out, e);
    if (t->model != &llm_model_wordpiece) return llm_buf_put(out, p, n, e);
    size_t prefix = strlen(t->prefix);
    if (n > 1 && p[0] == '[' && p[n - 1] == ']') return llm_buf_put(out, p, n, e);
    if (n > prefix && memcmp(p, t->prefix, prefix) == 0) return llm_buf_put(out, p + prefix, n - prefix, e);
    return llm_buf_put(out, mark, 3, e) < 0 ? -1 : llm_buf_put(out, p, n, e);
}

static int put_token(const struct llm_tokenizer *t, int64_t id, struct llm_buf *text, struct llm_gguf_out *o, struct llm_err *e)
{
    size_t n = 0;
    text->n = 0;
    if (id >= t->vocab_size || !t->flags[id]) {
        if (llm_buf_printf(text, e, "[PAD%lld]", (long long)id) < 0) return -1;
    } else {
        const unsigned char *p = llm_model_piece(t, (int32_t)id, &n);
        int bad = type_of(t, (int32_t)id) == NORMAL ? model_text(t, p, n, text, e) : llm_buf_put(text, p, n, e);
        if (bad < 0) return -1;
    }
    llm_gguf_add_str(o, text->p ? text->p : "", text->n);
    return 0;
}

static int put_tokens(const struct llm_tokenizer *t, int64_t n, struct llm_gguf_out *o, struct llm_err *e)
{
    struct llm_buf text = {0};
    int bad = 0;
    llm_gguf_put_array(o, "tokenizer.ggml.tokens", LLM_GGUF_STRING, (uint64_t)n);
    for (int64_t id = 0; id < n && bad == 0; id++) bad = put_token(t, id, &text, o, e);
    llm_buf_release(&text);
    llm_gguf_put_array(o, "tokenizer.ggml.token_type", LLM_GGUF_I32, (uint64_t)n);
    for (int64_t id = 0; id < n; id++) llm_gguf_add_i32(o, id < t->vocab_size ? type_of(t, (int32_t)id) : UNUSED);
    return bad;
}

/* Of a model of merges the rank of the first that makes each token, negative: what is merged first has the highest score. */
static int put_scores(const struct llm_tokenizer *t, int64_t n, struct llm_gguf_out *o, struct llm_err *e)
{
    size_t n_merges;
    const struct llm_bpe_merge *merges = llm_tokenizer_merges(t, &n_merges, e);
    if (!merges && n_merges) return -1;
    uint32_t *rank = t->scores ? NULL : llm_alloc((size_t)t->vocab_size, sizeof *rank, "scores", e);
    if (!rank && !t->scores) return -1;
    for (int32_t id = 0; rank && id < t->vocab_size; id++) rank[id] = LLM_BPE_NONE;
    for (size_t i = 0; rank && i < n_merges; i++) {
        const struct llm_bpe_merge *m = &merges[i];
        if (m->rank < rank[m->id]) rank[m->id] = m->rank;
    }
    llm_gguf_put_array(o, "tokenizer.ggml.scores", LLM_GGUF_F32, (uint64_t)n);
    for (int64_t id = 0; id < n; id++) {
        bool known = id < t->vocab_size && t->flags[id];
        if (!rank) llm_gguf_add_f32(o, known ? (float)t->scores[id] : 0);
        else llm_gguf_add_f32(o, known && rank[id] != LLM_BPE_NONE ? -(float)rank[id] : 0);
    }
    free(rank);
    return 0;
}

/* ---- merges ---- */

static int by_rank(const void *a, const void *b)
{
    const struct llm_bpe_merge *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int put_merges(const struct llm_tokenizer *t, struct llm_gguf_out *o, struct llm_err *e)
{
    size_t n;
    const struct llm_bpe_merge *merges = llm_tokenizer_merges(t, &n, e);
    struct llm_buf text = {0};
    struct llm_bpe_merge *m = merges || n == 0 ? llm_alloc(n, sizeof *m, "merges", e) : NULL;
    int bad = m ? 0 : -1;
    if (m && n) {
        memcpy(m, merges, n * sizeof *m);
        qsort(m, n, sizeof *m, by_rank);
    }
    llm_gguf_put_array(o, "tokenizer.ggml.merges", LLM_GGUF_STRING, n);
    for (size_t i = 0; i < n && bad == 0; i++) {
        size_t n_left, n_right;
        const unsigned char *left = llm_model_piece(t, (int32_t)m[i].left, &n_left), *right = llm_model_piece(t, (int32_t)m[i].right, &n_right);
        text.n = 0;
        bad = llm_byte_text_encode(left, n_left, &text, e) < 0 || llm_buf_put(&text, " ", 1, e) < 0
              || llm_byte_text_encode(right, n_right, &text, e) < 0 ? -1 : 0;
        llm_gguf_add_str(o, text.p ? text.p : "", text.n);
    }
    free(m);
    llm_buf_release(&text);
    return bad;
}

/* ---- the pre-tokenizer's name ---- */

/* The splits of a byte-level tokenizer, also of one whose pre-tokenizers are kept as tokenizer.json has them. NULL behind the last; -1: there is
 * one that is no split. */
static int list_splits(const struct llm_tokenizer *t, const char *out[LLM_MAX_SPLITS + 2])
{
    int n = 0;
    for (int i = 0; i < t->n_splits; i++) out[n++] = t->splits[i].row ? t->splits[i].row->name : t->splits[i].pattern;
    for (int i = 0; i < t->n_pres; i++) {
        const struct llm_pre *s = &t->pres[i];
        const char *pattern = s->split.row ? s->split.row->name : s->split.pattern;
        if (s->row == &llm_pre_byte_level) {
            if (s->cut) out[n++] = "gpt2";
        } else if (s->row == &llm_pre_digits) {
            out[n++] = s->behaviour == LLM_ISOLATED ? "\\p{N}" : "\\p{N}+";
        } else if (s->row == &llm_pre_split && pattern) {
            out[n++] = pattern;
        } else {
            return -1;
        }
    }
    out[n] = NULL;
    return 0;
}

static const char *name_of(const char *pattern)
{
    for (size_t i = 0; llm_split_rows[i]; i++) {
        const struct llm_split_row *row = llm_split_rows[i];
        for (size_t k = 0; k < sizeof row->patterns / sizeof *row->patterns && row->patterns[k]; k++)
            if (strcmp(pattern, row->patterns[k]) == 0) return row->name;
    }
    return pattern;
}

static bool same_splits(const struct llm_gguf_pre *pre, const char *const *splits)
{
    int i = 0;
    for (; i < LLM_GGUF_MAX_SPLITS && pre->splits[i] && splits[i]; i++)
        if (strcmp(name_of(pre->splits[i]), name_of(splits[i])) != 0) return false;
    return (i == LLM_GGUF_MAX_SPLITS || !pre->splits[i]) && !splits[i];
}

/* The row with these splits, one that also agrees about whole pieces first. */
static int put_pre(const struct llm_tokenizer *t, struct llm_gguf_out *o, struct llm_err *e)
{
    const char *splits[LLM_MAX_SPLITS + 2] = {NULL};
    const struct llm_gguf_pre *found = NULL, *row;
    bool plain = t->model == &llm_model_byte || list_splits(t, splits) == 0;
    for (size_t i = 0; plain && (row = llm_gguf_pre_row(i)); i++) {
        bool whole = row->flags & LLM_GGUF_WHOLE;
        bool fits = t->model == &llm_model_byte || same_splits(row, splits);
        if (fits && (!found || whole == t->ignore_merges)) {
            found = row;
            if (whole == t->ignore_merges) break;
        }
    }
    if (!found) return llm_fail(e, EX_UNAVAILABLE, "the tokenizer: GGUF has no name (tokenizer.ggml.pre) for this pre-tokenizer");
    llm_gguf_put_str(o, "tokenizer.ggml.pre", found->names, strcspn(found->names, " "));
    if (t->add_prefix_space) llm_gguf_put_bool(o, "tokenizer.ggml.add_space_prefix", true);
    return 0;
}

/* ---- the four kinds ---- */

/* Is a space (or "▁") put in front of a text? */
static bool has_prefix(const struct llm_tokenizer *t)
{
    for (int i = 0; i < t->n_norms; i++) {
        if (t->norms[i].row == &llm_norm_prepend) return true;
        if (t->norms[i].row == &llm_norm_sentencepiece) return t->norms[i].flags & LLM_NORM_DUMMY;
    }
    for (int i = 0; i < t->n_pres; i++)
        if (t->pres[i].row == &llm_pre_metaspace) return t->pres[i].prepend != LLM_PREPEND_NEVER;
    return false;
}

static int put_unigram(const struct llm_tokenizer *t, struct llm_gguf_out *o)
{
    bool extra = false;
    for (int i = 0; i < t->n_norms; i++) {
        const struct llm_norm *s = &t->norms[i];
        if (s->row == &llm_norm_sentencepiece) extra = s->flags & LLM_NORM_EXTRA;
        if (s->map.n == 0) continue;
        llm_gguf_put_array(o, "tokenizer.ggml.precompiled_charsmap", LLM_GGUF_U8, s->map.n);
        for (size_t k = 0; k < s->map.n; k++) llm_gguf_add_u8(o, (uint8_t)s->map.p[k]);
    }
    llm_gguf_put_bool(o, "tokenizer.ggml.remove_extra_whitespaces", extra);
    llm_gguf_put_bool(o, "tokenizer.ggml.add_space_prefix", has_prefix(t));
    return 0;
}

static int put_kind(const struct llm_tokenizer *t, int64_t n, struct llm_gguf_out *o, struct llm_err *e)
{
    bool bytes = t->model == &llm_model_bpe || t->model == &llm_model_byte, unigram = t->model == &llm_model_unigram;
    const char *name = bytes ? "gpt2" : unigram ? "t5" : t->model == &llm_model_wordpiece ? "bert" : "llama";
    if (t->model == &llm_model_char) return llm_fail(e, EX_UNAVAILABLE, "the tokenizer: GGUF has none of single characters");
    if (t->model == &llm_model_greedy) return llm_fail(e, EX_UNAVAILABLE, "the tokenizer: writing one of type 'greedy' as GGUF is not supported");
    if (t->suffix) return llm_fail(e, EX_UNAVAILABLE, "the tokenizer: GGUF cannot say that tokens end words (end_of_word_suffix '%s')", t->suffix);
    llm_gguf_put_str(o, "tokenizer.ggml.model", name, strlen(name));
    if (bytes) {
        if (put_pre(t, o, e) < 0 || put_tokens(t, n, o, e) < 0) return -1;
        return put_merges(t, o, e);
    }
    if (put_tokens(t, n, o, e) < 0) return -1;
    if (t->model == &llm_model_wordpiece) return 0;
    if (unigram) return put_scores(t, n, o, e) < 0 ? -1 : put_unigram(t, o);
    llm_gguf_put_bool(o, "tokenizer.ggml.add_space_prefix", has_prefix(t));
    return put_scores(t, n, o, e);
}

static int put_ids(const struct llm_tokenizer *t, int64_t bos, int64_t eos, struct llm_gguf_out *o, struct llm_err *e)
{
    bool wordpiece = t->model == &llm_model_wordpiece;
    if (t->n_before > 1 || t->n_after > 1)
        return llm_fail(e, EX_UNAVAILABLE, "the tokenizer: GGUF cannot say that documents begin with %d tokens and end with %d", t->n_before,
                        t->n_after);
    if (t->n_before) bos = t->before[0];
    if (t->n_after) eos = t->after[0];
    if (bos >= 0) llm_gguf_put_u32(o, wordpiece ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id", (uint32_t)bos);
    if (eos >= 0) llm_gguf_put_u32(o, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    if (wordpiece && t->n_after) llm_gguf_put_u32(o, "tokenizer.ggml.seperator_token_id", (uint32_t)t->after[0]);
    if (t->unknown >= 0) llm_gguf_put_u32(o, "tokenizer.ggml.unknown_token_id", (uint32_t)t->unknown);
    llm_gguf_put_bool(o, "tokenizer.ggml.add_bos_token", t->n_before > 0);
    llm_gguf_put_bool(o, "tokenizer.ggml.add_eos_token", t->n_after > 0);
    return 0;
}

/* ---- what a reader makes of it ---- */

static bool same_ids(const struct llm_tokenizer *a, const struct llm_tokenizer *b, const char *text)
{
    struct llm_err e;
    int32_t *x = NULL, *y = NULL;
    size_t n = 0, m = 0;
    int flags = LLM_ENCODE_SPECIAL | LLM_ENCODE_ADD_SPECIAL, got = llm_encode(a, text, strlen(text), flags, &x, &n, &e);
    bool same = llm_encode(b, text, strlen(text), flags, &y, &m, &e) == got && n == m && (n == 0 || memcmp(x, y, n * sizeof *x) == 0);
    free(x);
    free(y);
    return same;
}

static bool same_pieces(const struct llm_tokenizer *a, const struct llm_tokenizer *b)
{
    if (a->vocab_size != b->vocab_size) return false;
    for (int32_t id = 0; id < a->vocab_size; id++) {
        size_t n, m;
        const unsigned char *p = llm_model_piece(a, id, &n), *q = llm_model_piece(b, id, &m);
        if (n != m || memcmp(p, q, n) != 0) return false;
    }
    return true;
}

/* Texts by which tokenizers differ that are not the same. */
static const char *const probes[] = {
    "Hello, world! it's  1234567 o'clock;\n\n\ttabs\r\n   and   spaces  ", " a b", "", "don't WE'LL x2 3.14 100000 $5 #tag user@example.com",
    "na\xC3\xAFve caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 \xD0\xBF\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 \xF0\x9F\x98\x80!",
    "int main(void) { return x[0] == '\\n' ? 1 : 0; } // ok", "\xE2\x96\x81 _ __ ...", "Of Mice AND Men"};

static int compare(const struct llm_tokenizer *t, const struct llm_tokenizer *back, struct llm_err *e)
{
    static const char lost[] = "the tokenizer: GGUF cannot say all of it:";
    if (!same_pieces(t, back)) return llm_fail(e, EX_UNAVAILABLE, "%s the vocabulary does not come back", lost);
    if (t->n_before != back->n_before || t->n_after != back->n_after) {
        return llm_fail(e, EX_UNAVAILABLE, "%s the tokens around documents do not come back", lost);
    }
    if (strcmp(llm_tokenizer_id(t), llm_tokenizer_id(back)) == 0) return 0;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        if (!same_ids(t, back, probes[i])) return llm_fail(e, EX_UNAVAILABLE, "%s '%.20s' has other ids", lost, probes[i]);
    llm_verbose("the tokenizer: GGUF says it in another form; the ids of sample texts are the same");
    return 0;
}

static int check_back(const struct llm_tokenizer *t, const struct llm_gguf_out *o, struct llm_err *e)
{
    struct llm_buf file = {0};
    struct llm_gguf g;
    struct llm_header h;
    struct llm_tokenizer *back = NULL;
    int r = llm_gguf_header(o, NULL, 0, &file, e);
    if (r == 0) r = llm_gguf_parse(&g, &h, (const unsigned char *)file.p, file.n, "GGUF metadata", e);
    if (r == 0) {
        back = llm_tokenizer_from_gguf(&g, e);
        r = back ? compare(t, back, e) : -1;
        llm_gguf_release(&g);
        llm_header_release(&h);
    }
    llm_tokenizer_destroy(back);
    llm_buf_release(&file);
    return r;
}

int llm_tokenizer_to_gguf(const struct llm_tokenizer *t, int64_t n_tokens, int64_t bos, int64_t eos, struct llm_gguf_out *o, struct llm_err *e)
{
    if (bos < 0) bos = t->bos;
    if (eos < 0) eos = t->eos;
    if (bos >= n_tokens || eos >= n_tokens) {
        return llm_fail(e, EX_DATAERR, "bos_token_id, eos_token_id: expected below %lld", (long long)n_tokens);
    }
    if (t->vocab_size > n_tokens) {
        return llm_fail(e, EX_DATAERR, "the tokenizer: expected at most %lld tokens, one a row of the embeddings, found %d", (long long)n_tokens,
                        t->vocab_size);
    }
    if (put_kind(t, n_tokens, o, e) < 0 || put_ids(t, bos, eos, o, e) < 0) return -1;
    return o->failed ? -1 : check_back(t, o, e);
}
