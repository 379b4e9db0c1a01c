/* The tokens of a vocabulary as a tree of their bytes, in which a constraint finds all tokens that it allows by one walk. Special tokens and tokens
 * without bytes are not in it. */
#ifndef LLM_INFER_CONSTRAIN_TOKENS_H
#define LLM_INFER_CONSTRAIN_TOKENS_H

#include "token/tokenizer.h"

/* Nodes by depth, so that the children of a node lie side by side: whoever looks for those that a state allows reads them in a row, and leaves the
 * subtrees of the others alone. Those of node i are from llm_token_kids(&v[i]) up to llm_token_kids(&v[i + 1]); after the last node stands one more.
 * Node 0 is the root. */
struct llm_token_node {
    uint32_t kids_byte;      /* the first child << 8 | the byte that leads here */
    int32_t token;           /* a token that ends here; -1: none does; below -1: token -2 - this one, and others, by `same` */
};
struct llm_token_tree { struct llm_token_node *v; uint32_t n; };

/* Texts that may stand inside a JSON string as they are: whole characters but '"', '\' and control characters. Tokens that are such texts are most of
 * a vocabulary, and inside a string a constraint often allows them all, or those of up to so many characters. */
enum { LLM_PLAIN_SETS = 32 };
enum llm_token_kinds { LLM_TOKENS_ALL, LLM_TOKENS_PLAIN, LLM_TOKENS_REST /* not plain */ };
struct llm_tokens {
    const struct llm_tokenizer *tokenizer; /* borrowed */
    struct llm_token_tree trees[3]; /* by enum llm_token_kinds */
    int32_t vocab_size;      /* of the tokenizer */
    size_t words;            /* of a set of tokens: bit i of word i / 64 is token i */
    int32_t *same;           /* [vocab_size] the next token with the same bytes, or -1 */
    uint64_t *plain[LLM_PLAIN_SETS + 1]; /* [i]: plain tokens of 1 to i characters */
    struct llm_plain_token { int32_t id, chars; } *longer; /* [n_longer] plain tokens of more characters than that, the shorter first */
    size_t n_longer;
    int32_t max_chars;       /* of a plain token */
    uint32_t max_bytes;      /* of a token */
};
struct llm_tokens *llm_tokens_create(const struct llm_tokenizer *t, struct llm_err *e) LLM_MUST_CHECK;
void llm_tokens_destroy(struct llm_tokens *v);

static inline uint32_t llm_token_kids(const struct llm_token_node *n)
{
    return n->kids_byte >> 8;
}
/* The first token that ends at a node, -1: none does. Few have others, so that `same` is seldom read. */
static inline int32_t llm_token_first(const struct llm_token_node *n)
{
    return n->token < -1 ? -2 - n->token : n->token;
}
static inline int32_t llm_token_next(const struct llm_tokens *t, const struct llm_token_node *n, int32_t id)
{
    return n->token < -1 ? t->same[id] : -1;
}
static inline unsigned char llm_token_byte(const struct llm_token_node *n)
{
    return (unsigned char)n->kids_byte;
}

#endif
