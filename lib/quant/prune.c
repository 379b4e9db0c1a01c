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

/* Sets out[i] for the `count` smallest of n scores, of equal ones the first, and clears it for the others: by the digits of their keys. */
static void choose_least(const float *score, size_t n, size_t count, bool *out)
{
    static const int shifts[] = {20, 10, 0}, widths[] = {11, 10, 10};
    uint32_t prefix = 0; /* digits of the last key that is chosen */
    size_t below = 0;    /* keys with smaller digits */
    for (int d = 0; d < 3; d++) {
        uint32_t counts[2048] = {0}, digit = 0;
        const uint32_t mask = ((uint32_t)1 << widths[d]) - 1;
        for (size_t i = 0; i < n; i++) {
            const uint32_t key = key_of(score[i]) >> shifts[d];
            counts[key & mask] += d == 0 || key >> widths[d] == prefix;
        }
        while (digit < mask && below + counts[digit] < count) below += counts[digit++];
        prefix = prefix << widths[d] | digit;
    }
    size_t equal = count - below;
    for (size_t i = 0; i < n; i++) {
        const uint32_t key = key_of(score[i]);
        out[i] = key < prefix || (key == prefix && equal > 0);
        equal -= key == prefix && equal > 0;
    }
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
    float *score;                  /* [n, k] */
    bool *zero;                    /* [n, k] */
};

/* Scores of a row; then, unless the choice is over the whole matrix, the choice. */
static void score_row(void *arg, size_t row, int thread)
{
    const struct scoring *s = arg;
    const struct llm_prune_pattern *p = &s->job->pattern;
    const int64_t k = s->job->k, at = (int64_t)row * k;
    float *score = s->score + at;
    (void)thread;
    for (int64_t j = 0; j < k; j++) score[j] = fabsf(s->job->w[at + j]) * (s->weights ? s->weights[j] : 1);
    for (int64_t j = 0; p->of && j < k; j += p->of) {
        choose_neighbours(score + j, (int)(k - j < p->of ? k - j : p->of), p->kept, s->zero + at + j);
    }
    if (!p->of && s->weights) choose_least(score, (size_t)k, count_of(p->share, (size_t)k), s->zero + at);
}

static void clear_row(void *arg, size_t row, int thread)
{
    const struct scoring *s = arg;
    const int64_t k = s->job->k, at = (int64_t)row * k;
    (void)thread;
    for (int64_t j = at; j < at + k; j++) s->job->w[j] = s->zero[j] ? 0 : s->job->w[j];
}

static int by_score(const struct llm_prune_job *job, const float *importance, struct llm_err *e)
{
    const size_t n = (size_t)(job->n * job->k);
    struct scoring s = {.job = job, .score = llm_alloc(n, sizeof *s.score, "pruning", e)};
    float *weights = s.score ? llm_alloc((size_t)job->k, sizeof *weights, "pruning", e) : NULL;
    s.zero = weights ? llm_alloc(n, sizeof *s.zero, "pruning", e) : NULL;
    if (s.zero) {
        for (int64_t j = 0; importance && j < job->k; j++) weights[j] = sqrtf(importance[j]);
        s.weights = importance ? weights : NULL;
        llm_parallel((size_t)job->n, score_row, &s);
        if (!job->pattern.of && !importance) choose_least(s.score, n, count_of(job->pattern.share, n), s.zero);
        llm_parallel((size_t)job->n, clear_row, &s);
    }
    int status = s.zero ? 0 : -1;
    free(s.score);
    free(weights);
    free(s.zero);
    return status;
}

/* ---- sparsegpt ---- */

struct sweep {
    const struct llm_prune_job *job;
    const float *u;                /* [k, k] */
    int64_t first, width;          /* columns of the block */
    float *score;                  /* [n, width] with a share */
    bool *zero;                    /* [n, width] */
};

static inline float loss_of(float w, float diagonal)
{
    return w * w / (diagonal * diagonal);
}

static void score_block(void *arg, size_t row, int thread)
{
    const struct sweep *s = arg;
    const float *w = s->job->w + (int64_t)row * s->job->k + s->first;
    (void)thread;
    for (int64_t j = 0; j < s->width; j++) s->score[(int64_t)row * s->width + j] = loss_of(w[j], s->u[(s->first + j) * (s->job->k + 1)]);
}

/* Columns of the block one after another. error[width]: what became 0, over U's diagonal, with a minus sign. */
static void sweep_row(const struct sweep *s, int64_t row, float *error)
{
    const struct llm_prune_pattern *p = &s->job->pattern;
    const int64_t k = s->job->k;
    float *w = s->job->w + row * k + s->first, losses[NEIGHBOURS_MAX];
    bool *zero = s->zero + row * s->width;
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
    struct sweep s = {.job = job, .u = u, .score = u ? llm_alloc((size_t)(job->n * step), sizeof *s.score, "pruning", e) : NULL};
    s.zero = s.score ? llm_alloc((size_t)(job->n * step), sizeof *s.zero, "pruning", e) : NULL;
    for (s.first = 0; s.zero && s.first < job->k; s.first += step) {
        s.width = job->k - s.first < step ? job->k - s.first : step;
        const size_t n = (size_t)(job->n * s.width);
        if (!job->pattern.of) {
            llm_parallel((size_t)job->n, score_block, &s);
            choose_least(s.score, n, count_of(job->pattern.share, n), s.zero);
        }
        llm_parallel((size_t)((job->n + ROWS - 1) / ROWS), sweep_rows, &s);
    }
    int status = s.zero ? 0 : -1;
    free(u);
    free(s.score);
    free(s.zero);
    return status;
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
