#include "io/zstd_frames.h"

#include <string.h>

/* One width of both directions. The inner loops have a fixed length, so that compilers make vectors of them at -O2. */
#define BLOCK 64
#define DEFINE_PLANES(type, bits)                                                                   \
    static void split_##bits(const unsigned char *numbers, unsigned char *planes, size_t count)     \
    {                                                                                               \
        size_t i = 0;                                                                               \
        type x[BLOCK] = {0};                                                                        \
        for (; i < count; i += BLOCK) {                                                             \
            size_t n = count - i < BLOCK ? count - i : BLOCK;                                       \
            unsigned char bytes[BLOCK];                                                             \
            memcpy(x, numbers + i * sizeof(type), n * sizeof(type));                                \
            for (size_t k = 0; k < BLOCK; k++) x[k] = (type)(x[k] << 1 | x[k] >> (bits - 1));       \
            for (size_t b = 0; b < sizeof(type); b++) {                                             \
                int shift = bits - 8 - 8 * (int)b;                                                  \
                for (size_t k = 0; k < BLOCK; k++) bytes[k] = (unsigned char)(x[k] >> shift);       \
                memcpy(planes + b * count + i, bytes, n);                                           \
            }                                                                                       \
        }                                                                                           \
    }                                                                                               \
    static void join_##bits(const unsigned char *planes, unsigned char *numbers, size_t count)      \
    {                                                                                               \
        type x[BLOCK] = {0};                                                                        \
        unsigned char bytes[BLOCK] = {0};                                                           \
        for (size_t i = 0; i < count; i += BLOCK) {                                                 \
            size_t n = count - i < BLOCK ? count - i : BLOCK;                                       \
            for (size_t k = 0; k < BLOCK; k++) x[k] = 0;                                            \
            for (size_t b = 0; b < sizeof(type); b++) {                                             \
                int shift = bits - 8 - 8 * (int)b;                                                  \
                memcpy(bytes, planes + b * count + i, n);                                           \
                for (size_t k = 0; k < BLOCK; k++) x[k] = (type)(x[k] | (type)bytes[k] << shift);   \
            }                                                                                       \
            for (size_t k = 0; k < BLOCK; k++) x[k] = (type)(x[k] >> 1 | x[k] << (bits - 1));       \
            memcpy(numbers + i * sizeof(type), x, n * sizeof(type));                                \
        }                                                                                           \
    }

DEFINE_PLANES(uint16_t, 16)
DEFINE_PLANES(uint32_t, 32)
DEFINE_PLANES(uint64_t, 64)

void llm_planes_split(const void *numbers, void *planes, size_t n, int width)
{
    if (width == 2) split_16(numbers, planes, n / 2);
    else if (width == 4) split_32(numbers, planes, n / 4);
    else split_64(numbers, planes, n / 8);
}

void llm_planes_join(const void *planes, void *numbers, size_t n, int width)
{
    if (width == 2) join_16(planes, numbers, n / 2);
    else if (width == 4) join_32(planes, numbers, n / 4);
    else join_64(planes, numbers, n / 8);
}
