/* The formats that models are written in: the words of --to, and the suffixes that ask for them. */
#ifndef LLM_MODEL_WEIGHTS_FORMAT_H
#define LLM_MODEL_WEIGHTS_FORMAT_H

/* Rows of a table. llm-train writes those before GGUF; ARPA is text of n-gram models. */
enum llm_model_format { LLM_FORMAT_LLM, LLM_FORMAT_SAFETENSORS, LLM_FORMAT_ARPA, LLM_FORMAT_GGUF };
/* Name of a format by index, NULL after the last: of all, and of those that llm-train writes. */
const char *llm_model_format_word(int i);
const char *llm_trained_format_word(int i);
/* The format whose suffix `path` ends in; other names, "-" and NULL: LLM_FORMAT_LLM. */
enum llm_model_format llm_model_format_of(const char *path);

#endif
