/* llm-tokenize: declarations that its sub-commands share. Each sub-command returns the exit status. */
#ifndef LLM_BIN_TOKENIZE_H
#define LLM_BIN_TOKENIZE_H

#include "base/cli.h"
#include "token/tokenizer.h"

extern const struct llm_cli tokenize_train_cli, tokenize_encode_cli, tokenize_decode_cli, tokenize_chunk_cli, tokenize_image_cli, tokenize_info_cli;
int tokenize_train(int argc, char **argv);
int tokenize_encode(int argc, char **argv);
int tokenize_decode(int argc, char **argv);
int tokenize_chunk(int argc, char **argv);
int tokenize_image(int argc, char **argv);
int tokenize_info(int argc, char **argv);

/* ---- documents of the inputs (input.c) ---- */

struct document_options {
    const char *separator; /* NULL: each file is a document */
    int jsonl, lines;
    const char *field;
};
/* Options that train, encode and chunk share; `type` is the args struct, `member` its struct document_options. */
#define DOCUMENT_OPTIONS(type, member)                                                                                                    \
    {0, "separator", "STR", "documents end at STR, which is not encoded (\\n, \\t, \\0, \\\\ and \\xHH are known) [each file is one]",         \
     LLM_STR, offsetof(type, member.separator), 0, 0, NULL},                                                                              \
    {0, "lines", NULL, "each line is a document, its newline included", LLM_FLAG, offsetof(type, member.lines), 0, 0, NULL},            \
    {0, "jsonl", NULL, "each line is a JSON object that holds a document", LLM_FLAG, offsetof(type, member.jsonl), 0, 0, NULL},           \
    {0, "field", "NAME", "key of the document's text in a line of --jsonl [text]", LLM_STR, offsetof(type, member.field), 0, 0, NULL}

/* Tables of the command lines: words.c. */
extern const struct llm_words tokenize_train_words[], tokenize_encode_words[];
extern const struct llm_alias tokenize_train_aliases[], tokenize_encode_aliases[], tokenize_decode_aliases[];
extern const struct llm_foreign tokenize_train_foreign[], tokenize_encode_foreign[], tokenize_decode_foreign[], tokenize_chunk_foreign[];

/* Takes documents in parts. `name` is the file's; number counts from 1 lines of --jsonl ("line") or documents between separators
 * ("document"), what is NULL where a file is one. */
struct document_sink {
    void *arg;
    int (*part)(void *arg, const char *text, size_t n, struct llm_err *e);
    int (*end)(void *arg, struct llm_err *e);
    void (*begin)(void *arg, const char *name, const char *what, uint64_t number);
};
/* Reads `paths` (none: stdin) one after another; draws progress. */
int read_documents(const struct document_options *o, char *const *paths, int n_paths, const struct document_sink *sink, struct llm_err *e);
/* `text` without its escapes into `out`, *n bytes. 0, or -1 with status 2. */
int unescape(const char *text, char *out, size_t room, size_t *n, struct llm_err *e);
/* Exits 2 when options contradict each other. */
void check_documents(const struct llm_cli *cli, const struct document_options *o);
/* Exits 2 when two inputs are "-", or one is and the tokenizer is as well. */
void check_inputs(const struct llm_cli *cli, const char *tokenizer, char *const *paths, int n_paths);

#endif
