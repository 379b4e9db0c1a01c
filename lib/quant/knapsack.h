/* The multiple-choice knapsack problem, solved exactly: one choice of each item, so that the sizes fit and the sum of the harms is the least. */
#ifndef LLM_QUANT_KNAPSACK_H
#define LLM_QUANT_KNAPSACK_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

enum { LLM_KNAPSACK_CHOICES = 32 };
struct llm_knapsack_item {
    int n;                             /* choices, at least one */
    uint64_t size[LLM_KNAPSACK_CHOICES];
    double harm[LLM_KNAPSACK_CHOICES]; /* finite */
};
/* The number of the choice of each of n items, to choice[n]. 0; 1 if even the smallest choices do not fit; -1 (memory). */
int llm_knapsack(const struct llm_knapsack_item *items, size_t n, uint64_t capacity, int *choice, struct llm_err *e) LLM_MUST_CHECK;

#endif
