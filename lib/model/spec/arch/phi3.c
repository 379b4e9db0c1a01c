/* Phi-3 (Abdin et al. 2024): Llama with queries, keys and values in one matrix, and gate and up projections in one. */
#include <string.h>
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    LLM_KEYS_LLAMA,
    LLM_KEYS_DECODER,
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->vocab_size = 32064;
    c->hidden_size = 3072;
    c->intermediate_size = 8192;
    c->max_position_embeddings = 4096;
    c->norm_eps = 1e-5;
    c->eos_token_id = 32000;
}

static const char *const ignored[] = {"query_pre_attn_scalar", "logit_scale", "embd_pdrop", "use_sliding_window", "max_window_layers",
    "sliding_window_pattern",
    "layer_types", NULL};

/* transformers' class has a context of its own for longrope, which goes before that in the object, and takes "yarn" for an old name of longrope. */
static int of_transformers(json_t *o, struct llm_err *e)
{
    static const char *const objects[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        const json_t *found = json_object_get(o, objects[i]);
        const char *type = llm_rope_type(found);
        if (!type || strcmp(type, "yarn") != 0) continue;
        json_t *r = json_copy((json_t *)(uintptr_t)found);
        if (!r || json_object_set_new(r, "rope_type", json_string("longrope")) < 0 || json_object_set(o, objects[i], r) < 0) {
            json_decref(r);
            return llm_no_memory(e, "configuration");
        }
        json_decref(r);
    }
    const bool outside = json_is_integer(json_object_get(o, "original_max_position_embeddings"));
    if (outside || json_object_set_new(o, "original_max_position_embeddings", json_integer(4096)) == 0) return 0;
    return llm_no_memory(e, "configuration");
}

const struct llm_arch llm_arch_phi3 = {
    .model_type = "phi3",
    .gguf = "phi3",
    .architecture = "Phi3ForCausalLM",
    .keys = keys,
    .ignored = ignored,
    .of_transformers = of_transformers,
    .defaults = defaults,
    .finish = llm_decoder_finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "model.", .embed = "embed_tokens", .positions = "embed_positions", .layer = "layers.", .final_norm = "norm",
              .head = "lm_head",
              .stem = {[LLM_STEM_QKV] = "self_attn.qkv_proj", [LLM_STEM_OUT] = "self_attn.o_proj", [LLM_STEM_GATE_UP] = "mlp.gate_up_proj",
                       [LLM_STEM_DOWN] = "mlp.down_proj", [LLM_STEM_NORM_1] = "input_layernorm",
                       [LLM_STEM_NORM_2] = "post_attention_layernorm"}},
    .declare = llm_decoder_declare,
};
