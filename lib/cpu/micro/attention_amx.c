/* Attention's products of BF16 pairs by AMX tiles, on the forms of kernels/attention.h: 16 units of 16 rows of form A are a tile, and so are 16 units
 * by 16 columns of form B. Whole tiles only: rows beyond m are computed too, in the room that the contract asks for. */
#include <immintrin.h>
#include "cpu/kernels.h"

#define SIDE 16 /* rows and columns of a tile of sums, units of a tile of operands */

/* What LDTILECFG reads: all eight tiles 16 rows of 64 bytes. */
static const _Alignas(64) struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} whole = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};

struct operands {
    float *c;
    const float *a, *b;
    size_t ldc, lda, ldb; /* bytes */
    int64_t units;
    bool accumulate;
};

#define BEGIN(t, at)                                      \
    do {                                                  \
        if (o->accumulate) _tile_loadd(t, at, o->ldc);    \
        else _tile_zero(t);                               \
    } while (0)

/* Two tiles of rows by two of columns. */
static void square(const struct operands *o, int64_t row, int64_t column)
{
    const char *a0 = (const char *)o->a + (size_t)row * o->lda, *a1 = a0 + SIDE * o->lda;
    const float *b0 = o->b + column;
    char *c0 = (char *)(o->c + column) + (size_t)row * o->ldc, *c1 = c0 + SIDE * o->ldc;
    BEGIN(0, c0);
    BEGIN(1, c0 + 64);
    BEGIN(2, c1);
    BEGIN(3, c1 + 64);
    for (int64_t u = 0; u < o->units; u += SIDE, a0 += 64, a1 += 64) {
        const char *b = (const char *)b0 + (size_t)u * o->ldb;
        _tile_loadd(6, b, o->ldb);
        _tile_loadd(4, a0, o->lda);
        _tile_loadd(7, b + 64, o->ldb);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a1, o->lda);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c0, o->ldc);
    _tile_stored(1, c0 + 64, o->ldc);
    _tile_stored(2, c1, o->ldc);
    _tile_stored(3, c1 + 64, o->ldc);
}

static void single(const struct operands *o, int64_t row, int64_t column)
{
    const char *a = (const char *)o->a + (size_t)row * o->lda, *b = (const char *)(o->b + column);
    char *c = (char *)(o->c + column) + (size_t)row * o->ldc;
    BEGIN(0, c);
    for (int64_t u = 0; u < o->units; u += SIDE, a += 64, b += SIDE * o->ldb) {
        _tile_loadd(4, a, o->lda);
        _tile_loadd(6, b, o->ldb);
        _tile_dpbf16ps(0, 4, 6);
    }
    _tile_stored(0, c, o->ldc);
}

/* One tile of rows by four of columns. */
static void strip(const struct operands *o, int64_t row, int64_t column)
{
    const char *a = (const char *)o->a + (size_t)row * o->lda, *b = (const char *)(o->b + column);
    char *c = (char *)(o->c + column) + (size_t)row * o->ldc;
    BEGIN(0, c);
    BEGIN(1, c + 64);
    BEGIN(2, c + 128);
    BEGIN(3, c + 192);
    for (int64_t u = 0; u < o->units; u += SIDE, a += 64, b += SIDE * o->ldb) {
        _tile_loadd(4, a, o->lda);
        _tile_loadd(5, b, o->ldb);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, b + 64, o->ldb);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(7, b + 128, o->ldb);
        _tile_dpbf16ps(2, 4, 7);
        _tile_loadd(5, b + 192, o->ldb);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_stored(0, c, o->ldc);
    _tile_stored(1, c + 64, o->ldc);
    _tile_stored(2, c + 128, o->ldc);
    _tile_stored(3, c + 192, o->ldc);
}

static void begin(void)
{
    __asm__ volatile("" : : "r"(&whole) : "memory"); /* the intrinsic tells the compiler of the first bytes alone */
    _tile_loadconfig(&whole);
}
static void end(void) { _tile_release(); }

static void product(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t n, int64_t units,
                    bool accumulate)
{
    const struct operands o = {c, a, b, (size_t)ldc * 4, (size_t)lda * 4, (size_t)ldb * 4, units, accumulate};
    int64_t row = 0, column;
    for (; row + SIDE < m; row += 2 * SIDE) {
        for (column = 0; column + 2 * SIDE <= n; column += 2 * SIDE) square(&o, row, column);
        for (; column < n; column += SIDE) {
            single(&o, row, column);
            single(&o, row + SIDE, column);
        }
    }
    for (column = 0; row < m && column + 4 * SIDE <= n; column += 4 * SIDE) strip(&o, row, column);
    for (; row < m && column < n; column += SIDE) single(&o, row, column);
}

void KERNEL(llm_fill_attention)(struct llm_kernels *k)
{
    struct llm_attention_math *math = &k->attention.math[1]; /* LLM_COMPUTE_BF16 */
    math->begin = begin;
    math->end = end;
    math->product = product;
}
