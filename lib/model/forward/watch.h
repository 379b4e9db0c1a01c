/* Observers and editors of a forward pass. Attach a list to the context in which a model runs (llm_ctx.watch, before the pass; it is borrowed until
 * the pass, and its backward pass if there is one, are over). Without a list the forward pass does not look for any. */
#ifndef LLM_MODEL_FORWARD_WATCH_H
#define LLM_MODEL_FORWARD_WATCH_H

#include "model/spec/place.h"

struct llm_model;
struct llm_batch;
/* What a row of a value belongs to. */
struct llm_row_id {
    int64_t sequence;              /* training: number of the row in the step; inference: number of the sequence or text in the pass */
    int32_t position;              /* of the token in its text; -1: the row stands for a whole text, or for a latent */
    int32_t id;                    /* of the token; -1: there is none (an embedding was given, or the row stands for a text) */
};
/* A value [rows, cols] at a place, valid during the call. Rows are `stride` floats apart. */
struct llm_sight {
    struct llm_place place;
    const float *x;
    int64_t rows, cols, stride;
    const struct llm_row_id *who;  /* [rows] */
    const float *const *strengths; /* llm_watch.strengths */
};
/* One observer or editor. Both return 0, or -1 with `e` filled, which ends the pass. They are called by the thread that runs the pass.
 * An observer sees every value once, in the order of the pass, also if its block is recomputed for the backward pass.
 * An editor writes its values over x [rows, cols], rows s->stride floats apart. It may be called twice with the same values, and must then write the
 * same. The gradient of an edited value passes to the value that it replaced unchanged. */
struct llm_watcher {
    struct llm_place_range at;
    int (*observe)(void *arg, const struct llm_sight *s, struct llm_err *e);
    int (*edit)(void *arg, const struct llm_sight *s, float *x, struct llm_err *e); /* NULL: it observes */
    void *arg;
};
struct llm_watch {
    const struct llm_watcher *v;   /* [n], called in this order at each place; the caller's */
    size_t n;
    /* [sequences of the pass]: of each sequence, the strengths of editors that have one, by their numbers (infer/activations.h); an entry NULL: their
     * own; NULL: all entries are NULL. Set by who runs the pass; borrowed. */
    const float *const *strengths;
    /* The rest is the model's, zero at first: */
    const struct llm_row_id *who;  /* [n_who] rows of the last pass; on its `acts` */
    int64_t n_who;
    const struct llm_row_id *memory_who; /* identities of the rows that cross-attention attends to */
    const struct llm_row_id *picked; /* [n_picked] entries of `who` that llm_watch_pick chose; NULL: all rows */
    int64_t n_picked;
};
/* Where in a pass a module stands. */
struct llm_site {
    int stack;
    int64_t layer;
    const struct llm_row_id *who;
};

/* The value that a pass goes on with in place of x: x itself unless an editor replaces it. */
struct llm_tensor *llm_watch_visit(struct llm_ctx *c, const struct llm_site *site, enum llm_place_kind kind, struct llm_tensor *x);
static inline struct llm_tensor *llm_visit(struct llm_ctx *c, const struct llm_site *site, enum llm_place_kind kind, struct llm_tensor *x)
{
    return c->watch ? llm_watch_visit(c, site, kind, x) : x;
}
/* As llm_watch_visit, for a value that an op computes inside itself, a block of rows at a time: what the op is to call. On `acts`. NULL: nobody
 * watches the place. */
const struct llm_inner *llm_watch_inner(struct llm_ctx *c, const struct llm_site *site, enum llm_place_kind kind);
/* The identities of a batch's rows, on `acts`. NULL: nobody watches the pass. */
const struct llm_row_id *llm_watch_rows(struct llm_ctx *c, const struct llm_batch *b);
/* From here on the head works on these rows of the last pass instead of all; -1: a row that belongs to no token. */
void llm_watch_pick(struct llm_ctx *c, const int64_t *rows, int64_t n);
void llm_watch_pick32(struct llm_ctx *c, const int32_t *rows, int64_t n);
/* The site of the head, which works on n rows. */
struct llm_site llm_watch_head(struct llm_ctx *c, int64_t n);

#endif
