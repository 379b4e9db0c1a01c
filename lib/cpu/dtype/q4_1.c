/* Q4_1, ggml's layout: blocks of 32 values, each a scale d and a least value m (f16) and 16 bytes; byte j has q of value j in its low and of
 * value j + 16 in its high half; value = d · q + m. Encoding: m = the smallest value,
 * d = (largest - m) / 15, q = the integer below (x - m) / d + 1/2. */
#include <string.h>
#include "cpu/dtype/block.h"
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

enum { BLOCK = 32 };
struct q4_1 { uint16_t d, m; uint8_t q[BLOCK / 2]; };
_Static_assert(sizeof(struct q4_1) == 20, "a block of Q4_1 has 20 bytes");

void llm_q4_1_decode(const void *in, float *out, size_t n)
{
    struct q4_1 b;
    for (size_t i = 0; i < n / BLOCK; i++, out += BLOCK) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        float d = llm_f16_decode(b.d), m = llm_f16_decode(b.m);
        for (int j = 0; j < BLOCK / 2; j++) {
            out[j] = (float)(b.q[j] & 15) * d + m;
            out[j + BLOCK / 2] = (float)(b.q[j] >> 4) * d + m;
        }
    }
}

void llm_q4_1_encode(const float *in, void *out, size_t n)
{
    struct q4_1 b;
    for (size_t i = 0; i < n / BLOCK; i++, in += BLOCK) {
        float low = in[0], top = in[0];
        for (int j = 1; j < BLOCK; j++) {
            low = in[j] < low ? in[j] : low;
            top = in[j] > top ? in[j] : top;
        }
        float d = (top - low) / 15, inverse = d != 0 ? 1 / d : 0;
        b.d = llm_f16_encode(d);
        b.m = llm_f16_encode(low);
        for (int j = 0; j < BLOCK / 2; j++) {
            b.q[j] = (uint8_t)(llm_code_above(in[j] - low, inverse, 15) | llm_code_above(in[j + BLOCK / 2] - low, inverse, 15) << 4);
        }
        memcpy((char *)out + i * sizeof b, &b, sizeof b);
    }
}

static void pack(const struct llm_block *in, void *out)
{
    struct q4_1 b = {.d = llm_f16_encode(in->d), .m = llm_f16_encode(-in->least)};
    for (int j = 0; j < BLOCK / 2; j++) b.q[j] = (uint8_t)(in->q[j] | in->q[j + BLOCK / 2] << 4);
    memcpy(out, &b, sizeof b);
}

const struct llm_block_kind llm_q4_1_kind = {.size = BLOCK, .group = BLOCK, .n_codes = 16, .scale_min = 1, .scale_max = 1, .low_max = 1,
                                             .round = llm_block_round_f16, .pack = pack};
