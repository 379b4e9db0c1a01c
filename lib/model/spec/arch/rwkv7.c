/* RWKV 7: keys and names of flash-linear-attention's RWKV7ForCausalLM, as the folders of fla-hub have them. */
#include <math.h>
#include "model/spec/arch/keys.h"

enum { MAX_RANK = 1 << 12 };
static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF},
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF},
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"head_dim", LLM_KEY_INT, LLM_AT(head_dim), 1, 1 << 10, NULL, LLM_KEY_HF},
    {"intermediate_size", LLM_KEY_LENGTH, LLM_AT(intermediate_size), 0, 1 << 22, NULL, LLM_KEY_HF},
    {"decay_low_rank_dim", LLM_KEY_LENGTH, LLM_AT(rwkv_decay_rank), 0, MAX_RANK, NULL, LLM_KEY_HF},
    {"a_low_rank_dim", LLM_KEY_LENGTH, LLM_AT(rwkv_rate_rank), 0, MAX_RANK, NULL, LLM_KEY_HF},
    {"v_low_rank_dim", LLM_KEY_LENGTH, LLM_AT(rwkv_value_rank), 0, MAX_RANK, NULL, LLM_KEY_HF},
    {"gate_low_rank_dim", LLM_KEY_LENGTH, LLM_AT(rwkv_gate_rank), 0, MAX_RANK, NULL, LLM_KEY_HF},
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 1e-5, 1e-5, NULL, LLM_KEY_HF}, /* the norm of heads has head_dim times this */
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF},
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF},
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_OURS},
    {"resid_pdrop", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_OURS},
    {"logit_scale", LLM_KEY_SCALE, LLM_AT(logit_scale), 0, 1e6, NULL, LLM_KEY_OURS},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 32000;
    c->hidden_size = 2048;
    c->num_hidden_layers = 24;
    c->head_dim = 64;
    c->norm = LLM_NORM_LAYER;
    c->norm_bias = c->embedding_norm = true;
    c->norm_eps = 1e-5;
    c->initializer_range = .02;
    c->max_position_embeddings = 2048; /* the length of training rows and of windows in scoring; the state itself has no limit */
    c->position = LLM_POSITION_NONE;
    c->bos_token_id = 1;
    c->eos_token_id = 2;
    c->mixer = LLM_MIXER_RWKV7;
}

/* The rank of a factored matrix if the configuration says none: a multiple of 32 that grows with the root of the width. */
static void default_rank(const struct llm_config *c, double factor, int64_t *rank)
{
    int64_t steps = (int64_t)nearbyint(factor * sqrt((double)c->hidden_size) / 32);
    if (*rank == 0) *rank = 32 * (steps > 0 ? steps : 1);
    if (*rank > MAX_RANK) *rank = MAX_RANK;
}

/* Checks "value_dim", the width of each layer's values: those of other widths than hidden_size are not known here. */
static int check_values(const struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const json_t *widths = json_object_get(o, "value_dim"), *w;
    size_t i;
    bool same = !widths || json_is_null(widths) || json_integer_value(widths) == c->hidden_size || json_is_array(widths);
    json_array_foreach(widths, i, w) same = same && json_integer_value(w) == c->hidden_size;
    return same ? 0 : llm_fail(e, EX_UNAVAILABLE, "value_dim: expected hidden_size (%lld) in every layer", (long long)c->hidden_size);
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const double heads = (double)c->head_dim / 64;
    double ratio = 4;
    int64_t n = c->hidden_size / c->head_dim;
    if (check_values(c, o, e) < 0 || llm_json_real(o, "hidden_ratio", &ratio, e) < 0) return -1;
    if (!(ratio > 0 && ratio <= 1000)) return llm_fail(e, EX_DATAERR, "hidden_ratio: expected above 0, at most 1000, found %g", ratio);
    if (c->hidden_size % c->head_dim != 0) {
        return llm_fail(e, EX_DATAERR, "head_dim: expected a divisor of hidden_size (%lld), found %lld", (long long)c->hidden_size,
                        (long long)c->head_dim);
    }
    if (llm_json_int(o, "num_heads", n, n, &n, e) < 0) return -1;
    c->num_attention_heads = c->num_key_value_heads = n;
    default_rank(c, 2.5 * heads, &c->rwkv_decay_rank);
    default_rank(c, 2.5 * heads, &c->rwkv_rate_rank);
    default_rank(c, 1.7 * heads, &c->rwkv_value_rank);
    default_rank(c, 5, &c->rwkv_gate_rank);
    if (c->intermediate_size == 0) c->intermediate_size = ((int64_t)((double)c->hidden_size * ratio) + 31) / 32 * 32;
    if (c->intermediate_size >= 1 && c->intermediate_size <= 1 << 22) return 0;
    return llm_fail(e, EX_DATAERR, "intermediate_size: expected 1 to %d, found %lld", 1 << 22, (long long)c->intermediate_size);
}

/* Files of rwkv.cpp say no ranks; their matrices do. */
static void in_files(struct llm_config *c, const struct llm_model_files *files)
{
    const struct { const char *tensor; int64_t *rank; } rows[] = {{"blocks.0.att.w1", &c->rwkv_decay_rank}, {"blocks.0.att.a1", &c->rwkv_rate_rank},
        {"blocks.1.att.v1", &c->rwkv_value_rank}, {"blocks.0.att.g1", &c->rwkv_gate_rank}};
    struct llm_checkpoint *f;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct llm_entry *t = llm_model_files_find(files, rows[i].tensor, &f);
        if (t && t->n_dims == 2 && t->shape[0] >= 1 && t->shape[0] <= MAX_RANK) *rows[i].rank = t->shape[0];
    }
}

static const struct llm_other_key others[] = {{"value_dim", "read"}, {"hidden_ratio", "read"}, {"num_heads", "read"}, {"attn_mode", "*"},
    {"hidden_act", "[\"sqrelu\"]"}, {"norm_first", "[true]"}, {"norm_bias", "[true]"}, {"attn", "[]"}, {"fuse_norm", "*"},
    {"fuse_cross_entropy", "*"}, {"fuse_linear_cross_entropy", "*"}, {"use_l2warp", "*"}, {NULL, NULL}};
static const char *const ignored[] = {"embd_pdrop", "resid_pdrop", "logit_scale", NULL};

static const struct llm_names rwkv_cpp_names = {
    .prefix = "", .embed = "emb", .embed_norm = "blocks.0.ln0", .layer = "blocks.", .final_norm = "ln_out", .head = "head",
    .stem = {[LLM_STEM_NORM_1] = "ln1", [LLM_STEM_NORM_2] = "ln2", [LLM_STEM_SHARE_R] = "att.x_rwkvag", [LLM_STEM_SHARE_DECAY] = "att.x_rwkvag",
             [LLM_STEM_SHARE_K] = "att.x_rwkvag", [LLM_STEM_SHARE_V] = "att.x_rwkvag", [LLM_STEM_SHARE_RATE] = "att.x_rwkvag",
             [LLM_STEM_SHARE_OUT_GATE] = "att.x_rwkvag", [LLM_STEM_KEY_SCALE] = "att.k_k", [LLM_STEM_KEY_MIX] = "att.k_a",
             [LLM_STEM_FIRST] = "att.r_k", [LLM_STEM_Q] = "att.receptance", [LLM_STEM_K] = "att.key", [LLM_STEM_V] = "att.value",
             [LLM_STEM_DECAY] = "att.w0", [LLM_STEM_DECAY_IN] = "att.w1", [LLM_STEM_DECAY_OUT] = "att.w2", [LLM_STEM_RATE] = "att.a0",
             [LLM_STEM_RATE_IN] = "att.a1", [LLM_STEM_RATE_OUT] = "att.a2", [LLM_STEM_VALUE] = "att.v0", [LLM_STEM_VALUE_IN] = "att.v1",
             [LLM_STEM_VALUE_OUT] = "att.v2", [LLM_STEM_OUT_GATE_IN] = "att.g1", [LLM_STEM_OUT_GATE] = "att.g2", [LLM_STEM_POST_1] = "att.ln_x",
             [LLM_STEM_OUT] = "att.output", [LLM_STEM_SHARE_UP] = "ffn.x_k", [LLM_STEM_UP] = "ffn.key", [LLM_STEM_DOWN] = "ffn.value"}};

#define LORA(name, part) "attn." name "_lora.lora." part
const struct llm_arch llm_arch_rwkv7 = {
    .model_type = "rwkv7", .architecture = "RWKV7ForCausalLM", .keys = keys, .other_keys = others, .ignored = ignored, .defaults = defaults,
    .finish = finish, .in_files = in_files, .rwkv_cpp_names = &rwkv_cpp_names, .out_bias_apart = true, .declare = llm_decoder_declare,
    .names = {.prefix = "model.", .embed = "embeddings", .embed_norm = "layers.0.pre_norm", .layer = "layers.", .final_norm = "norm",
              .head = "lm_head",
              .stem = {[LLM_STEM_NORM_1] = "attn_norm", [LLM_STEM_NORM_2] = "ffn_norm", [LLM_STEM_SHARE_R] = "attn.x_r",
                       [LLM_STEM_SHARE_DECAY] = "attn.x_w", [LLM_STEM_SHARE_K] = "attn.x_k", [LLM_STEM_SHARE_V] = "attn.x_v",
                       [LLM_STEM_SHARE_RATE] = "attn.x_a", [LLM_STEM_SHARE_OUT_GATE] = "attn.x_g", [LLM_STEM_KEY_SCALE] = "attn.k_k",
                       [LLM_STEM_KEY_MIX] = "attn.k_a", [LLM_STEM_FIRST] = "attn.r_k", [LLM_STEM_Q] = "attn.r_proj", [LLM_STEM_K] = "attn.k_proj",
                       [LLM_STEM_V] = "attn.v_proj", [LLM_STEM_DECAY] = LORA("w", "2.bias"), [LLM_STEM_DECAY_IN] = LORA("w", "0.weight"),
                       [LLM_STEM_DECAY_OUT] = LORA("w", "2.weight"), [LLM_STEM_RATE] = LORA("a", "2.bias"),
                       [LLM_STEM_RATE_IN] = LORA("a", "0.weight"), [LLM_STEM_RATE_OUT] = LORA("a", "2.weight"),
                       [LLM_STEM_VALUE] = LORA("v", "2.bias"), [LLM_STEM_VALUE_IN] = LORA("v", "0.weight"),
                       [LLM_STEM_VALUE_OUT] = LORA("v", "2.weight"), [LLM_STEM_OUT_GATE_IN] = LORA("g", "0.weight"),
                       [LLM_STEM_OUT_GATE] = LORA("g", "2.weight"), [LLM_STEM_POST_1] = "attn.g_norm", [LLM_STEM_OUT] = "attn.o_proj",
                       [LLM_STEM_SHARE_UP] = "ffn.x_k", [LLM_STEM_UP] = "ffn.key", [LLM_STEM_DOWN] = "ffn.value"}}};
