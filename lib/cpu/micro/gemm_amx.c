/* BF16 products by AMX tiles, on the panels of gemm_pairs_avx512bf16.c: a block of 32 k of a panel is one tile. Pairs of k in order into one FP32
 * sum, which may rest in c between blocks of k, so blocking does not change the bits. */
#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

#define PANEL LLM_GEMM_PANEL
#define UNIT 32
#define TILE 1024    /* bytes */
#define K_BLOCK 400 /* at most so much: two panels of b of this depth stay in the first cache beside what passes of a */
/* Rows of c that are a multiple of 2 KiB apart meet in a few lines of the first cache: to let sums rest there between blocks costs more than panels
 * of b that do not stay. */
#define K_BLOCK_COLLIDING 800
#define COLLIDING 512 /* floats */

/* What LDTILECFG reads. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0-3 are sums, 4 and 5 of a, 6 and 7 of b. With `rows` over 16: sums 0 1 over 2 3. Up to 16: four sums abreast, tile 4 is a. */
static void configure(int rows)
{
    struct tile_config c = {.palette = 1};
    int upper = rows < 16 ? rows : 16, lower = rows > 16 ? rows - 16 : upper;
    const int lines[8] = {upper, upper, lower, lower, upper, rows > 16 ? lower : 16, 16, 16};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = (uint8_t)lines[i];
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* the intrinsic tells the compiler of the first bytes alone */
    _tile_loadconfig(&c);
}

struct place { int64_t row, column; int rows; }; /* of a tile of c; at most 16 rows */

/* From `buffer` [16][16] to c, with what is to be added. */
static void finish(const struct llm_gemm_job *g, const float *buffer, struct place at, bool add, const float *bias)
{
    size_t left = (size_t)(g->n - at.column);
    for (int r = 0; r < at.rows; r++) {
        float *c = g->c + (at.row + r) * g->ldc + at.column;
        V s = v_load(buffer + r * 16);
        if (bias) s = v_add(s, v_load_n(bias + at.column, left));
        if (add) s = v_add(v_load_n(c, left), s);
        v_store_n(c, s, left);
    }
}

/* Sums begin at zero or go on from c; they end in c, through a buffer where c is not a whole tile or something is added. */
#define BEGIN(t, r, col)                                                                                            \
    do {                                                                                                            \
        if (from == 0) _tile_zero(t);                                                                               \
        else _tile_loadd(t, g->c + (r) * g->ldc + (col), (size_t)g->ldc * 4);                                       \
    } while (0)
#define END(t, r, col, lines)                                                                                       \
    do {                                                                                                            \
        if ((col) >= g->n) break;                                                                                   \
        if (!g->add && !(last && g->bias) && g->n - (col) >= PANEL) {                                               \
            _tile_stored(t, g->c + (r) * g->ldc + (col), (size_t)g->ldc * 4);                                       \
        } else {                                                                                                    \
            _tile_stored(t, buffer, 64);                                                                            \
            finish(g, buffer, (struct place){r, col, lines}, g->add, last ? g->bias : NULL);                        \
        }                                                                                                           \
    } while (0)

/* 17 to 32 rows by two panels of columns, k in [from, to). */
static void square(const struct llm_gemm_job *g, int64_t row, int rows, int64_t column, int64_t from, int64_t to, bool last)
{
    _Alignas(64) float buffer[PANEL * PANEL];
    int64_t panel = (g->k + UNIT - 1) / UNIT * TILE;
    const char *a0 = (const char *)g->a + row / PANEL * panel + from / UNIT * TILE, *a1 = a0 + panel;
    const char *b0 = (const char *)g->b + column / PANEL * panel + from / UNIT * TILE;
    const char *b1 = column + PANEL < g->n ? b0 + panel : b0;
    BEGIN(0, row, column);
    BEGIN(1, row, column + PANEL);
    BEGIN(2, row + PANEL, column);
    BEGIN(3, row + PANEL, column + PANEL);
    for (int64_t i = from; i < to; i += UNIT, a0 += TILE, a1 += TILE, b0 += TILE, b1 += TILE) {
        _tile_loadd(6, b0, 64);
        _tile_loadd(4, a0, 64);
        _tile_loadd(7, b1, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a1, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    END(0, row, column, PANEL);
    END(1, row, column + PANEL, PANEL);
    END(2, row + PANEL, column, rows - PANEL);
    END(3, row + PANEL, column + PANEL, rows - PANEL);
}

/* Up to 16 rows by four panels of columns, all of k. */
static void strip(const struct llm_gemm_job *g, int64_t row, int rows, int64_t column)
{
    _Alignas(64) float buffer[PANEL * PANEL];
    const int64_t panel = (g->k + UNIT - 1) / UNIT * TILE, from = 0;
    const bool last = true;
    const char *a = (const char *)g->a + row / PANEL * panel;
    const char *b = (const char *)g->b + column / PANEL * panel;
    int64_t there = (g->n - column + PANEL - 1) / PANEL; /* panels; those that are not repeat the first */
    int64_t b1 = there > 1 ? panel : 0, b2 = there > 2 ? 2 * panel : 0, b3 = there > 3 ? 3 * panel : 0;
    BEGIN(0, row, column);
    BEGIN(1, row, column);
    BEGIN(2, row, column);
    BEGIN(3, row, column);
    for (int64_t i = 0; i < g->k; i += UNIT, a += TILE, b += TILE) {
        _tile_loadd(4, a, 64);
        _tile_loadd(5, b, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, b + b1, 64);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(7, b + b2, 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_loadd(5, b + b3, 64);
        _tile_dpbf16ps(3, 4, 5);
    }
    END(0, row, column, rows);
    END(1, row, column + PANEL, rows);
    END(2, row, column + 2 * PANEL, rows);
    END(3, row, column + 3 * PANEL, rows);
}

static void squares(const struct llm_gemm_job *g, int64_t first, int64_t end, int rows)
{
    int64_t whole = g->add ? 0 : g->n / (2 * PANEL) * (2 * PANEL); /* columns where the sums may rest in c */
    int64_t most = g->ldc % COLLIDING ? K_BLOCK : K_BLOCK_COLLIDING;
    int64_t blocks = (g->k + most - 1) / most, block = blocks > 1 ? (g->k / blocks + UNIT - 1) / UNIT * UNIT : most;
    configure(rows);
    for (int64_t from = 0; from < g->k || from == 0; from += block) {
        int64_t to = from + block < g->k ? from + block : g->k;
        for (int64_t column = 0; column < whole; column += 2 * PANEL)
            for (int64_t row = first; row < end; row += 2 * PANEL) square(g, row, rows, column, from, to, to == g->k);
    }
    for (int64_t column = whole; column < g->n; column += 2 * PANEL)
        for (int64_t row = first; row < end; row += 2 * PANEL) square(g, row, rows, column, 0, g->k, true);
}

static void multiply(const struct llm_gemm_job *g)
{
    int64_t whole = g->m / (2 * PANEL) * (2 * PANEL);
    int rest = (int)(g->m - whole);
    if (whole) squares(g, 0, whole, 2 * PANEL);
    if (rest > PANEL) {
        squares(g, whole, g->m, rest);
    } else if (rest) {
        configure(rest);
        for (int64_t column = 0; column < g->n; column += 4 * PANEL) strip(g, whole, rest, column);
    }
    _tile_release();
}

static double peak_bf16(int64_t iterations)
{
    configure(2 * PANEL);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(6);
    for (int64_t i = 0; i < iterations; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 6);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 6);
    }
    _tile_release();
    return (double)iterations * 4 * PANEL * PANEL * UNIT * 2;
}

void llm_fill_gemm_amx(struct llm_kernels *k)
{
    k->gemm.bf16.multiply = multiply;
    k->gemm.peak_bf16 = peak_bf16;
    llm_fill_gemm_int8_amx(k);
}
