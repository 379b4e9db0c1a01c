/* RWKV's vocabulary files: what a line can hold, what comes back from other forms, and the longest token at every place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/rng.h"
#include "tests/fuzz/tokenizer.h"

static struct llm_tokenizer *read_text(const char *text)
{
    struct llm_err e = {0};
    struct llm_tokenizer *t = llm_tokenizer_from_rwkv((const unsigned char *)text, strlen(text), &e);
    if (!t)
        fail_msg("%s", e.text);
    return t;
}

static void lines(void **state)
{
    static const struct { const char *line, *bytes; size_t n; } cases[] = {
        {"'a' 1", "a", 1},           {"\"it's\" 4", "it's", 4},       {"'\\'\\\"' 2", "'\"", 2},    {"'\\\\' 1", "\\", 1},
        {"'\\n\\r\\t' 3", "\n\r\t", 3}, {"'\\x00' 1", "", 1},         {"'\\x80' 2", "\xC2\x80", 2}, {"b'\\x80' 1", "\x80", 1},
        {"'\\u00e9' 2", "\xC3\xA9", 2}, {"'\\U0001f600' 4", "\xF0\x9F\x98\x80", 4}, {"'\xC3\xA9' 2", "\xC3\xA9", 2}, {"' ' 1", " ", 1},
        {"'  1 ' 4", "  1 ", 4},     {"b'a\\xff' 2", "a\xFF", 2},     {"b\"'\" 1", "'", 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[100];
        size_t n;
        snprintf(text, sizeof text, "1 %s%s", cases[i].line, i & 1 ? "\r\n\n" : "");
        struct llm_tokenizer *t = read_text(text);
        const char *piece = llm_tokenizer_piece(t, 1, &n);
        if (n != cases[i].n || memcmp(piece, cases[i].bytes, n) != 0)
            fail_msg("%s: %zu other bytes", cases[i].line, n);
        assert_true(llm_tokenizer_is_special(t, 0));
        assert_int_equal(llm_tokenizer_eos(t), 0);
        assert_true(llm_is_rwkv((const unsigned char *)text, strlen(text)));
        fuzz_tokenizer(t);
    }
}

static void bad_lines(void **state)
{
    static const struct { const char *text, *says; } cases[] = {
        {"1 a 1\n", "line 1: expected an id"},       {"1 'a 1\n", "line 1: expected"},            {"1 'a' \n", "line 1: expected"},
        {"1 'a'1\n", "line 1: expected"},            {"1 'a' 1 \n", "line 1: expected"},          {"1 'a' x\n", "line 1: expected"},
        {"x 'a' 1\n", "line 1: expected"},           {"1\n", "line 1: expected"},                 {"1 '\\q' 1\n", "line 1: expected"},
        {"1 '\\x4' 1\n", "line 1: expected"},        {"1 '\\ud800' 3\n", "line 1: expected"},     {"1 '\\U00110000' 4\n", "line 1: expected"},
        {"1 b'\\u0041' 1\n", "line 1: expected"},    {"1 b'\xC3\xA9' 2\n", "line 1: expected"},   {"1 '\xFF' 1\n", "line 1: expected"},
        {"1 'a\\", "line 1: expected"},              {"1 'a' 1\n2 'bc' 3\n", "line 2: a text of 2 bytes, expected 3"},
        {"1 'a' 1\n1 'b' 1\n", "line 2: token id 1 is given twice"}, {"1 'a' 1\n4 'b' 1\n", "line 2: token id 4: expected 0 to 3"},
        {"1 'a' 1\n3 'b' 1\n", "token id 2 is missing"}, {"4294967296 'a' 1\n", "line 1: an id beyond 32 bits"},
        {"99999999999999999999999 'a' 1\n", "line 1: an id beyond 32 bits"}, {"4294967295 'a' 1\n", "line 1: token id 4294967295"},
        {"1 'a' 99999999999999999999\n", "line 1: expected"}, {"1 '' 0\n", "token 1: expected at least one byte"},
        {"1 'a' 1\n2 b'a' 1\n", "tokens 1 and 2 have the same bytes"}, {"", "the vocabulary is empty"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct llm_err e = {0};
        struct llm_tokenizer *t = llm_tokenizer_from_rwkv((const unsigned char *)cases[i].text, strlen(cases[i].text), &e);
        if (t || e.status != EX_DATAERR || !strstr(e.text, cases[i].says))
            fail_msg("'%s': expected '%s', found '%s'", cases[i].text, cases[i].says, t ? "a tokenizer" : e.text);
    }
}

/* Ids by looking at every token at every place. */
static size_t naive(const struct llm_tokenizer *t, const unsigned char *p, size_t n, int32_t *ids)
{
    size_t count = 0;
    for (size_t at = 0; at < n;) {
        size_t best = 0;
        for (int32_t id = 1; id < llm_tokenizer_vocab_size(t); id++) {
            size_t len;
            const char *piece = llm_tokenizer_piece(t, id, &len);
            if (len > best && len <= n - at && memcmp(piece, p + at, len) == 0) {
                best = len;
                ids[count] = id;
            }
        }
        count++;
        at += best;
    }
    return count;
}

/* Vocabularies of a's and b's, where most texts can be cut in many ways; text fed in pieces of every size. */
static void longest(void **state)
{
    enum { N = 200 };
    (void)state;
    for (uint32_t round = 0; round < 200; round++) {
        struct llm_rng r = llm_rng_at(7, 0, LLM_RNG_TEST, 1, round, 0);
        struct llm_err e = {0};
        struct llm_buf text = {0};
        uint32_t draw = 0;
        int32_t want[N], *ids = NULL;
        size_t n = 0, room = 0, step = 1 + llm_rng_below(&r, draw++, 9);
        unsigned char p[N], seen[8][256] = {{0}};
        assert_int_equal(llm_buf_printf(&text, &e, "1 'a' 1\n2 'b' 1\n"), 0);
        for (int id = 3; id < 20; id++) {
            uint32_t len = 2 + (uint32_t)llm_rng_below(&r, draw++, 6), bits = (uint32_t)llm_rng_below(&r, draw++, 1u << len);
            if (seen[len][bits]++) {
                id--;
                continue;
            }
            assert_int_equal(llm_buf_printf(&text, &e, "%d '", id), 0);
            for (uint32_t k = 0; k < len; k++)
                assert_int_equal(llm_buf_put(&text, bits >> k & 1 ? "a" : "b", 1, &e), 0);
            assert_int_equal(llm_buf_printf(&text, &e, "' %u\n", len), 0);
        }
        struct llm_tokenizer *t = read_text(text.p);
        for (size_t i = 0; i < N; i++)
            p[i] = llm_rng_below(&r, draw++, 2) ? 'a' : 'b';
        size_t n_want = naive(t, p, N, want);
        struct llm_encoder *en = llm_encoder_create(t, 0, &e);
        assert_non_null(en);
        for (size_t at = 0; at < N; at += step)
            assert_int_equal(llm_encoder_feed(en, (char *)p + at, N - at < step ? N - at : step, at + step >= N, &ids, &n, &room, &e), 0);
        assert_int_equal(n, n_want);
        assert_memory_equal(ids, want, n * sizeof *ids);
        llm_encoder_destroy(en);
        free(ids);
        llm_buf_release(&text);
        fuzz_tokenizer(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines), cmocka_unit_test(bad_lines), cmocka_unit_test(longest)};
    return cmocka_run_group_tests_name("rwkv", tests, NULL, NULL);
}
