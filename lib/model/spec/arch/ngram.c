/* n-grams (Shannon 1948; Chen & Goodman 1998): a table of how often what followed what, no network. This is its configuration and how it is loaded;
 * lib/infer/predictor/ngram.c predicts with it. */
#include "model/spec/arch/keys.h"

static const struct llm_config_key keys[] = {
    {"vocab_size", LLM_KEY_INT, LLM_AT(vocab_size), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"ngram_order", LLM_KEY_INT, LLM_AT(ngram_order), 1, LLM_NGRAM_MAX_ORDER, NULL, LLM_KEY_HF},
    {"ngram_begin", LLM_KEY_INT, LLM_AT(ngram_begin), 0, 1 << 24, NULL, LLM_KEY_HF},
    {"max_position_embeddings", LLM_KEY_INT, LLM_AT(max_position_embeddings), 1, 1 << 24, NULL, LLM_KEY_HF},
    {"bos_token_id", LLM_KEY_TOKEN, LLM_AT(bos_token_id), 0, 0, NULL, LLM_KEY_HF},
    {"eos_token_id", LLM_KEY_TOKEN, LLM_AT(eos_token_id), 0, 0, NULL, LLM_KEY_HF},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    c->ngram_order = 5;
    c->max_position_embeddings = 1 << 24; /* as long as a sequence's positions can be counted: what lies far back is not looked at */
    c->num_attention_heads = c->num_key_value_heads = c->head_dim = 1;
    c->position = LLM_POSITION_NONE;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    (void)o;
    if (c->ngram_begin <= c->vocab_size) return 0;
    return llm_fail(e, EX_DATAERR, "ngram_begin: expected at most vocab_size (%lld), found %lld", (long long)c->vocab_size,
                    (long long)c->ngram_begin);
}

static int declare(struct llm_declare *d, struct llm_decoder *m)
{
    (void)d;
    (void)m;
    return 0;
}

const struct llm_arch llm_arch_ngram = {
    .model_type = "ngram",
    .architecture = "NgramForCausalLM",
    .keys = keys,
    .defaults = defaults,
    .finish = finish,
    .names = {.prefix = "", .embed = "", .positions = "", .layer = "", .final_norm = "", .head = ""},
    .declare = declare,
    .tables = true,
};
