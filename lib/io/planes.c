#include "io/planes.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK = 64 };

/* One width, both directions. Whole blocks have a fixed length, so that compilers make vectors of the loops at -O2; what is left of the last goes
 * through a padded copy. */
#define DEFINE_PLANES(type, bits)                                                                             \
    static void split_block_##bits(const unsigned char *numbers, unsigned char *planes, size_t stride)        \
    {                                                                                                         \
        type x[BLOCK];                                                                                        \
        memcpy(x, numbers, sizeof x);                                                                         \
        for (size_t k = 0; k < BLOCK; k++) x[k] = (type)(x[k] << 1 | x[k] >> (bits - 1));                     \
        for (size_t b = 0; b < sizeof(type); b++)                                                             \
            for (size_t k = 0; k < BLOCK; k++)                                                                \
                planes[b * stride + k] = (unsigned char)(x[k] >> (8 * (sizeof(type) - 1 - b)));               \
    }                                                                                                         \
    static void join_block_##bits(const unsigned char *planes, unsigned char *numbers, size_t stride)         \
    {                                                                                                         \
        type x[BLOCK] = {0};                                                                                  \
        for (size_t b = 0; b < sizeof(type); b++)                                                             \
            for (size_t k = 0; k < BLOCK; k++)                                                                \
                x[k] = (type)(x[k] | (type)planes[b * stride + k] << (8 * (sizeof(type) - 1 - b)));           \
        for (size_t k = 0; k < BLOCK; k++) x[k] = (type)(x[k] >> 1 | x[k] << (bits - 1));                     \
        memcpy(numbers, x, sizeof x);                                                                         \
    }                                                                                                         \
    static void split_##bits(const unsigned char *numbers, unsigned char *planes, size_t n)                   \
    {                                                                                                         \
        unsigned char in[BLOCK * sizeof(type)] = {0}, out[BLOCK * sizeof(type)];                              \
        size_t i = 0, left = n % BLOCK;                                                                       \
        for (; i + BLOCK <= n; i += BLOCK) split_block_##bits(numbers + i * sizeof(type), planes + i, n);     \
        memcpy(in, numbers + i * sizeof(type), left * sizeof(type));                                          \
        split_block_##bits(in, out, BLOCK);                                                                   \
        for (size_t b = 0; b < sizeof(type); b++) memcpy(planes + b * n + i, out + b * BLOCK, left);          \
    }                                                                                                         \
    static void join_##bits(const unsigned char *planes, unsigned char *numbers, size_t n)                    \
    {                                                                                                         \
        unsigned char in[BLOCK * sizeof(type)] = {0}, out[BLOCK * sizeof(type)];                              \
        size_t i = 0, left = n % BLOCK;                                                                       \
        for (; i + BLOCK <= n; i += BLOCK) join_block_##bits(planes + i, numbers + i * sizeof(type), n);      \
        for (size_t b = 0; b < sizeof(type); b++) memcpy(in + b * BLOCK, planes + b * n + i, left);           \
        join_block_##bits(in, out, BLOCK);                                                                    \
        memcpy(numbers + i * sizeof(type), out, left * sizeof(type));                                         \
    }

DEFINE_PLANES(uint16_t, 16)
DEFINE_PLANES(uint32_t, 32)
DEFINE_PLANES(uint64_t, 64)

void llm_planes_split(const unsigned char *numbers, unsigned char *planes, size_t n, int width)
{
    if (width == 2) split_16(numbers, planes, n / 2);
    else if (width == 4) split_32(numbers, planes, n / 4);
    else split_64(numbers, planes, n / 8);
}

void llm_planes_join(const unsigned char *planes, unsigned char *numbers, size_t n, int width)
{
    if (width == 2) join_16(planes, numbers, n / 2);
    else if (width == 4) join_32(planes, numbers, n / 4);
    else join_64(planes, numbers, n / 8);
}
