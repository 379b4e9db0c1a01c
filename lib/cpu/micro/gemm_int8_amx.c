/* Quantised products for many rows by AMX: a tile product is the exact dots of one block of 32 for 16 rows by 16 columns. What follows is that of
 * kernels/gemm_quantised.c, in the same order, so the bits are those of its products; it also does what is too small for tiles. */
#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

#define PANEL LLM_GEMM_PANEL
#define BLOCK 32
#define SCALES (PANEL * 2)
#define BLOCKS 64          /* of a panel, opened together: 32 KiB */
#define ROWS 256           /* whose sums are under way */
#define MOST_SCALES 32768  /* of activations, turned: [row / 16][block][16] */
#define FEWEST_ROWS 9

static void (*few_rows_q8_0)(const struct llm_gemm_q_job *);
static void (*few_rows_q4_0)(const struct llm_gemm_q_job *);

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 and 1: dots; 2 and 3: activations, [rows][32]; 4 and 5: weights, [32 / 4][16 columns][4]. */
static void configure(int rows)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 6; i++) {
        c.row_bytes[i] = i == 2 || i == 3 ? BLOCK : 64;
        c.rows[i] = (uint8_t)(i < 4 ? rows : BLOCK / 4);
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* the intrinsic tells the compiler of the first bytes alone */
    _tile_loadconfig(&c);
}

/* Blocks of a panel as signed bytes and FP32 scales. */
static inline __attribute__((always_inline)) void open_panel(const unsigned char *b, int64_t blocks, const bool four_bits, unsigned char *out,
                                                             float *scales)
{
    const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8), top = _mm512_set1_epi8(-128);
    for (int64_t block = 0; block < blocks; block++, out += BLOCK * PANEL) {
        v_store(scales + block * PANEL, v_load_f16((const uint16_t *)(const void *)b));
        b += SCALES;
        for (int i = 0; i < (four_bits ? 4 : 8); i++, b += 64) {
            __m512i w = _mm512_loadu_si512(b);
            if (four_bits) {
                _mm512_store_si512(out + i * 64, _mm512_sub_epi8(_mm512_and_si512(w, low), eight));
                _mm512_store_si512(out + (i + 4) * 64, _mm512_sub_epi8(_mm512_and_si512(_mm512_srli_epi16(w, 4), low), eight));
            } else {
                _mm512_store_si512(out + i * 64, _mm512_xor_si512(w, top));
            }
        }
    }
    __asm__ volatile("" : : : "memory"); /* tile loads are not known to read it */
}

/* sum[r] = fma(dot[r], w's scales · x's scale of row r, sum[r]) */
static inline __attribute__((always_inline)) void add_dots(const int32_t *dots, const float *w_scale, const float *x_scale, V *sum)
{
    V scale = v_load(w_scale);
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++)
        sum[r] = v_fma(v_from_i32(vi_load(dots + r * PANEL)), v_mul(scale, v_set1(x_scale[r])), sum[r]);
}

/* One tile of sums goes on over `blocks` blocks. */
static void accumulate(const int8_t *q, int64_t k, const unsigned char *w, const float *w_scale, const float *x_scale, int64_t blocks, float *sums)
{
    _Alignas(64) int32_t dots[2][PANEL * PANEL];
    V sum[PANEL];
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) sum[r] = v_load(sums + r * PANEL);
    int64_t block = 0;
    for (; block + 2 <= blocks; block += 2) {
        _tile_zero(0);
        _tile_loadd(2, q + block * BLOCK, (size_t)k);
        _tile_loadd(4, w + block * BLOCK * PANEL, 64);
        _tile_dpbssd(0, 2, 4);
        _tile_zero(1);
        _tile_loadd(3, q + (block + 1) * BLOCK, (size_t)k);
        _tile_loadd(5, w + (block + 1) * BLOCK * PANEL, 64);
        _tile_dpbssd(1, 3, 5);
        _tile_stored(0, dots[0], 64);
        _tile_stored(1, dots[1], 64);
        add_dots(dots[0], w_scale + block * PANEL, x_scale + block * PANEL, sum);
        add_dots(dots[1], w_scale + (block + 1) * PANEL, x_scale + (block + 1) * PANEL, sum);
    }
    if (block < blocks) {
        _tile_zero(0);
        _tile_loadd(2, q + block * BLOCK, (size_t)k);
        _tile_loadd(4, w + block * BLOCK * PANEL, 64);
        _tile_dpbssd(0, 2, 4);
        _tile_stored(0, dots[0], 64);
        add_dots(dots[0], w_scale + block * PANEL, x_scale + block * PANEL, sum);
    }
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) v_store(sums + r * PANEL, sum[r]);
}

/* Rows [first, first + rows) by one panel of columns. */
static inline __attribute__((always_inline)) void panel_product(const struct llm_gemm_q_job *g, int64_t first, int64_t rows, int64_t column,
                                                                const float *x_scale, const bool four_bits)
{
    _Alignas(64) unsigned char w[BLOCKS * BLOCK * PANEL];
    _Alignas(64) float w_scale[BLOCKS * PANEL], sums[ROWS * PANEL];
    const size_t block_bytes = SCALES + (size_t)(four_bits ? 4 : 8) * 64;
    int64_t blocks = g->k / BLOCK, whole = rows / PANEL * PANEL;
    const unsigned char *b = (const unsigned char *)g->b + (size_t)(column / PANEL * blocks) * block_bytes;
    memset(sums, 0, sizeof sums);
    for (int64_t from = 0; from < blocks; from += BLOCKS) {
        int64_t here = blocks - from < BLOCKS ? blocks - from : BLOCKS;
        open_panel(b + (size_t)from * block_bytes, here, four_bits, w, w_scale);
        configure(PANEL);
        for (int64_t row = 0; row < rows; row += PANEL) {
            if (row == whole) configure((int)(rows - whole));
            accumulate(g->q + (first + row) * g->k + from * BLOCK, g->k, w, w_scale, x_scale + (row * blocks) + from * PANEL, here,
                       sums + row * PANEL);
        }
    }
    for (int64_t row = 0; row < rows; row++) {
        float *c = g->c + (first + row) * g->ldc + column;
        size_t left = (size_t)(g->n - column);
        V s = v_load(sums + row * PANEL);
        if (g->add) s = v_add(v_load_n(c, left), s);
        if (g->bias) s = v_add(s, v_load_n(g->bias + column, left));
        v_store_n(c, s, left);
    }
}

static inline __attribute__((always_inline)) void multiply(const struct llm_gemm_q_job *g, const bool four_bits)
{
    _Alignas(64) float x_scale[MOST_SCALES];
    int64_t blocks = g->k / BLOCK, group = MOST_SCALES / blocks / PANEL * PANEL;
    if (group > ROWS) group = ROWS;
    if (g->m < FEWEST_ROWS || group == 0) {
        (four_bits ? few_rows_q4_0 : few_rows_q8_0)(g);
        return;
    }
    for (int64_t first = 0; first < g->m; first += group) {
        int64_t rows = g->m - first < group ? g->m - first : group;
        for (int64_t row = 0; row < (rows + PANEL - 1) / PANEL * PANEL; row++) /* rows that are not there: zero */
            for (int64_t block = 0; block < blocks; block++)
                x_scale[row / PANEL * PANEL * blocks + block * PANEL + row % PANEL]
                    = row < rows ? g->scale[(first + row) * blocks + block] : 0;
        for (int64_t column = 0; column < g->n; column += PANEL) panel_product(g, first, rows, column, x_scale, four_bits);
    }
    _tile_release();
}

static void multiply_q8_0(const struct llm_gemm_q_job *g) { multiply(g, false); }
static void multiply_q4_0(const struct llm_gemm_q_job *g) { multiply(g, true); }

static double peak_int8(int64_t iterations)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = 16;
    }
    __asm__ volatile("" : : "r"(&c) : "memory");
    _tile_loadconfig(&c);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t i = 0; i < iterations; i++) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_release();
    return (double)iterations * 4 * PANEL * PANEL * 64 * 2;
}

void llm_fill_gemm_int8_amx(struct llm_kernels *k)
{
    few_rows_q8_0 = k->gemm.q8_0.multiply;
    few_rows_q4_0 = k->gemm.q4_0.multiply;
    k->gemm.q8_0.multiply = multiply_q8_0;
    k->gemm.q4_0.multiply = multiply_q4_0;
    k->gemm.peak_int8 = peak_int8;
}
