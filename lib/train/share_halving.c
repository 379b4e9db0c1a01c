/* The exchanges of many ranks (train/share.h) in log2 R stages, in each of which a rank has one partner: R. Thakur, R. Rabenseifner, W. Gropp,
 * "Optimization of collective communication operations in MPICH", 2005. Gradients: before stage k a rank has the sums of 2^k ranks, a node of the
 * tree, of the elements of those owners whose number agrees with its own in the last k bits. It sends half of them to the rank that differs from it
 * in bit k, and adds what that rank has of the other half: siblings of the tree. Weights go the other way: before stage k a rank has those of 2^k
 * owners, which it sends to one with those of 2^k others. A rank sends as many bytes of gradients as it would to all owners, but log2 R messages.
 *
 * What two ranks send each other must have one order. So an exchange begins a stage when all that have begun before it have come as far. */
#include "cpu/kernels.h"
#include "cpu/optim.h"
#include "cpu/pool.h"
#include "train/share_internal.h"

bool llm_share_halves(const struct llm_share *s, const struct llm_share_unit *u)
{
    return s->halves_nodes && u->copies != LLM_SHARE_EXPERT;
}

bool llm_share_doubles(const struct llm_share *s, const struct llm_share_unit *u)
{
    return s->n_stages > 0 && u->copies != LLM_SHARE_EXPERT && u->copies != LLM_SHARE_TIED && llm_share_keeps(s, u, s->rank);
}

/* Owners whose number agrees with `of` in the bits of `mask`. */
struct owners { int of, mask; };

/* The next run in a unit that one of these owns, as llm_share_next_run. */
static bool next_run(const struct llm_share *s, const struct llm_share_unit *u, struct owners w, size_t *at, struct llm_share_run *run)
{
    for (; *at < u->end; ++*at) {
        const int owner = llm_share_owner(s, &s->cells[s->listed[*at]]);
        if (((owner / s->lanes) ^ w.of) & w.mask) continue;
        return llm_share_next_run(s, u, owner, at, run);
    }
    return false;
}

/* The rank of replica d in this one's lane of a unit. */
static int rank_of(const struct llm_share *s, const struct llm_share_unit *u, int d)
{
    return llm_share_peers(s, u).first + d * s->lanes;
}

/* ---- gradients ---- */

size_t llm_share_halving_floats(const struct llm_share *s, const struct llm_share_unit *u)
{
    size_t n = 0;
    struct llm_share_run r;
    for (size_t at = u->first; next_run(s, u, (struct owners){s->replica, 1}, &at, &r);) n += r.n;
    return n;
}

static struct owners kept_after(const struct llm_share *s, int stage) { return (struct owners){s->replica, (2 << stage) - 1}; }

static int post_half(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    const struct llm_transfers list = {&u->transfers, &u->n_transfers, &u->room};
    const int partner = s->replica ^ 1 << u->stage, peer = rank_of(s, u, partner);
    const struct owners mine = kept_after(s, u->stage), theirs = {partner, mine.mask};
    struct llm_share_run r;
    float *to = u->staging;
    u->n_transfers = 0;
    for (size_t at = u->first; next_run(s, u, mine, &at, &r); to += r.n) {
        if (llm_share_post(s->halving, &list, peer, to, r.n * sizeof *to, true, e) < 0) return -1;
    }
    for (size_t at = u->first; next_run(s, u, theirs, &at, &r);) {
        if (llm_share_post(s->halving, &list, peer, s->t[r.param].p->grad + r.from, r.n * sizeof(float), false, e) < 0) return -1;
    }
    u->waits = true;
    return 0;
}

struct sum { float *to; const float *x; size_t n; };

static void add_block(void *arg, size_t i, int thread)
{
    const struct sum *w = arg;
    const size_t at = i * LLM_OPTIM_BLOCK, n = w->n - at < LLM_OPTIM_BLOCK ? w->n - at : LLM_OPTIM_BLOCK;
    (void)thread;
    llm_k.elementwise.add(w->to + at, w->to + at, w->x + at, n);
}

/* Adds what has arrived in a stage. */
static void add_half(struct llm_share *s, struct llm_share_unit *u)
{
    struct llm_share_run r;
    const float *x = u->staging;
    for (size_t at = u->first; next_run(s, u, kept_after(s, u->stage), &at, &r); x += r.n) {
        struct sum w = {s->t[r.param].p->grad + r.from, x, r.n};
        llm_parallel((r.n + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK, add_block, &w);
    }
    u->waits = false;
    u->stage++;
}

static bool is_halving(const struct llm_share_unit *u) { return u->begun && u->halves && !u->arrived; }

/* The one of the units under way that has begun first. */
static struct llm_share_unit *first_halving(struct llm_share *s)
{
    struct llm_share_unit *first = NULL;
    for (size_t i = 0; i < s->n_units; i++) {
        struct llm_share_unit *u = &s->units[i];
        if (is_halving(u) && (!first || u->turn < first->turn)) first = u;
    }
    return first;
}

static bool may_halve(const struct llm_share *s, const struct llm_share_unit *u)
{
    for (size_t i = 0; i < s->n_units; i++) {
        const struct llm_share_unit *v = &s->units[i];
        if (is_halving(v) && v->turn < u->turn && v->stage + v->waits <= u->stage) return false;
    }
    return true;
}

/* What has arrived, of a unit under way, is added, and the next stage begins. 0 or -1. */
static int halve(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    if (u->waits) {
        const int got = llm_comm_test(s->halving, u->transfers, u->n_transfers, e);
        if (got != 1) return got;
        add_half(s, u);
    }
    if (u->stage < s->n_stages) return may_halve(s, u) ? post_half(s, u, e) : 0;
    u->arrived = true;
    llm_share_count(s, -1);
    return 0;
}

int llm_share_begin_halving(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    u->stage = 0;
    u->turn = s->turn++;
    u->waits = false;
    return post_half(s, u, e);
}

int llm_share_poll_halving(struct llm_share *s, struct llm_err *e)
{
    for (size_t i = 0; i < s->n_units; i++) {
        if (is_halving(&s->units[i]) && halve(s, &s->units[i], e) < 0) return -1;
    }
    return 0;
}

int llm_share_finish_halving(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    const bool polls = s->polls;
    int got = 0;
    s->polls = true;
    while (got == 0 && !u->arrived) {
        struct llm_share_unit *v = first_halving(s);
        if (v->waits) got = llm_share_wait(s, s->halving, v->transfers, v->n_transfers, e);
        if (got == 0) got = llm_share_poll_halving(s, e);
    }
    s->polls = polls;
    return got;
}

/* ---- what owners have ---- */

struct llm_share_double llm_share_double(const struct llm_share *s, const struct llm_share_unit *u, int stage)
{
    const int partner = s->replica ^ s->dp >> (stage + 1);
    return (struct llm_share_double){rank_of(s, u, partner), partner, (s->dp >> stage) - 1};
}

bool llm_share_next_sent(const struct llm_share *s, const struct llm_share_unit *u, struct llm_share_double w, size_t *at, struct llm_share_run *r)
{
    return next_run(s, u, (struct owners){s->replica, w.mask}, at, r);
}

bool llm_share_next_received(const struct llm_share *s, const struct llm_share_unit *u, struct llm_share_double w, size_t *at,
                             struct llm_share_run *r)
{
    return next_run(s, u, (struct owners){w.partner, w.mask}, at, r);
}
