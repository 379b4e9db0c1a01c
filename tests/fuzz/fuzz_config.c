/* A model's configuration: what is taken is written and read again, the same, and can be multiplied. */
#include "fuzz.h"
#include "model/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    struct llm_config c, again;
    json_t *o = llm_json_parse((const char *)data, n, &e);
    memset(&c, 0, sizeof c);
    memset(&again, 0, sizeof again);
    int got = o ? llm_config_from_json(&c, o, &e) : -1;
    json_decref(o);
    MUST(got == 0 || e.status);
    if (got < 0) return 0;
    json_t *own = llm_config_to_json(&c, &e);
    MUST(own);
    if (llm_config_from_json(&again, own, &e) < 0) {
        fprintf(stderr, "fuzz: %s\n", e.text);
        abort();
    }
    MUST(c.vocab_size == again.vocab_size && c.hidden_size == again.hidden_size && c.intermediate_size == again.intermediate_size
         && c.num_hidden_layers == again.num_hidden_layers && c.num_attention_heads == again.num_attention_heads
         && c.num_key_value_heads == again.num_key_value_heads && c.head_dim == again.head_dim && c.act == again.act
         && c.norm_place == again.norm_place && c.position == again.position && c.sliding_window == again.sliding_window
         && c.tie_word_embeddings == again.tie_word_embeddings && c.attention_bias == again.attention_bias);
    int64_t most;
    MUST(!__builtin_mul_overflow(c.hidden_size, c.vocab_size, &most) && !__builtin_mul_overflow(c.num_attention_heads, c.head_dim, &most)
         && !__builtin_mul_overflow(most, c.hidden_size, &most));
    json_decref(own);
    return 0;
}
