/* Tables in their three forms. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/table.h"

static const char *const columns[] = {"name", "whole", "part", NULL};

static void fill(struct llm_table *t)
{
    llm_table_init(t, columns);
    llm_table_text(t, "tab\there");
    llm_table_count(t, 6738415616.0);
    llm_table_number(t, 1234.5678, 6);
    llm_table_text(t, "ä\"");
    llm_table_count(t, 0);
    llm_table_number(t, (double)NAN, 3);
    llm_table_text(t, "");
    llm_table_count(t, 18446744073709551616.0);
    llm_table_number(t, 0.000123456, 3);
}

static void is_written(enum llm_table_form form, const char *expected)
{
    char path[] = "/tmp/llm-table.XXXXXX", found[1000] = "";
    struct llm_err e = {0};
    struct llm_table t;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    fill(&t);
    struct llm_output *o = llm_output_open(path, false, &e);
    assert_non_null(o);
    assert_int_equal(llm_table_write(&t, form, o, &e), 0);
    assert_int_equal(llm_output_commit(o, &e), 0);
    llm_table_release(&t);
    close(fd);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(found, 1, sizeof found - 1, f);
    found[n] = 0;
    fclose(f);
    unlink(path);
    assert_string_equal(found, expected);
}

static void tsv(void **state)
{
    (void)state;
    is_written(LLM_TABLE_TSV, "name\twhole\tpart\n"
                              "tab?here\t6738415616\t1234.57\n"
                              "ä\"\t0\t-\n"
                              "\t18446744073709551616\t0.000123\n");
}

static void aligned(void **state)
{
    (void)state;
    is_written(LLM_TABLE_ALIGNED, "name                     whole      part\n"
                                  "tab?here            6738415616   1234.57\n"
                                  "ä\"                           0         -\n"
                                  "          18446744073709551616  0.000123\n");
}

static void csv(void **state)
{
    (void)state;
    is_written(LLM_TABLE_CSV, "name,whole,part\r\n"
                              "tab\there,6738415616,1234.57\r\n"
                              "\"ä\"\"\",0,-\r\n"
                              ",18446744073709551616,0.000123\r\n");
}

static void markdown(void **state)
{
    (void)state;
    is_written(LLM_TABLE_MD, "| name | whole | part |\n|---|---:|---:|\n"
                             "| tab?here | 6738415616 | 1234.57 |\n"
                             "| ä\" | 0 | - |\n"
                             "|  | 18446744073709551616 | 0.000123 |\n");
}

static void show(struct llm_table *t, enum llm_table_form form, const char *expected)
{
    struct llm_buf b = {0};
    struct llm_err e = {0};
    assert_int_equal(llm_table_show(t, form, &b, &e), 0);
    assert_string_equal(b.p, expected);
    llm_buf_release(&b);
}

static void short_times_have_small_units(void **state)
{
    (void)state;
    static const char *const names[] = {"seconds", NULL};
    static const struct { double v; const char *shown; } rows[] = {
        {0.000000871, "871 ns"}, {0.0000123, "12.3 us"}, {0.00123, "1.23 ms"}, {0.9994, "999 ms"}, {0.9996, "0.9996 s"}, {2, "2.000 s"},
        {0, "0.000 s"}, {0.0099996, "10.0 ms"}, {1e-12, "0.00 ns"}, {-0.0123, "-12.3 ms"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_table t;
        char expected[64];
        llm_table_init(&t, names);
        t.no_heading = true;
        llm_table_number(&t, rows[i].v, 4);
        snprintf(expected, sizeof expected, "%s\n", rows[i].shown);
        show(&t, LLM_TABLE_ALIGNED, expected);
        llm_table_release(&t);
    }
}

static void record_with_units(void **state)
{
    (void)state;
    static const char *const names[] = {"model", "weight_bytes", "flops_per_token", "seconds", "kept", "shape", NULL};
    struct llm_table t;
    llm_table_init(&t, names);
    t.record = true;
    llm_table_text(&t, "a|b");
    llm_table_printed(&t, 3 << 20, LLM_NUMBER_INTEGER, 0);
    llm_table_count(&t, 2.5e9);
    llm_table_printed(&t, 1.5, LLM_NUMBER_FIXED, 3);
    llm_table_text(&t, NULL);
    llm_table_raw(&t, "2,3", "[2,3]");
    show(&t, LLM_TABLE_TSV, "key\tvalue\nmodel\ta|b\nweight_bytes\t3145728\nflops_per_token\t2500000000\nseconds\t1.500\nkept\t-\nshape\t2,3\n");
    show(&t, LLM_TABLE_ALIGNED, "key              value\nmodel            a|b\nweight_bytes     3.00 MiB\nflops_per_token  2.50 GFLOP\n"
                                "seconds          1.500 s\nkept             -\nshape            2,3\n");
    show(&t, LLM_TABLE_MD, "| key | value |\n|---|---|\n| model | a\\|b |\n| weight_bytes | 3145728 |\n| flops_per_token | 2500000000 |\n"
                           "| seconds | 1.500 |\n| kept | - |\n| shape | 2,3 |\n");
    show(&t, LLM_TABLE_CSV, "key,value\r\nmodel,a|b\r\nweight_bytes,3145728\r\nflops_per_token,2500000000\r\nseconds,1.500\r\nkept,-\r\n"
                            "shape,\"2,3\"\r\n");
    show(&t, LLM_TABLE_JSON, "{\"model\":\"a|b\",\"weight_bytes\":3145728,\"flops_per_token\":2.5e+09,\"seconds\":1.5,\"kept\":null,"
                             "\"shape\":[2,3]}\n");
    t.no_heading = t.as_shown = t.spaced = true;
    show(&t, LLM_TABLE_JSON, "{\"model\": \"a|b\", \"weight_bytes\": 3145728, \"flops_per_token\": 2500000000, \"seconds\": 1.500, "
                             "\"kept\": null, \"shape\": [2,3]}\n");
    show(&t, LLM_TABLE_AUTO, "model\ta|b\nweight_bytes\t3145728\nflops_per_token\t2500000000\nseconds\t1.500\nkept\t-\nshape\t2,3\n");
    llm_table_release(&t);
}

static void styles(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d", "e", NULL};
    struct llm_table t;
    llm_table_init(&t, names);
    llm_table_printed(&t, 1.0 / 3, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(&t, (double)NAN, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(&t, -INFINITY, LLM_NUMBER_GENERAL, 6);
    llm_table_printed(&t, 1e-7, LLM_NUMBER_SCIENTIFIC, 1);
    llm_table_printed(&t, INFINITY, LLM_NUMBER_FIXED, 2);
    t.as_shown = true;
    show(&t, LLM_TABLE_TSV, "a\tb\tc\td\te\n0.333333\t-\t-inf\t1.0e-07\tinf\n");
    show(&t, LLM_TABLE_JSON, "{\"a\":0.333333,\"b\":null,\"c\":null,\"d\":1.0e-07,\"e\":null}\n");
    llm_table_release(&t);
    llm_table_init(&t, names); /* no rows: the heading alone */
    show(&t, LLM_TABLE_TSV, "a\tb\tc\td\te\n");
    llm_table_release(&t);
}

static void json(void **state)
{
    (void)state;
    is_written(LLM_TABLE_JSON, "{\"name\":\"tab\\there\",\"whole\":6738415616,\"part\":1234.5678}\n"
                               "{\"name\":\"ä\\\"\",\"whole\":0,\"part\":null}\n"
                               "{\"name\":\"\",\"whole\":1.8446744073709552e+19,\"part\":0.000123456}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tsv), cmocka_unit_test(aligned), cmocka_unit_test(json), cmocka_unit_test(csv),
                                       cmocka_unit_test(markdown), cmocka_unit_test(short_times_have_small_units),
                                       cmocka_unit_test(record_with_units), cmocka_unit_test(styles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
