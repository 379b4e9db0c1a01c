/* The files that a model's weights stand in: one, or those that the index of a Hugging Face folder names. */
#ifndef LLM_MODEL_FILES_H
#define LLM_MODEL_FILES_H

#include "io/checkpoint.h"

#define LLM_MODEL_INDEX "model.safetensors.index.json"

struct llm_model_files {
    struct llm_checkpoint **v;
    size_t n;
};
/* One file ("-": stdin). 0 or -1; zero-initialise. */
int llm_model_files_open(struct llm_model_files *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Those that the index at `path` names in its weight_map, in the folder it stands in. */
int llm_model_files_open_index(struct llm_model_files *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;
void llm_model_files_close(struct llm_model_files *f);

#endif
