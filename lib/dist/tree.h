/* The fixed tree in which n terms are added, so that the bits of a sum do not depend on which process has which terms. With n = m·2^k, m odd, each
 * run of 2^k terms is a balanced binary tree, and the m roots are added from left to right. */
#ifndef LLM_DIST_TREE_H
#define LLM_DIST_TREE_H

#include <stdbool.h>
#include <stdint.h>

/* A node of the tree: the sum of terms [first, end). */
struct llm_tree_node { int64_t first, end; };
/* Whether the tree of n terms adds the two as siblings, or `right` is the next root after the roots that `left` is the sum of. */
bool llm_tree_joins(struct llm_tree_node left, struct llm_tree_node right, int64_t n);
/* The fewest nodes of the tree of n terms whose terms are [first, end), in order. From term 0 on, roots are one node. Returns their number; nodes:
 * may be NULL. */
int64_t llm_tree_nodes(int64_t first, int64_t end, int64_t n, struct llm_tree_node *nodes);

#endif
