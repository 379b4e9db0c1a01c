/* Graphs for searches that do not look at every row: HNSW (Malkov and Yashunin 2016), made so that its links are a function of the rows.
 *
 * Rows are inserted in their order, in batches [s, s + max(1, s / 256)). The rows of a batch search the graph of the rows before it, and each other;
 * then all are linked. So the links depend on neither threads nor the split of adds. The rows of an unfinished batch, at most 1/256 of all, are the
 * tail, which is compared with every query. The level of a row is drawn by the hash of its id.
 *
 * Walks compare rows whose elements are rounded to BF16, and the best rows that they find are then compared by their vectors in F32.
 *
 * Each row but the first has a parent: an earlier row to which it is linked in both directions, and neither link is ever pruned. So every row is
 * reachable from every other. */
#ifndef LLM_SEARCH_GRAPH_H
#define LLM_SEARCH_GRAPH_H

#include "search/search.h"

enum { LLM_MIN_NEIGHBOURS = 4, LLM_MAX_NEIGHBOURS = 128 };

/* Continues x->graph, whose first graph.n rows are linked, with all full batches of x's rows. x->graph.m and ef_build are set. 0 or -1. */
int llm_graph_extend(struct llm_index *x, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_search_flat, by the graph: a walk keeps s->ef rows (0: max(64, 2k)), of which s->candidates are compared exactly. Deleted rows are left out
 * of what it finds; a query that then has fewer than k hits is searched flat. s->allowed must be NULL. */
int llm_graph_search(const struct llm_index *x, const float *queries, int64_t m, const struct llm_lookup *s, struct llm_hit *hits, int64_t *n_hits,
                     struct llm_err *e) LLM_MUST_CHECK;
/* Keeps all vectors in BF16 in memory besides, which walks then read instead of the vectors in F32: half the bytes, the same bits. 0 or -1. */
int llm_graph_hold(struct llm_index *x, struct llm_err *e) LLM_MUST_CHECK;
/* Rows that a walk keeps. */
int64_t llm_graph_ef(const struct llm_index *x, const struct llm_lookup *s);
/* Checks links, levels and parents: all in range, every row reachable along links from row 0. 0, or -1 (EX_DATAERR). */
int llm_graph_check(const struct llm_index *x, struct llm_err *e) LLM_MUST_CHECK;
/* Where the last batch that n rows fill ends. */
int64_t llm_graph_full(int64_t n);

#endif
