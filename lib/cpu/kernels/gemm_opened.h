/* Opened weights, for products of many rows: the groups of a panel of 16 rows of w are decoded to bytes and scales once for all rows of activations.
 * The including source defines OPENED_GROUPS, the number of groups that are open at a time. The bytes are w itself, which is unsigned. With
 * OPENED_PLANES 2 they are signed, w minus the kind's zero, and where a group has two parts their integer scales are multiplied in: see planes_of. */
#ifndef LLM_CPU_KERNELS_GEMM_OPENED_H
#define LLM_CPU_KERNELS_GEMM_OPENED_H

#include "cpu/kernels/gemm_bytes.h"

#ifndef OPENED_PLANES
#define OPENED_PLANES (1 + SUMS_OF_16)
#endif
#define OPENED_PLANE (OPENED_GROUPS * GROUP / 4 * PANEL) /* words */
#define OPENED_ROWS 256 /* whose sums are under way */

/* Groups of a panel: words of bytes, and for each 16 scales, those of the parts (integers; if SUMS_OF_16, in both halves of a word), least values of
 * the parts. */
struct opened {
    _Alignas(64) int32_t w[OPENED_PLANES][OPENED_PLANE];
    _Alignas(64) float scale[OPENED_GROUPS][PANEL], least[OPENED_GROUPS][2][PANEL];
#if SUMS_OF_16
    _Alignas(64) int32_t part[OPENED_GROUPS][2][PANEL];
#else
    _Alignas(64) float part[OPENED_GROUPS][2][PANEL];
#endif
};

/* Stores a group of VN rows from element `at` of out->w on; part[]: the integer scales of its parts. If words_in_16 is 1, w[0] gets the lower halves
 * of the bytes and w[1] the upper. */
#if SUMS_OF_16
INLINE void put_words(const struct kind *k, const VI *w, const V *part, int64_t at, struct opened *out)
{
    const VI four = vi_set1(0x0f0f0f0f);
    (void)part;
    LLM_UNROLL
    for (int i = 0; i < 8; i++, at += PANEL) {
        vi_store(out->w[0] + at, words_in_16(k) == 1 ? vi_and(w[i], four) : w[i]);
        if (words_in_16(k) == 1) vi_store(out->w[1] + at, vi_and(vi_shr(w[i], 4), four));
    }
}
#elif OPENED_PLANES == 2
/* The bytes times the parts' scales are bytes themselves, or need a plane for 128s and one for what is left, from -64 to 63. */
INLINE int planes_of(const struct kind *k) { return k->parts == 2 && k->zero ? 2 : 1; }

/* Bytes of the even and of the odd 16-bit numbers that stand for bytes 0, 2 and 1, 3 of each word. */
INLINE VI bytes_of(VI even, VI odd) { return vi_or(vi_and(even, vi_set1(0x00ff00ff)), _mm512_slli_epi16(odd, 8)); }

INLINE VI below_128(VI p)
{
    const VI half = _mm512_set1_epi16(64);
    return _mm512_sub_epi16(vi_and(_mm512_add_epi16(p, half), _mm512_set1_epi16(127)), half);
}

INLINE void put_words(const struct kind *k, const VI *w, const V *part, int64_t at, struct opened *out)
{
    LLM_UNROLL
    for (int i = 0; i < 8; i++, at += PANEL) {
        VI x = _mm512_sub_epi8(w[i], _mm512_set1_epi8((char)k->zero)), even, odd, low_even, low_odd;
        if (k->parts == 1) {
            vi_store(out->w[0] + at, x);
            continue;
        }
        VI scale = v_to_i32(part[i / 4]);
        scale = vi_or(vi_and(scale, vi_set1(0xffff)), vi_shl(scale, 16));
        even = _mm512_mullo_epi16(_mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8), scale);
        odd = _mm512_mullo_epi16(_mm512_srai_epi16(x, 8), scale);
        if (planes_of(k) == 1) {
            vi_store(out->w[0] + at, bytes_of(even, odd));
            continue;
        }
        low_even = below_128(even);
        low_odd = below_128(odd);
        vi_store(out->w[0] + at, bytes_of(low_even, low_odd));
        even = _mm512_srai_epi16(_mm512_sub_epi16(even, low_even), 7);
        odd = _mm512_srai_epi16(_mm512_sub_epi16(odd, low_odd), 7);
        vi_store(out->w[1] + at, bytes_of(even, odd));
    }
}
#elif defined LLM_ISA_i8mm
/* Signed bytes; words 2·i and 2·i + 1 of VN rows become two vectors of two rows with the eight k of both words. */
INLINE void put_words(const struct kind *k, const VI *w, const V *part, int64_t at, struct opened *out)
{
    const VI flip = vi_set1(k->top > 127 ? (int32_t)0x80808080u : 0);
    (void)part;
    LLM_UNROLL
    for (int i = 0; i < 8; i += 2, at += 2 * PANEL) {
        VI even = vi_xor(w[i], flip), odd = vi_xor(w[i + 1], flip);
        vi_store(out->w[0] + at, vzip1q_s32(even, odd));
        vi_store(out->w[0] + at + PANEL, vzip2q_s32(even, odd));
    }
}
#else
INLINE void put_words(const struct kind *k, const VI *w, const V *part, int64_t at, struct opened *out)
{
    (void)k, (void)part;
    LLM_UNROLL
    for (int i = 0; i < 8; i++, at += PANEL) vi_store(out->w[0] + at, w[i]);
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
                if (v == 0) prefetch_share(k, next, g, k->groups);
                open_group(k, b, g, v, w);
                put_words(k, w, h.part + (k->parts == 2 ? g * 2 : 0), (at + g) * GROUP / 4 * PANEL + v * VN, out);
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
