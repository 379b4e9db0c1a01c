/* Quantised products for many rows by AMX: a tile product is the exact dots of one group of 32 for 16 rows by 16 columns. What follows is that of
 * kernels/gemm_quantised.c, in the same order, so the bits are those of its products. It takes longer than the tiles, since each 32 k want a sum of
 * their own: what is too small for tiles is left to kernels/gemm_quantised_rows.c.
 *
 * For some hundred ticks after any instruction of tiles one port alone multiplies and converts vectors, while additions keep two. So dots become
 * floats by an addition: their sums begin with the bits of BIG, from which numbers below 2^22 count in ones.
 *
 * Of types with two dots a group the integer scales are multiplied into the weights. Products that exceed a byte, p = 128 h + l, are two planes of
 * bytes, and the sums of the upper ones begin with the bits of BIG_HIGH, from which they count in 128s. Both dots together are below 2^24, as those
 * of the halves, times their scales, are in the other kernels: exact in any order. */
#define OPENED_GROUPS 24 /* of a row that has no more */
#define STEP 16          /* so many at a time of longer rows: 8 KiB a plane */
#define FEW_STEP 8       /* the same where a panel has one tile of rows */
#define AHEAD 16384      /* bytes by which the weights of such a panel are prefetched */
#define OPENED_PLANES 2
#include "cpu/kernels/gemm_opened.h"

#define BATCH 4                /* tiles of dots under way */
#define BIG 12582912.0f        /* 1.5 * 2^23 */
#define BIG_HIGH 1610612736.0f /* 1.5 * 2^30 */
#define LEAST 9          /* rows: fewer, and up to 16 of types without least values, are sooner done in registers alone */
#define FEW 48                 /* rows for which making two planes takes longer than tiles gain */

static void (*without_tiles[N_KINDS])(const struct llm_gemm_q_job *);

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Tiles 0 to 3: dots; 4 and 5: activations, [rows][32]; 6 and 7: weights, [32 / 4][16 columns][4]. */
static void configure(int rows)
{
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = i == 4 || i == 5 ? GROUP : 64;
        c.rows[i] = (uint8_t)(i < 6 ? rows : GROUP / 4);
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* the intrinsic tells the compiler of the first bytes alone */
    _tile_loadconfig(&c);
}

/* Where the numbers of some groups stand: of opened weights, and of 16 rows of activations. */
struct scales { const float *w, *w_least, *x, *x_sum[2]; };

/* sum[r] goes on with the dots of `rows` rows of the i-th of these groups; of two planes the upper ones follow. */
INLINE void add_dots(const struct kind *k, const int rows, const float *dots, const struct scales *s, int i, V *sum)
{
    V scale = v_load(s->w + i * PANEL);
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        V dot = v_load(dots + r * PANEL);
        if (planes_of(k) == 2) dot = v_add(v_sub(v_load(dots + (PANEL + r) * PANEL), v_set1(BIG_HIGH + BIG)), dot);
        else dot = v_sub(dot, v_set1(BIG));
        sum[r] = v_fma(dot, v_mul(scale, v_set1(s->x[i * PANEL + r])), sum[r]);
        if (k->least) sum[r] = v_fma(v_load(s->w_least + i * 2 * PANEL), v_set1(s->x_sum[0][i * PANEL + r]), sum[r]);
        if (k->least && k->parts == 2) sum[r] = v_fma(v_load(s->w_least + (i * 2 + 1) * PANEL), v_set1(s->x_sum[1][i * PANEL + r]), sum[r]);
    }
}

/* Groups of 16 rows whose dots are made together. */
struct batch { const int8_t *q; const int32_t *w; int64_t n; };

/* Begins the tile of group i of a batch. */
#define START(i, tile_x, tile_w)                                   \
    do {                                                           \
        _tile_loadd(i, big[0], 64);                                \
        _tile_loadd(tile_x, next.q + (i) * GROUP * PANEL, GROUP);  \
        _tile_loadd(tile_w, next.w + (i) * GROUP / 4 * PANEL, 64); \
        _tile_dpbssd(i, tile_x, tile_w);                           \
    } while (0)

/* The same of two planes. */
#define START_TWO(i, low, high, tile_x)                                      \
    do {                                                                     \
        _tile_loadd(low, big[0], 64);                                        \
        _tile_loadd(tile_x, next.q + (i) * GROUP * PANEL, GROUP);            \
        _tile_loadd(6, next.w + (i) * GROUP / 4 * PANEL, 64);                \
        _tile_dpbssd(low, tile_x, 6);                                        \
        _tile_loadd(high, big[PANEL], 64);                                   \
        _tile_loadd(7, next.w + OPENED_PLANE + (i) * GROUP / 4 * PANEL, 64); \
        _tile_dpbssd(high, tile_x, 7);                                       \
    } while (0)

/* A tile in its turn: what it has of group i of this batch is stored, it begins anew, and what was stored is added. `full`: both batches are. */
#define TURN(full, i, tile_x, tile_w)                             \
    do {                                                          \
        if (full || (i) < here) _tile_stored(i, dots[i], 64);     \
        if (full || (i) < next.n) START(i, tile_x, tile_w);       \
        if (full || (i) < here) add_dots(k, rows, dots[i], &s, i, sum); \
    } while (0)

#define TURN_TWO(full, i, low, high, tile_x)                        \
    do {                                                            \
        if (full || (i) < here) {                                   \
            _tile_stored(low, dots[low], 64);                       \
            _tile_stored(high, dots[high], 64);                     \
        }                                                           \
        if (full || (i) < next.n) START_TWO(i, low, high, tile_x);  \
        if (full || (i) < here) add_dots(k, rows, dots[low], &s, i, sum); \
    } while (0)

#define TURNS(full)                     \
    do {                                \
        if (planes_of(k) == 2) {        \
            TURN_TWO(full, 0, 0, 1, 4); \
            TURN_TWO(full, 1, 2, 3, 5); \
        } else {                        \
            TURN(full, 0, 4, 6);        \
            TURN(full, 1, 5, 7);        \
            TURN(full, 2, 4, 6);        \
            TURN(full, 3, 5, 7);        \
        }                               \
    } while (0)

/* What becomes of 16 rows' sums over the opened groups: they are kept, or with the last of them a product. */
INLINE void put_sums(const struct llm_gemm_q_job *g, int64_t row, int64_t column, bool last, const V *sum, float *sums)
{
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) v_store(sums + r * PANEL, sum[r]);
    for (int64_t r = 0; last && r < PANEL && row + r < g->m; r++) put_row(g, row + r, column, v_load(sums + r * PANEL));
}

/* All rows by the opened groups of one panel of columns; `from`: the first of them; big: what tiles begin with. While a batch of dots is added the
 * next one is made. */
INLINE void opened_product(const struct llm_gemm_q_job *g, int64_t column, const struct kind *k, const struct opened *o, const float (*big)[PANEL],
                           int64_t from, int64_t groups, float *sums)
{
    _Alignas(64) float dots[BATCH][PANEL * PANEL];
    const int rows = PANEL;
    const int64_t of_row = g->k / GROUP * PANEL, batch = BATCH / planes_of(k), whole = groups < batch ? groups : batch;
    const int8_t *q = g->x.q + from * PANEL * GROUP;
    struct batch next = {q, o->w[0], whole};
    struct scales s = {0};
    int64_t here = 0;
    V sum[PANEL];
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) sum[r] = v_zero();
    __asm__ volatile("" : : "r"(big) : "memory"); /* tile loads are not known to read it, nor what was opened */
    TURNS(false);
    for (int64_t row = 0; row < g->m; row += PANEL) {
        int64_t x_at = row / PANEL * of_row + from * PANEL;
        s = (struct scales){o->scale[0], o->least[0][0], g->x.scale + x_at, {0}};
        for (int part = 0; k->least && part < k->parts; part++) s.x_sum[part] = g->x.sum[part] + x_at;
        q += of_row * GROUP;
        LLM_UNROLL
        for (int r = 0; r < PANEL; r++) sum[r] = from ? v_load(sums + (row + r) * PANEL) : v_zero();
        for (int64_t left = groups; left > 0;) {
            here = next.n;
            left -= here;
            if (left > 0) next = (struct batch){next.q + batch * PANEL * GROUP, next.w + batch * GROUP / 4 * PANEL, left < batch ? left : batch};
            else next = (struct batch){q, o->w[0], row + PANEL < g->m ? whole : 0};
            /* GCC makes code of two cases that is slower where a row has least to do */
            if ((k->least || k->parts == 2) && here == batch && next.n == batch) TURNS(true);
            else TURNS(false);
            s.w += batch * PANEL;
            s.w_least += batch * 2 * PANEL;
            s.x += batch * PANEL;
            for (int part = 0; k->least && part < k->parts; part++) s.x_sum[part] += batch * PANEL;
        }
        put_sums(g, row, column, from + groups == g->k / GROUP, sum, sums + row * PANEL);
    }
}

/* At most `rows` rows by one panel of columns. While dots are added the next groups are opened and multiplied, and weights of the groups after them
 * are on their way. */
INLINE void few_product(const struct llm_gemm_q_job *g, int64_t column, const struct kind *k, const int rows, const float (*big)[PANEL])
{
    struct opened o[2];
    _Alignas(64) float dots[BATCH][PANEL * PANEL], sums[PANEL * PANEL];
    const int64_t groups = g->k / GROUP, batch = BATCH / planes_of(k), group_bytes = k->bytes * PANEL / k->groups;
    const unsigned char *b = (const unsigned char *)g->b + column / PANEL * groups * group_bytes;
    struct batch next = {g->x.q, o[0].w[0], groups < batch ? groups : batch};
    struct scales s = {0};
    int64_t here = 0;
    V sum[PANEL];
    LLM_UNROLL
    for (int r = 0; r < PANEL; r++) sum[r] = v_zero();
    open_panel(k, b, (groups < FEW_STEP ? groups : FEW_STEP) / k->groups, b, &o[0]);
    __asm__ volatile("" : : "r"(big), "r"(o) : "memory"); /* tile loads are not known to read them */
    TURNS(false);
    for (int64_t done = 0; done < groups; done += batch) {
        const struct opened *now = &o[done / FEW_STEP % 2];
        const int64_t at = done % FEW_STEP, then = done + batch, left = groups - then;
        s = (struct scales){now->scale[at], now->least[at][0], g->x.scale + done * PANEL, {0}};
        for (int part = 0; k->least && part < k->parts; part++) s.x_sum[part] = g->x.sum[part] + done * PANEL;
        here = next.n;
        for (int64_t i = 0; i < batch * group_bytes; i += 64) __builtin_prefetch(b + done * group_bytes + AHEAD + i, 0, 2);
        if (then % FEW_STEP == 0 && left > 0) {
            open_panel(k, b + then * group_bytes, (left < FEW_STEP ? left : FEW_STEP) / k->groups, b + then * group_bytes, &o[then / FEW_STEP % 2]);
            __asm__ volatile("" : : "r"(o) : "memory");
        }
        next = (struct batch){g->x.q + then * PANEL * GROUP, o[then / FEW_STEP % 2].w[0] + then % FEW_STEP * GROUP / 4 * PANEL,
                              left < 0 ? 0 : left < batch ? left : batch};
        if (here == batch && next.n == batch) TURNS(true);
        else TURNS(false);
    }
    put_sums(g, 0, column, true, sum, sums);
}

/* All rows by one panel of columns. */
INLINE void panel_product(const struct llm_gemm_q_job *g, int64_t column, const struct kind *k, const float (*big)[PANEL])
{
    struct opened o;
    _Alignas(64) float sums[OPENED_ROWS * PANEL];
    const size_t block_bytes = (size_t)k->bytes * PANEL;
    const int64_t groups = g->k / GROUP, blocks = groups / k->groups;
    const int64_t step = groups > OPENED_GROUPS ? STEP / k->groups : blocks; /* blocks that are open at a time */
    const unsigned char *b = (const unsigned char *)g->b + (size_t)(column / PANEL * blocks) * block_bytes;
    for (int64_t from = 0; from < blocks; from += step, b += (size_t)step * block_bytes) {
        int64_t here = blocks - from < step ? blocks - from : step;
        open_panel(k, b, here, b + (size_t)here * block_bytes, &o);
        opened_product(g, column, k, &o, big, from * k->groups, here * k->groups, sums);
    }
}

INLINE void multiply(const struct llm_gemm_q_job *g, int i)
{
    const bool one_tile = g->m <= PANEL;
    if (g->m < LEAST || (one_tile && !kinds[i].least) || g->m > OPENED_ROWS || g->k == 0 || (planes_of(&kinds[i]) == 2 && g->m < FEW)) {
        without_tiles[i](g);
        return;
    }
    _Alignas(64) float big[2 * PANEL][PANEL];
    for (int r = 0; r < PANEL; r++) {
        v_store(big[r], v_set1(BIG));
        v_store(big[PANEL + r], v_set1(BIG_HIGH));
    }
    configure(g->m <= 12 ? 12 : PANEL);
    for (int64_t column = 0; column < g->n; column += PANEL) {
        if (g->m <= 12) few_product(g, column, &kinds[i], 12, big);
        else if (one_tile) few_product(g, column, &kinds[i], PANEL, big);
        else panel_product(g, column, &kinds[i], big);
    }
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

#define FILL(ID, name, ...)                                            \
    without_tiles[KIND_##name] = k->gemm.quantised[LLM_##ID].multiply; \
    k->gemm.quantised[LLM_##ID].multiply = multiply_##name;

void llm_fill_gemm_int8_amx(struct llm_kernels *k)
{
    LLM_QUANTISED_KINDS(FILL)
    k->gemm.peak_int8 = peak_int8;
    k->gemm.reading_int8 = NULL; /* that of AVX-512's dots is no limit of tiles */
}
