/* JSON Schema as a language of JSON texts. A schema is brought to a normal form: for each type alternatives without anyOf, oneOf, allOf, not and
 * references, in which everything that is demanded of a value at one place is one node. Conjunctions are sets of schemas, complements are schemas
 * that are negated, so that the documents of the language are exactly those that the schema allows, each in several spellings: members in any order,
 * white space as usual, escapes in strings.
 *
 * Drafts 4 to 2020-12 by their keywords; formats are demanded. What a grammar cannot decide is refused by name (llm_schema_create). */
#ifndef LLM_INFER_CONSTRAIN_SCHEMA_H
#define LLM_INFER_CONSTRAIN_SCHEMA_H

#include "base/json.h"
#include "infer/constrain/term.h"

struct llm_schema; /* must live as long as the terms */
/* *root: the term of the whole text. NULL: `e` says why (EX_DATAERR): a keyword that is not supported by its name, a reference that leads nowhere, a
 * schema that no value satisfies. The schema is read from JSON text. */
struct llm_schema *llm_schema_create(struct llm_terms *t, const char *text, size_t n, llm_term *root, struct llm_err *e) LLM_MUST_CHECK;
void llm_schema_destroy(struct llm_schema *s);

#endif
