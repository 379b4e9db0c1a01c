/* RWKV (Peng et al. 2023; 2024 for versions 5 and 6; 2025 for version 7): time mixing and channel mixing. */
#include <string.h>
#include "model/forward/block.h"

/* y = w·(x mixed with the token before). `keeps`: the share is the token's own. */
static struct llm_tensor *project(struct llm_ctx *c, const struct llm_linear_params *p, struct llm_tensor *x, struct llm_tensor *shifted, bool keeps)
{
    return llm_linear(c, llm_token_mix(c, x, shifted, p->share, keeps), p->w, NULL);
}

/* The output projection of act(gate) ⊙ y. */
static struct llm_tensor *gated_out(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *gate,
                                    struct llm_tensor *y, enum llm_act act)
{
    c->recompute = LLM_RECOMPUTE_INNER;
    llm_panels_for(c, 1, &m->p[LLM_RWKV_OUT].w);
    y = llm_gated(c, gate, y, act);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    y = llm_visit(c, &p->site, LLM_PLACE_MIXER_HIDDEN, y);
    return llm_linear(c, y, m->p[LLM_RWKV_OUT].w, NULL);
}

struct llm_tensor *llm_forward_rwkv4(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    int64_t n;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n), *sums = llm_pass_segments(c, p, 2 * x->cols, &n);
    struct llm_tensor *shifted = llm_token_shift(c, x, last, n);
    struct llm_tensor *k = project(c, &m->p[LLM_RWKV_K], x, shifted, true), *v = project(c, &m->p[LLM_RWKV_V], x, shifted, true);
    struct llm_tensor *r = project(c, &m->p[LLM_RWKV_R], x, shifted, true);
    struct llm_tensor *y = llm_wkv4(c, k, v, m->p[LLM_RWKV_DECAY].w, m->p[LLM_RWKV_FIRST].w, sums, n);
    return gated_out(c, m, p, r, y, LLM_ACT_SIGMOID);
}

/* ---- versions 5 and 6 ---- */

/* The recurrence, the norm of each head and the gate. */
static struct llm_tensor *heads_out(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_wkv *o,
                                    struct llm_tensor *gate)
{
    /* The training code divides the norm's input by 8 and adds 1e-5; of version 5 the programs that run it do not divide. */
    const float eps = p->config->mixer == LLM_MIXER_RWKV5 ? 1e-5f : 64e-5f;
    const struct llm_linear_params *norm = &m->p[LLM_RWKV_NORM];
    o->first = m->p[LLM_RWKV_FIRST].w;
    o->heads = p->config->num_attention_heads;
    o->segments = llm_pass_segments(c, p, 2 * p->config->hidden_size, &o->n_segments);
    return gated_out(c, m, p, gate, llm_groupnorm(c, llm_wkv(c, o), norm->w, norm->b, o->heads, eps), LLM_ACT_SILU);
}

struct llm_tensor *llm_forward_rwkv5(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    int64_t n;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n);
    struct llm_tensor *shifted = llm_token_shift(c, x, last, n);
    struct llm_wkv o = {.decay = m->p[LLM_RWKV_DECAY].w};
    o.k = project(c, &m->p[LLM_RWKV_K], x, shifted, true);
    o.v = project(c, &m->p[LLM_RWKV_V], x, shifted, true);
    o.r = project(c, &m->p[LLM_RWKV_R], x, shifted, true);
    return heads_out(c, m, p, &o, project(c, &m->p[LLM_RWKV_GATE], x, shifted, true));
}

/* Version 6: shares and decays depend on the token, by products of a low rank. */
struct mixer6 { const struct llm_module *m; struct llm_tensor *x, *shifted, *low; };

/* x mixed with the token before for the product with q->w; i: which mixture it is. */
static struct llm_tensor *mixed6(struct llm_ctx *c, const struct mixer6 *s, int64_t i, const struct llm_linear_params *q)
{
    int64_t rank = s->low->cols / LLM_RWKV_MIXES;
    return llm_token_mix_rank(c, s->x, s->shifted, llm_columns(c, s->low, i * rank, rank), q->share, s->m->p[LLM_RWKV_MIX_OUT].w, i * rank);
}

static struct llm_tensor *project6(struct llm_ctx *c, const struct mixer6 *s, int64_t i, const struct llm_linear_params *q)
{
    return llm_linear(c, mixed6(c, s, i, q), q->w, NULL);
}

struct llm_tensor *llm_forward_rwkv6(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    int64_t n;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n);
    const struct llm_linear_params *decay = &m->p[LLM_RWKV_DECAY];
    struct llm_tensor *shifted = llm_token_shift(c, x, last, n);
    struct mixer6 s = {m, x, shifted, llm_activation(c, project(c, &m->p[LLM_RWKV_MIX_IN], x, shifted, false), LLM_ACT_TANH)};
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_tensor *w = llm_linear(c, mixed6(c, &s, LLM_RWKV_MIX_DECAY, decay), m->p[LLM_RWKV_DECAY_IN].w, NULL);
    struct llm_wkv o = {.w = llm_wkv_decay(c, llm_linear(c, llm_activation(c, w, LLM_ACT_TANH), decay->w, decay->b), LLM_WKV_EXP)};
    o.k = project6(c, &s, LLM_RWKV_MIX_K, &m->p[LLM_RWKV_K]);
    o.v = project6(c, &s, LLM_RWKV_MIX_V, &m->p[LLM_RWKV_V]);
    o.r = project6(c, &s, LLM_RWKV_MIX_R, &m->p[LLM_RWKV_R]);
    return heads_out(c, m, p, &o, project6(c, &s, LLM_RWKV_MIX_GATE, &m->p[LLM_RWKV_GATE]));
}

/* ---- version 7 ---- */

/* out·act(in·x) + b */
static struct llm_tensor *low_rank(struct llm_ctx *c, const struct llm_module *m, int in, int out, struct llm_tensor *x, enum llm_act act)
{
    struct llm_tensor *h = llm_linear(c, x, m->p[in].w, NULL);
    if (act != LLM_N_ACTS) h = llm_activation(c, h, act);
    return llm_linear(c, h, m->p[out].w, m->p[out].b);
}

/* The values v, mixed with those of the first layer; x: the input of their projection. */
static struct llm_tensor *values7(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    struct llm_tensor *v = llm_linear(c, x, m->p[LLM_RWKV_V].w, NULL);
    struct llm_first_values *first = p->first_values;
    if (llm_ctx_failed(c)) return &c->nothing;
    if (p->layer > 0) {
        struct llm_tensor *share = low_rank(c, m, LLM_RWKV_VALUE_IN, LLM_RWKV_VALUE, x, LLM_N_ACTS);
        return llm_add(c, v, llm_gated(c, share, llm_add(c, first->v, llm_scale(c, v, -1)), LLM_ACT_SIGMOID));
    }
    if (!first->outlives) first->v = v;
    for (int64_t t = 0; t < v->rows && first->outlives; t++) {
        memcpy(first->v->data + t * first->v->stride, v->data + t * v->stride, (size_t)v->cols * sizeof *v->data);
    }
    return v;
}

struct llm_tensor *llm_forward_rwkv7(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    int64_t n, heads = p->config->num_attention_heads;
    const struct llm_segment *last = llm_pass_segments(c, p, 0, &n);
    const struct llm_linear_params *q = m->p, *norm = &q[LLM_RWKV_NORM];
    struct llm_tensor *shifted = llm_token_shift(c, x, last, n);
    struct llm_tensor *w = llm_token_mix(c, x, shifted, q[LLM_RWKV_DECAY].share, false);
    struct llm_wkv o = {.w = llm_wkv_decay(c, low_rank(c, m, LLM_RWKV_DECAY_IN, LLM_RWKV_DECAY, w, LLM_ACT_TANH), LLM_WKV_SIGMOID), .heads = heads};
    o.v = values7(c, m, p, llm_token_mix(c, x, shifted, q[LLM_RWKV_V].share, false));
    o.r = project(c, &q[LLM_RWKV_R], x, shifted, false);
    struct llm_tensor *rate = llm_token_mix(c, x, shifted, q[LLM_RWKV_RATE].share, false), *k = project(c, &q[LLM_RWKV_K], x, shifted, false);
    rate = low_rank(c, m, LLM_RWKV_RATE_IN, LLM_RWKV_RATE, rate, LLM_N_ACTS);
    o.a = llm_rwkv7_direction(c, k, q[LLM_RWKV_KEY_SCALE].w, heads);
    o.b = llm_gated(c, rate, llm_scale(c, o.a, -1), LLM_ACT_SIGMOID);
    o.k = llm_rwkv7_key(c, k, rate, q[LLM_RWKV_KEY_MIX].w);
    o.segments = llm_pass_segments(c, p, 2 * x->cols, &o.n_segments);
    struct llm_tensor *y = llm_groupnorm(c, llm_wkv(c, &o), norm->w, norm->b, heads, (float)p->config->head_dim * 1e-5f);
    struct llm_tensor *gate = llm_token_mix(c, x, shifted, q[LLM_RWKV_GATE].share, false);
    gate = low_rank(c, m, LLM_RWKV_GATE_IN, LLM_RWKV_GATE, gate, LLM_ACT_SIGMOID);
    y = llm_rwkv7_output(c, y, o.r, o.k, o.v, gate, q[LLM_RWKV_FIRST].w, heads);
    return llm_linear(c, llm_visit(c, &p->site, LLM_PLACE_MIXER_HIDDEN, y), q[LLM_RWKV_OUT].w, NULL);
}

/* ---- channel mixing ---- */

/* sigmoid(gate(x)) ⊙ down(relu(up(x))²); version 7: without the gate */
struct llm_tensor *llm_forward_rwkv_channels(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    int64_t n;
    const struct llm_segment *last = llm_pass_segments(c, p, x->cols, &n);
    struct llm_tensor *shifted = llm_token_shift(c, x, last, n);
    bool keeps = p->config->mixer < LLM_MIXER_RWKV6;
    struct llm_tensor *gate = NULL;
    if (m->p[LLM_MLP_GATE].w) gate = llm_visit(c, &p->site, LLM_PLACE_MLP_GATE, project(c, &m->p[LLM_MLP_GATE], x, shifted, keeps));
    struct llm_tensor *up = llm_visit(c, &p->site, LLM_PLACE_MLP_UP, project(c, &m->p[LLM_MLP_UP], x, shifted, keeps));
    c->recompute = LLM_RECOMPUTE_INNER;
    llm_panels_for(c, 1, &m->p[LLM_MLP_DOWN].w);
    struct llm_tensor *inner = llm_activation(c, up, LLM_ACT_RELU2);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    inner = llm_visit(c, &p->site, LLM_PLACE_MLP_HIDDEN, inner);
    struct llm_tensor *y = llm_linear(c, inner, m->p[LLM_MLP_DOWN].w, NULL);
    return gate ? llm_gated(c, gate, y, LLM_ACT_SIGMOID) : y;
}
