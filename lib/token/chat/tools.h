/* Calls of tools in what a model says. Each family writes them in its own way, which its chat template shows; this is the table of the ways, and
 * their parser. What a call must look like, as a language, is in infer/constrain/tools.h. */
#ifndef LLM_TOKEN_CHAT_TOOLS_H
#define LLM_TOKEN_CHAT_TOOLS_H

#include <stdbool.h>
#include "base/json.h"

/* One way. All of `open`, then for each call `begin`, the call and `end`, then `close`; white space may stand between. The call is JSON,
 * {"name": …, "arguments": {…}}, or if `between` is set, the name, `between` and the arguments as JSON. */
struct llm_tool_form {
    const char *name;
    const char *hints[3];      /* texts that all stand in the templates of this family; NULL ends them */
    const char *open, *begin, *between, *end, *close; /* "": none */
    const char *arguments;     /* the key of the arguments */
    bool list;                 /* a JSON array of calls follows `begin` */
    bool bare;                 /* a text that begins with a call's '{' is one: `begin` is "" */
    const char *key;           /* of the name; NULL: "name" */
    const char *id;            /* of a number, as a text, with which a call begins; NULL: none */
    enum { LLM_TOOL_TAG_NONE, LLM_TOOL_TAG_CALL, LLM_TOOL_TAG_CODE } tag; /* what may follow "<|python_tag|>": a call as of Python, code */
    const char *talk;          /* the prompt ends in `begin`, and an answer that is no call begins with this; NULL: it does not */
};
/* Ends with a NULL name. A further family is a row, before any whose hints its templates have, too. */
extern const struct llm_tool_form llm_tool_forms[];
/* The form of a template's calls. NULL: it shows none that is known. */
const struct llm_tool_form *llm_tool_form_find(const char *template_text);

/* What follows a prompt of the template whose answer is to be no call: the form's `talk` if the prompt ends in `begin`, else "". */
const char *llm_tool_no_call(const char *template_text, const char *prompt, size_t n);

/* How many bytes at the beginning of an answer say only that what follows is no call. */
size_t llm_tool_talk(const struct llm_tool_form *f, const char *text, size_t n);
/* Reads the calls in a text, also the one after "<|python_tag|>" (`tag`): name.call(key=JSON, …), or code, the argument "code" of "python". Special
 * tokens must be in it as they are written. `begun`: the text begins after `open` and `begin`. *calls: an array of {"name": …, "arguments": {…}}, the
 * caller's; NULL if there is none, or what looks like one is not whole. *n_content: bytes before the first call, white space at their end left out.
 * 0 or -1. */
int llm_tool_calls_read(const struct llm_tool_form *f, const char *text, size_t n, bool begun, json_t **calls, size_t *n_content,
                        struct llm_err *e) LLM_MUST_CHECK;
/* If the template writes arguments, or calls as a whole, by its filter tojson, those of messages that are texts, as
 * OpenAI has them, become objects. 0 or -1. */
int llm_tool_messages_prepare(const char *template_text, json_t *messages, struct llm_err *e) LLM_MUST_CHECK;

#endif
