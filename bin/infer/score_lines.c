/* --score --jsonl: a text a line, {"id": …, "prompt": …} or {"id": …, "ids": […]}; the sum of its log-probabilities a line. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/infer/batch.h"
#include "infer/score.h"

struct run {
    struct session *s;
    struct lines in;
    struct batch batch;
    const int32_t *ids;      /* the tokens of the current text */
    double sum, entropy;     /* of the log-probabilities and of the entropies so far, in the order of the tokens */
    int64_t n;
    json_t *tokens;          /* with --per-token: a list of objects; else NULL */
};

/* JSON has no infinities: an impossible token's logarithm is null. */
static json_t *number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static int token(void *arg, int64_t i, const struct llm_scored *scored, struct llm_err *e)
{
    struct run *r = arg;
    const struct llm_tokenizer *t = r->s->model->tokenizer;
    size_t n = 0;
    r->sum += scored->log_prob;
    r->entropy += scored->entropy;
    r->n++;
    if (!r->tokens) return 0;
    const char *text = t && r->ids[i] < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, r->ids[i], &n) : NULL;
    json_t *o = json_object();
    int bad = !o || json_object_set_new(o, "id", json_integer(r->ids[i])) < 0;
    if (!bad && text) bad = json_object_set_new(o, "text", llm_json_text(text, n));
    if (!bad) bad = json_object_set_new(o, "log_prob", number(scored->log_prob));
    if (!bad && r->s->a->entropy) bad = json_object_set_new(o, "entropy", number(scored->entropy));
    bad |= json_array_append_new(r->tokens, o);
    return bad ? llm_no_memory(e, "a token") : 0;
}

/* "id" first, then what the line carried, then the results. */
static int put_score(struct run *r, const json_t *line, struct llm_err *e)
{
    json_t *o = json_object();
    int bad = !o || json_object_set(o, "id", json_object_get(line, "id")) < 0 || json_object_update(o, (json_t *)(uintptr_t)line) < 0
              || json_object_set_new(o, "sum", number(r->sum)) < 0
              || json_object_set_new(o, "mean", r->n > 0 ? number(r->sum / (double)r->n) : json_null()) < 0
              || json_object_set_new(o, "tokens", json_integer(r->n)) < 0 || (r->tokens && json_object_set(o, "per_token", r->tokens) < 0);
    if (!bad && r->s->a->entropy) bad = json_object_set_new(o, "entropy", r->n > 0 ? number(r->entropy / (double)r->n) : json_null()) < 0;
    int status = bad ? llm_no_memory(e, "a line of output") : batch_put(&r->batch, o, e);
    json_decref(o);
    return status;
}

/* 0, 1 when a signal was caught, -1. */
static int score_line(void *arg, const char *text, size_t n, struct llm_err *e)
{
    struct run *r = arg;
    struct llm_err why = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    float *adapters = NULL;
    struct llm_kv begin;
    llm_kv_init(&begin, &r->s->engine.pool);
    json_t *o = text ? llm_json_parse(text, n, &why) : NULL;
    int status = o ? 0 : text ? -1 : lines_too_long(&r->in, &why);
    if (o && !json_is_object(o)) status = llm_fail(&why, EX_DATAERR, "expected an object with \"prompt\"");
    else if (o && (status = prompt_take(r->s, o, r->in.number, &ids, &n_ids, &why)) == 0) status = prompt_end(r->s, &ids, &n_ids, &why);
    if (o && status == 0) status = inside_whole(r->s, (int64_t)n_ids, &why);
    if (o && status == 0) status = adapters_take(r->s, o, &adapters, &why);
    begin.adapters = adapters;
    if (status < 0 && why.status == EX_DATAERR) {
        status = batch_refuse(&r->batch, &r->in, o, &why, e);
    } else if (status < 0) {
        *e = why;
        llm_in(e, "%s: line %" PRId64, llm_file_name(r->in.file), r->in.number);
    } else {
        r->ids = ids;
        r->sum = r->entropy = 0;
        r->n = 0;
        r->tokens = r->s->a->per_token ? json_array() : NULL;
        const struct llm_scorer scoring = {&r->s->engine, adapters ? &begin : NULL, r->s->a->entropy, token, r};
        status = llm_score(&scoring, ids, (int64_t)n_ids, &why);
        if (status == 0) status = put_score(r, o, e);
        else if (status < 0 && (why.status == EX_DATAERR || why.status == LLM_EX_FAILURE)) status = batch_refuse(&r->batch, &r->in, o, &why, e);
        else if (status < 0) *e = why;
        json_decref(r->tokens);
    }
    if (status == 0) batch_item(&r->batch, (int64_t)n_ids, 0);
    json_decref(o);
    free(ids);
    free(adapters);
    return status;
}

int run_score_lines(struct session *s, const char *operand, struct llm_err *e)
{
    struct run r = {.s = s};
    return batch_lines(&r.batch, s, &r.in, operand, score_line, NULL, &r, e);
}
