/* Predictors of the next token: networks, or tables of n-grams. The engine divides texts into passes and owns their caches; a predictor reads a
 * pass's tokens and gives the distribution after each. To add one: lib/infer/predictor/<name>.c and its row in predictor.c. */
#ifndef LLM_INFER_PREDICTOR_H
#define LLM_INFER_PREDICTOR_H

#include "model/model.h"

struct llm_engine;
struct llm_feed;

/* The result of reading a pass's tokens; valid until the next pass. */
struct llm_reading {
    int64_t n;                  /* tokens, or learned latents of a perceiver */
    struct llm_tensor *hidden;  /* networks: final hidden states [n, hidden_size]; NULL of others */
    const int32_t *newest;      /* n-grams: [n, order - 1] the last tokens up to each token, the newest first, -1 before the text; NULL of others */
};

/* Facts about a model in memory. */
struct llm_predictor_facts {
    double parameters;          /* a network's weights, or n-grams */
    double weight_bytes;
    double read_bytes;          /* of them for each token that is predicted, at most */
};

struct llm_predictor {
    const char *name;           /* for messages: "an n-gram model" */
    bool (*is_of)(const struct llm_model *m); /* NULL: of every model that no row before it takes */
    bool has_states;            /* hidden states and a cache of keys and values exist, to embed with, save and load */
    const char *not_trained;    /* why it cannot be trained by steps, for messages; NULL: it can */
    /* Reads the tokens of all feeds, `total` of them, which also stand in the engine's ids in that order. Caches have room. 0 or -1. */
    int (*advance)(struct llm_engine *g, const struct llm_feed *feeds, int64_t n, int64_t total, struct llm_reading *r, struct llm_err *e);
    /* Logits [n_rows, vocab_size] of the token that follows each of these rows of a reading, allocated on the engine's arena; NULL on failure. */
    float *(*logits)(struct llm_engine *g, const struct llm_reading *r, const int64_t *rows, int64_t n_rows, struct llm_err *e);
    /* log p(id) after the token of a row, computed without the logits of other ids; thread-safe. NULL if the predictor needs all logits. */
    double (*log_prob)(const struct llm_model *m, const struct llm_reading *r, int64_t row, int32_t id);
    void (*describe)(const struct llm_model *m, struct llm_predictor_facts *f);
    /* The arithmetic of most of a pass: "f32", "bf16", "int8". */
    const char *(*arithmetic)(const struct llm_model *m, enum llm_compute compute);
};
extern const struct llm_predictor llm_predictor_network, llm_predictor_ngram;
const struct llm_predictor *llm_predictor_of(const struct llm_model *m);

#endif
