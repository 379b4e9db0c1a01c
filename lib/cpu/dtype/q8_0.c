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

void llm_q8_0_encode(const float *in, void *out, size_t n)
{
    struct q8_0 b;
    for (size_t i = 0; i < n / BLOCK; i++, in += BLOCK) {
        float top = 0;
        for (int j = 0; j < BLOCK; j++) top = fmaxf(top, fabsf(in[j]));
        float d = top / 127, inverse = d > 0 ? 1 / d : 0;
        b.d = llm_f16_encode(d);
        for (int j = 0; j < BLOCK; j++) {
            float q = roundf(in[j] * inverse);
            b.q[j] = (int8_t)(q > -127 ? q < 127 ? q : 127 : q <= -127 ? -127 : 0); /* 0 for NaN */
        }
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
