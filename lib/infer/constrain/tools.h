/* Calls of tools as a language: their form is the chat template's (token/chat/tools.h), their arguments are what each tool's JSON Schema allows. */
#ifndef LLM_INFER_CONSTRAIN_TOOLS_H
#define LLM_INFER_CONSTRAIN_TOOLS_H

#include "infer/constrain/schema.h"

struct llm_tool_schemas; /* must live as long as the terms */
/* *root: calls, from where the form's `open` and `begin` have been said. `text`: {"form": its name, "tools": [OpenAI's tools], "many": whether
 * several calls may follow one another} as JSON. NULL: `e` says why, of a tool by its name (EX_DATAERR). */
struct llm_tool_schemas *llm_tool_schemas_create(struct llm_terms *t, const char *text, size_t n, llm_term *root, struct llm_err *e) LLM_MUST_CHECK;
void llm_tool_schemas_destroy(struct llm_tool_schemas *s);

#endif
