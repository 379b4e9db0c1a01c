/* Q5_0 and Q5_1, ggml's layouts: as Q4_0 and Q4_1 with a fifth bit of each value in h, bit j of value j. Q5_0: value = d · (q - 16). */
#include <string.h>
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
