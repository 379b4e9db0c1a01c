#include <inttypes.h>
#include <stdlib.h>
#include "search/graph.h"

/* Every link leads to a slot of the level; levels lead down to slots of the same row. */
static int check_level(const struct llm_index *x, int depth, struct llm_err *e)
{
    const struct llm_graph_level *l = &x->graph.level[depth];
    for (int64_t i = 0; i < l->n; i++) {
        bool good = depth == 0 || (l->rows[i] < x->graph.n && l->down[i] < x->graph.level[depth - 1].n && (i == 0 || l->rows[i - 1] < l->rows[i])
                                   && (depth == 1 ? l->down[i] : x->graph.level[depth - 1].rows[l->down[i]]) == l->rows[i]);
        bool ended = false;
        for (int64_t k = 0; good && k < l->width; k++) {
            uint32_t to = l->links[i * l->width + k];
            good = to == UINT32_MAX || (!ended && to < l->n && to != i);
            ended |= to == UINT32_MAX;
        }
        if (!good) return llm_fail(e, EX_DATAERR, "level %d of the graph: row %" PRId64 ": expected links within the level", depth, i);
    }
    return 0;
}

int llm_graph_check(const struct llm_index *x, struct llm_err *e)
{
    const struct llm_graph_level *l = &x->graph.level[0];
    for (int depth = 0; depth < LLM_GRAPH_LEVELS; depth++) {
        if (check_level(x, depth, e) < 0) return -1;
    }
    for (int64_t i = 1; i < l->n; i++) {
        if (x->graph.parents[i] >= i) return llm_fail(e, EX_DATAERR, "row %" PRId64 " of the graph: expected a parent before it", i);
    }
    uint8_t *met = llm_calloc((size_t)l->n + 1, 1, "a check", e);
    uint32_t *queue = met ? llm_alloc((size_t)l->n + 1, sizeof *queue, "a check", e) : NULL;
    int64_t n = 0;
    if (queue && l->n > 0) {
        queue[n++] = 0;
        met[0] = 1;
    }
    for (int64_t at = 0; at < n; at++) {
        for (int64_t k = 0; k < l->width; k++) {
            uint32_t to = l->links[(int64_t)queue[at] * l->width + k];
            if (to == UINT32_MAX || met[to]) continue;
            met[to] = 1;
            queue[n++] = to;
        }
    }
    bool made = queue != NULL;
    free(met);
    free(queue);
    if (!made) return -1;
    return n == l->n ? 0 : llm_fail(e, EX_DATAERR, "the graph: expected all %" PRId64 " rows reachable, found %" PRId64, l->n, n);
}
