/* llm-quantize: words of options, other names of options, and options that other tools have. */
#include "bin/quantize/words.h"
#include "bin/foreign.h"
#include "model/weights/format.h"
#include "quant/quant.h"

static const char *method_word(int i)
{
    if (i < LLM_QUANT_METHODS) return llm_quant_methods[i];
    if (i == QUANTIZE_AWQ) return "awq";
    return i < QUANTIZE_PRUNE + LLM_PRUNE_METHODS ? llm_prune_methods[i - QUANTIZE_PRUNE] : NULL;
}

const struct llm_words quantize_words[] = {{"type", llm_quant_word}, {"method", method_word}, {"to", llm_model_format_word},
                                          {"output-tensor-type", llm_quant_word}, {"token-embedding-type", llm_quant_word}, {0}};

const struct llm_alias quantize_aliases[] = {{"--outtype", "type"}, {"--ftype", "type"}, {"--exclude", "except"}, {"--include", "only"},
                                             {"--calibration", "calibrate"}, {"--dataset", "calibrate"}, {0}};

#define BY_TYPE "-t names the type, which has its number of bits and its block size"
const struct llm_foreign quantize_foreign[] = {
    FOREIGN_DEVICES,
    {"--outfile", "the output is the second operand: llm-quantize -t TYPE IN OUT"},
    {"-o", "the output is the second operand: llm-quantize -t TYPE IN OUT"},
    {"--sparsity", "--prune says which share of each matrix becomes 0"},
    {"--bits", BY_TYPE},
    {"--wbits", BY_TYPE},
    {"--group-size", BY_TYPE},
    {"--leave-output-tensor", "--output-tensor-type keep leaves the head as it is"},
    {"--allow-requantize", "quantised tensors may always be stored in another type"},
    {"--keep-split", "--split-max-size and --split-max-tensors write GGUF in parts"},
    {0}};
