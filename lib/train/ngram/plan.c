/* What counting will take (train/ngram_bar.h). */
#include <math.h>
#include <string.h>
#include "base/log.h"
#include "train/ngram/ngram_internal.h"
#include "train/ngram_bar.h"

enum { SAMPLE = 1 << 21 };

/* Seconds for the first tokens. */
static int sample(const struct llm_ngram_source *s, const struct llm_ngram_options *o, uint64_t n, double *seconds, struct llm_err *e)
{
    struct llm_ngram_source part = *s;
    struct llm_ngram_report report;
    struct llm_ngram *g = NULL;
    int verbosity = llm_verbosity; /* what a part says of itself is not about the whole */
    double start = llm_now();
    part.n = n;
    llm_verbosity = -1;
    int got = llm_ngram_estimate(&part, o, &g, &report, e);
    llm_verbosity = verbosity;
    *seconds = llm_now() - start;
    llm_ngram_destroy(g);
    return got == 0 ? 0 : -1;
}

/* A step that has so much in stores, which are in memory up to the limit, and so much beside them. */
static void add_step(struct llm_ngram_plan *p, double stores, double beside, double limit)
{
    double memory = (stores < limit ? stores : limit) + beside, files = stores < limit ? 0 : stores - limit;
    if (memory > p->memory_bytes) p->memory_bytes = memory;
    if (files > p->file_bytes) p->file_bytes = files;
}

int llm_ngram_plan(const struct llm_ngram_source *s, const struct llm_ngram_options *o, struct llm_ngram_plan *p, struct llm_err *e)
{
    uint64_t n = s->n < SAMPLE ? s->n : SAMPLE;
    double types[LLM_NGRAM_MAX_ORDER], seconds, sorted = 0, largest = 0;
    if (n < 1) return llm_fail(e, EX_DATAERR, "expected tokens to count, found none");
    if (sample(s, o, n, &seconds, e) < 0 || llm_ngram_distinct(s, o, types, e) < 0) return -1;
    const double record = sizeof(struct llm_ngram_record), token = s->vocab_size < 65536 ? 2 : 4, counted = record * (double)s->n;
    const double limit = (double)(o->memory > 0 ? (uint64_t)o->memory : llm_ngram_memory()) / 2;
    *p = (struct llm_ngram_plan){.tokens = (double)s->n, .seconds = seconds * (double)s->n / (double)n,
                                 .model_bytes = 4 * (double)(s->vocab_size + 1)};
    for (int k = 0; k < o->order; k++) {
        p->ngrams += types[k];
        if (k == 0) continue;
        double contexts = k == 1 ? (double)(s->vocab_size + 1) : types[k - 1];
        p->model_bytes += (token + 4) * types[k] + (8 + (k > 1 ? token : 0) + (k < o->order - 1 ? 4 : 0)) * contexts;
        sorted += record * types[k];
        if (record * types[k] > largest) largest = record * types[k];
    }
    if (counted <= limit) {
        add_step(p, counted, counted, limit); /* records, and room to sort them */
        add_step(p, counted + sorted, 0, limit);
    } else { /* parts of the size of the limit, each with room; then their merger, about what is different in all */
        double different = record * types[o->order - 1];
        add_step(p, limit, limit, limit);
        p->file_bytes = 2 * different;
        add_step(p, different + sorted, 0, limit);
    }
    add_step(p, sorted, largest < limit ? largest : limit, limit);
    add_step(p, sorted + p->model_bytes, 0, limit);
    return 0;
}

int llm_ngram_plan_print(const struct llm_ngram_plan *p, enum llm_table_form form, struct llm_err *e)
{
    static const char *const columns[] = {"tokens", "ngrams", "model_bytes", "memory_bytes", "file_bytes", "seconds", NULL};
    const double values[] = {p->tokens, p->ngrams, p->model_bytes, p->memory_bytes, p->file_bytes, p->seconds};
    struct llm_table t, *tables[] = {&t};
    llm_table_init(&t, columns);
    t.record = t.no_heading = t.as_shown = t.spaced = true;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        llm_table_printed(&t, values[i], LLM_NUMBER_FIXED, strcmp(columns[i], "seconds") == 0 ? 3 : 0);
    return llm_tables_print(NULL, form, tables, 1, e);
}
