/* One prompt, its samples as text. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "bin/infer/infer.h"

struct run {
    struct session *s;
    const int32_t *ids;
    size_t n;
    bool taken, at_line_start;
    int32_t **kept;      /* `extend`: where the tokens go */
    size_t *n_kept;
};

static int next(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct run *r = arg;
    const struct args *a = r->s->a;
    if (r->taken) return 0;
    r->taken = true;
    *p = (struct llm_prompt){
        .ids = r->ids, .n = (int64_t)r->n, .begin = r->s->begin.n > 0 ? &r->s->begin : NULL, .max_tokens = a->n, .samples = a->samples,
        .sampling = r->s->sampling, .stops = a->stop.v, .n_stops = a->stop.n, .constraint = r->s->constraint,
        .ends = r->s->fim_ends, .n_ends = r->s->fim_known ? LLM_FIM_MARKS : 0, .ignore_eos = a->ignore_eos,
        .cfg_scale = a->cfg_scale, .negative = r->s->negative, .n_negative = (int64_t)r->s->n_negative,
        .keep_cache = a->kv_out != NULL, .trace_queries = a->kv_out ? a->trace_queries : 0};
    return negative_check(r->s, p, e) < 0 || memory_check(r->s, p, e) < 0 ? -1 : 1;
}

static int put(struct run *r, const char *bytes, size_t n, struct llm_err *e)
{
    if (n == 0 || !r->s->out) return 0;
    r->at_line_start = bytes[n - 1] == '\n';
    if (llm_output_text(r->s->out, bytes, n, e) < 0) return -1;
    return llm_output_flush(r->s->out, e);
}

static int put_ids(struct run *r, const struct llm_completion *c, struct llm_err *e)
{
    if (!r->s->out || c->ids_shown == c->n) return 0;
    for (int64_t i = c->ids_shown; i < c->n; i++) {
        if (llm_output_printf(r->s->out, e, i ? " %d" : "%d", c->ids[i]) < 0) return -1;
    }
    return llm_output_flush(r->s->out, e);
}

static int text(void *arg, const struct llm_completion *c, const char *bytes, size_t n, struct llm_err *e)
{
    struct run *r = arg;
    return r->s->a->ids ? put_ids(r, c, e) : put(r, bytes, n, e);
}

/* Runs the last token, which generation has not run, so that the saved cache holds the whole text. 0 or -1. */
static int save_cache(struct session *s, struct llm_completion *c, struct llm_err *e)
{
    struct llm_feed last = {&c->kv, c->n > 0 ? c->ids + c->n - 1 : NULL, 1, false};
    if (c->n > 0 && !llm_engine_run(&s->engine, &last, 1, e)) return -1;
    struct llm_output *o = llm_output_open(s->a->kv_out, true, e);
    if (!o) return -1;
    if (llm_kv_file_write(&c->kv, s->model, o, e) < 0) {
        llm_output_abandon(o);
        return -1;
    }
    return llm_output_commit(o, e);
}

static int done(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct run *r = arg;
    const struct args *a = r->s->a;
    if (a->echo && r->s->fim_known && put(r, r->s->around[1].p, r->s->around[1].n, e) < 0) return -1;
    if (a->n != 0 && (!r->at_line_start || a->ids) && put(r, "\n", 1, e) < 0) return -1;
    if (c->sample + 1 < a->samples && put(r, "\n", 1, e) < 0) return -1;
    if (c->finish == LLM_FINISH_CONTEXT) note_full(r->s);
    if (c->finish == LLM_FINISH_STUCK) llm_warn("no token of the vocabulary continues the text as the constraint wants it: it is not complete");
    llm_verbose("%lld prompt tokens in %.2f s, %lld tokens in %.2f s (%.1f a second), %s", (long long)c->prompt_tokens, c->prompt_seconds,
                (long long)c->n, c->decode_seconds, c->decode_seconds > 0 ? (double)c->n / c->decode_seconds : 0, llm_finish_names[c->finish]);
    if (c->finish == LLM_FINISH_STOP && c->text.bytes.n == 0 && a->n != 0 && a->stop.n == 0 && !r->s->fim_known) chat_hint(r->s);
    if (a->draft > 0 || a->draft_ngram || a->draft_model) {
        llm_verbose("%lld tokens drafted, %lld of them right (%.3f)", (long long)c->drafted, (long long)c->accepted,
                    c->drafted > 0 ? (double)c->accepted / (double)c->drafted : 0);
    }
    return a->kv_out ? save_cache(r->s, c, e) : 0;
}

static int echo(struct run *r, struct llm_err *e)
{
    const struct llm_tokenizer *t = r->s->model->tokenizer;
    struct llm_buf b = {0};
    int status = 0;
    if (r->s->fim_known) return put(r, r->s->around[0].p, r->s->around[0].n, e);
    for (size_t i = 0; i < r->n && status == 0; i++) {
        size_t n = 0;
        if (r->s->a->ids) {
            status = llm_buf_printf(&b, e, "%d ", r->ids[i]);
            continue;
        }
        const char *piece = llm_tokenizer_is_special(t, r->ids[i]) ? NULL : llm_tokenizer_piece(t, r->ids[i], &n);
        if (piece) status = llm_buf_put(&b, piece, n, e);
    }
    if (status == 0) status = put(r, b.p, b.n, e);
    llm_buf_release(&b);
    return status;
}

int run_text(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct run r = {.s = s, .ids = ids, .n = n, .at_line_start = true};
    struct llm_generate g = {.engine = &s->engine, .parallel = s->a->parallel, .next = next, .text = text, .done = done, .arg = &r};
    drafts_set(s, &g);
    if (s->a->echo && echo(&r, e) < 0) return -1;
    return generate(s, &g, e);
}

static int keep(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct run *r = arg;
    *r->n_kept = r->n + (size_t)c->n;
    *r->kept = llm_alloc(*r->n_kept, sizeof **r->kept, "tokens", e);
    if (!*r->kept) return -1;
    if (r->n) memcpy(*r->kept, r->ids, r->n * sizeof *r->ids);
    if (c->n) memcpy(*r->kept + r->n, c->ids, (size_t)c->n * sizeof *c->ids);
    return r->s->a->kv_out ? save_cache(r->s, c, e) : 0;
}

int extend(struct session *s, const int32_t *ids, size_t n, int32_t **all, size_t *n_all, struct llm_err *e)
{
    struct run r = {.s = s, .ids = ids, .n = n, .kept = all, .n_kept = n_all};
    struct llm_generate g = {.engine = &s->engine, .parallel = 1, .next = next, .done = keep, .arg = &r};
    *all = NULL;
    return llm_generate(&g, e);
}
