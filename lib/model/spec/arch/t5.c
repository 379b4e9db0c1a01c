/* T5 (Raffel et al. 2020), T5 1.1 and Flan-T5: an encoder-decoder with RMSNorm before each sub-layer, no biases, unscaled attention scores, a learned
 * position bias for each bucket of distances, and ReLU or gated GELU. Keys and names are those of transformers' T5ForConditionalGeneration. */
#include <math.h>
#include <string.h>
#include "model/spec/arch/keys.h"

/* Values of feed_forward_proj: an activation, gated or not. "gated-gelu" is the tanh approximation of GELU. */
static const char *const kind_words[] = {"relu", "gated-gelu", "gated-silu", "gated-relu", "gelu", "gelu_new", "silu", NULL};
static const struct { bool gated; enum llm_act act; } kinds[] = {
    {false, LLM_ACT_RELU}, {true, LLM_ACT_GELU_TANH}, {true, LLM_ACT_SILU}, {true, LLM_ACT_RELU}, {false, LLM_ACT_GELU}, {false, LLM_ACT_GELU_TANH},
    {false, LLM_ACT_SILU}};

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF},
    {"d_model", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF},
    {"d_kv", LLM_KEY_INT, LLM_AT(head_dim), 1, 1 << 14, NULL, LLM_KEY_HF},
    {"d_ff", LLM_KEY_INT, LLM_AT(intermediate_size), 1, 1 << 22, NULL, LLM_KEY_HF},
    {"num_layers", LLM_KEY_INT, LLM_AT(num_encoder_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"num_decoder_layers", LLM_KEY_LENGTH, LLM_AT(num_hidden_layers), 0, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"num_heads", LLM_KEY_INT, LLM_AT(num_attention_heads), 1, 1 << 14, NULL, LLM_KEY_HF},
    {"n_positions", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"relative_attention_num_buckets", LLM_KEY_INT, LLM_AT(rel_buckets), 4, 1 << 16, NULL, LLM_KEY_HF},
    {"relative_attention_max_distance", LLM_KEY_INT, LLM_AT(rel_max_distance), 2, 1 << 20, NULL, LLM_KEY_HF},
    {"feed_forward_proj", LLM_KEY_WORD, LLM_AT(feed_forward_kind), 0, 0, kind_words, LLM_KEY_HF},
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF},
    {"dropout_rate", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"layer_norm_epsilon", LLM_KEY_REAL, LLM_AT(norm_eps), 0, 1, NULL, LLM_KEY_HF},
    {"decoder_start_token_id", LLM_KEY_TOKEN, LLM_AT(decoder_start_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_OURS},
    {"position_embedding", LLM_KEY_WORD, LLM_AT(position), 0, 0, llm_position_words, LLM_KEY_OURS},
    {"rope_theta", LLM_KEY_REAL, LLM_AT(rope_theta), 1, 1e12, NULL, LLM_KEY_OURS},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 32128;
    c->hidden_size = c->max_position_embeddings = 512;
    c->head_dim = 64;
    c->intermediate_size = 2048;
    c->num_encoder_layers = 6;
    c->num_attention_heads = 8;
    c->rel_buckets = 32;
    c->rel_max_distance = 128;
    c->attn_pdrop = c->resid_pdrop = .1;
    c->norm = LLM_NORM_RMS;
    c->norm_eps = 1e-6;
    c->position = LLM_POSITION_BUCKETS;
    c->rope_theta = 10000;
    c->query_pre_attn_scalar = 1;
    c->act = LLM_ACT_RELU;
    c->eos_token_id = 1;
    c->decoder_start_token_id = 0;
    c->tie_word_embeddings = true;
}

/* Checks the keys that must agree with feed_forward_proj. */
static int check_kind(const struct llm_config *c, const json_t *o, struct llm_err *e)
{
    const char *act = NULL;
    bool gated = c->gated;
    if (llm_json_str(o, "dense_act_fn", &act, e) < 0 || llm_json_bool(o, "is_gated_act", &gated, e) < 0) return -1;
    if (gated != c->gated) {
        return llm_fail(e, EX_DATAERR, "is_gated_act: expected what feed_forward_proj (%s) says", kind_words[c->feed_forward_kind]);
    }
    if (!act || llm_act_find(act) == (int)c->act) return 0;
    return llm_fail(e, EX_DATAERR, "dense_act_fn: expected what feed_forward_proj (%s) says, found '%s'", kind_words[c->feed_forward_kind], act);
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    bool scaled = c->tie_word_embeddings; /* T5 1.0 ties the head and scales its input; T5 1.1 does neither */
    if (llm_json_bool(o, "scale_decoder_outputs", &scaled, e) < 0) return -1;
    c->gated = kinds[c->feed_forward_kind].gated;
    c->act = kinds[c->feed_forward_kind].act;
    if (check_kind(c, o, e) < 0) return -1;
    if (c->num_hidden_layers == 0) c->num_hidden_layers = c->num_encoder_layers;
    c->logit_scale = scaled ? 1 / sqrt((double)c->hidden_size) : 1;
    c->embd_pdrop = c->attn_pdrop = c->resid_pdrop;
    if (c->position != LLM_POSITION_BUCKETS) c->query_pre_attn_scalar = 0;
    if (c->rel_max_distance <= c->rel_buckets / 2) {
        return llm_fail(e, EX_DATAERR, "relative_attention_max_distance: expected more than half of %lld buckets, found %lld",
                        (long long)c->rel_buckets, (long long)c->rel_max_distance);
    }
    return llm_decoder_finish(c, o, e);
}

static int extra(const struct llm_config *c, json_t *o)
{
    int failed = json_object_set_new(o, "scale_decoder_outputs", json_boolean(c->logit_scale != 1));
    failed |= json_object_set_new(o, "is_encoder_decoder", json_true());
    return failed ? -1 : llm_decoder_extra(c, o);
}

static void in_files(struct llm_config *c, const struct llm_model_files *files)
{
    struct llm_checkpoint *f;
    if (llm_model_files_find(files, "token_embd.weight", &f)) { /* GGUF */
        c->feed_forward_kind = llm_model_files_find(files, "enc.blk.0.ffn_gate.weight", &f) != NULL; /* gated-gelu, else relu */
        c->gated = kinds[c->feed_forward_kind].gated;
        c->act = kinds[c->feed_forward_kind].act;
        return;
    }
    c->tie_word_embeddings = !llm_model_files_find(files, "lm_head.weight", &f); /* transformers 5 writes true for all models, so the tensors
                                                                                  * decide */
}

/* Tensors that are ignored: copies of the embedding, and a bias that cross-attention does not use. */
static const char *const unused[] = {"encoder.embed_tokens.", "decoder.embed_tokens.",
                                     "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.", "dec.blk.0.cross_attn_rel_b.", NULL};

/* The names of one stack; `n` is the index of the feed-forward sub-layer in a layer. */
#define STACK(side, n, ...) \
    {.prefix = "", .embed = "shared", .layer = side ".block.", .final_norm = side ".final_layer_norm", .head = "lm_head", \
     .rel_bias = side ".block.0.layer.0.SelfAttention.relative_attention_bias", \
     .stem = {[LLM_STEM_Q] = "layer.0.SelfAttention.q", [LLM_STEM_K] = "layer.0.SelfAttention.k", [LLM_STEM_V] = "layer.0.SelfAttention.v", \
              [LLM_STEM_OUT] = "layer.0.SelfAttention.o", [LLM_STEM_NORM_1] = "layer.0.layer_norm", \
              [LLM_STEM_DOWN] = "layer." n ".DenseReluDense.wo", [LLM_STEM_NORM_2] = "layer." n ".layer_norm", __VA_ARGS__}}
#define PLAIN(n) [LLM_STEM_UP] = "layer." n ".DenseReluDense.wi"
#define GATED(n) [LLM_STEM_GATE] = "layer." n ".DenseReluDense.wi_0", [LLM_STEM_UP] = "layer." n ".DenseReluDense.wi_1"
#define CROSS \
    [LLM_STEM_CROSS_Q] = "layer.1.EncDecAttention.q", [LLM_STEM_CROSS_K] = "layer.1.EncDecAttention.k", \
    [LLM_STEM_CROSS_V] = "layer.1.EncDecAttention.v", [LLM_STEM_CROSS_OUT] = "layer.1.EncDecAttention.o", \
    [LLM_STEM_CROSS_NORM] = "layer.1.layer_norm"
static const struct llm_names encoders[] = {STACK("encoder", "1", PLAIN("1")), STACK("encoder", "1", GATED("1"))};
static const struct llm_names decoders[] = {STACK("decoder", "2", CROSS, PLAIN("2")), STACK("decoder", "2", CROSS, GATED("2"))};

#define GGUF_STACK(side, ...) \
    {.prefix = "", .embed = "token_embd", .layer = side ".blk.", .final_norm = side ".output_norm", .head = "output", \
     .rel_bias = side ".blk.0.attn_rel_b", \
     .stem = {[LLM_STEM_Q] = "attn_q", [LLM_STEM_K] = "attn_k", [LLM_STEM_V] = "attn_v", [LLM_STEM_OUT] = "attn_o", \
              [LLM_STEM_NORM_1] = "attn_norm", [LLM_STEM_GATE] = "ffn_gate", [LLM_STEM_UP] = "ffn_up", [LLM_STEM_DOWN] = "ffn_down", \
              [LLM_STEM_NORM_2] = "ffn_norm", [LLM_STEM_CROSS_Q] = "cross_attn_q", [LLM_STEM_CROSS_K] = "cross_attn_k", \
              [LLM_STEM_CROSS_V] = "cross_attn_v", [LLM_STEM_CROSS_OUT] = "cross_attn_o", [LLM_STEM_CROSS_NORM] = "cross_attn_norm"}, __VA_ARGS__}
static const struct llm_names gguf_encoder = GGUF_STACK("enc", .encoder = NULL), gguf_names = GGUF_STACK("dec", .encoder = &gguf_encoder);

static const struct llm_gguf_key gguf_keys[] = {
    {"block_count", LLM_GGUF_KEY_WHOLE, LLM_AT(num_encoder_layers), 1, LLM_MAX_LAYERS, 0},
    {"decoder_block_count", LLM_GGUF_KEY_WHOLE, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, 0},
    {"attention.relative_buckets_count", LLM_GGUF_KEY_WHOLE, LLM_AT(rel_buckets), 4, 1 << 16, 32},
    {"decoder_start_token_id", LLM_GGUF_KEY_WHOLE, LLM_AT(decoder_start_token_id), 0, INT32_MAX, 0},
    {NULL, 0, 0, 0, 0, 0}};

static int gguf_get(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e)
{
    (void)g;
    if (c->num_encoder_layers < 1) return llm_fail(e, EX_DATAERR, "t5.block_count: expected at least 1, found none");
    return 0;
}

/* Declares the parameters. The names of the feed-forward part depend on whether it is gated. */
static int declare(struct llm_declare *d, struct llm_decoder *m)
{
    if (d->gguf) return llm_decoder_declare(d, m);
    struct llm_names names = decoders[d->config->gated];
    names.encoder = &encoders[d->config->gated];
    d->names = &names;
    int status = llm_decoder_declare(d, m);
    d->names = &d->arch->names;
    return status;
}

static const char *const ignored[] = {"rope_theta", "initializer_range", NULL};

/* Keys that are ignored: dense_act_fn and is_gated_act follow from feed_forward_proj; initializer_factor concerns initialisation, for which this
 * toolkit uses initializer_range. */
static const struct llm_other_key others[] = {
    {"scale_decoder_outputs", "read"}, {"is_encoder_decoder", "read"}, {"dense_act_fn", "read"}, {"is_gated_act", "read"}, {"initializer_factor",
    "*"}, {NULL, NULL}};

const struct llm_arch llm_arch_t5 = {
    .model_type = "t5",
    .gguf = "t5",
    .gguf_keys = gguf_keys,
    .gguf_get = gguf_get,
    .gguf_names = &gguf_names,
    .architecture = "T5ForConditionalGeneration",
    .keys = keys,
    .ignored = ignored,
    .other_keys = others,
    .defaults = defaults,
    .finish = finish,
    .extra = extra,
    .in_files = in_files,
    .out_bias_apart = true,
    .names = STACK("decoder", "2", CROSS, PLAIN("2")),
    .unused = unused,
    .declare = declare,
};
