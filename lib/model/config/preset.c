/* Named configurations, as config.json. */
#include "model/config/preset.h"

#include <string.h>
#include "model/config/config.h"

static const struct {
    const char *name, *json;
} presets[] = {
    /* nanoGPT's setting for a CPU: no biases, no dropout */
    {"nano", "{\"model_type\": \"gpt2\", \"vocab_size\": 256, \"n_positions\": 256, \"n_embd\": 128, \"n_layer\": 4, \"n_head\": 4,"
             " \"bias\": false, \"activation_function\": \"gelu\", \"embd_pdrop\": 0, \"attn_pdrop\": 0, \"resid_pdrop\": 0,"
             " \"bos_token_id\": null, \"eos_token_id\": null}"},
    /* 4.98M with a vocabulary of 4,096 */
    {"tiny", "{\"model_type\": \"llama\", \"vocab_size\": 4096, \"hidden_size\": 256, \"intermediate_size\": 768, \"num_hidden_layers\": 5,"
             " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5,"
             " \"tie_word_embeddings\": true, \"bos_token_id\": null, \"eos_token_id\": null}"},
    /* 31.5M with a vocabulary of 8,192 */
    {"small", "{\"model_type\": \"llama\", \"vocab_size\": 8192, \"hidden_size\": 512, \"intermediate_size\": 1536, \"num_hidden_layers\": 8,"
              " \"num_attention_heads\": 8, \"num_key_value_heads\": 8, \"max_position_embeddings\": 1024, \"rms_norm_eps\": 1e-5,"
              " \"tie_word_embeddings\": true, \"bos_token_id\": null, \"eos_token_id\": null}"},
    /* 13.9M of which a token meets 5.0M, with a vocabulary of 4,096 */
    {"moe", "{\"model_type\": \"mixtral\", \"vocab_size\": 4096, \"hidden_size\": 256, \"intermediate_size\": 384, \"num_hidden_layers\": 5,"
            " \"num_local_experts\": 8, \"num_experts_per_tok\": 2, \"router_aux_loss_coef\": 0.01, \"num_attention_heads\": 4,"
            " \"num_key_value_heads\": 2, \"max_position_embeddings\": 512, \"rope_theta\": 10000, \"tie_word_embeddings\": true,"
            " \"bos_token_id\": null, \"eos_token_id\": null}"},
    /* 4.8M with a vocabulary of 4,096; 96 numbers a token and layer in its cache, where the heads' keys and values would be 512 */
    {"mla", "{\"model_type\": \"deepseek_v2\", \"vocab_size\": 4096, \"hidden_size\": 256, \"intermediate_size\": 768, \"num_hidden_layers\": 5,"
            " \"num_attention_heads\": 4, \"kv_lora_rank\": 64, \"q_lora_rank\": null, \"qk_nope_head_dim\": 32, \"qk_rope_head_dim\": 32,"
            " \"v_head_dim\": 64, \"n_routed_experts\": null, \"max_position_embeddings\": 512, \"tie_word_embeddings\": true,"
            " \"bos_token_id\": null, \"eos_token_id\": null}"},
    /* BERT-Mini's shape, without dropout */
    {"bert-mini", "{\"model_type\": \"bert\", \"vocab_size\": 8192, \"hidden_size\": 256, \"intermediate_size\": 1024, \"num_hidden_layers\": 4,"
                  " \"num_attention_heads\": 4, \"max_position_embeddings\": 512, \"hidden_dropout_prob\": 0,"
                  " \"attention_probs_dropout_prob\": 0}"},
    /* 5.2M and 8.4M with a vocabulary of 4,096: layers of recurrence from before attention */
    {"rnn", "{\"model_type\": \"rnn\", \"vocab_size\": 4096, \"hidden_size\": 512, \"num_layers\": 2}"},
    {"lstm", "{\"model_type\": \"lstm\", \"vocab_size\": 4096, \"hidden_size\": 512, \"num_layers\": 2}"},
    /* an encoder-decoder in T5 1.1's manner, without dropout */
    {"t5-mini", "{\"model_type\": \"t5\", \"vocab_size\": 8192, \"d_model\": 256, \"d_kv\": 64, \"d_ff\": 512, \"num_layers\": 4, \"num_heads\": 4,"
                " \"feed_forward_proj\": \"gated-gelu\", \"scale_decoder_outputs\": false, \"dropout_rate\": 0}"},
    /* 4.9M with a vocabulary of 4,096 */
    {"mamba", "{\"model_type\": \"mamba\", \"vocab_size\": 4096, \"hidden_size\": 256, \"num_hidden_layers\": 9, \"state_size\": 16,"
              " \"initializer_range\": 0.02, \"max_position_embeddings\": 512, \"bos_token_id\": null, \"eos_token_id\": null}"},
    {"mamba2", "{\"model_type\": \"mamba2\", \"vocab_size\": 4096, \"hidden_size\": 256, \"num_hidden_layers\": 9, \"state_size\": 32,"
               " \"num_heads\": 8, \"head_dim\": 64, \"n_groups\": 1, \"tie_word_embeddings\": true, \"initializer_range\": 0.02,"
               " \"max_position_embeddings\": 512, \"bos_token_id\": null, \"eos_token_id\": null}"},
    /* 4.7M with a vocabulary of 4,096 */
    {"rwkv", "{\"model_type\": \"rwkv\", \"vocab_size\": 4096, \"hidden_size\": 256, \"intermediate_size\": 768, \"num_hidden_layers\": 5,"
             " \"context_length\": 512, \"tie_word_embeddings\": true, \"bos_token_id\": null, \"eos_token_id\": null}"},
    /* 5.0M with a vocabulary of 4,096 */
    {"rwkv5", "{\"model_type\": \"rwkv5\", \"vocab_size\": 4096, \"hidden_size\": 256, \"intermediate_size\": 768, \"num_hidden_layers\": 5,"
              " \"max_position_embeddings\": 512, \"tie_word_embeddings\": true, \"bos_token_id\": null, \"eos_token_id\": null}"},
    {"rwkv6", "{\"model_type\": \"rwkv6\", \"vocab_size\": 4096, \"hidden_size\": 256, \"intermediate_size\": 608, \"num_hidden_layers\": 5,"
              " \"max_position_embeddings\": 512, \"time_decay_extra_dim\": 32, \"tie_word_embeddings\": true, \"bos_token_id\": null,"
              " \"eos_token_id\": null}"},
    {"rwkv7", "{\"model_type\": \"rwkv7\", \"vocab_size\": 4096, \"hidden_size\": 256, \"intermediate_size\": 832, \"num_hidden_layers\": 5,"
              " \"decay_low_rank_dim\": 32, \"a_low_rank_dim\": 32, \"v_low_rank_dim\": 32, \"gate_low_rank_dim\": 64,"
              " \"max_position_embeddings\": 512, \"tie_word_embeddings\": true, \"bos_token_id\": null, \"eos_token_id\": null}"},
    {"hyena", "{\"model_type\": \"hyenadna\", \"vocab_size\": 4096, \"d_model\": 256, \"n_layer\": 5, \"max_seq_len\": 512, \"emb_dim\": 5,"
              " \"activation_freq\": 10, \"embed_dropout\": 0, \"pad_vocab_size_multiple\": 1, \"tie_word_embeddings\": true,"
              " \"bos_token_id\": null, \"eos_token_id\": null}"},
    /* windows of tokens: Bengio et al. (2003), and deeper without direct connections */
    {"bengio", "{\"model_type\": \"mlp\", \"vocab_size\": 4096, \"context_window\": 5, \"embedding_size\": 60, \"intermediate_size\": 100,"
               " \"direct_connections\": true}"},
    {"mlp", "{\"model_type\": \"mlp\", \"vocab_size\": 4096, \"context_window\": 16, \"embedding_size\": 64, \"intermediate_size\": 512,"
            " \"num_hidden_layers\": 2, \"hidden_act\": \"gelu\"}"},
    /* 4.98M with a vocabulary of 4,096: the whole text is seen by its first layer, 128 latents by the others */
    {"perceiver", "{\"model_type\": \"perceiver\", \"vocab_size\": 4096, \"hidden_size\": 256, \"intermediate_size\": 768,"
                  " \"num_hidden_layers\": 5, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"num_latents\": 128,"
                  " \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": true}"},
    /* 0.8M: 49 patches of a grey picture of 28 x 28 pixels */
    {"vit-nano", "{\"model_type\": \"vit\", \"image_size\": 28, \"patch_size\": 4, \"num_channels\": 1, \"hidden_size\": 128,"
                 " \"intermediate_size\": 512, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"hidden_dropout_prob\": 0,"
                 " \"attention_probs_dropout_prob\": 0, \"layer_norm_eps\": 1e-6}"},
    /* 2.0M with a vocabulary of 512: 64 patches of a picture of 32 x 32 pixels */
    {"clip-nano", "{\"model_type\": \"clip\", \"projection_dim\": 64, \"text_config\": {\"vocab_size\": 512, \"hidden_size\": 128,"
                  " \"intermediate_size\": 512, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"max_position_embeddings\": 32,"
                  " \"initializer_range\": 0.08, \"bos_token_id\": null, \"eos_token_id\": null},"
                  " \"vision_config\": {\"hidden_size\": 160, \"intermediate_size\": 640, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
                  " \"image_size\": 32, \"patch_size\": 4}}"},
    /* 1.8M with a vocabulary of 256, of which 1.3M are the tower of clip-nano */
    {"llava-nano", "{\"model_type\": \"llava\", \"image_token_index\": 511, \"text_config\": {\"vocab_size\": 512, \"hidden_size\": 96,"
                   " \"intermediate_size\": 256, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"max_position_embeddings\": 256,"
                   " \"tie_word_embeddings\": true, \"bos_token_id\": null, \"eos_token_id\": null},"
                   " \"vision_config\": {\"hidden_size\": 160, \"intermediate_size\": 640, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"
                   " \"image_size\": 32, \"patch_size\": 4}}"},
    {"gpt2", "{\"model_type\": \"gpt2\", \"embd_pdrop\": 0, \"attn_pdrop\": 0, \"resid_pdrop\": 0}"},
    {"smollm", "{\"model_type\": \"llama\", \"vocab_size\": 49152, \"hidden_size\": 576, \"intermediate_size\": 1536, \"num_hidden_layers\": 30,"
               " \"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5,"
               " \"tie_word_embeddings\": true, \"bos_token_id\": 0, \"eos_token_id\": 0}"},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

const char *llm_preset_find(const char *name)
{
    for (size_t i = 0; i < N_PRESETS; i++) {
        if (strcmp(presets[i].name, name) == 0) return presets[i].json;
    }
    return NULL;
}

const char *llm_preset_word(int i) { return i < N_PRESETS ? presets[i].name : NULL; }

const char *const *llm_config_presets(void)
{
    static const char *names[N_PRESETS + 1];
    for (size_t i = 0; i < N_PRESETS; i++) names[i] = presets[i].name;
    return names;
}
