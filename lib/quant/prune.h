/* Pruning: elements of matrices become 0, a share of them or all but n of each m neighbours along a row. */
#ifndef LLM_QUANT_PRUNE_H
#define LLM_QUANT_PRUNE_H

#include "model/model.h"

/* Which elements become 0. To add one: its name in prune.c. */
enum llm_prune_method {
    LLM_PRUNE_MAGNITUDE,           /* the smallest */
    LLM_PRUNE_WANDA,               /* of each row those with the least |w|·√(mean square of the input) (Sun et al. 2023) */
    LLM_PRUNE_SPARSEGPT,           /* those with the least w² / U², U being factor.h's diagonal; later columns make up for them (Frantar and Alistarh
                                    * 2023) */
    LLM_PRUNE_METHODS
};
extern const char *const llm_prune_methods[LLM_PRUNE_METHODS];

/* How many: `share` of a matrix's elements, or if `of` is not 0 all but `kept` of each `of` neighbours. */
struct llm_prune_pattern { double share; int kept, of; };
/* ".5" or "2:4" (2 of each 4 are kept): 0, or -1 if the text is neither, the share not within (0, 1), or n:m not 0 < n < m ≤ 64. */
int llm_prune_parse(const char *text, struct llm_prune_pattern *out);

/* A matrix w [n, k] to prune in place. */
struct llm_prune_job {
    float *w;
    int64_t n, k;
    struct llm_prune_pattern pattern;
    enum llm_prune_method method;  /* what it needs and is not known, the method before it does without */
    const float *importance;       /* [k] as llm_quant_job.importance; NULL: not known */
    const float *products;         /* [k, k] as llm_quant_job.products; NULL: not known */
};
/* *used: the method that was followed; *damping: as llm_inverse_factor (0: another method). With a share, magnitude counts over the matrix, wanda
 * over each row and sparsegpt over 128 columns at a time. Of equal elements the first ones become 0. The result does not depend on threads. 0 or -1
 * (memory; EX_DATAERR: weights or products that are not finite). */
int llm_prune(const struct llm_prune_job *job, enum llm_prune_method *used, double *damping, struct llm_err *e) LLM_MUST_CHECK;

#endif
