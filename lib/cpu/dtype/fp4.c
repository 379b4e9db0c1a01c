/* Types of four bits a value that look their values up, ggml's layouts: IQ4_NL, IQ4_XS (super-blocks of 256 with scales of six bits), and MXFP4
 * (OCP Microscaling Formats 1.0: E2M1 values, an E8M0 scale). In each 32 values byte j has value j in its low, value j + 16 in its high half. */
#include <string.h>
#include "cpu/dtype/dtype_internal.h"
#include "cpu/half.h"

struct iq4_nl { uint16_t d; uint8_t q[16]; };
struct iq4_xs { uint16_t d, scales_high; uint8_t scales_low[4], q[128]; };
struct mxfp4 { uint8_t e, q[16]; };
_Static_assert(sizeof(struct iq4_nl) == 18 && sizeof(struct iq4_xs) == 136 && sizeof(struct mxfp4) == 17, "sizes of ggml's blocks");

static const int8_t nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t e2m1_twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void look_up(const uint8_t *q, const int8_t *levels, float d, float *out)
{
    for (int j = 0; j < 16; j++) {
        out[j] = d * (float)levels[q[j] & 15];
        out[j + 16] = d * (float)levels[q[j] >> 4];
    }
}

void llm_iq4_nl_decode(const void *in, float *out, size_t n)
{
    struct iq4_nl b;
    for (size_t i = 0; i < n / 32; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        look_up(b.q, nl_levels, llm_f16_decode(b.d), out + i * 32);
    }
}

void llm_iq4_xs_decode(const void *in, float *out, size_t n)
{
    struct iq4_xs b;
    for (size_t i = 0; i < n / 256; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        for (int g = 0; g < 8; g++) {
            int scale = (b.scales_low[g / 2] >> g % 2 * 4 & 15) | (b.scales_high >> g * 2 & 3) << 4;
            look_up(b.q + g * 16, nl_levels, llm_f16_decode(b.d) * (float)(scale - 32), out + i * 256 + g * 32);
        }
    }
}

void llm_mxfp4_decode(const void *in, float *out, size_t n)
{
    struct mxfp4 b;
    for (size_t i = 0; i < n / 32; i++) {
        memcpy(&b, (const char *)in + i * sizeof b, sizeof b);
        uint32_t bits = b.e < 2 ? 0x00200000u << b.e : (uint32_t)(b.e - 1) << 23; /* 2^(e - 128): half the scale, for twice the values */
        float half_scale;
        memcpy(&half_scale, &bits, sizeof half_scale);
        look_up(b.q, e2m1_twice, half_scale, out + i * 32);
    }
}
