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

static int quantize(const void *in, enum llm_dtype from, void *out, enum llm_dtype to, uint64_t n, struct llm_quant_report *r, struct llm_err *e)
{
    const struct llm_quant_job job = {.in = in, .out = out, .from = from, .to = to, .n = n, .row = 64};
    return llm_quantize_tensor(&job, r, e);
}

/* The row of llm_quant_types with this name. */
static const struct llm_quant_type *type_of(const char *name)
{
    for (int i = 0; llm_quant_word(i); i++)
        if (strcmp(llm_quant_word(i), name) == 0) return &llm_quant_types[i];
    fail_msg("no type %s", name);
    return NULL;
}

/* Over more than a piece, and a piece that is not full. */
static void errors_are_those_of_the_definition(void **state)
{
    static const enum llm_dtype types[] = {LLM_F32, LLM_F16, LLM_BF16, LLM_Q8_0, LLM_Q4_0, LLM_Q4_1, LLM_Q5_0, LLM_Q5_1, LLM_MXFP4};
    enum { N = 3 * 4096 + 640 };
    (void)state;
    float *x = numbers(N), *y = malloc(N * sizeof *y);
    unsigned char *out = malloc(N * sizeof *x), *want = malloc(N * sizeof *x);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        struct llm_quant_report r = {.rmse = -1};
        struct llm_err e;
        double xx = 0, yy = 0, xy = 0, dd = 0, most = 0;
        size_t bytes = llm_dtype_bytes(types[t], N);
        assert_int_equal(quantize(x, LLM_F32, out, types[t], N, &r, &e), 0);
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
    assert_int_equal(quantize(x, LLM_F32, q8, LLM_Q8_0, N, &r, &e), 0);
    assert_int_equal(quantize(q8, LLM_Q8_0, q4, LLM_Q4_0, N, &r, &e), 0);
    llm_dtypes[LLM_Q8_0].decode(q8, y, N);
    llm_dtypes[LLM_Q4_0].encode(y, want, N);
    assert_memory_equal(q4, want, llm_dtype_bytes(LLM_Q4_0, N));
    double first = r.rmse;
    assert_int_equal(quantize(q4, LLM_Q4_0, q8, LLM_F16, N, &r, &e), 0); /* halves hold what four bits and a half say, but for rounding */
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
    assert_int_equal(quantize(zeros, LLM_F32, out, LLM_Q8_0, 64, &r, &e), 0);
    assert_true(r.rmse == 0 && r.max_error == 0 && r.cosine == 1 && isinf(r.snr_db));
    assert_int_equal(quantize(zeros, LLM_F32, out, LLM_F32, 0, &r, &e), 0);
    assert_true(r.rmse == 0 && r.cosine == 1);
    for (int k = 0; k < 3; k++) {
        bad[40] = k == 0 ? NAN : k == 1 ? INFINITY : -INFINITY;
        assert_int_equal(quantize(bad, LLM_F32, out, LLM_BF16, 64, &r, &e), -1);
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
    struct llm_quant_plan plan = {.type = type_of("q8_0"), .only = &none, .except = &none};
    memset(m->fingerprint, 'f', 16);
    assert_int_equal(llm_quantize_model(m, &plan, see, &s, &e), 0);
    assert_int_equal(s.n, m->n_params);
    assert_int_equal(s.changed, m->n_params - 5 - 2); /* norms: two a layer, one behind; down_proj: one a layer */
    assert_int_equal(m->fingerprint[0], 0);
    llm_model_destroy(m);
    m = model_of(config);
    s = (struct seen){.m = m, .only = "self_attn"};
    plan = (struct llm_quant_plan){.type = type_of("q8_0"), .only = &only, .except = &none};
    assert_int_equal(llm_quantize_model(m, &plan, see, &s, &e), 0);
    assert_int_equal(s.changed, 2 * 4);
    llm_model_destroy(m);
    m = model_of(config);
    s = (struct seen){.m = m, .stop = 2}; /* a report that fails ends it */
    plan = (struct llm_quant_plan){.type = type_of("q8_0"), .only = &none, .except = &none};
    assert_int_equal(llm_quantize_model(m, &plan, see, &s, &e), -1);
    assert_string_equal(e.text, "enough");
    llm_model_destroy(m);
    m = model_of(config);
    size_t kept = 0, same = 0;
    plan = (struct llm_quant_plan){.type = type_of("bf16"), .only = &only, .except = &except};
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
    const struct llm_quant_plan keep = {.type = type_of("keep"), .only = &none, .except = &none},
                                eight = {.type = type_of("q8_0"), .only = &none, .except = &none};
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

/* ---- mixes ---- */

static const char wide[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":256,\"intermediate_size\":256,\"num_hidden_layers\":16,"
                           "\"num_attention_heads\":8,\"num_key_value_heads\":4,\"tie_word_embeddings\":false}";

static enum llm_dtype chosen(struct llm_model *m, const struct llm_quant_plan *plan, const char *name)
{
    const char *kept;
    return llm_quant_choose(m, find(m, name), plan, &kept);
}

/* The rules of llama.cpp's quantiser for 16 layers: more bits in layers 0, 1, 14, 15, and in 4, 7, 10, 13. */
static void mixes_follow_the_known_rules(void **state)
{
    static const struct { const char *mix, *tensor; enum llm_dtype type; } rows[] = {
        {"q4_k_m", "layers.0.self_attn.v_proj", LLM_Q6_K}, {"q4_k_m", "layers.2.self_attn.v_proj", LLM_Q4_K},
        {"q4_k_m", "layers.4.mlp.down_proj", LLM_Q6_K}, {"q4_k_m", "layers.13.mlp.down_proj", LLM_Q6_K},
        {"q4_k_m", "layers.12.mlp.down_proj", LLM_Q4_K}, {"q4_k_m", "layers.15.mlp.down_proj", LLM_Q6_K},
        {"q4_k_m", "layers.0.mlp.up_proj", LLM_Q4_K}, {"q4_k_m", "lm_head", LLM_Q6_K},
        {"q4_k_m", "embed_tokens", LLM_Q4_K}, {"q4_k", "layers.4.mlp.down_proj", LLM_Q6_K},
        {"q4_k_s", "layers.3.self_attn.v_proj", LLM_Q5_K}, {"q4_k_s", "layers.4.self_attn.v_proj", LLM_Q4_K},
        {"q4_k_s", "layers.1.mlp.down_proj", LLM_Q5_K}, {"q4_k_s", "layers.2.mlp.down_proj", LLM_Q4_K},
        {"q5_k_m", "layers.7.self_attn.v_proj", LLM_Q6_K}, {"q5_k_s", "layers.7.self_attn.v_proj", LLM_Q5_K},
        {"q3_k_m", "layers.1.self_attn.v_proj", LLM_Q5_K}, {"q3_k_m", "layers.2.self_attn.v_proj", LLM_Q4_K},
        {"q3_k_m", "layers.0.mlp.down_proj", LLM_Q5_K}, {"q3_k_m", "layers.1.mlp.down_proj", LLM_Q4_K},
        {"q3_k_m", "layers.5.self_attn.o_proj", LLM_Q4_K}, {"q3_k_s", "layers.0.self_attn.v_proj", LLM_Q3_K},
        {"q3_k_l", "layers.9.self_attn.o_proj", LLM_Q5_K}, {"q3_k_l", "layers.9.mlp.down_proj", LLM_Q5_K},
        {"q3_k_l", "layers.9.mlp.up_proj", LLM_Q3_K}, {"q2_k", "layers.5.self_attn.v_proj", LLM_Q3_K},
        {"q2_k", "layers.5.self_attn.o_proj", LLM_Q3_K}, {"q2_k", "layers.5.mlp.down_proj", LLM_Q3_K},
        {"q2_k", "layers.5.self_attn.q_proj", LLM_Q2_K}, {"q2_k_s", "layers.1.mlp.down_proj", LLM_Q4_K},
        {"q2_k_s", "layers.2.mlp.down_proj", LLM_Q2_K}, {"q6_k", "layers.5.mlp.down_proj", LLM_Q6_K},
        {"iq4_xs", "layers.1.mlp.down_proj", LLM_Q5_K}, {"iq4_xs", "layers.5.mlp.down_proj", LLM_IQ4_XS},
        {"iq3_m", "layers.5.self_attn.v_proj", LLM_Q4_K}, {"iq3_m", "layers.1.mlp.down_proj", LLM_Q4_K},
        {"iq3_m", "layers.2.mlp.down_proj", LLM_IQ3_S}, {"iq3_m", "layers.2.self_attn.o_proj", LLM_Q4_K},
        {"iq3_s", "layers.2.self_attn.o_proj", LLM_IQ3_S}, {"iq3_s", "lm_head", LLM_Q6_K},
        {"iq3_xs", "layers.2.self_attn.q_proj", LLM_IQ3_XXS}, {"iq3_xs", "layers.2.mlp.up_proj", LLM_IQ3_XXS},
        {"iq3_xs", "layers.1.mlp.up_proj", LLM_IQ3_S}, {"iq3_xs", "layers.14.mlp.gate_proj", LLM_IQ3_S},
        {"iq3_xxs", "layers.2.self_attn.k_proj", LLM_IQ2_S}, {"iq3_xxs", "layers.2.self_attn.v_proj", LLM_IQ3_S},
        {"iq3_xxs", "layers.1.mlp.down_proj", LLM_Q4_K}, {"iq3_xxs", "layers.2.mlp.down_proj", LLM_Q3_K},
        {"iq3_xxs", "lm_head", LLM_Q5_K}, {"iq3_xxs", "embed_tokens", LLM_IQ3_S},
        {"iq2_m", "layers.2.self_attn.q_proj", LLM_IQ2_S}, {"iq2_m", "layers.2.self_attn.v_proj", LLM_IQ3_S},
        {"iq2_s", "layers.2.self_attn.q_proj", LLM_IQ2_XS}, {"iq2_s", "layers.2.self_attn.o_proj", LLM_IQ3_S},
        {"iq2_xs", "layers.1.mlp.down_proj", LLM_Q2_K}, {"iq2_xs", "layers.2.mlp.down_proj", LLM_IQ2_XS},
        {"iq2_xs", "layers.2.self_attn.o_proj", LLM_IQ2_XS}, {"iq2_xs", "lm_head", LLM_Q5_K},
        {"q4_0", "lm_head", LLM_Q4_0}, {"q5_1", "layers.0.self_attn.v_proj", LLM_Q5_1}};
    struct llm_strs none = {0};
    (void)state;
    struct llm_model *m = model_of(wide);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct llm_quant_plan plan = {.type = type_of(rows[i].mix), .only = &none, .except = &none};
        if (chosen(m, &plan, rows[i].tensor) != rows[i].type) {
            fail_msg("%s: %s: %s", rows[i].mix, rows[i].tensor, llm_dtypes[chosen(m, &plan, rows[i].tensor)].name);
        }
        plan.pure = true;
        assert_int_equal(chosen(m, &plan, rows[i].tensor), type_of(rows[i].mix)->dtype);
    }
    llm_model_destroy(m);
}

static void exceptions_win_over_the_mix(void **state)
{
    const struct llm_quant_override overrides[] = {{"*layers.1.*v_proj*", LLM_F16}, {"*v_proj*", LLM_Q8_0},
                                                   {"*.o_proj*", LLM_NO_DTYPE}, {"*k_proj*", LLM_Q3_K}};
    const enum llm_dtype output = LLM_Q5_0, embedding = LLM_Q5_1;
    struct llm_strs none = {0};
    struct llm_err e;
    size_t same = 0;
    (void)state;
    struct llm_model *m = model_of(wide);
    struct llm_quant_plan plan = {.type = type_of("q4_k_m"), .only = &none, .except = &none, .overrides = overrides, .n_overrides = 4,
                                  .output = &output, .embedding = &embedding};
    assert_int_equal(chosen(m, &plan, "layers.1.self_attn.v_proj"), LLM_F16);
    assert_int_equal(chosen(m, &plan, "layers.0.self_attn.v_proj"), LLM_Q8_0);
    assert_int_equal(chosen(m, &plan, "layers.0.self_attn.o_proj"), LLM_F32);
    assert_int_equal(chosen(m, &plan, "layers.0.self_attn.k_proj"), LLM_Q3_K);
    assert_int_equal(chosen(m, &plan, "lm_head"), LLM_Q5_0);
    assert_int_equal(chosen(m, &plan, "embed_tokens"), LLM_Q5_1);
    plan.overrides = &(struct llm_quant_override){"*absent*", LLM_F16};
    plan.n_overrides = 1;
    assert_int_equal(llm_quantize_model(m, &plan, count_same, &same, &e), -1);
    assert_int_equal(e.status, LLM_EX_USAGE);
    assert_non_null(strstr(e.text, "'*absent*'"));
    llm_model_destroy(m);
}

static void rows_of_other_lengths_get_smaller_blocks(void **state)
{
    (void)state;
    assert_int_equal(llm_quant_fallback(LLM_Q4_K, 512), LLM_Q4_K);
    assert_int_equal(llm_quant_fallback(LLM_Q2_K, 576), LLM_Q4_0);
    assert_int_equal(llm_quant_fallback(LLM_Q3_K, 576), LLM_Q4_0);
    assert_int_equal(llm_quant_fallback(LLM_Q4_K, 576), LLM_Q5_0);
    assert_int_equal(llm_quant_fallback(LLM_Q5_K, 576), LLM_Q5_1);
    assert_int_equal(llm_quant_fallback(LLM_Q6_K, 576), LLM_Q8_0);
    assert_int_equal(llm_quant_fallback(LLM_IQ4_XS, 576), LLM_IQ4_NL);
    assert_int_equal(llm_quant_fallback(LLM_IQ2_S, 576), LLM_IQ4_NL);
    assert_int_equal(llm_quant_fallback(LLM_Q4_K, 172), LLM_F16);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(errors_are_those_of_the_definition), cmocka_unit_test(from_one_type_to_another),
                                       cmocka_unit_test(edges_of_a_report), cmocka_unit_test(which_tensors_change), cmocka_unit_test(what_stays),
                                       cmocka_unit_test(mixes_follow_the_known_rules),
                                       cmocka_unit_test(exceptions_win_over_the_mix),
                                       cmocka_unit_test(rows_of_other_lengths_get_smaller_blocks)};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
