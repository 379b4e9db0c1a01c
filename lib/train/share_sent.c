/* The bytes of gradients and weights that a rank sends in a step, computed from the cells of a run (train/share.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/optim.h"
#include "train/share_internal.h"

/* The ranks of a lane, and what each sends. */
struct tally {
    const struct llm_layout *l;
    int64_t n, *nodes;      /* [n] that a rank sends of what all ranks of the lane have */
    double *own, *weights;  /* [n] elements of a class; bytes of their updated weights as they travel */
    double *sent;           /* [n] bytes */
    int64_t *brought;       /* [groups + 1] how often owners send the weights of a group, or with zero 0 its gradients */
};

/* The nodes of rank q. */
static int count_nodes(struct tally *w, const struct llm_train_options *o, int64_t q, struct llm_err *e)
{
    const int64_t cp = llm_layout_rows(w->l), shards = llm_train_options_parts(o);
    const struct llm_terms k = {w->n, cp, o->seq_parts / cp, o->grad_shards};
    const struct llm_shard_run run = llm_shard_run((int)(q / cp), (int)(w->n / cp), shards);
    w->nodes[q] = w->l->zero >= 2 ? (run.end - run.first) * k.parts : llm_tree_nodes(run.first, run.end, run.n, NULL);
    if (w->l->zero >= 2 || o->seq_parts == 1) return 0;
    const size_t room = (size_t)llm_terms_nodes(&k, (int)q, NULL, NULL, NULL);
    struct llm_tree_node *nodes = llm_calloc(room, sizeof *nodes, "the ranks' shares", e);
    struct llm_share_place *places = llm_calloc(room, sizeof *places, "the ranks' shares", e);
    if (nodes && places) w->nodes[q] = llm_terms_nodes(&k, (int)q, nodes, places, NULL);
    free(nodes);
    free(places);
    return nodes && places ? 0 : -1;
}

/* A pass through groups [first, end): each comes when it is read next, or one before, unless it lies in one of the two memories, as share_layers.c's
 * positions have it. */
static void pass_through(struct tally *w, int64_t first, int64_t end, bool forward, int64_t there[2])
{
    for (int64_t i = 0; i < end - first; i++) {
        const int64_t entered = forward ? first + i : end - 1 - i, next = forward ? entered + 1 : entered - 1;
        for (int64_t g = entered, k = 0; k < 2; k++, g = next) {
            if (g < first || g >= end || there[g % 2] == g) continue;
            there[g % 2] = g;
            w->brought[g]++;
        }
    }
}

/* How often the weights of each group come with zero 3 in a step of so many passes. */
static void count_brought(struct tally *w, const struct llm_share_walk *k, int64_t n_groups, int64_t passes)
{
    const struct llm_stage_order order = {k->stage, k->stages, k->chunks / k->stages, passes, w->l->gpipe};
    int64_t there[2] = {-1, -1};
    for (int64_t g = 0; g <= n_groups; g++) w->brought[g] = w->l->zero < 3 || g == n_groups;
    for (int64_t i = 0; w->l->zero == 3 && i < llm_stages_acts(&order); i++) {
        const struct llm_stage_act at = llm_stages_act(&order, i);
        const int64_t chunk = at.chunk * k->stages + k->stage;
        if (at.pass < 0) continue;
        pass_through(w, llm_share_group_of(k->first, k->chunks, k->group_layers, k->first[chunk]),
                     llm_share_group_of(k->first, k->chunks, k->group_layers, k->first[chunk + 1]), at.forward, there);
    }
}

/* Adds what the ranks send of weights so many times, w->weights, which are lost: in stages, each with those that it has got before. */
static void add_doubling(struct tally *w, int stages, double times)
{
    for (int64_t bit = w->n / 2, k = 0; k < stages; k++, bit /= 2) {
        for (int64_t q = 0; q < w->n; q++) w->sent[q] += w->weights[q] * times;
        for (int64_t q = 0; q < w->n; q++) {
            if (q & bit) continue;
            w->weights[q] += w->weights[q | bit];
            w->weights[q | bit] = w->weights[q];
        }
    }
}

/* Adds what the ranks send of the parts of a group that have the same copies. */
static void add_class(struct tally *w, const struct llm_share_part *parts, size_t n_parts, int64_t group, int copies)
{
    const int64_t ep = copies == (int)LLM_SHARE_EXPERT ? llm_layout_experts(w->l) : 1, owners = w->n / ep;
    const double others = (double)(owners - 1 + (copies == (int)LLM_SHARE_TIED ? w->n : 0)); /* of the last stage, too */
    const int stages = copies == (int)LLM_SHARE_EXPERT || copies == (int)LLM_SHARE_TIED ? 0 : llm_share_stages_of(w->n);
    size_t total = 0, done = 0;
    memset(w->own, 0, (size_t)w->n * sizeof *w->own);
    memset(w->weights, 0, (size_t)w->n * sizeof *w->weights);
    for (size_t i = 0; i < n_parts; i++) total += parts[i].group == group && parts[i].copies == copies ? parts[i].n : 0;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].group != group || parts[i].copies != copies) continue;
        for (size_t at = 0, n; at < parts[i].n; at += n) {
            n = parts[i].whole || parts[i].n - at < LLM_OPTIM_BLOCK ? parts[i].n - at : LLM_OPTIM_BLOCK;
            const int owner = llm_share_owner_of((int)owners, llm_share_part_of((int)owners, done, n, total), group);
            w->own[owner] += (double)n;
            w->weights[owner] += (double)(n * (parts[i].rounded ? sizeof(uint16_t) : sizeof(float)));
            done += n;
        }
    }
    for (int64_t q = 0; q < w->n; q++) {
        const double own = w->own[q / ep], weights = w->weights[q / ep];
        int64_t nodes = 0;
        for (int64_t d = q / ep * ep; d < q / ep * ep + ep; d++) nodes += w->nodes[d];
        w->sent[q] += (owners > 1 ? 4 * (double)nodes * ((double)total - own) : 0) + (stages ? 0 : weights * others * (double)w->brought[group]);
    }
    add_doubling(w, stages, (double)w->brought[group]);
}

static void tally(struct tally *w, const struct llm_share_part *parts, size_t n_parts, int64_t n_groups)
{
    for (int64_t g = 0; g <= n_groups; g++) {
        for (int copies = 0; copies <= (int)LLM_SHARE_EXPERT; copies++) add_class(w, parts, n_parts, g, copies);
    }
}

int llm_share_sent(double *bytes, const struct llm_share_part *parts, size_t n_parts, const struct llm_share_walk *walk, int64_t n_ranks,
                   const struct llm_layout *l, const struct llm_train_options *o, struct llm_err *e)
{
    const int64_t n_groups = llm_share_group_of(walk->first, walk->chunks, walk->group_layers, walk->first[walk->chunks]);
    struct tally w = {.l = l, .n = n_ranks};
    double params = 0, rounded = 0, most = 0;
    for (size_t i = 0; i < n_parts; i++) params += (double)parts[i].n;
    for (size_t i = 0; i < n_parts; i++) rounded += parts[i].rounded ? (double)parts[i].n : 0;
    w.nodes = llm_calloc((size_t)n_ranks, sizeof *w.nodes, "the ranks' shares", e);
    w.own = llm_calloc((size_t)n_ranks, sizeof *w.own, "the ranks' shares", e);
    w.weights = llm_calloc((size_t)n_ranks, sizeof *w.weights, "the ranks' shares", e);
    w.sent = llm_calloc((size_t)n_ranks, sizeof *w.sent, "the ranks' shares", e);
    w.brought = llm_calloc((size_t)n_groups + 1, sizeof *w.brought, "the ranks' shares", e);
    int got = w.nodes && w.own && w.weights && w.sent && w.brought ? 0 : -1;
    for (int64_t q = 0; q < n_ranks && got == 0; q++) got = count_nodes(&w, o, q, e);
    if (got == 0) {
        count_brought(&w, walk, n_groups, llm_shard_rows(n_ranks / llm_layout_rows(l), llm_train_options_parts(o)));
        tally(&w, parts, n_parts, n_groups);
        for (int64_t q = 0; q < n_ranks; q++) most = fmax(most, w.sent[q]);
    }
    *bytes = o->gradients == LLM_GRADIENTS_INT8 ? llm_share_int8_sent(n_ranks, l, o, params, rounded) : most;
    free(w.nodes);
    free(w.own);
    free(w.weights);
    free(w.sent);
    free(w.brought);
    return got;
}
