/* Quantised products for many rows by AMX: a tile product is the exact dots of one group of 32 (or of half of it) for 16 rows by 16 columns. What
 * follows is that of kernels/gemm_quantised.c, in the same order, so the bits are those of its products; it also does what is too small for tiles. */
#include "cpu/kernels/gemm_blocks.h"

#define GROUPS 32 /* of a panel, opened together: 16 KiB */
#define ROWS 256  /* whose sums are under way */
#define BATCH 4   /* tiles of dots under way */

static void (*few_rows[N_KINDS])(const struct llm_gemm_q_job *);

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 to 3: dots; 4 and 5: activations, [16 rows][32]; 6 and 7: weights, [32 / 4][16 columns][4]. With two parts 32 is 16. */
static void configure(int parts)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = i == 4 || i == 5 ? (uint16_t)(GROUP / parts) : 64;
        c.rows[i] = (uint8_t)(i < 6 ? PANEL : GROUP / parts / 4);
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

/* One tile: the dots of a part of a group. */
#define DOTS(sum, x, w, i)                                                      \
    _tile_zero(sum);                                                            \
    _tile_loadd(x, q + (i) / parts * GROUP * PANEL + (i) % parts * step, GROUP); \
    _tile_loadd(w, b + (i) * step * PANEL, 64);                                 \
    _tile_dpbssd(sum, x, w);

/* The dots of n ≤ BATCH parts of groups that follow each other. */
INLINE void make_dots(const struct kind *k, const int8_t *q, const unsigned char *b, int64_t n, int32_t (*dots)[PANEL * PANEL])
{
    const int64_t parts = k->parts, step = GROUP / parts;
    if (n >= BATCH) {
        DOTS(0, 4, 6, 0)
        DOTS(1, 5, 7, 1)
        DOTS(2, 4, 6, 2)
        DOTS(3, 5, 7, 3)
        _tile_stored(0, dots[0], 64);
        _tile_stored(1, dots[1], 64);
        _tile_stored(2, dots[2], 64);
        _tile_stored(3, dots[3], 64);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        DOTS(0, 4, 6, i)
        _tile_stored(0, dots[i], 64);
    }
}

/* sum[r] goes on with a group's dots of 16 rows; `at`: the group in o, x_at: in the activations. */
INLINE void add_dots(const struct kind *k, const int32_t (*dots)[PANEL * PANEL], const struct opened *o, int64_t at, const struct llm_gemm_q_x *x,
                     int64_t x_at, V *sum)
{
    V scale = v_load(o->scale[at]);
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) {
        V d = v_from_i32(vi_load(dots[0] + r * PANEL));
        if (k->parts == 2) d = v_fma(d, v_load(o->part[at][0]), v_mul(v_from_i32(vi_load(dots[1] + r * PANEL)), v_load(o->part[at][1])));
        sum[r] = v_fma(d, v_mul(scale, v_set1(x->scale[x_at + r])), sum[r]);
        for (int part = 0; k->least && part < k->parts; part++)
            sum[r] = v_fma(v_load(o->least[at][part]), v_set1(x->sum[part][x_at + r]), sum[r]);
    }
}

/* What becomes of 16 rows' sums over the opened groups: they are kept, or with the last of them a product. */
INLINE void put_sums(const struct llm_gemm_q_job *g, int64_t row, int64_t column, bool last, const V *sum, float *sums)
{
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) v_store(sums + r * PANEL, sum[r]);
    for (int64_t r = 0; last && r < PANEL && row + r < g->m; r++) {
        float *c = g->c + (row + r) * g->ldc + column;
        size_t left = (size_t)(g->n - column);
        V s = v_load(sums + r * PANEL);
        if (g->add) s = v_add(v_load_n(c, left), s);
        if (g->bias) s = v_add(s, v_load_n(g->bias + column, left));
        v_store_n(c, s, left);
    }
}

/* All rows by the opened groups of one panel of columns; `from`: the first of them. A batch of dots is made before those of the batch before it are
 * added, so that tiles and vectors work at the same time. */
INLINE void opened_product(const struct llm_gemm_q_job *g, int64_t column, const struct kind *k, const struct opened *o, int64_t from, int64_t groups,
                           float *sums)
{
    _Alignas(64) int32_t dots[2][BATCH][PANEL * PANEL];
    const int64_t of_row = g->k / GROUP * PANEL, parts = k->parts, n = groups * parts, batch = BATCH / parts;
    const int8_t *q = g->x.q + from * PANEL * GROUP;
    int turn = 0;
    make_dots(k, q, o->w, n < BATCH ? n : BATCH, dots[turn]);
    for (int64_t row = 0; row < g->m; row += PANEL) {
        V sum[PANEL];
        LLM_UNROLL
        for (int r = 0; r < PANEL; r++) sum[r] = from ? v_load(sums + (row + r) * PANEL) : v_zero();
        int64_t x_at = row / PANEL * of_row + from * PANEL;
        for (int64_t at = 0; at < groups; at += batch, turn ^= 1) {
            int64_t next = at + batch, left = n - next * parts;
            if (next < groups) make_dots(k, q + (row / PANEL * of_row + next * PANEL) * GROUP, o->w + next * GROUP * PANEL, left, dots[turn ^ 1]);
            else if (row + PANEL < g->m) make_dots(k, q + (row / PANEL + 1) * of_row * GROUP, o->w, n, dots[turn ^ 1]);
            for (int64_t i = 0; i < batch && at + i < groups; i++)
                add_dots(k, (const int32_t(*)[PANEL * PANEL])dots[turn] + i * parts, o, at + i, &g->x, x_at + (at + i) * PANEL, sum);
        }
        put_sums(g, row, column, from + groups == g->k / GROUP, sum, sums + row * PANEL);
    }
}

INLINE void panel_product(const struct llm_gemm_q_job *g, int64_t column, const struct kind *k)
{
    struct opened o;
    _Alignas(64) float sums[ROWS * PANEL];
    const size_t block_bytes = (size_t)k->bytes * PANEL;
    int64_t groups = g->k / GROUP;
    const unsigned char *b = (const unsigned char *)g->b + (size_t)(column / PANEL * (groups / k->groups)) * block_bytes;
    for (int64_t from = 0; from < groups; from += GROUPS) {
        int64_t here = groups - from < GROUPS ? groups - from : GROUPS;
        open_panel(k, b + (size_t)(from / k->groups) * block_bytes, here / k->groups, &o);
        opened_product(g, column, k, &o, from, here, sums);
    }
}

INLINE void multiply(const struct llm_gemm_q_job *g, int i)
{
    if (g->x.step != PANEL || g->m > ROWS || g->k == 0) {
        few_rows[i](g);
        return;
    }
    configure(kinds[i].parts);
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
