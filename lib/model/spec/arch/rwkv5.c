/* RWKV 5.2 and 6: keys and names of Rwkv5ForCausalLM and Rwkv6ForCausalLM, whose code RWKV's folders for transformers bring along
 * (RWKV/rwkv-5-world-1b5, RWKV/rwkv-6-world-1b6). */
#include "model/spec/arch/keys.h"

#define KEYS \
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF}, \
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF}, \
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF}, \
    {"head_size", LLM_KEY_INT, LLM_AT(head_dim), 1, 1 << 10, NULL, LLM_KEY_HF}, \
    {"intermediate_size", LLM_KEY_LENGTH, LLM_AT(intermediate_size), 0, 1 << 22, NULL, LLM_KEY_HF}, \
    {"layer_norm_epsilon", LLM_KEY_REAL, LLM_AT(norm_eps), 1e-5, 1e-5, NULL, LLM_KEY_HF}, /* the norm after the layers has 1e-5 in any case */ \
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF}, \
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF}, \
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF}, \
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_OURS}, \
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_OURS}, \
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_OURS}, \
    {"resid_pdrop", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_OURS}, \
    {"logit_scale", LLM_KEY_SCALE, LLM_AT(logit_scale), 0, 1e6, NULL, LLM_KEY_OURS}

static const struct llm_config_key keys5[] = {KEYS, LLM_KEY_END};
static const struct llm_config_key keys6[] = {
    KEYS,
    {"time_mix_extra_dim", LLM_KEY_INT, LLM_AT(rwkv_mix_rank), 1, 1 << 12, NULL, LLM_KEY_OURS},
    {"time_decay_extra_dim", LLM_KEY_INT, LLM_AT(rwkv_decay_rank), 1, 1 << 12, NULL, LLM_KEY_OURS},
    LLM_KEY_END,
};

static void defaults5(struct llm_config *c)
{
    c->vocab_size = 65536;
    c->hidden_size = 768;
    c->num_hidden_layers = 24;
    c->head_dim = 64;
    c->norm = LLM_NORM_LAYER;
    c->norm_bias = c->embedding_norm = true;
    c->norm_eps = 1e-5;
    c->max_position_embeddings = 4096; /* the length of training rows and of windows in scoring; the state itself has no limit */
    c->position = LLM_POSITION_NONE;
    c->bos_token_id = c->eos_token_id = 0;
    c->mixer = LLM_MIXER_RWKV5;
}

static void defaults6(struct llm_config *c)
{
    defaults5(c);
    c->rwkv_mix_rank = 32;
    c->rwkv_decay_rank = 64;
    c->mixer = LLM_MIXER_RWKV6;
}

/* Reads attention_hidden_size, which is hidden_size if it is null or absent, and which must be heads of head_size. */
static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    int64_t width = c->hidden_size;
    if (llm_json_int(o, "attention_hidden_size", 1, 1 << 20, &width, e) < 0) return -1;
    if (width % c->head_dim != 0) {
        return llm_fail(e, EX_DATAERR, "head_size: expected a divisor of attention_hidden_size (%lld), found %lld", (long long)width,
                        (long long)c->head_dim);
    }
    c->num_attention_heads = c->num_key_value_heads = width / c->head_dim;
    if (c->intermediate_size == 0) c->intermediate_size = c->hidden_size * 7 / 2 / 32 * 32;
    if (c->intermediate_size >= 1 && c->intermediate_size <= 1 << 22) return 0;
    return llm_fail(e, EX_DATAERR, "intermediate_size: expected 1 to %d, found %lld", 1 << 22, (long long)c->intermediate_size);
}

static int extra(const struct llm_config *c, json_t *o)
{
    return json_object_set_new(o, "attention_hidden_size", json_integer(llm_rwkv_width(c)));
}

/* Sets *rank, which is no key of transformers' class, from the size of a matrix between `parts` ranks and the hidden state. Its orientation differs
 * between kinds of files. If the matrix is absent or of another size, *rank stays, and reading the parameters says what is wrong. */
static void rank_in_files(const struct llm_config *c, const struct llm_model_files *files, const char *const names[2], int64_t parts, int64_t *rank)
{
    struct llm_checkpoint *f;
    for (int i = 0; i < 2; i++) {
        const struct llm_entry *t = llm_model_files_find(files, names[i], &f);
        if (!t || t->n_dims != 2 || t->shape[0] > 1 << 24 || t->shape[1] > 1 << 24) continue;
        int64_t size = t->shape[0] * t->shape[1] / c->hidden_size / parts;
        if (size >= 1 && size <= 1 << 12) *rank = size;
    }
}

static void in_files(struct llm_config *c, const struct llm_model_files *files)
{
    static const char *const mix[] = {"rwkv.blocks.0.attention.time_maa_w1", "blocks.0.att.time_maa_w1"};
    static const char *const decay[] = {"rwkv.blocks.0.attention.time_decay_w1", "blocks.0.att.time_decay_w1"};
    rank_in_files(c, files, mix, LLM_RWKV_MIXES, &c->rwkv_mix_rank);
    rank_in_files(c, files, decay, 1, &c->rwkv_decay_rank);
}

/* rescale_every divides hidden states by powers of 2 in inference, against overflow in 16 bits, and multiplies weights: the logits stay. The number
 * of heads follows from their size, whatever num_attention_heads says. */
static const struct llm_other_key others[] = {{"attention_hidden_size", "read"}, {"rescale_every", "*"}, {"num_attention_heads", "*"},
    {"num_key_value_heads", "*"}, {"head_size_divisor", "[8]"}, {"model_version", "*"}, {"context_length", "*"}, {NULL, NULL}};
static const char *const ignored[] = {"initializer_range", "embd_pdrop", "resid_pdrop", "logit_scale", NULL};

#define RWKV_CPP .prefix = "", .embed = "emb", .embed_norm = "blocks.0.ln0", .layer = "blocks.", .final_norm = "ln_out", .head = "head"
#define RWKV_CPP_STEMS \
    [LLM_STEM_NORM_1] = "ln1", [LLM_STEM_NORM_2] = "ln2", [LLM_STEM_DECAY] = "att.time_decay", [LLM_STEM_FIRST] = "att.time_faaaa", \
    [LLM_STEM_K] = "att.key", [LLM_STEM_V] = "att.value", [LLM_STEM_Q] = "att.receptance", [LLM_STEM_OUT_GATE] = "att.gate", \
    [LLM_STEM_POST_1] = "att.ln_x", [LLM_STEM_OUT] = "att.output", [LLM_STEM_UP] = "ffn.key", [LLM_STEM_GATE] = "ffn.receptance", \
    [LLM_STEM_DOWN] = "ffn.value"
#define HF .prefix = "rwkv.", .embed = "embeddings", .embed_norm = "blocks.0.pre_ln", .layer = "blocks.", .final_norm = "ln_out", .head = "head"
#define HF_STEMS \
    [LLM_STEM_NORM_1] = "ln1", [LLM_STEM_NORM_2] = "ln2", [LLM_STEM_DECAY] = "attention.time_decay", [LLM_STEM_FIRST] = "attention.time_faaaa", \
    [LLM_STEM_K] = "attention.key", [LLM_STEM_V] = "attention.value", [LLM_STEM_Q] = "attention.receptance", \
    [LLM_STEM_OUT_GATE] = "attention.gate", [LLM_STEM_POST_1] = "attention.ln_x", [LLM_STEM_OUT] = "attention.output", \
    [LLM_STEM_UP] = "feed_forward.key", [LLM_STEM_GATE] = "feed_forward.receptance", [LLM_STEM_DOWN] = "feed_forward.value"
/* The shares of version 6, whose names end alike in both kinds of files. */
#define MAA_STEMS(attention, feed_forward) \
    [LLM_STEM_SHARE_K] = attention ".time_maa_k", [LLM_STEM_SHARE_V] = attention ".time_maa_v", [LLM_STEM_SHARE_R] = attention ".time_maa_r", \
    [LLM_STEM_SHARE_OUT_GATE] = attention ".time_maa_g", [LLM_STEM_SHARE_MIX] = attention ".time_maa_x", \
    [LLM_STEM_MIX_IN] = attention ".time_maa_w1", [LLM_STEM_MIX_OUT] = attention ".time_maa_w2", \
    [LLM_STEM_SHARE_DECAY] = attention ".time_maa_w", [LLM_STEM_DECAY_IN] = attention ".time_decay_w1", \
    [LLM_STEM_DECAY_OUT] = attention ".time_decay_w2", [LLM_STEM_SHARE_UP] = feed_forward ".time_maa_k", \
    [LLM_STEM_SHARE_GATE] = feed_forward ".time_maa_r"

static const struct llm_names rwkv_cpp_names5 = {
    RWKV_CPP, .stem = {RWKV_CPP_STEMS, [LLM_STEM_SHARE_K] = "att.time_mix_k", [LLM_STEM_SHARE_V] = "att.time_mix_v",
                       [LLM_STEM_SHARE_R] = "att.time_mix_r", [LLM_STEM_SHARE_OUT_GATE] = "att.time_mix_g", [LLM_STEM_SHARE_UP] = "ffn.time_mix_k",
                       [LLM_STEM_SHARE_GATE] = "ffn.time_mix_r"}};
static const struct llm_names rwkv_cpp_names6 = {RWKV_CPP, .stem = {RWKV_CPP_STEMS, MAA_STEMS("att", "ffn")}};

#define ARCH .other_keys = others, .ignored = ignored, .finish = finish, .extra = extra, .out_bias_apart = true, .declare = llm_decoder_declare
const struct llm_arch llm_arch_rwkv5 = {
    .model_type = "rwkv5", .architecture = "Rwkv5ForCausalLM", .keys = keys5, .defaults = defaults5, ARCH, .rwkv_cpp_names = &rwkv_cpp_names5,
    .names = {HF, .stem = {HF_STEMS, [LLM_STEM_SHARE_K] = "attention.time_mix_key", [LLM_STEM_SHARE_V] = "attention.time_mix_value",
                           [LLM_STEM_SHARE_R] = "attention.time_mix_receptance", [LLM_STEM_SHARE_OUT_GATE] = "attention.time_mix_gate",
                           [LLM_STEM_SHARE_UP] = "feed_forward.time_mix_key", [LLM_STEM_SHARE_GATE] = "feed_forward.time_mix_receptance"}}};
const struct llm_arch llm_arch_rwkv6 = {
    .model_type = "rwkv6", .architecture = "Rwkv6ForCausalLM", .keys = keys6, .defaults = defaults6, ARCH, .in_files = in_files,
    .rwkv_cpp_names = &rwkv_cpp_names6, .names = {HF, .stem = {HF_STEMS, MAA_STEMS("attention", "feed_forward")}}};
