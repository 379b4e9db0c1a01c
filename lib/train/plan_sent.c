#include "train/plan_sent.h"

#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "model/spec/block.h"
#include "model/weights/lora.h"
#include "model/weights/slices.h"
#include "train/shards.h"
#include "train/stages.h"

bool llm_stage_has_layer(const struct llm_stage_chunks *s, int64_t layer)
{
    int64_t j = 0;
    while (layer >= s->first[j + 1]) j++;
    return j % s->n == s->k;
}

bool llm_stage_has_param(const struct llm_stage_chunks *k, const struct llm_param_spec *s)
{
    if (s->stack == LLM_STACK_MAIN && s->layer >= 0 && s->layer < k->first[k->chunks]) return llm_stage_has_layer(k, s->layer);
    return s->unit == LLM_UNIT_EMBEDDINGS ? k->k == 0 : k->k == k->n - 1;
}

/* Sums over slices that all layers take in the forward pass, and their floats for each token: a hidden state for each mixer and each feed-forward
 * part, of Mamba x_proj's output, of groups of Mamba 2 that slices share B, C and the squares of the norm. */
struct sums { double n, floats; };
static struct sums sums_of_slices(const struct llm_config *c, const struct llm_train_options *o)
{
    const bool shared = llm_mamba2_divides_groups(c, o->tensor_parts);
    struct sums s = {0};
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        const struct llm_module_kind *mixer = llm_decoder_mixer(c, l);
        const bool mamba = mixer == &llm_module_mamba, mamba2 = mixer == &llm_module_mamba2 && shared, ffn = llm_decoder_ffn(c, l) != NULL;
        s.n += 1 + mamba + 2 * mamba2 + ffn;
        s.floats += (double)((1 + ffn) * c->hidden_size + mamba * (c->time_step_rank + 2 * c->state_size)
                            + mamba2 * c->ssm_groups * (2 * c->state_size + 1));
    }
    return s;
}

double llm_sent_by_member(const struct llm_config *c, const struct llm_train_options *o, int64_t members, double tokens, double layers,
                          bool embeds, bool heads)
{
    const int64_t own = o->tensor_parts / members;
    const double others = (double)members - 1, nodes = (double)llm_tree_nodes(0, own, o->tensor_parts, NULL);
    const double hidden = (double)c->hidden_size;
    const double floats = sums_of_slices(c, o).floats * (layers / (double)c->num_hidden_layers * (o->checkpoint_every > 0 ? 3 : 2));
    const double sums = nodes * (floats + heads * hidden) + (embeds ? hidden / (double)members : 0);
    return 4 * tokens * others * (sums + (heads ? (double)(2 * own + 1) : 0));
}

double llm_stage_mixtures(const struct llm_config *c, const struct llm_stage_chunks *s)
{
    double n = 0;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) n += (!s || llm_stage_has_layer(s, l)) && llm_decoder_ffn(c, l) == &llm_module_moe;
    return n;
}

double llm_sent_to_experts(const struct llm_config *c, const struct llm_train_options *o, const struct llm_layout *l, double layers, double tokens)
{
    const double slots = tokens * (double)c->num_experts_per_tok * (1 - 1 / (double)llm_layout_experts(l)), hidden = (double)c->hidden_size;
    const double slices = (double)(o->tensor_parts / llm_layout_members(l));
    return 4 * slots * slices * layers * ((o->checkpoint_every > 0 ? 4 : 2) * hidden + 3 * hidden + 3);
}

/* Floats of the states of recurrent layers that follow one row, and how many layers attend. */
static double states_of_row(const struct llm_config *c, double *attending)
{
    double floats = 0;
    *attending = 0;
    for (int64_t k = 0; k < c->num_hidden_layers; k++) {
        const struct llm_state_shape state = llm_model_state(c, k);
        floats += (double)llm_state_floats(&state);
        *attending += llm_decoder_mixer(c, k) == &llm_module_attention || llm_decoder_mixer(c, k) == &llm_module_mla;
    }
    return floats;
}

double llm_sent_by_rows(const struct llm_config *c, const struct llm_train_options *o, const struct llm_layout *l, double tokens, double layers)
{
    const bool latent = llm_decoder_mixer(c, 0) == &llm_module_mla;
    const int64_t cp = llm_layout_rows(l), heads = c->num_attention_heads / o->tensor_parts, kv = c->num_key_value_heads / o->tensor_parts;
    const int64_t sets = llm_common_divisor(heads, cp); /* of heads, of which each goes to cp / sets ranks (tensor/op/sequence.c) */
    const int64_t copies = latent || kv % sets == 0 ? 1 : llm_sequence_copies(heads, kv, o->seq_parts);
    const int64_t d_k = latent ? c->qk_nope_head_dim + c->qk_rope_head_dim : c->head_dim, d_v = latent ? c->v_head_dim : c->head_dim;
    const int64_t kv_heads = latent ? c->num_attention_heads : copies * c->num_key_value_heads;
    const double inputs = (double)(c->num_attention_heads * d_k + kv_heads * (d_k + d_v)), output = (double)(c->num_attention_heads * d_v);
    const double others = 1 - 1 / (double)cp, to_heads = (double)(cp - 1) / (double)sets;
    const double statistics = 3 * (double)c->num_attention_heads * ((double)(cp / sets) - 1);
    const int64_t context = o->context;
    double attending;
    const double states = states_of_row(c, &attending) / (double)llm_layout_members(l), rows = tokens * (double)cp / (double)context;
    const double forward = o->checkpoint_every > 0 ? 2 : 1;
    const double of_token = forward * (to_heads * inputs + others * output) + to_heads * output + others * inputs + statistics;
    const double attended = tokens * of_token / (double)llm_layout_members(l) * attending;
    /* States go to the rank after, their gradients to the one before: of two ranks each has one neighbour. */
    return 4 * (attended + rows * states * (forward + (cp > 2))) * layers / (double)c->num_hidden_layers;
}

int llm_plan_add_work(struct llm_plan *p, const struct llm_config *c, const struct llm_train_options *o, const struct llm_layout *l, double forward,
                      struct llm_err *e)
{
    const int64_t dp = l->dp > 0 ? l->dp : llm_layout_experts(l), parts = llm_train_options_parts(o), n = llm_layout_stages(l);
    const int64_t most = llm_shard_rows(dp, parts), rows = llm_shard_rows(parts, o->batch * o->accumulate); /* of a part */
    const int64_t context = o->context;
    const double passes = (double)most * ceil((double)rows / (double)o->batch), layers = (double)c->num_hidden_layers;
    const double cp = (double)llm_layout_rows(l), others = (double)dp * cp - 1;
    const double members = (double)llm_layout_members(l), ep = (double)llm_layout_experts(l);
    const double slices = (double)(o->tensor_parts / llm_layout_members(l));
    const double groups = ceil(layers / (double)llm_share_group_layers(c, o)) / (double)n + 1;
    int64_t first[LLM_PLAN_MAX_STAGES + 1];
    double stage = 1;
    const int64_t vp = llm_layout_chunks(l);
    if (n > 1 && (llm_stages_cut(c, context, n, vp, first, e) < 0 || llm_stages_most(c, context, n, vp, first, &stage, e) < 0)) return -1;
    p->work = p->flops_per_step * (double)most / (double)parts / (members * cp) * stage * (passes + (double)(n - 1) / (double)vp) / passes;
    p->forward = p->work * forward / (passes + (double)(n - 1) / (double)vp);
    p->backward = p->forward * (o->checkpoint_every > 0 ? 3 : 2) * (l->zero < 2 ? 1 : passes);
    const int stages = llm_share_stages_of(dp * llm_layout_rows(l));
    const double in = stages ? stages : others, out = llm_share_halves_nodes(dp * llm_layout_rows(l), l, o) ? stages : others;
    p->messages = groups * (l->zero < 2 ? out + in : (double)most * out + (l->zero == 2 ? 1 : 2 * (double)most + 1) * in);
    if (o->outer != LLM_OUTER_NONE) p->messages /= (double)o->inner_steps;
    const double passed = n > 2 || vp > 1 ? 4 * (double)vp : n > 1 ? 2 : 0; /* messages between chunks */
    p->messages += passes * ((members - 1) * (sums_of_slices(c, o).n / (double)n * (o->checkpoint_every > 0 ? 3 : 2) + 2) + passed
                             + (ep - 1) * slices * 5 * llm_stage_mixtures(c, NULL) / (double)n
                             + (cp - 1) * (layers * (o->checkpoint_every > 0 ? 6 : 4) + llm_stage_mixtures(c, NULL)) / (double)n);
    return 0;
}

struct parts { struct llm_share_part *v; size_t n, room; };

/* The parts of a parameter, in the order of a rank: those of its slices that the first of `members` ranks has, and experts of the first of `ep`. */
static int add_parts(struct parts *list, const struct llm_config *c, const struct llm_train_options *o, const struct llm_layout *l,
                     const struct llm_stage_chunks *k, const struct llm_share_walk *walk, const struct llm_param_spec *s, struct llm_err *e)
{
    const int64_t members = llm_layout_members(l), ep = llm_layout_experts(l);
    const bool in_layer = s->stack == LLM_STACK_MAIN && s->layer >= 0 && s->layer < c->num_hidden_layers && s->sharers == 0;
    const bool expert = ep > 1 && llm_share_divides(s), sliced = o->tensor_parts > 1 && llm_param_spec_sliced(s);
    const struct llm_param p = {.role = s->role};
    const struct llm_optim *optim = llm_optim_of(llm_optims[o->optimizer], &p);
    const int64_t group = llm_share_group_of(walk->first, walk->chunks, walk->group_layers, in_layer ? s->layer : c->num_hidden_layers);
    struct llm_share_part part = {.group = group,
                                  .n = (size_t)(s->shape[0] * s->shape[1]), .whole = s->balances || s->running || optim->update_matrix,
                                  .rounded = s->n_dims > 1 && llm_share_rounds(l, o, false),
                                  .copies = members > 1 && !sliced ? LLM_SHARE_EVERYWHERE : LLM_SHARE_ONE};
    if (k && k->k == 0 && c->tie_word_embeddings && s->stem == LLM_STEM_EMBED && s->stack == LLM_STACK_MAIN) part.copies = LLM_SHARE_TIED;
    if (expert && s->expert >= c->num_experts / ep) return 0;
    if (expert) part.copies = LLM_SHARE_EXPERT;
    const int64_t n = sliced ? o->tensor_parts / members : 1;
    if (sliced) part.n /= (size_t)o->tensor_parts;
    if (llm_grow((void **)&list->v, &list->room, list->n + (size_t)n, sizeof *list->v, e) < 0) return -1;
    for (int64_t i = 0; i < n; i++) list->v[list->n++] = part;
    return 0;
}

int llm_sent_of_params(double *bytes, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *o,
                       const struct llm_layout *l, const struct llm_stage_chunks *k, int64_t replicas, struct llm_err *e)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    struct parts list = {0};
    const int64_t whole[] = {0, c->num_hidden_layers}, group = llm_share_group_layers(c, o);
    const struct llm_share_walk walk = k ? (struct llm_share_walk){k->first, k->chunks, group, k->k, k->n}
                                         : (struct llm_share_walk){whole, 1, group, 0, 1};
    int got = 0;
    *bytes = 0;
    if (m && m->lora) {
        struct llm_share_part all = {.group = llm_share_group_of(whole, 1, group, c->num_hidden_layers), .n = (size_t)llm_lora_elements(m->lora)};
        return llm_share_sent(bytes, &all, 1, &walk, replicas, l, o, e);
    }
    if (llm_model_declare(c, &d, &layout, e) < 0) return -1;
    for (size_t i = 0; got == 0 && i < d.n; i++) {
        if (llm_trains(o, &d.specs[i]) && (!k || llm_stage_has_param(k, &d.specs[i]))) got = add_parts(&list, c, o, l, k, &walk, &d.specs[i], e);
    }
    llm_decoder_destroy(layout, 0);
    llm_declare_release(&d);
    if (got == 0) got = llm_share_sent(bytes, list.v, list.n, &walk, replicas, l, o, e);
    free(list.v);
    return got;
}
