/* Indexes of texts: vectors, ids, texts and metadata in one file (formats/index.md), searched by vectors. Rows are in the order of their ids
 * (llm_id_compare), so that an index is a function of what is in it and not of how it came there. */
#ifndef LLM_SEARCH_INDEX_H
#define LLM_SEARCH_INDEX_H

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"
#include "io/checkpoint.h"
#include "io/output.h"

enum llm_metric { LLM_METRIC_COSINE, LLM_METRIC_DOT, LLM_METRIC_L2 };
extern const char *const llm_metrics[]; /* "cosine", "dot", "l2"; ended by NULL */
/* How the vectors that a search reads first are stored; those in F32 then rank the best of them exactly. LLM_COARSE_NONE: the index has no vectors
 * (dims is 0), and is searched by words alone. */
enum llm_coarse { LLM_COARSE_F32, LLM_COARSE_F16, LLM_COARSE_I8, LLM_COARSE_NONE };
extern const char *const llm_coarses[]; /* "f32", "f16", "i8", "none" */

enum { LLM_MAX_DIMS_OF_VECTOR = 1 << 20, LLM_MAX_ID_BYTES = 4096, LLM_INDEX_PLACE = 64 };

/* Texts one after another: text i is bytes [at[i], at[i + 1]). */
struct llm_texts {
    uint64_t *at;   /* [n + 1] */
    char *bytes;
};

/* The graph of an index (search/graph.h). Slots of a level are numbered in the order of the rows; on level 0 the slot is the row. */
enum { LLM_GRAPH_LEVELS = 6 };
struct llm_graph_level {
    int64_t n, width;      /* slots; links of a slot at most: 2m on level 0, else m */
    uint32_t *links;       /* [n, width]: slots of this level; unused places, the last of a slot, are UINT32_MAX */
    uint32_t *rows, *down; /* [n]: row of each slot, and its slot on the level below; NULL on level 0 */
};
struct llm_graph {
    int64_t m, ef_build;   /* links of a new row at most, and candidates for them; m 0: there is no graph */
    int64_t n;             /* rows [0, n) are in the graph */
    uint32_t *parents;     /* [n] */
    uint16_t *halves;      /* the index's vectors in BF16, once llm_graph_hold was called; not in files. NULL: walks round those in F32 */
    struct llm_graph_level level[LLM_GRAPH_LEVELS];
};

struct llm_index {
    enum llm_metric metric;
    enum llm_coarse coarse;
    int64_t dims, n;       /* elements of a vector, 0 with LLM_COARSE_NONE; rows */
    int64_t padded;        /* elements of a row of `rounded`: a multiple of 32 */
    uint64_t seed;
    char fingerprint[65];  /* of the model that made the vectors; empty: not known */
    char place[LLM_INDEX_PLACE]; /* of the pass, if the vectors are activations; else empty */
    struct llm_texts ids, texts, metadata; /* metadata: JSON objects; an empty text: none */
    float *vectors;        /* [n, dims]; of the cosine metric they have length 1 */
    void *rounded;         /* [n, padded] in F16, or in Q8_0; NULL with LLM_COARSE_F32 and LLM_COARSE_NONE */
    float *lengths;        /* [n]: squared lengths of the vectors */
    uint8_t *deleted;      /* [n]: 1 for rows that are no longer found */
    int64_t n_deleted;
    struct llm_checkpoint *file; /* whose mapping the arrays may lie in; NULL: all are owned */
    /* Words of the texts, for searches by words (search/words.h): in the order of their bytes, with the rows that each occurs in. */
    struct llm_texts words;     /* n_words of them */
    int64_t n_words;
    uint64_t *postings_at;      /* [n_words + 1]: postings [postings_at[w], postings_at[w + 1]) are those of word w */
    uint32_t *posting_rows, *posting_counts; /* the rows, rising; how often the word occurs in each */
    uint32_t *lengths_in_words; /* [n]: words of each text */
    struct llm_graph graph;
    void *owned[64];       /* arrays to free */
    int n_owned;
    double recall;         /* struct llm_check's, when the file was written, if has_recall */
    bool has_recall;
    bool plain;            /* the file is stored without zstd */
    const char *name;      /* of the file; borrowed from `file` */
};

/* Order of ids: shorter ones first, those of one length by bytes. So numbers stand in their order, with and without zeros in front. */
int llm_id_compare(const char *a, size_t n_a, const char *b, size_t n_b);
/* Row of an id, -1: there is none. A deleted row counts. */
int64_t llm_index_find(const struct llm_index *x, const char *id, size_t n);

/* Opens an index file. Everything is checked: shapes, offsets, the order of the ids, numbers that are not finite and, unless `trusted`, the checksum
 * of all arrays, which reads them all. Zero-initialise; release either way. 0 or -1. */
int llm_index_open(struct llm_index *x, const char *path, bool trusted, struct llm_err *e) LLM_MUST_CHECK;
void llm_index_release(struct llm_index *x);
/* Writes the index; `o` is not committed. Same bytes for the same rows and settings. */
int llm_index_write(const struct llm_index *x, struct llm_output *o, bool plain, struct llm_err *e) LLM_MUST_CHECK;

/* Rows that are to be added, in any order. */
struct llm_index_rows {
    int64_t dims, n;       /* dims 0: not known yet, or there are no vectors */
    struct llm_buf ids, texts, metadata;
    uint64_t *ids_at, *texts_at, *metadata_at; /* [n + 1] */
    float *vectors;        /* [n, dims], as given */
    size_t room, vectors_room;
    char fingerprint[65];  /* of the model, if the input says it */
    char place[LLM_INDEX_PLACE];  /* of the pass that the vectors are from; empty: not of a pass */
    bool waiting;          /* the vector of row n is there: an activation whose token's follower has not come yet */
    int32_t position;      /* of that token */
};
/* Reads rows from `path` ("-": standard input): JSON Lines with "id", "embedding" and maybe "text", whose other members are metadata; or tensor
 * messages with a tensor `embeddings` [rows, dims], whose rows are numbered from 0 on; or activations (formats/activations.md) of one place, of which
 * each token that has a follower becomes a row, with the metadata {"next": its id}. A line without "id" is refused unless the rows are queries,
 * which are numbered from 1 on; then "prompt" is the text. LLM_ROWS_WORDS and LLM_ROWS_TEXTS: rows to be stored and queries whose vectors are not
 * wanted: dims is 0, "embedding" is ignored, stored rows must have "text". 0 or -1 (EX_DATAERR names file and line). */
enum llm_rows_as { LLM_ROWS_STORED, LLM_ROWS_WORDS, LLM_ROWS_QUERIES, LLM_ROWS_TEXTS };
int llm_index_rows_read(struct llm_index_rows *r, const char *path, enum llm_rows_as as, struct llm_err *e) LLM_MUST_CHECK;
void llm_index_rows_release(struct llm_index_rows *r);

/* Makes an index of the rows of `x`, those that are deleted left out if `purge`, and of `r` (NULL: none). out: its metric, coarse, seed, dims,
 * graph.m and graph.ef_build are set; the rest is zero. An id that is in both, or twice in `r`, is EX_DATAERR; a row of the same id that is deleted
 * is replaced, which purges. 0 or -1. */
int llm_index_merge(struct llm_index *out, const struct llm_index *x, const struct llm_index_rows *r, bool purge, struct llm_err *e) LLM_MUST_CHECK;
/* Allocates an array that the index owns. NULL: see `e`. */
void *llm_index_alloc(struct llm_index *x, size_t count, size_t size, struct llm_err *e) LLM_MUST_CHECK;

#endif
