/* Products of packed operands: c[m, n] = a[m, k] · b[k, n].
 *
 * `a` stands in panels of 16 rows, `b` in panels of 16 columns, k padded with zeros to a multiple of `k_unit`; each panel takes
 * 16 · padded k elements. What is inside a panel is the business of the instruction set, but all functions of one struct llm_gemm agree:
 *   F32 in all of them, and BF16 where there is no BF16 dot product (operands rounded to BF16, kept as F32):
 *        a [16 rows][k] f32, b [k][16 columns] f32; k in blocks of 512, each summed from zero in order by FMA and added in order
 *   BF16 with a dot product (avx512bf16, amx):
 *        a [k/32][16 rows][32] bf16, b [k/2][16 columns][2] bf16; pairs of k in order into one FP32 sum
 * The order of summation of an element depends on k alone, and not on where in which panel it is. */
#ifndef LLM_CPU_KERNELS_GEMM_H
#define LLM_CPU_KERNELS_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LLM_GEMM_PANEL 16

/* One product. `a`: panels, or where the struct llm_gemm says `direct`, plain rows with `lda` elements from one to the next. */
struct llm_gemm_job {
    const void *a;
    int64_t lda;
    const void *b;
    int64_t m, n, k;   /* k unpadded */
    float *c;
    int64_t ldc;
    const float *bias; /* [n] or NULL: added last */
    bool add;          /* c += the sum from zero; else c = the sum */
};

struct llm_gemm {
    int k_unit;
    int element;       /* bytes of an element in a panel */
    bool direct;       /* a may be plain rows of floats */
    /* One panel of a: rows (at most 16) of k floats, ldx elements from one to the next. Rows that are not there are left as they are. */
    void (*pack_a)(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel);
    /* The same from the transposed matrix: element (row, i) is x[i · ldx + row]. */
    void (*pack_a_transposed)(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel);
    /* One panel of b from n rows of w (at most 16; the other columns become zero): element (i, column) is w[column · ldw + i]. */
    void (*pack_b)(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel);
    void (*pack_b_bf16)(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel);
    /* The same from the transposed matrix: element (i, column) is w[i · ldw + column]. */
    void (*pack_b_transposed)(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel);
    void (*pack_b_bf16_transposed)(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel);
    void (*multiply)(const struct llm_gemm_job *job);
};

/* Block-quantised weights: activations as int8 in blocks of 32 with an FP32 scale, weights as they are, dots of a block exact in int32, blocks
 * added in order: sum = fma(dot, weight scale · activation scale, sum).
 *
 * Activations of a row: `q` [k] int8, `scale` [k / 32], `sum` [k / 32] (of the q of the block).
 * Weights: panels of 16 rows of w; for each block of 32 k: 16 scales (f16), then [32 / 4][16 rows][4] bytes of w + 128 for 8-bit types,
 * [16 / 4][16 rows][4] bytes for 4-bit ones (value + 8; low nibbles: the first 16 k, high: the others). */
struct llm_gemm_q_job {
    const int8_t *q;      /* [m][k] */
    const float *scale;   /* [m][k / 32] */
    const int32_t *sum;   /* [m][k / 32] */
    const void *b;        /* panels */
    int64_t m, n, k;
    float *c;
    int64_t ldc;
    const float *bias;
    bool add;
};

struct llm_gemm_q {
    size_t block_bytes; /* of 16 rows × 32 k in a panel */
    /* One panel from n rows (at most 16; others become zero) of ldw bytes each. */
    void (*pack)(const void *w, size_t ldw, int64_t n, int64_t k, void *panel);
    void (*multiply)(const struct llm_gemm_q_job *job);
};

struct llm_gemm_kernels {
    struct llm_gemm f32, bf16;
    struct llm_gemm_q q8_0, q4_0;
    /* k floats, a multiple of 32, to int8: scale = max |x| / 127, q to nearest even. */
    void (*quantise)(const float *x, int64_t k, int8_t *q, float *scale, int32_t *sum);
    /* Loops of independent instructions of the product's kind for `iterations`; the operations done. NULL: there is no such unit. */
    double (*peak_f32)(int64_t iterations);
    double (*peak_bf16)(int64_t iterations);
    double (*peak_int8)(int64_t iterations);
    /* Reads `bytes` (a multiple of 256) as a decoding product does, front to back; returns something that depends on all of them. */
    float (*read)(const void *p, size_t bytes);
};

#endif
