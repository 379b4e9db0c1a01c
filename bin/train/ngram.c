/* llm-train --objective ngram, and --ngram-bar. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/signals.h"
#include "bin/train/train.h"
#include "train/ngram_bar.h"

/* "0,0,1": n-grams of 1, 2, 3 and more tokens. */
static int parse_prune(const char *text, struct llm_ngram_options *o, struct llm_err *e)
{
    uint64_t last = 0;
    int k = 0;
    for (const char *s = text; s && k < LLM_NGRAM_MAX_ORDER; k++) {
        char one[24];
        int64_t n = 0;
        size_t length = strcspn(s, ", ");
        snprintf(one, sizeof one, "%.*s", (int)(length < sizeof one ? length : sizeof one - 1), s);
        if (llm_parse_int(one, &n) < 0 || n < (int64_t)last || (k == 0 && n > 0)) {
            return llm_fail(e, LLM_EX_USAGE, "--prune: expected numbers that do not fall, the first 0 (\"0,0,1\"), found '%s'", text);
        }
        o->prune[k] = last = (uint64_t)n;
        s = s[length] ? s + length + 1 : NULL;
    }
    for (; k < LLM_NGRAM_MAX_ORDER; k++) o->prune[k] = last; /* the last number holds for what is longer */
    return 0;
}

static int options_of(const struct args *a, int order, struct llm_ngram_options *o, struct llm_err *e)
{
    *o = (struct llm_ngram_options){.order = order, .memory = a->memory, .cross_document = a->o.cross_document != 0};
    return a->prune ? parse_prune(a->prune, o, e) : 0;
}

static void check(const struct llm_cli *cli, struct args *a, bool has_data)
{
    if (a->config || a->init || a->resume) llm_usage(cli, "--objective ngram counts: it takes no -c, --init or --resume");
    if (a->o.stream) llm_usage(cli, "--objective ngram reads its data more than once: not with --stream");
    if (a->gradcheck || a->o.overfit_one || a->best || a->save_every || a->log || a->ngram_bar) {
        llm_usage(cli, "--objective ngram makes no steps: not with --gradcheck, --overfit-one, --keep-best, --save-every, --log or --ngram-bar");
    }
    if (!has_data) llm_usage(cli, "expected data: token streams that llm-tokenize encode made, or - for stdin");
    if (!a->common.output && !a->plan) llm_usage(cli, "expected -o OUT.llm (- writes to stdout)");
    a->to = llm_run_format(a->common.output, a->to);
}

static int save(struct llm_model *m, const struct args *a, struct llm_err *e)
{
    const struct llm_checkpoint_options how = {.planes = true, .plain = a->to == LLM_FORMAT_SAFETENSORS};
    struct llm_output *o = llm_output_open(a->common.output, a->to != LLM_FORMAT_ARPA, e);
    if (!o) return -1;
    if ((a->to == LLM_FORMAT_ARPA ? llm_arpa_write(m, o, e) : llm_model_save(m, o, &how, e)) < 0) {
        llm_output_abandon(o);
        return -1;
    }
    return llm_output_commit(o, e);
}

static int estimate(const struct args *a, const struct llm_train_data *d, struct llm_tokenizer **t, const struct llm_ngram_source *s,
                    const struct llm_ngram_options *o, struct llm_err *e)
{
    struct llm_ngram_report report;
    struct llm_ngram *g = NULL;
    struct llm_quality q;
    double start = llm_now(), ngrams = 0;
    int got = llm_ngram_estimate(s, o, &g, &report, e);
    if (got != 0) return got;
    double seconds = llm_now() - start;
    for (int k = 0; k < o->order; k++) ngrams += (double)report.order[k].kept;
    llm_note("%.0f tokens, %.0f n-grams of order 1 to %d, %.0f tokens/s", (double)report.tokens, ngrams, o->order, (double)report.tokens / seconds);
    struct llm_model *m = llm_ngram_model(g, s->bos, s->eos, e);
    if (!m) return -1;
    m->tokenizer = *t;
    *t = NULL;
    if (d->val || d->val_share > 0) {
        got = llm_ngram_validate(m, d, o->cross_document, &q, e);
        char bits[48] = "";
        if (got == 0 && !isnan(q.bits_per_byte)) snprintf(bits, sizeof bits, " (%.4f bits per byte)", q.bits_per_byte);
        if (got == 0) llm_note("order %d: validation %.4f%s", o->order, q.nats, bits);
    }
    if (got == 0) got = save(m, a, e);
    llm_model_destroy(m);
    return got;
}

static int open_data(struct llm_train_data *d, const struct args *a, struct llm_tokenizer **t, const char *const *data, size_t n, struct llm_err *e)
{
    if (a->tokenizer && !(*t = llm_tokenizer_load(a->tokenizer, NULL, e))) return -1;
    return llm_train_data_open(d, data, n, a->val, *t ? llm_tokenizer_id(*t) : NULL, *t ? llm_tokenizer_vocab_size(*t) : 0, e);
}

int llm_run_ngram(const struct llm_cli *cli, struct args *a, const char *const *data, size_t n_data, struct llm_err *e)
{
    struct llm_train_data d = {0};
    struct llm_tokenizer *t = NULL;
    struct llm_ngram_options o;
    check(cli, a, n_data > 0);
    if (options_of(a, a->ngram_order ? a->ngram_order : 5, &o, e) < 0 || llm_run_check_stdin(a, data, n_data, e) < 0
        || (!a->plan && llm_output_try(a->common.output, a->to != LLM_FORMAT_ARPA, e) < 0)) return -1;
    int got = open_data(&d, a, &t, data, n_data, e);
    int64_t vocab = t ? llm_tokenizer_vocab_size(t) : got == 0 ? llm_train_data_vocab_size(&d) : 0;
    if (got == 0 && vocab < 1) got = llm_fail(e, EX_DATAERR, "expected data that says how many tokens there are, or a tokenizer (-T)");
    if (got == 0) {
        struct llm_ngram_source s = llm_ngram_source_of(&d, t, vocab);
        struct llm_ngram_plan plan;
        if (!a->plan) llm_signals_catch();
        if (!a->plan) got = estimate(a, &d, &t, &s, &o, e);
        else got = llm_ngram_plan(&s, &o, &plan, e) < 0 ? -1 : llm_ngram_plan_print(&plan, llm_table_form(&a->common), e);
    }
    llm_train_data_release(&d);
    llm_tokenizer_destroy(t);
    return got < 0 ? -1 : 0;
}

int llm_run_ngram_bar(const struct llm_trainer *t, const struct args *a, struct llm_err *e)
{
    struct llm_ngram_options o;
    struct llm_ngram_bar bar;
    char bits[48] = "";
    if (options_of(a, a->ngram_order, &o, e) < 0) return -1;
    if (!t->data.train || !llm_trainer_has_val(t)) return llm_fail(e, LLM_EX_USAGE, "--ngram-bar: expected --val, and data that is not a --stream");
    int got = llm_ngram_bar(&t->data, t->model->tokenizer, t->model->config.vocab_size, &o, &bar, e);
    if (got != 0) return got;
    if (!isnan(bar.bits_per_byte)) snprintf(bits, sizeof bits, " (%.4f bits per byte)", bar.bits_per_byte);
    llm_note("bar: n-grams of order %d: validation %.4f%s", bar.order, bar.nats, bits);
    return 0;
}
