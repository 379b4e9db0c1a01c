/* SHA-256 against FIPS 180-4's examples, however the bytes come in. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known_digests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
