/* Grammars: any text (up to the first NUL), and bytes that its language is asked for. */
#include "infer/constrain/grammar.h"
#include "language.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    const uint8_t *rest;
    size_t n_rest, length = language_split(data, n, &rest, &n_rest);
    struct llm_terms *t = llm_terms_create(LANGUAGE_TERMS, &e);
    llm_term root = LLM_TERM_NOTHING;
    MUST(t);
    struct llm_grammar *g = length < 4096 ? llm_grammar_create(t, (const char *)data, length, &root, &e) : NULL;
    MUST(g || length >= 4096 || e.status);
    if (g) language_walk(t, root, rest, n_rest);
    llm_grammar_destroy(g);
    llm_terms_destroy(t);
    return 0;
}
