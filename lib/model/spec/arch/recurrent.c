/* Recurrent language models: embedding, torch.nn.RNN or torch.nn.LSTM, linear head. Keys and names are those of PyTorch: the state_dict of a module
 * with members `embedding`, `rnn` and `lm_head` can be loaded. */
#include <math.h>
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 0, 1 << 24, NULL, LLM_KEY_HF},
    {"input_size", LLM_KEY_LENGTH, LLM_AT(embedding_size), 0, 1 << 20, NULL, LLM_KEY_HF},
    {"hidden_size", LLM_KEY_INT, LLM_AT(hidden_size), 1, 1 << 20, NULL, LLM_KEY_HF},
    {"num_layers", LLM_KEY_INT, LLM_AT(num_hidden_layers), 1, LLM_MAX_LAYERS, NULL, LLM_KEY_HF},
    {"bias", LLM_KEY_BOOL, LLM_AT(recurrent_bias), 0, 0, NULL, LLM_KEY_HF},
    {"dropout", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_HF},
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_OURS},
    {"head_bias", LLM_KEY_BOOL, LLM_AT(head_bias), 0, 0, NULL, LLM_KEY_HF},
    {"tie_word_embeddings", LLM_KEY_BOOL, LLM_AT(tie_word_embeddings), 0, 0, NULL, LLM_KEY_HF},
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"initializer_range", LLM_KEY_REAL, LLM_AT(initializer_range), 0, 100, NULL, LLM_KEY_HF},
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"logit_scale", LLM_KEY_SCALE, LLM_AT(logit_scale), 0, 1e6, NULL, LLM_KEY_OURS},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->vocab_size = 256;
    c->hidden_size = 512;
    c->num_hidden_layers = 1;
    c->recurrent_bias = true;
    c->max_position_embeddings = 1024; /* the length of training rows and of windows in scoring; the state itself has no limit */
    c->initializer_range = 0;
    c->norm_place = LLM_NORM_BARE;
    c->no_final_norm = true;
    c->position = LLM_POSITION_NONE;
    c->num_attention_heads = c->num_key_value_heads = c->head_dim = 1;
}

static void rnn_defaults(struct llm_config *c)
{
    defaults(c);
    c->mixer = LLM_MIXER_RNN;
}

static void lstm_defaults(struct llm_config *c)
{
    defaults(c);
    c->mixer = LLM_MIXER_LSTM;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    (void)o;
    if (c->embedding_size == c->hidden_size) c->embedding_size = 0;
    if (c->initializer_range == 0) c->initializer_range = 1 / sqrt(3.0 * (double)c->hidden_size); /* the standard deviation of PyTorch's uniform
                                                                                                   * initialisation */
    if (c->embedding_size == 0 || !c->tie_word_embeddings) return 0;
    return llm_fail(e, EX_DATAERR, "tie_word_embeddings: expected input_size to be hidden_size (%lld), found %lld", (long long)c->hidden_size,
                    (long long)c->embedding_size);
}

#define NAMES {.prefix = "", .embed = "embedding", .layer = "rnn.", .head = "lm_head", .head_bias = "lm_head", \
    .stem = {[LLM_STEM_INPUTS] = "weight_ih_l", [LLM_STEM_STATE] = "weight_hh_l", [LLM_STEM_INPUTS_BIAS] = "bias_ih_l", \
             [LLM_STEM_STATE_BIAS] = "bias_hh_l"}}

const struct llm_arch llm_arch_rnn = {
    .model_type = "rnn", .architecture = "RNNForCausalLM", .keys = keys, .defaults = rnn_defaults, .finish = finish, .names = NAMES,
    .declare = llm_decoder_declare,};
const struct llm_arch llm_arch_lstm = {
    .model_type = "lstm", .architecture = "LSTMForCausalLM", .keys = keys, .defaults = lstm_defaults, .finish = finish, .names = NAMES,
    .declare = llm_decoder_declare,};
