/* Quantised products for many rows by vpdpbusd: three panels of columns (two, where a group has two dots) by four rows at a time, so that a broadcast
 * word of activations meets that many words of weights, and the chains of that many dots run side by side. The rule and its order are those of
 * kernels/gemm_quantised.c, so the bits are those of its products; it also does what has few rows. */
#define OPENED_GROUPS 16 /* three opened panels stay in the first cache */
#include "cpu/kernels/gemm_opened.h"

#define ROWS 4
#define MOST_PANELS 3

static void (*few_rows[N_KINDS])(const struct llm_gemm_q_job *);

/* What four rows have to do with the opened groups. */
struct step {
    const struct llm_gemm_q_job *g;
    const struct opened *o;
    int64_t row, column, from, groups; /* from: the first of the opened groups */
    float *sums;                       /* [rows][panels][16] */
};

/* Dots of one part of group `at`, which has `words` words. */
INLINE void part_dots(const struct step *s, int64_t at, int part, const int words, const int panels, int64_t x_at, VI dots[ROWS][MOST_PANELS])
{
    const int8_t *q = s->g->x.q + x_at * GROUP + part * words * 4;
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++) {
        VI start = vi_set1(s->g->x.start[part][x_at + r]);
        LLM_UNROLL
        for (int p = 0; p < panels; p++) dots[r][p] = start;
    }
    LLM_UNROLL
    for (int i = 0; i < words; i++) {
        VI w[MOST_PANELS];
        LLM_UNROLL
        for (int p = 0; p < panels; p++) w[p] = _mm512_load_si512(s->o[p].w + at * GROUP * PANEL + (part * words + i) * 64);
        LLM_UNROLL
        for (int r = 0; r < ROWS; r++) {
            int32_t word;
            memcpy(&word, q + r * GROUP + i * 4, 4);
            VI x = vi_set1(word);
            LLM_UNROLL
            for (int p = 0; p < panels; p++) dots[r][p] = _mm512_dpbusd_epi32(dots[r][p], w[p], x);
        }
    }
}

/* Group `at` on to the sums. */
INLINE void add_group(const struct step *s, int64_t at, int64_t x_at, const int parts, const bool least, const int panels, V sum[ROWS][MOST_PANELS])
{
    const int words = GROUP / 4 / parts;
    const struct llm_gemm_q_x *x = &s->g->x;
    VI dots[ROWS][MOST_PANELS];
    V first[ROWS][MOST_PANELS];
    part_dots(s, at, 0, words, panels, x_at, dots);
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++)
        LLM_UNROLL
        for (int p = 0; p < panels; p++) first[r][p] = v_from_i32(dots[r][p]);
    if (parts == 2) {
        part_dots(s, at, 1, words, panels, x_at, dots);
        LLM_UNROLL
        for (int r = 0; r < ROWS; r++)
            LLM_UNROLL
            for (int p = 0; p < panels; p++)
                first[r][p] = v_fma(first[r][p], v_load(s->o[p].part[at][0]), v_mul(v_from_i32(dots[r][p]), v_load(s->o[p].part[at][1])));
    }
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++) {
        V scale = v_set1(x->scale[x_at + r]);
        LLM_UNROLL
        for (int p = 0; p < panels; p++) sum[r][p] = v_fma(first[r][p], v_mul(v_load(s->o[p].scale[at]), scale), sum[r][p]);
        LLM_UNROLL
        for (int part = 0; least && part < parts; part++) {
            V total = v_set1(x->sum[part][x_at + r]);
            LLM_UNROLL
            for (int p = 0; p < panels; p++) sum[r][p] = v_fma(v_load(s->o[p].least[at][part]), total, sum[r][p]);
        }
    }
}

INLINE void four_rows(const struct step *s, const int parts, const bool least, const int panels)
{
    const struct llm_gemm_q_job *g = s->g;
    int64_t all = g->k / GROUP, x_at = s->row / PANEL * PANEL * all + s->row % PANEL + s->from * PANEL;
    V sum[ROWS][MOST_PANELS];
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++)
        LLM_UNROLL
        for (int p = 0; p < panels; p++) sum[r][p] = s->from ? v_load(s->sums + (r * panels + p) * PANEL) : v_zero();
    for (int64_t at = 0; at < s->groups; at++, x_at += PANEL) add_group(s, at, x_at, parts, least, panels, sum);
    if (s->from + s->groups < all) {
        LLM_UNROLL
        for (int r = 0; r < ROWS; r++)
            LLM_UNROLL
            for (int p = 0; p < panels; p++) v_store(s->sums + (r * panels + p) * PANEL, sum[r][p]);
        return;
    }
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++)
        LLM_UNROLL
        for (int p = 0; p < panels; p++)
            if (s->row + r < g->m && s->column + p * PANEL < g->n) put_row(g, s->row + r, s->column + p * PANEL, sum[r][p]);
}

/* The four kinds of groups there are. */
#define ALL_ROWS(name, parts, least, panels)                                            \
    static void name(struct step *s)                                                    \
    {                                                                                   \
        for (s->row = 0; s->row < s->g->m; s->row += ROWS, s->sums += ROWS * panels * PANEL) four_rows(s, parts, least, panels); \
    }
ALL_ROWS(all_rows, 1, false, 3)
ALL_ROWS(all_rows_least, 1, true, 3)
ALL_ROWS(all_rows_halves, 2, false, 2)
ALL_ROWS(all_rows_halves_least, 2, true, 2)

INLINE void multiply(const struct llm_gemm_q_job *g, const int i)
{
    const struct kind *k = &kinds[i];
    const int panels = k->parts == 2 ? 2 : 3;
    const size_t block_bytes = (size_t)k->bytes * PANEL;
    const int64_t groups = g->k / GROUP;
    struct opened o[MOST_PANELS];
    _Alignas(64) float sums[OPENED_ROWS * MOST_PANELS * PANEL];
    if (g->x.step != PANEL || g->m > OPENED_ROWS || g->k == 0) {
        few_rows[i](g);
        return;
    }
    for (int64_t column = 0; column < g->n; column += panels * PANEL) {
        for (int64_t from = 0; from < groups; from += OPENED_GROUPS) {
            int64_t here = groups - from < OPENED_GROUPS ? groups - from : OPENED_GROUPS;
            struct step s = {.g = g, .o = o, .column = column, .from = from, .groups = here, .sums = sums};
            for (int64_t p = 0; p < panels && column + p * PANEL < g->n; p++) { /* sums of panels beyond the last column are not stored */
                size_t block = (size_t)((column / PANEL + p) * (groups / k->groups) + from / k->groups);
                open_panel(k, (const unsigned char *)g->b + block * block_bytes, here / k->groups, 0, &o[p]);
            }
            if (k->parts == 2) k->least ? all_rows_halves_least(&s) : all_rows_halves(&s);
            else k->least ? all_rows_least(&s) : all_rows(&s);
        }
    }
}

#define KIND(i, name) static void multiply_##name(const struct llm_gemm_q_job *g) { multiply(g, i); }
LLM_QUANTISED_KINDS(KIND)

#define FILL(i, name)                                             \
    few_rows[i] = k->gemm.quantised[kinds[i].type].multiply;      \
    k->gemm.quantised[kinds[i].type].multiply = multiply_##name;

void llm_fill_gemm_int8_avx512bf16(struct llm_kernels *k)
{
    LLM_QUANTISED_KINDS(FILL)
}
