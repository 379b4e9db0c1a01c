/* llm-quantize --rank and --energy: low-rank factors as an adapter of the model that is written. */
#ifndef BIN_QUANTIZE_FACTORS_H
#define BIN_QUANTIZE_FACTORS_H

#include "quant/quant.h"

/* Checks, before the work is done, that factors of the matrices that the plan changes can be written to `path`. 0 or -1 (EX_UNAVAILABLE: its format
 * has no place for one). */
int factors_try(const struct llm_model *m, const struct llm_quant_plan *plan, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Gives `m` the factors of `l` as an adapter, and says on standard error how large they are. 0 or -1 (EX_DATAERR: no matrix has factors). */
int factors_attach(struct llm_model *m, const struct llm_lowrank *l, struct llm_err *e) LLM_MUST_CHECK;
/* Writes this adapter to `path` by its suffix, as one of the model that was saved in `model`. gguf: that is GGUF, whose reader may find another
 * fingerprint, so the adapter has none. 0 or -1. */
int factors_write(struct llm_model *m, const char *model, bool gguf, const char *path, struct llm_err *e) LLM_MUST_CHECK;

#endif
