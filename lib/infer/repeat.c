#include "infer/repeat.h"

enum { LEAST = 3, ENOUGH = 32 /* tokens: longer occurrences are not told apart */ };

int64_t llm_repeat_draft(const int32_t *ids, int64_t n, int32_t last, int32_t except, int64_t wanted, int32_t *out)
{
    int64_t best = LEAST - 1, at = -1;
    for (int64_t j = n - 1; j >= LEAST - 1 && best < ENOUGH; j--) {
        int64_t k = 1;
        if (ids[j] != last || (j + 1 < n ? ids[j + 1] : last) == except) continue;
        while (k < ENOUGH && j - k >= 0 && ids[j - k] == ids[n - k]) k++;
        if (k <= best) continue;
        best = k;
        at = j;
    }
    if (at < 0) return 0;
    for (int64_t i = 0; i < wanted; i++) {
        int64_t from = at + 1 + i;
        out[i] = from < n ? ids[from] : from == n ? last : out[from - n - 1];
    }
    return wanted;
}
