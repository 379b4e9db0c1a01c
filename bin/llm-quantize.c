/* llm-quantize: stores a model's weights in another type. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "bin/quantize/adapters.h"
#include "bin/quantize/budget.h"
#include "bin/quantize/calibrate.h"
#include "bin/quantize/drop.h"
#include "bin/quantize/factors.h"
#include "bin/quantize/refine.h"
#include "bin/quantize/words.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/suggest.h"
#include "cpu/pool.h"
#include "data/input.h"
#include "io/table.h"
#include "model/weights/format.h"
#include "model/weights/gguf_names.h"
#include "model/weights/ngram.h"
#include "model/weights/save_folder.h"
#include "quant/awq.h"
#include "quant/kl.h"
#include "quant/quant.h"
#include "quant/rotate.h"
#include "quant/spool.h"

struct args {
    struct llm_common common;
    int type, to, planes, pure, method, output_type, embedding_type;
    const char *report, *calibrate, *imatrix, *imatrix_out, *measure, *budget;
    struct llm_strs only, except, tensor_types, merge;
    const char *base;           /* of an adapter that is IN */
    const char *prune, *factors;
    int64_t rank;
    double energy;
    int factors_only, rotate, cache_budget;
    bool awq;                   /* --method awq; `method` is then auto */
    int64_t drop_layers, refine, max_bytes, max_tensors, calibrate_tokens, calibrate_context, measure_tokens, budget_tokens, context, memory;
};
#define AT(field) offsetof(struct args, field)
enum { UNSET = -1 };

static const struct llm_opt options[] = {
    {'t', "type", "TYPE", "type or mix of types to store matrices in: %w (the last two: as they are) [with --budget: the largest mix that fits]",
     LLM_CHOICE, AT(type), 0, 0, NULL},
    {0, "tensor-type", "PATTERN=TYPE",
     "type of tensors whose names, here or in GGUF, match the pattern; may be given several times, the first match decides",
     LLM_LIST, AT(tensor_types), 0, 0, NULL},
    {0, "output-tensor-type", "TYPE", "type of the head's matrix, one of --type's words [as --type says]", LLM_CHOICE, AT(output_type), 0, 0, NULL},
    {0, "token-embedding-type", "TYPE", "type of the embedding's matrix, one of --type's words [as --type says]", LLM_CHOICE,
     AT(embedding_type), 0, 0, NULL},
    {0, "pure", NULL, "store all matrices in the mix's main type", LLM_FLAG, AT(pure), 0, 0, NULL},
    {0, "method", "METHOD", "how values are rounded: auto, rtn (to the nearest), search (least weighted error), gptq (errors made up for), "
     "kl (gptq by the curvature of the predictions) or awq (channels scaled first); with --prune which become 0: magnitude, "
     "wanda or sparsegpt [auto]",
     LLM_CHOICE, AT(method), 0, 0, NULL},
    {0, "refine", "N", "move scales and roundings by N steps down the gradient of the divergence from IN's predictions on --calibrate's text",
     LLM_INT, AT(refine), 1, 1e9, NULL},
    {0, "drop-layers", "N", "first leave out N layers, those whose absence changes the predictions on --calibrate's text least", LLM_INT,
     AT(drop_layers), 1, 1 << 16, NULL},
    {0, "rotate", NULL, "rotate the residual stream and heads' values first, folded into the matrices: the same function without large channels",
     LLM_FLAG, AT(rotate), 0, 0, NULL},
    {0, "prune", "SHARE|N:M", "make a share of each matrix (.5) or all but N of each M neighbours in a row (2:4) 0", LLM_STR, AT(prune), 0, 0,
     NULL},
    {0, "rank", "R", "find factors of rank R that make up for what each matrix of layers loses, and write them to --factors", LLM_INT, AT(rank), 1,
     LLM_LORA_MAX_RANK, NULL},
    {0, "energy", "E", "in place of --rank: find factors of the least rank that takes away this share of each matrix's squared error", LLM_REAL,
     AT(energy), 1e-9, 1, NULL},
    {0, "factors", "FILE", "write the factors of --rank or --energy to FILE, an adapter of OUT: .llm, GGUF (.gguf) or a folder of PEFT's", LLM_OUTPUT,
     AT(factors), 0, 0, NULL},
    {0, "factors-only", NULL, "factors take the place of the layers' matrices, which OUT then does not have", LLM_FLAG, AT(factors_only), 0, 0, NULL},
    {0, "calibrate", "FILE", "run the model over a text or token stream, and weight errors by the mean squares of what its matrices read", LLM_INPUT,
     AT(calibrate), 0, 0, NULL},
    {0, "calibrate-tokens", "N", "read only the first N tokens of --calibrate [all]", LLM_INT, AT(calibrate_tokens), 1, 1e15, NULL},
    {0, "calibrate-context", "N", "tokens in a window of --calibrate [512, or the model's maximum if that is less]", LLM_INT, AT(calibrate_context),
     2, 1 << 20, NULL},
    {0, "memory", "SIZE", "gather sums of products of inputs, as gptq needs, in parts of SIZE bytes: --calibrate is read once for each part [all]",
     LLM_SIZE, AT(memory), 1, 1e18, NULL},
    {0, "imatrix", "FILE", "weight errors by the importances in llama.cpp's file FILE (GGUF or .dat)", LLM_INPUT, AT(imatrix), 0, 0, NULL},
    {0, "imatrix-out", "FILE", "write the importances of --calibrate for llama.cpp, as GGUF or, if FILE ends in .dat, in the older form", LLM_OUTPUT,
     AT(imatrix_out), 0, 0, NULL},
    {0, "budget", "SIZE|Nbpw", "choose each matrix's type so that all fit in SIZE bytes or N bits a weight and --calibrate's text suffers least",
     LLM_STR, AT(budget), 0, 0, NULL},
    {0, "budget-tokens", "N", "measure the harm of each matrix's type on the first N tokens of --calibrate [2048]", LLM_INT, AT(budget_tokens), 2,
     1e15, NULL},
    {0, "cache-budget", NULL, "count the keys and values of --context tokens in --budget, and choose their types, layer by layer, too", LLM_FLAG,
     AT(cache_budget), 0, 0, NULL},
    {0, "context", "N", "tokens that --cache-budget has room for [the model's maximum]", LLM_INT, AT(context), 1, 1 << 24, NULL},
    {0, "measure", "FILE", "say how far the result's predictions are from IN's on a text or token stream that was not --calibrate's", LLM_INPUT,
     AT(measure), 0, 0, NULL},
    {0, "measure-tokens", "N", "read only the first N tokens of --measure [all]", LLM_INT, AT(measure_tokens), 2, 1e15, NULL},
    {0, "to", "FORMAT", "format of OUT: %w; arpa is of n-gram models [folder if OUT ends in / or is a folder, else by OUT's suffix, else llm]",
     LLM_CHOICE, AT(to), 0, 0, NULL},
    {0, "only", "PATTERN", "convert only tensors whose names match the shell pattern; may be given several times", LLM_LIST, AT(only), 0, 0, NULL},
    {0, "except", "PATTERN", "do not convert tensors whose names match the shell pattern; may be given several times",
     LLM_LIST, AT(except), 0, 0, NULL},
    {0, "merge", "FILE[:SCALE]", "merge an adapter into IN's matrices, times SCALE [1], and say what that costs; may be given several times",
     LLM_LIST, AT(merge), 0, 0, NULL},
    {0, "base", "MODEL", "the model that IN, an adapter, was made for [the one that it names]", LLM_INPUT, AT(base), 0, 0, NULL},
    {0, "planes", "on|off", "store floating-point tensors of .llm as byte planes, which compress better [on]",
     LLM_CHOICE, AT(planes), 0, 0, LLM_OFF_ON},
    {0, "split-max-size", "SIZE", "write GGUF in parts of at most SIZE bytes: OUT-00001-of-0000N.gguf", LLM_SIZE, AT(max_bytes), 1, 1e18, NULL},
    {0, "split-max-tensors", "N", "write GGUF in parts of at most N tensors", LLM_INT, AT(max_tensors), 1, 1 << 30, NULL},
    {0, "report", "FILE", "write the table of errors to FILE [standard error with -v]", LLM_OUTPUT, AT(report), 0, 0, NULL},
    {0}};

static const struct llm_cli cli = {
    .name = "llm-quantize",
    .summary = "Store a model's weights in another type or format, and say what that costs.",
    .usage = "-t TYPE [OPTION]... IN OUT",
    .examples = "llm-quantize -t q8_0 model.llm model-q8.llm\n"
                "llm-quantize -t q3_k_m --method gptq --calibrate corpus.txt model.llm model.gguf\n"
                "llm-quantize -t q4_k_m --tensor-type '*v_proj*=q8_0' model.llm model.gguf\n"
                "llm-quantize -t q4_0 --except '*embed*' --report report.tsv model.llm small.safetensors\n"
                "llm-quantize -t bf16_2of4 --prune 2:4 --calibrate corpus.txt model.llm sparse.llm\n"
                "llm-quantize -t keep model.llm model.gguf\n"
                "llm-quantize -t q8_0 model.llm - | llm-infer -m - --score -f held-out.txt",
    .usual = "type|tensor-type|method|budget|refine|rotate|drop-layers|prune|rank|factors|calibrate|calibrate-tokens|imatrix|measure|to|only|except|"
             "merge|base|report",
    .options = options, .operands = LLM_OPERANDS_IN_OUT,
    .common = LLM_COMMON_THREADS | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG,
    .words = quantize_words,
    .aliases = quantize_aliases,
    .foreign = quantize_foreign,
};

/* The report: a row for each tensor. */
static const char *const columns[] = {"name", "shape", "from", "to", "kept", "bytes_from", "bytes_to", "rmse", "max_error", "snr_db", "cosine",
                                      "bits", "method", "importances", "damping", "sensitivity", "predicted_kl", "measured_kl", "zeros",
                                      "pruned", "rank", "energy", NULL};
struct report {
    struct llm_table *table; /* NULL: rows are told with -v */
    uint64_t bytes_from, bytes_to;
    size_t changed, at;      /* tensors that changed; that were reported */
    const struct llm_budget *budget; /* NULL: there is none */
};

static void put_table_row(struct llm_table *t, const struct llm_quant_report *r, const struct llm_budget_tensor *b, const char *shape)
{
    char json[110];
    snprintf(json, sizeof json, "[%s]", shape);
    llm_table_text(t, r->name);
    llm_table_raw(t, shape, json);
    llm_table_text(t, llm_dtypes[r->from].name);
    llm_table_text(t, llm_dtypes[r->to].name);
    llm_table_text(t, r->kept);
    llm_table_printed(t, (double)r->bytes_from, LLM_NUMBER_INTEGER, 0);
    llm_table_printed(t, (double)r->bytes_to, LLM_NUMBER_INTEGER, 0);
    llm_table_printed(t, r->rmse, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, r->max_error, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, r->snr_db, LLM_NUMBER_FIXED, 4);
    llm_table_printed(t, r->cosine, LLM_NUMBER_FIXED, 8);
    llm_table_printed(t, r->bits, LLM_NUMBER_GENERAL, 6);
    llm_table_text(t, r->method);
    llm_table_text(t, r->kept ? NULL : r->weighted ? "yes" : "no");
    llm_table_printed(t, r->damping, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, b ? b->sensitivity : (double)NAN, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, b ? b->predicted : (double)NAN, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, b ? b->measured : (double)NAN, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, r->zeros, LLM_NUMBER_GENERAL, 6);
    llm_table_text(t, r->pruned);
    llm_table_printed(t, r->rank > 0 ? (double)r->rank : (double)NAN, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(t, r->energy, LLM_NUMBER_GENERAL, 6);
}

/* Rows of the keys and values that a budget counts. */
static void put_cache_rows(struct llm_table *t, const struct llm_budget *b, const struct llm_config *c)
{
    for (int64_t i = 0; b->cache && i < 2 * c->num_hidden_layers; i++) {
        const struct llm_budget_cache *of = &b->cache[i / 2][i % 2];
        struct llm_quant_report r = {.from = LLM_F32, .to = of->type, .bytes_to = of->bytes, .n_dims = 2, .rmse = NAN, .max_error = NAN,
                                     .snr_db = NAN, .cosine = NAN, .damping = NAN, .zeros = NAN, .energy = NAN};
        const struct llm_budget_tensor harm = {of->type, NAN, of->measured, of->measured};
        char name[60], shape[60];
        if (of->type == LLM_NO_DTYPE) continue;
        snprintf(name, sizeof name, "cache.layers.%" PRId64 ".%s", i / 2, i % 2 ? "v" : "k");
        snprintf(shape, sizeof shape, "%" PRId64 ",%" PRId64, b->tokens, of->width);
        r.name = name;
        r.bytes_from = (uint64_t)(b->tokens * of->width) * sizeof(float);
        r.bits = 8 * (double)of->bytes / (double)(b->tokens * of->width);
        put_table_row(t, &r, &harm, shape);
    }
}

static int put_row(void *arg, const struct llm_quant_report *r, struct llm_err *e)
{
    struct report *t = arg;
    (void)e; /* the table keeps its errors */
    char shape[100] = "";
    t->bytes_from += r->bytes_from;
    t->bytes_to += r->bytes_to;
    t->changed += !r->kept;
    const struct llm_budget_tensor *of_budget = t->budget ? &t->budget->v[t->at] : NULL;
    t->at++;
    for (int i = 0; i < r->n_dims; i++) {
        size_t used = strlen(shape);
        snprintf(shape + used, sizeof shape - used, "%s%" PRId64, i ? "," : "", r->shape[i]);
    }
    if (!t->table) {
        llm_verbose("%s [%s] %s -> %s%s%s: rmse %.4g, max %.4g, snr %.2f dB", r->name, shape, llm_dtypes[r->from].name, llm_dtypes[r->to].name,
                    r->kept ? ", kept: " : "", r->kept ? r->kept : "", r->rmse, r->max_error, r->snr_db);
        return 0;
    }
    put_table_row(t->table, r, of_budget, shape);
    return 0;
}

/* NULL: the text is no extended regular expression, or memory is short. */
static const regex_t *expression_of(const char *text)
{
    regex_t *x = malloc(sizeof *x);
    if (x && regcomp(x, text, REG_EXTENDED | REG_NOSUB) == 0) return x;
    free(x);
    return NULL;
}

/* "PATTERN=TYPE", as --tensor-type has it. */
static struct llm_quant_override override_of(const char *text)
{
    const char *at = strrchr(text, '=');
    struct llm_quant_override o = {0};
    if (!at || at == text || llm_quant_dtype(at + 1, &o.dtype) < 0) {
        struct llm_suggest near;
        const char *type;
        enum llm_dtype one;
        llm_suggest_begin(&near, at ? at + 1 : "");
        for (int i = 0; (type = llm_quant_word(i)); i++)
            if (llm_quant_dtype(type, &one) == 0) llm_suggest_add(&near, type, type);
        llm_usage(&cli, "--tensor-type: expected PATTERN=TYPE with a type of one matrix (q6_k, f16, keep, ...), found '%s'%s", text,
                  llm_suggest_text(&near, ""));
    }
    o.pattern = strndup(text, (size_t)(at - text));
    o.expression = o.pattern ? expression_of(o.pattern) : NULL;
    return o;
}

/* The type of one matrix that an option names; NULL: the option was not given. */
static const enum llm_dtype *type_of(const char *option, int row, enum llm_dtype *out)
{
    if (row == UNSET) return NULL;
    if (llm_quant_dtype(llm_quant_types[row].name, out) < 0) {
        llm_usage(&cli, "--%s: expected the type of one matrix, found the mix '%s'", option, llm_quant_types[row].name);
    }
    return out;
}

static void free_overrides(struct llm_quant_override *o, size_t n)
{
    for (size_t i = 0; o && i < n; i++) {
        if (o[i].expression) regfree((regex_t *)o[i].expression);
        free((regex_t *)o[i].expression);
        free((char *)o[i].pattern);
    }
    free(o);
}

/* Reads --tensor-type. The result and its patterns are the caller's (free_overrides); NULL if memory is short. */
static struct llm_quant_override *read_overrides(const struct args *a, struct llm_err *e)
{
    struct llm_quant_override *o = llm_calloc(a->tensor_types.n + 1, sizeof *o, "types of tensors", e);
    for (size_t i = 0; o && i < a->tensor_types.n; i++) {
        o[i] = override_of(a->tensor_types.v[i]);
        if (!o[i].pattern) {
            llm_no_memory(e, "types of tensors");
            free_overrides(o, i);
            return NULL;
        }
    }
    return o;
}

/* Rows that wait until the matrices are refined. */
struct waiting { struct llm_quant_report *v; size_t n; };
static int keep_row(void *arg, const struct llm_quant_report *r, struct llm_err *e)
{
    struct waiting *w = arg;
    (void)e;
    w->v[w->n++] = *r;
    return 0;
}

/* Quantises, then refines on the text but its last eighth, on which the result is measured: it is written if it is the better one. 0, 1 if a signal
 * was caught, -1. */
static int quantize_and_refine(struct llm_model *m, const struct args *a, const struct llm_quant_plan *plan, const char *in, struct report *t,
                               struct llm_err *e)
{
    const struct refine_request of = {{in, a->rotate}, a->calibrate, a->calibrate_tokens, a->calibrate_context, a->refine};
    struct waiting w = {.v = llm_calloc(m->n_params + 1, sizeof *w.v, "refinement", e)};
    struct llm_refine *r = w.v ? llm_refine_create(m, e) : NULL;
    struct llm_quant_sink sink;
    struct llm_quant_plan with = *plan;
    int status = r ? 0 : -1;
    if (r) sink = llm_refine_sink(r);
    with.sink = &sink;
    if (status == 0) status = llm_quantize_model(m, &with, keep_row, &w, e);
    if (status == 0) status = quantize_refine(&of, r, m, w.v, e);
    for (size_t i = 0; i < w.n && status == 0; i++) status = put_row(t, &w.v[i], e);
    llm_refine_destroy(r);
    free(w.v);
    return status;
}

static int quantize(struct llm_model *m, const struct args *a, const struct llm_quant_plan *plan, const struct llm_budget *budget, const char *in,
                    struct llm_err *e)
{
    struct llm_table table;
    struct report t = {.table = a->report ? &table : NULL, .budget = budget};
    if (llm_output_try(a->report, false, e) < 0) return -1;
    llm_table_init(&table, columns);
    const int status = a->refine ? quantize_and_refine(m, a, plan, in, &t, e) : llm_quantize_model(m, plan, put_row, &t, e);
    if (status != 0) {
        llm_table_release(&table);
        return status;
    }
    if (budget && t.table) put_cache_rows(t.table, budget, &m->config);
    const double before = (double)t.bytes_from / 1048576, after = (double)t.bytes_to / 1048576;
    if (plan->type->dtype == LLM_NO_DTYPE && t.changed == 0) llm_note("%zu tensors as they are: %.1f MiB of weights", m->n_params, after);
    else llm_note("%zu of %zu tensors to %s: %.1f -> %.1f MiB of weights", t.changed, m->n_params,
                  plan->chosen ? "the budget's types" : plan->type->name, before, after);
    return a->report ? llm_tables_print(a->report, llm_table_form(&a->common), &t.table, 1, e) : 0;
}

static int save(struct llm_model *m, const struct args *a, const char *out, struct llm_err *e)
{
    const struct llm_checkpoint_options options_of = {.planes = a->planes, .plain = a->to == LLM_FORMAT_SAFETENSORS};
    if (a->max_bytes || a->max_tensors) {
        int parts = llm_model_save_gguf_parts(m, out, a->max_bytes, a->max_tensors, e);
        return parts < 0 && e->status == EX_UNAVAILABLE ? llm_in(e, "%s", out) : parts;
    }
    if (a->to == LLM_FORMAT_FOLDER) return llm_model_save_folder(m, out, e);
    struct llm_output *o = llm_output_open(out, a->to != LLM_FORMAT_ARPA, e);
    if (!o) return -1;
    int r = a->to == LLM_FORMAT_ARPA   ? llm_arpa_write(m, o, e)
            : a->to == LLM_FORMAT_GGUF ? llm_model_save_gguf(m, o, e)
                                       : llm_model_save(m, o, &options_of, e);
    if (r < 0) {
        if (e->status == EX_UNAVAILABLE) llm_in(e, "%s", llm_output_name(o)); /* what the format cannot hold */
        llm_output_abandon(o);
        return -1;
    }
    return llm_output_commit(o, e);
}

/* Runs the result and IN, which is read again, over --measure. */
static int measure(const struct args *a, struct llm_model *m, const char *in, struct llm_err *e)
{
    struct llm_model *base = llm_model_load(in, e);
    struct llm_kl_base b = {0};
    struct llm_kl kl;
    struct llm_input text = {0};
    int status = base ? llm_input_read(&text, a->measure, base, e) : -1;
    const int64_t n = a->measure_tokens > 0 && text.n > (size_t)a->measure_tokens ? a->measure_tokens : (int64_t)text.n;
    if (status == 0 && (status = llm_kl_base_init(&b, base, text.ids, n, 0, e)) < 0) llm_in(e, "%s", a->measure);
    if (status == 0) status = llm_kl_measure(&b, m, &kl, NULL, e);
    if (status == 0) {
        llm_note("%s: KL %.6f%s nats a token%s over %" PRId64 " tokens; same most probable token: %.2f%%", a->measure, kl.mean,
                 llm_kl_interval(kl.half).text, isnan(kl.half) ? "" : " (95%)", kl.tokens, 100 * kl.same_top);
    }
    llm_kl_base_release(&b);
    llm_model_destroy(base);
    llm_input_release(&text);
    return status;
}

/* An existing folder takes an adapter, or a model as Hugging Face has it. */
static bool is_folder(const char *path)
{
    struct stat st;
    return strcmp(path, "-") != 0 && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Merged matrices that the plan left as they were take their old type again, if it can be written. */
static int restore_types(struct llm_model *m, const enum llm_dtype *was, const struct llm_quant_plan *plan, struct llm_err *e)
{
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        struct llm_quant_report r;
        bool left = was[i] != LLM_NO_DTYPE && was[i] != LLM_F32 && p->weight.dtype == LLM_F32 && plan->type->dtype != LLM_F32;
        if (!left || !llm_dtypes[was[i]].encode) continue;
        uint64_t n = (uint64_t)llm_param_count(p);
        void *out = llm_alloc_huge(llm_dtype_bytes(was[i], n), 1, p->name, e);
        const struct llm_quant_job job = {.in = p->weight.data, .out = out, .from = LLM_F32, .to = was[i], .n = n, .row = p->weight.k,
                                          .method = plan->method};
        if (!out || llm_quantize_tensor(&job, &r, e) < 0) {
            free(out);
            return -1;
        }
        llm_weight_release(&p->weight);
        if (p->owned) free((void *)(uintptr_t)p->weight.data);
        p->weight.data = out;
        p->weight.dtype = was[i];
        p->weight.map = p->weight.map_end = NULL;
        p->owned = true;
    }
    return 0;
}

/* The types of --budget, to `with`. *tokens: of --calibrate, those that are not held out; `budget` is to be released. */
static int choose_types(struct llm_model *m, const struct args *a, const char *in, int64_t tokens, struct llm_quant_plan *with,
                        struct llm_budget *budget, struct llm_err *e)
{
    const int64_t cached = !a->cache_budget ? 0 : a->context ? a->context : llm_config_default_context(&m->config);
    const struct llm_budget_room room = {quantize_budget_bytes(a->budget, m), cached};
    const struct budget_request r = {{in, a->rotate}, a->calibrate, room, tokens, a->calibrate_tokens, a->budget_tokens ? a->budget_tokens : 2048,
                                     a->calibrate_context};
    int status = quantize_budget(&r, m, with, budget, &with->type, e);
    with->chosen = budget->types;
    return status;
}

static int scale_channels(struct llm_model *m, const struct llm_quant_plan *plan, struct llm_moments *moments, struct llm_err *e)
{
    struct llm_awq_counts n;
    if (llm_awq(m, plan, moments, &n, e) < 0) return -1;
    llm_note("awq: the channels of %zu places are scaled; of %zu it would not help; %zu have nothing before them, or no reader, that can take it",
             n.folded, n.plain, n.closed);
    return 0;
}

static int calibrate_and_quantize(struct llm_model *m, const struct args *a, const struct llm_quant_plan *plan, const char *in, struct llm_err *e)
{
    struct calibration c = {a->calibrate, a->imatrix, a->imatrix_out, a->calibrate_tokens, a->calibrate_context, (uint64_t)a->memory,
                                  plan->lowrank || plan->method >= LLM_QUANT_GPTQ || (plan->prune && plan->prune_method == LLM_PRUNE_SPARSEGPT),
                                  plan->method == LLM_QUANT_KL || a->budget};
    struct llm_moments moments = {0};
    struct llm_quant_plan with = *plan;
    struct llm_budget budget = {0};
    int status = 0;
    if (a->memory && !c.products && !c.curvature) {
        return llm_fail(e, LLM_EX_USAGE, "--memory: expected what gathers sums of products: --method gptq, kl or sparsegpt, --budget or --rank");
    }
    if (a->budget && quantize_budget_bytes(a->budget, m) == 0) {
        return llm_fail(e, LLM_EX_USAGE, "--budget: expected a size (120MiB) or bits a weight (3.9bpw), found '%s'", a->budget);
    }
    if (!with.type) with.type = quantize_budget_mix(m, &with, quantize_budget_bytes(a->budget, m));
    if ((a->budget || a->refine) && (c.tokens = quantize_tokens_before(a->budget ? "budget" : "refine", c.text, m, c.tokens, e)) < 0) return -1;
    if (c.text || c.importances) {
        status = quantize_calibrate(&c, m, &moments, e);
        with.moments = &moments;
    }
    if (status == 0 && a->budget) status = choose_types(m, a, in, c.tokens, &with, &budget, e);
    if (status == 0 && a->awq) status = scale_channels(m, &with, &moments, e);
    if (status == 0) status = quantize(m, a, &with, a->budget ? &budget : NULL, in, e);
    if (status == 0 && plan->lowrank) status = factors_attach(m, plan->lowrank, e);
    llm_budget_release(&budget);
    llm_moments_release(&moments);
    return status;
}

/* With the names that patterns may mean, too, if the family has names in GGUF. */
static int quantize_named(struct llm_model *m, const struct args *a, const struct llm_quant_plan *plan, const char *in, struct llm_err *e)
{
    struct llm_err unnamed = {0};
    struct llm_gguf_names names = {.params = NULL};
    struct llm_quant_plan with = *plan;
    if (llm_gguf_names_of(&names, m, &unnamed) == 0) with.gguf = names.specs;
    const int status = calibrate_and_quantize(m, a, &with, in, e);
    llm_gguf_names_release(&names);
    return status;
}

static int quantize_merged(struct llm_model *m, const struct args *a, const struct llm_quant_plan *plan, const char *in, struct llm_err *e)
{
    enum llm_dtype *was = llm_calloc(m->n_params + 1, sizeof *was, "an adapter", e);
    int status = was ? adapters_load(m, &a->merge, e) : -1;
    if (status == 0) status = llm_lora_merge(m, was, e);
    if (status == 0) status = quantize_named(m, a, plan, in, e);
    if (status == 0) status = restore_types(m, was, plan, e);
    if (status == 0) status = adapters_report(in, &a->merge, m, e);
    free(was);
    return status;
}

static int rotate(struct llm_model **m, struct llm_quant_spool *spool, struct llm_err *e)
{
    struct llm_rotated r;
    if (llm_rotate(m, spool, &r, e) < 0) return -1;
    llm_note("rotated: %" PRId64 " channels of the residual stream (Hadamard of %" PRId64 "), heads' values of %" PRId64 " layers%s; "
             "not folded: inputs of projections from the feed-forward part, queries and keys", r.width, r.hadamard, r.heads,
             r.untied ? ", the tied head made a matrix of its own" : "");
    return 0;
}

/* Refuses, before the work is done, what a folder of Hugging Face's cannot take. */
static int check_folder(const struct args *a, const struct llm_quant_plan *plan, const char *out, struct llm_err *e)
{
    const char *const what = "a folder of Hugging Face's: expected", *option = a->budget ? "budget" : a->factors_only ? "factors-only" : NULL;
    if (option) return llm_fail(e, EX_UNAVAILABLE, "%s: %s no --%s, whose types it does not take", out, what, option);
    const enum llm_dtype *const of_options[] = {&plan->type->dtype, plan->output, plan->embedding};
    const size_t n = sizeof of_options / sizeof *of_options;
    for (size_t i = 0; i < n + plan->n_overrides; i++) {
        const enum llm_dtype *type = i < n ? of_options[i] : &plan->overrides[i - n].dtype;
        if (!type || llm_model_folder_takes(*type)) continue;
        return llm_fail(e, EX_UNAVAILABLE, "%s: %s f32, f16, bf16 or keep, found %s", out, what, llm_dtypes[*type].name);
    }
    return llm_model_try_folder(out, e);
}

static void move_to_spool(void *spool, struct llm_param *p)
{
    llm_quant_spool_param(spool, p);
}

static int run(const struct args *a, const struct llm_quant_plan *given, const char *in, const char *out, struct llm_err *e)
{
    struct llm_quant_spool spool = {0};
    struct llm_quant_plan with = *given;
    const struct llm_quant_plan *plan = &with;
    with.spool = &spool;
    bool named = !a->max_bytes && !a->max_tensors && a->to != LLM_FORMAT_FOLDER && !is_folder(out); /* else there are files of other names */
    if (llm_pool_start(a->common.threads, e) < 0 || (named && llm_output_try(out, a->to != LLM_FORMAT_ARPA, e) < 0)) return -1;
    int is_adapter = a->to == LLM_FORMAT_ARPA ? 0 : llm_lora_is_file(in, e);
    if (is_adapter > 0 && !plan->type) {
        llm_fail(e, LLM_EX_USAGE, "%s: an adapter is stored in one type (-t), not within a --budget", in);
        is_adapter = -1;
    }
    if (is_adapter != 0) {
        int converted = is_adapter < 0 ? -1 : adapter_convert(in, a->base, out, a->to == LLM_FORMAT_GGUF, plan->type->dtype, e);
        llm_pool_stop();
        return converted;
    }
    llm_model_on_read(move_to_spool, &spool);
    struct llm_model *m = a->to != LLM_FORMAT_FOLDER || check_folder(a, plan, out, e) == 0 ? llm_model_load(in, e) : NULL;
    int status = m ? 0 : -1;
    if (m && (a->base || (a->merge.n > 0 && m->ngram))) {
        status = llm_fail(e, EX_DATAERR, "%s: expected %s, found a model of type '%s'", in, a->base ? "an adapter (--base)" : "a network (--merge)",
                          m->config.model_type);
    }
    /* What the formats cannot have is refused before the work is done. Fewer layers may be what GGUF can have. */
    if (status == 0 && a->to == LLM_FORMAT_GGUF && !a->drop_layers && llm_model_check_gguf(m, e) < 0) status = llm_in(e, "%s", out);
    if (status == 0 && a->merge.n > 0) {
        status = quantize_merged(m, a, plan, in, e);
        if (status == 0) status = save(m, a, out, e);
        llm_model_destroy(m);
        llm_model_on_read(NULL, NULL);
        llm_quant_spool_release(&spool);
        llm_pool_stop();
        return status;
    }
    if (status == 0 && m->ngram && (plan->prune || plan->lowrank)) {
        status = llm_fail(e, EX_DATAERR, "%s: expected a network (--%s), found a model of type '%s'", in, plan->prune ? "prune" : "factors",
                          m->config.model_type);
    }
    if (status == 0 && plan->lowrank) status = factors_try(m, plan, a->factors, e);
    if (m && a->to == LLM_FORMAT_ARPA && !m->ngram) {
        status = llm_fail(e, EX_DATAERR, "%s: --to arpa: expected an n-gram model, found a %s", in, m->config.model_type);
    }
    if (status == 0 && a->drop_layers && m->ngram) {
        status = llm_fail(e, EX_DATAERR, "%s: expected a network (--drop-layers), found a model of type '%s'", in, m->config.model_type);
    }
    if (status == 0 && a->drop_layers) {
        const struct drop_request of = {in, a->calibrate, a->drop_layers, a->calibrate_tokens < 2048 ? a->calibrate_tokens : 0, a->calibrate_context};
        status = quantize_drop(&of, &m, e);
    }
    if (status == 0 && a->rotate) status = rotate(&m, &spool, e);
    if (status == 0 && !m->ngram) status = quantize_named(m, a, plan, in, e); /* tables of n-grams stay as they are */
    if (status == 0 && a->measure) status = measure(a, m, in, e);
    if (status == 0) status = save(m, a, out, e);
    if (status == 0 && plan->lowrank) status = factors_write(m, out, a->to == LLM_FORMAT_GGUF, a->factors, e);
    llm_model_destroy(m);
    llm_model_on_read(NULL, NULL);
    llm_quant_spool_release(&spool);
    llm_pool_stop();
    return status;
}

/* Reads --rank, --energy, --factors and --factors-only. */
static void read_factors(const struct args *a, const char *out, struct llm_lowrank *l)
{
    *l = (struct llm_lowrank){.rank = a->rank, .energy = a->energy, .alone = a->factors_only};
    if (!a->rank && !(a->energy > 0)) {
        if (a->factors || a->factors_only) llm_usage(&cli, "--factors%s: expected --rank R or --energy E too", a->factors ? "" : "-only");
        return;
    }
    if (a->rank && a->energy > 0) llm_usage(&cli, "expected --rank or --energy, found both");
    if (!a->factors) llm_usage(&cli, "--%s: expected --factors FILE too", a->rank ? "rank" : "energy");
    if (strcmp(out, "-") == 0 || strcmp(a->factors, "-") == 0) llm_usage(&cli, "--factors: expected files as OUT and FILE, which names OUT");
    const char *other = a->budget ? "budget" : a->refine ? "refine" : a->prune ? "prune" : a->merge.n > 0 ? "merge" : NULL;
    if (other) llm_usage(&cli, "--factors: expected no --%s", other);
    if (a->to == LLM_FORMAT_GGUF && !llm_ends_with(a->factors, ".gguf")) {
        llm_usage(&cli, "--factors: expected a .gguf file beside a model in GGUF, found '%s'", a->factors);
    }
    if (a->to == LLM_FORMAT_GGUF && l->alone) llm_usage(&cli, "--factors-only: expected no GGUF as OUT, which cannot leave matrices out");
}

/* Reads --prune, whose --method is taken out of `a`. The method: by default the best that what is known allows. */
static int read_pruning(struct args *a, struct llm_prune_pattern *pattern)
{
    int method = a->method - QUANTIZE_PRUNE;
    if (method >= 0 && !a->prune) llm_usage(&cli, "--method %s: expected --prune too", llm_prune_methods[method]);
    if (!a->prune) return 0;
    if (llm_prune_parse(a->prune, pattern) < 0) {
        llm_usage(&cli, "--prune: expected a share within 0 and 1, or how many of how many neighbours stay (2:4), found '%s'", a->prune);
    }
    if (a->budget) llm_usage(&cli, "--prune: expected no --budget");
    if (a->method == LLM_QUANT_GPTQ || a->method == LLM_QUANT_KL || a->awq) {
        llm_usage(&cli, "--prune: expected --method magnitude, wanda or sparsegpt, or one that rounds values by themselves, found %s",
                  a->awq ? "awq" : llm_quant_methods[a->method]);
    }
    if (method == LLM_PRUNE_SPARSEGPT && !a->calibrate) llm_usage(&cli, "--method sparsegpt: expected --calibrate FILE too");
    if (method == LLM_PRUNE_WANDA && !a->calibrate && !a->imatrix) llm_usage(&cli, "--method wanda: expected --calibrate FILE or --imatrix FILE too");
    if (method >= 0) a->method = LLM_QUANT_AUTO;
    return method >= 0 ? method : a->calibrate ? LLM_PRUNE_SPARSEGPT : a->imatrix ? LLM_PRUNE_WANDA : LLM_PRUNE_MAGNITUDE;
}

/* ARPA text has no data types, so -t is not required for it. */
static bool wants_arpa(const struct args *a, int argc, char **argv)
{
    return a->to == LLM_FORMAT_ARPA || (a->to == UNSET && llm_model_format_of(argv[argc - 1]) == LLM_FORMAT_ARPA);
}

int main(int argc, char **argv)
{
    struct args a = {.type = UNSET, .to = UNSET, .planes = 1, .output_type = UNSET, .embedding_type = UNSET};
    struct llm_err e = {0};
    llm_start();
    llm_free_at_once(); /* tensors come and go */
    int rest = llm_cli_parse(&cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    if (a.type == UNSET && !a.budget && !wants_arpa(&a, argc, argv)) {
        llm_usage(&cli, "expected a type (-t q8_0, q4_k_m, bf16, ... or keep; --help lists all)");
    }
    if (argc - rest != 2) llm_usage(&cli, "expected two operands, IN and OUT, found %d", argc - rest);
    const char *in = argv[rest], *out = argv[rest + 1];
    if (strcmp(out, "-") == 0 && a.report && strcmp(a.report, "-") == 0) llm_usage(&cli, "standard output cannot be OUT and the report at once");
    if (a.merge.n > 0 && strcmp(in, "-") == 0) llm_usage(&cli, "--merge: expected a file as IN: it is read again to be compared");
    if (a.merge.n > 0 && a.base) llm_usage(&cli, "--base is of IN that is an adapter: expected no --merge");
    if (a.to == UNSET) a.to = llm_ends_with(out, "/") || is_folder(out) ? LLM_FORMAT_FOLDER : (int)llm_model_format_of(out);
    if (a.to == LLM_FORMAT_FOLDER && strcmp(out, "-") == 0) llm_usage(&cli, "--to folder: expected the name of a folder as OUT, found -");
    if ((a.max_bytes || a.max_tensors) && (a.to != LLM_FORMAT_GGUF || strcmp(out, "-") == 0)) {
        llm_usage(&cli, "--split-max-size and --split-max-tensors: expected GGUF files as OUT (--to gguf)");
    }
    if (a.calibrate && a.imatrix) llm_usage(&cli, "expected --calibrate or --imatrix, found both");
    struct llm_prune_pattern prune;
    if ((a.awq = a.method == QUANTIZE_AWQ)) {
        a.method = LLM_QUANT_AUTO;
        if (!a.calibrate && !a.imatrix) llm_usage(&cli, "--method awq: expected --calibrate FILE or --imatrix FILE too");
        if (a.budget || a.refine) llm_usage(&cli, "--method awq: expected no --%s", a.budget ? "budget" : "refine");
    }
    const int pruning = read_pruning(&a, &prune);
    if (a.method >= LLM_QUANT_GPTQ && !a.calibrate) llm_usage(&cli, "--method %s: expected --calibrate FILE too", llm_quant_methods[a.method]);
    if (a.budget && !a.calibrate) llm_usage(&cli, "--budget: expected --calibrate FILE too");
    if (a.budget && (strcmp(in, "-") == 0 || strcmp(a.calibrate, "-") == 0)) {
        llm_usage(&cli, "--budget: expected files as IN and --calibrate: they are read again");
    }
    if (a.budget && a.merge.n > 0) llm_usage(&cli, "--budget: expected no --merge");
    if (a.refine && !a.calibrate) llm_usage(&cli, "--refine: expected --calibrate FILE too");
    if (a.refine && (strcmp(in, "-") == 0 || strcmp(a.calibrate, "-") == 0)) {
        llm_usage(&cli, "--refine: expected files as IN and --calibrate: they are read again");
    }
    if (a.refine && (a.merge.n > 0 || a.prune)) llm_usage(&cli, "--refine: expected no --%s", a.prune ? "prune" : "merge");
    if (a.drop_layers && (!a.calibrate || strcmp(in, "-") == 0 || strcmp(a.calibrate, "-") == 0)) {
        llm_usage(&cli, "--drop-layers: expected files as IN and --calibrate: they are read again");
    }
    if (a.drop_layers && (a.budget || a.refine || a.merge.n > 0)) {
        llm_usage(&cli, "--drop-layers: expected no --%s", a.budget ? "budget" : a.refine ? "refine" : "merge");
    }
    if (a.rotate && a.merge.n > 0) llm_usage(&cli, "--rotate: expected no --merge");
    if (a.cache_budget && !a.budget) llm_usage(&cli, "--cache-budget: expected --budget too");
    if (a.context && !a.cache_budget) llm_usage(&cli, "--context: expected --cache-budget too");
    if (a.budget_tokens && !a.budget) llm_usage(&cli, "--budget-tokens: expected --budget too");
    if (a.measure && strcmp(in, "-") == 0) llm_usage(&cli, "--measure: expected a file as IN: it is read again to be compared");
    if (a.imatrix_out && !a.calibrate && !a.imatrix) llm_usage(&cli, "--imatrix-out: expected --calibrate FILE too");
    struct llm_lowrank lowrank;
    read_factors(&a, out, &lowrank);
    enum llm_dtype output, embedding;
    struct llm_quant_plan plan = {.type = a.type == UNSET ? NULL : &llm_quant_types[a.type], .only = &a.only, .except = &a.except,
                                  .pure = a.pure,
                                  .output = type_of("output-tensor-type", a.output_type, &output),
                                  .embedding = type_of("token-embedding-type", a.embedding_type, &embedding),
                                  .method = (enum llm_quant_method)a.method, .prune = a.prune ? &prune : NULL,
                                  .prune_method = (enum llm_prune_method)pruning, .lowrank = a.factors ? &lowrank : NULL};
    struct llm_quant_override *overrides = read_overrides(&a, &e);
    plan.overrides = overrides;
    plan.to_gguf = a.to == LLM_FORMAT_GGUF;
    plan.n_overrides = a.tensor_types.n;
    int status = overrides ? run(&a, &plan, in, out, &e) : -1;
    free_overrides(overrides, a.tensor_types.n);
    llm_lowrank_release(&lowrank);
    return status < 0 ? llm_report(&e) : 0;
}
