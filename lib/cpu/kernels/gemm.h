/* Products of packed operands: c[m, n] = a[m, k] · b[k, n].
 *
 * `a` is packed in panels of 16 rows, `b` in panels of 16 columns, k padded with zeros to a multiple of `k_unit`; each panel takes
 * 16 · padded k elements. The layout inside a panel depends on the instruction set, but all functions of one struct llm_gemm use the same one:
 *   F32 in all of them, and BF16 where there is no BF16 dot product (operands rounded to BF16, kept as F32):
 *        a [16 rows][k] f32, b [k][16 columns] f32; k in blocks of 768, each summed from zero in order by FMA and added in order
 *   BF16 with a dot product (avx512bf16, amx):
 *        a [k/32][16 rows][32] bf16, b [k/2][16 columns][2] bf16; pairs of k in order into one FP32 sum
 *   BF16X3 (amx alone), in those layouts:
 *        a [k/32][high, low][16 rows][32] bf16, b [k/32][high, low][16][16 columns][2] bf16; of each 32 k the pairs of high·low, high·high
 *        and low·high in this order into one FP32 sum
 *   BF16 with a matrix product (i8mm)
 *        a [k/4][16 rows][4] bf16, b [k/4][16 columns][4] bf16; four k in order into one FP32 sum
 * The order of summation of an element depends on k alone, and not on where in which panel it is. */
#ifndef LLM_CPU_KERNELS_GEMM_H
#define LLM_CPU_KERNELS_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cpu/dtype.h"

#define LLM_GEMM_PANEL 16

/* One product. `a`: panels, or where the struct llm_gemm says `direct` or `rounds`, plain floats: rows with `lda` elements from one to the next, or,
 * `transposed`, columns of so many: element (row, i) is a[i · lda + row]. */
struct llm_gemm_job {
    const void *a;
    int64_t lda;
    const void *b;
    int64_t m, n, k;   /* k unpadded */
    float *c;
    int64_t ldc;
    const float *bias; /* [n] or NULL: added last */
    bool add;          /* c += the sum from zero; else c = the sum */
    bool round;        /* `a` is plain floats, which are rounded to BF16 first (llm_gemm.rounds) */
    bool transposed;
};

/* A gradient, one of whose sides has few lines: c[line · of_line + column · of_column] += Σ narrow[t][line] · wide[t][column] over the tokens of one
 * block, from zero, in order. */
struct llm_gemm_narrow_job {
    const float *narrow, *wide; /* [tokens, lines], [tokens, columns]; rounded to BF16 by products of BF16 */
    int64_t ld_narrow, ld_wide, lines, columns, tokens; /* at most LLM_GEMM_NARROW_COLUMNS columns, 256 tokens */
    float *c;
    int64_t of_line, of_column;
};
#define LLM_GEMM_NARROW 16 /* more lines than these are worth packing */
#define LLM_GEMM_NARROW_COLUMNS 64

struct llm_gemm {
    int k_unit;
    int element;       /* bytes of an element in a panel */
    bool direct;       /* a may be plain floats */
    bool rounds;       /* a may be plain floats that the product rounds, which is worth it for few columns, and for transposed ones */
    /* One panel of a: rows (at most 16) of k floats, ldx elements from one to the next. Panel rows from `rows` on are not written. */
    void (*pack_a)(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel);
    /* As pack_a, from the transposed matrix: element (row, i) is x[i · ldx + row]. NULL: `multiply`
     * reads such a matrix as it is (llm_gemm_job.transposed). */
    void (*pack_a_transposed)(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel);
    /* One panel of b from n rows of w (at most 16; the other columns become zero): element (i, column) is w[column · ldw + i]. */
    void (*pack_b)(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel);
    void (*pack_b_bf16)(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel);
    /* As pack_b, from the transposed matrix: element (i, column) is w[i · ldw + column]. */
    void (*pack_b_transposed)(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel);
    void (*pack_b_bf16_transposed)(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel);
    /* As pack_b_transposed of columns [column, column + 16) of rows [row, row + k) of a matrix [*, width] that stands packed in panels of a; `column`
     * is a multiple of 16. NULL where panels hold floats. */
    void (*pack_b_from_a)(const void *panels, int64_t width, int64_t row, int64_t k, int64_t column, void *panel);
    void (*multiply)(const struct llm_gemm_job *job);
    void (*multiply_narrow)(const struct llm_gemm_narrow_job *job); /* the bits of packed operands; NULL: there is none */
};

/* Block-quantised weights, every type that lib/cpu/dtype decodes. Activations are int8 in groups of 32 with an FP32 scale xs; weights are as they
 * are in the file. For each group in order of k, with q the activations' integers, w the weights' integers and dots exact in int32:
 *
 *   Q8_0 Q4_0 Q5_0 Q8_K IQ4_NL IQ4_XS MXFP4   sum = fma(q·w, ws·xs, sum)
 *   Q4_1 Q5_1 Q4_K Q5_K                       that, then sum = fma(least, xs·Σq, sum)
 *   Q3_K Q6_K                                 sum = fma(s₀ (q·w)₀ + s₁ (q·w)₁, ws·xs, sum), halves of the group with integer scales s
 *   Q2_K                                      that, then sum = fma(least₀, xs·(Σq)₀, sum), sum = fma(least₁, xs·(Σq)₁, sum)
 *
 * ws is the group's scale: d, or d·s where a super-block has an integer scale s for each group; of the types with scales of halves: d. `least` is
 * the offset added to each value: m for Q4_1 and Q5_1, else -(dmin·m). A group with a NaN or an infinity has xs = NaN. */

/* Activations, quantised. The numbers of `step` rows are interleaved: those of group i of row r stand at llm_gemm_q_at(k / 32, step, r, i), 32 times
 * that in q. Rows that are missing up to a multiple of `step` are zero. */
struct llm_gemm_q_x {
    int8_t *q;
    float *scale;       /* xs */
    int32_t *start[2];  /* initial values of the parts' dot products: -zero·Σq (llm_gemm_q.zero), or for 16-bit sums a pair of these */
    float *sum[2];      /* xs·Σq of the parts, or NULL */
    int64_t step;
};

/* `step` of m rows: tiles of kernels may read so many. At most LLM_GEMM_PANEL. */
static inline int64_t llm_gemm_q_step(int64_t m) { return m == 1 ? 1 : m <= 4 ? 4 : m <= 8 ? 8 : LLM_GEMM_PANEL; }
static inline int64_t llm_gemm_q_at(int64_t groups, int64_t step, int64_t row, int64_t group)
{
    return (row / step * groups + group) * step + row % step;
}

/* c = q · wᵀ, of rows whose first is a multiple of x.step. */
struct llm_gemm_q_job {
    struct llm_gemm_q_x x;
    const void *b;        /* panels of 16 rows of w */
    int64_t m, n, k;
    float *c;
    int64_t ldc;
    const float *bias;
    bool add;
};

/* A type's products. A panel takes no more bytes than 16 rows in the file: blocks one after the other, in each the fields of the type's block
 * (kernels/gemm_blocks.h), each interleaved over the 16 rows, quants by words of four bytes. */
struct llm_gemm_q {
    size_t block_bytes; /* of 16 blocks of the type in a panel */
    int zero;           /* offset of the unsigned bytes that are multiplied: they are too large by it */
    int parts;          /* of a group that have a dot of their own: 1 or 2 */
    bool least;         /* has least values */
    /* One panel from n rows (at most 16; others become zero) of ldw bytes each. */
    void (*pack)(const void *w, size_t ldw, int64_t n, int64_t k, void *panel);
    void (*multiply)(const struct llm_gemm_q_job *job);
};

#define LLM_GEMM_FOURS_ROWS 8

struct llm_gemm_kernels {
    struct llm_gemm f32, bf16, bf16x3; /* bf16x3.multiply is NULL where F32 is faster */
    struct llm_gemm_q quantised[LLM_N_DTYPES]; /* multiply is NULL for the other types */
    /* BF16 products with BF16_2OF4 weights of which at most LLM_GEMM_FOURS_ROWS rows of a are multiplied; a as bf16's, b panels of
     * LLM_GEMM_PANEL rows of w, each as many bytes as in the file. NULL: there are none, and such weights are decoded. */
    void (*pack_fours)(const void *w, size_t ldw, int64_t n, int64_t k, void *panel);
    void (*multiply_fours)(const struct llm_gemm_job *job);
    /* k floats, a multiple of 32, to int8: scale = max |x| / 127, q to nearest even; for products of `g`. */
    void (*quantise)(const float *x, int64_t k, const struct llm_gemm_q *g, const struct llm_gemm_q_x *out);
    /* Loops of independent instructions of the product's kind for `iterations`; the operations done. NULL: there is no such unit. */
    double (*peak_f32)(int64_t iterations);
    double (*peak_bf16)(int64_t iterations);
    double (*peak_int8)(int64_t iterations);
    /* The same with the instructions that a product needs to read its operands: sums in registers, one operand broadcast from the first cache, the
     * other read from the second. NULL: there is no such loop for the product's kind. */
    double (*reading_f32)(int64_t iterations);
    double (*reading_int8)(int64_t iterations);
    /* Reads `bytes` (a multiple of 256) as a decoding product does, front to back; returns something that depends on all of them. */
    float (*read)(const void *p, size_t bytes);
};

#endif
