/* Matrices of which two in each four neighbours of a row are 0 (llm-quantize --prune 2:4), without the zeros. Blocks of 32 values are eight fours. A
 * four has a code of four bits, that of an even four in the low half of its byte, which says where its two values stand: 0 to 5 for places 0 1, 0 2,
 * 0 3, 1 2, 1 3, 2 3. A reader looks at three bits and takes 6 and 7 for 0. Then come the sixteen values, as Q8_0 and BF16 have them. */
#include <math.h>
#include <string.h>
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

enum { BLOCK = 32, FOURS = BLOCK / 4, KEPT = BLOCK / 2 };
struct q8_0_2of4 { uint16_t d; uint8_t places[FOURS / 2]; int8_t q[KEPT]; };
struct bf16_2of4 { uint8_t places[FOURS / 2]; uint16_t x[KEPT]; };
_Static_assert(sizeof(struct q8_0_2of4) == 22, "a block of Q8_0_2OF4 has 22 bytes");
_Static_assert(sizeof(struct bf16_2of4) == 36, "a block of BF16_2OF4 has 36 bytes");

static const uint8_t places_of[8][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}, {0, 1}, {0, 1}};

/* The numbers of the two values of four number i. */
static const uint8_t *places(const uint8_t *codes, int i)
{
    return places_of[codes[i / 2] >> i % 2 * 4 & 7];
}

/* Which element of x[4] is the largest in size but for number `without`, the first of equal ones. NaN is larger than all. */
static int largest(const float *x, int without)
{
    int best = without == 0;
    for (int j = best + 1; j < 4; j++) {
        if (j != without && !isnan(x[best]) && !(fabsf(x[j]) <= fabsf(x[best]))) best = j;
    }
    return best;
}

/* Puts the two largest of each four side by side. */
static void choose(const float *in, uint8_t *codes, float *kept)
{
    memset(codes, 0, FOURS / 2);
    for (int i = 0; i < FOURS; i++, in += 4) {
        const int one = largest(in, -1), other = largest(in, one), a = one < other ? one : other, b = one < other ? other : one;
        int code = 0;
        while (places_of[code][0] != a || places_of[code][1] != b) code++;
        codes[i / 2] = (uint8_t)(codes[i / 2] | code << i % 2 * 4);
        *kept++ = in[a];
        *kept++ = in[b];
    }
}

void llm_q8_0_2of4_decode(const void *in, float *out, size_t n)
{
    struct q8_0_2of4 b;
    memset(out, 0, n * sizeof *out);
    for (size_t i = 0; i < n / BLOCK; i++, out += BLOCK) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        const float d = llm_f16_decode(b.d);
        for (int j = 0; j < KEPT; j++) out[j / 2 * 4 + places(b.places, j / 2)[j % 2]] = (float)b.q[j] * d;
    }
}

/* The scale is that of Q8_0, which has the values that are left and zeros. */
void llm_q8_0_2of4_encode(const float *in, void *out, size_t n)
{
    for (size_t i = 0; i < n / BLOCK; i++, in += BLOCK) {
        struct q8_0_2of4 b;
        struct { uint16_t d; int8_t q[BLOCK]; } dense;
        float kept[BLOCK] = {0};
        choose(in, b.places, kept);
        llm_q8_0_encode(kept, &dense, BLOCK);
        b.d = dense.d;
        memcpy(b.q, dense.q, sizeof b.q);
        memcpy((char *)out + i * sizeof b, &b, sizeof b);
    }
}

void llm_bf16_2of4_decode(const void *in, float *out, size_t n)
{
    struct bf16_2of4 b;
    memset(out, 0, n * sizeof *out);
    for (size_t i = 0; i < n / BLOCK; i++, out += BLOCK) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        for (int j = 0; j < KEPT; j++) out[j / 2 * 4 + places(b.places, j / 2)[j % 2]] = llm_bf16_decode(b.x[j]);
    }
}

void llm_bf16_2of4_encode(const float *in, void *out, size_t n)
{
    for (size_t i = 0; i < n / BLOCK; i++, in += BLOCK) {
        struct bf16_2of4 b;
        float kept[KEPT];
        choose(in, b.places, kept);
        for (int j = 0; j < KEPT; j++) b.x[j] = llm_bf16_encode(kept[j]);
        memcpy((char *)out + i * sizeof b, &b, sizeof b);
    }
}
