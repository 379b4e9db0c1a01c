/* SentencePiece's .model: what is taken encodes, decodes, and is written again as the same tokenizer, as JSON and as tables. */
#include "tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    struct llm_tokenizer *t = llm_tokenizer_from_spm(data, n, NULL, &e);
    MUST(t || e.status);
    if (t) fuzz_tokenizer(t);
    return 0;
}
