/* RWKV's vocabulary files. */
#include "tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    struct llm_tokenizer *t = llm_tokenizer_from_rwkv(data, n, &e);
    MUST(t || e.status);
    if (t) fuzz_tokenizer(t);
    return 0;
}
