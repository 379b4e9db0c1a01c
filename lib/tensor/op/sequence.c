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

/* How ranks divide attention: `sets` of heads, each of which is of `members` ranks that follow one another. Each member has all tokens of its heads
 * when they arrive, and sends what it owns of the result. */
struct division {
    int sets;
    struct llm_attn_members members;
    /* With several members, else NULL: a rank's tokens in the order of their owners, in which messages have them. place [ranks, tokens of a rank] of
     * each token in it; first [ranks, members + 1] of each owner's. */
    int32_t *place;
    int64_t *first;
};

/* An exchange between the ranks' tokens of all heads, `tokens` [rows · own], and all tokens of a rank's heads, `heads` [rows · own · ranks], whose
 * columns are those of the rank's heads in each matrix of `tokens`, one after the other. */
struct move {
    struct side tokens[MOST], heads;
    const struct division *d;
    int n, ranks, rank;
    int64_t own;              /* tokens of a row that a rank has */
    int64_t rows;             /* tokens of a rank */
    float *mine, *theirs;     /* messages: [sets][rows, heads.cols] by the heads, [ranks][rows, heads.cols] by the rank whose tokens they are of */
};

/* Where a message has token t of rank q. */
static int64_t place_of(const struct move *m, int q, int64_t t) { return m->d->place ? m->d->place[q * m->rows + t] : t; }
/* The first of the tokens of rank q that member i of each set of heads owns; i = members: where the last member's end. */
static int64_t first_of(const struct move *m, int q, int i) { return m->d->first ? m->d->first[q * (m->d->members.n + 1) + i] : i * m->rows; }
/* The number of token t of rank q among all tokens. */
static int64_t number_in_all(const struct move *m, int q, int64_t t) { return t / m->own * m->own * m->ranks + q * m->own + t % m->own; }

static void put(float *to, const float *from, int64_t n, bool add)
{
    if (add) llm_k.elementwise.add(to, to, from, (size_t)n);
    else memcpy(to, from, (size_t)n * sizeof *to);
}

/* Token t of this rank's to or from the messages of each set of heads. */
static void token_rows(const struct move *m, int64_t t, bool out)
{
    const int sets = m->d->sets;
    for (int set = 0; set < sets; set++) {
        float *message = m->mine + (set * m->rows + place_of(m, m->rank, t)) * m->heads.cols;
        for (int i = 0; i < m->n; message += m->tokens[i++].cols / sets) {
            const int64_t cols = m->tokens[i].cols / sets;
            float *x = m->tokens[i].p + t * m->tokens[i].stride + set * cols;
            if (out) memcpy(message, x, (size_t)cols * sizeof *x);
            else put(x, message, cols, m->tokens[i].add);
        }
    }
}

/* Token i % rows of rank i / rows in the messages by rank, and in the matrix of this rank's heads. */
static float *in_message(const struct move *m, int64_t i)
{
    const int64_t q = i / m->rows;
    return m->theirs + (q * m->rows + place_of(m, (int)q, i % m->rows)) * m->heads.cols;
}
static float *in_heads(const struct move *m, int64_t i)
{
    return m->heads.p + number_in_all(m, (int)(i / m->rows), i % m->rows) * m->heads.stride;
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
    const struct llm_attn_members *of = &m->d->members;
    for (int64_t i = from; i < to; i++) {
        if (of->n > 1 && of->owner[number_in_all(m, (int)(i / m->rows), i % m->rows)] != of->member) continue;
        memcpy(in_message(m, i), in_heads(m, i), (size_t)m->heads.cols * sizeof *m->theirs);
    }
}

static void unpack_heads(void *arg, int64_t from, int64_t to, int thread)
{
    const struct move *m = arg;
    (void)thread;
    for (int64_t i = from; i < to; i++) put(in_heads(m, i), in_message(m, i), m->heads.cols, m->heads.add);
}

/* Sends all tokens to the ranks of their heads, or, from the owner of each, back. Scratch memory stays on `acts`. False after a failure. */
static bool exchange(struct llm_ctx *c, struct move *m, bool to_heads)
{
    LLM_PROFILE("sequence: exchange", 0);
    const int64_t cols = m->heads.cols, wide = m->d->sets * cols;
    const int members = m->d->members.n, member = m->d->members.member;
    void *mine[LLM_MAX_PARTS_OF_ROW], *theirs[LLM_MAX_PARTS_OF_ROW];
    size_t mine_bytes[LLM_MAX_PARTS_OF_ROW], their_bytes[LLM_MAX_PARTS_OF_ROW];
    m->mine = llm_op_alloc(c, (m->d->sets + m->ranks) * m->rows * cols, sizeof *m->mine);
    if (!m->mine) return false;
    m->theirs = m->mine + m->d->sets * m->rows * cols;
    for (int q = 0; q < m->ranks; q++) {
        const int set = q / members, of = q % members;
        const int64_t my_first = to_heads ? 0 : first_of(m, m->rank, of), my_end = to_heads ? m->rows : first_of(m, m->rank, of + 1);
        const int64_t their_first = to_heads ? 0 : first_of(m, q, member), their_end = to_heads ? m->rows : first_of(m, q, member + 1);
        mine[q] = m->mine + (set * m->rows + my_first) * cols;
        mine_bytes[q] = (size_t)((my_end - my_first) * cols) * sizeof *m->mine;
        theirs[q] = m->theirs + (q * m->rows + their_first) * cols;
        their_bytes[q] = (size_t)((their_end - their_first) * cols) * sizeof *m->theirs;
    }
    if (to_heads) llm_for_rows(m->rows, wide, pack_tokens, m);
    else llm_for_rows(m->ranks * m->rows, m->heads.cols, pack_heads, m);
    struct llm_group *g = c->sequence->group;
    const int got = to_heads ? llm_group_exchange(g, mine, mine_bytes, theirs, their_bytes, &c->err)
                             : llm_group_exchange(g, theirs, their_bytes, mine, mine_bytes, &c->err);
    if (got < 0) return false;
    if (to_heads) llm_for_rows(m->ranks * m->rows, m->heads.cols, unpack_heads, m);
    else llm_for_rows(m->rows, wide, unpack_tokens, m);
    return true;
}

static struct move move_of(const struct llm_ctx *c, const struct division *d, int64_t rows)
{
    return (struct move){.d = d, .ranks = c->sequence->ranks, .rank = c->sequence->rank, .rows = rows, .own = llm_row_len(c, rows)};
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
    const struct division *const *d = n->args;
    struct move m = move_of(c, *d, n->in[0]->rows);
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
static struct llm_tensor *to_heads(struct llm_ctx *c, const struct division *d, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v)
{
    struct llm_node n = {.backward = to_heads_backward, .mark = llm_arena_mark(&c->acts), .in = {q, k, v}};
    struct move m = move_of(c, d, q->rows);
    n.out = llm_tensor_create(c, q->rows * m.ranks, (q->cols + k->cols + v->cols) / d->sets);
    const size_t scratch = llm_arena_mark(&c->acts);
    m.heads = side_of(n.out);
    for (m.n = 0; m.n < MOST; m.n++) m.tokens[m.n] = side_of(n.in[m.n]);
    if (llm_ctx_failed(c) || !exchange(c, &m, true)) return &c->nothing;
    llm_arena_pop(&c->acts, scratch);
    return llm_record(c, &n, &d, sizeof d);
}

/* ---- and back ---- */

static void to_tokens_backward(struct llm_ctx *c, struct llm_node *n)
{
    const struct division *const *d = n->args;
    struct move m = move_of(c, *d, n->out->rows);
    struct llm_grad g;
    m.n = 1;
    m.tokens[0] = gradient_of(n->out);
    if (!llm_grad_open(c, n->in[0], &g)) return; /* on all ranks alike, but for failures */
    m.heads = (struct side){g.p, g.stride, n->in[0]->cols, g.add};
    (void)exchange(c, &m, true); /* a failure is in c->err */
}

static struct llm_tensor *to_tokens(struct llm_ctx *c, const struct division *d, struct llm_tensor *x)
{
    struct llm_node n = {.backward = to_tokens_backward, .mark = llm_arena_mark(&c->acts), .in = {x}};
    n.out = llm_tensor_create(c, x->rows / c->sequence->ranks, x->cols * d->sets);
    const size_t scratch = llm_arena_mark(&c->acts);
    struct move m = move_of(c, d, n.out->rows);
    m.n = 1;
    m.tokens[0] = side_of(n.out);
    m.heads = side_of(x);
    if (llm_ctx_failed(c) || !exchange(c, &m, false)) return &c->nothing;
    llm_arena_pop(&c->acts, scratch);
    n.out->spare = true;
    return llm_record(c, &n, &d, sizeof d);
}

/* ---- who does what ---- */

/* Each document's blocks of 64 tokens are cut into twice as many runs as there are members, of which each member has one from the beginning and one
 * from the end (Grattafiori et al. 2024, The Llama 3 herd of models, 3.3.2), since later queries see more keys. Documents begin with one member
 * after another. */
static void set_owners(struct division *d, uint8_t *owner, int64_t rows, int64_t row_len, const int32_t *doc_start)
{
    const int64_t runs = 2 * d->members.n;
    for (int64_t first = 0, end, number = 0; first < rows * row_len; first = end, number++) {
        const int64_t row_end = (first / row_len + 1) * row_len;
        for (end = first + 1; end < row_end && (!doc_start || doc_start[end] != end % row_len); end++) {}
        const int64_t blocks = (end - first + LLM_ATTN_TILE - 1) / LLM_ATTN_TILE;
        for (int64_t t = first; t < end; t++) {
            const int64_t run = (t - first) / LLM_ATTN_TILE * runs / blocks, from_either_end = run < runs - 1 - run ? run : runs - 1 - run;
            owner[t] = (uint8_t)((from_either_end + number) % d->members.n);
        }
    }
}

static void set_places(const struct move *m, const struct division *d)
{
    for (int q = 0; q < m->ranks; q++) {
        int64_t n = 0;
        for (int i = 0; i <= d->members.n; i++) {
            d->first[q * (d->members.n + 1) + i] = n;
            for (int64_t t = 0; t < m->rows && i < d->members.n; t++) {
                if (d->members.owner[number_in_all(m, q, t)] == i) d->place[q * m->rows + t] = (int32_t)n++;
            }
        }
    }
}

/* The division of attention over `rows` tokens of each rank, on `acts`. NULL after a failure. */
static const struct division *divide(struct llm_ctx *c, const struct llm_attn *a, int64_t rows)
{
    const struct llm_sequence *s = c->sequence;
    struct division *d = llm_op_alloc(c, 1, sizeof *d);
    if (!d) return NULL;
    const int sets = (int)llm_common_divisor(a->n_heads, s->ranks), n = s->ranks / sets, member = s->rank % n;
    *d = (struct division){.sets = sets, .members = {.n = n, .member = member, .first = s->rank - member, .group = s->group}};
    if (n == 1) return d;
    uint8_t *owner = llm_op_alloc(c, rows * s->ranks, sizeof *owner);
    d->place = llm_op_alloc(c, rows * s->ranks, sizeof *d->place);
    d->first = llm_op_alloc(c, s->ranks * (n + 1), sizeof *d->first);
    if (llm_ctx_failed(c)) return NULL;
    const struct move m = move_of(c, d, rows);
    set_owners(d, owner, rows / m.own, m.own * m.ranks, a->doc_start);
    d->members.owner = owner;
    set_places(&m, d);
    return d;
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
    if (s->ranks == 1) {
        copy_heads(c, &own, copies, &k, &v);
        return llm_ctx_failed(c) ? &c->nothing : llm_attention(c, q, k, v, &own, NULL);
    }
    const struct division *d = divide(c, a, q->rows);
    if (!d) return &c->nothing;
    const bool copied = a->n_kv_heads % d->sets != 0; /* else each rank copies those that it gets */
    if (copied) copy_heads(c, &own, copies, &k, &v);
    if (llm_ctx_failed(c)) return &c->nothing;
    const int64_t n_q = q->cols / d->sets, n_k = k->cols / d->sets, n_v = v->cols / d->sets;
    own.n_heads /= d->sets;
    own.n_kv_heads /= d->sets;
    own.first_head += s->rank / d->members.n * own.n_heads;
    own.members = d->members.n > 1 ? &d->members : NULL;
    c->to_panels = false; /* the exchange reads floats */
    struct llm_tensor *all = to_heads(c, d, q, k, v);
    if (llm_ctx_failed(c)) return &c->nothing;
    q = llm_columns(c, all, 0, n_q);
    k = llm_columns(c, all, n_q, n_k);
    v = llm_columns(c, all, n_q + n_k, n_v);
    if (!copied) copy_heads(c, &own, copies, &k, &v);
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_tensor *y = llm_attention(c, q, k, v, &own, NULL);
    return llm_ctx_failed(c) ? &c->nothing : to_tokens(c, d, y);
}
