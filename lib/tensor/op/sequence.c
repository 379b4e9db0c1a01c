/* Attention over rows that ranks divide (tensor/sequence.h): what is exchanged before and after it. */
#include "tensor/sequence.h"

#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "dist/group.h"
#include "tensor/tape.h"

enum { MOST = 3 };

/* A matrix, of which `add` says whether what arrives is added. */
struct side { float *p; int64_t stride, cols; bool add; };

/* An exchange between the ranks' tokens of all heads, `tokens` [rows · own], and all tokens of a rank's heads, `heads` [rows · own · ranks], whose
 * columns are the rank's of each matrix of `tokens`, one after the other. */
struct move {
    struct side tokens[MOST], heads;
    int n, ranks;
    int64_t own;              /* tokens of a row that a rank has */
    int64_t rows;             /* tokens of a rank */
    float *mine, *theirs;     /* messages, [ranks][rows, heads.cols]: by the rank whose heads, and by the rank whose tokens they are of */
};

static void put(float *to, const float *from, int64_t n, bool add)
{
    if (add) llm_k.elementwise.add(to, to, from, (size_t)n);
    else memcpy(to, from, (size_t)n * sizeof *to);
}

/* Token t of this rank's to or from the messages for each rank's heads. */
static void token_rows(const struct move *m, int64_t t, bool out)
{
    for (int q = 0; q < m->ranks; q++) {
        float *message = m->mine + (q * m->rows + t) * m->heads.cols;
        for (int i = 0; i < m->n; message += m->tokens[i++].cols / m->ranks) {
            const int64_t cols = m->tokens[i].cols / m->ranks;
            float *x = m->tokens[i].p + t * m->tokens[i].stride + q * cols;
            if (out) memcpy(message, x, (size_t)cols * sizeof *x);
            else put(x, message, cols, m->tokens[i].add);
        }
    }
}

/* Token t of rank q, by this rank's heads. */
static float *row_of(const struct move *m, int q, int64_t t)
{
    return m->heads.p + (t / m->own * m->own * m->ranks + q * m->own + t % m->own) * m->heads.stride;
}

static void pack_tokens(void *arg, int64_t from, int64_t to, int thread)
{
    (void)thread;
    for (int64_t t = from; t < to; t++) token_rows(arg, t, true);
}

static void unpack_tokens(void *arg, int64_t from, int64_t to, int thread)
{
    (void)thread;
    for (int64_t t = from; t < to; t++) token_rows(arg, t, false);
}

static void pack_heads(void *arg, int64_t from, int64_t to, int thread)
{
    const struct move *m = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) {
        memcpy(m->theirs + i * m->heads.cols, row_of(m, (int)(i / m->rows), i % m->rows), (size_t)m->heads.cols * sizeof *m->theirs);
    }
}

static void unpack_heads(void *arg, int64_t from, int64_t to, int thread)
{
    const struct move *m = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) put(row_of(m, (int)(i / m->rows), i % m->rows), m->theirs + i * m->heads.cols, m->heads.cols, m->heads.add);
}

/* Sends all tokens to the ranks of their heads, or back. Scratch memory stays on `acts`. False after a failure. */
static bool exchange(struct llm_ctx *c, struct move *m, bool to_heads)
{
    LLM_PROFILE("sequence: exchange", 0);
    const int64_t floats = m->rows * m->heads.cols, all = m->ranks * floats, wide = m->ranks * m->heads.cols;
    void *mine[LLM_MAX_PARTS_OF_ROW], *theirs[LLM_MAX_PARTS_OF_ROW];
    size_t bytes[LLM_MAX_PARTS_OF_ROW];
    m->mine = llm_op_alloc(c, 2 * all, sizeof *m->mine);
    if (!m->mine) return false;
    m->theirs = m->mine + all;
    for (int q = 0; q < m->ranks; q++) {
        mine[q] = m->mine + q * floats;
        theirs[q] = m->theirs + q * floats;
        bytes[q] = (size_t)floats * sizeof *m->mine;
    }
    if (to_heads) llm_for_rows(m->rows, wide, pack_tokens, m);
    else llm_for_rows(m->ranks * m->rows, m->heads.cols, pack_heads, m);
    if (llm_group_exchange(c->sequence->group, to_heads ? mine : theirs, bytes, to_heads ? theirs : mine, bytes, &c->err) < 0) return false;
    if (to_heads) llm_for_rows(m->ranks * m->rows, m->heads.cols, unpack_heads, m);
    else llm_for_rows(m->rows, wide, unpack_tokens, m);
    return true;
}

static struct move move_of(const struct llm_ctx *c, int64_t rows)
{
    return (struct move){.ranks = c->sequence->ranks, .rows = rows, .own = llm_row_len(c, rows)};
}

static struct side side_of(const struct llm_tensor *x) { return (struct side){x->data, x->stride, x->cols, false}; }
static struct side gradient_of(const struct llm_tensor *x) { return (struct side){x->grad, x->grad_stride, x->cols, false}; }

/* ---- to the next rank ---- */

/* Sends n floats to rank `to` and receives as many from rank `from`, of which -1 is none. All take part. */
static bool pass_on(struct llm_ctx *c, int to, const float *out, int from, float *in, int64_t n)
{
    void *sent[LLM_MAX_PARTS_OF_ROW] = {NULL}, *got[LLM_MAX_PARTS_OF_ROW] = {NULL};
    size_t sent_bytes[LLM_MAX_PARTS_OF_ROW] = {0}, got_bytes[LLM_MAX_PARTS_OF_ROW] = {0};
    if (to >= 0) {
        sent[to] = (void *)out; /* is read */
        sent_bytes[to] = (size_t)n * sizeof *out;
    }
    if (from >= 0) {
        got[from] = in;
        got_bytes[from] = (size_t)n * sizeof *in;
    }
    return llm_group_exchange(c->sequence->group, sent, sent_bytes, got, got_bytes, &c->err) == 0;
}

/* This rank's number in the order of messages; the rank of a number, -1: there is none. */
static int number_of(const struct llm_sequence *s, bool ahead) { return ahead ? s->rank : s->ranks - 1 - s->rank; }
static int rank_of(const struct llm_sequence *s, bool ahead, int number)
{
    if (number < 0 || number >= s->ranks) return -1;
    return ahead ? number : s->ranks - 1 - number;
}

/* The messages of recurrences go from one rank to the next, each after that rank has computed. */
static bool receive(struct llm_ctx *c, bool ahead, float *in, int64_t n)
{
    LLM_PROFILE("sequence: waiting", 0);
    const struct llm_sequence *s = c->sequence;
    const int number = number_of(s, ahead);
    if (llm_ctx_failed(c)) return false;
    memset(in, 0, (size_t)n * sizeof *in);
    for (int i = 1; i <= number; i++) { /* message i is from number i - 1 to number i */
        if (!pass_on(c, -1, NULL, i == number ? rank_of(s, ahead, i - 1) : -1, in, n)) return false;
    }
    return true;
}

static bool send_on(struct llm_ctx *c, bool ahead, const float *out, int64_t n)
{
    LLM_PROFILE("sequence: sending", 0);
    const struct llm_sequence *s = c->sequence;
    const int number = number_of(s, ahead);
    if (llm_ctx_failed(c)) return false;
    for (int i = number + 1; i < s->ranks; i++) {
        if (!pass_on(c, i == number + 1 ? rank_of(s, ahead, i) : -1, out, -1, NULL, n)) return false;
    }
    return true;
}

bool llm_sequence_shift(struct llm_ctx *c, bool ahead, const float *out, float *in, int64_t n)
{
    LLM_PROFILE("sequence: neighbours", 0);
    const struct llm_sequence *s = c->sequence;
    const int number = number_of(s, ahead);
    if (llm_ctx_failed(c)) return false;
    memset(in, 0, (size_t)n * sizeof *in);
    return pass_on(c, rank_of(s, ahead, number + 1), out, rank_of(s, ahead, number - 1), in, n);
}

bool llm_sequence_receive_states(struct llm_ctx *c, struct llm_sequence_states *s, struct llm_segment *segments, int64_t n_segments, int64_t tokens,
                                 int64_t state)
{
    const int64_t all = c->n_rows * state, row_len = llm_row_len(c, tokens);
    *s = (struct llm_sequence_states){.state = state};
    if (!llm_sequence_is_divided(c)) return !llm_ctx_failed(c);
    float *arrived = llm_op_alloc(c, 2 * all, sizeof *arrived);
    if (!arrived || !receive(c, true, arrived, all)) return false;
    s->final = arrived + all;
    memset(s->final, 0, (size_t)all * sizeof *s->final);
    for (int64_t i = 0; i < n_segments; i++) {
        struct llm_segment *g = &segments[i];
        if (g->enters) g->from = arrived + g->first / row_len * state;
        if (g->follows > 0) g->to = s->final + g->first / row_len * state;
    }
    return true;
}

bool llm_sequence_send_states(struct llm_ctx *c, const struct llm_sequence_states *s)
{
    return !s->final || send_on(c, true, s->final, c->n_rows * s->state);
}

bool llm_sequence_inputs(struct llm_ctx *c, struct llm_segment *segments, int64_t n_segments, const struct llm_tensor *x, int64_t n)
{
    const int64_t row_len = llm_row_len(c, x->rows), state = n * x->cols, all = c->n_rows * state;
    float *in = llm_op_alloc(c, 2 * all, sizeof *in), *out = in + all;
    if (!in) return false;
    memset(out, 0, (size_t)all * sizeof *out);
    for (int64_t i = 0; i < n_segments; i++) {
        const struct llm_segment *s = &segments[i];
        float *to = out + s->first / row_len * state;
        for (int64_t j = n < s->n ? 0 : n - s->n; s->follows > 0 && j < n; j++) {
            memcpy(to + j * x->cols, x->data + (s->first + s->n + j - n) * x->stride, (size_t)x->cols * sizeof *to);
        }
    }
    if (!llm_sequence_shift(c, true, out, in, all)) return false;
    for (int64_t i = 0; i < n_segments; i++) {
        if (segments[i].enters) segments[i].from = in + segments[i].first / row_len * state;
    }
    return true;
}

bool llm_sequence_receive_gradients(struct llm_ctx *c, struct llm_state_grads *g, int64_t tokens, int64_t state)
{
    const int64_t all = c->n_rows * state;
    *g = (struct llm_state_grads){.state = state, .row_len = llm_row_len(c, tokens)};
    if (!llm_sequence_is_divided(c)) return !llm_ctx_failed(c);
    float *arrived = llm_op_alloc(c, 2 * all, sizeof *arrived);
    if (!arrived || !receive(c, false, arrived, all)) return false;
    g->arrived = arrived;
    g->sent = arrived + all;
    memset(g->sent, 0, (size_t)all * sizeof *g->sent);
    return true;
}

bool llm_sequence_send_gradients(struct llm_ctx *c, const struct llm_state_grads *g)
{
    return !g->arrived || send_on(c, false, g->sent, c->n_rows * g->state);
}

/* ---- tokens of all heads to heads of all tokens ---- */

static void to_heads_backward(struct llm_ctx *c, struct llm_node *n)
{
    struct move m = move_of(c, n->in[0]->rows);
    struct llm_grad g;
    m.heads = gradient_of(n->out);
    for (m.n = 0; m.n < MOST; m.n++) {
        struct llm_tensor *x = n->in[m.n];
        float *unused = NULL;
        if (llm_grad_open(c, x, &g)) m.tokens[m.n] = (struct side){g.p, g.stride, x->cols, g.add};
        else if ((unused = llm_op_alloc(c, x->rows * x->cols, sizeof *unused))) m.tokens[m.n] = (struct side){unused, x->cols, x->cols, false};
    }
    if (!llm_ctx_failed(c)) (void)exchange(c, &m, false); /* a failure is in c->err */
}

/* q, k and v of this rank's tokens to [all tokens, those of its heads]. */
static struct llm_tensor *to_heads(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v)
{
    struct llm_node n = {.backward = to_heads_backward, .mark = llm_arena_mark(&c->acts), .in = {q, k, v}};
    struct move m = move_of(c, q->rows);
    n.out = llm_tensor_create(c, q->rows * m.ranks, (q->cols + k->cols + v->cols) / m.ranks);
    const size_t scratch = llm_arena_mark(&c->acts);
    m.heads = side_of(n.out);
    for (m.n = 0; m.n < MOST; m.n++) m.tokens[m.n] = side_of(n.in[m.n]);
    if (llm_ctx_failed(c) || !exchange(c, &m, true)) return &c->nothing;
    llm_arena_pop(&c->acts, scratch);
    return llm_record(c, &n, NULL, 0);
}

/* ---- and back ---- */

static void to_tokens_backward(struct llm_ctx *c, struct llm_node *n)
{
    struct move m = move_of(c, n->out->rows);
    struct llm_grad g;
    m.n = 1;
    m.tokens[0] = gradient_of(n->out);
    if (!llm_grad_open(c, n->in[0], &g)) return; /* on all ranks alike, but for failures */
    m.heads = (struct side){g.p, g.stride, n->in[0]->cols, g.add};
    (void)exchange(c, &m, true); /* a failure is in c->err */
}

static struct llm_tensor *to_tokens(struct llm_ctx *c, struct llm_tensor *x)
{
    const int ranks = c->sequence->ranks;
    struct llm_node n = {.backward = to_tokens_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows / ranks, x->cols * ranks);
    const size_t scratch = llm_arena_mark(&c->acts);
    struct move m = move_of(c, n.out->rows);
    m.n = 1;
    m.tokens[0] = side_of(n.out);
    m.heads = side_of(x);
    if (llm_ctx_failed(c) || !exchange(c, &m, false)) return &c->nothing;
    llm_arena_pop(&c->acts, scratch);
    n.out->spare = true;
    return llm_record(c, &n, NULL, 0);
}

static void copy_heads(struct llm_ctx *c, struct llm_attn *a, int64_t copies, struct llm_tensor **k, struct llm_tensor **v)
{
    if (copies == 1) return;
    *k = llm_heads_repeat(c, *k, a->n_kv_heads, copies);
    *v = llm_heads_repeat(c, *v, a->n_kv_heads, copies);
    a->n_kv_heads *= copies;
}

struct llm_tensor *llm_attention_of_parts(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                          const struct llm_attn *a)
{
    const struct llm_sequence *s = c->sequence;
    if (!s || llm_ctx_failed(c)) return llm_attention(c, q, k, v, a, NULL);
    const int64_t copies = llm_sequence_copies(a->n_heads, a->n_kv_heads, s->parts * s->ranks);
    struct llm_attn own = *a;
    bool copied = a->n_kv_heads % s->ranks != 0; /* else each rank copies those that it gets */
    if (copied) copy_heads(c, &own, copies, &k, &v);
    if (s->ranks == 1) {
        copy_heads(c, &own, copies, &k, &v);
        return llm_ctx_failed(c) ? &c->nothing : llm_attention(c, q, k, v, &own, NULL);
    }
    if (llm_ctx_failed(c)) return &c->nothing;
    const int64_t n_q = q->cols / s->ranks, n_k = k->cols / s->ranks, n_v = v->cols / s->ranks;
    own.n_heads /= s->ranks;
    own.n_kv_heads /= s->ranks;
    own.first_head += s->rank * own.n_heads;
    c->to_panels = false; /* the exchange reads floats */
    struct llm_tensor *all = to_heads(c, q, k, v);
    if (llm_ctx_failed(c)) return &c->nothing;
    q = llm_columns(c, all, 0, n_q);
    k = llm_columns(c, all, n_q, n_k);
    v = llm_columns(c, all, n_q + n_k, n_v);
    if (!copied) copy_heads(c, &own, copies, &k, &v);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_tensor *y = llm_attention(c, q, k, v, &own, NULL);
    return llm_ctx_failed(c) ? &c->nothing : to_tokens(c, y);
}
