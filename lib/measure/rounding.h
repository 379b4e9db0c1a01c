/* What attention loses when keys and values are stored in fewer bits, measured with real queries. */
#ifndef LLM_MEASURE_ROUNDING_H
#define LLM_MEASURE_ROUNDING_H

#include "infer/kvfile.h"

/* One cache type in one head of queries: sums over its traced queries, and over all keys and values that it reads. */
struct llm_rounding {
    int64_t layer, head;
    enum llm_dtype type;
    double kl;                  /* KL(as the cache is ‖ rounded) of the probabilities, nats */
    double error, size;         /* squared distance of the outputs; squared norm of the output as the cache is */
    double k_error, k_size, v_error, v_size; /* of the keys and of the values themselves */
    int64_t queries;
};
enum { LLM_ROUNDING_TYPES = 16 }; /* more than llm_kv_types has */
/* The types that every head of the cache can have, LLM_NO_DTYPE after the last; how many. types [LLM_ROUNDING_TYPES]. */
int64_t llm_rounding_types(const struct llm_kv_file *f, enum llm_dtype *types);
/* rows [llm_kv_heads_rows(f, -1), n types]. 0 or -1. */
int llm_rounding_of(const struct llm_kv_file *f, const enum llm_dtype *types, int64_t n, struct llm_rounding *rows, struct llm_err *e) LLM_MUST_CHECK;

#endif
