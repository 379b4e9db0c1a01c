/* Activations of a block between its forward and its backward pass, kept in BF16, in 8 bits or coarsely (approximate.h).
 *
 * When a block has run, everything on `acts` above its beginning is copied to `store`: outputs of ops are rounded, the rest (nodes, data that ops
 * saved) is copied exactly. Then that part of `acts` is freed for the next block. In the backward pass the copy returns to its old address, so that
 * every pointer in it is valid. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "tensor/approximate.h"
#include "tensor/tape_internal.h"

enum { CHUNK = 16 << 10 }; /* elements of a piece of work, about */

struct output {
    float *data;
    size_t n;
    int64_t rows, cols;       /* n in all */
    char *stored;
    enum llm_stored kind;
    int64_t part, kept;       /* rows of a piece of work, or, RANK, of a part; TOP: elements of a row that are kept, RANK: the rank */
};
struct stored_args {
    struct output *outputs;   /* in the order of their addresses */
    size_t n_outputs, from, to, mark; /* the block's range [from, to) of `acts`; its beginning in `store` */
    enum llm_stored kind;     /* of outputs that take it */
    struct llm_node *last;    /* the block's last node */
    struct llm_tensor *y;
};

/* Of n elements, the last block of a row: of Q8_0's block, a scale and 32 bytes, what is not zero. */
static size_t short_block_bytes(size_t n)
{
    return n > 0 ? (size_t)llm_dtype_bytes(LLM_Q8_0, 32) - (32 - n) : 0;
}

/* Of a row. In 8 bits its blocks are its own, so that they do not depend on the rows beside it. */
static size_t row_bytes(enum llm_stored kind, int64_t cols)
{
    const size_t n = (size_t)cols;
    return kind == LLM_STORED_BF16 ? n * sizeof(uint16_t) : (size_t)llm_dtype_bytes(LLM_Q8_0, n / 32 * 32) + short_block_bytes(n % 32);
}

static size_t stored_bytes(const struct output *o)
{
    if (o->kind == LLM_STORED_TOP) return llm_top_bytes(o->rows, o->kept);
    if (o->kind == LLM_STORED_RANK) return llm_rank_bytes(o->rows, o->part, o->cols, o->kept);
    return (size_t)o->rows * row_bytes(o->kind, o->cols);
}

struct conversion { const struct output *o; bool back; atomic_bool no_memory; };

/* n elements of which the rounded ones are whole blocks, or of one row. */
static void convert_run(enum llm_stored kind, float *x, size_t n, char *stored, bool back)
{
    const size_t whole = kind == LLM_STORED_BF16 ? n : n / 32 * 32;
    const struct llm_dtype_row *row = &llm_dtypes[kind == LLM_STORED_BF16 ? LLM_BF16 : LLM_Q8_0];
    char *rest = stored + row_bytes(kind, (int64_t)whole), block[64] = {0};
    const size_t left = n - whole, bytes = short_block_bytes(left);
    float last[32] = {0};
    if (back) {
        if (whole) row->decode(stored, x, whole);
        memcpy(block, rest, bytes);
        if (left) row->decode(block, last, 32);
        memcpy(x + whole, last, left * sizeof *x);
    } else {
        if (whole) row->encode(x, stored, whole);
        memcpy(last, x + whole, left * sizeof *x);
        if (left) row->encode(last, block, 32);
        memcpy(rest, block, bytes);
    }
}

static void convert_rows(void *arg, size_t i, int thread)
{
    struct conversion *v = arg;
    const struct output *o = v->o;
    const int64_t first = (int64_t)i * o->part, rows = o->rows - first < o->part ? o->rows - first : o->part;
    if (o->kind == LLM_STORED_TOP) {
        float *x = o->data + first * o->cols;
        char *stored = o->stored + llm_top_bytes(first, o->kept);
        if (v->back) llm_top_decode(stored, rows, o->cols, o->kept, x);
        else if (!llm_top_encode(x, rows, o->cols, o->kept, stored, thread)) atomic_store(&v->no_memory, true);
        return;
    }
    const int64_t at_once = o->kind == LLM_STORED_BF16 || o->cols % 32 == 0 ? rows : 1;
    for (int64_t r = first; r < first + rows; r += at_once) {
        convert_run(o->kind, o->data + r * o->cols, (size_t)(at_once * o->cols), o->stored + (size_t)r * row_bytes(o->kind, o->cols), v->back);
    }
}

/* False: see c->err. */
static bool convert(struct llm_ctx *c, const struct output *o, bool back)
{
    struct conversion v = {.o = o, .back = back};
    if (o->kind == LLM_STORED_RANK) {
        return (back ? llm_rank_decode(o->stored, o->rows, o->part, o->cols, o->kept, o->data, &c->err)
                     : llm_rank_encode(o->data, o->rows, o->part, o->cols, o->kept, o->stored, &c->err)) == 0;
    }
    llm_parallel((size_t)((o->rows + o->part - 1) / o->part), convert_rows, &v);
    if (atomic_load(&v.no_memory)) llm_op_fail(c, EX_UNAVAILABLE, "out of memory in stored activations");
    return !llm_ctx_failed(c);
}

/* Copies what lies between the outputs to `copy` in `store`, or with `back` from there to `acts`. */
static void copy_rest(struct llm_ctx *c, const struct stored_args *a, char *copy, bool back)
{
    char *at = c->acts.base + a->from, *end = c->acts.base + a->to;
    for (size_t i = 0; i <= a->n_outputs; i++) {
        char *until = i < a->n_outputs ? (char *)a->outputs[i].data : end;
        size_t bytes = (size_t)(until - at);
        memcpy(back ? at : copy, back ? copy : at, bytes);
        copy += bytes;
        at = i < a->n_outputs ? (char *)(a->outputs[i].data + a->outputs[i].n) : end;
    }
}

/* Whether the output is memory of its own within the block's. An editor's copy is kept as what it was copied from is: exactly, if that is the block's
 * input. */
static bool is_own(const struct llm_ctx *c, const struct stored_args *a, const struct llm_tensor *t)
{
    const char *p = (const char *)t->data;
    if (t->copied && !is_own(c, a, t->copied->base && !t->copied->copied ? t->copied->base : t->copied)) return false;
    return (!t->base || t->copied) && t->stride == t->cols && t->rows * t->cols > 0 && p >= c->acts.base + a->from && p < c->acts.base + a->to;
}

static int by_place(const void *a, const void *b)
{
    const struct output *p = a, *q = b;
    return (p->data > q->data) - (p->data < q->data);
}

/* Whether a node after `before` that is not tolerant reads this output, or made it. */
static bool is_exact(const struct stored_args *a, const struct llm_node *before, const struct output *o)
{
    for (const struct llm_node *k = a->last; k != before; k = k->before) {
        const struct llm_tensor *ends[1 + LLM_NODE_INPUTS] = {k->out};
        memcpy(ends + 1, k->in, sizeof k->in);
        for (size_t i = 0; i < sizeof ends / sizeof *ends && !k->tolerant; i++) {
            if (ends[i] && ends[i]->data >= o->data && ends[i]->data < o->data + o->n) return true;
        }
    }
    return false;
}

/* How the output is kept. The order of a batch's rows changes nothing: low rank takes each by itself. */
static void choose_kind(const struct llm_ctx *c, const struct stored_args *a, const struct llm_node *before, struct output *o)
{
    o->kind = a->kind;
    o->part = (CHUNK + o->cols - 1) / o->cols;
    if (a->kind != LLM_STORED_TOP && a->kind != LLM_STORED_RANK) return;
    o->kind = LLM_STORED_BF16;
    if (is_exact(a, before, o)) return;
    if (a->kind == LLM_STORED_TOP && llm_top_fits(o->cols)) {
        o->kind = LLM_STORED_TOP;
        o->kept = llm_top_kept(c->stored_share, o->cols);
    } else if (a->kind == LLM_STORED_RANK && o->rows == c->n_rows * c->row_len && c->stored_rank <= c->row_len && c->stored_rank <= o->cols) {
        o->kind = LLM_STORED_RANK;
        o->kept = c->stored_rank;
        o->part = c->row_len;
    }
}

/* Lists the outputs of the nodes after `before`, each once. 0, or -1 after a failure. */
static int list_outputs(struct llm_ctx *c, struct stored_args *a, const struct llm_node *before)
{
    size_t n = 0, at;
    for (const struct llm_node *k = a->last; k != before; k = k->before) n += is_own(c, a, k->out);
    a->outputs = llm_arena_alloc(&c->store, n * sizeof *a->outputs + 1);
    if (!a->outputs) return -1;
    at = n;
    for (const struct llm_node *k = a->last; k != before; k = k->before) {
        if (!is_own(c, a, k->out)) continue;
        struct output *o = &a->outputs[--at];
        *o = (struct output){.data = k->out->data, .n = (size_t)(k->out->rows * k->out->cols), .rows = k->out->rows, .cols = k->out->cols};
    }
    qsort(a->outputs, n, sizeof *a->outputs, by_place);
    a->n_outputs = 0;
    for (size_t i = 0; i < n; i++) { /* ops that work in place share an output */
        struct output *last = a->n_outputs ? &a->outputs[a->n_outputs - 1] : NULL;
        if (last && a->outputs[i].data < last->data + last->n) continue;
        a->outputs[a->n_outputs] = a->outputs[i];
        last = &a->outputs[a->n_outputs++];
        choose_kind(c, a, before, last);
        last->stored = llm_arena_alloc(&c->store, stored_bytes(last));
        if (!last->stored) return -1;
    }
    return 0;
}

static size_t rest_bytes(const struct stored_args *a)
{
    size_t bytes = a->to - a->from;
    for (size_t i = 0; i < a->n_outputs; i++) bytes -= a->outputs[i].n * sizeof(float);
    return bytes;
}

struct kept { struct stored_args a; char *rest; };

static void stored_backward(struct llm_ctx *c, struct llm_node *n)
{
    const struct kept *k = n->args;
    const struct llm_node *until = c->tape->last;
    c->acts.used = k->a.to;
    copy_rest(c, &k->a, k->rest, true);
    for (size_t i = 0; i < k->a.n_outputs; i++) if (!convert(c, &k->a.outputs[i], true)) return;
    llm_arena_pop(&c->store, k->a.mark);
    llm_recompute_reset(c); /* activations are recomputed from the rounded values */
    c->tape->last = k->a.last;
    llm_grad_pass(c, k->a.y, n->out);
    llm_grad_drop(c, n->out);
    llm_tape_walk(c, until);
}

struct llm_tensor *llm_run_stored(struct llm_ctx *c, struct llm_tensor *(*block)(struct llm_ctx *, void *arg, struct llm_tensor *x), void *arg,
                                  struct llm_tensor *x)
{
    struct llm_node *before = c->tape->last;
    size_t mark = llm_arena_mark(&c->acts);
    struct llm_tensor *out = llm_tensor_create(c, x->rows, x->cols); /* below the range that is freed */
    struct llm_node *node = llm_op_alloc(c, 1, sizeof *node);
    struct kept *k = llm_op_alloc(c, 1, sizeof *k);
    if (llm_ctx_failed(c)) return &c->nothing;
    size_t from = llm_arena_mark(&c->acts);
    struct llm_tensor *y = block(c, arg, x);
    if (llm_ctx_failed(c)) return &c->nothing;
    if (c->tape->last == before || y->rows != x->rows || y->cols != x->cols) return y; /* nothing was recorded, or the shape differs */
    k->a = (struct stored_args){.from = from, .to = c->acts.used, .mark = llm_arena_mark(&c->store), .kind = c->stored,
                               .last = c->tape->last, .y = y};
    k->rest = NULL;
    if (list_outputs(c, &k->a, before) == 0) k->rest = llm_arena_alloc(&c->store, rest_bytes(&k->a));
    if (!k->rest) return llm_op_fail(c, EX_UNAVAILABLE, "stored activations: expected at most %zu MiB, found more", c->store.limit >> 20);
    for (int64_t r = 0; r < y->rows; r++) memcpy(out->data + r * out->stride, y->data + r * y->stride, (size_t)y->cols * sizeof(float));
    copy_rest(c, &k->a, k->rest, false);
    for (size_t i = 0; i < k->a.n_outputs; i++) {
        if (!convert(c, &k->a.outputs[i], false)) return &c->nothing;
    }
    llm_arena_pop(&c->acts, from);
    *node = (struct llm_node){.backward = stored_backward, .mark = mark, .in = {x}, .out = out, .args = k, .before = before};
    c->tape->last = node;
    out->needs_grad = true;
    return out;
}
