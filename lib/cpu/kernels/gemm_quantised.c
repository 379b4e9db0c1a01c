/* Products with block-quantised weights (the rule of each type: gemm.h; what a panel holds: gemm_blocks.h). */
#include <math.h>
#include "cpu/kernels/gemm_bytes.h"

#define AHEAD 16384 /* bytes by which weights of a row are prefetched: memory takes longer than 4 KiB; hardware prefetching stops at pages */

/* Makes a group with a NaN or an infinity show in the product. */
static void poison(const struct llm_gemm_q_x *out, int64_t at)
{
    out->scale[at] = NAN;
    for (int part = 0; part < 2; part++) {
        if (out->start[part]) out->start[part][at] = 0;
        if (out->sum[part]) out->sum[part][at] = NAN;
    }
}

static void quantise(const float *x, int64_t k, const struct llm_gemm_q *g, const struct llm_gemm_q_x *out)
{
    enum { N = GROUP / VN };
    for (int64_t at = 0; at < k / GROUP * out->step; at += out->step, x += GROUP) {
        V value[N], largest = v_zero(), bad = v_zero();
        VI q[N];
        int8_t *bytes = out->q + at * GROUP;
        int32_t total[2] = {0, 0};
        for (int i = 0; i < N; i++) {
            value[i] = v_load(x + i * VN);
            largest = v_max(largest, v_abs(value[i]));
            bad = v_fma(value[i], v_zero(), bad);
        }
        float top = v_hmax(largest), inverse = top > 1e-30f ? 127 / top : 0, scale = inverse > 0 ? top / 127 : 0;
        if (m_any(m_not(v_eq(bad, v_zero())))) {
            memset(bytes, 0, GROUP);
            poison(out, at);
            continue;
        }
        for (int i = 0; i < N; i++) {
            q[i] = v_to_i32(v_mul(value[i], v_set1(inverse)));
            vi_store_i8(bytes + i * VN, q[i]);
        }
        out->scale[at] = scale;
        for (int half = 0; half < 2; half++) {
            VI sum = q[half * N / 2];
            for (int i = half * N / 2 + 1; i < (half + 1) * N / 2; i++) sum = vi_add(sum, q[i]);
            total[half] = vi_sum(sum);
        }
        if (g->parts == 1) total[0] += total[1];
        for (int part = 0; part < g->parts; part++) {
            out->start[part][at] = start_of(bytes + part * GROUP / 2, GROUP / 4 / g->parts, g->zero, total[part]);
            if (g->least) out->sum[part][at] = scale * (float)total[part];
        }
    }
}

/* Bit 4·i + b of each word to bit 8·b + i, so that fifth_bit finds the bits of one word side by side. */
static inline VI spread_bits(VI x)
{
    VI all = vi_set1(0);
    LLM_UNROLL
    for (int b = 3; b >= 0; b--) {
        VI of_b = vi_and(vi_shrv(x, vi_set1(b)), vi_set1(0x11111111));
        of_b = vi_and(vi_or(of_b, vi_shr(of_b, 3)), vi_set1(0x03030303));
        of_b = vi_and(vi_or(of_b, vi_shr(of_b, 6)), vi_set1(0x000f000f));
        of_b = vi_and(vi_or(of_b, vi_shr(of_b, 12)), vi_set1(255));
        all = vi_or(vi_shl(all, 8), of_b);
    }
    return all;
}

/* The codes of eight fours (dtype/two_of_four.c) as places of two bits: byte j of the word has in bits 2·i and 2·i + 1 the place of value j of the
 * fours 2·i and 2·i + 1. */
static inline uint32_t spread_places(uint32_t codes)
{
    static const uint16_t places[8] = {0x0100, 0x0200, 0x0300, 0x0201, 0x0301, 0x0302, 0x0100, 0x0100};
    uint32_t all = 0;
    for (int i = 0; i < 4; i++, codes >>= 8) all |= (places[codes & 7] | (uint32_t)places[codes >> 4 & 7] << 16) << 2 * i;
    return all;
}

/* Transposes four 4-byte words of 16 rows, at byte `from` of each row, into four lines of 16 words. */
#if VN >= 8
static inline void transpose_words(const unsigned char *const *rows, size_t from, uint32_t flip, unsigned char *out)
{
    LLM_UNROLL
    for (int r = 0; r < PANEL; r += 4) {
        __m128i t[4], u[4];
        LLM_UNROLL
        for (int i = 0; i < 4; i++)
            t[i] = _mm_xor_si128(_mm_loadu_si128((const __m128i *)(const void *)(rows[r + i] + from)), _mm_set1_epi32((int)flip));
        u[0] = _mm_unpacklo_epi32(t[0], t[1]);
        u[1] = _mm_unpackhi_epi32(t[0], t[1]);
        u[2] = _mm_unpacklo_epi32(t[2], t[3]);
        u[3] = _mm_unpackhi_epi32(t[2], t[3]);
        _mm_storeu_si128((__m128i *)(void *)(out + r * 4), _mm_unpacklo_epi64(u[0], u[2]));
        _mm_storeu_si128((__m128i *)(void *)(out + LINE + r * 4), _mm_unpackhi_epi64(u[0], u[2]));
        _mm_storeu_si128((__m128i *)(void *)(out + 2 * LINE + r * 4), _mm_unpacklo_epi64(u[1], u[3]));
        _mm_storeu_si128((__m128i *)(void *)(out + 3 * LINE + r * 4), _mm_unpackhi_epi64(u[1], u[3]));
    }
}
#else
static inline void transpose_words(const unsigned char *const *rows, size_t from, uint32_t flip, unsigned char *out)
{
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < PANEL; r++) {
            uint32_t word;
            memcpy(&word, rows[r] + from + i * 4, 4);
            word ^= flip;
            memcpy(out + i * LINE + r * 4, &word, 4);
        }
}
#endif

INLINE unsigned char *pack_field(const unsigned char *const *rows, const struct field *f, unsigned char *out)
{
    const uint32_t flip = f->recode == SIGNED ? 0x80808080u : 0;
    size_t from = (size_t)f->from, unit = (size_t)f->unit, end = from + unit * (size_t)f->count;
    if (unit == 4)
        for (; from + 16 <= end; from += 16, out += 4 * LINE) transpose_words(rows, from, flip, out);
    for (; from < end; from += unit, out += PANEL * unit) {
        for (size_t r = 0; r < PANEL; r++) memcpy(out + r * unit, rows[r] + from, unit);
        if (f->recode == BITS)
            for (int v = 0; v < VECTORS; v++) vi_store((int32_t *)(void *)out + v * VN, spread_bits(line(out, 0, v)));
        if (f->recode == PLACES)
            for (int r = 0; r < PANEL; r++) {
                uint32_t word;
                memcpy(&word, out + r * 4, 4);
                word = spread_places(word);
                memcpy(out + r * 4, &word, 4);
            }
    }
    return out;
}

INLINE void pack(const struct kind *k, const unsigned char *w, size_t ldw, int64_t n, int64_t depth, unsigned char *out)
{
    static const unsigned char none[512];
    const size_t block_bytes = (size_t)llm_dtypes[k->type].block_bytes;
    const unsigned char *rows[PANEL], *next = w + PANEL * ldw; /* the next 16 rows follow these */
    for (int r = 0; r < PANEL; r++) rows[r] = r < n ? w + (size_t)r * ldw : none;
    for (int64_t block = 0; block < depth / (GROUP * k->groups); block++, next += PANEL * block_bytes) {
        for (size_t i = 0; i < block_bytes * PANEL; i += 64) __builtin_prefetch(next + i, 0, 2);
        LLM_UNROLL
        for (int f = 0; f < 6; f++)
            if (k->fields[f].count) out = pack_field(rows, &k->fields[f], out);
        for (int r = 0; r < n; r++) rows[r] += block_bytes;
    }
}

#define BY_WORDS (SUMS_OF_16 && VN == 8) /* a word for all rows of a tile, then the next: dot_by_words in place of dot */

/* Dot products of `words` words of VN rows of weights with one row of activations, added to `start`, which corrects for the kind's zero. */
#if BY_WORDS
#elif SUMS_OF_16
INLINE VI dot(const struct kind *k, const VI *w, const int words, const int8_t *q, int32_t start)
{
    const int max = words_in_16(k);
    VI sum = vi_set1(0), some = vi_set1(max == 1 ? 0 : start);
    LLM_UNROLL
    for (int i = 0; i < words; i++) {
        VI x = four_of(q + i * 4);
        some = max == 1 ? products_signed(vi_xor(w[i], vi_set1((int32_t)0x80808080u)), x) : add_16(some, products(w[i], x));
        if (i % max != max - 1 && i != words - 1) continue;
        sum = vi_add(sum, pairs_of(some, 1));
        some = vi_set1(0);
    }
    return sum;
}
#elif defined LLM_ISA_neon
INLINE VI dot(const struct kind *k, const VI *w, const int words, const int8_t *q, int32_t start)
{
    const bool wide = k->top > 127; /* such bytes are made signed, and need no start */
    VI sum = vi_set1(wide ? 0 : start);
    LLM_UNROLL
    for (int i = 0; i < words; i++) sum = dot4(sum, wide ? vi_xor(w[i], vi_set1((int32_t)0x80808080u)) : w[i], four_of(q + i * 4));
    return sum;
}
#else
INLINE VI dot(const struct kind *k, const VI *w, const int words, const int8_t *q, int32_t start)
{
    VI sum = vi_set1(start), odd = vi_set1(0); /* integers: two chains are half as long, and their sum is exact */
    (void)k;
    if (words == 4) { /* whose addition would cost more than a longer chain */
        LLM_UNROLL
        for (int i = 0; i < 4; i++) sum = dot4(sum, w[i], four_of(q + i * 4));
        return sum;
    }
    LLM_UNROLL
    for (int i = 0; i < words; i += 2) {
        sum = dot4(sum, w[i], four_of(q + i * 4));
        odd = dot4(odd, w[i + 1], four_of(q + i * 4 + 4));
    }
    return vi_add(sum, odd);
}
#endif

/* The same from what open_places makes: the activations that there are weights for are brought to them. No byte stands for a weight that is not
 * there, so what the zero adds is not known before. */
INLINE VI dot_places(const VI *w, const int8_t *q)
{
    const VI zero = vi_set1((int32_t)0x80808080u);
    VI sum = vi_set1(0), of_zero = vi_set1(0);
    LLM_UNROLL
    for (int i = 0; i < 4; i++) {
        const VI x = vi_chosen(q + i * 8, w[i + 4]);
#if SUMS_OF_16
        sum = vi_add(sum, pairs_of(products_signed(vi_xor(w[i], zero), x), 1));
#elif defined LLM_ISA_neon
        sum = dot4(sum, vi_xor(w[i], zero), x);
#else
        sum = dot4(sum, w[i], x);
        of_zero = dot4(of_zero, zero, x);
#endif
    }
    return vi_sub(sum, of_zero);
}

/* Most rows of a tile. */
#if VN == 16
enum { ROWS = 16 };
#else
enum { ROWS = 2 };
#endif

/* A group's dot products, one for each part, scaled, on to the sum of one row of x, whose numbers of the group stand at `at`. */
INLINE V add_dots(const struct llm_gemm_q_x *x, int64_t at, const struct kind *k, const VI *dots, const struct head *h, int g, V sum)
{
    V all = v_from_i32(dots[0]), scale = h->scale[k->parts == 2 ? 0 : g];
    if (k->parts == 2) /* integers below 2^24: exact in FP32 */
        all = v_fma(all, h->part[2 * g], v_mul(v_from_i32(dots[1]), h->part[2 * g + 1]));
    sum = v_fma(all, v_mul(scale, v_set1(x->scale[at])), sum);
    if (k->least)
        for (int part = 0; part < k->parts; part++) sum = v_fma(h->least[g * k->parts + part], v_set1(x->sum[part][at]), sum);
    return sum;
}

#if BY_WORDS
/* One part of group i of the block at b, for `rows` rows: dots[part] of each. */
INLINE void dot_by_words(const struct llm_gemm_q_job *g, int64_t at, const int rows, const struct kind *k, const unsigned char *b, int i, int part,
                         VI dots[ROWS][VECTORS][2])
{
    const int max = words_in_16(k), words = 8 / k->parts;
    VI some[ROWS][VECTORS];
    LLM_UNROLL
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) {
            dots[r][v][part] = vi_set1(0);
            some[r][v] = vi_set1(k->zero && max > 1 ? g->x.start[part][at + r] : 0);
        }
    LLM_UNROLL
    for (int j = 0; j < words; j++) {
        const int word = words == 8 ? j / 2 + j % 2 * 4 : part * 4 + j; /* lines of nibbles have words i and i + 4 */
        if (words == 4 || j % 2 == 0) __asm__ volatile("" : "+r"(b)); /* GCC would open all words first, and spill them */
        LLM_UNROLL
        for (int v = 0; v < VECTORS; v++) {
            const VI w = open_word(k, b, i, v, word);
            LLM_UNROLL
            for (int r = 0; r < rows; r++) {
                const VI x = four_of(g->x.q + (at + r) * GROUP + word * 4);
                VI *sum = &some[r][v];
                *sum = max == 1 ? products_signed(vi_xor(w, vi_set1((int32_t)0x80808080u)), x) : kept(add_16(*sum, products(w, x)));
                if (j % max != max - 1 && j != words - 1) continue;
                dots[r][v][part] = vi_add(dots[r][v][part], pairs_of(*sum, 1));
                *sum = vi_set1(0);
            }
        }
    }
}

/* The block at b on to the sums of `rows` rows, the first of whose numbers of its first group stand at `at`. A word is opened for all rows and
 * multiplied before the next one is: a group's words, and what they are made of, are more than the registers. */
INLINE void add_block(const struct llm_gemm_q_job *g, int64_t at, const int rows, const struct kind *k, const unsigned char *b, V sum[ROWS][VECTORS])
{
    struct head h[VECTORS];
    for (int v = 0; v < VECTORS; v++) open_head(k, b, v, &h[v]);
    LLM_UNROLL
    for (int i = 0; i < k->groups; i++, at += g->x.step) {
        VI dots[ROWS][VECTORS][2];
        prefetch_share(k, b + AHEAD, i, k->groups);
        if (k->type == LLM_Q8_0_2OF4)
            for (int v = 0; v < VECTORS; v++) {
                VI w[8];
                open_places(b, v, w);
                LLM_UNROLL
                for (int r = 0; r < rows; r++) dots[r][v][0] = dot_places(w, g->x.q + (at + r) * GROUP);
            }
        else {
            LLM_UNROLL
            for (int part = 0; part < k->parts; part++) dot_by_words(g, at, rows, k, b, i, part, dots);
        }
        LLM_UNROLL
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECTORS; v++) sum[r][v] = add_dots(&g->x, at + r, k, dots[r][v], &h[v], i, sum[r][v]);
    }
}
#else
/* One group of one row of x on to `sum`. */
INLINE V add_group(const struct llm_gemm_q_x *x, int64_t at, const struct kind *k, const VI *w, const struct head *h, int g, V sum)
{
    const int8_t *q = x->q + at * GROUP;
    VI dots[2];
    LLM_UNROLL
    for (int part = 0; part < k->parts; part++)
        dots[part] = k->type == LLM_Q8_0_2OF4 ? dot_places(w, q)
                                              : dot(k, w + part * 4, 8 / k->parts, q + part * GROUP / 2, k->zero ? x->start[part][at] : 0);
    return add_dots(x, at, k, dots, h, g, sum);
}

/* Prefetches the lines of group i of the block at b that fall to row r: the same number of lines in each group, so that no row needs a branch. */
INLINE void prefetch_of_row(const struct kind *k, const unsigned char *b, int i, const int r, const int rows)
{
    const int lines = (k->bytes * PANEL + 64 * k->groups - 1) / (64 * k->groups);
#if VN > 1 /* sanitizers' builds of scalar kernels cannot, and warn */
    LLM_UNROLL
#endif
    for (int l = r * lines / rows; l < (r + 1) * lines / rows; l++) __builtin_prefetch(b + (i * lines + l) * 64, 0, 2);
}

#if VN == 16 && !SUMS_OF_16
/* The dot products of `rows` rows, word by word, each for all rows: consecutive products of one row would wait for each other. */
INLINE void dots_of_rows(const struct llm_gemm_q_x *x, int64_t at, const struct kind *k, const VI *w, const int rows, VI dots[ROWS][2])
{
    const int words = 8 / k->parts;
    LLM_UNROLL
    for (int r = 0; r < rows; r++)
        for (int part = 0; part < k->parts; part++) dots[r][part] = vi_set1(k->zero ? x->start[part][at + r] : 0);
    LLM_UNROLL
    for (int i = 0; i < words; i++) {
        LLM_UNROLL
        for (int part = 0; part < k->parts; part++) {
            LLM_UNROLL
            for (int r = 0; r < rows; r++)
                dots[r][part] = dot4(dots[r][part], w[part * words + i], four_of(x->q + (at + r) * GROUP + (part * words + i) * 4));
        }
    }
}
#endif

/* Group i of the block at b on to the sums of `rows` rows, the first of whose numbers of it stand at `at`. Each row prefetches its share of a block
 * that is needed later: all at once would wait for memory. */
INLINE void add_rows(const struct llm_gemm_q_job *g, int64_t at, const int rows, const struct kind *k, const unsigned char *b, const struct head *h,
                     int i, int v, V sum[ROWS][VECTORS])
{
    VI w[8];
    if (k->type == LLM_Q8_0_2OF4) open_places(b, v, w);
    else open_group(k, b, i, v, w);
#if VN == 16 && !SUMS_OF_16
    if (rows > 4 && k->type != LLM_Q8_0_2OF4) {
        const int together = k->parts == 1 || rows <= 8 ? rows : rows / 2; /* as many sums as there are registers for */
        LLM_UNROLL
        for (int first = 0; first < rows; first += together) {
            VI dots[ROWS][2];
            LLM_UNROLL
            for (int r = first; r < first + together; r++) prefetch_of_row(k, b + AHEAD, i, r, rows);
            dots_of_rows(&g->x, at + first, k, w, together, dots);
            LLM_UNROLL
            for (int r = 0; r < together; r++) sum[first + r][v] = add_dots(&g->x, at + first + r, k, dots[r], h, i, sum[first + r][v]);
        }
        return;
    }
#endif
    LLM_UNROLL
    for (int r = 0; r < rows; r++) {
        if (v == 0 && rows > 1) prefetch_of_row(k, b + AHEAD, i, r, rows);
        if (v == 0 && rows == 1) prefetch_share(k, b + AHEAD, i, k->groups);
        sum[r][v] = add_group(&g->x, at + r, k, w, h, i, sum[r][v]);
    }
}

/* The block at b on to the sums of `rows` rows, the first of whose numbers of its first group stand at `at`. */
INLINE void add_block(const struct llm_gemm_q_job *g, int64_t at, const int rows, const struct kind *k, const unsigned char *b, V sum[ROWS][VECTORS])
{
    for (int v = 0; v < VECTORS; v++) {
        struct head h;
        open_head(k, b, v, &h);
        if (rows == 1) { /* with each group's shifts known */
            LLM_UNROLL
            for (int i = 0; i < k->groups; i++) {
                const unsigned char *here = b;
                if (k->top > 15) __asm__("" : "+r"(here)); /* load lines of high bits again: GCC would keep them in spill slots */
                add_rows(g, at + i * g->x.step, 1, k, here, &h, i, v, sum);
            }
        } else {
            for (int i = 0; i < k->groups; i++) add_rows(g, at + i * g->x.step, rows, k, b, &h, i, v, sum);
        }
    }
}
#endif

/* `rows` rows of one panel of columns, of which those that are there are stored. */
INLINE void tile(const struct llm_gemm_q_job *g, int64_t row, int64_t column, const int rows, const struct kind *k)
{
    const size_t block_bytes = (size_t)k->bytes * PANEL;
    int64_t blocks = g->k / (GROUP * k->groups), first = llm_gemm_q_at(g->k / GROUP, g->x.step, row, 0);
    const unsigned char *b = (const unsigned char *)g->b + (size_t)(column / PANEL) * (size_t)blocks * block_bytes;
    V sum[ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++) sum[r][v] = v_zero();
    for (int64_t block = 0; block < blocks; block++, b += block_bytes) add_block(g, first + block * k->groups * g->x.step, rows, k, b, sum);
    for (int r = 0; r < rows && row + r < g->m; r++)
        for (int v = 0; v < VECTORS && column + v * VN < g->n; v++) {
            float *c = g->c + (row + r) * g->ldc + column + v * VN;
            size_t left = (size_t)(g->n - column - v * VN);
            V s = g->add ? v_add(v_load_n(c, left), sum[r][v]) : sum[r][v];
            if (g->bias) s = v_add(s, v_load_n(g->bias + column + v * VN, left));
            v_store_n(c, s, left);
        }
}

/* X(rows, the next smaller tile's) of every tile. */
#if VN == 16
#define TILES(X) X(16, 12) X(12, 8) X(8, 6) X(6, 4) X(4, 2) X(2, 1) X(1, 0)
#else
#define TILES(X) X(2, 1) X(1, 0)
#endif
#define TILE(rows, smaller) \
    for (; g->m - row > (smaller); row += (rows)) tile(g, row, column, rows, k);

INLINE void multiply(const struct llm_gemm_q_job *g, const struct kind *k)
{
    for (int64_t column = 0; column < g->n; column += PANEL) {
        int64_t row = 0;
        TILES(TILE)
    }
}

#define KIND(ID, name, ...)                                                                           \
    static void multiply_##name(const struct llm_gemm_q_job *g) { multiply(g, &kinds[KIND_##name]); } \
    static void pack_##name(const void *w, size_t ldw, int64_t n, int64_t k, void *panel) { pack(&kinds[KIND_##name], w, ldw, n, k, panel); }
LLM_QUANTISED_KINDS(KIND)

/* What a compiler cannot do once before the loop: multiplying what changes, where the sum is not part of the instruction. */
#if VN >= 8 && !SUMS_OF_16
#define PEAK_WORDS(j) sum[12]
#else
#define PEAK_WORDS(j) sum[((j) + 1) % 12]
#endif

static double peak_int8(int64_t iterations)
{
    VI sum[13];
    LLM_UNROLL
    for (int j = 0; j < 13; j++) sum[j] = vi_set1(j);
    for (int64_t i = 0; i < iterations; i++) {
        LLM_UNROLL
        for (int j = 0; j < 12; j++) sum[j] = dot4(sum[j], PEAK_WORDS(j), vi_set1(0x01020304));
    }
    int32_t out[VN];
    VI all = vi_set1(0);
    LLM_UNROLL
    for (int j = 0; j < 12; j++) all = vi_add(all, sum[j]);
    vi_store(out, all);
    volatile int32_t keep = out[0];
    (void)keep;
    return (double)iterations * 12 * VN * 8;
}

/* Four rows of activations, of which words of four bytes are broadcast, and as many vectors of weights as most tiles of many rows have. */
static double reading_int8(int64_t iterations)
{
    enum { HIGH = 4, WIDE = VN == 16 ? 3 : 2, WORDS = VN == 16 ? 128 : 512 }; /* weights: at most 32 KiB with vectors of 32 bytes, 24 of 64 */
    static _Thread_local struct { int32_t a[HIGH][WORDS], b[WORDS][WIDE * VN]; } x __attribute__((aligned(64)));
    VI sum[HIGH][WIDE];
    memset(&x, 1, sizeof x);
    __asm__ volatile("" : : "r"(&x) : "memory"); /* the compiler must not know what is there */
    LLM_UNROLL
    for (int r = 0; r < HIGH; r++) {
        LLM_UNROLL
        for (int v = 0; v < WIDE; v++) sum[r][v] = vi_set1(0);
    }
    int64_t blocks = iterations / WORDS + 1;
    for (int64_t i = 0; i < blocks; i++) {
        for (int64_t k = 0; k < WORDS; k++) {
            VI w[WIDE];
            LLM_UNROLL
            for (int v = 0; v < WIDE; v++) w[v] = vi_load(x.b[k] + v * VN);
            LLM_UNROLL
            for (int r = 0; r < HIGH; r++) {
                LLM_UNROLL
                for (int v = 0; v < WIDE; v++) sum[r][v] = dot4(sum[r][v], w[v], vi_set1(x.a[r][k]));
            }
        }
    }
    int32_t out[VN];
    VI all = vi_set1(0);
    for (int r = 0; r < HIGH; r++)
        for (int v = 0; v < WIDE; v++) all = vi_add(all, sum[r][v]);
    vi_store(out, all);
    volatile int32_t keep = out[0];
    (void)keep;
    return (double)blocks * WORDS * HIGH * WIDE * VN * 8;
}

#define FILL(ID, name, ...)                                                                                                  \
    k->gemm.quantised[LLM_##ID] = (struct llm_gemm_q){                                                                       \
        .block_bytes = (size_t)kinds[KIND_##name].bytes * PANEL, .zero = kinds[KIND_##name].zero,                            \
        .parts = kinds[KIND_##name].parts, .least = kinds[KIND_##name].least, .pack = pack_##name, .multiply = multiply_##name};

void KERNEL(llm_fill_gemm_quantised)(struct llm_kernels *k)
{
    LLM_QUANTISED_KINDS(FILL)
#if VN >= 8
    KERNEL(llm_fill_gemm_quantised_rows)(k);
#endif
    k->gemm.quantise = quantise;
    k->gemm.peak_int8 = peak_int8;
    k->gemm.reading_int8 = reading_int8;
}
