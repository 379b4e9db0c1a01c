/* tiktoken's rank files. The first byte chooses the split pattern. */
#include "tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const patterns[] = {"gpt2", "cl100k", "o200k", "[a-z]+|.", NULL};
    struct llm_err e = {0};
    if (n == 0) return 0;
    struct llm_tokenizer *t = llm_tokenizer_from_ranks(data + 1, n - 1, patterns[data[0] % 5], &e);
    MUST(t || e.status);
    if (t) fuzz_tokenizer(t);
    return 0;
}
