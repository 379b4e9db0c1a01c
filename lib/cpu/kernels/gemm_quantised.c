/* Products with block-quantised weights: integer dots of 32, exact, then FP32 across blocks (contract and layouts: gemm.h). */
#include <math.h>
#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

#define PANEL LLM_GEMM_PANEL
#define BLOCK 32
#define VECTORS (PANEL / VN)
#define SCALES (PANEL * 2) /* bytes */

/* The layouts of ggml's blocks. */
enum { Q8_0_BYTES = 34, Q4_0_BYTES = 18 };

static void quantise(const float *x, int64_t k, int8_t *q, float *scale, int32_t *sum)
{
    for (int64_t block = 0; block < k / BLOCK; block++, x += BLOCK, q += BLOCK) {
        V largest = v_zero(), poison = v_zero();
        int32_t total = 0, one[VN];
        for (int i = 0; i < BLOCK; i += VN) {
            largest = v_max(largest, v_abs(v_load(x + i)));
            poison = v_fma(v_load(x + i), v_zero(), poison);
        }
        float top = v_hmax(largest), inverse = top > 1e-30f ? 127 / top : 0;
        if (v_sum(poison) != 0) { /* a NaN or an infinity must show in the product */
            memset(q, 0, BLOCK);
            scale[block] = NAN;
            sum[block] = 0;
            continue;
        }
        for (int i = 0; i < BLOCK; i += VN) {
            vi_store(one, v_to_i32(v_mul(v_load(x + i), v_set1(inverse))));
            for (int j = 0; j < VN; j++) {
                q[i + j] = (int8_t)one[j];
                total += one[j];
            }
        }
        scale[block] = inverse > 0 ? top / 127 : 0;
        sum[block] = total;
    }
}

/* One panel: the scales of 16 rows' blocks, then their bytes four by four, `flip` applied to each word of four; `none` where there is no row. */
static void pack(const unsigned char *w, size_t ldw, int64_t n, int64_t k, unsigned char *out, int block_bytes, uint32_t flip, uint32_t none)
{
    int words = (block_bytes - 2) / 4;
    for (int64_t block = 0; block < k / BLOCK; block++) {
        for (int64_t r = 0; r < PANEL; r++) {
            const unsigned char *in = w + (size_t)r * ldw + (size_t)block * (size_t)block_bytes;
            uint16_t scale = 0;
            if (r < n) memcpy(&scale, in, 2);
            memcpy(out + r * 2, &scale, 2);
            for (int i = 0; i < words; i++) {
                uint32_t word = none;
                if (r < n) memcpy(&word, in + 2 + i * 4, 4);
                word ^= r < n ? flip : 0;
                memcpy(out + SCALES + (i * PANEL + r) * 4, &word, 4);
            }
        }
        out += SCALES + words * PANEL * 4;
    }
}

#if VN == 16
/* The same for 16 rows in registers: 8 words of rows r and r + 8, then 4 × 4 words in each quarter, then the quarters. */
static void pack_16_q8_0(const unsigned char *w, size_t ldw, int64_t k, unsigned char *out)
{
    const char *next = (const char *)w + PANEL * ldw; /* the next 16 rows lie behind these */
    const __m512i even = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), odd = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    for (int64_t block = 0; block < k / BLOCK; block++, w += Q8_0_BYTES, out += SCALES + BLOCK * PANEL) {
        __m512i r[8], t[8];
        for (int i = 0; i < Q8_0_BYTES * PANEL; i += 64) _mm_prefetch(next + i, _MM_HINT_T1);
        next += Q8_0_BYTES * PANEL;
        for (int i = 0; i < PANEL; i++) memcpy(out + i * 2, w + (size_t)i * ldw, 2);
        LLM_UNROLL
        for (int i = 0; i < 8; i++) {
            __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(w + (size_t)i * ldw + 2));
            __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(w + (size_t)(i + 8) * ldw + 2));
            t[i] = _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), _mm512_set1_epi8(-128));
        }
        LLM_UNROLL
        for (int i = 0; i < 8; i += 2) {
            r[i] = _mm512_unpacklo_epi32(t[i], t[i + 1]);
            r[i + 1] = _mm512_unpackhi_epi32(t[i], t[i + 1]);
        }
        LLM_UNROLL
        for (int i = 0; i < 8; i += 4) {
            t[i] = _mm512_unpacklo_epi64(r[i], r[i + 2]);
            t[i + 1] = _mm512_unpackhi_epi64(r[i], r[i + 2]);
            t[i + 2] = _mm512_unpacklo_epi64(r[i + 1], r[i + 3]);
            t[i + 3] = _mm512_unpackhi_epi64(r[i + 1], r[i + 3]);
        }
        LLM_UNROLL
        for (int i = 0; i < 4; i++) {
            _mm512_storeu_si512(out + SCALES + i * 64, _mm512_permutex2var_epi64(t[i], even, t[i + 4]));
            _mm512_storeu_si512(out + SCALES + (i + 4) * 64, _mm512_permutex2var_epi64(t[i], odd, t[i + 4]));
        }
    }
}

static void pack_16_q4_0(const unsigned char *w, size_t ldw, int64_t k, unsigned char *out)
{
    const char *next = (const char *)w + PANEL * ldw;
    for (int64_t block = 0; block < k / BLOCK; block++, w += Q4_0_BYTES, out += SCALES + BLOCK * PANEL / 2) {
        __m512i r[4], t[4];
        for (int i = 0; i < Q4_0_BYTES * PANEL; i += 64) _mm_prefetch(next + i, _MM_HINT_T1);
        next += Q4_0_BYTES * PANEL;
        for (int i = 0; i < PANEL; i++) memcpy(out + i * 2, w + (size_t)i * ldw, 2);
        LLM_UNROLL
        for (int i = 0; i < 4; i++) { /* rows i, i + 4, i + 8, i + 12 */
            const unsigned char *in = w + (size_t)i * ldw + 2;
            t[i] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)in));
            t[i] = _mm512_inserti32x4(t[i], _mm_loadu_si128((const __m128i *)(const void *)(in + 4 * ldw)), 1);
            t[i] = _mm512_inserti32x4(t[i], _mm_loadu_si128((const __m128i *)(const void *)(in + 8 * ldw)), 2);
            t[i] = _mm512_inserti32x4(t[i], _mm_loadu_si128((const __m128i *)(const void *)(in + 12 * ldw)), 3);
        }
        r[0] = _mm512_unpacklo_epi32(t[0], t[1]);
        r[1] = _mm512_unpackhi_epi32(t[0], t[1]);
        r[2] = _mm512_unpacklo_epi32(t[2], t[3]);
        r[3] = _mm512_unpackhi_epi32(t[2], t[3]);
        _mm512_storeu_si512(out + SCALES, _mm512_unpacklo_epi64(r[0], r[2]));
        _mm512_storeu_si512(out + SCALES + 64, _mm512_unpackhi_epi64(r[0], r[2]));
        _mm512_storeu_si512(out + SCALES + 128, _mm512_unpacklo_epi64(r[1], r[3]));
        _mm512_storeu_si512(out + SCALES + 192, _mm512_unpackhi_epi64(r[1], r[3]));
    }
}
#else
static void pack_16_q8_0(const unsigned char *w, size_t ldw, int64_t k, unsigned char *out)
{
    pack(w, ldw, PANEL, k, out, Q8_0_BYTES, 0x80808080u, 0);
}

static void pack_16_q4_0(const unsigned char *w, size_t ldw, int64_t k, unsigned char *out)
{
    pack(w, ldw, PANEL, k, out, Q4_0_BYTES, 0, 0);
}
#endif

static void pack_q8_0(const void *w, size_t ldw, int64_t n, int64_t k, void *panel)
{
    if (n == PANEL) pack_16_q8_0(w, ldw, k, panel);
    else pack(w, ldw, n, k, panel, Q8_0_BYTES, 0x80808080u, 0x80808080u);
}

static void pack_q4_0(const void *w, size_t ldw, int64_t n, int64_t k, void *panel)
{
    if (n == PANEL) pack_16_q4_0(w, ldw, k, panel);
    else pack(w, ldw, n, k, panel, Q4_0_BYTES, 0, 0x88888888u);
}

/* sum += dots of VN words of four unsigned bytes with four signed ones. */
#if defined LLM_ISA_avx512bf16
static inline VI dot4(VI sum, VI w, VI x) { return _mm512_dpbusd_epi32(sum, w, x); }
#elif defined LLM_ISA_avx512
static inline VI dot4(VI sum, VI w, VI x)
{
    VI even = _mm512_and_si512(w, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(w, 8);
    VI x_even = _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8), x_odd = _mm512_srai_epi16(x, 8);
    return vi_add(sum, vi_add(_mm512_madd_epi16(even, x_even), _mm512_madd_epi16(odd, x_odd)));
}
#elif defined LLM_ISA_avx2
static inline VI dot4(VI sum, VI w, VI x)
{
    VI even = _mm256_and_si256(w, _mm256_set1_epi16(255)), odd = _mm256_srli_epi16(w, 8);
    VI x_even = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8), x_odd = _mm256_srai_epi16(x, 8);
    return vi_add(sum, vi_add(_mm256_madd_epi16(even, x_even), _mm256_madd_epi16(odd, x_odd)));
}
#elif defined LLM_ISA_neon
static inline VI dot4(VI sum, VI w, VI x)
{
    int8x16_t xs = vreinterpretq_s8_s32(x), ws = veorq_s8(vreinterpretq_s8_s32(w), vdupq_n_s8(-128)); /* w - 128 */
    sum = vdotq_s32(sum, ws, xs);
    return vdotq_s32(vdotq_s32(sum, xs, vdupq_n_s8(64)), xs, vdupq_n_s8(64));
}
#else
static inline VI dot4(VI sum, VI w, VI x)
{
    int32_t a[VN], b[VN], s[VN];
    vi_store(a, w);
    vi_store(b, x);
    vi_store(s, sum);
    for (int j = 0; j < VN; j++)
        for (int i = 0; i < 32; i += 8) s[j] += (int32_t)((uint32_t)a[j] >> i & 255) * (int8_t)((uint32_t)b[j] >> i & 255);
    return vi_load(s);
}
#endif

#if VN == 16
enum { ROWS = 8 };
#else
enum { ROWS = 2 };
#endif

/* `rows` rows of one panel of columns. */
static inline __attribute__((always_inline)) void tile(const struct llm_gemm_q_job *g, int64_t row, int64_t column, const int rows,
                                                       const bool four_bits)
{
    const int words = four_bits ? 4 : 8;
    const size_t block_bytes = SCALES + (size_t)words * PANEL * 4;
    int64_t blocks = g->k / BLOCK;
    const unsigned char *b = (const unsigned char *)g->b + (size_t)(column / PANEL) * (size_t)blocks * block_bytes;
    V sum[ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sum[r][v] = v_zero();
    for (int64_t block = 0; block < blocks; block++, b += block_bytes) {
        __builtin_prefetch(b + 4096);
        __builtin_prefetch(b + 4096 + 64 * 4);
        for (int v = 0; v < VECTORS; v++) {
            VI w[8];
            V scale = v_load_f16((const uint16_t *)(const void *)b + v * VN);
            LLM_UNROLL
            for (int i = 0; i < words; i++) {
                w[i] = vi_load((const int32_t *)(const void *)(b + SCALES) + i * PANEL + v * VN);
                if (four_bits) {
                    w[i + 4] = vi_and(vi_shr(w[i], 4), vi_set1(0x0f0f0f0f));
                    w[i] = vi_and(w[i], vi_set1(0x0f0f0f0f));
                }
            }
            LLM_UNROLL
            for (int r = 0; r < rows; r++) {
                int64_t at = (row + r) * blocks + block;
                VI sum_q = vi_set1(g->sum[at]); /* the bytes of w are 8 or 128 too large */
                VI dot = vi_sub(vi_set1(0), four_bits ? vi_shl(sum_q, 3) : vi_shl(sum_q, 7));
                LLM_UNROLL
                for (int i = 0; i < 8; i++) {
                    int32_t x;
                    memcpy(&x, g->q + at * BLOCK + i * 4, 4);
                    dot = dot4(dot, w[i], vi_set1(x));
                }
                sum[r][v] = v_fma(v_from_i32(dot), v_mul(scale, v_set1(g->scale[at])), sum[r][v]);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS && column + v * VN < g->n; v++) {
            float *c = g->c + (row + r) * g->ldc + column + v * VN;
            size_t left = (size_t)(g->n - column - v * VN);
            V s = g->add ? v_add(v_load_n(c, left), sum[r][v]) : sum[r][v];
            if (g->bias) s = v_add(s, v_load_n(g->bias + column + v * VN, left));
            v_store_n(c, s, left);
        }
}

static inline __attribute__((always_inline)) void multiply(const struct llm_gemm_q_job *g, const bool four_bits)
{
    for (int64_t column = 0; column < g->n; column += PANEL) {
        int64_t row = 0;
        for (; row + ROWS <= g->m; row += ROWS) tile(g, row, column, ROWS, four_bits);
        for (; row < g->m; row++) tile(g, row, column, 1, four_bits);
    }
}

static void multiply_q8_0(const struct llm_gemm_q_job *g) { multiply(g, false); }
static void multiply_q4_0(const struct llm_gemm_q_job *g) { multiply(g, true); }

static double peak_int8(int64_t iterations)
{
    VI sum[12];
    for (int j = 0; j < 12; j++) sum[j] = vi_set1(j);
    for (int64_t i = 0; i < iterations; i++) {
        LLM_UNROLL
        for (int j = 0; j < 12; j++) sum[j] = dot4(sum[j], sum[(j + 1) % 12], vi_set1(0x01020304));
    }
    int32_t out[VN];
    VI all = vi_set1(0);
    for (int j = 0; j < 12; j++) all = vi_add(all, sum[j]);
    vi_store(out, all);
    volatile int32_t keep = out[0];
    (void)keep;
    return (double)iterations * 12 * VN * 8;
}

void KERNEL(llm_fill_gemm_quantised)(struct llm_kernels *k)
{
    k->gemm.q8_0 = (struct llm_gemm_q){.block_bytes = SCALES + BLOCK * PANEL, .pack = pack_q8_0, .multiply = multiply_q8_0};
    k->gemm.q4_0 = (struct llm_gemm_q){.block_bytes = SCALES + BLOCK * PANEL / 2, .pack = pack_q4_0, .multiply = multiply_q4_0};
    k->gemm.quantise = quantise;
    k->gemm.peak_int8 = peak_int8;
}
