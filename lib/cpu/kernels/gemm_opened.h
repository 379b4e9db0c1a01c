/* Opened weights, for products of many rows: the groups of a panel of 16 rows of w are decoded to bytes and scales once for all rows of activations.
 * The including source defines OPENED_GROUPS, the number of groups that are open at a time, and OPENED_BYTES(kind, w), the bytes to multiply: w
 * itself, which is unsigned, or the signed bytes w minus the kind's zero. */
#ifndef LLM_CPU_KERNELS_GEMM_OPENED_H
#define LLM_CPU_KERNELS_GEMM_OPENED_H

#include "cpu/kernels/gemm_bytes.h"

#define OPENED_ROWS 256 /* whose sums are under way */

/* Groups of a panel: words of bytes, and for each 16 scales, those of the parts (integers; if SUMS_OF_16, in both halves of a word), least values of
 * the parts. */
struct opened {
    _Alignas(64) int32_t w[1 + SUMS_OF_16][OPENED_GROUPS * GROUP / 4 * PANEL];
    _Alignas(64) float scale[OPENED_GROUPS][PANEL], least[OPENED_GROUPS][2][PANEL];
#if SUMS_OF_16
    _Alignas(64) int32_t part[OPENED_GROUPS][2][PANEL];
#else
    _Alignas(64) float part[OPENED_GROUPS][2][PANEL];
#endif
};

/* Stores a group of VN rows from element `at` of out->w on. If words_in_16 is 1, w[0] gets the lower halves of the bytes and w[1] the upper. */
#if SUMS_OF_16
INLINE void put_words(const struct kind *k, const VI *w, int64_t at, struct opened *out)
{
    const VI four = vi_set1(0x0f0f0f0f);
    LLM_UNROLL
    for (int i = 0; i < 8; i++, at += PANEL) {
        vi_store(out->w[0] + at, words_in_16(k) == 1 ? vi_and(w[i], four) : w[i]);
        if (words_in_16(k) == 1) vi_store(out->w[1] + at, vi_and(vi_shr(w[i], 4), four));
    }
}
#else
INLINE void put_words(const struct kind *k, const VI *w, int64_t at, struct opened *out)
{
    (void)k;
    LLM_UNROLL
    for (int i = 0; i < 8; i++, at += PANEL) vi_store(out->w[0] + at, OPENED_BYTES(k, w[i]));
}
#endif

#if SUMS_OF_16
INLINE void put_part(V scale, int32_t *out) { vi_store(out, twice_16(v_to_i32(scale))); }
#else
INLINE void put_part(V scale, float *out) { v_store(out, scale); }
#endif

/* Opens `blocks` of the panel's blocks from b on, and prefetches as many from `next` on. */
INLINE void open_panel(const struct kind *k, const unsigned char *b, int64_t blocks, const unsigned char *next, struct opened *out)
{
    int64_t at = 0;
    for (int64_t block = 0; block < blocks; block++, b += k->bytes * PANEL, next += k->bytes * PANEL, at += k->groups)
        for (int v = 0; v < VECTORS; v++) {
            struct head h;
            open_head(k, b, v, &h);
            for (int g = 0; g < k->groups; g++) {
                VI w[8];
                if (v == 0) prefetch_share(k, next, g);
                open_group(k, b, g, v, w);
                put_words(k, w, (at + g) * GROUP / 4 * PANEL + v * VN, out);
                v_store(out->scale[at + g] + v * VN, h.scale[k->parts == 2 ? 0 : g]);
                for (int part = 0; part < k->parts; part++) {
                    if (k->parts == 2) put_part(h.part[g * 2 + part], out->part[at + g][part] + v * VN);
                    if (k->least) v_store(out->least[at + g][part] + v * VN, h.least[g * k->parts + part]);
                }
            }
        }
}

/* A row's finished sums of a vector of columns to c. */
INLINE void put_row(const struct llm_gemm_q_job *g, int64_t row, int64_t column, V s)
{
    float *c = g->c + row * g->ldc + column;
    size_t left = (size_t)(g->n - column);
    if (g->add) s = v_add(v_load_n(c, left), s);
    if (g->bias) s = v_add(s, v_load_n(g->bias + column, left));
    v_store_n(c, s, left);
}

#endif
