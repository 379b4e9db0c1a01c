/* llm-bench train: speed of training steps on random tokens. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/rng.h"
#include "base/signals.h"
#include "bin/bench/bench.h"
#include "cpu/detect.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "measure/cost.h"
#include "measure/profile.h"
#include "measure/stats.h"
#include "train/trainer.h"

struct args {
    struct llm_common common;
    const char *config;
    struct llm_strs set;
    int64_t batch, context, accumulate, checkpoint_every, runs;
    const char *activations;
    int precision, profile;
};
#define AT(field) offsetof(struct args, field)
enum { MAX_RUNS = 1000 };

static const struct llm_opt options[] = {
    {'c', "config", "CONFIG", "a preset, a config.json or a model [small]", LLM_STR, AT(config), 0, 0, NULL},
    {0, "set", "KEY=VALUE", "set a key of the configuration; may be given several times", LLM_LIST, AT(set), 0, 0, NULL},
    {'b', "batch", "N", "rows in one forward and backward pass [4]", LLM_INT, AT(batch), 1, 65536, NULL},
    {0, "context", "N", "tokens in a row [256]", LLM_INT, AT(context), 1, 1 << 20, NULL},
    {0, "accumulate", "N", "passes whose gradients are summed in one step [1]", LLM_INT, AT(accumulate), 1, 65536, NULL},
    {0, "checkpoint-every", "N", "keep only the input of every N-th block and recompute the rest; 0: keep all [0]",
     LLM_INT, AT(checkpoint_every), 0, 1024, NULL},
    {0, "activations", "TYPE",
     "how activations are kept for the backward pass: f32, bf16, int8, top=SHARE (the largest of each row) or rank=R [f32]", LLM_STR,
     AT(activations), 0, 0, NULL},
    {'r', "runs", "N", "steps that are measured, after one warm-up step [5]", LLM_INT, AT(runs), 1, MAX_RUNS, NULL},
    {0, "precision", "TYPE", "arithmetic of matrix products: %w [bf16]", LLM_CHOICE, AT(precision), 0, 0, NULL},
    {0, "profile", NULL, "print on standard error where the time of the measured steps was spent", LLM_FLAG, AT(profile), 0, 0, NULL},
    {0}};

const struct llm_cli bench_train_cli = {
    .name = "llm-bench train",
    .summary = "Measure training: tokens per second, and share of this machine's arithmetic peak.",
    .usage = "[OPTION]...",
    .examples = "llm-bench train -c small\n"
                "llm-bench train -c gpt2 --batch 4 --context 256",
    .options = options,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG,
    .words = bench_train_words,
    .aliases = bench_train_aliases,
    .foreign = bench_foreign,
};

static const char *const columns[] = {"config", "parameters", "batch", "context", "precision", "threads", "isa", "tokens_per_s", "deviation",
                                      "gflops_6n", "gflops", "share_of_peak", "seconds_a_step", "peak_rss_bytes",
                                      "activation_bytes", "page_faults_a_step", NULL};

/* Writes random tokens to a temporary file, because training reads token streams only; the file is unlinked once it is open. */
static int random_data(struct llm_train_data *d, int64_t n, const struct llm_config *c, struct llm_err *e)
{
    const char *folder = getenv("TMPDIR");
    char path[4096];
    int32_t ids[1024];
    struct llm_rng r = llm_rng_at(1, 0, LLM_RNG_TEST, 0, 0, 0);
    const char *const paths[] = {path};
    if (snprintf(path, sizeof path, "%s/llm-bench.XXXXXX", folder ? folder : "/tmp") >= (int)sizeof path) path[0] = 0;
    int fd = mkstemp(path);
    if (fd < 0) return llm_fail(e, EX_CANTCREAT, "%s: %s", path, strerror(errno));
    close(fd);
    struct llm_output *o = llm_output_open(path, true, e);
    struct llm_tokens_writer *w = o ? llm_tokens_writer_create(o, "", (int32_t)c->vocab_size, false, e) : NULL;
    int status = w ? 0 : -1;
    for (int64_t at = 0; at < n && status == 0; at += 1024) {
        for (int64_t i = 0; i < 1024; i++) ids[i] = (int32_t)llm_rng_below(&r, (uint32_t)(at + i), (uint64_t)c->vocab_size);
        status = llm_tokens_put(w, ids, NULL, 1024, e);
    }
    if (status == 0) status = llm_tokens_end_document(w, e);
    if (status == 0) status = llm_tokens_finish(w, e);
    llm_tokens_writer_destroy(w);
    if (status == 0) status = llm_output_commit(o, e);
    else llm_output_abandon(o);
    if (status == 0) status = llm_train_data_open(d, paths, 1, NULL, NULL, c->vocab_size, e);
    unlink(path);
    return status;
}

static double page_faults(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_minflt + use.ru_majflt);
}

/* Measures each step: tokens per second, their share of the arithmetic's peak (measured before and after the step), and page faults. */
static int steps(struct llm_trainer *t, const struct args *a, double *rates, double *per_peak, double *faults, struct llm_err *e)
{
    struct llm_step_report r;
    const char *kind = llm_matmul_kind(LLM_F32, (enum llm_compute)a->precision);
    int status = llm_trainer_step(t, &r, e);
    double before = llm_peaks_compute_once(kind);
    *faults = 0;
    if (a->profile) llm_profile_start();
    for (int64_t i = 0; i < a->runs && status == 0; i++) {
        double faults_before = page_faults();
        status = llm_trainer_step(t, &r, e);
        *faults += (page_faults() - faults_before) / (double)a->runs;
        double after = llm_peaks_compute_once(kind);
        rates[i] = (double)r.tokens / r.seconds;
        per_peak[i] = rates[i] / ((before + after) / 2);
        before = after;
    }
    if (a->profile && status == 0) status = llm_profile_print(a->common.json, e);
    return status;
}

static int put(struct llm_table *t, const struct args *a, const struct llm_config *c, const double *rates, double *per_peak, struct llm_err *e)
{
    struct llm_cost cost;
    struct rusage use;
    double sorted[MAX_RUNS];
    if (llm_cost_of(&cost, c, (a->context + 1) / 2, e) < 0) return -1; /* a token sees half of its row on average */
    memcpy(sorted, rates, (size_t)a->runs * sizeof *rates);
    double rate = llm_median(sorted, (size_t)a->runs);
    getrusage(RUSAGE_SELF, &use);
    llm_table_text(t, a->config);
    llm_table_count(t, cost.params + cost.next_params);
    llm_table_count(t, (double)(a->batch * a->accumulate));
    llm_table_count(t, (double)a->context);
    llm_table_text(t, llm_compute_word(a->precision));
    llm_table_count(t, llm_pool_threads());
    llm_table_text(t, llm_isa_name());
    llm_table_number(t, rate, 5);
    llm_table_number(t, llm_deviation(rates, (size_t)a->runs), 3);
    llm_table_number(t, 6 * (cost.active_params + cost.next_params) * rate / 1e9, 4);
    llm_table_number(t, 3 * (cost.forward_flops + cost.next_flops) * rate / 1e9, 4);
    llm_table_number(t, 3 * (cost.forward_flops + cost.next_flops) * llm_median(per_peak, (size_t)a->runs), 3);
    llm_table_number(t, (double)(a->batch * a->accumulate * a->context) / rate, 4);
    llm_table_count(t, (double)use.ru_maxrss * 1024);
    return 0;
}

int bench_train(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.config = "small", .batch = 4, .context = 256, .accumulate = 1, .runs = 5, .precision = 1};
    int rest = llm_cli_parse(&bench_train_cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    struct llm_trainer t = {0};
    struct llm_train_data data = {0};
    struct llm_train_options o;
    struct llm_config c;
    struct llm_table table, *tables[] = {&table};
    double rates[MAX_RUNS], per_peak[MAX_RUNS], faults = 0;
    if (rest < argc) llm_usage(&bench_train_cli, "expected no operand, found '%s'", argv[rest]);
    if (bench_config(&c, a.config, &a.set, e) < 0) return -1;
    if (a.context > c.max_position_embeddings) c.max_position_embeddings = a.context;
    llm_train_options_default(&o);
    if (a.activations && llm_train_options_stored(&o, a.activations, e) < 0) return -1;
    o.steps = a.runs + 1;
    o.batch = a.batch, o.context = a.context, o.accumulate = a.accumulate, o.checkpoint_every = a.checkpoint_every;
    o.precision = a.precision;
    if (bench_begin(&a.common, e) < 0) return -1;
    llm_signals_catch();
    struct llm_model *m = llm_model_create(&c, 1, e);
    int64_t need = a.batch * a.accumulate * (a.context + 1);
    int status = m ? random_data(&data, need < 65536 ? 65536 : need, &c, e) : -1;
    if (status < 0) {
        llm_train_data_release(&data);
        llm_model_destroy(m);
        return -1;
    }
    llm_table_init(&table, columns);
    status = llm_trainer_init(&t, &o, m, &data, e);
    if (status == 0) status = steps(&t, &a, rates, per_peak, &faults, e);
    if (status == 0) status = put(&table, &a, &c, rates, per_peak, e);
    llm_table_count(&table, llm_ctx_peak_bytes(&t.ctx));
    llm_table_count(&table, faults);
    llm_trainer_release(&t);
    llm_pool_stop();
    llm_signal_die();
    if (status == 0) return bench_print(&a.common, tables, 1, e);
    llm_table_release(&table);
    return -1;
}
