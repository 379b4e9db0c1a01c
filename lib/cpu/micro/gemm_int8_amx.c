/* Quantised products for many rows by AMX: a tile product is the exact dots of one group of 32 for 16 rows by 16 columns. What follows is that of
 * kernels/gemm_quantised.c, in the same order, so the bits are those of its products. It takes longer than the tiles, since each 32 k want a sum of
 * their own: what is too small for tiles, and types with two dots a group, are left to kernels/gemm_quantised_rows.c. */
#define OPENED_GROUPS 32 /* 16 KiB */
#define OPENED_BYTES(k, w) _mm512_sub_epi8(w, _mm512_set1_epi8((char)(k)->zero))
#include "cpu/kernels/gemm_opened.h"

#define BATCH 4 /* tiles of dots under way */

static void (*without_tiles[N_KINDS])(const struct llm_gemm_q_job *);

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 to 3: dots; 4 and 5: activations, [16 rows][32]; 6 and 7: weights, [32 / 4][16 columns][4]. */
static void configure(void)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = i == 4 || i == 5 ? GROUP : 64;
        c.rows[i] = (uint8_t)(i < 6 ? PANEL : GROUP / 4);
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* the intrinsic tells the compiler of the first bytes alone */
    _tile_loadconfig(&c);
}

/* One tile: the dots of group i. */
#define DOTS(sum, x, tile_w, i)                           \
    _tile_zero(sum);                                      \
    _tile_loadd(x, q + (i) * GROUP * PANEL, GROUP);       \
    _tile_loadd(tile_w, w + (i) * GROUP / 4 * PANEL, 64); \
    _tile_dpbssd(sum, x, tile_w);

/* The dots of the first BATCH of n groups that follow each other. `ahead`: activations of the batch after them, which come from the second cache. */
INLINE void make_dots(const int8_t *q, const int8_t *ahead, const int32_t *w, int64_t n, int32_t (*dots)[PANEL * PANEL])
{
    LLM_UNROLL
    for (int i = 0; i < BATCH * PANEL * GROUP; i += 64) __builtin_prefetch(ahead + i);
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
INLINE void add_dots(const struct kind *k, const int32_t *dots, const struct opened *o, int64_t at, const struct llm_gemm_q_x *x, int64_t x_at,
                     V *sum)
{
    V scale = v_load(o->scale[at]);
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) {
        sum[r] = v_fma(v_from_i32(vi_load(dots + r * PANEL)), v_mul(scale, v_set1(x->scale[x_at + r])), sum[r]);
        if (k->least) sum[r] = v_fma(v_load(o->least[at][0]), v_set1(x->sum[0][x_at + r]), sum[r]);
    }
}

/* What becomes of 16 rows' sums over the opened groups: they are kept, or with the last of them a product. */
INLINE void put_sums(const struct llm_gemm_q_job *g, int64_t row, int64_t column, bool last, const V *sum, float *sums)
{
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) v_store(sums + r * PANEL, sum[r]);
    for (int64_t r = 0; last && r < PANEL && row + r < g->m; r++) put_row(g, row + r, column, v_load(sums + r * PANEL));
}

/* All rows by the opened groups of one panel of columns; `from`: the first of them. A batch of dots is made before those of the batch before it are
 * added, so that tiles and vectors work at the same time. */
INLINE void opened_product(const struct llm_gemm_q_job *g, int64_t column, const struct kind *k, const struct opened *o, int64_t from, int64_t groups,
                           float *sums)
{
    _Alignas(64) int32_t dots[2][BATCH][PANEL * PANEL];
    const int64_t of_row = g->k / GROUP * PANEL;
    const int8_t *q = g->x.q + from * PANEL * GROUP;
    int turn = 0;
    make_dots(q, q + BATCH * PANEL * GROUP, o->w[0], groups, dots[turn]);
    for (int64_t row = 0; row < g->m; row += PANEL) {
        V sum[PANEL];
        LLM_UNROLL
        for (int r = 0; r < PANEL; r++) sum[r] = from ? v_load(sums + (row + r) * PANEL) : v_zero();
        int64_t x_at = row / PANEL * of_row + from * PANEL;
        for (int64_t at = 0; at < groups; at += BATCH, turn ^= 1) {
            int64_t next = at + BATCH;
            const int8_t *rest = q + (row / PANEL * of_row + next * PANEL) * GROUP, *below = q + (row / PANEL + 1) * of_row * GROUP;
            const int8_t *ahead = next + BATCH < groups ? rest + BATCH * PANEL * GROUP : below;
            if (next < groups) make_dots(rest, ahead, o->w[0] + next * GROUP / 4 * PANEL, groups - next, dots[turn ^ 1]);
            else if (row + PANEL < g->m) make_dots(below, below + BATCH * PANEL * GROUP, o->w[0], groups, dots[turn ^ 1]);
            LLM_UNROLL
            for (int i = 0; i < BATCH; i++) {
                __builtin_prefetch(g->x.scale + x_at + (next + i) * PANEL);
                if (k->least) __builtin_prefetch(g->x.sum[0] + x_at + (next + i) * PANEL);
            }
            for (int64_t i = 0; i < BATCH && at + i < groups; i++) add_dots(k, dots[turn][i], o, at + i, &g->x, x_at + (at + i) * PANEL, sum);
        }
        put_sums(g, row, column, from + groups == g->k / GROUP, sum, sums + row * PANEL);
    }
}

INLINE void panel_product(const struct llm_gemm_q_job *g, int64_t column, const struct kind *k)
{
    struct opened o;
    _Alignas(64) float sums[OPENED_ROWS * PANEL];
    const size_t block_bytes = (size_t)k->bytes * PANEL;
    int64_t groups = g->k / GROUP;
    const unsigned char *b = (const unsigned char *)g->b + (size_t)(column / PANEL * (groups / k->groups)) * block_bytes;
    for (int64_t from = 0; from < groups; from += OPENED_GROUPS) {
        int64_t here = groups - from < OPENED_GROUPS ? groups - from : OPENED_GROUPS;
        const unsigned char *first = b + (size_t)(from / k->groups) * block_bytes, *next = first + (size_t)(here / k->groups) * block_bytes;
        open_panel(k, first, here / k->groups, next, &o);
        __asm__ volatile("" : : : "memory"); /* tile loads are not known to read it */
        opened_product(g, column, k, &o, from, here, sums);
    }
}

INLINE void multiply(const struct llm_gemm_q_job *g, int i)
{
    if (g->x.step != PANEL || g->m > OPENED_ROWS || g->k == 0) {
        without_tiles[i](g);
        return;
    }
    configure();
    for (int64_t column = 0; column < g->n; column += PANEL) panel_product(g, column, &kinds[i]);
    _tile_release();
}

#define KIND(ID, name, ...) static void multiply_##name(const struct llm_gemm_q_job *g) { multiply(g, KIND_##name); }
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

#define FILL(ID, name, ...)                                                \
    if (kinds[KIND_##name].parts == 1) {                                   \
        without_tiles[KIND_##name] = k->gemm.quantised[LLM_##ID].multiply; \
        k->gemm.quantised[LLM_##ID].multiply = multiply_##name;            \
    }

void llm_fill_gemm_int8_amx(struct llm_kernels *k)
{
    LLM_QUANTISED_KINDS(FILL)
    k->gemm.peak_int8 = peak_int8;
    k->gemm.reading_int8 = NULL; /* that of AVX-512's dots is no limit of tiles */
}
