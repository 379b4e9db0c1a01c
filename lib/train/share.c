/* The beginning and the end of a share, and what travels between steps (train/share.h). */
#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "cpu/optim.h"
#include "cpu/profile.h"
#include "train/share_internal.h"

int llm_share_init(struct llm_share *s, struct llm_comm *comm, const struct llm_layout *l, const struct llm_model *m, struct llm_trainable *t,
                   size_t n_params, const struct llm_train_options *o, struct llm_err *e)
{
    *s = (struct llm_share){.comm = comm, .rank = llm_comm_rank(comm), .n = llm_comm_size(comm), .t = t, .n_params = n_params};
    s->zero = comm || llm_layout_members(l) > 1 || llm_layout_experts(l) > 1 || llm_layout_rows(l) > 1 ? (int)l->zero : 0;
    s->int8 = o->gradients == LLM_GRADIENTS_INT8;
    s->rounded = comm && llm_share_rounds(l, o, m->lora != NULL);
    s->pp = comm ? (int)llm_layout_stages(l) : 1;
    s->vp = comm ? (int)llm_layout_chunks(l) : 1;
    s->tp = (int)llm_layout_members(l);
    s->ep = (int)llm_layout_experts(l);
    s->cp = (int)llm_layout_rows(l);
    s->parts = o->seq_parts / s->cp;
    s->lanes = s->pp * s->tp;
    s->dp = comm ? s->n / s->lanes : 1;
    s->n_stages = comm ? llm_share_stages_of(s->dp) : 0;
    s->halves_nodes = comm && llm_share_halves_nodes(s->dp, l, o);
    s->lane = s->rank % s->lanes;
    s->stage = s->lane / s->tp;
    s->replica = s->rank / s->lanes;
    s->run = llm_shard_run(s->replica / s->cp, comm ? s->dp / s->cp : 1, llm_train_options_parts(o));
    llm_share_members_init(s);
    if (o->seq_parts > 1 && s->zero < 2 && llm_share_parts_init(s, e) < 0) return -1;
    s->n_layers = m->lora ? 0 : m->config.num_hidden_layers;
    s->group_layers = llm_share_group_layers(&m->config, o);
    for (size_t i = 0; s->int8 && i < n_params; i++) {
        if (!t[i].p->balances && !t[i].p->running) continue;
        return llm_fail(e, LLM_EX_USAGE, "--gradients int8: expected a model whose gradients are no counts and statistics, found '%s'", t[i].p->name);
    }
    if (!(s->first_layer = llm_calloc((size_t)(s->pp * s->vp) + 1, sizeof *s->first_layer, "stages", e))) return -1;
    s->first_layer[s->pp * s->vp] = m->config.num_hidden_layers;
    if (s->pp > 1 && llm_stages_cut(&m->config, o->context, s->pp, s->vp, s->first_layer, e) < 0) return -1;
    s->n_groups = s->end_group = s->n_layers > 0 ? llm_share_group(s, s->n_layers) : 0;
    if (llm_share_cells_init(s, m, e) < 0) return -1;
    if (!comm) return 0;
    if (!(s->exchange = llm_comm_twin(comm, e)) || !(s->bring = llm_comm_twin(comm, e))) return -1;
    if (s->n_stages > 0 && (!(s->halving = llm_comm_twin(comm, e)) || !(s->doubling = llm_comm_twin(comm, e)))) return -1;
    if (llm_share_node_init(s, o, m->lora != NULL, e) < 0) return -1;
    if (s->apart && !(s->doubling = llm_comm_twin(comm, e))) return -1;
    return llm_share_exchange_init(s, e) < 0 ? -1 : llm_share_layers_init(s, m, e);
}

void llm_share_release(struct llm_share *s)
{
    llm_share_layers_release(s);
    for (size_t u = 0; u < s->n_units; u++) {
        free(s->units[u].kept);
        free(s->units[u].transfers);
    }
    for (int i = 0; i < LLM_SHARE_SLOTS; i++) free(s->slots[i].p);
    llm_node_memory_release(&s->together);
    free(s->owns);
    free(s->first_layer);
    free(s->member_ends);
    free(s->aside);
    free(s->params);
    free(s->cells);
    free(s->listed);
    free(s->units);
    free(s->nodes);
    free(s->first_node);
    free(s->order);
    llm_share_parts_release(s);
    free(s->squares);
    llm_comm_destroy(s->exchange);
    llm_comm_destroy(s->bring);
    llm_comm_destroy(s->halving);
    llm_comm_destroy(s->doubling);
    *s = (struct llm_share){.comm = NULL};
}

/* ---- between steps ---- */

/* gather_unit of many ranks, in stages. */
static int gather_doubling(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    const struct llm_transfers list = {&u->transfers, &u->n_transfers, &u->room};
    for (int stage = 0; stage < s->n_stages; stage++) {
        const struct llm_share_double w = llm_share_double(s, u, stage);
        struct llm_share_run r;
        u->n_transfers = 0;
        for (size_t at = u->first; llm_share_next_received(s, u, w, &at, &r);) {
            if (llm_share_post(s->doubling, &list, w.peer, s->t[r.param].p->grad + r.from, r.n * sizeof(float), true, e) < 0) return -1;
        }
        for (size_t at = u->first; llm_share_next_sent(s, u, w, &at, &r);) {
            if (llm_share_post(s->doubling, &list, w.peer, s->t[r.param].p->grad + r.from, r.n * sizeof(float), false, e) < 0) return -1;
        }
        if (llm_comm_wait(s->doubling, u->transfers, u->n_transfers, e) < 0) return -1;
    }
    return 0;
}

/* Every rank sends its runs of a unit's gradients to all others that keep it. */
static int gather_unit(struct llm_share *s, struct llm_share_unit *u, struct llm_err *e)
{
    const struct llm_transfers list = {&u->transfers, &u->n_transfers, &u->room};
    if (llm_share_doubles(s, u)) return gather_doubling(s, u, e);
    u->n_transfers = 0;
    for (int d = 0; d < s->n && llm_share_keeps(s, u, s->rank); d++) {
        const int q = (s->rank + d) % s->n;
        struct llm_share_run r;
        for (size_t c = u->first; llm_share_next_run(s, u, q, &c, &r);) {
            float *x = s->t[r.param].p->grad + r.from;
            for (int to = 0; q == s->rank && to < s->n; to++) {
                if (to != q && llm_share_keeps(s, u, to) && llm_share_post(s->comm, &list, to, x, r.n * sizeof *x, false, e) < 0) return -1;
            }
            if (q != s->rank && llm_share_post(s->comm, &list, q, x, r.n * sizeof *x, true, e) < 0) return -1;
        }
    }
    return llm_comm_wait(s->comm, u->transfers, u->n_transfers, e);
}

int llm_share_gather(struct llm_share *s, struct llm_err *e)
{
    if (!s->comm || s->int8) return 0;
    LLM_PROFILE("ranks: gathering", 0);
    for (size_t i = 0; i < s->n_units; i++) {
        const bool parts = s->units[i].group < s->n_groups && s->zero >= 2; /* no rank has room for all */
        if (!parts && gather_unit(s, &s->units[i], e) < 0) return -1;
    }
    return 0;
}

/* Every rank gets the squares of the others' cells. */
static int gather_squares(struct llm_share *s, struct llm_err *e)
{
    double *all = llm_calloc(s->n_cells + 1, sizeof *all, "norms", e), *at = all;
    void **parts = llm_calloc((size_t)s->n, sizeof *parts, "norms", e);
    size_t *bytes = llm_calloc((size_t)s->n, sizeof *bytes, "norms", e);
    int got = all && parts && bytes ? 0 : llm_comm_give_up(s->comm);
    for (int q = 0; q < s->n && got == 0; q++) {
        parts[q] = at;
        for (size_t c = 0; c < s->n_cells; c++) {
            if (s->cells[c].owner == q) *at++ = s->squares[c];
        }
        bytes[q] = (size_t)((char *)at - (char *)parts[q]);
    }
    if (got == 0) got = llm_comm_gather(s->comm, parts, bytes, e);
    for (int q = 0; q < s->n && got == 0; q++) {
        const double *x = parts[q];
        for (size_t c = 0; c < s->n_cells; c++) {
            if (s->cells[c].owner == q) s->squares[c] = *x++;
        }
    }
    free(all);
    free(parts);
    free(bytes);
    return got;
}

int llm_share_norm(struct llm_share *s, double *norm, const struct llm_param **bad, struct llm_err *e)
{
    if (s->zero == 0 && !llm_share_scatters(s)) {
        *norm = llm_grad_norm(s->t, s->n_params, bad);
        return 0;
    }
    for (size_t c = 0; c < s->n_cells; c++) {
        const struct llm_share_cell *k = &s->cells[c];
        const struct llm_trainable *q = &s->t[k->param];
        if (llm_share_owner(s, k) != s->rank) continue;
        s->squares[c] = q->p->balances || q->p->running ? 0 : llm_sum_squares(llm_trainable_grad(q) + (k->from - q->own_from), k->n);
    }
    if (gather_squares(s, e) < 0) return -1;
    double sum = 0;
    *bad = NULL;
    for (size_t i = 0; i < s->n_params; i++) {
        double mine = 0;
        for (size_t c = s->params[i].first; c < s->params[i].end; c++) mine += s->squares[c];
        if (!isfinite(mine) && !*bad) *bad = s->t[i].p;
        if (!s->t[i].p->balances && !s->t[i].p->running) sum += mine;
    }
    *norm = sqrt(sum);
    return 0;
}

int llm_share_collect(struct llm_share *s, size_t param, const float *mine, float *all, struct llm_err *e)
{
    const void **out = llm_calloc((size_t)s->n, sizeof *out, "messages", e);
    void **in = llm_calloc((size_t)s->n, sizeof *in, "messages", e);
    size_t *out_bytes = llm_calloc((size_t)s->n, sizeof *out_bytes, "messages", e);
    size_t *in_bytes = llm_calloc((size_t)s->n, sizeof *in_bytes, "messages", e);
    int got = out && in && out_bytes && in_bytes ? 0 : llm_comm_give_up(s->comm);
    for (int q = 0; q < s->n && got == 0; q++) {
        size_t from = 0, n = 0;
        for (size_t c = s->params[param].first; c < s->params[param].end; c++) {
            if (s->cells[c].owner != q) continue;
            if (n == 0) from = s->cells[c].from;
            n += s->cells[c].n;
        }
        if (q == s->rank && n > 0) out[0] = mine + (from - s->t[param].own_from);
        if (s->rank == 0 && q == 0 && out[0] == all + from) continue; /* it is there */
        if (s->rank == 0) in[q] = all + from;
        if (s->rank == 0) in_bytes[q] = n * sizeof *all;
        if (q == s->rank) out_bytes[0] = n * sizeof *all;
    }
    if (got == 0) got = llm_comm_all_to_all(s->comm, out, out_bytes, in, in_bytes, e);
    free(out);
    free(in);
    free(out_bytes);
    free(in_bytes);
    return got;
}

int llm_share_rows(struct llm_share *s, void *x, int64_t rows, size_t width, struct llm_err *e)
{
    if (!s->comm) return 0;
    void **parts = llm_calloc((size_t)s->n, sizeof *parts, "messages", e);
    size_t *bytes = llm_calloc((size_t)s->n, sizeof *bytes, "messages", e);
    int got = parts && bytes ? 0 : llm_comm_give_up(s->comm);
    for (int q = 0; q < s->n && got == 0; q++) {
        const struct llm_shard_run run = llm_shard_run(q / s->lanes, s->dp, s->run.n);
        int64_t first = llm_shard_first(run.first, run.n, rows), end = llm_shard_first(run.end, run.n, rows);
        parts[q] = (char *)x + (size_t)first * width;
        bytes[q] = q % s->lanes == s->lanes - 1 ? (size_t)(end - first) * width : 0;
    }
    if (got == 0) got = llm_comm_gather(s->comm, parts, bytes, e);
    free(parts);
    free(bytes);
    return got;
}
