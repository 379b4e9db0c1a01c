/* Gradients of matrices with one narrow side, such as adapters' pairs: tokens are read as they are, since to pack them would cost more than to
 * multiply them. Each element has the order of kernels/gemm.c: a block of tokens from zero, in order, by FMA. */
#include <string.h>
#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

#if VN == 16
enum { VECTORS = 2 }; /* 16 sums in 32 registers */
#else
enum { VECTORS = 1 };
#endif
enum { LINES = LLM_GEMM_NARROW / 2, TOKENS = 256 }; /* lines of the narrow side, of one pass over the wide one; tokens of a block */
enum { TOGETHER = 16, AHEAD = 16 };                  /* tokens of a tile; how far ahead of them memory is asked for */

#define INLINE static inline __attribute__((always_inline))

INLINE V operand(V x, const bool rounded) { return rounded ? v_round_bf16(x) : x; }

/* The narrow side's numbers of LINES lines from `line` on, zeros where there are none. */
INLINE void take_narrow(const struct llm_gemm_narrow_job *g, int64_t line, float out[TOKENS][LINES], const bool rounded)
{
    for (int64_t t = 0; t < g->tokens; t++) {
        const float *in = g->narrow + t * g->ld_narrow + line;
        for (int64_t i = 0; i < LINES; i += VN) {
            const int64_t left = g->lines - line - i;
            const V x = left >= VN ? v_load(in + i) : left > 0 ? v_load_n(in + i, (size_t)left) : v_zero();
            v_store_n(out[t] + i, operand(x, rounded), LINES - (size_t)i);
        }
    }
}

/* Columns [column, column + VECTORS · VN) of a piece and LINES lines: goes on with the sums over tokens [from, to). */
INLINE void tile(const struct llm_gemm_narrow_job *g, float narrow[TOKENS][LINES], float sums[LINES][LLM_GEMM_NARROW_COLUMNS], int64_t column,
                 int64_t from, int64_t to, const bool rounded, const bool whole)
{
    V sum[LINES][VECTORS];
    const float *wide = g->wide + from * g->ld_wide + column;
    LLM_UNROLL
    for (int i = 0; i < LINES * VECTORS; i++) sum[i / VECTORS][i % VECTORS] = v_load(sums[i / VECTORS] + column + i % VECTORS * VN);
    for (int64_t t = from; t < to; t++, wide += g->ld_wide) {
        V x[VECTORS];
        __builtin_prefetch(wide + AHEAD * g->ld_wide);
        LLM_UNROLL
        for (int v = 0; v < VECTORS; v++) {
            const int64_t left = g->columns - column - v * VN;
            x[v] = operand(whole || left >= VN ? v_load(wide + v * VN) : left > 0 ? v_load_n(wide + v * VN, (size_t)left) : v_zero(), rounded);
        }
        LLM_UNROLL
        for (int i = 0; i < LINES; i++) {
            const V y = v_set1(narrow[t][i]);
            LLM_UNROLL
            for (int v = 0; v < VECTORS; v++) sum[i][v] = v_fma(y, x[v], sum[i][v]);
        }
    }
    LLM_UNROLL
    for (int i = 0; i < LINES * VECTORS; i++) v_store(sums[i / VECTORS] + column + i % VECTORS * VN, sum[i / VECTORS][i % VECTORS]);
}

/* A few tokens at a time over all columns, so that each row is read along. */
INLINE void multiply(const struct llm_gemm_narrow_job *g, const bool rounded)
{
    float narrow[TOKENS][LINES] __attribute__((aligned(64))), sums[LINES][LLM_GEMM_NARROW_COLUMNS] __attribute__((aligned(64)));
    for (int64_t line = 0; line < g->lines; line += LINES) {
        take_narrow(g, line, narrow, rounded);
        memset(sums, 0, sizeof sums);
        for (int64_t from = 0; from < g->tokens; from += TOGETHER) {
            const int64_t to = from + TOGETHER < g->tokens ? from + TOGETHER : g->tokens;
            for (int64_t column = 0; column < g->columns; column += VECTORS * VN) {
                if (column + VECTORS * VN <= g->columns) tile(g, narrow, sums, column, from, to, rounded, true);
                else tile(g, narrow, sums, column, from, to, rounded, false);
            }
        }
        for (int64_t i = 0; i < LINES && line + i < g->lines; i++) {
            float *c = g->c + (line + i) * g->of_line;
            for (int64_t j = 0; j < g->columns; j++) c[j * g->of_column] += sums[i][j];
        }
    }
}

static void multiply_same(const struct llm_gemm_narrow_job *g) { multiply(g, false); }
static void multiply_rounded(const struct llm_gemm_narrow_job *g) { multiply(g, true); }

void KERNEL(llm_fill_gemm_narrow)(struct llm_kernels *k)
{
    k->gemm.f32.multiply_narrow = multiply_same;
    if (k->gemm.bf16.element == (int)sizeof(float)) k->gemm.bf16.multiply_narrow = multiply_rounded;
}
