/* Grid types, ggml's layouts. Every product of a value's parts is exact, so their order does not matter. */
#include "cpu/dtype/grid.h"

#include <string.h>
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

enum { BLOCK = LLM_GRID_BLOCK };
struct iq2_xxs { uint16_t d; uint8_t q[64]; };                                  /* each 32 values: four points of 8 bits, then a word as IQ3_XXS's */
struct iq2_xs { uint16_t d; uint8_t q[64], scales[8]; };                        /* q: point, 9 bits, and seven signs */
struct iq2_s { uint16_t d; uint8_t q[32], signs[32], high[8], scales[8]; };     /* high: two upper bits of each point */
struct iq3_xxs { uint16_t d; uint8_t q[64], words[32]; };                       /* words: four times seven signs, the scale in the top four bits */
struct iq3_s { uint16_t d; uint8_t q[64], high[8], signs[32], scales[4]; };     /* high: the ninth bit of each point */
struct iq1_s { uint16_t d; uint8_t q[32], high[16]; };
struct iq1_m { uint8_t q[32], high[16], scales[8]; };
_Static_assert(sizeof(struct iq2_xxs) == 66 && sizeof(struct iq2_xs) == 74 && sizeof(struct iq2_s) == 82 && sizeof(struct iq3_xxs) == 98
                   && sizeof(struct iq3_s) == 110 && sizeof(struct iq1_s) == 50 && sizeof(struct iq1_m) == 56, "sizes of ggml's blocks");

static uint32_t word_at(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24; }
static void put_word(uint8_t *p, uint32_t x)
{
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> i * 8);
}

/* Seven signs and the eighth, which makes their number even. */
static uint8_t eight_signs(uint32_t seven)
{
    const uint32_t s = seven & 127;
    return (uint8_t)(s | (uint32_t)__builtin_parity(s) << 7);
}

void llm_grid_values(const struct llm_grid_kind *kind, const struct llm_grid_block *b, float *out)
{
    for (int j = 0; j < BLOCK; j++) out[j] = llm_grid_value(kind, b, j);
}

static void decode(const struct llm_grid_kind *kind, size_t bytes, const void *in, float *out, size_t n)
{
    struct llm_grid_block b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        kind->open((const char *)in + i * bytes, &b);
        llm_grid_values(kind, &b, out + i * BLOCK);
    }
}

/* ---- with a word of signs and a scale for each 32 values ---- */

static void open_word(uint32_t word, int group, struct llm_grid_block *b)
{
    for (int i = 0; i < 4; i++) b->negative[group * 4 + i] = eight_signs(word >> i * 7);
    b->scale[group] = (uint8_t)(word >> 28);
}

static uint32_t word_of(const struct llm_grid_block *b, int group)
{
    uint32_t word = (uint32_t)b->scale[group] << 28;
    for (int i = 0; i < 4; i++) word |= (uint32_t)(b->negative[group * 4 + i] & 127) << i * 7;
    return word;
}

static void iq2_xxs_open(const void *in, struct llm_grid_block *b)
{
    struct iq2_xxs x;
    memcpy(&x, in, sizeof x);
    b->d = llm_f16_decode(x.d);
    for (int g = 0; g < 8; g++) {
        for (int i = 0; i < 4; i++) b->point[g * 4 + i] = x.q[g * 8 + i];
        open_word(word_at(x.q + g * 8 + 4), g, b);
    }
}

static void iq3_xxs_open(const void *in, struct llm_grid_block *b)
{
    struct iq3_xxs x;
    memcpy(&x, in, sizeof x);
    b->d = llm_f16_decode(x.d);
    for (int i = 0; i < 64; i++) b->point[i] = x.q[i];
    for (int g = 0; g < 8; g++) open_word(word_at(x.words + g * 4), g, b);
}

static void iq3_xxs_pack(const struct llm_grid_block *b, void *out)
{
    struct iq3_xxs x = {.d = llm_f16_encode(b->d)};
    for (int i = 0; i < 64; i++) x.q[i] = (uint8_t)b->point[i];
    for (int g = 0; g < 8; g++) put_word(x.words + g * 4, word_of(b, g));
    memcpy(out, &x, sizeof x);
}

/* ---- with signs and scales of their own ---- */

static void open_scales(const uint8_t *scales, int n, struct llm_grid_block *b)
{
    for (int g = 0; g < n; g++) b->scale[g] = scales[g / 2] >> g % 2 * 4 & 15;
}

static void put_scales(const struct llm_grid_block *b, int n, uint8_t *scales)
{
    for (int g = 0; g < n; g += 2) scales[g / 2] = (uint8_t)(b->scale[g] | b->scale[g + 1] << 4);
}

static void iq2_xs_open(const void *in, struct llm_grid_block *b)
{
    struct iq2_xs x;
    memcpy(&x, in, sizeof x);
    b->d = llm_f16_decode(x.d);
    for (int i = 0; i < 32; i++) {
        const uint32_t q = (uint32_t)x.q[i * 2] | (uint32_t)x.q[i * 2 + 1] << 8;
        b->point[i] = q & 511;
        b->negative[i] = eight_signs(q >> 9);
    }
    open_scales(x.scales, 16, b);
}

static void iq2_xs_pack(const struct llm_grid_block *b, void *out)
{
    struct iq2_xs x = {.d = llm_f16_encode(b->d)};
    for (int i = 0; i < 32; i++) {
        const uint32_t q = b->point[i] | (uint32_t)(b->negative[i] & 127) << 9;
        x.q[i * 2] = (uint8_t)q;
        x.q[i * 2 + 1] = (uint8_t)(q >> 8);
    }
    put_scales(b, 16, x.scales);
    memcpy(out, &x, sizeof x);
}

static void iq2_s_open(const void *in, struct llm_grid_block *b)
{
    struct iq2_s x;
    memcpy(&x, in, sizeof x);
    b->d = llm_f16_decode(x.d);
    for (int i = 0; i < 32; i++) b->point[i] = (uint16_t)(x.q[i] | (x.high[i / 4] >> i % 4 * 2 & 3) << 8);
    memcpy(b->negative, x.signs, sizeof x.signs);
    open_scales(x.scales, 16, b);
}

static void iq2_s_pack(const struct llm_grid_block *b, void *out)
{
    struct iq2_s x = {.d = llm_f16_encode(b->d)};
    for (int i = 0; i < 32; i++) {
        x.q[i] = (uint8_t)b->point[i];
        x.high[i / 4] = (uint8_t)(x.high[i / 4] | b->point[i] >> 8 << i % 4 * 2);
    }
    memcpy(x.signs, b->negative, sizeof x.signs);
    put_scales(b, 16, x.scales);
    memcpy(out, &x, sizeof x);
}

static void iq3_s_open(const void *in, struct llm_grid_block *b)
{
    struct iq3_s x;
    memcpy(&x, in, sizeof x);
    b->d = llm_f16_decode(x.d);
    for (int i = 0; i < 64; i++) b->point[i] = (uint16_t)(x.q[i] | (x.high[i / 8] >> i % 8 & 1) << 8);
    memcpy(b->negative, x.signs, sizeof x.signs);
    open_scales(x.scales, 8, b);
}

static void iq3_s_pack(const struct llm_grid_block *b, void *out)
{
    struct iq3_s x = {.d = llm_f16_encode(b->d)};
    for (int i = 0; i < 64; i++) {
        x.q[i] = (uint8_t)b->point[i];
        x.high[i / 8] = (uint8_t)(x.high[i / 8] | b->point[i] >> 8 << i % 8);
    }
    memcpy(x.signs, b->negative, sizeof x.signs);
    put_scales(b, 8, x.scales);
    memcpy(out, &x, sizeof x);
}

static const struct llm_grid_kind iq2_xxs = {&llm_iq2_xxs_grid, 32, 0.125f, true, NULL, iq2_xxs_open};
static const struct llm_grid_kind iq2_xs = {&llm_iq2_xs_grid, 16, 0.125f, true, iq2_xs_pack, iq2_xs_open};
static const struct llm_grid_kind iq2_s = {&llm_iq2_s_grid, 16, 0.125f, false, iq2_s_pack, iq2_s_open};
static const struct llm_grid_kind iq3_xxs = {&llm_iq3_xxs_grid, 32, 0.25f, true, iq3_xxs_pack, iq3_xxs_open};
static const struct llm_grid_kind iq3_s = {&llm_iq3_s_grid, 32, 1, false, iq3_s_pack, iq3_s_open};

const struct llm_grid_kind *llm_grid_kind_of(enum llm_dtype t)
{
    switch (t) {
    case LLM_IQ2_XXS: return &iq2_xxs;
    case LLM_IQ2_XS: return &iq2_xs;
    case LLM_IQ2_S: return &iq2_s;
    case LLM_IQ3_XXS: return &iq3_xxs;
    case LLM_IQ3_S: return &iq3_s;
    default: return NULL;
    }
}

void llm_iq2_xxs_decode(const void *in, float *out, size_t n) { decode(&iq2_xxs, sizeof(struct iq2_xxs), in, out, n); }
void llm_iq2_xs_decode(const void *in, float *out, size_t n) { decode(&iq2_xs, sizeof(struct iq2_xs), in, out, n); }
void llm_iq2_s_decode(const void *in, float *out, size_t n) { decode(&iq2_s, sizeof(struct iq2_s), in, out, n); }
void llm_iq3_xxs_decode(const void *in, float *out, size_t n) { decode(&iq3_xxs, sizeof(struct iq3_xxs), in, out, n); }
void llm_iq3_s_decode(const void *in, float *out, size_t n) { decode(&iq3_s, sizeof(struct iq3_s), in, out, n); }

/* ---- IQ1: points of -1, 0 and 1, all eight moved by 1/8 up or down ---- */

static void iq1_values(int point, bool down, float scale, float *out)
{
    for (int j = 0; j < 8; j++) out[j] = scale * ((float)(llm_iq1_points[point] >> j * 2 & 3) - 1 + (down ? -0.125f : 0.125f));
}

/* Each 32 values have 16 bits of `high`: three upper bits of four points, three of the scale, one that says down. */
void llm_iq1_s_decode(const void *in, float *out, size_t n)
{
    struct iq1_s b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        for (int k = 0; k < 32; k++, out += 8) {
            const int high = b.high[k / 4 * 2] | b.high[k / 4 * 2 + 1] << 8, point = b.q[k] | (high >> k % 4 * 3 & 7) << 8;
            iq1_values(point, high >> 15, llm_f16_decode(b.d) * (float)(2 * (high >> 12 & 7) + 1), out);
        }
    }
}

/* Each eight values have four bits of `high`: three of the point, one that says down. Scales: 16 bits each 64 values, of which three times four
 * are scales, three bits each 16 values; the top four bits of all are the block's scale. */
void llm_iq1_m_decode(const void *in, float *out, size_t n)
{
    struct iq1_m b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        uint16_t d = 0;
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        for (int k = 0; k < 4; k++) d = (uint16_t)(d | (b.scales[k * 2 + 1] >> 4) << k * 4);
        for (int k = 0; k < 32; k++, out += 8) {
            const int high = b.high[k / 2] >> k % 2 * 4, word = b.scales[k / 8 * 2] | b.scales[k / 8 * 2 + 1] << 8;
            iq1_values(b.q[k] | (high & 7) << 8, high >> 3 & 1, llm_f16_decode(d) * (float)(2 * (word >> k / 2 % 4 * 3 & 7) + 1), out);
        }
    }
}
