/* Tables of n-grams and ARPA files: the golden that formats/ngram.md describes and KenLM's text say the same; files that lack what others have; files
 * that are refused, where and why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "model/model.h"
#include "model/weights/ngram.h"
#include "tests/unit/near.h"

static struct llm_model *load(const char *path)
{
    struct llm_err e;
    struct llm_model *m = llm_model_load(path, &e);
    if (!m) fail_msg("%s", e.text);
    assert_non_null(m->ngram);
    return m;
}

static struct llm_model *read_text(const char *text, struct llm_err *e)
{
    struct llm_file *f = llm_file_from_memory(text, strlen(text), "x.arpa", e);
    assert_non_null(f);
    return llm_arpa_read(f, e);
}

static double log10_of(const struct llm_ngram *g, int n, int32_t word, int32_t newest, int32_t older)
{
    const int32_t history[2] = {newest, older};
    struct llm_ngram_state s;
    llm_ngram_find(g, history, n, &s);
    return (double)llm_ngram_log_prob(g, &s, word) / log(10);
}

static void test_goldens(void **state)
{
    (void)state;
    struct llm_model *tables = load("tests/golden/formats/ngram.safetensors"), *text = load("tests/golden/ngram/toy.arpa");
    const struct llm_ngram *a = tables->ngram, *b = text->ngram;
    /* a b </s> <s> by the ids that each has; </s> begins texts in the tables */
    const int32_t in_tables[] = {0, 1, 2, 2}, in_text[] = {3, 4, 2, 1};
    assert_int_equal(b->vocab_size, 5);
    assert_int_equal(text->config.bos_token_id, 1);
    assert_int_equal(text->config.eos_token_id, 2);
    for (int word = 0; word < 3; word++) {
        for (int newest = 0; newest < 4; newest++) {
            for (int older = 0; older < 4; older++) {
                if (newest == 2 || older == 2) continue; /* after the end there is nothing */
                near(log10_of(a, newest == 3 ? 1 : 2, in_tables[word], in_tables[newest], in_tables[older]),
                     log10_of(b, newest == 3 ? 1 : 2, in_text[word], in_text[newest], in_text[older]), 1e-7, 1e-6);
            }
        }
    }
    near(log10_of(a, 2, 1, 0, 0), -.20102891, 1e-7, 1e-6);
    near(log10_of(a, 0, 3, 0, 0), -.90309, 1e-7, 1e-6); /* what no token stands for */
    llm_model_destroy(tables);
    llm_model_destroy(text);
}

/* "c" has no <unk>; "b c a" is there without "c a"; "a b" has a backoff and nothing follows it; -99 is never. */
static const char gaps[] = "\n\\data\\\nngram 1=4\nngram 2=2\nngram 3=1\n\n\\1-grams:\n-99\t<s>\t-0.5\n-1\ta\t-0.25\n-0.5\tb\r\n-0.7\tc\t-1\n\n"
                           "\\2-grams:\n-0.1\ta b\t-0.3\n-0.2\t<s> a\n\n\\3-grams:\n-0.05\tb c a\n\n\\end\\\n";

static void test_gaps(void **state)
{
    struct llm_err e = {0};
    (void)state;
    struct llm_model *m = read_text(gaps, &e);
    if (!m) fail_msg("%s", e.text);
    const struct llm_ngram *g = m->ngram;
    assert_int_equal(g->vocab_size, 5); /* and <unk> */
    near(log10_of(g, 2, 1, 3, 2), -.05, 1e-7, 1e-6);        /* b c a */
    near(log10_of(g, 2, 2, 3, 2), -.5 - 1, 1e-7, 1e-6);     /* b c b: c's backoff, b c has none */
    near(log10_of(g, 2, 3, 2, 1), -.7 - .3, 1e-7, 1e-6);    /* a b c: of "a b"; b has none */
    near(log10_of(g, 2, 2, 1, 0), -.1, 1e-7, 1e-6);         /* <s> a b */
    near(log10_of(g, 1, 1, 0, -1), -.2, 1e-7, 1e-6);        /* <s> a */
    near(log10_of(g, 1, 3, 0, -1), -.7 - .5, 1e-7, 1e-6);   /* <s> c */
    near(log10_of(g, 0, 4, 0, 0), -100, 1e-7, 1e-6);        /* unknown */
    assert_true(isinf(log10_of(g, 0, 0, 0, 0)));
    assert_int_equal(llm_tokenizer_vocab_size(m->tokenizer), 5);
    llm_model_destroy(m);
}

static void refused(const char *text, const char *why)
{
    struct llm_err e = {0};
    struct llm_model *m = read_text(text, &e);
    assert_null(m);
    assert_int_equal(e.status, EX_DATAERR);
    if (!strstr(e.text, why)) fail_msg("expected \"%s\", found \"%s\"", why, e.text);
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "line 0: expected \\data\\, found 'the end'");
    refused("\\data\\\n", "expected \"ngram 1=COUNT\"");
    refused("\\data\\\nngram 2=1\n", "line 2: expected \"ngram N=COUNT\"");
    refused("\\data\\\nngram 1=-1\n", "line 2: expected");
    refused("\\data\\\nngram 1=1\n\\2-grams:\n", "line 3: expected \\1-grams:");
    refused("\\data\\\nngram 1=1\n\\1-grams:\n-1\ta\n", "expected \\end\\, found 'the end of the file'");
    refused("\\data\\\nngram 1=2\n\\1-grams:\n-1\ta\n\\end\\\n", "line 5: expected 2 n-grams of order 1 before it, found 1");
    refused("\\data\\\nngram 1=2\n\\1-grams:\n-1\ta\n-1\ta\n\\end\\\n", "line 5: the word 'a' is listed twice");
    refused("\\data\\\nngram 1=1\n\\1-grams:\nx\ta\n\\end\\\n", "line 4: expected a logarithm, found 'x'");
    refused("\\data\\\nngram 1=1\n\\1-grams:\nnan\ta\n\\end\\\n", "expected a logarithm");
    refused("\\data\\\nngram 1=1\n\\1-grams:\n-1\ta\t0\t0\n\\end\\\n", "line 4: expected the end of the line, found '0'");
    refused("\\data\\\nngram 1=1\nngram 2=1\n\\1-grams:\n-1\ta\n\\2-grams:\n-1\ta b\n\\end\\\n", "line 7: expected words of the unigrams, found 'b'");
    refused("\\data\\\nngram 1=1\nngram 2=1\n\\1-grams:\n-1\ta\n\\2-grams:\n-1\ta\n\\end\\\n", "line 7: expected more words");
    refused("\\data\\\nngram 1=1\nngram 2=2\n\\1-grams:\n-1\ta\n\\2-grams:\n-1\ta a\n-1\ta a\n\\end\\\n",
            "an n-gram of order 2 that ends with 'a' is listed twice");
    refused("\\data\\\nngram 1=1\n\\1-grams:\n-1\t\xff\n\\end\\\n", "word 0: expected UTF-8");
}

static int start(void **state)
{
    struct llm_err e;
    (void)state;
    return llm_pool_start(1, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens), cmocka_unit_test(test_gaps), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, start, NULL);
}
