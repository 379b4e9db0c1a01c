/* What a training run learns from. */
#ifndef LLM_TRAIN_DATA_H
#define LLM_TRAIN_DATA_H

#include "data/feed.h"
#include "data/pictures.h"
#include "data/records.h"
#include "data/tokens.h"
#include "model/config/config.h"
#include "token/tokenizer.h"

struct llm_activations;
struct llm_shown;

/* What is learned from. Paths are kept in checkpoints, so that a run can go on by itself. */
struct llm_train_data {
    struct llm_tokens *train, *val;    /* owned; val NULL: none, or a share of train */
    struct llm_feed *feed;             /* owned; in place of train: one pass as the data comes */
    struct llm_records *records, *val_records; /* owned; in place of train and val: documents with columns. val_records NULL: as val */
    struct llm_activations *activations; /* owned; what the documents of `records` and then of `val_records` number; NULL: tokens */
    struct llm_pictures *pictures;     /* likewise */
    struct llm_shown *shown;           /* owned; the pictures of the texts of records (train/shown.h); NULL: they have none */
    char **paths;                      /* owned; of train */
    size_t n_paths;
    char *val_path;                    /* owned; NULL */
    double val_share;                  /* the last share of train is held out; 0: none */
    char fingerprint[17], val_fingerprint[17];
};
/* Opens the files (`tokenizer_id` NULL: not checked; ids are checked to be below vocab_size) and takes their fingerprints. Zero-initialise. */
int llm_train_data_open(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, const char *tokenizer_id,
                        int64_t vocab_size, struct llm_err *e) LLM_MUST_CHECK;
/* The same as a feed. */
int llm_train_data_stream(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, const char *tokenizer_id,
                          int64_t vocab_size, struct llm_err *e) LLM_MUST_CHECK;
/* Lines of JSON, as the objective of `lines` reads them. */
struct llm_lines;
int llm_train_data_lines(struct llm_train_data *d, struct llm_lines *lines, const char *const *paths, size_t n_paths, const char *val,
                         struct llm_err *e) LLM_MUST_CHECK;
/* Streams of activations. Those of one run have the same places. */
int llm_train_data_activations(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, struct llm_err *e) LLM_MUST_CHECK;
/* Pictures, for a vision transformer or tower of configuration `c`. A document is the number of one of them and then, unless `texts` is NULL, the
 * tokens of its text. EX_DATAERR if one has no text. */
int llm_train_data_pictures(struct llm_train_data *d, const char *const *paths, size_t n_paths, const char *val, const struct llm_config *c,
                            const struct llm_tokenizer *texts, struct llm_err *e) LLM_MUST_CHECK;
/* Data that come during the run (llm_trainer_renew), for checkpoints the same as standard input. */
int llm_train_data_later(struct llm_train_data *d, struct llm_err *e) LLM_MUST_CHECK;
/* That the data declares; 0: none. */
int64_t llm_train_data_vocab_size(const struct llm_train_data *d);
/* The number of documents in the training data; `val`: in the validation file. */
uint64_t llm_train_data_documents(const struct llm_train_data *d, bool val);
void llm_train_data_release(struct llm_train_data *d);

#endif
