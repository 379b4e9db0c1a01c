/* Rows of tokens as a model takes them, cut from a corpus: inputs, targets, positions, and where each token's document begins. */
#ifndef LLM_DATA_BATCH_H
#define LLM_DATA_BATCH_H

#include <stdbool.h>
#include "data/order.h"
#include "data/tokens.h"

/* A further column of rows: numbers that an objective reads by name ("advantages", "logprobs"). */
enum llm_column_per { LLM_PER_TOKEN, LLM_PER_ROW, LLM_PER_CHOICE /* as many numbers a token as the data have choices (llm_records_choices) */ };
struct llm_column {
    const char *name;       /* NULL ends a list of columns */
    enum llm_column_per per;
    bool optional;          /* data without the column is accepted */
};
enum { LLM_MAX_COLUMNS = 16 };

struct llm_rows {
    int64_t n_rows, row_len;
    int64_t room_rows, room_tokens; /* rows, and rows × row_len, that there is memory for */
    int32_t *ids, *targets, *positions, *doc_start; /* [n_rows, row_len]; targets: -1 where no loss counts */
    float *weights;         /* [n_rows, row_len]: the weight of each target in the loss, if rows have weights */
    bool weighted;          /* weights is valid; false: each target that counts has weight 1 */
    const struct llm_column *columns; /* the columns that llm_rows_add_columns made; NULL: none. Borrowed */
    float *column[LLM_MAX_COLUMNS];   /* their numbers: [n_rows, row_len] per token, [n_rows] per row, [n_rows, row_len, choices] per choice */
    int64_t choices;        /* numbers that a token has in columns per choice; 0: the data have none */
    uint8_t *own;           /* [n_rows, row_len]: 1 where there is a token whose loss mask is not 0; 0 elsewhere, and after the data's end */
    int32_t *picks;         /* [n_rows, row_len]: the first n_picks of each row are positions whose loss counts, ascending; then -1 */
    int64_t n_picks;        /* 0: the loss of every token is looked at */
    int32_t *prefixes;      /* [n_rows, row_len]: at a document's first token how many of its tokens are its prefix */
    bool prefixed;          /* prefixes is valid */
    int32_t *lengths;       /* [n_rows]: tokens of each row that is one text; the rest of the row is padding */
    int32_t *kinds;         /* [n_rows, row_len]: token types (BERT), if rows have them */
    bool kinded;            /* kinds is valid */
    int32_t *source;        /* [n_rows, row_len]: the other text of each row, where an objective has two */
    int32_t *source_len;    /* [n_rows]: tokens of each source; the rest of its row is padding */
    uint8_t *source_own;    /* [n_rows, row_len]: of the tokens of each source, as `own` */
    const float *state;     /* [n_rows, state_floats] what a model's layers keep of the tokens before each row; NULL: nothing. The caller's */
    float *state_after;     /* of the same shape: takes what they keep of its last token; not `state` */
    int64_t state_floats;
    uint8_t *mask;          /* [2 row_len + 2], scratch */
    int32_t *window;        /* [2 row_len + 2], scratch */
    bool documents;         /* some row holds more than one document: doc_start counts */
    int64_t counted;        /* targets that count */
    double weight;          /* the sum of their weights, in the order of tokens: what the loss is divided by */
};
/* Memory for rows × row_len tokens. Zero-initialise; release either way. */
int llm_rows_init(struct llm_rows *r, int64_t n_rows, int64_t row_len, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_rows_init, for up to n_rows rows of together n_tokens tokens, none longer than row_len; llm_rows_shape then says how many there are. */
int llm_rows_init_within(struct llm_rows *r, int64_t n_rows, int64_t n_tokens, int64_t row_len, struct llm_err *e) LLM_MUST_CHECK;
/* From now on there are n_rows rows of row_len tokens, for which there must be memory. What they hold is undefined until each row is made. */
void llm_rows_shape(struct llm_rows *r, int64_t n_rows, int64_t row_len);
void llm_rows_release(struct llm_rows *r);
/* Memory for the columns of a list, all zero, with `choices` numbers a token in columns per choice. The list must outlive the rows. */
int llm_rows_add_columns(struct llm_rows *r, const struct llm_column *columns, int64_t choices, struct llm_err *e) LLM_MUST_CHECK;
/* How many numbers a column has for n_rows rows of n_tokens tokens in all. */
int64_t llm_column_count(const struct llm_column *c, int64_t n_rows, int64_t n_tokens, int64_t choices);
/* The numbers of the column of this name; NULL: the rows have none. */
float *llm_rows_column(const struct llm_rows *r, const char *name);
/* A view of rows [first, first + n): shares memory, not to be released. `counted` and `weight` are those of these rows. */
struct llm_rows llm_rows_part(const struct llm_rows *r, int64_t first, int64_t n);

/* Tokens [first, first + to->row_len) of each row, copied to `to`, which has room for them. In the result `documents`, `doc_start` and `prefixes` are
 * of the whole rows; what belongs to rows by themselves, and columns, are left out. */
struct llm_rows llm_rows_columns(const struct llm_rows *r, int64_t first, struct llm_rows *to);

/* Row `row` becomes the window of row_len + 1 tokens at `at`. cross_document: documents see each other and positions run on; else each document's
 * positions begin at 0, and the first token of a document is no target of the one before. A target whose loss mask is 0 does not count.
 * n_tokens: how many of the window's row_len + 1 tokens there are; what is missing at the end is padding that does not count, and that is a
 * document of its own, so that nothing sees it. */
void llm_rows_cut(struct llm_rows *r, int64_t row, const struct llm_tokens *t, uint64_t at, int64_t n_tokens, bool cross_document);
/* As llm_rows_cut, of tokens in memory: ids and mask [n_tokens], ends: document ends relative to the window, ascending, n_ends of them. */
void llm_rows_put(struct llm_rows *r, int64_t row, const int32_t *ids, const uint8_t *mask, int64_t n_tokens, const uint64_t *ends, size_t n_ends,
                  uint64_t origin, bool cross_document);

#endif
