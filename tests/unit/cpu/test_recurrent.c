/* Kernels of recurrences over time: selective scans, short convolutions, steps of cells. Every instruction set against the scalar build, and that
 * against formulas in double; odd numbers of channels, states and tokens; memory that ends at a guard page. */
#include "isas.h"

static struct llm_kernels scalar;

/* Uniform in [low, high). */
static float *between(float low, float high, size_t n, uint64_t seed)
{
    float *x = noisy(n, seed);
    for (size_t i = 0; i < n; i++) x[i] = low + (x[i] + 1) / 2 * (high - low);
    return x;
}

static float *copy_of(const float *x, size_t n)
{
    float *y = guarded(n * sizeof *y);
    memcpy(y, x, n * sizeof *y);
    return y;
}

/* One run of a scan: what goes in is shared, what comes out is each one's own. */
struct shape { size_t tokens, channels, states; bool one; };
struct outputs { float *h, *y, *g, *dx, *ddt, *d_bc, *da, *d_skip; };

static struct llm_scan_run inputs_of(struct shape s)
{
    size_t rows = s.one ? 1 : s.states, ld = s.channels + 3;
    return (struct llm_scan_run){
        .tokens = s.tokens, .channels = s.channels, .states = s.states, .one_decay = s.one, .a = between(-20, -.01f, rows * s.channels, 1),
        .lda = s.channels, .skip = noisy(s.channels, 2), .x = noisy(s.tokens * ld - 3, 3), .dt = between(.001f, 9, s.tokens * ld - 3, 4), .ldx = ld,
        .ldt = ld, .b = noisy(s.tokens * s.states, 5), .c = noisy(s.tokens * s.states, 6), .ldb = s.states, .ldc = s.states, .ldh = s.channels,
        .ldy = ld};
}

static struct outputs run_both(const struct llm_scan_kernels *k, const struct llm_scan_run *in, const float *dy)
{
    size_t all = in->states * in->channels, ld = in->ldx, n = in->tokens * ld - 3, decays = in->one_decay ? in->channels : all;
    struct outputs o = {noisy(all, 7), noisy(n, 8), noisy(all, 9), noisy(n, 10), noisy(n, 11), noisy(in->tokens * 2 * in->states, 12),
                        noisy(decays, 13), noisy(in->channels, 14)};
    struct llm_scan_back b = {.run = *in, .dy = dy, .ld_dy = ld, .g = o.g, .dx = o.dx, .ddt = o.ddt, .ld_dx = ld, .ld_ddt = ld, .d_bc = o.d_bc,
                              .da = o.da, .d_skip = o.d_skip};
    b.scratch = aligned_alloc(64, LLM_SCAN_SCRATCH * sizeof *b.scratch);
    b.run.h = copy_of(o.h, all);
    k->backward(&b);
    free(b.scratch);
    struct llm_scan_run r = *in;
    r.h = o.h;
    r.y = o.y;
    k->forward(&r);
    return o;
}

/* h and y as the header says. */
static void check_formula(const struct llm_scan_run *r, const struct outputs *o)
{
    const float *first = noisy(r->states * r->channels, 7);
    for (size_t i = 0; i < r->channels; i++) {
        double h[LLM_SCAN_STATES];
        for (size_t n = 0; n < r->states; n++) h[n] = (double)first[n * r->channels + i];
        for (size_t t = 0; t < r->tokens; t++) {
            double x = (double)r->x[t * r->ldx + i], dt = (double)r->dt[t * r->ldt + i], y = (double)r->skip[i] * x;
            for (size_t n = 0; n < r->states; n++) {
                double a = (double)r->a[(r->one_decay ? 0 : n * r->lda) + i];
                h[n] = exp(dt * a) * h[n] + dt * x * (double)r->b[t * r->ldb + n];
                y += h[n] * (double)r->c[t * r->ldc + n];
            }
            assert_true(fabs((double)o->y[t * r->ldy + i] - y) <= 1e-5 * (1 + fabs(y)));
        }
        for (size_t n = 0; n < r->states; n++) assert_true(fabs((double)o->h[n * r->channels + i] - h[n]) <= 1e-5 * (1 + fabs(h[n])));
    }
}

static void scan_one(struct shape s)
{
    struct llm_scan_run in = inputs_of(s);
    const float *dy = noisy(s.tokens * in.ldx - 3, 15);
    struct outputs a = run_both(&llm_k.scan, &in, dy), b = run_both(&scalar.scan, &in, dy);
    size_t all = s.states * s.channels, n = s.tokens * in.ldx - 3;
    check_formula(&in, &a);
    close_to(a.h, b.h, all, 1e-5, "state");
    close_to(a.y, b.y, n, 2e-5, "scan");
    close_to(a.g, b.g, all, 2e-5, "gradient of a state");
    close_to(a.dx, b.dx, n, 3e-5, "gradient of x");
    close_to(a.ddt, b.ddt, n, 1e-4, "gradient of dt");
    close_to(a.d_bc, b.d_bc, s.tokens * 2 * s.states, 2e-4, "gradients of b and c");
    close_to(a.da, b.da, s.one ? s.channels : all, 1e-4, "gradient of a");
    close_to(a.d_skip, b.d_skip, s.channels, 1e-5, "gradient of the skip");
}

static void test_scan(void **state)
{
    (void)state;
    const size_t channels[] = {1, 7, 16, 33, 64}, states[] = {1, 3, 16, 37};
    FOR_EACH_ISA(isa) {
        for (size_t i = 0; i < 5; i++) {
            for (size_t j = 0; j < 4; j++) {
                scan_one((struct shape){1 + (3 * i + 5 * j) % LLM_SCAN_CHUNK, channels[i], states[j], false});
                scan_one((struct shape){1 + (5 * i + 3 * j) % LLM_SCAN_CHUNK, channels[i], states[j], true});
            }
        }
    }
}

/* A channel's numbers depend neither on how many channels nor on how many tokens a call has. */
static void test_scan_cut(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        struct llm_scan_run whole = inputs_of((struct shape){13, 41, 20, false}), part = whole;
        float *h = noisy(20 * 41, 7), *again = copy_of(h, 20 * 41), *y = noisy(13 * 44, 8), *z = noisy(13 * 44, 9);
        whole.h = h;
        whole.y = y;
        llm_k.scan.forward(&whole);
        for (size_t from = 0, n; from < 41; from += n) {
            n = from ? 24 : 17;
            for (size_t t = 0, m; t < 13; t += m) {
                m = t ? 9 : 4;
                part = whole;
                part.tokens = m;
                part.channels = n;
                part.a += from;
                part.skip += from;
                part.x += t * part.ldx + from;
                part.dt += t * part.ldt + from;
                part.b += t * part.ldb;
                part.c += t * part.ldc;
                part.h = again + from;
                part.y = z + t * part.ldy + from;
                llm_k.scan.forward(&part);
            }
        }
        assert_memory_equal(h, again, 20 * 41 * sizeof *h);
        for (size_t t = 0; t < 13; t++) assert_memory_equal(y + t * whole.ldy, z + t * whole.ldy, 41 * sizeof *y);
    }
}

/* Decays of which nothing is left, and states of any size: zeros, never NaN. */
static void test_scan_forgets(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        float a = -1e30f, skip = 0, x = 2, dt = 1e4f, b = 3, c = 1, h = 1e30f, y = 0;
        struct llm_scan_run r = {1, 1, 1, false, &a, &skip, 1, &x, &dt, &b, &c, 1, 1, 1, 1, &h, 1, &y, 1};
        llm_k.scan.forward(&r);
        assert_true(h == 6e4f && y == 6e4f);
        a = -INFINITY;
        llm_k.scan.forward(&r);
        assert_true(h == 6e4f && y == 6e4f);
    }
}

static void time_and_conv(size_t n)
{
    enum { K = 4 };
    float *raw = between(-30, 30, n, 1), *bias = noisy(n, 2), *d = noisy(n, 3), *y = noisy(n, 4), *z = noisy(n, 5);
    const float *taps[K] = {noisy(n, 6), noisy(n, 7), noisy(n, 8), noisy(n, 9)};
    float *w = noisy(K * (n + 1) - 1, 10);
    llm_k.scan.time_step(y, raw, bias, .01f, 20, n);
    scalar.scan.time_step(z, raw, bias, .01f, 20, n);
    close_to(y, z, n, 1e-6, "time step");
    for (size_t i = 0; i < n; i++) {
        double exact = fmin(20, fmax(.01, log1p(exp((double)raw[i] + (double)bias[i]))));
        assert_true(fabs((double)y[i] - exact) <= 3e-6 * (1 + exact));
    }
    llm_k.scan.time_step_back(y, d, raw, bias, .01f, 20, n);
    scalar.scan.time_step_back(z, d, raw, bias, .01f, 20, n);
    close_to(y, z, n, 1e-6, "time step backward");
    llm_k.scan.decay(y, bias, n);
    scalar.scan.decay(z, bias, n);
    close_to(y, z, n, 1e-6, "decay");
    for (int with = 0; with < 4; with++) {
        llm_k.scan.conv(y, taps, w, n + 1, with & 1 ? bias : NULL, K, n, with & 2);
        scalar.scan.conv(z, taps, w, n + 1, with & 1 ? bias : NULL, K, n, with & 2);
        close_to(y, z, n, 2e-6, "convolution");
    }
}

/* The way back of a convolution over `tokens`, of whose sequence `behind` more follow, beside the formula. */
static void conv_back(size_t k, size_t n, size_t tokens, size_t behind, bool add, bool silu)
{
    const size_t ld = n + 2, all = tokens + behind;
    float *x = noisy((k - 1 + all) * ld, 1), *dy = noisy(all * ld - 2, 2), *w = between(-2, 2, k * ld - 2, 3), *bias = noisy(n, 4);
    float *dx = noisy(tokens * ld - 2, 5), *d_w = noisy((k + 1) * ld - 2, 6), *dx_before = copy_of(dx, tokens * ld - 2);
    float *d_w_before = copy_of(d_w, (k + 1) * ld - 2);
    const float *before[16];
    for (size_t j = 0; j + 1 < k; j++) before[j] = x + j * ld;
    const struct llm_conv_back b = {.tokens = tokens, .behind = behind, .channels = n, .k = k, .before = before, .x = x + (k - 1) * ld, .ldx = ld,
                                    .dy = dy, .ld_dy = ld, .w = w, .ldw = ld, .bias = add ? NULL : bias, .dx = dx, .ld_dx = ld, .add = add,
                                    .d_w = d_w, .ld_dw = ld, .silu = silu};
    llm_k.scan.conv_back(&b);
    for (size_t i = 0; i < n; i++) {
        double d[64] = {0}, sums[17] = {0};
        for (size_t t = 0; t < all; t++) {
            double sum = add ? 0 : (double)bias[i], g;
            for (size_t j = 0; j < k; j++) sum += (double)w[j * ld + i] * (double)x[(t + j) * ld + i];
            g = 1 / (1 + exp(-sum));
            d[t] = (double)dy[t * ld + i] * (silu ? g * (1 + sum * (1 - g)) : 1);
            for (size_t j = 0; j < k && t < tokens; j++) sums[j] += d[t] * (double)x[(t + j) * ld + i];
            if (t < tokens) sums[k] += d[t];
        }
        for (size_t t = 0; t < tokens; t++) {
            double sum = add ? (double)dx_before[t * ld + i] : 0;
            for (size_t j = 0; j < k; j++) sum += (double)w[j * ld + i] * d[t + k - 1 - j];
            assert_true(fabs((double)dx[t * ld + i] - sum) <= 1e-5 * (1 + fabs(sum)));
        }
        for (size_t j = 0; j <= k; j++) {
            double added = (double)d_w[j * ld + i] - (double)d_w_before[j * ld + i];
            assert_true(fabs(added - sums[j]) <= 1e-5 * (1 + fabs(sums[j])));
        }
    }
}

static void test_conv_back(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        const size_t channels[] = {1, 7, 16, 33};
        for (size_t i = 0; i < 4; i++) {
            for (size_t k = 1; k <= 5; k++) {
                conv_back(k, channels[i], 1, 0, i % 2, true);
                conv_back(k, channels[i], 11, k - 1, i % 2, true);
                conv_back(k, channels[i], 11, k - 1, i % 2, false);
                conv_back(k, channels[i], 2, k / 2, i % 2 == 0, true);
            }
            conv_back(16, channels[i], 19, 15, false, true);
        }
    }
}

static void cells(size_t n)
{
    float *x = between(-6, 6, 4 * n, 1), *rec = between(-3, 3, 4 * n, 2), *before = noisy(n, 3), *dy = noisy(n, 4), *dr = noisy(n, 5);
    float *gates[2], *c[2], *h[2], *d_sums[2], *dc[2];
    for (int i = 0; i < 2; i++) {
        const struct llm_recurrent_kernels *k = i ? &scalar.recurrent : &llm_k.recurrent;
        gates[i] = noisy(4 * n, 6);
        d_sums[i] = noisy(4 * n, 7);
        c[i] = noisy(n, 8);
        h[i] = noisy(n, 9);
        dc[i] = noisy(n, 10);
        const struct llm_lstm_step s = {gates[i], c[i], before, h[i], x, rec};
        k->lstm(&s, n);
        const struct llm_lstm_back_step b = {d_sums[i], dc[i], gates[i], c[i], before, dy, dr};
        k->lstm_back(&b, n);
    }
    close_to(gates[0], gates[1], 4 * n, 1e-6, "LSTM's gates");
    close_to(c[0], c[1], n, 1e-6, "LSTM's cell");
    close_to(h[0], h[1], n, 1e-6, "LSTM's output");
    close_to(d_sums[0], d_sums[1], 4 * n, 2e-6, "LSTM's gradients");
    close_to(dc[0], dc[1], n, 2e-6, "LSTM's cell backward");
    llm_k.recurrent.tanh(h[0], x, rec, n);
    scalar.recurrent.tanh(h[1], x, rec, n);
    close_to(h[0], h[1], n, 1e-6, "RNN");
    for (size_t i = 0; i < n; i++) assert_true(fabs((double)h[0][i] - tanh((double)x[i] + (double)rec[i])) < 1e-6);
    llm_k.recurrent.tanh_back(dc[0], h[1], dy, dr, n);
    scalar.recurrent.tanh_back(dc[1], h[1], dy, dr, n);
    close_to(dc[0], dc[1], n, 1e-6, "RNN backward");
}

static void test_rows(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        for (size_t n = 1; n < 80; n += n < 36 ? 1 : 11) {
            time_and_conv(n);
            cells(n);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scan), cmocka_unit_test(test_scan_cut), cmocka_unit_test(test_scan_forgets),
                                       cmocka_unit_test(test_conv_back), cmocka_unit_test(test_rows)};
    llm_isas[0].fill(&scalar);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
