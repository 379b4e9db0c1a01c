/* A budget of bytes spent where it hurts least: each matrix gets the type that makes the sum of the harms the least, harm being the KL divergence
 * that storing this matrix alone in that type adds to the model's predictions. */
#ifndef LLM_QUANT_BUDGET_H
#define LLM_QUANT_BUDGET_H

#include "quant/kl.h"
#include "quant/moments.h"
#include "quant/quant.h"

/* What was found of one parameter. NaN: not known. */
struct llm_budget_tensor {
    enum llm_dtype type;           /* the chosen one; LLM_N_DTYPES: the budget leaves the parameter to the plan */
    double sensitivity;            /* measured / predicted by the curvature, in the type that was measured; without curvature: KL by squared error */
    double predicted;              /* harm in the chosen type, in nats per token */
    double measured;               /* with this tensor alone in the chosen type; NaN: another type was measured */
};
/* What was found of the keys or the values of a layer. */
struct llm_budget_cache {
    enum llm_dtype type;           /* LLM_NO_DTYPE: the layer has none of its own */
    double measured;               /* harm with these alone in the type */
    uint64_t bytes;                /* of all tokens */
    int64_t width;                 /* elements of a token */
};
struct llm_budget {
    struct llm_budget_tensor *v;   /* [n_params of the model] */
    struct llm_budget_cache (*cache)[2]; /* [layers]: keys and values; NULL: the budget is of parameters alone */
    char *cache_types;             /* the types of the cache (infer/kvtypes.h); NULL as `cache` */
    int64_t tokens;                /* that the cache has room for */
    enum llm_dtype *types;         /* [n_params] v[i].type, for llm_quant_plan.chosen */
    double predicted;              /* the sum of the harms */
    uint64_t bytes;                /* of all parameters, and of the cache */
};

/* What has to fit: all parameters, and unless `tokens` is 0 the keys and values of as many tokens. */
struct llm_budget_room { uint64_t bytes; int64_t tokens; };

/* Bytes of all parameters once they are stored as the plan says. */
uint64_t llm_budget_bytes(const struct llm_model *m, const struct llm_quant_plan *plan);
/* Chooses among llm_budget_types for the matrices that the plan would change and that no override, pattern or option fixes. The harm of each type
 * is predicted from the error that it leaves and plan->moments (the curvature, or for matrices that have none the importances), and scaled by one
 * measurement with the plan's type: the matrix is changed alone, and the model runs over the text of `probe`. Matrices whose chosen type is not the
 * measured one are measured once more, and the choice is made again. Keys and values of each layer are measured alone in each of
 * llm_budget_cache_types. The model is as before afterwards, but for memory that it may have packed.
 * Release `out` either way. 0; 1 if a signal was caught; -1 (LLM_EX_USAGE: even the smallest types need more than `bytes`). */
int llm_budget_choose(struct llm_model *m, const struct llm_quant_plan *plan, const struct llm_budget_room *room, struct llm_kl_base *probe,
                      struct llm_budget *out, struct llm_err *e) LLM_MUST_CHECK;
/* Bytes of a cache of `tokens` tokens, all keys and values of which have this type; UINT64_MAX if a head's width is no whole blocks. */
uint64_t llm_budget_cache_bytes(const struct llm_model *m, enum llm_dtype type, int64_t tokens);
/* The types that budgets choose from for keys and values; LLM_N_DTYPES ends the list. */
extern const enum llm_dtype llm_budget_cache_types[];
void llm_budget_release(struct llm_budget *b);
/* The types that budgets choose from; LLM_N_DTYPES ends the list. */
extern const enum llm_dtype llm_budget_types[];

#endif
