/* SHA-256 against FIPS 180-4's examples and digests of coreutils' sha256sum, however the bytes come in; and its two implementations against each
 * other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

static void digest(const void *p, size_t n, size_t step, char hex[65])
{
    struct llm_err e;
    struct llm_sha256 *h = llm_sha256_create(&e);
    assert_non_null(h);
    for (size_t at = 0; at < n; at += step) llm_sha256_update(h, (const char *)p + at, n - at < step ? n - at : step);
    llm_sha256_finish(h, hex);
}

static void known_digests(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"}};
    char hex[65], *many = malloc(1000000);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        for (size_t step = 1; step < 130; step++) {
            digest(texts[i][0], strlen(texts[i][0]), step, hex);
            assert_string_equal(hex, texts[i][1]);
        }
    }
    assert_non_null(many);
    memset(many, 'a', 1000000);
    for (size_t step = 1; step < 2000000; step = step * 3 + 1) {
        digest(many, 1000000, step, hex);
        assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
    free(many);
}

/* Blocks, padded by hand, through plain C: the same as what the processor at hand made of them. */
static void plain_is_the_same(void **state)
{
    (void)state;
    unsigned char p[64 * 9];
    char hex[65], plain[65];
    for (size_t n = 0; n < 500; n++) {
        uint32_t words[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
        size_t blocks = (n + 9 + 63) / 64;
        memset(p, 0, sizeof p);
        for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(i * 167 + n);
        digest(p, n, 1000, hex);
        p[n] = 0x80;
        p[64 * blocks - 1] = (unsigned char)(n * 8);
        p[64 * blocks - 2] = (unsigned char)(n * 8 >> 8);
        llm_sha256_blocks_plain(words, p, blocks);
        for (int i = 0; i < 64; i++) plain[i] = "0123456789abcdef"[words[i / 8] >> (28 - i % 8 * 4) & 15];
        plain[64] = 0;
        assert_string_equal(hex, plain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_digests), cmocka_unit_test(plain_is_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
