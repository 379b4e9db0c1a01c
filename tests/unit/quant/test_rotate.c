/* Rotations: orthogonal matrices of every size, Hadamard's for powers of two; a rotated model computes the same function, in every family that can be
 * rotated; the others are refused by name and unchanged; threads. */
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
#include "quant/kl.h"
#include "quant/rotate.h"
#include "tests/unit/model_of.h"

enum { TOKENS = 128, CONTEXT = 64, VOCAB = 61, SIDE = 96 };
static int32_t ids[TOKENS];

static void rotors_are_orthogonal(void **state)
{
    static const int64_t sizes[] = {1, 2, 9, 12, 16, 48, 64, SIDE};
    static double q[SIDE][SIDE], work[SIDE];
    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int64_t n = sizes[s];
        struct llm_rotor r = {0};
        struct llm_err e;
        bool flipped = false;
        assert_int_equal(llm_rotor_init(&r, n, 3, &e), 0);
        for (int64_t i = 0; i < n; i++) {
            memset(q[i], 0, sizeof q[i]);
            q[i][i] = 1;
            llm_rotor_turn(&r, q[i], work);
            flipped |= q[i][0] < 0;
        }
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t k = 0; k < n; k++) sum += q[i][k] * q[j][k];
                assert_true(fabs(sum - (i == j)) < 1e-13);
                assert_true(fabs(q[i][j]) <= sqrt(2 / (double)n) + 1e-13);
                if (r.m == 1) assert_true(fabs(fabs(q[i][j]) - 1 / sqrt((double)n)) < 1e-13);
            }
        }
        assert_true(flipped || n < 12);
        assert_true(r.hadamard * r.m == n && r.m % 2 == 1);
        llm_rotor_release(&r);
    }
}

/* The model with gains that are not all 1, biases that are not all 0, and some large channels. */
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

#define SIZES "\"vocab_size\":61,\"hidden_size\":48,\"intermediate_size\":80,\"num_hidden_layers\":2,\"initializer_range\":0.2," \
              "\"num_attention_heads\":4,"
#define MIXTURE "\"num_local_experts\":2,\"num_experts_per_tok\":2"
static const char *const families[] = {
    "{\"model_type\":\"llama\"," SIZES "\"num_key_value_heads\":2}",
    "{\"model_type\":\"llama\"," SIZES "\"num_key_value_heads\":2,\"tie_word_embeddings\":true,\"attention_bias\":true,\"mlp_bias\":true}",
    "{\"model_type\":\"qwen2\"," SIZES "\"num_key_value_heads\":4}",
    "{\"model_type\":\"qwen3\"," SIZES "\"num_key_value_heads\":2,\"head_dim\":16}",
    "{\"model_type\":\"phi3\"," SIZES "\"num_key_value_heads\":2}",
    "{\"model_type\":\"mixtral\"," SIZES "\"num_key_value_heads\":2," MIXTURE "}",
    "{\"model_type\":\"deepseek_v2\"," SIZES
        "\"kv_lora_rank\":16,\"q_lora_rank\":24,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_head_dim\":12}",
};
static const struct { const char *config, *why; } refused[] = {
    {"{\"model_type\":\"gpt2\",\"vocab_size\":61,\"n_embd\":48,\"n_layer\":2,\"n_head\":4,\"n_positions\":64}", "RMSNorm"},
    {"{\"model_type\":\"gemma2\"," SIZES "\"num_key_value_heads\":2,\"head_dim\":16,\"query_pre_attn_scalar\":16}", "norms follow"},
    {"{\"model_type\":\"olmo2\"," SIZES "\"num_key_value_heads\":2}", "norms follow"},
    {"{\"model_type\":\"mamba\",\"vocab_size\":61,\"hidden_size\":48,\"num_hidden_layers\":2,\"state_size\":8}", "no attention"},
};

/* |logits| are of order 10, of which FP32 leaves 1e-5: the KL of two rows whose differences are d is below d². */
static void same_function(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct llm_err e = {0};
        struct llm_kl_base base = {0};
        struct llm_rotated r;
        struct llm_kl kl;
        assert_int_equal(llm_pool_start(2, &e), 0);
        struct llm_model *of = uneven(families[i]), *m = uneven(families[i]), *again = uneven(families[i]);
        assert_int_equal(llm_kl_base_init(&base, of, ids, TOKENS, CONTEXT, &e), 0);
        const bool tied = llm_model_head(m) == llm_model_embedding(m);
        if (llm_rotate(&m, NULL, &r, &e) < 0) fail_msg("%s: %s", families[i], e.text);
        assert_true(r.untied == tied && llm_model_head(m) != llm_model_embedding(m) && r.width == 48 && r.hadamard == 16);
        assert_true(r.heads == (of->config.kv_lora_rank > 0 ? 0 : 2));
        assert_int_equal(llm_kl_measure(&base, m, &kl, NULL, &e), 0);
        if (!(fabs(kl.mean) < 1e-8) || kl.same_top < 1) fail_msg("%s: KL %g", families[i], kl.mean);
        /* no gain is left, and embeddings have changed */
        const struct llm_param *norm = llm_model_find(m, "model.norm.weight");
        for (int64_t j = 0; j < 48; j++) assert_true(((const float *)norm->weight.data)[j] == (float)(1 - m->config.norm_gain_offset));
        assert_memory_not_equal(llm_model_embedding(m)->weight.data, llm_model_embedding(of)->weight.data, 48 * sizeof(float));
        llm_pool_stop();
        assert_int_equal(llm_pool_start(3, &e), 0);
        assert_int_equal(llm_rotate(&again, NULL, &r, &e), 0);
        for (size_t k = 0; k < m->n_params; k++) {
            assert_memory_equal(m->params[k].weight.data, again->params[k].weight.data, (size_t)llm_param_count(&m->params[k]) * sizeof(float));
        }
        llm_kl_base_release(&base);
        llm_model_destroy(of);
        llm_model_destroy(m);
        llm_model_destroy(again);
        llm_pool_stop();
    }
}

static void what_cannot_be_rotated_is_refused(void **state)
{
    struct llm_err e = {0};
    struct llm_rotated r;
    (void)state;
    assert_int_equal(llm_pool_start(1, &e), 0);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct llm_model *m = uneven(refused[i].config), *before = uneven(refused[i].config);
        assert_int_equal(llm_rotate(&m, NULL, &r, &e), -1);
        assert_int_equal(e.status, EX_UNAVAILABLE);
        if (!strstr(e.text, refused[i].why)) fail_msg("%s: %s", refused[i].config, e.text);
        for (size_t k = 0; k < m->n_params; k++) {
            assert_memory_equal(m->params[k].weight.data, before->params[k].weight.data, (size_t)llm_param_count(&m->params[k]) * sizeof(float));
        }
        llm_model_destroy(m);
        llm_model_destroy(before);
    }
    llm_pool_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotors_are_orthogonal), cmocka_unit_test(same_function),
                                       cmocka_unit_test(what_cannot_be_rotated_is_refused)};
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 7 + i * i) % VOCAB;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
