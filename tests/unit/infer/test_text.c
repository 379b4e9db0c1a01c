/* Text as it grows: whatever the tokens cut, what is shown is whole characters, and nothing that a stop string begins in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/rng.h"
#include "infer/text.h"
#include "token/unicode.h"

enum { MOST = 200 };

/* What has been shown, in one piece; each part is checked as it comes. */
struct shown { char bytes[2 * MOST]; size_t n; };

static void show(struct llm_text *t, bool last, struct shown *s, bool whole_characters)
{
    size_t n = llm_text_ready(t, last);
    assert_true(n <= t->bytes.n - t->shown);
    const unsigned char *p = (const unsigned char *)t->bytes.p + t->shown;
    for (size_t i = 0; whole_characters && i < n;) {
        uint32_t c;
        int length = llm_utf8_next(p + i, n - i, &c);
        assert_true(length > 0);
        i += (size_t)length;
    }
    if (n > 0) memcpy(s->bytes + s->n, p, n);
    s->n += n;
    t->shown += n;
}

/* `text` in pieces of 1 to 4 bytes by chance; what is shown must be `wanted`. */
static void stream(const char *text, size_t n, const char *const *stops, size_t n_stops, const char *wanted, size_t n_wanted, uint32_t seed,
                   bool whole_characters)
{
    struct llm_text t = {.stops = stops, .n_stops = n_stops};
    struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_TEST, 1, 0, 0);
    struct shown s = {.n = 0};
    struct llm_err e = {0};
    for (size_t at = 0, i = 0; at < n && !t.stopped; i++) {
        size_t piece = 1 + (size_t)llm_rng_below(&r, (uint32_t)i, 4);
        if (piece > n - at) piece = n - at;
        assert_int_equal(llm_text_put(&t, text + at, piece, &e), 0);
        at += piece;
        show(&t, false, &s, whole_characters);
    }
    show(&t, true, &s, false);
    assert_int_equal(s.n, n_wanted);
    assert_memory_equal(s.bytes, wanted, n_wanted);
    llm_text_release(&t);
}

static void test_characters_come_whole(void **state)
{
    static const char text[] = "na\xc3\xafve \xe2\x82\xac \xf0\x9f\x90\x88\xf0\x9f\x90\x88 \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\xcc\x81.";
    (void)state;
    for (uint32_t seed = 0; seed < 500; seed++) stream(text, sizeof text - 1, NULL, 0, text, sizeof text - 1, seed, true);
}

static void test_bytes_that_are_no_characters_come_through(void **state)
{
    static const char text[] = "a\xff" "b\xe2\x82" "c\xc3\xc3\xa9\xf0\x9f\x90 \x80\x80\0z\xf0\x9f\x90";
    (void)state;
    for (uint32_t seed = 0; seed < 500; seed++) stream(text, sizeof text - 1, NULL, 0, text, sizeof text - 1, seed, false);
    /* A byte that no character begins with is not waited for, nor is what it would have belonged to. */
    struct llm_text t = {0};
    struct llm_err e = {0};
    assert_int_equal(llm_text_put(&t, "\xff\x80\xc1", 3, &e), 0);
    assert_int_equal(llm_text_ready(&t, false), 3);
    assert_int_equal(llm_text_put(&t, "\xe2\x82", 2, &e), 0);
    assert_int_equal(llm_text_ready(&t, false), 3);
    assert_int_equal(llm_text_put(&t, "x", 1, &e), 0);
    assert_int_equal(llm_text_ready(&t, false), 6);
    llm_text_release(&t);
}

/* Random texts over few letters, so that beginnings of stop strings are frequent; the truth by searching the whole text. */
static void test_stops_end_at_the_earliest(void **state)
{
    static const char *const stops[] = {"abab", "bb", "abac", "cab\xc3\xa9", "caaaaaab"};
    (void)state;
    size_t stopped = 0;
    for (uint32_t seed = 0; seed < 3000; seed++) {
        struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_TEST, 2, 0, 0);
        size_t n_stops = 1 + (size_t)llm_rng_below(&r, 900, 5), first = 5 - n_stops, n = 0;
        char text[MOST];
        for (uint32_t i = 0; i < 30; i++) {
            uint64_t letter = llm_rng_below(&r, i, 13);
            const char *s = letter < 6 ? "a" : letter < 9 ? "b" : letter < 12 ? "c" : "\xc3\xa9";
            memcpy(text + n, s, strlen(s));
            n += strlen(s);
        }
        /* Pieces arrive one after the other: the match that is complete first ends the text, of those in one piece the earliest. With one byte a
         * piece that is the match that ends first; several bytes a piece may find an earlier beginning. Stops none of which lies in another agree. */
        size_t end = n;
        for (size_t k = first; k < 5; k++) {
            const char *at = memmem(text, n, stops[k], strlen(stops[k]));
            if (at && (size_t)(at - text) < end) end = (size_t)(at - text);
        }
        bool overlap = false; /* another match ends before the earliest does */
        for (size_t k = first; k < 5; k++) {
            const char *at = memmem(text, n, stops[k], strlen(stops[k]));
            overlap |= at && (size_t)(at - text) > end && (size_t)(at - text) < end + 8;
        }
        if (overlap) continue;
        stopped += end < n;
        for (uint32_t cut = 0; cut < 3; cut++) stream(text, n, stops + first, n_stops, text, end, seed * 3 + cut, true);
    }
    assert_true(stopped > 1000);
}

static void test_what_may_begin_a_stop_is_held_back(void **state)
{
    static const char *const stops[] = {"END"};
    struct llm_text t = {.stops = stops, .n_stops = 1};
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_text_put(&t, "the E", 5, &e), 0);
    assert_int_equal(llm_text_ready(&t, false), 4);
    assert_int_equal(llm_text_put(&t, "N", 1, &e), 0);
    assert_int_equal(llm_text_ready(&t, false), 4);
    assert_int_equal(llm_text_ready(&t, true), 6); /* nothing more: it was none */
    assert_int_equal(llm_text_put(&t, "d E", 3, &e), 0);
    assert_int_equal(llm_text_ready(&t, false), 8);
    t.shown = 8;
    assert_int_equal(llm_text_put(&t, "ND and more", 11, &e), 0);
    assert_true(t.stopped);
    assert_int_equal(t.bytes.n, 8);
    assert_int_equal(llm_text_ready(&t, true), 0);
    assert_int_equal(llm_text_put(&t, "more", 4, &e), 0); /* nothing is added behind it */
    assert_int_equal(t.bytes.n, 8);
    llm_text_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters_come_whole),
        cmocka_unit_test(test_bytes_that_are_no_characters_come_through),
        cmocka_unit_test(test_stops_end_at_the_earliest),
        cmocka_unit_test(test_what_may_begin_a_stop_is_held_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
