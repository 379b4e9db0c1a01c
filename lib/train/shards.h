/* Gradient shards: the tree in which a step's gradient is summed, so that its bits depend neither on how the rows are divided into passes nor on how
 * many processes share them.
 *
 * Of a step of B rows, row i belongs to shard ⌊i·S/B⌋ (S = llm_train_options.grad_shards). Within a shard rows are added in order, into
 * llm_param.grad and the accumulators of its other uses, which join grad when the shard ends. The sums of the shards are then added in a fixed tree:
 * with S = m·2^k, m odd, each run of 2^k shards is a balanced binary tree, and the m roots are added from left to right. Of S = 12, three subtrees
 * of four shards meet at the top. The partial sums of unfinished subtrees take k buffers, and the sum at the top one more if m > 1. */
#ifndef LLM_TRAIN_SHARDS_H
#define LLM_TRAIN_SHARDS_H

#include "train/optim.h"
#include "train/options.h"

/* The first row of shard `shard`, of `rows` in n_shards shards; of n_shards itself: `rows`. */
int64_t llm_shard_first(int64_t shard, int64_t n_shards, int64_t rows);
/* Rows of the largest shard. */
int64_t llm_shard_rows(int64_t n_shards, int64_t rows);
/* Buffers of a parameter's size that the tree takes besides llm_param.grad: at most ⌈log₂ n_shards⌉ + 1. */
int64_t llm_shard_buffers(int64_t n_shards);
/* That the options' rows of a step suffice for their shards. `by_pass`: the rows of a pass are a batch of their own, which no shard may divide.
 * 0 or -1 (LLM_EX_USAGE). */
int llm_shard_check(const struct llm_train_options *o, bool by_pass, struct llm_err *e) LLM_MUST_CHECK;
/* Allocates those of one parameter (llm_trainable.shards, which the owner of `t` frees). Nothing if there are none or the parameter is frozen. */
int llm_shard_prepare(struct llm_trainable *t, int64_t n_shards, struct llm_err *e) LLM_MUST_CHECK;
/* Shard `shard` has ended: its gradient, of all uses, goes to its place in the tree. Shards come in order. Afterwards grad is zero, or, if this
 * was the last shard, the gradient of the step. */
void llm_shard_end(struct llm_trainable *t, size_t n, int64_t shard, int64_t n_shards);

#endif
