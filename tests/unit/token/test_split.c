/* The hand-written splitters are the patterns they stand for: PCRE2 on the same patterns, over random text of every kind of character, fed
 * whole and cut at every place. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/detect.h"
#include "cpu/kernels.h"
#include "token/split/split.h"
#include "token/unicode.h"

/* What decides: contractions in both cases, long s, marks, other kinds of letter, number and space, new lines, slashes. */
static const uint32_t telling[] = {'\'', 's', 'S', 't', 'T', 'r', 'R', 'e', 'E', 'v', 'V', 'm', 'M', 'l', 'L', 'd', 'D', 0x17F, ' ', ' ', ' ', '\n',
                                   '\r', '\t', '/', '1', '2', 'a', 'Z', 0x301, 0x20DD, 0x903, 0x2B0, 0x1C5, 0x4E2D, 0xA0, 0x85, 0x3000, 0x2028,
                                   0x180E, 0x200B, 0x660, 0x2160, 0xBD, '!', '.', '_', 0x1F600, 0x10400, 0x10428, 0, 0x212A};

static uint32_t draws; /* a test draws the same numbers every time */

static uint32_t draw(uint32_t below)
{
    struct llm_rng r = llm_rng_at(7, 0, LLM_RNG_TEST, 0, 0, 0);
    return (uint32_t)llm_rng_below(&r, draws++, below);
}

static struct llm_regex *letter, *number, *space, *upper, *lower;

static bool is(struct llm_regex *r, const unsigned char *p, size_t n)
{
    struct llm_regex_state *m = llm_regex_state_create(r, NULL);
    long got = llm_regex_next(m, p, 0, n + 1, true, NULL);
    llm_regex_state_destroy(m);
    return got == (long)n; /* else the full stop behind it is in the piece too */
}

/* Do PCRE2's Unicode tables and ours put this character into the same classes? Their versions may differ. */
static bool same_classes(uint32_t cp)
{
    unsigned char p[5];
    int n = llm_utf8_put(cp, p);
    p[n] = '.';
    unsigned c = llm_char_class(cp);
    return is(letter, p, (size_t)n) == !!(c & LLM_CH_LETTER) && is(number, p, (size_t)n) == !!(c & LLM_CH_NUMBER)
           && is(space, p, (size_t)n) == !!(c & LLM_CH_SPACE) && is(upper, p, (size_t)n) == !!(c & LLM_CH_UPPER)
           && is(lower, p, (size_t)n) == !!(c & LLM_CH_LOWER);
}

static size_t random_text(unsigned char *out, size_t most, uint32_t pool[], size_t n_pool)
{
    size_t n = 0, want = 1 + draw((uint32_t)most);
    while (n + 4 < want) {
        uint32_t kind = draw(8), cp = kind ? telling[draw(sizeof telling / sizeof *telling)] : pool[draw((uint32_t)n_pool)];
        n += (size_t)llm_utf8_put(cp, out + n);
        for (uint32_t again = draw(16) == 0 ? draw(4) : 0; again && n + 4 < want; again--)
            n += (size_t)llm_utf8_put(cp, out + n);
    }
    return n;
}

static uint32_t pool[4000];
static size_t n_pool;

static int fill_pool(void **state)
{
    (void)state;
    assert_int_equal(llm_kernels_init(NULL), 0);
    letter = llm_regex_create("\\p{L}", "pattern", NULL);
    number = llm_regex_create("\\p{N}", "pattern", NULL);
    space = llm_regex_create("\\s", "pattern", NULL);
    upper = llm_regex_create("[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]", "pattern", NULL);
    lower = llm_regex_create("[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]", "pattern", NULL);
    while (n_pool < sizeof pool / sizeof *pool) {
        uint32_t cp = draw(3) ? draw(0x3000) : draw(0x110000);
        if ((cp < 0xD800 || cp > 0xDFFF) && same_classes(cp))
            pool[n_pool++] = cp;
    }
    for (size_t i = 0; i < sizeof telling / sizeof *telling; i++)
        assert_true(same_classes(telling[i]));
    llm_regex_destroy(letter);
    llm_regex_destroy(number);
    llm_regex_destroy(space);
    llm_regex_destroy(upper);
    llm_regex_destroy(lower);
    return 0;
}

static void splitter_is_pattern(void **state)
{
    const struct llm_split_row *row = *state;
    for (size_t spelling = 0; spelling < 3 && row->patterns[spelling]; spelling++) {
        struct llm_err e = {0};
        struct llm_regex *r = llm_regex_create(row->patterns[spelling], "pattern", &e);
        if (!r)
            fail_msg("%s", e.text);
        struct llm_regex_state *m = llm_regex_state_create(r, &e);
        for (int round = 0; round < 6000; round++) {
            unsigned char text[64];
            size_t n = random_text(text, sizeof text - 4, pool, n_pool);
            for (size_t at = 0; at < n;) {
                size_t ours = row->next(text + at, text + n, true);
                long theirs = llm_regex_next(m, text, at, n, true, &e);
                if ((long)ours != theirs)
                    fail_msg("%s (spelling %zu), round %d: at byte %zu of %zu: %zu bytes, PCRE2 %ld", row->name, spelling, round, at, n, ours,
                             theirs);
                at += ours;
            }
        }
        llm_regex_state_destroy(m);
        llm_regex_destroy(r);
    }
}

/* A piece given while more may come is the piece of the whole text; PCRE2's too. */
static void cut_text_gives_no_other_piece(void **state)
{
    const struct llm_split_row *row = *state;
    struct llm_regex *r = llm_regex_create(row->patterns[0], "pattern", NULL);
    struct llm_regex_state *m = llm_regex_state_create(r, NULL);
    int early = 0;
    for (int round = 0; round < 3000; round++) {
        unsigned char text[64];
        size_t n = random_text(text, sizeof text - 4, pool, n_pool), whole = n ? row->next(text, text + n, true) : 0;
        for (size_t cut = 1; cut < n; cut++) {
            size_t ours = row->next(text, text + cut, false);
            long theirs = llm_regex_next(m, text, 0, cut, false, NULL);
            if ((ours && ours != whole) || (theirs && theirs != (long)whole))
                fail_msg("%s, round %d: cut at %zu: %zu and %ld bytes, expected %zu", row->name, round, cut, ours, theirs, whole);
            early += ours > 0;
        }
    }
    assert_true(early > 1000);
    llm_regex_state_destroy(m);
    llm_regex_destroy(r);
}

/* Every end that a window is certain of is one of single pieces, from whatever piece the window begins at; and most are found. */
static void windows_are_single_pieces(void **state)
{
    const struct llm_split_row *row = *state;
    int found = 0, pieces = 0;
    for (int round = 0; round < 8000; round++) {
        unsigned char text[192];
        size_t n = 0, want = 64 + draw(sizeof text - 64 - 4), kinds = 1 + draw(6);
        while (n < want) {
            uint32_t kind = draw((uint32_t)kinds), cp;
            cp = kind == 0 ? 'a' + draw(26) : kind == 1 ? ' ' : kind == 2 ? telling[draw(27)] : kind == 3 ? draw(128)
                 : kind == 4 ? 'A' + draw(26) : (uint32_t)"\n/ '."[draw(5)];
            if (draw(200) == 0)
                cp = telling[draw(sizeof telling / sizeof *telling)];
            n += (size_t)llm_utf8_put(cp, text + n);
        }
        for (size_t at = 0; at + 64 <= n;) {
            struct llm_byte_masks m;
            int seen = draw(4) ? 64 : (int)draw(65);
            llm_k.bytes.classify(&m, text + at);
            uint64_t ends = row->window(&m, text + at, seen), left = ends;
            assert_true(!(ends & 1) && (seen == 64 || ends >> seen == 0));
            for (size_t from = at; left; found++) {
                size_t len = row->next(text + from, text + n, true), to = at + (size_t)__builtin_ctzll(left);
                if (from + len != to)
                    fail_msg("%s, round %d: window of %d bytes at %zu: piece at %zu: %zu bytes, expected %zu: %.*s", row->name, round, seen, at, from,
                             to - from, len, (int)n, text);
                from = to;
                left &= left - 1;
            }
            for (size_t from = at, len; from < at + (size_t)seen; from += len, pieces++)
                len = row->next(text + from, text + n, true);
            at += row->next(text + at, text + n, true);
        }
    }
    assert_true(found > pieces / 2);
}

static void bytes_that_are_no_text_get_through(void **state)
{
    const struct llm_split_row *row = *state;
    for (int round = 0; round < 20000; round++) {
        unsigned char text[40];
        size_t n = 1 + draw(sizeof text - 1), at = 0;
        for (size_t i = 0; i < n; i++)
            text[i] = (unsigned char)(draw(2) ? draw(256) : telling[draw(40)]);
        while (at < n) {
            size_t len = row->next(text + at, text + n, true);
            assert_true(len > 0 && len <= n - at);
            at += len;
        }
    }
}

static void other_patterns(void **state)
{
    static const struct { const char *pattern, *text; size_t lengths[6]; } cases[] = {
        {"[0-9]+", "ab12c", {2, 2, 1}},                 /* text between matches is a piece */
        {"(?<=a)b", "abb", {1, 1, 1}},                  /* looking behind */
        {"\\s", "a\xE1\xA0\x8E" "b c", {5, 1, 1}},      /* U+180E is no white space */
        {"x*", "ab", {2}},                              /* a match of nothing is none */
        {"^a", "ab\na", {1, 2, 1}},                      /* lines, as Oniguruma has them */
        {"a$", "aa\na", {1, 1, 1, 1}},
        {"\\w+", "\xFF\xFF" "ab", {1, 1, 2}},           /* bytes that are no characters */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct llm_regex *r = llm_regex_create(cases[i].pattern, "pattern", NULL);
        struct llm_regex_state *m = llm_regex_state_create(r, NULL);
        size_t n = strlen(cases[i].text), k = 0;
        for (size_t at = 0; at < n; k++) {
            long len = llm_regex_next(m, (const unsigned char *)cases[i].text, at, n, true, NULL);
            assert_int_equal(len, cases[i].lengths[k]);
            at += (size_t)len;
        }
        assert_int_equal(cases[i].lengths[k], 0);
        llm_regex_state_destroy(m);
        llm_regex_destroy(r);
    }
}

static void bad_patterns(void **state)
{
    struct llm_err e = {0};
    (void)state;
    assert_null(llm_regex_create("(", "pattern", &e));
    assert_int_equal(e.status, EX_DATAERR);
    assert_null(llm_regex_create("", "pattern", &e));
    assert_int_equal(e.status, EX_DATAERR);
    /* one that explodes gives up by name instead of running for ever */
    struct llm_regex *r = llm_regex_create("(?:a+)+$", "pattern", &e);
    struct llm_regex_state *m = llm_regex_state_create(r, &e);
    unsigned char text[64];
    memset(text, 'a', sizeof text);
    text[63] = 'b';
    assert_int_equal(llm_regex_next(m, text, 0, sizeof text, true, &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    assert_non_null(strstr(e.text, "gave up"));
    llm_regex_state_destroy(m);
    llm_regex_destroy(r);
    /* one that calls itself without end is the empty match, or an error: it comes back */
    r = llm_regex_create("|(?0)|", "pattern", &e);
    m = llm_regex_state_create(r, &e);
    (void)llm_regex_next(m, (const unsigned char *)"}a", 0, 2, true, &e);
    llm_regex_state_destroy(m);
    llm_regex_destroy(r);
}

/* What \w means in the patterns of Hugging Face's tokenizers, outside of classes and within. */
static void test_words(void **state)
{
    static const uint32_t yes[] = {'a', '_', '7', 0xE9, 0x301, 0x903, 0x20DD, 0x203F, 0x2160, 0x24B6, 0x660, 0x4E2D, 0xFE0F, 0x1F130};
    static const uint32_t no[] = {'!', ' ', 0x2070, 0x2460, 0x200C, 0x200D, 0x2603, 0x1F600};
    static const char *const words[] = {"\\w", "[\\w]", "[]\\w]", "[[:alpha:]\\w]", "[\\]\\w-]"};
    static const char *const others[] = {"\\W+", "[^\\w]+", "[^]\\w]+", "[^[:alpha:]\\w]+", "[^\\]\\w-]+"};
    const size_t n_yes = sizeof yes / sizeof *yes, n_no = sizeof no / sizeof *no;
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct llm_err e = {0};
        struct llm_regex *word = llm_regex_create(words[i], "pattern", &e), *other = llm_regex_create(others[i], "pattern", &e);
        assert_non_null(word);
        assert_non_null(other);
        for (size_t k = 0; k < n_yes + n_no; k++) {
            const uint32_t cp = k < n_yes ? yes[k] : no[k - n_yes];
            unsigned char p[5];
            size_t n = (size_t)llm_utf8_put(cp, p);
            p[n] = '.'; /* no word, so that the others' piece has it too */
            if (is(word, p, n) != (k < n_yes)) fail_msg("%s: U+%04X", words[i], cp);
            if (is(other, p, n) != (k < n_yes)) fail_msg("%s: U+%04X", others[i], cp);
        }
        llm_regex_destroy(word);
        llm_regex_destroy(other);
    }
}

/* Expected: Hugging Face's tokenizers 0.23.3, Replace of the pattern, character by character. */
static void test_classes(void **state)
{
    static const struct { const char *pattern, *yes, *no; } rows[] = {
        {"\\w", "½²", "⁴"},
        {"[\\w]", "a", "½²"},
        {"[^\\w\\s]", "½²!", "a_ "},
        {"\\p{Han}", "中々", "、「a"},
        {"\\P{Han}", "、「a", "中々"},
        {"[\\p{^Han}]", "、", "中"},
        {"[^(\\s|[.,!?…。，、।۔،])]", "a[]中", "(|)., …।"}, /* BLOOM's */
        {"[\\p{L}\\p{M}&&[^\\p{Han}]]", "aカ\u0301", "中1"}, /* Kimi's */
        {"[a-z&&[^c-e]&&[^x]]", "af", "cdexA"},
        {"[^a-z&&[^c]]", "cA", "ab"},
        {"[a[^b-z]]", "a1", "bz"},
        {"[[ab][cd]e]", "abcde", "f["},
        {"[]a]", "]a", "b"},
        {"[(\\[)]", "([)", "\\]"},
        {"[[(]", "[(", ")"}, /* no class within that ends */
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_err e = {0};
        char pattern[100];
        snprintf(pattern, sizeof pattern, "%s\\x01", rows[i].pattern); /* a piece of two characters, or none */
        struct llm_regex *r = llm_regex_create(pattern, "pattern", &e);
        if (!r) fail_msg("%s: %s", rows[i].pattern, e.text);
        for (int k = 0; k < 2; k++) {
            unsigned char p[8] = "";
            uint32_t cp;
            const char *text = k ? rows[i].no : rows[i].yes;
            for (int len; *text && (len = llm_utf8_next((const unsigned char *)text, strlen(text), &cp)) > 0; text += len) {
                memcpy(p, text, (size_t)len);
                memcpy(p + len, "\x01\x02", 2);
                if (is(r, p, (size_t)len + 1) != !k) fail_msg("%s: U+%04X", rows[i].pattern, cp);
            }
        }
        llm_regex_destroy(r);
    }
}

int main(void)
{
    struct CMUnitTest tests[32];
    size_t n = 0;
    for (size_t i = 0; llm_split_rows[i]; i++) {
        void *row = (void *)(uintptr_t)llm_split_rows[i];
        tests[n++] = (struct CMUnitTest){llm_split_rows[i]->name, splitter_is_pattern, NULL, NULL, row};
        tests[n++] = (struct CMUnitTest){"… cut", cut_text_gives_no_other_piece, NULL, NULL, row};
        tests[n++] = (struct CMUnitTest){"… windows", windows_are_single_pieces, NULL, NULL, row};
        tests[n++] = (struct CMUnitTest){"… bytes", bytes_that_are_no_text_get_through, NULL, NULL, row};
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(other_patterns);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(bad_patterns);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_words);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_classes);
    return _cmocka_run_group_tests("split", tests, n, fill_pool, NULL);
}
