#include "infer/knn.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "model/spec/place.h"
#include "tensor/divergence.h"

const struct llm_knn_options llm_knn_defaults = {.lambda = .25, .temperature = .1, .k = 64};

static int read_next(struct llm_knn *k, int64_t vocab, struct llm_err *e)
{
    const struct llm_index *x = &k->index;
    k->next = llm_alloc((size_t)x->n, sizeof *k->next, "tokens of an index", e);
    int status = k->next ? 0 : -1;
    for (int64_t i = 0; i < x->n && status == 0; i++) {
        int64_t id = -1;
        json_t *o = llm_json_parse(x->metadata.bytes + x->metadata.at[i], x->metadata.at[i + 1] - x->metadata.at[i], e);
        status = o ? llm_json_int(o, "next", 0, vocab - 1, &id, e) : -1;
        if (status == 0 && id < 0) status = llm_fail(e, EX_DATAERR, "expected the token that followed (\"next\"), found none");
        if (status < 0) llm_in(e, "row %" PRId64, i);
        k->next[i] = (int32_t)id;
        json_decref(o);
    }
    return status;
}

static int check(const struct llm_knn *k, struct llm_model *m, struct llm_err *e)
{
    const struct llm_index *x = &k->index;
    if (strcmp(x->place, LLM_KNN_PLACE) != 0) {
        return llm_fail(e, EX_DATAERR, "expected an index of hidden states at " LLM_KNN_PLACE ", found one of %s", x->place[0] ? x->place : "texts");
    }
    if (x->metric == LLM_METRIC_DOT) return llm_fail(e, EX_DATAERR, "expected an index of the metric l2 or cosine, found dot");
    if (x->dims != m->config.hidden_size) {
        return llm_fail(e, EX_DATAERR, "expected states of %" PRId64 " elements (hidden_size), found %" PRId64, m->config.hidden_size, x->dims);
    }
    if (llm_model_fingerprint(m, e) < 0) return -1;
    if (x->fingerprint[0] && strcmp(x->fingerprint, m->fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "expected states of model %s, found those of %s", m->fingerprint, x->fingerprint);
    }
    if (k->o.k > x->n - x->n_deleted) {
        return llm_fail(e, LLM_EX_USAGE, "--knn-neighbours: expected at most %" PRId64 " (the rows of the index), found %" PRId64,
                        x->n - x->n_deleted, k->o.k);
    }
    return 0;
}

int llm_knn_open(struct llm_knn *k, const struct llm_knn_options *o, struct llm_model *m, struct llm_err *e)
{
    k->o = *o;
    if (llm_index_open(&k->index, o->index, false, e) < 0) return -1;
    return check(k, m, e) < 0 || read_next(k, m->config.vocab_size, e) < 0 ? llm_in(e, "%s", o->index) : 0;
}

void llm_knn_release(struct llm_knn *k)
{
    llm_index_release(&k->index);
    free(k->next);
    *k = (struct llm_knn){0};
}

struct mixing {
    const struct llm_knn *k;
    float *logits;
    int64_t vocab;
    struct llm_hit *hits;       /* [rows, k] */
    const int64_t *n_hits;
    double *weights;            /* [rows, k] */
};

/* Squared distance of a hit: of the cosine metric, of vectors of length 1. */
static double distance(const struct llm_index *x, const struct llm_hit *h)
{
    double d = x->metric == LLM_METRIC_L2 ? -h->score : 2 - 2 * h->score;
    return d > 0 ? d : 0;
}

/* weights[i] of the hits, which stand from the nearest on: their sum is 1. */
static void weigh(const struct llm_knn *k, const struct llm_hit *hits, int64_t n, double *weights)
{
    double mean = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) mean += distance(&k->index, &hits[i]) / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double above = distance(&k->index, &hits[i]) - distance(&k->index, &hits[0]);
        weights[i] = mean > 0 ? exp(-above / (k->o.temperature * mean)) : 1;
        sum += weights[i];
    }
    for (int64_t i = 0; i < n; i++) weights[i] /= sum;
}

static void mix_row(void *arg, size_t row, int thread)
{
    const struct mixing *x = arg;
    const struct llm_knn *k = x->k;
    const int64_t n = x->n_hits[row];
    float *logits = x->logits + (int64_t)row * x->vocab;
    const struct llm_hit *hits = x->hits + (int64_t)row * k->o.k;
    double *weights = x->weights + (int64_t)row * k->o.k;
    (void)thread;
    if (n == 0) return;
    weigh(k, hits, n, weights);
    const double own = log(1 - k->o.lambda) - llm_log_sum(logits, x->vocab, 1); /* λ = 1: minus infinity */
    for (int64_t i = 0; i < x->vocab; i++) logits[i] = (float)((double)logits[i] + own);
    for (int64_t i = 0; i < n; i++) { /* each token once, where it comes first: with the weights of all its hits */
        const int32_t id = k->next[hits[i].row];
        double together = 0;
        for (int64_t j = 0; j < n; j++) {
            if (k->next[hits[j].row] != id) continue;
            if (j < i) break;
            together += weights[j];
        }
        if (together > 0) logits[id] = (float)log(exp((double)logits[id]) + k->o.lambda * together);
    }
}

int llm_knn_mix(const struct llm_knn *k, const float *hidden, float *logits, int64_t n, int64_t vocab, struct llm_err *e)
{
    struct mixing x = {.k = k, .logits = logits, .vocab = vocab};
    const size_t all = (size_t)n * (size_t)k->o.k;
    const struct llm_lookup s = {.k = k->o.k};
    if (k->o.lambda <= 0 || n == 0) return 0;
    LLM_PROFILE("nearest neighbours", 4 * (double)(n * k->index.n * k->index.dims));
    int64_t *n_hits = llm_alloc((size_t)n, sizeof *n_hits, "neighbours", e);
    x.hits = llm_alloc(all, sizeof *x.hits, "neighbours", e);
    x.weights = llm_alloc(all, sizeof *x.weights, "neighbours", e);
    int status = n_hits && x.hits && x.weights ? llm_index_search(&k->index, hidden, n, &s, x.hits, n_hits, e) : -1;
    x.n_hits = n_hits;
    if (status == 0) llm_parallel((size_t)n, mix_row, &x);
    free(n_hits);
    free(x.hits);
    free(x.weights);
    return status;
}
