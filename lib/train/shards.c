#include "train/shards.h"

#include <string.h>
#include "base/buf.h"
#include "cpu/kernels.h"
#include "cpu/optim.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/experts.h"

int64_t llm_shard_first(int64_t shard, int64_t n_shards, int64_t rows)
{
    return (int64_t)(((__int128)shard * rows + n_shards - 1) / n_shards);
}

int64_t llm_shard_rows(int64_t n_shards, int64_t rows)
{
    return rows / n_shards + (rows % n_shards != 0);
}

struct llm_shard_run llm_shard_run(int rank, int n_ranks, int64_t n_shards)
{
    return (struct llm_shard_run){rank * n_shards / n_ranks, (rank + 1) * n_shards / n_ranks, n_shards};
}

/* Nodes of the run's shards before `shard`. */
static int64_t nodes_before(struct llm_shard_run run, int64_t shard)
{
    return llm_tree_nodes(run.first, shard, run.n, NULL);
}

int64_t llm_shard_buffers(struct llm_shard_run run)
{
    int64_t most = 0;
    for (int64_t s = run.first; s < run.end; s++) {
        int64_t n = nodes_before(run, s);
        if (n > most) most = n;
    }
    return most;
}

int llm_shard_check(const struct llm_train_options *o, bool by_pass, struct llm_err *e)
{
    const bool replicas = o->outer != LLM_OUTER_NONE;
    const int64_t rows = o->batch * o->accumulate / (replicas ? o->replicas : 1);
    if (o->grad_shards > rows) {
        return llm_fail(e, LLM_EX_USAGE, "--grad-shards: expected at most %lld (rows of a %s), found %lld", (long long)rows,
                        replicas ? "replica" : "step", (long long)o->grad_shards);
    }
    if (by_pass && rows % o->batch != 0) {
        return llm_fail(e, LLM_EX_USAGE, "--replicas: expected replicas of whole passes, since the rows of a pass are a batch of their own here, "
                        "found %lld rows of passes of %lld", (long long)rows, (long long)o->batch);
    }
    for (int64_t s = 1; by_pass && s < o->grad_shards; s++) {
        if (llm_shard_first(s, o->grad_shards, rows) % o->batch == 0) continue;
        return llm_fail(e, LLM_EX_USAGE, "--grad-shards: expected shards of whole passes, since the rows of a pass are a batch of their own here, "
                        "found %lld shards of %lld passes", (long long)o->grad_shards, (long long)o->accumulate);
    }
    return 0;
}

size_t llm_shard_stride(const struct llm_param *p)
{
    return llm_grad_stride(p);
}

int llm_shard_prepare(struct llm_trainable *t, int64_t n_buffers, struct llm_err *e)
{
    size_t n = (size_t)n_buffers * llm_shard_stride(t->p);
    if (n == 0 || !t->p->grad) return 0;
    t->shards = llm_alloc_huge(n, sizeof *t->shards, "gradients of shards", e);
    return t->shards ? 0 : -1;
}

struct end { const struct llm_trainable *t; int64_t waiting, left; bool last; };

/* One block of elements of a shard's gradient: it joins those of the `waiting` nodes that end with it, last first, until `left` of them are left.
 * Then it waits in the next buffer itself. */
static void end_block(void *arg, size_t i, int thread)
{
    const struct end *w = arg;
    const struct llm_param *p = w->t->p;
    size_t at = i * LLM_OPTIM_BLOCK, left = (size_t)llm_param_count(p) - at, n = left < LLM_OPTIM_BLOCK ? left : LLM_OPTIM_BLOCK;
    float *grad = p->grad + at, *buffers = w->t->shards + at;
    (void)thread;
    for (int64_t b = w->waiting - 1; b >= w->left; b--) llm_k.elementwise.add(grad, buffers + (size_t)b * llm_shard_stride(p), grad, n);
    if (w->last) return;
    memcpy(buffers + (size_t)w->left * llm_shard_stride(p), grad, n * sizeof *grad);
    memset(grad, 0, n * sizeof *grad);
}

/* Joins the `waiting` nodes but `left` of them, which are buffers. */
static void end_shard(struct llm_trainable *t, size_t n, int64_t waiting, int64_t left, bool last)
{
    for (size_t i = 0; i < n; i++) {
        size_t count = (size_t)llm_param_count(t[i].p);
        if (!t[i].p->grad) continue;
        llm_grad_join(t[i].p);
        if (!t[i].shards) continue;
        LLM_PROFILE("gradient shards", 4 * (double)count);
        struct end w = {&t[i], waiting, left, last};
        llm_parallel((count + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK, end_block, &w);
    }
}

void llm_shard_end(struct llm_trainable *t, size_t n, int64_t shard, struct llm_shard_run run)
{
    end_shard(t, n, nodes_before(run, shard), nodes_before(run, shard + 1) - 1, shard == run.end - 1);
}

void llm_shard_keep(struct llm_trainable *t, size_t n, int64_t shard, struct llm_shard_run run)
{
    end_shard(t, n, shard - run.first, shard - run.first, shard == run.end - 1);
}
