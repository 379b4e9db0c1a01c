/* Elementwise kernels (cpu/kernels/elementwise.h). */
#include "cpu/kernels.h"
#include "cpu/kernels/vectors.h"
#include "cpu/simd/philox.h"

static void add(float *y, const float *a, const float *b, size_t n)
{
    FOR_VECTORS(n, STORE(y, v_add(LOAD(a), LOAD(b))););
}

static void axpy(float *y, float factor, const float *x, size_t n)
{
    V f = v_set1(factor);
    FOR_VECTORS(n, STORE(y, v_fma(f, LOAD(x), LOAD(y))););
}

static void scale(float *y, float factor, const float *x, size_t n)
{
    V f = v_set1(factor);
    FOR_VECTORS(n, STORE(y, v_mul(f, LOAD(x))););
}

static void to_bf16(uint16_t *y, const float *x, size_t n)
{
    FOR_VECTORS(n, if (count == VN) v_store_bf16(y + i, v_load(x + i)); else v_store_bf16_n(y + i, v_load_n(x + i, count), count););
}

static void from_bf16(float *y, const uint16_t *x, size_t n)
{
    FOR_VECTORS(n, if (count == VN) v_store(y + i, v_load_bf16(x + i)); else v_store_n(y + i, v_load_bf16_n(x + i, count), count););
}

static void from_f16(float *y, const uint16_t *x, size_t n)
{
    FOR_VECTORS(n, if (count == VN) v_store(y + i, v_load_f16(x + i)); else v_store_n(y + i, v_load_f16_n(x + i, count), count););
}

/* An activation's value and slope at once: most of the work is common. The compiler drops what a caller does not use. */
struct both { V value, slope; };

static inline struct both both_gelu(V x)
{
    V half = v_set1(0.5f);
    V phi = v_fma(half, v_erf(v_mul(x, v_set1(0.70710678f))), half); /* Φ(x) */
    V density = v_mul(v_set1(0.39894228f), v_exp(v_mul(v_mul(x, x), v_set1(-0.5f))));
    return (struct both){v_mul(x, phi), v_fma(x, density, phi)};
}

/* 0.5·x·(1 + tanh(u)) = x·sigmoid(2u), u = sqrt(2/π)·(x + 0.044715·x³) */
static inline struct both both_gelu_tanh(V x)
{
    V one = v_set1(1), square = v_mul(x, x);
    V u2 = v_mul(v_mul(x, v_set1(1.5957691f)), v_fma(v_set1(0.044715f), square, one));
    V s = v_sigmoid(u2);
    V du2 = v_mul(v_set1(1.5957691f), v_fma(v_set1(0.134145f), square, one));
    return (struct both){v_mul(x, s), v_fma(v_mul(x, du2), v_mul(s, v_sub(one, s)), s)};
}

static inline struct both both_relu(V x)
{
    M positive = v_lt(v_zero(), x);
    /* A NaN stays one. */
    return (struct both){v_select(v_le(x, v_zero()), v_zero(), x), v_select(positive, v_set1(1), v_zero())};
}

static inline struct both both_relu2(V x)
{
    V kept = v_select(v_le(x, v_zero()), v_zero(), x);
    return (struct both){v_mul(kept, kept), v_add(kept, kept)};
}

static inline struct both both_silu(V x)
{
    V one = v_set1(1), s = v_sigmoid(x);
    return (struct both){v_mul(x, s), v_mul(s, v_fma(x, v_sub(one, s), one))};
}

static inline struct both both_quick_gelu(V x)
{
    V one = v_set1(1), u = v_mul(x, v_set1(1.702f)), s = v_sigmoid(u);
    return (struct both){v_mul(x, s), v_mul(s, v_fma(u, v_sub(one, s), one))};
}

static inline struct both both_sigmoid(V x)
{
    V s = v_sigmoid(x);
    return (struct both){s, v_mul(s, v_sub(v_set1(1), s))};
}

static inline struct both both_tanh(V x)
{
    V t = v_tanh(x);
    return (struct both){t, v_fnma(t, t, v_set1(1))};
}

static inline struct both both_linear(V x) { return (struct both){x, v_set1(1)}; }

#define ACTIVATION(name)                                                                                                   \
    static void act_##name(float *y, const float *x, size_t n)                                                             \
    {                                                                                                                      \
        FOR_VECTORS(n, STORE(y, both_##name(LOAD(x)).value););                                                             \
    }                                                                                                                      \
    static void act_back_##name(float *dx, const float *x, const float *dy, bool add_dx, size_t n)                         \
    {                                                                                                                      \
        if (add_dx) FOR_VECTORS(n, STORE(dx, v_fma(LOAD(dy), both_##name(LOAD(x)).slope, LOAD(dx))););                     \
        else FOR_VECTORS(n, STORE(dx, v_mul(LOAD(dy), both_##name(LOAD(x)).slope)););                                      \
    }                                                                                                                      \
    static void gated_##name(float *y, const float *gate, const float *up, size_t n)                                       \
    {                                                                                                                      \
        FOR_VECTORS(n, STORE(y, v_mul(both_##name(LOAD(gate)).value, LOAD(up))););                                         \
    }                                                                                                                      \
    static void gated_back_##name(float *d_gate, float *d_up, const float *gate, const float *up, const float *dy,         \
                                  bool add_gate, bool add_up, size_t n)                                                    \
    {                                                                                                                      \
        FOR_VECTORS(n, {                                                                                                   \
            V d = LOAD(dy);                                                                                                \
            V u = LOAD(up);                                                                                                \
            struct both a = both_##name(LOAD(gate));                                                                       \
            V to_gate = v_mul(v_mul(d, u), a.slope);                                                                       \
            V to_up = v_mul(d, a.value);                                                                                   \
            if (add_gate) to_gate = v_add(LOAD(d_gate), to_gate);                                                          \
            if (add_up) to_up = v_add(LOAD(d_up), to_up);                                                                  \
            if (d_gate) STORE(d_gate, to_gate);                                                                            \
            if (d_up) STORE(d_up, to_up);                                                                                  \
        });                                                                                                                \
    }
ACTIVATION(gelu)
ACTIVATION(gelu_tanh)
ACTIVATION(relu)
ACTIVATION(silu)
ACTIVATION(sigmoid)
ACTIVATION(tanh)
ACTIVATION(relu2)
ACTIVATION(quick_gelu)
ACTIVATION(linear)

static void dropout(float *y, const float *x, const uint32_t key[2], const uint32_t counter[3], uint32_t drop, float factor, bool add_y, size_t n)
{
    uint32_t draws[LLM_PHILOX_DRAWS];
    for (size_t at = 0; at < n; at += LLM_PHILOX_DRAWS) {
        size_t run = n - at < LLM_PHILOX_DRAWS ? n - at : LLM_PHILOX_DRAWS;
        llm_philox_draws(draws, (uint32_t)(at / 4), key, counter);
        for (size_t j = 0; j < run; j++) {
            float kept = draws[j] < drop ? 0 : x[at + j] * factor;
            y[at + j] = add_y ? y[at + j] + kept : kept;
        }
    }
}

static void rope_halves(float *y, const float *x, const float *cos, const float *sin, bool add_y, size_t half)
{
    FOR_VECTORS(half, {
        V a = LOAD(x);
        V b = LOAD(x + half);
        V c = LOAD(cos);
        V s = LOAD(sin);
        V first = v_fnma(b, s, v_mul(a, c));
        V second = v_fma(a, s, v_mul(b, c));
        if (add_y) {
            first = v_add(first, LOAD(y));
            second = v_add(second, LOAD(y + half));
        }
        STORE(y, first);
        STORE(y + half, second);
    });
}

static void rope_interleaved(float *y, const float *x, const float *cos, const float *sin, bool add_y, size_t half)
{
    for (size_t i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        float first = a * cos[i] - b * sin[i], second = b * cos[i] + a * sin[i];
        y[2 * i] = add_y ? y[2 * i] + first : first;
        y[2 * i + 1] = add_y ? y[2 * i + 1] + second : second;
    }
}

#define BY_ACT(prefix)                                                                                                     \
    {[LLM_ACT_GELU] = prefix##gelu, [LLM_ACT_GELU_TANH] = prefix##gelu_tanh, [LLM_ACT_RELU] = prefix##relu,                \
     [LLM_ACT_SILU] = prefix##silu, [LLM_ACT_SIGMOID] = prefix##sigmoid, [LLM_ACT_TANH] = prefix##tanh,                    \
     [LLM_ACT_RELU2] = prefix##relu2, [LLM_ACT_QUICK_GELU] = prefix##quick_gelu, [LLM_ACT_LINEAR] = prefix##linear}

void KERNEL(llm_fill_elementwise)(struct llm_kernels *k);
void KERNEL(llm_fill_elementwise)(struct llm_kernels *k)
{
    k->elementwise = (struct llm_elementwise_kernels){
        .add = add, .axpy = axpy, .scale = scale, .to_bf16 = to_bf16, .from_bf16 = from_bf16, .from_f16 = from_f16,
        .act = BY_ACT(act_), .act_back = BY_ACT(act_back_), .gated = BY_ACT(gated_), .gated_back = BY_ACT(gated_back_),
        .dropout = dropout, .rope_halves = rope_halves, .rope_interleaved = rope_interleaved};
}
