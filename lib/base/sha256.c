/* SHA-256 (FIPS 180-4), with the processor's own instructions where it has them. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#if defined __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { BLOCK = 64 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t k[64] __attribute__((aligned(16))) = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

struct llm_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char rest[BLOCK]; /* bytes % BLOCK of them */
    void (*blocks)(uint32_t state[8], const unsigned char *p, size_t blocks);
};

static inline uint32_t turn(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

void llm_sha256_blocks_plain(uint32_t state[8], const unsigned char *p, size_t blocks)
{
    for (; blocks > 0; blocks--, p += BLOCK) {
        uint32_t w[64], v[8];
        memcpy(v, state, sizeof v);
        for (int i = 0; i < 16; i++) w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
        for (int i = 16; i < 64; i++) {
            uint32_t a = w[i - 15], b = w[i - 2];
            w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
        }
        for (int i = 0; i < 64; i++) {
            uint32_t e = v[4], a = v[0];
            uint32_t t1 = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
            uint32_t t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
            memmove(v + 1, v, 7 * sizeof *v);
            v[4] += t1;
            v[0] = t1 + t2;
        }
        for (int i = 0; i < 8; i++) state[i] += v[i];
    }
}

#if defined __x86_64__
static bool has_instructions(void)
{
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1 && __builtin_cpu_supports("sse4.1");
}

/* The instructions keep the state as (A, B, E, F) and (C, D, G, H) and do two rounds at a time; four words of the schedule are made while the four
 * before them are used. */
__attribute__((target("sha,sse4.1"))) static void blocks_sha(uint32_t state[8], const unsigned char *p, size_t blocks)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i dcba = _mm_loadu_si128((const __m128i *)(const void *)state), hgfe = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    __m128i cdab = _mm_shuffle_epi32(dcba, 0xB1), efgh = _mm_shuffle_epi32(hgfe, 0x1B);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
    for (; blocks > 0; blocks--, p += BLOCK) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];
        for (int i = 0; i < 16; i++) {
            __m128i *now = &w[i & 3];
            if (i < 4) {
                *now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)), big_endian);
            } else {
                __m128i sum = _mm_sha256msg1_epu32(*now, w[(i + 1) & 3]);
                sum = _mm_add_epi32(sum, _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4));
                *now = _mm_sha256msg2_epu32(sum, w[(i + 3) & 3]);
            }
            __m128i with_k = _mm_add_epi32(*now, _mm_load_si128((const __m128i *)(const void *)(k + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, with_k);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(with_k, 0x0E));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1B), dchg = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

struct llm_sha256 *llm_sha256_create(struct llm_err *e)
{
    /* The first 32 bits of the fractional parts of the square roots of the first 8 primes. */
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    struct llm_sha256 *h = calloc(1, sizeof *h);
    if (!h) {
        llm_no_memory(e, "SHA-256");
        return NULL;
    }
    memcpy(h->state, first, sizeof first);
    h->blocks = llm_sha256_blocks_plain;
#if defined __x86_64__
    if (has_instructions()) h->blocks = blocks_sha;
#endif
    return h;
}

void llm_sha256_update(struct llm_sha256 *h, const void *p, size_t n)
{
    const unsigned char *in = p;
    size_t have = h->bytes % BLOCK;
    h->bytes += n;
    if (n == 0) return;
    if (have > 0) {
        size_t more = BLOCK - have < n ? BLOCK - have : n;
        memcpy(h->rest + have, in, more);
        if (have + more < BLOCK) return;
        h->blocks(h->state, h->rest, 1);
        in += more;
        n -= more;
    }
    if (n >= BLOCK) h->blocks(h->state, in, n / BLOCK);
    memcpy(h->rest, in + n / BLOCK * BLOCK, n % BLOCK);
}

void llm_sha256_finish(struct llm_sha256 *h, char hex[65])
{
    unsigned char end[2 * BLOCK] = {0x80};
    size_t have = h->bytes % BLOCK, n = (have < BLOCK - 8 ? BLOCK : 2 * BLOCK) - have;
    uint64_t bits = h->bytes * 8;
    for (int i = 0; i < 8; i++) end[n - 1 - (size_t)i] = (unsigned char)(bits >> (8 * i));
    llm_sha256_update(h, end, n);
    for (int i = 0; i < 64; i++) hex[i] = "0123456789abcdef"[h->state[i / 8] >> (28 - i % 8 * 4) & 15];
    hex[64] = 0;
    free(h);
}
