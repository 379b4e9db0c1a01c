/* Configurations as transformers wants them. */
#ifndef LLM_MODEL_CONFIG_TRANSFORMERS_H
#define LLM_MODEL_CONFIG_TRANSFORMERS_H

#include <jansson.h>
#include "model/config/config.h"

/* The configuration (llm_config_to_json) for a config.json that transformers reads. It has the keys of which transformers' default is another one,
 * and numbers that transformers' classes declare as int are integers. New reference. */
json_t *llm_config_for_transformers(const struct llm_config *c, struct llm_err *e) LLM_MUST_CHECK;

#endif
