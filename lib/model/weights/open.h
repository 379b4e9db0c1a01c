/* How the files of a model become a model: an opener for each format, and what they share. For lib/model/weights itself. */
#ifndef LLM_MODEL_WEIGHTS_OPEN_H
#define LLM_MODEL_WEIGHTS_OPEN_H

#include "model/config/files.h"
#include "model/weights/model.h"

/* ---- openers: on failure they return NULL and have closed `files` ---- */
/* A GGUF file at `path`, of which `files` holds the first part; its further parts are opened too, and the mmproj file (NULL: none). */
struct llm_model *llm_open_gguf(struct llm_model_files *files, const char *path, const char *mmproj, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_open_gguf, of a file that is not open. */
struct llm_model *llm_open_gguf_seeing(const char *path, const char *mmproj, struct llm_err *e) LLM_MUST_CHECK;
/* A model of rwkv.cpp. */
struct llm_model *llm_open_rwkv_cpp(struct llm_model_files *files, struct llm_err *e) LLM_MUST_CHECK;
/* A Hugging Face folder: config.json, weights in one file or several, tokenizer. */
struct llm_model *llm_open_folder(const char *folder, struct llm_err *e) LLM_MUST_CHECK;
/* Weights `files`, called `name` in messages, whose configuration and tokenizer are in the folder: the first n bytes of `folder`. */
struct llm_model *llm_open_in_folder(const char *folder, size_t n, struct llm_model_files *files, const char *name, struct llm_err *e) LLM_MUST_CHECK;
/* Makes a model whose family resamples positions (llm_arch.fits_positions) one of pictures of the size that its preprocessor makes
 * (m->preprocessor), if that is one size and another than image_size: resamples the positions of patches and sets image_size. 0 or -1. */
int llm_model_fit_positions(struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;
/* A file that has its configuration in its metadata: .llm, or safetensors that programs here wrote. `text`: that metadata. */
struct llm_model *llm_open_own(struct llm_model_files *files, const char *text, struct llm_err *e) LLM_MUST_CHECK;

/* ---- what they share ---- */
/* The model of a configuration with the weights in `files`, which it owns from here on (closed after a failure). `name`: of the model in messages. */
struct llm_model *llm_open_with_config(struct llm_model_files *files, const char *name, const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_open_with_config, from the text of config.json; reads the names of classes too. */
struct llm_model *llm_open_with_json(struct llm_model_files *files, const char *name, const json_t *config, struct llm_err *e) LLM_MUST_CHECK;
/* Reads or maps the data of all parameters, which the model's files have under the names of `d`. Tensors that the model does not have are refused. 0
 * or -1. */
int llm_params_read(struct llm_model *m, const struct llm_declare *d, struct llm_err *e) LLM_MUST_CHECK;
/* Writes "FOLDER/NAME", FOLDER being the first n bytes of `folder`, to `out`. 0, or -1: the path is too long. */
int llm_path_join(char out[4096], const char *folder, size_t n, const char *name, struct llm_err *e) LLM_MUST_CHECK;

#endif
