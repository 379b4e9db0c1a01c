/* DeepSeek-V2 (2024) and V3: multi-head latent attention, and mixtures of many small experts and some shared ones. V2 routes by softmax; the score of
 * a group is that of its best expert. V3 routes by sigmoids with a bias; the score of a group is the sum of its best two. If n_routed_experts is null
 * the feed-forward parts are plain. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "model/spec/arch/keys.h"

#define KEYS \
    LLM_KEYS_LLAMA, \
    {"attention_bias", LLM_KEY_BOOL, LLM_AT(attention_bias), 0, 0, NULL, LLM_KEY_HF}, \
    {"kv_lora_rank", LLM_KEY_INT, LLM_AT(kv_lora_rank), 1, 1 << 16, NULL, LLM_KEY_HF}, \
    {"q_lora_rank", LLM_KEY_LENGTH, LLM_AT(q_lora_rank), 0, 1 << 16, NULL, LLM_KEY_HF}, \
    {"qk_nope_head_dim", LLM_KEY_INT, LLM_AT(qk_nope_head_dim), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {"qk_rope_head_dim", LLM_KEY_INT, LLM_AT(qk_rope_head_dim), 2, 1 << 14, NULL, LLM_KEY_HF}, \
    {"v_head_dim", LLM_KEY_INT, LLM_AT(v_head_dim), 1, 1 << 14, NULL, LLM_KEY_HF}, \
    {"n_routed_experts", LLM_KEY_LENGTH, LLM_AT(num_experts), 0, LLM_MAX_EXPERTS, NULL, LLM_KEY_HF}, \
    {"moe_intermediate_size", LLM_KEY_INT, LLM_AT(moe_intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF}, \
    {"norm_topk_prob", LLM_KEY_BOOL, LLM_AT(norm_topk_prob), 0, 0, NULL, LLM_KEY_HF}, \
    LLM_KEYS_EXPERTS, LLM_KEYS_NEXT

static const char *const methods[] = {"greedy", "group_limited_greedy", "noaux_tc", NULL};
static const struct llm_config_key v2_keys[] = {
    KEYS, {"topk_method", LLM_KEY_WORD, LLM_AT(topk_method), 0, 0, methods, LLM_KEY_HF},
    {"mlp_bias", LLM_KEY_BOOL, LLM_AT(mlp_bias), 0, 0, NULL, LLM_KEY_HF}, LLM_KEY_END};
static const struct llm_config_key v3_keys[] = {
    KEYS, {"num_mtp_layers", LLM_KEY_LENGTH, LLM_AT(num_nextn_predict_layers), 0, LLM_MAX_NEXT, NULL, LLM_KEY_ALIAS}, /* newer files' name */
    LLM_KEY_END};

static void defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->rope_pairing = LLM_ROPE_INTERLEAVED;
    c->qk_nope_head_dim = c->v_head_dim = 128;
    c->qk_rope_head_dim = 64;
    c->kv_lora_rank = 512;
    c->q_lora_rank = 1536;
    c->first_k_dense_replace = 1;
    c->max_position_embeddings = 2048;
    c->initializer_range = .02;
}

static void v2_defaults(struct llm_config *c)
{
    defaults(c);
    c->num_experts = 64;
    c->num_experts_per_tok = 6;
    c->n_shared_experts = 2;
    c->moe_intermediate_size = 1407;
}

static void v3_defaults(struct llm_config *c)
{
    defaults(c);
    c->vocab_size = 129280;
    c->hidden_size = 7168;
    c->intermediate_size = 18432;
    c->num_hidden_layers = 61;
    c->num_attention_heads = c->num_key_value_heads = 128;
    c->max_position_embeddings = 4096;
    c->num_experts = 256;
    c->num_experts_per_tok = 8;
    c->n_shared_experts = 1;
    c->moe_intermediate_size = 2048;
    c->first_k_dense_replace = 3;
    c->norm_topk_prob = true;
    c->n_group = 8;
    c->topk_group = 4;
    c->group_top = 2;
    c->routed_scaling_factor = 2.5;
    c->router_scoring = LLM_SCORING_SIGMOID;
    c->router_bias = true;
    c->bos_token_id = 0;
    c->eos_token_id = 1;
}

/* The factor of attention scores by YaRN's temperature (mscale_all_dim). The factor of cosines and sines is separate. */
static double score_factor(const struct llm_rope_scaling *s)
{
    if (s->kind == LLM_ROPE_PLAIN || !(s->mscale_all_dim > 0) || s->factor <= 1) return 1;
    double m = .1 * s->mscale_all_dim * log(s->factor) + 1;
    return m * m;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->num_key_value_heads = c->num_attention_heads;
    c->head_dim = c->rotary_dim = c->qk_rope_head_dim;
    if (c->topk_method == LLM_TOPK_GREEDY) c->n_group = c->topk_group = 1;
    if (c->num_attention_heads > (1 << 22) / (c->qk_nope_head_dim + c->qk_rope_head_dim + c->v_head_dim)) {
        return llm_fail(e, EX_DATAERR, "num_attention_heads: expected heads of at most %d channels together, found %lld heads", 1 << 22,
                        (long long)c->num_attention_heads);
    }
    if (llm_decoder_finish(c, o, e) < 0) return -1;
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        if (!llm_layer_in(c->no_rope_layers, l)) continue;
        return llm_fail(e, EX_DATAERR, "no_rope_layers: expected none with latent attention, found layer %lld", (long long)l);
    }
    double scale = score_factor(&c->rope_scaling) / sqrt((double)(c->qk_nope_head_dim + c->qk_rope_head_dim));
    c->query_pre_attn_scalar = 1 / (scale * scale);
    return 0;
}

static int v3_finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    bool pairs = true;
    if (llm_json_bool(o, "rope_interleave", &pairs, e) < 0) return -1;
    c->topk_method = LLM_TOPK_NOAUX;
    if (!pairs) c->rope_pairing = LLM_ROPE_HALVES;
    return finish(c, o, e);
}

static int v3_extra(const struct llm_config *c, json_t *o)
{
    if (c->rope_pairing == LLM_ROPE_HALVES && json_object_set_new(o, "rope_interleave", json_false()) < 0) return -1;
    return llm_decoder_extra(c, o);
}

/* ---- GGUF: the architecture "deepseek2" stands for V2 and V3 ---- */

static const struct llm_gguf_key gguf_keys[] = {
    {"expert_count", LLM_GGUF_KEY_WHOLE, LLM_AT(num_experts), 0, LLM_MAX_EXPERTS, 0},
    {"expert_used_count", LLM_GGUF_KEY_WHOLE, LLM_AT(num_experts_per_tok), 0, LLM_MAX_EXPERTS, 0},
    {"expert_feed_forward_length", LLM_GGUF_KEY_WHOLE, LLM_AT(moe_intermediate_size), 1, 1 << 22, 1},
    {"expert_shared_count", LLM_GGUF_KEY_WHOLE, LLM_AT(n_shared_experts), 0, 1 << 10, 0},
    {"leading_dense_block_count", LLM_GGUF_KEY_WHOLE, LLM_AT(first_k_dense_replace), 0, LLM_MAX_LAYERS, 0},
    {"expert_group_count", LLM_GGUF_KEY_WHOLE, LLM_AT(n_group), 1, LLM_MAX_EXPERTS, 1},
    {"expert_group_used_count", LLM_GGUF_KEY_WHOLE, LLM_AT(topk_group), 1, LLM_MAX_EXPERTS, 1},
    {"expert_weights_scale", LLM_GGUF_KEY_REAL, LLM_AT(routed_scaling_factor), 1e-6, 1e6, 1},
    {"expert_weights_norm", LLM_GGUF_KEY_BOOL, LLM_AT(norm_topk_prob), 0, 0, 0},
    {"attention.q_lora_rank", LLM_GGUF_KEY_WHOLE, LLM_AT(q_lora_rank), 1, 1 << 16, 0},
    {"attention.kv_lora_rank", LLM_GGUF_KEY_WHOLE, LLM_AT(kv_lora_rank), 1, 1 << 16, 0},
    {"rope.dimension_count", LLM_GGUF_KEY_WHOLE, LLM_AT(qk_rope_head_dim), 2, 1 << 14, 0},
    {"expert_gating_func", LLM_GGUF_KEY_OWN, 0, 0, 0, 0},
    {"attention.key_length", LLM_GGUF_KEY_OWN, 0, 0, 0, 0},
    {"attention.value_length", LLM_GGUF_KEY_OWN, 0, 0, 0, 0},
    {"attention.head_count_kv", LLM_GGUF_KEY_OWN, 0, 0, 0, 0},
    {"rope.scaling.attn_factor", LLM_GGUF_KEY_OWN, 0, 0, 0, 0},
    {NULL, 0, 0, 0, 0, 0}};
enum { GATING_SOFTMAX = 1, GATING_SIGMOID };

static bool is_v3(const struct llm_gguf *g)
{
    int64_t gating = 0;
    return llm_gguf_int(g, "deepseek2.expert_gating_func", 0, INT64_MAX, &gating, NULL) == 0 && gating == GATING_SIGMOID;
}

/* Reads the widths of a head. In newer files key_length is that of the latent vector, and the widths of a head have keys of their own. */
static int gguf_get(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e)
{
    struct llm_rope_scaling *s = &c->rope_scaling;
    bool latent = llm_gguf_find(g, "deepseek2.attention.key_length_mla") != NULL;
    int64_t keys = 0, values = 0, gating = GATING_SOFTMAX;
    double factor = 0;
    if (llm_gguf_int(g, latent ? "deepseek2.attention.key_length_mla" : "deepseek2.attention.key_length", 1, 1 << 15, &keys, e) < 0
        || llm_gguf_int(g, latent ? "deepseek2.attention.value_length_mla" : "deepseek2.attention.value_length", 1, 1 << 14, &values, e) < 0
        || llm_gguf_int(g, "deepseek2.expert_gating_func", 0, GATING_SIGMOID, &gating, e) < 0
        || llm_gguf_real(g, "deepseek2.rope.scaling.yarn_log_multiplier", &factor, e) < 0) return -1;
    if (c->kv_lora_rank < 1 || c->qk_rope_head_dim < 2 || keys <= c->qk_rope_head_dim || values < 1) {
        return llm_fail(e, EX_DATAERR, "deepseek2.attention: expected kv_lora_rank, lengths of keys and values and rope.dimension_count");
    }
    if (!(factor >= 0 && factor <= 1e6)) return llm_fail(e, EX_DATAERR, "deepseek2.rope.scaling.yarn_log_multiplier: expected 0 to 1e6");
    c->qk_nope_head_dim = keys - c->qk_rope_head_dim;
    c->v_head_dim = values;
    c->router_scoring = gating == GATING_SIGMOID ? LLM_SCORING_SIGMOID : LLM_SCORING_SOFTMAX;
    c->topk_method = c->n_group > 1 ? LLM_TOPK_GROUPS : LLM_TOPK_GREEDY;
    if (s->kind == LLM_ROPE_YARN) s->attention_factor = 0;
    s->mscale = s->mscale_all_dim = s->kind == LLM_ROPE_YARN ? 10 * factor : 0;
    return 0;
}

static void gguf_put(struct llm_gguf_out *o, const struct llm_config *c, bool kv_b_whole)
{
    int64_t keys = c->qk_nope_head_dim + c->qk_rope_head_dim;
    bool latent = !kv_b_whole;
    llm_gguf_put_u32(o, "deepseek2.expert_gating_func", c->router_scoring == LLM_SCORING_SIGMOID ? GATING_SIGMOID : GATING_SOFTMAX);
    llm_gguf_put_u32(o, "deepseek2.attention.head_count_kv", (uint32_t)(latent ? 1 : c->num_attention_heads));
    llm_gguf_put_u32(o, "deepseek2.attention.key_length", (uint32_t)(latent ? c->kv_lora_rank + c->qk_rope_head_dim : keys));
    llm_gguf_put_u32(o, "deepseek2.attention.value_length", (uint32_t)(latent ? c->kv_lora_rank : c->v_head_dim));
    if (latent) {
        llm_gguf_put_u32(o, "deepseek2.attention.key_length_mla", (uint32_t)keys);
        llm_gguf_put_u32(o, "deepseek2.attention.value_length_mla", (uint32_t)c->v_head_dim);
    }
    if (c->rope_scaling.kind == LLM_ROPE_YARN && c->rope_scaling.mscale_all_dim > 0) {
        llm_gguf_put_f32(o, "deepseek2.rope.scaling.yarn_log_multiplier", (float)(.1 * c->rope_scaling.mscale_all_dim));
    }
}

/* Adjusts the configuration to the files. Many files lack the layers for multi-token prediction, which only training needs. A router has a bias if
 * the files have it. */
static void in_files(struct llm_config *c, const struct llm_model_files *files)
{
    char name[80];
    struct llm_checkpoint *file;
    snprintf(name, sizeof name, "blk.%lld.ffn_gate_inp.weight", (long long)c->first_k_dense_replace);
    if (llm_model_files_find(files, name, &file)) { /* GGUF */
        snprintf(name, sizeof name, "blk.%lld.exp_probs_b.bias", (long long)c->first_k_dense_replace);
        c->router_bias = llm_model_files_find(files, name, &file) != NULL;
    }
    for (int64_t k = 0; k < c->num_nextn_predict_layers; k++) {
        snprintf(name, sizeof name, "model.layers.%lld.eh_proj.weight", (long long)(c->num_hidden_layers + k));
        if (!llm_model_files_find(files, name, &file)) c->num_nextn_predict_layers = k;
    }
}

#define NAMES \
    LLM_NAMES_LLAMA([LLM_STEM_Q_A] = "self_attn.q_a_proj", [LLM_STEM_Q_A_NORM] = "self_attn.q_a_layernorm", [LLM_STEM_Q_B] = "self_attn.q_b_proj", \
                    [LLM_STEM_KV_A] = "self_attn.kv_a_proj_with_mqa", [LLM_STEM_KV_A_NORM] = "self_attn.kv_a_layernorm", \
                    [LLM_STEM_KV_B] = "self_attn.kv_b_proj", LLM_NAMES_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"))

static const char *const v2_ignored[] = {LLM_IGNORED_PARTIAL, "moe_layer_freq", "scoring_func", "norm_topk_prob", NULL};
static const char *const v3_ignored[] = {LLM_IGNORED_PARTIAL, "moe_layer_freq", "scoring_func", NULL};

/* Refuses what transformers' classes ignore with plain positions only: with scaled ones they make fewer frequencies than there are pairs, and fail,
 * or rotate all pairs by the one that is left. */
static int of_transformers(json_t *o, struct llm_err *e)
{
    static const char *const objects[] = {"rope_scaling", "rope_parameters"};
    const json_t *r = json_object_get(o, objects[json_object_size(json_object_get(o, objects[0])) == 0]);
    const char *type = llm_rope_type(r);
    double factor = 1;
    if (llm_json_real(o, "partial_rotary_factor", &factor, e) < 0 || (r && llm_json_real(r, "partial_rotary_factor", &factor, e) < 0)) return -1;
    if (!type || strcmp(type, "default") == 0 || factor == 1) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "partial_rotary_factor: expected 1 beside %s positions, found %g", type, factor);
}

static const struct llm_other_key v2_others[] = {
    {"aux_loss_alpha", "*"}, {"qk_head_dim", "*"}, {"seq_aux", "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_deepseek_v2 = {
    .model_type = "deepseek_v2",
    .gguf = "deepseek2",
    .gguf_keys = gguf_keys,
    .gguf_get = gguf_get,
    .gguf_put = gguf_put,
    .architecture = "DeepseekV2ForCausalLM",
    .keys = v2_keys,
    .ignored = v2_ignored,
    .of_transformers = of_transformers,
    .other_keys = v2_others,
    .defaults = v2_defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .in_files = in_files,
    .names = NAMES,
    .declare = llm_decoder_declare,
};

static const struct llm_other_key v3_others[] = {
    {"aux_loss_alpha", "*"}, {"qk_head_dim", "*"}, {"seq_aux", "*"}, {"topk_method", "[\"noaux_tc\"]"}, {"rope_interleave", "read"}, {NULL, NULL}};

const struct llm_arch llm_arch_deepseek_v3 = {
    .model_type = "deepseek_v3",
    .gguf = "deepseek2",
    .is_gguf = is_v3,
    .gguf_keys = gguf_keys,
    .gguf_get = gguf_get,
    .gguf_put = gguf_put,
    .architecture = "DeepseekV3ForCausalLM",
    .keys = v3_keys,
    .ignored = v3_ignored,
    .of_transformers = of_transformers,
    .other_keys = v3_others,
    .defaults = v3_defaults,
    .finish = v3_finish,
    .extra = v3_extra,
    .in_files = in_files,
    .names = NAMES,
    .declare = llm_decoder_declare,
};
