#include "quant/drop.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/progress.h"
#include "model/spec/block.h"

static void shift(llm_layer_set s, int64_t number)
{
    llm_layer_set out = {0};
    for (int64_t i = 0, to = 0; i < LLM_MAX_LAYERS; i++) {
        if (i == number) continue;
        out[to / 64] |= (uint64_t)llm_layer_in(s, i) << to % 64;
        to++;
    }
    memcpy(s, out, sizeof out);
}

/* The configuration without layer `number`, as a file would have it: what a list of layers says is shifted, what a rule says is not. */
static int config_without(const struct llm_config *c, int64_t number, struct llm_config *out, struct llm_err *e)
{
    struct llm_config shorter = *c;
    shorter.num_hidden_layers--;
    shift(shorter.local_layers, number);
    shift(shorter.no_rope_layers, number);
    shift(shorter.mlp_only_layers, number);
    json_t *o = llm_config_to_json(&shorter, e);
    const int status = o ? llm_config_from_json(out, o, e) : -1;
    json_decref(o);
    return status;
}

/* Whether layer i of `a` is what layer k of `b` is. */
static bool same_layer(const struct llm_config *a, int64_t i, const struct llm_config *b, int64_t k)
{
    struct llm_state_shape x = llm_model_state(a, i), y = llm_model_state(b, k);
    const int64_t x_back = i - x.source, y_back = k - y.source;
    return llm_config_window(a, i) == llm_config_window(b, k) && llm_config_block(a, i) == llm_config_block(b, k)
        && llm_layer_in(a->no_rope_layers, i) == llm_layer_in(b->no_rope_layers, k) && llm_config_is_mixture(a, i) == llm_config_is_mixture(b, k)
        && llm_decoder_mixer(a, i) == llm_decoder_mixer(b, k) && llm_decoder_ffn(a, i) == llm_decoder_ffn(b, k) && x_back == y_back
        && x.n_kv_heads == y.n_kv_heads && llm_config_attention_scale(a, i) == llm_config_attention_scale(b, k);
}

/* An empty model like `m` without layer `number`; NULL: that layer cannot go. */
static struct llm_model *shape_without(const struct llm_model *m, int64_t number)
{
    struct llm_config c;
    struct llm_err ignored;
    bool same = config_without(&m->config, number, &c, &ignored) == 0;
    for (int64_t k = 0; k < c.num_hidden_layers && same; k++) same = same_layer(&m->config, k + (k >= number), &c, k);
    return same ? llm_model_shape(&c, &ignored) : NULL;
}

/* Gives `to` the data of `from`, whose layer `number` it does not have; take: as owner. False: their parameters differ. */
static bool give_data(struct llm_model *to, struct llm_model *from, int64_t number, bool take)
{
    size_t at = 0;
    for (size_t i = 0; i < from->n_params; i++) {
        struct llm_param *p = &from->params[i], *q = &to->params[at];
        if (p->spec->layer == number) continue;
        if (at++ == to->n_params || p->spec->stem != q->spec->stem || memcmp(p->shape, q->shape, sizeof p->shape) != 0) return false;
        q->weight = (struct llm_weight){.data = p->weight.data, .dtype = p->weight.dtype, .rounded = p->weight.rounded, .n = p->weight.n,
                                        .k = p->weight.k, .map = p->weight.map, .map_end = p->weight.map_end};
        q->owned = take && p->owned;
        if (take) p->owned = false;
    }
    return at == to->n_params;
}

static void adopt(struct llm_model *to, struct llm_model *from)
{
    to->files = from->files;
    to->n_files = from->n_files;
    to->tokenizer = from->tokenizer;
    to->chat_template = from->chat_template;
    from->files = NULL;
    from->n_files = 0;
    from->tokenizer = NULL;
    from->chat_template = NULL;
}

/* Tries each layer; *best: the one without which the divergence is least, -1: none can go. */
static int try_layers(struct llm_model *m, struct llm_kl_base *base, struct llm_progress *progress, int64_t done, int64_t *best, struct llm_kl *least,
                      struct llm_err *e)
{
    int status = 0;
    *best = -1;
    for (int64_t l = 0; l < m->config.num_hidden_layers && status == 0; l++) {
        struct llm_model *without = shape_without(m, l);
        struct llm_kl kl;
        llm_progress_set(progress, done + l, NULL);
        if (without && give_data(without, m, l, false)) {
            status = llm_kl_measure(base, without, &kl, NULL, e);
            if (status == 0 && (*best < 0 || kl.mean < least->mean)) {
                *best = l;
                *least = kl;
            }
        }
        llm_model_destroy(without);
    }
    return status;
}

int llm_drop_layers(struct llm_model **m, struct llm_kl_base *base, int64_t n, struct llm_dropped *out, struct llm_err *e)
{
    const struct llm_config *c = &(*m)->config;
    const int64_t layers = c->num_hidden_layers;
    struct llm_progress progress;
    int status = 0;
    if (c->num_encoder_layers > 0 || c->num_latents > 0 || c->num_nextn_predict_layers > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "--drop-layers: a model of type '%s': expected one stack of layers, found more", c->model_type);
    }
    if (n >= layers) {
        return llm_fail(e, EX_DATAERR, "--drop-layers: expected fewer than the model's %lld layers, found %lld", (long long)layers, (long long)n);
    }
    llm_progress_start(&progress, "drop-layers", "layers", n * layers);
    for (int64_t i = 0; i < n && status == 0; i++) {
        int64_t best;
        status = try_layers(*m, base, &progress, i * layers, &best, &out[i].kl, e);
        if (status != 0) break;
        struct llm_model *without = best >= 0 ? shape_without(*m, best) : NULL;
        if (!without || !give_data(without, *m, best, true)) {
            status = llm_fail(e, EX_UNAVAILABLE, "--drop-layers: a model of type '%s': no layer can go without the others becoming different",
                              (*m)->config.model_type);
            llm_model_destroy(without);
            break;
        }
        adopt(without, *m);
        llm_model_destroy(*m);
        *m = without;
        out[i].layer = best;
        for (int64_t k = i - 1; k >= 0; k--) out[i].layer += out[i].layer >= out[k].layer; /* layers before it have gone */
    }
    llm_progress_end(&progress);
    return status;
}
