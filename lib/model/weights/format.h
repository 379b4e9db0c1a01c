/* The formats in which models are written: their names for --to, and their suffixes. */
#ifndef LLM_MODEL_WEIGHTS_FORMAT_H
#define LLM_MODEL_WEIGHTS_FORMAT_H

/* llm-train writes the formats before LLM_FORMAT_GGUF. ARPA is a text format for n-gram models. A folder is one of Hugging Face's. */
enum llm_model_format { LLM_FORMAT_LLM, LLM_FORMAT_SAFETENSORS, LLM_FORMAT_ARPA, LLM_FORMAT_GGUF, LLM_FORMAT_FOLDER };
/* Name of format i, NULL after the last (struct llm_words): of all formats; of those that llm-train writes. */
const char *llm_model_format_word(int i);
const char *llm_trained_format_word(int i);
/* The format of a file whose suffix `path` ends in; other names, "-" and NULL: LLM_FORMAT_LLM. */
enum llm_model_format llm_model_format_of(const char *path);

#endif
