/* Parts of rows (train/share.h): what they ask of a run, and the sums of the gradients that a rank keeps apart for each. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/kernels.h"
#include "cpu/optim.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "model/weights/slices.h"
#include "tensor/sequence.h"
#include "train/objective.h"
#include "train/share_internal.h"

/* What of the options does not go with parts of rows; NULL: nothing. */
static const char *obstacle(const struct llm_train_options *o, bool adapted)
{
    if (adapted) return "a model without an adapter";
    if (o->gradients == LLM_GRADIENTS_INT8) return "a run without --gradients int8";
    if (o->outer != LLM_OUTER_NONE) return "a run without --outer";
    if (o->carry_state) return "a run without --carry-state";
    if (o->activations != LLM_STORED_F32) return "a run without --activations";
    if (o->batch_tokens > 0) return "steps of --batch rows, found --batch-tokens";
    return NULL;
}

int llm_share_check_parts(const struct llm_layout *l, const struct llm_train_options *o, const struct llm_config *c, bool adapted,
                          const struct llm_objective *objective, struct llm_err *e)
{
    const int64_t context = o->context > 0 ? o->context : llm_config_default_context(c), ranks = llm_layout_rows(l);
    const char *other = obstacle(o, adapted);
    if (o->seq_parts % ranks != 0) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected cp to be a divisor of --seq-parts, %lld, found cp=%d", (long long)o->seq_parts,
                        (int)ranks);
    }
    if (o->seq_parts == 1) return 0;
    if (other) return llm_fail(e, LLM_EX_USAGE, "--seq-parts: expected %s", other);
    if (objective->run != llm_objective_run_next) {
        return llm_fail(e, LLM_EX_USAGE, "--seq-parts: expected an objective that predicts the next token in one pass (lm, sft, prefix, fim), "
                        "found %s", objective->name);
    }
    if (context % o->seq_parts != 0) {
        return llm_fail(e, LLM_EX_USAGE, "--seq-parts: expected a divisor of the %lld tokens of a row (--context), found %lld", (long long)context,
                        (long long)o->seq_parts);
    }
    if (llm_model_check_sequence(c, o->seq_parts, ranks, context, e) < 0) return -1;
    return 0;
}

/* The replica that is member m of this rank's group. In a process whose group is not there, for estimates: its own. */
static int member_of(const struct llm_share *s, int m) { return s->comm ? s->replica - s->replica % s->ep + m : s->replica; }

struct llm_shard_run llm_share_member_run(const struct llm_share *s, int m)
{
    return s->comm ? llm_shard_run(member_of(s, m) / s->cp, s->dp / s->cp, s->run.n) : s->run;
}

/* ---- nodes ---- */

struct llm_shard_run llm_terms_run(const struct llm_terms *k, int q, int64_t part)
{
    const struct llm_shard_run rows = llm_shard_run((int)(q / k->cp), (int)(k->ranks / k->cp), k->shards);
    const int64_t before = (q % k->cp * k->parts + part) * k->shards;
    return (struct llm_shard_run){before + rows.first, before + rows.end, k->cp * k->parts * k->shards};
}

int64_t llm_terms_nodes(const struct llm_terms *k, int q, struct llm_tree_node *nodes, struct llm_share_place *places, struct llm_share_joins *joins)
{
    int64_t n = 0;
    for (int64_t part = 0; part < k->parts; part++) {
        const struct llm_shard_run run = llm_terms_run(k, q, part);
        struct llm_tree_node *some = nodes ? nodes + n : NULL; /* not before those that stay */
        const int64_t count = llm_tree_nodes(run.first, run.end, run.n, some);
        if (!nodes) n += count;
        for (int64_t i = 0; nodes && i < count; i++) {
            places[n] = (struct llm_share_place){part, i, i == count - 1};
            nodes[n++] = some[i];
            for (; n > 1 && llm_tree_joins(nodes[n - 2], nodes[n - 1], run.n); n--) {
                if (joins) joins->v[joins->n++] = (struct llm_share_join){places[n - 2], places[n - 1]};
                nodes[n - 2].end = nodes[n - 1].end;
            }
        }
    }
    return n;
}

struct llm_terms llm_share_terms(const struct llm_share *s)
{
    return (struct llm_terms){s->comm ? s->dp : s->cp, s->cp, s->parts, s->run.n};
}

double llm_share_cost_of_parts(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o, struct llm_share_cost *c)
{
    const struct llm_terms k = {n_ranks, llm_layout_rows(l), o->seq_parts / llm_layout_rows(l), o->grad_shards};
    double all = 0;
    for (int q = 0; q < n_ranks; q++) {
        int64_t buffers = 0;
        const int64_t own = k.parts * k.shards; /* terms of a rank that has all shards: they follow one another */
        const int64_t nodes = n_ranks == k.cp ? llm_tree_nodes(q * own, (q + 1) * own, k.cp * own, NULL) : llm_terms_nodes(&k, q, NULL, NULL, NULL);
        for (int64_t part = 0; part < k.parts; part++) {
            const int64_t n = llm_shard_buffers(llm_terms_run(&k, q, part));
            if (n > buffers) buffers = n;
        }
        buffers = k.parts * (1 + buffers) - 1;
        all += (double)nodes;
        c->nodes = nodes > c->nodes ? nodes : c->nodes;
        c->buffers = buffers > c->buffers ? buffers : c->buffers;
    }
    return all;
}

/* The first of the gradients of parameter number i by the rows of member m. */
static int64_t first_of(const struct llm_share *s, size_t i, int m) { return s->params[i].copies == LLM_SHARE_EXPERT ? m * s->parts : 0; }

float *llm_share_node_at(const struct llm_share *s, size_t i, int m, struct llm_share_place at)
{
    const struct llm_trainable *q = &s->t[i];
    const size_t stride = llm_shard_stride(q->p);
    const int64_t number = first_of(s, i, m) + at.part;
    return at.last ? q->p->grad + (size_t)number * stride : q->shards + (size_t)(number * s->member_buffers + at.index) * stride;
}

static int init_member(struct llm_share *s, int m, struct llm_err *e)
{
    const struct llm_terms k = llm_share_terms(s);
    const int replica = member_of(s, m);
    const size_t most = (size_t)llm_terms_nodes(&k, replica, NULL, NULL, NULL);
    struct llm_share_member *of = &s->members[m];
    struct llm_tree_node *nodes = llm_calloc(most, sizeof *nodes, "the ranks' shares", e);
    of->places = nodes ? llm_calloc(most, sizeof *of->places, "the ranks' shares", e) : NULL;
    of->joins.v = of->places ? llm_calloc(most, sizeof *of->joins.v, "the ranks' shares", e) : NULL;
    if (of->joins.v) llm_terms_nodes(&k, replica, nodes, of->places, &of->joins);
    free(nodes);
    for (int64_t part = 0; part < s->parts; part++) {
        const int64_t n = llm_shard_buffers(llm_terms_run(&k, replica, part));
        if (n > s->member_buffers) s->member_buffers = n;
    }
    return of->joins.v ? 0 : -1;
}

int llm_share_parts_init(struct llm_share *s, struct llm_err *e)
{
    if (!(s->members = llm_calloc((size_t)s->ep, sizeof *s->members, "the ranks' shares", e))) return -1;
    for (int m = 0; m < s->ep; m++) {
        if (init_member(s, m, e) < 0) return -1;
    }
    return 0;
}

void llm_share_parts_release(struct llm_share *s)
{
    for (int m = 0; s->members && m < s->ep; m++) {
        free(s->members[m].places);
        free(s->members[m].joins.v);
    }
    free(s->members);
}

/* ---- sums ---- */

struct sum { const struct llm_share *s; size_t param; int member; };

/* Adds what the tree adds of one block of elements. In one process the sum is then the gradient of the step. */
static void join_block(void *arg, size_t block, int thread)
{
    const struct sum *w = arg;
    const struct llm_share *s = w->s;
    const struct llm_param *p = s->t[w->param].p;
    const size_t at = block * LLM_OPTIM_BLOCK, left = (size_t)llm_param_count(p) - at, n = left < LLM_OPTIM_BLOCK ? left : LLM_OPTIM_BLOCK;
    const struct llm_share_member *m = &s->members[w->member];
    (void)thread;
    for (size_t i = 0; i < m->joins.n; i++) {
        float *to = llm_share_node_at(s, w->param, w->member, m->joins.v[i].to) + at;
        llm_k.elementwise.add(to, to, llm_share_node_at(s, w->param, w->member, m->joins.v[i].from) + at, n);
    }
    const float *sum = llm_share_node_at(s, w->param, w->member, m->places[0]) + at;
    if (!s->comm && sum != p->grad + at) memcpy(p->grad + at, sum, n * sizeof *sum);
}

/* The parameter as if its gradient were the partial sum `number`: the sums by parts of rows, and of experts by members, lie one after the other. */
static struct llm_param of_part_of(const struct llm_param *p, int64_t number)
{
    struct llm_param of = *p;
    of.grad += (size_t)number * llm_shard_stride(p);
    if (of.grad_lookup) of.grad_lookup += (size_t)number * llm_shard_stride(p);
    return of;
}

void llm_share_join_uses(const struct llm_share *s, size_t i)
{
    if (s->parts == 1) llm_grad_join(s->t[i].p);
    for (int64_t part = 0; part < s->parts && s->parts > 1; part++) {
        struct llm_param p = of_part_of(s->t[i].p, part);
        llm_grad_join(&p);
    }
}

void llm_share_end_parts(const struct llm_share *s, size_t i, int m, int64_t shard)
{
    const struct llm_terms k = llm_share_terms(s);
    const struct llm_shard_run rows = llm_share_member_run(s, m);
    struct llm_trainable *q = &s->t[i];
    const size_t stride = llm_shard_stride(q->p);
    const bool alone = s->parts == 1 && s->params[i].copies != LLM_SHARE_EXPERT;
    if (!q->p->grad) return;
    for (int64_t part = 0; part < s->parts; part++) {
        const struct llm_shard_run run = llm_terms_run(&k, member_of(s, m), part);
        const int64_t number = first_of(s, i, m) + part;
        struct llm_param p = of_part_of(q->p, number);
        struct llm_trainable of_part = {.p = alone ? q->p : &p, /* which notes the rows that were looked up */
                                        .shards = q->shards ? q->shards + (size_t)(number * s->member_buffers) * stride : NULL};
        llm_shard_end(&of_part, 1, run.first + (shard - rows.first), run);
    }
    const bool copy = s->params[i].copies == LLM_SHARE_TIED && s->params[i].home != s->lane; /* its gradient has gone to the first stage */
    if (shard < rows.end - 1 || s->parts == 1 || copy) return;
    LLM_PROFILE("gradient shards", 4 * (double)s->members[m].joins.n * (double)llm_param_count(q->p));
    const size_t blocks = ((size_t)llm_param_count(q->p) + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK;
    llm_parallel(blocks, join_block, &(struct sum){s, i, m});
}

/* ---- losses ---- */

int llm_share_tokens(struct llm_share *s, float *x, int64_t rows, int64_t row_len, struct llm_err *e)
{
    const int64_t own = row_len / s->cp;
    float *all = llm_calloc((size_t)(rows * row_len), sizeof *all, "messages", e);
    void **messages = llm_calloc((size_t)s->n, sizeof *messages, "messages", e);
    size_t *bytes = llm_calloc((size_t)s->n, sizeof *bytes, "messages", e), at = 0;
    int got = all && messages && bytes ? 0 : llm_comm_give_up(s->comm);
    for (int pass = 0; pass < 2 && got == 0; pass++, at = 0) { /* what this rank has to its message; then what the others have from theirs */
        for (int q = 0; q < s->n; q++) {
            const int of_replica = q / s->lanes;
            const struct llm_shard_run run = llm_shard_run(of_replica / s->cp, s->dp / s->cp, s->run.n);
            const int64_t first = llm_shard_first(run.first, run.n, rows), end = llm_shard_first(run.end, run.n, rows);
            messages[q] = all + at;
            bytes[q] = 0;
            if (q % s->lanes != s->lanes - 1) continue;
            bytes[q] = (size_t)((end - first) * own) * sizeof *all;
            for (int64_t r = first; r < end; r++, at += (size_t)own) {
                float *of = x + r * row_len + of_replica % s->cp * own;
                if (pass == 0 && q == s->rank) memcpy(all + at, of, (size_t)own * sizeof *of);
                if (pass == 1 && q != s->rank) memcpy(of, all + at, (size_t)own * sizeof *of);
            }
        }
        if (pass == 0) got = llm_comm_gather(s->comm, messages, bytes, e);
    }
    free(all);
    free(messages);
    free(bytes);
    return got;
}
