/* FP32 products with the vectors of cpu/simd.h, and BF16 ones for instruction sets without a BF16 dot product. */
#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

#define PANEL LLM_GEMM_PANEL
#define VECTORS (PANEL / VN) /* in a row of a panel */
#define K_BLOCK 512

/* A tile of ROWS rows and PANELS panels of columns keeps its sums in registers. */
#if VN == 16
enum { ROWS = 8, PANELS = 3 };
#elif VN == 1
enum { ROWS = 1, PANELS = 1 };
#else
enum { ROWS = 6, PANELS = 1 };
#endif

/* What a tile does with its sums: c = sum or c += sum, then + bias. */
struct tile_end { bool load; const float *bias; };

static inline __attribute__((always_inline)) void tile(const struct llm_gemm_job *g, int64_t row, int64_t column, int64_t from,
                                                       int64_t to, const int rows, const int panels, struct tile_end end)
{
    const float *a = (const float *)g->a + row * g->lda;
    const float *b = (const float *)g->b + column * g->k;
    V sum[ROWS][PANELS * VECTORS];
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        LLM_UNROLL
        for (int v = 0; v < panels * VECTORS; v++) sum[r][v] = v_zero();
    }
    for (int64_t i = from; i < to; i++) {
        V w[PANELS * VECTORS];
        LLM_UNROLL
        for (int v = 0; v < panels * VECTORS; v++) w[v] = v_load(b + v / VECTORS * PANEL * g->k + i * PANEL + v % VECTORS * VN);
        LLM_UNROLL
        for (int r = 0; r < rows; r++) {
            V x = v_set1(a[r * g->lda + i]);
            LLM_UNROLL
            for (int v = 0; v < panels * VECTORS; v++) sum[r][v] = v_fma(x, w[v], sum[r][v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < panels * VECTORS; v++) {
            int64_t at = column + v * VN;
            if (at >= g->n) continue;
            float *c = g->c + (row + r) * g->ldc + at;
            size_t left = (size_t)(g->n - at);
            V s = end.load ? v_add(v_load_n(c, left), sum[r][v]) : sum[r][v];
            if (end.bias) s = v_add(s, v_load_n(end.bias + at, left));
            v_store_n(c, s, left);
        }
}

#define TILE_ROWS(n, panels) \
    case n: tile(g, row, column, from, to, n, panels, end); break;

#if VN == 16
#define TILE_CASES(panels)                                                                          \
    switch (rows) {                                                                                 \
        TILE_ROWS(8, panels) TILE_ROWS(7, panels) TILE_ROWS(6, panels) TILE_ROWS(5, panels)         \
        TILE_ROWS(4, panels) TILE_ROWS(3, panels) TILE_ROWS(2, panels) TILE_ROWS(1, panels)         \
    }
#elif VN == 1
#define TILE_CASES(panels) \
    switch (rows) { TILE_ROWS(1, panels) }
#else
#define TILE_CASES(panels)                                                                          \
    switch (rows) {                                                                                 \
        TILE_ROWS(6, panels) TILE_ROWS(5, panels) TILE_ROWS(4, panels) TILE_ROWS(3, panels)         \
        TILE_ROWS(2, panels) TILE_ROWS(1, panels)                                                   \
    }
#endif

static void tiles(const struct llm_gemm_job *g, int64_t row, int64_t column, int64_t from, int64_t to, int rows, int panels,
                  struct tile_end end)
{
#if VN == 16
    if (panels == 3) TILE_CASES(3)
    else if (panels == 2) TILE_CASES(2)
    else
#else
    (void)panels;
#endif
        TILE_CASES(1)
}

static void multiply(const struct llm_gemm_job *g)
{
    for (int64_t from = 0; from < g->k || from == 0; from += K_BLOCK) {
        int64_t to = from + K_BLOCK < g->k ? from + K_BLOCK : g->k;
        struct tile_end end = {g->add || from > 0, to == g->k ? g->bias : NULL};
        for (int64_t column = 0; column < g->n; column += PANELS * PANEL) {
            int panels = (int)((g->n - column + PANEL - 1) / PANEL);
            if (panels > PANELS) panels = PANELS;
            for (int64_t row = 0; row < g->m; row += ROWS)
                tiles(g, row, column, from, to, g->m - row < ROWS ? (int)(g->m - row) : ROWS, panels, end);
        }
    }
}

static float same(float x) { return x; }
static float rounded(float x) { return llm_bf16_decode(llm_bf16_encode(x)); }

/* Packing: `value` is what becomes of an element, known at compile time. */
#define PACKERS(suffix, value)                                                                                          \
    static void pack_a##suffix(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel)                       \
    {                                                                                                                   \
        for (int64_t r = 0; r < rows; r++)                                                                              \
            for (int64_t i = 0; i < k; i++) ((float *)panel)[r * k + i] = value(x[r * ldx + i]);                        \
    }                                                                                                                   \
    static void pack_a_transposed##suffix(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel)            \
    {                                                                                                                   \
        for (int64_t i = 0; i < k; i++)                                                                                 \
            for (int64_t r = 0; r < rows; r++) ((float *)panel)[r * k + i] = value(x[i * ldx + r]);                     \
    }                                                                                                                   \
    static void pack_b##suffix(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel)                          \
    {                                                                                                                   \
        float *out = panel;                                                                                             \
        for (int64_t i = 0; i < k; i++, out += PANEL)                                                                   \
            for (int64_t j = 0; j < PANEL; j++) out[j] = j < n ? value(w[j * ldw + i]) : 0;                             \
    }                                                                                                                   \
    static void pack_b_transposed##suffix(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel)               \
    {                                                                                                                   \
        float *out = panel;                                                                                             \
        for (int64_t i = 0; i < k; i++, out += PANEL)                                                                   \
            for (int64_t j = 0; j < PANEL; j++) out[j] = j < n ? value(w[i * ldw + j]) : 0;                             \
    }

PACKERS(_same, same)
PACKERS(_rounded, rounded)

static void pack_b_bf16(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    float *out = panel;
    for (int64_t i = 0; i < k; i++, out += PANEL)
        for (int64_t j = 0; j < PANEL; j++) out[j] = j < n ? llm_bf16_decode(w[j * ldw + i]) : 0;
}

static void pack_b_bf16_transposed(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    float *out = panel;
    for (int64_t i = 0; i < k; i++, out += PANEL)
        for (int64_t j = 0; j < PANEL; j++) out[j] = j < n ? llm_bf16_decode(w[i * ldw + j]) : 0;
}

/* Twelve chains of independent FMA hide the latency of two units. */
static double peak_f32(int64_t iterations)
{
    V sum[12];
    for (int j = 0; j < 12; j++) sum[j] = v_set1((float)j);
    V a = v_set1(0.999999f), b = v_set1(1e-7f);
    for (int64_t i = 0; i < iterations; i++) {
        LLM_UNROLL
        for (int j = 0; j < 12; j++) sum[j] = v_fma(sum[j], a, b);
    }
    V all = v_zero();
    for (int j = 0; j < 12; j++) all = v_add(all, sum[j]);
    volatile float keep = v_sum(all);
    (void)keep;
    return (double)iterations * 12 * VN * 2;
}

static float read_all(const void *p, size_t bytes)
{
    const float *x = p;
    enum { STREAMS = 64 / VN };
    VI all[STREAMS];
    for (int j = 0; j < STREAMS; j++) all[j] = vi_set1(0);
    for (size_t i = 0; i < bytes / sizeof *x; i += 64) {
        LLM_UNROLL
        for (int j = 0; j < STREAMS; j++) all[j] = vi_xor(all[j], v_bits(v_load(x + i + j * VN)));
    }
    for (int j = 1; j < STREAMS; j++) all[0] = vi_xor(all[0], all[j]);
    return v_sum(v_from_i32(all[0]));
}

void KERNEL(llm_fill_gemm)(struct llm_kernels *k)
{
    k->gemm.f32 = (struct llm_gemm){.k_unit = 1, .element = 4, .direct = true, .pack_a = pack_a_same,
                                    .pack_a_transposed = pack_a_transposed_same, .pack_b = pack_b_same, .pack_b_bf16 = pack_b_bf16,
                                    .pack_b_transposed = pack_b_transposed_same, .pack_b_bf16_transposed = pack_b_bf16_transposed,
                                    .multiply = multiply};
    k->gemm.bf16 = k->gemm.f32;
    k->gemm.bf16.direct = false;
    k->gemm.bf16.pack_a = pack_a_rounded;
    k->gemm.bf16.pack_a_transposed = pack_a_transposed_rounded;
    k->gemm.bf16.pack_b = pack_b_rounded;
    k->gemm.bf16.pack_b_transposed = pack_b_transposed_rounded;
    k->gemm.peak_f32 = peak_f32;
    k->gemm.read = read_all;
    KERNEL(llm_fill_gemm_quantised)(k);
#ifdef LLM_ISA_avx512bf16
    llm_fill_gemm_pairs_avx512bf16(k);
    llm_fill_gemm_int8_avx512bf16(k);
#endif
}
