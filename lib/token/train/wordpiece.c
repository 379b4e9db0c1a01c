#include "token/train/wordpiece.h"
#include <stdlib.h>
#include <string.h>
#include "token/unicode.h"

/* Ids of characters, where they begin a word and where they go on. */
struct characters {
    uint32_t *cps;      /* ascending */
    uint32_t *first, *next; /* ids of each; NONE: it never goes on within a word */
    size_t n;
};

static int by_number(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static size_t place_of(const struct characters *c, uint32_t cp)
{
    const uint32_t *found = bsearch(&cp, c->cps, c->n, sizeof cp, by_number);
    return (size_t)(found - c->cps);
}

/* The characters of a word one by one: its code point, and how many bytes it has. Words are UTF-8. */
static size_t character(const unsigned char *p, size_t n, uint32_t *cp)
{
    int len = llm_utf8_next(p, n, cp);
    return len > 0 ? (size_t)len : n;
}

static void once_each(struct characters *c)
{
    size_t kept = 0;
    if (c->n)
        qsort(c->cps, c->n, sizeof *c->cps, by_number);
    for (size_t k = 0; k < c->n; k++)
        if (kept == 0 || c->cps[kept - 1] != c->cps[k])
            c->cps[kept++] = c->cps[k];
    c->n = kept;
}

static int list_characters(struct characters *c, const struct llm_counts *words, struct llm_err *e)
{
    size_t slots = words->slots ? (size_t)1 << words->bits : 0, room = 0, kept = 0;
    for (size_t i = 0; i < slots; i++) {
        const unsigned char *p = llm_counts_word(words, &words->slots[i]);
        uint32_t cp;
        for (size_t at = 0, n = words->slots[i].n; at < n;) {
            at += character(p + at, n - at, &cp);
            bool known = c->n && c->cps[c->n - 1] == cp;
            if (!known && llm_grow((void **)&c->cps, &room, c->n + 1, sizeof *c->cps, e) < 0)
                return -1;
            if (!known)
                c->cps[c->n++] = cp;
        }
        if (c->n > 2 * kept + 4096) { /* text has few characters: each stays once */
            once_each(c);
            kept = c->n;
        }
    }
    once_each(c);
    return 0;
}

struct listed { const unsigned char *text; uint64_t count; uint32_t n; };

static int by_count(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    if (x->count != y->count)
        return (x->count < y->count) - (x->count > y->count);
    int d = memcmp(x->text, y->text, x->n < y->n ? x->n : y->n);
    return d ? d : (x->n > y->n) - (x->n < y->n);
}

/* Characters within words, as they are met in the words from the most frequent on. The order decides between pairs that are equally frequent;
 * Hugging Face's trainer meets its words in that of a hash table. */
static int put_next(struct characters *c, const struct llm_counts *words, struct llm_growing_vocab *vocab, struct llm_err *e)
{
    unsigned char text[sizeof LLM_WORDPIECE_PREFIX - 1 + 4] = LLM_WORDPIECE_PREFIX;
    size_t slots = words->slots ? (size_t)1 << words->bits : 0, n_list = 0;
    struct listed *list = llm_alloc(words->n, sizeof *list, "words", e);
    int bad = list ? 0 : -1;
    for (size_t i = 0; i < slots && list; i++)
        if (words->slots[i].n)
            list[n_list++] = (struct listed){llm_counts_word(words, &words->slots[i]), words->slots[i].count, words->slots[i].n};
    if (n_list)
        qsort(list, n_list, sizeof *list, by_count);
    for (size_t i = 0; i < n_list; i++) {
        const unsigned char *p = list[i].text;
        uint32_t cp;
        for (size_t at = character(p, list[i].n, &cp), n = list[i].n; at < n && bad == 0;) {
            at += character(p + at, n - at, &cp);
            uint32_t *id = &c->next[place_of(c, cp)];
            if (*id != LLM_BPE_NONE)
                continue;
            *id = (uint32_t)vocab->n;
            size_t len = (size_t)llm_utf8_put(cp, text + sizeof LLM_WORDPIECE_PREFIX - 1);
            bad = llm_growing_vocab_put(vocab, text, sizeof LLM_WORDPIECE_PREFIX - 1 + len, e);
        }
    }
    free(list);
    return bad;
}

static int put_characters(struct characters *c, const struct llm_counts *words, struct llm_growing_vocab *vocab, struct llm_err *e)
{
    for (size_t i = 0; i < c->n; i++) {
        unsigned char text[4];
        c->first[i] = (uint32_t)vocab->n;
        if (llm_growing_vocab_put(vocab, text, (size_t)llm_utf8_put(c->cps[i], text), e) < 0)
            return -1;
    }
    return put_next(c, words, vocab, e);
}

static uint32_t symbols(const void *arg, const unsigned char *p, uint32_t n, uint32_t *out)
{
    const struct characters *c = arg;
    uint32_t n_out = 0, cp;
    for (size_t at = 0; at < n;) {
        const uint32_t *ids = at ? c->next : c->first;
        at += character(p + at, n - at, &cp);
        out[n_out++] = ids[place_of(c, cp)];
    }
    return n_out;
}

int llm_train_wordpiece(const struct llm_counts *words, const struct llm_train_options *o, struct llm_growing_vocab *vocab, struct llm_err *e)
{
    struct characters c = {0};
    struct llm_bpe_merge *merges = NULL;
    size_t n_merges = 0;
    int bad = list_characters(&c, words, e);
    if (bad == 0) {
        c.first = llm_alloc(c.n, sizeof *c.first, "characters", e);
        c.next = llm_alloc(c.n, sizeof *c.next, "characters", e);
        bad = c.first && c.next ? 0 : -1;
    }
    if (bad == 0) {
        memset(c.next, 0xFF, c.n * sizeof *c.next);
        bad = put_characters(&c, words, vocab, e);
    }
    if (bad == 0 && (int64_t)vocab->n > o->vocab_size)
        bad = llm_fail(e, LLM_EX_USAGE, "a vocabulary of %lld: this text's characters and the special tokens alone are %zu",
                       (long long)o->vocab_size, vocab->n);
    if (bad == 0) {
        const struct llm_merge_alphabet alphabet = {symbols, &c, LLM_WORDPIECE_PREFIX};
        bad = llm_merge_words(words, o, &alphabet, vocab, &merges, &n_merges, e);
    }
    free(merges);
    free(c.cps);
    free(c.first);
    free(c.next);
    return bad;
}
