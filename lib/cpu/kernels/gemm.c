/* FP32 products with the vectors of cpu/simd.h, and BF16 ones for instruction sets without a BF16 dot product. */
#include <string.h>
#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd/transpose.h"

#define PANEL LLM_GEMM_PANEL
#define VECTORS (PANEL / VN) /* in a row of a panel */
#define K_BLOCK 768
#define FAR 1024 /* rows that are more floats apart are copied */
#define STEPS 8 /* of k, unrolled: with the loop's own instructions and the broadcasts, a tile has few to spare beside its FMAs */

/* A tile of ROWS rows and PANELS panels of columns keeps its sums in registers. A tile of fewer rows takes as many panels as make 8 sums, the
 * additions that two multipliers have under way. */
#if VN == 16
enum { ROWS = 12, PANELS = 2 };
#elif VN == 1
enum { ROWS = 1, PANELS = 1 };
#else
enum { ROWS = 6, PANELS = 1 };
#endif
#define SUMS 8
#define PANELS_OF(rows) ((rows) * VECTORS * PANELS >= SUMS ? PANELS : (SUMS + (rows) * VECTORS - 1) / ((rows) * VECTORS))
enum { MAX_PANELS = PANELS_OF(1) > PANELS ? PANELS_OF(1) : PANELS };

/* One block of k: rows of a, which stay in the first cache for all columns. */
struct block {
    const float *a;    /* element (row, i) is a[row · stride + i]; of a transposed matrix a[i · ROWS + row] */
    int64_t stride;
    int64_t from, length;
    int64_t ahead;     /* distance in k, from the block's first, of the lines of b that a tile prefetches, one of each panel for each STEPS of k
                        * (a k of a panel is a line); 0: none */
    bool load;         /* c += sum, else c = sum; then + bias */
    const float *bias; /* NULL: none */
    const float *ask;  /* what a tile prefetches of a, since it is copied soon: the first of two rows; of a transposed matrix the next tile's rows at
                        * the first k of a quarter of the block; NULL: nothing */
};

static inline V same(V x) { return x; }

/* The first `left` of VN numbers, zeros where there are none. */
static inline V some(const float *p, int64_t left) { return left >= VN ? v_load(p) : left > 0 ? v_load_n(p, (size_t)left) : v_zero(); }
static inline V some_bf16(const uint16_t *p, int64_t left)
{
    return left >= VN ? v_load_bf16(p) : left > 0 ? v_load_bf16_n(p, (size_t)left) : v_zero();
}

/* Transposes lines of `depth` elements, `line` elements apart, into columns: out[i · to + l] is element i of line l. Lines from `lines` on are zero.
 * When a matrix is read across its rows, each line is on another page: the line of the next panel, beside this one's, is prefetched. */
#define PACKERS(suffix, type, load, value)                                                                              \
    static void columns##suffix(const type *x, int64_t line, int64_t lines, int64_t depth, float *out, int64_t to)      \
    {                                                                                                                   \
        for (int64_t i = 0; i < depth; i += VN) {                                                                       \
            V r[VN];                                                                                                    \
            LLM_UNROLL                                                                                                  \
            for (int l = 0; l < VN; l++) r[l] = l < lines ? value(load(x + l * line + i, depth - i)) : v_zero();        \
            v_transpose(r);                                                                                             \
            for (int64_t j = 0; j < VN && i + j < depth; j++) v_store(out + (i + j) * to, r[j]);                        \
        }                                                                                                               \
    }                                                                                                                   \
    static void pack_b##suffix(const type *w, int64_t ldw, int64_t n, int64_t k, void *panel)                           \
    {                                                                                                                   \
        for (int64_t j = 0; j < PANEL; j += VN) columns##suffix(w + j * ldw, ldw, n - j, k, (float *)panel + j, PANEL); \
    }                                                                                                                   \
    static void pack_b_transposed##suffix(const type *w, int64_t ldw, int64_t n, int64_t k, void *panel)                \
    {                                                                                                                   \
        float *out = panel;                                                                                             \
        for (int64_t i = 0; i < k; i++, w += ldw, out += PANEL) {                                                       \
            __builtin_prefetch(w + PANEL);                                                                              \
            LLM_UNROLL                                                                                                  \
            for (int v = 0; v < VECTORS; v++) v_store(out + v * VN, value(load(w + v * VN, n - v * VN)));               \
        }                                                                                                               \
    }

PACKERS(_same, float, some, same)
PACKERS(_rounded, float, some, v_round_bf16)
PACKERS(_bf16, uint16_t, some_bf16, same)

#define PACKERS_OF_A(suffix, value)                                                                                     \
    static void pack_a##suffix(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel)                       \
    {                                                                                                                   \
        float *out = panel;                                                                                             \
        for (int64_t r = 0; r < rows; r++, x += ldx, out += k)                                                          \
            for (int64_t i = 0; i < k; i += VN) v_store_n(out + i, value(some(x + i, k - i)), (size_t)(k - i));         \
    }

PACKERS_OF_A(_same, same)
PACKERS_OF_A(_rounded, v_round_bf16)

#define INLINE static inline __attribute__((always_inline))

INLINE void step(const float *a, int64_t stride, const float *b, int64_t panel, const int rows, const int panels, const bool transposed,
                 V sum[ROWS][MAX_PANELS * VECTORS])
{
    V w[MAX_PANELS * VECTORS];
    if (transposed) __asm__ volatile("" : "+r"(a)); /* GCC would load numbers of several steps first, and keep sums on the stack */
    LLM_UNROLL
    for (int v = 0; v < panels * VECTORS; v++) w[v] = v_in_register(v_load(b + v / VECTORS * panel + v % VECTORS * VN));
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        V x = v_set1(transposed ? a[r] : a[r * stride]);
        LLM_UNROLL
        for (int v = 0; v < panels * VECTORS; v++) sum[r][v] = v_fma(x, w[v], sum[r][v]);
    }
}

INLINE void ask(const struct llm_gemm_job *g, const struct block *t, int64_t i, const bool transposed)
{
    if (!transposed) __builtin_prefetch(t->ask + (2 * i < t->length ? 2 * i : g->lda + 2 * i - t->length));
    for (int64_t next = i / 4; transposed && next < i / 4 + STEPS / 4; next++) __builtin_prefetch(t->ask + next * g->lda + ROWS - 1, 0, 2);
}

INLINE void tile(const struct llm_gemm_job *g, const struct block *t, int64_t row, int64_t column, const int rows, const int panels,
                 const bool transposed)
{
    const float *b = (const float *)g->b + column * g->k + t->from * PANEL;
    float *c = g->c + row * g->ldc + column;
    const int64_t panel = PANEL * g->k, stride = t->stride, next = transposed ? ROWS : 1;
    int64_t i = 0;
    V sum[ROWS][MAX_PANELS * VECTORS];
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        for (int v = 0; v < panels; v++) __builtin_prefetch(c + r * g->ldc + v * PANEL, 1);
        LLM_UNROLL
        for (int v = 0; v < panels * VECTORS; v++) sum[r][v] = v_zero();
    }
    for (; i + STEPS <= t->length; i += STEPS, b += STEPS * PANEL) {
        if (t->ask) ask(g, t, i, transposed);
        for (int v = 0; v < panels && t->ahead; v++) __builtin_prefetch(b + v * panel + (t->ahead + i / STEPS - i) * PANEL, 0, 2);
        LLM_UNROLL
        for (int s = 0; s < STEPS; s++) step(t->a + (i + s) * next, stride, b + s * PANEL, panel, rows, panels, transposed, sum);
    }
    for (; i < t->length; i++, b += PANEL) step(t->a + i * next, stride, b, panel, rows, panels, transposed, sum);
    if (g->n - column >= panels * PANEL && !t->bias) {
        LLM_UNROLL
        for (int r = 0; r < rows; r++) {
            LLM_UNROLL
            for (int v = 0; v < panels * VECTORS; v++) {
                float *at = c + r * g->ldc + v * VN;
                v_store(at, t->load ? v_add(v_load(at), sum[r][v]) : sum[r][v]);
            }
        }
        return;
    }
    for (int r = 0; r < rows; r++, c += g->ldc)
        for (int v = 0; v < panels * VECTORS && column + v * VN < g->n; v++) {
            size_t left = (size_t)(g->n - column - v * VN);
            V s = t->load ? v_add(v_load_n(c + v * VN, left), sum[r][v]) : sum[r][v];
            if (t->bias) s = v_add(s, v_load_n(t->bias + column + v * VN, left));
            v_store_n(c + v * VN, s, left);
        }
}

/* Rows of the next tile when `left` rows are left: one of the tile heights that multiply_tile is built for. */
static int rows_of_tile(int64_t left)
{
    if (left >= ROWS) return ROWS;
    if (VN != 16) return (int)left;
    int rows = 8;
    while (rows > left) rows /= 2;
    return rows;
}

#define TILES(rows)                                                                  \
    case rows:                                                                       \
        if (PANELS_OF(rows) > 1 && g->n - column > (PANELS_OF(rows) - 1) * PANEL) {  \
            tile(g, t, row, column, rows, PANELS_OF(rows), transposed);              \
            return PANELS_OF(rows) * PANEL;                                          \
        }                                                                            \
        tile(g, t, row, column, rows, 1, transposed);                                \
        break;

/* Multiplies one tile; returns the columns that it has. */
INLINE int64_t multiply_tile(const struct llm_gemm_job *g, const struct block *t, int64_t row, int64_t column, int rows, const bool transposed)
{
    switch (rows) {
#if VN == 16
        TILES(12) TILES(8) TILES(4) TILES(2)
#elif VN > 1
        TILES(6) TILES(5) TILES(4) TILES(3) TILES(2)
#endif
        TILES(1)
    }
    return PANEL;
}

/* Sets t->a to `rows` rows of a from `row` on: the rows themselves, or a copy if they are to be rounded or far apart, since rows of many pages would
 * fight for the lines of the first cache. */
static void take_rows(const struct llm_gemm_job *g, struct block *t, int64_t row, int rows, float *copy)
{
    const float *a = (const float *)g->a + row * g->lda + t->from;
    const bool copied = g->round || g->lda > FAR;
    t->a = copied ? copy : a;
    t->stride = copied ? K_BLOCK : g->lda;
    for (int r = 0; copied && r < rows; r++) {
        if (g->round) pack_a_rounded(a + r * g->lda, g->lda, 1, t->length, copy + r * K_BLOCK);
        else memcpy(copy + r * K_BLOCK, a + r * g->lda, (size_t)t->length * sizeof(float));
    }
}

/* Copies `rows` columns of a transposed matrix: copy[i · ROWS + r]. Whole vectors are stored; what they write beyond `rows` is overwritten by the
 * next i, and after the last i goes to the spare floats of the copy. */
static void take_columns(const struct llm_gemm_job *g, struct block *t, int64_t row, int rows, float *copy)
{
    const float *a = (const float *)g->a + t->from * g->lda + row;
    t->a = copy;
    t->stride = ROWS;
    for (int64_t i = 0; i < t->length; i++, a += g->lda, copy += ROWS)
        for (int r = 0; r < rows; r += VN) {
            V x = some(a + r, rows - r);
            v_store(copy + r, g->round ? v_round_bf16(x) : x);
        }
}

INLINE void multiply_layout(const struct llm_gemm_job *g, const bool transposed)
{
    float copy[ROWS * K_BLOCK + VN] __attribute__((aligned(64)));
    struct block t;
    int rows;
    for (t.from = 0; t.from < g->k || t.from == 0; t.from += K_BLOCK) {
        t.length = g->k - t.from < K_BLOCK ? g->k - t.from : K_BLOCK;
        t.load = g->add || t.from > 0;
        t.bias = t.from + t.length == g->k ? g->bias : NULL;
        for (int64_t row = 0; row < g->m; row += rows) {
            rows = rows_of_tile(g->m - row);
            if (transposed) take_columns(g, &t, row, rows, copy);
            else take_rows(g, &t, row, rows, copy);
            const int64_t left = (g->m - row - rows + ROWS - 1) / ROWS, soon = K_BLOCK + left * K_BLOCK / STEPS;
            t.ahead = left < STEPS && t.from + soon + K_BLOCK / STEPS <= g->k ? soon : 0; /* the last tiles prefetch the next block of b */
            const float *next = (const float *)g->a + (transposed ? t.from * g->lda + row + rows : (row + rows) * g->lda + t.from);
            for (int64_t column = 0, tiles = 0; column < g->n; tiles++) {
                const int64_t r = 2 * tiles, from = t.length / 4 * tiles;
                t.ask = NULL;
                if (transposed && tiles < 4 && row + rows < g->m) t.ask = next + from * g->lda;
                if (!transposed && r < ROWS && row + rows + r + 1 < g->m) t.ask = next + r * g->lda;
                column += multiply_tile(g, &t, row, column, rows, transposed);
            }
        }
    }
}

static void multiply_rows(const struct llm_gemm_job *g) { multiply_layout(g, false); }
static void multiply_transposed(const struct llm_gemm_job *g) { multiply_layout(g, true); }
static void multiply(const struct llm_gemm_job *g) { (g->transposed ? multiply_transposed : multiply_rows)(g); }

/* Twelve chains of independent FMA hide the latency of two units. */
static double peak_f32(int64_t iterations)
{
    V sum[12];
    LLM_UNROLL
    for (int j = 0; j < 12; j++) sum[j] = v_set1((float)j);
    V a = v_set1(0.999999f), b = v_set1(1e-7f);
    for (int64_t i = 0; i < iterations; i++) {
        LLM_UNROLL
        for (int j = 0; j < 12; j++) sum[j] = v_fma(sum[j], a, b);
    }
    V all = v_zero();
    LLM_UNROLL
    for (int j = 0; j < 12; j++) all = v_add(all, sum[j]);
    volatile float keep = v_sum(all);
    (void)keep;
    return (double)iterations * 12 * VN * 2;
}

/* A tile's steps without packing, edges and results. */
static double reading_f32(int64_t iterations)
{
    struct { float a[ROWS][K_BLOCK], b[PANELS][K_BLOCK][PANEL]; } x __attribute__((aligned(64)));
    V sum[ROWS][MAX_PANELS * VECTORS];
    float *all_of = (float *)&x;
    for (size_t i = 0; i < sizeof x / sizeof(float); i++) all_of[i] = 1e-9f * (float)i;
    LLM_UNROLL
    for (int r = 0; r < ROWS; r++) {
        LLM_UNROLL
        for (int v = 0; v < PANELS * VECTORS; v++) sum[r][v] = v_zero();
    }
    int64_t blocks = iterations / K_BLOCK + 1;
    for (int64_t i = 0; i < blocks; i++) {
        for (int64_t k = 0; k < K_BLOCK; k += STEPS) {
            LLM_UNROLL
            for (int s = 0; s < STEPS; s++) step(x.a[0] + k + s, K_BLOCK, x.b[0][k + s], K_BLOCK * PANEL, ROWS, PANELS, false, sum);
        }
    }
    V all = v_zero();
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < PANELS * VECTORS; v++) all = v_add(all, sum[r][v]);
    volatile float keep = v_sum(all);
    (void)keep;
    return (double)blocks * K_BLOCK * ROWS * PANELS * PANEL * 2;
}

static float read_all(const void *p, size_t bytes)
{
    const float *x = p;
    enum { STREAMS = 64 / VN };
    VI all[STREAMS];
    for (int j = 0; j < STREAMS; j++) all[j] = vi_set1(0);
    for (size_t i = 0; i < bytes / sizeof *x; i += 64) {
        LLM_UNROLL
        for (int j = 0; j < STREAMS; j++) all[j] = vi_xor(all[j], v_bits(v_load(x + i + j * VN)));
    }
    for (int j = 1; j < STREAMS; j++) all[0] = vi_xor(all[0], all[j]);
    return v_sum(v_from_i32(all[0]));
}

void KERNEL(llm_fill_gemm)(struct llm_kernels *k)
{
    k->gemm.f32 = (struct llm_gemm){.k_unit = 1, .element = 4, .direct = true, .pack_a = pack_a_same, .pack_b = pack_b_same,
                                    .pack_b_bf16 = pack_b_bf16, .pack_b_transposed = pack_b_transposed_same,
                                    .pack_b_bf16_transposed = pack_b_transposed_bf16, .multiply = multiply};
    k->gemm.bf16 = k->gemm.f32;
    k->gemm.bf16.direct = false;
    k->gemm.bf16.rounds = true;
    k->gemm.bf16.pack_a = pack_a_rounded;
    k->gemm.bf16.pack_b = pack_b_rounded;
    k->gemm.bf16.pack_b_transposed = pack_b_transposed_rounded;
    k->gemm.peak_f32 = peak_f32;
    k->gemm.reading_f32 = reading_f32;
    k->gemm.read = read_all;
    KERNEL(llm_fill_gemm_quantised)(k);
}
