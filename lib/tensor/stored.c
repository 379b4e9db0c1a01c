/* Activations of a block between its forward and its backward pass, kept in BF16 or 8 bits.
 *
 * When a block has run, everything on `acts` above its beginning is copied to `store`: outputs of ops are rounded, the rest (nodes, data that ops
 * saved) is copied exactly. Then that part of `acts` is freed for the next block. In the backward pass the copy returns to its old address, so that
 * every pointer in it is valid. */
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "tensor/tape_internal.h"

enum { CHUNK = 16 << 10 }; /* elements of a piece of work; whole blocks of 32 */

struct output { float *data; size_t n; char *stored; };
struct stored_args {
    struct output *outputs;   /* in the order of their addresses */
    size_t n_outputs, from, to, mark; /* the block's range [from, to) of `acts`; its beginning in `store` */
    enum llm_stored kind;
    struct llm_node *last;    /* the block's last node */
    struct llm_tensor *y;
};

static size_t stored_bytes(enum llm_stored kind, size_t n)
{
    return kind == LLM_STORED_BF16 ? 2 * n : llm_dtype_bytes(LLM_Q8_0, n / 32 * 32) + n % 32 * sizeof(float);
}

struct conversion { const struct output *o; enum llm_stored kind; bool back; };

static void convert_chunk(void *arg, size_t i, int thread)
{
    const struct conversion *v = arg;
    size_t at = i * CHUNK, n = v->o->n - at < CHUNK ? v->o->n - at : CHUNK, whole = v->kind == LLM_STORED_BF16 ? n : n / 32 * 32;
    const struct llm_dtype_row *row = &llm_dtypes[v->kind == LLM_STORED_BF16 ? LLM_BF16 : LLM_Q8_0];
    char *stored = v->o->stored + stored_bytes(v->kind, at), *rest = stored + stored_bytes(v->kind, whole);
    float *data = v->o->data + at;
    (void)thread;
    if (v->back) {
        if (whole) row->decode(stored, data, whole);
        memcpy(data + whole, rest, (n - whole) * sizeof *data);
    } else {
        if (whole) row->encode(data, stored, whole);
        memcpy(rest, data + whole, (n - whole) * sizeof *data);
    }
}

static void convert(const struct output *o, enum llm_stored kind, bool back)
{
    struct conversion v = {o, kind, back};
    llm_parallel((o->n + CHUNK - 1) / CHUNK, convert_chunk, &v);
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
        *o = (struct output){.data = k->out->data, .n = (size_t)(k->out->rows * k->out->cols)};
    }
    qsort(a->outputs, n, sizeof *a->outputs, by_place);
    a->n_outputs = 0;
    for (size_t i = 0; i < n; i++) { /* ops that work in place share an output */
        struct output *last = a->n_outputs ? &a->outputs[a->n_outputs - 1] : NULL;
        if (last && a->outputs[i].data < last->data + last->n) continue;
        a->outputs[a->n_outputs] = a->outputs[i];
        last = &a->outputs[a->n_outputs++];
        last->stored = llm_arena_alloc(&c->store, stored_bytes(a->kind, last->n));
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
    for (size_t i = 0; i < k->a.n_outputs; i++) convert(&k->a.outputs[i], k->a.kind, true);
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
    for (size_t i = 0; i < k->a.n_outputs; i++) convert(&k->a.outputs[i], k->a.kind, false);
    llm_arena_pop(&c->acts, from);
    *node = (struct llm_node){.backward = stored_backward, .mark = mark, .in = {x}, .out = out, .args = k, .before = before};
    c->tape->last = node;
    out->needs_grad = true;
    return out;
}
