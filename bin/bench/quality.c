/* llm-bench quality: how well a model predicts a text, and how far its predictions are from those of another model. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/signals.h"
#include "bin/bench/bench.h"
#include "cpu/pool.h"
#include "data/input.h"
#include "measure/compare.h"

struct args {
    struct llm_common common;
    const char *model, *base, *base_logits, *against, *tokenizer;
    int64_t context, stride, batch, max;
    const char *cache;
    int convention, precision, cross_document, entropy, logits;
    struct llm_knn_options knn;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'m', "model", "MODEL", "the model", LLM_INPUT, AT(model), 0, 0, NULL},
    {0, "base", "MODEL", "compare with the predictions of this model instead: KL, changes of probabilities, with intervals",
     LLM_INPUT, AT(base), 0, 0, NULL},
    {0, "base-logits", "FILE", "as --base, with the logits that --logits wrote of the base", LLM_INPUT, AT(base_logits), 0, 0, NULL},
    {0, "against", "MODEL", "with --base or --base-logits: also the KL of MODEL, and the ratio of the two KLs with a paired interval", LLM_INPUT,
     AT(against), 0, 0, NULL},
    {0, "logits", NULL, "write the logits after each token for --base-logits, instead of the table", LLM_FLAG, AT(logits), 0, 0, NULL},
    {'T', "tokenizer", "TOK", "encode text with this tokenizer [the model's]", LLM_INPUT, AT(tokenizer), 0, 0, NULL},
    {'c', "context", "N", "tokens in a window of context [the model's maximum; llama.cpp: 512]", LLM_INT, AT(context), 2, 1 << 24, NULL},
    {0, "convention", "NAME", "which tokens are scored, given what: %w [document]", LLM_CHOICE, AT(convention), 0, 0, NULL},
    {0, "stride", "N", "with --convention=hf-stride: windows begin every N tokens [512, or the context]", LLM_INT, AT(stride), 1, 1 << 24, NULL},
    {'n', "tokens", "N", "score only the first N tokens of each file [all]", LLM_INT, AT(max), 2, 1e15, NULL},
    {0, "cross-document", NULL, "score a token stream as one document instead of document by document", LLM_FLAG, AT(cross_document), 0, 0, NULL},
    {0, "entropy", NULL, "also measure the mean entropy of the predictions, in nats", LLM_FLAG, AT(entropy), 0, 0, NULL},
    LLM_KNN_OPTIONS(struct args, knn)
    {'b', "batch", "N", "maximum number of tokens in one forward pass [512]", LLM_INT, AT(batch), 1, 65536, NULL},
    {0, "cache-type", "TYPES", "types in which the cache stores keys and values: K[,V] of %w, also by layers: q8_0,q4_0/0-1:bf16 [as --precision]",
     LLM_STR, AT(cache), 0, 0, NULL},
    {0, "precision", "TYPE", "arithmetic of weights that are not quantised: %w [bf16]", LLM_CHOICE, AT(precision), 0, 0, NULL},
    {0}};

const struct llm_cli bench_quality_cli = {
    .name = "llm-bench quality",
    .summary = "Measure perplexity, nats per token and bits per byte on text or token streams.",
    .usage = "-m MODEL [OPTION]... [FILE]...",
    .examples = "llm-bench quality -m model.llm held-out.txt\n"
                "llm-bench quality -m model.llm -c 128 corpus.tok\n"
                "llm-bench quality -m model.gguf --convention llama.cpp wiki.test.raw\n"
                "llm-bench quality -m q4.gguf --base model.llm held-out.txt\n"
                "llm-bench quality -m kl.gguf --base model.llm --against gptq.gguf held-out.txt\n"
                "llm-quantize -t q4_0 model.llm - | llm-bench quality -m - held-out.txt\n"
                "llm-bench quality -m model.llm --logits held-out.txt | llm-bench quality -m q4.gguf --base-logits - held-out.txt",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG,
    .words = bench_quality_words,
    .aliases = bench_quality_aliases,
    .foreign = bench_foreign,
};

#define COLUMNS "file", "tokens", "bytes", "nats_per_token", "nats_error", "perplexity", "bits_per_byte", "bits_error", "entropy"
static const char *const columns[] = {COLUMNS, NULL}, *const word_columns[] = {COLUMNS, "words", "word_perplexity", NULL};
/* For a model whose rotary frequencies depend on the context. */
static const char *const rope_columns[] = {COLUMNS, "rope_context", NULL}, *const word_rope_columns[] = {COLUMNS, "words", "word_perplexity",
                                                                                                          "rope_context", NULL};
static const char *const compare_columns[] = {"file", "metric", "value", "low_95", "high_95", "tokens", "runs", NULL};

/* A model, and the engine that runs it. */
struct side {
    struct llm_model *model;
    struct llm_engine engine;
    struct llm_knn knn;      /* of --knn, of the model that is measured */
};
struct run {
    const struct args *a;
    struct side model, base, against; /* base.model, against.model: NULL without the option */
    struct llm_logits *base_logits; /* of --base-logits, or NULL */
    struct llm_output *out;  /* of --logits, with its writer, or NULL */
    struct llm_writer *writer;
    struct llm_table table;
};

/* ---- the text ---- */

/* A text as the convention reads it. The ids are of `in`, or `own`. */
struct text {
    struct llm_input in;
    int32_t *own;
    struct llm_quality_text text;
    double words;
};

static void release(struct text *t)
{
    llm_input_release(&t->in);
    free(t->own);
}

static int count_words(struct text *t, const struct llm_tokenizer *tokenizer, struct llm_err *e)
{
    struct llm_buf decoded = {0};
    uint64_t from = 0;
    int status = 0;
    for (size_t d = 0; d <= t->text.n_ends && status == 0; d++) {
        const uint64_t n = (uint64_t)t->text.n, end = d < t->text.n_ends && t->text.ends[d] < n ? t->text.ends[d] : n;
        decoded.n = 0;
        status = llm_decode(tokenizer, t->text.ids + from, end - from, true, &decoded, e);
        if (status == 0 && end > from) t->words += (double)llm_count_words(decoded.p ? decoded.p : "", decoded.n);
        from = end;
    }
    llm_buf_release(&decoded);
    return status;
}

/* Puts the token that begins a text, else the one that ends it, before a text that does not begin with it: every token then has a prediction. */
static int begin_text(struct text *t, const struct llm_tokenizer *tokenizer, struct llm_err *e)
{
    const int32_t bos = llm_tokenizer_bos(tokenizer), begin = bos >= 0 ? bos : llm_tokenizer_eos(tokenizer);
    if (t->in.stream) return llm_fail(e, LLM_EX_USAGE, "--convention=word scores texts, found a token stream");
    if (begin < 0) return llm_fail(e, EX_DATAERR, "--convention=word: the tokenizer has no token that begins or ends a text");
    if (t->text.n > 0 && t->text.ids[0] == begin) return 0;
    t->own = llm_alloc((size_t)t->text.n + 1, sizeof *t->own, "tokens", e);
    if (!t->own) return -1;
    t->own[0] = begin;
    if (t->text.n > 0) memcpy(t->own + 1, t->text.ids, (size_t)t->text.n * sizeof *t->own);
    t->text.ids = t->own;
    t->text.n++;
    return 0;
}

static int read_text(struct text *t, const struct run *r, const char *path, struct llm_err *e)
{
    const struct args *a = r->a;
    const struct llm_tokenizer *tokenizer = r->model.model->tokenizer;
    const int64_t context = r->model.engine.context;
    const bool joined = a->cross_document || a->convention == LLM_BY_LLAMA_CPP || a->convention == LLM_BY_HF_STRIDE;
    if (llm_input_read(&t->in, path, r->model.model, e) < 0) return -1;
    t->text = (struct llm_quality_text){.ids = t->in.ids, .mask = t->in.mask, .n = (int64_t)t->in.n, .entropy = a->entropy,
                                        .convention = (enum llm_convention)a->convention,
                                        .stride = a->stride ? a->stride : context < 512 ? context : 512, .begin = -1};
    if (a->max && t->text.n > a->max) t->text.n = a->max;
    if (t->in.stream && !joined) t->text.ends = llm_tokens_doc_ends(t->in.stream, &t->text.n_ends);
    if (tokenizer && t->text.n > 0 && t->text.ids[0] == llm_tokenizer_bos(tokenizer)) t->text.begin = t->text.ids[0];
    if (a->convention != LLM_BY_WORD) return 0;
    return count_words(t, tokenizer, e) < 0 || begin_text(t, tokenizer, e) < 0 ? -1 : 0;
}

/* ---- what is measured of it ---- */

static int measure(struct run *r, const char *path, const struct text *text, struct llm_err *e)
{
    struct llm_table *t = &r->table;
    struct llm_quality q;
    int status = llm_quality_of(&r->model.engine, &text->text, &q, e);
    if (status != 0) return status;
    llm_table_text(t, path);
    llm_table_count(t, (double)q.tokens);
    llm_table_count(t, q.bytes);
    llm_table_number(t, q.nats, 6);
    llm_table_number(t, q.nats_error, 3);
    llm_table_number(t, q.perplexity, 6);
    llm_table_number(t, q.bits_per_byte, 6);
    llm_table_number(t, q.bits_per_byte_error, 3);
    llm_table_number(t, q.entropy, 6);
    if (r->a->convention == LLM_BY_WORD) {
        llm_table_count(t, text->words);
        llm_table_number(t, exp(q.nats * (double)q.tokens / text->words), 6);
    }
    if (r->model.model->rope_context > 0) llm_table_count(t, (double)r->model.model->rope_context);
    return 0;
}

static int compare(struct run *r, const char *path, const struct text *text, struct llm_err *e)
{
    struct llm_comparison c;
    const struct llm_compare_base base = {.engine = r->base.model ? &r->base.engine : NULL, .logits = r->base_logits,
                                          .against = r->against.model ? &r->against.engine : NULL};
    int status = llm_compare(&base, &r->model.engine, &text->text, &c, e);
    if (status != 0) return status;
    const double none = (double)NAN;
    const struct { const char *name; struct llm_estimate v; } rows[] = {
        {"base_perplexity", c.base_perplexity}, {"perplexity", c.perplexity}, {"log_perplexity_ratio", c.log_ratio}, {"kl", c.kl},
        {"kl_median", {c.kl_median, none, none}}, {"kl_p99", {c.kl_p99, none, none}}, {"kl_max", {c.kl_max, none, none}},
        {"same_top", c.same_top}, {"delta_p", c.delta_p}, {"delta_p_rms", c.delta_p_rms},
        {"against_kl", c.against_kl}, {"kl_ratio", c.kl_ratio}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows - (r->against.model ? 0 : 2); i++) {
        llm_table_text(&r->table, path);
        llm_table_text(&r->table, rows[i].name);
        llm_table_number(&r->table, rows[i].v.value, 6);
        llm_table_number(&r->table, rows[i].v.low, 6);
        llm_table_number(&r->table, rows[i].v.high, 6);
        llm_table_count(&r->table, (double)c.tokens);
        llm_table_count(&r->table, (double)c.runs);
    }
    return 0;
}

static int measure_file(struct run *r, const char *path, struct llm_err *e)
{
    struct text text = {0};
    int status = read_text(&text, r, path, e);
    if (status < 0 && e->status == LLM_EX_USAGE) llm_in(e, "%s", path);
    if (status == 0 && r->model.model->rope_context > 0 && text.text.n > r->model.engine.context) {
        llm_note("%s: documents of more than %" PRId64 " tokens are scored in windows, with rotary positions scaled for a context of as many; "
                 "-c N asks for others", path, r->model.engine.context);
    }
    if (status == 0) {
        status = r->writer                            ? llm_logits_write(&r->model.engine, &text.text, r->writer, e)
                 : r->base.model || r->base_logits ? compare(r, path, &text, e)
                                                   : measure(r, path, &text, e);
        if (status < 0) llm_in(e, "%s", path);
    }
    release(&text);
    return status;
}

/* ---- the models ---- */

static int load(struct side *s, const char *path, const struct args *a, int64_t context, struct llm_err *e)
{
    struct llm_engine_options o = {.compute = (enum llm_compute)a->precision, .context = context, .batch = a->batch};
    o.cache = a->cache;
    s->model = llm_model_load(path, e);
    if (!s->model) return -1;
    if (llm_model_must_continue(s->model, e) < 0) return llm_in(e, "%s", path);
    return llm_engine_init(&s->engine, s->model, &o, e) < 0 ? llm_in(e, "%s", path) : 0;
}

static int start(struct run *r, struct llm_err *e)
{
    const struct args *a = r->a;
    int64_t context = a->context ? a->context : a->convention == LLM_BY_LLAMA_CPP ? 512 : 0;
    if (bench_begin(&a->common, e) < 0) return -1;
    if (a->logits && (!(r->out = llm_output_open(a->common.output, true, e)) || !(r->writer = llm_writer_create(r->out, e)))) return -1;
    llm_signals_catch();
    if (load(&r->model, a->model, a, context, e) < 0) return -1;
    if (a->knn.index) {
        if (!r->model.engine.predictor->has_states) return llm_fail(e, EX_UNAVAILABLE, "%s: --knn: expected a decoder", a->model);
        if (llm_knn_open(&r->model.knn, &a->knn, r->model.model, e) < 0) return -1;
        r->model.engine.knn = &r->model.knn;
    }
    if (a->base && load(&r->base, a->base, a, r->model.engine.context, e) < 0) return -1;
    if (a->against && load(&r->against, a->against, a, r->model.engine.context, e) < 0) return -1;
    if (a->base_logits && !(r->base_logits = llm_logits_open(a->base_logits, r->model.model->config.vocab_size, e))) return -1;
    context = r->model.engine.context;
    if (a->stride > context) {
        return llm_fail(e, LLM_EX_USAGE, "--stride: expected at most the context of %" PRId64 " tokens, found %" PRId64, context, a->stride);
    }
    if (!a->tokenizer) return 0;
    llm_tokenizer_destroy(r->model.model->tokenizer);
    r->model.model->tokenizer = llm_tokenizer_load(a->tokenizer, NULL, e);
    return r->model.model->tokenizer ? 0 : -1;
}

/* After the last text. */
static int finish(struct run *r, struct llm_err *e)
{
    if (r->base_logits) return llm_logits_end(r->base_logits, e);
    return r->writer ? llm_writer_end(r->writer, e) : 0;
}

/* What the options say of a base. */
static void check_base(const struct args *a)
{
    const bool base = a->base || a->base_logits;
    if (a->base && a->base_logits) llm_usage(&bench_quality_cli, "expected one of --base and --base-logits");
    if (a->against && !base) llm_usage(&bench_quality_cli, "--against goes with --base or --base-logits");
    if (a->entropy && base) llm_usage(&bench_quality_cli, "--entropy: expected no --base, whose rows have none");
    if (a->logits && (base || a->entropy)) {
        llm_usage(&bench_quality_cli, "--logits is instead of a table: expected no --base, --base-logits or --entropy");
    }
}

int bench_quality(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.batch = 512, .precision = 1, .knn = llm_knn_defaults};
    int rest = llm_cli_parse(&bench_quality_cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    struct run r = {.a = &a};
    struct llm_table *tables[] = {&r.table};
    size_t from_stdin = 0;
    if (!a.model) llm_usage(&bench_quality_cli, "expected a model: -m MODEL");
    if (a.stride && a.convention != LLM_BY_HF_STRIDE) llm_usage(&bench_quality_cli, "--stride goes with --convention=hf-stride");
    check_base(&a);
    bench_check_cache(&bench_quality_cli, a.cache);
    for (int i = rest; i < argc; i++) from_stdin += strcmp(argv[i], "-") == 0;
    const char *const inputs[] = {a.model, a.base, a.against, a.base_logits, a.knn.index};
    from_stdin += rest == argc;
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) from_stdin += inputs[i] && strcmp(inputs[i], "-") == 0;
    if (from_stdin > 1) llm_usage(&bench_quality_cli, "only one input can be standard input");
    int status = start(&r, e);
    const bool rope = status == 0 && r.model.model->rope_context > 0;
    llm_table_init(&r.table, a.base || a.base_logits         ? compare_columns
                             : a.convention == LLM_BY_WORD ? (rope ? word_rope_columns : word_columns)
                                                           : (rope ? rope_columns : columns));
    for (int i = rest; i < argc + (rest == argc) && status == 0; i++) status = measure_file(&r, i < argc ? argv[i] : "-", e);
    if (status == 0) status = finish(&r, e);
    struct side *const sides[] = {&r.model, &r.base, &r.against};
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        llm_engine_release(&sides[i]->engine);
        llm_knn_release(&sides[i]->knn);
        llm_model_destroy(sides[i]->model);
    }
    llm_logits_destroy(r.base_logits);
    llm_writer_destroy(r.writer);
    if (r.out && status == 0) status = llm_output_commit(r.out, e);
    else llm_output_abandon(r.out);
    llm_pool_stop();
    llm_signal_die();
    if (status == 0 && a.logits) {
        llm_table_release(&r.table);
        return 0;
    }
    if (status == 0) return bench_print(&a.common, tables, 1, e);
    llm_table_release(&r.table);
    return -1;
}
