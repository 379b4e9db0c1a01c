/* Q4_0, ggml's layout: blocks of 32 values, each a scale d (f16) and 16 bytes; byte j has q of value j in its low and of value j + 16 in its
 * high half; value = d · (q - 8). Encoding: d = m / -8 with m the value of largest size, sign included, so that m is met exactly;
 * q = the integer below x / d + 8.5, at most 15. */
#include <math.h>
#include <string.h>
#include "cpu/dtype/block.h"
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

enum { BLOCK = 32 };
struct q4_0 { uint16_t d; uint8_t q[BLOCK / 2]; };
_Static_assert(sizeof(struct q4_0) == 18, "a block of Q4_0 has 18 bytes");

void llm_q4_0_decode(const void *in, float *out, size_t n)
{
    struct q4_0 b;
    for (size_t i = 0; i < n / BLOCK; i++, out += BLOCK) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        float d = llm_f16_decode(b.d);
        for (int j = 0; j < BLOCK / 2; j++) {
            out[j] = (float)((b.q[j] & 15) - 8) * d;
            out[j + BLOCK / 2] = (float)((b.q[j] >> 4) - 8) * d;
        }
    }
}

/* The integers below x · inverse + 8.5 within [0, 15]; 8, that is zero, for NaN. Without branches, so that compilers make vectors of it. */
static void levels(const float *x, float inverse, int32_t *out)
{
    float y[BLOCK];
    int32_t bits[BLOCK];
    for (int j = 0; j < BLOCK; j++) y[j] = x[j] * inverse + 8.5f;
    memcpy(bits, y, sizeof bits);
    for (int j = 0; j < BLOCK; j++) bits[j] = (bits[j] & 0x7fffffff) > 0x7f800000 ? 0x41000000 /* 8 */ : bits[j];
    memcpy(y, bits, sizeof y);
    for (int j = 0; j < BLOCK; j++) {
        float v = y[j] < 15 ? y[j] : 15;
        v = v > 0 ? v : 0;
        out[j] = (int32_t)v;
    }
}

void llm_q4_0_encode(const float *in, void *out, size_t n)
{
    struct q4_0 b;
    for (size_t i = 0; i < n / BLOCK; i++, in += BLOCK) {
        float max = 0;
        const float top = llm_largest_size(in);
        for (int j = 0; j < BLOCK && top > 0; j++) {
            if (fabsf(in[j]) != top) continue;
            max = in[j];
            break;
        }
        float d = max / -8, inverse = d != 0 ? 1 / d : 0;
        b.d = llm_f16_encode(d);
        int32_t q[BLOCK];
        levels(in, inverse, q);
        for (int j = 0; j < BLOCK / 2; j++) b.q[j] = (uint8_t)(q[j] | q[j + BLOCK / 2] << 4);
        memcpy((char *)out + i * sizeof b, &b, sizeof b);
    }
}

static void pack(const struct llm_block *in, void *out)
{
    struct q4_0 b = {.d = llm_f16_encode(in->d)};
    for (int j = 0; j < BLOCK / 2; j++) b.q[j] = (uint8_t)(in->q[j] | in->q[j + BLOCK / 2] << 4);
    memcpy(out, &b, sizeof b);
}

const struct llm_block_kind llm_q4_0_kind = {.size = BLOCK, .group = BLOCK, .n_codes = 16, .zero = 8, .scale_min = 1, .scale_max = 1,
                                             .round = llm_block_round_f16, .pack = pack};
