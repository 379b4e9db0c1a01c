/* Checkpoints in several files: Hugging Face's model.safetensors.index.json, llama.cpp's name-00001-of-00003.gguf. One file is a list of one. */
#ifndef LLM_MODEL_SHARDS_H
#define LLM_MODEL_SHARDS_H

#include "io/checkpoint.h"

struct llm_shards {
    struct llm_checkpoint **v; /* owned; the first says what the model is */
    size_t n;
};

/* `path` alone, or with the rest of the GGUF files it is the first of. */
int llm_shards_open(struct llm_shards *s, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* A folder's model.safetensors, or the files that its index names, which must be in the folder and hold what the index says. */
int llm_shards_open_folder(struct llm_shards *s, const char *folder, struct llm_err *e) LLM_MUST_CHECK;
void llm_shards_close(struct llm_shards *s);
/* The entry and the file it is in, or NULL. No name stands in two files. */
const struct llm_entry *llm_shards_find(const struct llm_shards *s, const char *name, struct llm_checkpoint **file);

#endif
