/* Quantised products for many rows by AMX: a tile product is the exact dots of one group of 32 (or of half of it) for 16 rows by 16 columns. What
 * follows is that of kernels/gemm_quantised.c, in the same order, so the bits are those of its products; it also does what is too small for tiles. */
#include "cpu/kernels/gemm_blocks.h"

#define GROUPS 64 /* of a panel, opened together: 32 KiB */
#define ROWS 256  /* whose sums are under way */

static void (*few_rows[N_KINDS])(const struct llm_gemm_q_job *);

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 and 1: dots; 2 and 3: activations, [rows][32]; 4 and 5: weights, [32 / 4][16 columns][4]. With two parts 32 is 16. */
static void configure(int rows, int parts)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 6; i++) {
        c.row_bytes[i] = i == 2 || i == 3 ? (uint16_t)(GROUP / parts) : 64;
        c.rows[i] = (uint8_t)(i < 4 ? rows : GROUP / parts / 4);
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* the intrinsic tells the compiler of the first bytes alone */
    _tile_loadconfig(&c);
}

/* Groups of a panel: signed bytes, and for each 16 scales, those of the parts, least values of the parts. */
struct opened {
    _Alignas(64) unsigned char w[GROUPS * GROUP * PANEL];
    _Alignas(64) float scale[GROUPS][PANEL], part[GROUPS][2][PANEL], least[GROUPS][2][PANEL];
};

INLINE void open_panel(const struct kind *k, const unsigned char *b, int64_t blocks, struct opened *out)
{
    const __m512i zero = _mm512_set1_epi8((char)k->zero);
    int64_t at = 0;
    for (int64_t block = 0; block < blocks; block++, b += k->bytes * PANEL) {
        struct head h;
        open_head(k, b, 0, &h);
        for (int g = 0; g < k->groups; g++, at++) {
            VI w[8];
            open_group(k, b, g, 0, w);
            LLM_UNROLL
            for (int i = 0; i < 8; i++) _mm512_store_si512(out->w + at * GROUP * PANEL + i * 64, _mm512_sub_epi8(w[i], zero));
            v_store(out->scale[at], h.scale[k->parts == 2 ? 0 : g]);
            for (int part = 0; part < k->parts; part++) {
                if (k->parts == 2) v_store(out->part[at][part], h.part[g * 2 + part]);
                if (k->least) v_store(out->least[at][part], h.least[g * k->parts + part]);
            }
        }
    }
    __asm__ volatile("" : : : "memory"); /* tile loads are not known to read it */
}

/* sum[r] with the group's dots of 16 rows; x: the activations' numbers of the group. */
INLINE void add_dots(const struct kind *k, const int32_t *dots, const int32_t *second, const struct opened *o, int64_t at,
                     const struct llm_gemm_q_x *x, int64_t x_at, V *sum)
{
    V scale = v_load(o->scale[at]);
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) {
        V d = v_from_i32(vi_load(dots + r * PANEL));
        if (k->parts == 2) d = v_fma(d, v_load(o->part[at][0]), v_mul(v_from_i32(vi_load(second + r * PANEL)), v_load(o->part[at][1])));
        sum[r] = v_fma(d, v_mul(scale, v_set1(x->scale[x_at + r])), sum[r]);
        for (int part = 0; k->least && part < k->parts; part++)
            sum[r] = v_fma(v_load(o->least[at][part]), v_set1(x->sum[part][x_at + r]), sum[r]);
    }
}

/* One tile of sums goes on over `groups` groups. x: q of the rows' first group; the other numbers stand at x_at. */
INLINE void accumulate(const struct kind *k, const struct llm_gemm_q_x *x, const int8_t *q, int64_t depth, int64_t x_at, const struct opened *o,
                       int64_t groups, float *sums)
{
    _Alignas(64) int32_t dots[2][PANEL * PANEL];
    const int64_t pair = k->parts == 2 ? 1 : 2; /* groups that two tiles are */
    const int64_t step = GROUP / k->parts;
    V sum[PANEL];
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) sum[r] = v_load(sums + r * PANEL);
    int64_t g = 0;
    for (; g + pair <= groups; g += pair) {
        const int8_t *first = q + g * GROUP;
        const unsigned char *w = o->w + g * GROUP * PANEL;
        _tile_zero(0);
        _tile_loadd(2, first, (size_t)depth);
        _tile_loadd(4, w, 64);
        _tile_dpbssd(0, 2, 4);
        _tile_zero(1);
        _tile_loadd(3, first + step, (size_t)depth);
        _tile_loadd(5, w + step * PANEL, 64);
        _tile_dpbssd(1, 3, 5);
        _tile_stored(0, dots[0], 64);
        _tile_stored(1, dots[1], 64);
        add_dots(k, dots[0], dots[1], o, g, x, x_at + g * PANEL, sum);
        if (pair == 2) add_dots(k, dots[1], NULL, o, g + 1, x, x_at + (g + 1) * PANEL, sum);
    }
    if (k->parts == 1 && g < groups) {
        _tile_zero(0);
        _tile_loadd(2, q + g * GROUP, (size_t)depth);
        _tile_loadd(4, o->w + g * GROUP * PANEL, 64);
        _tile_dpbssd(0, 2, 4);
        _tile_stored(0, dots[0], 64);
        add_dots(k, dots[0], NULL, o, g, x, x_at + g * PANEL, sum);
    }
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) v_store(sums + r * PANEL, sum[r]);
}

/* All rows by one panel of columns. */
INLINE void panel_product(const struct llm_gemm_q_job *g, int64_t column, const struct kind *k)
{
    struct opened o;
    _Alignas(64) float sums[ROWS * PANEL];
    const size_t block_bytes = (size_t)k->bytes * PANEL;
    int64_t groups = g->k / GROUP, whole = g->m / PANEL * PANEL;
    const unsigned char *b = (const unsigned char *)g->b + (size_t)(column / PANEL * (groups / k->groups)) * block_bytes;
    memset(sums, 0, (size_t)((g->m + PANEL - 1) / PANEL * PANEL * PANEL) * sizeof *sums);
    for (int64_t from = 0; from < groups; from += GROUPS) {
        int64_t here = groups - from < GROUPS ? groups - from : GROUPS;
        open_panel(k, b + (size_t)(from / k->groups) * block_bytes, here / k->groups, &o);
        configure(PANEL, k->parts);
        for (int64_t row = 0; row < g->m; row += PANEL) {
            if (row == whole) configure((int)(g->m - whole), k->parts);
            accumulate(k, &g->x, g->x.q + row * g->k + from * GROUP, g->k, row * groups + from * PANEL, &o, here, sums + row * PANEL);
        }
    }
    for (int64_t row = 0; row < g->m; row++) {
        float *c = g->c + row * g->ldc + column;
        size_t left = (size_t)(g->n - column);
        V s = v_load(sums + row * PANEL);
        if (g->add) s = v_add(v_load_n(c, left), s);
        if (g->bias) s = v_add(s, v_load_n(g->bias + column, left));
        v_store_n(c, s, left);
    }
}

INLINE void multiply(const struct llm_gemm_q_job *g, int i)
{
    if (g->x.step != PANEL || g->m > ROWS) {
        few_rows[i](g);
        return;
    }
    for (int64_t column = 0; column < g->n; column += PANEL) panel_product(g, column, &kinds[i]);
    _tile_release();
}

#define KIND(i, name) static void multiply_##name(const struct llm_gemm_q_job *g) { multiply(g, i); }
LLM_QUANTISED_KINDS(KIND)

static double peak_int8(int64_t iterations)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = 16;
    }
    __asm__ volatile("" : : "r"(&c) : "memory");
    _tile_loadconfig(&c);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t i = 0; i < iterations; i++) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_release();
    return (double)iterations * 4 * PANEL * PANEL * 64 * 2;
}

#define FILL(i, name)                                             \
    few_rows[i] = k->gemm.quantised[kinds[i].type].multiply;      \
    k->gemm.quantised[kinds[i].type].multiply = multiply_##name;

void llm_fill_gemm_int8_amx(struct llm_kernels *k)
{
    LLM_QUANTISED_KINDS(FILL)
    k->gemm.peak_int8 = peak_int8;
}
