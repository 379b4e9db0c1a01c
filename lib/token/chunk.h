/* Passages of a document for retrieval: as long as a number of tokens allows, ending where the text itself pauses. */
#ifndef LLM_TOKEN_CHUNK_H
#define LLM_TOKEN_CHUNK_H

#include "token/tokenizer.h"

enum llm_chunk_kind {
    LLM_CHUNK_TEXT,                /* paragraphs, lines, sentences, words */
    LLM_CHUNK_MARKDOWN,            /* headings begin sections; a fenced block of code stays whole where it fits */
    LLM_CHUNK_CODE                 /* blank lines before a line that is not indented begin sections; there are no sentences */
};
/* "text", "markdown", "code"; NULL after the last. */
const char *llm_chunk_kind_word(int i);
/* By the end of a file's name; text if it is not known. */
enum llm_chunk_kind llm_chunk_kind_of(const char *path);

enum { LLM_CHUNK_HEADINGS = 6 };   /* levels of Markdown */
struct llm_chunk {
    size_t begin, end;             /* bytes of the document: without the white space around the passage */
    int64_t tokens;                /* of the passage encoded alone */
    struct { size_t begin, end; } headings[LLM_CHUNK_HEADINGS]; /* Markdown: texts of the headings that the passage's first byte stands under, by
                                                                 * level; begin == end: none */
};
struct llm_chunking {
    const struct llm_tokenizer *tokenizer;
    enum llm_chunk_kind kind;
    int64_t size;                  /* tokens of a passage at most, >= 1 */
    int64_t overlap;               /* tokens of the passage before that one repeats at most, < size; it begins with a sentence, else a word */
    int (*take)(void *arg, const struct llm_chunk *c, struct llm_err *e); /* in order; 0 or -1 */
    void *arg;
};
/* Cuts a document of n bytes. Of the places in the second half of what fits, the strongest pause is the end, of equals the last. No character is cut;
 * a byte that is not UTF-8 counts as one. One character of more than `size` tokens is EX_DATAERR. 0 or -1. */
int llm_chunk(const struct llm_chunking *c, const char *text, size_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
