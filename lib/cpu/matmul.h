/* Matrix products over all threads, in the canonical order (lib/README.md, Canonical order): the order in which an output element's terms are added
 * depends on K, the dtypes and the instruction set alone, never on M, N, threads or batch. So a token's row has the same bits alone (decoding), in a
 * prompt (prefill) and in a batch.
 *
 * Compute types: F32 (all operands F32, FMA), BF16 (operands rounded to BF16 to nearest even, FP32 accumulation), BF16X3 (each F32 operand is the sum
 * of two BF16 numbers, high + low; high·low, high·high and low·high are added in FP32: XLA's BF16_BF16_F32_X3, about 2⁻¹⁶ of a term from F32), and
 * int8 for block-quantised weights (activations quantised per block of 32, integer dots, FP32 across blocks). BF16X3 is for AMX, whose tiles multiply
 * BF16 more than three times as fast as vectors multiply F32; on other instruction sets it computes as F32. Operands of BF16X3 that are infinite give
 * NaN. */
#ifndef LLM_CPU_MATMUL_H
#define LLM_CPU_MATMUL_H

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "cpu/dtype.h"

enum llm_compute { LLM_COMPUTE_F32, LLM_COMPUTE_BF16, LLM_COMPUTE_BF16X3 };
/* "f32", "bf16", "bf16x3": words of --precision by index, NULL after the last. */
const char *llm_compute_word(int i);

/* A weight matrix [n, k] as y = x·wᵀ uses it (k contiguous: the Hugging Face / PyTorch layout), with packed forms for the kernels, which are made
 * on demand and kept until the weight changes. */
struct llm_weight {
    const void *data;       /* [n, k], row after row */
    enum llm_dtype dtype;   /* F32, F16, BF16, Q8_0, Q4_0, … */
    bool rounded;           /* the F32 data represent BF16 values: readers round each element to BF16 first */
    int64_t n, k;
    /* The read-only mapping of a file that contains data; its pages are released once a packed form replaces them. NULL: data is not mapped. */
    const char *map, *map_end;
    void *packed[7];        /* forward and backward forms, owned; NULL until made; the slots are matmul.c's (cpu/matmul_internal.h) */
    size_t packed_bytes;
    int few_rows;           /* products of a few rows without a packed form: the second makes it, see llm_matmul */
    int many_rows;          /* products of more rows without a packed form, counted up to 3 */
};
/* Makes the packed form for training (once per optimizer step; forward and, if asked, dX) in memory kept across steps. Optional: without
 * it panels are packed on the fly in per-thread scratch, with the same bits. 0 or -1. */
int llm_weight_pack(struct llm_weight *w, enum llm_compute compute, bool backward, struct llm_err *e) LLM_MUST_CHECK;
/* The form of dX alone: of a weight with many outputs, whose columns fill no cache when they are packed on the fly. Of a quantised weight it is
 * as large as BF16 data. */
int llm_weight_pack_dx(struct llm_weight *w, enum llm_compute compute, struct llm_err *e) LLM_MUST_CHECK;
/* Elements [from, from + n) of the data as floats; both multiples of the block size. */
void llm_weight_decode(const struct llm_weight *w, int64_t from, int64_t n, float *out);
/* Whether the data can be read as they are, in F32. */
static inline bool llm_weight_is_f32(const struct llm_weight *w) { return w->dtype == LLM_F32 && !w->rounded; }
/* To be called after the data changed: packed forms are discarded, and made anew when they are next needed. */
void llm_weight_changed(struct llm_weight *w);
void llm_weight_release(struct llm_weight *w); /* packed forms; not data */

/* ---- activations that stand packed ----
 * Products in BF16 round x to BF16 and order it in panels before they multiply. The op that makes x can do so itself, row by row, instead of storing
 * floats: the products of x and the gradients of their weights then read the panels, with the same bits. */
/* Bytes of the panels of x [m, k], 64-byte aligned. 0: the instruction set has none, because its products read floats. */
size_t llm_panels_bytes(int64_t m, int64_t k);
/* Elements of a row that stand together in a panel. */
int64_t llm_panels_unit(void);
/* Rounds and stores x[n] as columns [from, from + n) of row number `row` of k columns. `from` is a multiple of llm_panels_unit; n is one too, or the
 * row ends there. */
void llm_panels_put(const float *x, int64_t row, int64_t from, int64_t n, int64_t k, void *panels);
/* Whether products with w in this arithmetic read panels. */
bool llm_weight_takes_panels(const struct llm_weight *w, enum llm_compute compute);

/* Part of a product that is computed: y[row + i, column + j] is y[i · ldy + j]. */
struct llm_matmul_block { int64_t row, column, m, n, ldy; const float *y; };

struct llm_matmul {
    int64_t m;                  /* rows (tokens) */
    const float *x; int64_t ldx; /* activations, row stride in elements */
    const void *panels;         /* x [m, k] packed, where llm_weight_takes_panels; x is then not read. NULL: x is. Forward only */
    float *y; int64_t ldy;
    const float *bias;          /* [n] or NULL, forward only */
    bool accumulate;            /* y += instead of y = */
    enum llm_compute compute;
    bool inference;             /* no backward pass reads the weight's data: products of more than a few rows may pack it */
    /* If not NULL, y is not written: each block of it is given to this function while it is in the thread's cache. The blocks of a thread come in any
     * order. Weights that are not block-quantised alone. */
    void (*take)(void *arg, const struct llm_matmul_block *b, int thread);
    void *take_arg;
    /* w's data are x: y is symmetric, and about half of it is computed and the rest copied, with the same bits. llm_matmul alone, of a w without a
     * packed form; not with bias, accumulate or take */
    bool symmetric;
    bool release;               /* releases the pages of a mapped weight afterwards: a training step reads it next after all others. m >= 64 alone */
};
/* y[m, n] = x[m, k] · wᵀ + bias. Every dtype of w. Quantised w: int8 path if compute is BF16, else dequantised exactly.
 * A weight is packed by the second product of a few rows (decoding), or by the third of more rows (`inference`; of a quantised weight: fewer than
 * 256), if the packed form takes less than half of the available memory: the bits are the same, and later products read it at full speed. The packed
 * form of a block-quantised weight is as large as the data. The first product of many rows releases the pages of a mapped weight that it has
 * read; later ones leave them mapped, since a prompt of several passes would read them again. */
int llm_matmul(const struct llm_matmul *a, struct llm_weight *w, struct llm_err *e) LLM_MUST_CHECK;
/* n of them, at most LLM_MATMUL_MAX, of one x: a[i] with w[i]; m, x, ldx and compute are those of a[0]. The bits are the same; x is converted once,
 * and the threads are called together once. */
enum { LLM_MATMUL_MAX = 4 };
int llm_matmul_several(const struct llm_matmul *a, struct llm_weight *const *w, int n, struct llm_err *e) LLM_MUST_CHECK;
/* y[m, k] = x[m, n] · w    (dX from dY). Weights of every type are decoded, and rounded to BF16 when that is the compute type: no int8. */
int llm_matmul_dx(const struct llm_matmul *a, struct llm_weight *w, struct llm_err *e) LLM_MUST_CHECK;
/* dw[n, k] += dyᵀ[n, m] · x[m, k]: tokens are rows of row_len (m a multiple); in each row blocks of 256 tokens, each summed from zero and added
 * to dw in order, rows in order. So 1 × 32 rows = 32 × 1 row, bit for bit. ldx for x, ldy for dy. */
int llm_matmul_dw(float *dw, const float *dy, int64_t ldy, const float *x, int64_t ldx, int64_t m, int64_t row_len, int64_t n, int64_t k,
                  enum llm_compute compute, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_matmul_dw in BF16, of an x that stands packed (llm_panels_put). */
int llm_matmul_dw_panels(float *dw, const float *dy, int64_t ldy, const void *panels, int64_t m, int64_t row_len, int64_t n, int64_t k,
                         struct llm_err *e) LLM_MUST_CHECK;
/* As llm_matmul_dw, with given blocks of tokens: block i is tokens [starts[i], starts[i + 1]), at least one. */
int llm_matmul_dw_blocks(float *dw, const float *dy, int64_t ldy, const float *x, int64_t ldx, const int64_t *starts, int64_t n_blocks, int64_t n,
                         int64_t k, enum llm_compute compute, struct llm_err *e) LLM_MUST_CHECK;
/* The arithmetic of a product, for messages and benchmarks: "bf16", "int8", "f32". */
const char *llm_matmul_kind(enum llm_dtype w, enum llm_compute compute);

#endif
