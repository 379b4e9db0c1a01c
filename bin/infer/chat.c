/* Conversations: what the model's chat template makes of them, and turns answered as they come. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "base/signals.h"
#include "bin/infer/infer.h"

int chat_open(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    struct chat *c = &s->chat;
    time_t seconds = time(NULL);
    localtime_r(&seconds, &c->now);
    if (!s->model->tokenizer) return llm_fail(e, EX_DATAERR, "%s: the model carries no tokenizer: name one with -T", a->model);
    if (llm_chat_find(&c->found, a->chat_template, a->model, s->model->tokenizer, e) < 0) return -1;
    c->n_ends = llm_chat_turn_ends(&c->found, s->model->tokenizer, c->ends);
    return 0;
}

void chat_release(struct session *s)
{
    llm_chat_release(&s->chat.found);
}

int chat_encode(const struct session *s, const json_t *messages, const json_t *tools, int32_t **ids, size_t *n_ids, struct llm_err *e)
{
    const struct chat *c = &s->chat;
    const struct llm_chat_options o = {.add_generation_prompt = true, .bos = c->found.bos, .eos = c->found.eos, .now = &c->now};
    struct llm_buf text = {0};
    *ids = NULL;
    *n_ids = 0;
    int status = llm_chat_render(c->found.template, messages, tools, &o, &text, NULL, e);
    if (status == 0) status = llm_encode(s->model->tokenizer, text.p, text.n, LLM_ENCODE_SPECIAL, ids, n_ids, e);
    llm_buf_release(&text);
    if (status == 0 && *n_ids == 0) status = llm_fail(e, EX_DATAERR, "the template makes an empty prompt of the conversation");
    return status == 0 ? prompt_check_vocab(s, *ids, *n_ids, e) : status;
}

/* A conversation under way. */
struct talk {
    struct session *s;
    json_t *messages;
    struct llm_kv kv;          /* of the turns so far, but for the last token said */
    int32_t *ids;              /* the turn at hand: all of the conversation's tokens, as the template has it now */
    size_t n_ids;
    struct llm_buf reply;
    bool taken, is_terminal;
};

static int next(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct talk *t = arg;
    const struct session *s = t->s;
    const struct args *a = s->a;
    int64_t kept = t->kv.n;
    (void)e;
    if (t->taken) return 0;
    t->taken = true;
    *p = (struct llm_prompt){.ids = t->ids + kept, .n = (int64_t)t->n_ids - kept, .begin = kept > 0 ? &t->kv : NULL, .max_tokens = a->n, .samples = 1,
                             .sampling = s->sampling, .stops = a->stop.v, .n_stops = a->stop.n, .ignore_eos = a->ignore_eos, .ends = s->chat.ends,
                             .n_ends = s->chat.n_ends, .keep_cache = true};
    return 1;
}

static int text(void *arg, const struct llm_completion *c, const char *bytes, size_t n, struct llm_err *e)
{
    struct talk *t = arg;
    (void)c;
    if (llm_buf_put(&t->reply, bytes, n, e) < 0) return -1;
    return llm_output_text(t->s->out, bytes, n, e) < 0 ? -1 : llm_output_flush(t->s->out, e);
}

static int end_line(struct talk *t, struct llm_err *e)
{
    return llm_output_write(t->s->out, "\n", 1, e) < 0 ? -1 : llm_output_flush(t->s->out, e);
}

static int done(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct talk *t = arg;
    if (c->finish == LLM_FINISH_CONTEXT) llm_note("stopped: the context of %lld tokens is full", (long long)t->s->engine.context);
    llm_verbose("%lld tokens kept, %lld read in %.2f s, %lld made in %.2f s, %s", (long long)(c->prompt_tokens - c->prompt.n), (long long)c->prompt.n,
                c->prompt_seconds, (long long)c->n, c->decode_seconds, llm_finish_names[c->finish]);
    struct llm_kv old = t->kv;
    t->kv = c->kv;
    c->kv = old;
    return end_line(t, e);
}

/* Of the cache stays what the conversation still begins with: a template may write earlier turns anew. One token at least is left to read.
 * A state that cannot be cut is given up. */
static void keep_common(struct talk *t)
{
    int64_t n = 0, most = (int64_t)t->n_ids - 1 < t->kv.n ? (int64_t)t->n_ids - 1 : t->kv.n;
    while (n < most && t->kv.ids[n] == t->ids[n]) n++;
    llm_kv_truncate(&t->kv, llm_kv_can_truncate(&t->kv, n) ? n : 0);
}

/* The assistant's answer to the messages so far, in t->reply. 0, 1 when a signal was caught, -1. */
static int answer(struct talk *t, struct llm_err *e)
{
    const struct llm_generate g = {&t->s->engine, 1, next, NULL, text, done, t};
    t->taken = false;
    t->reply.n = 0;
    int status = chat_encode(t->s, t->messages, NULL, &t->ids, &t->n_ids, e);
    if (status == 0) status = prompt_check(t->s, t->n_ids, e);
    if (status == 0) {
        keep_common(t);
        status = llm_generate(&g, e);
    }
    free(t->ids);
    t->ids = NULL;
    return status;
}

static int add_message(struct talk *t, const char *role, const char *content, size_t n, struct llm_err *e)
{
    json_t *text_of = json_stringn(content ? content : "", n);
    if (!text_of) return llm_fail(e, EX_DATAERR, "expected UTF-8");
    if (json_array_append_new(t->messages, json_pack("{s:s,s:o}", "role", role, "content", text_of)) < 0) return llm_no_memory(e, "messages");
    return 0;
}

static int add_reply(struct talk *t, struct llm_err *e)
{
    /* A model may say bytes that are no UTF-8: the quoted text has U+FFFD for them. */
    struct llm_buf quoted = {0};
    int status = llm_json_quote(&quoted, t->reply.p ? t->reply.p : "", t->reply.n, e);
    json_t *said = status == 0 ? llm_json_parse(quoted.p, quoted.n, e) : NULL;
    if (status == 0) status = said ? add_message(t, "assistant", json_string_value(said), json_string_length(said), e) : -1;
    json_decref(said);
    llm_buf_release(&quoted);
    return status;
}

/* At a terminal Ctrl-C ends the turn: what was said stays said; a turn without an answer is taken back. */
static int interrupted(struct talk *t, struct llm_err *e)
{
    if (t->reply.n > 0) return add_reply(t, e) < 0 ? -1 : end_line(t, e);
    json_array_remove(t->messages, json_array_size(t->messages) - 1);
    return 0;
}

static int answer_turn(struct talk *t, const char *line, size_t n, struct llm_err *e)
{
    if (add_message(t, "user", line, n, e) < 0) return -1;
    int status = answer(t, e);
    if (status == 1 && t->is_terminal && llm_signal_take(SIGINT)) return interrupted(t, e);
    return status == 0 ? add_reply(t, e) : status;
}

static int converse(struct talk *t, const char *path, struct llm_err *e)
{
    bool is_stdin = !path || strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    char *line = NULL;
    size_t room = 0, number = 0;
    ssize_t n;
    int status = 0;
    if (!f) return llm_fail_errno(e, EX_NOINPUT, "%s", path);
    t->is_terminal = is_stdin && isatty(0);
    while (status == 0 && (n = getline(&line, &room, f)) >= 0) {
        number++;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (n > 0) status = answer_turn(t, line, (size_t)n, e);
    }
    if (status < 0 && e->status == EX_DATAERR) llm_in(e, "%s: line %zu", is_stdin ? "standard input" : path, number);
    if (status == 0 && ferror(f)) status = llm_fail_errno(e, EX_IOERR, "%s: cannot read", is_stdin ? "standard input" : path);
    free(line);
    if (!is_stdin) fclose(f);
    return status;
}

int run_chat(struct session *s, const char *operand, struct llm_err *e)
{
    const struct args *a = s->a;
    struct talk t = {.s = s, .messages = json_array()};
    llm_kv_init(&t.kv, &s->engine.pool);
    int status = t.messages ? 0 : llm_no_memory(e, "messages");
    if (status == 0 && a->system) status = add_message(&t, "system", a->system, strlen(a->system), e);
    if (status == 0) status = converse(&t, operand ? operand : a->file, e);
    llm_kv_release(&t.kv);
    llm_buf_release(&t.reply);
    json_decref(t.messages);
    return status;
}
