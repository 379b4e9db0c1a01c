/* Penalties for tokens among the last ones: repetition (Keskar et al. 2019: a positive logit is divided, a negative one multiplied), presence and
 * frequency (as the OpenAI interface defines them). */
#include <stdlib.h>
#include <string.h>
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->repeat_last_n != 0 && (p->repeat_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0);
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void edit(const struct llm_sampling *p, const struct llm_history *h, int32_t *scratch, float *logits, size_t n)
{
    int64_t count = p->repeat_last_n < 0 || p->repeat_last_n > h->n ? h->n : p->repeat_last_n;
    if (count == 0) return;
    memcpy(scratch, h->ids + (h->n - count), (size_t)count * sizeof *scratch);
    qsort(scratch, (size_t)count, sizeof *scratch, ascending);
    for (int64_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && scratch[end] == scratch[i]; end++) {}
        if (scratch[i] < 0 || (size_t)scratch[i] >= n) continue;
        double x = logits[scratch[i]];
        x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
        logits[scratch[i]] = (float)(x - p->presence_penalty - p->frequency_penalty * (double)(end - i));
    }
}

const struct llm_sample_step llm_sample_penalties = {.name = "penalties", .active = active, .edit = edit};
