/* RWKV 4: keys and names of transformers' RwkvForCausalLM (RWKV/rwkv-4-*-pile). */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF},
    {"context_length", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_ALIAS},
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF},
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"attention_hidden_size", LLM_KEY_LENGTH, LLM_AT(head_dim), 0, 1 << 20, NULL, LLM_KEY_HF},
    {"intermediate_size", LLM_KEY_LENGTH, LLM_AT(intermediate_size), 0, 1 << 22, NULL, LLM_KEY_HF},
    {"layer_norm_epsilon", LLM_KEY_REAL, LLM_AT(norm_eps), 1e-5, 1e-5, NULL, LLM_KEY_HF}, /* the norm after the layers has 1e-5 in any case */
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF},
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_OURS},
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_OURS},
    {"resid_pdrop", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_OURS},
    {"logit_scale", LLM_KEY_SCALE, LLM_AT(logit_scale), 0, 1e6, NULL, LLM_KEY_OURS},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 50277;
    c->hidden_size = 4096;
    c->num_hidden_layers = 32;
    c->norm = LLM_NORM_LAYER;
    c->norm_bias = c->embedding_norm = true;
    c->norm_eps = 1e-5;
    c->max_position_embeddings = 1024; /* the length of training rows and of windows in scoring; the state itself has no limit */
    c->position = LLM_POSITION_NONE;
    c->num_attention_heads = c->num_key_value_heads = 1;
    c->bos_token_id = c->eos_token_id = 0;
    c->mixer = LLM_MIXER_RWKV4;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    (void)o;
    if (c->head_dim == 0) c->head_dim = c->hidden_size;
    if (c->intermediate_size == 0) c->intermediate_size = 4 * c->hidden_size;
    if (c->intermediate_size <= 1 << 22) return 0;
    return llm_fail(e, EX_DATAERR, "intermediate_size: expected at most %d, found %lld", 1 << 22, (long long)c->intermediate_size);
}

/* rescale_every divides hidden states by powers of 2 in inference, against overflow in 16 bits, and multiplies weights: the logits stay. */
static const struct llm_other_key others[] = {{"rescale_every", "*"}, {"num_attention_heads", "*"}, {"num_key_value_heads", "*"}, {NULL, NULL}};
static const char *const ignored[] = {"initializer_range", "embd_pdrop", "resid_pdrop", "logit_scale", NULL};

static const struct llm_names rwkv_cpp_names = {
    .prefix = "", .embed = "emb", .embed_norm = "blocks.0.ln0", .layer = "blocks.", .final_norm = "ln_out", .head = "head",
    .stem = {[LLM_STEM_NORM_1] = "ln1", [LLM_STEM_NORM_2] = "ln2", [LLM_STEM_DECAY] = "att.time_decay", [LLM_STEM_FIRST] = "att.time_first",
             [LLM_STEM_SHARE_K] = "att.time_mix_k", [LLM_STEM_SHARE_V] = "att.time_mix_v", [LLM_STEM_SHARE_R] = "att.time_mix_r",
             [LLM_STEM_K] = "att.key", [LLM_STEM_V] = "att.value", [LLM_STEM_Q] = "att.receptance", [LLM_STEM_OUT] = "att.output",
             [LLM_STEM_SHARE_UP] = "ffn.time_mix_k", [LLM_STEM_SHARE_GATE] = "ffn.time_mix_r", [LLM_STEM_UP] = "ffn.key",
             [LLM_STEM_GATE] = "ffn.receptance", [LLM_STEM_DOWN] = "ffn.value"}};

const struct llm_arch llm_arch_rwkv = {
    .model_type = "rwkv", .architecture = "RwkvForCausalLM", .keys = keys, .other_keys = others, .ignored = ignored, .defaults = defaults,
    .finish = finish,
    .names = {.prefix = "rwkv.", .embed = "embeddings", .embed_norm = "blocks.0.pre_ln", .layer = "blocks.", .final_norm = "ln_out", .head = "head",
              .stem = {[LLM_STEM_NORM_1] = "ln1", [LLM_STEM_NORM_2] = "ln2", [LLM_STEM_DECAY] = "attention.time_decay",
                       [LLM_STEM_FIRST] = "attention.time_first", [LLM_STEM_SHARE_K] = "attention.time_mix_key",
                       [LLM_STEM_SHARE_V] = "attention.time_mix_value", [LLM_STEM_SHARE_R] = "attention.time_mix_receptance",
                       [LLM_STEM_K] = "attention.key", [LLM_STEM_V] = "attention.value", [LLM_STEM_Q] = "attention.receptance",
                       [LLM_STEM_OUT] = "attention.output", [LLM_STEM_SHARE_UP] = "feed_forward.time_mix_key",
                       [LLM_STEM_SHARE_GATE] = "feed_forward.time_mix_receptance", [LLM_STEM_UP] = "feed_forward.key",
                       [LLM_STEM_GATE] = "feed_forward.receptance", [LLM_STEM_DOWN] = "feed_forward.value"}},
    .rwkv_cpp_names = &rwkv_cpp_names, .out_bias_apart = true, .declare = llm_decoder_declare,
};
