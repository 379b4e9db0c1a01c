/* Wiring of llm-train: from options to a trainer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bin/train/train.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/suggest.h"
#include "infer/predictor.h"
#include "model/weights/beside.h"
#include "model/weights/ngram.h"
#include "model/config/preset.h"
#include "model/weights/lora.h"
#include "train/gradcheck.h"
#include "train/metrics.h"
#include "train/plan.h"

bool llm_run_is_ngram(const struct args *a)
{
    return !llm_objectives[a->o.objective]->run;
}

void llm_run_order(const struct llm_cli *cli, struct args *a)
{
    struct llm_suggest near;
    struct llm_err e = {0};
    int64_t n;
    a->ngram_order = 0;
    if (a->activations && llm_train_options_stored(&a->o, a->activations, &e) < 0) llm_usage(cli, "%s", e.text);
    llm_suggest_begin(&near, a->order ? a->order : "");
    for (int i = 0; a->order && llm_order_word(i); i++) {
        llm_suggest_add(&near, llm_order_word(i), llm_order_word(i));
        if (strcmp(a->order, llm_order_word(i)) != 0) continue;
        if (llm_run_is_ngram(a)) llm_usage(cli, "--order: expected a number, of tokens of an n-gram, found '%s'", a->order);
        a->o.order = i;
        return;
    }
    if (!a->order) return;
    if (!llm_run_is_ngram(a) && !a->ngram_bar)
        llm_usage(cli, "--order: expected one of shuffle, random, sequential; found '%s'%s", a->order, llm_suggest_text(&near, ""));
    if (llm_parse_int(a->order, &n) < 0 || n < 1 || n > LLM_NGRAM_MAX_ORDER) {
        llm_usage(cli, "--order: expected 1 to %d, found '%s'", LLM_NGRAM_MAX_ORDER, a->order);
    }
    a->ngram_order = (int)n;
}

/* Networks are written as .llm or safetensors, which holds no run that could go on. */
static void check_outputs(const struct llm_cli *cli, const struct args *a)
{
    const struct { const char *option, *path; enum llm_model_format to; } outputs[] = {
        {"-o", a->common.output, llm_run_format(a->common.output, a->to)},
        {"--keep-best", a->best, llm_run_format(a->best, -1)}, {"--ema-output", a->ema_output, llm_run_format(a->ema_output, -1)}};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const char *path = outputs[i].path;
        if (!path) continue;
        if (outputs[i].to == LLM_FORMAT_ARPA) llm_usage(cli, "%s %s: expected llm or safetensors: arpa is text of n-grams (--objective ngram)",
                                                outputs[i].option, path);
        if (llm_model_format_of(path) == LLM_FORMAT_GGUF && (i > 0 || a->to < 0)) {
            llm_usage(cli, "%s %s: expected llm or safetensors: llm-quantize makes GGUF of them", outputs[i].option, path);
        }
    }
    if (outputs[0].to != LLM_FORMAT_SAFETENSORS) return;
    if (a->save_every) llm_usage(cli, "--save-every: expected -o FILE.llm: safetensors have the model alone, and nothing to resume");
    if (a->resume) llm_usage(cli, "--resume: expected -o FILE.llm, or no -o: safetensors have the model alone; llm-quantize -t keep makes them");
}

static void take_patterns(const struct llm_cli *cli, const char *option, const struct llm_strs *given, struct llm_patterns *p)
{
    if (given->n > LLM_MAX_PATTERNS) llm_usage(cli, "--%s: expected at most %d patterns, found %zu", option, LLM_MAX_PATTERNS, given->n);
    p->n = given->n;
    for (size_t i = 0; i < given->n; i++) p->v[i] = given->v[i];
}

void llm_run_patterns(const struct llm_cli *cli, struct args *a)
{
    llm_run_check_adapter(cli, a);
    if (a->resume && a->tower) llm_usage(cli, "--tower: a run that is resumed has its tower");
    if (a->resume && (a->train.n > 0 || a->freeze.n > 0)) llm_usage(cli, "--train, --freeze: a run that is resumed trains what it began with");
    take_patterns(cli, "train", &a->train, &a->o.train);
    take_patterns(cli, "freeze", &a->freeze, &a->o.freeze);
}

/* A snapshot completes the file of the run. */
static void check_snapshot(const struct llm_cli *cli, const struct args *a)
{
    const char *o = a->common.output ? a->common.output : a->resume;
    if (!a->snapshot) return;
    if (!o || strcmp(o, "-") == 0 || llm_run_format(o, a->to) != LLM_FORMAT_LLM) llm_usage(cli, "--snapshot: expected -o FILE.llm");
    if (a->resume && strcmp(o, a->resume) != 0) llm_usage(cli, "--snapshot: expected the file of --resume as -o, found %s", o);
    if (a->teach.prompts) llm_usage(cli, "--snapshot: expected training on data, found --prompts");
}

/* Objectives whose parameters are learned beside a model. */
static void check_beside(const struct llm_cli *cli, const struct args *a)
{
    const struct llm_objective *o = llm_objectives[a->o.objective];
    if (!o->beside) return;
    if (a->config) llm_usage(cli, "--objective %s: expected the model that it looks into, --init MODEL", o->name);
    if (a->init && strcmp(a->init, "-") == 0) {
        llm_usage(cli, "--objective %s: expected a file that is found again as --init, not standard input", o->name);
    }
    if (a->adapter >= 0 || a->train.n > 0 || a->freeze.n > 0) {
        llm_usage(cli, "--objective %s leaves the model as it is: expected no --adapter, --train or --freeze", o->name);
    }
    if (a->plan) llm_usage(cli, "--plan: expected an objective that trains the model, found %s", o->name);
}

int llm_run_check(const struct llm_cli *cli, const struct args *a, int has_data, struct llm_err *e)
{
    int sources = (a->config != NULL) + (a->init != NULL) + (a->resume != NULL);
    if (sources != 1) llm_usage(cli, "expected one of -c CONFIG, --init MODEL, --resume FILE; found %d", sources);
    if (a->mup != (a->o.mup_base_width > 0)) llm_usage(cli, "--mup and --base-width need each other");
    if (a->mup && a->resume) llm_usage(cli, "--mup: a run that is resumed keeps how it began");
    if (a->base_head_dim && !a->mup) llm_usage(cli, "--base-head-dim needs --mup");
    if (a->coordcheck && !a->config) llm_usage(cli, "--coordcheck makes new models: it needs -c");
    if (a->coordcheck_png && !a->coordcheck) llm_usage(cli, "--coordcheck-png needs --coordcheck");
    if (a->o.batch_tokens > 0 && a->o.accumulate > 1) llm_usage(cli, "--batch-tokens and --accumulate exclude each other");
    if (a->sets.n > 0 && !a->config) llm_usage(cli, "--set changes a new configuration: it needs -c");
    llm_run_check_teach(cli, a, has_data);
    check_beside(cli, a);
    if (a->plan && a->o.epochs > 0) llm_usage(cli, "--plan does not read the data: expected --steps, found --epochs");
    if (a->plan || a->gradcheck || a->coordcheck || a->show > 0) return 0;
    check_outputs(cli, a);
    check_snapshot(cli, a);
    bool needs_data = !a->resume && a->o.steps > 0 && !a->teach.prompts;
    if (!has_data && needs_data) llm_usage(cli, "expected data: token streams that llm-tokenize encode made, or - for stdin");
    if (!a->resume && !a->common.output && !a->o.overfit_one) llm_usage(cli, "expected -o OUT.llm (- writes to stdout)");
    if (a->save_every && a->common.output && strcmp(a->common.output, "-") == 0) llm_usage(cli, "--save-every needs a file to write to: -o FILE");
    if (a->log && strcmp(a->log, "-") == 0 && a->common.output && strcmp(a->common.output, "-") == 0) {
        llm_usage(cli, "-o - and --log - cannot both have stdout");
    }
    (void)e;
    return 0;
}

void llm_run_unpack(const struct llm_cli *cli, struct llm_train_options *o)
{
    if (o->batch_tokens == 0 || !llm_objectives[o->objective]->by_tokens) return;
    if (llm_option_given(o, "packing") && llm_option_word(o, "packing") == 1) {
        llm_usage(cli, "--batch-tokens: expected conversations in rows of their own, not --packing yes");
    }
    llm_option_set_word(o, "packing", false);
}

int llm_run_keeps_tokens(const struct llm_train_options *o, const struct llm_train_options *stored, struct llm_err *e)
{
    if (o->batch_tokens == stored->batch_tokens || !llm_objective_documents(llm_objectives[o->objective], o)) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--batch-tokens: expected the %lld of the run that goes on (0: it counts rows), found %lld",
                    (long long)stored->batch_tokens, (long long)o->batch_tokens);
}

int llm_run_load(struct llm_run *r, const char *path, const char *base, struct llm_train_options *o, struct llm_err *e)
{
    llm_train_options_default(o);
    int is_adapter = llm_lora_is_file(path, e);
    r->model = is_adapter < 0 ? NULL : is_adapter ? llm_lora_load_with_base(path, e) : llm_beside_kind(path) ? llm_beside_load(path, base, e)
        : llm_model_load(path, e);
    if (!r->model) return -1;
    if (!r->model->training)
        return llm_fail(e, EX_DATAERR, "%s: expected a training state, found a model alone; --init begins from its weights", path);
    return llm_state_options(r->model, o, e) < 0 ? llm_in(e, "%s", path) : 0;
}

static bool is_set(const struct args *a, const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 0; i < a->sets.n; i++) {
        if (strncmp(a->sets.v[i], key, n) == 0 && a->sets.v[i][n] == '=') return true;
    }
    return false;
}

/* What a new configuration takes from the tokenizer and the options. */
static int fit_config(struct llm_config *c, const struct args *a, const struct llm_tokenizer *tok, int64_t data_vocab, struct llm_err *e)
{
    bool preset = llm_preset_find(a->config) != NULL;
    if (c->patch_size > 0) return tok ? llm_fail(e, LLM_EX_USAGE, "%s: expected no tokenizer (-T) for a model of pictures", a->config) : 0;
    int64_t vocab = tok ? llm_tokenizer_vocab_size(tok) : data_vocab;
    if (vocab > 0 && (preset || c->vocab_size == 0) && !is_set(a, "vocab_size")) c->vocab_size = vocab;
    if (c->vocab_size < 1) return llm_fail(e, LLM_EX_USAGE, "%s: vocab_size: expected one, or a tokenizer (-T) that says it", a->config);
    if (vocab > c->vocab_size) {
        return llm_fail(e, EX_DATAERR, "%s: vocab_size: expected at least the tokenizer's %lld, found %lld", a->config, (long long)vocab,
                        (long long)c->vocab_size);
    }
    if (c->bidirectional && preset && c->mask_token_id < 0 && !(tok && llm_tokenizer_special(tok, "[MASK]") >= 0)
        && !(tok && llm_tokenizer_special(tok, "<mask>") >= 0)) c->mask_token_id = c->vocab_size++; /* a new token after those of the tokenizer */
    const int32_t image = tok && llm_config_projects(c) ? llm_tokenizer_special(tok, "<image>") : -1;
    if (image >= 0 && preset) c->projector.image_token = image;
    if (tok && (preset || c->bos_token_id < 0)) c->bos_token_id = llm_tokenizer_bos(tok);
    if (tok && (preset || c->eos_token_id < 0)) c->eos_token_id = llm_tokenizer_eos(tok);
    bool limited = llm_config_is_limited(c), free_limit = preset && !is_set(a, "n_positions") && !is_set(a, "max_seq_len");
    if (a->o.context > 0 && ((limited && free_limit) || (!limited && a->o.context > c->max_position_embeddings))) {
        c->max_position_embeddings = a->o.context;
    }
    return 0;
}

/* What the objective asks for. */
static int configure(struct llm_config *c, const struct args *a, const struct llm_train_data *data, struct llm_err *e)
{
    const struct llm_objective *o = llm_objectives[a->o.objective];
    if (!o->configure || a->resume) return 0;
    return o->configure(c, &a->o, data, e) < 0 ? llm_in(e, "--objective %s", o->name) : 0;
}

/* Names of the classes of a model without names: those that the data has, else those by which it is read again. */
static int name_classes(struct llm_model *m, const struct llm_train_data *data, struct llm_err *e)
{
    const struct llm_labels *names;
    if (llm_labels_count(&m->labels) > 0) return 0;
    const bool named = data->train && llm_tokens_labels(data->train, &names) && llm_labels_count(names) == m->config.num_labels;
    return named ? llm_labels_sorted(&m->labels, names, e) : llm_model_read_labels(m, NULL, e);
}

static int new_model(struct llm_run *r, const struct args *a, struct llm_tokenizer *tok, const struct llm_train_data *data, struct llm_err *e)
{
    struct llm_config c;
    int64_t vocab = llm_train_data_vocab_size(data);
    if (llm_config_load(&c, a->config, a->sets.v, a->sets.n, e) < 0 || fit_config(&c, a, tok, vocab, e) < 0
        || configure(&c, a, data, e) < 0) {
        return -1;
    }
    bool masks = strcmp(llm_objectives[a->o.objective]->name, "mlm") == 0 && strcmp(c.model_type, "bert") == 0;
    if (masks && !is_set(a, "prediction_head")) c.head_transform = true; /* also where the configuration is a BertModel's, which has no head */
    r->config = c;
    if (a->mup) llm_config_mup(&c, a->o.mup_base_width, a->base_head_dim);
    if (a->plan || a->coordcheck) return 0;
    r->model = llm_model_create(&c, (uint64_t)a->o.seed, e);
    return r->model ? name_classes(r->model, data, e) : -1;
}

/* Prepares the model of --init for the objective. If the objective needs another kind of head, the head gets new weights. */
static int refit_model(struct llm_run *r, const struct args *a, const struct llm_train_data *data, struct llm_err *e)
{
    struct llm_config c = r->model->config;
    if (configure(&c, a, data, e) < 0) return -1;
    if (a->resume) return 0;
    if (c.num_labels == r->model->config.num_labels && c.contrastive == r->model->config.contrastive
        && c.sigmoid_loss == r->model->config.sigmoid_loss) {
        r->model->config = c;
        return 0;
    }
    struct llm_model *m = llm_model_graft(r->model, &c, (uint64_t)a->o.seed, e);
    if (!m) return -1;
    llm_model_destroy(r->model);
    r->model = m;
    return name_classes(m, data, e);
}

/* Fine-tuning without --context takes the model's context, but no more tokens than the training data leaves to predict. */
static void fit_context(struct llm_train_options *o, const struct llm_model *m, const struct llm_train_data *d)
{
    uint64_t held = d->train ? (uint64_t)((double)llm_tokens_count(d->train) * (1 - d->val_share)) : 0;
    int64_t context = llm_config_default_context(&m->config);
    if (o->context > 0 || held < 2 || held > (uint64_t)context) return;
    o->context = (int64_t)held - 1;
    llm_note("--context %lld: the training data has %llu tokens, the model's context is %lld", (long long)o->context, (unsigned long long)held,
             (long long)context);
}

static int take_tower(struct llm_model *m, const char *path, struct llm_err *e)
{
    struct llm_model *from = llm_model_load(path, e);
    const int status = from ? llm_model_take_tower(m, from, e) : -1;
    llm_model_destroy(from);
    return status < 0 && from ? llm_in(e, "--tower %s", path) : status;
}

/* What the objective asks of the configuration and the tokenizer, which the steps that a plan tries do without. */
static int check_planned(const struct llm_run *r, const struct args *a, struct llm_tokenizer *tok, struct llm_err *e)
{
    const struct llm_objective *o = llm_objectives[a->o.objective];
    struct llm_model m = r->model ? *r->model : (struct llm_model){.params = NULL};
    m.config = r->config;
    if (tok) m.tokenizer = tok;
    return o->check(&m, e) < 0 ? llm_in(e, "--objective %s", o->name) : 0;
}

static int make(struct llm_run *r, const struct args *a, struct llm_tokenizer **tok, const char *const *data, size_t n_data, struct llm_err *e)
{
    struct llm_train_data d = {0};
    if (a->tokenizer && !(*tok = llm_tokenizer_load(a->tokenizer, NULL, e))) return -1;
    if (a->init && !(r->model = llm_model_load(a->init, e))) return -1;
    if (a->adapter >= 0 && llm_model_base_fingerprint(r->model, e) < 0) return llm_in(e, "%s", a->init); /* before anything changes */
    const char *refused = r->model ? llm_predictor_of(r->model)->not_trained : NULL;
    if (refused) return llm_fail(e, EX_DATAERR, "%s: %s", a->init, refused);
    if (*tok && r->model && llm_tokenizer_vocab_size(*tok) > r->model->config.vocab_size) {
        return llm_fail(e, EX_DATAERR, "%s: expected a tokenizer of at most the model's %lld tokens, found %d", a->tokenizer,
                        (long long)r->model->config.vocab_size, (int)llm_tokenizer_vocab_size(*tok));
    }
    if (a->resume && !r->model->run_file != !llm_objectives[a->o.objective]->beside) {
        return llm_fail(e, LLM_EX_USAGE, "--objective %s: expected the kind of run that %s is, which --resume goes on with",
                        llm_objectives[a->o.objective]->name, a->resume);
    }
    const struct llm_model *loaded = r->model;
    int got = llm_run_open_data(r, a, *tok, data, n_data, &d, e);
    if (got == 0 && a->config) got = new_model(r, a, *tok, &d, e);
    else if (got == 0) got = refit_model(r, a, &d, e);
    if (got == 0 && a->tower && r->model) got = take_tower(r->model, a->tower, e);
    if (got == 0 && a->adapter >= 0) got = llm_run_adapt(r, a, loaded, e);
    if (got < 0) {
        llm_train_data_release(&d);
        return -1;
    }
    if (a->plan || a->coordcheck) {
        if (!a->config) r->config = r->model->config;
        llm_train_data_release(&d);
        return a->plan ? check_planned(r, a, *tok, e) : 0;
    }
    struct llm_model *m = r->model;
    if (*tok) {
        llm_tokenizer_destroy(m->tokenizer);
        m->tokenizer = *tok;
        *tok = NULL;
    }
    if (a->o.dropout >= 0) llm_model_set_dropout(m, a->o.dropout);
    if (a->o.dropout >= 0 && m->lora) m->lora->model_dropout = a->o.dropout;
    if (llm_run_open_lines(r, a, data, n_data, &d, e) < 0 || (a->teach.prompts && llm_train_data_later(&d, e) < 0)) {
        llm_train_data_release(&d);
        return -1;
    }
    struct llm_train_options o = a->o;
    struct llm_plan_trials trials = {0};
    if (a->gradcheck) o.precision = LLM_COMPUTE_F32;
    if (a->init) fit_context(&o, m, &d);
    const char *fixed = llm_objectives[o.objective]->init_option;
    if (fixed && a->init && !llm_option_given(&o, fixed)) llm_option_set_text(&o, fixed, a->init);
    if (llm_run_choose(r, &m->config, m, &o, &trials, e) < 0) {
        llm_train_data_release(&d);
        return -1;
    }
    r->model = NULL; /* the trainer's from here on */
    const struct llm_layout *l = &r->trainer.layout;
    if (l->zero == 3 && llm_layout_members(l) > 1) llm_free_at_once(); /* what the first rank collects while it saves is not planned to stay */
    if (llm_trainer_init(&r->trainer, &o, m, &d, e) < 0) return -1;
    return a->resume && llm_state_restore(&r->trainer, e) < 0 ? llm_in(e, "%s", a->resume) : 0;
}

int llm_run_begin(struct llm_run *r, const struct args *a, const char *const *data, size_t n_data, struct llm_err *e)
{
    struct llm_tokenizer *tok = NULL;
    if (llm_run_check_stdin(a, data, n_data, e) < 0) return -1;
    if (a->ema_output && a->o.ema == 0) return llm_fail(e, LLM_EX_USAGE, "--ema-output: expected an average of the weights (--ema), found none");
    bool writes = !a->plan && !a->gradcheck && !a->coordcheck && !a->show && llm_comm_rank(r->trainer.comm) == 0;
    if (writes && (llm_output_try(a->common.output, true, e) < 0 || llm_output_try(a->best, true, e) < 0
                                                       || llm_output_try(a->ema_output, true, e) < 0)) {
        return -1;
    }
    int got = make(r, a, &tok, data, n_data, e);
    llm_tokenizer_destroy(tok);
    return got;
}

/* A model without its run. */
static enum llm_save_as alone(const char *path)
{
    return llm_run_format(path, -1) == LLM_FORMAT_SAFETENSORS ? LLM_SAVE_SAFETENSORS : LLM_SAVE_MODEL;
}

int llm_run_go(struct llm_run *r, const struct args *a, struct llm_err *e)
{
    struct llm_metrics metrics;
    struct llm_trainer *t = &r->trainer;
    if (a->plan) {
        struct llm_plan plan;
        struct llm_plan_trials trials = {0};
        if (llm_run_choose(r, &r->config, r->model, &a->o, &trials, e) < 0) return -1;
        if (llm_plan_make(&plan, &r->config, r->model, &a->o, &t->layout, &trials, e) < 0) return -1;
        plan.peak = llm_measured_peak((enum llm_compute)a->o.precision);
        return llm_plan_print(&plan, llm_table_form(&a->common), e);
    }
    if (a->gradcheck) return llm_gradcheck_print(t, llm_table_form(&a->common), e);
    if (a->show > 0) return llm_run_show(t, a, e);
    int counted = a->ngram_bar ? llm_run_ngram_bar(t, a, e) : 0;
    if (counted != 0) return counted < 0 ? -1 : 0;
    if (a->snapshot && llm_snapshots_begin(&r->snapshots, t, a->snapshot, a->snapshot_every, a->common.output, e) < 0) return -1;
    if (llm_trainer_agree(t, llm_metrics_open(&metrics, a->log, a->resume != NULL, t, e), e) < 0) return -1;
    struct llm_loop loop = {.t = t, .metrics = &metrics, .output = a->common.output, .best = a->best,
                            .ema_output = a->ema_output, .save_every = a->save_every, .logs = a->log != NULL, .hash_every = a->hash_every,
                            .snapshots = a->snapshot ? &r->snapshots : NULL,
                            .output_as = llm_run_format(a->common.output, a->to) == LLM_FORMAT_SAFETENSORS ? LLM_SAVE_SAFETENSORS : LLM_SAVE_RUN,
                            .best_as = alone(a->best), .ema_as = alone(a->ema_output)};
    struct llm_err closing;
    const char *from = a->resume ? a->resume : a->tokenizer ? a->tokenizer : a->init;
    int got = a->teach.prompts ? llm_teach_run(&loop, &a->teach, from, e) : llm_loop_run(&loop, e);
    if (llm_metrics_close(&metrics, &closing) < 0 && got == 0) {
        *e = closing;
        got = -1;
    }
    return got;
}

void llm_run_release(struct llm_run *r)
{
    llm_snapshots_release(&r->snapshots);
    llm_model_destroy(r->model);
    llm_trainer_release(&r->trainer);
}
