/* --ref-logprobs: lines of pairs of replies, each written again with the log-probabilities of its replies by this model, which llm-train --objective
 * dpo then reads in place of computing its reference: "ref_chosen_logps", "ref_rejected_logps". Lines of single replies ("completion") get
 * "ref_logps" and, of the reply of the line before after their prompt, "ref_kl_logps", which --objective kto reads. They are answered after the last
 * line has been read: the first line needs it. Texts are encoded and summed as training does it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "bin/infer/batch.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "train/pairs.h"

struct run {
    struct session *s;
    struct lines in;
    struct batch batch;
    struct llm_train_options options;
    struct llm_lines pairs;
    const int32_t *ids;         /* the tokens of the current text */
    const uint8_t *mask;        /* 1 for each of these tokens that belongs to the reply */
    int64_t n;
    const struct llm_span *span;
    float log_prob[LLM_SPAN_MAX];
    double sum;
    json_t *singles;            /* lines of single replies so far; NULL: none */
};

static bool counts(const struct run *r, int64_t i)
{
    return i < r->n && r->mask[i];
}

/* Row i of a span predicts the token after it. */
static void score_row(void *arg, size_t i, int thread)
{
    struct run *r = arg;
    int64_t vocab = r->s->model->config.vocab_size, next = r->span->first + (int64_t)i + 1;
    if (!counts(r, next)) return;
    float *logits = llm_scratch(thread, (size_t)vocab * sizeof *logits); /* the function writes over them */
    memcpy(logits, r->span->logits + (int64_t)i * vocab, (size_t)vocab * sizeof *logits);
    r->log_prob[i] = llm_token_log_prob(logits, 1, vocab, r->ids[next]);
}

static int score_span(void *arg, const struct llm_span *s, struct llm_err *e)
{
    struct run *r = arg;
    (void)e;
    r->span = s;
    llm_parallel((size_t)s->n, score_row, r);
    for (int64_t i = 0; i < s->n; i++) r->sum += counts(r, s->first + i + 1) ? (double)r->log_prob[i] : 0;
    return 0;
}

/* Sum of the log-probabilities of the reply's tokens. 0, 1 when a signal was caught, -1. */
static int score(struct run *r, const int32_t *ids, const uint8_t *mask, int64_t n, struct llm_err *e)
{
    struct llm_kv kv;
    r->ids = ids;
    r->mask = mask;
    r->n = n;
    r->sum = 0;
    llm_kv_init(&kv, &r->s->engine.pool);
    int status = prompt_check(r->s, (size_t)n, e) < 0 ? -1 : llm_engine_prefill(&r->s->engine, &kv, ids, n, false, true, score_span, r, e);
    llm_kv_release(&kv);
    return status;
}

/* Adds the log-probabilities of the two texts of r->pairs.records to the line as the numbers of these names, and writes it. 0, 1 when a signal was
 * caught, -1. */
static int put_scores(struct run *r, json_t *o, const char *const names[2], struct llm_err *e)
{
    const struct llm_records *records = r->pairs.records;
    if (llm_records_count(records) == 0) return llm_fail(e, EX_DATAERR, "expected replies to learn from");
    const struct llm_record d = llm_records_at(records, 0);
    int status = 0;
    for (int i = 0; status == 0 && i < 2; i++) {
        int64_t from = i ? d.second : 0, to = i ? d.n : d.second;
        status = score(r, d.ids + from, d.mask + from, to - from, e);
        if (status == 0 && json_object_set_new(o, names[i], json_real(llm_pairs_kept(r->sum))) < 0) status = llm_no_memory(e, "a line of output");
    }
    if (status == 0) batch_item(&r->batch, d.n, 0);
    return status == 0 ? batch_put(&r->batch, o, e) : status;
}

/* Of line i of r->singles. 0, 1 when a signal was caught, -1. */
static int score_single(struct run *r, size_t i, struct llm_err *e)
{
    static const char *const names[] = {"ref_logps", "ref_kl_logps"};
    json_t *o = json_array_get(r->singles, i);
    int status = (r->pairs.records = llm_records_create(NULL, e)) ? llm_singles_add(&r->pairs, r->singles, i, e) : -1;
    if (status == 0) status = put_scores(r, o, names, e);
    llm_records_destroy(r->pairs.records);
    return status < 0 ? llm_in(e, "line %zu of all", i + 1) : status;
}

/* 0, 1 when a signal was caught, -1. */
static int score_pair(struct run *r, json_t *o, struct llm_err *e)
{
    static const char *const names[] = {"ref_chosen_logps", "ref_rejected_logps"};
    int status = (r->pairs.records = llm_records_create(NULL, e)) ? llm_pairs_record(&r->pairs, o, e) : -1;
    if (status == 0) status = put_scores(r, o, names, e);
    llm_records_destroy(r->pairs.records);
    return status;
}

static int one_line(void *arg, const char *text, size_t n, struct llm_err *e)
{
    struct run *r = arg;
    json_t *o = text ? llm_json_parse(text, n, e) : NULL;
    int status = o ? 0 : text ? -1 : lines_too_long(&r->in, e);
    bool single = json_object_get(o, "completion");
    if (o && !json_is_object(o)) status = llm_fail(e, EX_DATAERR, "expected an object");
    if (status == 0 && single != (r->singles != NULL) && r->in.used > 1) {
        status = llm_fail(e, EX_DATAERR, "expected %s, as in the first line", single ? "'chosen' and 'rejected'" : "'completion'");
    } else if (status == 0 && single) {
        if (!r->singles) r->singles = json_array();
        status = llm_singles_keep(r->singles, o, e);
    } else if (status == 0) {
        status = score_pair(r, o, e);
    }
    if (status < 0) llm_in(e, "%s: line %" PRId64, llm_file_name(r->in.file), r->in.number);
    json_decref(o);
    return status;
}

/* After the last line. */
static int finish(void *arg, struct llm_err *e)
{
    struct run *r = arg;
    int status = llm_singles_check(r->singles, e);
    for (size_t i = 0; i < json_array_size(r->singles) && status == 0; i++) status = llm_signal_caught() ? 1 : score_single(r, i, e);
    return status < 0 ? llm_in(e, "%s", llm_file_name(r->in.file)) : status;
}

int run_references(struct session *s, const char *operand, struct llm_err *e)
{
    struct run r = {.s = s};
    llm_train_options_default(&r.options);
    while (llm_objectives[r.options.objective] != llm_objective_find("dpo")) r.options.objective++;
    llm_option_set_text(&r.options, "chat-template", s->a->chat_template);
    llm_option_set_word(&r.options, "strict", 1);
    int status = llm_lines_init(&r.pairs, &r.options, s->model->tokenizer, s->a->model, s->engine.context, e);
    if (status == 0) status = batch_lines(&r.batch, s, &r.in, operand, one_line, finish, &r, e);
    json_decref(r.singles);
    llm_lines_release(&r.pairs);
    return status;
}
