/* The recurrences of RWKV (cpu/kernels/wkv.h). */
#include "cpu/kernels.h"
#include "cpu/kernels/vectors.h"

static inline __attribute__((always_inline)) V load(const float *p, size_t count) { return count == VN ? v_load(p) : v_load_n(p, count); }
static inline __attribute__((always_inline)) void store(float *p, V x, size_t count)
{
    if (count == VN) v_store(p, x);
    else v_store_n(p, x, count);
}

/* The state of RWKV 4, and the factors by which a token enters its output and the state. */
struct state4 { V a, b, max; };
struct factors4 { V old_out, new_out, old_state, new_state, max; };

/* A denominator is 0 only before the first token, afterwards at least 1. Its maximum is then below all keys. */
static inline struct state4 load4(const struct llm_wkv4_run *r, size_t i, size_t count)
{
    struct state4 s = {load(r->state + i, count), load(r->state + r->ld_state + i, count), load(r->state + 2 * r->ld_state + i, count)};
    s.max = v_select(v_eq(s.b, v_zero()), v_set1(-1e38f), s.max);
    return s;
}

static inline struct factors4 factors4(V max, V k, V w, V u)
{
    V here = v_add(k, u), out = v_max(max, here), old = v_add(max, w), next = v_max(old, k);
    return (struct factors4){v_exp(v_sub(max, out)), v_exp(v_sub(here, out)), v_exp(v_sub(old, next)), v_exp(v_sub(k, next)), next};
}

static inline void step4(struct state4 *s, const struct factors4 *f, V v)
{
    s->a = v_fma(f->old_state, s->a, v_mul(f->new_state, v));
    s->b = v_fma(f->old_state, s->b, f->new_state);
    s->max = f->max;
}

static void forward4(const struct llm_wkv4_run *r)
{
    FOR_VECTORS(r->channels, {
        struct state4 s = load4(r, i, count);
        V w = LOAD(r->w);
        V u = LOAD(r->u);
        for (size_t t = 0; t < r->tokens; t++) {
            V v = LOAD(r->v + t * r->ldv);
            struct factors4 f = factors4(s.max, LOAD(r->k + t * r->ldk), w, u);
            V top = v_fma(f.old_out, s.a, v_mul(f.new_out, v));
            STORE(r->y + t * r->ldy, v_div(top, v_fma(f.old_out, s.b, f.new_out)));
            step4(&s, &f, v);
        }
        STORE(r->state, s.a);
        STORE(r->state + r->ld_state, s.b);
        STORE(r->state + 2 * r->ld_state, s.max);
    });
}

/* The maxima only keep numbers small: outputs do not depend on them, so they are constants here. */
static void backward4_vector(const struct llm_wkv4_back *q, size_t i, size_t count)
{
    const struct llm_wkv4_run *r = &q->run;
    struct state4 before[LLM_WKV_CHUNK + 1];
    V w = LOAD(r->w), u = LOAD(r->u), ga = LOAD(q->g), gb = LOAD(q->g + r->channels), dw = LOAD(q->dw), du = LOAD(q->du);
    before[0] = load4(r, i, count);
    for (size_t t = 0; t < r->tokens; t++) {
        struct factors4 f = factors4(before[t].max, LOAD(r->k + t * r->ldk), w, u);
        before[t + 1] = before[t];
        step4(&before[t + 1], &f, LOAD(r->v + t * r->ldv));
    }
    for (size_t t = r->tokens; t-- > 0;) {
        const struct state4 *s = &before[t];
        V v = LOAD(r->v + t * r->ldv);
        struct factors4 f = factors4(s->max, LOAD(r->k + t * r->ldk), w, u);
        V bottom = v_fma(f.old_out, s->b, f.new_out), y = v_div(v_fma(f.old_out, s->a, v_mul(f.new_out, v)), bottom);
        V d_top = v_div(LOAD(q->dy + t * q->ld_dy), bottom), d_bottom = v_neg(v_mul(d_top, y));
        V d_here = v_mul(f.new_out, v_fma(v, d_top, d_bottom));
        dw = v_fma(f.old_state, v_fma(s->a, ga, v_mul(s->b, gb)), dw);
        du = v_add(du, d_here);
        STORE(q->dk + t * q->ld_dk, v_fma(f.new_state, v_fma(v, ga, gb), d_here));
        STORE(q->dv + t * q->ld_dv, v_fma(f.new_out, d_top, v_mul(f.new_state, ga)));
        ga = v_fma(f.old_out, d_top, v_mul(f.old_state, ga));
        gb = v_fma(f.old_out, d_bottom, v_mul(f.old_state, gb));
    }
    STORE(q->g, ga);
    STORE(q->g + r->channels, gb);
    STORE(q->dw, dw);
    STORE(q->du, du);
}

static void backward4(const struct llm_wkv4_back *b)
{
    FOR_VECTORS(b->run.channels, backward4_vector(b, i, count););
}

/* One token: updates columns [j, j + count) of the state and returns its output there. x: the previous state, which may be `state` itself. */
static inline __attribute__((always_inline)) V step(const struct llm_wkv_run *q, size_t t, size_t j, size_t count, const float *x, float *state)
{
    const float *r = q->r + t * q->ldr, *k = q->k + t * q->ldk, *w = q->w + t * q->ldw, *a = q->a + t * q->lda, *b = q->b + t * q->ldb;
    const size_t n = q->size;
    V v = load(q->v + t * q->ldv + j, count), y = v_zero(), seen = v_zero();
    for (size_t i = 0; q->a && i < n; i++) seen = v_fma(v_set1(a[i]), load(x + i * n + j, count), seen);
    for (size_t i = 0; i < n; i++) {
        V s = load(x + i * n + j, count), in = v_mul(v_set1(k[i]), v);
        if (!q->a) y = v_fma(v_set1(r[i]), v_fma(v_set1(q->u[i]), in, s), y);
        else in = v_fma(v_set1(b[i]), seen, in);
        s = v_fma(v_set1(w[i]), s, in);
        if (q->a) y = v_fma(v_set1(r[i]), s, y);
        store(state + i * n + j, s, count);
    }
    return y;
}

static void forward(const struct llm_wkv_run *r)
{
    const struct llm_wkv_run copy = *r;
    FOR_VECTORS(copy.size, {
        for (size_t t = 0; t < copy.tokens; t++) STORE(copy.y + t * copy.ldy, step(&copy, t, i, count, copy.state, copy.state));
    });
}

/* One token of versions 5 and 6: S the state before it, g the gradient of the state after it, which becomes that of S. */
static inline __attribute__((always_inline)) void back_5(const struct llm_wkv_back *q, size_t t, const float *S)
{
    const struct llm_wkv_run *x = &q->run;
    const float *r = x->r + t * x->ldr, *k = x->k + t * x->ldk, *v = x->v + t * x->ldv, *w = x->w + t * x->ldw, *dy = q->dy + t * q->ld_dy;
    float *dv = q->dv + t * q->ld;
    const size_t n = x->size;
    V both = v_zero(), bonus = v_zero();
    FOR_VECTORS(n, both = v_fma(LOAD(v), LOAD(dy), both););
    for (size_t i = 0; i < n; i++) bonus = v_add(bonus, v_set1(r[i] * x->u[i] * k[i]));
    float v_dy = v_sum(both);
    FOR_VECTORS(n, STORE(dv, v_mul(LOAD(dy), bonus)););
    for (size_t c = 0; c < n; c++) {
        float *g = q->g + c * n;
        const float *s = S + c * n;
        V dr = v_zero(), dk = v_zero(), dw = v_zero(), kc = v_set1(k[c]), wc = v_set1(w[c]), rc = v_set1(r[c]);
        FOR_VECTORS(n, {
            V gc = LOAD(g);
            V sc = LOAD(s);
            V d = LOAD(dy);
            dr = v_fma(d, sc, dr);
            dk = v_fma(gc, LOAD(v), dk);
            dw = v_fma(gc, sc, dw);
            STORE(dv, v_fma(gc, kc, LOAD(dv)));
            STORE(g, v_fma(wc, gc, v_mul(rc, d)));
        });
        q->dr[t * q->ld + c] = v_sum(dr) + x->u[c] * k[c] * v_dy;
        q->dk[t * q->ld + c] = v_sum(dk) + x->u[c] * r[c] * v_dy;
        q->du[c] += r[c] * k[c] * v_dy;
        if (x->ldw) q->dw[t * q->ld + c] = v_sum(dw);
        else q->dw[c] += v_sum(dw);
    }
}

/* One token of version 7: also `after`, the state after it. */
static inline __attribute__((always_inline)) void back_7(const struct llm_wkv_back *q, size_t t, const float *S, const float *after)
{
    const struct llm_wkv_run *x = &q->run;
    const float *r = x->r + t * x->ldr, *k = x->k + t * x->ldk, *v = x->v + t * x->ldv, *w = x->w + t * x->ldw, *dy = q->dy + t * q->ld_dy;
    const float *a = x->a + t * x->lda, *b = x->b + t * x->ldb;
    const size_t n = x->size;
    float *dv = q->dv + t * q->ld, *seen = q->scratch, *d_seen = seen + n;
    FOR_VECTORS(n, STORE(dv, v_zero()); STORE(seen, v_zero()); STORE(d_seen, v_zero()););
    for (size_t c = 0; c < n; c++) {
        const float *s = S + c * n;
        V ac = v_set1(a[c]);
        FOR_VECTORS(n, STORE(seen, v_fma(ac, LOAD(s), LOAD(seen))););
    }
    for (size_t c = 0; c < n; c++) {
        float *g = q->g + c * n;
        const float *s = S + c * n, *s_after = after + c * n;
        V dr = v_zero(), dk = v_zero(), dw = v_zero(), db = v_zero(), kc = v_set1(k[c]), rc = v_set1(r[c]), bc = v_set1(b[c]);
        FOR_VECTORS(n, {
            V d = LOAD(dy);
            V gc = v_fma(rc, d, LOAD(g));
            dr = v_fma(d, LOAD(s_after), dr);
            dk = v_fma(gc, LOAD(v), dk);
            dw = v_fma(gc, LOAD(s), dw);
            db = v_fma(gc, LOAD(seen), db);
            STORE(dv, v_fma(gc, kc, LOAD(dv)));
            STORE(d_seen, v_fma(gc, bc, LOAD(d_seen)));
            STORE(g, gc);
        });
        q->dr[t * q->ld + c] = v_sum(dr);
        q->dk[t * q->ld + c] = v_sum(dk);
        q->dw[t * q->ld + c] = v_sum(dw);
        q->db[t * q->ld + c] = v_sum(db);
    }
    for (size_t c = 0; c < n; c++) {
        float *g = q->g + c * n;
        const float *s = S + c * n;
        V da = v_zero(), ac = v_set1(a[c]), wc = v_set1(w[c]);
        FOR_VECTORS(n, {
            V d = LOAD(d_seen);
            da = v_fma(LOAD(s), d, da);
            STORE(g, v_fma(wc, LOAD(g), v_mul(ac, d)));
        });
        q->da[t * q->ld + c] = v_sum(da);
    }
}

static void backward(const struct llm_wkv_back *b)
{
    const struct llm_wkv_back copy = *b;
    const size_t n = b->run.size, all = n * n;
    float *states = b->scratch + 2 * n; /* [tokens + 1][size][size] */
    FOR_VECTORS(all, STORE(states, LOAD(b->run.state)););
    for (size_t t = 0; t < b->run.tokens; t++) {
        FOR_VECTORS(n, step(&copy.run, t, i, count, states + t * all, states + (t + 1) * all););
    }
    for (size_t t = b->run.tokens; t-- > 0;) {
        if (b->run.a) back_7(&copy, t, states + t * all, states + (t + 1) * all);
        else back_5(&copy, t, states + t * all);
    }
}

static void decay_exp(float *y, const float *x, size_t n)
{
    FOR_VECTORS(n, STORE(y, v_exp(v_neg(v_exp(LOAD(x))))););
}

static void decay_exp_back(float *dx, const float *dy, const float *x, size_t n)
{
    FOR_VECTORS(n, {
        V z = LOAD(x);
        STORE(dx, v_fnma(LOAD(dy), v_exp(v_sub(z, v_exp(z))), LOAD(dx)));
    });
}

#define RATE 0.606530659713f /* 1/√e */

static void decay_sigmoid(float *y, const float *x, size_t n)
{
    FOR_VECTORS(n, STORE(y, v_exp(v_mul(v_set1(-RATE), v_sigmoid(LOAD(x))))););
}

static void decay_sigmoid_back(float *dx, const float *dy, const float *x, size_t n)
{
    FOR_VECTORS(n, {
        V s = v_sigmoid(LOAD(x));
        V slope = v_mul(v_mul(v_set1(-RATE), s), v_sub(v_set1(1), s));
        STORE(dx, v_fma(v_mul(LOAD(dy), slope), v_exp(v_mul(v_set1(-RATE), s)), LOAD(dx)));
    });
}

static void mix(float *y, const float *x, const float *d, const float *share, size_t n)
{
    FOR_VECTORS(n, STORE(y, v_fma(LOAD(d), LOAD(share), LOAD(x))););
}

static void mix_back(float *d_share, const float *dy, const float *d, size_t n)
{
    FOR_VECTORS(n, STORE(d_share, v_fma(LOAD(dy), LOAD(d), LOAD(d_share))););
}

/* Columns [i, i + count) of share + hᵀ·w. */
static inline __attribute__((always_inline)) V share_of(const struct llm_mix_rank *m, const float *h, size_t i, size_t count)
{
    V share = LOAD(m->share);
    for (size_t j = 0; j < m->rank; j++) share = v_fma(v_set1(h[j]), LOAD(m->w + j * m->ldw), share);
    return share;
}

static void mix_rank(float *y, const float *x, const float *d, const float *h, const struct llm_mix_rank *m)
{
    const struct llm_mix_rank copy = *m;
    FOR_VECTORS(copy.n, STORE(y, v_fma(LOAD(d), share_of(&copy, h, i, count), LOAD(x))););
}

static void mix_rank_back(float *dd, float *dh, const float *dy, const float *d, const float *h, const struct llm_mix_rank *m)
{
    const struct llm_mix_rank copy = *m;
    if (dd) FOR_VECTORS(copy.n, STORE(dd, v_fma(LOAD(dy), share_of(&copy, h, i, count), LOAD(dd))););
    for (size_t j = 0; dh && j < copy.rank; j++) {
        V sum = v_zero();
        FOR_VECTORS(copy.n, sum = v_fma(v_mul(LOAD(dy), LOAD(d)), LOAD(copy.w + j * copy.ldw), sum););
        dh[j] += v_sum(sum);
    }
}

static void mix_rank_dw(float *dw, const float *dy, const float *d, const float *h, size_t rank, size_t ldw, size_t n)
{
    FOR_VECTORS(n, {
        V both = v_mul(LOAD(dy), LOAD(d));
        for (size_t j = 0; j < rank; j++) STORE(dw + j * ldw, v_fma(v_set1(h[j]), both, LOAD(dw + j * ldw)));
    });
}

void KERNEL(llm_fill_wkv)(struct llm_kernels *k);
void KERNEL(llm_fill_wkv)(struct llm_kernels *k)
{
    k->wkv = (struct llm_wkv_kernels){.forward4 = forward4, .backward4 = backward4, .forward = forward, .backward = backward,
                                      .decay = {decay_exp, decay_sigmoid}, .decay_back = {decay_exp_back, decay_sigmoid_back}, .mix = mix,
                                      .mix_back = mix_back, .mix_rank = mix_rank, .mix_rank_back = mix_rank_back, .mix_rank_dw = mix_rank_dw};
}
