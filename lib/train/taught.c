#include "train/taught.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "tensor/divergence.h"
#include "train/objective.h"

/* A line: n tokens, and what the teacher says comes after each. */
struct taught {
    int64_t n, k;
    int32_t *ids;
    uint8_t *mask;
    float *top_ids, *log_probs, *tail;  /* [n, k], [n, k], [n] */
};

struct choice { float id, log_prob; };

static int by_id(const void *a, const void *b)
{
    const struct choice *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static const json_t *list_of(const json_t *line, const char *key, int64_t n, struct llm_err *e)
{
    const json_t *list = json_object_get(line, key);
    if (json_is_array(list) && (n < 0 ? json_array_size(list) > 0 : (int64_t)json_array_size(list) == n)) return list;
    if (!json_is_array(list)) llm_fail(e, EX_DATAERR, "\"%s\": expected a list", key);
    else if (n < 0) llm_fail(e, EX_DATAERR, "\"%s\": expected elements, found none", key);
    else llm_fail(e, EX_DATAERR, "\"%s\": expected %" PRId64 " elements, one for each of \"ids\", found %zu", key, n, json_array_size(list));
    return NULL;
}

static int take_id(const json_t *v, const char *key, size_t i, int64_t vocab, int32_t *id, struct llm_err *e)
{
    json_int_t x = json_integer_value(v);
    if (!json_is_integer(v) || x < 0 || x >= vocab) {
        return llm_fail(e, EX_DATAERR, "\"%s\": element %zu: expected an id below %" PRId64 " (the vocabulary)", key, i, vocab);
    }
    *id = (int32_t)x;
    return 0;
}

/* null: the logarithm of 0. */
static int take_log_prob(const json_t *v, const char *key, size_t i, float *log_prob, struct llm_err *e)
{
    double x = json_is_null(v) ? -(double)INFINITY : json_number_value(v);
    if ((!json_is_null(v) && !json_is_number(v)) || !(x <= 1e-4)) { /* sums of rounded probabilities may be a little above 1 */
        return llm_fail(e, EX_DATAERR, "\"%s\": element %zu: expected a logarithm of a probability", key, i);
    }
    *log_prob = (float)x;
    return 0;
}

/* The choices after token i. */
static int take_choices(struct taught *t, size_t i, const json_t *ids, const json_t *log_probs, int64_t vocab, struct llm_err *e)
{
    struct choice c[LLM_TOP_MAX];
    double sum = t->tail && isfinite(t->tail[i]) ? exp((double)t->tail[i]) : 0;
    if ((int64_t)json_array_size(ids) != t->k || (int64_t)json_array_size(log_probs) != t->k) {
        return llm_fail(e, EX_DATAERR, "\"top_ids\", \"top_logprobs\": element %zu: expected lists of %" PRId64 ", as the first ones are, found %zu "
                        "and %zu", i, t->k, json_array_size(ids), json_array_size(log_probs));
    }
    for (size_t j = 0; j < (size_t)t->k; j++) {
        int32_t id = 0;
        if (take_id(json_array_get(ids, j), "top_ids", i, vocab, &id, e) < 0
            || take_log_prob(json_array_get(log_probs, j), "top_logprobs", i, &c[j].log_prob, e) < 0) return -1;
        c[j].id = (float)id;
        sum += exp((double)c[j].log_prob);
    }
    qsort(c, (size_t)t->k, sizeof *c, by_id);
    for (size_t j = 0; j < (size_t)t->k; j++) {
        if (j > 0 && !(c[j].id > c[j - 1].id)) {
            return llm_fail(e, EX_DATAERR, "\"top_ids\": element %zu: expected each id once, found %.0f twice", i, (double)c[j].id);
        }
        t->top_ids[i * (size_t)t->k + j] = c[j].id;
        t->log_probs[i * (size_t)t->k + j] = c[j].log_prob;
    }
    if (sum <= 1.001 && (!t->tail || sum >= .999)) return 0;
    return llm_fail(e, EX_DATAERR, "element %zu: expected probabilities of \"top_logprobs\" and \"tail_logprobs\" whose sum is %s, found %g", i,
                    t->tail ? "1" : "at most 1", sum);
}

static int take_mask(struct taught *t, const json_t *line, struct llm_err *e)
{
    const json_t *list = json_object_get(line, "mask") ? list_of(line, "mask", t->n, e) : NULL;
    if (!list && json_object_get(line, "mask")) return -1;
    for (int64_t i = 0; i < t->n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        if (list && (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 1)) {
            return llm_fail(e, EX_DATAERR, "\"mask\": element %" PRId64 ": expected 0 or 1", i);
        }
        t->mask[i] = !list || json_integer_value(v) == 1;
    }
    return 0;
}

static int reserve(struct taught *t, bool tail, struct llm_err *e)
{
    size_t n = (size_t)t->n, k = (size_t)t->k;
    t->ids = llm_alloc(n, sizeof *t->ids, "a line", e);
    t->mask = t->ids ? llm_alloc(n, 1, "a line", e) : NULL;
    t->top_ids = t->mask ? llm_alloc(n * k, sizeof *t->top_ids, "a line", e) : NULL;
    t->log_probs = t->top_ids ? llm_alloc(n * k, sizeof *t->log_probs, "a line", e) : NULL;
    if (!t->log_probs) return -1;
    return !tail || (t->tail = llm_alloc(n, sizeof *t->tail, "a line", e)) ? 0 : -1;
}

static void release(struct taught *t)
{
    free(t->ids);
    free(t->mask);
    free(t->top_ids);
    free(t->log_probs);
    free(t->tail);
}

static int take(struct taught *t, const struct llm_lines *l, const json_t *line, const char *why, struct llm_err *e)
{
    int64_t vocab = l->model->config.vocab_size, theirs = vocab;
    const char *error = NULL;
    if (llm_json_str(line, "error", &error, e) < 0 || llm_json_int(line, "vocab_size", 1, INT64_MAX / 2, &theirs, e) < 0) return -1;
    if (error) return llm_fail(e, EX_DATAERR, "expected a teacher's log-probabilities, found an error: %s", error);
    if (theirs != vocab) return llm_fail(e, EX_DATAERR, "\"vocab_size\": expected the model's %" PRId64 ", found %" PRId64, vocab, theirs);
    const json_t *ids = list_of(line, "ids", -1, e), *tops, *log_probs, *tails = NULL;
    if (!ids) return -1;
    t->n = (int64_t)json_array_size(ids);
    if (!(tops = list_of(line, "top_ids", t->n, e)) || !(log_probs = list_of(line, "top_logprobs", t->n, e))) return -1;
    if (json_object_get(line, "tail_logprobs") && !(tails = list_of(line, "tail_logprobs", t->n, e))) return -1;
    if (!tails && why) {
        return llm_fail(e, EX_DATAERR, "expected \"tail_logprobs\", the probability of all other tokens, without which %s is undefined", why);
    }
    int64_t known = llm_records_choices(l->records);
    t->k = known > 0 ? known : (int64_t)json_array_size(json_array_get(tops, 0));
    if (t->k < 1 || t->k > LLM_TOP_MAX) {
        return llm_fail(e, EX_DATAERR, "\"top_ids\": expected 1 to %d choices a token, found %" PRId64, LLM_TOP_MAX, t->k);
    }
    if (reserve(t, tails, e) < 0) return -1;
    for (size_t i = 0; i < (size_t)t->n; i++) {
        if (take_id(json_array_get(ids, i), "ids", i, vocab, &t->ids[i], e) < 0) return -1;
        if (tails && take_log_prob(json_array_get(tails, i), "tail_logprobs", i, &t->tail[i], e) < 0) return -1;
        if (take_choices(t, i, json_array_get(tops, i), json_array_get(log_probs, i), vocab, e) < 0) return -1;
    }
    return take_mask(t, line, e);
}

static bool counts(const struct taught *t)
{
    for (int64_t i = 1; i < t->n; i++) {
        if (t->mask[i]) return true;
    }
    return false;
}

int llm_taught_record(struct llm_lines *l, const json_t *line, int first, const char *why, struct llm_err *e)
{
    struct taught t = {.n = 0};
    int status = take(&t, l, line, why, e);
    if (status == 0 && !counts(&t)) {
        status = llm_lines_skip(l, LLM_SKIP_MASKED, e, "expected two tokens or more to learn from, found %" PRId64, t.n);
    } else if (status == 0 && t.n > l->context + 1) {
        status = llm_lines_skip(l, LLM_SKIP_LONG, e, "expected at most %" PRId64 " tokens (--context), found %" PRId64, l->context + 1, t.n);
    } else if (status == 0) {
        struct llm_record r = {.ids = t.ids, .mask = t.mask, .n = t.n, .second = t.n};
        r.column[first + LLM_TAUGHT_IDS] = t.top_ids;
        r.column[first + LLM_TAUGHT_LOG_PROBS] = t.log_probs;
        r.column[first + LLM_TAUGHT_TAIL] = t.tail;
        llm_records_set_choices(l->records, t.k);
        status = llm_records_add(l->records, &r, e);
    }
    release(&t);
    return status;
}
