/* llm-infer: pictures from files, and pictures in texts (infer/album.h). */
#ifndef LLM_BIN_INFER_SIGHT_H
#define LLM_BIN_INFER_SIGHT_H

#include "bin/infer/infer.h"
#include "token/chat/picture_paths.h"

/* Takes pictures [n, k->n crops, num_channels, image_size, image_size]. 0 or -1. */
typedef int sight_take(void *arg, const float *pixels, int64_t n, const struct llm_crops *k, struct llm_err *e);
/* Reads a picture, prepared as the model's folder says, or the pictures of a stream of messages, as the model wants them. 0 or -1. */
int sight_read(struct session *s, const char *path, sight_take *take, void *arg, struct llm_err *e) LLM_MUST_CHECK;

/* Whether the model reads pictures in texts. */
bool sight_is(const struct session *s);
/* Sets s->placeholder. 0 or -1. */
int sight_open(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
/* The pictures of a text, whose embeddings the engine keeps for it. Zero-initialise. */
struct sight { struct llm_engine *engine; int32_t *first; size_t n, room; };
void sight_release(struct sight *held);
/* Refuses (EX_DATAERR) a line of --jsonl that has pictures, or ids that have placeholders, if the model reads pictures in texts. 0 or -1. */
int sight_refuse(const struct session *s, const json_t *o, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* --embed and --image of such a model: writes the embeddings of each picture, as a message that --image reads. 0 or -1. */
int sight_write(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
/* Puts pictures into the places of *ids (malloced) that stand for them: one placeholder a picture, or as many as it has embeddings. All are counted
 * before the model runs. A model that reads no pictures in texts: nothing is done. 0 or -1 (EX_DATAERR: another number of placeholders). */
int sight_put(struct session *s, const struct llm_strs *paths, struct sight *held, int32_t **ids, size_t *n, struct llm_err *e) LLM_MUST_CHECK;

#endif
