/* Ids of every golden vector of the reference implementations, fed whole, byte by byte, and in odd chunks; decoding gives the text back.
 * Reads $LLM_SHARED (default ../shared)/data; without it the test is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "token/tokenizer.h"
#include "tests/unit/token/shared.h"

struct pair { const char *tokenizer, *golden; };
static const struct pair pairs[] = {
    {"gpt2/tokenizer.json", "hf/gpt2.jsonl"},
    {"gpt2", "hf/gpt2.jsonl"},
    {"gpt2/encoder.json", "hf/gpt2.jsonl"},
    {"tiktoken/r50k_base.tiktoken", "hf/gpt2.jsonl"},
    {"tiktoken/r50k_base.tiktoken", "tiktoken/r50k_base.jsonl"},
    {"gpt2/tokenizer.json", "tiktoken/r50k_base.jsonl"},
    {"tiktoken/cl100k_base.tiktoken", "tiktoken/cl100k_base.jsonl"},
    {"tiktoken/o200k_base.tiktoken", "tiktoken/o200k_base.jsonl"},
    {"gpt4o-hf/tokenizer.json", "hf/gpt4o-hf.jsonl"},
    {"gpt4o-hf/tokenizer.json", "tiktoken/o200k_base.jsonl"},
    {"llama3/tokenizer.json", "hf/llama3.jsonl"},
    {"qwen3/tokenizer.json", "hf/qwen3.jsonl"},
    {"deepseek_v3/tokenizer.json", "hf/deepseek_v3.jsonl"},
    {"gpt-neox/20B_tokenizer.json", "hf/gpt-neox.jsonl"},
    {"mistral-v1-hf/tokenizer.json", "hf/mistral-v1-hf.jsonl"},
    {"pegasus-unigram/tokenizer.json", "hf/pegasus-unigram.jsonl"},
    {"bert/tokenizer.json", "hf/bert-uncased.jsonl"},
    {"gemma3/tokenizer.json.gz", "hf/gemma3.jsonl"},
    {"llama2/tokenizer.model", "spm/llama2.jsonl"},
    {"mistral-spm/tokenizer.model.v1", "spm/mistral-v1.jsonl"},
    {"mistral-spm/mistral_instruct_tokenizer_240323.model.v3", "spm/mistral-v3.jsonl"},
    {"sentencepiece-test/test_model.model", "spm/spm-test-unigram.jsonl"},
    {"sentencepiece-test/test_ja_model.model", "spm/spm-test-ja-unigram.jsonl"},
    {"spm-trained/ts-bpe1000.model", "spm/spm-ts-bpe1000.jsonl"},
    {"spm-trained/ts-char.model", "spm/spm-ts-char.jsonl"},
    {"spm-trained/ts-unigram1000.model", "spm/spm-ts-unigram1000.jsonl"},
    {"spm-trained/ts-unigram4000-nfkc_cf.model", "spm/spm-ts-unigram4000-nfkc_cf.jsonl"},
    {"spm-trained/ts-word2000.model", "spm/spm-ts-word2000.jsonl"},
    {"rwkv-world/rwkv_vocab_v20230424.txt", "rwkv/rwkv-world.jsonl"},
    {"../models/stories260K/tok512.rebuilt.model", "spm/stories260K-tok512.jsonl"},
};

static size_t step_of(int way)
{
    return way == 0 ? SIZE_MAX : way == 1 ? 1 : 7;
}

static void expect_ids(struct llm_encoder *en, const char *id, const char *text, size_t n, const json_t *want)
{
    for (int way = 0; way < 3; way++) {
        int32_t *ids = NULL;
        size_t n_ids = 0, room = 0, step = step_of(way), at = 0;
        struct llm_err e = {0};
        if (way && n > 4000)
            continue;
        do {
            size_t len = n - at < step ? n - at : step;
            if (llm_encoder_feed(en, text + at, len, at + len == n, &ids, &n_ids, &room, &e) < 0)
                fail_msg("%s: %s", id, e.text);
            at += len;
        } while (at < n);
        bool same = n_ids == json_array_size(want);
        for (size_t i = 0; same && i < n_ids; i++)
            same = ids[i] == json_integer_value(json_array_get(want, i));
        if (!same)
            fail_msg("%s, way %d: other ids (%zu, expected %zu)", id, way, n_ids, json_array_size(want));
        free(ids);
    }
}

/* Decoded as a whole, and id by id. */
static void expect_text(const struct llm_tokenizer *t, const char *id, const char *text, size_t n, const json_t *list)
{
    struct llm_buf whole = {0}, parts = {0};
    struct llm_err e = {0};
    size_t n_ids = json_array_size(list);
    int32_t *ids = malloc((n_ids + 1) * sizeof *ids);
    struct llm_detokenizer *d = llm_detokenizer_create(t, false, &e);
    assert_non_null(d);
    for (size_t i = 0; i < n_ids; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
        assert_int_equal(llm_detokenizer_put(d, &ids[i], 1, &parts, &e), 0);
    }
    assert_int_equal(llm_detokenizer_end(d, &parts, &e), 0);
    assert_int_equal(llm_decode(t, ids, n_ids, false, &whole, &e), 0);
    if (whole.n != n || (n && memcmp(whole.p, text, n) != 0))
        fail_msg("%s: decoded to other bytes: %s", id, whole.n < 600 ? whole.p : "(long)");
    if (parts.n != n || (n && memcmp(parts.p, text, n) != 0))
        fail_msg("%s: decoded to other bytes id by id", id);
    llm_detokenizer_destroy(d);
    llm_buf_release(&whole);
    llm_buf_release(&parts);
    free(ids);
}

static size_t unhex(const char *hex, char *out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++) {
        unsigned v;
        sscanf(hex + 2 * i, "%2x", &v);
        out[i] = (char)v;
    }
    return n;
}

static void check_row(const struct llm_tokenizer *t, struct llm_encoder *plain, struct llm_encoder *special, const char *golden, const json_t *row)
{
    const char *id = json_string_value(json_object_get(row, "id")), *hex = json_string_value(json_object_get(row, "bytes_hex"));
    const json_t *ids = json_object_get(row, "ids"), *with = json_object_get(row, "ids_special"), *text = json_object_get(row, "text");
    bool hf = strncmp(golden, "hf/", 3) == 0, spm = strncmp(golden, "spm/", 4) == 0;
    char bytes[4096];
    size_t n = hex ? unhex(hex, bytes) : json_string_length(text);
    const char *p = hex ? bytes : json_string_value(text);
    if (hex && !spm) { /* ids of part of a character */
        expect_text(t, id, bytes, n, ids);
        return;
    }
    if (hf) {
        expect_ids(special, id, p, n, ids);
    } else {
        expect_ids(plain, id, p, n, ids);
        if (!spm)
            expect_ids(special, id, p, n, with ? with : ids);
    }
    const json_t *decoded = json_object_get(row, "decoded");
    if (hex && !decoded)
        return;
    if (!decoded)
        expect_text(t, id, p, n, ids);
    else if (spm || !strstr(json_string_value(decoded), "\xEF\xBF\xBD")) /* byte-level models give the bytes back that the reference shows so */
        expect_text(t, id, json_string_value(decoded), json_string_length(decoded), ids);
}

static struct llm_tokenizer *load_packed(const char *path, struct llm_err *e)
{
    char command[700];
    struct llm_buf text = {0};
    snprintf(command, sizeof command, "gzip -dc '%s'", path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (size_t got = 1; got;) {
        assert_int_equal(llm_buf_reserve(&text, text.n + (1 << 20), e), 0);
        got = fread(text.p + text.n, 1, 1 << 20, f);
        text.n += got;
    }
    pclose(f);
    struct llm_tokenizer *t = llm_tokenizer_from_json(text.p, text.n, path, e);
    llm_buf_release(&text);
    return t;
}

static void golden(void **state)
{
    const struct pair *pair = *state;
    char path[600], line[1 << 20];
    struct llm_err e = {0};
    snprintf(path, sizeof path, "%s/data/golden/%s", shared(), pair->golden);
    FILE *f = fopen(path, "r");
    if (!f)
        skip();
    snprintf(path, sizeof path, "%s/data/tokenizers/%s", shared(), pair->tokenizer);
    struct llm_tokenizer *t = strstr(path, ".gz") ? load_packed(path, &e) : llm_tokenizer_load(path, NULL, &e);
    if (!t)
        fail_msg("%s", e.text);
    struct llm_encoder *plain = llm_encoder_create(t, 0, &e), *special = llm_encoder_create(t, LLM_ENCODE_SPECIAL, &e);
    assert_true(plain && special);
    int rows = 0;
    while (fgets(line, sizeof line, f)) {
        json_t *row = json_loadb(line, strlen(line), JSON_ALLOW_NUL, NULL);
        assert_non_null(row);
        check_row(t, plain, special, pair->golden, row);
        json_decref(row);
        rows++;
    }
    assert_true(rows > 180);
    fclose(f);
    llm_encoder_destroy(plain);
    llm_encoder_destroy(special);
    llm_tokenizer_destroy(t);
}

static void one_identity(void **state)
{
    /* the same tokenizer in different files; different tokenizers */
    static const struct { const char *a, *b; bool same; } cases[] = {
        {"gpt2/tokenizer.json", "tiktoken/r50k_base.tiktoken", true}, {"gpt2/tokenizer.json", "gpt2/encoder.json", true},
        {"gpt2/tokenizer.json", "tiktoken/p50k_base.tiktoken", false}, {"gpt4o-hf/tokenizer.json", "tiktoken/o200k_base.tiktoken", true},
        {"mistral-v1-hf/tokenizer.json", "mistral-spm/tokenizer.model.v1", true},
        {"llama2/tokenizer.model", "mistral-spm/tokenizer.model.v1", false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char a[600], b[600];
        struct llm_err e = {0};
        snprintf(a, sizeof a, "%s/data/tokenizers/%s", shared(), cases[i].a);
        snprintf(b, sizeof b, "%s/data/tokenizers/%s", shared(), cases[i].b);
        if (access(a, R_OK) != 0)
            skip();
        struct llm_tokenizer *ta = llm_tokenizer_load(a, NULL, &e), *tb = llm_tokenizer_load(b, NULL, &e);
        assert_true(ta && tb);
        assert_int_equal(strlen(llm_tokenizer_id(ta)), 64);
        bool same = strcmp(llm_tokenizer_id(ta), llm_tokenizer_id(tb)) == 0;
        if (same != cases[i].same)
            fail_msg("%s and %s: identities %s", cases[i].a, cases[i].b, same ? "agree" : "differ");
        llm_tokenizer_destroy(ta);
        llm_tokenizer_destroy(tb);
    }
}

int main(void)
{
    struct CMUnitTest tests[sizeof pairs / sizeof *pairs + 1];
    size_t n = 0;
    for (; n < sizeof pairs / sizeof *pairs; n++)
        tests[n] = (struct CMUnitTest){pairs[n].tokenizer, golden, NULL, NULL, (void *)(uintptr_t)&pairs[n]};
    tests[n++] = (struct CMUnitTest){"one identity for one tokenizer", one_identity, NULL, NULL, NULL};
    return _cmocka_run_group_tests("golden", tests, n, NULL, NULL);
}
