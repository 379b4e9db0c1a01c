#include "io/planes.h"

#include <stdint.h>
#include <string.h>

/* One pair of loops a width, with constant trip counts inside, so that the compiler vectorises them. */
#define PLANES(bits, width)                                                                      \
    static void split##bits(const unsigned char *in, unsigned char *out, size_t n)              \
    {                                                                                            \
        for (size_t i = 0; i < n; i++) {                                                         \
            uint##bits##_t v;                                                                    \
            memcpy(&v, in + i * (width), (width));                                               \
            v = (uint##bits##_t)(v << 1 | v >> (bits - 1));                                      \
            for (size_t b = 0; b < (width); b++) out[b * n + i] = (unsigned char)(v >> (8 * b)); \
        }                                                                                        \
    }                                                                                            \
    static void join##bits(const unsigned char *in, unsigned char *out, size_t n)               \
    {                                                                                            \
        for (size_t i = 0; i < n; i++) {                                                         \
            uint##bits##_t v = 0;                                                                \
            for (size_t b = 0; b < (width); b++) v = (uint##bits##_t)(v | (uint##bits##_t)in[b * n + i] << (8 * b)); \
            v = (uint##bits##_t)(v >> 1 | v << (bits - 1));                                      \
            memcpy(out + i * (width), &v, (width));                                              \
        }                                                                                        \
    }
PLANES(16, 2)
PLANES(32, 4)
PLANES(64, 8)

void llm_planes_split(const unsigned char *in, unsigned char *out, size_t bytes, int width)
{
    if (width == 2) split16(in, out, bytes / 2);
    else if (width == 4) split32(in, out, bytes / 4);
    else split64(in, out, bytes / 8);
}

void llm_planes_join(const unsigned char *in, unsigned char *out, size_t bytes, int width)
{
    if (width == 2) join16(in, out, bytes / 2);
    else if (width == 4) join32(in, out, bytes / 4);
    else join64(in, out, bytes / 8);
}
