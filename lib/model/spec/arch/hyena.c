/* Hyena (Poli et al. 2023) as HyenaDNA has it: keys and names of HyenaDNAForCausalLM in LongSafari's folders. Their code has order 2 alone; for
 * higher orders the last matrix of a filter has the rows of all convolutions. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF},
    {"d_model", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 16, NULL, LLM_KEY_HF},
    {"d_inner", LLM_KEY_LENGTH, LLM_AT(intermediate_size), 0, 1 << 22, NULL, LLM_KEY_HF},
    {"n_layer", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"max_seq_len", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_ALIAS}, /* of other families here */
    {"hyena_order", LLM_KEY_INT, LLM_AT(hyena_order), 2, 16, NULL, LLM_KEY_HF},
    {"short_filter_order", LLM_KEY_INT, LLM_AT(conv_kernel), 3, 3, NULL, LLM_KEY_HF}, /* their padding makes others see later tokens */
    {"filter_order", LLM_KEY_INT, LLM_AT(filter_width), 1, 1 << 14, NULL, LLM_KEY_HF},
    {"num_inner_mlps", LLM_KEY_LENGTH, LLM_AT(filter_inner), 0, LLM_HYENA_MAX_INNER, NULL, LLM_KEY_HF},
    {"emb_dim", LLM_KEY_INT, LLM_AT(filter_features), 3, 1023, NULL, LLM_KEY_HF},
    {"activation_freq", LLM_KEY_REAL, LLM_AT(filter_freq), 1e-6, 1e6, NULL, LLM_KEY_HF},
    {"layer_norm_epsilon", LLM_KEY_REAL, LLM_AT(norm_eps), 1e-5, 1e-5, NULL, LLM_KEY_HF}, /* their other norms have 1e-5 whatever it says */
    {"embed_dropout", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF},
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF},
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"resid_pdrop", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_OURS},
    {"logit_scale", LLM_KEY_SCALE, LLM_AT(logit_scale), 0, 1e6, NULL, LLM_KEY_OURS},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 12;
    c->hidden_size = 256;
    c->num_hidden_layers = 12;
    c->max_position_embeddings = 1024;
    c->hyena_order = 2;
    c->conv_kernel = 3;
    c->filter_width = 64;
    c->filter_inner = 2;
    c->filter_features = 3;
    c->filter_freq = 1;
    c->norm = LLM_NORM_LAYER;
    c->norm_eps = 1e-5;
    c->norm_bias = c->mlp_bias = true;
    c->act = LLM_ACT_GELU_TANH;
    c->embd_pdrop = .1;
    c->initializer_range = .02;
    c->position = LLM_POSITION_NONE;
    c->num_attention_heads = c->num_key_value_heads = c->head_dim = 1;
    c->bos_token_id = c->eos_token_id = -1;
    c->mixer = LLM_MIXER_HYENA;
}

/* The table of embeddings has as many rows as the next multiple of pad_vocab_size_multiple. */
static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    int64_t multiple = 8;
    if (llm_json_int(o, "pad_vocab_size_multiple", 1, 1 << 20, &multiple, e) < 0) return -1;
    c->vocab_size = (c->vocab_size + multiple - 1) / multiple * multiple;
    if (c->intermediate_size == 0) c->intermediate_size = 4 * c->hidden_size;
    if (c->intermediate_size > 1 << 22) {
        return llm_fail(e, EX_DATAERR, "d_inner: expected 1 to %d, found %lld", 1 << 22, (long long)c->intermediate_size);
    }
    if (c->filter_features % 2 == 1) return 0;
    return llm_fail(e, EX_DATAERR, "emb_dim: expected an odd number (time, sines and cosines), found %lld", (long long)c->filter_features);
}

/* vocab_size has been rounded up. */
static int extra(const struct llm_config *c, json_t *o)
{
    (void)c;
    return json_object_set_new(o, "pad_vocab_size_multiple", json_integer(1));
}

static const struct llm_other_key others[] = {{"pad_vocab_size_multiple", "read"}, {"use_bias", "*"}, {"train_freq", "[true]"},
    {"hyena_dropout", "[0]"}, {"hyena_filter_dropout", "*"}, {NULL, NULL}};
static const char *const ignored[] = {"max_position_embeddings", "resid_pdrop", "logit_scale", NULL};
const struct llm_arch llm_arch_hyenadna = {
    .model_type = "hyenadna", .architecture = "HyenaDNAForCausalLM", .keys = keys, .other_keys = others, .ignored = ignored, .defaults = defaults,
    .finish = finish, .extra = extra, .out_bias_apart = true, .scaled_residual = true, .declare = llm_decoder_declare,
    .names = {.prefix = "hyena.backbone.", .embed = "embeddings.word_embeddings", .layer = "layers.", .final_norm = "ln_f", .head = "lm_head",
              .stem = {[LLM_STEM_NORM_1] = "norm1", [LLM_STEM_NORM_2] = "norm2", [LLM_STEM_QKV] = "mixer.in_proj", [LLM_STEM_OUT] = "mixer.out_proj",
                       [LLM_STEM_CONV] = "mixer.short_filter.weight", [LLM_STEM_CONV_BIAS] = "mixer.short_filter.bias",
                       [LLM_STEM_SKIP] = "mixer.filter_fn.bias", [LLM_STEM_FILTER] = "mixer.filter_fn.implicit_filter",
                       [LLM_STEM_FILTER_FREQ] = "mixer.filter_fn.implicit_filter", [LLM_STEM_FILTER_POSITIONS] = "mixer.filter_fn.pos_emb.z",
                       [LLM_STEM_FILTER_TIME] = "mixer.filter_fn.pos_emb.t", [LLM_STEM_FILTER_DECAY] = "mixer.filter_fn.modulation.deltas",
                       [LLM_STEM_UP] = "mlp.fc1", [LLM_STEM_DOWN] = "mlp.fc2"}}};
