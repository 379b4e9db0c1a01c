/* One tokenizer in its forms: as read, as the tables that travel in a checkpoint, as the tokenizer.json that is written for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/fuzz/tokenizer.h"
#include "tests/unit/token/shared.h"

static void same_pieces(const struct llm_tokenizer *a, const struct llm_tokenizer *b)
{
    assert_int_equal(llm_tokenizer_vocab_size(a), llm_tokenizer_vocab_size(b));
    for (int32_t id = 0; id < llm_tokenizer_vocab_size(a); id++) {
        size_t n, m;
        const char *p = llm_tokenizer_piece(a, id, &n), *q = llm_tokenizer_piece(b, id, &m);
        assert_true(!p == !q && n == m && (n == 0 || memcmp(p, q, n) == 0));
        assert_int_equal(llm_tokenizer_is_special(a, id), llm_tokenizer_is_special(b, id));
    }
}

static void forms(void **state)
{
    struct llm_tokenizer *t = load_shared(*state);
    struct llm_err e = {0};
    struct llm_buf json = {0};
    if (!t)
        skip();
    struct llm_tokenizer *again = fuzz_from_tables(t);
    fuzz_same(t, again);
    same_pieces(t, again);
    llm_tokenizer_destroy(again);
    t->json.n = 0; /* so that it is written anew */
    assert_int_equal(llm_tokenizer_to_json(t, &json, &e), 0);
    again = llm_tokenizer_from_json(json.p, json.n, "written", &e);
    if (!again)
        fail_msg("%s", e.text);
    fuzz_same(t, again);
    same_pieces(t, again);
    llm_tokenizer_destroy(again);
    t->id_known = false; /* tables carry it: here it is computed once more */
    again = llm_tokenizer_from_json(json.p, json.n, "written", &e);
    assert_string_equal(llm_tokenizer_id(t), llm_tokenizer_id(again));
    llm_tokenizer_destroy(again);
    llm_buf_release(&json);
    llm_tokenizer_destroy(t);
}

int main(void)
{
    static const char *const names[] = {"mistral-v1-hf/tokenizer.json", "pegasus-unigram/tokenizer.json", "bert/tokenizer.json",
                                        "llama2/tokenizer.model", "mistral-spm/mistral_instruct_tokenizer_240323.model.v3",
                                        "sentencepiece-test/test_model.model", "spm-trained/ts-word2000.model", "spm-trained/ts-char.model",
                                        "spm-trained/ts-unigram4000-nfkc_cf.model"};
    struct CMUnitTest tests[sizeof names / sizeof *names];
    size_t n = 0;
    for (; n < sizeof names / sizeof *names; n++)
        tests[n] = (struct CMUnitTest){names[n], forms, NULL, NULL, (void *)(uintptr_t)names[n]};
    return _cmocka_run_group_tests("forms", tests, n, NULL, NULL);
}
