/* Regular expressions as constraints: any pattern (up to the first NUL), of whole texts and within JSON strings, and bytes to read. */
#include "infer/constrain/regex.h"
#include "language.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *rest;
    size_t n_rest, length = language_split(data, n, &rest, &n_rest);
    for (int use = 0; use < 2 && length < 256; use++) {
        struct llm_err e = {0};
        struct llm_terms *t = llm_terms_create(LANGUAGE_TERMS, &e);
        MUST(t);
        llm_term a = llm_regex_term(t, (const char *)data, length, use ? LLM_REGEX_JSON_SEARCH : LLM_REGEX_WHOLE, &e);
        MUST(e.status == 0 || a == LLM_TERM_NOTHING);
        language_walk(t, a, rest, n_rest);
        llm_terms_destroy(t);
    }
    return 0;
}
