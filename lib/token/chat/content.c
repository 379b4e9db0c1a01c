/* Messages whose content is a list of parts, {"type": "text", "text": …}, as OpenAI's interface has them. */
#include <string.h>
#include "token/chat/render.h"

#define NEEDLE "text-of-a-part"

/* Whether the template itself makes a text of a list of parts in messages of this role, rather than refusing or printing the list. */
static bool takes_parts(const struct llm_chat_template *t, const struct llm_chat_options *o, const char *role)
{
    struct llm_err ignored;
    struct llm_buf out = {0};
    json_t *parts = json_pack("[{s:s,s:s}]", "type", "text", "text", NEEDLE);
    json_t *before = json_pack("[{s:s,s:s}]", "role", "user", "content", "x");
    json_t *message = json_pack("{s:s,s:O}", "role", role, "content", parts);
    bool system = strcmp(role, "system") == 0, user = strcmp(role, "user") == 0, takes = false;
    json_t *messages = user ? json_pack("[O]", message) : system ? json_pack("[O,O]", message, json_array_get(before, 0))
                                                                 : json_pack("[O,O]", json_array_get(before, 0), message);
    struct llm_chat_request r = {messages, json_array_size(messages), NULL, o, o->add_generation_prompt};
    if (messages && llm_chat_render_once(t, &r, &out, NULL, &ignored) == 0) {
        bool shown = memmem(out.p, out.n, NEEDLE, sizeof NEEDLE - 1) != NULL;
        takes = shown && !memmem(out.p, out.n, "'type'", 6) && !memmem(out.p, out.n, "\"type\"", 6);
    }
    json_decref(messages);
    json_decref(message);
    json_decref(before);
    json_decref(parts);
    llm_buf_release(&out);
    return takes;
}

/* The parts of message `i` as one string, newlines between them. NULL: `e`. */
static json_t *joined(const json_t *content, size_t i, const struct llm_chat_options *o, struct llm_err *e)
{
    struct llm_buf b = {0};
    json_t *text = NULL;
    size_t n = 0;
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *part = json_array_get(content, k), *said = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        const bool picture = o->image && type && strcmp(type, "image") == 0;
        if (!picture && (!type || strcmp(type, "text") != 0 || !json_is_string(said))) {
            llm_fail(e, EX_DATAERR, "messages: element %zu: content: element %zu: expected a part of type \"text\", found \"%s\"", i, k,
                     type ? type : "none");
            goto end;
        }
        if (json_array_size(content) == 1 && !picture) return json_incref((json_t *)(uintptr_t)said);
        const char *words = picture ? o->image : llm_json_long_string(o->strings, said, &n);
        if (picture) n = strlen(words);
        if ((k > 0 && llm_buf_put(&b, "\n", 1, e) < 0) || llm_buf_put(&b, words, n, e) < 0) goto end;
    }
    text = json_stringn(b.p ? b.p : "", b.n);
    if (!text) llm_no_memory(e, "a message");
end:
    llm_buf_release(&b);
    return text;
}

json_t *llm_chat_join_parts(const struct llm_chat_template *t, const json_t *messages, const struct llm_chat_options *o, struct llm_err *e)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)messages);
    if (!copy) llm_no_memory(e, "messages");
    for (size_t i = 0; copy && i < json_array_size(copy); i++) {
        json_t *m = json_array_get(copy, i), *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        const bool list = json_is_array(content), takes = role && (list || o->image) && takes_parts(t, o, role);
        if (list ? takes : !takes || !json_is_string(content)) continue;
        json_t *text = list ? joined(content, i, o, e) : json_pack("[{s:s,s:O}]", "type", "text", "text", content);
        json_t *changed = text ? json_copy(m) : NULL;
        int bad = changed ? json_object_set(changed, "content", text) : -1;
        if (bad == 0) bad = json_array_set(copy, i, changed);
        if (bad && text) llm_no_memory(e, "messages");
        json_decref(text);
        json_decref(changed);
        if (!bad) continue;
        json_decref(copy);
        return NULL;
    }
    return copy;
}
