#include "infer/neurons.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "model/forward/block.h"

static const struct llm_layer *layer_of(const struct llm_model *m, int64_t layer)
{
    return &((const struct llm_decoder *)m->layout)->stacks[LLM_STACK_MAIN].layers[layer];
}

int llm_neurons_check(const struct llm_model *m, int64_t layer, struct llm_err *e)
{
    const struct llm_config *f = &m->config;
    if (llm_model_must_continue(m, e) < 0) return -1;
    if (layer < 0 || layer >= f->num_hidden_layers) {
        return llm_fail(e, LLM_EX_USAGE, "expected a layer below %" PRId64 ", found %" PRId64, f->num_hidden_layers, layer);
    }
    if (f->norm_place == LLM_NORM_BARE || layer_of(m, layer)->ffn.kind != &llm_module_mlp) {
        return llm_fail(e, EX_UNAVAILABLE, "layer %" PRId64 " of a %s: expected a feed-forward part that adds to a residual, found %s", layer,
                        f->model_type, layer_of(m, layer)->ffn.kind == &llm_module_moe ? "a mixture of experts" : "none");
    }
    return 0;
}

int64_t llm_neurons_count(const struct llm_model *m, int64_t layer)
{
    return layer_of(m, layer)->ffn.p[LLM_MLP_DOWN].w->weight.k;
}

/* Multiplies by a norm's gain; LayerNorm subtracts the mean first. `gain`: scratch, [hidden_size]. */
static void through_norm(const struct llm_config *f, const struct llm_linear_params *p, float *x, float *gain)
{
    int64_t n = f->hidden_size;
    double mean = 0;
    if (!p->w) return;
    llm_weight_decode(&p->w->weight, 0, n, gain);
    for (int64_t i = 0; i < n && f->norm == LLM_NORM_LAYER; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) x[i] = (x[i] - (float)mean) * (gain[i] + (f->norm == LLM_NORM_RMS ? (float)f->norm_gain_offset : 0));
}

const float *llm_neuron_values(struct llm_ctx *c, struct llm_model *m, int64_t layer, int64_t first, int64_t n, struct llm_err *e)
{
    const struct llm_config *f = &m->config;
    const struct llm_decoder *d = m->layout;
    const struct llm_layer *l = layer_of(m, layer);
    const struct llm_param *down = l->ffn.p[LLM_MLP_DOWN].w;
    int64_t hidden = f->hidden_size, width = down->weight.k;
    struct llm_tensor *x = llm_tensor_create(c, n, hidden);
    float *row = llm_alloc((size_t)(width > hidden ? width : hidden), sizeof *row, "a column", e);
    if (!row) return NULL;
    for (int64_t i = 0; i < hidden && !llm_ctx_failed(c); i++) {
        llm_adapter_decode(down, i, row);
        for (int64_t j = 0; j < n; j++) x->data[j * x->stride + i] = row[first + j];
    }
    for (int64_t j = 0; j < n && !llm_ctx_failed(c); j++) {
        if (l->after[LLM_SUB_FFN].kind && f->norm_place != LLM_NORM_POST) through_norm(f, &l->after[LLM_SUB_FFN].p[0], x->data + j * x->stride, row);
        through_norm(f, &d->stacks[LLM_STACK_MAIN].final_norm, x->data + j * x->stride, row);
    }
    free(row);
    struct llm_tensor *logits = llm_linear(c, x, llm_model_head(m), NULL);
    if (f->logit_scale != 1) logits = llm_scale(c, logits, (float)f->logit_scale);
    if (!llm_ctx_failed(c)) return logits->data;
    *e = c->err;
    return NULL;
}

int llm_neuron_keys_begin(struct llm_neuron_keys *k, struct llm_err *e)
{
    k->hits = llm_calloc((size_t)k->n, (size_t)k->top * sizeof *k->hits, "neurons", e);
    k->n_hits = llm_calloc((size_t)k->n, sizeof *k->n_hits, "neurons", e);
    return k->hits && k->n_hits ? 0 : -1;
}

void llm_neuron_keys_release(struct llm_neuron_keys *k)
{
    free(k->hits);
    free(k->n_hits);
    *k = (struct llm_neuron_keys){0};
}

static void insert(struct llm_neuron_keys *k, int64_t unit, float value, int32_t position)
{
    struct llm_neuron_hit *hits = k->hits + unit * k->top;
    int64_t *n = &k->n_hits[unit], at = *n < k->top ? *n : k->top;
    while (at > 0 && value > hits[at - 1].value) at--;
    if (at == k->top) return;
    if (*n < k->top) ++*n;
    memmove(hits + at + 1, hits + at, (size_t)(*n - 1 - at) * sizeof *hits);
    hits[at] = (struct llm_neuron_hit){.value = value, .position = position, .text = k->text};
    int32_t from = position >= LLM_NEURON_CONTEXT ? position + 1 - LLM_NEURON_CONTEXT : 0;
    for (; from <= position; from++) hits[at].ids[hits[at].n_ids++] = k->ids[from];
}

static int observe(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    struct llm_neuron_keys *k = arg;
    (void)e;
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t i = 0; i < k->n; i++) insert(k, i, s->x[r * s->stride + k->first + i], s->who[r].position);
    }
    return 0;
}

struct llm_watcher llm_neuron_keys_watcher(struct llm_neuron_keys *k)
{
    return (struct llm_watcher){.at = {LLM_PLACE_MLP_HIDDEN, LLM_STACK_MAIN, k->layer, k->layer}, .observe = observe, .arg = k};
}
