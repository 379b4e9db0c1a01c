#include "bin/infer/openai.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/hash.h"
#include "base/utf8.h"

void openai_release(struct openai *r)
{
    free(r->model);
    json_decref(r->choices);
    *r = (struct openai){0};
}

/* Members of a request that change nothing here. */
static const char *const ignored[] = {"model", "user", "metadata", "store", "stream", "stream_options", "service_tier", "safety_identifier",
                                      "prompt_cache_key"};

/* Members with another name than the option of a line. */
static const char *const renamed[][2] = {{"max_completion_tokens", "max_tokens"}, {"n", "samples"}};

/* Members that a line of ours has too, beside the options of a number. */
static const char *const same[] = {"messages", "tools", "tool_choice", "parallel_tool_calls", "stop",
                                   "logit_bias", "ids", "adapter", "steer", "ignore_eos",
                                   "dry_sequence_breaker", "dry_sequence_breakers", "chat_template_kwargs"};

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* "prompt": a text, or a list of token ids. */
static int take_prompt(json_t *line, json_t *v, struct llm_err *e)
{
    bool ids = json_is_array(v) && json_is_integer(json_array_get(v, 0));
    const json_t *only = json_is_array(v) && json_array_size(v) == 1 ? json_array_get(v, 0) : v;
    if (!ids && !json_is_string(only)) return llm_fail(e, EX_DATAERR, "\"prompt\": expected a string or a list of token ids");
    return json_object_set(line, ids ? "ids" : "prompt", ids ? v : (json_t *)(uintptr_t)only) < 0 ? llm_no_memory(e, "a line") : 0;
}

/* "logprobs" of a message is true or false, of a text the number of alternatives. */
static int take_log_probs(struct openai *r, json_t *line, const json_t *body, struct llm_err *e)
{
    const json_t *v = json_object_get(body, "logprobs"), *top = json_object_get(body, "top_logprobs");
    int64_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    if (top && !json_is_null(top) && llm_json_int(body, "top_logprobs", 0, LLM_MAX_TOP_LOG_PROBS, &n, e) < 0) return -1;
    if (!v || json_is_null(v) || json_is_false(v)) return 0;
    if (!json_is_true(v) && (!json_is_integer(v) || n < 0 || n > LLM_MAX_TOP_LOG_PROBS)) {
        return llm_fail(e, EX_DATAERR, "\"logprobs\": expected true, false or an integer up to %d", LLM_MAX_TOP_LOG_PROBS);
    }
    r->logprobs = true;
    return json_object_set_new(line, "logprobs", json_integer(n)) < 0 ? llm_no_memory(e, "a line") : 0;
}

static int take_member(struct openai *r, json_t *line, const char *name, json_t *v, struct llm_err *e)
{
    const char *to = name, *choice = json_string_value(v);
    if (json_is_null(v)) return 0; /* as if it were absent */
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(renamed[i][0], name) == 0) to = renamed[i][1];
    if (strcmp(name, "model") == 0 && choice) {
        r->model = strdup(choice);
        return r->model ? 0 : llm_no_memory(e, "a line");
    }
    if (strcmp(name, "echo") == 0 && json_is_false(v)) return 0;
    if (is_one_of(name, ignored, sizeof ignored / sizeof *ignored) || strcmp(name, "logprobs") == 0 || strcmp(name, "top_logprobs") == 0) return 0;
    if (strcmp(name, "prompt") == 0) return take_prompt(line, v, e);
    const struct llm_opt *o = llm_cli_option(&infer_cli, to);
    if (!is_one_of(to, same, sizeof same / sizeof *same) && !constraints_know(to) && !(o && llm_cli_listed(LINE_OPTIONS, o->name))) {
        return llm_fail(e, EX_DATAERR, "\"body\": \"%s\" is not understood", name);
    }
    return json_object_set(line, to, v) < 0 ? llm_no_memory(e, "a line") : 0;
}

int openai_take(struct openai *r, json_t **object, struct llm_err *e)
{
    json_t *id = json_object_get(*object, "custom_id"), *body = json_object_get(*object, "body"), *v;
    const char *name;
    if (!id || !body) return 0;
    r->is = true;
    if (!json_is_string(id)) return llm_fail(e, EX_DATAERR, "\"custom_id\": expected a string");
    if (!json_is_object(body)) return llm_fail(e, EX_DATAERR, "\"body\": expected an object");
    r->chat = json_object_get(body, "messages") != NULL;
    r->choices = json_array();
    json_t *line = json_pack("{s:O}", "id", id);
    int status = !line || !r->choices ? llm_no_memory(e, "a line") : take_log_probs(r, line, body, e);
    json_object_foreach(body, name, v) {
        if (status == 0) status = take_member(r, line, name, v, e);
    }
    if (status < 0) {
        json_decref(line);
        return -1;
    }
    json_decref(*object);
    *object = line;
    return 0;
}

/* A token's text; one that is no UTF-8 as OpenAI writes it, bytes:\xf0\x9f, so that no two are the same. NULL: no memory. */
static json_t *piece_of(const json_t *token)
{
    struct llm_buf raw = {0}, named = {0};
    json_t *byte, *o = NULL;
    size_t i;
    int bad = 0;
    json_array_foreach(json_object_get(token, "bytes"), i, byte) bad |= llm_buf_put(&raw, &(char){(char)json_integer_value(byte)}, 1, NULL);
    bool valid = raw.n == 0 || llm_utf8_invalid((const unsigned char *)raw.p, raw.n) == raw.n;
    if (!valid) bad |= llm_buf_printf(&named, NULL, "bytes:");
    for (i = 0; !valid && i < raw.n; i++) bad |= llm_buf_printf(&named, NULL, "\\x%02x", (unsigned char)raw.p[i]);
    if (!bad) o = valid ? json_incref(json_object_get(token, "token")) : json_string(named.p);
    llm_buf_release(&raw);
    llm_buf_release(&named);
    return o;
}

/* Log-probabilities as completions of texts have them, from those of a message: lists of tokens, of numbers, of objects, of characters before. */
static json_t *of_text(json_t *log_probs, struct llm_err *e)
{
    json_t *tokens = json_array(), *numbers = json_array(), *tops = json_array(), *offsets = json_array(), *one, *other, *byte;
    json_int_t offset = 0;
    size_t i, k;
    int bad = 0;
    json_array_foreach(json_object_get(log_probs, "content"), i, one) {
        json_t *top = json_object();
        bad |= json_array_append_new(tokens, piece_of(one)) | json_array_append(numbers, json_object_get(one, "logprob"));
        json_array_foreach(json_object_get(one, "top_logprobs"), k, other) {
            json_t *piece = piece_of(other);
            bad |= piece ? json_object_set(top, json_string_value(piece), json_object_get(other, "logprob")) : -1;
            json_decref(piece);
        }
        bad |= json_array_append_new(tops, top) | json_array_append_new(offsets, json_integer(offset));
        json_array_foreach(json_object_get(one, "bytes"), k, byte) offset += (json_integer_value(byte) & 0xC0) != 0x80;
    }
    json_t *o = json_pack("{s:o,s:o,s:o,s:o}", "tokens", tokens, "token_logprobs", numbers, "top_logprobs", tops, "text_offset", offsets);
    json_decref(log_probs);
    if (o && !bad) return o;
    json_decref(o);
    llm_no_memory(e, "a line of output");
    return NULL;
}

int openai_choice(struct openai *r, const struct session *s, const struct tools *t, const struct llm_completion *c, json_t *log_probs,
                  struct llm_err *e)
{
    bool called = false;
    json_t *said = r->chat ? tools_message(t, s, c, &called, e) : llm_json_text(c->text.bytes.p ? c->text.bytes.p : "", c->text.bytes.n);
    json_t *choice = json_pack("{s:I}", "index", (json_int_t)c->sample);
    const char *finish = called ? TOOLS_FINISH : c->finish == LLM_FINISH_STOP ? "stop" : "length";
    if (log_probs && !r->chat && !(log_probs = of_text(log_probs, e))) {
        json_decref(said);
        json_decref(choice);
        return -1;
    }
    int bad = json_object_set_new(choice, r->chat ? "message" : "text", said);
    bad |= json_object_set_new(choice, "logprobs", log_probs ? log_probs : json_null());
    bad |= json_object_set_new(choice, "finish_reason", json_string(finish));
    bad |= json_array_append_new(r->choices, choice);
    r->made += c->n;
    return bad ? llm_no_memory(e, "a line of output") : 0;
}

json_t *openai_answer(const struct openai *r, const struct session *s, const json_t *id, uint64_t prompt, int64_t prompt_tokens, struct llm_err *e)
{
    char request[40], name[40], body_name[40];
    json_int_t created = s->a->no_timings ? 0 : (json_int_t)time(NULL);
    snprintf(name, sizeof name, "batch_req_%016" PRIx64, prompt);
    snprintf(request, sizeof request, "req_%016" PRIx64, prompt);
    snprintf(body_name, sizeof body_name, "%s-%016" PRIx64, r->chat ? "chatcmpl" : "cmpl", prompt);
    json_t *usage = json_pack("{s:I,s:I,s:I}", "prompt_tokens", (json_int_t)prompt_tokens, "completion_tokens", (json_int_t)r->made, "total_tokens",
                              (json_int_t)(prompt_tokens + r->made));
    json_t *body = json_pack("{s:s,s:s,s:I,s:s,s:O,s:o}", "id", body_name, "object", r->chat ? "chat.completion" : "text_completion", "created",
                             created, "model", r->model ? r->model : s->a->model, "choices", r->choices, "usage", usage);
    json_t *response = json_pack("{s:i,s:s,s:o}", "status_code", 200, "request_id", request, "body", body);
    json_t *o = json_pack("{s:s,s:O,s:o,s:n}", "id", name, "custom_id", id, "response", response, "error");
    if (!o) llm_no_memory(e, "a line of output");
    return o;
}

json_t *openai_error(const json_t *id, const char *text, struct llm_err *e)
{
    char name[40];
    struct llm_buf dump = {0};
    json_t *o = NULL;
    if (llm_json_dump(id, &dump, e) == 0) {
        snprintf(name, sizeof name, "batch_req_%016" PRIx64, llm_xxh64(dump.p, dump.n, 0));
        o = json_pack("{s:s,s:O,s:n,s:{s:s,s:o}}", "id", name, "custom_id", id, "response", "error", "code", "invalid_request", "message",
                      llm_json_text(text, strlen(text)));
        if (!o) llm_no_memory(e, "a line of output");
    }
    llm_buf_release(&dump);
    return o;
}
