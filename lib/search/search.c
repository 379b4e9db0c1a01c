#include "search/graph.h"

static bool walks(const struct llm_index *x, const struct llm_lookup *s)
{
    return x->graph.m > 0 && x->graph.n > 0 && !s->allowed;
}

int llm_index_expect(struct llm_index *x, int64_t m, const struct llm_lookup *s, struct llm_err *e)
{
    return walks(x, s) && m >= x->n / llm_graph_ef(x, s) ? llm_graph_hold(x, e) : 0;
}

int llm_index_search(const struct llm_index *x, const float *queries, int64_t m, const struct llm_lookup *s, struct llm_hit *hits, int64_t *n_hits,
               struct llm_err *e)
{
    return (walks(x, s) ? llm_graph_search : llm_search_flat)(x, queries, m, s, hits, n_hits, e);
}
