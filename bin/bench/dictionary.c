/* llm-bench dictionary: what a sparse autoencoder or a transcoder keeps of a model. */
#include <string.h>
#include "base/signals.h"
#include "bin/bench/bench.h"
#include "cpu/pool.h"
#include "data/input.h"
#include "infer/dictionary.h"
#include "measure/quality.h"

struct args {
    struct llm_common common;
    const char *model;
    int64_t context, batch, max;
    int precision;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'m', "model", "MODEL", "the model that the dictionary is of", LLM_INPUT, AT(model), 0, 0, NULL},
    {'c', "context", "N", "tokens in a window of context [the model's maximum]", LLM_INT, AT(context), 2, 1 << 24, NULL},
    {'n', "tokens", "N", "read only the first N tokens of each file [all]", LLM_INT, AT(max), 2, 1e15, NULL},
    {'b', "batch", "N", "maximum number of tokens in one forward pass [512]", LLM_INT, AT(batch), 1, 65536, NULL},
    {0, "precision", "TYPE", "arithmetic of weights that are not quantised: %w [bf16]", LLM_CHOICE, AT(precision), 0, 0, NULL},
    {0}};

const struct llm_cli bench_dictionary_cli = {
    .name = "llm-bench dictionary",
    .summary = "Measure a dictionary of features on texts: features at a time, explained variance, and the model's loss with it in place.",
    .usage = "-m MODEL [OPTION]... DICTIONARY FILE...",
    .examples = "llm-bench dictionary -m model.gguf dictionary.llm held-out.txt",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG,
    .words = bench_dictionary_words,
};

static const char *const columns[] = {"file", "tokens", "active", "explained_variance", "dead", "nats_per_token", "nats_spliced", "nats_zeroed",
                                      "recovered", NULL};

/* The loss of a text while the dictionary observes, gives its output in place of the value at its place, or this value is 0. */
static int read_with(struct llm_engine *g, const struct llm_quality_text *text, struct llm_splice *s, struct llm_quality *q, struct llm_err *e)
{
    struct llm_watcher watchers[2];
    struct llm_watch watch = {.v = watchers, .n = (size_t)llm_splice_watchers(s, watchers)};
    g->ctx.watch = &watch;
    int status = llm_quality_of(g, text, q, e);
    g->ctx.watch = NULL;
    return status;
}

/* 0, 1 (a signal was caught) or -1. */
static int measure(struct llm_table *t, struct llm_engine *g, const char *dictionary, const struct args *a, const char *path, struct llm_err *e)
{
    struct llm_input in = {0};
    struct llm_splice s = {0};
    struct llm_quality plain, spliced, zeroed;
    int status = llm_splice_begin(&s, dictionary, g->model, g->ctx.compute, e);
    if (status == 0) status = llm_input_read(&in, path, g->model, e);
    struct llm_quality_text text = {.ids = in.ids, .mask = in.mask, .n = a->max && (int64_t)in.n > a->max ? a->max : (int64_t)in.n};
    if (status == 0 && in.stream) text.ends = llm_tokens_doc_ends(in.stream, &text.n_ends);
    s.measures = true;
    if (status == 0) status = read_with(g, &text, &s, &plain, e);
    s.measures = false;
    if (status == 0) status = read_with(g, &text, &s, &spliced, e);
    s.zero = true;
    if (status == 0) status = read_with(g, &text, &s, &zeroed, e);
    if (status == 0) {
        llm_table_text(t, path);
        llm_table_count(t, (double)plain.tokens);
        llm_table_number(t, llm_splice_active(&s), 4);
        llm_table_number(t, llm_splice_explained(&s), 4);
        llm_table_number(t, llm_splice_dead(&s), 4);
        llm_table_number(t, plain.nats, 6);
        llm_table_number(t, spliced.nats, 6);
        llm_table_number(t, zeroed.nats, 6);
        llm_table_number(t, (zeroed.nats - spliced.nats) / (zeroed.nats - plain.nats), 4);
    } else if (status < 0 && s.d.n_params > 0) llm_in(e, "%s", path);
    llm_splice_release(&s);
    llm_input_release(&in);
    return status;
}

int bench_dictionary(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.batch = 512, .precision = 1};
    int rest = llm_cli_parse(&bench_dictionary_cli, &a, argc, argv);
    struct llm_model *m = NULL;
    struct llm_engine g = {0};
    struct llm_table t, *tables[] = {&t};
    llm_config_force(a.common.force_config);
    if (!a.model) llm_usage(&bench_dictionary_cli, "expected a model: -m MODEL");
    if (argc - rest < 2) llm_usage(&bench_dictionary_cli, "expected a dictionary and texts, found %d operands", argc - rest);
    const struct llm_engine_options o = {.compute = (enum llm_compute)a.precision, .context = a.context, .batch = a.batch};
    int status = bench_begin(&a.common, e);
    llm_signals_catch();
    if (status == 0 && !(m = llm_model_load(a.model, e))) status = -1;
    if (status == 0 && llm_model_must_continue(m, e) < 0) status = llm_in(e, "%s", a.model);
    if (status == 0) status = llm_engine_init(&g, m, &o, e);
    llm_table_init(&t, columns);
    for (int i = rest + 1; i < argc && status == 0; i++) status = measure(&t, &g, argv[rest], &a, argv[i], e);
    llm_engine_release(&g);
    llm_model_destroy(m);
    llm_pool_stop();
    llm_signal_die();
    if (status == 0) return bench_print(&a.common, tables, 1, e);
    llm_table_release(&t);
    return -1;
}
