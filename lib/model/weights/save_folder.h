/* Models as folders of Hugging Face's. */
#ifndef LLM_MODEL_WEIGHTS_SAVE_FOLDER_H
#define LLM_MODEL_WEIGHTS_SAVE_FOLDER_H

#include "model/weights/model.h"

/* Writes the weights alone as plain safetensors, without configuration and tokenizer. */
int llm_model_save_weights(struct llm_model *m, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the model as a folder of Hugging Face's, which is made unless it exists: model.safetensors, config.json, and of what there is
 * tokenizer.json, tokenizer_config.json, generation_config.json, chat_template.jinja, preprocessor_config.json. Weights of other types than F32, F16
 * and BF16, and n-grams, are refused (EX_UNAVAILABLE) before anything is written. */
int llm_model_save_folder(struct llm_model *m, const char *path, struct llm_err *e) LLM_MUST_CHECK;

#endif
