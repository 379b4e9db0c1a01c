/* llm-quantize: adapters, written in other formats or merged into their model. */
#ifndef BIN_QUANTIZE_ADAPTERS_H
#define BIN_QUANTIZE_ADAPTERS_H

#include "base/cli.h"
#include "model/weights/lora.h"

/* Writes the adapter in `in` as OUT: .llm, GGUF or (other names) a folder of PEFT's. base: its model; NULL: the one that it names. type: of its
 * numbers; LLM_NO_DTYPE: F32. 0 or -1. */
int adapter_convert(const char *in, const char *base, const char *out, bool gguf, enum llm_dtype type, struct llm_err *e) LLM_MUST_CHECK;
/* Writes the first adapter of `m`: as GGUF, or by the name `out`: .llm, else a folder of PEFT's. type: of its numbers (.llm: F32). 0 or -1. */
int adapter_write(struct llm_model *m, const char *out, bool gguf, enum llm_dtype type, struct llm_err *e) LLM_MUST_CHECK;
/* --merge: adds adapters "FILE[:SCALE]" to the model's list. 0 or -1. */
int adapters_load(struct llm_model *m, const struct llm_strs *adapters, struct llm_err *e) LLM_MUST_CHECK;
/* Says what merging has cost: the mean of KL(p, q) over tokens that the model in `in` with its adapters (p) writes itself, q of the merged model `m`.
 * Models that write no texts have no such number. 0, 1 (a signal was caught) or -1. */
int adapters_report(const char *in, const struct llm_strs *adapters, struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;

#endif
