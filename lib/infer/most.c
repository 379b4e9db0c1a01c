#include "infer/most.h"

bool llm_is_after(const float *x, int32_t a, int32_t b)
{
    return x[a] < x[b] || (!(x[a] > x[b]) && a > b);
}

/* Restores the heap of n tokens, whose root is the last in the order, after its root was replaced. */
static void sift(int32_t *heap, int64_t n, const float *x)
{
    for (int64_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
        int32_t moved = heap[at];
        if (child + 1 < n && llm_is_after(x, heap[child + 1], heap[child])) child++;
        if (!llm_is_after(x, heap[child], moved)) return;
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

void llm_most_likely(const float *x, int64_t n, int64_t k, int32_t *ids)
{
    if (k == 0) return;
    for (int64_t i = 0; i < k; i++) { /* a heap of the first k, one by one */
        int64_t at = i;
        ids[i] = (int32_t)i;
        for (int64_t up; at > 0 && llm_is_after(x, ids[at], ids[up = (at - 1) / 2]); at = up) {
            int32_t moved = ids[at];
            ids[at] = ids[up];
            ids[up] = moved;
        }
    }
    for (int32_t id = (int32_t)k; id < n; id++) {
        if (llm_is_after(x, id, ids[0])) continue;
        ids[0] = id;
        sift(ids, k, x);
    }
    for (int64_t i = k - 1; i > 0; i--) { /* the last in the order goes to the end */
        int32_t last = ids[0];
        ids[0] = ids[i];
        ids[i] = last;
        sift(ids, i, x);
    }
}
