/* Attention's tile kernels on every instruction set. Keys and values of a cache that are packed as they are have the bits of decoding them first.
 * Products of all shapes have the bits of the formula. Products of a few rows with stored keys and values have the bits of packed ones. */
#include "isas.h"
#include "cpu/half.h"
#include "cpu/matmul.h"

enum { KEYS = LLM_ATTN_TILE, WIDEST = 96 };
static const enum llm_dtype types[] = {LLM_F16, LLM_BF16, LLM_Q8_0, LLM_Q4_0};

static void check(const struct llm_attention_math *math, enum llm_dtype type, int64_t width, int64_t have)
{
    enum { ROOM = WIDEST * (KEYS + 16) };
    static float decoded[KEYS * WIDEST];
    static _Alignas(64) float found[ROOM], wanted[ROOM];
    size_t bytes = llm_dtype_bytes(type, (uint64_t)width);
    float *x = noisy((size_t)(have * width), (uint64_t)width);
    char *rows = guarded((size_t)have * bytes);
    for (int64_t r = 0; r < have; r++) {
        llm_dtypes[type].encode(x + r * width, rows + (size_t)r * bytes, (size_t)width);
        llm_dtypes[type].decode(rows + (size_t)r * bytes, decoded + r * width, (size_t)width);
    }
    int64_t units = llm_attn_units(math, width), tile_units = llm_attn_units(math, KEYS), padded = (width + 15) / 16 * 16;
    memset(found, 1, sizeof found);
    memset(wanted, 1, sizeof wanted);
    math->pack_bt_of[type](found, KEYS, rows, width, have, width);
    math->pack_bt(wanted, KEYS, decoded, width, have, width);
    if (memcmp(found, wanted, (size_t)(units * KEYS) * sizeof *found) != 0)
        fail_msg("%s: keys of %s, %d wide, %d of them", llm_k.isa, llm_dtypes[type].name, (int)width, (int)have);
    math->pack_b_of[type](found, padded, rows, width, have, width, KEYS);
    math->pack_b(wanted, padded, decoded, width, have, width, KEYS);
    if (memcmp(found, wanted, (size_t)(tile_units * padded) * sizeof *found) != 0)
        fail_msg("%s: values of %s, %d wide, %d of them", llm_k.isa, llm_dtypes[type].name, (int)width, (int)have);
}

static void test_types(void **state)
{
    static const int64_t widths[] = {64, 96, 32, 40}, counts[] = {KEYS, 1, 17, 63};
    (void)state;
    FOR_EACH_ISA(isa)
        for (int form = 0; form < 2; form++)
            for (size_t t = 0; t < sizeof types / sizeof *types; t++)
                for (int w = 0; w < 4; w++)
                    for (int n = 0; n < 4; n++)
                        if (widths[w] % llm_dtypes[types[t]].block_size == 0) check(&llm_k.attention.math[form], types[t], widths[w], counts[n]);
}

/* One element of a product in FP32. */
static float element(const float *a, const float *b, int64_t ldb, int64_t units, float sum)
{
    const bool fused = strcmp(llm_k.isa, "scalar") != 0;
    for (int64_t u = 0; u < units; u++) sum = fused ? fmaf(a[u], b[u * ldb], sum) : a[u] * b[u * ldb] + sum;
    return sum;
}

static void check_product(int64_t m, int64_t n, int64_t units, bool accumulate)
{
    enum { A = 16 * 70, C = 80 * 70 };
    const int64_t ldc = 80;
    static float c[C], before[C];
    float *a = noisy(A, (uint64_t)(m + units)), *b = noisy((size_t)(units * n), (uint64_t)n);
    memcpy(before, noisy(C, 3), sizeof before);
    memcpy(c, before, sizeof c);
    llm_k.attention.math[LLM_COMPUTE_F32].product(c, ldc, a, units, b, n, m, n, units, accumulate);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float want = element(a + i * units, b + j, n, units, accumulate ? before[i * ldc + j] : 0);
            if (c[i * ldc + j] != want) fail_msg("%s: %d x %d x %d: row %d, column %d", llm_k.isa, (int)m, (int)n, (int)units, (int)i, (int)j);
        }
    for (int64_t i = 0; i < m; i++) assert_memory_equal(c + i * ldc + n, before + i * ldc + n, (size_t)(ldc - n) * sizeof *c);
}

static void test_products(void **state)
{
    static const int64_t depths[] = {1, 7, 16, 33};
    (void)state;
    FOR_EACH_ISA(isa)
        for (int64_t m = 1; m <= 20; m++)
            for (int64_t n = 16; n <= 80; n += 16)
                for (int d = 0; d < 4; d++) check_product(m, n, depths[d], d % 2);
}

/* Units of BF16 numbers or of floats: usual ones, or so small that their products are subnormal. */
static void fill_units(float *x, int64_t n, bool pairs, bool small, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t unit = 0;
        for (int half = 0; half < 2; half++) {
            const float number = noise(&seed) * (small ? 0x1p-65f : 1);
            if (pairs) unit |= (uint32_t)llm_bf16_encode(number) << 16 * half;
            else x[i] = llm_bf16_decode(llm_bf16_encode(number));
        }
        if (pairs) memcpy(x + i, &unit, sizeof unit);
    }
}

/* A row of a product has the same bits alone and among others. */
static void check_rows(const struct llm_attention_math *math, int64_t m, int64_t n, int64_t units, bool accumulate, bool small)
{
    enum { ROWS = 96, COLUMNS = 144, UNITS = 80 };
    static _Alignas(64) float a[ROWS * UNITS], b[UNITS * COLUMNS], all[ROWS * COLUMNS], alone[16 * COLUMNS], before[ROWS * COLUMNS];
    const bool pairs = math->per_unit == 2;
    fill_units(a, ROWS * UNITS, pairs, small, 1);
    fill_units(b, UNITS * COLUMNS, pairs, small, 2);
    fill_units(before, ROWS * COLUMNS, false, false, 3);
    memcpy(all, before, sizeof all);
    math->begin();
    math->product(all, COLUMNS, a, UNITS, b, COLUMNS, m, n, units, accumulate);
    for (int64_t r = 0; r < m; r++) {
        memcpy(alone, before + r * COLUMNS, COLUMNS * sizeof *alone);
        math->product(alone, COLUMNS, a + r * UNITS, UNITS, b, COLUMNS, 1, n, units, accumulate);
        if (memcmp(alone, all + r * COLUMNS, (size_t)n * sizeof *alone) != 0)
            fail_msg("%s: row %d of %d x %d x %d%s", llm_k.isa, (int)r, (int)m, (int)n, (int)units, small ? ", small numbers" : "");
    }
    math->end();
}

static void test_rows(void **state)
{
    static const int64_t rows[] = {2, 7, 8, 12, 48, 64, 65}, columns[] = {16, 48, 64, 80, 128}, depths[] = {16, 32, 48, 80};
    (void)state;
    FOR_EACH_ISA(isa)
        for (int math = 0; math < 2; math++)
            for (int i = 0; i < 7 * 5 * 4; i++)
                for (int small = 0; small < 2; small++)
                    check_rows(&llm_k.attention.math[math], rows[i % 7], columns[i / 7 % 5], depths[i / 35], i % 2, small);
}

/* Scores and outputs of some rows with `have` stored keys and values, against packed products. */
static void check_few(const struct llm_attention_math *math, enum llm_dtype type, int64_t width, int64_t have, int64_t rows)
{
    enum { ROWS = 16 };
    static _Alignas(64) float packed[KEYS * WIDEST], s[2][ROWS * KEYS], o[2][ROWS * WIDEST], q[ROWS * WIDEST], decoded[KEYS * WIDEST];
    size_t bytes = llm_dtype_bytes(type, (uint64_t)width);
    char *stored = guarded((size_t)have * bytes);
    float *x = noisy((size_t)(have * width), (uint64_t)(width + have)), *first = noisy((size_t)(rows * width), 5);
    float *begin = noisy((size_t)(rows * width), 7);
    for (int64_t r = 0; r < have; r++) {
        llm_dtypes[type].encode(x + r * width, stored + (size_t)r * bytes, (size_t)width);
        llm_dtypes[type].decode(stored + (size_t)r * bytes, decoded + r * width, (size_t)width);
    }
    math->pack_a(q, width, first, width, rows, width);
    memset(s, 0, sizeof s);
    math->pack_bt(packed, KEYS, decoded, width, have, width);
    math->product(s[0], KEYS, q, width, packed, KEYS, rows, KEYS, width, false);
    math->scores_of[type](s[1], q, width, rows, stored, width, have, width, KEYS);
    if (memcmp(s[0], s[1], (size_t)(rows * KEYS) * sizeof **s) != 0)
        fail_msg("%s: scores of %d rows with %d keys of %s, %d wide", llm_k.isa, (int)rows, (int)have, llm_dtypes[type].name, (int)width);
    for (int64_t i = 0; i < rows * KEYS; i++) s[0][i] = i % KEYS < have ? fabsf(s[0][i]) : 0;
    memcpy(o[0], begin, (size_t)(rows * width) * sizeof **o);
    memcpy(o[1], o[0], sizeof o[1]);
    math->pack_b(packed, width, decoded, width, have, width, KEYS);
    math->product(o[0], width, s[0], KEYS, packed, width, rows, width, KEYS, true);
    math->values_of[type](o[1], width, s[0], rows, stored, width, have, width);
    if (memcmp(o[0], o[1], (size_t)(rows * width) * sizeof **o) != 0)
        fail_msg("%s: outputs of %d rows with %d values of %s, %d wide", llm_k.isa, (int)rows, (int)have, llm_dtypes[type].name, (int)width);
    guarded_release(stored, (size_t)have * bytes);
    guarded_release(x, (size_t)(have * width) * sizeof *x);
    guarded_release(first, (size_t)(rows * width) * sizeof *first);
    guarded_release(begin, (size_t)(rows * width) * sizeof *begin);
}

static void test_few_rows(void **state)
{
    static const enum llm_dtype all[] = {LLM_F32, LLM_F16, LLM_BF16, LLM_Q8_0};
    static const int64_t widths[] = {16, 48, 64, 96}, counts[] = {KEYS, 1, 15, 33, 63};
    (void)state;
    FOR_EACH_ISA(isa)
        for (int i = 0; i < 2 * 4 * 4 * 5; i++) {
            const struct llm_attention_math *math = &llm_k.attention.math[i % 2];
            enum llm_dtype type = all[i / 2 % 4];
            int64_t width = widths[i / 8 % 4];
            if (!math->scores_of[type] || width % llm_dtypes[type].block_size) continue;
            for (int64_t rows = 1; rows <= LLM_ATTN_FEW; rows++) check_few(math, type, width, counts[i / 32], rows);
        }
}

int main(void)
{
    struct llm_err e = {0};
    if (llm_pool_start(1, &e) < 0) return llm_report(&e);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_products), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_few_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
