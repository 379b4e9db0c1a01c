/* Pictures of conversations, for models that read them in texts (llm_config_projects): files that are read when a step needs them. In tokens a
 * picture stands as ids of its own from vocab_size + first on, one for each of its llm_picture_rows embeddings. */
#ifndef LLM_TRAIN_SHOWN_H
#define LLM_TRAIN_SHOWN_H

#include "model/config/picture.h"
#include "model/weights/model.h"
#include "token/chat/conversation.h"
#include "token/image/processor.h"

struct llm_shown {
    struct llm_config config;   /* of the model */
    const struct llm_tokenizer *tokenizer; /* the model's; borrowed */
    struct llm_image_processor processor;
    char *placeholder;          /* the text of the token that stands for a picture; owned */
    struct llm_shown_file { char *path; struct llm_crops crops; int64_t first; } *v; /* [n], owned; by ascending `first` */
    size_t n, room;
    int64_t next;               /* `first` of the next picture */
    uint64_t hash;              /* of the bytes of all files, in order */
};
/* For a model, which has a tokenizer with the token that stands for a picture. Its pictures are prepared as its preprocessor_config.json says, which
 * a new model gets: that of CLIP at the size of its tower. 0 or -1. */
int llm_shown_init(struct llm_shown *s, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
void llm_shown_release(struct llm_shown *s);
/* Puts the pictures that the messages name, or the `line` that has them, into the places of the conversation's tokens that stand for them: one
 * placeholder a picture. 0 or -1 (EX_DATAERR: another number of placeholders, or one that the assistant says). */
int llm_shown_put(struct llm_shown *s, const json_t *line, const json_t *messages, struct llm_conversation *c, struct llm_err *e) LLM_MUST_CHECK;
/* The number of the picture that has the id, which is at least vocab_size. */
int64_t llm_shown_find(const struct llm_shown *s, int64_t id);
/* The pixels [crops.n, num_channels, image_size, image_size] of picture k. 0 or -1. */
int llm_shown_get(const struct llm_shown *s, int64_t k, float *pixels, struct llm_err *e) LLM_MUST_CHECK;

#endif
