/* Configurations as transformers wants them. */
#ifndef LLM_MODEL_CONFIG_TRANSFORMERS_H
#define LLM_MODEL_CONFIG_TRANSFORMERS_H

#include <jansson.h>
#include "model/config/config.h"

/* `c` in the words that transformers has: rotary channels are paired as in the family's files there (llama.cpp's have another order of rows), and a
 * Llama with a window in all layers is a Mistral. */
struct llm_config llm_config_in_transformers(const struct llm_config *c);
/* That configuration (llm_config_to_json) for a config.json that transformers reads. It has the keys of which transformers' default is another one,
 * and numbers that transformers' classes declare as int are integers. New reference. */
json_t *llm_config_for_transformers(const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;

#endif
