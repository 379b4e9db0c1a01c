/* Block-quantised types as products see them: what a packed panel holds and how its bytes become vectors whose lanes are rows of w. Included by
 * the sources of products, each with the vectors of its instruction set. A type needs none of this: weights of a type without
 * a row in LLM_QUANTISED_KINDS are decoded to floats as they are packed. Products of integers need its row there, and its cases in open_head,
 * low_word and high_word.
 *
 * A group is 32 k. A panel's block: the fields of the type's block in the file, in the order of `fields`, each as `count` lines; a line has one unit
 * (1, 2 or 4 bytes) of each of 16 rows. */
#ifndef LLM_CPU_KERNELS_GEMM_BLOCKS_H
#define LLM_CPU_KERNELS_GEMM_BLOCKS_H

#include "cpu/kernels/gemm_internal.h"
#include "cpu/simd.h"

#define PANEL LLM_GEMM_PANEL
#define VECTORS (PANEL / VN)
#define GROUP 32
#define LINE (PANEL * 4) /* bytes of a line of words */
#define INLINE static inline __attribute__((always_inline))

enum recode { AS_IS, SIGNED, BITS, PLACES }; /* SIGNED bytes are made unsigned; BITS and PLACES: see spread_bits, spread_places */

struct field {
    int from; /* byte in the file's block */
    int unit, count;
    enum recode recode;
};

struct kind {
    enum llm_dtype type;
    int bytes;  /* of a row in a panel's block */
    int groups; /* in a block */
    int top;    /* the largest of the unsigned bytes that open_word makes */
    int zero;   /* which of them stands for 0 */
    int parts;  /* dots of a group: one, or one for each half */
    bool least;
    struct field fields[6]; /* ends with count 0 */
};

#define HALF(from) {from, 2, 1, AS_IS}
#define WORDS(from, count) {from, 4, count, AS_IS}
/* X(ID, name, fields of struct kind after `type`). A product of each is made from its row, which the compiler knows. Q8_K: without the sums. */
#define LLM_QUANTISED_KINDS(X)                                                                        \
    X(Q8_0, q8_0, 34, 1, 255, 128, 1, false, HALF(0), {2, 4, 8, SIGNED})                              \
    X(Q4_0, q4_0, 18, 1, 15, 8, 1, false, HALF(0), WORDS(2, 4))                                       \
    X(Q4_1, q4_1, 20, 1, 15, 0, 1, true, HALF(0), HALF(2), WORDS(4, 4))                               \
    X(Q5_0, q5_0, 22, 1, 31, 16, 1, false, HALF(0), {2, 4, 1, BITS}, WORDS(6, 4))                     \
    X(Q5_1, q5_1, 24, 1, 31, 0, 1, true, HALF(0), HALF(2), {4, 4, 1, BITS}, WORDS(8, 4))              \
    X(Q2_K, q2_k, 84, 8, 3, 0, 2, true, HALF(80), HALF(82), WORDS(0, 4), WORDS(16, 16))               \
    X(Q3_K, q3_k, 110, 8, 7, 4, 2, false, HALF(108), WORDS(96, 3), WORDS(0, 8), WORDS(32, 16))        \
    X(Q4_K, q4_k, 144, 8, 15, 0, 1, true, HALF(0), HALF(2), WORDS(4, 3), WORDS(16, 32))               \
    X(Q5_K, q5_k, 176, 8, 31, 0, 1, true, HALF(0), HALF(2), WORDS(4, 3), WORDS(16, 8), WORDS(48, 32)) \
    X(Q6_K, q6_k, 210, 8, 63, 32, 2, false, HALF(208), WORDS(192, 4), WORDS(0, 32), WORDS(128, 16))   \
    X(Q8_K, q8_k, 260, 8, 255, 128, 1, false, WORDS(0, 1), {4, 4, 64, SIGNED})                        \
    X(IQ4_NL, iq4_nl, 18, 1, 255, 128, 1, false, HALF(0), WORDS(2, 4))                                \
    X(IQ4_XS, iq4_xs, 136, 8, 255, 128, 1, false, HALF(0), HALF(2), WORDS(4, 1), WORDS(8, 32))        \
    X(MXFP4, mxfp4, 17, 1, 24, 12, 1, false, {0, 1, 1, AS_IS}, WORDS(1, 4))                           \
    X(Q8_0_2OF4, q8_0_2of4, 22, 1, 255, 128, 1, false, HALF(0), {2, 4, 1, PLACES}, {6, 4, 4, SIGNED})
#define KIND_NUMBER(ID, name, ...) KIND_##name,
enum { LLM_QUANTISED_KINDS(KIND_NUMBER) N_KINDS };
#undef KIND_NUMBER
#define KIND_ROW(ID, name, bytes, groups, top, zero, parts, least, ...) {LLM_##ID, bytes, groups, top, zero, parts, least, {__VA_ARGS__}},
static const struct kind kinds[] = {LLM_QUANTISED_KINDS(KIND_ROW)};
#undef KIND_ROW

/* What a block has for all of its groups, for VN rows. */
struct head {
    V scale[8];   /* of a group; types with two parts: the first alone, of the block */
    V part[16];   /* integer scales of the parts */
    V least[16];  /* of the groups, or of the parts */
};

INLINE VI line(const unsigned char *b, int i, int v) { return vi_load((const int32_t *)(const void *)(b + i * LINE) + v * VN); }
INLINE V half_line(const unsigned char *b, int v) { return v_load_f16((const uint16_t *)(const void *)b + v * VN); }
INLINE V byte_of(VI word, int i) { return v_from_i32(i == 3 ? vi_shr(word, 24) : vi_and(vi_shr(word, i * 8), vi_set1(255))); }

/* Scales and least values of eight groups, six bits each (dtype/k_quants.c). */
INLINE void open_scales_k4(const unsigned char *b, int v, V d, V least, struct head *h)
{
    const VI six = vi_set1(0x3f3f3f3f), four = vi_set1(0x0f0f0f0f), upper = vi_set1(0x30303030);
    VI w0 = line(b, 0, v), w1 = line(b, 1, v), w2 = line(b, 2, v);
    VI scale[2] = {vi_and(w0, six), vi_or(vi_and(w2, four), vi_and(vi_shr(w0, 2), upper))};
    VI low[2] = {vi_and(w1, six), vi_or(vi_and(vi_shr(w2, 4), four), vi_and(vi_shr(w1, 2), upper))};
    LLM_UNROLL
    for (int i = 0; i < 8; i++) {
        h->scale[i] = v_mul(d, byte_of(scale[i / 4], i % 4));
        h->least[i] = v_mul(v_neg(least), byte_of(low[i / 4], i % 4));
    }
}

INLINE void open_scales_q2(const unsigned char *b, int v, V least, struct head *h)
{
    LLM_UNROLL
    for (int i = 0; i < 16; i++) {
        VI word = line(b, i / 4, v), four = vi_set1(0x0f0f0f0f);
        h->part[i] = byte_of(vi_and(word, four), i % 4);
        h->least[i] = v_neg(v_mul(least, byte_of(vi_and(vi_shr(word, 4), four), i % 4)));
    }
}

INLINE void open_scales_q3(const unsigned char *b, int v, struct head *h)
{
    const VI four = vi_set1(0x0f0f0f0f), upper = vi_set1(0x30303030);
    VI w0 = line(b, 0, v), w1 = line(b, 1, v), w2 = line(b, 2, v);
    VI s[4] = {vi_or(vi_and(w0, four), vi_and(vi_shl(w2, 4), upper)), vi_or(vi_and(w1, four), vi_and(vi_shl(w2, 2), upper)),
               vi_or(vi_and(vi_shr(w0, 4), four), vi_and(w2, upper)), vi_or(vi_and(vi_shr(w1, 4), four), vi_and(vi_shr(w2, 2), upper))};
    LLM_UNROLL
    for (int i = 0; i < 16; i++) h->part[i] = v_sub(byte_of(s[i / 4], i % 4), v_set1(32));
}

INLINE void open_scales_q6(const unsigned char *b, int v, struct head *h)
{
    LLM_UNROLL
    for (int i = 0; i < 16; i++) h->part[i] = v_from_i32(vi_sar(vi_shl(line(b, i / 4, v), 24 - i % 4 * 8), 24));
}

INLINE void open_scales_iq4(const unsigned char *b, int v, V d, struct head *h)
{
    VI high = vi_shr(v_bits(v_load_bf16((const uint16_t *)(const void *)b + v * VN)), 16), low = line(b + LINE / 2, 0, v);
    LLM_UNROLL
    for (int i = 0; i < 8; i++) {
        VI s = vi_or(vi_and(vi_shr(low, i * 4), vi_set1(15)), vi_shl(vi_and(vi_shr(high, i * 2), vi_set1(3)), 4));
        h->scale[i] = v_mul(d, v_from_i32(vi_sub(s, vi_set1(32))));
    }
}

/* 2^(e - 128) */
INLINE V open_scale_mxfp4(const unsigned char *b, int v)
{
    VI e = vi_and(v_to_i32(v_load_i8((const int8_t *)b + v * VN)), vi_set1(255));
    VI small = vi_mul(vi_add(e, vi_set1(1)), vi_set1(0x00200000));
    return v_from_bits(vi_select(vi_lt(e, vi_set1(2)), small, vi_shl(vi_sub(e, vi_set1(1)), 23)));
}

/* Prefetches share i of `shares` of the bytes of a panel's block at b: the lines that begin in it. */
INLINE void prefetch_share(const struct kind *k, const unsigned char *b, int i, int shares)
{
    const size_t bytes = (size_t)k->bytes * PANEL, from = (size_t)i * bytes / (size_t)shares, to = (size_t)(i + 1) * bytes / (size_t)shares;
    for (size_t at = (from + 63) / 64 * 64; at < to; at += 64) __builtin_prefetch(b + at, 0, 2);
}

/* Rows [v · VN, v · VN + VN) of the panel's block at b. */
INLINE void open_head(const struct kind *k, const unsigned char *b, int v, struct head *h)
{
    const unsigned char *second = b + LINE / 2, *third = b + LINE;
    switch (k->type) {
    case LLM_MXFP4: h->scale[0] = open_scale_mxfp4(b, v); break;
    case LLM_Q8_K:
        h->scale[0] = v_from_bits(line(b, 0, v));
        LLM_UNROLL
        for (int i = 1; i < 8; i++) h->scale[i] = h->scale[0];
        break;
    case LLM_IQ4_XS: open_scales_iq4(second, v, half_line(b, v), h); break;
    case LLM_Q4_K:
    case LLM_Q5_K: open_scales_k4(third, v, half_line(b, v), half_line(second, v), h); break;
    default: h->scale[0] = half_line(b, v);
    }
    if (k->type == LLM_Q4_1 || k->type == LLM_Q5_1) h->least[0] = half_line(second, v);
    if (k->type == LLM_Q2_K) open_scales_q2(third, v, half_line(second, v), h);
    if (k->type == LLM_Q3_K) open_scales_q3(second, v, h);
    if (k->type == LLM_Q6_K) open_scales_q6(second, v, h);
}

static const uint8_t nl_levels[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}; /* + 128 */
static const uint8_t e2m1_twice[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};               /* + 12 */

/* Word i of a group whose lines have k 0 to 15 in the low halves of their bytes and the others in the high ones. */
INLINE VI nibbles(const unsigned char *b, int v, int i)
{
    const VI both = line(b, i % 4, v);
    return vi_and(i < 4 ? both : vi_shr(both, 4), vi_set1(0x0f0f0f0f));
}

/* A bit of weight 16 for each byte of word i: bit 8·b + i of `bits` for byte b. */
INLINE VI fifth_bit(VI bits, int i) { return vi_and(i < 4 ? vi_shl(bits, 4 - i) : vi_shr(bits, i - 4), vi_set1(0x10101010)); }

/* Two of each four: the bytes of w[i], i < 4, are the values of two fours, and those of w[i + 4] say which of the eight k they stand for. */
INLINE void open_places(const unsigned char *b, int v, VI *w)
{
    const VI places = line(b + LINE / 2, 0, v);
    LLM_UNROLL
    for (int i = 0; i < 4; i++) {
        w[i] = line(b + LINE / 2, 1 + i, v);
        w[i + 4] = vi_or(vi_and(i ? vi_shrv(places, vi_set1(i * 2)) : places, vi_set1(0x03030303)), vi_set1(0x04040000));
    }
}

/* By 2 · place + place of a four's two values, of which the word of two fours has the first's in its low half: which byte of the word each of the
 * four is. 128: none, it is 0. */
static const uint32_t first_four[8] = {0, 0x80800100u, 0x80018000u, 0x01808000u, 0x80010080u, 0x01800080u, 0, 0x01008080u};
static const uint32_t second_four[8] = {0, 0x80800302u, 0x80038002u, 0x03808002u, 0x80030280u, 0x03800280u, 0, 0x03028080u};

/* As open_group, from what open_places makes. */
INLINE void put_zeros_between(const VI *fours, VI *w)
{
    const VI flip = vi_set1((int32_t)0x80808080u);
    LLM_UNROLL
    for (int i = 0; i < 4; i++) {
        const VI values = vi_xor(fours[i], flip), at = vi_and(fours[i + 4], vi_set1(0x03030303));
        w[2 * i] = vi_xor(vi_bytes(values, vi_table(first_four, vi_add(vi_shl(at, 1), vi_shr(at, 8)))), flip);
        w[2 * i + 1] = vi_xor(vi_bytes(values, vi_table(second_four, vi_add(vi_shr(at, 15), vi_shr(at, 24)))), flip);
    }
}

/* The bits of line i from `shift` on that `mask` keeps. */
INLINE VI low_bits(const unsigned char *b, int v, int i, int shift, int32_t mask)
{
    const VI all = line(b, i, v);
    return vi_and(shift ? vi_shrv(all, vi_set1(shift)) : all, vi_set1(mask));
}

/* Each element of x shifted to the right by `right` bits, from -4 (to the left) to 31. */
INLINE VI shifted(VI x, int right)
{
    switch (right) {
    case -4: return vi_shl(x, 4);
    case -3: return vi_shl(x, 3);
    case -2: return vi_shl(x, 2);
    case -1: return vi_shl(x, 1);
    case 0: return x;
    default: return vi_shrv(x, vi_set1(right));
    }
}

/* The bits of line i that `mask` keeps after a shift to the right by `right` bits. */
INLINE VI high_bits(const unsigned char *b, int v, int i, int right, int32_t mask) { return vi_and(shifted(line(b, i, v), right), vi_set1(mask)); }

/* Word i of group g of the block at b without what high_word adds. */
INLINE VI low_word(const struct kind *k, const unsigned char *b, int g, int v, int i)
{
    const int half = g / 4, quarter = g % 4;
    switch (k->type) {
    case LLM_Q8_0: return line(b + LINE / 2, i, v);
    case LLM_Q8_K: return line(b + LINE + g * 8 * LINE, i, v);
    case LLM_Q4_0: return nibbles(b + LINE / 2, v, i);
    case LLM_Q4_1: return nibbles(b + LINE, v, i);
    case LLM_Q5_0: return nibbles(b + LINE / 2 + LINE, v, i);
    case LLM_Q5_1: return nibbles(b + LINE * 2, v, i);
    case LLM_IQ4_NL: return vi_lookup(nl_levels, nibbles(b + LINE / 2, v, i));
    case LLM_IQ4_XS: return vi_lookup(nl_levels, nibbles(b + LINE * 2 + g * 4 * LINE, v, i));
    case LLM_MXFP4: return vi_lookup(e2m1_twice, nibbles(b + PANEL, v, i));
    case LLM_Q4_K: return low_bits(b + LINE * (4 + g / 2 * 8), v, i, g % 2 * 4, 0x0f0f0f0f);
    case LLM_Q5_K: return low_bits(b + LINE * (12 + g / 2 * 8), v, i, g % 2 * 4, 0x0f0f0f0f);
    case LLM_Q6_K: return low_bits(b + LINE / 2 + LINE * (4 + half * 16 + quarter % 2 * 8), v, i, quarter / 2 * 4, 0x0f0f0f0f);
    case LLM_Q2_K: return low_bits(b + LINE * (5 + half * 8), v, i, quarter * 2, 0x03030303);
    case LLM_Q3_K: return low_bits(b + LINE / 2 + LINE * (11 + half * 8), v, i, quarter * 2, 0x03030303);
    default: return vi_set1(0);
    }
}

INLINE bool has_high_word(const struct kind *k) { return k->top == 31 || k->top == 63 || k->type == LLM_Q3_K; }

/* Higher bits of word i. */
INLINE VI high_word(const struct kind *k, const unsigned char *b, int g, int v, int i)
{
    switch (k->type) {
    case LLM_Q5_0: return fifth_bit(line(b + LINE / 2, 0, v), i);
    case LLM_Q5_1: return fifth_bit(line(b + LINE, 0, v), i);
    case LLM_Q5_K: return high_bits(b + LINE * 4, v, i, g - 4, 0x10101010);
    case LLM_Q6_K: return high_bits(b + LINE / 2 + LINE * (36 + g / 4 * 8), v, i, g % 4 * 2 - 4, 0x30303030);
    case LLM_Q3_K: return high_bits(b + LINE / 2 + LINE * 3, v, i, g - 2, 0x04040404);
    default: return vi_set1(0);
    }
}

/* Word i of group g of the block at b: the unsigned bytes of k 4·i to 4·i + 3 of VN rows. Not for Q8_0_2OF4. */
INLINE VI open_word(const struct kind *k, const unsigned char *b, int g, int v, int i)
{
    const VI low = low_word(k, b, g, v, i);
    return has_high_word(k) ? vi_or(low, high_word(k, b, g, v, i)) : low;
}

/* All words of group g. Where g is not a constant, one loop of what depends on it in the same way costs one branch. */
INLINE void open_group(const struct kind *k, const unsigned char *b, int g, int v, VI *w)
{
    if (k->type == LLM_Q8_0_2OF4) {
        VI fours[8];
        open_places(b, v, fours);
        put_zeros_between(fours, w);
        return;
    }
    LLM_UNROLL
    for (int i = 0; i < 8; i++) w[i] = low_word(k, b, g, v, i);
    if (!has_high_word(k)) return;
    LLM_UNROLL
    for (int i = 0; i < 8; i++) w[i] = vi_or(w[i], high_word(k, b, g, v, i));
}

#endif
