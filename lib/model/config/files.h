/* The files that hold a model's weights: a single file, the files that the index of a Hugging Face folder names, or the parts of a split GGUF file.
 * */
#ifndef LLM_MODEL_CONFIG_FILES_H
#define LLM_MODEL_CONFIG_FILES_H

#include "io/checkpoint.h"

/* Fills the error for a folder without config.json: the message says what a model's folder holds. Returns -1 (EX_NOINPUT). */
int llm_model_no_folder(const char *folder, struct llm_err *e);

#define LLM_MODEL_INDEX "model.safetensors.index.json"

struct llm_model_files {
    struct llm_checkpoint **v;
    size_t n;
};
/* Opens one file ("-": standard input). Zero-initialise `f`. 0 or -1. */
int llm_model_files_open(struct llm_model_files *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_model_files_open, for a file that is already open. `f` owns it from here on, after a failure too. */
int llm_model_files_take(struct llm_model_files *f, struct llm_file *file, struct llm_err *e) LLM_MUST_CHECK;
/* Opens the files that the index at `path` names in its weight_map. They must be in the index's folder. 0 or -1. */
int llm_model_files_open_index(struct llm_model_files *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Opens the further parts of a split GGUF file (name-00001-of-00003.gguf). `f` holds the first part, whose path is `path`. 0 or -1; after a failure
 * all parts are closed. */
int llm_model_files_open_split(struct llm_model_files *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* The entry of the tensor `name`, and the file that has it. NULL: no file has it. */
const struct llm_entry *llm_model_files_find(const struct llm_model_files *f, const char *name, struct llm_checkpoint **file);
void llm_model_files_close(struct llm_model_files *f);

#endif
