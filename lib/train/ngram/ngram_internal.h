/* What the steps of estimation share: tokens → sorted n-grams → adjusted counts → sorted by context → probabilities. */
#ifndef LLM_TRAIN_NGRAM_INTERNAL_H
#define LLM_TRAIN_NGRAM_INTERNAL_H

#include "model/weights/ngram/records.h"
#include "train/ngram.h"

/* ---- memory, or files where it is used up (store.c) ---- */
struct llm_store { void *data; uint64_t bytes; bool file; }; /* mapped either way */
struct llm_budget { uint64_t limit, used, in_files, most_in_files; };
/* Room for `bytes` (0: data is NULL), zeroed. A full disk is EX_IOERR. */
int llm_store_init(struct llm_store *s, struct llm_budget *b, uint64_t bytes, struct llm_err *e) LLM_MUST_CHECK;
void llm_store_release(struct llm_store *s, struct llm_budget *b);

/* ---- pieces of work: cut between first tokens of keys ---- */
struct llm_cuts { uint32_t *rank; size_t n; }; /* [n + 1]: piece i has keys whose first token is in [rank[i], rank[i + 1]) */

struct llm_run { struct llm_ngram_record *r; uint64_t n; }; /* sorted */
/* Where keys with a first token ≥ rank begin. */
uint64_t llm_run_search(const struct llm_run *run, uint32_t rank, int bits);
/* Merges runs into `out`, which has room for all; equal keys add up. pieces [cuts->n] (where what is left of each lies). 0, 1 (signal), -1. */
int llm_runs_merge(const struct llm_run *runs, size_t n_runs, const struct llm_cuts *cuts, int bits, struct llm_ngram_record *out,
                   struct llm_run *pieces, struct llm_err *e) LLM_MUST_CHECK;
/* Sorts what lies in *s (n records of key_bits) in parts that fit into memory; *s may become another store. 0, 1, -1. */
int llm_store_sort(struct llm_store *s, uint64_t n, const struct llm_cuts *cuts, int bits, int key_bits, struct llm_budget *b, struct llm_err *e)
    LLM_MUST_CHECK;

/* ---- the whole ---- */
struct llm_estimate {
    const struct llm_ngram_source *source;
    const struct llm_ngram_options *options;
    struct llm_ngram_report *report;
    struct llm_budget budget;
    int order, bits;               /* bits of a token in keys */
    int64_t begin;                 /* id; vocab_size: none */
    uint32_t *rank_of;             /* [vocab_size + 1]: 1, 2, … by id of those that are seen; 0: not seen */
    int32_t *id_of;                /* [n_ranks + 1] */
    uint32_t n_ranks, begin_rank;
    uint64_t *seen;                /* [vocab_size + 1]: how often */
    struct llm_cuts cuts;
    /* count.c: n-grams of the order, newest token first in their keys, and how often each came */
    struct llm_store counted;
    struct llm_run *pieces;        /* [cuts.n], in `counted` */
    /* adjust.c */
    uint64_t *unigram;             /* [n_ranks + 1]: adjusted counts */
    struct llm_store records[LLM_NGRAM_MAX_ORDER]; /* [k]: n-grams of k + 1 tokens, k ≥ 1; keys: context newest first, then the last token */
    uint64_t n_records[LLM_NGRAM_MAX_ORDER];       /* n of a record: adjusted count × 2 + pruned; then bits of a double, the probability */
};
/* What stands before a text: an id, or vocab_size. */
int64_t llm_ngram_begin(const struct llm_ngram_source *s);
/* About how many different n-grams of k + 1 tokens there are: types [order]. Depends on the tokens alone. */
int llm_ngram_distinct(const struct llm_ngram_source *s, const struct llm_ngram_options *o, double types[LLM_NGRAM_MAX_ORDER], struct llm_err *e)
    LLM_MUST_CHECK;
int llm_ngram_count_tokens(struct llm_estimate *w, struct llm_err *e) LLM_MUST_CHECK;   /* 0, 1, -1 */
int llm_ngram_adjust(struct llm_estimate *w, struct llm_err *e) LLM_MUST_CHECK;         /* fills the report's types and discounts too */
int llm_ngram_normalise(struct llm_estimate *w, struct llm_ngram *g, struct llm_err *e) LLM_MUST_CHECK;

#endif
