/* Products with every block-quantised type: bit for bit the rule of cpu/kernels/gemm.h stated in plain C, near the decoded weights' product, the same
 * bits alone and among many rows, packed and not, at any number of threads. */
#include "isas.h"
#include "cpu/half.h"
#include "cpu/matmul.h"

static const enum llm_dtype types[] = {LLM_Q8_0, LLM_Q4_0, LLM_Q4_1, LLM_Q5_0, LLM_Q5_1, LLM_Q2_K,  LLM_Q3_K,
                                       LLM_Q4_K, LLM_Q5_K, LLM_Q6_K, LLM_Q8_K, LLM_IQ4_NL, LLM_IQ4_XS, LLM_MXFP4};
enum { N_TYPES = sizeof types / sizeof *types };

/* Where the f16 numbers of a type's block stand; -1: none. Q8_K: an f32 at 0; MXFP4: an exponent at 0. */
static void half_places(enum llm_dtype t, int *d, int *least)
{
    *d = t == LLM_Q2_K ? 80 : t == LLM_Q3_K ? 108 : t == LLM_Q6_K ? 208 : t == LLM_Q8_K || t == LLM_MXFP4 ? -1 : 0;
    *least = t == LLM_Q4_1 || t == LLM_Q5_1 || t == LLM_Q4_K || t == LLM_Q5_K ? 2 : t == LLM_Q2_K ? 82 : -1;
}

/* n elements whose bytes are all `byte`, or if that is negative, random. Scales have a sensible size: in every tenth block they are tiny
 * (subnormal in f16), in every twentieth zero. */
static unsigned char *weights_of_byte(enum llm_dtype t, int64_t n, int byte)
{
    const struct llm_dtype_row *row = &llm_dtypes[t];
    size_t bytes = llm_dtype_bytes(t, (uint64_t)n);
    unsigned char *data = guarded(bytes);
    uint64_t seed = 7;
    int at[2];
    half_places(t, &at[0], &at[1]);
    for (size_t i = 0; i < bytes; i++) data[i] = byte < 0 ? (unsigned char)(noise(&seed) * 128) : (unsigned char)byte;
    for (size_t b = 0; b < bytes / (size_t)row->block_bytes; b++) {
        unsigned char *block = data + b * (size_t)row->block_bytes;
        float size = b % 20 == 7 ? 0 : b % 10 == 3 ? 0x1p-18f : 0.01f * noise(&seed);
        for (int i = 0; i < 2; i++) {
            uint16_t h = llm_f16_encode(i ? size * noise(&seed) * 5 : size);
            if (at[i] >= 0) memcpy(block + at[i], &h, 2);
        }
        if (t == LLM_Q8_K) memcpy(block, &size, 4);
        if (t == LLM_MXFP4) block[0] = (unsigned char)(b % 10 == 3 ? b % 3 : 118 + b % 9);
    }
    return data;
}

static unsigned char *weights(enum llm_dtype t, int64_t n) { return weights_of_byte(t, n, -1); }

/* Group g of a row as the rule has it: integers, scales of the parts, the group's scale, what is added to values of each part. */
struct group { int w[32], part[2]; float scale, least[2]; };

static float half_at(const unsigned char *p, int at)
{
    uint16_t h;
    memcpy(&h, p + at, 2);
    return llm_f16_decode(h);
}

static void k4_scales(const unsigned char *s, int g, int *scale, int *least)
{
    *scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    *least = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
}

static const int nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static int small_value(enum llm_dtype t, const unsigned char *b, int j)
{
    int skip = t == LLM_Q4_1 ? 4 : t == LLM_Q5_0 ? 6 : t == LLM_Q5_1 ? 8 : t == LLM_MXFP4 ? 1 : 2;
    int q = b[skip + j % 16] >> j / 16 * 4 & 15;
    int fifth = t == LLM_Q5_0 || t == LLM_Q5_1 ? (b[skip - 4 + j / 8] >> j % 8 & 1) << 4 : 0;
    switch (t) {
    case LLM_Q4_0: return q - 8;
    case LLM_Q4_1: return q;
    case LLM_Q5_0: return (q | fifth) - 16;
    case LLM_Q5_1: return q | fifth;
    case LLM_IQ4_NL: return nl[q];
    default: return e2m1[q];
    }
}

/* Value j of group g of a super-block. */
static int large_value(enum llm_dtype t, const unsigned char *b, int g, int j)
{
    int half = g / 4, quarter = g % 4;
    switch (t) {
    case LLM_Q2_K: return b[16 + half * 32 + j] >> quarter * 2 & 3;
    case LLM_Q3_K: return (b[32 + half * 32 + j] >> quarter * 2 & 3) - (b[j] >> g & 1 ? 0 : 4);
    case LLM_Q4_K: return b[16 + g / 2 * 32 + j] >> g % 2 * 4 & 15;
    case LLM_Q5_K: return (b[48 + g / 2 * 32 + j] >> g % 2 * 4 & 15) | (b[16 + j] >> g & 1) << 4;
    case LLM_Q6_K: return ((b[half * 64 + quarter % 2 * 32 + j] >> quarter / 2 * 4 & 15) | (b[128 + half * 32 + j] >> quarter * 2 & 3) << 4) - 32;
    case LLM_Q8_K: return (signed char)b[4 + g * 32 + j];
    default: return nl[b[8 + g * 16 + j % 16] >> j / 16 * 4 & 15];
    }
}

static void large_scales(enum llm_dtype t, const unsigned char *b, int g, struct group *o)
{
    int d, least, scale, low;
    half_places(t, &d, &least);
    if (t == LLM_Q8_K) memcpy(&o->scale, b, 4);
    else o->scale = half_at(b, d);
    for (int p = 0; p < 2; p++) {
        int s = g * 2 + p;
        if (t == LLM_Q6_K) o->part[p] = (signed char)b[192 + s];
        if (t == LLM_Q3_K) o->part[p] = ((s < 8 ? b[96 + s] & 15 : b[96 + s - 8] >> 4) | (b[104 + s % 4] >> s / 4 * 2 & 3) << 4) - 32;
        if (t == LLM_Q2_K) o->part[p] = b[s] & 15, o->least[p] = -(half_at(b, 82) * (float)(b[s] >> 4));
    }
    if (t == LLM_Q4_K || t == LLM_Q5_K) {
        k4_scales(b + 4, g, &scale, &low);
        o->scale *= (float)scale;
        o->least[0] = -(half_at(b, 2) * (float)low);
    }
    if (t == LLM_IQ4_XS) o->scale *= (float)(((b[4 + g / 2] >> g % 2 * 4 & 15) | ((b[2] | b[3] << 8) >> g * 2 & 3) << 4) - 32);
}

static struct group group_of(enum llm_dtype t, const unsigned char *row, int64_t g)
{
    struct group o = {{0}, {1, 1}, 0, {0, 0}};
    const unsigned char *b = row + g * 32 / llm_dtypes[t].block_size * llm_dtypes[t].block_bytes;
    if (llm_dtypes[t].block_size == 256) {
        for (int j = 0; j < 32; j++) o.w[j] = large_value(t, b, (int)(g % 8), j);
        large_scales(t, b, (int)(g % 8), &o);
        return o;
    }
    for (int j = 0; j < 32; j++) o.w[j] = t == LLM_Q8_0 ? (signed char)b[2 + j] : small_value(t, b, j);
    o.scale = t == LLM_MXFP4 ? ldexpf(1, b[0] - 128) : half_at(b, 0);
    if (t == LLM_Q4_1 || t == LLM_Q5_1) o.least[0] = half_at(b, 2);
    return o;
}

/* The scalar build adds in two roundings. */
static float add_product(float a, float b, float c)
{
    return strcmp(llm_k.isa, "scalar") == 0 ? a * b + c : fmaf(a, b, c);
}

static float product(enum llm_dtype t, const float *x, const unsigned char *row, int64_t k)
{
    float sum = 0;
    bool parts = t == LLM_Q2_K || t == LLM_Q3_K || t == LLM_Q6_K;
    int d, at;
    half_places(t, &d, &at);
    for (int64_t g = 0; g < k / 32; g++, x += 32) {
        struct group o = group_of(t, row, g);
        float top = 0;
        int dots[2] = {0, 0}, sums[2] = {0, 0};
        for (int j = 0; j < 32; j++) top = fmaxf(top, fabsf(x[j]));
        float inverse = top > 1e-30f ? 127 / top : 0, scale = inverse > 0 ? top / 127 : 0;
        for (int j = 0; j < 32; j++) {
            int q = (int)rintf(x[j] * inverse), p = parts ? j / 16 : 0;
            dots[p] += q * o.w[j];
            sums[p] += q;
        }
        sum = add_product((float)(dots[0] * o.part[0] + dots[1] * o.part[1]), o.scale * scale, sum);
        for (int p = 0; at >= 0 && p <= parts; p++) sum = add_product(o.least[p], scale * (float)sums[p], sum);
    }
    return sum;
}

static const int64_t shapes[][3] = {{1, 1, 256}, {1, 16, 512}, {2, 17, 256}, {9, 35, 768}, {17, 33, 512}, {33, 20, 2304}, {19, 70, 1280}};

static void test_rule(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
        for (int s = 0; s < 7; s++)
            for (int i = 0; i < N_TYPES; i++) {
                enum llm_dtype t = types[i];
                int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
                size_t row_bytes = llm_dtype_bytes(t, (uint64_t)k);
                if (llm_dtypes[t].block_size == 32) k -= 32 * (s % 3), row_bytes = llm_dtype_bytes(t, (uint64_t)k);
                float *x = noisy((size_t)(m * k), 1), *y = guarded((size_t)(m * n) * sizeof *y);
                for (int64_t j = 0; j < 32; j++) x[j] *= s % 2 ? 0 : 0x1p-140f; /* zeros, and numbers too small for a scale */
                unsigned char *data = weights(t, n * k);
                struct llm_weight weight = {.data = data, .dtype = t, .n = n, .k = k};
                struct llm_matmul a = {.m = m, .x = x, .ldx = k, .y = y, .ldy = n, .compute = LLM_COMPUTE_BF16};
                struct llm_err e = {0};
                assert_int_equal(llm_matmul(&a, &weight, &e), 0);
                assert_string_equal(llm_matmul_kind(t, LLM_COMPUTE_BF16), "int8");
                for (int64_t r = 0; r < m; r++)
                    for (int64_t j = 0; j < n; j++) {
                        float want = product(t, x + r * k, data + (size_t)j * row_bytes, k);
                        if (memcmp(&want, &y[r * n + j], sizeof want) != 0)
                            fail_msg("%s %s, %d x %d x %d, (%d, %d): expected %.9g, found %.9g", llm_k.isa, llm_dtypes[t].name, (int)m, (int)n,
                                     (int)k, (int)r, (int)j, want, y[r * n + j]);
                    }
            }
}

/* The largest dot products of each type: intermediate sums of 16 bits must hold them. */
static void test_largest_dots(void **state)
{
    enum { M = 65, N = 17, K = 512 };
    static const int bytes[] = {0x00, 0xff, 0x80, 0x7f, 0x08, 0xf0}, rows[] = {1, 2, 3, 4, 12, M}; /* few rows and many have kernels of their own */
    (void)state;
    FOR_EACH_ISA(isa)
        for (int i = 0; i < N_TYPES * 6; i++) {
            enum llm_dtype t = types[i / 6];
            static float x[M * K], y[M * N];
            for (int j = 0; j < M * K; j++) x[j] = j / K % 3 == 0 ? 1 : j / K % 3 == 1 ? -1 : j % 2 ? 1 : -1;
            unsigned char *data = weights_of_byte(t, N * K, bytes[i % 6]);
            struct llm_weight weight = {.data = data, .dtype = t, .n = N, .k = K};
            struct llm_err e = {0};
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                const int m = rows[r];
                struct llm_matmul a = {.m = m, .x = x, .ldx = K, .y = y, .ldy = N, .compute = LLM_COMPUTE_BF16};
                assert_int_equal(llm_matmul(&a, &weight, &e), 0);
                for (int j = 0; j < m * N; j++) {
                    float want = product(t, x + j / N * K, data + (size_t)(j % N) * llm_dtype_bytes(t, K), K);
                    if (memcmp(&want, &y[j], sizeof want) != 0)
                        fail_msg("%s %s, bytes %d, %d rows, (%d, %d): expected %.9g, found %.9g", llm_k.isa, llm_dtypes[t].name, bytes[i % 6],
                                 m, j / N, j % N, want, y[j]);
                }
            }
            llm_weight_release(&weight);
        }
}

/* The decoded weights' product, within what rounding activations to eight bits does. */
static void test_decoded(void **state)
{
    enum { M = 3, N = 18, K = 512 };
    (void)state;
    FOR_EACH_ISA(isa)
        for (int i = 0; i < N_TYPES; i++) {
            float *x = noisy(M * K, 1), y[M * N], w[K];
            unsigned char *data = weights(types[i], N * K);
            size_t row_bytes = llm_dtype_bytes(types[i], K);
            struct llm_weight weight = {.data = data, .dtype = types[i], .n = N, .k = K};
            struct llm_matmul a = {.m = M, .x = x, .ldx = K, .y = y, .ldy = N, .compute = LLM_COMPUTE_BF16};
            struct llm_err e = {0};
            assert_int_equal(llm_matmul(&a, &weight, &e), 0);
            for (int64_t j = 0; j < N; j++) {
                llm_dtypes[types[i]].decode(data + (size_t)j * row_bytes, w, K);
                for (int64_t r = 0; r < M; r++) {
                    double sum = 0, bound = 1e-30;
                    for (int64_t p = 0; p < K; p++) {
                        sum += (double)x[r * K + p] * w[p];
                        bound += fabs(w[p]) * (.5 / 127 + 1e-5);
                    }
                    if (!(fabs(y[r * N + j] - sum) <= bound))
                        fail_msg("%s %s: expected %.9g, found %.9g, bound %.2g", llm_k.isa, llm_dtypes[types[i]].name, sum, y[r * N + j], bound);
                }
            }
        }
}

static void same_bits(enum llm_dtype t, int64_t n, int64_t k)
{
    static const int64_t rows[] = {300, 64, 1, 2, 3, 4, 5, 7, 9, 13, 17}; /* the second of few rows finds the weight packed */
    float *x = noisy((size_t)(300 * k), 1), *y = guarded((size_t)(300 * n) * sizeof *y), *other = guarded((size_t)(300 * n) * sizeof *y);
    unsigned char *data = weights(t, n * k);
    struct llm_weight weight = {.data = data, .dtype = t, .n = n, .k = k};
    struct llm_err e = {0};
    struct llm_matmul a = {.m = 300, .x = x, .ldx = k, .y = y, .ldy = n, .compute = LLM_COMPUTE_BF16};
    assert_int_equal(llm_pool_start(2, &e), 0);
    assert_int_equal(llm_matmul(&a, &weight, &e), 0);
    a.y = other;
    for (int packed = 0; packed < 4; packed++) {
        assert_int_equal(llm_pool_start(packed + 1, &e), 0);
        if (packed == 2) assert_int_equal(llm_weight_pack(&weight, LLM_COMPUTE_BF16, false, &e), 0);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int64_t first = 0; first + rows[r] <= 300; first += 97) {
                a.m = rows[r];
                a.x = x + first * k;
                memset(other, 0, (size_t)(300 * n) * sizeof *y);
                assert_int_equal(llm_matmul(&a, &weight, &e), 0);
                if (memcmp(other, y + first * n, (size_t)(rows[r] * n) * sizeof *y) != 0)
                    fail_msg("%s %s: %d rows from row %d differ", llm_k.isa, llm_dtypes[t].name, (int)rows[r], (int)first);
            }
    }
    /* a packed form takes no more than the file */
    assert_true(weight.packed_bytes <= (size_t)(n + 15) / 16 * 16 * llm_dtype_bytes(t, (uint64_t)k));
    llm_weight_release(&weight);
}

static void test_same_bits(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
        for (int i = 0; i < N_TYPES; i++) same_bits(types[i], 37, strcmp(isa->name, "scalar") == 0 ? 256 : 768);
    struct llm_err e = {0};
    assert_int_equal(llm_pool_start(2, &e), 0);
}

/* An activation that is no number shows in all of its row and in no other; an empty product is one. */
static void test_edges(void **state)
{
    enum { M = 20, N = 19, K = 512 };
    (void)state;
    FOR_EACH_ISA(isa)
        for (int i = 0; i < N_TYPES; i++) {
            float *x = noisy(M * K, 1), y[M * N], before[M * N];
            struct llm_weight weight = {.data = weights(types[i], N * K), .dtype = types[i], .n = N, .k = K};
            struct llm_matmul a = {.m = M, .x = x, .ldx = K, .y = before, .ldy = N, .compute = LLM_COMPUTE_BF16};
            struct llm_err e = {0};
            assert_int_equal(llm_matmul(&a, &weight, &e), 0);
            x[5 * K + 300] = NAN;
            x[17 * K + 3] = INFINITY;
            for (int few = 0; few < 2; few++) {
                a.y = y;
                a.m = few ? 6 : M;
                assert_int_equal(llm_matmul(&a, &weight, &e), 0);
                for (int r = 0; r < a.m; r++)
                    for (int j = 0; j < N; j++)
                        if (r == 5 || r == 17 ? !isnan(y[r * N + j]) : memcmp(&y[r * N + j], &before[r * N + j], sizeof *y) != 0)
                            fail_msg("%s %s: row %d has %g", llm_k.isa, llm_dtypes[types[i]].name, r, y[r * N + j]);
            }
            struct llm_weight none = {.data = weight.data, .dtype = types[i], .n = N, .k = 0};
            assert_int_equal(llm_matmul(&a, &none, &e), 0);
            for (int j = 0; j < 6 * N; j++) assert_true(y[j] == 0);
            llm_weight_release(&weight);
            llm_weight_release(&none);
        }
}

/* Several weights over one x: the bits of each alone, whatever types meet; with bias and on top of what is there. */
static void test_several(void **state)
{
    enum { K = 512, WIDEST = 130, M = 20 };
    static const enum llm_dtype sets[][LLM_MATMUL_MAX] = {
        {LLM_Q4_1, LLM_Q4_1, LLM_Q4_1, LLM_Q8_0}, {LLM_Q4_K, LLM_Q6_K, LLM_Q4_K, LLM_Q2_K}, {LLM_F32, LLM_F32, LLM_F32, LLM_F32},
        {LLM_Q8_0, LLM_F32, LLM_Q4_K, LLM_Q8_0}};
    static const int64_t columns[LLM_MATMUL_MAX] = {70, 16, WIDEST, 3};
    (void)state;
    FOR_EACH_ISA(isa)
        for (int run = 0; run < 4 * 3; run++) {
            const int64_t m = run % 3 == 0 ? 1 : run % 3 == 1 ? 7 : M;
            float *x = noisy(M * K, 1), *bias = noisy(WIDEST, 2), *y = noisy(2 * LLM_MATMUL_MAX * M * WIDEST, 3);
            struct llm_weight w[LLM_MATMUL_MAX], *list[LLM_MATMUL_MAX];
            struct llm_matmul a[LLM_MATMUL_MAX];
            struct llm_err e = {0};
            for (int i = 0; i < LLM_MATMUL_MAX; i++) {
                enum llm_dtype t = sets[run / 3][i];
                float *one = y + 2 * i * M * WIDEST, *other = one + M * WIDEST;
                memcpy(other, one, M * WIDEST * sizeof *y);
                const void *data = t == LLM_F32 ? (const void *)noisy((size_t)(columns[i] * K), 4) : weights(t, columns[i] * K);
                w[i] = (struct llm_weight){.data = data, .dtype = t, .n = columns[i], .k = K};
                list[i] = &w[i];
                a[i] = (struct llm_matmul){.m = m, .x = x, .ldx = K, .y = one, .ldy = WIDEST, .bias = i % 2 ? bias : NULL, .accumulate = i == 2,
                                           .compute = run % 2 ? LLM_COMPUTE_F32 : LLM_COMPUTE_BF16};
                assert_int_equal(llm_matmul(&a[i], &w[i], &e), 0);
                a[i].y = other;
            }
            assert_int_equal(llm_matmul_several(a, list, LLM_MATMUL_MAX, &e), 0);
            for (int i = 0; i < LLM_MATMUL_MAX; i++) {
                if (memcmp(a[i].y - M * WIDEST, a[i].y, M * WIDEST * sizeof *y) != 0)
                    fail_msg("%s: set %d, %d rows: weight %d has other bits", llm_k.isa, run / 3, (int)m, i);
                llm_weight_release(&w[i]);
            }
        }
}

/* dX through a stored weight is dX through its decoded values, bit for bit: any threads, packed and not, many rows and one. */
static void same_dx(enum llm_dtype t, const void *data, int64_t n, int64_t k)
{
    float *dy = noisy((size_t)(40 * n), 3), *x = guarded((size_t)(40 * k) * sizeof *x), *other = guarded((size_t)(40 * k) * sizeof *x);
    float *decoded = guarded((size_t)(n * k) * sizeof *decoded);
    llm_dtypes[t].decode(data, decoded, (size_t)(n * k));
    for (int compute = LLM_COMPUTE_F32; compute <= LLM_COMPUTE_BF16; compute++) {
        struct llm_weight plain = {.data = decoded, .dtype = LLM_F32, .n = n, .k = k}, stored = {.data = data, .dtype = t, .n = n, .k = k};
        struct llm_err e = {0};
        struct llm_matmul a = {.m = 40, .x = dy, .ldx = n, .y = x, .ldy = k, .compute = (enum llm_compute)compute};
        assert_int_equal(llm_matmul_dx(&a, &plain, &e), 0);
        a.y = other;
        for (int round = 0; round < 4; round++) {
            assert_int_equal(llm_pool_start(round + 1, &e), 0);
            if (round == 2) assert_int_equal(llm_weight_pack(&stored, (enum llm_compute)compute, false, &e), 0); /* its own form is no form for dX */
            if (round == 3) assert_int_equal(llm_weight_pack_dx(&stored, (enum llm_compute)compute, &e), 0);
            a.m = round == 1 ? 1 : 40;
            memset(other, 0, (size_t)(40 * k) * sizeof *x);
            assert_int_equal(llm_matmul_dx(&a, &stored, &e), 0);
            if (memcmp(other, x, (size_t)(a.m * k) * sizeof *x) != 0) fail_msg("%s %s: dX differs (round %d)", llm_k.isa, llm_dtypes[t].name, round);
        }
        llm_weight_release(&plain);
        llm_weight_release(&stored);
    }
}

static void test_dx(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
        for (int i = 0; i < N_TYPES; i++) same_dx(types[i], weights(types[i], 301 * 768), 301, 768);
    uint16_t half[301 * 72];
    float *x = noisy(301 * 72, 5);
    llm_dtypes[LLM_F16].encode(x, half, 301 * 72);
    FOR_EACH_ISA(isa) same_dx(LLM_F16, half, 301, 72);
    struct llm_err e = {0};
    assert_int_equal(llm_pool_start(2, &e), 0);
}

int main(void)
{
    struct llm_err e = {0};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rule), cmocka_unit_test(test_largest_dots), cmocka_unit_test(test_decoded),
                                       cmocka_unit_test(test_same_bits), cmocka_unit_test(test_edges), cmocka_unit_test(test_several),
                                       cmocka_unit_test(test_dx)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
