/* BF16 products by AMX tiles, on the panels of gemm_pairs_avx512bf16.c: a block of 32 k of a panel is one tile. Pairs of k in order into one FP32
 * sum, which may rest in c between blocks of k, so blocking does not change the bits. BF16X3 on the panels of gemm_x3_amx.c: of each block high·low,
 * then high·high, then low·high. */
#include "cpu/kernels/gemm_fours.h"

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

/* Tiles 0-3 are sums, 4 and 5 of a, 6 and 7 of b. With `rows` over 16: sums 0 1 over 2 3. Up to 16: four sums abreast, tile 4 is a,
 * and of BF16X3 (`split`) tile 5 too. */
static void configure(int rows, bool split)
{
    struct tile_config c = {.palette = 1};
    int upper = rows < 16 ? rows : 16, lower = rows > 16 ? rows - 16 : upper;
    const int lines[8] = {upper, upper, lower, lower, upper, rows > 16 ? lower : split ? upper : 16, 16, 16};
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

/* Bytes of a block of 32 k of a panel: in BF16X3 (`split`) the tile of the high parts and that of the low parts. */
#define BLOCK (split ? 2 * TILE : TILE)
#define INLINE static inline __attribute__((always_inline))

/* 17 to 32 rows by two panels of columns, k in [from, to). */
INLINE void square(const struct llm_gemm_job *g, const bool split, int64_t row, int rows, int64_t column, int64_t from, int64_t to, bool last)
{
    _Alignas(64) float buffer[PANEL * PANEL];
    int64_t panel = (g->k + UNIT - 1) / UNIT * BLOCK;
    const char *a0 = (const char *)g->a + row / PANEL * panel + from / UNIT * BLOCK, *a1 = a0 + panel;
    const char *b0 = (const char *)g->b + column / PANEL * panel + from / UNIT * BLOCK;
    const char *b1 = column + PANEL < g->n ? b0 + panel : b0;
    BEGIN(0, row, column);
    BEGIN(1, row, column + PANEL);
    BEGIN(2, row + PANEL, column);
    BEGIN(3, row + PANEL, column + PANEL);
    for (int64_t i = from; i < to; i += UNIT, a0 += BLOCK, a1 += BLOCK, b0 += BLOCK, b1 += BLOCK) {
        if (split) { /* high·low before high·high: only one of the operands changes between the three products */
            _tile_loadd(6, b0 + TILE, 64);
            _tile_loadd(4, a0, 64);
            _tile_loadd(7, b1 + TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(5, a1, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
            _tile_loadd(6, b0, 64);
            _tile_loadd(7, b1, 64);
        } else {
            _tile_loadd(6, b0, 64);
            _tile_loadd(4, a0, 64);
            _tile_loadd(7, b1, 64);
        }
        _tile_dpbf16ps(0, 4, 6);
        if (!split) _tile_loadd(5, a1, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        if (split) {
            _tile_loadd(4, a0 + TILE, 64);
            _tile_loadd(5, a1 + TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    END(0, row, column, PANEL);
    END(1, row, column + PANEL, PANEL);
    END(2, row + PANEL, column, rows - PANEL);
    END(3, row + PANEL, column + PANEL, rows - PANEL);
}

/* Up to 16 rows by four panels of columns, all of k. */
INLINE void strip(const struct llm_gemm_job *g, const bool split, int64_t row, int rows, int64_t column)
{
    _Alignas(64) float buffer[PANEL * PANEL];
    const int64_t panel = (g->k + UNIT - 1) / UNIT * BLOCK, from = 0;
    const bool last = true;
    const char *a = (const char *)g->a + row / PANEL * panel;
    const char *b = (const char *)g->b + column / PANEL * panel;
    int64_t there = (g->n - column + PANEL - 1) / PANEL; /* panels; those that are not repeat the first */
    int64_t b1 = there > 1 ? panel : 0, b2 = there > 2 ? 2 * panel : 0, b3 = there > 3 ? 3 * panel : 0;
    BEGIN(0, row, column);
    BEGIN(1, row, column);
    BEGIN(2, row, column);
    BEGIN(3, row, column);
    for (int64_t i = 0; i < g->k; i += UNIT, a += BLOCK, b += BLOCK) {
        _tile_loadd(4, a, 64);
        if (split) {
            _tile_loadd(6, b + TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, b + b1 + TILE, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(6, b + b2 + TILE, 64);
            _tile_dpbf16ps(2, 4, 6);
            _tile_loadd(7, b + b3 + TILE, 64);
            _tile_dpbf16ps(3, 4, 7);
            _tile_loadd(5, a + TILE, 64);
            _tile_loadd(6, b, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, b + b1, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(0, 5, 6);
            _tile_dpbf16ps(1, 5, 7);
            _tile_loadd(6, b + b2, 64);
            _tile_dpbf16ps(2, 4, 6);
            _tile_loadd(7, b + b3, 64);
            _tile_dpbf16ps(3, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
            continue;
        }
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

INLINE void squares(const struct llm_gemm_job *g, const bool split, int64_t first, int64_t end, int rows)
{
    int64_t whole = g->add ? 0 : g->n / (2 * PANEL) * (2 * PANEL); /* columns where the sums may rest in c */
    int64_t most = (g->ldc % COLLIDING ? K_BLOCK : K_BLOCK_COLLIDING) / (BLOCK / TILE);
    int64_t blocks = (g->k + most - 1) / most, block = blocks > 1 ? (g->k / blocks + UNIT - 1) / UNIT * UNIT : most;
    configure(rows, split);
    for (int64_t from = 0; from < g->k || from == 0; from += block) {
        int64_t to = from + block < g->k ? from + block : g->k;
        for (int64_t column = 0; column < whole; column += 2 * PANEL)
            for (int64_t row = first; row < end; row += 2 * PANEL) square(g, split, row, rows, column, from, to, to == g->k);
    }
    for (int64_t column = whole; column < g->n; column += 2 * PANEL)
        for (int64_t row = first; row < end; row += 2 * PANEL) square(g, split, row, rows, column, 0, g->k, true);
}

INLINE void multiply_panels(const struct llm_gemm_job *g, const bool split)
{
    int64_t whole = g->m / (2 * PANEL) * (2 * PANEL);
    int rest = (int)(g->m - whole);
    if (whole) squares(g, split, 0, whole, 2 * PANEL);
    if (rest > PANEL) {
        squares(g, split, whole, g->m, rest);
    } else if (rest) {
        configure(rest, split);
        for (int64_t column = 0; column < g->n; column += 4 * PANEL) strip(g, split, whole, rest, column);
    }
    _tile_release();
}

static void multiply(const struct llm_gemm_job *g) { multiply_panels(g, false); }
static void multiply_x3(const struct llm_gemm_job *g) { multiply_panels(g, true); }

/* A tile of b from a group of 32 k of a panel of fours (kernels/gemm_fours.h). */
static inline void open_tile(const char *b, char *out)
{
    const VI codes = fours_line(b, 0, 0);
    fours_prefetch(b);
    LLM_UNROLL
    for (int i = 0; i < FOURS; i++) {
        VI low, high;
        fours_pairs(b, codes, i, &low, &high);
        _mm512_store_si512(out + i * 128, low);
        _mm512_store_si512(out + i * 128 + 64, high);
    }
}

/* Up to 8 rows by two panels of fours. A tile is opened a step before it is read, which would have to wait for the stores. */
static void multiply_fours(const struct llm_gemm_job *g)
{
    _Alignas(64) float buffer[PANEL * PANEL];
    _Alignas(64) char opened[2][2][TILE];
    const int64_t panel = g->k / UNIT * FOURS_BYTES, steps = g->k / UNIT, from = 0;
    const int rows = (int)g->m;
    const bool last = true;
    configure(rows, false);
    for (int64_t column = 0; column < g->n; column += 2 * PANEL) {
        const char *a = g->a, *b0 = (const char *)g->b + column / PANEL * panel, *b1 = column + PANEL < g->n ? b0 + panel : b0;
        BEGIN(0, 0, column);
        BEGIN(1, 0, column);
        for (int64_t i = 0; i <= steps; i++, b0 += FOURS_BYTES, b1 += FOURS_BYTES) {
            if (i < steps) {
                open_tile(b0, opened[i % 2][0]);
                open_tile(b1, opened[i % 2][1]);
            }
            if (i == 0) continue;
            _tile_loadd(4, a, 64);
            _tile_loadd(6, opened[(i - 1) % 2][0], 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, opened[(i - 1) % 2][1], 64);
            _tile_dpbf16ps(1, 4, 7);
            a += TILE;
        }
        END(0, 0, column, rows);
        END(1, 0, column + PANEL, rows);
    }
    _tile_release();
}

static double peak_bf16(int64_t iterations)
{
    configure(2 * PANEL, false);
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
    k->gemm.multiply_fours = multiply_fours;
    k->gemm.peak_bf16 = peak_bf16;
    llm_fill_gemm_x3_amx(k);
    k->gemm.bf16x3.multiply = multiply_x3;
    llm_fill_gemm_int8_amx(k);
}
