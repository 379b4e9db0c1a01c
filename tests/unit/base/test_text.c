/* Buffers, errors, JSON text. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"

static void errors_gain_context(void **state)
{
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_fail(&e, EX_DATAERR, "byte %d", 7), -1);
    assert_int_equal(llm_in(&e, "%s", "model.llm"), -1);
    assert_string_equal(e.text, "model.llm: byte 7");
    assert_int_equal(e.status, 65);
    char longer[3000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    llm_in(&e, "%s", longer); /* the reason stays readable */
    assert_non_null(strstr(e.text, "model.llm: byte 7"));
}

static void buffers_grow(void **state)
{
    struct llm_buf b = {0};
    struct llm_err e = {0};
    (void)state;
    for (int i = 0; i < 1000; i++) assert_int_equal(llm_buf_printf(&b, &e, "%d,", i), 0);
    assert_int_equal(b.n, 3890);
    assert_string_equal(b.p + b.n - 4, "999,");
    assert_int_equal(llm_buf_put(&b, "x", SIZE_MAX - 10, &e), -1);
    assert_int_equal(e.status, EX_UNAVAILABLE);
    llm_buf_release(&b);
    assert_null(b.p);
}

static void arenas_are_stacks(void **state)
{
    struct llm_arena a;
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_arena_init(&a, 1 << 20, &e), 0);
    char *p = llm_arena_alloc(&a, 3), *q;
    size_t mark = llm_arena_mark(&a);
    q = llm_arena_alloc(&a, 100);
    assert_int_equal((uintptr_t)q % 64, 0);
    assert_int_equal(q - p, 64);
    llm_arena_pop(&a, mark);
    assert_ptr_equal(llm_arena_alloc(&a, 1), q);
    assert_null(llm_arena_alloc(&a, (size_t)1 << 40));
    assert_null(llm_arena_alloc(&a, SIZE_MAX));
    llm_arena_release(&a);
}

/* Under a limit of address space the range grows as it is used, stays one range, and says what there is when there is no more. */
static void arenas_grow_where_space_is_limited(void **state)
{
    enum { N = 3 };
    const size_t piece = (size_t)24 << 20;
    struct rlimit old, low;
    struct llm_arena a[N], copy;
    struct llm_err e = {0};
    (void)state;
    if (getenv("SANITIZER")) skip(); /* takes address space of its own */
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    low = old;
    low.rlim_cur = (rlim_t)2 << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    for (int i = 0; i < N; i++) assert_int_equal(llm_arena_init(&a[i], (size_t)1 << 36, &e), 0);
    copy = a[0];
    for (int k = 0; k < 8; k++) {
        for (int i = 0; i < N; i++) {
            char *p = llm_arena_alloc(&a[i], piece);
            assert_ptr_equal(p, a[i].base + (size_t)k * piece);
            memset(p, k + 1, piece);
        }
    }
    assert_ptr_equal(llm_arena_alloc(&copy, 9 * piece), a[0].base); /* copies share the memory */
    assert_int_equal(a[0].base[8 * piece - 1], 8);
    llm_arena_trim(&copy);
    assert_int_equal(a[0].base[7 * piece + piece / 2], 8);
    assert_null(llm_arena_alloc(&a[1], (size_t)1700 << 20));
    assert_true(a[1].limit >= 8 * piece && a[1].limit < (size_t)2 << 30);
    assert_int_equal(a[1].used, 8 * piece);
    for (int i = 0; i < N; i++) llm_arena_release(&a[i]);
    low.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    assert_int_equal(llm_arena_init(&a[0], (size_t)1 << 36, &e), -1);
    assert_non_null(strstr(e.text, "65536 MiB of address space"));
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
}

static void json_is_strict(void **state)
{
    static const char *const bad[] = {"", "{", "{\"a\":1,\"a\":2}", "1 2", "{\"a\":\"\xff\"}", "[1,]"};
    struct llm_err e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(llm_json_parse(bad[i], strlen(bad[i]), &e));
        assert_int_equal(e.status, EX_DATAERR);
    }
    static const char good[] = "{\"n\":5,\"r\":1.5,\"s\":\"a\\u0000b\",\"z\":null}";
    json_t *o = llm_json_parse(good, strlen(good), &e);
    assert_non_null(o);
    int64_t n = 0, z = 42;
    const char *s = NULL;
    assert_int_equal(llm_json_int(o, "n", 0, 10, &n, &e), 0);
    assert_int_equal(n, 5);
    assert_int_equal(llm_json_int(o, "n", 0, 4, &n, &e), -1);
    assert_int_equal(llm_json_int(o, "r", 0, 4, &n, &e), -1);
    assert_int_equal(llm_json_int(o, "z", 0, 4, &z, &e), 0);
    assert_int_equal(z, 42);
    assert_int_equal(llm_json_str(o, "s", &s, &e), -1);
    json_decref(o);
}

static void json_text(void **state)
{
    struct llm_buf b = {0};
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_json_quote(&b, "a\"\\\n\x01\xff\xc3\xa9\xed\xa0\x80", 11, &e), 0);
    assert_string_equal(b.p, "\"a\\\"\\\\\\n\\u0001\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    b.n = 0;
    assert_int_equal(llm_json_number(&b, 0.1, &e), 0);
    assert_string_equal(b.p, "0.1");
    b.n = 0;
    assert_int_equal(llm_json_number(&b, NAN, &e), 0);
    assert_string_equal(b.p, "null");
    llm_buf_release(&b);
}

static void hashes(void **state)
{
    struct llm_err e = {0};
    char hex[65];
    (void)state;
    struct llm_sha256 *h = llm_sha256_create(&e);
    llm_sha256_update(h, "ab", 2);
    llm_sha256_update(h, "c", 1);
    llm_sha256_finish(h, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); /* FIPS 180-2 */
    assert_true(llm_xxh64("", 0, 0) == 0xEF46DB3751D8E999); /* xxHash specification */
    struct llm_xxh *x = llm_xxh_create(&e);
    llm_xxh_update(x, "abc", 3);
    assert_true(llm_xxh_digest(x) == llm_xxh64("abc", 3, 0));
    llm_xxh_destroy(x);
}

/* The number that Python's text is read as; NaN: it is refused. */
static double python_number(const char *literal)
{
    char text[1200];
    struct llm_err e = {0};
    int n = snprintf(text, sizeof text, "{\"12345678901234567890\": %s}", literal);
    json_t *v = llm_json_parse_python(text, (size_t)n, &e), *x = json_object_get(v, "12345678901234567890");
    double d = json_is_number(x) ? json_number_value(x) : NAN;
    json_decref(v);
    return d;
}

static void python_writes_integers_of_any_size(void **state)
{
    static const struct { const char *text; double value; } cases[] = {
        {"1000000000000000019884624838656", 1e30}, {"-12345678901234567890123", -12345678901234567890123.}, {"99999999999999999999", 1e20},
        {"9223372036854775809", 9223372036854775809.}, {"18446744073709551615", 18446744073709551615.}, {"9223372036854775807", 0x1p63},
        {"9223372036854775808", 0x1p63},
        {"-9223372036854775808", -0x1p63}, {"0.12345678901234567890123", .12345678901234567890123}, {"1.5000000000000000000000000", 1.5},
        {"12345678901234567890123e-3", 12345678901234567890.123}, {"[]", NAN}, {"012345678901234567890123", NAN}, {"1e400", NAN},
        {"Infinity", 1e308}};
    char digits[1100];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double found = python_number(cases[i].text);
        bool same = isnan(cases[i].value) ? isnan(found) : fabs(found - cases[i].value) <= 1e-15 * fabs(cases[i].value);
        if (!same) fail_msg("%s: expected %.17g, found %.17g", cases[i].text, cases[i].value, found);
    }
    for (size_t n = 19; n < sizeof digits; n += 27) { /* what is beyond doubles is refused */
        memset(digits, '7', n);
        digits[n] = 0;
        double found = python_number(digits);
        assert_true(n > 308 ? isnan(found) : fabs(found / (7. / 9 * pow(10, (double)n)) - 1) < 1e-14);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_gain_context), cmocka_unit_test(buffers_grow), cmocka_unit_test(arenas_are_stacks),
                                       cmocka_unit_test(arenas_grow_where_space_is_limited),
                                       cmocka_unit_test(json_is_strict), cmocka_unit_test(json_text), cmocka_unit_test(hashes),
                                       cmocka_unit_test(python_writes_integers_of_any_size)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
