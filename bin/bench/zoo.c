/* llm-bench zoo: every architecture trained with the same arithmetic on the same text, beside n-grams. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/paths.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/suggest.h"
#include "bin/bench/bench.h"
#include "cpu/pool.h"
#include "io/file.h"
#include "measure/cost.h"
#include "train/trainer.h"
#include "train/ngram_bar.h"

struct args {
    struct llm_common common;
    const char *tokenizer, *val;
    struct llm_strs only;
    double flops, lr;
    int64_t batch, context, seed;
    int precision;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'T', "tokenizer", "FILE", "the tokenizer that encoded the data", LLM_INPUT, AT(tokenizer), 0, 0, NULL},
    {0, "flops", "N", "FLOPs of training per architecture [5e13]", LLM_REAL, AT(flops), 1, 1e21, NULL},
    {0, "only", "NAME", "train only the architecture of this row; may be given several times", LLM_LIST, AT(only), 0, 0, NULL},
    {0, "val", "FILE|SHARE", "validate on FILE, or on the last SHARE (0 to 1) of the data [0.1]", LLM_INPUT, AT(val), 0, 0, NULL},
    {'b', "batch", "N", "rows in a step [16]", LLM_INT, AT(batch), 1, 65536, NULL},
    {0, "context", "N", "tokens in a row [128]", LLM_INT, AT(context), 1, 1 << 20, NULL},
    {0, "lr", "RATE", "learning rate of all architectures [each architecture's own]", LLM_REAL, AT(lr), 0, 10, NULL},
    {0, "seed", "N", "seed of initial weights and data order [1]", LLM_INT, AT(seed), 0, INT32_MAX, NULL},
    {0, "precision", "TYPE", "arithmetic of matrix products: %w [bf16]", LLM_CHOICE, AT(precision), 0, 0, NULL},
    {0}};

const struct llm_cli bench_zoo_cli = {
    .name = "llm-bench zoo",
    .summary = "Train every architecture with the same number of FLOPs on the same text; print one table.",
    .usage = "-T TOK [OPTION]... DATA...",
    .examples = "llm-bench zoo -T tok.json -o zoo.tsv corpus.tok\n"
                "llm-bench zoo -T tok.json --flops 1e12 --only llama --only moe corpus.tok",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_THREADS | LLM_COMMON_OUTPUT,
    .words = bench_zoo_words,
    .foreign = bench_foreign,
};

#define LLAMA "\"hidden_size\": 128, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true"

/* Each row computes with about 0.8M parameters for a token; transformers have four layers of width 128. */
static const struct row { const char *name, *config; double lr; } rows[] = {
    {"bengio", "{\"model_type\": \"mlp\", \"context_window\": 10, \"embedding_size\": 64, \"intermediate_size\": 1088,"
               " \"direct_connections\": true}", 4e-3},
    {"mlp", "{\"model_type\": \"mlp\", \"context_window\": 12, \"embedding_size\": 48, \"intermediate_size\": 512, \"num_hidden_layers\": 3,"
            " \"hidden_act\": \"relu\", \"initializer_range\": 0.06}", 2e-3},
    {"rnn", "{\"model_type\": \"rnn\", \"hidden_size\": 448, \"num_layers\": 2, \"tie_word_embeddings\": true}", 1e-3},
    {"lstm", "{\"model_type\": \"lstm\", \"hidden_size\": 224, \"num_layers\": 2, \"tie_word_embeddings\": true}", 4e-3},
    {"mamba", "{\"model_type\": \"mamba\", \"hidden_size\": 128, \"num_hidden_layers\": 7, \"state_size\": 16, \"tie_word_embeddings\": true}", 3e-3},
    {"mamba2", "{\"model_type\": \"mamba2\", \"hidden_size\": 128, \"num_hidden_layers\": 7, \"state_size\": 32, \"expand\": 2, \"num_heads\": 4,"
               " \"head_dim\": 64, \"n_groups\": 1, \"tie_word_embeddings\": true}", 3e-3},
    {"rwkv", "{\"model_type\": \"rwkv\", \"hidden_size\": 128, \"num_hidden_layers\": 4, \"intermediate_size\": 448, \"tie_word_embeddings\": true}",
     3e-3},
    {"rwkv5", "{\"model_type\": \"rwkv5\", \"hidden_size\": 128, \"num_hidden_layers\": 4, \"head_size\": 32, \"intermediate_size\": 384,"
              " \"tie_word_embeddings\": true}", 3e-3},
    {"rwkv6", "{\"model_type\": \"rwkv6\", \"hidden_size\": 128, \"num_hidden_layers\": 4, \"head_size\": 32, \"intermediate_size\": 288,"
              " \"time_mix_extra_dim\": 16, \"time_decay_extra_dim\": 16, \"tie_word_embeddings\": true}", 3e-3},
    {"rwkv7", "{\"model_type\": \"rwkv7\", \"hidden_size\": 128, \"num_hidden_layers\": 4, \"head_dim\": 32, \"intermediate_size\": 448,"
              " \"decay_low_rank_dim\": 16, \"a_low_rank_dim\": 16, \"v_low_rank_dim\": 16, \"gate_low_rank_dim\": 16,"
              " \"tie_word_embeddings\": true}", 3e-3},
    {"hyena", "{\"model_type\": \"hyenadna\", \"d_model\": 128, \"n_layer\": 4, \"emb_dim\": 5, \"filter_order\": 32,"
              " \"activation_freq\": 10, \"embed_dropout\": 0, \"pad_vocab_size_multiple\": 1, \"tie_word_embeddings\": true}", 3e-3},
    {"gpt2", "{\"model_type\": \"gpt2\", \"n_embd\": 128, \"n_layer\": 4, \"n_head\": 4, \"bias\": false, \"embd_pdrop\": 0, \"attn_pdrop\": 0,"
             " \"resid_pdrop\": 0}", 2e-3},
    {"llama", "{\"model_type\": \"llama\", " LLAMA ", \"intermediate_size\": 344}", 3e-3},
    {"llama-mqa", "{\"model_type\": \"llama\", " LLAMA ", \"num_key_value_heads\": 1, \"intermediate_size\": 408}", 3e-3},
    {"llama-window", "{\"model_type\": \"llama\", " LLAMA ", \"intermediate_size\": 344, \"sliding_window\": 32}", 3e-3},
    {"llama-shared-kv", "{\"model_type\": \"llama\", " LLAMA ", \"intermediate_size\": 388, \"kv_sharing\": 2}", 3e-3},
    {"perceiver", "{\"model_type\": \"perceiver\", " LLAMA ", \"intermediate_size\": 344, \"num_latents\": 32}", 3e-3},
    {"mla", "{\"model_type\": \"deepseek_v2\", " LLAMA ", \"kv_lora_rank\": 48, \"q_lora_rank\": null, \"qk_nope_head_dim\": 16,"
            " \"qk_rope_head_dim\": 16, \"v_head_dim\": 32, \"n_routed_experts\": null, \"intermediate_size\": 344}", 3e-3},
    {"moe", "{\"model_type\": \"mixtral\", " LLAMA ", \"num_key_value_heads\": 4, \"rope_theta\": 10000, \"intermediate_size\": 172,"
            " \"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"router_aux_loss_coef\": 0.01}", 3e-3},
    {"mla-moe", "{\"model_type\": \"deepseek_v3\", " LLAMA ", \"kv_lora_rank\": 48, \"q_lora_rank\": null, \"qk_nope_head_dim\": 16,"
                " \"qk_rope_head_dim\": 16, \"v_head_dim\": 32, \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"n_shared_experts\": 1,"
                " \"moe_intermediate_size\": 112, \"first_k_dense_replace\": 1, \"n_group\": 1, \"topk_group\": 1, \"routed_scaling_factor\": 1,"
                " \"intermediate_size\": 344}", 3e-3},
};
enum { N_ROWS = sizeof rows / sizeof *rows, MAX_ORDER = 5 };

static const char *const columns[] = {"model", "parameters", "active", "flops_per_token", "tokens", "tokens_per_s", "state_bytes_per_token",
                                      "state_bytes", "val_nats", "val_bits_per_byte", NULL};

/* The table while it grows: lines of text, beginning with those of an earlier run. */
struct sheet {
    const struct args *a;
    struct llm_buf text;
    bool to_file;
    struct llm_output *stream; /* where lines go that are not to a file; opened by the first */
};

static bool has_row(const struct sheet *s, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = s->text.p; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (strncmp(p, name, n) == 0 && p[n] == '\t') return true;
    }
    return false;
}

/* A table without rows has its heading alone. */
static int put_header(struct sheet *s, struct llm_err *e)
{
    struct llm_table t;
    llm_table_init(&t, columns);
    return llm_table_show(&t, LLM_TABLE_TSV, &s->text, e);
}

static int begin(struct sheet *s, struct llm_err *e)
{
    struct stat st;
    const char *path = s->a->common.output;
    s->to_file = path && strcmp(path, "-") != 0 && (stat(path, &st) != 0 || S_ISREG(st.st_mode));
    if (!s->to_file || stat(path, &st) != 0 || st.st_size == 0) return put_header(s, e);
    if (st.st_size > 1 << 20) return llm_fail(e, EX_DATAERR, "%s: expected the table of an earlier run, found more than 1 MiB", path);
    llm_paths_add(LLM_PATH_REPLACED, "-o", path); /* its rows are read, and stand in the file that replaces it */
    struct llm_file *f = llm_file_open(path, e);
    if (!f) return -1;
    char block[4096];
    int64_t n;
    while ((n = llm_file_read_some(f, block, sizeof block, e)) > 0) {
        if (llm_buf_put(&s->text, block, (size_t)n, e) < 0) n = -1;
        if (n < 0) break;
    }
    llm_file_close(f);
    if (n < 0) return -1;
    if (strncmp(s->text.p, "model\tparameters\t", 17) == 0 && s->text.p[s->text.n - 1] == '\n') return 0;
    return llm_fail(e, EX_DATAERR, "%s: expected the table of an earlier run, or no file", path);
}

/* Appends a line: the whole file is written again, and replaced only when it is complete. */
static int put_line(struct sheet *s, const char *name, const struct llm_cost *cost, double flops, double tokens, double rate, const double bytes[2],
                    double nats, double bits, struct llm_err *e)
{
    size_t at = s->text.n;
    struct llm_table t;
    const double numbers[] = {cost ? cost->params : NAN, cost ? cost->active_params : NAN, flops, tokens, rate, bytes[0], bytes[1], nats, bits};
    llm_table_init(&t, columns);
    t.no_heading = true;
    llm_table_text(&t, name);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (i < 7 || isnan(numbers[i])) llm_table_count(&t, numbers[i]);
        else llm_table_printed(&t, numbers[i], LLM_NUMBER_FIXED, 4);
    }
    int r = llm_table_show(&t, LLM_TABLE_TSV, &s->text, e);
    llm_table_release(&t);
    if (r < 0) return -1;
    struct llm_output *o = s->stream ? s->stream : llm_output_open(s->a->common.output, false, e);
    if (!o) return -1;
    size_t from = s->stream ? at : 0; /* a stream gets each line once */
    if (!s->to_file) s->stream = o;
    r = llm_output_write(o, s->text.p + from, s->text.n - from, e);
    if (!s->to_file) return r < 0 ? -1 : llm_output_flush(o, e);
    if (r == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}

struct zoo {
    const struct args *a;
    const char *const *paths;
    size_t n_paths;
    struct sheet sheet;
};

static int open_data(const struct zoo *z, const struct llm_tokenizer *t, struct llm_train_data *d, struct llm_err *e)
{
    return llm_train_data_open(d, z->paths, z->n_paths, z->a->val, llm_tokenizer_id(t), llm_tokenizer_vocab_size(t), e);
}

static int make(const struct zoo *z, const struct row *row, struct llm_model **m, struct llm_cost *cost, struct llm_err *e)
{
    struct llm_config c;
    char vocab[64], context[64];
    bool gpt2 = strcmp(row->name, "gpt2") == 0;
    struct llm_tokenizer *t = llm_tokenizer_load(z->a->tokenizer, NULL, e);
    if (!t) return -1;
    snprintf(vocab, sizeof vocab, "vocab_size=%d", (int)llm_tokenizer_vocab_size(t));
    snprintf(context, sizeof context, "%s=%lld", gpt2 ? "n_positions" : "max_position_embeddings", (long long)z->a->context);
    const char *const sets[] = {vocab, context, "bos_token_id=null", "eos_token_id=null"};
    int r = llm_config_load_text(&c, row->config, sets, sizeof sets / sizeof *sets, e);
    if (r == 0) r = llm_cost_of(cost, &c, (z->a->context + 1) / 2, e); /* a token sees half of its row on average */
    if (r == 0 && !(*m = llm_model_create(&c, (uint64_t)z->a->seed, e))) r = -1;
    if (r == 0) (*m)->tokenizer = t;
    else llm_tokenizer_destroy(t);
    return r;
}

/* Returns 1 if a signal was caught, 0, or -1. */
static int steps(struct llm_trainer *t, const char *name, struct llm_err *e)
{
    struct llm_progress bar;
    struct llm_step_report report;
    char note[80];
    int r = 0;
    llm_progress_start(&bar, name, "steps", t->o.steps);
    while (r == 0 && t->step < t->o.steps) {
        r = llm_signal_caught() ? 1 : llm_trainer_step(t, &report, e);
        if (r) break;
        snprintf(note, sizeof note, "loss %.4f", report.loss);
        llm_progress_set(&bar, t->step, note);
    }
    llm_progress_end(&bar);
    return r;
}

static int train_row(struct zoo *z, const struct row *row, struct llm_err *e)
{
    struct llm_model *m = NULL;
    struct llm_cost cost;
    struct llm_train_data d = {0};
    struct llm_trainer t = {0};
    struct llm_train_options o;
    if (make(z, row, &m, &cost, e) < 0) return -1;
    if (open_data(z, m->tokenizer, &d, e) < 0) {
        llm_model_destroy(m);
        llm_train_data_release(&d);
        return -1;
    }
    llm_train_options_default(&o);
    double flops = 3 * (cost.forward_flops + cost.next_flops), tokens = (double)(z->a->batch * z->a->context), nats, bits;
    o.batch = z->a->batch;
    o.context = z->a->context;
    o.lr = z->a->lr > 0 ? z->a->lr : row->lr;
    o.seed = z->a->seed;
    o.steps = (int64_t)fmax(1, z->a->flops / (flops * tokens));
    o.precision = z->a->precision;
    const double bytes[2] = {llm_model_kv_bytes_per_token(&m->config, LLM_BF16), llm_model_state_bytes(&m->config)};
    int r = llm_trainer_init(&t, &o, m, &d, e);
    double started = llm_now();
    if (r == 0) r = steps(&t, row->name, e);
    double seconds = llm_now() - started;
    if (r == 0) r = llm_trainer_eval(&t, &nats, &bits, e);
    tokens *= (double)t.o.steps;
    if (r == 0) r = put_line(&z->sheet, row->name, &cost, flops, tokens, tokens / seconds, bytes, nats, bits, e);
    llm_trainer_release(&t);
    return r;
}

static int count_row(struct zoo *z, int order, const char *name, struct llm_err *e)
{
    struct llm_train_data d = {0};
    struct llm_ngram_bar bar;
    const struct llm_ngram_options o = {.order = order};
    struct llm_tokenizer *t = llm_tokenizer_load(z->a->tokenizer, NULL, e);
    const double none[2] = {0, 0};
    int r = t ? open_data(z, t, &d, e) : -1;
    if (r == 0) r = llm_ngram_bar(&d, t, llm_tokenizer_vocab_size(t), &o, &bar, e);
    if (r == 0) r = put_line(&z->sheet, name, NULL, NAN, NAN, NAN, none, bar.nats, bar.bits_per_byte, e);
    llm_train_data_release(&d);
    llm_tokenizer_destroy(t);
    return r;
}

static bool wanted(const struct zoo *z, const char *name)
{
    bool listed = z->a->only.n == 0;
    for (size_t i = 0; i < z->a->only.n; i++) listed |= strcmp(z->a->only.v[i], name) == 0;
    return listed && !has_row(&z->sheet, name);
}

static int run(struct zoo *z, struct llm_err *e)
{
    int r = begin(&z->sheet, e);
    char name[32];
    for (int order = 1; r == 0 && order <= MAX_ORDER; order++) {
        snprintf(name, sizeof name, "ngram-%d", order);
        if (wanted(z, name)) r = count_row(z, order, name, e);
    }
    for (size_t i = 0; r == 0 && i < N_ROWS; i++) {
        if (wanted(z, rows[i].name)) r = train_row(z, &rows[i], e);
    }
    return r;
}

static void check_names(const struct args *a)
{
    for (size_t i = 0; i < a->only.n; i++) {
        char name[32], list[400];
        bool known = false;
        struct llm_suggest near;
        llm_suggest_begin(&near, a->only.v[i]);
        for (int order = 1; order <= MAX_ORDER; order++) {
            snprintf(name, sizeof name, "ngram-%d", order);
            known |= strcmp(name, a->only.v[i]) == 0;
        }
        snprintf(list, sizeof list, "ngram-1 to %s", name);
        for (size_t k = 0; k < N_ROWS; k++) {
            known |= strcmp(rows[k].name, a->only.v[i]) == 0;
            strncat(list, ", ", sizeof list - strlen(list) - 1);
            strncat(list, rows[k].name, sizeof list - strlen(list) - 1);
            llm_suggest_add(&near, rows[k].name, rows[k].name);
        }
        if (!known) llm_usage(&bench_zoo_cli, "--only: expected one of %s; found '%s'%s", list, a->only.v[i], llm_suggest_text(&near, ""));
    }
}

int bench_zoo(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.val = "0.1", .flops = 5e13, .batch = 16, .context = 128, .seed = 1, .precision = 1};
    int rest = llm_cli_parse(&bench_zoo_cli, &a, argc, argv);
    if (rest == argc) llm_usage(&bench_zoo_cli, "expected data");
    if (!a.tokenizer) llm_usage(&bench_zoo_cli, "expected a tokenizer (-T)");
    check_names(&a);
    if (bench_begin(&a.common, e) < 0) return -1;
    llm_signals_catch();
    struct zoo z = {.a = &a, .paths = (const char *const *)argv + rest, .n_paths = (size_t)(argc - rest), .sheet = {.a = &a}};
    int r = run(&z, e);
    if (z.sheet.stream && r < 0) llm_output_abandon(z.sheet.stream);
    else if (z.sheet.stream && llm_output_commit(z.sheet.stream, e) < 0) r = -1;
    llm_buf_release(&z.sheet.text);
    llm_pool_stop();
    llm_signal_die();
    return r < 0 ? -1 : 0;
}
