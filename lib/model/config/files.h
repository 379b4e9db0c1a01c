/* The files that a model's weights stand in: one, those that the index of a Hugging Face folder names, or the parts
 * of a GGUF file. */
#ifndef LLM_MODEL_CONFIG_FILES_H
#define LLM_MODEL_CONFIG_FILES_H

#include "io/checkpoint.h"

/* A folder without config.json: says what a model's folder holds. Status 66; returns -1. */
int llm_model_no_folder(const char *folder, struct llm_err *e);

#define LLM_MODEL_INDEX "model.safetensors.index.json"

struct llm_model_files {
    struct llm_checkpoint **v;
    size_t n;
};
/* One file ("-": stdin). 0 or -1; zero-initialise. */
int llm_model_files_open(struct llm_model_files *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* The same of a file that is open; takes it over. */
int llm_model_files_take(struct llm_model_files *f, struct llm_file *file, struct llm_err *e) LLM_MUST_CHECK;
/* Those that the index at `path` names in its weight_map, in the folder it stands in. */
int llm_model_files_open_index(struct llm_model_files *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* The others of a GGUF file that is split, name-00001-of-00003.gguf, of which `f` holds the first, at `path`. On failure all are closed. */
int llm_model_files_open_split(struct llm_model_files *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* The entry of a name and the file it is in, or NULL. */
const struct llm_entry *llm_model_files_find(const struct llm_model_files *f, const char *name, struct llm_checkpoint **file);
void llm_model_files_close(struct llm_model_files *f);

#endif
