/* Selective scans and their convolutions (cpu/kernels/scan.h): VN channels abreast, states one after another. */
#include "cpu/kernels.h"
#include "cpu/simd.h"

#define FOR_VECTORS(n, body)                                   \
    do {                                                       \
        size_t i = 0;                                          \
        for (; i + VN <= (n); i += VN) { const size_t count = VN; body } \
        if (i < (n)) { const size_t count = (n) - i; body }    \
    } while (0)
#define LOAD(p) (count == VN ? v_load((p) + i) : v_load_n((p) + i, count))
#define STORE(p, x) do { if (count == VN) v_store((p) + i, x); else v_store_n((p) + i, x, count); } while (0)
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

static void decay(float *a, const float *a_log, size_t n)
{
    FOR_VECTORS(n, STORE(a, v_neg(v_exp(LOAD(a_log)))););
}

/* A known number of states lets the compiler keep them in registers. */
INLINE void forward_states(const struct llm_scan_run *r, size_t states, bool one)
{
    FOR_VECTORS(r->channels, {
        V h[LLM_SCAN_STATES];
        V a[LLM_SCAN_STATES];
        const V skip = LOAD(r->skip);
        for (size_t n = 0; n < states; n++) h[n] = LOAD(r->h + n * r->ldh);
        for (size_t n = 0; n < (one ? 1 : states); n++) a[n] = LOAD(r->a + n * r->lda);
        for (size_t t = 0; t < r->tokens; t++) {
            const float *b = r->b + t * r->ldb;
            const float *c = r->c + t * r->ldc;
            V x = LOAD(r->x + t * r->ldx);
            V dt = LOAD(r->dt + t * r->ldt);
            V in = v_mul(dt, x);
            V y = v_mul(skip, x);
            V e = v_zero();
            if (one) e = v_exp(v_mul(dt, a[0]));
            for (size_t n = 0; n < states; n++) {
                if (!one) e = v_exp(v_mul(dt, a[n]));
                h[n] = v_fma(e, h[n], v_mul(in, v_set1(b[n])));
                y = v_fma(h[n], v_set1(c[n]), y);
            }
            STORE(r->y + t * r->ldy, y);
        }
        for (size_t n = 0; n < states; n++) STORE(r->h + n * r->ldh, h[n]);
    });
}

static void forward(const struct llm_scan_run *r)
{
    if (r->one_decay) forward_states(r, r->states, true);
    else if (r->states == 16) forward_states(r, 16, false);
    else forward_states(r, r->states, false);
}

/* Scratch: states before and behind each token [tokens + 1][states], decays [tokens][states], sums of b's and c's gradients [tokens][2·states],
 * all of vectors, which the scalar build has of one element. */
INLINE void backward_vector(const struct llm_scan_back *s, size_t i, size_t count, size_t states, bool one)
{
    const struct llm_scan_run *r = &s->run;
    const size_t decays = one ? 1 : states;
    float *hs = s->scratch, *es = hs + (LLM_SCAN_CHUNK + 1) * states * VN, *sums = es + LLM_SCAN_CHUNK * states * VN;
    const V skip = LOAD(r->skip);
    V d_skip = LOAD(s->d_skip), g[LLM_SCAN_STATES], da[LLM_SCAN_STATES];
    for (size_t n = 0; n < states; n++) v_store(hs + n * VN, LOAD(r->h + n * r->ldh));
    for (size_t t = 0; t < r->tokens; t++) {
        const float *b = r->b + t * r->ldb, *before = hs + t * states * VN;
        V dt = LOAD(r->dt + t * r->ldt), in = v_mul(dt, LOAD(r->x + t * r->ldx)), e = v_zero();
        for (size_t n = 0; n < states; n++) {
            if (!one || n == 0) {
                e = v_exp(v_mul(dt, LOAD(r->a + n * r->lda)));
                v_store(es + (t * decays + n) * VN, e);
            }
            v_store(hs + ((t + 1) * states + n) * VN, v_fma(e, v_load(before + n * VN), v_mul(in, v_set1(b[n]))));
        }
    }
    for (size_t n = 0; n < states; n++) g[n] = LOAD(s->g + n * r->channels);
    for (size_t n = 0; n < decays; n++) da[n] = v_zero();
    for (size_t t = r->tokens; t-- > 0;) {
        const float *b = r->b + t * r->ldb, *c = r->c + t * r->ldc, *before = hs + t * states * VN, *behind = before + states * VN;
        float *to_b = sums + t * 2 * states * VN, *to_c = to_b + states * VN;
        V x = LOAD(r->x + t * r->ldx), dt = LOAD(r->dt + t * r->ldt), dy = LOAD(s->dy + t * s->ld_dy), in = v_mul(dt, x);
        V d_in = v_zero(), ddt = v_zero(), e = v_zero(), d_log = v_zero();
        for (size_t n = 0; n < states; n++) {
            if (!one || n == 0) e = v_load(es + (t * decays + n) * VN);
            V gn = v_fma(dy, v_set1(c[n]), g[n]);
            v_store(to_c + n * VN, v_fma(dy, v_load(behind + n * VN), v_load(to_c + n * VN)));
            v_store(to_b + n * VN, v_fma(gn, in, v_load(to_b + n * VN)));
            d_in = v_fma(gn, v_set1(b[n]), d_in);
            g[n] = v_mul(gn, e);
            V through = v_mul(g[n], v_load(before + n * VN)); /* of dt·a */
            if (one) {
                d_log = v_add(d_log, through);
            } else {
                da[n] = v_fma(through, dt, da[n]);
                ddt = v_fma(through, LOAD(r->a + n * r->lda), ddt);
            }
        }
        if (one) {
            da[0] = v_fma(d_log, dt, da[0]);
            ddt = v_mul(d_log, LOAD(r->a));
        }
        d_skip = v_fma(dy, x, d_skip);
        STORE(s->dx + t * s->ld_dx, v_fma(d_in, dt, v_mul(dy, skip)));
        STORE(s->ddt + t * s->ld_ddt, v_fma(d_in, x, ddt));
    }
    for (size_t n = 0; n < states; n++) STORE(s->g + n * r->channels, g[n]);
    for (size_t n = 0; n < decays; n++) STORE(s->da + n * r->channels, v_add(LOAD(s->da + n * r->channels), da[n]));
    STORE(s->d_skip, d_skip);
}

static void backward(const struct llm_scan_back *s)
{
    const struct llm_scan_run *r = &s->run;
    const size_t states = r->states, all = r->tokens * 2 * states;
    float *sums = s->scratch + (2 * LLM_SCAN_CHUNK + 1) * states * VN;
    memset(sums, 0, all * VN * sizeof *sums);
    FOR_VECTORS(r->channels, {
        if (r->one_decay) backward_vector(s, i, count, states, true);
        else if (states == 16) backward_vector(s, i, count, 16, false);
        else backward_vector(s, i, count, states, false);
    });
    for (size_t j = 0; j < all; j++) s->d_bc[j] = v_sum(v_load(sums + j * VN));
}

static inline V conv_sum(const float *const *taps, const float *w, size_t ldw, const float *bias, size_t k, size_t i, size_t count)
{
    V sum = bias ? LOAD(bias) : v_zero();
    for (size_t j = 0; j < k; j++) sum = v_fma(LOAD(w + j * ldw), LOAD(taps[j]), sum);
    return sum;
}

static void conv(float *y, const float *const *taps, const float *w, size_t ldw, const float *bias, size_t k, size_t n)
{
    FOR_VECTORS(n, {
        V sum = conv_sum(taps, w, ldw, bias, k, i, count);
        STORE(y, v_mul(sum, v_sigmoid(sum)));
    });
}

static void conv_back(float *d_sum, const float *dy, const float *const *taps, const float *w, size_t ldw, const float *bias, size_t k, size_t n)
{
    const V one = v_set1(1);
    FOR_VECTORS(n, {
        V sum = conv_sum(taps, w, ldw, bias, k, i, count);
        V s = v_sigmoid(sum);
        STORE(d_sum, v_mul(LOAD(dy), v_mul(s, v_fma(sum, v_sub(one, s), one))));
    });
}

static void mul_add(float *y, const float *a, const float *b, size_t n)
{
    FOR_VECTORS(n, STORE(y, v_fma(LOAD(a), LOAD(b), LOAD(y))););
}

void KERNEL(llm_fill_scan)(struct llm_kernels *k);
void KERNEL(llm_fill_scan)(struct llm_kernels *k)
{
    k->scan = (struct llm_scan_kernels){.forward = forward, .backward = backward, .time_step = time_step, .time_step_back = time_step_back,
                                        .decay = decay, .conv = conv, .conv_back = conv_back, .mul_add = mul_add};
}
