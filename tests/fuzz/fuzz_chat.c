/* Chat templates: what parses is rendered within its limits, twice the same, and its spans lie within the output. The messages are fixed. */
#include "fuzz.h"
#include "token/chat/chat.h"

static const char talk[] = "[{\"role\":\"system\",\"content\":\"S \"},{\"role\":\"user\",\"content\":\"\\u00e9 <b>\"},"
                           "{\"role\":\"assistant\",\"content\":\" A\"},"
                           "{\"role\":\"assistant\",\"content\":null,"
                           "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5]}}}]}]";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static json_t *messages;
    struct llm_err e = {0};
    const struct tm now = {.tm_year = 126, .tm_mday = 1};
    struct llm_chat_options o = {.bos = "<s>", .eos = "</s>", .now = &now, .limits = {20000, 200, (size_t)8 << 20}};
    if (!messages) messages = llm_json_parse(talk, sizeof talk - 1, &e);
    struct llm_chat_template *t = llm_chat_template_create((const char *)data, n, &o.limits, &e);
    MUST(t || e.status);
    if (!t) return 0;
    struct llm_buf first = {0}, second = {0};
    struct llm_chat_spans spans = {0};
    int got = llm_chat_render(t, messages, messages, &o, &first, NULL, &e);
    MUST(got == 0 || (e.status && e.text[0] && !strchr(e.text, '\n')));
    int again = llm_chat_render(t, messages, messages, &o, &second, &spans, &e);
    MUST(got == 0 || again < 0);
    if (again == 0) {
        MUST(first.n == second.n && memcmp(first.p, second.p, first.n) == 0);
        for (size_t i = 0; i < spans.n; i++) MUST(spans.v[i].begin <= spans.v[i].end && spans.v[i].end <= second.n);
    }
    llm_chat_spans_release(&spans);
    llm_buf_release(&first);
    llm_buf_release(&second);
    llm_chat_template_destroy(t);
    return 0;
}
