/* GBNF (llama.cpp, grammars/README.md). */
#include "infer/constrain/grammar_internal.h"

static int32_t read_text(struct llm_grammar *g)
{
    int32_t all = llm_grammar_node(g, LLM_NODE_SEQUENCE), last = LLM_NO_NODE;
    while (llm_grammar_peek(g) >= 0 && llm_grammar_peek(g) != '"') {
        uint32_t x = llm_grammar_text_char(g);
        llm_grammar_append(g, all, &last, llm_grammar_char(g, x, x));
    }
    if (!llm_grammar_take(g, "\"")) return llm_grammar_fail(g, "expected \" at the end of a text");
    return all;
}

static int32_t read_class(struct llm_grammar *g)
{
    bool others = llm_grammar_take(g, "^");
    int32_t all = llm_grammar_node(g, LLM_NODE_CHARS);
    while (llm_grammar_peek(g) >= 0 && llm_grammar_peek(g) != ']') {
        uint32_t low = llm_grammar_text_char(g), high = low;
        if (g->n - g->at >= 2 && g->p[g->at] == '-' && g->p[g->at + 1] != ']' && llm_grammar_take(g, "-")) high = llm_grammar_text_char(g);
        if (high < low) return llm_grammar_fail(g, "expected a range that ascends");
        if (!g->bad && llm_chars_put(&g->nodes[all].chars, low, high, g->e) < 0) g->bad = true;
    }
    if (!llm_grammar_take(g, "]")) return llm_grammar_fail(g, "expected ] at the end of a class");
    if (!g->bad && others && llm_chars_invert(&g->nodes[all].chars, g->e) < 0) g->bad = true;
    if (!g->bad) llm_chars_tidy(&g->nodes[all].chars);
    return all;
}

static int32_t read_either(struct llm_grammar *g, bool lines);

static int32_t read_atom(struct llm_grammar *g)
{
    if (llm_grammar_take(g, "\"")) return read_text(g);
    if (llm_grammar_take(g, "[")) return read_class(g);
    if (llm_grammar_take(g, ".")) {
        int32_t i = llm_grammar_node(g, LLM_NODE_CHARS);
        if (i != LLM_NO_NODE && llm_chars_invert(&g->nodes[i].chars, g->e) < 0) g->bad = true;
        return i;
    }
    if (llm_grammar_take(g, "(")) {
        llm_grammar_skip(g, true, NULL);
        int32_t i = read_either(g, true);
        return llm_grammar_take(g, ")") ? i : llm_grammar_fail(g, "expected ) at the end of a group");
    }
    if (llm_grammar_peek(g) == '<' || llm_grammar_peek(g) == '!')
        return llm_grammar_fail(g, "tokens within a grammar are not supported: expected a text, a class or a rule");
    size_t from = g->at;
    while (llm_grammar_is_name(llm_grammar_peek(g))) g->at++;
    if (g->at == from) return llm_grammar_fail(g, "expected a text, a class, a group or the name of a rule");
    return llm_grammar_use(g, llm_grammar_rule(g, (const char *)g->p + from, g->at - from));
}

/* An item with its repetitions. */
static int32_t read_item(struct llm_grammar *g, bool lines)
{
    int32_t item = read_atom(g);
    for (int suffixes = 0;; suffixes++) {
        uint32_t min = 0, max = LLM_REPEAT_ALWAYS;
        llm_grammar_skip(g, lines, NULL);
        if (llm_grammar_take(g, "+")) min = 1;
        else if (llm_grammar_take(g, "?")) max = 1;
        else if (llm_grammar_take(g, "{")) llm_grammar_counts(g, &min, &max);
        else if (!llm_grammar_take(g, "*")) return item;
        if (suffixes == LLM_GRAMMAR_MAX_SUFFIXES) return llm_grammar_fail(g, "expected at most 8 repetitions after one another");
        item = llm_grammar_repeat(g, item, min, max);
    }
}

/* Whether `name ::=` begins here, which ends a rule that goes over several lines. */
static bool at_rule(const struct llm_grammar *g)
{
    size_t i = g->at;
    while (i < g->n && llm_grammar_is_name(g->p[i])) i++;
    if (i == g->at) return false;
    while (i < g->n && (g->p[i] == ' ' || g->p[i] == '\t')) i++;
    return g->n - i >= 3 && memcmp(g->p + i, "::=", 3) == 0;
}

static int32_t read_sequence(struct llm_grammar *g, bool lines)
{
    int32_t all = llm_grammar_node(g, LLM_NODE_SEQUENCE), last = LLM_NO_NODE;
    llm_grammar_skip(g, lines, NULL);
    for (int c; (c = llm_grammar_peek(g)) >= 0 && c != '|' && c != ')' && c != '\n' && c != '\r' && !at_rule(g);)
        llm_grammar_append(g, all, &last, read_item(g, lines));
    return all;
}

static int32_t read_either(struct llm_grammar *g, bool lines)
{
    int32_t all = llm_grammar_node(g, LLM_NODE_EITHER), last = LLM_NO_NODE;
    if (++g->nested > LLM_GRAMMAR_MAX_NESTED) return llm_grammar_fail(g, "groups are nested too deeply");
    for (;;) {
        llm_grammar_append(g, all, &last, read_sequence(g, lines));
        size_t at = g->at;
        int line = g->line;
        llm_grammar_skip(g, true, NULL); /* the next alternative may stand on the next line */
        if (!llm_grammar_take(g, "|")) {
            if (!lines) {
                g->at = at;
                g->line = line;
            }
            break;
        }
        llm_grammar_skip(g, true, NULL);
    }
    g->nested--;
    return all;
}

void llm_gbnf_read(struct llm_grammar *g)
{
    for (llm_grammar_skip(g, true, NULL); llm_grammar_peek(g) >= 0; llm_grammar_skip(g, true, NULL)) {
        size_t from = g->at;
        while (llm_grammar_is_name(llm_grammar_peek(g))) g->at++;
        size_t n = g->at - from;
        llm_grammar_skip(g, false, NULL);
        if (n == 0 || !llm_grammar_take(g, "::=")) {
            (void)llm_grammar_fail(g, "expected a rule: name ::= …");
            return;
        }
        int32_t rule = llm_grammar_begin(g, (const char *)g->p + from, n);
        llm_grammar_skip(g, true, NULL);
        int32_t body = read_either(g, false), c = llm_grammar_peek(g);
        if (g->bad) return;
        g->rules[rule].body = body;
        if (c >= 0 && c != '\n' && c != '\r') (void)llm_grammar_fail(g, "expected the end of the rule");
    }
}
