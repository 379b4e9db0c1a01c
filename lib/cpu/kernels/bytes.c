/* Classes of 64 bytes at a time (cpu/kernels/bytes.h). */
#include "cpu/kernels.h"
#include "cpu/simd.h"

#ifdef LLM_ISA_avx512

typedef __m512i bytes;
static inline bytes load(const unsigned char *p) { return _mm512_loadu_si512(p); }
static inline uint64_t equal(bytes x, char c) { return _mm512_cmpeq_epi8_mask(x, _mm512_set1_epi8(c)); }
static inline uint64_t within(bytes x, char first, char last) /* unsigned: first ≤ byte ≤ last */
{
    return _mm512_cmple_epu8_mask(_mm512_sub_epi8(x, _mm512_set1_epi8(first)), _mm512_set1_epi8((char)(last - first)));
}
static inline uint64_t top_bits(bytes x) { return _mm512_movepi8_mask(x); }

#elif defined LLM_ISA_avx2

typedef struct { __m256i low, high; } bytes;
static inline bytes load(const unsigned char *p)
{
    return (bytes){_mm256_loadu_si256((const __m256i *)(const void *)p), _mm256_loadu_si256((const __m256i *)(const void *)(p + 32))};
}
static inline uint64_t both(__m256i low, __m256i high)
{
    return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high) << 32;
}
static inline uint64_t equal(bytes x, char c)
{
    __m256i v = _mm256_set1_epi8(c);
    return both(_mm256_cmpeq_epi8(x.low, v), _mm256_cmpeq_epi8(x.high, v));
}
static inline uint64_t within(bytes x, char first, char last)
{
    __m256i from = _mm256_set1_epi8(first), max = _mm256_set1_epi8((char)(last - first));
    __m256i low = _mm256_sub_epi8(x.low, from), high = _mm256_sub_epi8(x.high, from);
    return both(_mm256_cmpeq_epi8(_mm256_min_epu8(low, max), low), _mm256_cmpeq_epi8(_mm256_min_epu8(high, max), high));
}
static inline uint64_t top_bits(bytes x) { return both(x.low, x.high); }

#else

/* Eight bytes to a word. Where a byte is asked about, its top bit says so: additions of less than 0x80 do not carry into the next. */
typedef struct { uint64_t v[8]; } bytes;
#define EACH(c) ((uint64_t)(unsigned char)(c) * UINT64_C(0x0101010101010101))

static inline bytes load(const unsigned char *p)
{
    bytes x;
    for (int i = 0; i < 8; i++) {
        x.v[i] = 0;
        for (int k = 0; k < 8; k++) x.v[i] |= (uint64_t)p[8 * i + k] << 8 * k;
    }
    return x;
}
/* The top bits of eight bytes, as a byte. */
static inline uint64_t gather(uint64_t v) { return ((v & EACH(0x80)) >> 7) * UINT64_C(0x0102040810204080) >> 56; }
static inline uint64_t within(bytes x, char first, char last)
{
    uint64_t mask = 0;
    for (int i = 0; i < 8; i++) {
        uint64_t low = x.v[i] & EACH(0x7F), from = low + EACH(0x80 - first), beyond = low + EACH(0x7F - last);
        mask |= gather(from & ~beyond & ~x.v[i]) << 8 * i;
    }
    return mask;
}
static inline uint64_t equal(bytes x, char c) { return within(x, c, c); }
static inline uint64_t top_bits(bytes x)
{
    uint64_t mask = 0;
    for (int i = 0; i < 8; i++) mask |= gather(x.v[i]) << 8 * i;
    return mask;
}

#endif

static void classify(struct llm_byte_masks *m, const unsigned char p[64])
{
    bytes x = load(p);
    m->upper = within(x, 'A', 'Z');
    m->lower = within(x, 'a', 'z');
    m->digit = within(x, '0', '9');
    m->blank = equal(x, ' ');
    m->space = m->blank | within(x, '\t', '\r');
    m->newline = equal(x, '\n') | equal(x, '\r');
    m->quote = equal(x, '\'');
    m->slash = equal(x, '/');
    m->high = top_bits(x);
}

void KERNEL(llm_fill_bytes)(struct llm_kernels *k)
{
    k->bytes.classify = classify;
}
