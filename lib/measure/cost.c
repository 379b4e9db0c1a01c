#include "measure/cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "model/spec/block.h"

enum { MAX_ROWS = 32, MAX_KINDS = 8 };

static double of(const struct llm_cost_row *rows, size_t n, enum llm_unit unit, bool flops)
{
    for (size_t i = 0; i < n; i++) {
        if (rows[i].unit == (int)unit) return flops ? rows[i].flops_forward : rows[i].params;
    }
    return 0;
}

/* One of the model's blocks; norms are the rest. */
struct block { double params, attention_params, mlp_params, flops, attention_flops, mlp_flops, score_flops; };

/* Of a layer that predicts further. An encoder's layers are numbered from n_layers too. */
static bool is_next(const struct llm_param_spec *s, const struct llm_decoder *layout)
{
    return s->layer >= layout->stacks[LLM_STACK_MAIN].n_layers && s->stack == LLM_STACK_MAIN;
}

/* With `context` tokens in sight. */
static struct block block_of(const struct llm_config *c, const struct llm_declare *d, const struct llm_decoder *layout, int64_t layer,
                             int64_t context)
{
    const struct llm_layer *l = &layout->stacks[LLM_STACK_MAIN].layers[layer];
    const struct llm_module *modules[] = {&l->mixer, &l->ffn, &l->cross};
    struct block b = {0};
    for (size_t i = 0; i < d->n; i++) {
        const struct llm_param_spec *s = &d->specs[i];
        double elements = (double)s->shape[0] * (double)s->shape[1], flops = llm_param_spec_flops(s);
        bool attention = s->unit == LLM_UNIT_ATTENTION || s->unit == LLM_UNIT_CROSS_ATTENTION;
        bool mlp = s->unit == LLM_UNIT_MLP || s->unit == LLM_UNIT_EXPERTS;
        if (s->layer != layer) continue;
        b.params += elements;
        b.flops += flops;
        b.attention_params += attention ? elements : 0;
        b.attention_flops += attention ? flops : 0;
        b.mlp_params += mlp ? elements : 0;
        b.mlp_flops += mlp ? flops : 0;
    }
    for (int i = 0; i < 3; i++) {
        if (modules[i]->kind && modules[i]->kind->extra_flops) b.score_flops += modules[i]->kind->extra_flops(c, layer, context);
    }
    b.flops += b.score_flops;
    b.attention_flops += b.score_flops;
    return b;
}

int llm_cost_of(struct llm_cost *out, const struct llm_config *c, int64_t context, struct llm_err *e)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    struct llm_cost_row rows[MAX_ROWS];
    size_t n = llm_model_cost(c, context, rows, MAX_ROWS);
    *out = (struct llm_cost){.params = llm_model_params(c), .active_params = llm_model_active_params(c)};
    if (llm_model_declare(c, &d, &layout, e) < 0) return -1;
    for (size_t i = 0; i < n; i++) out->forward_flops += rows[i].flops_forward;
    out->head_flops = of(rows, n, LLM_UNIT_HEAD, true);
    for (size_t i = 0; i < d.n; i++) {
        double elements = (double)d.specs[i].shape[0] * (double)d.specs[i].shape[1];
        if (is_next(&d.specs[i], layout)) {
            out->params -= elements;
            out->active_params -= elements * (d.specs[i].active > 0 ? d.specs[i].active : 1);
            out->forward_flops -= llm_param_spec_flops(&d.specs[i]);
            out->next_params += elements;
            out->next_flops += llm_param_spec_flops(&d.specs[i]);
            continue;
        }
        if (d.specs[i].lookup && d.specs[i].stack == LLM_STACK_MAIN) out->embedding_params += elements;
        if (d.specs[i].n_dims < 2) out->vector_params += elements;
    }
    for (int64_t l = 0; l < layout->stacks[LLM_STACK_MAIN].n_layers; l++) {
        const struct block b = block_of(c, &d, layout, l, context);
        out->blocks_params += b.params;
        out->blocks_flops += b.flops;
    }
    for (int64_t k = 0; k < layout->n_next; k++) {
        out->next_flops += block_of(c, &d, layout, layout->stacks[LLM_STACK_MAIN].n_layers + k, context).score_flops + out->head_flops;
    }
    llm_decoder_destroy(layout, 0);
    llm_declare_release(&d);
    out->encoder_params = of(rows, n, LLM_UNIT_ENCODER, false);
    out->encoder_flops = of(rows, n, LLM_UNIT_ENCODER, true);
    out->final_params = out->params - out->embedding_params - out->blocks_params - out->encoder_params;
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

/* Every matrix of a block, and the block. */
static void block_parts(struct llm_table *t, const struct llm_config *c, const struct llm_declare *d, const struct block *b, int64_t layer,
                        const char *mixer, int64_t context)
{
    char shape[64], name[160], block[32] = "block";
    if (layer > 0) snprintf(block, sizeof block, "block %" PRId64, layer);
    for (size_t i = 0; i < d->n; i++) {
        const struct llm_param_spec *s = &d->specs[i];
        if (s->layer != layer) continue;
        if (s->n_dims < 2) snprintf(shape, sizeof shape, "[%" PRId64 "]", s->shape[0]);
        else snprintf(shape, sizeof shape, "[%" PRId64 ", %" PRId64 "]", s->shape[0], s->shape[1]);
        part(t, s->name, shape, (double)s->shape[0] * (double)s->shape[1], b->params, llm_param_spec_flops(s), b->flops);
    }
    if (c->mixer != LLM_MIXER_ATTENTION) { /* one part, whatever stands before a token */
        if (b->score_flops > 0) part(t, "steps of the state, any context", "-", 0, b->params, b->score_flops, b->flops);
        snprintf(name, sizeof name, "%s: %s", block, mixer);
        part(t, name, "-", b->params, b->params, b->flops, b->flops);
        return;
    }
    snprintf(name, sizeof name, "scores and values, context %" PRId64, context);
    part(t, name, "-", 0, b->params, b->score_flops, b->flops);
    snprintf(name, sizeof name, "%s: attention", block);
    part(t, name, "-", b->attention_params, b->params, b->attention_flops, b->flops);
    snprintf(name, sizeof name, "%s: feed-forward", block);
    part(t, name, "-", b->mlp_params, b->params, b->mlp_flops, b->flops);
    part(t, block, "-", b->params, b->params, b->flops, b->flops);
}

int llm_cost_parts(struct llm_table *t, const struct llm_config *c, int64_t context, struct llm_err *e)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    struct llm_cost cost;
    struct block kinds[MAX_KINDS];
    size_t n_kinds = 0;
    char name[64];
    if (llm_cost_of(&cost, c, context, e) < 0 || llm_model_declare(c, &d, &layout, e) < 0) return -1;
    for (int64_t l = 0; l < layout->stacks[LLM_STACK_MAIN].n_layers && n_kinds < MAX_KINDS; l++) { /* the first of each kind of block */
        const struct block b = block_of(c, &d, layout, l, context);
        size_t same = 0;
        while (same < n_kinds && (kinds[same].params != b.params || kinds[same].flops != b.flops)) same++;
        if (same < n_kinds) continue;
        kinds[n_kinds++] = b;
        block_parts(t, c, &d, &b, l, llm_unit_names[layout->stacks[LLM_STACK_MAIN].layers[l].mixer.kind->unit], context);
    }
    part(t, "embeddings", "-", cost.embedding_params, cost.params, 0, cost.forward_flops);
    snprintf(name, sizeof name, "%" PRId64 " blocks", layout->stacks[LLM_STACK_MAIN].n_layers);
    part(t, name, "-", cost.blocks_params, cost.params, cost.blocks_flops, cost.forward_flops);
    if (cost.encoder_params > 0) part(t, "encoder", "-", cost.encoder_params, cost.params, cost.encoder_flops, cost.forward_flops);
    const char *last = cost.head_flops == 0 ? "norms, no head" : c->tie_word_embeddings ? "final norm, tied head" : "final norm, head";
    part(t, last, "-", cost.final_params, cost.params, cost.head_flops, cost.forward_flops);
    part(t, "model", "-", cost.params, cost.params, cost.forward_flops, cost.forward_flops);
    snprintf(name, sizeof name, "%" PRId64 " layers that predict further", layout->n_next);
    if (layout->n_next > 0) part(t, name, "-", cost.next_params, cost.params, cost.next_flops, cost.forward_flops);
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
    double trained = cost.params + cost.next_params;
    total(t, cost.forward_flops, "FLOP/token", "forward");
    if (cost.next_params > 0) total(t, cost.next_flops, "FLOP/token", "forward, layers that predict further");
    total(t, 3 * (cost.forward_flops + cost.next_flops), "FLOP/token", "training: forward, and twice that backward");
    total(t, 6 * trained, "FLOP/token", "training by the rule 6N");
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        snprintf(what, sizeof what, "weights in %s", llm_dtypes[weights[i]].name);
        total(t, llm_cost_weight_bytes(&cost, weights[i]), "bytes", what);
    }
    if (cost.next_params > 0) total(t, 4 * cost.next_params, "bytes", "weights in f32, layers that predict further");
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        double each = llm_model_kv_bytes_per_token(c, caches[i]);
        snprintf(what, sizeof what, "KV cache in %s, one token", llm_dtypes[caches[i]].name);
        total(t, each, "bytes", what);
        snprintf(what, sizeof what, "KV cache in %s, context %" PRId64, llm_dtypes[caches[i]].name, context);
        total(t, each * (double)context, "bytes", what);
    }
    if (llm_model_is_recurrent(c)) total(t, llm_model_state_bytes(c), "bytes", "state in F32, one sequence");
    total(t, 4 * trained, "bytes", "training: FP32 weights");
    total(t, 4 * trained, "bytes", "training: gradients");
    total(t, 8 * trained, "bytes", "training: AdamW's two moments");
    total(t, 16 * trained, "bytes", "training: the three together, without activations");
    return 0;
}
