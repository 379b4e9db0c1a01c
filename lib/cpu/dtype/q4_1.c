/* Q4_1, ggml's layout: blocks of 32 values, each a scale d and a least value m (f16) and 16 bytes; byte j has q of value j in its low and of
 * value j + 16 in its high half; value = d · q + m. */
#include <string.h>
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
