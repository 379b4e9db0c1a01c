/* The declaration of decoders and encoders: stacks of layers of mixer and feed-forward, each with embeddings and a final norm, and a head. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/spec/block.h"

int llm_stack_set_rope(struct llm_stack *m, const struct llm_config *c, int64_t context, struct llm_err *e)
{
    static const struct llm_rope_scaling plain = {.kind = LLM_ROPE_PLAIN};
    if (c->position != LLM_POSITION_ROPE) return 0;
    for (int local = 0; local < (c->rope_local_theta > 0 ? 2 : 1); local++) {
        struct llm_rope *r = &m->rope[local];
        if (!m->inv_freq[local]) m->inv_freq[local] = llm_alloc((size_t)c->rotary_dim / 2, sizeof **m->inv_freq, "rotary frequencies", e);
        if (!m->inv_freq[local]) return -1;
        *r = (struct llm_rope){.head_dim = c->head_dim, .rotary_dim = c->rotary_dim, .pairing = c->rope_pairing, .inv_freq = m->inv_freq[local]};
        llm_rope_frequencies(local ? &plain : &c->rope_scaling, local ? c->rope_local_theta : c->rope_theta, c->rotary_dim,
                             context ? context : llm_config_default_context(c), c->max_position_embeddings, m->inv_freq[local], &r->magnitude);
    }
    return 0;
}

/* Checks that the names (GGUF has none for some parameters) cover what the configuration needs. 0 or -1. */
static int check_names(const struct llm_declare *d)
{
    const struct llm_config *c = d->config;
    const struct llm_names *n = d->names;
    const struct { bool wanted; const char *name, *what; } parts[] = {
        {c->type_vocab_size > 0, n->token_types, "kinds of segments"}, {c->embedding_norm, n->embed_norm, "a norm of embeddings"},
        {c->pooler, n->pooler, "a pooler"}, {c->patch_size > 0, n->patches, "patches"},
        {c->position == LLM_POSITION_BUCKETS, n->rel_bias, "a bias of distances"},
        {c->num_encoder_layers > 0, n->encoder ? n->encoder->layer : NULL, "an encoder"}, {c->head_transform, n->head_dense, "a masked-token head"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].wanted && !parts[i].name) return llm_fail(d->err, EX_UNAVAILABLE, "%s of %s has no name here", parts[i].what, c->model_type);
    }
    return 0;
}

/* Vision transformers: the class token, the projection of patches, and positions of both. */
static void declare_patches(struct llm_declare *d, struct llm_stack *m)
{
    const struct llm_config *c = d->config;
    d->layer = -1;
    d->unit = LLM_UNIT_EMBEDDINGS;
    llm_declare_rows(d, &m->embed, LLM_STEM_EMBED, 1, c->hidden_size, "1, hidden_size");
    llm_declare_patches(d, &m->patches);
    llm_declare_rows(d, &m->positions, LLM_STEM_POSITIONS, c->max_position_embeddings, c->hidden_size, "patches + 1, hidden_size");
}

static void declare_embeddings(struct llm_declare *d, struct llm_stack *m)
{
    const struct llm_config *c = d->config;
    d->layer = -1;
    d->unit = LLM_UNIT_EMBEDDINGS;
    llm_declare_table(d, &m->embed, LLM_STEM_EMBED, c->vocab_size, llm_config_embedding(c),
                      c->embedding_size > 0 ? "vocab_size, embedding_size" : "vocab_size, hidden_size", true);
    /* Recurrent networks: normal(0, 1), as torch.nn.Embedding, because smaller inputs hardly move the gates. A tied embedding is also the head, and
     * begins small. */
    if (c->norm_place == LLM_NORM_BARE && !c->tie_word_embeddings) llm_declare_init(d, LLM_INIT_UNIT);
    if (c->position == LLM_POSITION_LEARNED) {
        llm_declare_table(d, &m->positions, LLM_STEM_POSITIONS, c->max_position_embeddings, c->hidden_size,
                          "max_position_embeddings, hidden_size", true);
    }
    if (c->type_vocab_size > 0) {
        llm_declare_table(d, &m->token_types, LLM_STEM_TOKEN_TYPES, c->type_vocab_size, c->hidden_size, "type_vocab_size, hidden_size", true);
    }
    if (llm_config_learns_latents(c)) {
        llm_declare_table(d, &m->latents, LLM_STEM_LATENTS, c->num_latents, c->hidden_size, "num_latents, hidden_size", true);
    }
    d->unit = LLM_UNIT_NORMS;
    if (c->embedding_norm) llm_declare_norm(d, &m->embed_norm, LLM_STEM_EMBED_NORM, c->hidden_size, "hidden_size");
}

static void declare_classes(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    d->unit = LLM_UNIT_CLASSES;
    llm_declare_table(d, &m->classes.w, LLM_STEM_CLASSES, c->num_labels, c->hidden_size, "num_labels, hidden_size", false);
    if (llm_config_like_bert(c)) llm_declare_bias(d, &m->classes.b, LLM_STEM_CLASSES, c->num_labels, "num_labels");
}

static void declare_head(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    d->layer = -1;
    d->unit = LLM_UNIT_NORMS;
    if (!c->no_final_norm) llm_declare_norm(d, &m->stacks[LLM_STACK_MAIN].final_norm, LLM_STEM_FINAL_NORM, c->hidden_size, "hidden_size");
    d->unit = LLM_UNIT_HEAD;
    if (c->pooler) llm_declare_linear(d, &m->pooler, LLM_STEM_POOLER, c->hidden_size, c->hidden_size, "hidden_size, hidden_size", true);
    if (c->head_transform) {
        llm_declare_linear(d, &m->head_dense, LLM_STEM_HEAD_DENSE, c->hidden_size, c->hidden_size, "hidden_size, hidden_size", true);
        llm_declare_norm(d, &m->head_norm, LLM_STEM_HEAD_NORM, c->hidden_size, "hidden_size");
    }
    if (c->head_transform || (c->head_bias && llm_config_has_head(c)))
        llm_declare_bias(d, &m->head_bias, LLM_STEM_HEAD_BIAS, c->vocab_size, "vocab_size");
    if (c->num_labels > 0) declare_classes(d, m);
    if (c->contrastive) llm_declare_plain(d, &m->logit_scale, LLM_STEM_LOGIT_SCALE, 1, 0, "1", LLM_INIT_LOGIT_SCALE);
    if (!c->tie_word_embeddings && llm_config_has_head(c)) {
        llm_declare_table(d, &m->head, LLM_STEM_HEAD, c->vocab_size, c->hidden_size, "vocab_size, hidden_size", false);
    }
}

/* T5's buckets (Raffel et al. 2020): each near distance has a bucket, farther ones share buckets by their logarithm. Computed in single precision, as
 * T5 does, so that borders are the same. */
static int32_t bucket(const struct llm_config *c, int64_t distance, bool bidirectional)
{
    int64_t n = bidirectional ? c->rel_buckets / 2 : c->rel_buckets, first = bidirectional && distance > 0 ? n : 0, exact = n / 2;
    int64_t d = bidirectional ? (distance < 0 ? -distance : distance) : distance < 0 ? -distance : 0;
    if (d < exact) return (int32_t)(first + d);
    float share = logf((float)d / (float)exact) / (float)log((double)c->rel_max_distance / (double)exact) * (float)(n - exact);
    int64_t at = exact + (int64_t)share;
    return (int32_t)(first + (at < n ? at : n - 1));
}

/* Declares the biases by distance that all layers of a stack share, and makes the map from distances to buckets. */
static int declare_buckets(struct llm_declare *d, struct llm_stack *s)
{
    const struct llm_config *c = d->config;
    if (c->position != LLM_POSITION_BUCKETS) return 0;
    s->rel_map = llm_alloc(2 * (size_t)c->rel_max_distance + 1, sizeof *s->rel_map, "distances", d->err);
    if (!s->rel_map) return -1;
    for (int64_t x = -c->rel_max_distance; x <= c->rel_max_distance; x++) s->rel_map[x + c->rel_max_distance] = bucket(c, x, c->bidirectional);
    d->layer = -1;
    d->unit = LLM_UNIT_EMBEDDINGS;
    llm_declare_table(d, &s->rel_bias, LLM_STEM_DISTANCES, c->rel_buckets, c->num_attention_heads, "relative_attention_num_buckets, num_heads", true);
    if (!d->failed) d->specs[d->n - 1].sharers = (int)s->n_layers;
    return 0;
}

static int make_layers(struct llm_declare *d, struct llm_stack *s, int64_t n, int64_t more)
{
    s->n_layers = n;
    s->layers = llm_calloc((size_t)(n + more), sizeof *s->layers, "layers", d->err);
    return s->layers ? llm_stack_set_rope(s, d->config, 0, d->err) : -1;
}

bool llm_stack_config(const struct llm_config *c, int stack, struct llm_config *out)
{
    *out = *c;
    if (stack == LLM_STACK_MAIN) return true;
    out->bidirectional = true;
    out->num_hidden_layers = c->num_encoder_layers;
    out->num_encoder_layers = out->num_nextn_predict_layers = 0;
    return stack == LLM_STACK_ENCODER && c->num_encoder_layers > 0;
}

/* Declares the encoder of an encoder-decoder, under its own names. Where the layers of all stacks are counted, its layers follow the decoder's. */
static int declare_encoder(struct llm_declare *d, struct llm_stack *s, int first)
{
    const struct llm_config *c = d->config;
    const struct llm_names *names = d->names;
    if (c->num_encoder_layers == 0) return 0;
    s->own = llm_alloc(1, sizeof *s->own, "layers", d->err);
    if (!s->own || !llm_stack_config(c, LLM_STACK_ENCODER, s->own)) return -1;
    s->first = first;
    d->names = names->encoder;
    d->encoder = true;
    d->config = s->own;
    d->layers_before = first;
    int status = make_layers(d, s, s->own->num_hidden_layers, 0);
    if (status == 0) status = declare_buckets(d, s);
    for (int64_t l = 0; l < s->n_layers && status == 0; l++) llm_decoder_declare_layer(d, &s->layers[l], l);
    d->layer = -1;
    if (!c->no_final_norm) llm_declare_norm(d, &s->final_norm, LLM_STEM_FINAL_NORM, c->hidden_size, "hidden_size");
    d->layers_before = 0;
    d->config = c;
    d->encoder = false;
    d->names = names;
    return status;
}

int llm_decoder_declare(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    struct llm_stack *s = &m->stacks[LLM_STACK_MAIN];
    m->n_next = c->num_nextn_predict_layers;
    if (make_layers(d, s, c->num_hidden_layers, m->n_next) < 0 || check_names(d) < 0) return -1;
    if (c->patch_size > 0) declare_patches(d, s);
    else declare_embeddings(d, s);
    if (declare_encoder(d, &m->stacks[LLM_STACK_ENCODER], (int)s->n_layers) < 0 || declare_buckets(d, s) < 0) return -1;
    for (int64_t l = 0; l < s->n_layers; l++) llm_decoder_declare_layer(d, &s->layers[l], l);
    declare_head(d, m);
    if (m->n_next > 0 && llm_next_declare(d, m) < 0) return -1;
    return d->failed ? -1 : 0;
}

static void release_stack(struct llm_stack *s, int64_t more)
{
    for (int64_t l = 0; s->layers && l < s->n_layers + more; l++) {
        free(s->layers[l].ffn.experts);
        free(s->layers[l].mixer.head_gains);
        llm_absorbed_destroy(s->layers[l].mixer.absorbed);
    }
    free(s->inv_freq[0]);
    free(s->inv_freq[1]);
    free(s->layers);
    free(s->rel_map);
    free(s->own);
}

void llm_decoder_destroy(struct llm_decoder *m, size_t n_params)
{
    if (!m) return;
    for (size_t i = 0; m->staging && i < n_params; i++) free(m->staging[i]);
    free(m->staging);
    llm_buf_release(&m->tokenizer_json);
    for (int i = 0; i < LLM_MAX_STACKS; i++) release_stack(&m->stacks[i], i == LLM_STACK_MAIN ? m->n_next : 0);
    free(m->next);
    free(m);
}
