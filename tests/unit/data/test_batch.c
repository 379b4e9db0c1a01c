/* Rows: targets, positions and documents, by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "data/batch.h"

enum { LENGTH = 6 };

static struct llm_rows make(void)
{
    struct llm_rows r;
    struct llm_err e;
    assert_int_equal(llm_rows_init(&r, 2, LENGTH, &e), 0);
    return r;
}

static void expect(const int32_t *got, const int32_t *want)
{
    for (int i = 0; i < LENGTH; i++) assert_int_equal(got[i], want[i]);
}

static const int32_t ids[] = {10, 11, 12, 13, 14, 15, 16};
static const uint8_t all[] = {1, 1, 1, 1, 1, 1, 1};

static void test_one_document(void **state)
{
    (void)state;
    struct llm_rows r = make();
    llm_rows_put(&r, 0, ids, all, 7, NULL, 0, 0, false);
    expect(r.ids, ids);
    expect(r.targets, ids + 1);
    expect(r.positions, (int32_t[]){0, 1, 2, 3, 4, 5});
    struct llm_rows part = llm_rows_part(&r, 0, 1);
    assert_int_equal(part.counted, 6);
    assert_false(part.documents);
    llm_rows_release(&r);
}

/* Documents end behind tokens 2 and 3 of the window, which begins at 100 of the corpus; another ended before it. */
static void test_documents(void **state)
{
    (void)state;
    struct llm_rows r = make();
    const uint64_t ends[] = {90, 103, 104, 120};
    llm_rows_put(&r, 1, ids, all, 7, ends, 4, 100, false);
    expect(r.targets + LENGTH, (int32_t[]){11, 12, -1, -1, 15, 16});
    expect(r.positions + LENGTH, (int32_t[]){0, 1, 2, 0, 0, 1});
    expect(r.doc_start + LENGTH, (int32_t[]){0, 0, 0, 3, 4, 4});
    struct llm_rows part = llm_rows_part(&r, 1, 1);
    assert_int_equal(part.counted, 4);
    assert_true(part.documents);
    llm_rows_put(&r, 1, ids, all, 7, ends, 4, 100, true);
    expect(r.targets + LENGTH, ids + 1);
    expect(r.positions + LENGTH, (int32_t[]){0, 1, 2, 3, 4, 5});
    expect(r.doc_start + LENGTH, (int32_t[]){0, 0, 0, 0, 0, 0});
    llm_rows_release(&r);
}

/* A mask is of what is predicted; a window cut short is padded with what does not count. */
static void test_mask_and_padding(void **state)
{
    (void)state;
    struct llm_rows r = make();
    const uint8_t mask[] = {1, 0, 1, 1, 0, 1, 1};
    llm_rows_put(&r, 0, ids, mask, 7, NULL, 0, 0, false);
    expect(r.targets, (int32_t[]){-1, 12, 13, -1, 15, 16});
    llm_rows_put(&r, 0, ids, all, 3, NULL, 0, 0, false);
    expect(r.ids, (int32_t[]){10, 11, 12, 0, 0, 0});
    expect(r.targets, (int32_t[]){11, 12, -1, -1, -1, -1});
    llm_rows_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_document), cmocka_unit_test(test_documents),
                                       cmocka_unit_test(test_mask_and_padding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
