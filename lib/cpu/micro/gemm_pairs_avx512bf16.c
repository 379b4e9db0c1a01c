/* BF16 products by vdpbf16ps: pairs of k in order, subnormals taken as zero (layouts: kernels/gemm.h). AMX uses the same panels.
 * Where that instruction is slow, a tile of FMAs has its bits (kernels/pairs.h). */
#include "base/clock.h"
#include "cpu/kernels/gemm_internal.h"
#include "cpu/kernels/pairs.h"
#include "cpu/simd/transpose.h"

#define PANEL LLM_GEMM_PANEL
#define UNIT 32  /* k of a block of a panel: 16 lines of 64 bytes */
enum { ROWS = 8, PANELS = 3 };

static inline __m512i narrow(V high, V low) { return (__m512i)_mm512_cvtne2ps_pbh(high, low); }

/* Words (high, low) from two rows: lane j has low[j] in its lower half. */
static inline __m512i interleave(V low, V high)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                           18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, narrow(high, low));
}

static inline __m512i interleave_bf16(__m256i low, __m256i high)
{
    return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

/* 16 × 16 words of 32 bits, in registers. */
static inline void transpose(__m512i r[16])
{
    V t[16];
    for (int i = 0; i < 16; i++) t[i] = _mm512_castsi512_ps(r[i]);
    v_transpose(t);
    for (int i = 0; i < 16; i++) r[i] = _mm512_castps_si512(t[i]);
}

/* 32 k of a row, as far as there are `left`, the rest zero. */
static inline __m512i load_row(const float *x, int64_t left)
{
    if (left >= UNIT) return narrow(v_load(x + VN), v_load(x));
    V low = v_load_n(x, (size_t)left), high = left > VN ? v_load_n(x + VN, (size_t)(left - VN)) : v_zero();
    return narrow(high, low);
}

static inline __m512i load_row_bf16(const uint16_t *x, int64_t left)
{
    return left >= UNIT ? _mm512_loadu_si512(x) : _mm512_maskz_loadu_epi16((1u << left) - 1, x);
}

/* Two blocks of k at a time: whole lines of x, and neighbouring lines of the panel. */
static void pack_a(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel)
{
    char *out = panel;
    for (int64_t i = 0; i < k; i += 2 * UNIT, out += 2 * PANEL * 64) {
        for (int64_t r = 0; r < rows; r++) {
            const float *from = x + r * ldx + i;
            _mm512_store_si512(out + r * 64, load_row(from, k - i));
            if (k - i > UNIT) _mm512_store_si512(out + (PANEL + r) * 64, load_row(from + UNIT, k - i - UNIT));
        }
    }
}

/* A pair of k for 16 lines: rows i and i + 1 of a matrix whose rows are k. */
static inline __m512i load_pair(const float *x, int64_t ldx, int64_t lines, int64_t left)
{
    V low = left > 0 ? v_load_n(x, (size_t)lines) : v_zero();
    return interleave(low, left > 1 ? v_load_n(x + ldx, (size_t)lines) : v_zero());
}

static void pack_a_transposed(const float *x, int64_t ldx, int64_t rows, int64_t k, void *panel)
{
    char *out = panel;
    for (int64_t i = 0; i < k; i += UNIT, out += PANEL * 64) {
        __m512i r[16];
        for (int p = 0; p < 16; p++) r[p] = load_pair(x + (i + 2 * p) * ldx, ldx, rows, k - i - 2 * p);
        transpose(r);
        for (int p = 0; p < 16; p++) _mm512_store_si512(out + p * 64, r[p]);
    }
}

static void pack_b(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    char *out = panel;
    for (int64_t i = 0; i < k; i += UNIT, out += PANEL * 64) {
        __m512i r[16];
        for (int j = 0; j < 16; j++) r[j] = j < n ? load_row(w + j * ldw + i, k - i) : _mm512_setzero_si512();
        transpose(r);
        for (int p = 0; p < 16; p++) _mm512_store_si512(out + p * 64, r[p]);
    }
}

static void pack_b_bf16(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    char *out = panel;
    for (int64_t i = 0; i < k; i += UNIT, out += PANEL * 64) {
        __m512i r[16];
        for (int j = 0; j < 16; j++) r[j] = j < n ? load_row_bf16(w + j * ldw + i, k - i) : _mm512_setzero_si512();
        transpose(r);
        for (int p = 0; p < 16; p++) _mm512_store_si512(out + p * 64, r[p]);
    }
}

static int64_t padded(int64_t k) { return (k + UNIT - 1) / UNIT * UNIT; }

static void pack_b_transposed(const float *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    char *out = panel;
    for (int64_t i = 0; i < padded(k); i += 2, out += 64) _mm512_store_si512(out, load_pair(w + i * ldw, ldw, n, k - i));
}

static void pack_b_bf16_transposed(const uint16_t *w, int64_t ldw, int64_t n, int64_t k, void *panel)
{
    char *out = panel;
    M lines = m_first((size_t)n);
    for (int64_t i = 0; i < padded(k); i += 2, out += 64) {
        __m256i low = i < k ? _mm256_maskz_loadu_epi16(lines, w + i * ldw) : _mm256_setzero_si256();
        __m256i high = i + 1 < k ? _mm256_maskz_loadu_epi16(lines, w + (i + 1) * ldw) : _mm256_setzero_si256();
        _mm512_store_si512(out, interleave_bf16(low, high));
    }
}

/* 16 elements of row `row` of a matrix in panels of a, each panel `size` bytes; `at`: of the elements in a panel's first row. */
static inline __m256i load_of_panels(const char *at, int64_t size, int64_t row)
{
    return _mm256_load_si256((const __m256i *)(const void *)(at + row / PANEL * size + row % PANEL * 64));
}

static void pack_b_from_a(const void *panels, int64_t width, int64_t row, int64_t k, int64_t column, void *panel)
{
    const int64_t size = padded(width) * PANEL * 2;
    const char *at = (const char *)panels + column / UNIT * PANEL * 64 + column % UNIT * 2;
    char *out = panel;
    for (int64_t i = 0; i < padded(k); i += 2, out += 64) {
        __m256i low = i < k ? load_of_panels(at, size, row + i) : _mm256_setzero_si256();
        __m256i high = i + 1 < k ? load_of_panels(at, size, row + i + 1) : _mm256_setzero_si256();
        _mm512_store_si512(out, interleave_bf16(low, high));
    }
}

/* A row's sums of `panels` panels of columns from `column` on, to c. */
static inline __attribute__((always_inline)) void put(const struct llm_gemm_job *g, int64_t row, int64_t column, const int panels, const V *sum)
{
    LLM_UNROLL
    for (int v = 0; v < panels; v++) {
        int64_t at = column + v * PANEL;
        float *c = g->c + row * g->ldc + at;
        size_t left = (size_t)(g->n - at);
        V s = sum[v];
        if (g->bias) s = v_add(s, v_load_n(g->bias + at, left));
        if (g->add) s = v_add(v_load_n(c, left), s);
        v_store_n(c, s, left);
    }
}

static inline __attribute__((always_inline)) void tile_of_dots(const struct llm_gemm_job *g, int64_t row, int64_t column, const int rows,
                                                               const int panels)
{
    int64_t panel_bytes = padded(g->k) * PANEL * 2;
    const char *a = (const char *)g->a + row / PANEL * panel_bytes + row % PANEL * 64;
    const char *b = (const char *)g->b + column / PANEL * panel_bytes;
    V sum[ROWS][PANELS];
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        LLM_UNROLL
        for (int v = 0; v < panels; v++) sum[r][v] = v_zero();
    }
    for (int64_t i = 0; i < g->k; i += UNIT, a += PANEL * 64) {
        for (int p = 0; p < UNIT / 2; p++, b += 64) {
            __m512bh w[PANELS];
            LLM_UNROLL
            for (int v = 0; v < panels; v++) w[v] = (__m512bh)_mm512_load_si512(b + v * panel_bytes);
            LLM_UNROLL
            for (int r = 0; r < rows; r++) {
                int32_t pair;
                memcpy(&pair, a + r * 64 + p * 4, 4);
                __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
                LLM_UNROLL
                for (int v = 0; v < panels; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, w[v]);
            }
        }
    }
    LLM_UNROLL
    for (int r = 0; r < rows; r++) put(g, row + r, column, panels, sum[r]);
}

/* A strip of rows of a, opened to floats a block of k at a time: of each row the second numbers of pairs, then the first. It stays in the first cache
 * for all columns. */
enum { STRIP = 12, STRIP_PANELS = 2, BLOCK_UNITS = 768 / UNIT };
struct strip { float of[BLOCK_UNITS][STRIP][2][VN]; };

static void open_strip(const struct llm_gemm_job *g, int64_t row, int64_t rows, int64_t unit, int64_t units, struct strip *s)
{
    for (int64_t r = 0; r < rows; r++, row++) {
        const char *a = (const char *)g->a + row / PANEL * padded(g->k) * PANEL * 2 + (unit * PANEL + row % PANEL) * 64;
        for (int64_t i = 0; i < units; i++) {
            const __m512i pairs = _mm512_load_si512(a + i * PANEL * 64);
            v_store(s->of[i][r][0], v_from_bits(llm_second_of_pairs(pairs)));
            v_store(s->of[i][r][1], v_from_bits(llm_first_of_pairs(pairs)));
        }
    }
}

/* Units [from, from + units) of k. Sums wait in c between blocks; where c is added to, a tile has all blocks and opens the strip for each again. */
static inline __attribute__((always_inline)) void tile_of_fmas(const struct llm_gemm_job *g, int64_t row, int64_t column, struct strip *strip,
                                                               int64_t from, int64_t units, const int rows, const int panels)
{
    const int64_t panel_bytes = padded(g->k) * PANEL * 2, end = from + units;
    const bool last = end * UNIT >= g->k;
    const char *b = (const char *)g->b + column / PANEL * panel_bytes + from * UNIT * PANEL * 2;
    V sum[STRIP][STRIP_PANELS];
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        LLM_UNROLL
        for (int v = 0; v < panels; v++)
            sum[r][v] = from == 0 ? v_zero() : v_load_n(g->c + (row + r) * g->ldc + column + v * PANEL, (size_t)(g->n - column - v * PANEL));
    }
    const unsigned usual = llm_subnormals_are_zero();
    while (from < end) {
        const int64_t here = end - from < BLOCK_UNITS ? end - from : BLOCK_UNITS;
        if (units > BLOCK_UNITS) open_strip(g, row, rows, from, here, strip);
        for (int64_t i = 0; i < here; i++) {
            for (int p = 0; p < UNIT / 2; p++, b += 64) {
                LLM_UNROLL
                for (int first = 0; first < 2; first++) {
                    V w[STRIP_PANELS];
                    LLM_UNROLL
                    for (int v = 0; v < panels; v++) {
                        const __m512i pairs = _mm512_load_si512(b + v * panel_bytes);
                        w[v] = v_from_bits(first ? llm_first_of_pairs(pairs) : llm_second_of_pairs(pairs));
                    }
                    LLM_UNROLL
                    for (int r = 0; r < rows; r++) {
                        const V x = v_set1(strip->of[i][r][first][p]);
                        LLM_UNROLL
                        for (int v = 0; v < panels; v++) sum[r][v] = v_fma(x, w[v], sum[r][v]);
                    }
                }
            }
        }
        from += here;
    }
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        LLM_UNROLL
        for (int v = 0; v < panels; v++) __asm__ volatile("" : "+v"(sum[r][v]));
    }
    llm_subnormals_as(usual);
    const struct llm_gemm_job part = {.c = g->c, .ldc = g->ldc, .n = g->n};
    LLM_UNROLL
    for (int r = 0; r < rows; r++) put(last ? g : &part, row + r, column, panels, sum[r]);
}

#define TILE_ROWS(n, panels) \
    case n: tile_of_dots(g, row, column, n, panels); break;
#define TILE_CASES(panels)                                                                          \
    switch (rows) {                                                                                 \
        TILE_ROWS(8, panels) TILE_ROWS(7, panels) TILE_ROWS(6, panels) TILE_ROWS(5, panels)         \
        TILE_ROWS(4, panels) TILE_ROWS(3, panels) TILE_ROWS(2, panels) TILE_ROWS(1, panels)         \
    }

void llm_gemm_pairs_by_dots(const struct llm_gemm_job *g)
{
    for (int64_t column = 0; column < g->n; column += PANELS * PANEL) {
        int64_t left = (g->n - column + PANEL - 1) / PANEL;
        for (int64_t row = 0; row < g->m; row += ROWS) {
            int64_t rows = g->m - row < ROWS ? g->m - row : ROWS;
            if (left >= 3) TILE_CASES(3)
            else if (left == 2) TILE_CASES(2)
            else TILE_CASES(1)
        }
    }
}

#define STRIP_CASE(rows)                                                                                   \
    case rows:                                                                                             \
        if (g->n - column > PANEL) tile_of_fmas(g, row, column, &strip, from, here, rows, STRIP_PANELS);   \
        else tile_of_fmas(g, row, column, &strip, from, here, rows, 1);                                    \
        break;

/* One or two rows have too few sums for FMAs that wait for one another. */
void llm_gemm_pairs_by_fmas(const struct llm_gemm_job *g)
{
    struct strip strip __attribute__((aligned(64)));
    if (g->m <= 2) {
        llm_gemm_pairs_by_dots(g);
        return;
    }
    const int64_t strips = (g->m + STRIP - 1) / STRIP, most = (g->m + strips - 1) / strips; /* of about as many rows each */
    const int64_t units = padded(g->k) / UNIT, block = g->add && units > BLOCK_UNITS ? units : BLOCK_UNITS;
    for (int64_t from = 0; from < units || from == 0; from += block) {
        const int64_t here = units - from < block ? units - from : block;
        for (int64_t row = 0; row < g->m; row += most) {
            const int64_t rows = g->m - row < most ? g->m - row : most;
            if (here <= BLOCK_UNITS) open_strip(g, row, rows, from, here, &strip);
            for (int64_t column = 0; column < g->n; column += STRIP_PANELS * PANEL) {
                switch (rows) {
                    STRIP_CASE(12) STRIP_CASE(11) STRIP_CASE(10) STRIP_CASE(9) STRIP_CASE(8) STRIP_CASE(7)
                    STRIP_CASE(6) STRIP_CASE(5) STRIP_CASE(4) STRIP_CASE(3) STRIP_CASE(2) STRIP_CASE(1)
                }
            }
        }
    }
}

/* As many chains as a tile has sums: with 12 the instruction's latency shows on some processors. */
static double peak_of_dots(int64_t iterations)
{
    enum { CHAINS = ROWS * PANELS };
    V sum[CHAINS]; /* in registers: every loop over them is unrolled */
    LLM_UNROLL
    for (int j = 0; j < CHAINS; j++) sum[j] = v_set1((float)j);
    __m512bh a = (__m512bh)_mm512_set1_epi32(0x3f003f00);
    for (int64_t i = 0; i < iterations; i++) {
        LLM_UNROLL
        for (int j = 0; j < CHAINS; j++) {
            sum[j] = _mm512_dpbf16_ps(sum[j], a, a);
            __asm__ volatile("" : "+v"(sum[j]));
        }
    }
    V all = v_zero();
    LLM_UNROLL
    for (int j = 0; j < CHAINS; j++) all = v_add(all, sum[j]);
    volatile float keep = v_sum(all);
    (void)keep;
    return (double)iterations * CHAINS * VN * 4;
}

/* Operations in a second of a loop of about a microsecond, if they are more than `best`. */
static double better(double best, double (*loop)(int64_t))
{
    const double start = llm_now(), operations = loop(64), now = operations / (llm_now() - start);
    return now > best ? now : best;
}

/* Whether FMAs do a dot product's work sooner: 2.0 times its rate on Intel's model 207, .5 on AMD's Zen 5. In turns, since a processor needs some
 * microseconds to get used to wide vectors. */
static bool fmas_are_faster(const struct llm_kernels *k)
{
    double fmas = 0, dots = 0;
    for (int i = 0; i < 32; i++) {
        fmas = better(fmas, k->gemm.peak_f32);
        dots = better(dots, peak_of_dots);
    }
    return fmas > 1.5 * dots;
}

void llm_fill_gemm_avx512bf16(struct llm_kernels *k)
{
    const bool by_fmas = fmas_are_faster(k);
    k->gemm.bf16 = (struct llm_gemm){.k_unit = UNIT, .element = 2, .pack_a = pack_a, .pack_a_transposed = pack_a_transposed, .pack_b = pack_b,
                                     .pack_b_bf16 = pack_b_bf16, .pack_b_transposed = pack_b_transposed,
                                     .pack_b_bf16_transposed = pack_b_bf16_transposed, .pack_b_from_a = pack_b_from_a,
                                     .multiply = by_fmas ? llm_gemm_pairs_by_fmas : llm_gemm_pairs_by_dots};
    k->gemm.peak_bf16 = by_fmas ? k->gemm.peak_f32 : peak_of_dots;
}
