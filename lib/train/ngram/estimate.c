/* The steps of estimation, one after the other (train/ngram.h). */
#include <stdlib.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/log.h"
#include "train/ngram/ngram_internal.h"

int llm_ngram_order_limit(uint64_t vocab_size)
{
    int bits = 1;
    while (bits < 32 && (uint64_t)1 << bits < vocab_size + 3) bits++;
    return 128 / bits < LLM_NGRAM_MAX_ORDER ? 128 / bits : LLM_NGRAM_MAX_ORDER;
}

uint64_t llm_ngram_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size / 2 : (uint64_t)1 << 32;
}

static void say_discounts(const struct llm_estimate *w)
{
    for (int k = 0; k < w->order; k++) {
        const struct llm_ngram_order_report *r = &w->report->order[k];
        llm_verbose("order %d: %llu n-grams, %llu kept, discounts %.6f %.6f %.6f", k + 1, (unsigned long long)r->types, (unsigned long long)r->kept,
                    r->discount[1], r->discount[2], r->discount[3]);
    }
}

static int run(struct llm_estimate *w, struct llm_ngram *g, struct llm_err *e)
{
    double start = llm_now(), now;
    int got = llm_ngram_count_tokens(w, e);
    if (got != 0) return got;
    llm_verbose("counted %llu tokens in %.2f s, in %llu parts", (unsigned long long)w->source->n, (now = llm_now()) - start,
                (unsigned long long)w->report->runs);
    if ((got = llm_ngram_adjust(w, e)) != 0) return got;
    for (int k = 0; k < w->order; k++) {
        const struct llm_ngram_order_report *r = &w->report->order[k];
        if (!r->short_of || w->source->n == 0) continue;
        llm_warn("order %d: the counts of counts of %llu n-grams give no discounts (at a count of %llu): taken are 0.5, 1 and 1.5", k + 1,
                 (unsigned long long)r->types, (unsigned long long)r->short_of);
    }
    llm_verbose("adjusted counts in %.2f s", llm_now() - now);
    now = llm_now();
    for (int k = 1; k < w->order; k++) {
        got = llm_store_sort(&w->records[k], w->n_records[k], &w->cuts, w->bits, w->bits * (k + 1), &w->budget, e);
        if (got != 0) return got;
    }
    llm_verbose("sorted by context in %.2f s", llm_now() - now);
    now = llm_now();
    if ((got = llm_ngram_normalise(w, g, e)) != 0) return got;
    llm_verbose("probabilities in %.2f s", llm_now() - now);
    return 0;
}

int64_t llm_ngram_begin(const struct llm_ngram_source *s)
{
    if (s->bos >= 0 && s->bos < s->vocab_size) return s->bos;
    return s->eos >= 0 && s->eos < s->vocab_size ? s->eos : s->vocab_size;
}

int llm_ngram_estimate(const struct llm_ngram_source *s, const struct llm_ngram_options *o, struct llm_ngram **out, struct llm_ngram_report *report,
                       struct llm_err *e)
{
    uint64_t memory = o->memory > 0 ? (uint64_t)o->memory : llm_ngram_memory();
    struct llm_estimate w = {.source = s, .options = o, .report = report, .budget = {.limit = memory / 2}, .order = o->order};
    struct llm_ngram *g = llm_calloc(1, sizeof *g, "n-grams", e);
    *report = (struct llm_ngram_report){.tokens = s->n};
    if (!g) return -1;
    w.begin = llm_ngram_begin(s);
    g->order = o->order;
    g->vocab_size = s->vocab_size;
    g->begin = w.begin;
    int got = s->n > 0 ? run(&w, g, e) : llm_fail(e, EX_DATAERR, "expected tokens to count, found none");
    if (got == 0) say_discounts(&w);
    report->file_bytes = w.budget.most_in_files;
    llm_store_release(&w.counted, &w.budget);
    for (int k = 1; k < w.order; k++) llm_store_release(&w.records[k], &w.budget);
    free(w.rank_of);
    free(w.id_of);
    free(w.seen);
    free(w.cuts.rank);
    free(w.pieces);
    free(w.unigram);
    if (got == 0) *out = g;
    else llm_ngram_destroy(g);
    return got;
}
