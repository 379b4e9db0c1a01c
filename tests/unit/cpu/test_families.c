/* Elementwise, row and optimizer kernels: every instruction set against the scalar build and against formulas in double; all lengths, memory that
 * ends at a guard page. */
#include "isas.h"
#include "base/rng.h"
#include "cpu/half.h"
#include "cpu/optim.h"

enum { LONGEST = 150 };
static struct llm_kernels scalar;

static float *times(const float *x, float factor, size_t n)
{
    float *y = guarded(n * sizeof *y);
    for (size_t i = 0; i < n; i++) y[i] = factor * x[i];
    return y;
}

static void elementwise_one(size_t n)
{
    const struct llm_elementwise_kernels *k = &llm_k.elementwise, *s = &scalar.elementwise;
    float *a = times(noisy(n, 1), 6, n), *b = times(noisy(n, 2), 3, n), *y = noisy(n, 3), *z = guarded(n * sizeof *z);
    memcpy(z, y, n * sizeof *z);
    k->axpy(y, 0.7f, a, n);
    s->axpy(z, 0.7f, a, n);
    close_to(y, z, n, 3e-7, "axpy");
    k->add(y, a, b, n);
    s->add(z, a, b, n);
    assert_memory_equal(y, z, n * sizeof *y);
    k->scale(y, -1.25f, a, n);
    s->scale(z, -1.25f, a, n);
    assert_memory_equal(y, z, n * sizeof *y);
    uint16_t *h = guarded(n * sizeof *h), *g = guarded(n * sizeof *g);
    k->to_bf16(h, a, n);
    s->to_bf16(g, a, n);
    assert_memory_equal(h, g, n * sizeof *h);
    k->from_bf16(y, h, n);
    s->from_bf16(z, h, n);
    assert_memory_equal(y, z, n * sizeof *y);
    k->from_f16(y, h, n);
    s->from_f16(z, h, n);
    assert_memory_equal(y, z, n * sizeof *y);
    for (int act = 0; act < LLM_N_ACTS; act++) {
        k->act[act](y, a, n);
        s->act[act](z, a, n);
        close_to(y, z, n, 1e-6, "activation");
        k->gated[act](y, a, b, n);
        s->gated[act](z, a, b, n);
        close_to(y, z, n, 2e-6, "gated");
        for (int add = 0; add < 2; add++) {
            memcpy(y, b, n * sizeof *y);
            memcpy(z, b, n * sizeof *z);
            k->act_back[act](y, a, b, add, n);
            s->act_back[act](z, a, b, add, n);
            close_to(y, z, n, 3e-6, "activation backward");
            float *u = times(a, 1, n), *v = times(a, 1, n);
            k->gated_back[act](y, u, a, b, a, add, add, n);
            s->gated_back[act](z, v, a, b, a, add, add, n);
            close_to(y, z, n, 1e-5, "gated backward");
            close_to(u, v, n, 1e-5, "gated backward");
            guarded_release(u, n * sizeof *u);
            guarded_release(v, n * sizeof *v);
        }
    }
    for (int add = 0; add < 2; add++) {
        size_t half = n / 2;
        memcpy(y, b, n * sizeof *y);
        memcpy(z, b, n * sizeof *z);
        k->rope_halves(y + n % 2, a + n % 2, b, b + half, add, half);
        s->rope_halves(z + n % 2, a + n % 2, b, b + half, add, half);
        close_to(y, z, n, 2e-6, "rope_halves");
        k->rope_interleaved(y + n % 2, a + n % 2, b, b + half, add, half);
        s->rope_interleaved(z + n % 2, a + n % 2, b, b + half, add, half);
        close_to(y, z, n, 2e-6, "rope_interleaved");
    }
}

static void test_elementwise(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        for (size_t n = 0; n < LONGEST; n += n < 70 ? 1 : 13) elementwise_one(n);
    }
}

static void test_dropout_numbers(void **state)
{
    (void)state;
    struct llm_rng r = llm_rng_at(3, 4, LLM_RNG_DROPOUT_EMBED, 5, 6, 7);
    FOR_EACH_ISA(isa) {
        for (size_t n = 0; n < 300; n += 37) {
            float *x = noisy(n, 9), *y = noisy(n, 10), *before = times(y, 1, n);
            llm_k.elementwise.dropout(y, x, r.key, r.counter, (uint32_t)ceil(0.4 * 0x1p24), 2, true, n);
            for (size_t i = 0; i < n; i++) {
                float expected = before[i] + (llm_rng_uniform(&r, (uint32_t)i) < 0.4f ? 0 : 2 * x[i]);
                assert_true(y[i] == expected);
            }
        }
    }
}

static void test_random_blocks(void **state)
{
    (void)state;
    struct llm_rng r = llm_rng_of_item(3, 4, 99, LLM_RNG_SAMPLE, 5, 6);
    FOR_EACH_ISA(isa) {
        uint32_t bits[LLM_MAX_BLOCK];
        for (uint32_t first = 0; first < 1000; first += 3 * LLM_MAX_BLOCK) {
            uint32_t found = llm_k.rows.random_block(bits, first, r.key, r.counter), largest = 0;
            for (uint32_t i = 0; i < LLM_MAX_BLOCK; i++) {
                assert_int_equal(bits[i], llm_rng_u32(&r, first + i));
                largest = bits[i] > largest ? bits[i] : largest;
            }
            assert_int_equal(found, largest);
        }
    }
}

static void norms_one(size_t n)
{
    const struct llm_rows_kernels *k = &llm_k.rows, *s = &scalar.rows;
    float *x = times(noisy(n, 1), 3, n), *dy = noisy(n, 2), *gain = noisy(n, 3), *bias = noisy(n, 4), *y = noisy(n, 5), *z = times(y, 1, n);
    float mean, rstd, mean2, rstd2;
    k->layernorm(y, x, gain, bias, 1e-5f, n, &mean, &rstd);
    s->layernorm(z, x, gain, bias, 1e-5f, n, &mean2, &rstd2);
    close_to(&mean, &mean2, 1, 1e-6, "mean");
    if (n > 2) close_to(y, z, n, 2e-5, "layernorm"); /* two numbers may be as good as equal */
    for (int add = 0; add < 2; add++) {
        k->layernorm_back(y, x, dy, gain, mean2, 1.25f, add, n);
        s->layernorm_back(z, x, dy, gain, mean2, 1.25f, add, n);
        close_to(y, z, n, 1e-4, "layernorm backward");
        k->rmsnorm_back(y, x, dy, gain, 1, 0.75f, add, n);
        s->rmsnorm_back(z, x, dy, gain, 1, 0.75f, add, n);
        close_to(y, z, n, 1e-4, "rmsnorm backward");
    }
    k->rmsnorm(y, x, gain, 1, 1e-5f, n, &rstd);
    s->rmsnorm(z, x, gain, 1, 1e-5f, n, &rstd2);
    close_to(y, z, n, 2e-6, "rmsnorm");
}

static void softmax_one(size_t n)
{
    const struct llm_rows_kernels *k = &llm_k.rows, *s = &scalar.rows;
    float *x = times(noisy(n, 1), 8, n), *dy = noisy(n, 2), *y = noisy(n, 5), *z = times(y, 1, n);
    k->softmax(y, x, n);
    s->softmax(z, x, n);
    close_to(y, z, n, 2e-6, "softmax");
    for (int add = 0; add < 2; add++) {
        float *p = times(z, 1, n), *q = times(z, 1, n);
        k->softmax_back(p, z, dy, add, n);
        s->softmax_back(q, z, dy, add, n);
        close_to(p, q, n, 2e-6, "softmax backward");
    }
    for (int capped = 0; capped < 2; capped++) {
        float *p = times(x, 1, n), *q = times(x, 1, n), scale = capped ? 0.5f : 1, cap = capped ? 3 : 0;
        struct llm_ce_row a = k->ce_forward(p, scale, cap, n), b = s->ce_forward(q, scale, cap, n);
        close_to(&a.max, &b.max, 1, 1e-6, "largest logit");
        close_to(&a.sum, &b.sum, 1, 2e-6, "sum of exponentials");
        k->ce_back(p, a, n / 2, 0.01f, scale, cap, n);
        s->ce_back(q, b, n / 2, 0.01f, scale, cap, n);
        close_to(p, q, n, 1e-7, "cross-entropy backward");
    }
}

/* Exactly, with NaN, infinities and ties; and sums of exponentials against double precision. */
static void maxima_one(size_t n)
{
    enum { MAX_BLOCKS = LONGEST / LLM_MAX_BLOCK + 1 };
    float *x = times(noisy(n, 1), 8, n), found[MAX_BLOCKS], largest = -INFINITY;
    double sum = 0;
    for (size_t i = 0; i < n; i++) largest = x[i] > largest ? x[i] : largest;
    for (size_t i = 0; i < n; i++) sum += exp((double)x[i] - largest);
    assert_true(fabs(llm_k.rows.exp_sum(x, largest, n) - sum) < 1e-5 * sum);
    for (int bad = 0; bad < 4; bad++) {
        if (bad) x[n / 2] = bad == 1 ? -INFINITY : bad == 2 ? INFINITY : NAN;
        llm_k.rows.block_max(found, x, n);
        for (size_t b = 0; b * LLM_MAX_BLOCK < n; b++) {
            float want = -INFINITY;
            for (size_t i = b * LLM_MAX_BLOCK; i < n && i < (b + 1) * LLM_MAX_BLOCK; i++) want = isnan(x[i]) ? INFINITY : x[i] > want ? x[i] : want;
            assert_true(found[b] == want);
        }
    }
}

static void test_rows(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        for (size_t n = 1; n < LONGEST; n += n < 70 ? 1 : 13) {
            norms_one(n);
            softmax_one(n);
            maxima_one(n);
        }
    }
}

/* Blocks: 5 tokens of 3 groups of n channels. Order is by token, then group: the scalar build's chain in another instruction set is the same but for
 * the rounding of multiply-add. */
static void test_column_sums(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        for (size_t n = 1; n < LONGEST; n += 7) {
            size_t ld = 3 * n + 2;
            float *x = noisy(5 * ld - 2, 1), *dy = noisy(5 * ld - 2, 2), *mean = noisy(15, 3), *rstd = noisy(15, 4);
            float *gain = noisy(n, 5), *gain2 = times(gain, 1, n), *bias = noisy(n, 6), *bias2 = times(bias, 1, n);
            struct llm_norm_block b = {gain, bias, x, dy, ld, ld, 3, n, mean, rstd, 5, n};
            llm_k.rows.norm_params_back(&b);
            b.d_gain = gain2;
            b.d_bias = bias2;
            scalar.rows.norm_params_back(&b);
            close_to(gain, gain2, n, 1e-6, "gain");
            assert_memory_equal(bias, bias2, n * sizeof *bias);
            llm_k.rows.column_sums(bias, dy, ld, 5, n);
            scalar.rows.column_sums(bias2, dy, ld, 5, n);
            assert_memory_equal(bias, bias2, n * sizeof *bias);
        }
    }
}

/* ---- optimizers against the formulas of their papers in double ---- */

struct twin { double w, m, v; };

static void twin_step(struct twin *t, double grad, const struct llm_optim_step *o, int method, bool momentum)
{
    double g = grad * o->clip;
    if (method >= 4) t->w -= o->lr * o->weight_decay * t->w;
    else if (method != 0) g += o->weight_decay * t->w;
    if (method <= 1) { /* AdamW, Adam */
        if (method == 0) t->w -= o->lr * o->weight_decay * t->w;
        t->m = o->beta1 * t->m + (1 - o->beta1) * g;
        t->v = o->beta2 * t->v + (1 - o->beta2) * g * g;
        t->w -= o->lr * (t->m / o->correction1) / (sqrt(t->v / o->correction2) + o->eps);
    } else if (method == 2) {
        t->m = o->momentum * t->m + g;
        t->w -= o->lr * (!momentum ? g : o->nesterov ? g + o->momentum * t->m : t->m);
    } else if (method == 3) {
        t->v += g * g;
        t->w -= o->lr * g / (sqrt(t->v) + o->eps);
    } else if (method == 4) { /* Lion */
        double way = o->beta1 * t->m + (1 - o->beta1) * g;
        t->w -= o->lr * (way > 0 ? 1 : way < 0 ? -1 : 0);
        t->m = o->beta2 * t->m + (1 - o->beta2) * g;
    } else {
        t->w -= o->lr * g;
    }
}

static void optimizer_one(int method, bool momentum, bool nesterov)
{
    enum { N = 77, STEPS = 100 };
    void (*const methods[])(const struct llm_optim_span *, const struct llm_optim_step *) = {
        llm_k.optim.adamw, llm_k.optim.adam, llm_k.optim.sgd, llm_k.optim.adagrad, llm_k.optim.lion,
        llm_k.optim.decoupled};
    float *w = noisy(N, 1), *grad = guarded(N * sizeof *grad), *m = guarded(N * sizeof *m), *v = guarded(N * sizeof *v);
    struct twin twin[N];
    memset(m, 0, N * sizeof *m);
    memset(v, 0, N * sizeof *v);
    for (int i = 0; i < N; i++) twin[i] = (struct twin){.w = (double)w[i]};
    struct llm_optim_span span = {w, grad, momentum || method < 2 ? m : NULL, method == 2 ? NULL : v, N};
    for (int t = 1; t <= STEPS; t++) {
        uint64_t seed = (uint64_t)t;
        struct llm_optim_step o = {.lr = 1e-2, .clip = 0.7, .weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                                   .correction1 = 1 - pow(0.9, t), .correction2 = 1 - pow(0.999, t), .momentum = 0.9, .nesterov = nesterov,
                                   .clear = t % 2};
        for (int i = 0; i < N; i++) {
            grad[i] = noise(&seed);
            twin_step(&twin[i], (double)grad[i], &o, method, momentum);
        }
        float first = grad[0];
        methods[method](&span, &o);
        assert_true(grad[0] == (t % 2 ? 0 : first));
    }
    for (int i = 0; i < N; i++) {
        if (!(fabs((double)w[i] - twin[i].w) <= 3e-6))
            fail_msg("%s method %d: expected %.9g, found %.9g", llm_k.isa, method, twin[i].w, (double)w[i]);
    }
}

static void test_optimizers(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        optimizer_one(0, true, false);
        optimizer_one(1, true, false);
        optimizer_one(2, false, false);
        optimizer_one(2, true, false);
        optimizer_one(2, true, true);
        optimizer_one(3, false, false);
        optimizer_one(4, true, false);
        optimizer_one(5, false, false);
    }
}

/* What Muon makes of a gradient before it is orthogonal, and sums of two arrays, in a length that is no multiple of a vector's. */
static void test_blend(void **state)
{
    enum { N = 53 };
    (void)state;
    FOR_EACH_ISA(isa) {
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            float *grad = noisy(N, 5), *m = noisy(N, 6), *y = noisy(N, 7), old_grad[N], old_m[N], old_y[N];
            memcpy(old_grad, grad, sizeof old_grad);
            memcpy(old_m, m, sizeof old_m);
            memcpy(old_y, y, sizeof old_y);
            const struct llm_optim_step o = {.clip = .5, .momentum = .95, .nesterov = nesterov};
            llm_k.optim.blend(&(struct llm_optim_span){.grad = grad, .m = m, .n = N}, &o);
            llm_k.optim.combine(y, m, -4.775F, 2.0315F, N);
            for (int i = 0; i < N; i++) {
                double g = .5 * (double)old_grad[i], blended = .95 * (double)old_m[i] + .05 * g;
                assert_true(fabs((double)m[i] - blended) < 1e-6);
                assert_true(fabs((double)grad[i] - (nesterov ? .95 * blended + .05 * g : blended)) < 1e-6);
                assert_true(fabs((double)y[i] - (-4.775 * (double)old_y[i] + 2.0315 * blended)) < 2e-6);
            }
        }
    }
}

/* Adam's first step is -lr·sign(g) as eps → 0; AdamW with g = 0 leaves w(1 - lr·wd). */
static void test_adam_limits(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        float w[2] = {2, 2}, g[2] = {-3e-4f, 0}, m[2] = {0}, v[2] = {0};
        struct llm_optim_span s = {w, g, m, v, 2};
        struct llm_optim_step o = {.lr = 0.5, .clip = 1, .weight_decay = 0, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-30, .correction1 = 1 - 0.9,
                                   .correction2 = 1 - 0.95};
        llm_k.optim.adam(&s, &o);
        assert_true(fabs((double)w[0] - 2.5) < 1e-6);
        w[1] = 2;
        o.weight_decay = 0.25;
        o.eps = 1e-8;
        llm_k.optim.adamw(&s, &o);
        assert_true(w[1] == 1.75f);
    }
}

static void test_sum_squares(void **state)
{
    (void)state;
    const size_t n = 3 * LLM_OPTIM_BLOCK + 1234;
    float *x = noisy(n, 1);
    double exact = 0;
    for (size_t i = 0; i < n; i++) exact += (double)x[i] * (double)x[i];
    FOR_EACH_ISA(isa) {
        double one = llm_sum_squares(x, n);
        assert_true(fabs(one / exact - 1) < 2e-7);
        assert_true(llm_sum_squares(x, 0) == 0);
        struct llm_err e = {0};
        for (int threads = 1; threads <= 4; threads++) {
            llm_pool_stop();
            assert_int_equal(llm_pool_start(threads, &e), 0);
            assert_true(llm_sum_squares(x, n) == one);
        }
    }
}

/* Rows out of order, each alone and many together; one of them ends at a guard page. */
static void search_one(int64_t dims)
{
    enum { ROWS = 11 };
    static const uint32_t rows[ROWS] = {10, 3, 3, 0, 7, 1, 9, 2, 8, 4, 6};
    const struct llm_search_kernels *k = &llm_k.search;
    const size_t all = (size_t)dims * ROWS;
    float *data = noisy(all, 1), *v = noisy((size_t)dims, 2), y[ROWS], z[ROWS], one;
    uint16_t *halves = guarded(all * sizeof *halves);
    llm_k.elementwise.to_bf16(halves, data, all);
    for (int64_t n = 0; n <= ROWS; n++) {
        k->exact(y, v, data, rows, n, dims);
        scalar.search.exact(z, v, data, rows, n, dims);
        close_to(y, z, (size_t)n, 1e-5, "search, exact");
        k->bf16(y, v, halves, rows, n, dims);
        scalar.search.bf16(z, v, halves, rows, n, dims);
        close_to(y, z, (size_t)n, 1e-5, "search, bf16");
        k->rounded(z, v, data, rows, n, dims);
        assert_memory_equal(y, z, (size_t)n * sizeof *y);
    }
    for (int i = 0; i < ROWS; i++) {
        k->bf16(&one, v, halves, rows + i, 1, dims);
        assert_true(one == y[i]);
    }
    for (int64_t from = 0; from < dims; from += 3) {
        for (float limit = -1; limit < 1.5f; limit += 0.25f) {
            int64_t i = from;
            while (i < dims && v[i] < limit) i++;
            assert_int_equal(k->reaches(v, from, dims, limit), i);
        }
    }
    guarded_release(data, all * sizeof *data);
    guarded_release(v, (size_t)dims * sizeof *v);
    guarded_release(halves, all * sizeof *halves);
}

static void test_search(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        for (int64_t dims = 1; dims < LONGEST; dims += dims < 70 ? 1 : 13) search_one(dims);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise), cmocka_unit_test(test_dropout_numbers), cmocka_unit_test(test_random_blocks),
        cmocka_unit_test(test_rows), cmocka_unit_test(test_column_sums),
        cmocka_unit_test(test_optimizers), cmocka_unit_test(test_adam_limits), cmocka_unit_test(test_blend), cmocka_unit_test(test_sum_squares),
        cmocka_unit_test(test_search)};
    struct llm_err e = {0};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    llm_isas[0].fill(&scalar);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
