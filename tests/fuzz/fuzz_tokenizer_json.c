/* tokenizer.json: what is taken encodes, decodes, and is written again as the same tokenizer, as JSON and as tables; read without a tree of its
 * vocabulary and merges or with one, it is the same. */
#include "tokenizer.h"

static void check_tree(const char *data, size_t n, const struct llm_tokenizer *t)
{
    struct llm_err e = {0};
    json_t *root = llm_json_parse(data, n, &e);
    struct llm_tokenizer *whole = root ? llm_tokenizer_from_value(root, &e) : NULL;
    MUST(!whole == !t);
    if (t) {
        MUST(whole->vocab_size == t->vocab_size && whole->unknown == t->unknown && whole->model == t->model);
        MUST(memcmp(whole->flags, t->flags, (size_t)t->vocab_size) == 0 && whole->bpe.n_merges == t->bpe.n_merges);
        MUST(t->bpe.n_merges == 0 || memcmp(whole->bpe.merges, t->bpe.merges, t->bpe.n_merges * sizeof *t->bpe.merges) == 0);
        fuzz_same(t, whole);
    }
    llm_tokenizer_destroy(whole);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    struct llm_tokenizer *t = llm_tokenizer_from_json((const char *)data, n, "fuzz", &e);
    MUST(t || e.status);
    check_tree((const char *)data, n, t);
    if (t) fuzz_tokenizer(t);
    return 0;
}
