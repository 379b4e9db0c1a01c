#include "token/train/train.h"
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "token/internal.h"
#include "token/stream.h"
#include "token/train/counts.h"
#include "token/train/merge.h"
#include "token/train/unigram.h"
#include "token/train/wordpiece.h"
#include "token/unicode.h"

const char *llm_train_model_word(int i)
{
    static const char *const words[] = {[LLM_TRAIN_BPE] = "bpe", [LLM_TRAIN_BYTE] = "byte", [LLM_TRAIN_CHAR] = "char",
                                        [LLM_TRAIN_UNIGRAM] = "unigram", [LLM_TRAIN_WORDPIECE] = "wordpiece", NULL};
    return words[i];
}

/* Counting is encoding with a model that counts: what splits text, keeps special tokens apart and works on all threads is the same. */
static int count_word(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    return llm_counts_add(en->counts, p, n, 1, e);
}

static int count_chars(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        int len = llm_utf8_next(p + at, n - at, &cp);
        if (len <= 0)
            return llm_fail(e, EX_DATAERR, "byte 0x%02X is not UTF-8, and a character vocabulary knows only characters", p[at]);
        if (cp == 0)
            return llm_fail(e, EX_DATAERR, "U+0000 cannot stand in a character vocabulary");
        if (llm_counts_add(en->counts, p + at, (size_t)len, 1, e) < 0)
            return -1;
        at += (size_t)len;
    }
    return 0;
}

/* A word and what follows it: a string that always continues in the same way is no piece. */
static int count_marked(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_buf *text = &en->stages[0]; /* Metaspace's: the words lie in it */
    struct llm_buf *b = &en->stages[1];
    bool ends = (const char *)p + n == text->p + text->n;
    b->n = 0;
    if (llm_buf_put(b, p, n, e) < 0 || llm_buf_put(b, &(char){ends ? LLM_WORD_ENDS : LLM_WORD_GOES_ON}, 1, e) < 0
        || llm_buf_reserve(b, b->n + 16, e) < 0)
        return -1;
    return llm_counts_add(en->counts, (const unsigned char *)b->p, b->n, 1, e);
}

static const struct llm_model_row counting_marked = {"unigram", count_marked, NULL, NULL, NULL, false, true};
static const struct llm_model_row counting_words = {"bpe", count_word, NULL, NULL, NULL, false, true};
static const struct llm_model_row counting_chars = {"char", count_chars, NULL, NULL, NULL, true, true};

struct llm_trainer {
    struct llm_train_options o;
    struct llm_tokenizer *counter;  /* special tokens, split, and a model that counts */
    struct llm_encode_stream *stream;
};

static int no_ids(void *arg, const int32_t *ids, size_t n, bool document_ends, struct llm_err *e)
{
    (void)arg, (void)ids, (void)n, (void)document_ends, (void)e;
    return 0;
}

static int put_specials(const struct llm_train_options *o, struct llm_vocab *v, int64_t first, struct llm_err *e)
{
    for (size_t i = 0; o->specials && i < o->specials->n; i++) {
        const char *text = o->specials->v[i];
        size_t n = strlen(text);
        if (n == 0 || llm_utf8_invalid((const unsigned char *)text, n) < n)
            return llm_fail(e, LLM_EX_USAGE, "special token %zu: expected UTF-8 text", i + 1);
        for (size_t k = 0; k < i; k++)
            if (strcmp(o->specials->v[k], text) == 0)
                return llm_fail(e, LLM_EX_USAGE, "special token '%s' is given twice", text);
        if (llm_vocab_put(v, first + (int64_t)i, (const unsigned char *)text, n, LLM_TOKEN_ADDED | LLM_TOKEN_SPECIAL, e) < 0)
            return -1;
    }
    return 0;
}

/* Normal forms and white space as SentencePiece's default rules have them, in parts that Hugging Face's library knows. */
static int set_unigram_parts(struct llm_tokenizer *t, struct llm_err *e)
{
    static const char mark[] = "\xE2\x96\x81";
    json_t *normalizer = json_pack("{s:s, s:[{s:s}, {s:s}, {s:s, s:b, s:b}, {s:s, s:{s:s}, s:s}]}", "type", "Sequence", "normalizers", "type", "Nmt",
                                   "type", "NFKC", "type", "Strip", "strip_left", 1, "strip_right", 1, "type", "Replace", "pattern", "Regex",
                                   " {2,}", "content", " ");
    json_t *pre = json_pack("{s:s, s:s, s:s, s:b}", "type", "Metaspace", "replacement", mark, "prepend_scheme", "always", "split", 1);
    int bad = normalizer && pre ? llm_tokenizer_set_parts(t, normalizer, pre, pre, e) : llm_no_memory(e, "a tokenizer");
    json_decref(normalizer);
    json_decref(pre);
    return bad;
}

/* Text as BERT has it. */
static int set_wordpiece_parts(struct llm_tokenizer *t, bool cased, struct llm_err *e)
{
    json_t *normalizer = json_pack("{s:s, s:b, s:b, s:n, s:b}", "type", "BertNormalizer", "clean_text", 1, "handle_chinese_chars", 1, "strip_accents",
                                   "lowercase", !cased);
    json_t *pre = json_pack("{s:s}", "type", "BertPreTokenizer");
    json_t *decoder = json_pack("{s:s, s:s, s:b}", "type", "WordPiece", "prefix", LLM_WORDPIECE_PREFIX, "cleanup", 1);
    int bad = normalizer && pre && decoder ? llm_tokenizer_set_parts(t, normalizer, pre, decoder, e) : llm_no_memory(e, "a tokenizer");
    json_decref(normalizer);
    json_decref(pre);
    json_decref(decoder);
    return bad;
}

static bool by_parts(enum llm_train_model model)
{
    return model == LLM_TRAIN_UNIGRAM || model == LLM_TRAIN_WORDPIECE;
}

static int make_counter(struct llm_trainer *r, struct llm_err *e)
{
    struct llm_vocab v = {.limit = LLM_MAX_VOCAB};
    struct llm_tokenizer *t = r->counter = llm_tokenizer_create(e);
    /* one more id than there are special tokens: a vocabulary is never empty */
    int64_t n = r->o.specials ? (int64_t)r->o.specials->n : 0;
    int bad = !t || put_specials(&r->o, &v, 0, e) < 0 || llm_vocab_put(&v, n, NULL, 0, 0, e) < 0 || llm_tokenizer_set_vocab(t, &v, e) < 0;
    llm_vocab_release(&v);
    if (bad)
        return -1;
    t->model = r->o.model == LLM_TRAIN_CHAR ? &counting_chars : r->o.model == LLM_TRAIN_UNIGRAM ? &counting_marked : &counting_words;
    if (by_parts(r->o.model)) {
        if ((r->o.model == LLM_TRAIN_UNIGRAM ? set_unigram_parts(t, e) : set_wordpiece_parts(t, r->o.cased, e)) < 0)
            return -1;
        llm_pipeline_plan(t);
        return 0;
    }
    return r->o.model == LLM_TRAIN_BPE ? llm_tokenizer_add_split(t, r->o.pattern, e) : 0;
}

struct llm_trainer *llm_trainer_create(const struct llm_train_options *o, struct llm_err *e)
{
    struct llm_trainer *r = llm_calloc(1, sizeof *r, "a trainer", e);
    if (!r)
        return NULL;
    r->o = *o;
    int64_t specials = o->specials ? (int64_t)o->specials->n : 0;
    int64_t least = specials + (o->model == LLM_TRAIN_UNIGRAM     ? 4
                                : o->model == LLM_TRAIN_WORDPIECE ? 6
                                                                  : o->model == LLM_TRAIN_CHAR || o->seen_bytes_only ? 1 : 256);
    if ((o->vocab_size && o->vocab_size < least) || o->vocab_size > LLM_MAX_VOCAB)
        llm_fail(e, LLM_EX_USAGE, "a vocabulary of %lld: expected %lld to %d", (long long)o->vocab_size, (long long)least, LLM_MAX_VOCAB);
    else if (make_counter(r, e) == 0 && (r->stream = llm_encode_stream_create(r->counter, LLM_ENCODE_SPECIAL, no_ids, NULL, e)))
        return r;
    llm_trainer_destroy(r);
    return NULL;
}

void llm_trainer_destroy(struct llm_trainer *r)
{
    if (!r)
        return;
    llm_encode_stream_destroy(r->stream);
    llm_tokenizer_destroy(r->counter);
    free(r);
}

int llm_trainer_put(struct llm_trainer *r, const char *text, size_t n, struct llm_err *e)
{
    return llm_encode_stream_put(r->stream, text, n, e);
}

void llm_trainer_label(struct llm_trainer *r, const char *name, const char *what, uint64_t number)
{
    llm_encode_stream_label(r->stream, name, what, number);
}

int llm_trainer_end_document(struct llm_trainer *r, struct llm_err *e)
{
    return llm_encode_stream_end_document(r->stream, e);
}

/* All threads' counts in one. */
static int gather(struct llm_trainer *r, struct llm_counts *all, struct llm_err *e)
{
    if (llm_encode_stream_finish(r->stream, e) < 0)
        return -1;
    for (int i = 0; i <= LLM_MAX_THREADS; i++) {
        struct llm_encoder *en = llm_encode_stream_encoder(r->stream, i);
        if (!en)
            continue;
        if (all->n == 0) { /* the first is taken as it is */
            llm_counts_release(all);
            *all = *en->counts;
            *en->counts = (struct llm_counts){0};
        } else if (llm_counts_merge(all, en->counts, e) < 0) {
            return -1;
        }
        llm_counts_release(en->counts);
    }
    return 0;
}

/* ---- byte-level BPE ---- */

static void seen_bytes(const struct llm_counts *c, bool seen[256])
{
    for (size_t i = 0; c->slots && i < (size_t)1 << c->bits; i++) {
        const unsigned char *p = llm_counts_word(c, &c->slots[i]);
        for (uint32_t k = 0; k < c->slots[i].n; k++)
            seen[p[k]] = true;
    }
}

/* The alphabet in the order of its characters in GPT-2's alphabet. */
static int put_alphabet(const struct llm_trainer *r, const struct llm_counts *c, struct llm_growing_vocab *v, uint32_t byte_id[256],
                        struct llm_err *e)
{
    bool seen[256] = {false};
    seen_bytes(c, seen);
    for (uint32_t cp = 0; cp < 0x144; cp++) {
        int byte = llm_char_byte(cp);
        if (byte < 0 || (r->o.seen_bytes_only && !seen[byte]))
            continue;
        byte_id[byte] = (uint32_t)v->n;
        if (llm_growing_vocab_put(v, &(unsigned char){(unsigned char)byte}, 1, e) < 0)
            return -1;
    }
    return 0;
}

static uint32_t byte_symbols(const void *arg, const unsigned char *p, uint32_t n, uint32_t *ids)
{
    const uint32_t *byte_id = arg;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = byte_id[p[i]];
    return n;
}

static int build_bpe(struct llm_trainer *r, struct llm_tokenizer *t, struct llm_counts *c, struct llm_growing_vocab *v, struct llm_err *e)
{
    uint32_t byte_id[256];
    struct llm_bpe_merge *merges = NULL;
    struct llm_vocab vocab = {.limit = LLM_MAX_VOCAB};
    size_t n_merges = 0, specials = r->o.specials ? r->o.specials->n : 0;
    for (size_t i = 0; i < specials; i++)
        if (llm_growing_vocab_put(v, "", 0, e) < 0) /* their text is none that a merge could make */
            return -1;
    const struct llm_merge_alphabet alphabet = {byte_symbols, byte_id, ""};
    int bad = put_alphabet(r, c, v, byte_id, e);
    if (bad == 0)
        bad = llm_merge_words(c, &r->o, &alphabet, v, &merges, &n_merges, e);
    for (size_t id = specials; id < v->n && bad == 0; id++)
        bad = llm_vocab_put(&vocab, (int64_t)id, (const unsigned char *)v->bytes.p + v->offsets[id], v->offsets[id + 1] - v->offsets[id],
                            LLM_TOKEN_MODEL, e);
    if (bad == 0)
        bad = put_specials(&r->o, &vocab, 0, e) < 0 || llm_tokenizer_set_vocab(t, &vocab, e) < 0
              || llm_tokenizer_add_split(t, r->o.pattern, e) < 0 ? -1 : 0;
    llm_vocab_release(&vocab);
    t->model = &llm_model_bpe;
    if (bad < 0)
        free(merges);
    return bad < 0 ? -1 : llm_tokenizer_finish(t, merges, n_merges, e);
}

/* ---- Unigram ---- */

static int build_unigram(struct llm_trainer *r, struct llm_tokenizer *t, const struct llm_counts *c, struct llm_err *e)
{
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    struct llm_vocab vocab = {.limit = LLM_MAX_VOCAB};
    struct llm_unigram_pieces pieces = {0};
    int64_t specials = 3 + (r->o.specials ? (int64_t)r->o.specials->n : 0);
    int bad = llm_train_unigram(c, (size_t)(r->o.vocab_size - specials), (size_t)r->o.vocab_size, &pieces, e);
    for (int64_t i = 0; i < 3 && bad == 0; i++)
        bad = llm_vocab_put(&vocab, i, (const unsigned char *)first[i], strlen(first[i]), LLM_TOKEN_ADDED | LLM_TOKEN_SPECIAL, e);
    if (bad == 0)
        bad = put_specials(&r->o, &vocab, 3, e);
    for (size_t i = 0; i < pieces.n && bad == 0; i++) {
        int64_t id = specials + (int64_t)i;
        bad = llm_vocab_put(&vocab, id, (const unsigned char *)pieces.v[i].text, pieces.v[i].n, LLM_TOKEN_MODEL, e);
        if (bad == 0)
            vocab.v[id].score = pieces.v[i].score;
    }
    t->model = &llm_model_unigram;
    t->fuse_unknown = true;
    t->unknown = 0;
    if (bad == 0)
        bad = set_unigram_parts(t, e) < 0 || llm_tokenizer_set_vocab(t, &vocab, e) < 0 ? -1 : 0;
    t->generic = true;
    llm_vocab_release(&vocab);
    llm_unigram_pieces_release(&pieces);
    return bad < 0 ? -1 : llm_tokenizer_finish(t, NULL, 0, e);
}

/* ---- WordPiece ---- */

static int build_wordpiece(struct llm_trainer *r, struct llm_tokenizer *t, const struct llm_counts *c, struct llm_growing_vocab *v, struct llm_err *e)
{
    static const char *const first[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    enum { FIRST = sizeof first / sizeof *first };
    struct llm_vocab vocab = {.limit = LLM_MAX_VOCAB};
    size_t specials = FIRST + (r->o.specials ? r->o.specials->n : 0);
    int bad = 0;
    for (size_t i = 0; i < specials && bad == 0; i++) {
        const char *text = i < FIRST ? first[i] : r->o.specials->v[i - FIRST];
        bad = llm_growing_vocab_put(v, text, strlen(text), e);
    }
    if (bad == 0)
        bad = llm_train_wordpiece(c, &r->o, v, e);
    for (int64_t i = 0; i < FIRST && bad == 0; i++)
        bad = llm_vocab_put(&vocab, i, (const unsigned char *)first[i], strlen(first[i]), LLM_TOKEN_ADDED | LLM_TOKEN_SPECIAL | LLM_TOKEN_MODEL, e);
    if (bad == 0)
        bad = put_specials(&r->o, &vocab, FIRST, e);
    for (size_t id = FIRST; id < specials && bad == 0; id++)
        vocab.v[id].flags |= LLM_TOKEN_MODEL; /* Hugging Face's models know all of their vocabulary */
    for (size_t id = specials; id < v->n && bad == 0; id++)
        bad = llm_vocab_put(&vocab, (int64_t)id, (const unsigned char *)v->bytes.p + v->offsets[id], v->offsets[id + 1] - v->offsets[id],
                            LLM_TOKEN_MODEL, e);
    t->model = &llm_model_wordpiece;
    t->generic = true;
    t->unknown = 1;
    t->before[0] = 2;
    t->after[0] = 3;
    t->n_before = t->n_after = 1;
    t->prefix = strdup(LLM_WORDPIECE_PREFIX);
    if (bad == 0 && !t->prefix)
        bad = llm_no_memory(e, "a tokenizer");
    if (bad == 0)
        bad = set_wordpiece_parts(t, r->o.cased, e) < 0 || llm_tokenizer_set_vocab(t, &vocab, e) < 0 ? -1 : 0;
    llm_vocab_release(&vocab);
    return bad < 0 ? -1 : llm_tokenizer_finish(t, NULL, 0, e);
}

/* ---- bytes and characters ---- */

static int build_byte(struct llm_trainer *r, struct llm_tokenizer *t, struct llm_err *e)
{
    struct llm_vocab vocab = {.limit = LLM_MAX_VOCAB};
    unsigned char bytes[256];
    int bad = 0;
    for (int i = 0; i < 256 && bad == 0; i++) {
        bytes[i] = (unsigned char)i;
        bad = llm_vocab_put(&vocab, i, &bytes[i], 1, LLM_TOKEN_MODEL, e);
    }
    t->model = &llm_model_byte;
    bad = bad < 0 || put_specials(&r->o, &vocab, 256, e) < 0 || llm_tokenizer_set_vocab(t, &vocab, e) < 0 ? -1 : 0;
    llm_vocab_release(&vocab);
    return bad < 0 ? -1 : llm_tokenizer_finish(t, NULL, 0, e);
}

static int by_count(const void *a, const void *b)
{
    const struct llm_count *x = *(const struct llm_count *const *)a, *y = *(const struct llm_count *const *)b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : memcmp(x->key, y->key, 4);
}

static int by_character(const void *a, const void *b)
{
    const struct llm_count *x = *(const struct llm_count *const *)a, *y = *(const struct llm_count *const *)b;
    return memcmp(x->key, y->key, 4); /* UTF-8 sorts as its characters do */
}

static int build_char(struct llm_trainer *r, struct llm_tokenizer *t, const struct llm_counts *c, struct llm_err *e)
{
    struct llm_vocab vocab = {.limit = LLM_MAX_VOCAB};
    size_t n = 0, limit = (size_t)r->o.vocab_size, specials = r->o.specials ? r->o.specials->n : 0;
    const struct llm_count **sorted = llm_alloc(c->n, sizeof *sorted, "characters", e);
    if (!sorted)
        return -1;
    for (size_t i = 0; c->slots && i < (size_t)1 << c->bits; i++)
        if (c->slots[i].n && c->slots[i].count >= (uint64_t)r->o.min_frequency)
            sorted[n++] = &c->slots[i];
    if (limit && n + specials > limit) {
        qsort(sorted, n, sizeof *sorted, by_count);
        n = limit - specials;
    }
    if (n)
        qsort(sorted, n, sizeof *sorted, by_character);
    int bad = 0;
    for (size_t i = 0; i < n && bad == 0; i++)
        bad = llm_vocab_put(&vocab, (int64_t)i, llm_counts_word(c, sorted[i]), sorted[i]->n, LLM_TOKEN_MODEL, e);
    t->model = &llm_model_char;
    bad = bad < 0 || put_specials(&r->o, &vocab, (int64_t)n, e) < 0 || llm_tokenizer_set_vocab(t, &vocab, e) < 0 ? -1 : 0;
    llm_vocab_release(&vocab);
    free(sorted);
    return bad < 0 ? -1 : llm_tokenizer_finish(t, NULL, 0, e);
}

struct llm_tokenizer *llm_trainer_finish(struct llm_trainer *r, struct llm_err *e)
{
    struct llm_counts all = {0};
    struct llm_growing_vocab v = {0};
    struct llm_tokenizer *t = llm_tokenizer_create(e);
    int bad = !t || gather(r, &all, e) < 0 ? -1 : 0;
    if (bad == 0)
        bad = r->o.model == LLM_TRAIN_BPE       ? build_bpe(r, t, &all, &v, e)
              : r->o.model == LLM_TRAIN_UNIGRAM ? build_unigram(r, t, &all, e)
              : r->o.model == LLM_TRAIN_WORDPIECE ? build_wordpiece(r, t, &all, &v, e)
              : r->o.model == LLM_TRAIN_BYTE    ? build_byte(r, t, e)
                                                : build_char(r, t, &all, e);
    llm_counts_release(&all);
    llm_growing_vocab_release(&v);
    if (bad < 0) {
        llm_tokenizer_destroy(t);
        return NULL;
    }
    return t;
}
