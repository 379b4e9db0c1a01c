#include "train/shards.h"

#include <string.h>
#include "base/buf.h"
#include "cpu/kernels.h"
#include "cpu/optim.h"
#include "cpu/pool.h"
#include "cpu/profile.h"

int64_t llm_shard_first(int64_t shard, int64_t n_shards, int64_t rows)
{
    return (int64_t)(((__int128)shard * rows + n_shards - 1) / n_shards);
}

int64_t llm_shard_rows(int64_t n_shards, int64_t rows)
{
    return rows / n_shards + (rows % n_shards != 0);
}

/* k of n_shards = m·2^k. */
static int levels(int64_t n_shards)
{
    return __builtin_ctzll((unsigned long long)n_shards);
}

int64_t llm_shard_buffers(int64_t n_shards)
{
    int k = levels(n_shards);
    return k + (n_shards >> k > 1);
}

int llm_shard_check(const struct llm_train_options *o, bool by_pass, struct llm_err *e)
{
    int64_t rows = o->batch * o->accumulate;
    if (o->grad_shards > rows) {
        return llm_fail(e, LLM_EX_USAGE, "--grad-shards: expected at most %lld (rows of a step), found %lld", (long long)rows,
                        (long long)o->grad_shards);
    }
    for (int64_t s = 1; by_pass && s < o->grad_shards; s++) {
        if (llm_shard_first(s, o->grad_shards, rows) % o->batch == 0) continue;
        return llm_fail(e, LLM_EX_USAGE, "--grad-shards: expected shards of whole passes, since the rows of a pass are a batch of their own here, "
                        "found %lld shards of %lld passes", (long long)o->grad_shards, (long long)o->accumulate);
    }
    return 0;
}

/* Floats from one buffer of a parameter to the next. */
static size_t stride_of(const struct llm_param *p)
{
    return ((size_t)llm_param_count(p) + 15) / 16 * 16;
}

int llm_shard_prepare(struct llm_trainable *t, int64_t n_shards, struct llm_err *e)
{
    size_t n = (size_t)llm_shard_buffers(n_shards) * stride_of(t->p);
    if (n == 0 || !t->p->grad) return 0;
    t->shards = llm_alloc_huge(n, sizeof *t->shards, "gradients of shards", e);
    return t->shards ? 0 : -1;
}

struct end { const struct llm_trainable *t; int64_t shard, n_shards; };

/* One block of elements of a shard's gradient climbs the tree: it joins the left sibling wherever it is the right one, and waits where it is the
 * left one. Buffer j < k holds a left sibling of 2^j shards, buffer k the sum at the top. */
static void end_block(void *arg, size_t i, int thread)
{
    const struct end *w = arg;
    const struct llm_param *p = w->t->p;
    size_t at = i * LLM_OPTIM_BLOCK, left = (size_t)llm_param_count(p) - at, n = left < LLM_OPTIM_BLOCK ? left : LLM_OPTIM_BLOCK;
    float *grad = p->grad + at, *buffer = w->t->shards + at;
    int level = 0, k = levels(w->n_shards);
    (void)thread;
    for (; level < k && (w->shard >> level & 1); level++, buffer += stride_of(p)) llm_k.elementwise.add(grad, buffer, grad, n);
    if (level == k && w->shard >> k > 0) llm_k.elementwise.add(grad, buffer, grad, n);
    if (w->shard == w->n_shards - 1) return;
    memcpy(buffer, grad, n * sizeof *grad);
    memset(grad, 0, n * sizeof *grad);
}

void llm_shard_end(struct llm_trainable *t, size_t n, int64_t shard, int64_t n_shards)
{
    for (size_t i = 0; i < n; i++) {
        size_t count = (size_t)llm_param_count(t[i].p);
        if (!t[i].p->grad) continue;
        llm_grad_join(t[i].p);
        if (!t[i].shards) continue;
        LLM_PROFILE("gradient shards", 4 * (double)count);
        struct end w = {&t[i], shard, n_shards};
        llm_parallel((count + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK, end_block, &w);
    }
}
