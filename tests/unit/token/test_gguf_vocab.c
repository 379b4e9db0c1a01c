/* Vocabularies of GGUF files: llama.cpp's own vectors (.inp: texts, .out: ids). Reads $LLM_SHARED (default ../shared)/data; without it they are
 * skipped. One tokenizer has one identity in GGUF and in its other forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "tests/fuzz/tokenizer.h"
#include "tests/unit/token/shared.h"

/* A file with a NUL behind it. */
static char *slurp(const char *name, const char *suffix)
{
    char path[600];
    snprintf(path, sizeof path, "%s/data/tokenizers/ggml-vocab/ggml-vocab-%s.gguf.%s", shared(), name, suffix);
    FILE *f = fopen(path, "rb");
    if (!f)
        return NULL;
    char *p = calloc(1, 1 << 20);
    assert_non_null(p);
    (void)!fread(p, 1, (1 << 20) - 1, f);
    fclose(f);
    return p;
}

static void check_line(const struct llm_tokenizer *t, const char *name, int row, const char *text, size_t n, char *line)
{
    int32_t *ids = NULL;
    size_t n_ids = 0, at = 0;
    struct llm_err e = {0};
    if (llm_encode(t, text, n, 0, &ids, &n_ids, &e) < 0)
        fail_msg("%s, text %d: %s", name, row, e.text);
    char *rest = NULL;
    for (char *word = strtok_r(line, " ", &rest); word; word = strtok_r(NULL, " ", &rest), at++)
        if (at >= n_ids || ids[at] != strtol(word, NULL, 10))
            fail_msg("%s, text %d '%.*s': id %zu: expected %s", name, row, (int)n, text, at, word);
    assert_int_equal(at, n_ids);
    free(ids);
}

struct vectors { const char *name, *tokenizer; };

static void vectors(void **state)
{
    static const char between[] = "\n__ggml_vocab_test__\n";
    const struct vectors *v = *state;
    char gguf[200];
    snprintf(gguf, sizeof gguf, "ggml-vocab/ggml-vocab-%s.gguf", v->name);
    char *in = slurp(v->name, "inp"), *out = slurp(v->name, "out");
    struct llm_tokenizer *t = load_shared(v->tokenizer ? v->tokenizer : gguf);
    if (!t || !in || !out)
        skip();
    char *text = in, *line = out;
    int row = 0;
    for (; line && *line; row++) {
        char *stop = strstr(text, between), *end = strchr(line, '\n');
        size_t n = stop ? (size_t)(stop - text) : strlen(text);
        if (end)
            *end = '\0';
        check_line(t, v->name, row, text, n, line);
        text = stop ? stop + sizeof between - 1 : text + n;
        line = end ? end + 1 : NULL;
    }
    assert_true(row > 40);
    free(in);
    free(out);
    if (!v->tokenizer) {
        struct llm_tokenizer *again = fuzz_from_tables(t);
        fuzz_same(t, again);
        llm_tokenizer_destroy(again);
    }
    llm_tokenizer_destroy(t);
}

static void one_identity(void **state)
{
    static const char *const pairs[][2] = {{"ggml-vocab/ggml-vocab-gpt-2.gguf", "gpt2/tokenizer.json"},
                                           {"ggml-vocab/ggml-vocab-llama-spm.gguf", "llama2/tokenizer.model"}};
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct llm_tokenizer *a = load_shared(pairs[i][0]), *b = load_shared(pairs[i][1]);
        if (!a || !b)
            skip();
        if (strcmp(llm_tokenizer_id(a), llm_tokenizer_id(b)) != 0)
            fail_msg("%s and %s: identities differ", pairs[i][0], pairs[i][1]);
        llm_tokenizer_destroy(a);
        llm_tokenizer_destroy(b);
    }
}

static void every_name_compiles(void **state)
{
    static const char *const names[] = {"default", "llama-bpe", "dbrx", "qwen2", "gpt-2", "smollm", "falcon", "deepseek-llm", "deepseek-coder",
                                        "deepseek-v3", "gpt-4o", "tekken", "bloom", "viking"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct llm_gguf_pre *pre = llm_gguf_pre_find(names[i], strlen(names[i]));
        struct llm_err e = {0};
        assert_non_null(pre);
        for (int k = 0; k < LLM_GGUF_MAX_SPLITS && pre->splits[k]; k++) {
            struct llm_split s;
            if (llm_split_init(&s, pre->splits[k], &e) < 0)
                fail_msg("%s: %s", names[i], e.text);
            llm_split_release(&s);
        }
    }
    assert_null(llm_gguf_pre_find("gpt", 3));
    assert_null(llm_gguf_pre_find("", 0));
}

/* What llama.cpp refuses as well; and tokens that are never made, though they look like others. */
static void odd_vocabularies(void **state)
{
    struct llm_err e = {0};
    int32_t *ids;
    size_t n;
    (void)state;
    assert_null(llm_tokenizer_load("tests/fuzz/seeds/fuzz_gguf_vocab/twice", NULL, &e));
    assert_int_equal(e.status, EX_DATAERR);
    assert_non_null(strstr(e.text, "tokens 3 and 1 have the same text"));
    struct llm_tokenizer *t = llm_tokenizer_load("tests/fuzz/seeds/fuzz_gguf_vocab/unused-llama", NULL, &e);
    assert_non_null(t);
    assert_int_equal(llm_encode(t, "ab\xC3\xA9" "b", 5, 0, &ids, &n, &e), 0);
    static const int32_t want[] = {6, 0, 4, 0, 4}; /* the tokens of "a" and "é" are not used */
    assert_int_equal(n, 5);
    assert_memory_equal(ids, want, sizeof want);
    fuzz_tokenizer(t);
    free(ids);
}

int main(void)
{
    static const struct vectors all[] = {
        {"bert-bge", NULL},  {"deepseek-coder", NULL}, {"deepseek-llm", NULL}, {"falcon", NULL}, {"gpt-2", NULL},
        {"llama-spm", NULL}, {"mpt", NULL},            {"phi-3", NULL},        {"refact", NULL}, {"starcoder", NULL},
        {"llama-bpe", "llama3/tokenizer.json"}, {"qwen2", "qwen3/tokenizer.json"}};
    struct CMUnitTest tests[sizeof all / sizeof *all + 3];
    size_t n = 0;
    for (; n < sizeof all / sizeof *all; n++)
        tests[n] = (struct CMUnitTest){all[n].name, vectors, NULL, NULL, (void *)(uintptr_t)&all[n]};
    tests[n++] = (struct CMUnitTest){"one identity in all forms", one_identity, NULL, NULL, NULL};
    tests[n++] = (struct CMUnitTest){"every name's splits compile", every_name_compiles, NULL, NULL, NULL};
    tests[n++] = (struct CMUnitTest){"odd vocabularies", odd_vocabularies, NULL, NULL, NULL};
    return _cmocka_run_group_tests("gguf vocabularies", tests, n, NULL, NULL);
}
