/* Folders of sentence-transformers: how the model is meant to embed texts. */
#ifndef LLM_MODEL_CONFIG_SENTENCE_H
#define LLM_MODEL_CONFIG_SENTENCE_H

#include "model/config/config.h"

/* Pooling and normalising from the folder's modules.json and the module's config.json that it names; a folder without leaves `c` alone. What we do
 * not have becomes LLM_POOL_OTHER. */
int llm_sentence_read(struct llm_config *c, const char *folder, size_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
