/* What the readers of grammars share: rules as trees of nodes, the text that is read. */
#ifndef LLM_INFER_CONSTRAIN_GRAMMAR_INTERNAL_H
#define LLM_INFER_CONSTRAIN_GRAMMAR_INTERNAL_H

#include <string.h>
#include "infer/constrain/grammar.h"

enum { LLM_GRAMMAR_MAX_NESTED = 200, LLM_GRAMMAR_MAX_SUFFIXES = 8, LLM_GRAMMAR_MAX_COUNT = 1000000, LLM_NO_NODE = -1 };
enum llm_node_kind { LLM_NODE_CHARS, LLM_NODE_RULE, LLM_NODE_SEQUENCE, LLM_NODE_EITHER, LLM_NODE_REPEAT, LLM_NODE_TERM };

/* A part of a rule. Children are a list linked by `next`. */
struct llm_grammar_node {
    enum llm_node_kind kind;
    int32_t child, next;
    uint32_t min, max;       /* REPEAT */
    int32_t rule;
    llm_term term;           /* TERM: regular */
    struct llm_chars chars;
};

struct llm_grammar_rule {
    const char *name;        /* in the text, or a constant; NULL after reading */
    size_t n;
    int32_t body;            /* LLM_NO_NODE: not defined */
    int line;                /* where it is defined, else where it was used first */
    bool terminal;           /* it may not contain itself */
    bool nullable, productive;
    bool regular;            /* no rule that it comes to comes to itself */
    bool wide[2];            /* whether many characters are repeated in it; if it is itself repeated */
    bool lexeme;
    char visit;              /* of the search for left recursion: 0 not yet, 1 on the way, 2 done */
    llm_term term;           /* of its body, once `made` */
    bool made;
};

struct llm_grammar {
    struct llm_terms *t;
    uint32_t lazy;
    struct llm_grammar_node *nodes;
    size_t n_nodes, nodes_room;
    struct llm_grammar_rule *rules;
    size_t n_rules, rules_room;
    int32_t ignored;         /* rule of what may stand before the first terminal and after each; LLM_NO_NODE: nothing */
    /* while reading: */
    const unsigned char *p;
    size_t n, at;
    int line, nested;
    struct llm_err *e;
    bool bad;
};

/* grammar_read.c. Notes the error at the present line, unless there was one before, and returns LLM_NO_NODE. */
int32_t llm_grammar_fail(struct llm_grammar *g, const char *what);
/* These return LLM_NO_NODE after an error. The number of a new node: */
int32_t llm_grammar_node(struct llm_grammar *g, enum llm_node_kind kind);
/* The number of the rule of this name, which must live until the end of reading. It is made if there is none. */
int32_t llm_grammar_rule(struct llm_grammar *g, const char *name, size_t n);
int32_t llm_grammar_char(struct llm_grammar *g, uint32_t low, uint32_t high);
/* A node that stands for a rule. */
int32_t llm_grammar_use(struct llm_grammar *g, int32_t rule);
int32_t llm_grammar_repeat(struct llm_grammar *g, int32_t item, uint32_t min, uint32_t max);
/* The number of the rule, whose definition begins here. It must have none so far. */
int32_t llm_grammar_begin(struct llm_grammar *g, const char *name, size_t n);
/* Adds a child after the *last one of `parent`. */
void llm_grammar_append(struct llm_grammar *g, int32_t parent, int32_t *last, int32_t child);
/* A number of hexadecimal digits. */
uint32_t llm_grammar_hex(struct llm_grammar *g, int digits);
/* One character, as it stands; and one of a text or a class, which may be written as an escape. */
uint32_t llm_grammar_utf8(struct llm_grammar *g);
uint32_t llm_grammar_text_char(struct llm_grammar *g);
/* A decimal number, at most a little more than LLM_GRAMMAR_MAX_COUNT. false: there is none. */
bool llm_grammar_number(struct llm_grammar *g, uint32_t *x);
/* After {: N}, N,} ,M} or N,M}. */
void llm_grammar_counts(struct llm_grammar *g, uint32_t *min, uint32_t *max);
/* Whether min to max can be the counts of a repetition; else an error is noted. */
bool llm_grammar_check_counts(struct llm_grammar *g, uint32_t min, uint32_t max);

/* Spaces and tabs, and with `lines` ends of lines. A comment begins with # or with `comment` (NULL: only with #). */
void llm_grammar_skip(struct llm_grammar *g, bool lines, const char *comment);

/* gbnf.c, lark.c. Read all rules. Errors are noted. */
void llm_gbnf_read(struct llm_grammar *g);
void llm_lark_read(struct llm_grammar *g);

static inline int llm_grammar_peek(const struct llm_grammar *g)
{
    return g->at < g->n && !g->bad ? g->p[g->at] : -1;
}

static inline bool llm_grammar_take(struct llm_grammar *g, const char *text)
{
    size_t n = strlen(text);
    if (g->bad || g->n - g->at < n || memcmp(g->p + g->at, text, n) != 0) return false;
    g->at += n;
    return true;
}

/* Whether the byte may stand within a name. */
static inline bool llm_grammar_is_name(int c)
{
    return c == '-' || c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

#endif
