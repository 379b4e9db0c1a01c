/* Vocabularies of GGUF files: what is taken encodes and decodes, and comes back from tables and from tokenizer.json; it is written as GGUF and read
 * again, or refused. */
#include "tokenizer.h"
#include "io/gguf_write.h"

static void check_written(const struct llm_tokenizer *t)
{
    struct llm_err e = {0};
    struct llm_gguf_out o = {.err = &e};
    if (t->vocab_size <= 4096) MUST(llm_tokenizer_to_gguf(t, t->vocab_size + 3, -1, -1, &o, &e) == 0 || e.status != 0);
    llm_gguf_out_release(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_gguf g;
    struct llm_header h;
    struct llm_err e = {0};
    if (llm_gguf_parse(&g, &h, data, n, "fuzz", &e) < 0) return 0;
    struct llm_tokenizer *t = llm_tokenizer_from_gguf(&g, &e);
    MUST(t || e.status != 0);
    llm_gguf_release(&g);
    llm_header_release(&h);
    if (!t) return 0;
    check_written(t);
    fuzz_tokenizer(t);
    return 0;
}
