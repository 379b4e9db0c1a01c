#include "quant/moments.h"

#include <stdlib.h>
#include <string.h>
#include "base/pages.h"
#include "base/progress.h"
#include "base/signals.h"
#include "io/temporary.h"
#include "model/forward/watch.h"
#include "model/spec/block.h"

/* The value that a matrix multiplies; LLM_PLACE_NONE: no place of the walk. */
static enum llm_place_kind input_of(const struct llm_model *model, const struct llm_param *p)
{
    const struct llm_param_spec *s = p->spec;
    const bool attends = s->layer >= 0 && llm_place_exists(&model->config, (struct llm_place){LLM_PLACE_ATTENTION_HEADS, LLM_STACK_MAIN, s->layer});
    if (s->piece == LLM_PIECE_BIAS || p->n_dims < 2 || s->stack != LLM_STACK_MAIN) return LLM_PLACE_NONE;
    if (p == llm_model_head(model)) return model->config.head_transform ? LLM_PLACE_NONE : LLM_PLACE_FINAL_NORM;
    switch (s->stem) {
    case LLM_STEM_Q:
    case LLM_STEM_K:
    case LLM_STEM_V:
    case LLM_STEM_QKV:
    case LLM_STEM_Q_A:
    case LLM_STEM_KV_A: return attends ? LLM_PLACE_ATTENTION_INPUT : LLM_PLACE_MIXER_INPUT;
    case LLM_STEM_Q_B: return LLM_PLACE_ATTENTION_Q_LATENT;
    case LLM_STEM_KV_B: return LLM_PLACE_ATTENTION_KV_LATENT;
    case LLM_STEM_OUT: return attends ? LLM_PLACE_ATTENTION_HEADS : LLM_PLACE_MIXER_HIDDEN;
    case LLM_STEM_STATES: return LLM_PLACE_MIXER_CONV;
    case LLM_STEM_TIME: return LLM_PLACE_MIXER_TIME;
    case LLM_STEM_GATE:
    case LLM_STEM_UP:
    case LLM_STEM_GATE_UP:
    case LLM_STEM_EXPERT_GATE:
    case LLM_STEM_EXPERT_UP:
    case LLM_STEM_SHARED_GATE:
    case LLM_STEM_SHARED_UP: return LLM_PLACE_MLP_INPUT;
    case LLM_STEM_DOWN:
    case LLM_STEM_EXPERT_DOWN: return LLM_PLACE_MLP_HIDDEN;
    case LLM_STEM_SHARED_DOWN: return LLM_PLACE_MLP_SHARED;
    default: return LLM_PLACE_NONE;
    }
}

static bool same(const struct llm_moment *m, struct llm_place place, int64_t expert)
{
    return m->place.kind == place.kind && m->place.layer == place.layer && m->place.stack == place.stack && m->expert == expert;
}

static int add_record(struct llm_moments *m, size_t param, struct llm_place place, int64_t expert, int64_t k, struct llm_err *e)
{
    size_t i = m->n > 64 ? m->n - 64 : 0; /* matrices of one layer are declared together */
    if (expert >= 0) i = 0;
    while (i < m->n && !same(&m->v[i], place, expert)) i++;
    if (i == m->n) {
        m->v[i] = (struct llm_moment){.place = place, .expert = expert, .k = k, .squares = llm_calloc((size_t)k, sizeof(double), "moments", e)};
        if (!m->v[i].squares) return -1;
        m->n++;
    }
    m->of[param] = (int64_t)i;
    return 0;
}

int llm_moments_init(struct llm_moments *m, const struct llm_model *model, struct llm_err *e)
{
    m->n_params = model->n_params;
    m->v = llm_calloc(model->n_params + 1, sizeof *m->v, "moments", e);
    m->of = m->v ? llm_calloc(model->n_params + 1, sizeof *m->of, "moments", e) : NULL;
    if (!m->of) return -1;
    for (size_t i = 0; i < model->n_params; i++) {
        const struct llm_param *p = &model->params[i];
        enum llm_place_kind kind = input_of(model, p);
        struct llm_place place = {kind, LLM_STACK_MAIN, kind == LLM_PLACE_FINAL_NORM ? -1 : p->spec->layer};
        m->of[i] = -1;
        if (kind == LLM_PLACE_NONE || !llm_place_exists(&model->config, place)) continue;
        if (add_record(m, i, place, p->spec->expert, p->weight.k, e) < 0) return -1;
    }
    return 0;
}

static void discard(struct llm_moments *m, float *p)
{
    if (llm_quant_spool_bytes(&m->spool, p) == 0) free(p);
}

void llm_moments_release(struct llm_moments *m)
{
    for (size_t i = 0; i < m->n; i++) {
        free(m->v[i].squares);
        discard(m, m->v[i].products);
    }
    for (size_t i = 0; m->kronecker && i < m->n_params; i++) {
        discard(m, m->kronecker[i].in);
        discard(m, m->kronecker[i].out);
    }
    llm_quant_spool_release(&m->spool);
    free(m->kronecker);
    free(m->v);
    free(m->of);
    memset(m, 0, sizeof *m);
}

void llm_moments_want_products(struct llm_moments *m)
{
    for (size_t i = 0; i < m->n; i++) m->v[i].wanted = m->v[i].expert < 0;
}

int llm_moments_spool(struct llm_moments *m, float **p, size_t n, struct llm_err *e)
{
    if (m->memory == 0 || n * sizeof(float) < LLM_SPOOL_LEAST) return 0;
    float *mapped = llm_quant_spool_put(&m->spool, *p, n * sizeof(float));
    if (!mapped) return llm_fail(e, EX_IOERR, "%s: calibration: expected room for %zu bytes of sums", llm_temporary_folder(), n * sizeof(float));
    free(*p);
    *p = mapped;
    return 0;
}

/* ---- the pass over the text ---- */

struct gather {
    struct llm_moments *m;
    struct llm_watcher *watchers;
    size_t n_watchers;
    struct llm_choices choices;    /* experts of the tokens of a pass, layer after layer */
    int64_t slots, n_experts;      /* experts of a token; of a layer */
    struct llm_moment **of_expert; /* [2 · n_experts] records of what each expert of the layer at hand reads, and of its inner values */
    float *input;                  /* [input_rows, width] what the experts of the layer at hand read */
    size_t input_room;
    int64_t input_rows, input_cols;
    bool first_pass;               /* squares and tokens are counted */
    size_t part, part_end;         /* records whose products are gathered in this pass over the text */
};

static void add_row(struct llm_moment *r, const float *x)
{
    for (int64_t j = 0; j < r->k; j++) r->squares[j] += (double)x[j] * (double)x[j];
    r->count++;
}

static struct llm_moment *find(struct llm_moments *m, struct llm_place place, int64_t expert)
{
    for (size_t i = 0; i < m->n; i++) {
        if (same(&m->v[i], place, expert)) return &m->v[i];
    }
    return NULL;
}

/* Keeps what the experts read until it is known which token goes where. */
static int keep_input(struct gather *g, const struct llm_sight *s, struct llm_err *e)
{
    if (llm_grow((void **)&g->input, &g->input_room, (size_t)(s->rows * s->cols), sizeof *g->input, e) < 0) return -1;
    for (int64_t t = 0; t < s->rows; t++) memcpy(g->input + t * s->cols, s->x + t * s->stride, (size_t)s->cols * sizeof(float));
    g->input_rows = s->rows;
    g->input_cols = s->cols;
    return 0;
}

/* The inner values of a mixture: those of a token's experts side by side. The last choices that the router made are this layer's. */
static int add_experts(struct gather *g, const struct llm_sight *s, struct llm_err *e)
{
    const struct llm_place read = {LLM_PLACE_MLP_INPUT, s->place.stack, s->place.layer};
    const size_t slots = (size_t)(s->rows * g->slots);
    if (g->choices.n < slots || g->input_rows != s->rows) return llm_fail(e, LLM_EX_FAILURE, "calibration: the router's choices are not known");
    const int32_t *chosen = g->choices.ids + g->choices.n - slots;
    for (int64_t i = 0; i < g->n_experts; i++) {
        g->of_expert[2 * i] = find(g->m, read, i);
        g->of_expert[2 * i + 1] = find(g->m, s->place, i);
    }
    for (int64_t t = 0; t < s->rows; t++) {
        for (int64_t k = 0; k < g->slots; k++) {
            const int32_t expert = chosen[t * g->slots + k];
            if (expert < 0 || expert >= g->n_experts) continue;
            struct llm_moment *in = g->of_expert[2 * expert], *inner = g->of_expert[2 * expert + 1];
            if (in && in->k == g->input_cols) add_row(in, g->input + t * g->input_cols);
            if (inner && inner->k * g->slots == s->cols) add_row(inner, s->x + t * s->stride + k * inner->k);
        }
    }
    return 0;
}

static int observe(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    struct gather *g = arg;
    struct llm_moment *r = find(g->m, s->place, -1), *first = find(g->m, s->place, 0);
    if (r && r->k == s->cols) {
        const size_t i = (size_t)(r - g->m->v);
        for (int64_t t = 0; t < s->rows && g->first_pass; t++) add_row(r, s->x + t * s->stride);
        if (r->products && i >= g->part && i < g->part_end
            && llm_matmul_dw(r->products, s->x, s->stride, s->x, s->stride, s->rows, s->rows, r->k, r->k, LLM_COMPUTE_F32, e) < 0) return -1;
    }
    if (!g->first_pass) return 0;
    if (first && s->place.kind == LLM_PLACE_MLP_INPUT) return keep_input(g, s, e);
    if (first && s->place.kind == LLM_PLACE_MLP_HIDDEN) return add_experts(g, s, e);
    return 0;
}

/* A watcher for each place that a record reads, and for no place twice. */
static int watch_places(struct gather *g, struct llm_err *e)
{
    g->watchers = llm_calloc(g->m->n + 1, sizeof *g->watchers, "moments", e);
    for (size_t i = 0; g->watchers && i < g->m->n; i++) {
        const struct llm_place p = g->m->v[i].place;
        bool found = false;
        for (size_t k = 0; k < g->n_watchers && !found; k++) found = llm_place_within(&g->watchers[k].at, p);
        if (found) continue;
        g->watchers[g->n_watchers++] = (struct llm_watcher){.at = {p.kind, p.stack, p.layer, p.layer}, .observe = observe, .arg = g};
    }
    return g->watchers ? 0 : -1;
}

/* Runs one window through the model. */
static int run_window(struct llm_engine *engine, struct gather *g, const int32_t *ids, int64_t n, struct llm_err *e)
{
    struct llm_kv kv;
    llm_kv_init(&kv, &engine->pool);
    g->choices.n = g->choices.at = 0;
    int status = llm_engine_prefill(engine, &kv, ids, n, engine->model->config.prefix_lm, false, NULL, NULL, e);
    llm_kv_release(&kv);
    return status;
}

static int run_text(struct llm_engine *engine, struct gather *g, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct llm_progress progress;
    int status = 0;
    llm_progress_start(&progress, "calibration", "tokens", (int64_t)n);
    for (size_t at = 0; status == 0 && at < n; at += (size_t)engine->context) {
        size_t left = n - at, step = left < (size_t)engine->context ? left : (size_t)engine->context;
        if (step < 2 && at > 0) break;
        llm_progress_set(&progress, (int64_t)at, NULL);
        status = run_window(engine, g, ids + at, (int64_t)step, e);
        g->m->tokens += g->first_pass ? (double)step : 0;
        g->m->chunks += g->first_pass;
    }
    llm_progress_end(&progress);
    return status;
}

/* Memory for the products of the next records, as many as m->memory allows. 0 or -1. */
static int begin_part(struct gather *g, struct llm_err *e)
{
    struct llm_moments *m = g->m;
    uint64_t bytes = 0;
    for (g->part_end = g->part; g->part_end < m->n; g->part_end++) {
        struct llm_moment *r = &m->v[g->part_end];
        const uint64_t more = r->wanted ? (uint64_t)(r->k * r->k) * sizeof *r->products : 0;
        if (m->memory > 0 && bytes > 0 && bytes + more > m->memory) break;
        bytes += more;
        if (r->wanted && !(r->products = llm_calloc((size_t)(r->k * r->k), sizeof *r->products, "products of inputs", e))) return -1;
    }
    return 0;
}

/* Reads the text once for each part of the products. */
static int run_parts(struct llm_engine *engine, struct gather *g, const int32_t *ids, size_t n, struct llm_err *e)
{
    int status = 0;
    g->first_pass = true;
    do {
        status = begin_part(g, e);
        if (status == 0) status = run_text(engine, g, ids, n, e);
        for (; status == 0 && g->part < g->part_end; g->part++) {
            struct llm_moment *r = &g->m->v[g->part];
            if (r->products) status = llm_moments_spool(g->m, &r->products, (size_t)(r->k * r->k), e);
        }
        g->first_pass = false;
    } while (status == 0 && g->part < g->m->n);
    return status;
}

int llm_moments_gather(struct llm_moments *m, struct llm_model *model, const int32_t *ids, size_t n, int64_t context, struct llm_err *e)
{
    struct llm_engine engine = {0};
    struct gather g = {.m = m, .slots = model->config.num_experts_per_tok, .n_experts = model->config.num_experts};
    int64_t longest = llm_config_default_context(&model->config);
    if (model->config.num_encoder_layers > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "calibration: expected a model with one stack of layers, found an encoder-decoder (%s)",
                        model->config.model_type);
    }
    if (n == 0) return llm_fail(e, EX_DATAERR, "calibration: expected a text with tokens, found none");
    if (context == 0) context = longest < 512 ? longest : 512;
    const struct llm_engine_options o = {.compute = LLM_COMPUTE_BF16, .context = context, .batch = context};
    g.of_expert = llm_calloc((size_t)(2 * g.n_experts + 1), sizeof(void *), "moments", e);
    int status = g.of_expert ? watch_places(&g, e) : -1;
    if (status == 0) status = llm_engine_init(&engine, model, &o, e);
    struct llm_watch watch = {.v = g.watchers, .n = g.n_watchers};
    engine.ctx.watch = &watch;
    if (model->config.num_experts > 0) engine.ctx.choices = &g.choices;
    if (status == 0) status = run_parts(&engine, &g, ids, n, e);
    engine.ctx.watch = NULL;
    engine.ctx.choices = NULL;
    llm_engine_release(&engine);
    free(g.watchers);
    free(g.choices.ids);
    free(g.input);
    free(g.of_expert);
    return status;
}

/* ---- results ---- */

bool llm_moments_importance(const struct llm_moments *m, size_t i, float *out)
{
    if (i >= m->n_params || m->of[i] < 0) return false;
    const struct llm_moment *r = &m->v[m->of[i]];
    bool any = false;
    for (int64_t j = 0; r->count > 0 && j < r->k; j++) {
        out[j] = (float)((double)(float)r->squares[j] / (double)(float)r->count); /* of floats, as files have them: so the result is the same */
        any |= out[j] > 0;
    }
    return any;
}

const float *llm_moments_products(const struct llm_moments *m, size_t i)
{
    return i < m->n_params && m->of[i] >= 0 && m->v[m->of[i]].count > 0 ? m->v[m->of[i]].products : NULL;
}

const struct llm_kronecker *llm_moments_kronecker(const struct llm_moments *m, size_t i)
{
    return m->kronecker && i < m->n_params && m->kronecker[i].in ? &m->kronecker[i] : NULL;
}

static void unload(const struct llm_moments *m, float *p)
{
    const size_t bytes = llm_quant_spool_bytes(&m->spool, p);
    if (bytes > 0) llm_pages_release(p, bytes);
}

void llm_moments_unload(const struct llm_moments *m, size_t i)
{
    const struct llm_kronecker *f = llm_moments_kronecker(m, i);
    if (i < m->n_params && m->of[i] >= 0) unload(m, m->v[m->of[i]].products);
    if (f) unload(m, f->in);
    if (f && f->out) unload(m, f->out);
}

struct llm_coverage llm_moments_coverage(const struct llm_moments *m)
{
    struct llm_coverage c = {0};
    for (size_t i = 0; i < m->n; i++) {
        const struct llm_moment *r = &m->v[i];
        if (r->expert < 0 || r->place.kind != LLM_PLACE_MLP_HIDDEN) continue;
        c.least = c.experts == 0 || r->count < c.least ? r->count : c.least;
        c.experts++;
        c.unseen += r->count == 0;
    }
    return c;
}
