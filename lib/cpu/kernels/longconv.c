/* Long convolutions (cpu/kernels/longconv.h): Fourier transforms in double, LLM_FFT_CHANNELS real channels abreast. */
#include "cpu/kernels/longconv.h"
#include "cpu/kernels.h"
#include "cpu/kernels/sine.h"
#include "cpu/kernels/vectors.h"

/* The first half of the channels are the real parts of complex series, the second half their imaginary parts. */
enum { HALF = LLM_FFT_CHANNELS / 2 };
#ifdef LLM_ISA_avx512
enum { WIDE = 8 };
#elif defined LLM_ISA_avx2
enum { WIDE = 4 };
#else
enum { WIDE = 2 };
#endif
typedef double D __attribute__((vector_size(WIDE * sizeof(double))));
struct complex { D re, im; };

static inline struct complex load(const double *x, size_t i, size_t lane)
{
    const double *p = x + i * LLM_FFT_CHANNELS + lane;
    return (struct complex){*(const D *)p, *(const D *)(p + HALF)};
}

static inline void store(double *x, size_t i, size_t lane, struct complex z)
{
    double *p = x + i * LLM_FFT_CHANNELS + lane;
    *(D *)p = z.re;
    *(D *)(p + HALF) = z.im;
}

static inline struct complex add(struct complex a, struct complex b) { return (struct complex){a.re + b.re, a.im + b.im}; }
static inline struct complex sub(struct complex a, struct complex b) { return (struct complex){a.re - b.re, a.im - b.im}; }
static inline struct complex sub_i(struct complex a, struct complex b) { return (struct complex){a.re + b.im, a.im - b.re}; } /* a - ib */
static inline struct complex add_i(struct complex a, struct complex b) { return (struct complex){a.re - b.im, a.im + b.re}; } /* a + ib */
static inline struct complex turn(struct complex a, double c, double s) { return (struct complex){a.re * c - a.im * s, a.re * s + a.im * c}; }

/* Decimation in frequency, two levels at a time: the output is in the order of reversed bits. */
static void forward(double *x, size_t n, int log, const double *const *factors)
{
    if (log == 0) return;
    if (log == 1) {
        for (size_t lane = 0; lane < HALF; lane += WIDE) {
            struct complex a = load(x, 0, lane), b = load(x, 1, lane);
            store(x, 0, lane, add(a, b));
            store(x, 1, lane, sub(a, b));
        }
        return;
    }
    const size_t q = n / 4;
    const double *f = factors[log];
    for (size_t j = 0; j < q; j++, f += 6) {
        for (size_t lane = 0; lane < HALF; lane += WIDE) {
            struct complex a = load(x, j, lane), b = load(x, j + q, lane), c = load(x, j + 2 * q, lane), d = load(x, j + 3 * q, lane);
            struct complex even = add(a, c), odd = add(b, d), first = sub(a, c), second = sub(b, d);
            store(x, j, lane, add(even, odd));
            store(x, j + q, lane, turn(sub(even, odd), f[2], f[3]));
            store(x, j + 2 * q, lane, turn(sub_i(first, second), f[0], f[1]));
            store(x, j + 3 * q, lane, turn(add_i(first, second), f[4], f[5]));
        }
    }
    for (size_t i = 0; i < 4 && log > 2; i++) forward(x + i * q * LLM_FFT_CHANNELS, q, log - 2, factors);
}

/* The inverse of `forward`, times n: decimation in time, from the order of reversed bits. */
static void backward(double *x, size_t n, int log, const double *const *factors)
{
    if (log < 2) {
        forward(x, n, log, factors);
        return;
    }
    const size_t q = n / 4;
    const double *f = factors[log];
    for (size_t i = 0; i < 4 && log > 2; i++) backward(x + i * q * LLM_FFT_CHANNELS, q, log - 2, factors);
    for (size_t j = 0; j < q; j++, f += 6) {
        for (size_t lane = 0; lane < HALF; lane += WIDE) {
            struct complex a = load(x, j, lane), b = turn(load(x, j + q, lane), f[2], -f[3]);
            struct complex c = turn(load(x, j + 2 * q, lane), f[0], -f[1]), d = turn(load(x, j + 3 * q, lane), f[4], -f[5]);
            struct complex even = add(a, b), odd = sub(a, b), first = add(c, d), second = sub(c, d);
            store(x, j, lane, add(even, first));
            store(x, j + 2 * q, lane, sub(even, first));
            store(x, j + q, lane, add_i(odd, second));
            store(x, j + 3 * q, lane, sub_i(odd, second));
        }
    }
}

/* In the order of reversed bits the frequencies f and -f stand at p and 3·2^k - 1 - p, where 2^k ≤ p < 2^(k+1). Each such pair of numbers of the
 * complex series a + ib becomes the numbers of a and of b at frequency f. At 0 and 1 (f = 0, f = n/2) both are real already. */
static void spectrum(double *x, size_t n, const double *const *factors)
{
    forward(x, n, __builtin_ctzll(n), factors);
    for (size_t k = 2; k < n; k *= 2) {
        for (size_t p = k, other = 2 * k - 1; p < other; p++, other--) {
            for (size_t lane = 0; lane < HALF; lane += WIDE) {
                struct complex here = load(x, p, lane), there = load(x, other, lane);
                store(x, p, lane, (struct complex){(here.re + there.re) * .5, (here.im - there.im) * .5});
                store(x, other, lane, (struct complex){(here.im + there.im) * .5, (there.re - here.re) * .5});
            }
        }
    }
}

static void series(double *x, size_t n, const double *const *factors)
{
    for (size_t k = 2; k < n; k *= 2) {
        for (size_t p = k, other = 2 * k - 1; p < other; p++, other--) {
            for (size_t lane = 0; lane < HALF; lane += WIDE) {
                struct complex a = load(x, p, lane), b = load(x, other, lane);
                store(x, p, lane, (struct complex){a.re - b.im, a.im + b.re});
                store(x, other, lane, (struct complex){a.re + b.im, b.re - a.im});
            }
        }
    }
    backward(x, n, __builtin_ctzll(n), factors);
}

static void product(double *y, const double *a, const double *b, bool conjugate, size_t n)
{
    const double sign = conjugate ? -1 : 1;
    for (size_t p = 0; p < n; p++) {
        for (size_t lane = 0; lane < HALF; lane += WIDE) {
            struct complex u = load(a, p, lane), v = load(b, p, lane);
            D im = v.im * sign;
            struct complex both = {u.re * v.re - u.im * im, u.re * im + u.im * v.re}, apart = {u.re * v.re, u.im * v.im};
            store(y, p, lane, p < 2 ? apart : both);
        }
    }
}

static void step(const struct llm_conv_step *s)
{
    for (size_t j = 0; j < s->past + s->tokens; j++) {
        for (size_t i = j > s->past ? j - s->past : 0; i < s->tokens; i++) {
            const float *u = s->u + j * s->ldu, *k = s->k + (s->past + i - j) * s->ldk;
            double *y = s->y + i * s->channels;
            for (size_t c = 0; c < s->channels; c++) y[c] += (double)u[c] * (double)k[c];
        }
    }
}

/* ---- implicit filters ---- */

/* sin(x) = ±sin(x - mπ), by its series up to the 17th power, which is exact to 1e-13 within a half turn. */
static inline double sine_of(double x)
{
    const double magic = 0x1.8p52; /* adding it rounds to an integer */
    double m = (x * 0.3183098861837907 + magic) - magic, odd = m - 2 * ((m * .5 + magic) - magic);
    return llm_sine_series((x - m * 0x1.921fb54442d18p1) - m * 0x1.1a62633145c07p-53) * (1 - 2 * odd * odd);
}

static inline double cosine_of(double x) { return sine_of(x + 1.5707963267948966); }

static void sine(float *y, const float *freq, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] = (float)sine_of((double)freq[i] * (double)x[i]);
}

static void sine_back(float *dx, float *d_freq, const float *freq, const float *x, const float *dy, bool add, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double slope = (double)dy[i] * cosine_of((double)freq[i] * (double)x[i]), to_x = slope * (double)freq[i];
        if (d_freq) d_freq[i] += (float)(slope * (double)x[i]);
        if (dx) dx[i] = (float)(add ? (double)dx[i] + to_x : to_x);
    }
}

static void window(float *y, const float *x, const float *decay, float time, float shift, bool add, size_t n)
{
    FOR_VECTORS(n, {
        V factor = v_add(v_exp(v_neg(v_mul(v_set1(time), v_abs(LOAD(decay))))), v_set1(shift));
        STORE(y, add ? v_fma(LOAD(x), factor, LOAD(y)) : v_mul(LOAD(x), factor));
    });
}

void KERNEL(llm_fill_longconv)(struct llm_kernels *k)
{
    k->longconv = (struct llm_longconv_kernels){.spectrum = spectrum, .series = series, .product = product, .step = step, .sine = sine,
                                                .sine_back = sine_back, .window = window};
}
