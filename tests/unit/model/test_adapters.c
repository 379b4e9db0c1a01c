/* Every linear of every family knows an adapter: a model whose matrices have low-rank additions is the model with these added to its matrices, and
 * the additions' gradients follow from the matrices': dA = s·Bᵀ·dW, dB = s·dW·Aᵀ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "model/config/arch.h"
#include "tensor/tape.h"
#include "tests/unit/model_of.h"

enum { RANK = 3, ROWS = 2, LENGTH = 9, TOKENS = ROWS * LENGTH };
static const float SCALE = .75f;

#define SHAPE "\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"vocab_size\": 40, \"intermediate_size\": 48," \
    " \"initializer_range\": 0.2"

static const char *const configs[] = {
    "{\"model_type\": \"llama\", " SHAPE "}",
    "{\"model_type\": \"phi3\", " SHAPE ", \"pad_token_id\": 0}",
    "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 2, \"vocab_size\": 40, \"embd_pdrop\": 0, \"attn_pdrop\": 0,"
    " \"resid_pdrop\": 0, \"initializer_range\": 0.2}",
    "{\"model_type\": \"mixtral\", " SHAPE ", \"num_key_value_heads\": 2, \"num_local_experts\": 3, \"n_shared_experts\": 1}",
    "{\"model_type\": \"deepseek_v3\", " SHAPE ", \"kv_lora_rank\": 16, \"q_lora_rank\": 16, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 8,"
    " \"v_head_dim\": 16, \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"n_group\": 1, \"topk_group\": 1, \"moe_intermediate_size\": 16,"
    " \"first_k_dense_replace\": 1}",
    "{\"model_type\": \"mamba\", \"hidden_size\": 32, \"num_hidden_layers\": 2, \"vocab_size\": 40}",
    "{\"model_type\": \"mamba2\", \"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_heads\": 4, \"head_dim\": 16, \"n_groups\": 1,"
    " \"vocab_size\": 40}",
    "{\"model_type\": \"lstm\", \"hidden_size\": 32, \"num_layers\": 2, \"vocab_size\": 40}",
    "{\"model_type\": \"mlp\", \"context_window\": 3, \"embedding_size\": 16, \"intermediate_size\": 32, \"num_hidden_layers\": 2,"
    " \"vocab_size\": 40}",
    "{\"model_type\": \"bert\", " SHAPE ", \"hidden_dropout_prob\": 0, \"attention_probs_dropout_prob\": 0}",
    "{\"model_type\": \"t5\", \"d_model\": 32, \"d_kv\": 16, \"d_ff\": 48, \"num_layers\": 2, \"num_heads\": 2, \"vocab_size\": 40,"
    " \"dropout_rate\": 0}"};

/* A matrix that a linear multiplies: not looked up, of no recurrence and no convolution. The forward pass ends before the head. */
static bool is_linear(const struct llm_param *p)
{
    const struct llm_param_spec *s = p->spec;
    return s->n_dims == 2 && !s->exact && !s->lookup && s->stem != LLM_STEM_STATE && s->stem != LLM_STEM_CONV && s->unit != LLM_UNIT_HEAD;
}

static float *filled(uint32_t number, int64_t n, float deviation)
{
    const struct llm_rng r = llm_rng_at(3, 0, LLM_RNG_TEST, number, 0, 0);
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = deviation * llm_rng_normal(&r, (uint32_t)i);
    return x;
}

/* A small matrix as a parameter with a gradient. */
static struct llm_param matrix(float *data, int64_t rows, int64_t cols)
{
    return (struct llm_param){.name = "adapter", .n_dims = 2, .shape = {rows, cols}, .weight = {.data = data, .n = rows, .k = cols, .dtype = LLM_F32},
                              .grad = calloc((size_t)(rows * cols), sizeof(float))};
}

static void free_matrix(struct llm_param *p)
{
    llm_weight_release(&p->weight);
    free((void *)p->weight.data);
    free(p->grad);
}

/* The final hidden states and, `recording`, gradients of parameters for a random gradient of these. */
static float *run(struct llm_model *m, enum llm_compute compute, bool recording)
{
    struct llm_err e = {0};
    struct llm_ctx c = {.n_rows = ROWS};
    int32_t ids[TOKENS], positions[TOKENS];
    assert_int_equal(llm_ctx_init(&c, (size_t)1 << 30, (size_t)1 << 30, recording, &e), 0);
    c.compute = compute;
    c.n_rows = ROWS;
    c.row_len = LENGTH;
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = i * 7 % 40;
        positions[i] = i % LENGTH;
    }
    struct llm_batch source = {.ids = ids, .positions = positions, .n_tokens = TOKENS}, b = source;
    if (m->config.num_encoder_layers > 0) b.source = &source;
    struct llm_tensor *y = llm_model_forward(&c, m, &b);
    if (llm_ctx_failed(&c)) fail_msg("%s: %s", m->config.model_type, c.err.text);
    float *out = malloc((size_t)(y->rows * y->cols) * sizeof *out), *dy = filled(99, y->rows * y->cols, 1);
    memcpy(out, y->data, (size_t)(y->rows * y->cols) * sizeof *out);
    float *grad = recording ? llm_tensor_grad(&c, y) : NULL;
    if (grad) memcpy(grad, dy, (size_t)(y->rows * y->cols) * sizeof *grad);
    if (grad) llm_backward(&c);
    if (llm_ctx_failed(&c)) fail_msg("%s: %s", m->config.model_type, c.err.text);
    llm_ctx_release(&c);
    free(dy);
    return out;
}

/* ‖a - b‖ ≤ 2e-5 ‖b‖ */
static void same(const char *what, const char *name, const float *a, const float *b, int64_t n)
{
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    if (!(sqrt(difference) <= 2e-5 * sqrt(size) + 1e-30)) fail_msg("%s of %s: off by %.3g of its norm", what, name, sqrt(difference / size));
}

struct adapted { struct llm_param a, b; struct llm_adapter adapter; };

/* W += scale·B·A, with a gradient of its own. */
static void merge(struct llm_param *p, const struct adapted *q)
{
    float *w = (float *)p->weight.data;
    const float *a = q->a.weight.data, *b = q->b.weight.data;
    int64_t n = p->weight.n, k = p->weight.k;
    for (int64_t i = 0; i < n * k; i++) {
        double sum = w[i];
        for (int64_t r = 0; r < RANK; r++) sum += (double)SCALE * b[i / k * RANK + r] * a[r * k + i % k];
        w[i] = (float)sum;
    }
    llm_weight_changed(&p->weight);
    p->adapter = NULL;
    p->grad = calloc((size_t)(n * k), sizeof(float));
}

static void check_gradients(const struct llm_param *p, const struct adapted *q)
{
    const float *a = q->a.weight.data, *b = q->b.weight.data;
    int64_t n = p->weight.n, k = p->weight.k;
    float *da = calloc((size_t)(RANK * k), sizeof *da), *db = calloc((size_t)(n * RANK), sizeof *db);
    for (int64_t r = 0; r < RANK; r++) {
        for (int64_t i = 0; i < k; i++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++) sum += (double)b[j * RANK + r] * p->grad[j * k + i];
            da[r * k + i] = (float)(SCALE * sum);
        }
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t i = 0; i < k; i++) sum += (double)a[r * k + i] * p->grad[j * k + i];
            db[j * RANK + r] = (float)(SCALE * sum);
        }
    }
    same("dA", p->name, q->a.grad, da, RANK * k);
    same("dB", p->name, q->b.grad, db, n * RANK);
    free(da);
    free(db);
}

/* Gives each linear an adapter. [m->n_params] */
static struct adapted *adapt(struct llm_model *m)
{
    struct adapted *all = calloc(m->n_params, sizeof *all);
    size_t count = 0;
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        if (!is_linear(p)) continue;
        all[i].a = matrix(filled((uint32_t)(2 * i), RANK * p->weight.k, .2f), RANK, p->weight.k);
        all[i].b = matrix(filled((uint32_t)(2 * i + 1), p->weight.n * RANK, .2f), p->weight.n, RANK);
        all[i].adapter = (struct llm_adapter){.a = &all[i].a, .b = &all[i].b, .scale = SCALE};
        p->adapter = &all[i].adapter;
        count++;
    }
    assert_true(count >= 2);
    return all;
}

static void release(struct llm_model *m, struct adapted *all)
{
    for (size_t i = 0; i < m->n_params; i++) {
        if (!is_linear(&m->params[i])) continue;
        free_matrix(&all[i].a);
        free_matrix(&all[i].b);
    }
    free(all);
    llm_model_destroy(m);
}

static void check_family(const char *text)
{
    struct llm_model *m = model_of(text);
    struct adapted *all = adapt(m);
    float *adapted = run(m, LLM_COMPUTE_F32, true), *inferred = run(m, LLM_COMPUTE_F32, false);
    assert_memory_equal(adapted, inferred, (size_t)(TOKENS * m->config.hidden_size) * sizeof *adapted);
    for (size_t i = 0; i < m->n_params; i++) {
        if (is_linear(&m->params[i])) merge(&m->params[i], &all[i]);
    }
    float *merged = run(m, LLM_COMPUTE_F32, true);
    same("hidden states", m->config.model_type, adapted, merged, TOKENS * m->config.hidden_size);
    for (size_t i = 0; i < m->n_params; i++) {
        if (is_linear(&m->params[i])) check_gradients(&m->params[i], &all[i]);
    }
    free(adapted);
    free(inferred);
    free(merged);
    release(m, all);
}

/* On a frozen base in 8 bits, products in BF16: hidden states and gradients have the same bits with any number of threads. */
static void test_frozen(void **state)
{
    (void)state;
    struct llm_err e = {0};
    struct llm_model *m = model_of(configs[3]); /* a mixture */
    struct adapted *all = adapt(m);
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        if (!is_linear(p) || p->weight.k % 32 != 0) continue;
        void *blocks = malloc(llm_dtype_bytes(LLM_Q8_0, (uint64_t)llm_param_count(p)));
        llm_dtypes[LLM_Q8_0].encode(p->weight.data, blocks, (size_t)llm_param_count(p));
        free((void *)p->weight.data);
        p->weight.data = blocks;
        p->weight.dtype = LLM_Q8_0;
    }
    float *first = run(m, LLM_COMPUTE_BF16, true), *grads[2] = {NULL, NULL};
    for (int threads = 1; threads <= 3; threads += 2) {
        assert_int_equal(llm_pool_start(threads, &e), 0);
        for (size_t i = 0; i < m->n_params; i++) {
            if (all[i].a.grad) memset(all[i].a.grad, 0, (size_t)llm_param_count(&all[i].a) * sizeof(float));
        }
        float *again = run(m, LLM_COMPUTE_BF16, true);
        assert_memory_equal(first, again, (size_t)(TOKENS * m->config.hidden_size) * sizeof *first);
        free(again);
        int64_t n = 0, at = 0;
        for (size_t i = 0; i < m->n_params; i++) n += all[i].a.grad ? llm_param_count(&all[i].a) : 0;
        float *all_grads = grads[threads / 2] = malloc((size_t)n * sizeof *all_grads);
        for (size_t i = 0; i < m->n_params; i++) {
            if (!all[i].a.grad) continue;
            memcpy(all_grads + at, all[i].a.grad, (size_t)llm_param_count(&all[i].a) * sizeof(float));
            at += llm_param_count(&all[i].a);
        }
        if (threads == 3) assert_memory_equal(grads[0], grads[1], (size_t)n * sizeof(float));
    }
    assert_int_equal(llm_pool_start(2, &e), 0);
    free(first);
    free(grads[0]);
    free(grads[1]);
    release(m, all);
}

static void test_families(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) check_family(configs[i]);
}

int main(void)
{
    struct llm_err e = {0};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families), cmocka_unit_test(test_frozen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
