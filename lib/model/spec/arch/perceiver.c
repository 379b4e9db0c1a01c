/* Perceivers (Jaegle et al. 2021). The key "latents" chooses between two.
 * "last" is a language model after Perceiver AR (Hawthorne et al. 2022). The latents are the last tokens. The first layer is causal attention over
 * the whole text; the other layers are causal attention within blocks of num_latents tokens. A cache holds the text's keys of the first layer only.
 * "learned" is an encoder for classification and for vectors of texts: num_latents learned vectors attend to the text once, then to each other. */
#include "model/spec/arch/keys.h"

static const char *const latent_words[] = {"last", "learned", NULL};

static const struct llm_config_key keys[] = {
    LLM_KEYS_LLAMA,
    {"num_latents", LLM_KEY_INT, LLM_AT(num_latents), 1, 1 << 20, NULL, LLM_KEY_HF},
    {"latents", LLM_KEY_WORD, LLM_AT(latents), 0, 0, latent_words, LLM_KEY_HF},
    {"position_embedding", LLM_KEY_WORD, LLM_AT(position), 0, 0, llm_position_words, LLM_KEY_OURS},
    {"embd_pdrop", LLM_KEY_REAL, LLM_AT(embd_pdrop), 0, .999, NULL, LLM_KEY_OURS},
    {"resid_pdrop", LLM_KEY_REAL, LLM_AT(resid_pdrop), 0, .999, NULL, LLM_KEY_OURS},
    LLM_KEY_END,
};

static void defaults(struct llm_config *c)
{
    llm_llama_defaults(c);
    c->num_latents = 256;
    c->latents = LLM_LATENTS_LAST;
    c->bos_token_id = c->eos_token_id = -1;
}

static int finish(struct llm_config *c, const json_t *o, struct llm_err *e)
{
    c->bidirectional = c->embedding_norm = c->latents == LLM_LATENTS_LEARNED;
    if (c->bidirectional && c->position == LLM_POSITION_ROPE) c->position = LLM_POSITION_LEARNED; /* learned latents have no positions to rotate by */
    if (c->bidirectional) c->pooling = LLM_POOL_MEAN;
    if (c->position == LLM_POSITION_BUCKETS) return llm_fail(e, EX_DATAERR, "position_embedding: expected rope, learned, sinusoidal or none");
    return llm_decoder_finish(c, o, e);
}

/* Declares the parameters. The cost of layers that process learned latents is divided by the tokens of a full context. */
static int declare(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    double share = (double)c->num_latents / (double)c->max_position_embeddings;
    if (llm_decoder_declare(d, m) < 0) return -1;
    for (size_t i = 0; i < d->n && c->bidirectional; i++) {
        struct llm_param_spec *s = &d->specs[i];
        bool of_tokens = s->stem == LLM_STEM_CROSS_K || s->stem == LLM_STEM_CROSS_V; /* keys and values are computed for every token */
        if (s->layer >= 0 && !(of_tokens && s->piece == LLM_PIECE_WEIGHT)) s->active = share;
    }
    return 0;
}

const struct llm_arch llm_arch_perceiver = {
    .model_type = "perceiver",
    .architecture = "PerceiverForCausalLM",
    .keys = keys,
    .defaults = defaults,
    .finish = finish,
    .extra = llm_decoder_extra,
    .names = {.prefix = "model.", .embed = "embed_tokens", .positions = "embed_positions", .embed_norm = "input_norm", .latents = "latents",
              .layer = "layers.", .final_norm = "norm", .head = "lm_head",
              .stem = {[LLM_STEM_Q] = "self_attn.q_proj", [LLM_STEM_K] = "self_attn.k_proj", [LLM_STEM_V] = "self_attn.v_proj",
                       [LLM_STEM_OUT] = "self_attn.o_proj", [LLM_STEM_CROSS_Q] = "cross_attn.q_proj", [LLM_STEM_CROSS_K] = "cross_attn.k_proj",
                       [LLM_STEM_CROSS_V] = "cross_attn.v_proj", [LLM_STEM_CROSS_OUT] = "cross_attn.o_proj",
                       [LLM_STEM_GATE] = "mlp.gate_proj", [LLM_STEM_UP] = "mlp.up_proj", [LLM_STEM_DOWN] = "mlp.down_proj",
                       [LLM_STEM_NORM_1] = "input_layernorm", [LLM_STEM_NORM_2] = "post_attention_layernorm"}},
    .declare = declare,
};
