/* A tokenizer's tables (or its JSON) in a safetensors file, as a checkpoint carries them. */
#include "tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    struct llm_checkpoint *c = llm_checkpoint_from_file(llm_file_from_memory(data, n, "fuzz", &e), &e);
    struct llm_tokenizer *t = c ? llm_tokenizer_from_checkpoint(c, &e) : NULL;
    MUST(t || e.status);
    llm_checkpoint_close(c);
    if (t && t->vocab_size <= 4096) /* its identity is as the file claims, which nothing checks */
        for (size_t i = 0; i < sizeof fuzz_flags / sizeof *fuzz_flags; i++) fuzz_encode(t, fuzz_flags[i]);
    llm_tokenizer_destroy(t);
    return 0;
}
