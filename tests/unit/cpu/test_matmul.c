/* Products of every usable instruction set: against double, the same bits for any number of rows, threads and packing. */
#include "isas.h"
#include "cpu/half.h"
#include "cpu/matmul.h"

static const int64_t shapes[][3] = {{1, 1, 1},     {1, 16, 32},   {2, 3, 5},       {5, 17, 31},  {7, 33, 33},   {8, 48, 64},
                                    {13, 40, 7},   {16, 64, 100}, {17, 31, 130},   {31, 65, 66}, {33, 100, 40}, {40, 15, 600},
                                    {3, 50, 1030}, {64, 130, 96}, {300, 47, 1050}, {1, 400, 70}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static float operand(float x, enum llm_compute c) { return c == LLM_COMPUTE_BF16 ? llm_bf16_decode(llm_bf16_encode(x)) : x; }

/* Within what `terms` roundings, three times as many in BF16X3, can do to a sum whose terms have `size` in all. */
static void within(float got, double want, double size, int64_t terms, enum llm_compute compute, const char *what)
{
    char where[120];
    const bool split = compute == LLM_COMPUTE_BF16X3;
    snprintf(where, sizeof where, "%s: %s%s", llm_k.isa, what, split ? " bf16x3" : "");
    near_what(where, (double)got, want, 0, size * ((double)((split ? 3 : 1) * terms + 4) * 0x1p-24 + (split ? 0x1p-15 : 0)) + 1e-30);
}
static void within_roundings(float got, double want, double size, int64_t terms, const char *what)
{
    within(got, want, size, terms, LLM_COMPUTE_F32, what);
}

static void forward(int64_t m, int64_t n, int64_t k, enum llm_compute compute, enum llm_dtype dtype, bool packed, bool accumulate, bool bias)
{
    float *x = noisy((size_t)(m * k), 1), *w = noisy((size_t)(n * k), 2), *b = noisy((size_t)n, 3), *y = noisy((size_t)(m * n), 4);
    float *before = malloc((size_t)(m * n) * sizeof *before);
    memcpy(before, y, (size_t)(m * n) * sizeof *before);
    void *data = guarded(llm_dtype_bytes(dtype, (uint64_t)(n * k)));
    llm_dtypes[dtype].encode(w, data, (size_t)(n * k));
    llm_dtypes[dtype].decode(data, w, (size_t)(n * k));
    struct llm_weight weight = {.data = data, .dtype = dtype, .n = n, .k = k};
    struct llm_err e = {0};
    if (packed) assert_int_equal(llm_weight_pack(&weight, compute, false, &e), 0);
    struct llm_matmul a = {.m = m, .x = x, .ldx = k, .y = y, .ldy = n, .bias = bias ? b : NULL, .accumulate = accumulate, .compute = compute};
    assert_int_equal(llm_matmul(&a, &weight, &e), 0);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = 2;
            for (int64_t p = 0; p < k; p++) {
                double term = (double)operand(x[i * k + p], compute) * operand(w[j * k + p], compute);
                sum += term;
                size += fabs(term);
            }
            sum += (bias ? b[j] : 0) + (accumulate ? before[i * n + j] : 0);
            within(y[i * n + j], sum, size, k, compute, "forward");
        }
    llm_weight_release(&weight);
    free(before);
}

static void test_forward(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
        for (int s = 0; s < N_SHAPES; s++)
            for (int c = 0; c < 3; c++) {
                int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
                forward(m, n, k, c, LLM_F32, s % 2, false, s % 3 == 0);
                forward(m, n, k, c, LLM_BF16, !(s % 2), s % 4 == 1, s % 3 == 1);
                forward(m, n, k, c, LLM_F16, s % 2, s % 4 == 0, false);
            }
}

static void test_dx(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa)
        for (int s = 0; s < N_SHAPES; s++)
            for (int c = 0; c < 6; c++) {
                int64_t m = shapes[s][0], n = shapes[s][2], k = shapes[s][1];
                enum llm_compute compute = c % 3;
                float *dy = noisy((size_t)(m * n), 1), *w = noisy((size_t)(n * k), 2), *dx = noisy((size_t)(m * k), 3);
                struct llm_weight weight = {.data = w, .dtype = LLM_F32, .n = n, .k = k};
                struct llm_err e = {0};
                if (c >= 3) assert_int_equal(llm_weight_pack(&weight, compute, true, &e), 0);
                struct llm_matmul a = {.m = m, .x = dy, .ldx = n, .y = dx, .ldy = k, .compute = compute};
                assert_int_equal(llm_matmul_dx(&a, &weight, &e), 0);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < k; j++) {
                        double sum = 0, size = 0;
                        for (int64_t p = 0; p < n; p++) {
                            double term = (double)operand(dy[i * n + p], compute) * operand(w[p * k + j], compute);
                            sum += term;
                            size += fabs(term);
                        }
                        within(dx[i * k + j], sum, size, n, compute, "dx");
                    }
                llm_weight_release(&weight);
            }
}

static void test_dw(void **state)
{
    static const int64_t cases[][4] = {{1, 1, 1, 1}, {6, 3, 5, 7}, {40, 40, 33, 17}, {600, 300, 31, 50}, {130, 130, 64, 100}, {514, 257, 40, 48},
                                       {70, 70, 270, 400}, {407, 11, 150, 70}}; /* several pieces of rows and columns; short rows */
    (void)state;
    FOR_EACH_ISA(isa)
        for (size_t s = 0; s < sizeof cases / sizeof *cases; s++)
            for (int c = 0; c < 3; c++) {
                int64_t m = cases[s][0], row_len = cases[s][1], n = cases[s][2], k = cases[s][3];
                float *dy = noisy((size_t)(m * n), 1), *x = noisy((size_t)(m * k), 2), *dw = noisy((size_t)(n * k), 3);
                float *split = guarded((size_t)(n * k) * sizeof *split), *before = guarded((size_t)(n * k) * sizeof *split);
                struct llm_err e = {0};
                memcpy(split, dw, (size_t)(n * k) * sizeof *split);
                memcpy(before, dw, (size_t)(n * k) * sizeof *split);
                assert_int_equal(llm_matmul_dw(dw, dy, n, x, k, m, row_len, n, k, c, &e), 0);
                for (int64_t i = 0; i < n; i++)
                    for (int64_t j = 0; j < k; j++) {
                        double sum = before[i * k + j], size = 1;
                        for (int64_t t = 0; t < m; t++) {
                            double term = (double)operand(dy[t * n + i], c) * operand(x[t * k + j], c);
                            sum += term;
                            size += fabs(term);
                        }
                        within(dw[i * k + j], sum, size, m, c, "dw");
                    }
                for (int64_t row = 0; row < m; row += row_len) /* one row at a time: the same bits */
                    assert_int_equal(llm_matmul_dw(split, dy + row * n, n, x + row * k, k, row_len, row_len, n, k, c, &e), 0);
                assert_memory_equal(split, dw, (size_t)(n * k) * sizeof *dw);
            }
}

/* Narrow matrices, which have kernels of their own: the bits of the same lines of a wide one, forward, backward and in gradients of either side. */
static void test_narrow(void **state)
{
    enum { M = 530, ROW = 265, WIDE = 50, OTHER = 133 };
    static const int64_t widths[] = {1, 3, 8, 11, 16, 17, 32};
    const int64_t row_len = ROW;
    (void)state;
    FOR_EACH_ISA(isa)
        for (int compute = 0; compute < 2; compute++) {
            const float *x = noisy(M * OTHER, 1), *low = noisy(M * WIDE, 2), *w = noisy(WIDE * OTHER, 3), *w_back = noisy(OTHER * WIDE, 4);
            float *y = guarded(M * WIDE * sizeof *y), *dx = guarded(M * WIDE * sizeof *dx);
            float *dw = noisy(WIDE * OTHER, 5), *dw_back = noisy(OTHER * WIDE, 6);
            struct llm_weight forward_wide = {.data = w, .dtype = LLM_F32, .n = WIDE, .k = OTHER};
            struct llm_weight back_wide = {.data = w_back, .dtype = LLM_F32, .n = OTHER, .k = WIDE};
            struct llm_matmul a = {.m = M, .x = x, .ldx = OTHER, .y = y, .ldy = WIDE, .compute = compute}, b = a;
            struct llm_err e = {0};
            b.y = dx;
            assert_int_equal(llm_matmul(&a, &forward_wide, &e) | llm_matmul_dx(&b, &back_wide, &e), 0);
            assert_int_equal(llm_matmul_dw(dw, low, WIDE, x, OTHER, M, row_len, WIDE, OTHER, compute, &e), 0);
            assert_int_equal(llm_matmul_dw(dw_back, x, OTHER, low, WIDE, M, row_len, OTHER, WIDE, compute, &e), 0);
            for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
                const int64_t n = widths[i];
                float *part = guarded((size_t)(M * n) * sizeof *part), *wide = noisy(WIDE * OTHER, 5), *wide_back = noisy(OTHER * WIDE, 6);
                float *grad = guarded((size_t)(OTHER * n) * sizeof *grad), *columns = guarded((size_t)(OTHER * n) * sizeof *columns);
                struct llm_weight narrow = {.data = w, .dtype = LLM_F32, .n = n, .k = OTHER};
                a.y = part;
                a.ldy = n;
                assert_int_equal(llm_matmul(&a, &narrow, &e), 0);
                for (int64_t r = 0; r < M; r++) assert_memory_equal(part + r * n, y + r * WIDE, (size_t)n * sizeof *part);
                for (int64_t r = 0; r < OTHER; r++) memcpy(columns + r * n, w_back + r * WIDE, (size_t)n * sizeof *columns);
                narrow = (struct llm_weight){.data = columns, .dtype = LLM_F32, .n = OTHER, .k = n};
                assert_int_equal(llm_matmul_dx(&a, &narrow, &e), 0);
                for (int64_t r = 0; r < M; r++) assert_memory_equal(part + r * n, dx + r * WIDE, (size_t)n * sizeof *part);
                assert_int_equal(llm_matmul_dw(wide, low, WIDE, x, OTHER, M, row_len, n, OTHER, compute, &e), 0);
                assert_memory_equal(wide, dw, (size_t)(n * OTHER) * sizeof *wide);
                for (int64_t r = 0; r < OTHER; r++) memcpy(grad + r * n, wide_back + r * WIDE, (size_t)n * sizeof *grad);
                assert_int_equal(llm_matmul_dw(grad, x, OTHER, low, WIDE, M, row_len, OTHER, n, compute, &e), 0);
                for (int64_t r = 0; r < OTHER; r++) assert_memory_equal(grad + r * n, dw_back + r * WIDE, (size_t)n * sizeof *grad);
            }
        }
}

/* x that stands packed: the bits of x as floats, forward and for the weight's gradient. */
static void test_panels(void **state)
{
    static const int64_t cases[][4] = {{1, 1, 1, 1}, {6, 3, 5, 7}, {40, 40, 33, 17}, {600, 300, 31, 50}, {130, 65, 64, 100}, {514, 257, 40, 48},
                                       {70, 70, 270, 400}, {407, 11, 150, 70}}; /* several pieces of rows and columns; short rows */
    (void)state;
    FOR_EACH_ISA(isa)
        for (size_t s = 0; s < sizeof cases / sizeof *cases; s++) {
            int64_t m = cases[s][0], row_len = cases[s][1], n = cases[s][2], k = cases[s][3];
            size_t bytes = llm_panels_bytes(m, k), y_bytes = (size_t)(m * n) * sizeof(float), w_bytes = (size_t)(n * k) * sizeof(float);
            struct llm_weight weight = {.data = noisy((size_t)(n * k), 2), .dtype = LLM_F32, .n = n, .k = k};
            struct llm_err e = {0};
            assert_int_equal(llm_weight_takes_panels(&weight, LLM_COMPUTE_BF16), bytes > 0);
            assert_false(llm_weight_takes_panels(&weight, LLM_COMPUTE_F32));
            if (bytes == 0) continue;
            float *x = noisy((size_t)(m * k), 1), *y = guarded(y_bytes), *want = guarded(y_bytes), *dy = noisy((size_t)(m * n), 3);
            float *dw = noisy((size_t)(n * k), 4), *dw_want = guarded(w_bytes);
            void *panels = aligned_alloc(64, bytes);
            memset(panels, 0xff, bytes); /* rows that are not there hold NaN */
            for (int64_t r = 0; r < m; r++) llm_panels_put(x + r * k, r, 0, k, k, panels);
            struct llm_matmul a = {.m = m, .x = x, .ldx = k, .y = want, .ldy = n, .compute = LLM_COMPUTE_BF16}, b = a;
            b.x = NULL;
            b.panels = panels;
            b.y = y;
            assert_int_equal(llm_matmul(&a, &weight, &e) | llm_matmul(&b, &weight, &e), 0);
            assert_memory_equal(y, want, y_bytes);
            memcpy(dw_want, dw, w_bytes);
            assert_int_equal(llm_matmul_dw(dw_want, dy, n, x, k, m, row_len, n, k, LLM_COMPUTE_BF16, &e), 0);
            assert_int_equal(llm_matmul_dw_panels(dw, dy, n, panels, m, row_len, n, k, &e), 0);
            assert_memory_equal(dw, dw_want, w_bytes);
            llm_weight_release(&weight);
            free(panels);
        }
}

/* A row of the product has the same bits alone and among 7, 64 and 300 rows; packed and not; at any number of threads. */
static void same_bits(enum llm_dtype dtype, enum llm_compute compute, int64_t n, int64_t k)
{
    static const int64_t rows[] = {300, 64, 1, 7}; /* the second of one row finds the weight packed */
    float *x = noisy((size_t)(300 * k), 1), *w = noisy((size_t)(n * k), 2), *y = guarded((size_t)(300 * n) * sizeof *y);
    float *other = guarded((size_t)(300 * n) * sizeof *y);
    void *data = malloc(llm_dtype_bytes(dtype, (uint64_t)(n * k)));
    llm_dtypes[dtype].encode(w, data, (size_t)(n * k));
    struct llm_weight weight = {.data = data, .dtype = dtype, .n = n, .k = k};
    struct llm_err e = {0};
    struct llm_matmul a = {.m = 300, .x = x, .ldx = k, .y = y, .ldy = n, .compute = compute};
    assert_int_equal(llm_matmul(&a, &weight, &e), 0);
    a.y = other;
    for (int packed = 0; packed < 2; packed++) {
        if (packed) assert_int_equal(llm_weight_pack(&weight, compute, false, &e), 0);
        for (int r = 0; r < 4; r++)
            for (int64_t first = 0; first + rows[r] <= 300; first += 97) {
                a.m = rows[r];
                a.x = x + first * k;
                memset(other, 0, (size_t)(300 * n) * sizeof *y);
                assert_int_equal(llm_matmul(&a, &weight, &e), 0);
                if (memcmp(other, y + first * n, (size_t)(rows[r] * n) * sizeof *y) != 0)
                    fail_msg("%s %s: %d rows from row %d differ", llm_k.isa, llm_dtypes[dtype].name, (int)rows[r], (int)first);
            }
    }
    llm_weight_release(&weight);
    free(data);
}

static void test_same_bits(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        static const enum llm_dtype types[] = {LLM_F32, LLM_F16, LLM_BF16, LLM_Q8_0, LLM_Q4_0};
        for (int t = 0; t < 5; t++)
            for (int c = 0; c < 3; c++) {
                same_bits(types[t], c, 77, 160);
                same_bits(types[t], c, 16, 2080);
            }
    }
}

/* F32 data that stand for their roundings give what a copy of these in BF16 gives: forward and for dX, packed and not, in all arithmetics. */
static void test_rounded(void **state)
{
    enum { M = 40, N = 83, K = 101 };
    float *x = noisy(M * (N > K ? N : K), 1), *w = noisy(N * K, 2), *y = guarded(M * K * sizeof *y), *want = guarded(M * K * sizeof *y);
    float *values = guarded((N * K - 3) * sizeof *values);
    uint16_t *copy = guarded(N * K * sizeof *copy);
    struct llm_err e = {0};
    (void)state;
    llm_dtypes[LLM_BF16].encode(w, copy, N * K);
    FOR_EACH_ISA(isa) {
        for (int c = 0; c < 3; c++) {
            struct llm_weight rounded = {.data = w, .dtype = LLM_F32, .rounded = true, .n = N, .k = K};
            struct llm_weight plain = {.data = copy, .dtype = LLM_BF16, .n = N, .k = K};
            for (int packed = 0; packed < 2; packed++) {
                if (packed) assert_int_equal(llm_weight_pack(&rounded, c, true, &e) | llm_weight_pack(&plain, c, true, &e), 0);
                for (int back = 0; back < 2; back++) {
                    int (*const multiply)(const struct llm_matmul *, struct llm_weight *, struct llm_err *) = back ? llm_matmul_dx : llm_matmul;
                    const int ldy = back ? K : N;
                    struct llm_matmul a = {.m = M, .x = x, .ldx = back ? N : K, .y = y, .ldy = ldy, .compute = c}, b = a;
                    b.y = want;
                    assert_int_equal(multiply(&a, &rounded, &e) | multiply(&b, &plain, &e), 0);
                    if (memcmp(y, want, (size_t)(M * ldy) * sizeof *y) != 0)
                        fail_msg("%s: compute %d, packed %d, back %d", llm_k.isa, c, packed, back);
                }
            }
            llm_weight_decode(&rounded, 3, N * K - 3, values);
            for (int i = 3; i < N * K; i++) assert_true(values[i - 3] == llm_bf16_decode(copy[i]));
            llm_weight_release(&rounded);
            llm_weight_release(&plain);
        }
    }
}

/* Likewise a row of the gradient of x. */
static void test_same_bits_dx(void **state)
{
    enum { M = 300, N = 77, K = 100 };
    static const int64_t rows[] = {64, 1, 7};
    float *dy = noisy(M * N, 1), *w = noisy(N * K, 2), *dx = guarded(M * K * sizeof *dx), *other = guarded(M * K * sizeof *dx);
    struct llm_err e = {0};
    (void)state;
    FOR_EACH_ISA(isa)
        for (int c = 0; c < 2; c++) {
            struct llm_weight weight = {.data = w, .dtype = LLM_F32, .n = N, .k = K};
            struct llm_matmul a = {.m = M, .x = dy, .ldx = N, .y = dx, .ldy = K, .compute = c};
            assert_int_equal(llm_matmul_dx(&a, &weight, &e), 0);
            a.y = other;
            for (int i = 0; i < 6; i++) {
                if (i == 3) assert_int_equal(llm_weight_pack(&weight, c, true, &e), 0);
                for (int64_t first = 0; first + rows[i % 3] <= M; first += 97) {
                    a.m = rows[i % 3];
                    a.x = dy + first * N;
                    assert_int_equal(llm_matmul_dx(&a, &weight, &e), 0);
                    assert_memory_equal(other, dx + first * K, (size_t)(a.m * K) * sizeof *dx);
                }
            }
            llm_weight_release(&weight);
        }
}

/* x·xᵀ of which half is computed has the bits of the whole product, at any distance between rows of the result; nothing beside it is written. */
static void test_symmetric(void **state)
{
    enum { MOST = 300, K = 130, APART = 7 };
    static const int sizes[] = {1, 5, 16, 17, 128, 129, 200, MOST};
    float *x = noisy(MOST * K, 1), *whole = guarded(MOST * MOST * sizeof *whole), *half = guarded(MOST * (MOST + APART) * sizeof *half);
    struct llm_err e = {0};
    (void)state;
    FOR_EACH_ISA(isa)
        for (int c = 0; c < 3; c++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                const int n = sizes[i], ld = n + APART;
                struct llm_weight w = {.data = x, .dtype = LLM_F32, .n = n, .k = K};
                struct llm_matmul a = {.m = n, .x = x, .ldx = K, .y = whole, .ldy = n, .compute = c};
                assert_int_equal(llm_matmul(&a, &w, &e), 0);
                a.y = half;
                a.ldy = ld;
                a.symmetric = true;
                for (int j = 0; j < n * ld; j++) half[j] = 7;
                assert_int_equal(llm_matmul(&a, &w, &e), 0);
                for (int j = 0; j < n; j++) {
                    if (memcmp(half + j * ld, whole + j * n, (size_t)n * sizeof *half) != 0) fail_msg("%s: compute %d, %d rows", llm_k.isa, c, n);
                    for (int l = n; l < ld; l++) assert_true(half[j * ld + l] == 7);
                }
                llm_weight_release(&w);
            }
}

static void test_threads(void **state)
{
    enum { M = 270, N = 130, K = 544, N_OUT = 6 };
    static const size_t counts[N_OUT] = {M * N, M * N, N * K, N * K, M * K, M * K};
    float *x = noisy(M * K, 1), *w = noisy(N * K, 2), *first[N_OUT] = {0};
    struct llm_err e = {0};
    (void)state;
    FOR_EACH_ISA(isa) {
        for (int threads = 1; threads <= 8; threads++) {
            assert_int_equal(llm_pool_start(threads, &e), 0);
            float *out[N_OUT];
            for (int c = 0; c < 2; c++) {
                struct llm_weight weight = {.data = w, .dtype = LLM_F32, .n = N, .k = K};
                struct llm_matmul a = {.m = M, .x = x, .ldx = K, .ldy = N, .compute = c};
                out[c] = a.y = calloc(M * N, sizeof(float));
                out[2 + c] = calloc(N * K, sizeof(float));
                assert_int_equal(llm_matmul(&a, &weight, &e), 0);
                assert_int_equal(llm_matmul_dw(out[2 + c], out[c], N, x, K, M, 90, N, K, c, &e), 0);
                out[4 + c] = calloc(M * K, sizeof(float));
                struct llm_matmul back = {.m = M, .x = out[c], .ldx = N, .y = out[4 + c], .ldy = K, .compute = c};
                assert_int_equal(llm_matmul_dx(&back, &weight, &e), 0);
                llm_weight_release(&weight);
            }
            for (int i = 0; i < N_OUT; i++) {
                if (threads > 1) assert_memory_equal(out[i], first[i], counts[i] * sizeof(float));
                if (threads > 1) free(out[i]);
                else first[i] = out[i];
            }
        }
        for (int i = 0; i < N_OUT; i++) free(first[i]);
    }
    assert_int_equal(llm_pool_start(2, &e), 0);
}

/* Quantised weights against the formula: activations rounded to int8 in blocks, exact dots, sums in double. */
static void test_quantised(void **state)
{
    static const int64_t some[][3] = {{1, 1, 32}, {1, 16, 64}, {3, 17, 96}, {9, 40, 320}, {20, 33, 64}};
    (void)state;
    FOR_EACH_ISA(isa)
        for (int s = 0; s < 5; s++)
            for (enum llm_dtype t = LLM_Q8_0; t <= LLM_Q4_0; t++) {
                int64_t m = some[s][0], n = some[s][1], k = some[s][2];
                float *x = noisy((size_t)(m * k), 1), *w = noisy((size_t)(n * k), 2), *y = guarded((size_t)(m * n) * sizeof *y);
                void *data = guarded(llm_dtype_bytes(t, (uint64_t)(n * k)));
                llm_dtypes[t].encode(w, data, (size_t)(n * k));
                llm_dtypes[t].decode(data, w, (size_t)(n * k));
                struct llm_weight weight = {.data = data, .dtype = t, .n = n, .k = k};
                struct llm_matmul a = {.m = m, .x = x, .ldx = k, .y = y, .ldy = n, .compute = LLM_COMPUTE_BF16};
                struct llm_err e = {0};
                assert_int_equal(llm_matmul(&a, &weight, &e), 0);
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++) {
                        double sum = 0, size = 0;
                        for (int64_t block = 0; block < k / 32; block++) {
                            float top = 0;
                            for (int p = 0; p < 32; p++) top = fmaxf(top, fabsf(x[i * k + block * 32 + p]));
                            for (int p = 0; p < 32; p++) {
                                double q = rint(x[i * k + block * 32 + p] * (127 / top)) * (top / 127);
                                sum += q * w[j * k + block * 32 + p];
                                size += fabs(q * w[j * k + block * 32 + p]);
                            }
                        }
                        within_roundings(y[i * n + j], sum, size, k, llm_dtypes[t].name);
                    }
            }
}

/* BF16X3 is F32 where the instruction set has no products of its own for it: the same bits, and the same form of the weight. */
static void test_split_elsewhere(void **state)
{
    enum { M = 19, N = 35, K = 70 };
    float *x = noisy(M * K, 1), *w = noisy(N * K, 2), *y = guarded(M * N * sizeof *y), *want = guarded(M * N * sizeof *y);
    (void)state;
    FOR_EACH_ISA(isa) {
        struct llm_weight weight = {.data = w, .dtype = LLM_F32, .n = N, .k = K};
        struct llm_matmul a = {.m = M, .x = x, .ldx = K, .y = want, .ldy = N, .compute = LLM_COMPUTE_F32}, b = a;
        struct llm_err e = {0};
        b.compute = LLM_COMPUTE_BF16X3;
        b.y = y;
        assert_int_equal(llm_weight_pack(&weight, LLM_COMPUTE_F32, false, &e) | llm_matmul(&a, &weight, &e), 0);
        size_t bytes = weight.packed_bytes;
        assert_int_equal(llm_weight_pack(&weight, LLM_COMPUTE_BF16X3, false, &e) | llm_matmul(&b, &weight, &e), 0);
        bool own = llm_k.gemm.bf16x3.multiply != NULL;
        assert_int_equal(weight.packed_bytes > bytes, own);
        assert_int_equal(memcmp(y, want, M * N * sizeof *y) != 0, own);
        llm_weight_release(&weight);
    }
}

/* A weight that changed is packed again. */
static void test_changed(void **state)
{
    float *w = noisy(20 * 40, 1), x[40] = {1}, y[20];
    struct llm_weight weight = {.data = w, .dtype = LLM_F32, .n = 20, .k = 40};
    struct llm_matmul a = {.m = 1, .x = x, .ldx = 40, .y = y, .ldy = 20, .compute = LLM_COMPUTE_F32};
    struct llm_err e = {0};
    (void)state;
    isa_use(llm_isas);
    assert_int_equal(llm_weight_pack(&weight, LLM_COMPUTE_F32, true, &e), 0);
    w[40] = 7;
    llm_weight_changed(&weight);
    assert_int_equal(llm_matmul(&a, &weight, &e), 0);
    assert_true(y[1] == 7);
    llm_weight_release(&weight);
}

int main(void)
{
    struct llm_err e = {0};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_dx), cmocka_unit_test(test_dw),
                                       cmocka_unit_test(test_narrow), cmocka_unit_test(test_panels), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_same_bits_dx), cmocka_unit_test(test_symmetric), cmocka_unit_test(test_rounded),
                                       cmocka_unit_test(test_threads), cmocka_unit_test(test_quantised), cmocka_unit_test(test_split_elsewhere),
                                       cmocka_unit_test(test_changed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
