/* Steps of recurrent cells (cpu/kernels/recurrent.h). */
#include "cpu/kernels.h"
#include "cpu/kernels/vectors.h"

static void lstm(const struct llm_lstm_step *s, size_t n)
{
    FOR_VECTORS(n, {
        V in = v_sigmoid(v_add(LOAD(s->x), LOAD(s->r)));
        V forget = v_sigmoid(v_add(LOAD(s->x + n), LOAD(s->r + n)));
        V new = v_tanh(v_add(LOAD(s->x + 2 * n), LOAD(s->r + 2 * n)));
        V out = v_sigmoid(v_add(LOAD(s->x + 3 * n), LOAD(s->r + 3 * n)));
        V c = v_fma(in, new, v_mul(forget, LOAD(s->c_before)));
        STORE(s->gates, in);
        STORE(s->gates + n, forget);
        STORE(s->gates + 2 * n, new);
        STORE(s->gates + 3 * n, out);
        STORE(s->c, c);
        STORE(s->h, v_mul(out, v_tanh(c)));
    });
}

/* d·y·(1 - y): through a sigmoid whose value is y. */
static inline V through_sigmoid(V d, V y)
{
    return v_mul(d, v_mul(y, v_sub(v_set1(1), y)));
}

static void lstm_back(const struct llm_lstm_back_step *s, size_t n)
{
    const V one = v_set1(1);
    FOR_VECTORS(n, {
        V in = LOAD(s->gates);
        V forget = LOAD(s->gates + n);
        V new = LOAD(s->gates + 2 * n);
        V out = LOAD(s->gates + 3 * n);
        V t = v_tanh(LOAD(s->c));
        V dh = v_add(LOAD(s->dy), LOAD(s->dr));
        V dc = v_fma(v_mul(dh, out), v_fnma(t, t, one), LOAD(s->dc));
        STORE(s->d_sums, through_sigmoid(v_mul(dc, new), in));
        STORE(s->d_sums + n, through_sigmoid(v_mul(dc, LOAD(s->c_before)), forget));
        STORE(s->d_sums + 2 * n, v_mul(v_mul(dc, in), v_fnma(new, new, one)));
        STORE(s->d_sums + 3 * n, through_sigmoid(v_mul(dh, t), out));
        STORE(s->dc, v_mul(dc, forget));
    });
}

static void step_tanh(float *h, const float *x, const float *r, size_t n)
{
    FOR_VECTORS(n, STORE(h, v_tanh(v_add(LOAD(x), LOAD(r)))););
}

static void step_tanh_back(float *d_sum, const float *h, const float *dy, const float *dr, size_t n)
{
    FOR_VECTORS(n, {
        V y = LOAD(h);
        STORE(d_sum, v_mul(v_add(LOAD(dy), LOAD(dr)), v_fnma(y, y, v_set1(1))));
    });
}

void KERNEL(llm_fill_recurrent)(struct llm_kernels *k);
void KERNEL(llm_fill_recurrent)(struct llm_kernels *k)
{
    k->recurrent = (struct llm_recurrent_kernels){.lstm = lstm, .lstm_back = lstm_back, .tanh = step_tanh, .tanh_back = step_tanh_back};
}
