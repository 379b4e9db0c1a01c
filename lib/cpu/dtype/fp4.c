/* Types of four bits a value that look their values up, ggml's layouts: IQ4_NL, IQ4_XS (super-blocks of 256 with scales of six bits), MXFP4
 * (OCP Microscaling Formats 1.0: E2M1 values, an E8M0 scale) and NVFP4 (E2M1 values, a scale of E4M3 without sign for each 16). In each 32 values,
 * of NVFP4 in each 16, byte j has value j in its low half and in its high half the value half a group later. */
#include <math.h>
#include <string.h>
#include "cpu/dtype/block.h"
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

struct iq4_nl { uint16_t d; uint8_t q[16]; };
struct iq4_xs { uint16_t d, scales_high; uint8_t scales_low[4], q[128]; };
struct mxfp4 { uint8_t e, q[16]; };
struct nvfp4 { uint8_t scales[4], q[32]; };
_Static_assert(sizeof(struct iq4_nl) == 18 && sizeof(struct iq4_xs) == 136 && sizeof(struct mxfp4) == 17 && sizeof(struct nvfp4) == 36,
               "sizes of ggml's blocks");

static const int8_t nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void look_up(const uint8_t *q, const int8_t *levels, float d, float *out)
{
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)levels[q[j] & 15];
        out[j + 16] = d * (float)levels[q[j] >> 4];
    }
}

void llm_iq4_nl_decode(const void *in, float *out, size_t n)
{
    struct iq4_nl b;
    for (size_t i = 0; i < n / 32; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        look_up(b.q, nl_levels, llm_f16_decode(b.d), out + i * 32);
    }
}

void llm_iq4_xs_decode(const void *in, float *out, size_t n)
{
    struct iq4_xs b;
    for (size_t i = 0; i < n / 256; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        for (int g = 0; g < 8; g++) {
            int scale = (b.scales_low[g / 2] >> g % 2 * 4 & 15) | (b.scales_high >> g * 2 & 3) << 4;
            look_up(b.q + g * 16, nl_levels, llm_f16_decode(b.d) * (float)(scale - 32), out + i * 256 + g * 32);
        }
    }
}

void llm_mxfp4_decode(const void *in, float *out, size_t n)
{
    struct mxfp4 b;
    for (size_t i = 0; i < n / 32; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        uint32_t bits = b.e < 2 ? 0x00200000u << b.e : (uint32_t)(b.e - 1) << 23; /* 2^(e - 128): half the scale, for twice the values */
        float half_scale;
        memcpy(&half_scale, &bits, sizeof half_scale);
        look_up(b.q, e2m1_twice, half_scale, out + i * 32);
    }
}

/* ---- encoding ---- */

static void put_nibbles(const uint8_t *codes, uint8_t *q)
{
    for (int j = 0; j < 16; j++) q[j] = (uint8_t)(codes[j] | codes[j + 16] << 4);
}

/* The exponent byte of half the scale `d`, a power of two. */
static uint8_t exponent_of(float d)
{
    return (uint8_t)((d > 0 ? ilogbf(d) : -128) + 128);
}

/* The largest value determines the scale: it becomes 4 or 6 times the power of two. Each value takes the nearest level, the first of two. */
void llm_mxfp4_encode(const float *in, void *out, size_t n)
{
    struct mxfp4 b;
    uint8_t codes[32];
    for (size_t i = 0; i < n / 32; i++, in += 32) {
        float top = 0;
        for (int j = 0; j < 32; j++) top = fmaxf(top, fabsf(in[j]));
        int e = top > 0 ? ilogbf(top) - 2 + 127 : 0;
        b.e = (uint8_t)(e > 0 ? e < 255 ? e : 254 : 0);
        float half_scale = ldexpf(1, b.e - 128);
        for (int j = 0; j < 32; j++) {
            int best = 0;
            for (int q = 1; q < 16; q++) {
                if (fabsf(half_scale * (float)e2m1_twice[q] - in[j]) < fabsf(half_scale * (float)e2m1_twice[best] - in[j])) best = q;
            }
            codes[j] = (uint8_t)best;
        }
        put_nibbles(codes, b.q);
        memcpy((char *)out + i * sizeof b, &b, sizeof b);
    }
}

static float round_to_power(float d)
{
    if (!(d > 0)) return 0x1p-128f;
    int e = ilogbf(d) + (d > ldexpf(1.5f, ilogbf(d)));
    return ldexpf(1, e < -128 ? -128 : e > 126 ? 126 : e);
}

static void mxfp4_pack(const struct llm_block *in, void *out)
{
    struct mxfp4 b = {.e = exponent_of(in->d)};
    put_nibbles(in->q, b.q);
    memcpy(out, &b, sizeof b);
}

static void iq4_nl_pack(const struct llm_block *in, void *out)
{
    struct iq4_nl b = {.d = llm_f16_encode(in->d)};
    put_nibbles(in->q, b.q);
    memcpy(out, &b, sizeof b);
}

static void iq4_xs_pack(const struct llm_block *in, void *out)
{
    struct iq4_xs b = {.d = llm_f16_encode(in->d)};
    for (int g = 0; g < 8; g++) {
        int scale = in->scale[g] + 32;
        b.scales_low[g / 2] = (uint8_t)(b.scales_low[g / 2] | (scale & 15) << g % 2 * 4);
        b.scales_high = (uint16_t)(b.scales_high | scale >> 4 << g * 2);
        put_nibbles(in->q + g * 32, b.q + g * 16);
    }
    memcpy(out, &b, sizeof b);
}

const struct llm_block_kind llm_iq4_nl_kind = {.size = 32, .group = 32, .n_codes = 16, .levels = nl_levels, .scale_min = 1, .scale_max = 1,
                                               .round = llm_block_round_f16, .pack = iq4_nl_pack};
const struct llm_block_kind llm_iq4_xs_kind = {.size = 256, .group = 32, .n_codes = 16, .levels = nl_levels, .scale_min = -32, .scale_max = 31,
                                               .round = llm_block_round_f16, .pack = iq4_xs_pack};
const struct llm_block_kind llm_mxfp4_kind = {.size = 32, .group = 32, .n_codes = 16, .levels = e2m1_twice, .scale_min = 1, .scale_max = 1,
                                              .round = round_to_power, .pack = mxfp4_pack};

/* ---- NVFP4 ---- */

/* E4M3 numbers without sign in units of their least, 2^-9. Code 127 is no number, and read as 0. */
#define OF_EXPONENT(e) 8 << (e), 9 << (e), 10 << (e), 11 << (e), 12 << (e), 13 << (e), 14 << (e), 15 << (e)
static const int32_t e4m3[128] = {
    0, 1, 2, 3, 4, 5, 6, 7, OF_EXPONENT(0), OF_EXPONENT(1), OF_EXPONENT(2), OF_EXPONENT(3), OF_EXPONENT(4), OF_EXPONENT(5), OF_EXPONENT(6),
    OF_EXPONENT(7), OF_EXPONENT(8), OF_EXPONENT(9), OF_EXPONENT(10), OF_EXPONENT(11), OF_EXPONENT(12), OF_EXPONENT(13), OF_EXPONENT(14)};
#define E4M3_UNIT 0x1p-10f /* half the least: for twice the values */

void llm_nvfp4_decode(const void *in, float *out, size_t n)
{
    struct nvfp4 b;
    for (size_t i = 0; i < n / 64; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        for (int j = 0; j < 64; j++) {
            const int code = b.scales[j / 16] != 127 ? b.scales[j / 16] & 127 : 0, q = b.q[j / 16 * 8 + j % 8] >> j % 16 / 8 * 4 & 15;
            *out++ = E4M3_UNIT * (float)e4m3[code] * (float)e2m1_twice[q];
        }
    }
}

/* The nearest code, of two the upper one; but what is below the least power of two takes 7 units at most. */
static int e4m3_code(float x)
{
    uint32_t bits;
    if (!(x > 0)) return 0;
    if (x > 448) return 126;
    if (x < 0x1p-6f) {
        const int units = (int)(x * 512 + 0.5f);
        return units < 7 ? units : 7;
    }
    memcpy(&bits, &x, sizeof bits);
    const int code = (int)((bits + 0x80000u) >> 20) - (120 << 3);
    return code < 126 ? code : 126;
}

/* The largest value of a group becomes 6 times its scale. Each value takes the nearest level, the first of two. */
void llm_nvfp4_encode(const float *in, void *out, size_t n)
{
    struct nvfp4 b;
    for (size_t i = 0; i < n / 64; i++) {
        memset(&b, 0, sizeof b);
        for (int g = 0; g < 4; g++, in += 16) {
            float top = 0;
            for (int j = 0; j < 16; j++) top = fmaxf(top, fabsf(in[j]));
            b.scales[g] = (uint8_t)e4m3_code(top / 6);
            const float half_scale = E4M3_UNIT * (float)e4m3[b.scales[g]];
            for (int j = 0; j < 16; j++) {
                int best = 0;
                for (int q = 1; q < 16; q++) {
                    if (fabsf(half_scale * (float)e2m1_twice[q] - in[j]) < fabsf(half_scale * (float)e2m1_twice[best] - in[j])) best = q;
                }
                b.q[g * 8 + j % 8] = (uint8_t)(b.q[g * 8 + j % 8] | best << j / 8 * 4);
            }
        }
        memcpy((char *)out + i * sizeof b, &b, sizeof b);
    }
}

static float nvfp4_unit(float d)
{
    (void)d;
    return E4M3_UNIT;
}

static void nvfp4_pack(const struct llm_block *in, void *out)
{
    struct nvfp4 b;
    for (int g = 0; g < 4; g++) {
        int code = 0;
        while (e4m3[code] < in->scale[g]) code++;
        b.scales[g] = (uint8_t)code;
        for (int j = 0; j < 8; j++) b.q[g * 8 + j] = (uint8_t)(in->q[g * 16 + j] | in->q[g * 16 + j + 8] << 4);
    }
    memcpy(out, &b, sizeof b);
}

const struct llm_block_kind llm_nvfp4_kind = {.size = 64, .group = 16, .n_codes = 16, .levels = e2m1_twice, .scale_min = 0, .scale_max = 14 << 14,
                                              .scales = e4m3, .n_scales = 127, .round = nvfp4_unit, .pack = nvfp4_pack};
