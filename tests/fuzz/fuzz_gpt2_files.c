/* GPT-2's encoder.json and vocab.bpe, one after the other with a NUL between them; the same files as those of CLIP. */
#include "tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    char encoder[40], merges[40];
    const uint8_t *zero = memchr(data, 0, n);
    size_t len = zero ? (size_t)(zero - data) : n;
    int a = fuzz_file(data, len, encoder), b = fuzz_file(zero ? zero + 1 : data, zero ? n - len - 1 : 0, merges);
    for (int i = 0; i < 2; i++) {
        struct llm_tokenizer *t = llm_tokenizer_from_gpt2(encoder, merges, i ? "CLIPTokenizerFast" : "GPT2Tokenizer", &e);
        MUST(t || e.status);
        if (t) fuzz_tokenizer(t);
    }
    close(a);
    close(b);
    return 0;
}
