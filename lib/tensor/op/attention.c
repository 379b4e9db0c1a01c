/* Attention over the rows of a batch: softmax(scale · q·kᵀ + masks) · v, tile by tile (Dao et al., FlashAttention, 2022).
 * Each document of a row is computed by itself. It is cut into blocks of queries, which run in parallel. */
#include "tensor/op/attention_internal.h"

#include <stdatomic.h>
#include <string.h>
#include "cpu/pool.h"
#include "cpu/profile.h"

/* The number of rows of the batch, and the length of a row in q and in k. */
struct lengths { int64_t rows, q, k; };

static bool row_lengths(struct llm_ctx *c, const struct attn_op *op, struct lengths *n)
{
    const struct llm_attn *a = &op->a;
    n->q = llm_row_len(c, op->q->rows);
    n->k = a->kv_row_len ? a->kv_row_len : n->q;
    n->rows = n->q ? op->q->rows / n->q : 0;
    if (op->k->rows != n->rows * n->k) {
        llm_op_fail(c, LLM_EX_FAILURE, "attention: expected %lld rows of %lld keys, found %lld keys in all", (long long)n->rows, (long long)n->k,
                    (long long)op->k->rows);
        return false;
    }
    if ((a->doc_start || a->prefixes) && n->k != n->q) {
        llm_op_fail(c, LLM_EX_FAILURE, "attention: documents, prefixes and cross-attention exclude one another");
        return false;
    }
    return true;
}

/* Appends the documents of one row. False if doc_start is inconsistent: a document's first token must have its own position as doc_start. */
static bool add_documents(struct attn_op *op, struct attn_document *all, int64_t row, const struct lengths *n)
{
    const struct llm_attn *a = &op->a;
    int64_t q_len = n->q, k_len = n->k;
    int64_t limit = a->kv_len ? attn_max(0, attn_min(k_len, a->kv_len[row])) : k_len, end;
    for (int64_t start = 0; start < q_len; start = end) {
        const int32_t *starts = a->doc_start ? a->doc_start + row * q_len : NULL;
        if (starts && starts[start] != start) return false;
        end = start + 1;
        while (end < q_len && (!starts || starts[end] == start)) end++;
        const struct attn_document *before = op->n_documents ? &all[op->n_documents - 1] : NULL;
        struct attn_document *d = &all[op->n_documents++];
        *d = (struct attn_document){.query = row * q_len + start, .n_queries = end - start, .key = row * k_len + start, .row = row, .origin = start};
        d->prefix = a->prefixes ? attn_max(0, a->prefixes[row * q_len + start]) : a->prefix;
        d->n_keys = starts ? attn_max(0, attn_min(end, limit) - start) : limit;
        d->grad_block = before ? before->grad_block + attn_blocks(before->n_queries, LLM_FOLD) : 0;
    }
    return true;
}

static bool find_documents(struct llm_ctx *c, struct attn_op *op)
{
    struct lengths n;
    if (!row_lengths(c, op, &n)) return false;
    int64_t max = n.rows;
    if (op->a.doc_start)
        for (int64_t t = 0; t < op->q->rows; t++) max += t % n.q && op->a.doc_start[t] == t % n.q;
    op->dropout.stride = (uint32_t)(attn_blocks(n.k, 4) * 4);
    struct attn_document *all = llm_op_alloc(c, max, sizeof *all);
    if (!all) return false;
    op->documents = all;
    for (int64_t row = 0; row < n.rows; row++)
        if (!add_documents(op, all, row, &n)) {
            llm_op_fail(c, LLM_EX_FAILURE, "attention: doc_start: expected runs that begin at the position they name, row %lld", (long long)row);
            return false;
        }
    return true;
}

struct forward {
    const struct attn_op *op;
    const struct attn_piece *pieces;
    int64_t n_pieces;
    atomic_bool no_memory;
};

static void forward_piece(void *arg, size_t i, int thread)
{
    struct forward *f = arg;
    const struct llm_attn *a = &f->op->a;
    /* the last queries of a causal row see most keys; they run first, so that all threads finish at about the same time */
    const struct attn_piece *p = &f->pieces[f->n_pieces - 1 - (int64_t)i / a->n_kv_heads];
    struct attn_job j = attn_job_of(f->op, p->d, (int64_t)i % a->n_kv_heads, p->from, p->end - p->from);
    if (!attn_run(&j, thread)) atomic_store(&f->no_memory, true);
}

static void run_forward(struct llm_ctx *c, const struct attn_op *op)
{
    int64_t n;
    const struct attn_piece *pieces = attn_cut(c, op, attn_piece_queries(&op->a, op->q->rows), false, &n);
    if (!pieces) return;
    struct forward f = {.op = op, .pieces = pieces, .n_pieces = n};
    llm_parallel((size_t)(n * op->a.n_kv_heads), forward_piece, &f);
    if (atomic_load(&f.no_memory)) llm_op_fail(c, EX_UNAVAILABLE, "out of memory in attention");
}

static struct attn_dropout dropout_of(const struct llm_ctx *c, const struct llm_attn *a)
{
    return (struct attn_dropout){.p = c->training ? a->dropout : 0, .seed = c->seed, .step = c->step, .layer = c->layer,
                                 .row = (uint32_t)c->first_row, .first_head = a->first_head};
}

struct llm_tensor *llm_attention(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v, const struct llm_attn *a,
                                 struct llm_tensor **lse)
{
    LLM_PROFILE("attention", 2 * llm_tensor_bytes(q) + llm_tensor_bytes(k) + llm_tensor_bytes(v));
    if (lse) *lse = &c->nothing;
    if (llm_ctx_failed(c) || !attn_check(c, q, k, v, a)) return &c->nothing;
    struct llm_node n = {.backward = attn_backward, .mark = llm_arena_mark(&c->acts), .in = {q, k, v}, .param = {a->sinks, a->rel_bias}};
    struct attn_op op = {.a = *a, .math = &llm_k.attention.math[c->compute == LLM_COMPUTE_BF16], .q = q, .k = k, .v = v, .dropout = dropout_of(c, a)};
    n.out = op.out = attn_output(c, &op);
    if (lse) *lse = llm_tensor_create(c, q->rows, a->n_heads);
    op.lse = lse ? (*lse)->data : NULL;
    op.stats = llm_tape_wants(c, &n) ? llm_op_alloc(c, 2 * q->rows * a->n_heads, sizeof(float)) : NULL;
    op.sinks = attn_values(c, a->sinks, a->n_heads, "sinks");
    op.bias = attn_bias_table(c, a);
    if (llm_ctx_failed(c) || !find_documents(c, &op)) return &c->nothing;
    size_t mark = llm_arena_mark(&c->acts);
    if (llm_profiling) attn_count(c, a, attn_op_pairs(&op), 1, 0);
    run_forward(c, &op);
    llm_arena_pop(&c->acts, mark);
    return llm_record(c, &n, &op, sizeof op);
}
