/* DRY, "don't repeat yourself" (p-e-w 2024, as llama.cpp has it): a token that would continue a repetition of what stands at the text's end loses
 * multiplier · base^(length of the repetition - allowed length). Breakers end a repetition. */
#include <math.h>
#include <stdlib.h>
#include "infer/sample/dry.h"
#include "infer/sample/steps.h"

struct match { int32_t id, length; };

static bool active(const struct llm_sampling *p)
{
    return p->dry_multiplier != 0 && p->dry_base >= 1 && p->dry_penalty_last_n != 0;
}

/* Whether the token alone ends a repetition. Ids from n on, the vocabulary's size, are those of pictures. */
static bool is_breaker(const struct llm_sampling *p, int32_t id, size_t n)
{
    return (size_t)id >= n || llm_dry_ends(p->dry_breakers, id);
}

/* How many of the last of `count` tokens follow the last breaker. */
static int64_t after_breaker(const struct llm_sampling *p, const int32_t *ids, int64_t count, size_t n)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = count - 1 - i;
        if ((size_t)ids[at] >= n) return i;
        const int64_t more = llm_dry_breaker_at(p->dry_breakers, ids, count, at);
        if (more >= 0) return i - more;
    }
    return count;
}

/* By id, of one id the longest first. */
static int compare(const void *a, const void *b)
{
    const struct match *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return (x->length < y->length) - (x->length > y->length);
}

/* z[i]: how many tokens before position n - i are the same as those at the end, for i ≥ 1: the Z function of the text read backwards. */
static void repetitions(const int32_t *ids, int64_t n, int32_t *z)
{
    for (int64_t i = 1, left = 0, right = 0; i < n; i++) {
        int64_t k = i < right ? (z[i - left] < right - i ? z[i - left] : right - i) : 0;
        while (i + k < n && ids[n - 1 - k] == ids[n - 1 - i - k]) k++;
        z[i] = (int32_t)k;
        if (i + k > right) {
            left = i;
            right = i + k;
        }
    }
}

static void edit(const struct llm_sampling *p, const struct llm_history *h, int32_t *scratch, float *logits, size_t n)
{
    int64_t count = p->dry_penalty_last_n < 0 || p->dry_penalty_last_n > h->n ? h->n : p->dry_penalty_last_n, found = 0;
    const int32_t *ids = h->ids + (h->n - count);
    const int64_t limit = after_breaker(p, ids, count, n);
    int32_t *z = scratch;
    struct match *matches = (struct match *)(scratch + h->n);
    const double max_exponent = p->dry_base > 1.000001 ? 88.7 / log(p->dry_base) : INFINITY; /* the penalty stays finite in single precision */
    if (limit < p->dry_allowed_length || count <= p->dry_allowed_length) return;
    repetitions(ids, count, z);
    for (int64_t i = 1; i < count; i++) {
        int64_t length = z[i] < limit ? z[i] : limit;
        int32_t next = ids[count - i];
        if (length < p->dry_allowed_length || is_breaker(p, next, n)) continue;
        matches[found++] = (struct match){next, (int32_t)length};
    }
    qsort(matches, (size_t)found, sizeof *matches, compare);
    for (int64_t i = 0; i < found; i++) {
        if ((i > 0 && matches[i].id == matches[i - 1].id) || (size_t)matches[i].id >= n) continue;
        double exponent = fmin((double)(matches[i].length - p->dry_allowed_length), max_exponent);
        logits[matches[i].id] = (float)(logits[matches[i].id] - p->dry_multiplier * pow(p->dry_base, exponent));
    }
}

const struct llm_sample_step llm_sample_dry = {.name = "dry", .active = active, .edit = edit};
