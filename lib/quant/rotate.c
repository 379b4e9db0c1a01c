#include "quant/rotate.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/rng.h"
#include "cpu/pool.h"
#include "model/spec/block.h"
#include "quant/double.h"
#include "quant/open.h"

enum { SEED = 1, VALUES = 2 /* of the residual stream and of heads' values */, ROWS = 8 /* of a work item */ };

/* ---- the rotation of a vector ---- */

static int64_t power_of_two(int64_t n)
{
    int64_t p = 1;
    while (n % (2 * p) == 0) p *= 2;
    return p;
}

int llm_rotor_init(struct llm_rotor *r, int64_t n, uint64_t seed, struct llm_err *e)
{
    const struct llm_rng rng = llm_rng_at(seed, 0, LLM_RNG_ROTATION, 0, 0, 0);
    r->n = n;
    r->hadamard = power_of_two(n);
    r->m = n / r->hadamard;
    r->signs = llm_alloc((size_t)n, sizeof *r->signs, "rotation", e);
    r->hartley = r->signs ? llm_alloc((size_t)(r->m * r->m), sizeof *r->hartley, "rotation", e) : NULL;
    if (!r->hartley) return -1;
    for (int64_t i = 0; i < n; i++) r->signs[i] = (llm_rng_uniform(&rng, (uint32_t)i) < 0.5f ? -1 : 1) / sqrt((double)n);
    for (int64_t i = 0; i < r->m * r->m; i++) {
        const double angle = 2 * acos(-1.0) * (double)(i / r->m * (i % r->m) % r->m) / (double)r->m;
        r->hartley[i] = cos(angle) + sin(angle);
    }
    return 0;
}

void llm_rotor_release(struct llm_rotor *r)
{
    free(r->signs);
    free(r->hartley);
    *r = (struct llm_rotor){0};
}

/* Sums and differences of whole blocks of m elements. */
static void hadamard(double *x, int64_t p, int64_t m)
{
    for (int64_t half = 1; half < p; half *= 2) {
        for (int64_t i = 0; i < p * m; i += 2 * half * m) {
            for (int64_t j = i; j < i + half * m; j++) {
                const double u = x[j], v = x[j + half * m];
                x[j] = u + v;
                x[j + half * m] = u - v;
            }
        }
    }
}

void llm_rotor_turn(const struct llm_rotor *r, double *x, double *work)
{
    for (int64_t i = 0; i < r->n; i++) x[i] *= r->signs[i];
    hadamard(x, r->hadamard, r->m);
    if (r->m == 1) return;
    memcpy(work, x, (size_t)r->n * sizeof *x);
    for (int64_t i = 0; i < r->n; i++) x[i] = llm_double_dot(work + i / r->m * r->m, r->hartley + i % r->m * r->m, r->m);
}

/* ---- the rotation of matrices ---- */

/* Vectors of `n` elements, `step` apart, in an array of `outer` × `inner` of them: vector (o, i) begins at o·outer_step + i. */
struct turning {
    float *x;
    const float *gain;             /* [n] multiplies a vector before it is rotated; NULL: none */
    double offset;                 /* what is added to each gain */
    int64_t n, step, outer_step, inner, vectors;
    const struct llm_rotor *rotor;
    atomic_bool failed;
};

static void turn_piece(void *arg, size_t item, int thread)
{
    struct turning *t = arg;
    const int64_t first = (int64_t)item * ROWS, end = first + ROWS < t->vectors ? first + ROWS : t->vectors;
    double *y = malloc((size_t)(2 * t->n) * sizeof *y);
    (void)thread;
    if (!y) atomic_store(&t->failed, true);
    for (int64_t v = first; v < end && y; v++) {
        float *x = t->x + v / t->inner * t->outer_step + v % t->inner;
        for (int64_t i = 0; i < t->n; i++) y[i] = (double)x[i * t->step] * (t->gain ? (double)t->gain[i] + t->offset : 1);
        llm_rotor_turn(t->rotor, y, y + t->n);
        for (int64_t i = 0; i < t->n; i++) x[i * t->step] = (float)y[i];
    }
    free(y);
}

struct rotation {
    struct llm_model *m;
    struct llm_rotor residual, values; /* of hidden_size; of head_dim */
    struct llm_quant_spool *spool;
    struct llm_rotated *out;
};

/* Rotates vectors of the parameter p, which is open. */
static int turn(const struct rotation *r, struct turning *t, struct llm_param *p, struct llm_err *e)
{
    llm_parallel((size_t)((t->vectors + ROWS - 1) / ROWS), turn_piece, t);
    if (atomic_load(&t->failed)) return llm_no_memory(e, p->name);
    llm_quant_spool_param(r->spool, p);
    return 0;
}

/* Rows of a matrix that reads the residual stream, after a norm with this gain (w NULL: none), or of a table that is added to it. */
static int turn_rows(const struct rotation *r, struct llm_param *p, const struct llm_linear_params *norm, struct llm_err *e)
{
    const int64_t n = r->m->config.hidden_size;
    struct turning t = {.n = n, .step = 1, .outer_step = n, .inner = 1, .rotor = &r->residual, .offset = r->m->config.norm_gain_offset};
    if (!p) return 0;
    if (norm && norm->w && !(t.gain = llm_param_open(norm->w, e))) return -1;
    if (!(t.x = llm_param_open(p, e))) return -1;
    t.vectors = p->weight.n;
    return turn(r, &t, p, e);
}

/* Columns of a matrix that is added to the residual stream, and its bias. */
static int turn_output(const struct rotation *r, const struct llm_linear_params *p, struct llm_err *e)
{
    const int64_t n = r->m->config.hidden_size;
    struct turning t = {.n = n, .rotor = &r->residual};
    if (!p->w) return 0;
    if (!(t.x = llm_param_open(p->w, e))) return -1;
    t.step = t.inner = t.vectors = p->w->weight.k;
    if (turn(r, &t, p->w, e) < 0) return -1;
    if (!p->b) return 0;
    t = (struct turning){.x = llm_param_open(p->b, e), .n = n, .step = 1, .inner = 1, .vectors = 1, .rotor = &r->residual};
    return t.x ? turn(r, &t, p->b, e) : -1;
}

/* The gain has been folded into all that read the norm. */
static int reset_gain(const struct rotation *r, const struct llm_linear_params *norm, struct llm_err *e)
{
    float *x = norm->w ? llm_param_open(norm->w, e) : NULL;
    for (int64_t i = 0; x && i < llm_param_count(norm->w); i++) x[i] = (float)(1 - r->m->config.norm_gain_offset);
    return norm->w && !x ? -1 : 0;
}

/* Heads of values within a matrix [., k] from row `first` on, and of its bias; and the columns of the matrix that reads them. */
static int turn_values(const struct rotation *r, const struct llm_module *x, struct llm_err *e)
{
    const struct llm_config *c = &r->m->config;
    const bool fused = x->p[LLM_ATTENTION_QKV].w;
    const struct llm_linear_params *v = &x->p[fused ? LLM_ATTENTION_QKV : LLM_ATTENTION_V];
    const int64_t d = c->head_dim, first = fused ? (c->num_attention_heads + c->num_key_value_heads) * d : 0, k = v->w ? v->w->weight.k : 0;
    struct llm_param *out = x->p[LLM_ATTENTION_OUT].w;
    struct turning t = {.n = d, .rotor = &r->values};
    if (!v->w || !out || c->kv_sharing != 1) return 0;
    if (!(t.x = llm_param_open(v->w, e))) return -1;
    t.x += first * k;
    t.step = t.inner = k;
    t.outer_step = d * k;
    t.vectors = c->num_key_value_heads * k;
    if (turn(r, &t, v->w, e) < 0) return -1;
    t = (struct turning){.x = llm_param_open(out, e), .n = d, .step = 1, .outer_step = d, .inner = 1, .rotor = &r->values,
                         .vectors = out->weight.n * c->num_attention_heads};
    if (!t.x || turn(r, &t, out, e) < 0) return -1;
    r->out->heads++;
    if (!v->b) return 0;
    t = (struct turning){.x = llm_param_open(v->b, e), .n = d, .step = 1, .outer_step = d, .inner = 1, .vectors = c->num_key_value_heads,
                         .rotor = &r->values};
    if (!t.x) return -1;
    t.x += first;
    return turn(r, &t, v->b, e);
}

static int turn_mixer(const struct rotation *r, const struct llm_module *x, const struct llm_linear_params *norm, struct llm_err *e)
{
    static const int attention[] = {LLM_ATTENTION_Q, LLM_ATTENTION_K, LLM_ATTENTION_V, LLM_ATTENTION_QKV, LLM_ATTENTION_OUT};
    static const int mla[] = {LLM_MLA_Q, LLM_MLA_Q_A, LLM_MLA_KV_A, -1, LLM_MLA_OUT};
    const bool plain = x->kind->number == LLM_MODULE_attention;
    const int *of = plain ? attention : mla;
    for (int i = 0; i < 4; i++) {
        if (of[i] >= 0 && turn_rows(r, x->p[of[i]].w, norm, e) < 0) return -1;
    }
    if (turn_output(r, &x->p[of[4]], e) < 0) return -1;
    return plain ? turn_values(r, x, e) : 0;
}

static int turn_ffn(const struct rotation *r, const struct llm_module *f, const struct llm_linear_params *norm, struct llm_err *e)
{
    static const int mlp[] = {LLM_MLP_GATE, LLM_MLP_UP, LLM_MLP_GATE_UP, LLM_MLP_DOWN};
    static const int moe[] = {LLM_MOE_ROUTER, LLM_MOE_SHARED_GATE, LLM_MOE_SHARED_UP, LLM_MOE_SHARED_DOWN};
    const bool mixture = f->kind->number == LLM_MODULE_moe;
    const int *of = mixture ? moe : mlp;
    const int64_t n = mixture ? r->m->config.num_experts : 0;
    for (int i = 0; i < 3; i++) {
        if (turn_rows(r, f->p[of[i]].w, norm, e) < 0) return -1;
    }
    for (int64_t i = 0; i < 2 * n; i++) {
        if (turn_rows(r, f->experts[i], norm, e) < 0) return -1;
    }
    for (int64_t i = 2 * n; i < 3 * n; i++) {
        const struct llm_linear_params down = {.w = f->experts[i]};
        if (turn_output(r, &down, e) < 0) return -1;
    }
    return turn_output(r, &f->p[of[3]], e);
}

static int turn_layer(const struct rotation *r, const struct llm_layer *l, struct llm_err *e)
{
    static const struct llm_linear_params none;
    const struct llm_linear_params *mixer = l->before[LLM_SUB_MIXER].kind ? &l->before[LLM_SUB_MIXER].p[0] : &none;
    const struct llm_linear_params *ffn = r->m->config.shared_norm ? mixer : l->before[LLM_SUB_FFN].kind ? &l->before[LLM_SUB_FFN].p[0] : &none;
    if (turn_mixer(r, &l->mixer, mixer, e) < 0 || (l->ffn.kind && turn_ffn(r, &l->ffn, ffn, e) < 0)) return -1;
    return reset_gain(r, mixer, e) < 0 || reset_gain(r, ffn, e) < 0 ? -1 : 0;
}

/* ---- models ---- */

/* Why a model cannot be rotated; NULL: it can. */
static const char *obstacle(const struct llm_model *m)
{
    const struct llm_config *c = &m->config;
    const struct llm_decoder *d = m->layout;
    if (m->ngram) return "an n-gram model has no residual stream";
    if (c->norm != LLM_NORM_RMS) return "its norms are no RMSNorms: they change with the rotation";
    if (c->norm_place != LLM_NORM_PRE) return "norms follow its sub-layers, whose gains nothing can take";
    if (c->mixer != LLM_MIXER_ATTENTION) return "its layers are no attention";
    if (c->num_encoder_layers > 0 || c->num_latents > 0) return "it has more than one stack of layers";
    if (c->embedding_norm || c->embedding_size > 0) return "its embeddings pass a norm or a projection";
    if (c->num_labels > 0 || c->contrastive || c->pooler || c->head_transform || !llm_config_has_head(c)) return "its head is none over a vocabulary";
    if (d->n_next > 0) return "it has layers that predict further";
    return NULL;
}

/* Gives the model a head of its own, with the values of the embedding. */
static int untie(struct llm_model **m, struct llm_quant_spool *spool, struct llm_err *e)
{
    struct llm_config c = (*m)->config;
    c.tie_word_embeddings = false;
    struct llm_model *to = llm_model_graft(*m, &c, 0, e);
    if (!to) return -1;
    llm_model_destroy(*m);
    *m = to;
    const struct llm_param *from = llm_model_embedding(to);
    float *head = llm_param_open(llm_model_head(to), e);
    if (!head) return -1;
    llm_param_decode(from, head);
    llm_quant_spool_param(spool, llm_model_head(to));
    return 0;
}

static int turn_model(const struct rotation *r, struct llm_err *e)
{
    const struct llm_decoder *d = r->m->layout;
    const struct llm_stack *s = &d->stacks[LLM_STACK_MAIN];
    int status = turn_rows(r, s->embed, NULL, e);
    if (status == 0) status = turn_rows(r, s->positions, NULL, e);
    if (status == 0) status = turn_rows(r, s->token_types, NULL, e);
    for (int64_t l = 0; l < s->n_layers && status == 0; l++) status = turn_layer(r, &s->layers[l], e);
    if (status == 0) status = turn_rows(r, llm_model_head(r->m), &s->final_norm, e);
    return status == 0 ? reset_gain(r, &s->final_norm, e) : -1;
}

int llm_rotate(struct llm_model **m, struct llm_quant_spool *spool, struct llm_rotated *out, struct llm_err *e)
{
    const char *why = obstacle(*m);
    *out = (struct llm_rotated){0};
    if (why) return llm_fail(e, EX_UNAVAILABLE, "--rotate: a model of type '%s': %s", (*m)->config.model_type, why);
    out->untied = llm_model_head(*m) == llm_model_embedding(*m);
    if (out->untied && untie(m, spool, e) < 0) return -1;
    const struct llm_config *c = &(*m)->config;
    out->width = c->hidden_size;
    out->hadamard = power_of_two(c->hidden_size);
    struct rotation r = {.m = *m, .spool = spool, .out = out};
    int status = llm_rotor_init(&r.residual, c->hidden_size, SEED, e);
    if (status == 0) status = llm_rotor_init(&r.values, c->head_dim, VALUES, e);
    if (status == 0) status = turn_model(&r, e);
    llm_rotor_release(&r.residual);
    llm_rotor_release(&r.values);
    (*m)->fingerprint[0] = 0;
    llm_model_changed(*m);
    return status;
}
