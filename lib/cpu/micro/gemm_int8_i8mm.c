/* Quantised products for many rows by SMMLA, which adds to a 2 × 2 block of sums the products of two rows and two columns of eight bytes. The weights
 * of a panel are opened once for all rows, to signed bytes of two columns by eight k. What follows a group's dots is that of
 * kernels/gemm_quantised.c, in the same order, so the bits are those of its products, to which fewer rows are left. */
#define OPENED_GROUPS 16
#include "cpu/kernels/gemm_opened.h"

enum { ROWS = 8, PAIRS = ROWS / 2 };

static void (*few_rows[N_KINDS])(const struct llm_gemm_q_job *);

/* Dots of `words` words from word `from` of group `at` of the opened weights, rows [r, r + ROWS) of x and vector v of the panel's columns. */
INLINE void dots_of(const struct opened *o, int64_t at, int from, const int words, int v, const int8_t *q, VI dots[ROWS])
{
    VI sum[PAIRS][2];
    LLM_UNROLL
    for (int p = 0; p < PAIRS; p++) sum[p][0] = sum[p][1] = vi_set1(0);
    LLM_UNROLL
    for (int i = 0; i < words; i += 2) {
        int8x16_t w[2];
        LLM_UNROLL
        for (int j = 0; j < 2; j++) w[j] = vreinterpretq_s8_s32(vi_load(o->w[0] + (at * GROUP / 4 + from + i + j) * PANEL + v * VN));
        LLM_UNROLL
        for (int p = 0; p < PAIRS; p++) {
            const int8_t *two = q + 2 * p * GROUP + (from + i) * 4;
            int8x16_t x = vcombine_s8(vld1_s8(two), vld1_s8(two + GROUP));
            LLM_UNROLL
            for (int j = 0; j < 2; j++) sum[p][j] = vmmlaq_s32(sum[p][j], x, w[j]);
        }
    }
    LLM_UNROLL
    for (int p = 0; p < PAIRS; p++) {
        int64x2_t left = vreinterpretq_s64_s32(sum[p][0]), right = vreinterpretq_s64_s32(sum[p][1]);
        dots[2 * p] = vreinterpretq_s32_s64(vzip1q_s64(left, right));
        dots[2 * p + 1] = vreinterpretq_s32_s64(vzip2q_s64(left, right));
    }
}

/* Group `at` of the opened ones on to the sums of ROWS rows by one vector of columns; x_at: of the first row's numbers of it. */
INLINE void add_group(const struct llm_gemm_q_x *x, int64_t x_at, const struct kind *k, const struct opened *o, int64_t at, int v, V sum[ROWS])
{
    const int words = k->parts == 2 ? 4 : 8;
    const bool wide = k->top > 127; /* such bytes are signed, and need no start */
    const int8_t *q = x->q + x_at * GROUP;
    VI dots[ROWS], second[ROWS];
    V scale = v_load(o->scale[at] + v * VN);
    dots_of(o, at, 0, words, v, q, dots);
    if (k->parts == 2) dots_of(o, at, 4, 4, v, q, second);
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++) {
        V dot = v_from_i32(wide ? dots[r] : vi_add(dots[r], vi_set1(x->start[0][x_at + r])));
        if (k->parts == 2) {
            V other = v_from_i32(vi_add(second[r], vi_set1(x->start[1][x_at + r])));
            dot = v_fma(dot, v_load(o->part[at][0] + v * VN), v_mul(other, v_load(o->part[at][1] + v * VN)));
        }
        sum[r] = v_fma(dot, v_mul(scale, v_set1(x->scale[x_at + r])), sum[r]);
        for (int part = 0; k->least && part < k->parts; part++)
            sum[r] = v_fma(v_load(o->least[at][part] + v * VN), v_set1(x->sum[part][x_at + r]), sum[r]);
    }
}

/* ROWS rows by vector v of a panel's columns and the opened groups, of which `from` is the first. */
INLINE void tile(const struct llm_gemm_q_job *g, int64_t row, int64_t column, int v, const struct kind *k, const struct opened *o, int64_t from,
                 int64_t groups, float (*sums)[PANEL])
{
    const int64_t all = g->k / GROUP;
    int64_t x_at = row / PANEL * PANEL * all + row % PANEL + from * PANEL;
    V sum[ROWS];
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++) sum[r] = from ? v_load(sums[row + r] + v * VN) : v_zero();
    for (int64_t at = 0; at < groups; at++, x_at += PANEL) add_group(&g->x, x_at, k, o, at, v, sum);
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++) {
        if (from + groups < all) v_store(sums[row + r] + v * VN, sum[r]);
        else if (row + r < g->m && column + v * VN < g->n) put_row(g, row + r, column + v * VN, sum[r]);
    }
}

INLINE void multiply(const struct llm_gemm_q_job *g, const int i)
{
    const struct kind *k = &kinds[i];
    const int64_t groups = g->k / GROUP, blocks = groups / k->groups, step = OPENED_GROUPS / k->groups, block_bytes = k->bytes * PANEL;
    struct opened o;
    float sums[OPENED_ROWS][PANEL];
    if (g->x.step != PANEL || g->m > OPENED_ROWS || g->k == 0) {
        few_rows[i](g);
        return;
    }
    for (int64_t column = 0; column < g->n; column += PANEL) {
        const unsigned char *b = (const unsigned char *)g->b + column / PANEL * blocks * block_bytes;
        for (int64_t from = 0; from < blocks; from += step, b += step * block_bytes) {
            int64_t here = blocks - from < step ? blocks - from : step;
            open_panel(k, b, here, b + here * block_bytes, &o);
            for (int64_t row = 0; row < g->m; row += ROWS)
                for (int v = 0; v < VECTORS; v++) tile(g, row, column, v, k, &o, from * k->groups, here * k->groups, sums);
        }
    }
}

#define KIND(ID, name, ...) static void multiply_##name(const struct llm_gemm_q_job *g) { multiply(g, KIND_##name); }
LLM_QUANTISED_KINDS(KIND)

static double peak_int8(int64_t iterations)
{
    enum { CHAINS = 16 };
    VI sum[CHAINS];
    int8x16_t a = vdupq_n_s8(1);
    LLM_UNROLL
    for (int j = 0; j < CHAINS; j++) sum[j] = vi_set1(j);
    for (int64_t i = 0; i < iterations; i++) {
        LLM_UNROLL
        for (int j = 0; j < CHAINS; j++) {
            sum[j] = vmmlaq_s32(sum[j], a, a);
            __asm__ volatile("" : "+w"(sum[j]));
        }
    }
    VI all = vi_set1(0);
    LLM_UNROLL
    for (int j = 0; j < CHAINS; j++) all = vi_add(all, sum[j]);
    volatile int32_t keep = vi_sum(all);
    (void)keep;
    return (double)iterations * CHAINS * 4 * 8 * 2;
}

#define FILL(ID, name, ...)                                       \
    few_rows[KIND_##name] = k->gemm.quantised[LLM_##ID].multiply; \
    k->gemm.quantised[LLM_##ID].multiply = multiply_##name;

void llm_fill_gemm_int8_i8mm(struct llm_kernels *k)
{
    LLM_QUANTISED_KINDS(FILL)
    k->gemm.peak_int8 = peak_int8;
    k->gemm.reading_int8 = NULL; /* that of single dots is no limit of these */
}
