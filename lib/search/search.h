/* Searches in an index. */
#ifndef LLM_SEARCH_SEARCH_H
#define LLM_SEARCH_SEARCH_H

#include "search/index.h"

/* A row that was found. Scores: the cosine, the dot product, or minus the squared distance; BM25's sum; the fused score. */
struct llm_hit { double score; int64_t row; };

struct llm_lookup {
    int64_t k;              /* hits of a query at most */
    int64_t candidates;     /* rows that rounded vectors propose to the exact ones; 0: 4k + 32 */
    int64_t ef;             /* of a graph: rows that a walk keeps; 0: max(64, 2k) */
    const uint8_t *allowed; /* [n]: 1 for rows that may be found; NULL: all. Deleted rows are never found */
};

/* Keeps the best hits that are offered: greater scores first, of equal ones the lower row. */
struct llm_best {
    struct llm_hit *hits;   /* [k], borrowed; in order */
    int64_t n, k;
};
void llm_best_offer(struct llm_best *b, double score, int64_t row);
/* The score of a row for a query of this squared length by the product of the two; a squared distance is below 0 by rounding alone. */
static inline double llm_score_of_product(const struct llm_index *x, int64_t row, double square, double product)
{
    if (x->metric != LLM_METRIC_L2) return product;
    const double distance = square + (double)x->lengths[row] - 2 * product;
    return distance > 0 ? -distance : 0;
}

/* Compares m queries [m, dims] with all rows. hits [m, s->k], n_hits [m]. A query has the bits that it has alone. 0, or -1: no memory, a query that
 * is not finite. */
int llm_search_flat(const struct llm_index *x, const float *queries, int64_t m, const struct llm_lookup *s, struct llm_hit *hits, int64_t *n_hits,
                    struct llm_err *e) LLM_MUST_CHECK;

/* Says that m queries are about to come. If they are enough to pay for it, the vectors that walks read are copied to memory, rounded to BF16. The
 * hits have the same bits without. 0 or -1. */
int llm_index_expect(struct llm_index *x, int64_t m, const struct llm_lookup *s, struct llm_err *e) LLM_MUST_CHECK;
/* By the graph, if x has one and s->allowed is NULL; else llm_search_flat. */
int llm_index_search(const struct llm_index *x, const float *queries, int64_t m, const struct llm_lookup *s, struct llm_hit *hits, int64_t *n_hits,
               struct llm_err *e) LLM_MUST_CHECK;

/* Joins the lists of two searches by reciprocal rank: a row's score is the sum of 1 / (60 + rank) over the lists that have it, ranks from 1 on. out
 * [k]. Returns how many. */
int64_t llm_search_fuse(const struct llm_hit *a, int64_t n_a, const struct llm_hit *b, int64_t n_b, int64_t k, struct llm_hit *out);

/* Conditions on metadata, "key=value" with = != < <= > >=: allowed[i] = 0 for the rows of x that fail one. Numbers compare with numbers, texts and
 * truth values with texts for = and !=; of a list, one element must do. A row without the key fails. "a.b" is a key,
 * else the member b of the object a. Warns of a key that no row has. allowed [n] is set. 0, -1 (status 2). */
int llm_search_where(const struct llm_index *x, const char *const *conditions, size_t n, uint8_t *allowed, struct llm_err *e) LLM_MUST_CHECK;

#endif
