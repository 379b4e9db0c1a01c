/* Q8_0, ggml's layout: blocks of 32 values, each a scale d (f16) and 32 int8 q; value = d · q. Encoding: d = max |x| / 127 before it is
 * rounded to f16, q = x / d to the nearest integer, halves away from zero. */
#include <math.h>
#include <string.h>
#include "cpu/dtype/block.h"
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

enum { BLOCK = 32 };
struct q8_0 { uint16_t d; int8_t q[BLOCK]; };
_Static_assert(sizeof(struct q8_0) == 34, "a block of Q8_0 has 34 bytes");

void llm_q8_0_decode(const void *in, float *out, size_t n)
{
    struct q8_0 b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        float d = llm_f16_decode(b.d);
        for (int j = 0; j < BLOCK; j++) *out++ = (float)b.q[j] * d;
    }
}

/* The nearest integers of x · inverse, halves away from zero, within ±127; 0 for NaN. Without branches, so that compilers make vectors of it: what is
 * below the sum of y and the float before 1/2, of y's sign, is y rounded. */
static void round_all(const float *x, float inverse, int8_t *out)
{
    float y[BLOCK], half[BLOCK];
    int32_t bits[BLOCK], halves[BLOCK], q[BLOCK];
    for (int j = 0; j < BLOCK; j++) y[j] = x[j] * inverse;
    memcpy(bits, y, sizeof bits);
    for (int j = 0; j < BLOCK; j++) bits[j] = (bits[j] & 0x7fffffff) > 0x7f800000 ? 0 : bits[j];
    for (int j = 0; j < BLOCK; j++) halves[j] = (bits[j] & INT32_MIN) | 0x3effffff;
    memcpy(y, bits, sizeof y);
    memcpy(half, halves, sizeof half);
    for (int j = 0; j < BLOCK; j++) y[j] = y[j] < 127 ? y[j] : 127;
    for (int j = 0; j < BLOCK; j++) y[j] = y[j] > -127 ? y[j] : -127;
    for (int j = 0; j < BLOCK; j++) q[j] = (int32_t)(y[j] + half[j]);
    for (int j = 0; j < BLOCK; j++) out[j] = (int8_t)q[j];
}

void llm_q8_0_encode(const float *in, void *out, size_t n)
{
    struct q8_0 b;
    for (size_t i = 0; i < n / BLOCK; i++, in += BLOCK) {
        float d = llm_largest_size(in) / 127, inverse = d > 0 ? 1 / d : 0;
        b.d = llm_f16_encode(d);
        round_all(in, inverse, b.q);
        memcpy((char *)out + i * sizeof b, &b, sizeof b);
    }
}

static void pack(const struct llm_block *in, void *out)
{
    struct q8_0 b = {.d = llm_f16_encode(in->d)};
    for (int j = 0; j < BLOCK; j++) b.q[j] = (int8_t)(in->q[j] - 128);
    memcpy(out, &b, sizeof b);
}

const struct llm_block_kind llm_q8_0_kind = {.size = BLOCK, .group = BLOCK, .first_code = 1, .n_codes = 256, .zero = 128, .scale_min = 1,
                                             .scale_max = 1, .round = llm_block_round_f16, .pack = pack};
