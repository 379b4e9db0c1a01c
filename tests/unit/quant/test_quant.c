/* Weights in fewer bits: the change and its errors against the same sums written out here, which tensors change and why the others do not, and that a
 * model whose weights were mapped computes with what they became. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "quant/quant.h"
#include "tests/unit/model_of.h"
#include "tests/unit/near.h"

static const char config[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":64,\"intermediate_size\":48,\"num_hidden_layers\":2,"
                             "\"num_attention_heads\":2,\"initializer_range\":0.3}";

static float *numbers(size_t n)
{
    float *x = malloc(n * sizeof *x);
    struct llm_rng r = llm_rng_at(3, 0, LLM_RNG_TEST, 0, 0, 0);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = llm_rng_normal(&r, (uint32_t)i) * (i % 97 == 0 ? 20.0f : 1.0f);
    return x;
}

/* Over more than a piece, and a piece that is not full. */
static void errors_are_those_of_the_definition(void **state)
{
    static const enum llm_dtype types[] = {LLM_F32, LLM_F16, LLM_BF16, LLM_Q8_0, LLM_Q4_0};
    enum { N = 3 * 4096 + 640 };
    (void)state;
    float *x = numbers(N), *y = malloc(N * sizeof *y);
    unsigned char *out = malloc(N * sizeof *x), *want = malloc(N * sizeof *x);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct llm_quant_report r = {.rmse = -1};
        struct llm_err e;
        double xx = 0, yy = 0, xy = 0, dd = 0, most = 0;
        size_t bytes = llm_dtype_bytes(types[t], N);
        assert_int_equal(llm_quantize_tensor(x, LLM_F32, out, types[t], N, &r, &e), 0);
        llm_dtypes[types[t]].encode(x, want, N);
        assert_memory_equal(out, want, bytes);
        llm_dtypes[types[t]].decode(want, y, N);
        for (size_t i = 0; i < N; i++) {
            double d = (double)x[i] - (double)y[i];
            xx += (double)x[i] * (double)x[i];
            yy += (double)y[i] * (double)y[i];
            xy += (double)x[i] * (double)y[i];
            dd += d * d;
            most = fabs(d) > most ? fabs(d) : most;
        }
        near(r.rmse, sqrt(dd / N), 1e-12, 0);
        near(r.max_error, most, 0, 0);
        near(r.cosine, xy / sqrt(xx * yy), 1e-12, 0);
        if (types[t] == LLM_F32) assert_true(isinf(r.snr_db) && r.snr_db > 0 && r.rmse == 0);
        else near(r.snr_db, 10 * log10(xx / dd), 1e-12, 0);
    }
    free(x);
    free(y);
    free(out);
    free(want);
}

static void from_one_type_to_another(void **state)
{
    enum { N = 4096 + 64 };
    struct llm_quant_report r;
    struct llm_err e;
    (void)state;
    float *x = numbers(N), *y = malloc(N * sizeof *y);
    unsigned char *q8 = malloc(N * 2), *q4 = malloc(N), *want = malloc(N);
    assert_int_equal(llm_quantize_tensor(x, LLM_F32, q8, LLM_Q8_0, N, &r, &e), 0);
    assert_int_equal(llm_quantize_tensor(q8, LLM_Q8_0, q4, LLM_Q4_0, N, &r, &e), 0);
    llm_dtypes[LLM_Q8_0].decode(q8, y, N);
    llm_dtypes[LLM_Q4_0].encode(y, want, N);
    assert_memory_equal(q4, want, llm_dtype_bytes(LLM_Q4_0, N));
    double first = r.rmse;
    assert_int_equal(llm_quantize_tensor(q4, LLM_Q4_0, q8, LLM_F16, N, &r, &e), 0); /* halves hold what four bits and a half say, but for rounding */
    assert_true(r.rmse < first / 50);
    free(x);
    free(y);
    free(q8);
    free(q4);
    free(want);
}

static void edges_of_a_report(void **state)
{
    struct llm_quant_report r;
    struct llm_err e;
    float zeros[64] = {0}, bad[64] = {1}, out[64];
    (void)state;
    assert_int_equal(llm_quantize_tensor(zeros, LLM_F32, out, LLM_Q8_0, 64, &r, &e), 0);
    assert_true(r.rmse == 0 && r.max_error == 0 && r.cosine == 1 && isinf(r.snr_db));
    assert_int_equal(llm_quantize_tensor(zeros, LLM_F32, out, LLM_F32, 0, &r, &e), 0);
    assert_true(r.rmse == 0 && r.cosine == 1);
    for (int k = 0; k < 3; k++) {
        bad[40] = k == 0 ? NAN : k == 1 ? INFINITY : -INFINITY;
        assert_int_equal(llm_quantize_tensor(bad, LLM_F32, out, LLM_BF16, 64, &r, &e), -1);
        assert_int_equal(e.status, EX_DATAERR);
        assert_string_equal(e.text, "expected finite values, found NaN or infinity");
    }
}

struct seen { const struct llm_model *m; size_t n, changed, stop; const char *only; };

static int see(void *arg, const struct llm_quant_report *r, struct llm_err *e)
{
    struct seen *s = arg;
    const struct llm_param *p = &s->m->params[s->n];
    assert_ptr_equal(r->name, p->name); /* all, in order */
    assert_int_equal(r->to, p->weight.dtype);
    assert_int_equal(r->bytes_to, llm_dtype_bytes(r->to, (uint64_t)llm_param_count(p)));
    assert_int_equal(r->from, LLM_F32);
    assert_int_equal(r->bytes_from, 4 * llm_param_count(p));
    bool is_vector = p->n_dims < 2, is_down = strstr(r->name, "down_proj") != NULL, other = s->only && !strstr(r->name, s->only);
    if (is_vector) assert_string_equal(r->kept, "1-D");
    else if (other) assert_string_equal(r->kept, "pattern");
    else if (is_down) assert_string_equal(r->kept, "rows"); /* of 48: no whole blocks of 32 */
    else assert_null(r->kept);
    if (r->kept) assert_true(r->rmse == 0 && r->from == r->to);
    else assert_true(r->rmse > 0 && r->snr_db > 20);
    s->changed += !r->kept;
    return ++s->n == s->stop ? llm_fail(e, EX_IOERR, "enough") : 0;
}

static int count_same(void *arg, const struct llm_quant_report *r, struct llm_err *e)
{
    (void)e;
    *(size_t *)arg += r->kept && strcmp(r->kept, "same") == 0;
    return 0;
}

static void which_tensors_change(void **state)
{
    const char *attention = "*.self_attn.*", *queries = "*q_proj*";
    struct llm_strs none = {0}, only = {&attention, 1}, except = {&queries, 1};
    struct llm_err e;
    (void)state;
    struct llm_model *m = model_of(config);
    struct seen s = {.m = m};
    struct llm_quant_plan plan = {LLM_Q8_0, &none, &none};
    memset(m->fingerprint, 'f', 16);
    assert_int_equal(llm_quantize_model(m, &plan, see, &s, &e), 0);
    assert_int_equal(s.n, m->n_params);
    assert_int_equal(s.changed, m->n_params - 5 - 2); /* norms: two a layer, one behind; down_proj: one a layer */
    assert_int_equal(m->fingerprint[0], 0);
    llm_model_destroy(m);
    m = model_of(config);
    s = (struct seen){.m = m, .only = "self_attn"};
    plan = (struct llm_quant_plan){LLM_Q8_0, &only, &none};
    assert_int_equal(llm_quantize_model(m, &plan, see, &s, &e), 0);
    assert_int_equal(s.changed, 2 * 4);
    llm_model_destroy(m);
    m = model_of(config);
    s = (struct seen){.m = m, .stop = 2}; /* a report that fails ends it */
    plan = (struct llm_quant_plan){LLM_Q8_0, &none, &none};
    assert_int_equal(llm_quantize_model(m, &plan, see, &s, &e), -1);
    assert_string_equal(e.text, "enough");
    llm_model_destroy(m);
    m = model_of(config);
    size_t kept = 0, same = 0;
    plan = (struct llm_quant_plan){LLM_BF16, &only, &except};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < m->n_params; i++) kept += m->params[i].weight.dtype == LLM_F32;
        assert_int_equal(llm_quantize_model(m, &plan, count_same, &same, &e), 0);
    }
    assert_int_equal(kept, 2 * m->n_params - 2 * 3); /* the second time only */
    assert_int_equal(same, 2 * 3);
    llm_model_destroy(m);
}

static int count_keep(void *arg, const struct llm_quant_report *r, struct llm_err *e)
{
    (void)e;
    assert_true(isinf(r->snr_db) && r->cosine == 1 && r->bytes_from == r->bytes_to);
    *(size_t *)arg += strcmp(r->kept, "keep") == 0;
    return 0;
}

static struct llm_param *find(struct llm_model *m, const char *name)
{
    for (size_t i = 0; i < m->n_params; i++)
        if (strstr(m->params[i].name, name)) return &m->params[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static void what_stays(void **state)
{
    struct llm_strs none = {0};
    struct llm_err e;
    size_t kept = 0;
    (void)state;
    struct llm_model *m = model_of(config);
    struct llm_param *p = find(m, "k_proj");
    const struct llm_quant_plan keep = {LLM_NO_DTYPE, &none, &none}, eight = {LLM_Q8_0, &none, &none};
    const void *before = p->weight.data;
    assert_int_equal(llm_quantize_model(m, &keep, count_keep, &kept, &e), 0);
    assert_int_equal(kept, m->n_params);
    assert_ptr_equal(p->weight.data, before);
    /* A form that was made of the old values is gone, and so is the tie to a file: its pages would be given back, and these with them. */
    assert_int_equal(llm_weight_pack(&p->weight, LLM_COMPUTE_BF16, false, &e), 0);
    assert_true(p->weight.packed_bytes > 0);
    p->weight.map = p->weight.data;
    p->weight.map_end = p->weight.map + 1;
    kept = 0;
    assert_int_equal(llm_quantize_model(m, &eight, count_same, &kept, &e), 0);
    assert_null(p->weight.map);
    assert_int_equal(p->weight.packed_bytes, 0);
    assert_true(p->owned);
    llm_model_destroy(m);
    m = model_of(config);
    ((float *)(uintptr_t)find(m, "layers.1.self_attn.v_proj")->weight.data)[5] = NAN;
    assert_int_equal(llm_quantize_model(m, &eight, count_same, &kept, &e), -1);
    assert_string_equal(e.text, "tensor 'model.layers.1.self_attn.v_proj.weight': expected finite values, found NaN or infinity");
    llm_model_destroy(m);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_are_those_of_the_definition), cmocka_unit_test(from_one_type_to_another),
                                       cmocka_unit_test(edges_of_a_report), cmocka_unit_test(which_tensors_change), cmocka_unit_test(what_stays)};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
