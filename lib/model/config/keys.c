/* Which keys a configuration may have. Each key is known (a row of the family's table, or code of ours that reads it), harmless (its value changes
 * nothing that we compute), or the configuration is refused with its name: a key that is silently ignored gives wrong results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "model/config/arch.h"

/* Keys of all families that no table reads. Notes about files and about how transformers computes and generates are harmless: programs here have
 * options for these. Switches of models are harmless if they are off. */
static const struct llm_other_key all_families[] = {
    /* read elsewhere */
    {"model_type", "read"}, {"architectures", "read"}, {"id2label", "read"}, {"num_labels", "read"},
    /* notes about the file and its tools */
    {"transformers_version", "*"}, {"_name_or_path", "*"}, {"_commit_hash", "*"}, {"dtype", "*"}, {"torch_dtype", "*"}, {"auto_map", "*"},
    {"label2id", "*"}, {"finetuning_task", "*"}, {"tokenizer_class", "*"}, {"task_specific_params", "*"}, {"custom_pipelines", "*"},
    {"transformers.js_config", "*"}, {"unsloth_version", "*"}, {"unsloth_fixed", "*"}, {"is_llama_config", "*"}, {"license", "*"},
    {"language", "*"}, {"name", "*"}, {"_remove_final_layer_norm", "[false]"}, {"gradient_checkpointing", "*"}, {"is_decoder", "*"},
    {"vocab_file", "*"}, {"output_past", "*"}, {"directionality", "*"}, {"trust_remote_code", "*"},
    {"sentence_transformers", "*"}, {"sbert_ce_default_activation_function", "*"}, {"_num_labels", "*"}, {"max_sequence_length", "*"},
    {"model_max_length", "*"}, {"tokenizer_model_max_length", "*"}, {"seq_length", "*"},
    /* how transformers computes the same */
    {"use_cache", "*"}, {"attn_implementation", "*"}, {"_attn_implementation", "*"}, {"_attn_implementation_internal", "*"},
    {"_attn_implementation_autoset", "*"}, {"_flash_attn_2_enabled", "*"}, {"_experts_implementation", "*"}, {"experts_implementation", "*"},
    {"return_dict", "*"}, {"output_attentions", "*"}, {"output_hidden_states", "*"}, {"output_router_logits", "*"}, {"torchscript", "*"},
    {"use_bfloat16", "*"}, {"tf_legacy_loss", "*"}, {"chunk_size_feed_forward", "*"}, {"pretraining_tp", "*"}, {"ep_size", "*"},
    {"cache_implementation", "*"}, {"fused_add_norm", "*"}, {"flash_attn", "*"}, {"use_flash_attn", "*"}, {"use_flash_attention", "*"},
    {"bf16", "*"}, {"fp16", "*"}, {"fp32", "*"}, {"use_parallel_embedding", "*"},
    /* quantised weights have other tensors, which are checked one by one */
    {"quantization_config", "*"}, {"quantization", "*"}, {"compression_config", "*"},
    /* tokens that nothing here asks the configuration for */
    {"pad_token_id", "*"}, {"sep_token_id", "*"}, {"cls_token_id", "*"}, {"unk_token_id", "*"}, {"mask_token", "*"}, {"bos_token", "*"},
    {"eos_token", "*"}, {"pad_token", "*"},
    /* how transformers generates */
    {"max_length", "*"}, {"min_length", "*"}, {"max_new_tokens", "*"}, {"do_sample", "*"}, {"early_stopping", "*"}, {"num_beams", "*"},
    {"num_beam_groups", "*"}, {"diversity_penalty", "*"}, {"temperature", "*"}, {"top_k", "*"}, {"top_p", "*"}, {"typical_p", "*"},
    {"repetition_penalty", "*"}, {"length_penalty", "*"}, {"no_repeat_ngram_size", "*"}, {"encoder_no_repeat_ngram_size", "*"},
    {"bad_words_ids", "*"}, {"num_return_sequences", "*"}, {"output_scores", "*"}, {"return_dict_in_generate", "*"},
    {"forced_bos_token_id", "*"}, {"forced_eos_token_id", "*"}, {"remove_invalid_values", "*"}, {"exponential_decay_length_penalty", "*"},
    {"suppress_tokens", "*"}, {"begin_suppress_tokens", "*"}, {"prefix", "*"},
    /* dropout before a classifier's matrix, heads of GPT2DoubleHeadsModel: parts that are not trained here with transformers' rates */
    {"classifier_dropout", "*"}, {"summary_type", "*"}, {"summary_use_proj", "*"}, {"summary_activation", "*"}, {"summary_proj_to_labels", "*"},
    {"summary_first_dropout", "*"},
    /* switches that are off */
    {"is_encoder_decoder", "[false]"}, {"add_cross_attention", "[false]"}, {"cross_attention_hidden_size", "[0]"},
    {"tie_encoder_decoder", "[false]"},
    {"pruned_heads", "[{}]"}, {"problem_type", "[\"single_label_classification\"]"}, {"use_bidirectional_attention", "[false]"},
    {"is_causal", "[true]"}, {"attention_bias", "[false]"}, {"mlp_bias", "[false]"}, {"bias", "[false]"}, {"qkv_bias", "[false]"},
    {"lm_head_bias", "[false]"}, {"full_attn_mod", "[1]"}, {"interpolate_factor", "[1]"}, {"use_dynamic_ntk", "[false]"},
    {"use_logn_attn", "[false]"},
    {"attention_probs_dropout_prob", "[0]"}, {"hidden_dropout_prob", "[0]"}, {"attention_dropout", "[0]"}, {"hidden_dropout", "[0]"},
    {"resid_pdrop", "[0]"}, {"embd_pdrop", "[0]"}, {"attn_pdrop", "[0]"},
    {"partial_rotary_factor", "[1]"}, {"rope_interleaved", "[false]"}, {"rope_scaling", "[{}]"},
    {"attn_logit_softcapping", "[0]"}, {"final_logit_softcapping", "[0]"}, {"use_qk_norm", "[false]"}, {"qk_norm", "[false]"},
    {"qk_layernorm", "[false]"}, {"use_parallel_residual", "[false]"}, {"clip_qkv", "[0]"}, {"use_sliding_window", "[false]"},
    {"sliding_window", "[0]"}, {"use_mrope", "[false]"}, {"scale_attn_weights", "[true]"}, {"scale_attn_by_inverse_layer_idx", "[false]"},
    {"mlp_only_layers", "[[]]"}, {"num_experts", "[0]"}, {"num_local_experts", "[0]"}, {"router_jitter_noise", "[0]"},
    {"input_jitter_noise", "[0]"}, {"embedding_multiplier", "[1]"}, {"residual_multiplier", "[1]"}, {"logits_scaling", "[1]"},
    {"logit_scale", "[1]"}, {"rescale_prenorm_residual", "[false]"}, {"position_embedding_type", "[\"absolute\", \"rope\"]"},
    {NULL, NULL}};

/* Keys of families with attention, which llm_decoder_finish reads. */
static const struct llm_other_key decoders[] = {
    {"layer_types", "read"}, {"no_rope_layers", "read"}, {"dual_chunk_attention_config", "read"}, {"original_max_position_embeddings", "read"},
    {"rope_scaling", "read"}, {"rope_parameters", "read"}, {NULL, NULL}};

/* Keys of the objects "rope_scaling" and "rope_parameters". */
static const char *const rope_keys[] = {
    "type", "rope_type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale",
    "mscale_all_dim", "original_max_position_embeddings", "truncate", "short_factor", "long_factor", "partial_rotary_factor", "full_attention",
    "sliding_attention", "finetuned", NULL};

static bool forced;

void llm_config_force(bool on) { forced = on; }

bool llm_config_is_foreign(const json_t *o) { return json_object_get(o, "transformers_version") != NULL; }

static const struct llm_other_key *find(const struct llm_other_key *keys, const char *name)
{
    while (keys && keys->name && strcmp(keys->name, name) != 0) keys++;
    return keys && keys->name ? keys : NULL;
}

/* Compares two JSON values; 1 and 1.0 are equal. */
static bool equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static enum llm_key_use use_of(const struct llm_other_key *k, const json_t *value)
{
    if (strcmp(k->values, "read") == 0) return LLM_KEY_KNOWN;
    if (strcmp(k->values, "*") == 0) return LLM_KEY_HARMLESS;
    json_t *list = json_loads(k->values, 0, NULL);
    enum llm_key_use use = LLM_KEY_UNKNOWN;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (equal(value, json_array_get(list, i))) use = LLM_KEY_HARMLESS;
    }
    json_decref(list);
    return use;
}

bool llm_config_ignores(const struct llm_arch *arch, const char *name)
{
    for (const char *const *p = arch->ignored; p && *p; p++) {
        if (strcmp(*p, name) == 0) return true;
    }
    return false;
}

enum llm_key_use llm_config_key_use(const struct llm_arch *arch, const char *name, const json_t *value, bool foreign)
{
    if (foreign && llm_config_ignores(arch, name)) return LLM_KEY_HARMLESS;
    if (llm_config_has_row(arch, name)) return LLM_KEY_KNOWN;
    const struct llm_other_key *k = find(arch->other_keys, name);
    const char *dot = arch->sections ? strchr(name, '.') : NULL, *own = dot ? dot + 1 : name;
    if (!k && llm_config_blank(arch).mixer == LLM_MIXER_ATTENTION) k = find(decoders, own);
    if (!k) k = find(all_families, own);
    if (json_is_null(value)) return k && strcmp(k->values, "read") == 0 ? LLM_KEY_KNOWN : LLM_KEY_HARMLESS;
    return k ? use_of(k, value) : LLM_KEY_UNKNOWN;
}

/* Refuses a key that is neither known nor harmless (-1), or, after llm_config_force(true), warns of it (0). `within`: the object that has the key;
 * NULL: the configuration itself. */
static int refuse(const struct llm_arch *arch, const char *within, const char *name, const json_t *value, struct llm_err *e)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const char *dot = within ? "." : "";
    if (forced) {
        llm_warn("configuration: %s%s%s: ignored (%.60s)", within ? within : "", dot, name, text ? text : "");
    } else {
        llm_fail(e, EX_DATAERR, "%s%s%s: expected a key that %s models have here, or one that changes nothing; found %.60s "
                 "(--force-config ignores it)", within ? within : "", dot, name, arch->model_type, text ? text : "a value");
    }
    free(text);
    return forced ? 0 : -1;
}

static int check_rope(const struct llm_arch *arch, const char *within, const json_t *o, struct llm_err *e)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o, name, value) {
        size_t i = 0;
        while (rope_keys[i] && strcmp(rope_keys[i], name) != 0) i++;
        if (!rope_keys[i] && !json_is_null(value) && refuse(arch, within, name, value, e) < 0) return -1;
        if (json_is_object(value) && check_rope(arch, within, value, e) < 0) return -1;
    }
    return 0;
}

int llm_config_check_keys(const struct llm_arch *arch, const json_t *o, struct llm_err *e)
{
    const char *name;
    json_t *value;
    bool foreign = llm_config_is_foreign(o);
    json_object_foreach((json_t *)(uintptr_t)o, name, value) {
        enum llm_key_use use = llm_config_key_use(arch, name, value, foreign);
        if (use == LLM_KEY_UNKNOWN && refuse(arch, NULL, name, value, e) < 0) return -1;
        const char *dot = arch->sections ? strchr(name, '.') : NULL, *own = dot ? dot + 1 : name;
        bool rope = strcmp(own, "rope_scaling") == 0 || strcmp(own, "rope_parameters") == 0;
        if (use == LLM_KEY_KNOWN && rope && check_rope(arch, name, value, e) < 0) return -1;
    }
    return 0;
}
