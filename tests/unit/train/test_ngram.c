/* Estimation of n-grams against the formulas written down naively (Chen & Goodman 1998), on random corpora: documents of all lengths, masks, tokens
 * that are not seen, pruning, one part in memory and many on disk. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/rng.h"
#include "cpu/pool.h"
#include "train/ngram.h"

enum { MOST = 6000, ORDERS = 5, BEFORE = -1 };

struct corpus {
    int32_t ids[MOST];
    uint8_t mask[MOST];
    uint64_t ends[MOST];
    size_t n, n_ends;
    int32_t vocab, bos, eos;
};

/* ---- the formulas ---- */

/* An n-gram of a corpus, its words from the oldest; where its text begins is bos, else eos, else the vocabulary's size. */
struct gram { int32_t w[ORDERS]; double raw, adjusted; bool pruned; };
struct order { struct gram *v; size_t n; double discount[4]; };
struct reference { const struct corpus *c; int order; int32_t begin; struct order of[ORDERS + 1]; };

static struct gram *find(const struct reference *r, const int32_t *w, int n)
{
    for (size_t i = 0; i < r->of[n].n; i++) {
        if (memcmp(r->of[n].v[i].w, w, (size_t)n * sizeof *w) == 0) return &r->of[n].v[i];
    }
    return NULL;
}

/* Word i of a text with what stands before it; 0: there is none. */
static bool word_at(const struct reference *r, size_t start, int64_t i, int32_t *w)
{
    bool own = r->c->ids[start] == r->begin;
    if (i >= (int64_t)start) *w = r->c->ids[i];
    else if (i == (int64_t)start - 1 && !own) *w = r->begin;
    else return false;
    return true;
}

static void count(struct reference *r)
{
    const struct corpus *c = r->c;
    size_t start = 0, document = 0;
    for (int n = 1; n <= r->order; n++) r->of[n].v = calloc(MOST, sizeof *r->of[n].v);
    for (size_t i = 0; i < c->n; i++) {
        while (document < c->n_ends && c->ends[document] <= i) start = c->ends[document++];
        if (!c->mask[i] || (i == start && c->ids[i] == r->begin)) continue;
        for (int n = 1; n <= r->order; n++) {
            int32_t w[ORDERS], left;
            bool whole = true;
            for (int k = 0; k < n; k++) whole = whole && word_at(r, start, (int64_t)i - n + 1 + k, &w[k]);
            if (!whole) break;
            struct gram *g = find(r, w, n);
            if (!g) {
                g = &r->of[n].v[r->of[n].n++];
                memcpy(g->w, w, sizeof w);
            }
            g->raw++;
            if (n == r->order || !word_at(r, start, (int64_t)i - n, &left)) g->adjusted++;
        }
    }
    for (int n = 1; n < r->order; n++) { /* in how many contexts */
        for (size_t i = 0; i < r->of[n + 1].n; i++) find(r, r->of[n + 1].v[i].w + 1, n)->adjusted++;
    }
}

static void discounts(struct order *o)
{
    double n[5] = {0};
    bool bad = false;
    for (size_t i = 0; i < o->n; i++) {
        if (o->v[i].adjusted <= 4) n[(int)o->v[i].adjusted]++;
    }
    for (int j = 1; j <= 3; j++) {
        o->discount[j] = j - (j + 1) * (n[1] / (n[1] + 2 * n[2])) * n[j + 1] / n[j];
        bad = bad || n[1] == 0 || n[2] == 0 || n[3] == 0 || o->discount[j] < 0 || o->discount[j] > j;
    }
    for (int j = 1; j <= 3 && bad; j++) o->discount[j] = .5 * j;
}

static double discount(const struct order *o, double count)
{
    return o->discount[count < 3 ? (int)count : 3];
}

/* p(w[n - 1] | w[0 .. n - 2]) */
static double probability(const struct reference *r, const int32_t *w, int n)
{
    if (n == 0) {
        const struct gram *begins = find(r, &r->begin, 1);
        bool never = r->begin == r->c->bos && r->c->bos != r->c->eos && r->begin < r->c->vocab && !begins;
        return 1. / (r->c->vocab + 1 - never);
    }
    double sum = 0, backoff = 0, own = 0;
    bool seen = false;
    for (size_t i = 0; i < r->of[n].n; i++) {
        const struct gram *g = &r->of[n].v[i];
        if (memcmp(g->w, w, (size_t)(n - 1) * sizeof *w) != 0) continue;
        sum += g->adjusted;
        backoff += g->pruned ? g->adjusted : discount(&r->of[n], g->adjusted);
        seen = seen || !g->pruned;
        if (g->w[n - 1] == w[n - 1] && !g->pruned) own = g->adjusted - discount(&r->of[n], g->adjusted);
    }
    if (!seen) return probability(r, w + 1, n - 1);
    return own / sum + backoff / sum * probability(r, w + 1, n - 1);
}

/* ---- corpora ---- */

static struct corpus random_corpus(uint64_t seed, size_t n, int32_t vocab, int32_t bos, int32_t eos, bool masks)
{
    struct corpus c = {.n = n, .vocab = vocab, .bos = bos, .eos = eos};
    struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_TEST, 0, 0, 0);
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t a = llm_rng_below(&r, at++, (uint64_t)vocab), b = llm_rng_below(&r, at++, a + 1), long_ago = i > 7 ? (uint64_t)c.ids[i - 7] : 0;
        c.ids[i] = (int32_t)(llm_rng_below(&r, at++, 3) ? b / 2 : long_ago); /* not all, and some again */
        c.mask[i] = !masks || llm_rng_below(&r, at++, 5) > 0;
        bool ends = llm_rng_below(&r, at++, 9) == 0;
        if (bos >= 0 && (i == 0 || (c.n_ends && c.ends[c.n_ends - 1] == i)) && llm_rng_below(&r, at++, 2)) c.ids[i] = bos;
        if (ends && eos >= 0 && llm_rng_below(&r, at++, 4)) c.ids[i] = eos;
        if (ends) c.ends[c.n_ends++] = i + 1;
    }
    return c;
}

static struct llm_tokens *open_corpus(const struct corpus *c)
{
    char path[] = "/tmp/llm-ngram-XXXXXX";
    struct llm_err e;
    const char *name = path;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct llm_output *o = llm_output_open(path, false, &e);
    struct llm_tokens_writer *w = llm_tokens_writer_create(o, "test", c->vocab, true, &e);
    size_t at = 0;
    for (size_t d = 0; d <= c->n_ends; d++) {
        size_t end = d < c->n_ends ? c->ends[d] : c->n;
        assert_int_equal(llm_tokens_put(w, c->ids + at, c->mask + at, end - at, &e), 0);
        if (d < c->n_ends) assert_int_equal(llm_tokens_end_document(w, &e), 0);
        at = end;
    }
    assert_int_equal(llm_tokens_finish(w, &e), 0);
    llm_tokens_writer_destroy(w);
    assert_int_equal(llm_output_commit(o, &e), 0);
    struct llm_tokens *t = llm_tokens_open(&name, 1, NULL, 0, &e);
    if (!t) fail_msg("%s", e.text);
    unlink(path);
    return t;
}

static struct llm_ngram *estimate(const struct corpus *c, int order, int64_t memory, const uint64_t *prune)
{
    struct llm_tokens *t = open_corpus(c);
    struct llm_ngram_source s = {.tokens = t, .n = c->n, .vocab_size = c->vocab, .bos = c->bos, .eos = c->eos};
    struct llm_ngram_options o = {.order = order, .memory = memory};
    struct llm_ngram_report report;
    struct llm_ngram *g = NULL;
    struct llm_err e;
    if (prune) memcpy(o.prune, prune, (size_t)order * sizeof *prune);
    if (llm_ngram_estimate(&s, &o, &g, &report, &e) != 0) fail_msg("%s", e.text);
    llm_tokens_close(t);
    return g;
}

/* ---- tests ---- */

static void same_tables(const struct llm_ngram *a, const struct llm_ngram *b)
{
    char name[32];
    for (size_t i = 0;; i++) {
        const struct llm_ngram_array *x = llm_ngram_tensor(a, i, name), *y = llm_ngram_tensor(b, i, name);
        if (!x) break;
        assert_int_equal(x->n, y->n);
        assert_int_equal(x->dtype, y->dtype);
        if (x->n) assert_memory_equal(x->data, y->data, llm_dtype_bytes(x->dtype, x->n));
    }
}

/* Random histories, seen and not: every token's probability, and their sum with what no token stands for. */
static void check_against(const struct reference *r, const struct llm_ngram *g, uint64_t seed)
{
    struct llm_rng rng = llm_rng_at(seed, 1, LLM_RNG_TEST, 0, 0, 0);
    const struct corpus *c = r->c;
    float *all = malloc((size_t)c->vocab * sizeof *all);
    uint32_t at = 0;
    for (int trial = 0; trial < 12; trial++) {
        int32_t newest[ORDERS], w[ORDERS];
        int n = r->order - 1;
        size_t from = (size_t)llm_rng_below(&rng, at++, c->n - ORDERS);
        for (int k = 0; k < n; k++) {
            newest[k] = trial % 3 ? c->ids[from + (size_t)(n - 1 - k)] : (int32_t)llm_rng_below(&rng, at++, (uint64_t)c->vocab);
        }
        if (trial % 4 == 1 && n > 1) newest[1] = r->begin, n = 2; /* the beginning of a text */
        struct llm_ngram_state s;
        llm_ngram_find(g, newest, n, &s);
        llm_ngram_log_probs(g, &s, all);
        double sum = exp((double)llm_ngram_log_prob(g, &s, c->vocab));
        for (int32_t word = 0; word < c->vocab; word++) {
            for (int k = 0; k < n; k++) w[n - 1 - k] = newest[k];
            w[n] = word;
            double p = probability(r, w, n + 1), found = exp((double)llm_ngram_log_prob(g, &s, word));
            if (word == r->begin && word == c->bos && c->bos != c->eos && !find(r, &word, 1)) p = 0; /* never comes */
            if (fabs(p - found) > 2e-6 * p) fail_msg("seed %d, order %d, word %d: %.9g, expected %.9g", (int)seed, r->order, word, found, p);
            assert_true(all[word] == llm_ngram_log_prob(g, &s, word));
            sum += found;
        }
        assert_true(fabs(sum - 1) < 1e-5);
    }
    free(all);
}

static void test_formulas(void **state)
{
    static const struct { size_t n; int32_t vocab, bos, eos; bool masks; int order; uint64_t prune[ORDERS]; } cases[] = {
        {3000, 12, -1, -1, false, 1, {0}}, {3000, 12, -1, 11, false, 2, {0}},      {3000, 30, 28, 29, false, 3, {0}},
        {2500, 7, -1, -1, true, 4, {0}},   {2000, 20, 19, 19, true, 5, {0}},       {2500, 12, 11, -1, false, 3, {0, 1, 2}},
        {2000, 9, -1, 8, true, 4, {0, 0, 1, 3}}, {40, 5, -1, -1, false, 5, {0}},   {9, 200, 3, 4, false, 2, {0}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct corpus *c = malloc(sizeof *c);
        *c = random_corpus(i + 1, cases[i].n, cases[i].vocab, cases[i].bos, cases[i].eos, cases[i].masks);
        struct reference r = {.c = c, .order = cases[i].order, .begin = c->bos >= 0 ? c->bos : c->eos >= 0 ? c->eos : c->vocab};
        count(&r);
        for (int n = 1; n <= r.order; n++) {
            discounts(&r.of[n]);
            for (size_t k = 0; k < r.of[n].n; k++) r.of[n].v[k].pruned = n > 1 && r.of[n].v[k].raw <= (double)cases[i].prune[n - 1];
        }
        struct llm_ngram *g = estimate(c, r.order, 0, cases[i].prune), *small = estimate(c, r.order, 1, cases[i].prune);
        check_against(&r, g, i + 1);
        same_tables(g, small); /* all records in files */
        for (int n = 1; n <= r.order; n++) free(r.of[n].v);
        llm_ngram_destroy(g);
        llm_ngram_destroy(small);
        free(c);
    }
}

static void test_many_parts(void **state)
{
    struct corpus *c = malloc(sizeof *c), *part = malloc(sizeof *part);
    (void)state;
    *part = random_corpus(3, MOST, 40, -1, 39, true);
    *c = *part;
    struct llm_ngram *one = estimate(c, 4, 0, NULL), *two = estimate(c, 4, 1, NULL); /* parts are of 4096 at least */
    same_tables(one, two);
    llm_ngram_destroy(one);
    llm_ngram_destroy(two);
    free(c);
    free(part);
}

static void test_limits(void **state)
{
    struct corpus *c = malloc(sizeof *c);
    struct llm_err e = {0};
    struct llm_ngram *g = NULL;
    struct llm_ngram_report report;
    (void)state;
    *c = random_corpus(5, 3000, 5000, -1, -1, false);
    struct llm_tokens *t = open_corpus(c);
    struct llm_ngram_source s = {.tokens = t, .n = c->n, .vocab_size = c->vocab, .bos = -1, .eos = -1};
    struct llm_ngram_options o = {.order = 16};
    assert_int_equal(llm_ngram_estimate(&s, &o, &g, &report, &e), -1);
    assert_int_equal(e.status, LLM_EX_USAGE);
    assert_non_null(strstr(e.text, "order 16: expected at most"));
    s.n = 0;
    o.order = 3;
    assert_int_equal(llm_ngram_estimate(&s, &o, &g, &report, &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    llm_tokens_close(t);
    free(c);
}

static int start(void **state)
{
    struct llm_err e;
    (void)state;
    llm_verbosity = -1;
    return llm_pool_start(2, &e);
}

static int stop(void **state)
{
    (void)state;
    llm_pool_stop();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formulas), cmocka_unit_test(test_many_parts), cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, start, stop);
}
