/* Products of one vector with chosen rows, scores above a limit (cpu/kernels/search.h). */
#include "cpu/kernels.h"
#include "cpu/simd.h"

#define INLINE static inline __attribute__((always_inline))

enum form { EXACT, ROUNDED, HALVES };
enum { ABREAST = 4, LINE = 64 };

INLINE V load(const char *row, int64_t i, int64_t n, enum form f)
{
    const uint16_t *half = (const uint16_t *)(const void *)row + i;
    const float *p = (const float *)(const void *)row + i;
    if (f == HALVES) return n < VN ? v_load_bf16_n(half, (size_t)n) : v_load_bf16(half);
    V x = n < VN ? v_load_n(p, (size_t)n) : v_load(p);
    return f == ROUNDED ? v_round_bf16(x) : x;
}

/* `next`: rows that are prefetched meanwhile, or NULL. */
INLINE void rows_abreast(float *out, const float *v, const char *const *row, const char *const *next, const int n, int64_t dims, enum form f)
{
    const int64_t bytes = f == HALVES ? 2 : 4;
    V even[ABREAST], odd[ABREAST];
    int64_t i = 0;
    for (int r = 0; r < n; r++) even[r] = odd[r] = v_zero();
    for (; i + 2 * VN <= dims; i += 2 * VN) {
        V a = v_load(v + i), b = v_load(v + i + VN);
        for (int r = 0; r < n; r++) {
            for (int64_t k = i * bytes; next && k < (i + 2 * VN) * bytes; k += LINE) __builtin_prefetch(next[r] + k);
            even[r] = v_fma(a, load(row[r], i, VN, f), even[r]);
            odd[r] = v_fma(b, load(row[r], i + VN, VN, f), odd[r]);
        }
    }
    for (; i < dims; i += VN) {
        V a = v_load_n(v + i, (size_t)(dims - i));
        for (int r = 0; r < n; r++) even[r] = v_fma(a, load(row[r], i, dims - i, f), even[r]);
    }
    for (int r = 0; r < n; r++) out[r] = v_sum(v_add(even[r], odd[r]));
}

INLINE void dots(float *out, const float *v, const void *data, const uint32_t *rows, int64_t n, int64_t dims, enum form f)
{
    const int64_t bytes = dims * (f == HALVES ? 2 : 4);
    const char *row[ABREAST], *next[ABREAST];
    int64_t i = 0;
    /* Exact products are mostly of rows in a line, which the processor prefetches best if they are read one after another. */
    for (; f != EXACT && i + ABREAST <= n; i += ABREAST) {
        for (int r = 0; r < ABREAST; r++) {
            row[r] = (const char *)data + rows[i + r] * bytes;
            next[r] = (const char *)data + rows[i + r + ABREAST < n ? i + r + ABREAST : i + r] * bytes;
        }
        rows_abreast(out + i, v, row, next, ABREAST, dims, f);
    }
    for (; i < n; i++) {
        row[0] = (const char *)data + rows[i] * bytes;
        rows_abreast(out + i, v, row, NULL, 1, dims, f);
    }
}

#define FORM(name, f) \
    static void name(float *out, const float *v, const void *data, const uint32_t *rows, int64_t n, int64_t dims) \
    { dots(out, v, data, rows, n, dims, f); }
FORM(exact, EXACT)
FORM(rounded, ROUNDED)
FORM(bf16, HALVES)

static int64_t reaches(const float *x, int64_t from, int64_t n, float limit)
{
    const V low = v_set1(limit);
    for (; from + VN <= n; from += VN) {
        if (m_any(v_le(low, v_load(x + from)))) break;
    }
    while (from < n && !(x[from] >= limit)) from++;
    return from;
}

void KERNEL(llm_fill_search)(struct llm_kernels *k)
{
    k->search = (struct llm_search_kernels){.exact = exact, .rounded = rounded, .bf16 = bf16, .reaches = reaches};
}
