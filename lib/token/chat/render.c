/* A conversation rendered, with the parts of its messages joined and the assistant's text found where that is asked for. */
#include "token/chat/render.h"

static bool has_parts(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (json_is_array(json_object_get(json_array_get(messages, i), "content"))) return true;
    return false;
}

/* Messages with a text of no bytes in place of a content that is null, as it is beside calls of tools. Not null: has_null. NULL: out of memory. */
static json_t *without_null(const json_t *messages, struct llm_err *e)
{
    json_t *all = json_array();
    int bad = !all;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *copy = json_is_null(json_object_get(m, "content")) ? json_copy(m) : json_incref(m);
        if (copy && copy != m) bad |= json_object_set_new(copy, "content", json_string(""));
        bad |= json_array_append_new(all, copy);
    }
    if (!bad) return all;
    json_decref(all);
    llm_no_memory(e, "messages");
    return NULL;
}

static bool has_null(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (json_is_null(json_object_get(json_array_get(messages, i), "content"))) return true;
    return false;
}

static int render(const struct llm_chat_template *t, const json_t *messages, const json_t *tools, const struct llm_chat_options *o,
                  struct llm_buf *out, struct llm_chat_spans *spans, struct llm_err *e)
{
    struct llm_chat_request r = {messages, json_array_size(messages), tools, o, o->add_generation_prompt};
    return !spans || llm_chat_marks_spans(t) ? llm_chat_render_once(t, &r, out, spans, e) : llm_chat_render_spans(t, &r, out, spans, e);
}

int llm_chat_render(const struct llm_chat_template *t, const json_t *messages, const json_t *tools, const struct llm_chat_options *o,
                    struct llm_buf *out, struct llm_chat_spans *spans, struct llm_err *e)
{
    if (!json_is_array(messages)) return llm_fail(e, EX_DATAERR, "messages: expected an array of objects");
    if (tools && !json_is_array(tools)) return llm_fail(e, EX_DATAERR, "tools: expected an array");
    json_t *joined = has_parts(messages) || o->image ? llm_chat_join_parts(t, messages, o, e) : json_incref((json_t *)(uintptr_t)messages);
    if (!joined) return -1;
    const size_t n_out = out->n, n_spans = spans ? spans->n : 0;
    int status = render(t, joined, tools, o, out, spans, e);
    if (status < 0 && has_null(joined)) { /* many templates expect a text */
        struct llm_err again = {0};
        json_t *texts = without_null(joined, &again);
        out->n = n_out;
        if (spans) spans->n = n_spans;
        status = texts ? render(t, texts, tools, o, out, spans, &again) : -1;
        if (status == 0 && e) *e = (struct llm_err){0};
        json_decref(texts);
    }
    json_decref(joined);
    return status;
}
