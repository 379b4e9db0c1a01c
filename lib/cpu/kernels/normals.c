/* Random numbers of a normal distribution (cpu/kernels/normals.h). Logarithms and cosines are approximated in double, many abreast; where the error
 * could change the float that a result is rounded to, about one in a million, llm_rng_normal itself is asked (Ziv, "Fast Evaluation of Elementary
 * Mathematical Functions with Correctly Rounded Last Bit", 1991). */
#include <math.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/kernels.h"
#include "cpu/kernels/sine.h"
#include "cpu/simd/philox.h"

#define ERROR 0x1p-45 /* relative, many times that of the functions below */
enum { ABREAST = LLM_PHILOX_DRAWS / 2 };

/* log(n / 2^24) of an integer n in [1, 2^24]: n = 2^k·z with z in [√½, √2), and log z = 2·artanh((z - 1)/(z + 1)) as a series. */
static inline double log_of(int32_t n)
{
    const int32_t root = 0x3f3504f3; /* the bits of √½ */
    const float exact = (float)n;
    int32_t bits, k;
    float z;
    memcpy(&bits, &exact, 4);
    k = (bits - root) >> 23;
    bits -= (int32_t)((uint32_t)k << 23);
    memcpy(&z, &bits, 4);
    const double s = ((double)z - 1) / ((double)z + 1), w = s * s;
    double sum = 2.0 / 21;
    sum = sum * w + 2.0 / 19;
    sum = sum * w + 2.0 / 17;
    sum = sum * w + 2.0 / 15;
    sum = sum * w + 2.0 / 13;
    sum = sum * w + 2.0 / 11;
    sum = sum * w + 2.0 / 9;
    sum = sum * w + 2.0 / 7;
    sum = sum * w + 2.0 / 5;
    sum = sum * w + 2.0 / 3;
    return (double)(k - 24) * 0.6931471805599453 + (2 * s + s * (w * sum));
}

/* cos x for x in [0, 2π]: x minus the next multiple of π/2, whose sine or cosine has a short series. */
static inline double cos_of(double x)
{
    const int32_t q = (int32_t)(x * 0.6366197723675814 + .5);
    /* π/2 in three parts: products with the first two are exact, also where what is left of x is 2^-54. */
    const double r = ((x - q * 0x1.921fb544p0) - q * 0x1.0b4611a6p-34) - q * 0x1.3198a2e037073p-69, w = r * r;
    double cosine = 1 / 20922789888000.0;
    cosine = cosine * w - 1 / 87178291200.0;
    cosine = cosine * w + 1 / 479001600.0;
    cosine = cosine * w - 1 / 3628800.0;
    cosine = cosine * w + 1 / 40320.0;
    cosine = cosine * w - 1 / 720.0;
    cosine = cosine * w + 1 / 24.0;
    cosine = cosine * w - 1 / 2.0;
    cosine = 1 + cosine * w;
    const double y = q & 1 ? llm_sine_series(r) : cosine;
    return (q + 1) & 2 ? -y : y;
}

static void normals(float *out, int64_t n, const uint32_t key[2], const uint32_t counter[3])
{
    const struct llm_rng exact = {{key[0], key[1]}, {counter[0], counter[1], counter[2]}};
    for (int64_t first = 0; first < n; first += ABREAST) {
        uint32_t draws[LLM_PHILOX_DRAWS];
        float low[ABREAST], high[ABREAST];
        llm_philox_draws(draws, (uint32_t)(first / 2), key, counter);
        for (int i = 0; i < ABREAST; i++) {
            const double x = 6.283185307179586 * ((double)(int32_t)draws[2 * i + 1] * 0x1p-24);
            const double y = sqrt(-2 * log_of((int32_t)draws[2 * i] + 1)) * cos_of(x);
            low[i] = (float)(y * (1 - ERROR));
            high[i] = (float)(y * (1 + ERROR));
        }
        const int64_t here = n - first < ABREAST ? n - first : ABREAST;
        memcpy(out + first, low, (size_t)here * sizeof *out);
        for (int64_t i = 0; i < here; i++)
            if (low[i] != high[i]) out[first + i] = llm_rng_normal(&exact, (uint32_t)(first + i));
    }
}

void KERNEL(llm_fill_normals)(struct llm_kernels *k) { k->normals.normals = normals; }
