/* llm-quantize: tables of its command line. */
#ifndef BIN_QUANTIZE_WORDS_H
#define BIN_QUANTIZE_WORDS_H

#include "base/cli.h"
#include "quant/quant.h"

/* Words of --method: those of rounding, awq, those of pruning. */
enum { QUANTIZE_AWQ = LLM_QUANT_METHODS, QUANTIZE_PRUNE };

extern const struct llm_words quantize_words[];
extern const struct llm_alias quantize_aliases[];
extern const struct llm_foreign quantize_foreign[];

#endif
