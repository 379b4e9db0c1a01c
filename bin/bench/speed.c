/* llm-bench speed: prefill and decoding of a model, as shares of what the machine can do. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/signals.h"
#include "bin/bench/bench.h"
#include "cpu/detect.h"
#include "cpu/pool.h"
#include "measure/cost.h"
#include "measure/speed.h"
#include "quant/quant.h"

struct args {
    struct llm_common common;
    const char *model, *config, *prompt, *generate, *depth, *sequences;
    struct llm_strs set;
    int64_t runs, batch;
    int type, cache, precision;
};
#define AT(field) offsetof(struct args, field)
enum { UNSET = -1, MAX_NUMBERS = 16 };

static const struct llm_opt options[] = {
    {'m', "model", "MODEL", "the model", LLM_INPUT, AT(model), 0, 0, NULL},
    {'c', "config", "CONFIG", "in place of -m: a preset or a config.json, with random weights", LLM_STR, AT(config), 0, 0, NULL},
    {0, "set", "KEY=VALUE", "set a key of the configuration of -c; may be given several times", LLM_LIST, AT(set), 0, 0, NULL},
    {'t', "type", "TYPE", "convert the weights to this type before measuring: %w [as they are; with -c: bf16]", LLM_CHOICE, AT(type), 0, 0, NULL},
    {'p', "prompt", "N,...", "measure a prefill of N tokens; 0: none [512]", LLM_STR, AT(prompt), 0, 0, NULL},
    {'n', "generate", "N,...", "measure the decoding of N tokens; 0: none [128]", LLM_STR, AT(generate), 0, 0, NULL},
    {'d', "depth", "N,...", "number of tokens already in the cache before each measurement [0]", LLM_STR, AT(depth), 0, 0, NULL},
    {0, "sequences", "N,...", "measure the decoding of so many sequences together; 1: alone [1]", LLM_STR, AT(sequences), 0, 0, NULL},
    {'r', "runs", "N", "repetitions of each measurement [5]", LLM_INT, AT(runs), 1, LLM_SPEED_MAX_RUNS, NULL},
    {'b', "batch", "N", "maximum number of tokens in one forward pass [512]", LLM_INT, AT(batch), 1, 65536, NULL},
    {0, "cache-type", "TYPE", "type in which the cache stores keys and values: %w [bf16]", LLM_CHOICE, AT(cache), 0, 0, NULL},
    {0, "precision", "TYPE", "arithmetic of weights that are not quantised: %w [bf16]", LLM_CHOICE, AT(precision), 0, 0, NULL},
    {0}};

const struct llm_cli bench_speed_cli = {
    .name = "llm-bench speed",
    .summary = "Measure prefill and decoding: tokens per second, and share of this machine's peaks.",
    .usage = "-m MODEL | -c CONFIG [OPTION]...",
    .examples = "llm-bench speed -m model.llm\n"
                "llm-bench speed -c smollm -t q8_0 -p 512 -n 128 -d 0,1024\n"
                "llm-bench speed --json -m model.llm -r 10",
    .options = options,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG,
    .words = bench_speed_words,
    .aliases = bench_speed_aliases,
    .foreign = bench_foreign,
};

static const char *const columns[] = {"model", "parameters", "weight_bytes", "type", "threads", "isa", "test", "tokens_per_s", "deviation", "limit",
                                      "share_of_limit", NULL};

static int say_nothing(void *arg, const struct llm_quant_report *r, struct llm_err *e)
{
    (void)arg, (void)r, (void)e;
    return 0;
}

static struct llm_model *load(const struct args *a, struct llm_err *e)
{
    struct llm_strs none = {0};
    struct llm_quant_plan plan = {.only = &none, .except = &none};
    struct llm_config c;
    struct llm_model *m = NULL;
    int type = a->type;
    if (a->model) {
        m = llm_model_load(a->model, e);
    } else if (bench_config(&c, a->config, &a->set, e) == 0) {
        m = llm_model_create(&c, 1, e);
        if (type == UNSET) type = 2;
    }
    if (m && llm_model_must_continue(m, e) < 0) {
        llm_model_destroy(m);
        return NULL;
    }
    if (!m || type == UNSET) return m;
    plan.type = &llm_quant_types[type];
    if (llm_quantize_model(m, &plan, say_nothing, NULL, e) == 0) return m;
    llm_model_destroy(m);
    return NULL;
}

struct test { int64_t prompt, generate, depth, sequences; };

static void put(struct llm_table *t, const struct args *a, const struct llm_model *m, const struct test *test, const struct llm_speed *s)
{
    char name[80];
    double bytes = 0;
    enum llm_dtype type = LLM_F32;
    for (size_t i = 0; i < m->n_params; i++) {
        bytes += (double)llm_dtype_bytes(m->params[i].weight.dtype, (uint64_t)llm_param_count(&m->params[i]));
        if (m->params[i].n_dims > 1) type = m->params[i].weight.dtype; /* the last matrix decides */
    }
    snprintf(name, sizeof name, test->prompt ? "pp%" PRId64 : "tg%" PRId64, test->prompt ? test->prompt : test->generate);
    if (test->sequences > 1) snprintf(name + strlen(name), sizeof name - strlen(name), " x %" PRId64, test->sequences);
    if (test->depth) snprintf(name + strlen(name), sizeof name - strlen(name), " @ d%" PRId64, test->depth);
    llm_table_text(t, a->model ? a->model : a->config);
    llm_table_count(t, llm_model_params(&m->config));
    llm_table_count(t, bytes);
    llm_table_text(t, llm_dtypes[type].name);
    llm_table_count(t, llm_pool_threads());
    llm_table_text(t, llm_isa_name());
    llm_table_text(t, name);
    llm_table_number(t, s->rate, 5);
    llm_table_number(t, s->deviation, 3);
    llm_table_text(t, s->limit);
    llm_table_number(t, s->share, 3);
}

/* Each test has an engine of its own, whose context is as long as the test needs. Returns 0, 1 if a signal was caught, or -1. */
static int run_test(struct llm_table *t, const struct args *a, struct llm_model *m, const struct test *test, struct llm_err *e)
{
    struct llm_engine g = {0};
    struct llm_engine_options o = {.compute = a->precision == 0 ? LLM_COMPUTE_F32 : LLM_COMPUTE_BF16, .batch = a->batch,
                                   .context = test->depth + test->prompt + test->generate};
    struct llm_speed s;
    o.cache = a->cache < 0 ? LLM_NO_DTYPE : llm_kv_types[a->cache];
    int status = llm_engine_init(&g, m, &o, e);
    if (status == 0) {
        status = test->prompt          ? llm_speed_prompt(&g, test->depth, test->prompt, a->runs, &s, e)
                 : test->sequences > 1 ? llm_speed_together(&g, test->sequences, test->depth, test->generate, a->runs, &s, e)
                                       : llm_speed_generate(&g, test->depth, test->generate, a->runs, &s, e);
    }
    if (status == 0) put(t, a, m, test, &s);
    llm_engine_release(&g);
    return status;
}

int bench_speed(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.prompt = "512", .generate = "128", .depth = "0", .sequences = "1", .runs = 5, .batch = 512, .type = UNSET, .cache = UNSET,
                     .precision = 1};
    int rest = llm_cli_parse(&bench_speed_cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    int64_t prompts[MAX_NUMBERS], generates[MAX_NUMBERS], depths[MAX_NUMBERS], together[MAX_NUMBERS];
    struct llm_table t, *tables[] = {&t};
    if (rest < argc) llm_usage(&bench_speed_cli, "expected no operand, found '%s'", argv[rest]);
    if (!a.model == !a.config) llm_usage(&bench_speed_cli, "expected a model: one of -m and -c");
    if (a.set.n && !a.config) llm_usage(&bench_speed_cli, "--set goes with -c");
    size_t n_prompts = llm_cli_numbers(&bench_speed_cli, "prompt", a.prompt, 0, 1 << 24, prompts, MAX_NUMBERS);
    size_t n_generates = llm_cli_numbers(&bench_speed_cli, "generate", a.generate, 0, 1 << 24, generates, MAX_NUMBERS);
    size_t n_depths = llm_cli_numbers(&bench_speed_cli, "depth", a.depth, 0, 1 << 24, depths, MAX_NUMBERS);
    size_t n_together = llm_cli_numbers(&bench_speed_cli, "sequences", a.sequences, 1, a.batch, together, MAX_NUMBERS);
    bool any = false;
    for (size_t i = 0; i < n_prompts + n_generates; i++) any = any || (i < n_prompts ? prompts[i] : generates[i - n_prompts]) > 0;
    if (!any) llm_usage(&bench_speed_cli, "expected a test: a number above 0 for one of -p and -n");
    if (bench_begin(&a.common, e) < 0) return -1;
    llm_signals_catch();
    struct llm_model *m = load(&a, e);
    int status = m ? 0 : -1;
    llm_table_init(&t, columns);
    for (size_t d = 0; d < n_depths && status == 0; d++) {
        for (size_t i = 0; i < n_prompts + n_generates && status == 0; i++) {
            struct test test = {.depth = depths[d]};
            if (i < n_prompts) test.prompt = prompts[i];
            else test.generate = generates[i - n_prompts];
            for (size_t s = 0; s < (test.prompt ? 1 : n_together) && (test.prompt || test.generate) && status == 0; s++) {
                test.sequences = together[s];
                status = run_test(&t, &a, m, &test, e);
            }
        }
    }
    llm_model_destroy(m);
    llm_pool_stop();
    llm_signal_die();
    if (status == 0) return bench_print(&a.common, tables, 1, e);
    llm_table_release(&t);
    return -1;
}
