/* Types that weights can be stored in, by the names of -t: one type for every matrix, or one of the mixes that llama.cpp's users know, which give
 * some matrices more bits than others. */
#ifndef LLM_QUANT_TYPES_H
#define LLM_QUANT_TYPES_H

#include "model/model.h"

enum llm_quant_mix {
    LLM_MIX_NONE,                  /* every matrix has the type; rows that are no whole blocks of it stay as they are */
    LLM_MIX_Q2_K, LLM_MIX_Q2_K_S, LLM_MIX_Q3_K_S, LLM_MIX_Q3_K_M, LLM_MIX_Q3_K_L, LLM_MIX_Q4_K_S, LLM_MIX_Q4_K_M, LLM_MIX_Q5_K_S, LLM_MIX_Q5_K_M,
    LLM_MIX_Q6_K, LLM_MIX_IQ4_XS, LLM_MIX_IQ3_M, LLM_MIX_IQ3_S, LLM_MIX_IQ3_XS, LLM_MIX_IQ3_XXS, LLM_MIX_IQ2_M, LLM_MIX_IQ2_S, LLM_MIX_IQ2_XS
};
struct llm_quant_type {
    const char *name;
    enum llm_dtype dtype;          /* of most matrices; LLM_NO_DTYPE: keep what is stored */
    enum llm_quant_mix mix;
};
/* To add a type: its row in cpu/dtype/table.h; a mix: its row here. The list ends with the rows that keep the stored types. */
extern const struct llm_quant_type llm_quant_types[];
/* Name of row i; NULL after the last (struct llm_words). */
const char *llm_quant_word(int i);
/* The dtype of one matrix that a name stands for ("q4_k": Q4_K): 0, or -1 if matrices cannot be stored in it. "keep": LLM_NO_DTYPE. */
int llm_quant_dtype(const char *name, enum llm_dtype *out);

/* What llama.cpp's mix gives the matrix `p` of `m`, if all rows were whole blocks. */
enum llm_dtype llm_mix_type(const struct llm_quant_type *type, bool importances, const struct llm_model *m, const struct llm_param *p);
/* `type` if rows of k elements are whole blocks of it, else the type of smaller blocks that llama.cpp stores such a matrix in, or F16. */
enum llm_dtype llm_quant_fallback(enum llm_dtype type, int64_t k);
/* The type with the same values for matrices that are not pruned, if `type` stores two of each four; else `type`. */
enum llm_dtype llm_quant_dense(enum llm_dtype type);
/* Whether pruning and refinement are for the parameter: matrices of products within layers are, but for routers and short convolutions. */
bool llm_quant_is_inner(const struct llm_param *p);
/* Whether mixes leave the parameter as it is: routers, positions and what is no matrix of a product. */
bool llm_mix_leaves(const struct llm_param *p);

#endif
