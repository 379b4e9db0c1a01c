/* Pages that are released: a weight reads as before, and nothing beside its file's mapping is touched, wherever the mapping lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/pages.h"
#include "cpu/form_memory.h"
#include "cpu/matmul_internal.h"
#include "cpu/pages.h"
#include "cpu/pool.h"

enum { PAGE = 4096, PAGES = 100, ROWS = 398 /* nearly all of the file */, K = 256, ALL = 1 << 21 };

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 7 + i / 4096 * 13);
}

/* ALL bytes of 0x5A of memory with a file of PAGES mapped into them at page `at`. */
static unsigned char *surrounded(size_t at)
{
    unsigned char *file = malloc(PAGES * PAGE);
    unsigned char *p = mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FILE *f = tmpfile();
    assert_non_null(file);
    assert_non_null(f);
    assert_ptr_not_equal(p, MAP_FAILED);
    for (size_t i = 0; i < PAGES * PAGE; i++) file[i] = byte_at(i);
    assert_int_equal(fwrite(file, 1, PAGES * PAGE, f), PAGES * PAGE);
    assert_int_equal(fflush(f), 0);
    memset(p, 0x5A, ALL);
    assert_ptr_equal(mmap(p + at * PAGE, PAGES * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fileno(f), 0), p + at * PAGE);
    fclose(f);
    free(file);
    return p;
}

static void all_is_as_before(const unsigned char *p, size_t at)
{
    for (size_t i = 0; i < ALL; i++) {
        bool in_file = i >= at * PAGE && i < (at + PAGES) * PAGE;
        if (p[i] != (in_file ? byte_at(i - at * PAGE) : 0x5A)) fail_msg("byte %zu of a file at page %zu", i, at);
    }
}

static size_t resident(const unsigned char *p, size_t pages)
{
    uint64_t entry;
    size_t n = 0;
    FILE *f = fopen("/proc/self/pagemap", "rb");
    if (!f) return 0;
    for (size_t i = 0; i < pages; i++) {
        if (fseek(f, (long)(((uintptr_t)p / PAGE + i) * sizeof entry), SEEK_SET) != 0 || fread(&entry, sizeof entry, 1, f) != 1) break;
        n += entry >> 63;
    }
    fclose(f);
    return n;
}

static void nothing_beside_the_file(void **state)
{
    static const int32_t few[] = {0, 150, ROWS - 1};
    int32_t many[40];
    (void)state;
    if (sysconf(_SC_PAGESIZE) != PAGE) skip();
    for (int32_t i = 0; i < 40; i++) many[i] = i * 7;
    for (size_t at = 0; at < 60; at += 7) {
        unsigned char *p = surrounded(at), *file = p + at * PAGE;
        for (size_t skip = 0; skip < 3; skip++) { /* the weight begins at the file's first byte, or within a page */
            struct llm_weight w = {.data = file + skip * 1000, .dtype = LLM_F32, .n = ROWS, .k = K, .map = (char *)file};
            w.map_end = w.map + PAGES * PAGE;
            all_is_as_before(p, at);
            llm_weight_release_pages(&w, 0, ROWS * K * sizeof(float));
            assert_int_equal(resident(file, (skip * 1000 + ROWS * K * sizeof(float)) / PAGE), 0);
            all_is_as_before(p, at);
            llm_weight_release_pages(&w, 5 * K * sizeof(float), 90 * K * sizeof(float));
            llm_weight_release_pages(&w, 200 * K * sizeof(float), (ROWS - 200) * K * sizeof(float));
            all_is_as_before(p, at);
            llm_weight_looked_up(&w, few, 3);
            all_is_as_before(p, at);
            llm_weight_looked_up(&w, many, 40);
            assert_int_equal(resident(file, (skip * 1000 + ROWS * K * sizeof(float)) / PAGE), 0);
            all_is_as_before(p, at);
            w.few_rows = 1; /* products read it where it lies: looking up takes nothing away */
            llm_weight_looked_up(&w, many, 40);
            if (resident(file, PAGES) > 0) assert_int_equal(resident(file, PAGES), PAGES);
        }
        munmap(p, ALL);
    }
    unsigned char *own = malloc(ALL); /* of no file */
    assert_non_null(own);
    memset(own, 0x5A, ALL);
    const struct llm_weight w = {.data = own, .dtype = LLM_F32, .n = 1024, .k = 512};
    llm_weight_release_pages(&w, 0, ALL);
    llm_weight_release_pages(&w, ALL / 4, ALL / 2);
    llm_weight_looked_up(&w, many, 40);
    for (size_t i = 0; i < ALL; i++) assert_int_equal(own[i], 0x5A);
    free(own);
}

/* A product of `rows` rows; the bits of `first` if there is one. Returns how many of the file's pages are resident then. */
static size_t pages_after(struct llm_weight *w, int64_t rows, const float *x, float *y, const float *first)
{
    struct llm_err e = {0};
    const struct llm_matmul a = {.m = rows, .x = x, .ldx = K, .y = y, .ldy = w->n, .compute = LLM_COMPUTE_BF16, .inference = true};
    assert_int_equal(llm_matmul(&a, w, &e), 0);
    if (first) assert_memory_equal(y, first, (size_t)(rows * w->n) * sizeof *y);
    return resident((const unsigned char *)w->map, PAGES);
}

/* The first product of a prompt releases a quantised weight's pages, the next ones leave them; products of many sequences pack the weight. */
static void products_keep_what_they_read_again(void **state)
{
    enum { PROMPT = 300, SEQUENCES = 64 };
    struct llm_err e = {0};
    (void)state;
    if (sysconf(_SC_PAGESIZE) != PAGE) skip();
    assert_int_equal(llm_pool_start(2, &e), 0);
    unsigned char *p = surrounded(7), *file = p + 7 * PAGE;
    const int64_t n = PAGES * PAGE / (K / 32 * 34);
    float *x = malloc(PROMPT * K * sizeof *x), *first = malloc((size_t)(PROMPT * n) * sizeof *first), *y = malloc((size_t)(PROMPT * n) * sizeof *y);
    assert_true(x && first && y);
    for (int i = 0; i < PROMPT * K; i++) x[i] = (float)(i % 97) - 48;
    for (int more = 0; more < 2; more++) { /* passes of a prompt before the sequences */
        struct llm_weight w = {.data = file, .dtype = LLM_Q8_0, .n = n, .k = K, .map = (char *)file, .map_end = (char *)file + PAGES * PAGE};
        const bool known = resident(file, PAGES) > 0;
        size_t there = pages_after(&w, PROMPT, x, first, NULL);
        if (known && there > PAGES - 10) fail_msg("%zu pages are resident after a first product", there);
        for (int i = 0; i < 2 * more; i++) there = pages_after(&w, PROMPT, x, y, first);
        if (more && known) assert_true(there > PAGES - 2);
        for (int i = 0; i < 2 - more; i++) {
            assert_int_equal(w.packed_bytes, 0);
            there = pages_after(&w, SEQUENCES, x, y, first);
        }
        assert_true(w.packed_bytes > 0);
        assert_int_equal(there, 0);
        pages_after(&w, PROMPT, x, y, first);
        llm_weight_release(&w);
        all_is_as_before(p, 7);
    }
    free(x);
    free(first);
    free(y);
    munmap(p, ALL);
    llm_pool_stop();
}

/* Small pieces share a chunk: trimming it keeps them, and later ones are whole too. */
static void forms_keep_their_memory(void **state)
{
    enum { N = 90 };
    unsigned char *p[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        size_t bytes = i == 50 ? (size_t)20 << 20 : 700001; /* a large one has a chunk of its own; together they fill more than one */
        p[i] = llm_form_memory_create(bytes);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        memset(p[i], i + 1, bytes);
        if (i % 20 == 3) llm_form_memory_trim();
    }
    llm_pages_release_program();
    for (int i = 0; i < N; i++) {
        size_t bytes = i == 50 ? (size_t)20 << 20 : 700001;
        for (size_t k = 0; k < bytes; k++)
            if (p[i][k] != i + 1) fail_msg("piece %d, byte %zu", i, k);
    }
    for (int i = 0; i < N; i++) llm_form_memory_destroy(p[i]);
    llm_form_memory_trim();
}

/* Only whole units within a range are released, and they read as zeros; to the end of a mapping all pages are. */
static void released_within(void **state)
{
    (void)state;
    if (sysconf(_SC_PAGESIZE) != PAGE) skip();
    for (size_t from = 0; from < 3 * PAGE; from += 1021) {
        for (size_t end = from; end < 8 * PAGE; end += 2053) {
            unsigned char *p = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            assert_ptr_not_equal(p, MAP_FAILED);
            memset(p, 0x5A, 8 * PAGE);
            llm_pages_release_within(p + from, end - from, 0);
            for (size_t i = 0; i < 8 * PAGE; i++) {
                size_t page = i / PAGE * PAGE;
                assert_int_equal(p[i], page >= from && page + PAGE <= end ? 0 : 0x5A);
            }
            llm_pages_release(p + 5 * PAGE, PAGE + 1);
            for (size_t i = 5 * PAGE; i < 7 * PAGE; i++) assert_int_equal(p[i], 0);
            munmap(p, 8 * PAGE);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_beside_the_file), cmocka_unit_test(forms_keep_their_memory),
                                       cmocka_unit_test(released_within),
                                       cmocka_unit_test(products_keep_what_they_read_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
