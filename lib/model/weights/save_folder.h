/* Models as folders of Hugging Face's. */
#ifndef LLM_MODEL_WEIGHTS_SAVE_FOLDER_H
#define LLM_MODEL_WEIGHTS_SAVE_FOLDER_H

#include "model/weights/model.h"

/* Writes the weights alone as plain safetensors, without configuration and tokenizer. */
int llm_model_save_weights(struct llm_model *m, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the model as a folder of Hugging Face's, which is made unless it exists: model.safetensors, config.json, and of what there is
 * tokenizer.json, tokenizer_config.json, generation_config.json, chat_template.jinja, preprocessor_config.json. If writing fails, a folder that was
 * made is removed. Weights of other types than F32, F16 and BF16, and n-grams, are refused (EX_UNAVAILABLE) before anything is written. */
int llm_model_save_folder(struct llm_model *m, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Checks, before the work is done, that the folder can be made and written into; nothing stays of the trial. 0 or -1. */
int llm_model_try_folder(const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Whether a folder of Hugging Face's takes weights of the type; LLM_NO_DTYPE (kept as they are): yes. */
bool llm_model_folder_takes(enum llm_dtype type);

#endif
