/* Records: documents in memory, each with the columns that its objective reads by name. JSON Lines become records. */
#ifndef LLM_DATA_RECORDS_H
#define LLM_DATA_RECORDS_H

#include "data/batch.h"

/* One document. Pointers into struct llm_records are valid until the next record is added. */
struct llm_record {
    const int32_t *ids;
    const uint8_t *mask;        /* loss mask: 1 where the token is learned */
    int64_t n;
    int64_t second;             /* the token at which the second of two texts begins; n: there is one text */
    const float *column[LLM_MAX_COLUMNS]; /* in the order of the list of columns: n numbers per token, n · choices per choice, 1 per row. NULL:
                                           * the record lacks it */
};

struct llm_records;
/* `columns`: what records may hold; NULL: nothing besides ids and mask. The list must outlive the records. */
struct llm_records *llm_records_create(const struct llm_column *columns, struct llm_err *e) LLM_MUST_CHECK;
void llm_records_destroy(struct llm_records *r);
/* Appends a copy. A record without tokens, or without a column that is not optional, is EX_DATAERR. */
int llm_records_add(struct llm_records *r, const struct llm_record *record, struct llm_err *e) LLM_MUST_CHECK;
int64_t llm_records_count(const struct llm_records *r);
/* How many numbers a token has in columns per choice; 0, before it is set: none. It is set before the first record that has such a column. */
int64_t llm_records_choices(const struct llm_records *r);
void llm_records_set_choices(struct llm_records *r, int64_t choices);
struct llm_record llm_records_at(const struct llm_records *r, int64_t i);
/* The numbers of column number k of record i, which may be written over. NULL: the record lacks it. */
float *llm_records_column(struct llm_records *r, int64_t i, int k);
/* XXH64 of all records, 16 hex digits: what --resume checks. */
void llm_records_fingerprint(const struct llm_records *r, char hex[17]);

#endif
