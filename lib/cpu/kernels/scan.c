/* Selective scans and their convolutions (cpu/kernels/scan.h): VN channels abreast, states one after another. */
#include "cpu/kernels.h"
#include "cpu/kernels/vectors.h"

#define INLINE static inline __attribute__((always_inline))

/* log(1 + u) for u in [0, 1]: 2·artanh(u / (2 + u)) within 2 ulp. */
static inline V log1p_unit(V u)
{
    V s = v_div(u, v_add(v_set1(2), u)), q = v_mul(s, s);
    V p = v_set1(2.0f / 15);
    p = v_fma(p, q, v_set1(2.0f / 13));
    p = v_fma(p, q, v_set1(2.0f / 11));
    p = v_fma(p, q, v_set1(2.0f / 9));
    p = v_fma(p, q, v_set1(2.0f / 7));
    p = v_fma(p, q, v_set1(2.0f / 5));
    p = v_fma(p, q, v_set1(2.0f / 3));
    return v_fma(v_mul(p, q), s, v_add(s, s));
}

/* max(x, 0) + log(1 + e^-|x|) */
static inline V softplus(V x)
{
    V y = v_add(v_max(x, v_zero()), log1p_unit(v_exp(v_neg(v_abs(x)))));
    return v_select(v_eq(x, x), y, x);
}

static void time_step(float *dt, const float *raw, const float *bias, float low, float high, size_t n)
{
    FOR_VECTORS(n, {
        V y = softplus(v_add(LOAD(raw), LOAD(bias)));
        STORE(dt, v_min(v_set1(high), v_max(v_set1(low), y)));
    });
}

static void time_step_back(float *d_raw, const float *d_dt, const float *raw, const float *bias, float low, float high, size_t n)
{
    FOR_VECTORS(n, {
        V z = v_add(LOAD(raw), LOAD(bias));
        V y = softplus(z);
        M bound = m_or(v_lt(y, v_set1(low)), v_lt(v_set1(high), y));
        STORE(d_raw, v_select(bound, v_zero(), v_mul(LOAD(d_dt), v_sigmoid(z))));
    });
}

static float sum(const float *x, size_t n)
{
    V all = v_zero();
    FOR_VECTORS(n, all = v_add(all, LOAD(x)););
    return v_sum(all);
}

static void decay(float *a, const float *a_log, size_t n)
{
    FOR_VECTORS(n, STORE(a, v_neg(v_exp(LOAD(a_log)))););
}

/* e^(dt·a) for a·log2(e) = a2, dt·a ≤ 0: 2^z by a Chebyshev fit over half a unit around the nearest integer, within 1.5 ulp of 2^z; 0 below
 * 2^-149. */
INLINE V decay_of(V dt, V a2)
{
    V n, f = v_split(v_mul(dt, a2), &n);
    V p = v_set1(0.00132647296f);
    p = v_fma(p, f, v_set1(0.00967151299f));
    p = v_fma(p, f, v_set1(0.0555073358f));
    p = v_fma(p, f, v_set1(0.240222424f));
    p = v_fma(p, f, v_set1(0.693147004f));
    return v_scale(v_fma(p, f, v_set1(1)), n);
}

INLINE V load(const float *p, size_t count) { return count == VN ? v_load(p) : v_load_n(p, count); }
INLINE void store(float *p, V x, size_t count)
{
    if (count == VN) v_store(p, x);
    else v_store_n(p, x, count);
}

/* States go in tiles, which a known number keeps in registers (those that do not fill one by themselves), channels in groups of vectors: `count` of
 * W·VN, W > 1 only whole. */
enum { TILE = 16, BACK_TILE = 8, GROUP = 2 };
struct part { size_t channel, count, state; };
#define UNROLL _Pragma("GCC unroll 16")

/* A vector of channels, a tile of states. */
INLINE void forward_tile(const struct llm_scan_run *r, struct part k, size_t tile, bool one)
{
    const size_t i = k.channel, count = k.count;
    const float *a = r->a + (one ? 0 : k.state) * r->lda + i, *b = r->b + k.state, *c = r->c + k.state, *x_at = r->x + i, *dt_at = r->dt + i;
    float *state = r->h + k.state * r->ldh + i, *y_at = r->y + i;
    const V log2e = v_set1(0x1.715476p0f), skip = load(r->skip + i, count);
    V h[TILE], a2[TILE];
    UNROLL
    for (size_t n = 0; n < tile; n++) h[n] = load(state + n * r->ldh, count);
    for (size_t n = 0; n < (one ? 1 : tile); n++) a2[n] = v_mul(log2e, load(a + n * r->lda, count));
    for (size_t t = 0; t < r->tokens; t++, b += r->ldb, c += r->ldc, x_at += r->ldx, dt_at += r->ldt, y_at += r->ldy) {
        V x = load(x_at, count), dt = load(dt_at, count), in = v_mul(dt, x), e = decay_of(dt, a2[0]);
        V y = k.state ? load(y_at, count) : v_mul(skip, x), odd = v_zero();
        __builtin_prefetch(x_at + LLM_SCAN_CHUNK * r->ldx, 0, 2);
        UNROLL
        for (size_t n = 0; n < tile; n++) {
            if (!one && n > 0) e = decay_of(dt, a2[n]);
            h[n] = v_fma(e, h[n], v_mul(in, v_set1(b[n])));
            if (n % 2) odd = v_fma(h[n], v_set1(c[n]), odd);
            else y = v_fma(h[n], v_set1(c[n]), y);
        }
        store(y_at, v_add(y, odd), count);
    }
    UNROLL
    for (size_t n = 0; n < tile; n++) store(state + n * r->ldh, h[n], count);
}

INLINE void forward_all(const struct llm_scan_run *r, bool one)
{
    FOR_VECTORS(r->channels, {
        for (size_t state = 0, tile; state < r->states; state += tile) {
            const struct part k = {i, count, state};
            tile = r->states - state < TILE ? 1 : TILE;
            if (tile > 1) forward_tile(r, k, TILE, one);
            else forward_tile(r, k, 1, one);
        }
    });
}

static void forward(const struct llm_scan_run *r)
{
    const struct llm_scan_run copy = *r; /* what the compiler knows no store to change */
    if (r->one_decay) forward_all(&copy, true);
    else forward_all(&copy, false);
}

/* Recomputes what the backward pass of one vector of channels needs: the states before and after each token, hs [tokens + 1][tile][w], and the
 * decays, es [tokens][tile or 1][w]. */
INLINE void states_of(const struct llm_scan_run *r, struct part k, size_t tile, bool one, size_t w, float *hs, float *es)
{
    const size_t count = k.count, i = k.channel, decays = one ? 1 : tile;
    const V log2e = v_set1(0x1.715476p0f);
    const float *a = r->a + (one ? 0 : k.state) * r->lda + i, *state = r->h + k.state * r->ldh + i;
    const float *b = r->b + k.state, *x = r->x + i, *dt_at = r->dt + i;
    V h[BACK_TILE], a2[BACK_TILE];
    for (size_t n = 0; n < decays; n++) a2[n] = v_mul(log2e, load(a + n * r->lda, count));
    UNROLL
    for (size_t n = 0; n < tile; n++) {
        h[n] = load(state + n * r->ldh, count);
        v_store(hs + n * w * VN, h[n]);
    }
    for (size_t t = 0; t < r->tokens; t++, b += r->ldb, x += r->ldx, dt_at += r->ldt) {
        hs += tile * w * VN;
        V dt = load(dt_at, count), in = v_mul(dt, load(x, count)), e = v_zero();
        UNROLL
        for (size_t n = 0; n < tile; n++) {
            if (n < decays) {
                e = decay_of(dt, a2[n]);
                v_store(es + n * w * VN, e);
            }
            h[n] = v_fma(e, h[n], v_mul(in, v_set1(b[n])));
            v_store(hs + n * w * VN, h[n]);
        }
        es += decays * w * VN;
    }
}

/* y = x, or added to y. */
INLINE void put(float *y, bool add, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i += VN) {
        V v = v_load_n(x + i, n - i);
        v_store_n(y + i, add ? v_add(v, v_load_n(y + i, n - i)) : v, n - i);
    }
}

/* Gradients of w vectors of channels through a tile of states. */
INLINE void backward_tile(const struct llm_scan_back *s, struct part k, size_t tile, bool one, size_t w)
{
    const struct llm_scan_run *r = &s->run;
    const size_t count = k.count, decays = one ? 1 : tile, first = k.channel;
    float *hs = s->scratch, *es = hs + (LLM_SCAN_CHUNK + 1) * BACK_TILE * GROUP * VN;
    V g[BACK_TILE][GROUP], da[BACK_TILE][GROUP];
    for (size_t v = 0; v < w; v++) states_of(r, (struct part){first + v * VN, count, k.state}, tile, one, w, hs + v * VN, es + v * VN);
    UNROLL
    for (size_t n = 0; n < tile; n++) {
        UNROLL
        for (size_t v = 0; v < w; v++) {
            g[n][v] = load(s->g + (k.state + n) * r->channels + first + v * VN, count);
            if (n < decays) da[n][v] = load(s->da + ((one ? 0 : k.state) + n) * r->channels + first + v * VN, count);
        }
    }
    for (size_t t = r->tokens; t-- > 0;) {
        const float *b = r->b + t * r->ldb + k.state, *c = r->c + t * r->ldc + k.state;
        const float *before = hs + t * tile * w * VN, *behind = before + tile * w * VN, *e = es + t * decays * w * VN;
        const float *x_at = r->x + t * r->ldx + first, *dt_at = r->dt + t * r->ldt + first, *dy_at = s->dy + t * s->ld_dy + first;
        const float *a = r->a + k.state * r->lda + first;
        V dt[GROUP], dy[GROUP], in[GROUP], d_in[GROUP], d_log[GROUP], to_bc[2 * BACK_TILE];
        UNROLL
        for (size_t v = 0; v < w; v++) {
            dt[v] = load(dt_at + v * VN, count);
            dy[v] = load(dy_at + v * VN, count);
            in[v] = v_mul(dt[v], load(x_at + v * VN, count));
            d_in[v] = v_zero();
            d_log[v] = v_zero();
            __builtin_prefetch(x_at + v * VN - LLM_SCAN_CHUNK * r->ldx, 0, 2);
            __builtin_prefetch(dy_at + v * VN - LLM_SCAN_CHUNK * s->ld_dy, 0, 2);
        }
        UNROLL
        for (size_t n = 0; n < tile; n++) {
            const V bn = v_set1(b[n]), cn = v_set1(c[n]);
            V sum_b = v_zero(), sum_c = v_zero();
            UNROLL
            for (size_t v = 0; v < w; v++) {
                V gn = v_fma(dy[v], cn, g[n][v]), h = v_load(behind + (n * w + v) * VN);
                sum_c = v ? v_fma(dy[v], h, sum_c) : v_mul(dy[v], h);
                sum_b = v ? v_fma(gn, in[v], sum_b) : v_mul(gn, in[v]);
                d_in[v] = v_fma(gn, bn, d_in[v]);
                gn = v_mul(gn, v_load(e + ((one ? 0 : n) * w + v) * VN));
                g[n][v] = gn;
                if (one) {
                    d_log[v] = v_fma(gn, v_load(before + (n * w + v) * VN), d_log[v]);
                } else {
                    V through = v_mul(gn, v_load(before + (n * w + v) * VN)); /* of dt·a */
                    da[n][v] = v_fma(through, dt[v], da[n][v]);
                    d_log[v] = v_fma(through, load(a + n * r->lda + v * VN, count), d_log[v]);
                }
            }
            to_bc[n] = sum_b;
            to_bc[tile + n] = sum_c;
        }
        UNROLL
        for (size_t v = 0; v < w; v++) {
            const size_t i = first + v * VN;
            float *dx = s->dx + t * s->ld_dx + i, *ddt = s->ddt + t * s->ld_ddt + i;
            V x = load(x_at + v * VN, count), ddt_v = d_log[v], dx_v = k.state ? load(dx, count) : v_mul(dy[v], load(r->skip + i, count));
            if (one) {
                da[0][v] = v_fma(d_log[v], dt[v], da[0][v]);
                ddt_v = v_mul(d_log[v], load(r->a + i, count));
            }
            if (k.state) ddt_v = v_add(ddt_v, load(ddt, count));
            store(dx, v_fma(d_in[v], dt[v], dx_v), count);
            store(ddt, v_fma(d_in[v], x, ddt_v), count);
            if (k.state == 0) store(s->d_skip + i, v_fma(dy[v], x, load(s->d_skip + i, count)), count);
        }
        float *out = s->d_bc + t * 2 * r->states + k.state, sums[2 * BACK_TILE];
        v_sums(sums, to_bc, 2 * tile);
        put(out, first > 0, sums, tile);
        put(out + r->states, first > 0, sums + tile, tile);
    }
    UNROLL
    for (size_t n = 0; n < tile; n++) {
        UNROLL
        for (size_t v = 0; v < w; v++) {
            store(s->g + (k.state + n) * r->channels + first + v * VN, g[n][v], count);
            if (n < decays) store(s->da + ((one ? 0 : k.state) + n) * r->channels + first + v * VN, da[n][v], count);
        }
    }
}

INLINE void backward_all(const struct llm_scan_back *s, bool one)
{
    const struct llm_scan_run *r = &s->run;
    for (size_t i = 0, step; i < r->channels; i += step) {
        const size_t left = r->channels - i;
        step = left >= GROUP * VN ? GROUP * VN : left < VN ? left : VN;
        for (size_t state = 0, tile; state < r->states; state += tile) {
            const struct part k = {i, step < VN ? step : VN, state};
            tile = r->states - state < BACK_TILE ? 1 : BACK_TILE;
            if (tile > 1 && step > VN) backward_tile(s, k, BACK_TILE, one, GROUP);
            else if (tile > 1) backward_tile(s, k, BACK_TILE, one, 1);
            for (size_t v = 0; tile == 1 && v < step; v += VN) backward_tile(s, (struct part){i + v, k.count, state}, 1, one, 1);
        }
    }
}

static void backward(const struct llm_scan_back *s)
{
    const struct llm_scan_back copy = *s; /* what the compiler knows no store to change */
    if (s->run.one_decay) backward_all(&copy, true);
    else backward_all(&copy, false);
}

static inline V conv_sum(const float *const *taps, const float *w, size_t ldw, const float *bias, size_t k, size_t i, size_t count)
{
    V sum = bias ? LOAD(bias) : v_zero();
    for (size_t j = 0; j < k; j++) sum = v_fma(LOAD(w + j * ldw), LOAD(taps[j]), sum);
    return sum;
}

static void conv(float *y, const float *const *taps, const float *w, size_t ldw, const float *bias, size_t k, size_t n, bool silu)
{
    FOR_VECTORS(n, {
        V sum = conv_sum(taps, w, ldw, bias, k, i, count);
        STORE(y, silu ? v_mul(sum, v_sigmoid(sum)) : sum);
    });
}

/* A vector of channels. The last k inputs and gradients of sums stay in registers. */
INLINE void conv_back_vector(const struct llm_conv_back *s, size_t i, size_t count, size_t k, bool silu)
{
    const V one = v_set1(1), bias = s->bias ? load(s->bias + i, count) : v_zero();
    V w[LLM_CONV_TAPS], x[LLM_CONV_TAPS], d[LLM_CONV_TAPS], d_w[LLM_CONV_TAPS], d_bias = load(s->d_w + k * s->ld_dw + i, count);
    for (size_t j = 0; j < k; j++) {
        w[j] = load(s->w + j * s->ldw + i, count);
        d_w[j] = load(s->d_w + j * s->ld_dw + i, count);
        x[j] = j ? load(s->before[j - 1] + i, count) : v_zero();
        d[j] = v_zero();
    }
    for (size_t t = 0; t + 1 < s->tokens + k; t++) {
        for (size_t j = 0; j + 1 < k; j++) x[j] = x[j + 1];
        for (size_t j = k - 1; j > 0; j--) d[j] = d[j - 1];
        d[0] = v_zero();
        if (t < s->tokens + s->behind) {
            const float *row = s->x + t * s->ldx + i, *dy = s->dy + t * s->ld_dy + i;
            V sum = bias;
            __builtin_prefetch(row + LLM_SCAN_CHUNK * s->ldx, 0, 2);
            __builtin_prefetch(dy + LLM_SCAN_CHUNK * s->ld_dy, 0, 2);
            x[k - 1] = load(row, count);
            for (size_t j = 0; j < k; j++) sum = v_fma(w[j], x[j], sum);
            V g = v_sigmoid(sum);
            d[0] = silu ? v_mul(load(dy, count), v_mul(g, v_fma(sum, v_sub(one, g), one))) : load(dy, count);
        }
        if (t < s->tokens) {
            for (size_t j = 0; j < k; j++) d_w[j] = v_fma(d[0], x[j], d_w[j]);
            d_bias = v_add(d_bias, d[0]);
        }
        if (s->dx && t + 1 >= k) {
            float *dx = s->dx + (t + 1 - k) * s->ld_dx + i;
            V sum = s->add ? load(dx, count) : v_zero();
            for (size_t j = 0; j < k; j++) sum = v_fma(w[j], d[j], sum);
            store(dx, sum, count);
        }
    }
    for (size_t j = 0; j < k; j++) store(s->d_w + j * s->ld_dw + i, d_w[j], count);
    store(s->d_w + k * s->ld_dw + i, d_bias, count);
}

static void conv_back(const struct llm_conv_back *b)
{
    const struct llm_conv_back copy = *b;
    FOR_VECTORS(b->channels, {
        if (!copy.silu) conv_back_vector(&copy, i, count, copy.k, false);
        else if (copy.k == 4) conv_back_vector(&copy, i, count, 4, true);
        else conv_back_vector(&copy, i, count, copy.k, true);
    });
}

void KERNEL(llm_fill_scan)(struct llm_kernels *k);
void KERNEL(llm_fill_scan)(struct llm_kernels *k)
{
    k->scan = (struct llm_scan_kernels){.forward = forward, .backward = backward, .time_step = time_step, .time_step_back = time_step_back,
                                        .sum = sum, .decay = decay, .conv = conv, .conv_back = conv_back};
}
