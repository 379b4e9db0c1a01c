#include "measure/eval/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "measure/stats.h"

enum transform { MEAN, EXP, BITS };
struct metric {
    const char *name, *key, *weight; /* Σ key / Σ weight; weight NULL: 1 an item */
    enum transform transform;
    const char *convention;
};
static const struct metric of_choice[] = {{"acc", "acc", NULL, MEAN, "largest log p(choice)"},
                                          {"acc_norm_bytes", "acc_norm_bytes", NULL, MEAN, "largest log p(choice) / bytes of the choice"},
                                          {"acc_norm_chars", "acc_norm_chars", NULL, MEAN, "largest log p(choice) / characters of the choice"},
                                          {"right_mass", "right_mass", NULL, MEAN, "p(right choices) / p(all choices)"},
                                          {0}};
static const struct metric of_cloze[] = {{"acc", "acc", NULL, MEAN, "each token of the target is the most likely one"},
                                         {"target_perplexity", "nats", NULL, EXP, "exp(mean over targets of -log p(target))"},
                                         {0}};
static const struct metric of_generation[] = {{"exact_match", "exact_match", NULL, MEAN, "the first sample's answer equals the target's"},
                                              {"pass@1", "pass@1", NULL, MEAN, "1 - C(n-c,1)/C(n,1): c of n samples right"},
                                              {"pass@2", "pass@2", NULL, MEAN, "1 - C(n-c,2)/C(n,2): c of n samples right"},
                                              {"pass@4", "pass@4", NULL, MEAN, "1 - C(n-c,4)/C(n,4): c of n samples right"},
                                              {"pass@8", "pass@8", NULL, MEAN, "1 - C(n-c,8)/C(n,8): c of n samples right"},
                                              {"pass@16", "pass@16", NULL, MEAN, "1 - C(n-c,16)/C(n,16): c of n samples right"},
                                              {"pass@32", "pass@32", NULL, MEAN, "1 - C(n-c,32)/C(n,32): c of n samples right"},
                                              {"pass@64", "pass@64", NULL, MEAN, "1 - C(n-c,64)/C(n,64): c of n samples right"},
                                              {0}};
static const struct metric of_text[] = {{"token_perplexity", "nats", "tokens", EXP, "exp(nats / tokens)"},
                                        {"word_perplexity", "nats", "words", EXP, "exp(nats / words, counted as by lm-eval)"},
                                        {"byte_perplexity", "nats", "bytes", EXP, "exp(nats / bytes)"},
                                        {"bits_per_byte", "nats", "bytes", BITS, "nats / (ln 2 * bytes)"},
                                        {0}};
static const struct metric *const metrics[] = {
    [LLM_EVAL_CHOICE] = of_choice, [LLM_EVAL_CLOZE] = of_cloze, [LLM_EVAL_GENERATE] = of_generation, [LLM_EVAL_TEXT] = of_text};

const char *const llm_eval_columns[] = {"task", "metric", "value", "error", "items", "shots", "begins_with", "convention", NULL};

/* false: an item lacks the number. */
static bool value_of(const json_t *result, const char *key, double *v)
{
    const json_t *n = json_object_get(result, key);
    *v = json_is_number(n) ? json_number_value(n) : (double)NAN;
    return json_is_number(n);
}

/* Ratio of sums and its standard error, by the variance of the items' residuals; false if no item has the key. */
static bool estimate(const json_t *results, const struct metric *m, double *value, double *error)
{
    double v, w = 1, sum = 0, weights = 0, squares = 0;
    size_t n = json_array_size(results);
    if (!value_of(json_array_get(results, 0), m->key, &v) && !json_object_get(json_array_get(results, 0), m->key)) return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *r = json_array_get(results, i);
        value_of(r, m->key, &v);
        if (m->weight) value_of(r, m->weight, &w);
        sum += v;
        weights += w;
    }
    *value = sum / weights;
    for (size_t i = 0; i < n; i++) {
        const json_t *r = json_array_get(results, i);
        value_of(r, m->key, &v);
        if (m->weight) value_of(r, m->weight, &w);
        squares += (v - *value * w) * (v - *value * w);
    }
    *error = n > 1 ? sqrt(squares * (double)n / (double)(n - 1)) / weights : (double)NAN;
    if (m->transform == EXP) {
        *value = exp(*value);
        *error *= *value;
    } else if (m->transform == BITS) {
        *value /= log(2);
        *error /= log(2);
    }
    return true;
}

int llm_eval_report(struct llm_table *t, const struct llm_eval *v, const json_t *results, struct llm_err *e)
{
    size_t n = json_array_size(results);
    if (n == 0) return llm_fail(e, EX_DATAERR, "task %s: expected items, found none", v->task->name);
    for (const struct metric *m = metrics[v->task->kind]; m->name; m++) {
        double value, error;
        if (!estimate(results, m, &value, &error)) continue;
        llm_table_text(t, v->task->name);
        llm_table_text(t, m->name);
        llm_table_printed(t, value, LLM_NUMBER_FIXED, 4);
        llm_table_printed(t, error, LLM_NUMBER_FIXED, 4);
        llm_table_count(t, (double)n);
        llm_table_count(t, (double)v->shots);
        llm_table_text(t, llm_eval_beginning(v));
        llm_table_text(t, m->convention);
    }
    return 0;
}

/* ---- two runs ---- */

double llm_mcnemar(int64_t b, int64_t c)
{
    double n = (double)(b + c), p = 0;
    int64_t fewer = b < c ? b : c;
    for (int64_t k = 0; k <= fewer; k++) p += exp(lgamma(n + 1) - lgamma((double)k + 1) - lgamma(n - (double)k + 1) - n * log(2));
    return fmin(1, 2 * p);
}

const char *const llm_eval_compare_columns[] = {"metric", "items", "first", "second", "difference", "low_95", "high_95", "only_first", "only_second",
                                                "mcnemar_p", NULL};

/* The results that both have, by their number of item, side by side: pairs[2i], pairs[2i + 1]. *pairs is malloced. */
static int join(const json_t *a, const json_t *b, const json_t ***pairs, size_t *n, struct llm_err *e)
{
    size_t i = 0, k = 0, max = json_array_size(a);
    *n = 0;
    *pairs = llm_alloc(2 * max + 1, sizeof **pairs, "results", e);
    if (!*pairs) return -1;
    while (i < max && k < json_array_size(b)) { /* both in order */
        json_int_t x = json_integer_value(json_object_get(json_array_get(a, i), "item"));
        json_int_t y = json_integer_value(json_object_get(json_array_get(b, k), "item"));
        if (x == y) {
            (*pairs)[2 * *n] = json_array_get(a, i);
            (*pairs)[2 * (*n)++ + 1] = json_array_get(b, k);
        }
        i += x <= y;
        k += y <= x;
    }
    return *n > 0 ? 0 : llm_fail(e, EX_DATAERR, "expected runs over the same items, found no item that both have");
}

static int compare(struct llm_table *t, const char *key, const json_t *const *pairs, size_t n, uint64_t seed, struct llm_err *e)
{
    double (*rows)[2] = llm_alloc(n, sizeof *rows, "results", e), sums[2] = {0}, limits[2][2]; /* rows: 1 and the difference */
    int64_t only[2] = {0};
    bool binary = true;
    if (!rows) return -1;
    for (size_t i = 0; i < n; i++) {
        double x, y;
        if (!value_of(pairs[2 * i], key, &x) || !value_of(pairs[2 * i + 1], key, &y)) {
            free(rows);
            return 0; /* one of the runs has not got the metric */
        }
        binary &= (x == 0 || x == 1) && (y == 0 || y == 1);
        only[0] += x > y;
        only[1] += y > x;
        sums[0] += x;
        sums[1] += y;
        rows[i][0] = 1;
        rows[i][1] = y - x;
    }
    int status = llm_bootstrap_rows(rows[0], n, 2, 2000, seed, limits, e);
    free(rows);
    if (status < 0) return -1;
    if (n < 2) limits[1][0] = limits[1][1] = (double)NAN;
    llm_table_text(t, key);
    llm_table_count(t, (double)n);
    const double values[] = {sums[0] / (double)n, sums[1] / (double)n, (sums[1] - sums[0]) / (double)n, limits[1][0], limits[1][1]};
    for (int i = 0; i < 5; i++) llm_table_printed(t, values[i], LLM_NUMBER_FIXED, 4);
    for (int i = 0; i < 2; i++) llm_table_count(t, binary ? (double)only[i] : (double)NAN);
    llm_table_number(t, binary ? llm_mcnemar(only[0], only[1]) : (double)NAN, 4);
    return 0;
}

int llm_eval_compare(struct llm_table *t, const json_t *a, const json_t *b, uint64_t seed, struct llm_err *e)
{
    static const char *const keys[] = {"acc", "acc_norm_bytes", "acc_norm_chars", "right_mass", "exact_match", "pass@1", "nats", NULL};
    const json_t **pairs = NULL;
    size_t n;
    int status = join(a, b, &pairs, &n, e);
    for (int i = 0; keys[i] && status == 0; i++) status = compare(t, keys[i], pairs, n, seed, e);
    free(pairs);
    return status;
}
