/* Panels of BF16 weights of which two in each four are stored (dtype/two_of_four.c): 16 rows of w, and for each 32 k nine lines of a word of each
 * row: the codes, then the values of eight fours. The zeros are put between the values in registers. */
#ifndef LLM_CPU_KERNELS_GEMM_FOURS_H
#define LLM_CPU_KERNELS_GEMM_FOURS_H

#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

enum { FOURS = 8 /* in a group of 32 k */, FOURS_LINES = 1 + FOURS, FOURS_LINE = LLM_GEMM_PANEL * 4, FOURS_BYTES = FOURS_LINES * FOURS_LINE };
enum { FOURS_AHEAD = 16384 /* bytes by which a panel is prefetched: memory takes longer than 4 KiB, where the hardware's prefetching stops */ };

/* Tables of byte indices (vi_bytes) for the word of a four's two values, by its code. */
#define FIRST 0x0100u
#define SECOND 0x0302u
#define NONE 0x8080u
#define WORD(low, high) ((high) << 16 | (low))
#define BY_CODE(a, b, c, d, e, f) {a, b, c, d, e, f, a, a}

static inline VI fours_line(const char *b, int i, int v) { return vi_load((const int32_t *)(const void *)(b + i * FOURS_LINE) + v * VN); }
static inline VI fours_code(VI codes, int i) { return i ? vi_shrv(codes, vi_set1(i * 4)) : codes; }
static inline void fours_prefetch(const char *b)
{
    for (int i = 0; i < FOURS_LINES; i++) __builtin_prefetch(b + FOURS_AHEAD + i * FOURS_LINE);
}

#if VN == 16
/* Pairs of k, as the products by pairs have them in a panel of b: `low` of places 0 and 1, `high` of 2 and 3. */
static inline __attribute__((always_inline)) void fours_pairs(const char *b, VI codes, int i, VI *low, VI *high)
{
    static const uint32_t lows[8] = BY_CODE(WORD(FIRST, SECOND), WORD(FIRST, NONE), WORD(FIRST, NONE), WORD(NONE, FIRST), WORD(NONE, FIRST),
                                            WORD(NONE, NONE));
    static const uint32_t highs[8] = BY_CODE(WORD(NONE, NONE), WORD(SECOND, NONE), WORD(NONE, SECOND), WORD(SECOND, NONE), WORD(NONE, SECOND),
                                             WORD(FIRST, SECOND));
    const VI values = fours_line(b, 1 + i, 0), code = fours_code(codes, i);
    *low = vi_bytes(values, vi_table(lows, code));
    *high = vi_bytes(values, vi_table(highs, code));
}
#endif

#endif
