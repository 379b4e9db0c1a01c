/* llm-bench speed: prefill and decoding of a model, as shares of what the machine can do. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/signals.h"
#include "base/clock.h"
#include "bin/bench/pairs.h"
#include "cpu/detect.h"
#include "cpu/pool.h"
#include "measure/cost.h"
#include "measure/speed.h"
#include "quant/quant.h"

struct args {
    struct llm_common common;
    const char *config, *prompt, *generate, *depth, *sequences, *against, *against_program;
    struct llm_strs models, set;
    int64_t runs, batch;
    const char *cache;
    int type, precision, parts;
};
#define AT(field) offsetof(struct args, field)
enum { UNSET = -1, MAX_NUMBERS = 16, MIN_PAIRS = 6 /* with fewer, even ratios that are all above 1 show nothing at 95% */ };

static const struct llm_opt options[] = {
    {'m', "model", "MODEL", "the model; may be given several times", LLM_INPUTS, AT(models), 0, 0, NULL},
    {'c', "config", "CONFIG", "in place of -m: a preset or a config.json, with random weights", LLM_STR, AT(config), 0, 0, NULL},
    {0, "set", "KEY=VALUE", "set a key of the configuration of -c; may be given several times", LLM_LIST, AT(set), 0, 0, NULL},
    {'t', "type", "TYPE", "convert the weights to this type before measuring: %w [as they are; with -c: bf16]", LLM_CHOICE, AT(type), 0, 0, NULL},
    {'p', "prompt", "N,...", "measure a prefill of N tokens; 0: none [512]", LLM_STR, AT(prompt), 0, 0, NULL},
    {'n', "generate", "N,...", "measure the decoding of N tokens; 0: none [128]", LLM_STR, AT(generate), 0, 0, NULL},
    {'d', "depth", "N,...", "number of tokens already in the cache before each measurement [0]", LLM_STR, AT(depth), 0, 0, NULL},
    {0, "sequences", "N,...", "measure the decoding of so many sequences together; 1: alone [1]", LLM_STR, AT(sequences), 0, 0, NULL},
    {'r', "runs", "N", "repetitions of each measurement, or pairs of --against [5; --against 7]", LLM_INT, AT(runs), 1, LLM_SPEED_MAX_RUNS, NULL},
    {'b', "batch", "N", "maximum number of tokens in one forward pass [512]", LLM_INT, AT(batch), 1, 65536, NULL},
    {0, "parts", NULL, "also time the first prompt and decoding after a start: load, prompt, decoding, the rest", LLM_FLAG, AT(parts), 0, 0, NULL},
    {0, "against", "OPTIONS", "compare with the same command after these further options, -r pairs of processes in alternation", LLM_STR, AT(against),
     0, 0, NULL},
    {0, "against-program", "FILE", "compare with another llm-bench", LLM_INPUT, AT(against_program), 0, 0, NULL},
    {0, "cache-type", "TYPES", "types in which the cache stores keys and values: K[,V] of %w, also by layers: q8_0,q4_0/0-1:bf16 [bf16]",
     LLM_STR, AT(cache), 0, 0, NULL},
    {0, "precision", "TYPE", "arithmetic of weights that are not quantised: %w [bf16]", LLM_CHOICE, AT(precision), 0, 0, NULL},
    {0}};

const struct llm_cli bench_speed_cli = {
    .name = "llm-bench speed",
    .summary = "Measure prefill and decoding: tokens per second, and share of this machine's peaks.",
    .usage = "-m MODEL | -c CONFIG [OPTION]...",
    .examples = "llm-bench speed -m model.llm\n"
                "llm-bench speed -c smollm -t q8_0 -p 512 -n 128 -d 0,1024\n"
                "llm-bench speed --json -m model.llm -r 10\n"
                "llm-bench speed -m a.gguf -m b.gguf\n"
                "llm-bench speed -m a.gguf --against '-m b.gguf' -r 11",
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

/* The model in the file `path`, or that of -c. */
static struct llm_model *load(const struct args *a, const char *path, struct llm_err *e)
{
    struct llm_strs none = {0};
    struct llm_quant_plan plan = {.only = &none, .except = &none};
    struct llm_config c;
    struct llm_model *m = NULL;
    int type = a->type;
    if (path) {
        m = llm_model_load(path, e);
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

static void put(struct llm_table *t, const char *of, const struct llm_model *m, const struct test *test, const struct llm_speed *s)
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
    llm_table_text(t, of);
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

/* Each test has an engine of its own, whose context is as long as the test needs. `of`: the name of the model. 0, 1 if a signal was caught, or -1. */
static int run_test(struct llm_table *t, const struct args *a, const char *of, struct llm_model *m, const struct test *test, struct llm_err *e)
{
    struct llm_engine g = {0};
    struct llm_engine_options o = {.compute = (enum llm_compute)a->precision, .batch = a->batch,
                                   .context = test->depth + test->prompt + test->generate};
    struct llm_speed s;
    o.cache = a->cache;
    int status = llm_engine_init(&g, m, &o, e);
    if (status == 0) {
        status = test->prompt          ? llm_speed_prompt(&g, test->depth, test->prompt, a->runs, &s, e)
                 : test->sequences > 1 ? llm_speed_together(&g, test->sequences, test->depth, test->generate, a->runs, &s, e)
                                       : llm_speed_generate(&g, test->depth, test->generate, a->runs, &s, e);
    }
    if (status == 0) put(t, of, m, test, &s);
    llm_engine_release(&g);
    return status;
}

static const char *const part_columns[] = {"part", "seconds", "share", NULL};

/* A prompt and its decoding right after the model was loaded. `began`: when the program did; `loaded`: how long the model took. 0, 1, -1. */
static int run_parts(struct llm_table *t, const struct args *a, struct llm_model *m, const struct test *test, double began, double loaded,
                     struct llm_err *e)
{
    static const char *const names[] = {"load", "prompt", "decoding", "rest", "all"};
    struct llm_engine g = {0};
    struct llm_engine_options o = {.compute = (enum llm_compute)a->precision, .batch = a->batch,
                                   .context = test->prompt + test->generate};
    double v[5] = {loaded};
    o.cache = a->cache;
    int status = llm_engine_init(&g, m, &o, e);
    if (status == 0) status = llm_speed_once(&g, test->prompt, test->generate, v + 1, e);
    llm_engine_release(&g);
    v[4] = llm_now() - began;
    v[3] = v[4] - v[0] - v[1] - v[2];
    for (int i = 0; i < 5 && status == 0; i++) {
        if ((i == 1 && test->prompt == 0) || (i == 2 && test->generate == 0)) continue;
        llm_table_text(t, names[i]);
        llm_table_number(t, v[i], 5);
        llm_table_number(t, v[i] / v[4], 3);
    }
    return status;
}

/* Options of llama-bench whose letters mean something else here. */
static void answer_llama_bench(int argc, char **argv)
{
    llm_program = bench_speed_cli.name;
    for (int i = 1; i < argc; i++) {
        const char letter = argv[i][0] == '-' ? argv[i][1] : 0;
        if (letter != 't' && letter != 'o') continue;
        const char *value = argv[i][2] ? argv[i] + 2 : i + 1 < argc ? argv[i + 1] : "";
        if (letter == 't' && *value && strspn(value, "0123456789,") == strlen(value))
            llm_usage(&bench_speed_cli, "-t: expected a type of weights, found '%s'; -j sets the number of threads", value);
        if (letter == 'o' && llm_cli_listed("csv|json|jsonl|md|sql", value))
            llm_usage(&bench_speed_cli, "-o: expected a file, found '%s'; --format chooses the form of the table", value);
    }
}

/* --against: misuse exits. */
static int compare(const struct args *a, struct llm_err *e)
{
    const struct bench_pairs p = {.program = bench_program, .against = a->against, .against_program = a->against_program, .pairs = a->runs,
                                  .own = "against|against-program|runs|output|json|format|quiet|verbose"};
    if (a->runs < MIN_PAIRS) llm_usage(&bench_speed_cli, "--against: expected at least %d pairs (-r), found %lld", MIN_PAIRS, (long long)a->runs);
    if (a->models.n > 1) llm_usage(&bench_speed_cli, "--against: expected one -m, found %zu", a->models.n);
    if (a->models.n && strcmp(a->models.v[0], "-") == 0)
        llm_usage(&bench_speed_cli, "--against: both sides read the model: expected a file, found -");
    return llm_output_try(a->common.output, false, e) < 0 ? -1 : bench_pairs(&p, &a->common, e);
}

/* The numbers of the tests. */
struct numbers { int64_t prompts[MAX_NUMBERS], generates[MAX_NUMBERS], depths[MAX_NUMBERS], together[MAX_NUMBERS]; size_t p, n, d, s; };

static void read_numbers(struct numbers *x, const struct args *a)
{
    bool any = false;
    x->p = llm_cli_numbers(&bench_speed_cli, "prompt", a->prompt, 0, 1 << 24, x->prompts, MAX_NUMBERS);
    x->n = llm_cli_numbers(&bench_speed_cli, "generate", a->generate, 0, 1 << 24, x->generates, MAX_NUMBERS);
    x->d = llm_cli_numbers(&bench_speed_cli, "depth", a->depth, 0, 1 << 24, x->depths, MAX_NUMBERS);
    x->s = llm_cli_numbers(&bench_speed_cli, "sequences", a->sequences, 1, a->batch, x->together, MAX_NUMBERS);
    for (size_t i = 0; i < x->p + x->n; i++) any = any || (i < x->p ? x->prompts[i] : x->generates[i - x->p]) > 0;
    if (!any) llm_usage(&bench_speed_cli, "expected a test: a number above 0 for one of -p and -n");
}

/* All tests of one model: the file `path`, or that of -c. `began`: when the program did. 0, 1, -1. */
static int run_model(struct llm_table *t, struct llm_table *parts, const struct args *a, const char *path, const struct numbers *x, double began,
                     struct llm_err *e)
{
    const double loading = llm_now();
    const struct test first = {.prompt = x->prompts[0], .generate = x->generates[0]};
    struct llm_model *m = load(a, path, e);
    int status = m ? 0 : -1;
    if (a->parts && status == 0) status = run_parts(parts, a, m, &first, began, llm_now() - loading, e);
    for (size_t d = 0; d < x->d && status == 0; d++) {
        for (size_t i = 0; i < x->p + x->n && status == 0; i++) {
            struct test test = {.depth = x->depths[d]};
            if (i < x->p) test.prompt = x->prompts[i];
            else test.generate = x->generates[i - x->p];
            for (size_t s = 0; s < (test.prompt ? 1 : x->s) && (test.prompt || test.generate) && status == 0; s++) {
                test.sequences = x->together[s];
                status = run_test(t, a, path ? path : a->config, m, &test, e);
            }
        }
    }
    llm_model_destroy(m);
    return status;
}

int bench_speed(int argc, char **argv, struct llm_err *e)
{
    const double began = llm_now();
    struct args a = {.prompt = "512", .generate = "128", .depth = "0", .sequences = "1", .batch = 512, .type = UNSET,
                     .precision = 1};
    answer_llama_bench(argc, argv);
    int rest = llm_cli_parse(&bench_speed_cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    struct numbers numbers;
    int inputs = 0;
    struct llm_table t, parts, *tables[] = {&t, &parts};
    bench_check_cache(&bench_speed_cli, a.cache);
    if (getenv(BENCH_SIDE) && a.models.n > 2) llm_usage(&bench_speed_cli, "--against: expected one -m");
    if (getenv(BENCH_SIDE) && a.models.n == 2) a.models = (struct llm_strs){a.models.v + 1, 1};
    if (rest < argc) llm_usage(&bench_speed_cli, "expected no operand, found '%s'", argv[rest]);
    if (!a.models.n == !a.config) llm_usage(&bench_speed_cli, "expected a model: one of -m and -c");
    for (size_t i = 0; i < a.models.n; i++) inputs += strcmp(a.models.v[i], "-") == 0;
    if (inputs > 1) llm_usage(&bench_speed_cli, "-m: standard input cannot be two models");
    if (a.set.n && !a.config) llm_usage(&bench_speed_cli, "--set goes with -c");
    if (a.parts && a.models.n > 1) llm_usage(&bench_speed_cli, "--parts times a program's start: expected one -m, found %zu", a.models.n);
    read_numbers(&numbers, &a);
    const bool pairs = a.against || a.against_program;
    if (a.runs == 0) a.runs = pairs ? 7 : 5;
    if (pairs) return compare(&a, e);
    if (bench_begin(&a.common, e) < 0) return -1;
    llm_signals_catch();
    llm_table_init(&t, columns);
    llm_table_init(&parts, part_columns);
    int status = 0;
    for (size_t i = 0; i < (a.config ? 1 : a.models.n) && status == 0; i++)
        status = run_model(&t, &parts, &a, a.config ? NULL : a.models.v[i], &numbers, began, e);
    llm_pool_stop();
    llm_signal_die();
    if (status == 0 && a.parts) return bench_print(&a.common, tables, 2, e);
    llm_table_release(&parts);
    if (status == 0) return bench_print(&a.common, tables, 1, e);
    struct llm_err ignored; /* what was measured before the failure is printed all the same */
    if (t.n_cells > 0) (void)!bench_print(&a.common, tables, 1, &ignored);
    else llm_table_release(&t);
    return -1;
}
