/* llm-bench eval: how well a model does a task. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/progress.h"
#include "base/signals.h"
#include "bin/bench/bench.h"
#include "cpu/pool.h"
#include "measure/eval/report.h"

struct args {
    struct llm_common common;
    const char *model, *tokenizer, *task, *labels, *shots_from, *items, *chat_template;
    int64_t context, batch, shots, limit, samples, parallel;
    double temperature;
    const char *cache;
    int precision, bos, chat, resume, compare, show_task;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'m', "model", "MODEL", "the model", LLM_INPUT, AT(model), 0, 0, NULL},
    {'T', "tokenizer", "TOK", "encode text with this tokenizer [the model's]", LLM_INPUT, AT(tokenizer), 0, 0, NULL},
    {0, "task", "TASK", "the task: a file, or %w", LLM_STR, AT(task), 0, 0, NULL},
    {0, "show-task", NULL, "print the task as JSON, to begin one's own with", LLM_FLAG, AT(show_task), 0, 0, NULL},
    {0, "labels", "FILE", "right answers, one a line, of data that come without", LLM_INPUT, AT(labels), 0, 0, NULL},
    {0, "shots", "N", "examples before each item [the task's, or 0]", LLM_INT, AT(shots), 0, 1000, NULL},
    {0, "shots-from", "FILE", "take the examples from this data [the task's, or the data itself]", LLM_INPUT, AT(shots_from), 0, 0, NULL},
    {0, "limit", "N", "only the first N items [all]", LLM_INT, AT(limit), 1, 1e12, NULL},
    {0, "chat", NULL, "put each prompt into the model's chat template, as the user's message", LLM_FLAG, AT(chat), 0, 0, NULL},
    {0, "chat-template", "TEMPLATE", "as --chat, with a built-in template or one in a file: %w", LLM_STR, AT(chat_template), 0, 0, NULL},
    {0, "bos", "WHEN", "put the token that begins a text before each prompt: %w; auto: as the tokenizer does [auto]", LLM_CHOICE, AT(bos), 0, 0,
     "auto|always|never"},
    {0, "samples", "N", "generations of each item; pass@k is measured with more than one [1]", LLM_INT, AT(samples), 1, 64, NULL},
    {0, "temp", "T", "temperature of generations; 0: always the most likely token [0, with several samples 0.8]", LLM_REAL, AT(temperature), 0, 1e6,
     NULL},
    {0, "parallel", "N", "maximum number of generations at a time [32]", LLM_INT, AT(parallel), 1, 4096, NULL},
    {0, "items", "FILE", "write the result of each item, with its token ids, to FILE (JSON Lines)", LLM_OUTPUT, AT(items), 0, 0, NULL},
    {0, "resume", NULL, "go on after the items that the file of --items has already", LLM_FLAG, AT(resume), 0, 0, NULL},
    {0, "compare", NULL, "compare two files of --items, the operands: McNemar's test, bootstrap", LLM_FLAG, AT(compare), 0, 0, NULL},
    {'c', "context", "N", "maximum number of tokens of a prompt and its answer [the model's maximum]", LLM_INT, AT(context), 2, 1 << 24, NULL},
    {'b', "batch", "N", "maximum number of tokens in one forward pass [512]", LLM_INT, AT(batch), 1, 65536, NULL},
    {0, "cache-type", "TYPES", "types in which the cache stores keys and values: K[,V] of %w, also by layers: q8_0,q4_0/0-1:bf16 [as --precision]",
     LLM_STR, AT(cache), 0, 0, NULL},
    {0, "precision", "TYPE", "arithmetic of weights that are not quantised: %w [bf16]", LLM_CHOICE, AT(precision), 0, 0, NULL},
    {0}};

const struct llm_cli bench_eval_cli = {
    .name = "llm-bench eval",
    .summary = "Evaluate a model on a task: multiple choice, cloze, generated answers, perplexity.",
    .usage = "-m MODEL --task TASK [OPTION]... [DATA]\n--compare [OPTION]... FIRST SECOND",
    .examples = "llm-bench eval -m model.gguf --task piqa --labels valid-labels.lst --items piqa.jsonl valid.jsonl\n"
                "llm-bench eval -m model.gguf --task mmlu --shots 5 --shots-from dev.csv test.csv\n"
                "llm-bench eval -m model.gguf --task my-task.json --chat\n"
                "llm-bench eval --compare before.jsonl after.jsonl",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT | LLM_COMMON_SEED | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG,
    .words = bench_eval_words,
    .aliases = bench_eval_aliases,
    .foreign = bench_foreign,
};

/* ---- the file of items: a line about the run, then a line an item ---- */

#define SAVE_EVERY 30.0 /* seconds */

struct items {
    const char *path;          /* --items; NULL: the option was not given */
    bool to_file;              /* a regular file, which is replaced as a whole with all results so far; else lines are appended */
    struct llm_output *stream;
    struct llm_buf text;
    double saved;
    json_t *results;           /* [json_array_size] so far */
    int64_t total;
    struct llm_progress bar;
};

static int put_line(struct items *f, const json_t *o, struct llm_err *e)
{
    size_t from = f->text.n;
    if (!f->path) return 0;
    if (llm_json_dump(o, &f->text, e) < 0 || llm_buf_put(&f->text, "\n", 1, e) < 0) return -1;
    return f->stream ? llm_output_write(f->stream, f->text.p + from, f->text.n - from, e) : 0;
}

static int save(struct items *f, struct llm_err *e)
{
    if (!f->path || !f->to_file) return 0;
    f->saved = llm_now();
    struct llm_output *o = llm_output_open(f->path, false, e);
    if (!o) return -1;
    if (llm_output_write(o, f->text.p, f->text.n, e) == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}

static int put_result(void *arg, json_t *result, struct llm_err *e)
{
    struct items *f = arg;
    if (json_array_append_new(f->results, result) < 0) return llm_no_memory(e, "a result");
    if (put_line(f, result, e) < 0) return -1;
    llm_progress_set(&f->bar, (int64_t)json_array_size(f->results), NULL);
    return f->to_file && llm_now() - f->saved > SAVE_EVERY ? save(f, e) : 0;
}

/* Reads a file of items: *about is its first line, *results the others. A line at the end that is cut short is left out. */
static int read_items(const char *path, json_t **about, json_t **results, struct llm_err *e)
{
    struct llm_buf b = {0};
    struct llm_file *f = llm_file_open(path, e);
    int64_t got = f ? 1 : -1, number = 0;
    while (got > 0) {
        got = llm_buf_reserve(&b, b.n + (1 << 16), e) < 0 ? -1 : llm_file_read_some(f, b.p + b.n, 1 << 16, e);
        if (got > 0) b.n += (size_t)got;
    }
    llm_file_close(f);
    *about = NULL;
    *results = json_array();
    for (size_t at = 0; got == 0 && at < b.n;) {
        const char *end = memchr(b.p + at, '\n', b.n - at);
        if (!end) break;
        json_t *o = llm_json_parse(b.p + at, (size_t)(end - b.p) - at, e);
        bool fits = o && (number == 0 ? json_is_string(json_object_get(o, "task")) : json_is_integer(json_object_get(o, "item")));
        at = (size_t)(end - b.p) + 1;
        if (!fits) {
            if (o) llm_fail(e, EX_DATAERR, "expected %s", number == 0 ? "a file of --items" : "the result of an item");
            json_decref(o);
            llm_in(e, "%s: line %" PRId64, path, number + 1);
            got = -1;
        } else if (number++ == 0) {
            *about = o;
        } else if (json_array_append_new(*results, o) < 0) {
            got = llm_no_memory(e, "results");
        }
    }
    llm_buf_release(&b);
    if (got == 0 && !*about) got = llm_fail(e, EX_DATAERR, "%s: expected a file of --items, found none", path);
    return got < 0 ? -1 : 0;
}

/* With --resume: takes the results of a run that was interrupted, which must have been this one. */
static int take_finished(struct items *f, const json_t *about, struct llm_err *e)
{
    struct stat st;
    json_t *before, *results;
    if (stat(f->path, &st) != 0 || st.st_size == 0) return 0;
    llm_paths_add(LLM_PATH_REPLACED, "--items", f->path); /* its lines are read, and stand in the file that replaces it */
    int status = read_items(f->path, &before, &results, e);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)about, key, v) {
        const json_t *old = json_object_get(before, key);
        if (status < 0 || json_equal(v, old)) continue;
        struct llm_buf now = {0}, was = {0};
        if (llm_json_dump(v, &now, e) == 0 && (!old || llm_json_dump(old, &was, e) == 0)) {
            llm_fail(e, EX_DATAERR, "--resume: %s: \"%s\": expected %s, found %s", f->path, key, now.p, was.p ? was.p : "none");
        }
        llm_buf_release(&now);
        llm_buf_release(&was);
        status = -1;
    }
    for (size_t i = 0; i < json_array_size(results) && status == 0; i++) {
        if (json_integer_value(json_object_get(json_array_get(results, i), "item")) == (json_int_t)i && (int64_t)i < f->total) continue;
        status = llm_fail(e, EX_DATAERR, "--resume: %s: line %zu: expected item %zu of %" PRId64, f->path, i + 2, i, f->total);
    }
    for (size_t i = 0; i < json_array_size(results) && status == 0; i++) {
        json_t *o = json_array_get(results, i);
        status = json_array_append(f->results, o) < 0 ? llm_no_memory(e, "results") : put_line(f, o, e);
    }
    json_decref(before);
    json_decref(results);
    return status;
}

/* ---- the run ---- */

struct run {
    const struct args *a;
    const char *data_path;
    struct llm_eval_task task;
    struct llm_eval_data data, shots_data;
    struct llm_model *model;
    struct llm_engine engine;
    struct llm_chat chat;
    struct llm_eval eval;
    struct items items;
};

static int load_model(struct run *r, struct llm_err *e)
{
    const struct args *a = r->a;
    struct llm_engine_options o = {.compute = (enum llm_compute)a->precision, .context = a->context, .batch = a->batch};
    o.cache = a->cache;
    if (bench_begin(&a->common, e) < 0 || llm_output_try(a->items, false, e) < 0) return -1;
    llm_signals_catch();
    r->model = llm_model_load(a->model, e);
    if (!r->model) return -1;
    if (llm_model_must_continue(r->model, e) < 0) return llm_in(e, "%s", a->model);
    if (a->tokenizer) {
        llm_tokenizer_destroy(r->model->tokenizer);
        r->model->tokenizer = llm_tokenizer_load(a->tokenizer, NULL, e);
        if (!r->model->tokenizer) return -1;
    }
    if ((a->chat || a->chat_template) && llm_chat_find(&r->chat, a->chat_template, a->model, r->model->tokenizer, e) < 0) return -1;
    return llm_engine_init(&r->engine, r->model, &o, e);
}

static int load_data(struct run *r, struct llm_err *e)
{
    const struct args *a = r->a;
    const char *shots_from = a->shots_from ? a->shots_from : r->task.shots_from;
    if (!r->data_path) r->data_path = r->task.data;
    if (!r->data_path) llm_usage(&bench_eval_cli, "task %s: expected data: an operand", r->task.name);
    if (llm_eval_data_load(&r->data, &r->task, r->data_path, a->labels ? a->labels : r->task.labels, e) < 0) return -1;
    r->eval.shots = a->shots >= 0 ? a->shots : r->task.shots;
    r->eval.shots_data = &r->data;
    if (!shots_from || r->eval.shots == 0) return 0;
    r->eval.shots_data = &r->shots_data;
    return llm_eval_data_load(&r->shots_data, &r->task, shots_from, NULL, e);
}

/* What the results depend on: the first line of the file of items. NULL: `e`. */
static json_t *describe(struct run *r, struct llm_err *e)
{
    const struct args *a = r->a;
    struct llm_buf task = {0};
    char hash[17];
    if (llm_json_dump(r->task.o, &task, e) < 0 || llm_model_fingerprint(r->model, e) < 0) return NULL;
    snprintf(hash, sizeof hash, "%016" PRIx64, llm_xxh64(task.p, task.n, 0));
    llm_buf_release(&task);
    json_t *o = json_pack("{ss,ss,ss,ss,sI,ss,sI,sI,ss,ss,sI,sf}", "task", r->task.name, "task_hash", hash, "data_hash", r->data.hash, "model",
                          r->model->fingerprint, "shots", (json_int_t)r->eval.shots, "shots_hash",
                          r->eval.shots_data == &r->shots_data ? r->shots_data.hash : "", "seed", (json_int_t)a->common.seed, "context",
                          (json_int_t)r->engine.context, "begins_with", llm_eval_beginning(&r->eval), "precision",
                          llm_compute_word(a->precision), "samples", (json_int_t)r->eval.samples, "temperature", r->eval.temperature);
    if (o) json_object_set_new(o, "cache_type", json_string(r->engine.pool.types));
    if (!o) llm_no_memory(e, "a description");
    return o;
}

static int begin_items(struct run *r, struct llm_err *e)
{
    struct items *f = &r->items;
    struct stat st;
    f->path = r->a->items;
    f->results = json_array();
    f->total = (int64_t)json_array_size(r->data.records);
    if (r->a->limit > 0 && f->total > r->a->limit) f->total = r->a->limit;
    f->saved = llm_now();
    if (!f->path) return 0;
    f->to_file = strcmp(f->path, "-") != 0 && (stat(f->path, &st) != 0 || S_ISREG(st.st_mode));
    if (!f->to_file && !(f->stream = llm_output_open(f->path, false, e))) return -1;
    json_t *about = describe(r, e);
    int status = about ? put_line(f, about, e) : -1;
    if (status == 0 && r->a->resume && f->to_file) status = take_finished(f, about, e);
    json_decref(about);
    return status;
}

/* 0, 1 when a signal was caught, -1. */
static int judge(struct run *r, struct llm_err *e)
{
    struct items *f = &r->items;
    if (begin_items(r, e) < 0) return -1;
    int64_t from = (int64_t)json_array_size(f->results);
    double started = llm_now();
    llm_progress_start(&f->bar, r->task.name, "items", f->total);
    int status = llm_eval_run(&r->eval, from, f->total, put_result, f, e);
    llm_progress_end(&f->bar);
    double seconds = llm_now() - started;
    struct llm_err second = {0};
    if (save(f, status < 0 ? &second : e) < 0) status = -1; /* after a failure too: what is known can be resumed */
    if (status == 0) status = llm_eval_check(&r->eval, e);
    if (status == 0 && from < f->total) {
        llm_note("%" PRId64 " items in %.1f s (%.1f items/s, %.0f tokens/s)", f->total - from, seconds, (double)(f->total - from) / seconds,
                 (double)r->engine.tokens / seconds);
    }
    if (r->eval.cut > 0) {
        llm_warn("%" PRId64 " items were longer than the context of %" PRId64 " tokens: their first tokens were dropped", r->eval.cut,
                 r->engine.context);
    }
    return status;
}

static int run(struct run *r, struct llm_err *e)
{
    const struct args *a = r->a;
    if (llm_eval_task_load(&r->task, a->task, e) < 0) return -1;
    if (load_data(r, e) < 0 || load_model(r, e) < 0) return -1;
    struct llm_eval *v = &r->eval;
    v->task = &r->task;
    v->data = &r->data;
    v->seed = (uint64_t)a->common.seed;
    v->engine = &r->engine;
    v->chat = r->chat.template ? &r->chat : NULL;
    v->bos = a->bos == 0 ? -1 : a->bos == 1;
    v->samples = a->samples;
    v->temperature = a->temperature >= 0 ? a->temperature : a->samples > 1 ? .8 : 0;
    v->parallel = a->parallel;
    int status = llm_eval_begin(v, e);
    if (status < 0) return llm_in(e, "%s", a->model);
    status = judge(r, e);
    if (status < 0) llm_in(e, "%s", r->data_path);
    return status;
}

static void release(struct run *r)
{
    llm_eval_release(&r->eval);
    llm_engine_release(&r->engine);
    llm_chat_release(&r->chat);
    llm_model_destroy(r->model);
    llm_eval_data_release(&r->data);
    llm_eval_data_release(&r->shots_data);
    llm_eval_task_release(&r->task);
    json_decref(r->items.results);
    llm_buf_release(&r->items.text);
}

static int compare(const struct args *a, const char *const *paths, struct llm_err *e)
{
    json_t *about[2] = {0}, *results[2] = {0};
    struct llm_table t, *tables[] = {&t};
    int status = 0;
    llm_table_init(&t, llm_eval_compare_columns);
    for (int i = 0; i < 2 && status == 0; i++) status = read_items(paths[i], &about[i], &results[i], e);
    static const char *const same[] = {"task_hash", "data_hash"};
    for (int i = 0; i < 2 && status == 0; i++) {
        if (json_equal(json_object_get(about[0], same[i]), json_object_get(about[1], same[i]))) continue;
        status = llm_fail(e, EX_DATAERR, "%s, %s: expected runs of one task over the same data, found another \"%s\"", paths[0], paths[1], same[i]);
    }
    if (status == 0) status = llm_eval_compare(&t, results[0], results[1], (uint64_t)a->common.seed, e);
    for (int i = 0; i < 2; i++) {
        json_decref(about[i]);
        json_decref(results[i]);
    }
    if (status == 0) return bench_print(&a->common, tables, 1, e);
    llm_table_release(&t);
    return -1;
}

static int show_task(const struct args *a, struct llm_err *e)
{
    struct llm_eval_task t = {0};
    struct llm_buf b = {0};
    int status = llm_eval_task_load(&t, a->task, e);
    if (status == 0) status = llm_json_dump(t.o, &b, e);
    struct llm_output *o = status == 0 ? llm_output_open(a->common.output, false, e) : NULL;
    if (!o) status = -1;
    if (o && llm_output_printf(o, e, "%s\n", b.p) == 0) status = llm_output_commit(o, e);
    else if (o) llm_output_abandon(o);
    llm_buf_release(&b);
    llm_eval_task_release(&t);
    return status;
}

int bench_eval(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.batch = 512, .precision = 1, .shots = -1, .samples = 1, .temperature = -1, .parallel = 32};
    int rest = llm_cli_parse(&bench_eval_cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    bench_check_cache(&bench_eval_cli, a.cache);
    if (a.compare && argc - rest != 2) llm_usage(&bench_eval_cli, "--compare: expected two files of --items, found %d", argc - rest);
    if (a.compare) return compare(&a, (const char *const *)argv + rest, e);
    if (!a.task) llm_usage(&bench_eval_cli, "expected a task: --task TASK");
    if (a.show_task) return show_task(&a, e);
    if (!a.model) llm_usage(&bench_eval_cli, "expected a model: -m MODEL");
    if (argc - rest > 1) llm_usage(&bench_eval_cli, "expected one file of data, found %d", argc - rest);
    if (a.resume && !a.items) llm_usage(&bench_eval_cli, "--resume: expected --items FILE");
    bool table = !a.items || strcmp(a.items, "-") != 0 || (a.common.output && strcmp(a.common.output, "-") != 0);
    struct run r = {.a = &a, .data_path = rest < argc ? argv[rest] : NULL};
    struct llm_table t, *tables[] = {&t};
    llm_table_init(&t, llm_eval_columns);
    int status = run(&r, e);
    if (status == 0) status = llm_eval_report(&t, &r.eval, r.items.results, e);
    if (r.items.stream && status == 0) status = llm_output_commit(r.items.stream, e);
    else llm_output_abandon(r.items.stream);
    release(&r);
    llm_pool_stop();
    llm_signal_die();
    if (status == 0 && table) return bench_print(&a.common, tables, 1, e);
    llm_table_release(&t);
    return status < 0 ? -1 : 0;
}
