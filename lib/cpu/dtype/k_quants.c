/* The K types, ggml's layouts: super-blocks of 256 values in 8 groups of 32 or 16 of 16, whose scales (and least values) are small integers
 * that the super-block's own scale multiplies. Products are taken in ggml's order, so that values are equal to the bit. */
#include <string.h>
#include "cpu/dtype/block.h"
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

enum { BLOCK = 256 };
struct q2_k { uint8_t scales[16], q[64]; uint16_t d, least; };
struct q3_k { uint8_t high[32], q[64], scales[12]; uint16_t d; };
struct q4_k { uint16_t d, least; uint8_t scales[12], q[128]; };
struct q5_k { uint16_t d, least; uint8_t scales[12], high[32], q[128]; };
struct q6_k { uint8_t low[128], high[64]; int8_t scales[16]; uint16_t d; };
struct q8_k { float d; int8_t q[256]; int16_t sums[16]; };
_Static_assert(sizeof(struct q2_k) == 84 && sizeof(struct q3_k) == 110 && sizeof(struct q4_k) == 144 && sizeof(struct q5_k) == 176
                   && sizeof(struct q6_k) == 210 && sizeof(struct q8_k) == 292, "sizes of ggml's blocks");

/* Two bits a value: value i of half h (128 values) is in byte 32·h + i mod 32, bits 2·(i / 32). Scales: low half; least values: high half. */
void llm_q2_k_decode(const void *in, float *out, size_t n)
{
    struct q2_k b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        float d = llm_f16_decode(b.d), least = llm_f16_decode(b.least);
        for (int j = 0; j < BLOCK; j++) {
            int scale = b.scales[j / 16], q = b.q[j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3;
            *out++ = d * (float)(scale & 15) * (float)q - least * (float)(scale >> 4);
        }
    }
}

/* Two low bits as Q2_K; the third (zero takes 4 away) in `high`: byte i mod 32, bit i / 32. Scales of six bits less 32: the low four in bytes
 * 0-7 (scales 8-15 in the high halves), the upper two in bytes 8-11, two bits each four scales. */
void llm_q3_k_decode(const void *in, float *out, size_t n)
{
    struct q3_k b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        float d = llm_f16_decode(b.d);
        for (int j = 0; j < BLOCK; j++) {
            int s = j / 16, low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4, scale = low | (b.scales[8 + s % 4] >> s / 4 * 2 & 3) << 4;
            int q = (b.q[j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3) - (b.high[j % 32] >> j / 32 & 1 ? 0 : 4);
            *out++ = d * (float)(scale - 32) * (float)q;
        }
    }
}

/* Scale and least value of group g of eight, six bits each: for g < 4 in bytes g and g + 4; for the others four bits in byte g + 4 and the
 * upper two in the spare bits of bytes g - 4 and g. */
static void group_scales(const uint8_t *scales, int g, int *scale, int *least)
{
    if (g < 4) {
        *scale = scales[g] & 63;
        *least = scales[g + 4] & 63;
    } else {
        *scale = (scales[g + 4] & 15) | scales[g - 4] >> 6 << 4;
        *least = scales[g + 4] >> 4 | scales[g] >> 6 << 4;
    }
}

/* Groups 2·p and 2·p + 1 share 32 bytes: low halves, then high halves. */
void llm_q4_k_decode(const void *in, float *out, size_t n)
{
    struct q4_k b;
    int scale, least;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        for (int g = 0; g < 8; g++) {
            group_scales(b.scales, g, &scale, &least);
            float d = llm_f16_decode(b.d) * (float)scale, m = llm_f16_decode(b.least) * (float)least;
            for (int j = 0; j < 32; j++) *out++ = d * (float)(b.q[g / 2 * 32 + j] >> g % 2 * 4 & 15) - m;
        }
    }
}

/* As Q4_K with a fifth bit: byte j of `high`, bit g. */
void llm_q5_k_decode(const void *in, float *out, size_t n)
{
    struct q5_k b;
    int scale, least;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        for (int g = 0; g < 8; g++) {
            group_scales(b.scales, g, &scale, &least);
            float d = llm_f16_decode(b.d) * (float)scale, m = llm_f16_decode(b.least) * (float)least;
            for (int j = 0; j < 32; j++) *out++ = d * (float)((b.q[g / 2 * 32 + j] >> g % 2 * 4 & 15) | (b.high[j] >> g & 1) << 4) - m;
        }
    }
}

/* Value i of half h: four low bits in byte 64·h + i mod 64 (i ≥ 64: high half), two upper bits in byte 32·h + i mod 32, bits 2·(i / 32). */
void llm_q6_k_decode(const void *in, float *out, size_t n)
{
    struct q6_k b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        float d = llm_f16_decode(b.d);
        for (int j = 0; j < BLOCK; j++) {
            int half = j / 128, k = j % 128, low = b.low[half * 64 + k % 64] >> k / 64 * 4 & 15;
            int q = (low | (b.high[half * 32 + k % 32] >> k / 32 * 2 & 3) << 4) - 32;
            *out++ = d * (float)b.scales[j / 16] * (float)q;
        }
    }
}

void llm_q8_k_decode(const void *in, float *out, size_t n)
{
    struct q8_k b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        for (int j = 0; j < BLOCK; j++) *out++ = b.d * (float)b.q[j];
    }
}

/* ---- packing: the same layouts the other way round ---- */

/* The two bits from `shift` on of each code, as Q2_K keeps them. */
static void put_two_bits(const uint8_t *codes, int shift, int half_bytes, uint8_t *out)
{
    memset(out, 0, (size_t)half_bytes * 2);
    for (int j = 0; j < BLOCK; j++) {
        uint8_t *at = &out[j / 128 * half_bytes + j % 32];
        *at = (uint8_t)(*at | (codes[j] >> shift & 3) << j % 128 / 32 * 2);
    }
}

static void q2_k_pack(const struct llm_block *in, void *out)
{
    struct q2_k b = {.d = llm_f16_encode(in->d), .least = llm_f16_encode(in->least)};
    for (int g = 0; g < 16; g++) b.scales[g] = (uint8_t)(in->scale[g] | in->low[g] << 4);
    put_two_bits(in->q, 0, 32, b.q);
    memcpy(out, &b, sizeof b);
}

static void q3_k_pack(const struct llm_block *in, void *out)
{
    struct q3_k b = {.d = llm_f16_encode(in->d)};
    for (int g = 0; g < 16; g++) {
        int scale = in->scale[g] + 32;
        b.scales[g % 8] = (uint8_t)(b.scales[g % 8] | (scale & 15) << g / 8 * 4);
        b.scales[8 + g % 4] = (uint8_t)(b.scales[8 + g % 4] | scale >> 4 << g / 4 * 2);
    }
    for (int j = 0; j < BLOCK; j++) b.high[j % 32] = (uint8_t)(b.high[j % 32] | in->q[j] >> 2 << j / 32);
    put_two_bits(in->q, 0, 32, b.q);
    memcpy(out, &b, sizeof b);
}

static void put_group_scales(const struct llm_block *in, uint8_t *scales)
{
    for (int g = 0; g < 4; g++) {
        scales[g] = (uint8_t)(in->scale[g] | in->scale[g + 4] >> 4 << 6);
        scales[g + 4] = (uint8_t)(in->low[g] | in->low[g + 4] >> 4 << 6);
        scales[g + 8] = (uint8_t)((in->scale[g + 4] & 15) | (in->low[g + 4] & 15) << 4);
    }
}

static void put_nibbles(const uint8_t *codes, uint8_t *out)
{
    for (int j = 0; j < BLOCK / 2; j++) {
        const uint8_t *pair = codes + j / 32 * 64 + j % 32;
        out[j] = (uint8_t)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
}

static void q4_k_pack(const struct llm_block *in, void *out)
{
    struct q4_k b = {.d = llm_f16_encode(in->d), .least = llm_f16_encode(in->least)};
    put_group_scales(in, b.scales);
    put_nibbles(in->q, b.q);
    memcpy(out, &b, sizeof b);
}

static void q5_k_pack(const struct llm_block *in, void *out)
{
    struct q5_k b = {.d = llm_f16_encode(in->d), .least = llm_f16_encode(in->least)};
    put_group_scales(in, b.scales);
    put_nibbles(in->q, b.q);
    for (int j = 0; j < BLOCK; j++) b.high[j % 32] = (uint8_t)(b.high[j % 32] | in->q[j] >> 4 << j / 32);
    memcpy(out, &b, sizeof b);
}

static void q6_k_pack(const struct llm_block *in, void *out)
{
    struct q6_k b = {.d = llm_f16_encode(in->d)};
    for (int g = 0; g < 16; g++) b.scales[g] = (int8_t)in->scale[g];
    for (int j = 0; j < BLOCK; j++) {
        int half = j / 128, k = j % 128;
        uint8_t *low = &b.low[half * 64 + k % 64];
        *low = (uint8_t)(*low | (in->q[j] & 15) << k / 64 * 4);
    }
    put_two_bits(in->q, 4, 32, b.high);
    memcpy(out, &b, sizeof b);
}

#define KIND(in_group, codes, at_zero, least_scale, most_scale, most_low, pack_it)                                                       \
    {.size = BLOCK, .group = in_group, .n_codes = codes, .zero = at_zero, .scale_min = least_scale, .scale_max = most_scale,             \
     .low_max = most_low, .round = llm_block_round_f16, .pack = pack_it}
const struct llm_block_kind llm_q2_k_kind = KIND(16, 4, 0, 0, 15, 15, q2_k_pack);
const struct llm_block_kind llm_q3_k_kind = KIND(16, 8, 4, -32, 31, 0, q3_k_pack);
const struct llm_block_kind llm_q4_k_kind = KIND(32, 16, 0, 0, 63, 63, q4_k_pack);
const struct llm_block_kind llm_q5_k_kind = KIND(32, 32, 0, 0, 63, 63, q5_k_pack);
const struct llm_block_kind llm_q6_k_kind = KIND(16, 64, 32, -128, 127, 0, q6_k_pack);
