/* Who owns what, and what that costs (train/share.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/optim.h"
#include "model/spec/declare.h"
#include "train/share_internal.h"

/* Whether parts of the parameter can be updated by different ranks. */
static bool is_cut(const struct llm_trainable *t)
{
    return !t->p->balances && !t->p->running && !t->optim->update_matrix;
}

static size_t cells_of(const struct llm_trainable *t)
{
    return is_cut(t) ? ((size_t)llm_param_count(t->p) + LLM_OPTIM_BLOCK - 1) / LLM_OPTIM_BLOCK : 1;
}

int64_t llm_share_group_layers(const struct llm_config *c, const struct llm_train_options *o)
{
    const int64_t every = o->checkpoint_every > 0 ? o->checkpoint_every : 1, together = llm_config_together(c);
    return (every + together - 1) / together * together;
}

int64_t llm_share_group_of(const int64_t *first, int64_t chunks, int64_t group_layers, int64_t layer)
{
    int64_t before = 0;
    for (int64_t k = 0; k < chunks; k++) {
        if (layer < first[k + 1]) return before + (layer - first[k]) / group_layers;
        before += (first[k + 1] - first[k] + group_layers - 1) / group_layers;
    }
    return before;
}

/* The group of a parameter. What several layers or uses share is complete after all of them. */
static int64_t group_of(const struct llm_share *s, const struct llm_param *p)
{
    const struct llm_param_spec *d = p->spec;
    if (!d || d->stack != LLM_STACK_MAIN || d->layer < 0 || d->layer >= s->n_layers || p->sharers > 0) return s->n_groups;
    return llm_share_group(s, d->layer);
}

/* Whether the parameter is read before the first layer: a table, or the norm of its rows. */
static bool is_input(const struct llm_model *m, const struct llm_param *p)
{
    const struct llm_stack *k = &((const struct llm_decoder *)m->layout)->stacks[LLM_STACK_MAIN];
    return p == k->embed || p == k->positions || p == k->token_types || p == k->embed_norm.w || p == k->embed_norm.b;
}

/* The chunk that has a parameter, and the stage that owns it: that of its layer; the first of what layers follow, the last of what follows layers. */
static void place_in_stage(const struct llm_share *s, const struct llm_model *m, size_t i)
{
    const struct llm_param *p = s->t[i].p;
    struct llm_share_param *at = &s->params[i];
    const struct llm_param *whole = p->slice_of ? p->slice_of->whole : p;
    if (s->pp > 1 && m->config.tie_word_embeddings && whole == llm_model_head(m)) at->copies = LLM_SHARE_TIED;
    at->chunk = at->group < s->n_groups || at->copies == LLM_SHARE_TIED || is_input(m, whole) ? 0 : s->pp * s->vp - 1;
    while (at->group < s->n_groups && p->spec->layer >= s->first_layer[at->chunk + 1]) at->chunk++;
    at->home = (int)(at->chunk % s->pp);
}

/* The member of the stage that has a slice; every member has what is whole. `home` becomes a lane. */
static void place_in_member(const struct llm_share *s, size_t i)
{
    const struct llm_slices *k = s->t[i].p->slice_of;
    struct llm_share_param *at = &s->params[i];
    if (!k) at->copies = LLM_SHARE_EVERYWHERE;
    at->home = at->home * s->tp + (k ? (int)(s->t[i].p - k->of) / (k->n / s->tp) : 0);
}

/* The member of a group that divides experts. `home` becomes a rank of the group's replicas. */
static void place_expert(const struct llm_share *s, const struct llm_model *m, size_t i)
{
    const struct llm_param_spec *d = s->t[i].p->spec;
    if (!llm_share_divides(d)) return;
    s->params[i].copies = LLM_SHARE_EXPERT;
    s->params[i].home += (int)(d->expert / (m->config.num_experts / s->ep)) * s->lanes;
}

/* The ranks of a group of replicas that divides experts. */
static int group_size(const struct llm_share *s)
{
    return s->ep * s->lanes;
}

/* Whether lane `lane` computes with what has this home and these copies. */
static bool is_in(const struct llm_share *s, int home, enum llm_share_copies copies, int lane)
{
    if (copies == LLM_SHARE_EVERYWHERE) return lane / s->tp == home / s->tp;
    return home == lane || (copies == LLM_SHARE_TIED && lane == (s->pp - 1) * s->tp + home % s->tp);
}

bool llm_share_has(const struct llm_share *s, size_t i)
{
    if (s->params[i].copies == LLM_SHARE_EXPERT) return s->rank % group_size(s) == s->params[i].home;
    return is_in(s, s->params[i].home, s->params[i].copies, s->lane);
}

int llm_share_owner(const struct llm_share *s, const struct llm_share_cell *c)
{
    return c->owner + (s->params[c->param].copies == LLM_SHARE_EVERYWHERE ? s->lane % s->tp : 0);
}

struct llm_share_peers llm_share_peers(const struct llm_share *s, const struct llm_share_unit *u)
{
    if (u->copies == LLM_SHARE_EXPERT) return (struct llm_share_peers){u->home, group_size(s)};
    return (struct llm_share_peers){u->home + (u->copies == LLM_SHARE_EVERYWHERE ? s->lane % s->tp : 0), s->lanes};
}

float *llm_share_own_master(const struct llm_share *s, size_t i)
{
    return llm_trainable_own(&s->t[i]) > 0 ? llm_trainable_master(&s->t[i]) : NULL;
}

bool llm_share_keeps(const struct llm_share *s, const struct llm_share_unit *u, int q)
{
    const struct llm_share_peers peers = llm_share_peers(s, u);
    const bool alike = u->copies == LLM_SHARE_EVERYWHERE || u->copies == LLM_SHARE_EXPERT;
    return alike ? q % peers.step == peers.first : is_in(s, u->home, u->copies, q % s->lanes);
}

static void put_cells(struct llm_share *s, size_t param)
{
    const size_t count = (size_t)llm_param_count(s->t[param].p), step = is_cut(&s->t[param]) ? LLM_OPTIM_BLOCK : count;
    s->params[param].first = s->n_cells;
    for (size_t at = 0; at < count; at += step) {
        s->cells[s->n_cells++] = (struct llm_share_cell){.param = param, .from = at, .n = count - at < step ? count - at : step};
    }
    s->params[param].end = s->n_cells;
}

int llm_share_part_of(int owners, size_t before, size_t n, size_t total)
{
    return (int)((double)owners * ((double)before + (double)n / 2) / (double)total);
}

int llm_share_owner_of(int owners, int part, int64_t group) { return (int)((part + group) % owners); }

/* Of a group's cells [first, end), of one lane: each is of the part, of as many as there are ranks, in which its middle lies. Slices of parts make a
 * unit. Returns the number of units; unit[c] becomes that of cell c, counted from n_units. */
static size_t divide_group(struct llm_share *s, size_t first, size_t end, size_t *unit)
{
    const struct llm_share_param *at = &s->params[s->cells[first].param];
    const bool expert = at->copies == LLM_SHARE_EXPERT;
    const int step = expert ? group_size(s) : s->lanes, owners = expert && s->comm ? s->dp / s->ep : s->dp;
    size_t total = 0, done = 0, own = 0, most = 0;
    int part = -1;
    for (size_t c = first; c < end; c++) total += s->cells[c].n;
    for (size_t c = first; c < end; c++) {
        const int next = llm_share_part_of(owners, done, s->cells[c].n, total);
        if (next != part) own = 0;
        part = next;
        s->cells[c].owner = llm_share_owner_of(owners, part, at->group) * step + at->home;
        unit[c] = s->n_units + own / (LLM_SHARE_UNIT_ELEMENTS / (size_t)owners);
        if (unit[c] + 1 - s->n_units > most) most = unit[c] + 1 - s->n_units;
        own += s->cells[c].n;
        done += s->cells[c].n;
    }
    return most;
}

/* Whether cells of two parameters may travel together. */
static bool is_alike(const struct llm_share_param *a, const struct llm_share_param *b)
{
    return a->group == b->group && a->home == b->home && a->copies == b->copies;
}

static int make_units(struct llm_share *s, struct llm_err *e)
{
    size_t *unit = llm_calloc(s->n_cells, sizeof *unit, "the ranks' shares", e), listed = 0;
    if (!unit) return -1;
    for (size_t c = 0, end; c < s->n_cells; c = end) {
        const struct llm_share_param *p = &s->params[s->cells[c].param];
        for (end = c; end < s->n_cells && is_alike(&s->params[s->cells[end].param], p);) end++;
        const size_t n = divide_group(s, c, end, unit);
        for (size_t u = s->n_units; u < s->n_units + n; u++) {
            s->units[u] = (struct llm_share_unit){.first = listed, .group = p->group, .home = p->home, .copies = p->copies};
            for (size_t k = c; k < end; k++) {
                if (unit[k] != u) continue;
                s->listed[listed++] = k;
                if (llm_share_owner(s, &s->cells[k]) == s->rank) s->units[u].own += s->cells[k].n;
            }
            s->units[u].end = listed;
        }
        s->n_units += n;
    }
    free(unit);
    return 0;
}

static int make_cells(struct llm_share *s, const struct llm_model *m, struct llm_err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_params; i++) n += cells_of(&s->t[i]);
    s->cells = llm_calloc(n, sizeof *s->cells, "the ranks' shares", e);
    s->listed = llm_calloc(n, sizeof *s->listed, "the ranks' shares", e);
    s->units = llm_calloc(n, sizeof *s->units, "the ranks' shares", e);
    s->squares = llm_calloc(n, sizeof *s->squares, "the ranks' shares", e);
    s->params = llm_calloc(s->n_params, sizeof *s->params, "the ranks' shares", e);
    if (!s->cells || !s->listed || !s->units || !s->squares || !s->params) return -1;
    for (size_t i = 0; i < s->n_params; i++) {
        s->params[i].group = group_of(s, s->t[i].p);
        place_in_stage(s, m, i);
        if (s->tp > 1) place_in_member(s, i);
        if (s->ep > 1) place_expert(s, m, i);
    }
    const int64_t homes = group_size(s), kinds = LLM_SHARE_EXPERT + 1;
    for (int64_t k = 0; k < (s->n_groups + 1) * kinds * homes; k++) { /* by group, home and copies */
        const struct llm_share_param at = {.group = k / (kinds * homes), .home = (int)(k / kinds % homes),
                                           .copies = (enum llm_share_copies)(k % kinds)};
        for (size_t i = 0; i < s->n_params; i++) {
            if (is_alike(&s->params[i], &at)) put_cells(s, i);
        }
    }
    return make_units(s, e);
}

static void place_own(struct llm_share *s)
{
    for (size_t i = 0; i < s->n_params; i++) {
        struct llm_trainable *q = &s->t[i];
        q->partly = s->zero > 0 || !llm_share_has(s, i);
        q->own_from = q->own_n = 0;
        for (size_t c = s->params[i].first; s->zero > 0 && c < s->params[i].end; c++) {
            if (llm_share_owner(s, &s->cells[c]) != s->rank) continue;
            if (q->own_n == 0) q->own_from = s->cells[c].from;
            q->own_n += s->cells[c].n;
        }
    }
}

/* Those of ranks that divide rows, or that keep parts of rows apart. */
static int make_nodes_of_parts(struct llm_share *s, struct llm_err *e)
{
    const struct llm_terms k = llm_share_terms(s);
    size_t room = 0;
    for (int q = 0; q < s->dp; q++) room += (size_t)llm_terms_nodes(&k, q, NULL, NULL, NULL);
    s->nodes = llm_calloc(room, sizeof *s->nodes, "the ranks' shares", e);
    struct llm_share_place *places = llm_calloc(room, sizeof *places, "the ranks' shares", e);
    for (int q = 0; q < s->dp && s->nodes && places; q++) {
        s->first_node[q + 1] = s->first_node[q] + (size_t)llm_terms_nodes(&k, q, s->nodes + s->first_node[q], places, NULL);
    }
    s->n_nodes = s->first_node[s->dp];
    free(places);
    return places && s->nodes ? 0 : -1;
}

static int order_nodes(struct llm_share *s, struct llm_err *e)
{
    if (!(s->order = llm_calloc(s->n_nodes, sizeof *s->order, "the ranks' shares", e))) return -1;
    for (size_t k = 0; k < s->n_nodes; k++) {
        size_t at = k;
        for (; at > 0 && s->nodes[s->order[at - 1]].first > s->nodes[k].first; at--) s->order[at] = s->order[at - 1];
        s->order[at] = k;
    }
    return 0;
}

/* With zero 2 and 3 each shard by each part is a node of its own. */
static int make_nodes_apart(struct llm_share *s, struct llm_err *e)
{
    const struct llm_terms k = llm_share_terms(s);
    if (!(s->nodes = llm_calloc((size_t)(s->run.n * s->parts * s->cp), sizeof *s->nodes, "the ranks' shares", e))) return -1;
    for (int q = 0; q < s->dp; q++) {
        const struct llm_shard_run first = llm_terms_run(&k, q, 0);
        const int64_t shards = first.end - first.first;
        for (int64_t i = 0; i < shards * s->parts; i++) {
            const int64_t term = llm_terms_run(&k, q, i / shards).first + i % shards;
            s->nodes[s->n_nodes++] = (struct llm_tree_node){term, term + 1};
        }
        s->first_node[q + 1] = s->n_nodes;
        if (shards > s->rounds) s->rounds = shards;
    }
    return 0;
}

static int make_nodes(struct llm_share *s, struct llm_err *e)
{
    s->first_node = llm_calloc((size_t)s->dp + 1, sizeof *s->first_node, "the ranks' shares", e);
    if (!s->first_node) return -1;
    s->rounds = 1;
    if (s->zero >= 2) return make_nodes_apart(s, e);
    if (s->members) return make_nodes_of_parts(s, e);
    for (int q = 0; q < s->dp; q++) {
        const struct llm_shard_run run = llm_shard_run(q, s->dp, s->run.n);
        s->first_node[q + 1] = s->first_node[q] + (size_t)llm_tree_nodes(run.first, run.end, run.n, NULL);
    }
    s->n_nodes = s->first_node[s->dp];
    s->nodes = llm_calloc(s->n_nodes, sizeof *s->nodes, "the ranks' shares", e);
    for (int q = 0; s->nodes && q < s->dp; q++) {
        const struct llm_shard_run run = llm_shard_run(q, s->dp, s->run.n);
        llm_tree_nodes(run.first, run.end, run.n, s->nodes + s->first_node[q]);
    }
    return s->nodes ? 0 : -1;
}

bool llm_share_next_run(const struct llm_share *s, const struct llm_share_unit *u, int owner, size_t *at, struct llm_share_run *run)
{
    size_t i = *at;
    while (i < u->end && llm_share_owner(s, &s->cells[s->listed[i]]) != owner) i++;
    if (i == u->end) return false;
    const struct llm_share_cell *c = &s->cells[s->listed[i]];
    *run = (struct llm_share_run){c->param, c->from, 0, owner};
    for (; i < u->end; i++) {
        c = &s->cells[s->listed[i]];
        if (llm_share_owner(s, c) != owner || c->param != run->param || c->from != run->from + run->n) break;
        run->n += c->n;
    }
    *at = i;
    return true;
}

int llm_share_check_members(const struct llm_layout *l, const struct llm_train_options *o, struct llm_err *e)
{
    if (o->tensor_parts % llm_layout_members(l) == 0) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--shard: expected tp to be a divisor of --tensor-parts, %lld, found tp=%d", (long long)o->tensor_parts,
                    (int)l->tp);
}

int llm_share_check(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o, struct llm_err *e)
{
    const int64_t rows = llm_shard_rows(o->grad_shards, o->batch * o->accumulate);
    const bool replicas = o->outer != LLM_OUTER_NONE;
    if (n_ranks > llm_train_options_parts(o)) {
        return llm_fail(e, LLM_EX_USAGE, "--%s: expected at least one %s for each of %lld ranks, found %lld", replicas ? "replicas" : "grad-shards",
                        replicas ? "replica" : "shard", (long long)n_ranks, (long long)llm_train_options_parts(o));
    }
    if (replicas && l->zero > 0) return llm_fail(e, LLM_EX_USAGE, "--shard: expected zero=0 with --outer diloco, found zero=%d", (int)l->zero);
    if (o->gradients == LLM_GRADIENTS_INT8 && l->zero >= 2) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected zero=0 or 1 with --gradients int8, found zero=%d", (int)l->zero);
    }
    if (llm_layout_stages(l) > 1) {
        const char *other = o->gradients == LLM_GRADIENTS_INT8 ? "--gradients int8" : o->ema > 0 ? "averages (--ema)"
            : o->carry_state ? "--carry-state" : replicas ? "--outer" : NULL;
        if (other) return llm_fail(e, LLM_EX_USAGE, "--shard: pp=%d: expected a run without %s", (int)l->pp, other);
    }
    if (n_ranks * llm_layout_rows(l) * llm_layout_lanes(l) < 2 || l->zero < 2) return 0;
    if (o->batch_tokens > 0) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: zero=%d: expected steps of --batch rows, whose shards are one pass, found --batch-tokens",
                        (int)l->zero);
    }
    if (rows > o->batch) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: zero=%d: expected shards of one pass, of at most %lld rows (--batch), found %lld (--grad-shards)",
                        (int)l->zero, (long long)o->batch, (long long)rows);
    }
    return l->zero == 3 && o->ema > 0 ? llm_fail(e, LLM_EX_USAGE, "--shard: zero=3: expected no average of the weights (--ema)") : 0;
}

struct llm_share_cost llm_share_cost(int64_t n_ranks, const struct llm_layout *l, const struct llm_train_options *o,
                                     const struct llm_share_size *size)
{
    struct llm_share_cost c = {.gradients = 4 * size->params, .weights = 4 * size->params};
    const double ranks = (double)n_ranks, others = ranks - 1, part = 4 * size->params / ranks;
    const bool int8 = o->gradients == LLM_GRADIENTS_INT8;
    const double parts = (double)(o->seq_parts / llm_layout_rows(l));
    const double most = (double)llm_shard_rows(n_ranks / llm_layout_rows(l), llm_train_options_parts(o)); /* shards of a rank */
    const double rest = size->params - size->in_layers, unit = fmin(fmax(size->largest, rest), LLM_SHARE_UNIT_ELEMENTS);
    double all_nodes = 0;
    for (int q = 0; q < n_ranks && o->seq_parts == 1; q++) {
        const struct llm_shard_run run = llm_shard_run(q, (int)n_ranks, llm_train_options_parts(o));
        const int64_t nodes = llm_tree_nodes(run.first, run.end, run.n, NULL), buffers = int8 ? run.end - run.first - 1 : llm_shard_buffers(run);
        all_nodes += (double)nodes;
        c.nodes = nodes > c.nodes ? nodes : c.nodes;
        c.buffers = buffers > c.buffers ? buffers : c.buffers;
    }
    if (o->seq_parts > 1) all_nodes = llm_share_cost_of_parts(n_ranks, l, o, &c);
    c.gradients *= 1 + (double)c.buffers;
    if (n_ranks == 1 && (l->zero < 2 || llm_layout_lanes(l) == 1)) return c;
    const double travelling = unit * (l->zero < 2 ? LLM_SHARE_SLOTS : LLM_SHARE_FEW_SLOTS); /* units take slots in turns: each has had the largest */
    if (int8) c.passing = llm_share_int8_memory(n_ranks, o, unit);
    else if (llm_share_halves_nodes(n_ranks, l, o)) c.staging = 4 * travelling / 2;
    else c.staging = 4 * travelling / ranks * (all_nodes - (double)c.nodes); /* of the rank whose own nodes take most */
    c.ahead = llm_share_ahead(l, o, size->in_layers - size->largest, n_ranks);
    const bool overlaps = !int8 && o->outer == LLM_OUTER_NONE && size->in_layers > 0;
    if (overlaps) c.behind = 4 * (size->in_layers - size->largest) / ranks * others;
    if (n_ranks > 1 && llm_share_rounds(l, o, size->in_layers == 0)) c.rounded = 2 * size->params / ranks;
    if (l->zero < 2) return c;
    const double two = 2 * size->largest < size->in_layers ? 2 * size->largest : size->in_layers;
    c.nodes = (int64_t)(most * parts);
    c.buffers = 0;
    c.staging = 4 * travelling / ranks * others * parts;
    c.gradients = 4 * (parts * (two + rest) + size->in_layers / ranks) + (most > 1 ? (double)(o->grad_shards * o->seq_parts) * part : 0);
    if (l->zero == 3) c.weights = 4 * (two + size->in_layers / ranks + rest);
    if (l->zero == 3 && c.rounded > 0) c.rounded = 2 * (two + rest) / ranks;
    return c;
}

int llm_share_cells_init(struct llm_share *s, const struct llm_model *m, struct llm_err *e)
{
    if (make_cells(s, m, e) < 0) return -1;
    place_own(s);
    if (!s->comm) return 0;
    return make_nodes(s, e) < 0 ? -1 : order_nodes(s, e);
}
