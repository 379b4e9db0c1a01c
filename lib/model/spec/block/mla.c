/* The parameters of multi-head latent attention, MLA (DeepSeek-V2, 2024, 2.1), and memory for the matrices that decoding absorbs. */
#include <stdlib.h>
#include "model/spec/block.h"

void llm_absorbed_destroy(struct llm_absorbed *a)
{
    if (!a) return;
    for (int64_t h = 0; h < a->n_heads; h++) {
        if (a->query) llm_weight_release(&a->query[h]);
        if (a->value) llm_weight_release(&a->value[h]);
        if (a->transposed) free(a->transposed[h]);
    }
    free(a->query);
    free(a->value);
    free(a->transposed);
    free(a->values);
    free(a);
}

static struct llm_absorbed *absorbed_create(int64_t n_heads, struct llm_err *e)
{
    struct llm_absorbed *a = llm_calloc(1, sizeof *a, "model", e);
    if (!a) return NULL;
    a->n_heads = n_heads;
    a->query = llm_calloc((size_t)n_heads, sizeof *a->query, "model", e);
    a->value = a->query ? llm_calloc((size_t)n_heads, sizeof *a->value, "model", e) : NULL;
    a->transposed = a->value ? llm_calloc((size_t)n_heads, sizeof *a->transposed, "model", e) : NULL;
    if (a->transposed) return a;
    llm_absorbed_destroy(a);
    return NULL;
}

static void declare(struct llm_declare *d, struct llm_module *m)
{
    const struct llm_config *c = d->config;
    int64_t n = c->num_attention_heads, q = n * (c->qk_nope_head_dim + c->qk_rope_head_dim);
    static const char heads[] = "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)";
    if (c->q_lora_rank > 0) {
        llm_declare_linear(d, &m->p[LLM_MLA_Q_A], LLM_STEM_Q_A, c->q_lora_rank, c->hidden_size, "q_lora_rank, hidden_size", c->attention_bias);
        llm_declare_norm(d, &m->p[LLM_MLA_Q_A_NORM], LLM_STEM_Q_A_NORM, c->q_lora_rank, "q_lora_rank");
        llm_declare_linear(d, &m->p[LLM_MLA_Q_B], LLM_STEM_Q_B, q, c->q_lora_rank, heads, false);
    } else {
        llm_declare_linear(d, &m->p[LLM_MLA_Q], LLM_STEM_Q, q, c->hidden_size, heads, false);
    }
    llm_declare_linear(d, &m->p[LLM_MLA_KV_A], LLM_STEM_KV_A, c->kv_lora_rank + c->qk_rope_head_dim, c->hidden_size,
                       "kv_lora_rank + qk_rope_head_dim, hidden_size", c->attention_bias);
    llm_declare_norm(d, &m->p[LLM_MLA_KV_A_NORM], LLM_STEM_KV_A_NORM, c->kv_lora_rank, "kv_lora_rank");
    llm_declare_linear(d, &m->p[LLM_MLA_KV_B], LLM_STEM_KV_B, n * (c->qk_nope_head_dim + c->v_head_dim), c->kv_lora_rank,
                       "num_attention_heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank", false);
    llm_declare_linear(d, &m->p[LLM_MLA_OUT], LLM_STEM_OUT, c->hidden_size, n * c->v_head_dim, "hidden_size, num_attention_heads * v_head_dim",
                       c->attention_bias);
    m->absorbed = absorbed_create(n, d->err);
    if (!m->absorbed) d->failed = true;
}

/* FLOPs per token of the scores and of the weighted sum of values, as computed in training. */
static double extra_flops(const struct llm_config *c, int64_t layer, int64_t context)
{
    int64_t window = llm_config_window(c, layer), seen = window > 0 && window < context ? window : context;
    return 2.0 * (double)(c->num_attention_heads * (c->qk_nope_head_dim + c->qk_rope_head_dim + c->v_head_dim)) * (double)seen;
}

static void state(const struct llm_config *c, int64_t layer, struct llm_state_shape *s)
{
    (void)layer;
    s->n_kv_heads = 1;
    s->d_k = c->kv_lora_rank + c->qk_rope_head_dim;
}

/* Keys and values of the heads exist in training alone: decoding absorbs their matrices. */
static uint64_t places(const struct llm_config *c, int64_t layer)
{
    (void)layer;
    return LLM_PLACE_BIT(ATTENTION_Q) | LLM_PLACE_BIT(ATTENTION_Q_ROTATED) | LLM_PLACE_BIT(ATTENTION_KV_LATENT) | LLM_PLACE_BIT(ATTENTION_K_ROTATED)
        | LLM_PLACE_BIT(ATTENTION_K_HEADS) | LLM_PLACE_BIT(ATTENTION_V_HEADS) | LLM_PLACE_BIT(ATTENTION_HEADS)
        | (c->q_lora_rank > 0 ? LLM_PLACE_BIT(ATTENTION_Q_LATENT) : 0);
}

const struct llm_module_kind llm_module_mla = {
    .number = LLM_MODULE_mla, .input = LLM_PLACE_ATTENTION_INPUT, .output = LLM_PLACE_ATTENTION_OUTPUT, .places = places,
    .unit = LLM_UNIT_ATTENTION, .declare = declare, .extra_flops = extra_flops, .state = state};
