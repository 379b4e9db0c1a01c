/* Feed-forward language models, which see a window of tokens. The model of Bengio et al. (2003) has one hidden layer with tanh and direct
 * connections. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF},
    {"context_window", LLM_KEY_INT, LLM_AT(context_window), 1, 1 << 10, NULL, LLM_KEY_HF},
    {"embedding_size", LLM_KEY_INT, LLM_AT(embedding_size), 1, 1 << 16, NULL, LLM_KEY_HF},
    {"intermediate_size", LLM_KEY_INT, LLM_AT(intermediate_size), 1, 1 << 20, NULL, LLM_KEY_HF},
    {"num_hidden_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"hidden_act", LLM_KEY_ACT, LLM_AT(act), 0, 0, NULL, LLM_KEY_HF},
    {"direct_connections", LLM_KEY_BOOL, LLM_AT(direct_connections), 0, 0, NULL, LLM_KEY_HF},
    {"head_bias", LLM_KEY_BOOL, LLM_AT(head_bias), 0, 0, NULL, LLM_KEY_HF},
    {"dropout", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_OURS},
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF},
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 256;
    c->context_window = 5;
    c->embedding_size = 60;
    c->intermediate_size = 500;
    c->num_hidden_layers = 1;
    c->act = LLM_ACT_TANH;
    c->head_bias = true;
    c->max_position_embeddings = 1024; /* the length of training rows and of windows in scoring */
    c->norm_place = LLM_NORM_BARE;
    c->no_final_norm = true;
    c->position = LLM_POSITION_NONE;
    c->num_attention_heads = c->num_key_value_heads = c->head_dim = 1;
    c->mixer = LLM_MIXER_WINDOW;
}

/* Sets hidden_size to the width of the head's input. */
static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    (void)o;
    c->hidden_size = c->intermediate_size + (c->direct_connections ? c->context_window * c->embedding_size : 0);
    if (!c->direct_connections || c->num_hidden_layers == 1) return 0;
    return llm_fail(e, EX_DATAERR, "direct_connections: expected one hidden layer, found %lld", (long long)c->num_hidden_layers);
}

const struct llm_arch llm_arch_mlp = {
    .model_type = "mlp", .architecture = "MLPForCausalLM", .keys = keys, .defaults = defaults, .finish = finish,
    .names = {.prefix = "", .embed = "embedding", .layer = "layers.", .head = "lm_head", .head_bias = "lm_head",
              .stem = {[LLM_STEM_UP] = "hidden"}},
    .declare = llm_decoder_declare,};
