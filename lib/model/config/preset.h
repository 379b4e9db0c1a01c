/* Named configurations. To add one: its row in preset.c. */
#ifndef LLM_MODEL_CONFIG_PRESET_H
#define LLM_MODEL_CONFIG_PRESET_H

/* config.json as text, or NULL. */
const char *llm_preset_find(const char *name);
/* Name of preset i, NULL after the last (struct llm_words). */
const char *llm_preset_word(int i);

#endif
