#include "search/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include "base/hash.h"
#include "base/utf8.h"

enum { MAX_WORD = 64, NO_SPACES = 0x2E80 }; /* bytes of a word that count; where writing without spaces begins */

/* Walks the words of a text. */
struct walk {
    const char *text;
    size_t n, at;
    char word[MAX_WORD + 4];
    size_t length;
};

static bool in_word(int32_t c)
{
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT: case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_NL: case UTF8PROC_CATEGORY_NO:
        return true;
    default: return false;
    }
}

/* The next word, in lower case; longer ones are cut. false: there is none. */
static bool next(struct walk *w)
{
    w->length = 0;
    while (w->at < w->n) {
        int32_t c;
        utf8proc_ssize_t got = utf8proc_iterate((const uint8_t *)w->text + w->at, (utf8proc_ssize_t)(w->n - w->at), &c);
        bool inside = got > 0 && in_word(c), alone = inside && c >= NO_SPACES;
        if ((!inside || alone) && w->length > 0) return true;
        w->at += got > 0 ? (size_t)got : 1;
        if (inside && w->length < MAX_WORD) w->length += (size_t)utf8proc_encode_char(utf8proc_tolower(c), (uint8_t *)w->word + w->length);
        if (alone) return true;
    }
    return w->length > 0;
}

/* ---- making ---- */

struct entry { uint64_t hash; size_t at; uint32_t length, word; }; /* length 0: free */
struct maker {
    struct entry *table;
    size_t size, n;             /* of the table: a power of two; entries */
    struct llm_buf bytes;       /* of all words */
    struct llm_buf postings;    /* struct posting, in the order of rows */
    uint32_t *last, *order;     /* of each word: its latest posting, as an index; its place in the order of bytes */
    uint64_t *row_of_last;      /* of each word: 1 + the row of that posting */
    size_t last_room, rows_room;
};
struct posting { uint32_t word, row, count; };

static int widen(struct maker *m, struct llm_err *e)
{
    size_t size = m->size ? 2 * m->size : 1 << 12;
    struct entry *table = llm_calloc(size, sizeof *table, "words", e);
    if (!table) return -1;
    for (size_t i = 0; i < m->size; i++) {
        if (m->table[i].length == 0) continue;
        size_t slot = m->table[i].hash & (size - 1);
        while (table[slot].length) slot = (slot + 1) & (size - 1);
        table[slot] = m->table[i];
    }
    free(m->table);
    m->table = table;
    m->size = size;
    return 0;
}

/* The number of a word, which is made if it is new. 0 or -1. */
static int number_of(struct maker *m, const char *word, size_t n, uint32_t *number, struct llm_err *e)
{
    uint64_t hash = llm_xxh64(word, n, 0);
    if (2 * (m->n + 1) > m->size && widen(m, e) < 0) return -1;
    size_t slot = hash & (m->size - 1);
    for (; m->table[slot].length; slot = (slot + 1) & (m->size - 1)) {
        const struct entry *t = &m->table[slot];
        if (t->hash != hash || t->length != n || memcmp(m->bytes.p + t->at, word, n) != 0) continue;
        *number = t->word;
        return 0;
    }
    if (m->n == UINT32_MAX) return llm_fail(e, EX_DATAERR, "expected fewer words");
    *number = (uint32_t)m->n;
    m->table[slot] = (struct entry){hash, m->bytes.n, (uint32_t)n, *number};
    if (llm_grow((void **)&m->last, &m->last_room, m->n + 1, sizeof *m->last, e) < 0
        || llm_grow((void **)&m->row_of_last, &m->rows_room, m->n + 1, sizeof *m->row_of_last, e) < 0) return -1;
    m->row_of_last[m->n++] = 0;
    return llm_buf_put(&m->bytes, word, n, e);
}

static int read_row(struct maker *m, struct llm_index *x, int64_t row, struct llm_err *e)
{
    struct walk w = {.text = x->texts.bytes + x->texts.at[row], .n = x->texts.at[row + 1] - x->texts.at[row]};
    x->lengths_in_words[row] = 0;
    while (next(&w)) {
        uint32_t word = 0;
        if (number_of(m, w.word, w.length, &word, e) < 0) return -1;
        x->lengths_in_words[row]++;
        if (m->row_of_last[word] == (uint64_t)row + 1) {
            ((struct posting *)(void *)m->postings.p)[m->last[word]].count++;
            continue;
        }
        size_t at = m->postings.n / sizeof(struct posting);
        if (at == UINT32_MAX) return llm_fail(e, EX_DATAERR, "expected fewer words in the texts");
        m->last[word] = (uint32_t)at;
        m->row_of_last[word] = (uint64_t)row + 1;
        if (llm_buf_put(&m->postings, &(struct posting){word, (uint32_t)row, 1}, sizeof(struct posting), e) < 0) return -1;
    }
    return 0;
}

struct named { const char *word; uint32_t length, number; };
static int by_bytes(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int c = memcmp(x->word, y->word, x->length < y->length ? x->length : y->length);
    return c ? c : (x->length > y->length) - (x->length < y->length);
}

/* Words in the order of their bytes, and the postings of each. */
static int finish(struct maker *m, struct llm_index *x, struct llm_err *e)
{
    size_t postings = m->postings.n / sizeof(struct posting), at = 0;
    const struct posting *p = (const void *)m->postings.p;
    x->n_words = (int64_t)m->n;
    struct named *names = llm_alloc(m->n + 1, sizeof *names, "words", e);
    m->order = names ? llm_alloc(m->n + 1, sizeof *m->order, "words", e) : NULL;
    x->words.at = m->order ? llm_index_alloc(x, m->n + 1, sizeof *x->words.at, e) : NULL;
    x->words.bytes = x->words.at ? llm_index_alloc(x, m->bytes.n + 1, 1, e) : NULL;
    x->postings_at = x->words.bytes ? llm_index_alloc(x, m->n + 1, sizeof *x->postings_at, e) : NULL;
    x->posting_rows = x->postings_at ? llm_index_alloc(x, postings + 1, sizeof *x->posting_rows, e) : NULL;
    x->posting_counts = x->posting_rows ? llm_index_alloc(x, postings + 1, sizeof *x->posting_counts, e) : NULL;
    int status = x->posting_counts ? 0 : -1;
    for (size_t i = 0, n = 0; status == 0 && i < m->size; i++) {
        const struct entry *t = &m->table[i];
        if (t->length) names[n++] = (struct named){m->bytes.p + t->at, t->length, t->word};
    }
    if (status == 0 && m->n > 0) qsort(names, m->n, sizeof *names, by_bytes);
    for (size_t i = 0; status == 0 && i < m->n; i++) {
        m->order[names[i].number] = (uint32_t)i;
        x->words.at[i] = at;
        memcpy(x->words.bytes + at, names[i].word, names[i].length);
        at += names[i].length;
        x->postings_at[i] = 0;
    }
    if (status == 0) {
        x->words.at[m->n] = at;
        x->postings_at[m->n] = 0;
        for (size_t i = 0; i < postings; i++) x->postings_at[m->order[p[i].word] + 1]++;
        for (size_t i = 0; i < m->n; i++) x->postings_at[i + 1] += x->postings_at[i];
        for (size_t i = 0; i < m->n; i++) m->row_of_last[i] = x->postings_at[i]; /* where the word's next posting goes */
        for (size_t i = 0; i < postings; i++) {
            uint64_t to = m->row_of_last[m->order[p[i].word]]++;
            x->posting_rows[to] = p[i].row;
            x->posting_counts[to] = p[i].count;
        }
    }
    free(names);
    return status;
}

int llm_words_make(struct llm_index *x, struct llm_err *e)
{
    struct maker m = {0};
    x->lengths_in_words = llm_index_alloc(x, (size_t)x->n + 1, sizeof *x->lengths_in_words, e);
    int status = x->lengths_in_words ? 0 : -1;
    for (int64_t i = 0; i < x->n && status == 0; i++) status = read_row(&m, x, i, e);
    if (status == 0) status = finish(&m, x, e);
    free(m.table);
    free(m.last);
    free(m.order);
    free(m.row_of_last);
    llm_buf_release(&m.bytes);
    llm_buf_release(&m.postings);
    return status;
}

/* ---- searching ---- */

static int64_t find(const struct llm_index *x, const char *word, size_t n)
{
    int64_t low = 0, high = x->n_words;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        size_t length = x->words.at[middle + 1] - x->words.at[middle];
        int c = memcmp(x->words.bytes + x->words.at[middle], word, n < length ? n : length);
        if (c == 0) c = (length > n) - (length < n);
        if (c == 0) return middle;
        if (c < 0) low = middle + 1;
        else high = middle;
    }
    return -1;
}

int64_t llm_words_search(const struct llm_index *x, const char *text, size_t n, const struct llm_lookup *s, struct llm_hit *hits, struct llm_err *e)
{
    const double k1 = 1.2, b = .75;
    struct walk w = {.text = text, .n = n};
    struct llm_best best = {.hits = hits, .k = s->k};
    double all = 0, *scores = llm_calloc((size_t)x->n + 1, sizeof *scores, "scores", e);
    if (!scores) return -1;
    for (int64_t i = 0; i < x->n; i++) all += x->lengths_in_words[i];
    double mean = all / (double)x->n;
    while (next(&w)) {
        int64_t word = find(x, w.word, w.length);
        if (word < 0) continue;
        double df = (double)(x->postings_at[word + 1] - x->postings_at[word]), idf = log1p(((double)x->n - df + .5) / (df + .5));
        for (uint64_t i = x->postings_at[word]; i < x->postings_at[word + 1]; i++) {
            uint32_t row = x->posting_rows[i];
            double f = x->posting_counts[i];
            scores[row] += idf * f * (k1 + 1) / (f + k1 * (1 - b + b * (double)x->lengths_in_words[row] / mean));
        }
    }
    for (int64_t i = 0; i < x->n; i++) {
        if (scores[i] > 0 && !x->deleted[i] && (!s->allowed || s->allowed[i])) llm_best_offer(&best, scores[i], i);
    }
    free(scores);
    return best.n;
}
