/* Q5_0 and Q5_1, ggml's layouts: as Q4_0 and Q4_1 with a fifth bit of each value in h, bit j of value j. Q5_0: value = d · (q - 16).
 * Encoding: as Q4_0 and Q4_1, with 32 levels. */
#include <math.h>
#include <string.h>
#include "cpu/dtype/block.h"
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

enum { BLOCK = 32 };
struct q5_0 { uint16_t d; uint8_t h[BLOCK / 8], q[BLOCK / 2]; };
struct q5_1 { uint16_t d, m; uint8_t h[BLOCK / 8], q[BLOCK / 2]; };
_Static_assert(sizeof(struct q5_0) == 22 && sizeof(struct q5_1) == 24, "blocks of Q5_0 and Q5_1 have 22 and 24 bytes");

static int value(const uint8_t *h, const uint8_t *q, int j)
{
    int low = j < BLOCK / 2 ? q[j] & 15 : q[j - BLOCK / 2] >> 4;
    return low | (h[j / 8] >> j % 8 & 1) << 4;
}

void llm_q5_0_decode(const void *in, float *out, size_t n)
{
    struct q5_0 b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        float d = llm_f16_decode(b.d);
        for (int j = 0; j < BLOCK; j++) *out++ = (float)(value(b.h, b.q, j) - 16) * d;
    }
}

void llm_q5_1_decode(const void *in, float *out, size_t n)
{
    struct q5_1 b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        float d = llm_f16_decode(b.d), m = llm_f16_decode(b.m);
        for (int j = 0; j < BLOCK; j++) *out++ = (float)value(b.h, b.q, j) * d + m;
    }
}

static void put_codes(const uint8_t *codes, uint8_t *h, uint8_t *q)
{
    memset(h, 0, BLOCK / 8);
    for (int j = 0; j < BLOCK; j++) h[j / 8] = (uint8_t)(h[j / 8] | (codes[j] >> 4 & 1) << j % 8);
    for (int j = 0; j < BLOCK / 2; j++) q[j] = (uint8_t)((codes[j] & 15) | (codes[j + BLOCK / 2] & 15) << 4);
}

void llm_q5_0_encode(const float *in, void *out, size_t n)
{
    struct q5_0 b;
    uint8_t codes[BLOCK];
    for (size_t i = 0; i < n / BLOCK; i++, in += BLOCK) {
        float max = 0;
        for (int j = 0; j < BLOCK; j++) max = fabsf(in[j]) > fabsf(max) ? in[j] : max;
        float d = max / -16, inverse = d != 0 ? 1 / d : 0;
        b.d = llm_f16_encode(d);
        for (int j = 0; j < BLOCK; j++) {
            float x = in[j] * inverse + 16.5f;
            codes[j] = x < 31 ? x > 0 ? (uint8_t)x : 0 : x >= 31 ? 31 : 16; /* 16, that is zero, for NaN */
        }
        put_codes(codes, b.h, b.q);
        memcpy((char *)out + i * sizeof b, &b, sizeof b);
    }
}

void llm_q5_1_encode(const float *in, void *out, size_t n)
{
    struct q5_1 b;
    uint8_t codes[BLOCK];
    for (size_t i = 0; i < n / BLOCK; i++, in += BLOCK) {
        float low = in[0], top = in[0];
        for (int j = 1; j < BLOCK; j++) {
            low = in[j] < low ? in[j] : low;
            top = in[j] > top ? in[j] : top;
        }
        float d = (top - low) / 31, inverse = d != 0 ? 1 / d : 0;
        b.d = llm_f16_encode(d);
        b.m = llm_f16_encode(low);
        for (int j = 0; j < BLOCK; j++) codes[j] = llm_code_above(in[j] - low, inverse, 31);
        put_codes(codes, b.h, b.q);
        memcpy((char *)out + i * sizeof b, &b, sizeof b);
    }
}

static void pack_0(const struct llm_block *in, void *out)
{
    struct q5_0 b = {.d = llm_f16_encode(in->d)};
    put_codes(in->q, b.h, b.q);
    memcpy(out, &b, sizeof b);
}

static void pack_1(const struct llm_block *in, void *out)
{
    struct q5_1 b = {.d = llm_f16_encode(in->d), .m = llm_f16_encode(-in->least)};
    put_codes(in->q, b.h, b.q);
    memcpy(out, &b, sizeof b);
}

const struct llm_block_kind llm_q5_0_kind = {.size = BLOCK, .group = BLOCK, .n_codes = 32, .zero = 16, .scale_min = 1, .scale_max = 1,
                                             .round = llm_block_round_f16, .pack = pack_0};
const struct llm_block_kind llm_q5_1_kind = {.size = BLOCK, .group = BLOCK, .n_codes = 32, .scale_min = 1, .scale_max = 1, .low_max = 1,
                                             .round = llm_block_round_f16, .pack = pack_1};
