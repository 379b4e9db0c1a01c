/* Initial weights. Each element is a function of the seed, the parameter's number, its row and its column, so threads do not change it. */
#include <math.h>
#include <stdlib.h>
#include "cpu/pool.h"
#include "model/weights/model.h"

struct fill {
    float *out;
    int64_t rows, cols, run;
    uint64_t seed;
    uint32_t param;
    double deviation;
};

/* Fills rows with the numbers of llm_rng_normal. Each block of the generator gives two: columns c and c + 1 use its channels 2c to 2c + 3. */
static void normal_rows(void *arg, size_t piece, int thread)
{
    const struct fill *f = arg;
    int64_t from = (int64_t)piece * f->run, to = from + f->run < f->rows ? from + f->run : f->rows;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        struct llm_rng rng = llm_rng_at(f->seed, 0, LLM_RNG_INIT, f->param, (uint32_t)r, 0);
        float *row = f->out + r * f->cols;
        for (int64_t c = 0; c < f->cols; c += 2) {
            uint32_t counter[4] = {(uint32_t)(c / 2), rng.counter[0], rng.counter[1], rng.counter[2]}, u[4];
            llm_philox(counter, rng.key, u);
            for (int64_t i = 0; i < 2 && c + i < f->cols; i++) {
                double radius = sqrt(-2 * log(((double)(u[2 * i] >> 8) + 1) * 0x1p-24));
                row[c + i] = (float)((double)(float)(radius * cos(6.283185307179586 * ((double)(u[2 * i + 1] >> 8) * 0x1p-24))) * f->deviation);
            }
        }
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

static void fill(const struct llm_config *c, const struct llm_arch *arch, const struct llm_param_spec *s, uint32_t number, uint64_t seed, float *out)
{
    if (s->init == LLM_INIT_ZERO || s->init == LLM_INIT_ONE) {
        for (int64_t i = 0; i < s->shape[0]; i++) out[i] = s->init == LLM_INIT_ONE;
        return;
    }
    if (s->init == LLM_INIT_LOGIT_SCALE) {
        out[0] = (float)c->logit_scale_init;
        return;
    }
    if (s->init == LLM_INIT_LOG_COLUMN || s->init == LLM_INIT_TIME_STEP) {
        fill_scan(c, s, number, seed, out);
        return;
    }
    struct fill f = {.out = out, .rows = s->shape[0], .cols = s->shape[1], .run = 1 + 16384 / s->shape[1], .seed = seed, .param = number,
                     .deviation = c->initializer_range};
    if (s->init == LLM_INIT_UNIT) f.deviation = 1;
    if (s->init == LLM_INIT_CONV || s->init == LLM_INIT_TIME_PROJECTION) f.deviation = 1 / sqrt(3.0 * (double)s->shape[1]);
    if (c->mup_base_width > 0 && s->role == LLM_ROLE_HIDDEN) f.deviation *= sqrt((double)c->mup_base_width / (double)c->hidden_size);
    if (s->init == LLM_INIT_RESIDUAL && arch->scaled_residual) f.deviation /= sqrt(2.0 * (double)c->num_hidden_layers);
    llm_parallel((size_t)((f.rows + f.run - 1) / f.run), normal_rows, &f);
}

struct llm_model *llm_model_create(const struct llm_config *c, uint64_t seed, struct llm_err *e)
{
    const struct llm_arch *arch = llm_arch_find(c->model_type);
    if (arch && arch->tables) { /* n-gram tables are counted, not initialised */
        llm_fail(e, LLM_EX_USAGE, "model_type %s: expected a network to train (llm-train --objective ngram counts n-grams)", c->model_type);
        return NULL;
    }
    struct llm_model *m = llm_model_shape(c, e);
    if (!m) return NULL;
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        float *data = llm_alloc_huge((size_t)llm_param_count(p), sizeof *data, "weights", e);
        if (!data) {
            llm_model_destroy(m);
            return NULL;
        }
        fill(c, m->arch, p->spec, (uint32_t)i, seed, data);
        p->weight.data = data;
        p->weight.dtype = LLM_F32;
        p->owned = true;
    }
    return m;
}

struct llm_model *llm_model_graft(struct llm_model *from, const struct llm_config *c, uint64_t seed, struct llm_err *e)
{
    struct llm_model *m = llm_model_create(c, seed, e);
    for (size_t i = 0; m && i < m->n_params; i++) {
        struct llm_param *to = &m->params[i];
        struct llm_param *p = llm_model_find(from, to->name);
        if (!p || llm_param_count(p) != llm_param_count(to) || p->shape[0] != to->shape[0]) continue;
        free((void *)to->weight.data);
        to->weight = p->weight;
        to->owned = p->owned;
        p->weight = (struct llm_weight){.n = p->weight.n, .k = p->weight.k};
        p->owned = false;
    }
    if (!m) return NULL;
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
