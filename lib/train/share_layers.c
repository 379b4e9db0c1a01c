/* What happens between the layers of a rank's passes (train/share.h). A pass is a sequence of positions, the same on all ranks: groups of layers are
 * entered from the first to the last, then left from the last to the first. At each position the same messages begin and end, so that the ranks'
 * messages fit together. A rank whose pass fails, or that has no shard left, goes through the remaining positions without computing. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "train/share_internal.h"

bool llm_share_pools_gradient(const struct llm_share *s, size_t i)
{
    return s->zero >= 2 && s->params[i].group < s->n_groups;
}

bool llm_share_pools_weights(const struct llm_share *s, size_t i)
{
    return s->zero >= 3 && s->params[i].group < s->n_groups;
}

bool llm_share_collects(const struct llm_share *s, size_t i)
{
    return llm_share_pools_weights(s, i) || s->params[i].home != 0;
}

bool llm_share_divides_masters(const struct llm_share *s)
{
    return s->rounded || llm_share_scatters(s);
}

bool llm_share_hashes_own(const struct llm_share *s)
{
    return s->together.p || llm_share_divides_masters(s);
}

bool llm_share_scatters(const struct llm_share *s)
{
    return s->zero == 3 || s->lanes > 1 || s->ep > 1;
}

/* ---- memory ---- */

/* Places the parameters of each group in the memory of weights, or of gradients. largest: the floats of the largest group with an even number, and of
 * the largest one with an odd number. */
static void place_groups(struct llm_share *s, bool gradients, size_t *offset, size_t largest[2])
{
    for (int64_t g = 0; g < s->n_groups; g++) {
        size_t at = 0;
        for (size_t i = 0; i < s->n_params; i++) {
            if (s->params[i].group != g || !llm_share_has(s, i)) continue;
            offset[i] = at;
            at += llm_shard_stride(s->t[i].p) * (size_t)(gradients ? llm_share_gradients(s, i) : 1);
        }
        if (at > largest[g % 2]) largest[g % 2] = at;
    }
}

int llm_share_place(struct llm_share *s, size_t i, struct llm_err *e)
{
    struct llm_trainable *q = &s->t[i];
    struct llm_param *p = q->p;
    const int64_t slot = s->params[i].group % 2;
    if (!llm_share_pools_weights(s, i)) llm_share_node_place(s, i);
    if (!llm_share_pools_gradient(s, i)) return 0;
    p->grad = s->gradients[slot] + s->gradient_offset[i];
    q->pooled = true;
    if (q->own_n > 0 && !(q->own_grad = llm_alloc_huge(q->own_n, sizeof *q->own_grad, "gradients", e))) return -1;
    for (size_t k = 0; k < q->own_n; k++) q->own_grad[k] = 0; /* touched now */
    if (!llm_share_pools_weights(s, i)) return 0;
    if (q->own_n > 0 && !(q->own_master = llm_alloc_huge(q->own_n, sizeof *q->own_master, "weights", e))) return -1;
    if (q->own_n > 0) memcpy(q->own_master, p->master + q->own_from, q->own_n * sizeof *q->own_master);
    free((void *)p->weight.data);
    p->owned = false;
    p->master = s->weights[slot] + s->weight_offset[i];
    p->weight.data = p->master;
    return 0;
}

void llm_share_forget_places(struct llm_share *s)
{
    for (size_t i = 0; i < s->n_params; i++) {
        struct llm_param *p = s->t[i].p;
        if (!s->t[i].pooled) continue;
        p->grad = NULL;
        if (s->zero == 3) p->weight.data = p->master = NULL;
    }
    llm_share_node_forget(s);
}

/* ---- weights that other ranks own ---- */

static struct llm_share_brought *brought_of(struct llm_share *s, int64_t group)
{
    return &s->brought[s->zero == 3 && group < s->n_groups ? group % 2 : group];
}

/* A run that comes from rank q. */
static int receive_run(struct llm_share *s, struct llm_comm *c, struct llm_share_brought *b, int q, const struct llm_share_run *r, struct llm_err *e)
{
    const struct llm_transfers list = {&b->transfers, &b->n, &b->room};
    float *to = s->t[r->param].p->master + r->from;
    if (!llm_share_rounded(s, r->param)) return llm_share_post(c, &list, q, to, r->n * sizeof *to, true, e);
    if (llm_share_add_widened(b, to, r->n, e) < 0) return llm_comm_give_up(s->comm);
    return llm_share_post(c, &list, q, llm_share_place_rounded(to, r->n), r->n * sizeof(uint16_t), true, e);
}

/* What this rank owns of a run. */
static float *own_run(const struct llm_share *s, const struct llm_share_run *r)
{
    const struct llm_trainable *t = &s->t[r->param];
    return t->own_master ? t->own_master + (r->from - t->own_from) : t->p->master + r->from;
}

/* It goes to where passes read it. */
static void place_own_run(const struct llm_share *s, const struct llm_share_run *r)
{
    float *to = s->t[r->param].p->master + r->from;
    if (own_run(s, r) != to) memcpy(to, own_run(s, r), r->n * sizeof *to);
}

static size_t bytes_of_run(const struct llm_share *s, const struct llm_share_run *r)
{
    return r->n * (llm_share_rounded(s, r->param) ? sizeof(uint16_t) : sizeof(float));
}

/* A run of a unit that this rank owns. */
static int send_run(struct llm_share *s, const struct llm_share_unit *u, struct llm_share_brought *b, const struct llm_share_run *r,
                    struct llm_err *e)
{
    const struct llm_transfers list = {&b->transfers, &b->n, &b->room};
    void *sent = NULL;
    place_own_run(s, r);
    for (int peer = 1; peer < s->n; peer++) {
        const int k = (s->rank + peer) % s->n;
        if (!llm_share_keeps(s, u, k) || llm_share_near(s, k) || !llm_share_receives(s, k)) continue;
        if (!sent) sent = llm_share_rounded(s, r->param) ? (void *)llm_share_round(b, r, own_run(s, r)) : own_run(s, r);
        if (llm_share_post(s->bring, &list, k, sent, bytes_of_run(s, r), false, e) < 0) return -1;
    }
    return 0;
}

/* Every rank sends what it owns of a unit to all others that compute with it. */
static int bring_unit(struct llm_share *s, const struct llm_share_unit *u, struct llm_share_brought *b, struct llm_err *e)
{
    for (int d = 0; d < s->n && llm_share_keeps(s, u, s->rank); d++) {
        const int q = (s->rank + d) % s->n;
        struct llm_share_run r;
        if (q != s->rank && (llm_share_near(s, q) || !llm_share_receives(s, s->rank))) continue; /* it is there, or comes to another rank */
        for (size_t at = u->first; llm_share_next_run(s, u, q, &at, &r);) {
            if ((q == s->rank ? send_run(s, u, b, &r, e) : receive_run(s, s->bring, b, q, &r, e)) < 0) return -1;
        }
    }
    return 0;
}

/* Where weights are there once: tells the others of the machine that this rank's of the group are, and hears of theirs. */
static int tell_near(struct llm_share *s, struct llm_share_brought *b, struct llm_err *e)
{
    static char said, heard; /* what they hold does not matter */
    const struct llm_transfers list = {&b->transfers, &b->n, &b->room};
    if (!s->together.p) return 0;
    const bool owns = llm_share_owns_of(s, b->group, s->rank);
    for (int q = 0; q < s->n; q++) {
        if (q == s->rank || !llm_share_near(s, q)) continue;
        if (llm_share_owns_of(s, b->group, q) && llm_share_post(s->bring, &list, q, &heard, 1, true, e) < 0) return -1;
        if (owns && llm_share_post(s->bring, &list, q, &said, 1, false, e) < 0) return -1;
    }
    return 0;
}

/* After the weights that other machines own have arrived: the machine's first rank tells the others. */
static int tell_arrived(struct llm_share *s, struct llm_share_brought *b, struct llm_err *e)
{
    static char said, heard;
    const struct llm_transfers list = {&b->transfers, &b->n, &b->room};
    const int first = s->together.node[s->rank];
    b->n = 0;
    b->waits = true;
    if (first != s->rank) return llm_share_post(s->doubling, &list, first, &heard, 1, true, e);
    llm_share_widen(b);
    for (int q = 0; q < s->n; q++) {
        if (q != s->rank && llm_share_near(s, q) && llm_share_post(s->doubling, &list, q, &said, 1, false, e) < 0) return -1;
    }
    return 0;
}

/* A run that this rank has in stage after stage: its own, of which the rounded ones follow one another from *rounded on, or one that has arrived. */
static void *run_at_hand(const struct llm_share *s, const struct llm_share_run *r, uint16_t **rounded)
{
    float *to = s->t[r->param].p->master + r->from;
    if (r->owner != s->rank) return llm_share_rounded(s, r->param) ? llm_share_place_rounded(to, r->n) : to;
    if (!llm_share_rounded(s, r->param)) return own_run(s, r);
    *rounded += r->n;
    return *rounded - r->n;
}

/* The messages of the next stage. */
static int post_stage(struct llm_share *s, struct llm_share_brought *b, struct llm_err *e)
{
    const struct llm_transfers list = {&b->transfers, &b->n, &b->room};
    uint16_t *rounded = b->rounded;
    for (size_t i = 0; i < s->n_units; i++) {
        const struct llm_share_unit *u = &s->units[i];
        struct llm_share_run r;
        if (u->group != b->group || !llm_share_doubles(s, u)) continue;
        const struct llm_share_double w = llm_share_double(s, u, b->stage);
        for (size_t at = u->first; llm_share_next_received(s, u, w, &at, &r);) {
            if (receive_run(s, s->doubling, b, w.peer, &r, e) < 0) return -1;
        }
        for (size_t at = u->first; llm_share_next_sent(s, u, w, &at, &r);) {
            if (llm_share_post(s->doubling, &list, w.peer, run_at_hand(s, &r, &rounded), bytes_of_run(s, &r), false, e) < 0) return -1;
        }
    }
    b->waits = true;
    return 0;
}

static int bring(struct llm_share *s, int64_t group, struct llm_err *e)
{
    struct llm_share_brought *b = brought_of(s, group);
    b->group = group;
    b->arrived = true; /* so that llm_share_poll, which rounding may call, does not test half of the list */
    b->doubles = false;
    b->n = 0;
    b->stage = 0;
    b->turn = s->turn++;
    if (llm_share_make_rounded(s, b, e) < 0) return -1;
    llm_share_count(s, 1);
    for (size_t i = 0; i < s->n_units; i++) {
        const struct llm_share_unit *u = &s->units[i];
        struct llm_share_run r;
        if (u->group != group || !llm_share_doubles(s, u)) continue;
        b->doubles = true;
        for (size_t at = u->first; llm_share_next_run(s, u, s->rank, &at, &r);) {
            place_own_run(s, &r);
            if (llm_share_rounded(s, r.param)) llm_share_round(b, &r, own_run(s, &r));
        }
    }
    for (size_t i = 0; i < s->n_units; i++) {
        const struct llm_share_unit *u = &s->units[i];
        if (u->group == group && !llm_share_doubles(s, u) && bring_unit(s, u, b, e) < 0) return -1;
    }
    if (tell_near(s, b, e) < 0) return -1;
    b->doubles |= s->apart;
    if (post_stage(s, b, e) < 0) return -1;
    b->arrived = false;
    return 0;
}

static bool is_under_way(const struct llm_share_brought *b) { return b->group >= 0 && !b->arrived; }

/* Of the groups under way that travel in stages, the one that has begun first. */
static struct llm_share_brought *first_doubling(struct llm_share *s)
{
    struct llm_share_brought *first = NULL;
    for (int64_t g = 0; g <= s->n_groups; g++) {
        struct llm_share_brought *b = &s->brought[g];
        if (is_under_way(b) && b->doubles && (!first || b->turn < first->turn)) first = b;
    }
    return first;
}

static bool may_double(const struct llm_share *s, const struct llm_share_brought *b)
{
    for (int64_t g = 0; g <= s->n_groups; g++) {
        const struct llm_share_brought *v = &s->brought[g];
        if (is_under_way(v) && v->doubles && v->turn < b->turn && v->stage + v->waits <= b->stage) return false;
    }
    return true;
}

/* Tests the messages of a group under way, and begins its next stage. 0 or -1. */
static int follow(struct llm_share *s, struct llm_share_brought *b, struct llm_err *e)
{
    if (b->waits) {
        const int got = llm_comm_test(s->bring, b->transfers, b->n, e);
        if (got != 1) return got;
        b->waits = false;
        b->stage++;
    }
    if (!b->doubles || b->stage == (s->apart ? 2 : s->n_stages)) {
        b->arrived = true;
        llm_share_count(s, -1);
        return 0;
    }
    if (!may_double(s, b)) return 0;
    if (s->apart) return tell_arrived(s, b, e);
    b->n = 0;
    return post_stage(s, b, e);
}

static int poll_brought(struct llm_share *s, struct llm_err *e)
{
    for (int64_t g = 0; g <= s->n_groups; g++) {
        if (is_under_way(&s->brought[g]) && follow(s, &s->brought[g], e) < 0) return -1;
    }
    return 0;
}

static int arrive(struct llm_share *s, struct llm_share_brought *b, struct llm_err *e)
{
    const bool polls = s->polls;
    int got = 0;
    if (b->group < 0 || (b->arrived && b->n_widened == 0)) return 0;
    LLM_PROFILE("ranks: weights", 0);
    s->polls = true;
    while (got == 0 && !b->arrived) {
        struct llm_share_brought *v = b->doubles ? first_doubling(s) : b;
        if (v->waits) got = llm_share_wait(s, s->bring, v->transfers, v->n, e);
        if (got == 0) got = poll_brought(s, e);
    }
    s->polls = polls;
    if (got == 0) llm_share_widen(b);
    return got;
}

/* Whether the group is one of the rank's stage. */
static bool has_group(const struct llm_share *s, int64_t group)
{
    bool has = false;
    for (int k = s->stage; k < s->pp * s->vp; k += s->pp) {
        has |= group >= llm_share_group(s, s->first_layer[k]) && group < llm_share_group(s, s->first_layer[k + 1]);
    }
    return has;
}

/* The weights of the group are on their way: its memory, which another group leaves, must no longer be read. */
static int prefetch(struct llm_share *s, int64_t group, struct llm_err *e)
{
    if (s->zero < 3 || !has_group(s, group) || brought_of(s, group)->group == group) return 0;
    return arrive(s, brought_of(s, group), e) < 0 ? -1 : bring(s, group, e);
}

static int need(struct llm_share *s, int64_t group, struct llm_err *e)
{
    if (s->zero < 3 || !has_group(s, group)) return 0;
    if (prefetch(s, group, e) < 0) return -1;
    return arrive(s, brought_of(s, group), e);
}

/* ---- weights that all ranks keep, and their owners have changed ---- */

/* Begins the messages of groups, the same on all ranks in the same order: up to `group`, and on to one of which this rank exchanges something. Few
 * are under way at a time, so that those arrive first that are read first. */
static int post_until(struct llm_share *s, int64_t group, struct llm_err *e)
{
    while (s->posted < s->n_groups && (s->posted <= group || s->brought[s->posted - 1].n == 0)) {
        if (bring(s, s->posted++, e) < 0) return -1;
    }
    return 0;
}

int llm_share_changed(struct llm_share *s, struct llm_err *e)
{
    if (!s->comm) return 0;
    for (int64_t g = 0; g <= s->n_groups; g++) s->brought[g].group = -1;
    if (bring(s, s->n_groups, e) < 0) return -1;
    s->posted = s->zero == 3 ? s->n_groups : 0;
    return post_until(s, 0, e);
}

/* A layer of the group is read next, and then one of the group after it. */
static int enter_group(struct llm_share *s, int64_t group, struct llm_err *e)
{
    if (post_until(s, group, e) < 0) return -1;
    for (int64_t g = 0; g <= group && g < s->n_groups; g++) {
        if (arrive(s, &s->brought[g], e) < 0) return -1;
    }
    return post_until(s, group + 1, e);
}

int llm_share_begin_forward(struct llm_share *s, struct llm_err *e)
{
    return s->comm ? arrive(s, &s->brought[s->n_groups], e) : 0;
}

int llm_share_post_weights(struct llm_share *s, struct llm_err *e)
{
    return s->comm ? post_until(s, s->n_groups, e) : 0;
}

int llm_share_wait_weights(struct llm_share *s, struct llm_err *e)
{
    if (!s->comm || llm_comm_broken(s->comm)) return 0; /* a broken communicator is reported by who uses it */
    if (llm_share_post_weights(s, e) < 0) return -1;
    for (int64_t g = s->zero == 3 ? s->n_groups : 0; g <= s->n_groups; g++) {
        if (arrive(s, &s->brought[g], e) < 0) return -1;
    }
    return 0;
}

/* ---- positions of a pass ---- */

static void take_back(struct llm_share *s, size_t i)
{
    if (!s->aside || !s->aside[i]) return;
    s->t[i].p->grad = s->aside[i];
    s->aside[i] = NULL;
}

void llm_share_set_aside(struct llm_share *s)
{
    for (size_t i = 0; s->zero < 2 && i < s->n_params; i++) { /* with zero 2 and 3 the rank sends nothing of what it adds here but experts */
        if (!s->t[i].p->balances) continue;
        s->aside[i] = s->t[i].p->grad;
        s->t[i].p->grad = NULL;
    }
}

void llm_share_take_back(struct llm_share *s)
{
    for (size_t i = 0; i < s->n_params; i++) take_back(s, i);
}

/* The gradients of a group are complete. */
static int leave(struct llm_share *s, int64_t group, struct llm_err *e)
{
    for (size_t i = 0; s->zero < 2 && i < s->n_params; i++) {
        if (s->params[i].group != group) continue;
        take_back(s, i);
        llm_share_end_shard(s, i, s->run.end - 1);
    }
    for (size_t i = 0; s->zero >= 2 && group == s->n_groups && i < s->n_params; i++) {
        if (s->params[i].group == group) llm_share_join_uses(s, i);
    }
    return llm_share_send_group(s, group, e);
}

/* Gradients of a group begin at zero, in memory that the group after the next one has left. */
static int clear(struct llm_share *s, int64_t group, struct llm_err *e)
{
    if (s->zero < 2) return 0;
    if (group + 2 < s->end_group && llm_share_finish_group(s, group + 2, e) < 0) return -1;
    for (size_t i = 0; i < s->n_params; i++) {
        if (s->params[i].group == group && llm_share_has(s, i)) memset(s->t[i].p->grad, 0, llm_share_gradient_floats(s, i) * sizeof(float));
    }
    return 0;
}

/* Groups that a pass goes through. */
static int64_t groups_of_pass(const struct llm_share *s) { return s->end_group - s->first_group; }

/* Of the n groups of a pass, positions 0 to n - 1 enter one in the forward pass. Position n + b of the backward pass leaves group n - b, if b > 0,
 * and enters the one before it, if there is one. */
static int at_position(struct llm_share *s, int64_t position, struct llm_err *e)
{
    const int64_t n = groups_of_pass(s), b = position - n, entered = s->first_group + (b < 0 ? position : n - 1 - b);
    if (b > 0 && leave(s, s->end_group - b, e) < 0) return -1;
    if (entered < s->first_group) return 0;
    if (b > 0 && clear(s, entered, e) < 0) return -1; /* the last group's are clear since the pass began: nothing may follow the layers on the tape */
    const int64_t next = b < 0 ? entered + 1 : entered - 1;
    if (need(s, entered, e) < 0) return -1;
    return next < s->first_group || next >= s->end_group ? 0 : prefetch(s, next, e);
}

static int advance(struct llm_share *s, int64_t end, struct llm_err *e)
{
    while (s->position < end) {
        if (at_position(s, s->position++, e) < 0) return -1;
    }
    return 0;
}

/* The first failure of a message is kept until the ranks agree upon the step. */
static void advance_within(struct llm_share *s, int64_t end, struct llm_ctx *c)
{
    if (s->err.status == 0 && advance(s, end, &s->err) == 0) return;
    if (!llm_ctx_failed(c)) c->err = s->err;
}

static void enter_within(struct llm_share *s, int64_t group, struct llm_ctx *c)
{
    if (s->err.status == 0 && enter_group(s, group, &s->err) == 0) return;
    if (!llm_ctx_failed(c)) c->err = s->err;
}

static void enter(struct llm_between *b, struct llm_ctx *c, int64_t layer)
{
    struct llm_share *s = (struct llm_share *)((char *)b - offsetof(struct llm_share, between));
    if (c->recomputing || s->n_groups == 0) return; /* n_groups is 0 where an adapter is trained */
    if (s->zero < 3) enter_within(s, llm_share_group(s, layer), c);
    else if (b->recorded <= 1) advance_within(s, llm_share_group(s, layer) - s->first_group + 1, c);
}

static void left(struct llm_between *b, struct llm_ctx *c, int64_t layer)
{
    struct llm_share *s = (struct llm_share *)((char *)b - offsetof(struct llm_share, between));
    if (!s->overlap || s->n_groups == 0) return;
    if (layer > 0 && layer < s->n_layers && llm_share_group(s, layer - 1) == llm_share_group(s, layer)) return; /* others of its group are to come */
    if (b->recorded == 1) {
        advance_within(s, groups_of_pass(s) + 1 + (layer == s->n_layers ? 0 : s->end_group - llm_share_group(s, layer)), c);
    } else if (s->zero >= 2 && !llm_ctx_failed(c)) {
        llm_fail(&c->err, EX_UNAVAILABLE, "--shard: zero=%d: expected an objective that runs the model once a pass; zero=1 takes this one", s->zero);
    }
}

/* Evaluation: one group after the other, up to group `end`. */
static int advance_alone(struct llm_share *s, int64_t end, struct llm_err *e)
{
    for (; s->eval_position < end; s->eval_position++) {
        if (need(s, s->eval_position, e) < 0 || prefetch(s, s->eval_position + 1, e) < 0) return -1;
    }
    return 0;
}

static void enter_alone(struct llm_between *b, struct llm_ctx *c, int64_t layer)
{
    struct llm_share *s = (struct llm_share *)((char *)b - offsetof(struct llm_share, eval_between));
    const int64_t group = llm_share_group(s, layer);
    if (s->zero < 3 || s->n_groups == 0 || s->err.status != 0) return;
    if (group + 1 < s->eval_position) s->eval_position = group; /* the model is run once more */
    if (advance_alone(s, group + 1, &s->err) == 0) return;
    if (!llm_ctx_failed(c)) c->err = s->err;
}

static void left_alone(struct llm_between *b, struct llm_ctx *c, int64_t layer)
{
    (void)b, (void)c, (void)layer;
}

void llm_share_begin_eval(struct llm_share *s)
{
    s->eval_position = 0;
}

int llm_share_end_eval(struct llm_share *s, struct llm_err *e)
{
    return s->zero < 3 ? 0 : advance_alone(s, s->n_groups, e);
}

/* ---- a step ---- */

void llm_share_begin(struct llm_share *s, int64_t shard, bool last)
{
    s->overlap = s->comm && !s->int8 && last && (s->zero >= 2 || shard == s->run.end - 1);
    s->between.recorded = 0;
    if (s->zero < 2 || s->err.status != 0 || s->n_groups == 0) return;
    if (clear(s, s->end_group - 1, &s->err) < 0) return; /* reported by llm_share_end_pass or llm_share_end_act, as the next one's */
    if (s->pp > 1) (void)advance(s, groups_of_pass(s) + 1, &s->err);
}

/* Gradients of what is in no layer begin at zero again, unless the round was the last one: the update clears them. */
static void clear_rest(struct llm_share *s)
{
    for (size_t i = 0; s->zero >= 2 && s->round + 1 < s->rounds && i < s->n_params; i++) {
        if (!llm_share_pools_gradient(s, i) && llm_share_has(s, i)) memset(s->t[i].p->grad, 0, llm_share_gradient_floats(s, i) * sizeof(float));
    }
}

/* Waits for all weights that are on their way. */
static int arrive_all(struct llm_share *s, struct llm_err *e)
{
    for (int64_t g = 0; g <= s->n_groups; g++) {
        if (arrive(s, &s->brought[g], e) < 0) return -1;
    }
    return 0;
}

/* What was left of the pass's positions, and the gradients of what is in no layer. */
int llm_share_end_pass(struct llm_share *s, struct llm_err *e)
{
    if (s->err.status != 0) {
        *e = s->err;
        return -1;
    }
    s->overlap = false;
    if (llm_share_post_weights(s, e) < 0) return -1;
    if (advance(s, 2 * s->n_groups + 1, e) < 0 || leave(s, s->n_groups, e) < 0) return -1;
    for (int64_t g = 0; g <= s->n_groups; g++) {
        if (llm_share_finish_group(s, g, e) < 0) return -1;
    }
    if (arrive_all(s, e) < 0) return -1;
    clear_rest(s);
    s->round++;
    s->position = 0;
    return 0;
}

/* Whether the passes of chunks go through their groups one by one. */
static bool acts(const struct llm_share *s) { return s->pp > 1 && s->zero >= 2; }

void llm_share_begin_act(struct llm_share *s, int64_t chunk, int64_t round, bool forward)
{
    if (!acts(s)) return;
    s->first_group = llm_share_group(s, s->first_layer[chunk]);
    s->end_group = llm_share_group(s, s->first_layer[chunk + 1]);
    s->position = forward ? 0 : groups_of_pass(s);
    s->between.recorded = 0;
    if (!forward) s->round = round;
}

int llm_share_end_act(struct llm_share *s, int64_t chunk, bool forward, struct llm_err *e)
{
    const int64_t n = groups_of_pass(s), with_rest = s->stage == 0 ? 0 : s->pp * s->vp - 1; /* the chunk of what is in no layer */
    if (!acts(s)) return 0;
    if (s->err.status != 0) {
        *e = s->err;
        return -1;
    }
    s->overlap = false;
    if (advance(s, forward ? n : 2 * n + 1, e) < 0) return -1;
    if (!forward && chunk == with_rest && leave(s, s->n_groups, e) < 0) return -1;
    for (int64_t g = s->first_group; g < s->end_group; g++) {
        if (llm_share_finish_group(s, g, e) < 0) return -1;
    }
    if (forward || chunk != with_rest) return 0;
    if (llm_share_finish_group(s, s->n_groups, e) < 0) return -1;
    clear_rest(s);
    return 0;
}

int llm_share_end(struct llm_share *s, int64_t shard, int64_t chunk, struct llm_err *e)
{
    if (s->int8) {
        llm_shard_keep(s->t, s->n_params, shard, s->run);
        return 0;
    }
    if (s->comm && s->zero >= 2) return llm_share_end_pass(s, e);
    if (!s->comm || shard < s->run.end - 1) {
        for (size_t i = 0; i < s->n_params; i++) {
            const bool copy = s->params[i].copies == LLM_SHARE_TIED && s->stage > 0; /* the head of the last chunk */
            if (s->params[i].copies == LLM_SHARE_EXPERT) continue; /* llm_share_end_members */
            if (chunk < 0 || chunk == (copy ? s->pp * s->vp - 1 : s->params[i].chunk)) llm_share_end_shard(s, i, shard);
        }
    }
    return 0;
}

int llm_share_finish(struct llm_share *s, struct llm_err *e)
{
    if (llm_share_wait_weights(s, e) < 0) return -1;
    if (s->int8) return llm_share_add_int8(s, e);
    if (acts(s) && arrive_all(s, e) < 0) return -1;
    while (s->comm && s->round < s->rounds && !acts(s)) {
        if (llm_share_end_pass(s, e) < 0) return -1;
    }
    s->round = 0;
    llm_share_clear_apart(s);
    return 0;
}

void llm_share_poll(void *share)
{
    struct llm_share *s = share;
    if (s->polls || s->under_way == 0 || s->err.status != 0) return;
    s->polls = true;
    for (size_t u = 0; u < s->n_units && s->err.status == 0; u++) {
        struct llm_share_unit *x = &s->units[u];
        if (!x->begun || x->arrived || x->halves || llm_comm_test(s->exchange, x->transfers, x->n_transfers, &s->err) != 1) continue;
        x->arrived = true;
        llm_share_count(s, -1);
    }
    if (s->err.status == 0 && llm_share_poll_halving(s, &s->err) == 0) (void)poll_brought(s, &s->err); /* a failure is kept in s->err */
    s->polls = false;
}

int llm_share_layers_init(struct llm_share *s, const struct llm_model *m, struct llm_err *e)
{
    s->between = (struct llm_between){.model = m, .enter = enter, .left = left};
    s->eval_position = s->n_groups;
    s->eval_between = (struct llm_between){.model = m, .enter = enter_alone, .left = left_alone};
    if (!(s->brought = llm_calloc((size_t)s->n_groups + 1, sizeof *s->brought, "the ranks' shares", e))) return -1;
    for (int64_t g = 0; g <= s->n_groups; g++) s->brought[g].group = -1;
    s->posted = s->n_groups;
    llm_pool_set_poll(llm_share_poll, s);
    if (s->n_stages > 0 || s->apart) llm_comm_set_idle(s->comm, llm_share_poll, s); /* a partner may wait for this rank's next stage */
    s->gradient_offset = llm_calloc(s->n_params, sizeof *s->gradient_offset, "the ranks' shares", e);
    s->weight_offset = llm_calloc(s->n_params, sizeof *s->weight_offset, "the ranks' shares", e);
    if (!s->gradient_offset || !s->weight_offset) return -1;
    size_t gradients[2] = {0}, weights[2] = {0};
    place_groups(s, true, s->gradient_offset, gradients);
    place_groups(s, false, s->weight_offset, weights);
    for (int i = 0; i < 2; i++) { /* of a single group one is enough */
        if (weights[i] == 0) continue;
        if (s->zero >= 2 && !(s->gradients[i] = llm_alloc_huge(gradients[i], sizeof(float), "gradients of layers", e))) return -1;
        if (s->zero >= 2) memset(s->gradients[i], 0, gradients[i] * sizeof(float));
        if (s->zero >= 3 && !(s->weights[i] = llm_alloc_huge(weights[i], sizeof(float), "weights of layers", e))) return -1;
    }
    return 0;
}

void llm_share_layers_release(struct llm_share *s)
{
    if (s->comm) llm_pool_set_poll(NULL, NULL);
    llm_comm_set_idle(s->comm, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        free(s->gradients[i]);
        free(s->weights[i]);
    }
    for (int64_t g = 0; s->brought && g <= s->n_groups; g++) {
        free(s->brought[g].transfers);
        free(s->brought[g].rounded);
        free(s->brought[g].widened);
    }
    free(s->brought);
    free(s->gradient_offset);
    free(s->weight_offset);
}
