/* What the model's chat template makes of conversations. */
#include <string.h>
#include "base/log.h"
#include "bin/infer/sight.h"
#include "bin/infer/sources.h"
#include "model/weights/lora.h"
#include "token/chat/tools.h"

int chat_open(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    struct chat *c = &s->chat;
    if (c->open) return 0;
    time_t seconds = time(NULL);
    localtime_r(&seconds, &c->now);
    if (!s->model->tokenizer) return llm_fail(e, EX_DATAERR, "%s: the model carries no tokenizer: name one with -T", a->model);
    const char *path = a->model; /* an adapter's template takes the place of the model's */
    for (const struct llm_lora *l = s->model->lora; l; l = l->next) path = l->has_chat ? l->path : path;
    if (llm_chat_find(&c->found, a->chat_template, path, s->model->tokenizer, e) < 0) return -1;
    c->n_ends = llm_chat_turn_ends(&c->found, s->model->tokenizer, c->ends);
    c->open = true;
    return 0;
}

void chat_release(struct session *s)
{
    llm_chat_release(&s->chat.found);
}

/* Parts that the model does not read are refused, whatever its template makes of them. */
static int check_parts(const struct session *s, const json_t *messages, struct llm_err *e)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        for (size_t k = 0; k < json_array_size(content); k++) {
            const json_t *part = json_array_get(content, k);
            const char *type = json_string_value(json_object_get(part, "type"));
            if (type && strcmp(type, "text") == 0 && json_is_string(json_object_get(part, "text"))) continue;
            if (type && strcmp(type, "image") == 0 && sight_is(s)) continue;
            return llm_fail(e, EX_DATAERR, "\"messages\": element %zu: \"content\": element %zu: "
                            "expected a part {\"type\": \"text\", \"text\": ...}", i, k);
        }
    }
    return 0;
}

int chat_encode(const struct session *s, const json_t *messages, const json_t *tools, const json_t *given, const char *begun, int32_t **ids,
                size_t *n_ids, struct llm_err *e)
{
    const struct chat *c = &s->chat;
    json_t *variables = s->a->no_think ? json_pack("{s:b}", "enable_thinking", 0) : json_object();
    const struct llm_chat_options o = {.add_generation_prompt = true, .functions = true, .image = s->placeholder.p, .bos = c->found.bos,
                                       .eos = c->found.eos, .now = &c->now, .variables = variables};
    struct llm_buf text = {0};
    *ids = NULL;
    *n_ids = 0;
    int status = !variables || (given && json_object_update(variables, (json_t *)(uintptr_t)given) < 0) ? llm_no_memory(e, "a conversation")
                                                                                                      : check_parts(s, messages, e);
    json_t *all = status == 0 ? sources_put(s, messages, e) : NULL;
    if (status == 0) status = all ? llm_chat_render(c->found.template, all, tools, &o, &text, NULL, e) : -1;
    if (status == 0 && !begun) begun = llm_tool_no_call(c->found.text, text.p ? text.p : "", text.n);
    if (status == 0) status = llm_buf_put(&text, begun, strlen(begun), e);
    if (status == 0) status = llm_encode(s->model->tokenizer, text.p, text.n, LLM_ENCODE_SPECIAL, ids, n_ids, e);
    llm_buf_release(&text);
    json_decref(all);
    json_decref(variables);
    if (status == 0 && *n_ids == 0) status = llm_fail(e, EX_DATAERR, "the template makes an empty prompt of the conversation");
    return status == 0 ? prompt_check_vocab(s, *ids, *n_ids, e) : status;
}

void chat_hint(struct session *s)
{
    struct llm_chat found = {0};
    struct llm_err ignored;
    if (s->hinted || !s->model->tokenizer) return;
    s->hinted = true;
    if (llm_chat_find(&found, NULL, s->a->model, s->model->tokenizer, &ignored) == 0) {
        llm_note("the model ended its text at once; it has a chat template, so it may expect --chat");
    }
    llm_chat_release(&found);
}
