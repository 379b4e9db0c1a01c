/* Optimizer updates (cpu/kernels/optim.h). Each method is a function of one vector; the pass over memory is written once. */
#include <math.h>
#include "cpu/kernels.h"
#include "cpu/simd.h"

/* What one vector of elements needs; m and v are zero where there is no moment. */
struct state { V w, g, m, v; };

/* Numbers common to all elements are computed in double, then rounded once. */
static inline V v_of(double x) { return v_set1((float)x); }

static inline void adamw_step(struct state *s, const struct llm_optim_step *o)
{
    s->m = v_fma(v_of(o->beta1), s->m, v_mul(v_of(1 - o->beta1), s->g));
    s->v = v_fma(v_of(o->beta2), s->v, v_mul(v_of(1 - o->beta2), v_mul(s->g, s->g)));
    V root = v_add(v_mul(v_sqrt(s->v), v_of(1 / sqrt(o->correction2))), v_of(o->eps));
    V kept = v_mul(s->w, v_of(1 - o->lr * o->weight_decay));
    s->w = v_fnma(v_of(o->lr / o->correction1), v_div(s->m, root), kept);
}

static inline void adam_step(struct state *s, const struct llm_optim_step *o)
{
    struct llm_optim_step plain = *o;
    plain.weight_decay = 0;
    s->g = v_fma(v_of(o->weight_decay), s->w, s->g);
    adamw_step(s, &plain);
}

static inline void sgd_step(struct state *s, const struct llm_optim_step *o)
{
    s->g = v_fma(v_of(o->weight_decay), s->w, s->g);
    s->w = v_fnma(v_of(o->lr), s->g, s->w);
}

static inline void momentum_step(struct state *s, const struct llm_optim_step *o)
{
    V momentum = v_of(o->momentum);
    s->g = v_fma(v_of(o->weight_decay), s->w, s->g);
    s->m = v_fma(momentum, s->m, s->g);
    s->w = v_fnma(v_of(o->lr), o->nesterov ? v_fma(momentum, s->m, s->g) : s->m, s->w);
}

static inline void adagrad_step(struct state *s, const struct llm_optim_step *o)
{
    s->g = v_fma(v_of(o->weight_decay), s->w, s->g);
    s->v = v_fma(s->g, s->g, s->v);
    s->w = v_fnma(v_of(o->lr), v_div(s->g, v_add(v_sqrt(s->v), v_of(o->eps))), s->w);
}

static inline void lion_step(struct state *s, const struct llm_optim_step *o)
{
    V way = v_fma(v_of(o->beta1), s->m, v_mul(v_of(1 - o->beta1), s->g));
    V sign = v_select(v_eq(way, v_zero()), v_zero(), v_copysign(v_set1(1), way));
    s->w = v_fnma(v_of(o->lr), sign, v_mul(s->w, v_of(1 - o->lr * o->weight_decay)));
    s->m = v_fma(v_of(o->beta2), s->m, v_mul(v_of(1 - o->beta2), s->g));
}

static inline void decoupled_step(struct state *s, const struct llm_optim_step *o)
{
    s->w = v_fnma(v_of(o->lr), s->g, v_mul(s->w, v_of(1 - o->lr * o->weight_decay)));
}

static inline V load(const float *p, size_t count) { return count == VN ? v_load(p) : v_load_n(p, count); }
static inline void store(float *p, V x, size_t count)
{
    if (count == VN) v_store(p, x);
    else v_store_n(p, x, count);
}

/* Defines the pass `name` with `step`, with moments m and v or without. */
#define PASS(name, step, has_m, has_v)                                                             \
    static void name(const struct llm_optim_span *a, const struct llm_optim_step *o)               \
    {                                                                                              \
        V clip = v_of(o->clip);                                                                  \
        for (size_t i = 0; i < a->n; i += VN) {                                                    \
            size_t count = a->n - i < VN ? a->n - i : VN;                                          \
            struct state s = {.w = load(a->master + i, count), .g = v_mul(clip, load(a->grad + i, count)), \
                              .m = has_m ? load(a->m + i, count) : v_zero(), .v = has_v ? load(a->v + i, count) : v_zero()}; \
            step(&s, o);                                                                           \
            store(a->master + i, s.w, count);                                                      \
            if (has_m) store(a->m + i, s.m, count);                                                \
            if (has_v) store(a->v + i, s.v, count);                                                \
            if (o->clear) store(a->grad + i, v_zero(), count);                                     \
        }                                                                                          \
    }
PASS(adamw, adamw_step, 1, 1)
PASS(adam, adam_step, 1, 1)
PASS(sgd_plain, sgd_step, 0, 0)
PASS(sgd_momentum, momentum_step, 1, 0)
PASS(adagrad, adagrad_step, 0, 1)

PASS(lion, lion_step, 1, 0)
PASS(decoupled, decoupled_step, 0, 0)

static void blend(const struct llm_optim_span *a, const struct llm_optim_step *o)
{
    V old = v_of(o->momentum), fresh = v_of((1 - o->momentum) * o->clip);
    for (size_t i = 0; i < a->n; i += VN) {
        size_t count = a->n - i < VN ? a->n - i : VN;
        V g = v_mul(fresh, load(a->grad + i, count)), m = v_fma(old, load(a->m + i, count), g);
        store(a->m + i, m, count);
        store(a->grad + i, o->nesterov ? v_fma(old, m, g) : m, count);
    }
}

static void combine(float *y, const float *x, float a, float b, size_t n)
{
    for (size_t i = 0; i < n; i += VN) {
        size_t count = n - i < VN ? n - i : VN;
        store(y + i, v_fma(v_set1(a), load(y + i, count), v_mul(v_set1(b), load(x + i, count))), count);
    }
}

static void sgd(const struct llm_optim_span *a, const struct llm_optim_step *o)
{
    if (a->m) sgd_momentum(a, o);
    else sgd_plain(a, o);
}

static double sum_squares(const float *x, size_t n)
{
    enum { RUN = 1024 };
    double total = 0;
    for (size_t at = 0; at < n; at += RUN) {
        size_t run = n - at < RUN ? n - at : RUN;
        size_t i = at, end = at + run;
        V chain[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
        for (; i + 4 * VN <= end; i += 4 * VN) {
            for (size_t j = 0; j < 4; j++) {
                V t = v_load(x + i + j * VN);
                chain[j] = v_fma(t, t, chain[j]);
            }
        }
        for (; i < end; i += VN) {
            V t = load(x + i, end - i < VN ? end - i : VN);
            chain[0] = v_fma(t, t, chain[0]);
        }
        total += (double)v_sum(v_add(v_add(chain[0], chain[1]), v_add(chain[2], chain[3])));
    }
    return total;
}

void KERNEL(llm_fill_optim)(struct llm_kernels *k);
void KERNEL(llm_fill_optim)(struct llm_kernels *k)
{
    k->optim = (struct llm_optim_kernels){.adamw = adamw, .adam = adam, .sgd = sgd, .adagrad = adagrad, .lion = lion, .blend = blend,
                                          .decoupled = decoupled, .combine = combine, .sum_squares = sum_squares};
}
