/* One walk over the sorted n-grams gives those of all orders with their adjusted counts: n-grams of n tokens with the same last tokens stand
 * together, and what differs in the token before them is a context of theirs. Done twice: to count, so that memory is known; to write. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "train/ngram/ngram_internal.h"

struct tally {
    uint64_t types[LLM_NGRAM_MAX_ORDER];       /* [k]: of k + 1 tokens */
    uint64_t of_count[LLM_NGRAM_MAX_ORDER][5]; /* n-grams with an adjusted count of 1 to 4 */
};
struct adjust {
    struct llm_estimate *w;
    struct tally *tallies;                     /* [cuts.n] */
    bool writes;
};
/* The n-grams that are open while a piece is walked over: [k] of k + 1 tokens. */
struct walk {
    struct llm_estimate *w;
    struct tally *tally;
    struct llm_ngram_record *out[LLM_NGRAM_MAX_ORDER]; /* NULL: only count */
    uint64_t adjusted[LLM_NGRAM_MAX_ORDER], raw[LLM_NGRAM_MAX_ORDER];
};

/* The n-gram of k + 1 tokens at the front of `key` is complete. */
static void finish(struct walk *v, int k, struct llm_ngram_key key)
{
    const struct llm_estimate *w = v->w;
    uint64_t n = v->adjusted[k];
    if (!v->out[0]) {
        v->tally->types[k]++;
        if (n <= 4) v->tally->of_count[k][n]++;
        return;
    }
    uint32_t last = llm_key_token(key, 0, w->bits);
    if (k == 0) {
        w->unigram[last] = n;
        return;
    }
    key = llm_key_left(llm_key_first(key, (k + 1) * w->bits), w->bits);
    *v->out[k]++ = (struct llm_ngram_record){llm_key_put(key, k, w->bits, last), n * 2 + (v->raw[k] <= w->options->prune[k])};
}

static int length_of(const struct llm_estimate *w, struct llm_ngram_key key)
{
    int n = w->order;
    while (n > 0 && llm_key_token(key, n - 1, w->bits) == 0) n--;
    return n;
}

static void walk_run(struct walk *v, const struct llm_run *run)
{
    const struct llm_estimate *w = v->w;
    struct llm_ngram_key last = {0, 0};
    int open = 0;
    for (uint64_t i = 0; i < run->n; i++) {
        struct llm_ngram_key key = run->r[i].key;
        uint64_t count = run->r[i].n;
        int length = length_of(w, key), same = 0;
        while (same < open && same < length && llm_key_token(key, same, w->bits) == llm_key_token(last, same, w->bits)) same++;
        for (int k = open; k-- > same;) finish(v, k, last);
        for (int k = same; k < length; k++) v->adjusted[k] = v->raw[k] = 0;
        for (int k = 0; k < length; k++) v->raw[k] += count;
        /* A new token before those that stay the same; the longest has none, or none that is looked at: it counts as often as it came. */
        for (int k = same > 0 ? same - 1 : 0; k < length; k++) v->adjusted[k] += k + 1 < length ? 1 : count;
        open = length;
        last = key;
    }
    for (int k = open; k-- > 0;) finish(v, k, last);
}

static void walk_piece(void *arg, size_t i, int thread)
{
    struct adjust *a = arg;
    struct llm_estimate *w = a->w;
    struct walk v = {.w = w, .tally = &a->tallies[i]};
    (void)thread;
    if (llm_signal_caught()) return;
    for (int k = 1; a->writes && k < w->order; k++) { /* where this piece begins to write: sums over the earlier pieces */
        v.out[k] = (struct llm_ngram_record *)w->records[k].data + a->tallies[i].types[k];
    }
    static struct llm_ngram_record none; /* unigrams have their own place; what counts is that it is not NULL */
    if (a->writes) v.out[0] = &none;
    walk_run(&v, &w->pieces[i]);
}

static void discount(const struct llm_estimate *w, int k, const uint64_t of_count[5])
{
    struct llm_ngram_order_report *r = &w->report->order[k];
    double y = (double)of_count[1] / (double)(of_count[1] + 2 * of_count[2]);
    for (uint64_t j = 1; j <= 3 && !r->short_of; j++) {
        if (of_count[j] == 0) r->short_of = j;
    }
    for (int j = 1; j <= 3 && !r->short_of; j++) {
        r->discount[j] = j - (j + 1) * y * (double)of_count[j + 1] / (double)of_count[j];
        if (r->discount[j] < 0 || r->discount[j] > j) r->short_of = (uint64_t)j + 1;
    }
    for (int j = 1; j <= 3 && r->short_of; j++) r->discount[j] = .5 * j;
}

static int make_room(struct llm_estimate *w, struct tally *tallies, struct llm_err *e)
{
    w->unigram = llm_calloc((size_t)w->n_ranks + 1, sizeof *w->unigram, "n-grams", e);
    if (!w->unigram) return -1;
    for (int k = 0; k < w->order; k++) {
        uint64_t of_count[5] = {0}, sum = 0;
        for (size_t i = 0; i < w->cuts.n; i++) {
            uint64_t here = tallies[i].types[k];
            tallies[i].types[k] = sum;
            sum += here;
            for (int j = 1; j < 5; j++) of_count[j] += tallies[i].of_count[k][j];
        }
        w->n_records[k] = w->report->order[k].types = sum;
        discount(w, k, of_count);
        if (k > 0 && llm_store_init(&w->records[k], &w->budget, sum * sizeof(struct llm_ngram_record), e) < 0) return -1;
    }
    return 0;
}

int llm_ngram_adjust(struct llm_estimate *w, struct llm_err *e)
{
    struct adjust a = {.w = w};
    a.tallies = llm_calloc(w->cuts.n, sizeof *a.tallies, "n-grams", e);
    if (!a.tallies) return -1;
    llm_parallel(w->cuts.n, walk_piece, &a);
    int got = make_room(w, a.tallies, e);
    if (got == 0) {
        a.writes = true;
        llm_parallel(w->cuts.n, walk_piece, &a);
    }
    free(a.tallies);
    if (got == 0 && llm_signal_caught()) got = 1;
    llm_store_release(&w->counted, &w->budget);
    return got;
}
