#include "data/records.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/hash.h"

/* A record's place in the pools; column: -1 where the record lacks it. */
struct place { int64_t at, n, second, column[LLM_MAX_COLUMNS]; };

struct llm_records {
    const struct llm_column *columns;
    int n_columns;
    int64_t choices;            /* numbers a token in columns per choice */
    int32_t *ids;
    uint8_t *mask;
    float *numbers;             /* of columns, record by record */
    struct place *places;
    size_t n_ids, n_numbers, n, room_ids, room_mask, room_numbers, room;
};

struct llm_records *llm_records_create(const struct llm_column *columns, struct llm_err *e)
{
    struct llm_records *r = llm_calloc(1, sizeof *r, "records", e);
    if (!r) return NULL;
    r->columns = columns;
    while (columns && columns[r->n_columns].name) r->n_columns++;
    return r;
}

void llm_records_destroy(struct llm_records *r)
{
    if (!r) return;
    free(r->ids);
    free(r->mask);
    free(r->numbers);
    free(r->places);
    free(r);
}

static int check(const struct llm_records *r, const struct llm_record *record, struct llm_err *e)
{
    if (record->n < 1) return llm_fail(e, EX_DATAERR, "expected tokens, found an empty document");
    for (int i = 0; i < r->n_columns; i++) {
        if (record->column[i] || r->columns[i].optional) continue;
        return llm_fail(e, EX_DATAERR, "column '%s': expected numbers, found none", r->columns[i].name);
    }
    return 0;
}

int llm_records_add(struct llm_records *r, const struct llm_record *record, struct llm_err *e)
{
    size_t n = (size_t)record->n;
    struct place p = {.at = (int64_t)r->n_ids, .n = record->n, .second = record->second};
    if (check(r, record, e) < 0 || llm_grow((void **)&r->ids, &r->room_ids, r->n_ids + n, sizeof *r->ids, e) < 0
        || llm_grow((void **)&r->mask, &r->room_mask, r->n_ids + n, 1, e) < 0
        || llm_grow((void **)&r->places, &r->room, r->n + 1, sizeof *r->places, e) < 0) {
        return -1;
    }
    memcpy(r->ids + r->n_ids, record->ids, n * sizeof *r->ids);
    memcpy(r->mask + r->n_ids, record->mask, n);
    for (int i = 0; i < r->n_columns; i++) {
        size_t count = (size_t)llm_column_count(&r->columns[i], 1, record->n, r->choices);
        p.column[i] = -1;
        if (!record->column[i]) continue;
        if (llm_grow((void **)&r->numbers, &r->room_numbers, r->n_numbers + count, sizeof *r->numbers, e) < 0) return -1;
        memcpy(r->numbers + r->n_numbers, record->column[i], count * sizeof *r->numbers);
        p.column[i] = (int64_t)r->n_numbers;
        r->n_numbers += count;
    }
    r->n_ids += n;
    r->places[r->n++] = p;
    return 0;
}

int64_t llm_records_count(const struct llm_records *r)
{
    return (int64_t)r->n;
}

int64_t llm_records_choices(const struct llm_records *r)
{
    return r->choices;
}

void llm_records_set_choices(struct llm_records *r, int64_t choices)
{
    r->choices = choices;
}

struct llm_record llm_records_at(const struct llm_records *r, int64_t i)
{
    const struct place *p = &r->places[i];
    struct llm_record record = {.ids = r->ids + p->at, .mask = r->mask + p->at, .n = p->n, .second = p->second};
    for (int k = 0; k < r->n_columns; k++) record.column[k] = p->column[k] < 0 ? NULL : r->numbers + p->column[k];
    return record;
}

float *llm_records_column(struct llm_records *r, int64_t i, int k)
{
    int64_t at = r->places[i].column[k];
    return at < 0 ? NULL : r->numbers + at;
}

void llm_records_fingerprint(const struct llm_records *r, char hex[17])
{
    uint64_t h = llm_xxh64(r->ids, r->n_ids * sizeof *r->ids, 0);
    h = llm_xxh64(r->mask, r->n_ids, h);
    h = llm_xxh64(r->numbers, r->n_numbers * sizeof *r->numbers, h);
    for (size_t i = 0; i < r->n; i++) h = llm_xxh64(&r->places[i], sizeof r->places[i], h);
    snprintf(hex, 17, "%016llx", (unsigned long long)h);
}
