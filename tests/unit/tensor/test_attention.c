/* Attention against the plain formula in double: all arguments, odd sizes, scores that deviate by 2 to 5, every instruction set; and the promises of
 * lib/README.md, Canonical order: the same bits for any split of the tokens, any packing, any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention_reference.h"
#include "cpu/detect.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"
#include "tests/unit/near.h"

#define ARENA ((size_t)1 << 30)

/* One run of the op: outputs and gradients as plain arrays. */
struct result { float *out, *lse, *dq, *dk, *dv, *d_bias, *d_sinks; };

static void result_release(struct result *r)
{
    float *all[] = {r->out, r->lse, r->dq, r->dk, r->dv, r->d_bias, r->d_sinks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static float *copy(const float *x, int64_t rows, int64_t cols, int64_t stride)
{
    float *y = malloc((size_t)(rows * cols + 1) * sizeof *y);
    for (int64_t r = 0; r < rows; r++) memcpy(y + r * cols, x + r * stride, (size_t)cols * sizeof *y);
    return y;
}

static struct llm_param small_param(float *values, float *grad, int64_t n)
{
    return (struct llm_param){.name = "p", .n_dims = 1, .shape = {n}, .weight = {.data = values, .dtype = LLM_F32, .n = n, .k = 1}, .grad = grad};
}

static void geometry(struct llm_ctx *c, const struct problem *p)
{
    c->n_rows = p->n_rows;
    c->row_len = p->row_len;
    c->first_row = 3;
    c->seed = 11;
    c->step = 5;
    c->layer = 2;
    c->training = true;
}

/* Runs the op on q, k, v as column views of one fused tensor (when lengths allow), forward and backward. */
static struct result run(const struct problem *p, enum llm_compute compute)
{
    struct llm_ctx c;
    struct llm_err e = {0};
    struct result r = {0};
    assert_int_equal(llm_ctx_init(&c, ARENA, ARENA, true, &e), 0);
    geometry(&c, p);
    c.compute = compute;
    struct llm_attn a = p->a;
    int64_t tq = queries(p), tk = keys(p), wq = a.n_heads * a.d_k, wk = a.n_kv_heads * a.d_k, wv = a.n_kv_heads * a.d_v;
    int64_t n_bias = a.rel_max ? a.n_heads * (2 * a.rel_max - 1) : 0;
    r.d_bias = calloc((size_t)n_bias + 1, sizeof(float));
    r.d_sinks = calloc((size_t)a.n_heads, sizeof(float));
    struct llm_param bias = small_param(p->bias, r.d_bias, n_bias), sinks = small_param(p->sinks, r.d_sinks, a.n_heads);
    if (a.rel_max) a.rel_bias = &bias;
    if (p->sinks) a.sinks = &sinks;
    struct llm_tensor *whole = llm_tensor_create(&c, tq > tk ? tq : tk, wq + wk + wv);
    whole->needs_grad = true;
    struct llm_tensor *q = llm_columns(&c, whole, 0, wq), *k = llm_columns(&c, whole, wq, wk), *v = llm_columns(&c, whole, wq + wk, wv);
    q->rows = tq;
    k->rows = v->rows = tk;
    memset(whole->data, 0, (size_t)(whole->rows * whole->cols) * sizeof(float));
    for (int64_t t = 0; t < tq; t++) memcpy(q->data + t * q->stride, p->q + t * wq, (size_t)wq * sizeof(float));
    for (int64_t t = 0; t < tk; t++) memcpy(k->data + t * k->stride, p->k + t * wk, (size_t)wk * sizeof(float));
    for (int64_t t = 0; t < tk; t++) memcpy(v->data + t * v->stride, p->v + t * wv, (size_t)wv * sizeof(float));
    struct llm_tensor *lse, *out = llm_attention(&c, q, k, v, &a, &lse);
    if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
    r.out = copy(out->data, tq, out->cols, out->stride);
    r.lse = copy(lse->data, tq, lse->cols, lse->stride);
    float *g = llm_tensor_grad(&c, out);
    assert_non_null(g);
    memcpy(g, p->d_out, (size_t)(tq * a.n_heads * a.d_v) * sizeof(float));
    float *dw = llm_tensor_grad(&c, whole);
    assert_non_null(dw);
    llm_backward(&c);
    if (llm_ctx_failed(&c)) fail_msg("%s", c.err.text);
    dw = whole->grad;
    r.dq = copy(dw, tq, wq, whole->grad_stride);
    r.dk = copy(dw + wq, tk, wk, whole->grad_stride);
    r.dv = copy(dw + wq + wk, tk, wv, whole->grad_stride);
    llm_ctx_release(&c);
    return r;
}

static double distance(const float *x, const double *y, int64_t n, double floor)
{
    double d = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isinf(y[i]) && x[i] == (float)y[i]) continue;
        d += (x[i] - y[i]) * (x[i] - y[i]);
        s += y[i] * y[i];
    }
    return sqrt(d) / fmax(sqrt(s), floor);
}

static void agree(const char *what, const struct problem *p, const float *x, const double *y, int64_t n, double limit, double floor)
{
    double d = distance(x, y, n, floor);
    char where[160];
    snprintf(where, sizeof where, "%s, %s, %s: distance from the formula", llm_isa_name(), p->name, what);
    near_what(where, d, 0, 0, limit);
}

/* BF16 loses 2^-9 of each operand; what a wrong mask or scale does is far larger. */
static void against_formula(const struct problem *p, enum llm_compute compute)
{
    struct result r = run(p, compute);
    struct reference want = reference(p);
    double loose = compute == LLM_COMPUTE_BF16 ? 5e-2 : 0, out = loose + 2e-6, grad = loose + 1e-5;
    int64_t nq = queries(p) * p->a.n_heads, nk = keys(p) * p->a.n_kv_heads, n_bias = p->a.rel_max ? p->a.n_heads * (2 * p->a.rel_max - 1) : 0;
    double whole = reference_norm(p, &want); /* of all gradients: what is zero but for rounding is measured by that */
    agree("out", p, r.out, want.out, nq * p->a.d_v, out, 0);
    agree("lse", p, r.lse, want.lse, nq, out, 0);
    agree("dq", p, r.dq, want.dq, nq * p->a.d_k, grad, 1e-2 * whole);
    agree("dk", p, r.dk, want.dk, nk * p->a.d_k, grad, 1e-2 * whole);
    agree("dv", p, r.dv, want.dv, nk * p->a.d_v, grad, 1e-2 * whole);
    if (p->a.rel_max) agree("d bias", p, r.d_bias, want.d_bias, n_bias, grad, 1e-2 * whole);
    if (p->sinks) agree("d sinks", p, r.d_sinks, want.d_sinks, p->a.n_heads, grad, 1e-2 * whole);
    reference_release(&want);
    result_release(&r);
}

static void use_isa(const struct llm_isa *isa)
{
    isa->fill(&llm_k);
    llm_k.isa = isa->name;
}

static void formula(void **state)
{
    (void)state;
    for (const struct llm_isa *isa = llm_isas; isa->name; isa++) {
        if (!isa->usable()) continue;
        use_isa(isa);
        for (int i = 0; i < n_cases; i++) {
            struct problem p = problem_make(&cases[i], 1 + (uint32_t)i);
            against_formula(&p, LLM_COMPUTE_F32);
            against_formula(&p, LLM_COMPUTE_BF16);
            problem_release(&p);
        }
    }
}

/* The tensor's norm and eight random projections against those of tests/golden/attention.tsv. */
static void projections(const char *name, const char *what, char *numbers, uint32_t seed, uint32_t which, const float *x, int64_t n)
{
    double norm = 0, limit = strcmp(what, "out") == 0 || strcmp(what, "lse") == 0 ? 2e-6 : 1e-5;
    for (int64_t i = 0; i < n; i++) norm += isinf(x[i]) ? 0 : (double)x[i] * x[i];
    double want = strtod(numbers, &numbers), scale = want;
    norm = sqrt(norm);
    for (uint32_t p = 0;; p++) {
        if (!(fabs(norm - want) <= limit * 4 * fmax(scale, 1e-2)))
            fail_msg("%s, %s: expected %.9g in number %u, found %.9g", name, what, want, p, norm);
        if (p == 8) break;
        float *direction = normals(seed, 100 + 8 * which + p, n, 1);
        norm = 0;
        for (int64_t i = 0; i < n; i++) norm += isinf(x[i]) ? 0 : (double)x[i] * direction[i];
        want = strtod(numbers, &numbers);
        free(direction);
    }
}

/* PyTorch's numbers (tests/oracle/attention.py). */
static void goldens(void **state)
{
    static const char *const names[] = {"out", "lse", "dq", "dk", "dv", "d bias", "d sinks"};
    FILE *f = fopen("tests/golden/attention.tsv", "re");
    char line[1024], done[sizeof line] = "";
    int lines = 0;
    struct problem p = {0};
    struct result r = {0};
    uint32_t seed = 0, which = 0;
    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char *what = strchr(line, '\t'), *numbers = what ? strchr(what + 1, '\t') : NULL;
        assert_non_null(numbers);
        *what++ = *numbers++ = 0;
        if (strcmp(done, line) != 0) {
            result_release(&r);
            problem_release(&p);
            for (seed = 1; seed <= (uint32_t)n_cases && strcmp(cases[seed - 1].name, line) != 0;) seed++;
            assert_true(seed <= (uint32_t)n_cases);
            p = problem_make(&cases[seed - 1], seed);
            r = run(&p, LLM_COMPUTE_F32);
            memcpy(done, line, sizeof done);
            which = 0;
        }
        int64_t nq = queries(&p) * p.a.n_heads, nk = keys(&p) * p.a.n_kv_heads;
        const int64_t n[] = {nq * p.a.d_v, nq, nq * p.a.d_k, nk * p.a.d_k, nk * p.a.d_v, p.a.n_heads * (2 * p.a.rel_max - 1), p.a.n_heads};
        const float *const x[] = {r.out, r.lse, r.dq, r.dk, r.dv, r.d_bias, r.d_sinks};
        int i = 0;
        while (strcmp(names[i], what) != 0) assert_true(++i < 7);
        projections(p.name, what, numbers, seed, which++, x[i], n[i]);
        lines++;
    }
    assert_true(lines > 80);
    fclose(f);
    result_release(&r);
    problem_release(&p);
}

/* The formula's gradient against its own central differences, along random directions. */
static void reference_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < n_cases; i++) {
        struct problem p = problem_make(&cases[i], 77 + (uint32_t)i);
        double d = reference_difference(&p, 5 + (uint32_t)i);
        if (!(d < 1e-6)) fail_msg("%s: gradient and differences: expected within 1e-6, found %g", p.name, d);
        problem_release(&p);
    }
}

static void same(const char *what, const char *name, const float *x, const float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(x + i, y + i, sizeof *x) != 0)
            fail_msg("%s, %s, %s: expected the same bits, found %.9g and %.9g at %lld", llm_isa_name(), name, what, (double)x[i], (double)y[i],
                     (long long)i);
}

static void same_results(const char *name, const struct problem *p, const struct result *x, const struct result *y)
{
    int64_t nq = queries(p) * p->a.n_heads, nk = keys(p) * p->a.n_kv_heads;
    same("out", name, x->out, y->out, nq * p->a.d_v);
    same("lse", name, x->lse, y->lse, nq);
    same("dq", name, x->dq, y->dq, nq * p->a.d_k);
    same("dk", name, x->dk, y->dk, nk * p->a.d_k);
    same("dv", name, x->dv, y->dv, nk * p->a.d_v);
    if (p->a.rel_max) same("d bias", name, x->d_bias, y->d_bias, p->a.n_heads * (2 * p->a.rel_max - 1));
    same("d sinks", name, x->d_sinks, y->d_sinks, p->a.n_heads);
}

static void threads(void **state)
{
    (void)state;
    struct llm_err e = {0};
    for (int i = 0; i < n_cases; i++) {
        struct problem p = problem_make(&cases[i], 1);
        for (int compute = 0; compute < 2; compute++) {
            struct result one = {0};
            for (int n = 1; n <= 8; n = n < 3 ? n + 1 : n + 5) {
                llm_pool_stop();
                assert_int_equal(llm_pool_start(n, &e), 0);
                struct result r = run(&p, (enum llm_compute)compute);
                if (n > 1) same_results(p.name, &p, &one, &r);
                if (n > 1) result_release(&r);
                else one = r;
            }
            result_release(&one);
        }
        problem_release(&p);
    }
    llm_pool_stop();
    assert_int_equal(llm_pool_start(2, &e), 0);
}

/* Each document of a packed row alone has the bits it has in the row. */
static void packing(void **state)
{
    (void)state;
    for (int compute = 0; compute < 2; compute++) {
        struct problem p = problem_make(&packed_case, 9);
        struct result all = run(&p, (enum llm_compute)compute);
        for (int64_t t = 0, end; t < p.row_len; t = end) {
            for (end = t + 1; end < p.row_len && p.a.doc_start[end] == t;) end++;
            struct problem one = problem_part(&p, t, end - t);
            struct result r = run(&one, (enum llm_compute)compute);
            int64_t wq = p.a.n_heads * p.a.d_k, wo = p.a.n_heads * p.a.d_v, wk = p.a.n_kv_heads * p.a.d_k, wv = p.a.n_kv_heads * p.a.d_v;
            same("out", "packed", r.out, all.out + t * wo, (end - t) * wo);
            same("lse", "packed", r.lse, all.lse + t * p.a.n_heads, (end - t) * p.a.n_heads);
            same("dq", "packed", r.dq, all.dq + t * wq, (end - t) * wq);
            same("dk", "packed", r.dk, all.dk + t * wk, (end - t) * wk);
            same("dv", "packed", r.dv, all.dv + t * wv, (end - t) * wv);
            result_release(&r);
        }
        result_release(&all);
        problem_release(&p);
    }
}

static void window_limits(void **state)
{
    (void)state;
    struct problem p = problem_make(&plain_case, 4);
    int64_t n = queries(&p) * p.a.n_heads * p.a.d_v;
    struct result full = run(&p, LLM_COMPUTE_F32);
    p.a.window = p.row_len;
    struct result wide = run(&p, LLM_COMPUTE_F32);
    same_results("window of the whole row", &p, &full, &wide);
    p.a.window = 1;
    struct result own = run(&p, LLM_COMPUTE_F32);
    for (int64_t t = 0; t < queries(&p); t++)
        for (int64_t h = 0; h < p.a.n_heads; h++)
            same("own value", "window 1", own.out + (t * p.a.n_heads + h) * p.a.d_v,
                 p.v + (t * p.a.n_kv_heads + h * p.a.n_kv_heads / p.a.n_heads) * p.a.d_v, p.a.d_v);
    assert_true(memcmp(full.out, own.out, (size_t)n * sizeof(float)) != 0);
    result_release(&full);
    result_release(&wide);
    result_release(&own);
    problem_release(&p);
}

/* KV heads copied for every query head: same bits without the sharing (dK and dV then are the sums). */
static void grouped(void **state)
{
    (void)state;
    struct problem p = problem_make(&plain_case, 6), wide = p;
    int64_t rep = p.a.n_heads / p.a.n_kv_heads, tk = keys(&p);
    assert_true(rep > 1);
    wide.a.n_kv_heads = p.a.n_heads;
    wide.k = malloc((size_t)(tk * p.a.n_heads * p.a.d_k) * sizeof(float));
    wide.v = malloc((size_t)(tk * p.a.n_heads * p.a.d_v) * sizeof(float));
    for (int64_t t = 0; t < tk; t++)
        for (int64_t h = 0; h < p.a.n_heads; h++) {
            memcpy(wide.k + (t * p.a.n_heads + h) * p.a.d_k, p.k + (t * p.a.n_kv_heads + h / rep) * p.a.d_k, (size_t)p.a.d_k * sizeof(float));
            memcpy(wide.v + (t * p.a.n_heads + h) * p.a.d_v, p.v + (t * p.a.n_kv_heads + h / rep) * p.a.d_v, (size_t)p.a.d_v * sizeof(float));
        }
    struct result shared = run(&p, LLM_COMPUTE_F32), apart = run(&wide, LLM_COMPUTE_F32);
    same("out", "grouped", shared.out, apart.out, queries(&p) * p.a.n_heads * p.a.d_v);
    same("dq", "grouped", shared.dq, apart.dq, queries(&p) * p.a.n_heads * p.a.d_k);
    for (int64_t t = 0; t < tk; t++)
        for (int64_t h = 0; h < p.a.n_kv_heads; h++)
            for (int64_t i = 0; i < p.a.d_k; i++) {
                float sum = 0;
                for (int64_t g = 0; g < rep; g++) sum += apart.dk[(t * p.a.n_heads + h * rep + g) * p.a.d_k + i];
                same("dk", "grouped", &sum, &shared.dk[(t * p.a.n_kv_heads + h) * p.a.d_k + i], 1);
            }
    result_release(&shared);
    result_release(&apart);
    free(wide.k);
    free(wide.v);
    problem_release(&p);
}

/* Gradients of parameters: two rows in one call have the bits of one row after the other. */
static void accumulation(void **state)
{
    (void)state;
    struct attn_case with = plain_case;
    with.a.rel_max = 30;
    with.sinks = true;
    struct problem p = problem_make(&with, 12), one = p;
    int64_t wq = p.a.n_heads * p.a.d_k, wk = p.a.n_kv_heads * p.a.d_k, wv = p.a.n_kv_heads * p.a.d_v, wo = p.a.n_heads * p.a.d_v;
    struct result both = run(&p, LLM_COMPUTE_F32), row[2];
    one.n_rows = 1;
    for (int r = 0; r < 2; r++) {
        row[r] = run(&one, LLM_COMPUTE_F32);
        one.q += p.row_len * wq;
        one.k += p.row_len * wk;
        one.v += p.row_len * wv;
        one.d_out += p.row_len * wo;
    }
    for (int64_t i = 0; i < p.a.n_heads * (2 * p.a.rel_max - 1); i++) row[0].d_bias[i] += row[1].d_bias[i];
    for (int64_t i = 0; i < p.a.n_heads; i++) row[0].d_sinks[i] += row[1].d_sinks[i];
    same("d bias", "two rows", both.d_bias, row[0].d_bias, p.a.n_heads * (2 * p.a.rel_max - 1));
    same("d sinks", "two rows", both.d_sinks, row[0].d_sinks, p.a.n_heads);
    result_release(&both);
    for (int r = 0; r < 2; r++) result_release(&row[r]);
    problem_release(&p);
}

static void laws(void **state)
{
    (void)state;
    struct problem p = problem_make(&plain_case, 8);
    int64_t wk = p.a.n_kv_heads * p.a.d_k, n = queries(&p) * p.a.n_heads * p.a.d_v;
    /* 1000 added to all scores, through a bias that is the same everywhere */
    struct result before = run(&p, LLM_COMPUTE_F32);
    float thousand[64];
    for (int i = 0; i < 64; i++) thousand[i] = 1000;
    p.a.rel_max = 1;
    p.bias = thousand;
    struct result after = run(&p, LLM_COMPUTE_F32);
    double worst = 0;
    for (int64_t i = 0; i < n; i++) worst = worse(worst, fabs((double)before.out[i] - after.out[i]));
    if (worst > 5e-4) fail_msg("1000 added to all scores: expected no change, found %g", worst); /* 1000 has an ulp of 6e-5 */
    p.a.rel_max = 0;
    p.bias = NULL;
    /* identical keys: the mean of the values seen */
    for (int64_t t = 1; t < keys(&p); t++) memcpy(p.k + t * wk, p.k, (size_t)wk * sizeof(float));
    struct result mean = run(&p, LLM_COMPUTE_F32);
    int64_t last = queries(&p) - 1, first_key = (p.n_rows - 1) * p.row_len;
    for (int64_t h = 0; h < p.a.n_heads; h++)
        for (int64_t i = 0; i < p.a.d_v; i++) {
            double sum = 0;
            for (int64_t t = 0; t < p.row_len; t++)
                sum += p.v[((first_key + t) * p.a.n_kv_heads + h * p.a.n_kv_heads / p.a.n_heads) * p.a.d_v + i];
            assert_true(fabs(mean.out[(last * p.a.n_heads + h) * p.a.d_v + i] - sum / (double)p.row_len) < 2e-6);
        }
    result_release(&before);
    result_release(&after);
    result_release(&mean);
    problem_release(&p);
}

static void refusals(void **state)
{
    (void)state;
    struct problem p = problem_make(&packed_case, 9);
    struct llm_err e = {0};
    int32_t *starts = malloc((size_t)p.row_len * sizeof *starts);
    for (int bad = 0; bad < 4; bad++) {
        struct llm_ctx c;
        assert_int_equal(llm_ctx_init(&c, ARENA, ARENA, false, &e), 0);
        geometry(&c, &p);
        struct llm_attn a = p.a;
        memcpy(starts, a.doc_start, (size_t)p.row_len * sizeof *starts);
        a.doc_start = starts;
        struct llm_tensor *q = llm_tensor_create(&c, p.row_len, a.n_heads * a.d_k), *k = llm_tensor_create(&c, p.row_len, a.n_kv_heads * a.d_k);
        struct llm_tensor *v = llm_tensor_create(&c, p.row_len, a.n_kv_heads * a.d_v);
        if (bad == 0) starts[3] = 2;
        if (bad == 1) a.n_kv_heads = 3;
        if (bad == 2) a.kv_row_len = p.row_len - 1;
        if (bad == 3) a.d_v++;
        assert_int_equal(llm_attention(&c, q, k, v, &a, NULL)->rows, 0);
        assert_int_equal(c.err.status, LLM_EX_FAILURE);
        llm_ctx_release(&c);
    }
    free(starts);
    problem_release(&p);
}

static int start(void **state)
{
    struct llm_err e = {0};
    (void)state;
    return llm_pool_start(2, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_gradient), cmocka_unit_test(threads), cmocka_unit_test(packing), cmocka_unit_test(window_limits),
        cmocka_unit_test(grouped), cmocka_unit_test(accumulation),
        cmocka_unit_test(laws), cmocka_unit_test(refusals), cmocka_unit_test(goldens),
        cmocka_unit_test(formula),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
