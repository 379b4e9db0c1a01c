#include "quant/prune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "quant/factor.h"

const char *const llm_prune_methods[LLM_PRUNE_METHODS] = {"magnitude", "wanda", "sparsegpt"};

enum {
    NEIGHBOURS_MAX = 64,
    BLOCK = 128,                   /* columns that sparsegpt chooses from at a time; SparseGPT's own */
    ROWS = 8                       /* rows of a work item, which share each row of U while it is in the cache */
};

int llm_prune_parse(const char *text, struct llm_prune_pattern *out)
{
    char *end;
    *out = (struct llm_prune_pattern){0};
    if (strchr(text, ':')) {
        const long kept = strtol(text, &end, 10);
        if (end == text || *end != ':') return -1;
        const char *rest = end + 1;
        const long of = strtol(rest, &end, 10);
        if (end == rest || *end || kept < 1 || kept >= of || of > NEIGHBOURS_MAX) return -1;
        *out = (struct llm_prune_pattern){.kept = (int)kept, .of = (int)of};
        return 0;
    }
    const double share = strtod(text, &end);
    if (end == text || *end || !(share > 0 && share < 1)) return -1;
    out->share = share;
    return 0;
}

/* ---- the smallest of many scores ---- */

/* Scores are not negative, so their bits are in their order. */
static inline uint32_t key_of(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x7fffffff;
}

/* What tells the smallest of many scores: those with keys below `last`, and `equal` of those with that key. */
struct least { uint32_t last; size_t equal; };

/* Of the `count` smallest of n scores, by the digits of their keys. score_at(arg, i): score i. Inlined, so that the scores are no calls. */
static inline __attribute__((always_inline)) struct least find_least(float (*score_at)(const void *arg, size_t i), const void *arg, size_t n,
                                                                     size_t count)
{
    static const int shifts[] = {20, 10, 0}, widths[] = {11, 10, 10};
    uint32_t prefix = 0; /* digits of the last key that is chosen */
    size_t below = 0;    /* keys with smaller digits */
    for (int d = 0; d < 3; d++) {
        uint32_t counts[2048] = {0}, digit = 0;
        const uint32_t mask = ((uint32_t)1 << widths[d]) - 1;
        for (size_t i = 0; i < n; i++) {
            const uint32_t key = key_of(score_at(arg, i)) >> shifts[d];
            counts[key & mask] += d == 0 || key >> widths[d] == prefix;
        }
        while (digit < mask && below + counts[digit] < count) below += counts[digit++];
        prefix = prefix << widths[d] | digit;
    }
    return (struct least){prefix, count - below};
}

/* Whether the next score, in their order, is one of the smallest: of equal ones the first are. */
static inline bool is_least(struct least *l, float score)
{
    const uint32_t key = key_of(score);
    const bool last = key == l->last && l->equal > 0;
    l->equal -= last;
    return key < l->last || last;
}

static float given(const void *scores, size_t i)
{
    return ((const float *)scores)[i];
}

/* All but `kept` of n neighbours. */
static void choose_neighbours(const float *score, int n, int kept, bool *out)
{
    for (int i = 0; i < n; i++) {
        int better = 0;
        for (int j = 0; j < n; j++) better += score[j] > score[i] || (score[j] == score[i] && j > i);
        out[i] = better >= kept;
    }
}

static size_t count_of(double share, size_t n)
{
    return (size_t)floor(share * (double)n + 0.5);
}

/* ---- magnitude and wanda ---- */

struct scoring {
    const struct llm_prune_job *job;
    const float *weights;          /* [k] √importance; NULL: all are 1 */
    float *scores;                 /* [threads, k] of a row */
};

/* A row, whose elements compete with each other. */
static void prune_row(void *arg, size_t row, int thread)
{
    const struct scoring *s = arg;
    const struct llm_prune_pattern *p = &s->job->pattern;
    const int64_t k = s->job->k;
    float *w = s->job->w + (int64_t)row * k, *score = s->scores + thread * k;
    bool zero[NEIGHBOURS_MAX];
    for (int64_t j = 0; j < k; j++) score[j] = fabsf(w[j]) * (s->weights ? s->weights[j] : 1);
    for (int64_t j = 0; p->of && j < k; j += p->of) {
        const int n = (int)(k - j < p->of ? k - j : p->of);
        choose_neighbours(score + j, n, p->kept, zero);
        for (int i = 0; i < n; i++) w[j + i] = zero[i] ? 0 : w[j + i];
    }
    if (p->of) return;
    struct least least = find_least(given, score, (size_t)k, count_of(p->share, (size_t)k));
    for (int64_t j = 0; j < k; j++) w[j] = is_least(&least, score[j]) ? 0 : w[j];
}

/* A share of the matrix: the keys of its elements are those of their magnitudes. */
static void prune_smallest(const struct llm_prune_job *job)
{
    const size_t n = (size_t)(job->n * job->k);
    struct least least = find_least(given, job->w, n, count_of(job->pattern.share, n));
    for (size_t i = 0; i < n; i++) job->w[i] = is_least(&least, job->w[i]) ? 0 : job->w[i];
}

static int by_score(const struct llm_prune_job *job, const float *importance, struct llm_err *e)
{
    if (!job->pattern.of && !importance) {
        prune_smallest(job);
        return 0;
    }
    struct scoring s = {.job = job, .scores = llm_alloc((size_t)(llm_pool_threads() * job->k), sizeof *s.scores, "pruning", e)};
    float *weights = s.scores ? llm_alloc((size_t)job->k, sizeof *weights, "pruning", e) : NULL;
    if (weights) {
        for (int64_t j = 0; importance && j < job->k; j++) weights[j] = sqrtf(importance[j]);
        s.weights = importance ? weights : NULL;
        llm_parallel((size_t)job->n, prune_row, &s);
    }
    free(s.scores);
    free(weights);
    return weights ? 0 : -1;
}

/* ---- sparsegpt ---- */

struct sweep {
    const struct llm_prune_job *job;
    const float *u;                /* [k, k] */
    int64_t first, width;          /* columns of the block */
    bool *zero;                    /* [n, width] with a share, which is of the block's elements in all rows; NULL: of neighbours */
};

static inline float loss_of(float w, float diagonal)
{
    return w * w / (diagonal * diagonal);
}

static float loss_at(const void *arg, size_t i)
{
    const struct sweep *s = arg;
    const int64_t row = (int64_t)i / s->width, j = s->first + (int64_t)i % s->width;
    return loss_of(s->job->w[row * s->job->k + j], s->u[j * (s->job->k + 1)]);
}

/* Columns of the block one after another. error[width]: what became 0, over U's diagonal, with a minus sign. */
static void sweep_row(const struct sweep *s, int64_t row, float *error)
{
    const struct llm_prune_pattern *p = &s->job->pattern;
    const int64_t k = s->job->k;
    float *w = s->job->w + row * k + s->first, losses[NEIGHBOURS_MAX];
    bool of_neighbours[BLOCK + NEIGHBOURS_MAX], *zero = s->zero ? s->zero + row * s->width : of_neighbours;
    for (int64_t j = 0; j < s->width; j++) {
        const float *u = s->u + (s->first + j) * k + s->first;
        if (p->of && j % p->of == 0) { /* by what the neighbours have become */
            const int n = (int)(s->width - j < p->of ? s->width - j : p->of);
            for (int i = 0; i < n; i++) losses[i] = loss_of(w[j + i], s->u[(s->first + j + i) * (k + 1)]);
            choose_neighbours(losses, n, p->kept, zero + j);
        }
        error[j] = zero[j] ? -w[j] / u[j] : 0;
        if (!zero[j]) continue;
        for (int64_t m = j + 1; m < s->width; m++) w[m] += error[j] * u[m];
        w[j] = 0;
    }
}

static void sweep_rows(void *arg, size_t item, int thread)
{
    const struct sweep *s = arg;
    const int64_t k = s->job->k, first = (int64_t)item * ROWS, rows = s->job->n - first < ROWS ? s->job->n - first : ROWS;
    const int64_t later = s->first + s->width;
    float error[ROWS][BLOCK + NEIGHBOURS_MAX];
    (void)thread;
    for (int64_t r = 0; r < rows; r++) sweep_row(s, first + r, error[r]);
    for (int64_t r = 0; r < rows; r++) {
        llm_add_rows(s->job->w + (first + r) * k + later, error[r], s->u + s->first * k + later, k, s->width, k - later);
    }
}

static int by_factor(const struct llm_prune_job *job, double *damping, struct llm_err *e)
{
    const int64_t step = job->pattern.of ? (BLOCK + job->pattern.of - 1) / job->pattern.of * job->pattern.of : BLOCK; /* whole groups */
    float *u = llm_inverse_factor(&(struct llm_products){job->products, NULL, job->k}, LLM_DAMPING, damping, e);
    struct sweep s = {.job = job, .u = u};
    if (u && !job->pattern.of) s.zero = llm_alloc((size_t)(job->n * step), sizeof *s.zero, "pruning", e);
    const bool ready = u && (s.zero || job->pattern.of);
    for (s.first = 0; ready && s.first < job->k; s.first += step) {
        s.width = job->k - s.first < step ? job->k - s.first : step;
        const size_t n = (size_t)(job->n * s.width);
        if (!job->pattern.of) {
            struct least least = find_least(loss_at, &s, n, count_of(job->pattern.share, n));
            for (size_t i = 0; i < n; i++) s.zero[i] = is_least(&least, loss_at(&s, i));
        }
        llm_parallel((size_t)((job->n + ROWS - 1) / ROWS), sweep_rows, &s);
    }
    free(u);
    free(s.zero);
    return ready ? 0 : -1;
}

int llm_prune(const struct llm_prune_job *job, enum llm_prune_method *used, double *damping, struct llm_err *e)
{
    *damping = 0;
    *used = job->method;
    for (int64_t i = 0; i < job->n * job->k; i++) {
        if (!isfinite(job->w[i])) return llm_fail(e, EX_DATAERR, "expected finite values, found NaN or infinity");
    }
    if (*used == LLM_PRUNE_SPARSEGPT && !job->products) *used = LLM_PRUNE_WANDA;
    if (*used == LLM_PRUNE_WANDA && !job->importance) *used = LLM_PRUNE_MAGNITUDE;
    return *used == LLM_PRUNE_SPARSEGPT ? by_factor(job, damping, e) : by_score(job, *used == LLM_PRUNE_WANDA ? job->importance : NULL, e);
}
