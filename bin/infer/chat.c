/* Conversations: a turn a line, answered as it comes; or with --jsonl a conversation a line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "token/chat/find.h"
#include "bin/infer/infer.h"

struct talk {
    struct session *s;
    struct llm_chat chat;
    json_t *messages;
    struct tm now;
    int32_t ends[4], *ids;
    size_t n_ends, n_ids;
    struct llm_buf reply;
    bool taken;
};

static int next(void *arg, struct llm_prompt *p, struct llm_err *e)
{
    struct talk *t = arg;
    const struct args *a = t->s->a;
    (void)e;
    if (t->taken) return 0;
    t->taken = true;
    *p = (struct llm_prompt){.ids = t->ids, .n = (int64_t)t->n_ids, .max_tokens = a->n, .samples = 1, .sampling = t->s->sampling,
                             .stops = a->stop.v, .n_stops = a->stop.n, .ignore_eos = a->ignore_eos, .ends = t->ends, .n_ends = t->n_ends};
    return 1;
}

static int text(void *arg, const struct llm_completion *c, const char *bytes, size_t n, struct llm_err *e)
{
    struct talk *t = arg;
    (void)c;
    if (llm_buf_put(&t->reply, bytes, n, e) < 0) return -1;
    if (t->s->a->jsonl) return 0;
    return llm_output_write(t->s->out, bytes, n, e) < 0 ? -1 : llm_output_flush(t->s->out, e);
}

static int done(void *arg, struct llm_completion *c, struct llm_err *e)
{
    struct talk *t = arg;
    if (c->finish == LLM_FINISH_CONTEXT) llm_note("stopped: the context of %lld tokens is full", (long long)t->s->engine.context);
    if (t->s->a->jsonl) return 0;
    return llm_output_write(t->s->out, "\n", 1, e) < 0 ? -1 : llm_output_flush(t->s->out, e);
}

/* The assistant's answer to the messages so far, in t->reply. 0, 1 when a signal was caught, -1. */
static int answer(struct talk *t, const json_t *tools, struct llm_err *e)
{
    const struct llm_chat_options o = {.add_generation_prompt = true, .bos = t->chat.bos, .eos = t->chat.eos, .now = &t->now};
    const struct llm_generate g = {&t->s->engine, 1, next, NULL, text, done, t};
    struct llm_buf prompt = {0};
    t->taken = false;
    t->reply.n = 0;
    int status = llm_chat_render(t->chat.template, t->messages, tools, &o, &prompt, NULL, e);
    if (status == 0) status = llm_encode(t->s->model->tokenizer, prompt.p, prompt.n, LLM_ENCODE_SPECIAL, &t->ids, &t->n_ids, e);
    if (status == 0 && t->n_ids == 0) status = llm_fail(e, EX_DATAERR, "the template makes an empty prompt of the conversation");
    if (status == 0) status = prompt_check(t->s, t->n_ids, e);
    if (status == 0) status = llm_generate(&g, e);
    llm_buf_release(&prompt);
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

static int answer_turn(struct talk *t, const char *line, size_t n, struct llm_err *e)
{
    if (add_message(t, "user", line, n, e) < 0) return -1;
    int status = answer(t, NULL, e);
    if (status) return status;
    /* A model may say bytes that are no UTF-8: the quoted text has U+FFFD for them. */
    struct llm_buf quoted = {0};
    status = llm_json_quote(&quoted, t->reply.p ? t->reply.p : "", t->reply.n, e);
    json_t *said = status == 0 ? llm_json_parse(quoted.p, quoted.n, e) : NULL;
    if (status == 0) status = said ? add_message(t, "assistant", json_string_value(said), json_string_length(said), e) : -1;
    json_decref(said);
    llm_buf_release(&quoted);
    return status;
}

static int answer_line(struct talk *t, const char *line, size_t n, struct llm_err *e)
{
    json_t *j = llm_json_parse(line, n, e);
    if (!j) return -1;
    json_t *messages = json_is_array(j) ? j : json_object_get(j, "messages"), *tools = json_object_get(j, "tools"), *own = t->messages;
    int status = json_is_array(messages) ? 0 : llm_fail(e, EX_DATAERR, "expected an object with \"messages\", an array");
    if (status == 0) {
        t->messages = messages;
        status = answer(t, json_is_array(tools) ? tools : NULL, e);
        t->messages = own;
    }
    struct llm_buf out = {0};
    if (status == 0) status = llm_buf_printf(&out, e, "{\"role\": \"assistant\", \"content\": ");
    if (status == 0) status = llm_json_quote(&out, t->reply.p ? t->reply.p : "", t->reply.n, e);
    if (status == 0) status = llm_buf_put(&out, "}\n", 2, e);
    if (status == 0) status = llm_output_write(t->s->out, out.p, out.n, e) < 0 ? -1 : llm_output_flush(t->s->out, e);
    llm_buf_release(&out);
    json_decref(j);
    return status;
}

static int converse(struct talk *t, const char *path, struct llm_err *e)
{
    const struct args *a = t->s->a;
    bool is_stdin = !path || strcmp(path, "-") == 0;
    FILE *f = is_stdin ? stdin : fopen(path, "re");
    char *line = NULL;
    size_t room = 0, number = 0;
    ssize_t n;
    int status = 0;
    if (!f) return llm_fail_errno(e, EX_NOINPUT, "%s", path);
    while (status == 0 && (n = getline(&line, &room, f)) >= 0) {
        number++;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
        if (n > 0) status = (a->jsonl ? answer_line : answer_turn)(t, line, (size_t)n, e);
    }
    if (status < 0) llm_in(e, "%s: line %zu", is_stdin ? "standard input" : path, number);
    else if (status == 0 && ferror(f)) status = llm_fail_errno(e, EX_IOERR, "%s: cannot read", is_stdin ? "standard input" : path);
    free(line);
    if (!is_stdin) fclose(f);
    return status;
}

int run_chat(struct session *s, const char *operand, struct llm_err *e)
{
    const struct args *a = s->a;
    struct talk t = {.s = s, .messages = json_array()};
    time_t seconds = time(NULL);
    localtime_r(&seconds, &t.now);
    int status = t.messages ? 0 : llm_no_memory(e, "messages");
    if (status == 0 && !s->model->tokenizer)
        status = llm_fail(e, EX_DATAERR, "%s: the model carries no tokenizer: name one with -T", a->model);
    if (status == 0) status = llm_chat_find(&t.chat, a->chat_template, a->model, s->model->tokenizer, e);
    if (status == 0) t.n_ends = llm_chat_turn_ends(&t.chat, s->model->tokenizer, t.ends);
    if (status == 0 && a->system) status = add_message(&t, "system", a->system, strlen(a->system), e);
    if (status == 0) status = converse(&t, operand ? operand : a->file, e);
    llm_chat_release(&t.chat);
    llm_buf_release(&t.reply);
    json_decref(t.messages);
    return status;
}
