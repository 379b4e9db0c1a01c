/* llm-bench quality: how well a model predicts a text. */
#include <inttypes.h>
#include <string.h>
#include "base/log.h"
#include "base/signals.h"
#include "bin/bench/bench.h"
#include "cpu/pool.h"
#include "data/input.h"
#include "measure/quality.h"

struct args {
    struct llm_common common;
    const char *model, *tokenizer;
    int64_t context, batch, max;
    int cache, precision, cross_document;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'m', "model", "MODEL", "the model", LLM_INPUT, AT(model), 0, 0, NULL},
    {'T', "tokenizer", "TOK", "encode text with this tokenizer [the model's]", LLM_INPUT, AT(tokenizer), 0, 0, NULL},
    {'c', "context", "N", "tokens in a window of context [the model's maximum]", LLM_INT, AT(context), 2, 1 << 24, NULL},
    {'n', "tokens", "N", "score only the first N tokens of each file [all]", LLM_INT, AT(max), 2, 1e15, NULL},
    {0, "cross-document", NULL, "score a token stream as one document instead of document by document", LLM_FLAG, AT(cross_document), 0, 0, NULL},
    {'b', "batch", "N", "maximum number of tokens in one forward pass [512]", LLM_INT, AT(batch), 1, 65536, NULL},
    {0, "cache-type", "TYPE", "type in which the cache stores keys and values: %w [as --precision]", LLM_CHOICE, AT(cache), 0, 0, NULL},
    {0, "precision", "TYPE", "arithmetic of weights that are not quantised: %w [bf16]", LLM_CHOICE, AT(precision), 0, 0, NULL},
    {0}};

const struct llm_cli bench_quality_cli = {
    .name = "llm-bench quality",
    .summary = "Measure perplexity, nats per token and bits per byte on text or token streams.",
    .usage = "-m MODEL [OPTION]... [FILE]...",
    .examples = "llm-bench quality -m model.llm held-out.txt\n"
                "llm-bench quality -m model.llm -c 128 corpus.tok\n"
                "llm-quantize -t q4_0 model.llm - | llm-bench quality -m - held-out.txt",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG,
    .words = bench_quality_words,
    .aliases = bench_quality_aliases,
    .foreign = bench_foreign,
};

#define COLUMNS "file", "tokens", "bytes", "nats_per_token", "nats_error", "perplexity", "bits_per_byte", "bits_error"
static const char *const columns[] = {COLUMNS, NULL};
/* For a model whose rotary frequencies depend on the context. */
static const char *const rope_columns[] = {COLUMNS, "rope_context", NULL};

static int measure(struct llm_table *t, struct llm_engine *g, const struct args *a, const char *path, struct llm_err *e)
{
    struct llm_input in = {0};
    struct llm_quality q;
    int status = llm_input_read(&in, path, g->model, e);
    if (status == 0) {
        struct llm_quality_text text = {.ids = in.ids, .mask = in.mask, .n = (int64_t)in.n};
        if (a->max && text.n > a->max) text.n = a->max;
        if (in.stream && !a->cross_document) text.ends = llm_tokens_doc_ends(in.stream, &text.n_ends);
        if (g->model->rope_context > 0 && text.n > g->context) {
            llm_note("%s: documents of more than %" PRId64 " tokens are scored in windows, with rotary positions scaled for a context of as many; "
                     "-c N asks for others", path, g->context);
        }
        if ((status = llm_quality_of(g, &text, &q, e)) < 0) llm_in(e, "%s", path);
    }
    llm_input_release(&in);
    if (status != 0) return status;
    llm_table_text(t, path);
    llm_table_count(t, (double)q.tokens);
    llm_table_count(t, q.bytes);
    llm_table_number(t, q.nats, 6);
    llm_table_number(t, q.nats_error, 3);
    llm_table_number(t, q.perplexity, 6);
    llm_table_number(t, q.bits_per_byte, 6);
    llm_table_number(t, q.bits_per_byte_error, 3);
    if (g->model->rope_context > 0) llm_table_count(t, (double)g->model->rope_context);
    return 0;
}

static int start(const struct args *a, struct llm_model **m, struct llm_engine *g, struct llm_err *e)
{
    struct llm_engine_options o = {.compute = a->precision == 0 ? LLM_COMPUTE_F32 : LLM_COMPUTE_BF16, .context = a->context, .batch = a->batch};
    o.cache = a->cache < 0 ? LLM_NO_DTYPE : llm_kv_types[a->cache];
    if (bench_begin(&a->common, e) < 0) return -1;
    llm_signals_catch();
    *m = llm_model_load(a->model, e);
    if (!*m) return -1;
    if (llm_model_must_continue(*m, e) < 0) return llm_in(e, "%s", a->model);
    if (a->tokenizer) {
        llm_tokenizer_destroy((*m)->tokenizer);
        (*m)->tokenizer = llm_tokenizer_load(a->tokenizer, NULL, e);
        if (!(*m)->tokenizer) return -1;
    }
    return llm_engine_init(g, *m, &o, e);
}

int bench_quality(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.batch = 512, .cache = -1, .precision = 1};
    int rest = llm_cli_parse(&bench_quality_cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    struct llm_model *m = NULL;
    struct llm_engine g = {0};
    struct llm_table t, *tables[] = {&t};
    size_t from_stdin = 0;
    if (!a.model) llm_usage(&bench_quality_cli, "expected a model: -m MODEL");
    for (int i = rest; i < argc; i++) from_stdin += strcmp(argv[i], "-") == 0;
    if (from_stdin + (rest == argc) + (strcmp(a.model, "-") == 0) > 1) llm_usage(&bench_quality_cli, "only one input can be standard input");
    int status = start(&a, &m, &g, e);
    llm_table_init(&t, status == 0 && m->rope_context > 0 ? rope_columns : columns);
    for (int i = rest; i < argc + (rest == argc) && status == 0; i++) status = measure(&t, &g, &a, i < argc ? argv[i] : "-", e);
    llm_engine_release(&g);
    llm_model_destroy(m);
    llm_pool_stop();
    llm_signal_die();
    if (status == 0) return bench_print(&a.common, tables, 1, e);
    llm_table_release(&t);
    return -1;
}
