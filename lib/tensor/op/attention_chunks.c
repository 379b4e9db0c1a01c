/* Dual chunk attention (An et al. 2024), for texts longer than those of training: no position exceeds the trained range. Keys are rotated by their
 * position in their chunk. Queries are rotated in three ways: for the keys of their own chunk, of the chunk before it, and of all earlier chunks.
 * Each of the three is plain attention over its keys; their outputs are merged by log-sum-exp. */
#include <math.h>
#include "cpu/kernels.h"
#include "tensor/op/attention_internal.h"

struct merge {
    const struct llm_tensor *part[3], *lse[3];
    struct llm_tensor *out;
    int64_t n_heads, d;
};

static void merge_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct merge *m = arg;
    (void)thread;
    for (int64_t t = from; t < to; t++) {
        for (int64_t h = 0; h < m->n_heads; h++) {
            double lse[3], max = -INFINITY, sum = 0;
            float *y = m->out->data + t * m->out->stride + h * m->d;
            for (int i = 0; i < 3; i++) {
                lse[i] = (double)m->lse[i]->data[t * m->lse[i]->stride + h];
                max = fmax(max, lse[i]);
            }
            for (int i = 0; i < 3; i++) sum += exp(lse[i] - max);
            for (int i = 0; i < 3; i++) {
                const float *x = m->part[i]->data + t * m->part[i]->stride + h * m->d;
                float weight = (float)(exp(lse[i] - max) / sum);
                if (i == 0) llm_k.elementwise.scale(y, weight, x, (size_t)m->d);
                else if (weight > 0) llm_k.elementwise.axpy(y, weight, x, (size_t)m->d);
            }
        }
    }
}

struct llm_tensor *llm_attention_chunks(struct llm_ctx *c, struct llm_tensor *const q[3], struct llm_tensor *k, struct llm_tensor *v,
                                        const struct llm_attn *a, const struct llm_kv_seq *seqs, int64_t n_seqs)
{
    struct merge m = {.n_heads = a->n_heads, .d = a->d_v};
    if (llm_ctx_failed(c)) return &c->nothing;
    if (c->tape || !a->causal || a->window || a->prefix || a->prefixes || a->sinks || a->doc_start || a->chunk < 1) {
        return llm_op_fail(c, EX_UNAVAILABLE, "dual chunk attention: expected one causal text, without a window or sinks, and no training");
    }
    m.out = llm_tensor_create(c, q[0]->rows, a->n_heads * a->d_v);
    size_t mark = llm_arena_mark(&c->acts);
    for (int i = 0; i < 3; i++) {
        struct llm_attn part = *a;
        struct llm_tensor *lse = NULL;
        part.chunk_part = (enum llm_chunk_part)i;
        /* the first of the three calls stores the new keys and values */
        m.part[i] = seqs ? llm_attention_cached_lse(c, q[i], i ? NULL : k, i ? NULL : v, &part, seqs, n_seqs, &lse)
                         : llm_attention(c, q[i], k, v, &part, &lse);
        m.lse[i] = lse;
        if (llm_ctx_failed(c)) return &c->nothing;
    }
    llm_for_rows(m.out->rows, 3 * m.out->cols, merge_rows, &m);
    llm_arena_pop(&c->acts, mark);
    return m.out;
}
