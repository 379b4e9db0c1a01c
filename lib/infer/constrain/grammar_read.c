/* What the readers of grammars use: characters, counts, names, new nodes and rules. */
#include "base/buf.h"
#include "base/utf8.h"
#include "infer/constrain/grammar_internal.h"

enum { MAX_NODES = 1 << 18, MAX_RULES = 4096 };

int32_t llm_grammar_fail(struct llm_grammar *g, const char *what)
{
    if (!g->bad) llm_fail(g->e, EX_DATAERR, "line %d: %s", g->line, what);
    g->bad = true;
    return LLM_NO_NODE;
}

void llm_grammar_skip(struct llm_grammar *g, bool lines, const char *comment)
{
    for (int c; (c = llm_grammar_peek(g)) >= 0;) {
        if (c == '#' || (comment && g->n - g->at >= strlen(comment) && memcmp(g->p + g->at, comment, strlen(comment)) == 0)) {
            while (llm_grammar_peek(g) >= 0 && llm_grammar_peek(g) != '\n') g->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            g->line += c == '\n';
            g->at++;
        } else {
            return;
        }
    }
}

int32_t llm_grammar_node(struct llm_grammar *g, enum llm_node_kind kind)
{
    if (g->bad) return LLM_NO_NODE;
    if (g->n_nodes >= MAX_NODES) return llm_grammar_fail(g, "the grammar is too large");
    if (llm_grow((void **)&g->nodes, &g->nodes_room, g->n_nodes + 1, sizeof *g->nodes, g->e) < 0) {
        g->bad = true;
        return LLM_NO_NODE;
    }
    g->nodes[g->n_nodes] = (struct llm_grammar_node){.kind = kind, .child = LLM_NO_NODE, .next = LLM_NO_NODE};
    return (int32_t)g->n_nodes++;
}

int32_t llm_grammar_rule(struct llm_grammar *g, const char *name, size_t n)
{
    for (size_t i = 0; i < g->n_rules; i++)
        if (g->rules[i].n == n && memcmp(g->rules[i].name, name, n) == 0) return (int32_t)i;
    if (g->n_rules >= MAX_RULES) return llm_grammar_fail(g, "the grammar has too many rules");
    if (llm_grow((void **)&g->rules, &g->rules_room, g->n_rules + 1, sizeof *g->rules, g->e) < 0) {
        g->bad = true;
        return LLM_NO_NODE;
    }
    g->rules[g->n_rules] = (struct llm_grammar_rule){.name = name, .n = n, .body = LLM_NO_NODE, .line = g->line};
    return (int32_t)g->n_rules++;
}

int32_t llm_grammar_char(struct llm_grammar *g, uint32_t low, uint32_t high)
{
    int32_t i = llm_grammar_node(g, LLM_NODE_CHARS);
    if (i != LLM_NO_NODE && llm_chars_put(&g->nodes[i].chars, low, high, g->e) < 0) g->bad = true;
    return i;
}

void llm_grammar_append(struct llm_grammar *g, int32_t parent, int32_t *last, int32_t child)
{
    if (g->bad) return;
    if (*last == LLM_NO_NODE) g->nodes[parent].child = child;
    else g->nodes[*last].next = child;
    *last = child;
}

uint32_t llm_grammar_hex(struct llm_grammar *g, int digits)
{
    uint32_t x = 0;
    for (int i = 0; i < digits; i++) {
        int c = llm_grammar_peek(g), v = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (c < 0 || v < 0) return (uint32_t)llm_grammar_fail(g, "expected a hexadecimal digit");
        x = x * 16 + (uint32_t)v;
        g->at++;
    }
    if (x > 0x10FFFF || (x >= 0xD800 && x < 0xE000)) return (uint32_t)llm_grammar_fail(g, "expected the number of a character");
    return x;
}

bool llm_grammar_number(struct llm_grammar *g, uint32_t *x)
{
    size_t from = g->at;
    for (*x = 0; llm_grammar_peek(g) >= '0' && llm_grammar_peek(g) <= '9'; g->at++)
        if (*x <= LLM_GRAMMAR_MAX_COUNT) *x = *x * 10 + (g->p[g->at] - '0');
    return g->at > from;
}

int32_t llm_grammar_use(struct llm_grammar *g, int32_t rule)
{
    int32_t i = llm_grammar_node(g, LLM_NODE_RULE);
    if (i != LLM_NO_NODE) g->nodes[i].rule = rule;
    return i;
}

int32_t llm_grammar_repeat(struct llm_grammar *g, int32_t item, uint32_t min, uint32_t max)
{
    int32_t i = llm_grammar_node(g, LLM_NODE_REPEAT);
    if (i == LLM_NO_NODE) return i;
    g->nodes[i].child = item;
    g->nodes[i].min = min;
    g->nodes[i].max = max;
    return i;
}

int32_t llm_grammar_begin(struct llm_grammar *g, const char *name, size_t n)
{
    int32_t rule = llm_grammar_rule(g, name, n);
    if (g->bad) return LLM_NO_NODE;
    if (g->rules[rule].body != LLM_NO_NODE) {
        llm_fail(g->e, EX_DATAERR, "line %d: rule '%.*s' is defined twice", g->line, (int)(n < 80 ? n : 80), name);
        g->bad = true;
        return LLM_NO_NODE;
    }
    g->rules[rule].line = g->line;
    return rule;
}

uint32_t llm_grammar_utf8(struct llm_grammar *g)
{
    uint32_t x = 0;
    int step = g->at < g->n ? llm_utf8_next(g->p + g->at, g->n - g->at, &x) : 0;
    if (step <= 0) return (uint32_t)llm_grammar_fail(g, "expected UTF-8");
    g->at += (size_t)step;
    g->line += x == '\n';
    return x;
}

uint32_t llm_grammar_text_char(struct llm_grammar *g)
{
    static const char letters[] = "nrtf", meanings[] = "\n\r\t\f";
    if (llm_grammar_take(g, "\\")) {
        int c = llm_grammar_peek(g);
        if (c >= 0) g->at++;
        if (c == 'x') return llm_grammar_hex(g, 2);
        if (c == 'u') return llm_grammar_hex(g, 4);
        if (c == 'U') return llm_grammar_hex(g, 8);
        const char *known = c > 0 ? strchr(letters, c) : NULL;
        if (known) return (unsigned char)meanings[known - letters];
        if (c > 0 && strchr("\\\"[]-^/'", c)) return (uint32_t)c;
        return (uint32_t)llm_grammar_fail(g, "expected one of \\n \\r \\t \\f \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH");
    }
    return llm_grammar_utf8(g);
}

bool llm_grammar_check_counts(struct llm_grammar *g, uint32_t min, uint32_t max)
{
    if (min <= LLM_GRAMMAR_MAX_COUNT && (max == LLM_REPEAT_ALWAYS || (max <= LLM_GRAMMAR_MAX_COUNT && max >= min))) return true;
    (void)llm_grammar_fail(g, "expected repetitions from N to M, at most 1000000");
    return false;
}

void llm_grammar_counts(struct llm_grammar *g, uint32_t *min, uint32_t *max)
{
    llm_grammar_skip(g, false, NULL);
    bool some = llm_grammar_number(g, min);
    *max = *min;
    llm_grammar_skip(g, false, NULL);
    if (llm_grammar_take(g, ",")) {
        llm_grammar_skip(g, false, NULL);
        *max = LLM_REPEAT_ALWAYS;
        uint32_t most;
        if (llm_grammar_number(g, &most)) {
            *max = most;
            some = true;
        }
        llm_grammar_skip(g, false, NULL);
    }
    if (!some || !llm_grammar_take(g, "}")) (void)llm_grammar_fail(g, "expected {N}, {N,} or {N,M}");
    else (void)llm_grammar_check_counts(g, *min, *max);
}
