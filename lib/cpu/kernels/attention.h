/* Attention: the small products and the softmax of one tile of 64 keys. tensor/op/attention*.c calls these and decides the order of
 * tiles.
 *
 * Products read packed operands made of 4-byte units. A unit holds one float (F32; BF16 where the CPU multiplies no BF16: then a float rounded to
 * BF16), or two BF16 values that are neighbours along the depth, the lower in the low half. Two forms, `units` being llm_attn_units(math, depth):
 *   A  [rows][ld]         unit u of a row has depths u·per_unit ...
 *   B  [units][ld]        columns contiguous, ld a multiple of 16
 * The depth is padded with zeros to whole units and to `align` units. Each element of a product is one chain of additions along the depth, whatever
 * the numbers of rows and columns. */
#ifndef LLM_CPU_KERNELS_ATTENTION_H
#define LLM_CPU_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cpu/dtype.h"

#define LLM_ATTN_TILE 64  /* keys in a tile, and the maximum of query rows in one call */
#define LLM_ATTN_LANES 16 /* columns are padded to a multiple */
#define LLM_ATTN_FEW 8    /* query rows for which a tile that is used once is not worth packing */

/* Scores to probabilities, online: [rows] query rows by the tile's 64 keys. */
struct llm_attn_softmax {
    int rows;
    float *s;              /* [rows][64] in: products q·k; destroyed */
    float *p;              /* out: e^(score - m), times keep; form A, ld = units of 64 */
    float *m, *l;          /* [rows] largest score so far and Σ e^(score - m), both updated; -infinity and 0 at first */
    float *o; int64_t ldo; /* [rows][ldo] Σ p·v so far: multiplied so as to belong to the new m */
    float scale, softcap;  /* score = softcap·tanh(s·scale/softcap) + bias; softcap 0: s·scale + bias */
    const float *bias;     /* [rows][64] or NULL */
    const float *keep;     /* [rows][64] dropout: 0 or 1/(1-p); NULL: all 1 */
    int keys;              /* columns of s and p that are used: a multiple of `edge`; no row sees a key beyond. If below 64, s of a key that its
                            * row does not see may be anything */
    bool full;             /* all keys are seen, else row r sees keys < prefix and those in [first[r], last[r]) */
    uint8_t first[LLM_ATTN_TILE], last[LLM_ATTN_TILE];
    int prefix;
};

/* The backward pass of a tile, transposed: rows are keys, columns are queries. p = e^(score - m)·inv_l; ds = p·(keep·dp - d). */
struct llm_attn_back {
    const float *s, *dp;           /* [64][64] products k·q and v·dout */
    float *p_a;                    /* out: p·keep; form A, rows keys, depth queries */
    float *ds_a, *ds_b; /* out: the gradient of s, in form A (as p_a) and in form B (depth keys, columns queries); one buffer if per_unit is 1 */
    float *d_score;                /* [64][64] out, or NULL: gradient of score, that is of bias */
    const float *m, *inv_l, *d;    /* [64] of the queries; d = Σ dout·out */
    float scale, softcap;
    const float *bias, *keep;      /* [64][64] or NULL, rows keys */
    int keys, queries;             /* rows and columns that are used: multiples of `edge` */
    bool full;                     /* else key r is seen by the queries in [first[r], last[r]) */
    bool corner;                   /* no query of the first half sees a key of the second half: these elements are neither read nor written */
    uint8_t first[LLM_ATTN_TILE], last[LLM_ATTN_TILE];
};

/* Of F32 products or of BF16 ones. `have` ≤ the number of source rows the form has room for: the rest become zeros. */
struct llm_attention_math {
    int per_unit, align; /* elements in a unit; units that a depth is padded to */
    int edge;            /* keys at a tile's end, and the corner of the backward pass, are left out by so many; LLM_ATTN_TILE: never */
    void (*begin)(void), (*end)(void); /* around each run of products on a thread */
    void (*pack_a)(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t rows, int64_t depth);
    /* of the transpose: dst row c has src[0..have)[c], depth `depth` */
    void (*pack_at)(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth);
    void (*pack_b)(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t cols, int64_t depth);
    /* of the transpose: column r has src[r][0..depth), columns have .. ldd are zero */
    void (*pack_bt)(float *dst, int64_t ldd, const float *src, int64_t lds, int64_t have, int64_t depth);
    /* pack_b and pack_bt of a cache's elements, lds in a row; rows of block types are whole blocks; NULL: decode first */
    void (*pack_b_of[LLM_N_DTYPES])(float *dst, int64_t ldd, const void *src, int64_t lds, int64_t have, int64_t cols, int64_t depth);
    void (*pack_bt_of[LLM_N_DTYPES])(float *dst, int64_t ldd, const void *src, int64_t lds, int64_t have, int64_t depth);
    /* c[m][n] = or += a · b; n a multiple of 16. a and c must have room for m rounded up to a multiple of 16 rows: the rows beyond m may
     * be read, and written with anything. */
    void (*product)(float *c, int64_t ldc, const float *a, int64_t lda, const float *b, int64_t ldb, int64_t m, int64_t n, int64_t units,
                    bool accumulate);
    /* Products of at most LLM_ATTN_FEW rows with keys or values in the type in which they are stored, which are not packed: they are read once. lds
     * elements in a row of k and v; d_k and d_v are multiples of LLM_ATTN_LANES, and of a type's block. The bits are those of `product`. NULL: pack.
     * scores_of: s[rows][64], columns [0, keys), = q[rows][ldq] · kᵀ; columns from `have` on are 0. values_of: o[rows][ldo] += p[rows][64] · v. */
    void (*scores_of[LLM_N_DTYPES])(float *s, const float *q, int64_t ldq, int64_t rows, const void *k, int64_t lds, int64_t have, int64_t d_k,
                                    int64_t keys);
    void (*values_of[LLM_N_DTYPES])(float *o, int64_t ldo, const float *p, int64_t rows, const void *v, int64_t lds, int64_t have, int64_t d_v);
    void (*softmax)(struct llm_attn_softmax *t);
    void (*back)(const struct llm_attn_back *t);
    /* Σ x·y, x rounded as a product would round it. */
    float (*dot)(const float *x, const float *y, int64_t n);
};
struct llm_attention_kernels {
    struct llm_attention_math math[2]; /* LLM_COMPUTE_F32, LLM_COMPUTE_BF16 */
    /* Merges the state (m, l, o[n]) of a later chunk of keys of one query row into that of the earlier ones. */
    void (*merge)(float *m, float *l, float *o, const float *m2, const float *l2, const float *o2, int64_t n);
    /* Adds an attention sink: a logit that takes part in the softmax and has no value. */
    void (*sink)(float *m, float *l, float *o, float logit, int64_t n);
    /* Dropout's factors of n ≤ 64 keys: 0 where the 24-bit draw of channel, channel + 1, … is below `drop` (p·2^24), else `kept` (base/rng.h). */
    void (*keep)(float *keep, const uint32_t key[2], const uint32_t counter[3], uint32_t channel, uint32_t drop, float kept, int64_t n);
    /* n elements of a cache to floats; n a multiple of the type's block */
    void (*decode)(enum llm_dtype type, const void *in, float *out, int64_t n);
    /* y[n] = o[n]·inv_l, never -0 */
    void (*divide)(float *y, const float *o, float inv_l, int64_t n);
    /* add: y[rows][cols] += x[rows][cols]. add_transposed: y[rows][cols] += the transpose of x[cols][64]. new: y is taken as zeros and not read. */
    void (*add)(float *y, int64_t ldy, const float *x, int64_t ldx, int64_t rows, int64_t cols, bool new);
    void (*add_transposed)(float *y, int64_t ldy, const float *x, int64_t rows, int64_t cols, bool new);
};

static inline int64_t llm_attn_units(const struct llm_attention_math *math, int64_t depth)
{
    int64_t units = (depth + math->per_unit - 1) / math->per_unit;
    return (units + math->align - 1) / math->align * math->align;
}

#endif
