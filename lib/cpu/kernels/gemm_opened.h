/* For products of many rows: groups of a panel of 16 rows of w opened once, for all rows of activations. Vectors of 16 lanes. */
#ifndef LLM_CPU_KERNELS_GEMM_OPENED_H
#define LLM_CPU_KERNELS_GEMM_OPENED_H

#include "cpu/kernels/gemm_blocks.h"

#define OPENED_ROWS 256 /* whose sums are under way */

/* Groups of a panel: bytes, and for each 16 scales, those of the parts, least values of the parts. */
struct opened {
    _Alignas(64) unsigned char w[OPENED_GROUPS * GROUP * PANEL];
    _Alignas(64) float scale[OPENED_GROUPS][PANEL], part[OPENED_GROUPS][2][PANEL], least[OPENED_GROUPS][2][PANEL];
};

/* Opens `blocks` of the panel's blocks from b on; `less` is taken from each byte: kind's zero makes them signed, 0 leaves them. */
INLINE void open_panel(const struct kind *k, const unsigned char *b, int64_t blocks, int less, struct opened *out)
{
    const __m512i zero = _mm512_set1_epi8((char)less);
    int64_t at = 0;
    for (int64_t block = 0; block < blocks; block++, b += k->bytes * PANEL) {
        struct head h;
        open_head(k, b, 0, &h);
        for (int g = 0; g < k->groups; g++, at++) {
            VI w[8];
            open_group(k, b, g, 0, w);
            LLM_UNROLL
            for (int i = 0; i < 8; i++) _mm512_store_si512(out->w + at * GROUP * PANEL + i * 64, less ? _mm512_sub_epi8(w[i], zero) : w[i]);
            v_store(out->scale[at], h.scale[k->parts == 2 ? 0 : g]);
            for (int part = 0; part < k->parts; part++) {
                if (k->parts == 2) v_store(out->part[at][part], h.part[g * 2 + part]);
                if (k->least) v_store(out->least[at][part], h.least[g * k->parts + part]);
            }
        }
    }
}

/* A row's finished sums of one panel to c. */
INLINE void put_row(const struct llm_gemm_q_job *g, int64_t row, int64_t column, V s)
{
    float *c = g->c + row * g->ldc + column;
    size_t left = (size_t)(g->n - column);
    if (g->add) s = v_add(v_load_n(c, left), s);
    if (g->bias) s = v_add(s, v_load_n(g->bias + column, left));
    v_store_n(c, s, left);
}

#endif
