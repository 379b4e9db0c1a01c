/* llm-infer: what those share that read a prompt with observers (--export, --lens, --attribute), and tables of tokens. */
#ifndef LLM_BIN_INFER_INSIDE_H
#define LLM_BIN_INFER_INSIDE_H

#include "bin/infer/infer.h"
#include "io/table.h"

/* A prompt that is read block by block. */
struct look {
    struct session *s;
    const int32_t *ids;
    int64_t n, base;          /* tokens; those of the cache before them */
    int64_t window;           /* the token with which the current window begins: 0 unless the prompt is longer than the context */
    struct llm_taking taking; /* values of the current block, a row for each of its tokens */
    struct llm_watcher *watchers; /* editors, then observers: these see edited values */
    int64_t *picked;          /* [n_picked] indices in the current block of the tokens that --which-tokens selects */
    int64_t n_picked;
    const char *option;       /* the option that reads the places, for messages */
};
/* Observes `places` [n] from now on. Set s, ids, n, base and option before; look_end either way. */
int look_begin(struct look *l, const char *const *places, size_t n, struct llm_err *e) LLM_MUST_CHECK;
void look_end(struct look *l);
/* Reads the prompt; `use` gets each block of tokens that has picked ones, which begins at token `from`. 0, 1 when a signal was caught, -1. */
int look_read(struct look *l, int (*use)(struct look *l, int64_t from, void *arg, struct llm_err *e), void *arg, struct llm_err *e) LLM_MUST_CHECK;

/* Two cells of a table: the token's id, and its text (nothing, null, if there is no tokenizer). The text stays on one line and in one field:
 * \t \n \r \\, and \xNN for other control characters and for bytes that are not UTF-8. */
void token_cells(struct llm_table *table, const struct llm_tokenizer *t, int32_t id);
/* One cell with the texts of n tokens, in the same way. */
void tokens_cell(struct llm_table *table, const struct llm_tokenizer *t, const int32_t *ids, int n);

#endif
