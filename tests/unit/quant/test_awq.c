/* AWQ: a folded model computes the same function, in every family; the power that is chosen is that of a search written out in double; moments;
 * threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/dtype/block.h"
#include "cpu/pool.h"
#include "quant/awq.h"
#include "quant/kl.h"
#include "tests/unit/model_of.h"

enum { TOKENS = 192, CONTEXT = 64, VOCAB = 61 };
static int32_t ids[TOKENS];
static const struct llm_strs none;

static const struct llm_quant_type *type_of(const char *name)
{
    int i = 0;
    while (strcmp(llm_quant_word(i), name) != 0) i++;
    return &llm_quant_types[i];
}

static struct llm_quant_plan plan_of(const char *type, enum llm_quant_method method)
{
    return (struct llm_quant_plan){.type = type_of(type), .only = &none, .except = &none, .pure = true, .method = method};
}

/* The model with norms whose gains and biases are not all 1 and 0, and inputs of uneven size. */
static struct llm_model *uneven(const char *text)
{
    struct llm_model *m = model_of(text);
    const struct llm_rng r = llm_rng_at(8, 0, LLM_RNG_TEST, 0, 0, 0);
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        float *x = (float *)(uintptr_t)p->weight.data;
        for (int64_t j = 0; p->n_dims == 1 && !p->running && j < llm_param_count(p); j++) {
            x[j] += 0.5f * llm_rng_normal(&r, (uint32_t)((size_t)j + 1000 * i)) + (j % 13 == 5 ? 4 : 0);
        }
        llm_weight_changed(&p->weight);
    }
    return m;
}

static struct llm_moments moments_of(struct llm_model *m)
{
    struct llm_moments moments = {0};
    struct llm_err e = {0};
    assert_int_equal(llm_moments_init(&moments, m, &e), 0);
    assert_int_equal(llm_moments_gather(&moments, m, ids, TOKENS, CONTEXT, &e), 0);
    return moments;
}

#define SIZES "\"vocab_size\":61,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"initializer_range\":0.2," \
              "\"num_attention_heads\":4,"
static const struct { const char *config; size_t places, closed; } families[] = {
    {"{\"model_type\":\"llama\"," SIZES "\"num_key_value_heads\":2}", 8, 0},
    {"{\"model_type\":\"qwen2\"," SIZES "\"num_key_value_heads\":4}", 8, 0},
    {"{\"model_type\":\"gemma2\"," SIZES "\"num_key_value_heads\":2,\"head_dim\":16,\"query_pre_attn_scalar\":16}", 8, 0}, /* gains - 1 in files */
    {"{\"model_type\":\"phi3\"," SIZES "\"num_key_value_heads\":2}", 8, 0},               /* fused projections */
    {"{\"model_type\":\"stablelm\"," SIZES "\"num_key_value_heads\":4,\"use_parallel_residual\":true}", 6, 0}, /* one norm for both */
    {"{\"model_type\":\"gpt_neox\"," SIZES "\"hidden_act\":\"gelu\"}", 8, 2},             /* gelu is not linear */
    {"{\"model_type\":\"olmo2\"," SIZES "\"num_key_value_heads\":2}", 8, 4},              /* no norm before its sub-layers */
    {"{\"model_type\":\"mixtral\"," SIZES "\"num_key_value_heads\":2,\"num_local_experts\":2,\"num_experts_per_tok\":2}", 10, 0},
};

/* |logits| are of order 10, of which FP32 leaves differences d of 1e-5 of their range, 1e-4: the KL of two rows whose logits differ by d is below
 * d² = 1e-8. */
static void same_function(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct llm_err e = {0};
        struct llm_kl_base base = {0};
        struct llm_awq_counts counts;
        struct llm_kl kl;
        struct llm_model *before = uneven(families[i].config), *m = uneven(families[i].config);
        struct llm_moments moments = moments_of(m);
        const struct llm_quant_plan plan = plan_of("q4_0", LLM_QUANT_SEARCH);
        if (llm_awq(m, &plan, &moments, &counts, &e) < 0) fail_msg("%s: %s", m->config.model_type, e.text);
        if (counts.folded + counts.plain + counts.closed != families[i].places || counts.closed != families[i].closed || counts.folded < 3) {
            fail_msg("%s: %zu folded, %zu plain, %zu closed", m->config.model_type, counts.folded, counts.plain, counts.closed);
        }
        assert_int_equal(llm_kl_base_init(&base, before, ids, TOKENS, CONTEXT, &e), 0);
        assert_int_equal(llm_kl_measure(&base, m, &kl, NULL, &e), 0);
        if (!(fabs(kl.mean) < 1e-8 && kl.same_top == 1)) fail_msg("%s: KL %g", m->config.model_type, kl.mean);
        /* the moments are those of the scaled inputs, but for products in BF16; what was not scaled at all would be several times as much */
        struct llm_moments again = moments_of(m);
        for (size_t k = 0; k < moments.n; k++) {
            for (int64_t j = 0; j < moments.v[k].k; j++) {
                const double a = moments.v[k].squares[j], b = again.v[k].squares[j];
                if (fabs(a - b) <= 0.15 * (fabs(a) + fabs(b)) + 1e-3) continue;
                fail_msg("%s: record %zu, channel %d: %g, %g", m->config.model_type, k, (int)j, a, b);
            }
        }
        llm_moments_release(&again);
        llm_moments_release(&moments);
        llm_kl_base_release(&base);
        llm_model_destroy(m);
        llm_model_destroy(before);
    }
}

/* The error of Q4_0 by rounding to nearest after columns were scaled, in double but for what the type stores in FP32. */
static double error_of(const float *w, int64_t n, int64_t k, const double *scale, const double *importance)
{
    double sum = 0;
    for (int64_t at = 0; at < n * k; at += 32) {
        float x[32], largest = 0, d;
        for (int j = 0; j < 32; j++) {
            x[j] = w[at + j] * (float)scale[(at + j) % k];
            largest = fabsf(x[j]) > fabsf(largest) ? x[j] : largest;
        }
        d = largest / -8;
        const float stored = llm_block_round_f16(d), inverse = d != 0 ? 1 / d : 0;
        for (int j = 0; j < 32; j++) {
            int q = (int)(x[j] * inverse + 8.5f);
            q = q > 15 ? 15 : q;
            const int64_t c = (at + j) % k;
            const double difference = (double)w[at + j] - (double)(stored * (float)(q - 8)) / scale[c];
            sum += importance[c] * difference * difference;
        }
    }
    return sum;
}

/* The input of the feed-forward part of layer 1: the gain that is left says which power was taken. */
static void best_power(void **state)
{
    struct llm_err e = {0};
    struct llm_awq_counts counts;
    (void)state;
    struct llm_model *before = uneven(families[0].config), *m = uneven(families[0].config);
    struct llm_moments moments = moments_of(m);
    const struct llm_quant_plan plan = plan_of("q4_0", LLM_QUANT_RTN);
    const struct llm_param *up = llm_model_find(before, "model.layers.1.mlp.up_proj.weight");
    const struct llm_param *gate = llm_model_find(before, "model.layers.1.mlp.gate_proj.weight");
    const struct llm_param *gain = llm_model_find(before, "model.layers.1.post_attention_layernorm.weight");
    const int64_t k = up->weight.k;
    double size[64], scale[64], best[64], least = INFINITY, importance[64];
    const struct llm_moment *r = &moments.v[moments.of[up - before->params]];
    for (int64_t j = 0; j < k; j++) importance[j] = (double)(float)(r->squares[j] / r->count);
    for (int64_t j = 0; j < k; j++) size[j] = sqrt(importance[j]) > 1e-4 ? sqrt(importance[j]) : 1e-4;
    for (int i = 0; i < 20; i++) {
        double top = 0, low = INFINITY, sum = 0;
        for (int64_t j = 0; j < k; j++) {
            scale[j] = pow(size[j], i / 20.0);
            top = scale[j] > top ? scale[j] : top;
            low = scale[j] < low ? scale[j] : low;
        }
        for (int64_t j = 0; j < k; j++) scale[j] /= sqrt(top * low);
        sum += error_of(up->weight.data, up->weight.n, k, scale, importance) + error_of(gate->weight.data, gate->weight.n, k, scale, importance);
        if (sum < least) memcpy(best, scale, sizeof best);
        least = sum < least ? sum : least;
    }
    assert_int_equal(llm_awq(m, &plan, &moments, &counts, &e), 0);
    const float *was = gain->weight.data, *is = llm_model_find(m, "model.layers.1.post_attention_layernorm.weight")->weight.data;
    for (int64_t j = 0; j < k; j++) {
        const double ratio = (double)was[j] / (double)is[j] / best[j];
        if (fabs(ratio - 1) > 1e-5) fail_msg("channel %d: %g, %g", (int)j, (double)was[j] / (double)is[j], best[j]);
    }
    assert_true(fabs(best[0] / best[5] - 1) > 1e-3); /* it is not the power 0 */
    llm_moments_release(&moments);
    llm_model_destroy(m);
    llm_model_destroy(before);
}

static void same_for_any_threads(void **state)
{
    struct llm_model *m[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct llm_err e = {0};
        struct llm_awq_counts counts;
        llm_pool_stop();
        assert_int_equal(llm_pool_start(i ? 3 : 1, &e), 0);
        m[i] = uneven(families[0].config);
        struct llm_moments moments = moments_of(m[i]);
        const struct llm_quant_plan plan = plan_of("q4_0", LLM_QUANT_SEARCH);
        assert_int_equal(llm_awq(m[i], &plan, &moments, &counts, &e), 0);
        llm_moments_release(&moments);
    }
    for (size_t i = 0; i < m[0]->n_params; i++) {
        const struct llm_param *a = &m[0]->params[i], *b = &m[1]->params[i];
        assert_memory_equal(a->weight.data, b->weight.data, (size_t)llm_dtype_bytes(a->weight.dtype, (uint64_t)llm_param_count(a)));
    }
    llm_model_destroy(m[0]);
    llm_model_destroy(m[1]);
}

int main(void)
{
    struct llm_err e;
    const struct llm_rng r = llm_rng_at(6, 0, LLM_RNG_TEST, 0, 0, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_function), cmocka_unit_test(best_power), cmocka_unit_test(same_for_any_threads)};
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (int32_t)llm_rng_below(&r, i, VOCAB);
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
