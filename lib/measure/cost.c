#include "measure/cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "model/block.h"

enum { MAX_ROWS = 32 };

static double of(const struct llm_cost_row *rows, size_t n, const char *name, bool flops)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].name, name) == 0) return flops ? rows[i].flops_forward : rows[i].params;
    }
    return 0;
}

/* FLOPs of the first block's rows, or of the whole model's. */
static double all_flops(const struct llm_cost_row *rows, size_t n, bool block)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if ((strncmp(rows[i].name, "block ", 6) == 0) == block) sum += rows[i].flops_forward;
    }
    return sum;
}

int llm_cost_of(struct llm_cost *out, const struct llm_config *c, int64_t context, struct llm_err *e)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    struct llm_cost_row still[MAX_ROWS], seeing[MAX_ROWS];
    size_t n = llm_model_cost(c, 0, still, MAX_ROWS);
    *out = (struct llm_cost){.params = llm_model_params(c), .active_params = llm_model_active_params(c)};
    if (llm_model_declare(c, &d, &layout, e) < 0) return -1;
    for (size_t i = 0; i < d.n; i++) {
        double elements = (double)d.specs[i].shape[0] * (double)d.specs[i].shape[1];
        if (d.specs[i].layer == 0) out->block_params += elements;
        if (d.specs[i].lookup && strcmp(d.specs[i].row, "encoder") != 0) out->embedding_params += elements;
        if (d.specs[i].n_dims < 2) out->vector_params += elements;
    }
    double blocks = (double)layout->n_layers;
    if (c->mixer != LLM_MIXER_ATTENTION) {
        const struct llm_module_kind *kind = layout->layers[0].mixer.kind;
        out->mixer = kind->name;
        out->block_state_flops = kind->extra_flops ? kind->extra_flops(c, 0, context) : 0;
    }
    llm_decoder_destroy(layout, 0);
    llm_declare_release(&d);
    out->block_attention_params = of(still, n, "block attention", false) + of(still, n, "block cross-attention", false);
    out->encoder_params = of(still, n, "encoder", false);
    out->block_mlp_params = of(still, n, "block mlp", false) + of(still, n, "block experts", false);
    out->block_mlp_flops = of(still, n, "block mlp", true) + of(still, n, "block experts", true);
    out->block_flops = all_flops(still, n, true);
    out->head_flops = of(still, n, "head", true);
    n = llm_model_cost(c, context, seeing, MAX_ROWS);
    out->block_score_flops = all_flops(seeing, n, true) - out->block_flops;
    out->forward_flops = all_flops(seeing, n, false);
    out->encoder_flops = of(seeing, n, "encoder", true);
    out->final_params = out->params - out->embedding_params - blocks * out->block_params - out->encoder_params;
    return 0;
}

const char *const llm_cost_part_columns[] = {"part", "shape", "parameters", "parameters_share", "flops_per_token", "flops_share", NULL};

static void part(struct llm_table *t, const char *name, const char *shape, double params, double of_params, double flops, double of_flops)
{
    llm_table_text(t, name);
    llm_table_text(t, shape);
    llm_table_count(t, params);
    llm_table_number(t, params / of_params, 4);
    llm_table_count(t, flops);
    llm_table_number(t, of_flops > 0 ? flops / of_flops : (double)NAN, 4);
}

static void block_parts(struct llm_table *t, const struct llm_declare *d, const struct llm_cost *cost, int64_t context)
{
    double flops_all = cost->block_flops + cost->block_score_flops;
    char shape[64], name[160];
    for (size_t i = 0; i < d->n; i++) {
        const struct llm_param_spec *s = &d->specs[i];
        double elements = (double)s->shape[0] * (double)s->shape[1];
        if (s->layer != 0) continue;
        if (s->n_dims < 2) snprintf(shape, sizeof shape, "[%" PRId64 "]", s->shape[0]);
        else snprintf(shape, sizeof shape, "[%" PRId64 ", %" PRId64 "]", s->shape[0], s->shape[1]);
        part(t, s->name, shape, elements, cost->block_params, s->n_dims < 2 ? 0 : 2 * elements * (s->active > 0 ? s->active : 1), flops_all);
    }
    if (cost->mixer) { /* one part, whatever stands before a token */
        if (cost->block_state_flops > 0) part(t, "steps of the state, any context", "-", 0, cost->block_params, cost->block_state_flops, flops_all);
        snprintf(name, sizeof name, "block: %s", cost->mixer);
        part(t, name, "-", cost->block_params, cost->block_params, flops_all, flops_all);
        return;
    }
    snprintf(name, sizeof name, "scores and values, context %" PRId64, context);
    part(t, name, "-", 0, cost->block_params, cost->block_score_flops, flops_all);
    part(t, "block: attention", "-", cost->block_attention_params, cost->block_params,
         2 * cost->block_attention_params + cost->block_score_flops, flops_all);
    part(t, "block: feed-forward", "-", cost->block_mlp_params, cost->block_params, cost->block_mlp_flops, flops_all);
    part(t, "block", "-", cost->block_params, cost->block_params, flops_all, flops_all);
}

int llm_cost_parts(struct llm_table *t, const struct llm_config *c, int64_t context, struct llm_err *e)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    struct llm_cost cost;
    char name[64];
    if (llm_cost_of(&cost, c, context, e) < 0 || llm_model_declare(c, &d, &layout, e) < 0) return -1;
    double blocks = (double)layout->n_layers;
    block_parts(t, &d, &cost, context);
    part(t, "embeddings", "-", cost.embedding_params, cost.params, 0, cost.forward_flops);
    snprintf(name, sizeof name, "%.0f blocks", blocks);
    part(t, name, "-", blocks * cost.block_params, cost.params, blocks * (cost.block_flops + cost.block_score_flops), cost.forward_flops);
    if (cost.encoder_params > 0) part(t, "encoder", "-", cost.encoder_params, cost.params, cost.encoder_flops, cost.forward_flops);
    part(t, c->tie_word_embeddings ? "final norm, tied head" : "final norm, head", "-", cost.final_params, cost.params, cost.head_flops,
         cost.forward_flops);
    part(t, "model", "-", cost.params, cost.params, cost.forward_flops, cost.forward_flops);
    llm_decoder_destroy(layout, 0);
    llm_declare_release(&d);
    return 0;
}

double llm_cost_weight_bytes(const struct llm_cost *cost, enum llm_dtype type)
{
    const struct llm_dtype_row *t = &llm_dtypes[type];
    double vector = t->is_quantised ? 4 : t->block_bytes;
    return (cost->params - cost->vector_params) / t->block_size * t->block_bytes + cost->vector_params * vector;
}

const char *const llm_cost_total_columns[] = {"what", "value", "unit", NULL};

static void total(struct llm_table *t, double value, const char *unit, const char *what)
{
    llm_table_text(t, what);
    llm_table_count(t, value);
    llm_table_text(t, unit);
}

int llm_cost_totals(struct llm_table *t, const struct llm_config *c, int64_t context, struct llm_err *e)
{
    static const enum llm_dtype weights[] = {LLM_F32, LLM_BF16, LLM_Q8_0, LLM_Q4_0}, caches[] = {LLM_F32, LLM_BF16, LLM_Q8_0, LLM_Q4_0};
    struct llm_cost cost;
    char what[100];
    if (llm_cost_of(&cost, c, context, e) < 0) return -1;
    total(t, cost.forward_flops, "FLOP/token", "forward");
    total(t, 3 * cost.forward_flops, "FLOP/token", "training: forward, and twice that backward");
    total(t, 6 * cost.params, "FLOP/token", "training by the rule 6N");
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        snprintf(what, sizeof what, "weights in %s", llm_dtypes[weights[i]].name);
        total(t, llm_cost_weight_bytes(&cost, weights[i]), "bytes", what);
    }
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        double each = llm_model_kv_bytes_per_token(c, caches[i]);
        snprintf(what, sizeof what, "KV cache in %s, one token", llm_dtypes[caches[i]].name);
        total(t, each, "bytes", what);
        snprintf(what, sizeof what, "KV cache in %s, context %" PRId64, llm_dtypes[caches[i]].name, context);
        total(t, each * (double)context, "bytes", what);
    }
    if (llm_model_is_recurrent(c)) total(t, llm_model_state_bytes(c), "bytes", "state in F32, one sequence");
    total(t, 4 * cost.params, "bytes", "training: FP32 weights");
    total(t, 4 * cost.params, "bytes", "training: gradients");
    total(t, 8 * cost.params, "bytes", "training: AdamW's two moments");
    total(t, 2 * (cost.params - cost.vector_params), "bytes", "training: BF16 working copy");
    total(t, 18 * cost.params - 2 * cost.vector_params, "bytes", "training: the four together, without activations");
    return 0;
}
