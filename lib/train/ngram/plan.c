/* What counting will take (train/ngram_bar.h): kinds of n-grams grow as a power of the number of tokens (Heaps' law). */
#include <math.h>
#include <string.h>
#include "base/log.h"
#include "model/ngram/records.h"
#include "train/ngram_bar.h"

enum { SAMPLE = 1 << 21 };

/* [k]: n-grams of k + 1 tokens in the first n tokens. */
static int sample(const struct llm_ngram_source *s, const struct llm_ngram_options *o, uint64_t n, double types[LLM_NGRAM_MAX_ORDER], double *seconds,
                  struct llm_err *e)
{
    struct llm_ngram_source part = *s;
    struct llm_ngram_report report;
    struct llm_ngram *g = NULL;
    double start = llm_now();
    part.n = n;
    int got = llm_ngram_estimate(&part, o, &g, &report, e);
    if (got != 0) return -1;
    *seconds = llm_now() - start;
    for (int k = 0; k < o->order; k++) types[k] = (double)report.order[k].types;
    llm_ngram_destroy(g);
    return 0;
}

int llm_ngram_plan(const struct llm_ngram_source *s, const struct llm_ngram_options *o, struct llm_ngram_plan *p, struct llm_err *e)
{
    uint64_t n = s->n < SAMPLE ? s->n : SAMPLE;
    double few[LLM_NGRAM_MAX_ORDER], many[LLM_NGRAM_MAX_ORDER], types[LLM_NGRAM_MAX_ORDER + 1] = {0}, seconds, times = (double)s->n / (double)n;
    if (n < 2) return llm_fail(e, EX_DATAERR, "expected tokens to count, found %llu", (unsigned long long)n);
    int verbosity = llm_verbosity; /* what the parts say of themselves is not about the whole */
    llm_verbosity = -1;
    int got = sample(s, o, n / 2, few, &seconds, e);
    if (got == 0) got = sample(s, o, n, many, &seconds, e);
    llm_verbosity = verbosity;
    if (got < 0) return -1;
    const double record = sizeof(struct llm_ngram_record), token = s->vocab_size < 65536 ? 2 : 4;
    double sorted = 0, limit = (double)(o->memory > 0 ? (uint64_t)o->memory : llm_ngram_memory()) / 2;
    *p = (struct llm_ngram_plan){.tokens = (double)s->n, .seconds = seconds * times, .model_bytes = 4 * (double)(s->vocab_size + 1)};
    for (int k = 0; k < o->order; k++) {
        types[k] = few[k] > 0 ? many[k] * pow(times, log2(many[k] / few[k])) : many[k];
        p->ngrams += types[k];
        if (k == 0) continue;
        double contexts = k == 1 ? (double)(s->vocab_size + 1) : types[k - 1];
        p->model_bytes += (token + 4) * types[k] + (8 + (k > 1 ? token : 0) + (k < o->order - 1 ? 4 : 0)) * contexts;
        sorted += record * types[k];
    }
    double counted = record * (double)s->n, distinct = record * types[o->order - 1], scratch = counted < limit ? counted : limit;
    double first = counted > limit ? 2 * distinct : counted; /* parts on disk and their merger, or all at once */
    double stores = first + sorted > sorted + p->model_bytes ? first + sorted : sorted + p->model_bytes;
    p->file_bytes = stores > limit ? stores - limit : 0;
    p->memory_bytes = stores - p->file_bytes + scratch;
    return 0;
}

int llm_ngram_plan_print(const struct llm_ngram_plan *p, FILE *out, int json, struct llm_err *e)
{
    const struct { const char *key; double v; } rows[] = {
        {"tokens", p->tokens}, {"ngrams", p->ngrams}, {"model_bytes", p->model_bytes}, {"memory_bytes", p->memory_bytes},
        {"file_bytes", p->file_bytes}, {"seconds", p->seconds}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int digits = strcmp(rows[i].key, "seconds") == 0 ? 3 : 0;
        if (json) fprintf(out, "%s\"%s\": %.*f", i ? ", " : "{", rows[i].key, digits, rows[i].v);
        else fprintf(out, "%s\t%.*f\n", rows[i].key, digits, rows[i].v);
    }
    if (json) fprintf(out, "}\n");
    return ferror(out) ? llm_fail_errno(e, EX_IOERR, "standard output") : 0;
}
