/* BF16 products of a few rows with weights of which two in each four are stored. The order of summation is that of the products with panels of b
 * (gemm.h), so the bits are the same wherever x is finite. */
#include <string.h>
#include "cpu/kernels/gemm_fours.h"

#define PANEL LLM_GEMM_PANEL
#define VECTORS (PANEL / VN)
#define INLINE static inline __attribute__((always_inline))
enum { GROUP = FOURS * 4, FEW = LLM_GEMM_FOURS_ROWS };

static void pack_fours(const void *w, size_t ldw, int64_t n, int64_t k, void *panel)
{
    char *out = panel;
    for (int64_t i = 0; i < k / GROUP * FOURS_LINES; i++, out += FOURS_LINE)
        for (int64_t r = 0; r < PANEL; r++) {
            if (r < n) memcpy(out + r * 4, (const char *)w + (size_t)r * ldw + i * 4, 4);
            else memset(out + r * 4, 0, 4);
        }
}

#ifdef LLM_ISA_avx512bf16
enum { PANELS = 4 /* of a tile of one row: chains of sums enough for the latency */ };

INLINE __m512bh pair_of(const char *a)
{
    int32_t pair;
    memcpy(&pair, a, 4);
    return (__m512bh)_mm512_set1_epi32(pair);
}

INLINE void tile(const struct llm_gemm_job *g, int64_t column, const int rows, const int panels)
{
    const int64_t panel_bytes = g->k / GROUP * FOURS_BYTES;
    const char *a = g->a, *b = (const char *)g->b + column / PANEL * panel_bytes;
    V sum[FEW][PANELS];
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        LLM_UNROLL
        for (int v = 0; v < panels; v++) sum[r][v] = v_zero();
    }
    for (int64_t i = 0; i < g->k; i += GROUP, a += PANEL * 64, b += FOURS_BYTES) {
        VI codes[PANELS];
        LLM_UNROLL
        for (int v = 0; v < panels; v++) {
            codes[v] = fours_line(b + v * panel_bytes, 0, 0);
            fours_prefetch(b + v * panel_bytes);
        }
        LLM_UNROLL
        for (int f = 0; f < FOURS; f++) {
            VI low[PANELS], high[PANELS];
            LLM_UNROLL
            for (int v = 0; v < panels; v++) fours_pairs(b + v * panel_bytes, codes[v], f, &low[v], &high[v]);
            LLM_UNROLL
            for (int r = 0; r < rows; r++) {
                const __m512bh first = pair_of(a + r * 64 + f * 8), second = pair_of(a + r * 64 + f * 8 + 4);
                LLM_UNROLL
                for (int v = 0; v < panels; v++)
                    sum[r][v] = _mm512_dpbf16_ps(_mm512_dpbf16_ps(sum[r][v], first, (__m512bh)low[v]), second, (__m512bh)high[v]);
            }
        }
    }
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        LLM_UNROLL
        for (int v = 0; v < panels; v++) {
            const int64_t at = column + v * PANEL;
            const size_t left = (size_t)(g->n - at);
            float *c = g->c + r * g->ldc + at;
            V s = sum[r][v];
            if (g->bias) s = v_add(s, v_load_n(g->bias + at, left));
            if (g->add) s = v_add(v_load_n(c, left), s);
            v_store_n(c, s, left);
        }
    }
}
#else
enum { PANELS = 1, K_BLOCK = 768 /* kernels/gemm.c's */ };

/* A place's value in the upper half of a word: a BF16 number as FP32. */
#define BF16(which) WORD(NONE, which)
static const uint32_t place[4][8] = {BY_CODE(BF16(FIRST), BF16(FIRST), BF16(FIRST), BF16(NONE), BF16(NONE), BF16(NONE)),
                                     BY_CODE(BF16(SECOND), BF16(NONE), BF16(NONE), BF16(FIRST), BF16(FIRST), BF16(NONE)),
                                     BY_CODE(BF16(NONE), BF16(SECOND), BF16(NONE), BF16(SECOND), BF16(NONE), BF16(FIRST)),
                                     BY_CODE(BF16(NONE), BF16(NONE), BF16(SECOND), BF16(NONE), BF16(SECOND), BF16(SECOND))};

/* The sums of VN columns over [from, to) of k, from b's group of `from` on. */
INLINE void add_block(const float *a, int64_t lda, const char *b, int64_t from, int64_t to, const int rows, int v, V sum[FEW])
{
    LLM_UNROLL
    for (int r = 0; r < rows; r++) sum[r] = v_zero();
    for (int64_t i = from; i < to; i += GROUP, b += FOURS_BYTES) {
        const VI codes = fours_line(b, 0, v);
        if (v == 0) fours_prefetch(b);
        LLM_UNROLL
        for (int f = 0; f < FOURS; f++) {
            const VI values = fours_line(b, 1 + f, v), code = fours_code(codes, f);
            LLM_UNROLL
            for (int j = 0; j < 4; j++) {
                const V w = v_from_bits(vi_bytes(values, vi_table(place[j], code)));
                LLM_UNROLL
                for (int r = 0; r < rows; r++) sum[r] = v_fma(v_set1(a[r * lda + i + f * 4 + j]), w, sum[r]);
            }
        }
    }
}

INLINE void tile(const struct llm_gemm_job *g, int64_t column, const int rows, const int panels)
{
    const char *b = (const char *)g->b + column / PANEL * (g->k / GROUP) * FOURS_BYTES;
    (void)panels;
    for (int v = 0; v < VECTORS && column + v * VN < g->n; v++) {
        const int64_t at = column + v * VN;
        const size_t left = (size_t)(g->n - at);
        V total[FEW], sum[FEW];
        for (int64_t from = 0; from < g->k || from == 0; from += K_BLOCK) {
            add_block(g->a, g->lda, b + from / GROUP * FOURS_BYTES, from, from + K_BLOCK < g->k ? from + K_BLOCK : g->k, rows, v, sum);
            LLM_UNROLL
            for (int r = 0; r < rows; r++)
                total[r] = from ? v_add(total[r], sum[r]) : g->add ? v_add(v_load_n(g->c + r * g->ldc + at, left), sum[r]) : sum[r];
        }
        LLM_UNROLL
        for (int r = 0; r < rows; r++) v_store_n(g->c + r * g->ldc + at, g->bias ? v_add(total[r], v_load_n(g->bias + at, left)) : total[r], left);
    }
}
#endif

#define ROWS(m) \
    case m: tile(g, column, m, 1); break;

static void multiply_fours(const struct llm_gemm_job *g)
{
    int64_t column = 0;
    if (g->m == 1)
        for (; column + PANELS * PANEL <= g->n; column += PANELS * PANEL) tile(g, column, 1, PANELS);
    for (; column < g->n; column += PANEL)
        switch (g->m) { ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8) }
}

void KERNEL(llm_fill_gemm_fours)(struct llm_kernels *k)
{
    k->gemm.pack_fours = pack_fours;
    k->gemm.multiply_fours = multiply_fours;
}
