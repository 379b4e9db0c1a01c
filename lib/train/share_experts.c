/* Experts that ranks divide (train/share.h): what they ask of a run, who has which, and their gradients by the rows of each member of a group. */
#include <math.h>
#include <string.h>
#include "cpu/optim.h"
#include "model/spec/declare.h"
#include "tensor/experts.h"
#include "train/objective.h"
#include "train/share_internal.h"

bool llm_share_divides(const struct llm_param_spec *s)
{
    return s && s->stack == LLM_STACK_MAIN && s->expert >= 0;
}

/* What of the options does not go with expert parallelism; NULL: nothing. */
static const char *obstacle(const struct llm_train_options *o, bool adapted)
{
    if (adapted) return "a model without an adapter";
    if (o->gradients == LLM_GRADIENTS_INT8) return "a run without --gradients int8";
    if (o->outer != LLM_OUTER_NONE) return "a run without --outer";
    if (o->ema > 0) return "a run without averages (--ema)";
    if (o->carry_state) return "a run without --carry-state";
    if (o->batch_tokens > 0) return "steps of --batch rows, found --batch-tokens";
    if (o->train.n > 0) return "a run without --train";
    if (o->freeze.n > 0) return "a run without --freeze";
    return NULL;
}

int llm_share_check_experts(const struct llm_layout *l, const struct llm_train_options *o, const struct llm_config *c, bool adapted,
                            const struct llm_objective *objective, struct llm_err *e)
{
    const int ep = (int)l->ep;
    const char *other = obstacle(o, adapted);
    if (llm_layout_experts(l) == 1) return 0;
    if (other) return llm_fail(e, LLM_EX_USAGE, "--shard: ep=%d: expected %s", ep, other);
    if (c->num_experts == 0) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: ep=%d: expected a model with mixtures of experts, found %s", ep, c->model_type);
    }
    if (c->num_experts % ep != 0) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: expected ep to be a divisor of the model's %lld experts, found ep=%d",
                        (long long)c->num_experts, ep);
    }
    if (objective->run != llm_objective_run_next) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: ep=%d: expected an objective that predicts the next token in one pass (lm, sft, prefix, fim), "
                        "found %s", ep, objective->name);
    }
    return 0;
}

int llm_share_gradients(const struct llm_share *s, size_t i)
{
    return (int)s->parts * (s->params[i].copies == LLM_SHARE_EXPERT ? s->ep : 1);
}

size_t llm_share_gradient_floats(const struct llm_share *s, size_t i)
{
    const struct llm_param *p = s->t[i].p;
    return (size_t)(llm_share_gradients(s, i) - 1) * llm_shard_stride(p) + (size_t)llm_param_count(p);
}

float *llm_share_member_buffers(const struct llm_share *s, size_t i, int m)
{
    return s->t[i].shards ? s->t[i].shards + (size_t)(m * s->member_buffers) * llm_shard_stride(s->t[i].p) : NULL;
}

void llm_share_members_init(struct llm_share *s)
{
    for (int m = 0; m < s->ep; m++) {
        const int64_t n = llm_shard_buffers(llm_share_member_run(s, m));
        if (n > s->member_buffers) s->member_buffers = n;
    }
}

/* A shard of member m: the gradient of parameter number i, an expert, by its rows. */
static void end_of_member(const struct llm_share *s, size_t i, int m, int64_t shard)
{
    if (s->members) {
        llm_share_end_parts(s, i, m, shard);
        return;
    }
    struct llm_param p = *s->t[i].p;
    p.grad = llm_expert_grad(&p, m);
    struct llm_trainable of_member = {.p = &p, .shards = llm_share_member_buffers(s, i, m)};
    if (p.grad) llm_shard_end(&of_member, 1, shard, llm_share_member_run(s, m));
}

void llm_share_end_members(struct llm_share *s, int64_t pass, int64_t chunk)
{
    for (size_t i = 0; s->ep > 1 && s->zero < 2 && i < s->n_params; i++) {
        if (s->params[i].copies != LLM_SHARE_EXPERT || (chunk >= 0 && s->params[i].chunk != chunk)) continue;
        for (int m = 0; m < s->ep; m++) {
            const int64_t shard = s->member_ends[m * s->n_passes + pass];
            const bool last = shard == llm_share_member_run(s, m).end - 1; /* which ends as the layer is left */
            if (shard >= 0 && !(last && s->comm)) end_of_member(s, i, m, shard);
        }
    }
}

void llm_share_end_shard(struct llm_share *s, size_t i, int64_t shard)
{
    if (s->params[i].copies != LLM_SHARE_EXPERT) {
        if (s->members) llm_share_end_parts(s, i, s->replica % s->ep, shard);
        else llm_shard_end(&s->t[i], 1, shard, s->run);
        return;
    }
    for (int m = 0; m < s->ep; m++) end_of_member(s, i, m, llm_share_member_run(s, m).end - 1);
}

void llm_share_clear_apart(struct llm_share *s)
{
    for (size_t i = 0; i < s->n_params; i++) {
        const struct llm_param *p = s->t[i].p;
        const size_t more = (size_t)llm_share_gradients(s, i) - 1;
        if (more > 0 && p->grad && !s->t[i].pooled) memset(llm_expert_grad(p, 1), 0, more * llm_grad_stride(p) * sizeof *p->grad);
    }
}

double llm_share_ahead(const struct llm_layout *l, const struct llm_train_options *o, double elements, int64_t n_ranks)
{
    const bool whole = (l->zero != 1 && l->zero != 2) || o->ema > 0; /* all ranks have all weights at the end of the step, or never */
    const double width = llm_share_rounds(l, o, false) ? sizeof(uint16_t) : sizeof(float); /* of an adapter nothing is in layers */
    return whole || elements <= 0 ? 0 : width * elements / (double)n_ranks * (double)(n_ranks - 1);
}

void llm_share_add_experts(int64_t replicas, const struct llm_layout *l, const struct llm_train_options *o, const struct llm_share_size *size,
                           struct llm_share_cost *c)
{
    const double parts = (double)(o->seq_parts / llm_layout_rows(l)), terms = (double)(o->grad_shards * o->seq_parts);
    const double part = 4 * size->params / (double)replicas, nodes = (double)c->nodes, shards = l->zero < 2 ? nodes : nodes / parts;
    const double two = 4 * (2 * size->largest < size->params ? 2 * size->largest : size->params); /* of two groups of layers */
    c->weights += l->zero < 3 ? 4 * size->params / (double)l->ep : two / (double)l->ep + part;
    c->gradients += l->zero < 2 ? 4 * size->params * (double)(1 + c->buffers) : parts * two + part + (shards > 1 ? terms * part : 0);
    c->ahead += llm_share_ahead(l, o, (size->params - size->largest) / (double)l->ep, replicas / l->ep);
    c->behind += 4 * (size->params - size->largest) / (double)replicas * (double)(replicas - l->ep);
    /* What is staged of a unit of experts: the nodes of all members of each other group. A slot has the larger of that and of a unit of others. */
    const double groups = (double)replicas / (double)l->ep, slots = l->zero < 2 ? LLM_SHARE_SLOTS : LLM_SHARE_FEW_SLOTS;
    const double unit = fmin(size->largest / (double)l->ep, LLM_SHARE_UNIT_ELEMENTS);
    if (replicas > l->ep && llm_share_rounds(l, o, false)) c->rounded += 2 * (l->zero < 3 ? size->params : two / 4) / (double)replicas;
    c->staging = fmax(c->staging, 4 * slots * unit / groups * (groups - 1) * (double)l->ep * nodes);
}
