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
        size_t n_merges = 0, of_whole = 0;
        const struct llm_bpe_merge *merges = llm_tokenizer_merges(t, &n_merges, &e), *same = llm_tokenizer_merges(whole, &of_whole, &e);
        MUST(memcmp(whole->flags, t->flags, (size_t)t->vocab_size) == 0 && n_merges == of_whole);
        MUST(n_merges == 0 || (merges && same && memcmp(merges, same, n_merges * sizeof *merges) == 0));
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
