/* Panels of BF16X3 products: F32 operands are split into two BF16 numbers each, high = round(x) and low = round(x - high). Each block of 32 k of a
 * panel has the tile of the high parts and after it that of the low parts, both as in gemm_pairs_avx512bf16.c. */
#include <string.h>
#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

#define PANEL LLM_GEMM_PANEL
#define UNIT 32
#define TILE 1024 /* bytes */

static inline V low_of(V x) { return v_sub(x, v_round_bf16(x)); }
static inline __m512i narrow(V high, V low) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

static void pack_a(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel)
{
    char *out = panel;
    for (int64_t i = 0; i < k; i += UNIT, out += 2 * TILE) {
        for (int64_t r = 0; r < rows; r++) {
            const float *from = x + r * ldx + i;
            const V first = v_load_n(from, (size_t)(k - i)), second = k - i > VN ? v_load_n(from + VN, (size_t)(k - i - VN)) : v_zero();
            _mm512_store_si512(out + r * 64, narrow(second, first));
            _mm512_store_si512(out + TILE + r * 64, narrow(low_of(second), low_of(first)));
        }
    }
}

/* As the BF16 panels that `pack` makes, from lines of k elements; of a `transposed` matrix the lines are columns. */
typedef void pack_function(const float *x, int64_t ldx, int64_t lines, int64_t k, void *panel);
static inline void pack_split(pack_function *pack, bool transposed, const float *x, int64_t ldx, int64_t lines, int64_t k, char *out)
{
    float low[UNIT][UNIT];
    for (int64_t i = 0; i < k; i += UNIT, out += 2 * TILE) {
        const int64_t depth = k - i < UNIT ? k - i : UNIT, rows = transposed ? depth : lines, columns = transposed ? lines : depth;
        const float *from = transposed ? x + i * ldx : x + i;
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t c = 0; c < columns; c += VN) {
                v_store_n(low[r] + c, low_of(v_load_n(from + r * ldx + c, (size_t)(columns - c))), (size_t)(columns - c));
            }
        }
        pack(from, ldx, lines, depth, out);
        pack(low[0], UNIT, lines, depth, out + TILE);
    }
}

static void pack_a_transposed(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel)
{
    pack_split(llm_k.gemm.bf16.pack_a_transposed, true, x, ldx, rows, k, panel);
}

static void pack_b(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    pack_split(llm_k.gemm.bf16.pack_b, false, w, ldw, n, k, panel);
}

static void pack_b_transposed(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    pack_split(llm_k.gemm.bf16.pack_b_transposed, true, w, ldw, n, k, panel);
}

/* BF16 data: the low parts are zero. */
static void pack_b_bf16(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    char *out = panel;
    for (int64_t i = 0; i < k; i += UNIT, out += 2 * TILE) {
        llm_k.gemm.bf16.pack_b_bf16(w + i, ldw, n, k - i < UNIT ? k - i : UNIT, out);
        memset(out + TILE, 0, TILE);
    }
}

static void pack_b_bf16_transposed(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    char *out = panel;
    for (int64_t i = 0; i < k; i += UNIT, out += 2 * TILE) {
        llm_k.gemm.bf16.pack_b_bf16_transposed(w + i * ldw, ldw, n, k - i < UNIT ? k - i : UNIT, out);
        memset(out + TILE, 0, TILE);
    }
}

void llm_fill_gemm_x3_amx(struct llm_kernels *k)
{
    k->gemm.bf16x3 = (struct llm_gemm){.k_unit = UNIT, .element = 4, .pack_a = pack_a, .pack_a_transposed = pack_a_transposed, .pack_b = pack_b,
                                       .pack_b_bf16 = pack_b_bf16, .pack_b_transposed = pack_b_transposed,
                                       .pack_b_bf16_transposed = pack_b_bf16_transposed};
}
