/* Values of -1, 0 and 1 times a scale, ggml's layouts: TQ1_0 keeps five in a byte, TQ2_0 four. */
#include <string.h>
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

enum { BLOCK = 256 };
struct tq1_0 { uint8_t q[48], rest[4]; uint16_t d; };
struct tq2_0 { uint8_t q[64]; uint16_t d; };
_Static_assert(sizeof(struct tq1_0) == 54 && sizeof(struct tq2_0) == 66, "sizes of ggml's blocks");

/* A byte is a fraction of 256, in base 3: digit i after the point. */
static float digit(uint8_t q, int i)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    return (float)((uint8_t)(q * powers[i]) * 3 >> 8) - 1;
}

/* Bytes [0, 32) have the digits of values 0 to 159, the first digit of each before the second; bytes [32, 48) so those of 80 more, `rest` of 16. */
void llm_tq1_0_decode(const void *in, float *out, size_t n)
{
    struct tq1_0 b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        const float d = llm_f16_decode(b.d);
        for (int j = 0; j < 160; j++) *out++ = d * digit(b.q[j % 32], j / 32);
        for (int j = 0; j < 80; j++) *out++ = d * digit(b.q[32 + j % 16], j / 16);
        for (int j = 0; j < 16; j++) *out++ = d * digit(b.rest[j % 4], j / 4);
    }
}

/* Value i of half h is in byte 32·h + i mod 32, bits 2·(i / 32). */
void llm_tq2_0_decode(const void *in, float *out, size_t n)
{
    struct tq2_0 b;
    for (size_t i = 0; i < n / BLOCK; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        const float d = llm_f16_decode(b.d);
        for (int j = 0; j < BLOCK; j++) *out++ = d * (float)((b.q[j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3) - 1);
    }
}
