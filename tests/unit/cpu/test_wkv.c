/* Kernels of RWKV's recurrences: every instruction set against the scalar build, and that against formulas in double; odd numbers of channels and
 * tokens; memory that ends at a guard page; keys that would overflow e^k. */
#include "isas.h"

static struct llm_kernels scalar;

static float *scaled(float factor, float plus, size_t n, uint64_t seed)
{
    float *x = noisy(n, seed);
    for (size_t i = 0; i < n; i++) x[i] = x[i] * factor + plus;
    return x;
}

/* What goes in is shared, what comes out is each one's own. */
struct outputs { float *state, *y, *g, *dk, *dv, *dw, *du; };

static struct llm_wkv4_run inputs_of(size_t tokens, size_t channels, float size)
{
    size_t ld = channels + 3;
    return (struct llm_wkv4_run){.tokens = tokens, .channels = channels, .w = scaled(.5f, -.6f, channels, 1), .u = noisy(channels, 2),
                                 .k = scaled(size, 0, tokens * ld - 3, 3), .v = noisy(tokens * ld - 3, 4), .ldk = ld, .ldv = ld,
                                 .ld_state = channels, .ldy = ld};
}

static struct outputs run_both(const struct llm_wkv_kernels *k, const struct llm_wkv4_run *in, const float *dy)
{
    size_t ld = in->ldk, n = in->tokens * ld - 3, c = in->channels;
    struct outputs o = {scaled(.4f, 1, 3 * c, 5), noisy(n, 6), noisy(2 * c, 7), noisy(n, 8), noisy(n, 9), noisy(c, 10), noisy(c, 11)};
    struct llm_wkv4_back b = {.run = *in, .dy = dy, .ld_dy = ld, .g = o.g, .dk = o.dk, .dv = o.dv, .ld_dk = ld, .ld_dv = ld, .dw = o.dw, .du = o.du};
    struct llm_wkv4_run r = *in;
    b.run.state = r.state = o.state;
    k->backward4(&b);
    r.y = o.y;
    k->forward4(&r);
    return o;
}

static void check_formula(const struct llm_wkv4_run *r, const struct outputs *o, double tolerance)
{
    const float *first = scaled(.4f, 1, 3 * r->channels, 5);
    for (size_t i = 0; i < r->channels; i++) {
        double most = (double)first[2 * r->channels + i], top = (double)first[i], bottom = (double)first[r->channels + i];
        for (size_t t = 0; t < r->tokens; t++) {
            double k = (double)r->k[t * r->ldk + i], v = (double)r->v[t * r->ldv + i], u = (double)r->u[i], w = (double)r->w[i];
            double high = fmax(most, k + u), old = exp(most - high), here = exp(k + u - high);
            double y = (old * top + here * v) / (old * bottom + here);
            assert_true(fabs((double)o->y[t * r->ldy + i] - y) < tolerance * (1 + fabs(y)));
            high = fmax(most + w, k);
            top = exp(most + w - high) * top + exp(k - high) * v;
            bottom = exp(most + w - high) * bottom + exp(k - high);
            most = high;
        }
    }
}

static void one(size_t tokens, size_t channels, float size)
{
    struct llm_wkv4_run in = inputs_of(tokens, channels, size);
    size_t n = tokens * in.ldk - 3;
    const float *dy = noisy(n, 12);
    struct outputs a = run_both(&llm_k.wkv, &in, dy), b = run_both(&scalar.wkv, &in, dy);
    const double near = 1e-5 * (1 + (double)size / 10); /* differences of large keys are rounded */
    check_formula(&in, &b, near);
    close_to(a.y, b.y, n, near, "output");
    close_to(a.state, b.state, 3 * channels, near, "state");
    close_to(a.g, b.g, 2 * channels, near, "gradient of the state");
    close_to(a.dk, b.dk, n, near, "gradient of keys");
    close_to(a.dv, b.dv, n, near, "gradient of values");
    close_to(a.dw, b.dw, channels, near, "gradient of decays");
    close_to(a.du, b.du, channels, near, "gradient of bonuses");
}

static void test_wkv4(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        for (size_t channels = 1; channels < 40; channels += 1 + channels / 9) one(1 + channels * 7 % LLM_WKV_CHUNK, channels, 1);
        one(LLM_WKV_CHUNK, 19, 300);
    }
}

/* The same bits however the tokens are cut into runs. */
static void test_cut(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        struct llm_wkv4_run whole = inputs_of(13, 41, 2), part = whole;
        size_t n = 13 * whole.ldk - 3;
        float *y[2] = {noisy(n, 1), noisy(n, 1)}, *states[2] = {guarded(123 * sizeof(float)), guarded(123 * sizeof(float))};
        memset(states[0], 0, 123 * sizeof(float));
        memset(states[1], 0, 123 * sizeof(float));
        whole.y = y[0];
        whole.state = states[0];
        llm_k.wkv.forward4(&whole);
        part.state = states[1];
        for (size_t at = 0, step = 1; at < 13; at += step, step = 13 - at < 5 ? 13 - at : 5) {
            part.tokens = step;
            part.k = whole.k + at * whole.ldk;
            part.v = whole.v + at * whole.ldv;
            part.y = y[1] + at * whole.ldy;
            llm_k.wkv.forward4(&part);
        }
        assert_memory_equal(y[0], y[1], n * sizeof(float));
        assert_memory_equal(states[0], states[1], 123 * sizeof(float));
    }
}

/* ---- heads with matrices of states ---- */

enum { SIZE_MAX_OF_HEAD = 40 };
static size_t area(size_t tokens, size_t size) { return tokens * (size + 3) - 3; }

/* version: 5 (one decay for all tokens), 6, or 7 (with a and b). */
static struct llm_wkv_run heads_of(int version, size_t tokens, size_t size)
{
    size_t ld = size + 3, n = area(tokens, size);
    struct llm_wkv_run r = {.tokens = tokens, .size = size, .r = noisy(n, 1), .k = noisy(n, 2), .v = noisy(n, 3), .w = scaled(.2f, .7f, n, 4),
                            .ldr = ld, .ldk = ld, .ldv = ld, .ldw = version == 5 ? 0 : ld, .ldy = ld};
    if (version < 7) {
        r.u = noisy(size, 5);
        return r;
    }
    r.a = scaled(.1f, 0, n, 6);
    r.b = scaled(.1f, 0, n, 7);
    r.lda = r.ldb = ld;
    return r;
}

struct head_outputs { float *state, *y, *g, *d[6], *du; };

static struct head_outputs run_head(const struct llm_wkv_kernels *k, const struct llm_wkv_run *in, const float *dy)
{
    size_t n = area(in->tokens, in->size), all = in->size * in->size;
    struct head_outputs o = {.state = noisy(all, 8), .y = noisy(n, 9), .g = noisy(all, 10), .du = noisy(in->size, 11)};
    for (int i = 0; i < 6; i++) o.d[i] = noisy(n, 12 + (uint64_t)i);
    float *scratch = guarded(LLM_WKV_SCRATCH(in->size) * sizeof *scratch);
    struct llm_wkv_back b = {.run = *in, .dy = dy, .ld_dy = in->ldr, .g = o.g, .dr = o.d[0], .dk = o.d[1], .dv = o.d[2], .dw = o.d[3], .da = o.d[4],
                             .db = o.d[5], .ld = in->ldr, .du = o.du, .scratch = scratch};
    struct llm_wkv_run r = *in;
    b.run.state = r.state = o.state;
    k->backward(&b);
    r.y = o.y;
    k->forward(&r);
    return o;
}

static void check_head(const struct llm_wkv_run *r, const struct head_outputs *o)
{
    const float *first = noisy(r->size * r->size, 8);
    double S[SIZE_MAX_OF_HEAD][SIZE_MAX_OF_HEAD];
    for (size_t i = 0; i < r->size * r->size; i++) S[i / r->size][i % r->size] = (double)first[i];
    for (size_t t = 0; t < r->tokens; t++) {
        for (size_t j = 0; j < r->size; j++) {
            double y = 0, seen = 0;
            for (size_t i = 0; r->a && i < r->size; i++) seen += (double)r->a[t * r->lda + i] * S[i][j];
            for (size_t i = 0; i < r->size; i++) {
                double in = (double)r->k[t * r->ldk + i] * (double)r->v[t * r->ldv + j], q = (double)r->r[t * r->ldr + i];
                if (!r->a) y += q * (S[i][j] + (double)r->u[i] * in);
                S[i][j] = (double)r->w[t * r->ldw + i] * S[i][j] + in + (r->a ? (double)r->b[t * r->ldb + i] * seen : 0);
                if (r->a) y += q * S[i][j];
            }
            assert_true(fabs((double)o->y[t * r->ldy + j] - y) < 1e-4 * (1 + fabs(y)));
        }
    }
}

static void one_head(int version, size_t tokens, size_t size)
{
    const struct llm_wkv_run in = heads_of(version, tokens, size);
    const size_t n = area(tokens, size);
    const float *dy = noisy(n, 20);
    struct head_outputs a = run_head(&llm_k.wkv, &in, dy), b = run_head(&scalar.wkv, &in, dy);
    check_head(&in, &b);
    close_to(a.y, b.y, n, 1e-4, "output");
    close_to(a.state, b.state, size * size, 1e-4, "state");
    close_to(a.g, b.g, size * size, 1e-4, "gradient of the state");
    for (int i = 0; i < 6; i++) close_to(a.d[i], b.d[i], n, 1e-4, "gradient of an input");
    close_to(a.du, b.du, size, 1e-4, "gradient of bonuses");
}

static void test_heads(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        for (int version = 5; version <= 7; version++) {
            for (size_t size = 1; size <= SIZE_MAX_OF_HEAD; size += 1 + size / 3) one_head(version, 1 + size * 7 % LLM_WKV_CHUNK, size);
            one_head(version, LLM_WKV_CHUNK, 8);
        }
    }
}

static void test_mix_rank(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        for (size_t n = 1; n < 70; n += 1 + n / 7) {
            const size_t rank = 1 + n % 6, ld = n + 2;
            const float *x = noisy(n, 1), *d = noisy(n, 2), *h = noisy(rank, 3);
            const struct llm_mix_rank m = {noisy(n, 4), noisy(rank * ld - 2, 5), rank, ld, n};
            float *y[2] = {noisy(n, 6), noisy(n, 6)}, *dh[2] = {noisy(rank, 7), noisy(rank, 7)};
            float *dw[2] = {noisy(rank * ld - 2, 8), noisy(rank * ld - 2, 8)};
            for (int i = 0; i < 2; i++) {
                const struct llm_wkv_kernels *k = i ? &scalar.wkv : &llm_k.wkv;
                k->mix_rank(y[i], x, d, h, &m);
                k->mix_rank_dw(dw[i], x, d, h, rank, ld, n);
            }
            for (size_t i = 0; i < n; i++) {
                double share = (double)m.share[i];
                for (size_t j = 0; j < rank; j++) share += (double)h[j] * (double)m.w[j * ld + i];
                assert_true(fabs((double)y[1][i] - (double)x[i] - (double)d[i] * share) < 1e-5);
            }
            close_to(y[0], y[1], n, 1e-5, "mix");
            close_to(dw[0], dw[1], rank * ld - 2, 1e-5, "gradient of factors");
            llm_k.wkv.mix_rank_back(y[0], dh[0], x, d, h, &m);
            scalar.wkv.mix_rank_back(y[1], dh[1], x, d, h, &m);
            close_to(y[0], y[1], n, 1e-5, "gradient of differences");
            close_to(dh[0], dh[1], rank, 1e-4, "gradient of the token's factors");
        }
    }
}

static void test_mix(void **state)
{
    (void)state;
    FOR_EACH_ISA(isa) {
        for (size_t n = 1; n < 70; n += 1 + n / 7) {
            const float *x = noisy(n, 1), *d = noisy(n, 2), *share = noisy(n, 3);
            float *y[2] = {noisy(n, 4), noisy(n, 4)};
            llm_k.wkv.mix(y[0], x, d, share, n);
            scalar.wkv.mix(y[1], x, d, share, n);
            close_to(y[0], y[1], n, 1e-6, "mix");
            llm_k.wkv.mix_back(y[0], x, d, n);
            scalar.wkv.mix_back(y[1], x, d, n);
            close_to(y[0], y[1], n, 1e-6, "gradient of shares");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wkv4), cmocka_unit_test(test_cut), cmocka_unit_test(test_mix),
                                       cmocka_unit_test(test_heads), cmocka_unit_test(test_mix_rank)};
    llm_isas[0].fill(&scalar);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
