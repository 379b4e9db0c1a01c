/* What a model of a configuration costs, from what its modules declare: parameters, and FLOPs of a forward pass per token: 2 for each element of a
 * multiplied matrix, and llm_module_kind.extra_flops. */
#include "model/spec/cost.h"

static void add(struct llm_cost_row *rows, size_t *n, size_t room, enum llm_unit unit, double params, double flops)
{
    size_t i = 0;
    while (i < *n && rows[i].unit != (int)unit) i++;
    if (i == room) return;
    if (i == *n) rows[(*n)++] = (struct llm_cost_row){.unit = (int)unit};
    rows[i].params += params;
    rows[i].flops_forward += flops;
}

double llm_param_spec_flops(const struct llm_param_spec *s)
{
    return s->n_dims < 2 || s->lookup ? 0 : 2 * (double)s->shape[0] * (double)s->shape[1] * (s->active > 0 ? s->active : 1);
}

size_t llm_model_cost(const struct llm_config *c, int64_t context, struct llm_cost_row *rows, size_t room)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    struct llm_err e;
    size_t n = 0;
    if (llm_model_declare(c, &d, &layout, &e) < 0) return 0;
    for (size_t i = 0; i < d.n; i++) {
        const struct llm_param_spec *s = &d.specs[i];
        const enum llm_unit unit = s->stack != LLM_STACK_MAIN ? LLM_UNIT_ENCODER : s->unit;
        add(rows, &n, room, unit, (double)s->shape[0] * (double)s->shape[1], llm_param_spec_flops(s));
    }
    const struct llm_stack *main = &layout->stacks[LLM_STACK_MAIN];
    for (int64_t l = 0; l < main->n_layers; l++) {
        const struct llm_module *modules[] = {&main->layers[l].mixer, &main->layers[l].ffn, &main->layers[l].cross};
        for (int i = 0; i < 3; i++) {
            if (!modules[i]->kind || !modules[i]->kind->extra_flops) continue;
            add(rows, &n, room, modules[i]->kind->unit, 0, modules[i]->kind->extra_flops(c, l, context));
        }
    }
    for (int i = 0; i < LLM_MAX_STACKS; i++) {
        const struct llm_stack *s = &layout->stacks[i];
        for (int64_t l = 0; i != LLM_STACK_MAIN && l < s->n_layers; l++) {
            const int64_t seen = i == LLM_STACK_VISION ? s->own->max_position_embeddings : context;
            add(rows, &n, room, LLM_UNIT_ENCODER, 0, s->layers[l].mixer.kind->extra_flops(s->own, l, seen));
        }
    }
    bool encodes = c->bidirectional && !c->head_transform; /* an encoder's hidden states are its result */
    bool tied = c->tie_word_embeddings && llm_config_has_head(c) && !encodes;
    if (tied) add(rows, &n, room, LLM_UNIT_HEAD, 0, 2 * (double)c->vocab_size * (double)c->hidden_size);
    llm_decoder_destroy(layout, 0);
    llm_declare_release(&d);
    return n;
}

static double count(const struct llm_config *c, bool active)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    struct llm_err e;
    double n = 0;
    if (llm_model_declare(c, &d, &layout, &e) < 0) return 0;
    for (size_t i = 0; i < d.n; i++) {
        const struct llm_param_spec *s = &d.specs[i];
        n += (double)s->shape[0] * (double)s->shape[1] * (active && s->active > 0 ? s->active : 1);
    }
    llm_decoder_destroy(layout, 0);
    llm_declare_release(&d);
    return n;
}

double llm_model_params(const struct llm_config *c) { return count(c, false); }
double llm_model_active_params(const struct llm_config *c) { return count(c, true); }

double llm_model_kv_bytes_per_token(const struct llm_config *c, enum llm_dtype cache)
{
    const struct llm_dtype_row *t = &llm_dtypes[cache];
    double elements = 0;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        struct llm_state_shape s = llm_model_state(c, l);
        if (s.source == l) elements += (double)(s.n_kv_heads * (s.d_k + s.d_v));
    }
    return elements / t->block_size * t->block_bytes;
}

double llm_model_state_bytes(const struct llm_config *c)
{
    double bytes = 0;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        struct llm_state_shape s = llm_model_state(c, l);
        bytes += (double)llm_state_floats(&s) * sizeof(float);
    }
    return bytes;
}

bool llm_model_is_recurrent(const struct llm_config *c)
{
    return llm_model_state_bytes(c) > 0;
}
