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

#include "measure/table.h"

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

static void json(void **state)
{
    (void)state;
    is_written(LLM_TABLE_JSON, "{\"name\":\"tab\\there\",\"whole\":6738415616,\"part\":1234.5678}\n"
                               "{\"name\":\"ä\\\"\",\"whole\":0,\"part\":null}\n"
                               "{\"name\":\"\",\"whole\":1.8446744073709552e+19,\"part\":0.000123456}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tsv), cmocka_unit_test(aligned), cmocka_unit_test(json)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
