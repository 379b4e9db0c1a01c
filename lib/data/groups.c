#include "data/groups.h"

#include <stdlib.h>
#include "base/buf.h"
#include "base/rng.h"

struct place { int64_t length, number; uint32_t chance; };

static int longest_first(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->length != y->length) return x->length > y->length ? -1 : 1;
    if (x->chance != y->chance) return x->chance < y->chance ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

void llm_groups_release(struct llm_groups *b)
{
    free(b->first);
    free(b->documents);
    free(b->length);
    *b = (struct llm_groups){.n = 0};
}

int llm_groups_make(struct llm_groups *b, const int64_t *lengths, int64_t n, int64_t tokens, uint64_t seed, struct llm_err *e)
{
    struct place *order = llm_alloc((size_t)n, sizeof *order, "batches of documents", e);
    *b = (struct llm_groups){.n = 0};
    if (!order) return -1;
    b->first = llm_alloc((size_t)n + 1, sizeof *b->first, "batches of documents", e);
    b->documents = b->first ? llm_alloc((size_t)n, sizeof *b->documents, "batches of documents", e) : NULL;
    b->length = b->documents ? llm_alloc((size_t)n, sizeof *b->length, "batches of documents", e) : NULL;
    for (int64_t i = 0; i < n; i++) {
        struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_ORDER, 7, (uint32_t)(i >> 32), (uint32_t)i);
        order[i] = (struct place){.length = lengths[i], .number = i, .chance = llm_rng_u32(&r, 0)};
    }
    if (b->length) {
        qsort(order, (size_t)n, sizeof *order, longest_first);
        for (int64_t at = 0, end; at < n; at = end) {
            int64_t room = tokens / order[at].length;
            end = n - at < room ? n : at + room;
            b->first[b->n] = at;
            b->length[b->n++] = order[at].length;
            if (end - at > b->most) b->most = end - at;
            for (int64_t i = at; i < end; i++) b->documents[i] = order[i].number;
        }
        b->first[b->n] = n;
    }
    free(order);
    return b->length ? 0 : -1;
}
