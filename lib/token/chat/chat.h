/* Chat templates: messages to the text a model was trained on. A template is Jinja2, as a model's tokenizer_config.json holds it; what is
 * rendered is what transformers renders (its environment: trim_blocks, lstrip_blocks, loop controls, an immutable sandbox). */
#ifndef LLM_TOKEN_CHAT_CHAT_H
#define LLM_TOKEN_CHAT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include "base/buf.h"
#include "base/json_long.h"

/* 0: the default. A template is a stranger's program: it ends when one of these is used up. */
struct llm_chat_limits {
    size_t steps;  /* nodes evaluated, items visited, units of 64 bytes moved [50 million] */
    size_t depth;  /* of recursion, in the template and while it runs [1000] */
    size_t memory; /* bytes, of values and of output alike [256 MiB] */
};

struct llm_chat_template; /* opaque; immutable once made */
/* Parses a template. NULL: "template: line 12: message". */
struct llm_chat_template *llm_chat_template_create(const char *text, size_t n, const struct llm_chat_limits *limits, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_chat_template_destroy(struct llm_chat_template *t);
/* The text of a built-in template ("chatml", "llama3", …) or NULL; the names, one after another, NULL at the end. */
const char *llm_chat_builtin(const char *name);
const char *llm_chat_builtin_word(int i);

struct llm_chat_options {
    bool add_generation_prompt; /* end with what begins the assistant's turn */
    const char *image;          /* the text of a part of type "image" in templates that take texts, which stands for a picture; NULL: such parts are
                                 * refused */
    const char *bos, *eos;      /* bos_token and eos_token; NULL: not defined */
    const json_t *variables;    /* an object of more variables; NULL: none. Borrowed. */
    const struct llm_json_long *strings; /* that `messages` and `tools` were parsed by; NULL: by llm_json_parse. Borrowed. */
    bool functions;             /* firefunction-v2's template gets the tools' JSON as the text `functions`, and the date `datetime`, as llama.cpp
                                 * gives them; transformers defines neither */
    const struct tm *now;       /* what strftime_now speaks of; NULL: the function is not defined */
    struct llm_chat_limits limits;
};
struct llm_chat_span { size_t begin, end; }; /* bytes of the output */
struct llm_chat_spans { struct llm_chat_span *v; size_t n, room; }; /* zero-initialise; llm_chat_spans_release */
void llm_chat_spans_release(struct llm_chat_spans *s);

/* Appends the rendered conversation to `out`. messages: an array of objects with "role" and "content"; tools: an array or NULL.
 * Content may be a list of parts {"type": "text", "text": …}: a template that does not take lists gets their texts, joined by newlines. A template
 * that fails where content is null, as it is beside calls of tools, gets an empty text.
 * `spans` (may be NULL) gets the assistant's text: what {% generation %} blocks hold when the template has any; else it is found by
 * rendering the conversation cut before and after each turn of the role "assistant", from the end of the generation prompt to the end
 * of the turn (end-of-turn token included). -1: a template that refuses its input, a limit, or spans that cannot be told. */
int llm_chat_render(const struct llm_chat_template *t, const json_t *messages, const json_t *tools, const struct llm_chat_options *o,
                    struct llm_buf *out, struct llm_chat_spans *spans, struct llm_err *e) LLM_MUST_CHECK;

#endif
