/* Sorting records: one scatter by the first bits on all threads, then each bucket by itself, a byte at a time, small ones by comparison. */
#include "model/weights/ngram/records.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"

enum { TOP = 11, BUCKETS = 1 << TOP, PIECES = 64, SMALL = 24, MIDDLE = 600 };

static inline bool less(const struct llm_ngram_record *a, const struct llm_ngram_record *b)
{
    return llm_key_less(a->key, b->key);
}

static void insertion_sort(struct llm_ngram_record *r, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        struct llm_ngram_record x = r[i];
        size_t k = i;
        for (; k > 0 && less(&x, &r[k - 1]); k--) r[k] = r[k - 1];
        r[k] = x;
    }
}

static void swap(struct llm_ngram_record *a, struct llm_ngram_record *b)
{
    struct llm_ngram_record t = *a;
    *a = *b;
    *b = t;
}

/* Quicksort with three-way partitions, because keys of n-grams repeat. It recurses into the smaller part only, which bounds the stack. */
static void compare_sort(struct llm_ngram_record *r, size_t n)
{
    while (n > SMALL) {
        struct llm_ngram_key a = r[0].key, b = r[n / 2].key, c = r[n - 1].key, pivot;
        if (llm_key_less(b, a)) pivot = llm_key_less(c, b) ? b : llm_key_less(c, a) ? c : a;
        else pivot = llm_key_less(c, a) ? a : llm_key_less(c, b) ? c : b;
        size_t low = 0, at = 0, high = n;
        while (at < high) {
            if (llm_key_less(r[at].key, pivot)) swap(&r[low++], &r[at++]);
            else if (llm_key_less(pivot, r[at].key)) swap(&r[at], &r[--high]);
            else at++;
        }
        if (low < n - high) {
            compare_sort(r, low);
            r += high;
            n -= high;
        } else {
            compare_sort(r + high, n - high);
            n = low;
        }
    }
    insertion_sort(r, n);
}

static inline unsigned byte_at(struct llm_ngram_key k, int bit)
{
    return (unsigned)(llm_key_left(k, bit).hi >> 56);
}

/* Sorts the n records in `r` by `bits` bits of their keys; `other` is scratch memory of the same size. The result is in `out`, which is r or other.
 * */
static void radix_sort(struct llm_ngram_record *r, struct llm_ngram_record *other, size_t n, int bit, int bits, bool into_other)
{
    if (n <= MIDDLE || bit >= bits) {
        if (bit < bits) compare_sort(r, n);
        if (into_other) memcpy(other, r, n * sizeof *r);
        return;
    }
    size_t ends[257] = {0};
    for (size_t i = 0; i < n; i++) ends[byte_at(r[i].key, bit) + 1]++;
    for (int i = 0; i < 256; i++) ends[i + 1] += ends[i];
    size_t at[256];
    memcpy(at, ends, sizeof at);
    for (size_t i = 0; i < n; i++) other[at[byte_at(r[i].key, bit)]++] = r[i];
    for (int i = 0; i < 256; i++) {
        size_t from = ends[i], size = ends[i + 1] - from;
        if (size) radix_sort(other + from, r + from, size, bit + 8, bits, !into_other);
    }
}

struct scatter {
    struct llm_ngram_record *from, *to;
    size_t n, (*counts)[BUCKETS], *begin;
    int bits;
};

static size_t piece_begin(const struct scatter *s, size_t piece)
{
    return s->n / PIECES * piece + (s->n % PIECES) * piece / PIECES;
}

static void count_piece(void *arg, size_t piece, int thread)
{
    struct scatter *s = arg;
    (void)thread;
    for (size_t i = piece_begin(s, piece); i < piece_begin(s, piece + 1); i++) s->counts[piece][s->from[i].key.hi >> (64 - TOP)]++;
}

static void scatter_piece(void *arg, size_t piece, int thread)
{
    struct scatter *s = arg;
    size_t *at = s->counts[piece];
    (void)thread;
    for (size_t i = piece_begin(s, piece); i < piece_begin(s, piece + 1); i++) s->to[at[s->from[i].key.hi >> (64 - TOP)]++] = s->from[i];
}

static void sort_bucket(void *arg, size_t bucket, int thread)
{
    struct scatter *s = arg;
    size_t from = s->begin[bucket], n = s->begin[bucket + 1] - from;
    (void)thread;
    radix_sort(s->to + from, s->from + from, n, TOP, s->bits, true);
}

int llm_records_sort(struct llm_ngram_record *r, struct llm_ngram_record *scratch, size_t n, int bits, struct llm_err *e)
{
    if (n <= MIDDLE) {
        compare_sort(r, n);
        return 0;
    }
    struct scatter s = {.from = r, .to = scratch, .n = n, .bits = bits};
    s.counts = llm_calloc(PIECES, sizeof *s.counts, "sorting n-grams", e);
    s.begin = llm_calloc(BUCKETS + 1, sizeof *s.begin, "sorting n-grams", e);
    int got = s.counts && s.begin ? 0 : -1;
    if (got == 0) {
        llm_parallel(PIECES, count_piece, &s);
        size_t at = 0;
        for (int b = 0; b < BUCKETS; b++) {
            s.begin[b] = at;
            for (int p = 0; p < PIECES; p++) {
                size_t here = s.counts[p][b];
                s.counts[p][b] = at;
                at += here;
            }
        }
        s.begin[BUCKETS] = at;
        llm_parallel(PIECES, scatter_piece, &s);
        llm_parallel(BUCKETS, sort_bucket, &s);
    }
    free(s.counts);
    free(s.begin);
    return got;
}

size_t llm_records_merge(struct llm_ngram_record *r, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept && llm_key_equal(r[kept - 1].key, r[i].key)) r[kept - 1].n += r[i].n;
        else r[kept++] = r[i];
    }
    return kept;
}
