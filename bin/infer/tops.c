/* --logits --top: of a text, or of each line of --jsonl, the most likely tokens after each token, as lines of JSON that llm-train --objective distill
 * learns from (formats/teacher.md). */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "bin/infer/batch.h"
#include "cpu/pool.h"
#include "infer/most.h"
#include "tensor/divergence.h"

/* The most likely tokens of one distribution, the most likely first, and the log-probability of all others together. */
struct top { int32_t id[LLM_TOP_MAX]; float log_prob[LLM_TOP_MAX]; float tail; };

struct run {
    struct session *s;
    struct lines in;
    struct batch batch;
    int64_t k;                  /* choices a token */
    const struct llm_span *span;
    struct top *tops;           /* [LLM_SPAN_MAX] */
    json_t *ids, *log_probs, *tails; /* of the current text */
};

/* Row i of a span: the logits after a token. */
static void find_top(void *arg, size_t i, int thread)
{
    const struct run *r = arg;
    int64_t vocab = r->s->model->config.vocab_size, k = r->k;
    const float *x = r->span->logits + (int64_t)i * vocab;
    struct top *t = &r->tops[i];
    double max = -INFINITY, sum = 0, rest = 0;
    (void)thread;
    llm_most_likely(x, vocab, k, t->id);
    for (int64_t j = 0; j < vocab; j++) max = fmax(max, (double)x[j]);
    for (int64_t j = 0; j < vocab; j++) {
        double p = exp((double)x[j] - max);
        sum += p;
        rest += llm_is_after(x, (int32_t)j, t->id[k - 1]) ? p : 0; /* not the sum less the choices: almost all of it may be theirs */
    }
    for (int64_t n = 0; n < k; n++) t->log_prob[n] = (float)((double)x[t->id[n]] - max - log(sum));
    t->tail = (float)(log(rest) - log(sum));
}

/* JSON has no infinities: the logarithm of 0 is null. */
static json_t *number(float v)
{
    return isfinite(v) ? json_real((double)v) : json_null();
}

static int take_span(void *arg, const struct llm_span *span, struct llm_err *e)
{
    struct run *r = arg;
    int bad = 0;
    r->span = span;
    llm_parallel((size_t)span->n, find_top, r);
    for (int64_t i = 0; i < span->n && !bad; i++) {
        json_t *ids = json_array(), *log_probs = json_array();
        for (int64_t n = 0; n < r->k; n++) {
            bad |= json_array_append_new(ids, json_integer(r->tops[i].id[n])) | json_array_append_new(log_probs, number(r->tops[i].log_prob[n]));
        }
        bad |= json_array_append_new(r->ids, ids) | json_array_append_new(r->log_probs, log_probs)
               | json_array_append_new(r->tails, number(r->tops[i].tail));
    }
    return bad ? llm_no_memory(e, "a teacher's choices") : 0;
}

/* Adds what the model says of the text to the line `o`. 0, 1 when a signal was caught, -1. */
static int add_tops(struct run *r, json_t *o, const int32_t *ids, int64_t n, struct llm_err *e)
{
    struct llm_kv kv;
    json_t *text = json_array();
    int bad = !text;
    for (int64_t i = 0; i < n && !bad; i++) bad = json_array_append_new(text, json_integer(ids[i])) < 0;
    r->ids = json_array();
    r->log_probs = json_array();
    r->tails = json_array();
    llm_kv_init(&kv, &r->s->engine.pool);
    int status = bad ? llm_no_memory(e, "a line of output") : prompt_check(r->s, (size_t)n, e);
    if (status == 0) status = llm_engine_prefill(&r->s->engine, &kv, ids, n, r->s->model->config.prefix_lm, true, take_span, r, e);
    llm_kv_release(&kv);
    const struct llm_model *m = r->s->model;
    bad = json_object_set_new(o, "ids", text) | json_object_set_new(o, "top_ids", r->ids) | json_object_set_new(o, "top_logprobs", r->log_probs)
          | json_object_set_new(o, "tail_logprobs", r->tails) | json_object_set_new(o, "model", json_string(m->fingerprint))
          | json_object_set_new(o, "vocab_size", json_integer(m->config.vocab_size));
    return status == 0 && bad ? llm_no_memory(e, "a line of output") : status;
}

/* 0, 1 when a signal was caught, -1. */
static int one_line(void *arg, const char *text, size_t n, struct llm_err *e)
{
    struct run *r = arg;
    struct llm_err why = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    json_t *o = text ? llm_json_parse(text, n, &why) : NULL;
    int status = o ? 0 : text ? -1 : lines_too_long(&r->in, &why);
    if (o && !json_is_object(o)) status = llm_fail(&why, EX_DATAERR, "expected an object with \"prompt\"");
    if (o && status == 0) status = prompt_take(r->s, o, r->in.number, &ids, &n_ids, &why);
    if (o && status == 0) status = prompt_end(r->s, &ids, &n_ids, &why);
    if (o && status == 0) status = add_tops(r, o, ids, (int64_t)n_ids, &why);
    if (status < 0 && why.status == EX_DATAERR) {
        status = batch_refuse(&r->batch, &r->in, o, &why, e);
    } else if (status < 0) {
        *e = why;
        llm_in(e, "%s: line %" PRId64, llm_file_name(r->in.file), r->in.number);
    } else if (status == 0) {
        status = batch_put(&r->batch, o, e);
    }
    if (status == 0) batch_item(&r->batch, (int64_t)n_ids, 0);
    json_decref(o);
    free(ids);
    return status;
}

static int begin(struct run *r, struct llm_err *e)
{
    int64_t vocab = r->s->model->config.vocab_size;
    r->k = r->s->a->top < vocab ? r->s->a->top : vocab;
    r->tops = llm_calloc(LLM_SPAN_MAX, sizeof *r->tops, "a teacher's choices", e);
    return r->tops ? llm_model_fingerprint(r->s->model, e) : -1;
}

int run_top_lines(struct session *s, const char *operand, struct llm_err *e)
{
    struct run r = {.s = s};
    int status = begin(&r, e);
    if (status == 0) status = batch_lines(&r.batch, s, &r.in, operand, one_line, NULL, &r, e);
    free(r.tops);
    return status;
}

int run_top(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct run r = {.s = s, .batch.s = s};
    json_t *o = json_pack("{s:i}", "id", 1);
    int status = o ? begin(&r, e) : llm_no_memory(e, "a line of output");
    if (status == 0) status = add_tops(&r, o, ids, (int64_t)n, e);
    if (status == 0) status = batch_put(&r.batch, o, e);
    json_decref(o);
    free(r.tops);
    return status;
}
