/* Gradients on their way to their owners, and their sums (train/share.h). A rank sends its nodes of the tree from where they lie; what arrives waits
 * in one of a few slots until all of it is there, and is then added in the order of the tree. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "tensor/experts.h"
#include "train/share_internal.h"

/* The nodes that rank q has of what has these copies: [first, end) of all. Of an expert that ranks divide, those of its group. */
static void nodes_of(const struct llm_share *s, enum llm_share_copies copies, int q, size_t *first, size_t *end)
{
    const int members = copies == LLM_SHARE_EXPERT ? s->ep : 1, d = q / s->lanes / members * members;
    *first = s->first_node[d];
    *end = s->first_node[d + members];
}

/* Shards of replica d. With zero 2 and 3 its nodes are these by the first part of the rows, then by the next one. */
static int64_t shards_of(const struct llm_share *s, int d) { return (int64_t)(s->first_node[d + 1] - s->first_node[d]) / s->parts; }

/* With zero 2 and 3: the replica whose gradient is node k of those that rank q sends in a round; -1 if k is not less than their number. A rank sends
 * one node for each part of the rows; of an expert, so many for each replica of its group. */
static int replica_of(const struct llm_share *s, enum llm_share_copies copies, int q, int64_t round, size_t k)
{
    const int members = copies == LLM_SHARE_EXPERT ? s->ep : 1, first = q / s->lanes / members * members;
    for (int d = first; d < first + members; d++) {
        if (round >= shards_of(s, d)) continue;
        if (k < (size_t)s->parts) return d;
        k -= (size_t)s->parts;
    }
    return -1;
}

/* The nodes that rank q sends in a round: in the first all of them, or those of the shards with the number `round`. */
static size_t sends(const struct llm_share *s, const struct llm_share_unit *u, int q, int64_t round)
{
    size_t first, end, n = 0;
    nodes_of(s, u->copies, q, &first, &end);
    while (s->zero >= 2 && replica_of(s, u->copies, q, round, n) >= 0) n++;
    return s->zero < 2 ? end - first : n;
}

static size_t own_nodes(const struct llm_share *s)
{
    return s->first_node[s->replica + 1] - s->first_node[s->replica];
}

/* The gradient of an expert in node number i of the rank's group: without parts, each member's last one lies in a gradient, those before it in
 * buffers. With zero 2 and 3: number i of the round at hand. */
static float *expert_node_at(const struct llm_share *s, size_t param, size_t i)
{
    const int first = s->replica - s->replica % s->ep;
    int m = 0;
    if (s->zero >= 2) {
        m = replica_of(s, LLM_SHARE_EXPERT, s->rank, s->round, i) - first;
        return llm_expert_grad(s->t[param].p, m * (int)s->parts + (int)(i % (size_t)s->parts));
    }
    i += s->first_node[first];
    while (i >= s->first_node[first + m + 1]) m++;
    if (s->members) return llm_share_node_at(s, param, m, s->members[m].places[i - s->first_node[first + m]]);
    if (i + 1 == s->first_node[first + m + 1]) return llm_expert_grad(s->t[param].p, m);
    return llm_share_member_buffers(s, param, m) + (i - s->first_node[first + m]) * llm_shard_stride(s->t[param].p);
}

/* The gradient of parameter `param` in the rank's own node number i: the last lies in grad, those before it in buffers. With zero 2 and 3, in node
 * number i of the round at hand. */
static float *node_at(const struct llm_share *s, size_t param, size_t i)
{
    const struct llm_trainable *q = &s->t[param];
    if (s->params[param].copies == LLM_SHARE_EXPERT) return expert_node_at(s, param, i);
    if (s->members) return llm_share_node_at(s, param, s->replica % s->ep, s->members[s->replica % s->ep].places[i]);
    if (s->zero >= 2) return q->p->grad + i * llm_shard_stride(q->p);
    return i + 1 == own_nodes(s) ? q->p->grad : q->shards + i * llm_shard_stride(q->p);
}

int llm_share_exchange_init(struct llm_share *s, struct llm_err *e)
{
    const size_t nodes = s->zero < 2 ? s->n_nodes - own_nodes(s) : (size_t)((s->dp - 1) * s->parts);
    size_t n = 0;
    for (size_t u = 0; u < s->n_units; u++) {
        struct llm_share_unit *x = &s->units[u];
        x->halves = llm_share_halves(s, x);
        const size_t staged = x->halves ? llm_share_halving_floats(s, x) : nodes * x->own;
        n = staged > n ? staged : n;
        if (s->rounds == 1 || x->own == 0) continue;
        if (!(x->kept = llm_alloc_huge(s->n_nodes * x->own, sizeof *x->kept, "gradients of shards", e))) return -1;
    }
    s->n_slots = s->zero < 2 ? LLM_SHARE_SLOTS : LLM_SHARE_FEW_SLOTS;
    for (size_t i = 0; i < s->n_slots; i++) {
        if (n > 0 && !(s->slots[i].p = llm_alloc_huge(n, sizeof *s->slots[i].p, "messages", e))) return -1;
    }
    return 0;
}

/* ---- a unit ---- */

static int post_receives(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    const struct llm_transfers list = {&u->transfers, &u->n_transfers, &u->room};
    float *to = u->staging;
    const struct llm_share_peers peers = llm_share_peers(s, u);
    for (int q = peers.first; q < s->n; q += peers.step) {
        for (size_t k = 0; q != s->rank && k < sends(s, u, q, s->round); k++) {
            struct llm_share_run r;
            for (size_t at = u->first; llm_share_next_run(s, u, s->rank, &at, &r); to += r.n) {
                if (llm_share_post(s->exchange, &list, q, to, r.n * sizeof *to, true, e) < 0) return -1;
            }
        }
    }
    return 0;
}

static int post_sends(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    const struct llm_transfers list = {&u->transfers, &u->n_transfers, &u->room};
    const int step = llm_share_peers(s, u).step;
    for (int d = 1; d < s->n / step; d++) { /* each rank begins with its neighbour, so that no rank is met by all at once */
        const int q = (s->rank + d * step) % s->n;
        for (size_t k = 0; k < sends(s, u, s->rank, s->round); k++) {
            struct llm_share_run r;
            for (size_t at = u->first; llm_share_next_run(s, u, q, &at, &r);) {
                if (llm_share_post(s->exchange, &list, q, node_at(s, r.param, k) + r.from, r.n * sizeof(float), false, e) < 0) return -1;
            }
        }
    }
    return 0;
}

/* One of the rank's cells of a unit: `at` is its place among them, `stride` the elements of a node. */
struct sum { const struct llm_share *s; const struct llm_share_unit *u; };

static const struct llm_share_cell *own_cell(const struct sum *w, size_t i, size_t *at)
{
    const struct llm_share *s = w->s;
    *at = 0;
    for (size_t k = w->u->first;; k++) {
        const struct llm_share_cell *c = &s->cells[s->listed[k]];
        if (llm_share_owner(s, c) != s->rank) continue;
        if (i-- == 0) return c;
        *at += c->n;
    }
}

static size_t own_cells(const struct sum *w)
{
    size_t n = 0;
    for (size_t k = w->u->first; k < w->u->end; k++) n += llm_share_owner(w->s, &w->s->cells[w->s->listed[k]]) == w->s->rank;
    return n;
}

/* Node k of all, of a cell: the rank's own, one that has arrived, or one that is kept. */
static float *source(const struct sum *w, const struct llm_share_cell *c, size_t at, size_t k)
{
    const struct llm_share *s = w->s;
    size_t first, end;
    nodes_of(s, w->u->copies, s->rank, &first, &end);
    if (w->u->kept) return w->u->kept + k * w->u->own + at;
    if (k >= first && k < end) return node_at(s, c->param, k - first) + c->from;
    return w->u->staging + (k < first ? k : k - (end - first)) * w->u->own + at;
}

/* Adds the nodes of all ranks, one cell, in the order of the tree. */
static void add_cell(void *arg, size_t i, int thread)
{
    const struct sum *w = arg;
    const struct llm_share *s = w->s;
    size_t at, depth = 0;
    const struct llm_share_cell *c = own_cell(w, i, &at);
    struct { struct llm_tree_node node; float *x; } stack[80]; /* each at most half of the one before it, but for roots, which join at once */
    (void)thread;
    const int64_t terms = s->run.n * s->cp * s->parts;
    for (size_t k = 0; k < s->n_nodes; k++) {
        stack[depth].x = source(w, c, at, s->order[k]);
        stack[depth++].node = s->nodes[s->order[k]];
        while (depth > 1 && llm_tree_joins(stack[depth - 2].node, stack[depth - 1].node, terms)) {
            llm_k.elementwise.add(stack[depth - 2].x, stack[depth - 2].x, stack[depth - 1].x, c->n);
            stack[depth - 2].node.end = stack[depth - 1].node.end;
            depth--;
        }
    }
    const struct llm_trainable *q = &s->t[c->param];
    float *grad = s->zero > 0 ? llm_trainable_grad(q) + (c->from - q->own_from) : q->p->grad + c->from;
    if (stack[0].x != grad) memcpy(grad, stack[0].x, c->n * sizeof *grad);
}

/* Keeps what has arrived in a round, and the rank's own shards of it. */
static void keep_round(struct llm_share *s, struct llm_share_unit *u)
{
    const struct llm_share_peers peers = llm_share_peers(s, u);
    const float *x = u->staging;
    for (int q = peers.first; q < s->n; q += peers.step) {
        for (size_t k = 0; k < sends(s, u, q, s->round); k++) {
            const int d = replica_of(s, u->copies, q, s->round, k);
            float *to = u->kept + (s->first_node[d] + k % (size_t)s->parts * (size_t)shards_of(s, d) + (size_t)s->round) * u->own;
            if (q != s->rank) {
                memcpy(to, x, u->own * sizeof *to);
                x += u->own;
                continue;
            }
            struct llm_share_run r;
            for (size_t at = u->first; llm_share_next_run(s, u, q, &at, &r); to += r.n) {
                memcpy(to, node_at(s, r.param, k) + r.from, r.n * sizeof *to);
            }
        }
    }
}

static int finish_unit(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    if (!u->begun) return 0;
    if (!u->arrived && u->halves) {
        if (llm_share_finish_halving(s, u, e) < 0) return -1;
    } else if (!u->arrived) {
        u->arrived = true; /* llm_share_poll, which waits may call, leaves it alone */
        if (llm_share_wait(s, s->exchange, u->transfers, u->n_transfers, e) < 0) return -1;
        llm_share_count(s, -1);
    }
    u->begun = u->arrived = false;
    for (size_t i = 0; i < s->n_slots; i++) {
        if (s->slots[i].user == u) s->slots[i].user = NULL;
    }
    if (u->halves) return 0;
    if (u->kept) keep_round(s, u);
    struct sum w = {s, u};
    if (!u->kept || s->round == s->rounds - 1) llm_parallel(own_cells(&w), add_cell, &w);
    return 0;
}

static int begin_unit(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    struct llm_share_slot *slot = &s->slots[s->next_slot++ % s->n_slots];
    if (slot->user && finish_unit(s, slot->user, e) < 0) return -1;
    slot->user = u;
    u->staging = slot->p;
    u->n_transfers = 0;
    u->begun = true;
    u->arrived = false;
    llm_share_count(s, 1);
    if (u->halves) return llm_share_begin_halving(s, u, e);
    return post_receives(s, u, e) < 0 || post_sends(s, u, e) < 0 ? -1 : 0;
}

int llm_share_send_group(struct llm_share *s, int64_t group, struct llm_err *e)
{
    for (size_t u = 0; u < s->n_units; u++) {
        const struct llm_share_peers peers = llm_share_peers(s, &s->units[u]);
        if (s->units[u].group == group && s->rank % peers.step == peers.first && begin_unit(s, &s->units[u], e) < 0) return -1;
    }
    return 0;
}

int llm_share_finish_group(struct llm_share *s, int64_t group, struct llm_err *e)
{
    for (size_t u = 0; u < s->n_units; u++) {
        if (s->units[u].group == group && finish_unit(s, &s->units[u], e) < 0) return -1;
    }
    return 0;
}
