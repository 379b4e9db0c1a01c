/* Initial weights. Each element is a function of the seed, the parameter's number, its row and its column, so threads do not change it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/detect.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "model/weights/model.h"

struct fill {
    float *out;
    int64_t rows, cols, run;
    uint64_t seed;
    uint32_t param;
    double deviation;
};

/* Fills rows with the numbers of llm_rng_normal times the deviation. */
static void normal_rows(void *arg, size_t piece, int thread)
{
    const struct fill *f = arg;
    int64_t from = (int64_t)piece * f->run, to = from + f->run < f->rows ? from + f->run : f->rows;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        const struct llm_rng rng = llm_rng_at(f->seed, 0, LLM_RNG_INIT, f->param, (uint32_t)r, 0);
        float *row = f->out + r * f->cols;
        llm_k.normals.normals(row, f->cols, rng.key, rng.counter);
        for (int64_t c = 0; c < f->cols; c++) row[c] = (float)((double)row[c] * f->deviation);
    }
}

/* Initialises the parameters of selective scans: decays 1, 2, 3, … along each row (or along the vector), and biases of time steps. */
static void fill_scan(const struct llm_config *c, const struct llm_param_spec *s, uint32_t number, uint64_t seed, float *out)
{
    int64_t n = s->shape[0] * s->shape[1], columns = s->n_dims > 1 ? s->shape[1] : n;
    const struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_INIT, number, 0, 0);
    for (int64_t i = 0; i < n; i++) {
        if (s->init == LLM_INIT_LOG_COLUMN) {
            out[i] = (float)log((double)(i % columns + 1));
            continue;
        }
        double low = log(c->time_step_min), step = exp(low + llm_rng_uniform64(&r, (uint32_t)i) * (log(c->time_step_max) - low));
        if (step < c->time_step_floor) step = c->time_step_floor;
        out[i] = (float)(step + log(-expm1(-step))); /* the inverse of softplus */
    }
}

/* RWKV's shares, decays and bonuses as its training code initialises them: slower decays and larger shares of the token before in deeper layers. */
static void fill_rwkv(const struct llm_config *c, const struct llm_param_spec *s, float *out)
{
    const double layers = (double)c->num_hidden_layers, rising = s->layer / fmax(layers - 1, 1), falling = 1 - s->layer / layers;
    const bool heads = c->mixer > LLM_MIXER_RWKV4, half = s->stem == LLM_STEM_SHARE_R || s->stem == LLM_STEM_SHARE_OUT_GATE;
    const int64_t n = s->shape[0];
    for (int64_t i = 0; i < n; i++) {
        double at = (double)i / (double)n, x;
        double last = (double)i / fmax((double)n - 1, 1), zigzag = (double)((i + 1) % 3 - 1);
        if (s->init == LLM_INIT_DECAY) x = (heads ? -6 : -5) + (heads ? 5 : 8) * pow(last, .7 + 1.3 * rising);
        else if (s->init == LLM_INIT_FIRST) x = heads ? (1 - last) * rising + .1 * zigzag : log(.3) + .5 * zigzag;
        else x = pow(at, half ? falling / 2 : falling) + (s->stem == LLM_STEM_SHARE_V ? .3 * rising : 0);
        if (s->init == LLM_INIT_SHARE && c->mixer >= LLM_MIXER_RWKV6) x = 1 - x; /* of the token before */
        out[i] = (float)x;
    }
}

/* RWKV 7's, as its training code initialises them. */
static void fill_rwkv7(const struct llm_config *c, const struct llm_param_spec *s, float *out)
{
    const double layers = (double)c->num_hidden_layers, rising = s->layer / fmax(layers - 1, 1), falling = 1 - s->layer / layers;
    const double half = fmax((double)(c->head_dim - 1) / 2, 1);
    const int64_t n = s->shape[0];
    for (int64_t i = 0; i < n; i++) {
        double at = (double)i / (double)n, line = (double)i / fmax((double)n - 1, 1), x;
        double zigzag = ((double)(i % c->head_dim) - half) / half;
        zigzag *= fabs(zigzag);
        switch (s->stem) {
        case LLM_STEM_SHARE_R: case LLM_STEM_SHARE_OUT_GATE: x = 1 - pow(at, .2 * falling); break;
        case LLM_STEM_SHARE_K: case LLM_STEM_SHARE_V: x = 1 - pow(at, .7 * falling); break;
        case LLM_STEM_SHARE_DECAY: case LLM_STEM_SHARE_RATE: x = 1 - pow(at, .9 * falling); break;
        case LLM_STEM_SHARE_UP: x = 1 - pow(at, pow(falling, 4)); break;
        case LLM_STEM_DECAY: x = -5.5 + 6 * pow(line, 1 + pow(rising, .3)) + 2.5 * zigzag; break;
        case LLM_STEM_RATE: x = -.19 + .3 * zigzag + .4 * (line - .5); break;
        case LLM_STEM_VALUE: x = .73 - .4 * (line - .5); break;
        case LLM_STEM_KEY_SCALE: x = .71 - .1 * (line - .5); break;
        case LLM_STEM_KEY_MIX: x = 1.02; break;
        default: x = -.04; /* LLM_STEM_FIRST */
        }
        out[i] = (float)x;
    }
}

/* The constants of Hyena's filters, as HyenaDNA has them: of position t of n the time t/(n - 1), and features: the time, cosines and negative sines
 * of 2πft/n for frequencies f from 1e-4 to bands - 1. Decays are evenly spaced: the window is down to 1/100 after .3 of the positions in the last
 * channel, and after 1.5 times as many as there are in the first. */
static void fill_hyena(const struct llm_config *c, const struct llm_param_spec *s, float *out)
{
    const int64_t n = s->shape[0], bands = (c->filter_features - 1) / 2;
    const double slow = log(.01) / 1.5, fast = log(.01) / .3, last = n > 1 ? (double)(n - 1) : 1;
    for (int64_t t = 0; t < n; t++) {
        if (s->stem == LLM_STEM_FILTER_FREQ) out[t] = (float)c->filter_freq;
        else if (s->stem == LLM_STEM_FILTER_DECAY) out[t] = (float)(slow + (fast - slow) * (double)t / last);
        else out[t * s->shape[1]] = (float)((double)t / last);
        for (int64_t b = 0; s->stem == LLM_STEM_FILTER_POSITIONS && b < bands; b++) {
            double f = bands > 1 ? 1e-4 + ((double)(bands - 1) - 1e-4) * (double)b / (double)(bands - 1) : 1e-4;
            double angle = f * 6.283185307179586 * (double)t / (double)n;
            out[t * s->shape[1] + 1 + b] = (float)cos(angle);
            out[t * s->shape[1] + 1 + bands + b] = (float)-sin(angle);
        }
    }
}

static void fill(const struct llm_config *c, const struct llm_arch *arch, const struct llm_param_spec *s, uint32_t number, uint64_t seed, float *out)
{
    if (s->init == LLM_INIT_ZERO || s->init == LLM_INIT_ONE) {
        for (int64_t i = 0; i < s->shape[0] * s->shape[1]; i++) out[i] = s->init == LLM_INIT_ONE;
        return;
    }
    if (s->init == LLM_INIT_LAYER_SCALE) {
        for (int64_t i = 0; i < s->shape[0]; i++) out[i] = (float)c->layer_scale_init;
        return;
    }
    if (s->init == LLM_INIT_LOGIT_SCALE || s->init == LLM_INIT_LOGIT_BIAS) {
        out[0] = s->init == LLM_INIT_LOGIT_SCALE ? (float)c->logit_scale_init : -10;
        return;
    }
    if (s->init == LLM_INIT_RWKV7) {
        fill_rwkv7(c, s, out);
        return;
    }
    if (s->init == LLM_INIT_HYENA) {
        fill_hyena(c, s, out);
        return;
    }
    if (s->init == LLM_INIT_DECAY || s->init == LLM_INIT_FIRST || s->init == LLM_INIT_SHARE) {
        fill_rwkv(c, s, out);
        return;
    }
    if (s->init == LLM_INIT_LOG_COLUMN || s->init == LLM_INIT_TIME_STEP) {
        fill_scan(c, s, number, seed, out);
        return;
    }
    struct fill f = {.out = out, .rows = s->shape[0], .cols = s->shape[1], .run = 1 + 16384 / s->shape[1], .seed = seed, .param = number,
                     .deviation = c->initializer_range};
    if (s->init == LLM_INIT_UNIT) f.deviation = 1;
    if (s->init == LLM_INIT_SMALL) f.deviation = .01 / sqrt(3);
    if (s->init == LLM_INIT_CONV || s->init == LLM_INIT_TIME_PROJECTION) f.deviation = 1 / sqrt(3.0 * (double)s->shape[1]);
    if (c->mup_base_width > 0 && s->role == LLM_ROLE_HIDDEN) f.deviation *= sqrt((double)c->mup_base_width / (double)c->hidden_size);
    if (s->init == LLM_INIT_RESIDUAL && arch->scaled_residual) f.deviation /= sqrt(2.0 * (double)c->num_hidden_layers);
    llm_parallel((size_t)((f.rows + f.run - 1) / f.run), normal_rows, &f);
}

static int initialise(struct llm_model *m, size_t i, uint64_t seed, struct llm_err *e)
{
    struct llm_param *p = &m->params[i];
    float *data = llm_alloc_huge((size_t)llm_param_count(p), sizeof *data, "weights", e);
    if (!data) return -1;
    fill(&m->config, m->arch, p->spec, (uint32_t)i, seed, data);
    p->weight.data = data;
    p->weight.dtype = LLM_F32;
    p->owned = true;
    return 0;
}

struct llm_model *llm_model_create(const struct llm_config *c, uint64_t seed, struct llm_err *e)
{
    const struct llm_arch *arch = llm_arch_find(c->model_type);
    if (arch && arch->tables) { /* n-gram tables are counted, not initialised */
        llm_fail(e, LLM_EX_USAGE, "model_type %s: expected a network to train (llm-train --objective ngram counts n-grams)", c->model_type);
        return NULL;
    }
    struct llm_model *m = llm_kernels_init(e) == 0 ? llm_model_shape(c, e) : NULL;
    if (!m) return NULL;
    for (size_t i = 0; i < m->n_params; i++) {
        if (initialise(m, i, seed, e) == 0) continue;
        llm_model_destroy(m);
        return NULL;
    }
    return m;
}

/* Gives a new parameter the weights that `from` has of it. False: it has none. */
static bool take_weights(struct llm_model *from, struct llm_param *to)
{
    struct llm_param *p = llm_model_find(from, to->name);
    if (!p || llm_param_count(p) != llm_param_count(to) || p->shape[0] != to->shape[0]) return false;
    to->weight = p->weight;
    to->owned = p->owned;
    p->weight = (struct llm_weight){.n = p->weight.n, .k = p->weight.k};
    p->owned = false;
    return true;
}

struct llm_model *llm_model_graft(struct llm_model *from, const struct llm_config *c, uint64_t seed, struct llm_err *e)
{
    struct llm_model *m = llm_kernels_init(e) == 0 ? llm_model_shape(c, e) : NULL;
    if (!m) return NULL;
    for (size_t i = 0; i < m->n_params; i++) {
        if (take_weights(from, &m->params[i]) || initialise(m, i, seed, e) == 0) continue;
        llm_model_destroy(m);
        return NULL;
    }
    m->files = from->files;
    m->n_files = from->n_files;
    from->files = NULL;
    from->n_files = 0;
    m->tokenizer = from->tokenizer;
    m->chat_template = from->chat_template;
    m->preprocessor = from->preprocessor;
    from->tokenizer = NULL;
    from->chat_template = from->preprocessor = NULL;
    return m;
}

/* The parameter of the tower of `from` that is what p is in that of m. NULL: none is. */
static const struct llm_param *same_of_tower(const struct llm_model *m, const struct llm_param *p, const struct llm_model *from)
{
    const int first = ((const struct llm_decoder *)m->layout)->stacks[LLM_STACK_VISION].first;
    const int its_first = ((const struct llm_decoder *)from->layout)->stacks[LLM_STACK_VISION].first;
    for (size_t i = 0; i < from->n_params; i++) {
        struct llm_param_spec s = *from->params[i].spec;
        if (s.layer >= 0) s.layer += first - its_first;
        if (llm_param_spec_same(&s, p->spec)) return &from->params[i];
    }
    return NULL;
}

static int copy_weight(struct llm_param *to, const struct llm_param *from, struct llm_err *e)
{
    const size_t bytes = llm_dtype_bytes(from->weight.dtype, (uint64_t)llm_param_count(from));
    void *data = llm_alloc_huge(bytes, 1, to->name, e);
    if (!data) return -1;
    memcpy(data, from->weight.data, bytes);
    free((void *)to->weight.data);
    to->weight.data = data;
    to->weight.dtype = from->weight.dtype;
    return 0;
}

int llm_model_take_tower(struct llm_model *m, const struct llm_model *from, struct llm_err *e)
{
    const struct llm_vision *v = &m->config.vision, *f = &from->config.vision;
    if (!llm_config_projects(&m->config)) {
        return llm_fail(e, LLM_EX_USAGE, "expected a new model that reads pictures in texts (llava, idefics3), found %s", m->config.model_type);
    }
    if (v->hidden_size != f->hidden_size || v->intermediate_size != f->intermediate_size || v->num_hidden_layers != f->num_hidden_layers
        || v->num_attention_heads != f->num_attention_heads || v->image_size != f->image_size || v->patch_size != f->patch_size
        || v->num_channels != f->num_channels || v->patches_only != f->patches_only || v->act != f->act
        || v->norm_eps < f->norm_eps || v->norm_eps > f->norm_eps) {
        return llm_fail(e, EX_DATAERR, "expected a vision tower with the vision_config of the new model, found another (%s)",
                        from->config.model_type);
    }
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param_spec *s = m->params[i].spec;
        if (s->stack != LLM_STACK_VISION || llm_stem_projects(s->stem)) continue;
        const struct llm_param *p = same_of_tower(m, &m->params[i], from);
        if (!p) return llm_fail(e, EX_DATAERR, "tensor '%s': expected one of the tower, found none", m->params[i].name);
        if (copy_weight(&m->params[i], p, e) < 0) return -1;
    }
    if (from->preprocessor && !m->preprocessor && !(m->preprocessor = strdup(from->preprocessor))) return llm_no_memory(e, "a preprocessor");
    return 0;
}

int llm_model_give_preprocessor(struct llm_model *m, json_t *o, struct llm_err *e)
{
    struct llm_buf text = {0};
    int status = o ? llm_json_dump(o, &text, e) : llm_no_memory(e, "a preprocessor");
    if (status == 0 && !(m->preprocessor = strndup(text.p, text.n))) status = llm_no_memory(e, "a preprocessor");
    llm_buf_release(&text);
    json_decref(o);
    return status;
}
