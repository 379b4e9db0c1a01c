/* n-gram models as ARPA text (model/weights/ngram.h): log10 of probabilities and backoffs, words with white space between. Unigrams come in the
 * order of the ids, then <s> and <unk> where no id plays their part, so that a reader gives words the ids that they had. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "model/weights/model.h"
#include "model/weights/ngram.h"
#include "token/unicode.h"

struct arpa {
    const struct llm_ngram *g;
    struct llm_output *o;
    struct llm_buf words;        /* NUL-terminated, one after another */
    size_t *word;                /* [vocab_size + 2]: where each begins; then <s>, <unk> */
    int64_t eos, unknown;        /* ids of </s> and <unk>; -1: none */
    bool words_apart;            /* pieces are words, or their ##ends: they are written as they are */
};

static const char *word_of(const struct arpa *a, int64_t id)
{
    return a->words.p + a->word[id];
}

/* ---- words ---- */

/* Appends a text with white space, control characters, backslashes and bytes that are not UTF-8 written as \xNN. 0 or -1. */
static int put_escaped(struct llm_buf *b, const char *text, size_t n, struct llm_err *e)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        int length = llm_utf8_next((const unsigned char *)text + i, n - i, &c);
        int got = length <= 0 || c <= ' ' || c == 0x7f || c == '\\' ? llm_buf_printf(b, e, "\\x%02x", (unsigned char)text[i])
                                                                    : llm_buf_put(b, text + i, (size_t)length, e);
        if (got < 0) return -1;
        i += length > 0 ? (size_t)length : 1;
    }
    return 0;
}

/* A word of a WordPiece vocabulary: pieces begin with the space before them, or continue a word. */
static int put_whole(struct llm_buf *b, const char *text, size_t n, bool special, struct llm_err *e)
{
    bool begins = n > 0 && text[0] == ' ';
    if (!begins && !special && llm_buf_put(b, "##", 2, e) < 0) return -1;
    return llm_buf_put(b, text + begins, n - begins, e);
}

static int put_word(struct arpa *a, const struct llm_model *m, int64_t id, struct llm_err *e)
{
    static const char *const taken[] = {"<s>", "</s>", ""};
    const struct llm_tokenizer *t = m->tokenizer;
    size_t n = 0, begin = a->words.n;
    const char *text = t && id < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, (int32_t)id, &n) : NULL;
    bool ends = id == a->eos, begins = id == a->g->begin && !ends, ambiguous = false;
    a->word[id] = begin;
    if (ends || begins) return llm_buf_put(&a->words, ends ? "</s>" : "<s>", ends ? 5 : 4, e);
    if (!t) return llm_buf_printf(&a->words, e, "%" PRId64, id) < 0 ? -1 : llm_buf_put(&a->words, "", 1, e);
    int got = !text ? 0 : a->words_apart ? put_whole(&a->words, text, n, llm_tokenizer_is_special(t, (int32_t)id), e)
                                         : put_escaped(&a->words, text, n, e);
    if (got < 0 || llm_buf_put(&a->words, "", 1, e) < 0) return -1;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) ambiguous = ambiguous || !text || strcmp(a->words.p + begin, taken[i]) == 0;
    if (!ambiguous && a->unknown < 0 && strcmp(a->words.p + begin, "<unk>") == 0) a->unknown = id;
    if (!ambiguous) return 0;
    a->words.n = begin;
    return llm_buf_printf(&a->words, e, "\\i%" PRId64, id) < 0 ? -1 : llm_buf_put(&a->words, "", 1, e);
}

struct sorting { const char *word; int64_t id; };

static int by_word(const void *x, const void *y)
{
    const struct sorting *a = x, *b = y;
    int order = strcmp(a->word, b->word);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

/* Makes words unique: if several ids have the same word, all but the first get their number as well. 0 or -1. */
static int part_equals(struct arpa *a, struct llm_err *e)
{
    int64_t n = a->g->vocab_size;
    struct sorting *s = llm_alloc((size_t)n, sizeof *s, "words", e);
    bool *again = llm_calloc((size_t)n, sizeof *again, "words", e);
    int got = s && again ? 0 : -1;
    for (int64_t id = 0; got == 0 && id < n; id++) s[id] = (struct sorting){word_of(a, id), id};
    if (got == 0) qsort(s, (size_t)n, sizeof *s, by_word);
    for (int64_t i = 1; got == 0 && i < n; i++) again[s[i].id] = strcmp(s[i].word, s[i - 1].word) == 0;
    for (int64_t id = 0; got == 0 && id < n; id++) {
        if (!again[id]) continue;
        a->word[id] = a->words.n;
        if (llm_buf_printf(&a->words, e, "\\i%" PRId64, id) < 0 || llm_buf_put(&a->words, "", 1, e) < 0) got = -1;
    }
    free(s);
    free(again);
    return got;
}

static int make_words(struct arpa *a, const struct llm_model *m, struct llm_err *e)
{
    int64_t n = a->g->vocab_size;
    a->word = llm_alloc((size_t)n + 2, sizeof *a->word, "words", e);
    if (!a->word) return -1;
    for (int64_t id = 0; id < n; id++) {
        if (put_word(a, m, id, e) < 0) return -1;
    }
    if (part_equals(a, e) < 0) return -1;
    a->word[n] = a->words.n;
    if (llm_buf_put(&a->words, "<s>", 4, e) < 0) return -1;
    a->word[n + 1] = a->words.n;
    return llm_buf_put(&a->words, "<unk>", 6, e);
}

/* ---- lines ---- */

enum { PIECE = 1 << 14, PIECES = 32, DECIMALS = 7 };

/* Appends log10 of a number with seven decimals, as many as F32 has, without trailing zeros. printf would take most of the writer's time. */
static int put_number(struct llm_buf *b, double natural, char end, struct llm_err *e)
{
    double v = isinf(natural) ? -99 : natural / log(10);
    char text[40], *at = text + sizeof text;
    if (!(fabs(v) < 1e9)) return llm_buf_printf(b, e, "%.8g%c", v, end);
    uint64_t n = (uint64_t)(fabs(v) * 1e7 + .5);
    bool negative = v < 0 && n > 0;
    int decimals = DECIMALS;
    *--at = end;
    while (decimals > 0 && n % 10 == 0) n /= 10, decimals--;
    for (int d = 0; d < decimals; d++, n /= 10) *--at = (char)('0' + n % 10);
    if (decimals > 0) *--at = '.';
    do *--at = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    if (negative) *--at = '-';
    return llm_buf_put(b, at, (size_t)(text + sizeof text - at), e);
}

/* Ends a line: appends the backoff of the n-gram as a context, unless it has the highest order. */
static int put_backoff(const struct arpa *a, struct llm_buf *b, const int32_t *newest, int n, struct llm_err *e)
{
    struct llm_ngram_state s;
    if (n >= a->g->order) return llm_buf_put(b, "\n", 1, e);
    llm_ngram_find(a->g, newest, n, &s);
    double backoff = s.n == n ? (double)((const float *)a->g->level[n].backoff.data)[s.context[n]] : 0;
    return llm_buf_put(b, "\t", 1, e) < 0 ? -1 : put_number(b, backoff, '\n', e);
}

static bool has_own_begin(const struct arpa *a)
{
    return a->g->begin < a->g->vocab_size && a->g->begin != a->eos;
}

static int put_unigrams(const struct arpa *a, struct llm_buf *b, struct llm_err *e)
{
    const struct llm_ngram *g = a->g;
    const float *p = g->unigram.data;
    const char *no_backoff = g->order > 1 ? "\t0\n" : "\n";
    for (int64_t id = 0; id < g->vocab_size; id++) {
        int32_t newest = (int32_t)id;
        bool context = !(id == g->begin && id == a->eos); /* if one token begins and ends texts, its backoff is written at <s> */
        if (put_number(b, (double)p[id], '\t', e) < 0 || llm_buf_printf(b, e, "%s", word_of(a, id)) < 0) return -1;
        if (context ? put_backoff(a, b, &newest, 1, e) < 0 : llm_buf_put(b, no_backoff, strlen(no_backoff), e) < 0) return -1;
    }
    if (!has_own_begin(a)) {
        int32_t begin = (int32_t)g->begin;
        if (llm_buf_printf(b, e, "-99\t<s>") < 0 || put_backoff(a, b, &begin, 1, e) < 0) return -1;
    }
    if (a->unknown >= 0) return 0;
    return put_number(b, (double)p[g->vocab_size], '\t', e) < 0 ? -1 : llm_buf_printf(b, e, "<unk>%s", no_backoff);
}

/* The word of a token in a context. The token that begins texts is written as <s> where it is the oldest. */
static const char *context_word(const struct arpa *a, int32_t id, bool oldest)
{
    return word_of(a, oldest && id == a->g->begin && !has_own_begin(a) ? a->g->vocab_size : id);
}

static uint32_t token_at(const struct llm_ngram_array *tokens, uint64_t i)
{
    return tokens->dtype == LLM_U16 ? ((const uint16_t *)tokens->data)[i] : ((const uint32_t *)tokens->data)[i];
}

static int bad_table(const struct llm_ngram *g, const char *what, struct llm_err *e)
{
    return llm_fail(e, EX_DATAERR, "tables of n-grams: %s: expected what the %" PRId64 " tokens and the tables before it allow", what, g->vocab_size);
}

/* ---- n-grams, by pieces on all threads ---- */

struct piece {
    const struct arpa *a;
    int k;                       /* n-grams of k + 1 tokens, whose newest context token is in [begin, end) */
    int64_t begin, end;
    int32_t path[LLM_NGRAM_MAX_ORDER]; /* the current context, newest token first */
    struct llm_buf text;
    struct llm_err err;
    bool failed;
};

static int put_ngrams(struct piece *p, uint64_t context, struct llm_err *e)
{
    const struct arpa *a = p->a;
    const struct llm_ngram_level *l = &a->g->level[p->k];
    const uint32_t *first = l->first.data;
    struct llm_buf *b = &p->text;
    if (first[context] > first[context + 1] || first[context + 1] > l->word.n) return bad_table(a->g, "offsets of n-grams", e);
    for (uint64_t i = first[context]; i < first[context + 1]; i++) {
        int32_t newest[LLM_NGRAM_MAX_ORDER];
        newest[0] = (int32_t)token_at(&l->word, i);
        if (newest[0] < 0 || newest[0] >= a->g->vocab_size) return bad_table(a->g, "a token", e);
        memcpy(newest + 1, p->path, (size_t)p->k * sizeof *newest);
        if (put_number(b, (double)((const float *)l->log_prob.data)[i], '\t', e) < 0) return -1;
        for (int j = p->k; j >= 1; j--) {
            const char *word = context_word(a, newest[j], j == p->k);
            if (llm_buf_put(b, word, strlen(word), e) < 0 || llm_buf_put(b, " ", 1, e) < 0) return -1;
        }
        const char *last = word_of(a, newest[0]);
        if (llm_buf_put(b, last, strlen(last), e) < 0 || put_backoff(a, b, newest, p->k + 1, e) < 0) return -1;
    }
    return 0;
}

/* Visits all contexts of k tokens that end with the `depth` tokens of p->path, which are context number `context` of their level. 0 or -1. */
static int walk(struct piece *p, int depth, uint64_t context, struct llm_err *e)
{
    const struct llm_ngram *g = p->a->g;
    if (depth == p->k) return put_ngrams(p, context, e);
    const struct llm_ngram_array *oldest = &g->level[depth + 1].oldest;
    const uint32_t *deeper = g->level[depth].deeper.data;
    if (deeper[context] > deeper[context + 1] || deeper[context + 1] > oldest->n) return bad_table(g, "offsets of contexts", e);
    for (uint64_t i = deeper[context]; i < deeper[context + 1]; i++) {
        p->path[depth] = (int32_t)token_at(oldest, i);
        if (p->path[depth] < 0 || p->path[depth] > g->vocab_size) return bad_table(g, "a token", e);
        if (walk(p, depth + 1, i, e) < 0) return -1;
    }
    return 0;
}

static void write_piece(void *arg, size_t i, int thread)
{
    struct piece *p = (struct piece *)arg + i;
    (void)thread;
    p->text.n = 0;
    for (int64_t id = p->begin; id < p->end && !p->failed; id++) {
        p->path[0] = (int32_t)id;
        p->failed = walk(p, 1, (uint64_t)id, &p->err) < 0;
    }
}

/* The index of the first n-gram of k + 1 tokens whose newest context token is at least `id`. Offsets come from the file, so the index is bounded by
 * the number of n-grams. */
static uint64_t first_of(const struct llm_ngram *g, int k, int64_t id)
{
    uint64_t at = (uint64_t)id;
    for (int depth = 1; depth < k; depth++) {
        at = ((const uint32_t *)g->level[depth].deeper.data)[at];
        if (at > g->level[depth + 1].oldest.n) at = g->level[depth + 1].oldest.n;
    }
    return ((const uint32_t *)g->level[k].first.data)[at];
}

static int put_level(const struct arpa *a, int k, struct piece *pieces, struct llm_err *e)
{
    int64_t id = 0, all = a->g->vocab_size + 1;
    int got = 0;
    while (got == 0 && id < all) {
        size_t n = 0;
        for (; n < PIECES && id < all; n++) {
            uint64_t begin = first_of(a->g, k, id), end = begin;
            struct piece *p = &pieces[n];
            p->a = a;
            p->k = k;
            p->begin = id;
            while (id < all && end < begin + PIECE) end = first_of(a->g, k, ++id);
            p->end = id;
        }
        llm_parallel(n, write_piece, pieces);
        for (size_t i = 0; got == 0 && i < n; i++) {
            if (pieces[i].failed && e) *e = pieces[i].err;
            got = pieces[i].failed ? -1 : llm_output_write(a->o, pieces[i].text.p ? pieces[i].text.p : "", pieces[i].text.n, e);
        }
    }
    return got;
}

static int put_all(const struct arpa *a, struct piece *pieces, struct llm_err *e)
{
    const struct llm_ngram *g = a->g;
    struct llm_buf *b = &pieces[0].text;
    if (llm_buf_printf(b, e, "\\data\\\nngram 1=%" PRId64 "\n", g->vocab_size + (a->unknown < 0) + !has_own_begin(a)) < 0) return -1;
    for (int k = 1; k < g->order; k++) {
        if (llm_buf_printf(b, e, "ngram %d=%" PRIu64 "\n", k + 1, llm_ngram_count(g, k)) < 0) return -1;
    }
    if (llm_buf_printf(b, e, "\n\\1-grams:\n") < 0 || put_unigrams(a, b, e) < 0 || llm_output_write(a->o, b->p, b->n, e) < 0) return -1;
    for (int k = 1; k < g->order; k++) {
        if (llm_output_printf(a->o, e, "\n\\%d-grams:\n", k + 1) < 0 || put_level(a, k, pieces, e) < 0) return -1;
    }
    return llm_output_printf(a->o, e, "\n\\end\\\n");
}

int llm_arpa_write(const struct llm_model *m, struct llm_output *o, struct llm_err *e)
{
    struct arpa a = {.g = m->ngram, .o = o, .eos = m->config.eos_token_id, .unknown = -1};
    if (!m->ngram) return llm_fail(e, EX_DATAERR, "ARPA: expected an n-gram model, found a %s", m->config.model_type);
    a.words_apart = m->tokenizer && strcmp(llm_tokenizer_type(m->tokenizer), "wordpiece") == 0;
    struct piece *pieces = llm_calloc(PIECES, sizeof *pieces, "text", e);
    int got = pieces ? make_words(&a, m, e) : -1;
    if (got == 0) got = put_all(&a, pieces, e);
    for (size_t i = 0; pieces && i < PIECES; i++) llm_buf_release(&pieces[i].text);
    free(pieces);
    llm_buf_release(&a.words);
    free(a.word);
    return got;
}
