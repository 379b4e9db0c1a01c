/* Gradient shards: the tree in which a step's gradient is summed, so that its bits depend neither on how the rows are divided into passes nor on how
 * many processes share them.
 *
 * Of a step of B rows, row i belongs to shard ⌊i·S/B⌋ (S = llm_train_options.grad_shards). Within a shard rows are added in order, into
 * llm_param.grad and the accumulators of its other uses, which join grad when the shard ends. The sums of the shards are then added in a fixed tree
 * (dist/tree.h). Of S = 12 = 3·2², three subtrees of four shards meet at the top. The partial sums of unfinished subtrees take k buffers if
 * S = m·2^k, m odd, and the sum at the top one more if m > 1.
 *
 * Each of several processes has a run of shards, which is a few nodes of the tree (llm_tree_nodes). Nodes of different processes are added by
 * train/share.h. */
#ifndef LLM_TRAIN_SHARDS_H
#define LLM_TRAIN_SHARDS_H

#include "dist/tree.h"
#include "train/optim.h"
#include "train/options.h"

/* The first row of shard `shard`, of `rows` in n_shards shards; of n_shards itself: `rows`. */
int64_t llm_shard_first(int64_t shard, int64_t n_shards, int64_t rows);
/* Rows of the largest shard. */
int64_t llm_shard_rows(int64_t n_shards, int64_t rows);
/* The shards that one process works through in order: [first, end) of n. */
struct llm_shard_run { int64_t first, end, n; };
/* Those of process `rank` of n_ranks <= n_shards. */
struct llm_shard_run llm_shard_run(int rank, int n_ranks, int64_t n_shards);
/* Buffers of a parameter's size that a run takes besides llm_param.grad. Of all shards: at most ⌈log₂ n⌉ + 1. */
int64_t llm_shard_buffers(struct llm_shard_run run);
/* Floats from one buffer of a parameter to the next (llm_trainable.shards). */
size_t llm_shard_stride(const struct llm_param *p);
/* That the options' rows of a step suffice for their shards. `by_pass`: the rows of a pass are a batch of their own, which no shard may divide.
 * 0 or -1 (LLM_EX_USAGE). */
int llm_shard_check(const struct llm_train_options *o, bool by_pass, struct llm_err *e) LLM_MUST_CHECK;
/* Allocates so many for one parameter (llm_trainable.shards, which the owner of `t` frees). Nothing if there are none or the parameter is frozen. */
int llm_shard_prepare(struct llm_trainable *t, int64_t n_buffers, struct llm_err *e) LLM_MUST_CHECK;
/* Shard `shard` of the run has ended: its gradient, of all uses, goes to its place in the tree. Shards come in order. Afterwards grad is zero, or, if
 * this was the run's last shard, the last of the run's nodes, and buffer i is node i. Of a run of all shards that is the gradient of the step. */
void llm_shard_end(struct llm_trainable *t, size_t n, int64_t shard, struct llm_shard_run run);
/* The same, but nothing is added: afterwards buffer i is shard i of the run, and grad its last. */
void llm_shard_keep(struct llm_trainable *t, size_t n, int64_t shard, struct llm_shard_run run);

#endif
