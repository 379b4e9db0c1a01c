/* Constraints: which texts a language has, byte by byte and token by token; masks against the answers for single tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "infer/constrain/regex.h"
#include "tests/unit/infer/byte_vocab.h"

/* 1: the text belongs to the language; 0: it may be continued to one that does; -1: it may not. */
static int read_bytes(struct llm_matcher m, const char *text, size_t n)
{
    struct llm_err e;
    for (size_t i = 0; i < n; i++)
        if (llm_matcher_take(&m, (unsigned char)text[i], &e) < 0) return -1;
    return llm_matcher_may_end(&m);
}

/* The mask allows what llm_matcher_allows says of each token, and the end where the text is complete. */
static void check_mask(struct llm_matcher m)
{
    float logits[VOCAB + 3];
    struct llm_err e = {0};
    for (int i = 0; i < VOCAB + 3; i++) logits[i] = (float)i;
    if (llm_matcher_apply(&m, logits, VOCAB + 3, &e) < 0) fail_msg("%s", e.text);
    for (int i = 0; i < VOCAB + 3; i++) {
        if ((logits[i] == (float)i) != llm_matcher_allows(&m, i)) fail_msg("token %d: %g", i, (double)logits[i]);
        assert_true(logits[i] == (float)i || logits[i] == -INFINITY);
    }
    assert_int_equal(logits[END] == END, llm_matcher_may_end(&m));
}

/* Reads a text of the language by its bytes and by every token that fits, checking the mask at each place. */
static void check_masks(struct llm_matcher m, const char *text)
{
    struct llm_err e;
    for (size_t i = 0, n = strlen(text);; i++) {
        if (!llm_matcher_must_end(&m)) check_mask(m);
        for (int k = 0; k < N_TEXTS; k++)
            if (strncmp(text + i, texts[k], strlen(texts[k])) == 0) assert_true(llm_matcher_allows(&m, FIRST + k));
        if (i == n) break;
        if (llm_matcher_take(&m, (unsigned char)text[i], &e) < 0) fail_msg("%s: byte %zu: %s", text, i, e.text);
    }
}

static const struct { enum llm_constraint_kind kind; const char *language, *yes[6], *no[6]; } languages[] = {
    {LLM_CONSTRAIN_REGEX, "[0-9]{2,3}|x+?y*", {"12", "123", "x", "xxyy"}, {"1234", "y", "x1"}},
    {LLM_CONSTRAIN_REGEX, "^(é|日本)+\\.$", {"é.", "日本é."}, {"日.", ".", "é.."}},
    {LLM_CONSTRAIN_REGEX, "[^a-y\\d]{2}", {"zz", "日本", "é日"}, {"az", "1z", "zzz", "\x80"}},
    {LLM_CONSTRAIN_REGEX, "(?!ab)[a-c]*", {"", "a", "ba", "acab"}, {"ab", "abc"}},
    {LLM_CONSTRAIN_REGEX, "(?=.*b)[a-c]{3}", {"aab", "bcc"}, {"aac", "accb"}},
    {LLM_CONSTRAIN_REGEX, "^(?!(foo|bar)$|x)[a-z]+$", {"foob", "ba", "a"}, {"foo", "bar", "xa"}}, /* $ is the end of the text, in a lookahead, too */
    {LLM_CONSTRAIN_REGEX, "(?=(?:[ab]c)*(b$)?.?$)[a-c]{3}", {"acb", "acc", "bcb"}, {"abc", "cba"}},
    {LLM_CONSTRAIN_REGEX, "(ab)?^c|(^a|b)+", {"c", "a", "ab", "bb", "abb"}, {"abc", "aa", "ba"}}, /* ^ behind what may be empty, and repeated */
    {LLM_CONSTRAIN_REGEX, "(?!^a)(?=^b|..c)[abc]*", {"b", "ba", "cac"}, {"a", "ab", "caa"}},
    {LLM_CONSTRAIN_REGEX, "^^(?:a$|x(?:^|y)(?:z|w$){1,2}|$)v?$$", {"a", "xyz", "xyzzv", "xyzw", ""}, {"av", "xzz", "xywv", "xywz", "v"}},
    {LLM_CONSTRAIN_REGEX, "\\p{Lu}\\x41\\u00e9\\-[\\]a-]", {"ÉAé-]", "ZAé--"}, {"zAé-a", "ÉAé-b"}},
    {LLM_CONSTRAIN_REGEX, "\\p{Letter}\\p{gc=Nd}\\P{Uppercase_Letter}[\\p{General_Category=Symbol}_]", {"é1a+", "A٣é_"}, {"11a+", "é1A+", "éaa+"}},
    {LLM_CONSTRAIN_REGEX, "a{,2}b{2,}c{3}", {"bbccc", "aabbbccc"}, {"aaabbccc", "abccc", "bbcccc"}},
    {LLM_CONSTRAIN_REGEX, "((ab?){0,2}){2,3}", {"", "abaabaab", "aaaaaa"}, {"aaaaaaa", "abb"}},
    {LLM_CONSTRAIN_REGEX, "((a{2}){0,3}b){0,2}", {"", "aabb", "aaaab"}, {"ab", "aaabb", "bbb"}}, /* not one repetition */
    {LLM_CONSTRAIN_REGEX, "((a{2,3}){1,2}){2}", {"aaaa", "aaaaaaa", "aaaaaaaaaaaa"}, {"aaa", "aaaaaaaaaaaaa"}},
    {LLM_CONSTRAIN_REGEX, "\"[^\"]*\"", {"\"\"", "\"a the 日本\""}, {"\"a\"b", "a"}},
    {LLM_CONSTRAIN_GRAMMAR, "root ::= \"a\" root \"b\" | \"\"", {"", "ab", "aaabbb"}, {"aabbb", "b", "ba"}},
    {LLM_CONSTRAIN_GRAMMAR, "root ::= s # all\ns ::= \"a\" s \"b\" | \"a\" s \"c\" |\n  \"d\"", {"d", "aadcb", "aaaadbcbc"}, {"aadb1", "ada"}},
    {LLM_CONSTRAIN_GRAMMAR, "root ::= list\nlist ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= list | [0-9]+ | str\n"
     "str ::= \"\\\"\" [^\"\\\\]* \"\\\"\"",
     {"[]", "[[1,22],[]]", "[\"a the\",[\"é\"]]"}, {"[", "[1,]", "[]]", "[\"\\\"]"}},
    {LLM_CONSTRAIN_GRAMMAR, "root ::= .{2} [\\x41-\\x43] \"\\u00e9\\n\"?", {"日本A", "  Cé\n"}, {"日A", "日本D", "  Cé"}},
    {LLM_CONSTRAIN_GRAMMAR, "start: sum\n// left recursion\n?sum: product\n  | sum \"+\" product -> add\n  | sum \"-\" product\n"
     "product.2: atom\n | product \"*\" atom\n"
     "atom: INT | \"(\" sum \")\"\n%import common.INT\n%ignore \" \"\n", {"1", "12+3*(4-5)", " 1 + ( 2*3 ) "}, {"1 2", "1+", "+1", "(1", ")"}},
    {LLM_CONSTRAIN_GRAMMAR, "start: (A | \"the\"i)~2..3 _b? # ends\nA.2: \"a\"..\"c\"\n_b: \"-\" [X]\nX: /[x-z]{2}/ | A \"!\"\n",
     {"aa", "tHeTHEc-", "ca-yz", "abb-c!"}, {"a", "aaaa", "ab-x", "d"}},
    {LLM_CONSTRAIN_GRAMMAR, "%import common (ESCAPED_STRING, SIGNED_NUMBER, WS)\nstart: v\n"
     "?v: ESCAPED_STRING | SIGNED_NUMBER | \"[\" [v (\",\" v)*] \"]\"\n%ignore WS",
     {"[1, -2.5e3,\n\"a\\\"\", []]", "7", "[ ]", ".5"}, {"[1,]", "\"a", "1e", "\"\n\""}},
    {LLM_CONSTRAIN_GRAMMAR, "%llguidance {}\n!start: NAME{2} \"/\"\n%import common.CNAME -> NAME\n%import common.C_COMMENT\n%ignore C_COMMENT\n",
     {"ab/", "a/* * */b/", "x_1/"}, {"a/", "a/*/b/", "1a/"}},
    {LLM_CONSTRAIN_GRAMMAR, "root ::= \"a\" root? \"b\"* | \"c\" (root | x){2}\nx ::= [d-f] x*", {"a", "aabb", "cdaab", "cdefacda"}, {"", "b", "cd"}},
    {LLM_CONSTRAIN_GRAMMAR, "start: \"É1Ω\"i (\"\\x00\" .. \"\\x1f\"){2} [\"\\f\"]", {"é1ω\n\t", "É1Ω\x1f\x01\f"}, {"e1ω\n\t", "É1Ω\n "}},
    {LLM_CONSTRAIN_GRAMMAR, "root ::= ws \"x\" ws ws \"y\"\nws ::= [ ]{0,2}", {"xy", "  x    y"}, {"   xy", "x     y"}},
};

static void test_texts(void **state)
{
    const struct fixture *f = *state;
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        struct llm_matcher m;
        struct llm_constraint *c = create(f, languages[i].kind, languages[i].language, &m);
        for (size_t k = 0; k < 6 && languages[i].yes[k]; k++) {
            if (read_bytes(m, languages[i].yes[k], strlen(languages[i].yes[k])) != 1) fail_msg("%s: %s", languages[i].language, languages[i].yes[k]);
            check_masks(m, languages[i].yes[k]);
        }
        for (size_t k = 0; k < 6 && languages[i].no[k]; k++) {
            if (read_bytes(m, languages[i].no[k], strlen(languages[i].no[k])) == 1) fail_msg("%s: not %s", languages[i].language, languages[i].no[k]);
        }
        llm_constraint_destroy(c);
    }
}

/* Where bounded repetitions can divide a text in many ways, the states of a text stay few. */
static void test_ambiguous_counts(void **state)
{
    static const struct { const char *regex; char byte; size_t end; } cases[] = {
        {"((a{0,1000}){0,1000}){0,1000}", 'a', 1}, {"(((ab?){0,1000}){0,1000}){2,1000}b", 'a', 0}, {"((a{0,1000}b?){0,1000}c?){0,1000}", 'a', 1},
        {"((.{0,1000}b?){0,1000}c?){0,1000}", 'b', 1}, {"(\\w{0,30}\\s?){0,100}", 'x', 1}, {"([a-z]{0,1000}x){0,1000}", 'x', 1},
        {"((a{2,1000}b?){2,1000}c?){2,1000}", 'a', 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct llm_err e = {0};
        struct llm_terms *t = llm_terms_create(20000, &e);
        assert_non_null(t);
        llm_term a = llm_regex_term(t, cases[i].regex, strlen(cases[i].regex), LLM_REGEX_WHOLE, &e);
        for (int k = 0; k < 300; k++) a = llm_term_after(t, a, (unsigned char)cases[i].byte);
        if (llm_terms_failed(t, &e) < 0) fail_msg("%s: %s", cases[i].regex, e.text);
        assert_int_not_equal(a, LLM_TERM_NOTHING);
        assert_int_equal(llm_term_nullable(t, a), cases[i].end);
        llm_terms_destroy(t);
    }
}

static void test_choices(void **state)
{
    const struct fixture *f = *state;
    struct llm_err e = {0};
    struct llm_matcher m = {.ends[0] = {ends, 1}};
    static const char choices[] = "red\0green\0greenish\0\0bl ue";
    struct llm_constraint *c = llm_constraint_create(LLM_CONSTRAIN_CHOICES, choices, sizeof choices - 1, f->tokens, &e);
    assert_non_null(c);
    llm_matcher_begin(&m, c);
    assert_int_equal(read_bytes(m, "green", 5), 1);
    assert_int_equal(read_bytes(m, "greeni", 6), 0);
    assert_int_equal(read_bytes(m, "bl ue", 5), 1);
    assert_int_equal(read_bytes(m, "", 0), 0);
    assert_int_equal(read_bytes(m, "rede", 4), -1);
    check_masks(m, "greenish");
    llm_constraint_destroy(c);
}

static void test_refusals(void **state)
{
    static const struct { enum llm_constraint_kind kind; const char *text, *why; } bad[] = {
        {LLM_CONSTRAIN_REGEX, "a(b", "character 4: expected ) at the end of a group"},
        {LLM_CONSTRAIN_REGEX, "a)", "character 2: expected no ) here"},
        {LLM_CONSTRAIN_REGEX, "(a)\\1", "references to groups are not regular"},
        {LLM_CONSTRAIN_REGEX, "a\\b", "word boundaries"},
        {LLM_CONSTRAIN_REGEX, "(x(?=a))b", "lookahead within a group"},
        {LLM_CONSTRAIN_REGEX, "(?<=a)b", "lookbehind"},
        {LLM_CONSTRAIN_REGEX, "[b-a]", "expected a range that ascends"},
        {LLM_CONSTRAIN_REGEX, "a+?+?+?+?+?+?+?+?+?", "at most 8 repetitions after one another"},
        {LLM_CONSTRAIN_REGEX, "\\Qa.b\\E", "character 3: this escape is not supported"},
        {LLM_CONSTRAIN_REGEX, "[\\012]", "octal"},
        {LLM_CONSTRAIN_REGEX, "x(^a)|b$c", "no text satisfies it"},
        {LLM_CONSTRAIN_REGEX, "(?=a)b", "no text satisfies it"},
        {LLM_CONSTRAIN_CHOICES, "", "expected choices"},
        {LLM_CONSTRAIN_GRAMMAR, "a ::= \"x\"", "expected a rule 'root'"},
        {LLM_CONSTRAIN_GRAMMAR, "root ::= a\n\na ::= b \"x\" | c\nb ::= \"\"? a\nc ::= \"d\"", "left recursion"},
        {LLM_CONSTRAIN_GRAMMAR, "root ::= \"x\" root", "line 1: no text satisfies rule 'root'"},
        {LLM_CONSTRAIN_GRAMMAR, "root ::= x", "line 1: rule 'x' is not defined"},
        {LLM_CONSTRAIN_GRAMMAR, "root ::= \"x\"\n\nroot ::= \"y\"", "line 3: rule 'root' is defined twice"},
        {LLM_CONSTRAIN_GRAMMAR, "root ::= \"x", "line 1: expected \" at the end"},
        {LLM_CONSTRAIN_GRAMMAR, "root ::= <think>", "tokens within a grammar"},
        {LLM_CONSTRAIN_GRAMMAR, "a: \"x\"", "expected a rule 'start'"},
        {LLM_CONSTRAIN_GRAMMAR, "start: a\na: b \"x\" | \"y\"\nb: a", "left recursion"},
        {LLM_CONSTRAIN_GRAMMAR, "start: A\nA: \"x\" A | \"y\"", "line 2: terminal 'A' contains itself"},
        {LLM_CONSTRAIN_GRAMMAR, "start: A\nA: b\nb: \"y\"", "line 2: a terminal consists of"},
        {LLM_CONSTRAIN_GRAMMAR, "start: /a/i", "line 1: flag i of a regular expression is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "start: /a(?<=b)/", "line 1: /a(?<=b)/: "},
        {LLM_CONSTRAIN_GRAMMAR, "start: /a(?=b)/ \"b\"", "line 1: /a(?=b)/: character 5: lookahead is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "start: /(?!a)../", "lookahead is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "start: /a", "line 1: expected / at the end"},
        {LLM_CONSTRAIN_GRAMMAR, "start: \"a\"\n%declare X", "line 2: %declare is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "%import python.NAME\nstart: NAME", "line 1: %import python.NAME is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "%import common.INDENT\nstart: INDENT", "line 1: INDENT is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "start: %json {}", "line 1: %json is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "start: <|eot|>", "line 1: a special token (<…>) is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "start: a{b}\na{x}: x", "line 1: a template (name{…}) is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "start[lazy]: /a*/", "line 1: an attribute of a rule (name[…]) is not supported"},
        {LLM_CONSTRAIN_GRAMMAR, "start: \"a\"~3..2", "expected repetitions from N to M"},
        {LLM_CONSTRAIN_GRAMMAR, "start: \"ab\"..\"c\"", "expected a range"},
        {LLM_CONSTRAIN_GRAMMAR, "start: \"a\"..\"cd\"", "expected a range"},
        {LLM_CONSTRAIN_GRAMMAR, "start: \"a\"i..\"c\"", "a range with i"},
        {LLM_CONSTRAIN_GRAMMAR, "start: \"a\"+++++++++", "at most 8 repetitions after one another"},
        {LLM_CONSTRAIN_GRAMMAR, "root ::= \"a\"+++++++++", "at most 8 repetitions after one another"},
    };
    const struct fixture *f = *state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct llm_err e = {0};
        assert_null(llm_constraint_create(bad[i].kind, bad[i].text, strlen(bad[i].text), f->tokens, &e));
        if (e.status != EX_DATAERR || !strstr(e.text, bad[i].why)) fail_msg("%s: %d %s", bad[i].text, e.status, e.text);
    }
}

/* What must follow is guessed up to the first choice, by tokens that may follow one another. */
static void test_guesses(void **state)
{
    static const struct { const char *pattern, *before, *forced; } v[] = {
        {"the cat(s|es)?", "", "the cat"}, {"the cat(s|es)?", "the", " cat"}, {"(a|b)the dog", "a", "the dog"}, {"[ab]c", "", ""}, {"abc?", "ab", ""},
        {"é日", "\xc3", "\xa9\xe6\x97\xa5"}};
    const struct fixture *f = *state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct llm_err e = {0};
        int32_t ids[32];
        char text[64] = "";
        struct llm_constraint *c = llm_constraint_create(LLM_CONSTRAIN_REGEX, v[i].pattern, strlen(v[i].pattern), f->tokens, &e);
        struct llm_matcher m = {0};
        assert_non_null(c);
        llm_matcher_begin(&m, c);
        assert_int_equal(llm_matcher_take_text(&m, v[i].before, strlen(v[i].before), &e), 0);
        assert_int_equal(llm_matcher_take_text(&m, "\1", 1, &e), 1);
        int64_t n = llm_matcher_guess(&m, ids, 32);
        assert_true(llm_matcher_guess(&m, ids, 1) == (n > 0));
        for (int64_t k = 0; k < n; k++) {
            size_t length = 0;
            const char *piece = llm_tokenizer_piece(f->tokens->tokenizer, ids[k], &length);
            strncat(text, piece, length);
            assert_int_equal(llm_matcher_take(&m, ids[k], &e), 0);
        }
        assert_string_equal(text, v[i].forced);
        llm_constraint_destroy(c);
    }
}

/* Neither depth nor length of a text changes what is allowed, and both cost what they must. */
static void test_long_texts(void **state)
{
    const struct fixture *f = *state;
    struct llm_matcher m, copy;
    struct llm_err e;
    struct llm_constraint *c = create(f, LLM_CONSTRAIN_GRAMMAR, "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"", &m);
    for (int i = 0; i < 3000; i++) assert_int_equal(llm_matcher_take(&m, 'a', &e), 0);
    copy = m;
    assert_int_equal(llm_matcher_take(&m, 'd', &e), 0);
    for (int i = 0; i < 3000; i++) assert_int_equal(llm_matcher_take(&m, i % 3 ? 'b' : 'c', &e), 0);
    assert_true(llm_matcher_must_end(&m));
    check_mask(copy);
    llm_constraint_destroy(c);
    c = create(f, LLM_CONSTRAIN_REGEX, "[a-z ]{0,100000}!", &m);
    for (int i = 0; i < 50000; i++) assert_int_equal(llm_matcher_take(&m, 'a', &e), 0);
    check_mask(m);
    llm_constraint_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_ambiguous_counts),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_guesses), cmocka_unit_test(test_long_texts),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
