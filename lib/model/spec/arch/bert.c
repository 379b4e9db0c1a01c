/* BERT (Devlin et al. 2019) and MiniLM: an encoder with LayerNorm after each residual sum, learned positions, token types, and a norm of the
 * embeddings. Keys and names are those of transformers' BertForMaskedLM. Files of a BertModel have no head, and their names may lack the prefix
 * "bert.". */
#include "model/spec/arch/keys.h"

#include <string.h>

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF},
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF},
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"num_attention_heads", LLM_KEY_INT, LLM_AT(num_attention_heads), 1, 1 << 14, NULL, LLM_KEY_HF},
    {"intermediate_size", LLM_KEY_INT, LLM_AT(intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF},
    {"hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF},
    {"hidden_dropout_prob", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"attention_probs_dropout_prob", LLM_KEY_REAL, LLM_AT(attn_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"type_vocab_size", LLM_KEY_INT, LLM_AT(type_vocab_size), 1, 1 << 16, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF},
    {"layer_norm_eps", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF},
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF},
    {"mask_token_id", LLM_KEY_TOKEN, LLM_AT(mask_token_id), 0, 0, NULL, LLM_KEY_OURS},
    {"prediction_head", LLM_KEY_BOOL, LLM_AT(head_transform), 0, 0, NULL, LLM_KEY_OURS},
    {"add_pooling_layer", LLM_KEY_BOOL, LLM_AT(pooler), 0, 0, NULL, LLM_KEY_OURS},
    {"position_embedding", LLM_KEY_WORD, LLM_AT(position), 0, 0, llm_position_words, LLM_KEY_OURS},
    {"rope_theta", LLM_KEY_REAL, LLM_AT(rope_theta), 1, 1e12, NULL, LLM_KEY_OURS},
    {"norm_place", LLM_KEY_WORD, LLM_AT(norm_place), 0, 0, llm_place_words, LLM_KEY_OURS},
    {"sliding_window", LLM_KEY_LENGTH, LLM_AT(sliding_window), 0, 1 << 24, NULL, LLM_KEY_OURS},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 30522;
    c->hidden_size = 768;
    c->num_hidden_layers = c->num_attention_heads = 12;
    c->intermediate_size = 3072;
    c->max_position_embeddings = 512;
    c->type_vocab_size = 2;
    c->norm = LLM_NORM_LAYER;
    c->norm_place = LLM_NORM_POST;
    c->norm_eps = 1e-12;
    c->position = LLM_POSITION_LEARNED;
    c->rope_theta = 10000;
    c->act = LLM_ACT_GELU;
    c->bidirectional = c->embedding_norm = c->head_transform = true;
    c->attention_bias = c->mlp_bias = c->norm_bias = true;
    c->tie_word_embeddings = true;
    c->attn_pdrop = c->resid_pdrop = .1;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *kind = NULL;
    bool decodes = false;
    if (llm_json_str(o, "position_embedding_type", &kind, e) < 0 || llm_json_bool(o, "is_decoder", &decodes, e) < 0) return -1;
    if (kind && strcmp(kind, "absolute") != 0) {
        return llm_fail(e, EX_UNAVAILABLE, "position_embedding_type: expected absolute, found '%s', which is not supported", kind);
    }
    const char *architecture = json_string_value(json_array_get(json_object_get(o, "architectures"), 0));
    bool alone = architecture && strcmp(architecture, "BertModel") == 0; /* there is no masked-token head */
    if (alone && !json_object_get(o, "prediction_head")) c->head_transform = false;
    if (decodes) return llm_fail(e, EX_UNAVAILABLE, "is_decoder: expected an encoder: a BERT that decodes is not supported");
    c->num_key_value_heads = c->num_attention_heads;
    c->embd_pdrop = c->resid_pdrop;
    c->no_final_norm = c->norm_place == LLM_NORM_POST;
    return llm_decoder_finish(c, o, e);
}

static int extra(const struct llm_config *c, json_t *o)
{
    if (!c->head_transform && json_object_set_new(o, "architectures", json_pack("[s]", "BertModel")) < 0) return -1;
    return llm_decoder_extra(c, o);
}

static void in_files(struct llm_config *c, const struct llm_model_files *files)
{
    struct llm_checkpoint *f;
    const struct llm_entry *types = llm_model_files_find(files, "token_types.weight", &f); /* of GGUF */
    c->head_transform = llm_model_files_find(files, "cls.predictions.transform.dense.weight", &f) != NULL;
    c->pooler = llm_model_files_find(files, "bert.pooler.dense.weight", &f) || llm_model_files_find(files, "pooler.dense.weight", &f);
    if (types && types->n_dims == 2 && types->shape[0] > 0 && types->shape[0] <= 1 << 16) c->type_vocab_size = types->shape[0];
}

static const struct llm_names gguf_names = {
    .prefix = "", .embed = "token_embd", .positions = "position_embd", .token_types = "token_types", .embed_norm = "token_embd_norm", .layer = "blk.",
    .final_norm = "output_norm", .head = "output",
    .stem = {[LLM_STEM_Q] = "attn_q", [LLM_STEM_K] = "attn_k", [LLM_STEM_V] = "attn_v", [LLM_STEM_OUT] = "attn_output",
             [LLM_STEM_NORM_1] = "attn_output_norm", [LLM_STEM_UP] = "ffn_up", [LLM_STEM_DOWN] = "ffn_down",
             [LLM_STEM_NORM_2] = "layer_output_norm"}};

/* One key is our own, that vectors are normalised: GGUF has none, since other programs normalise always. */
static const struct llm_gguf_key gguf_keys[] = {
    {"normalize_embeddings", LLM_GGUF_KEY_BOOL, LLM_AT(normalize_embeddings), 0, 0, 0}, {NULL, 0, 0, 0, 0, 0}};

static void gguf_put(struct llm_gguf_out *o, const struct llm_config *c, bool kv_b_whole)
{
    static const uint32_t kinds[] = {[LLM_POOL_MEAN] = 1, [LLM_POOL_CLS] = 2, [LLM_POOL_LAST] = 3};
    (void)kv_b_whole;
    llm_gguf_put_bool(o, "bert.attention.causal", false);
    if (c->pooling < LLM_POOL_OTHER) llm_gguf_put_u32(o, "bert.pooling_type", kinds[c->pooling]);
    llm_gguf_put_u32(o, "tokenizer.ggml.token_type_count", (uint32_t)c->type_vocab_size);
}

/* Tensors that are ignored: those of other heads, and a constant list of position ids. */
static const char *const unused[] = {"cls.seq_relationship.", "bert.embeddings.position_ids", "embeddings.position_ids", NULL};

static const char *const ignored[] = {"rope_theta", "sliding_window", NULL};

static const struct llm_other_key others[] = {
    {"position_embedding_type", "read"}, {"is_decoder", "read"}, {"num_key_value_heads", "*"}, {"bos_token_id", "*"}, {"eos_token_id", "*"},
    {"pooler_fc_size", "*"}, {"pooler_num_attention_heads", "*"}, {"pooler_num_fc_layers", "*"}, {"pooler_size_per_head", "*"}, {"pooler_type",
    "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_bert = {
    .model_type = "bert",
    .gguf = "bert",
    .architecture = "BertForMaskedLM",
    .keys = keys,
    .ignored = ignored,
    .other_keys = others,
    .defaults = defaults,
    .finish = finish,
    .extra = extra,
    .in_files = in_files,
    .names = {.prefix = "bert.", .embed = "embeddings.word_embeddings", .positions = "embeddings.position_embeddings",
              .token_types = "embeddings.token_type_embeddings", .embed_norm = "embeddings.LayerNorm", .layer = "encoder.layer.",
              .final_norm = "encoder.LayerNorm", .pooler = "pooler.dense", .head = "cls.predictions.decoder",
              .head_dense = "cls.predictions.transform.dense", .head_norm = "cls.predictions.transform.LayerNorm", .head_bias = "cls.predictions",
              .stem = {[LLM_STEM_Q] = "attention.self.query", [LLM_STEM_K] = "attention.self.key", [LLM_STEM_V] = "attention.self.value",
                       [LLM_STEM_OUT] = "attention.output.dense", [LLM_STEM_NORM_1] = "attention.output.LayerNorm",
                       [LLM_STEM_UP] = "intermediate.dense", [LLM_STEM_DOWN] = "output.dense", [LLM_STEM_NORM_2] = "output.LayerNorm"}},
    .gguf_names = &gguf_names,
    .gguf_keys = gguf_keys,
    .gguf_put = gguf_put,
    .unused = unused,
    .declare = llm_decoder_declare,
};
