#include "search/graph.h"

int llm_index_search(const struct llm_index *x, const float *queries, int64_t m, const struct llm_lookup *s, struct llm_hit *hits, int64_t *n_hits,
               struct llm_err *e)
{
    bool walks = x->graph.m > 0 && x->graph.n > 0 && !s->allowed;
    return (walks ? llm_graph_search : llm_search_flat)(x, queries, m, s, hits, n_hits, e);
}
