/* GPT-2 and Llama shapes with hard weights against PyTorch in double (tests/oracle/train_goldens.py): logits within 5e-6 of their range, each
 * gradient within 1e-5 of its norm and twice what PyTorch is off in single precision, 20 losses of a run within 2e-6. And that these limits see
 * what is easily got wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "io/checkpoint.h"
#include "train/trainer.h"
#include "tests/unit/model_of.h"
#include "tests/unit/near.h"

enum { SEED = 11, ROWS = 3, LENGTH = 80, STEPS = 20, PROJECTIONS = 64, EVERY = 5 };

struct golden {
    float *logits;
    double *loss, *norms, *projections, *single, *curve;
    struct llm_config config;
};

static void *load_tensor(struct llm_checkpoint *f, const char *name)
{
    struct llm_err e;
    const struct llm_entry *t = llm_header_find(llm_checkpoint_header(f), name);
    assert_non_null(t);
    void *p = malloc((size_t)t->bytes);
    assert_int_equal(llm_checkpoint_read(f, t, p, &e), 0);
    return p;
}

static struct golden load(const char *path)
{
    struct llm_err e = {0};
    struct golden g;
    struct llm_checkpoint *f = llm_checkpoint_open(path, &e);
    if (!f) fail_msg("%s", e.text);
    g.config = config_of(llm_header_meta(llm_checkpoint_header(f), "llm.config"));
    g.logits = load_tensor(f, "logits");
    g.loss = load_tensor(f, "loss");
    g.norms = load_tensor(f, "norms");
    g.projections = load_tensor(f, "projections");
    g.single = load_tensor(f, "single");
    g.curve = load_tensor(f, "curve");
    llm_checkpoint_close(f);
    return g;
}

static void release(struct golden *g)
{
    free(g->logits);
    free(g->loss);
    free(g->norms);
    free(g->projections);
    free(g->single);
    free(g->curve);
}

/* The deviations of train_goldens.py. */
static double deviation_of(const struct llm_param *p)
{
    static const char *const strong[] = {"c_attn.weight", "q_proj.weight", "k_proj.weight", "v_proj.weight"};
    if (p->n_dims == 1) return .3;
    if (strstr(p->name, "wte") || strstr(p->name, "wpe") || strstr(p->name, "embed") || strstr(p->name, "lm_head")) return .5;
    for (size_t i = 0; i < sizeof strong / sizeof *strong; i++) {
        if (strstr(p->name, strong[i])) return 1.7 / sqrt((double)p->shape[1]);
    }
    return 1 / sqrt((double)p->shape[1]);
}

static void harden(struct llm_model *m)
{
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        int64_t cols = p->n_dims > 1 ? p->shape[1] : 1;
        float deviation = (float)deviation_of(p), *w = (float *)p->weight.data;
        bool gain = p->n_dims == 1 && strstr(p->name, ".weight");
        for (int64_t r = 0; r < p->shape[0]; r++) {
            struct llm_rng rng = llm_rng_at(SEED, 0, LLM_RNG_TEST, (uint32_t)i, (uint32_t)r, 0);
            for (int64_t c = 0; c < cols; c++) w[r * cols + c] = llm_rng_normal(&rng, (uint32_t)c) * deviation + (float)gain;
        }
    }
}

/* The corpus of the run: ROWS windows of LENGTH + 1 tokens a step, one after another. The trainer invents the same tokens itself. */
static struct llm_trainer make(const struct golden *g, void (*wrong)(struct llm_config *c, struct llm_train_options *o, struct llm_model *m))
{
    struct llm_err e = {0};
    struct llm_train_options o;
    struct llm_train_data none = {0};
    struct llm_trainer t = {.step = 0};
    llm_train_options_default(&o);
    o.steps = STEPS;
    o.batch = ROWS;
    o.context = LENGTH;
    o.lr = o.min_lr = 1e-3;
    o.warmup = 0;
    o.schedule = 2;
    o.precision = LLM_COMPUTE_F32;
    o.seed = SEED;
    struct llm_config config = g->config;
    while (config.prefix_lm && llm_objectives[o.objective] != llm_objective_find("prefix")) o.objective++;
    if (wrong) wrong(&config, &o, NULL);
    struct llm_model *m = llm_model_create(&config, 0, &e);
    if (!m) fail_msg("%s", e.text);
    harden(m);
    if (wrong) wrong(&config, &o, m);
    assert_string_equal(llm_schedules[o.schedule]->name, "constant");
    if (llm_trainer_init(&t, &o, m, &none, &e) < 0) fail_msg("%s", e.text);
    return t;
}

/* The worst difference between logits, as a share of their range. */
static double logits_error(struct llm_trainer *t, const struct golden *g)
{
    struct llm_ctx *c = &t->eval_ctx;
    int64_t vocab = g->config.vocab_size;
    const struct llm_batch b = {.ids = t->rows.ids, .positions = t->rows.positions, .n_tokens = ROWS * LENGTH,
                                .prefixes = t->rows.prefixed ? t->rows.prefixes : NULL};
    float low = INFINITY, high = -INFINITY;
    double worst = 0;
    c->n_rows = ROWS;
    c->row_len = LENGTH;
    struct llm_tensor *logits = llm_model_logits(c, t->model, llm_model_forward(c, t->model, &b));
    assert_int_equal(c->err.status, 0);
    for (int64_t r = 0; r < ROWS * LENGTH / EVERY; r++) {
        for (int64_t i = 0; i < vocab; i++) {
            float want = g->logits[r * vocab + i];
            low = fminf(low, want);
            high = fmaxf(high, want);
            worst = worse(worst, fabs((double)logits->data[r * EVERY * logits->stride + i] - (double)want));
        }
    }
    llm_ctx_reset(c);
    return worst / (double)(high - low);
}

/* Projections on random signs: for a difference d between gradients each is about ‖d‖, whatever its direction. */
static double gradient_error(const struct llm_param *p, uint32_t number, const double *want)
{
    double got[PROJECTIONS] = {0}, sum = 0;
    int64_t cols = p->n_dims > 1 ? p->shape[1] : 1;
    for (int64_t r = 0; r < p->shape[0]; r++) {
        struct llm_rng rng = llm_rng_at(SEED, 1, LLM_RNG_TEST, number, (uint32_t)r, 0);
        for (int64_t c = 0; c < cols; c++) {
            uint64_t bits = llm_rng_u32(&rng, (uint32_t)(2 * c)) | (uint64_t)llm_rng_u32(&rng, (uint32_t)(2 * c + 1)) << 32;
            double x = (double)p->grad[r * cols + c];
            for (int i = 0; i < PROJECTIONS; i++) got[i] += bits >> i & 1 ? -x : x;
        }
    }
    for (int i = 0; i < PROJECTIONS; i++) sum += (got[i] - want[i]) * (got[i] - want[i]);
    return sqrt(sum / PROJECTIONS);
}

/* The worst of all gradients, as a share of its norm; `many`: of what is allowed, which is also twice PyTorch's own error. */
static double gradients_error(struct llm_trainer *t, const struct golden *g, double *many)
{
    struct llm_err e = {0};
    struct llm_step_report r = {.step = 0};
    double worst = 0, total = 0;
    *many = 0;
    if (llm_trainer_gradient(t, &r, &e) != 0) fail_msg("%s", e.text);
    for (size_t i = 0; i < t->n_params; i++) {
        const struct llm_param *p = t->params[i].p;
        double error = gradient_error(p, (uint32_t)i, g->projections + i * PROJECTIONS) / g->norms[i];
        total += g->norms[i] * g->norms[i];
        worst = worse(worst, error);
        *many = worse(*many, error / fmin(1e-5, 2 * g->single[i]));
    }
    *many = worse(*many, fabs(r.loss / g->loss[0] - 1) / 1e-6);
    *many = worse(*many, fabs(r.grad_norm / sqrt(total) - 1) / 1e-5);
    for (size_t i = 0; i < t->n_params; i++) memset(t->params[i].p->grad, 0, (size_t)llm_param_count(t->params[i].p) * sizeof(float));
    return worst;
}

/* The worst of STEPS losses, relative. */
static double curve_error(struct llm_trainer *t, const struct golden *g)
{
    struct llm_err e = {0};
    struct llm_step_report r;
    double worst = 0;
    for (int i = 0; i < STEPS; i++) {
        if (llm_trainer_step(t, &r, &e) != 0) fail_msg("%s", e.text);
        worst = worse(worst, fabs(r.loss / g->curve[i] - 1));
    }
    return worst;
}

static void check_model(const char *path)
{
    struct golden g = load(path);
    struct llm_trainer t = make(&g, NULL);
    double many, gradients = gradients_error(&t, &g, &many), logits = logits_error(&t, &g), curve = curve_error(&t, &g);
    print_message("  gradients: off by %.1e of a norm, %.2f of what is allowed; logits by %.1e of their range; the curve by %.1e\n", gradients, many,
                  logits, curve);
    assert_true(many <= 1);
    assert_true(logits <= 5e-6);
    assert_true(curve <= 2e-6);
    llm_trainer_release(&t);
    release(&g);
}

#define GOLDENS "tests/golden/train/"

static void test_gpt2(void **state)
{
    (void)state;
    check_model(GOLDENS "gpt2.safetensors");
}

static void test_llama(void **state)
{
    (void)state;
    check_model(GOLDENS "llama.safetensors");
}

/* Post-norm, sinusoidal positions, GELU by erf, no biases, a head of its own, scaled logits, a window. */
static void test_gpt2_odd(void **state)
{
    (void)state;
    check_model(GOLDENS "gpt2-odd.safetensors");
}

/* One key head, interleaved rotation, GeGLU, biases, tied embeddings, no window. */
static void test_llama_odd(void **state)
{
    (void)state;
    check_model(GOLDENS "llama-odd.safetensors");
}

/* The first tokens of each row are seen by all, and what stands there is not learned. */
static void test_llama_prefix(void **state)
{
    (void)state;
    check_model(GOLDENS "llama-prefix.safetensors");
}

/* ---- the tests can fail: what is easily got wrong in the model shows in its logits and gradients, in the optimizer along the curve ---- */

typedef struct llm_config config;
typedef struct llm_train_options options;

static void wrong_gelu(config *c, options *o, struct llm_model *m) { (void)o, (void)m, c->act = LLM_ACT_GELU; }
static void wrong_norm_eps(config *c, options *o, struct llm_model *m) { (void)o, (void)m, c->norm_eps *= 100; }
static void wrong_window(config *c, options *o, struct llm_model *m) { (void)o, (void)m, c->sliding_window++; }
static void no_window(config *c, options *o, struct llm_model *m) { (void)o, (void)m, c->sliding_window = 0; }
static void wrong_pairing(config *c, options *o, struct llm_model *m) { (void)o, (void)m, c->rope_pairing = LLM_ROPE_INTERLEAVED; }
static void wrong_theta(config *c, options *o, struct llm_model *m) { (void)o, (void)m, c->rope_theta *= 1.01; }
static void wrong_scale(config *c, options *o, struct llm_model *m) { (void)o, (void)m, c->logit_scale *= 1.001; }
static void wrong_norm_place(config *c, options *o, struct llm_model *m) { (void)o, (void)m, c->norm_place = LLM_NORM_PRE; }
static void no_decay(config *c, options *o, struct llm_model *m) { (void)c, (void)m, o->weight_decay = 0; }
static void wrong_eps(config *c, options *o, struct llm_model *m) { (void)c, (void)m, o->eps = 1e-6; }
static void wrong_beta2(config *c, options *o, struct llm_model *m) { (void)c, (void)m, o->beta2 = .951; }
static void no_clip(config *c, options *o, struct llm_model *m) { (void)c, (void)m, o->clip = 0; }
static void a_warmup(config *c, options *o, struct llm_model *m) { (void)c, (void)m, o->warmup = 1; }
static void no_prefix(config *c, options *o, struct llm_model *m) { (void)m, c->prefix_lm = false, o->objective = 0; }
static void decay_of_gains(config *c, options *o, struct llm_model *m)
{
    (void)c, (void)o;
    for (size_t i = 0; m && i < m->n_params; i++) m->params[i].decay = true;
}

static const struct {
    const char *name, *golden;
    void (*wrong)(config *c, options *o, struct llm_model *m);
    bool model; /* else it is the optimizer's */
} wrongs[] = {
    {"GELU by erf", GOLDENS "gpt2.safetensors", wrong_gelu, true},
    {"epsilon of LayerNorm x 100", GOLDENS "gpt2.safetensors", wrong_norm_eps, true},
    {"epsilon of RMSNorm x 100", GOLDENS "llama.safetensors", wrong_norm_eps, true},
    {"a window wider by one", GOLDENS "llama.safetensors", wrong_window, true},
    {"no window", GOLDENS "llama.safetensors", no_window, true},
    {"interleaved rotation", GOLDENS "llama.safetensors", wrong_pairing, true},
    {"rotation by 1.01 theta", GOLDENS "llama.safetensors", wrong_theta, true},
    {"logits x 1.001", GOLDENS "gpt2-odd.safetensors", wrong_scale, true},
    {"norms before", GOLDENS "gpt2-odd.safetensors", wrong_norm_place, true},
    {"no prefix", GOLDENS "llama-prefix.safetensors", no_prefix, true},
    {"no weight decay", GOLDENS "gpt2.safetensors", no_decay, false},
    {"decay of gains and biases", GOLDENS "gpt2.safetensors", decay_of_gains, false},
    {"epsilon of AdamW x 100", GOLDENS "llama.safetensors", wrong_eps, false},
    {"beta2 .951", GOLDENS "gpt2.safetensors", wrong_beta2, false},
    {"no clipping", GOLDENS "llama.safetensors", no_clip, false},
    {"a step of warm-up", GOLDENS "llama.safetensors", a_warmup, false},
};

static void test_wrongs_show(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        struct golden g = load(wrongs[i].golden);
        struct llm_trainer t = make(&g, wrongs[i].wrong);
        double many, gradients = gradients_error(&t, &g, &many), logits = logits_error(&t, &g), curve = curve_error(&t, &g);
        print_message("  %s: gradients off by %.1e, logits by %.1e, the curve by %.1e\n", wrongs[i].name, gradients, logits, curve);
        assert_true(curve > 2e-6);
        assert_true(wrongs[i].model ? many > 1 && logits > 5e-6 : many <= 1 && logits <= 5e-6);
        llm_trainer_release(&t);
        release(&g);
    }
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gpt2),     cmocka_unit_test(test_llama), cmocka_unit_test(test_gpt2_odd),
                                       cmocka_unit_test(test_llama_odd), cmocka_unit_test(test_llama_prefix), cmocka_unit_test(test_wrongs_show)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
