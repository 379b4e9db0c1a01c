/* BF16 products by BFMMLA, which adds to a 2 × 2 block of sums the products of two rows and two columns of four BF16 numbers. Panels of a and of b
 * are alike: [k / 4][16 rows or columns][4], k padded with zeros. Four k at a time, in order, into one FP32 sum; subnormals count as zero. */
#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

#define PANEL LLM_GEMM_PANEL
#define UNIT 4
#define BLOCK (PANEL * UNIT) /* numbers of four k */
enum { ROWS = 8, COLUMNS = 8 };

static int64_t padded(int64_t k) { return (k + UNIT - 1) / UNIT * UNIT; }

/* The first `left` of four numbers, zeros where there are none. */
static inline uint16x4_t some(const float *x, int64_t left)
{
    return left > 0 ? v_narrow_bf16_(v_load_n(x, (size_t)left)) : vdup_n_u16(0);
}

static inline uint16x4_t some_bf16(const uint16_t *x, int64_t left)
{
    return left > 0 ? v_load16_n_(x, (size_t)left) : vdup_n_u16(0);
}

static inline void transpose(uint16x4_t r[UNIT])
{
    uint16x4x2_t low = vtrn_u16(r[0], r[1]), high = vtrn_u16(r[2], r[3]);
    for (int i = 0; i < 2; i++) {
        uint32x2x2_t both = vtrn_u32(vreinterpret_u32_u16(low.val[i]), vreinterpret_u32_u16(high.val[i]));
        r[i] = vreinterpret_u16_u32(both.val[0]);
        r[i + 2] = vreinterpret_u16_u32(both.val[1]);
    }
}

/* Lines of k numbers, `line` apart, of which there are `lines`; those up to `all` become zero. */
#define PACKERS(suffix, type, load)                                                                                               \
    static inline void pack##suffix(const type *x, int64_t line, int64_t lines, int64_t all, int64_t k, uint16_t *out)            \
    {                                                                                                                             \
        for (int64_t i = 0; i < k; i += UNIT, out += BLOCK) {                                                                     \
            for (int64_t l = 0; l < all; l++) vst1_u16(out + l * UNIT, l < lines ? load(x + l * line + i, k - i) : vdup_n_u16(0)); \
        }                                                                                                                         \
    }                                                                                                                             \
    /* The same from the transposed matrix: number i of line l is x[i · ldx + l]. */                                              \
    static inline void pack_transposed##suffix(const type *x, int64_t ldx, int64_t lines, int64_t all, int64_t k, uint16_t *out)  \
    {                                                                                                                             \
        for (int64_t i = 0; i < k; i += UNIT, out += BLOCK) {                                                                     \
            for (int64_t l = 0; l < all; l += UNIT) {                                                                             \
                uint16x4_t r[UNIT];                                                                                               \
                for (int j = 0; j < UNIT; j++) r[j] = i + j < k ? load(x + (i + j) * ldx + l, lines - l) : vdup_n_u16(0);         \
                transpose(r);                                                                                                     \
                for (int64_t j = 0; j < UNIT && l + j < all; j++) vst1_u16(out + (l + j) * UNIT, r[j]);                           \
            }                                                                                                                     \
        }                                                                                                                         \
    }
PACKERS(, float, some)
PACKERS(_bf16, uint16_t, some_bf16)

static void pack_a(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel) { pack(x, ldx, rows, rows, k, panel); }
static void pack_a_transposed(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel) { pack_transposed(x, ldx, rows, rows, k, panel); }
static void pack_b(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel) { pack(w, ldw, n, PANEL, k, panel); }
static void pack_b_bf16(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel) { pack_bf16(w, ldw, n, PANEL, k, panel); }
static void pack_b_transposed(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel) { pack_transposed(w, ldw, n, PANEL, k, panel); }

static void pack_b_bf16_transposed(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    pack_transposed_bf16(w, ldw, n, PANEL, k, panel);
}

static void pack_b_from_a(const void *panels, int64_t width, int64_t row, int64_t k, int64_t column, void *panel)
{
    const uint16_t *in = panels;
    uint16_t *out = panel;
    for (int64_t i = 0; i < k; i += UNIT, out += BLOCK) {
        for (int64_t l = 0; l < PANEL; l += UNIT) {
            uint16x4_t r[UNIT];
            for (int64_t j = 0; j < UNIT; j++) {
                const int64_t from = row + i + j;
                const uint16_t *at = in + from / PANEL * padded(width) * PANEL + (column + l) / UNIT * BLOCK + from % PANEL * UNIT;
                r[j] = i + j < k && column + l < width ? vld1_u16(at) : vdup_n_u16(0);
            }
            transpose(r);
            for (int j = 0; j < UNIT; j++) vst1_u16(out + (l + j) * UNIT, r[j]);
        }
    }
}

static inline bfloat16x8_t load(const uint16_t *p) { return vreinterpretq_bf16_u16(vld1q_u16(p)); }

/* Row `row` of c, from `column` on. */
static inline void put(const struct llm_gemm_job *g, int64_t row, int64_t column, V s)
{
    if (row >= g->m || column >= g->n) return;
    float *c = g->c + row * g->ldc + column;
    size_t left = (size_t)(g->n - column);
    if (g->bias) s = v_add(s, v_load_n(g->bias + column, left));
    if (g->add) s = v_add(v_load_n(c, left), s);
    v_store_n(c, s, left);
}

/* ROWS rows by COLUMNS columns, which may be more than there are: panels are whole. */
static inline void tile(const struct llm_gemm_job *g, int64_t row, int64_t column)
{
    const uint16_t *a = (const uint16_t *)g->a + row / PANEL * padded(g->k) * PANEL + row % PANEL * UNIT;
    const uint16_t *b = (const uint16_t *)g->b + column / PANEL * padded(g->k) * PANEL + column % PANEL * UNIT;
    V sum[ROWS / 2][COLUMNS / 2];
    LLM_UNROLL
    for (int r = 0; r < ROWS / 2; r++) {
        LLM_UNROLL
        for (int j = 0; j < COLUMNS / 2; j++) sum[r][j] = v_zero();
    }
    for (int64_t i = 0; i < g->k; i += UNIT, a += BLOCK, b += BLOCK) {
        bfloat16x8_t x[ROWS / 2], w[COLUMNS / 2];
        LLM_UNROLL
        for (int r = 0; r < ROWS / 2; r++) x[r] = load(a + r * 2 * UNIT);
        LLM_UNROLL
        for (int j = 0; j < COLUMNS / 2; j++) w[j] = load(b + j * 2 * UNIT);
        LLM_UNROLL
        for (int r = 0; r < ROWS / 2; r++) {
            LLM_UNROLL
            for (int j = 0; j < COLUMNS / 2; j++) sum[r][j] = vbfmmlaq_f32(sum[r][j], x[r], w[j]);
        }
    }
    LLM_UNROLL
    for (int r = 0; r < ROWS / 2; r++) {
        LLM_UNROLL
        for (int j = 0; j < COLUMNS / 2; j += 2) {
            float64x2_t left = vreinterpretq_f64_f32(sum[r][j]), right = vreinterpretq_f64_f32(sum[r][j + 1]);
            put(g, row + 2 * r, column + 2 * j, vreinterpretq_f32_f64(vzip1q_f64(left, right)));
            put(g, row + 2 * r + 1, column + 2 * j, vreinterpretq_f32_f64(vzip2q_f64(left, right)));
        }
    }
}

static void multiply(const struct llm_gemm_job *g)
{
    for (int64_t column = 0; column < g->n; column += COLUMNS)
        for (int64_t row = 0; row < g->m; row += ROWS) tile(g, row, column);
}

static double peak_bf16(int64_t iterations)
{
    enum { CHAINS = 16 };
    V sum[CHAINS];
    LLM_UNROLL
    for (int j = 0; j < CHAINS; j++) sum[j] = v_set1((float)j);
    bfloat16x8_t a = vreinterpretq_bf16_u16(vdupq_n_u16(0x3f00));
    for (int64_t i = 0; i < iterations; i++) {
        LLM_UNROLL
        for (int j = 0; j < CHAINS; j++) {
            sum[j] = vbfmmlaq_f32(sum[j], a, a);
            __asm__ volatile("" : "+w"(sum[j]));
        }
    }
    V all = v_zero();
    LLM_UNROLL
    for (int j = 0; j < CHAINS; j++) all = v_add(all, sum[j]);
    volatile float keep = v_sum(all);
    (void)keep;
    return (double)iterations * CHAINS * 4 * UNIT * 2;
}

void llm_fill_gemm_i8mm(struct llm_kernels *k)
{
    k->gemm.bf16 = (struct llm_gemm){.k_unit = UNIT, .element = 2, .pack_a = pack_a, .pack_a_transposed = pack_a_transposed, .pack_b = pack_b,
                                     .pack_b_bf16 = pack_b_bf16, .pack_b_transposed = pack_b_transposed,
                                     .pack_b_bf16_transposed = pack_b_bf16_transposed, .pack_b_from_a = pack_b_from_a, .multiply = multiply};
    k->gemm.pack_fours = NULL; /* whose sums have another order */
    k->gemm.multiply_fours = NULL;
    k->gemm.peak_bf16 = peak_bf16;
    llm_fill_gemm_int8_i8mm(k);
}
