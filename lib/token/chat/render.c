/* A conversation rendered, with the parts of its messages joined and the assistant's text found where that is asked for. */
#include "token/chat/render.h"

static bool has_parts(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (json_is_array(json_object_get(json_array_get(messages, i), "content"))) return true;
    return false;
}

int llm_chat_render(const struct llm_chat_template *t, const json_t *messages, const json_t *tools, const struct llm_chat_options *o,
                    struct llm_buf *out, struct llm_chat_spans *spans, struct llm_err *e)
{
    if (!json_is_array(messages)) return llm_fail(e, EX_DATAERR, "messages: expected an array of objects");
    if (tools && !json_is_array(tools)) return llm_fail(e, EX_DATAERR, "tools: expected an array");
    json_t *joined = has_parts(messages) || o->image ? llm_chat_join_parts(t, messages, o, e) : json_incref((json_t *)(uintptr_t)messages);
    if (!joined) return -1;
    struct llm_chat_request r = {joined, json_array_size(joined), tools, o, o->add_generation_prompt};
    int status = !spans || llm_chat_marks_spans(t) ? llm_chat_render_once(t, &r, out, spans, e) : llm_chat_render_spans(t, &r, out, spans, e);
    json_decref(joined);
    return status;
}
