/* Pictures in texts of models that read both (llm_config_projects). The embeddings of a picture are computed once. In a text they stand under ids of
 * their own, from vocab_size on, one for each: so the ids of a cache tell pictures apart, and whatever compares, cuts or recomputes texts by their
 * ids does so for texts with pictures. */
#ifndef LLM_INFER_ALBUM_H
#define LLM_INFER_ALBUM_H

#include "model/config/picture.h"
#include "model/forward/forward.h"

struct llm_seen {
    int32_t first;             /* the id of its first embedding */
    int64_t n;                 /* embeddings */
    int64_t users;             /* texts that may still need it */
    uint64_t hash[2];          /* of its pixels, or of the embeddings that were given */
    float *rows;               /* [n, hidden_size]; owned */
};
/* The pictures of an engine, by ascending ids. */
struct llm_album { struct llm_seen *v; size_t n, room; int64_t next; /* id, 0: none yet */ };
void llm_album_release(struct llm_album *s);

struct llm_engine;
/* Computes the embeddings of a picture [k->n, num_channels, image_size, image_size], unless they are there already. The crops `k` were checked
 * (llm_picture_check). *first: its ids are *first and those that follow, llm_picture_rows of them, until llm_engine_forget is called as often. Not
 * during a pass. 0 or -1. */
int llm_engine_show(struct llm_engine *g, const float *pixels, const struct llm_crops *k, int32_t *first, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_engine_show, of embeddings [llm_picture_rows, hidden_size] that were computed before (llm_engine_shown). */
int llm_engine_show_embeddings(struct llm_engine *g, const float *rows, const struct llm_crops *k, int32_t *first, struct llm_err *e) LLM_MUST_CHECK;
/* The embeddings of the picture whose first id this is; NULL: it was forgotten. */
const float *llm_engine_shown(const struct llm_engine *g, int32_t first);
/* A text with the picture has ended. The latest pictures of such texts are kept, for texts to come. */
void llm_engine_forget(struct llm_engine *g, int32_t first);
/* Makes the ids of pictures in a batch, whose ids [n_tokens] are the engine's own, placeholders with given embeddings in memory of the engine's
 * context. 0 or -1. */
int llm_album_place(struct llm_engine *g, struct llm_batch *b, struct llm_err *e) LLM_MUST_CHECK;

#endif
