/* The declaration of decoders and encoders: stacks of layers of mixer and feed-forward, each with embeddings and a final norm, and a head. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/spec/block.h"

/* Rotary positions of patches (DINOv3): half of a head's pairs are rotated by rows, half by columns, with the same frequencies. */
static int set_grid(struct llm_stack *m, const struct llm_config *c, struct llm_err *e)
{
    const int64_t half = c->rotary_dim / 2, each = half / 2;
    if (!m->inv_freq[0]) m->inv_freq[0] = llm_alloc((size_t)half, sizeof **m->inv_freq, "rotary frequencies", e);
    if (!m->inv_freq[0]) return -1;
    for (int64_t i = 0; i < half; i++) m->inv_freq[0][i] = (float)pow(c->rope_theta, -(double)(i % each) / (double)each);
    m->rope[0] = (struct llm_rope){.head_dim = c->head_dim, .rotary_dim = c->rotary_dim, .pairing = LLM_ROPE_HALVES, .inv_freq = m->inv_freq[0],
                                   .magnitude = 1, .grid = c->image_size / c->patch_size, .grid_first = 1 + c->num_registers};
    return 0;
}

int llm_stack_set_rope(struct llm_stack *m, const struct llm_config *c, int64_t context, struct llm_err *e)
{
    static const struct llm_rope_scaling plain = {.kind = LLM_ROPE_PLAIN};
    if (c->position != LLM_POSITION_ROPE) return 0;
    if (c->patch_size > 0) return set_grid(m, c, e);
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

/* NULL: there are none. */
static const struct llm_names *vision_names(const struct llm_declare *d)
{
    return d->gguf && llm_config_projects(d->config) ? llm_gguf_vision_names(d->config) : d->names->vision;
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
        {c->num_encoder_layers > 0, n->encoder ? n->encoder->layer : NULL, "an encoder"},
        {c->vision.patch_size > 0, vision_names(d) ? "" : NULL, "a vision tower"}, {c->head_transform, n->head_dense, "a masked-token head"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].wanted && !parts[i].name) return llm_fail(d->err, EX_UNAVAILABLE, "%s of %s has no name here", parts[i].what, c->model_type);
    }
    return 0;
}

/* The class token, the projection of patches, and positions of both. Files of a vision tower have other shapes than those of ViT, and no bias. */
static void declare_patches(struct llm_declare *d, struct llm_stack *m)
{
    const struct llm_config *c = d->config;
    const bool tower = d->stack == LLM_STACK_VISION;
    const char *const dims = c->patches_only ? "patches, hidden_size" : c->num_registers > 0 && !c->bare_registers ? "patches + 2, hidden_size"
                                                                                                                   : "patches + 1, hidden_size";
    d->layer = -1;
    d->unit = LLM_UNIT_EMBEDDINGS;
    if (!c->patches_only)
        llm_declare_rows(d, &m->embed, LLM_STEM_EMBED, 1, c->hidden_size, tower ? "hidden_size" : "1, hidden_size", tower ? 1 : 3);
    if (c->num_registers > 0)
        llm_declare_rows(d, &m->registers, LLM_STEM_REGISTERS, c->num_registers, c->hidden_size, "1, num_register_tokens, hidden_size", 3);
    llm_declare_patches(d, &m->patches, !tower || c->patches_only);
    if (c->position != LLM_POSITION_LEARNED) return;
    if (tower) llm_declare_table(d, &m->positions, LLM_STEM_POSITIONS, c->max_position_embeddings, c->hidden_size, dims, true);
    else llm_declare_rows(d, &m->positions, LLM_STEM_POSITIONS, c->max_position_embeddings, c->hidden_size, dims, 3);
    d->unit = LLM_UNIT_NORMS;
    if (c->embedding_norm) llm_declare_norm(d, &m->embed_norm, LLM_STEM_EMBED_NORM, c->hidden_size, "hidden_size");
}

/* Files have queries, keys and values as one matrix, as torch.nn.MultiheadAttention does. */
static void declare_pool(struct llm_declare *d, struct llm_attention_pool *p)
{
    const struct llm_config *c = d->config;
    const int64_t width = c->hidden_size, inner = c->intermediate_size;
    d->layer = -1;
    d->unit = LLM_UNIT_HEAD;
    llm_declare_rows(d, &p->probe, LLM_STEM_PROBE, 1, width, "1, 1, hidden_size", 3);
    llm_declare_plain(d, &p->qkv.w, LLM_STEM_PROBE_QKV, 3 * width, width, "3 * hidden_size, hidden_size", LLM_INIT_NORMAL);
    llm_declare_plain(d, &p->qkv.b, LLM_STEM_PROBE_QKV_BIAS, 3 * width, 0, "3 * hidden_size", LLM_INIT_ZERO);
    llm_declare_linear(d, &p->out, LLM_STEM_PROBE_OUT, width, width, "hidden_size, hidden_size", true);
    llm_declare_norm(d, &p->norm, LLM_STEM_PROBE_NORM, width, "hidden_size");
    llm_declare_linear(d, &p->up, LLM_STEM_PROBE_UP, inner, width, "intermediate_size, hidden_size", true);
    llm_declare_linear(d, &p->down, LLM_STEM_PROBE_DOWN, width, inner, "hidden_size, intermediate_size", true);
}

/* The projection of a tower's pooled hidden states. */
static void declare_projection(struct llm_declare *d, struct llm_stack *s)
{
    const struct llm_config *c = d->config;
    d->layer = -1;
    d->unit = LLM_UNIT_HEAD;
    if (c->projection_dim > 0)
        llm_declare_linear(d, &s->projection, LLM_STEM_PROJECTION, c->projection_dim, c->hidden_size, "projection_dim, hidden_size",
                           c->projection_bias);
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
    const bool two = c->class_vector == LLM_CLASSES_OF_TWO_TOKENS;
    llm_declare_table(d, &m->classes.w, LLM_STEM_CLASSES, c->num_labels, two ? c->hidden_size : llm_config_class_width(c),
                      c->class_vector == LLM_CLASSES_OF_TOKEN_AND_MEAN ? "num_labels, 2 * hidden_size" : "num_labels, hidden_size", false);
    if (llm_config_like_bert(c)) llm_declare_bias(d, &m->classes.b, LLM_STEM_CLASSES, c->num_labels, "num_labels");
    if (!two) return;
    llm_declare_table(d, &m->classes_2.w, LLM_STEM_CLASSES_2, c->num_labels, c->hidden_size, "num_labels, hidden_size", false);
    llm_declare_bias(d, &m->classes_2.b, LLM_STEM_CLASSES_2, c->num_labels, "num_labels");
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
    if (llm_config_two_towers(c) && !c->vision.attention_pooling) llm_declare_scalar(d);
    if (c->contrastive && c->sigmoid_loss) llm_declare_plain(d, &m->logit_bias, LLM_STEM_LOGIT_BIAS, 1, 0, "1", LLM_INIT_LOGIT_BIAS);
    declare_projection(d, &m->stacks[LLM_STACK_MAIN]);
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
    s->n_layers = s->n_run = n;
    s->layers = llm_calloc((size_t)(n + more), sizeof *s->layers, "layers", d->err);
    return s->layers ? llm_stack_set_rope(s, d->config, 0, d->err) : -1;
}

bool llm_stack_config(const struct llm_config *c, int stack, struct llm_config *out)
{
    *out = *c;
    if (stack == LLM_STACK_MAIN) return true;
    out->bidirectional = true;
    out->num_encoder_layers = out->num_nextn_predict_layers = 0;
    if (stack == LLM_STACK_ENCODER) {
        out->num_hidden_layers = c->num_encoder_layers;
        return c->num_encoder_layers > 0;
    }
    const struct llm_vision *v = &c->vision;
    if (v->patch_size == 0) return false;
    if (llm_config_projects(c)) { /* the tower is of CLIP's kind, whatever the language model is */
        *out = llm_config_blank(llm_arch_find("clip"));
        memcpy(out->model_type, c->model_type, sizeof out->model_type);
        out->contrastive = false;
        out->projection_dim = 0;
        out->initializer_range = c->initializer_range;
        out->attention_out_bias = out->attention_bias;
        out->bidirectional = true;
    }
    out->vision = (struct llm_vision){.patch_size = 0};
    out->hidden_size = v->hidden_size;
    out->intermediate_size = v->intermediate_size;
    out->num_hidden_layers = v->num_hidden_layers;
    out->num_attention_heads = out->num_key_value_heads = v->num_attention_heads;
    out->head_dim = v->hidden_size / v->num_attention_heads;
    out->image_size = v->image_size;
    out->patch_size = v->patch_size;
    out->num_channels = v->num_channels;
    out->act = v->act;
    out->norm_eps = v->norm_eps;
    out->attn_pdrop = v->attn_pdrop;
    out->patches_only = v->patches_only;
    out->no_final_norm = v->no_final_norm;
    out->attention_pooling = v->attention_pooling;
    out->max_position_embeddings = llm_config_picture_tokens(out);
    out->embedding_norm = !v->patches_only;
    if (v->attention_pooling) out->projection_dim = 0;
    out->pooling = LLM_POOL_CLS;
    return true;
}

bool llm_config_sees(const struct llm_config *c, struct llm_config *out)
{
    *out = *c;
    return c->patch_size > 0 || llm_stack_config(c, LLM_STACK_VISION, out);
}

/* The matrices that make embeddings of width `width` of the tower's states, after those of its layers that run. */
static void declare_projector(struct llm_declare *d, struct llm_stack *s, const struct llm_config *whole)
{
    const struct llm_config *c = d->config;
    const int64_t width = whole->hidden_size;
    const int64_t shuffle = whole->projector.shuffle;
    s->n_run = llm_config_feature_layers(whole);
    d->unit = LLM_UNIT_MLP;
    if (shuffle > 0) {
        llm_declare_linear(d, &s->projector[0], LLM_STEM_PROJECTOR_1, width, shuffle * shuffle * c->hidden_size,
                           "text_config.hidden_size, scale_factor^2 * vision_config.hidden_size", false);
        return;
    }
    llm_declare_linear(d, &s->projector[0], LLM_STEM_PROJECTOR_1, width, c->hidden_size, "text_config.hidden_size, vision_config.hidden_size",
                       whole->projector.bias);
    llm_declare_linear(d, &s->projector[1], LLM_STEM_PROJECTOR_2, width, width, "text_config.hidden_size, text_config.hidden_size",
                       whole->projector.bias);
    if (whole->projector.n_grids > 0) llm_declare_rows(d, &s->newline, LLM_STEM_NEWLINE, 1, width, "text_config.hidden_size", 1);
}

/* Declares a stack beside the main one, under names of its own: the encoder of an encoder-decoder, or a vision tower. Where the layers of all stacks
 * are counted, its layers follow those of the main stack. */
static int declare_beside(struct llm_declare *d, struct llm_decoder *m, int stack, const struct llm_names *own)
{
    const struct llm_config *c = d->config;
    const struct llm_names *names = d->names;
    struct llm_config config;
    struct llm_stack *s = &m->stacks[stack];
    const int first = (int)m->stacks[LLM_STACK_MAIN].n_layers;
    if (!llm_stack_config(c, stack, &config)) return 0;
    s->own = llm_alloc(1, sizeof *s->own, "layers", d->err);
    if (!s->own) return -1;
    *s->own = config;
    s->first = first;
    d->names = own;
    d->stack = stack;
    d->config = s->own;
    d->layers_before = first;
    int status = make_layers(d, s, s->own->num_hidden_layers, 0);
    if (status == 0) status = declare_buckets(d, s);
    if (status == 0 && stack == LLM_STACK_VISION) declare_patches(d, s);
    for (int64_t l = 0; l < s->n_layers && status == 0; l++) llm_decoder_declare_layer(d, &s->layers[l], l);
    d->layer = -1;
    if (!config.no_final_norm) llm_declare_norm(d, &s->final_norm, LLM_STEM_FINAL_NORM, config.hidden_size, "hidden_size");
    if (config.attention_pooling && stack == LLM_STACK_VISION) declare_pool(d, &s->pool);
    if (stack == LLM_STACK_VISION) declare_projection(d, s);
    if (stack == LLM_STACK_VISION && llm_config_projects(c)) declare_projector(d, s, c);
    d->layers_before = 0;
    d->config = c;
    d->stack = LLM_STACK_MAIN;
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
    if (declare_beside(d, m, LLM_STACK_ENCODER, d->names->encoder) < 0 || declare_beside(d, m, LLM_STACK_VISION, vision_names(d)) < 0
        || declare_buckets(d, s) < 0) return -1;
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
        llm_hyena_filter_destroy(s->layers[l].mixer.filter);
    }
    free(s->inv_freq[0]);
    free(s->inv_freq[1]);
    free(s->layers);
    free(s->rel_map);
    free(s->own);
}

void llm_decoder_changed(struct llm_decoder *m)
{
    for (int i = 0; i < LLM_MAX_STACKS; i++) {
        const struct llm_stack *s = &m->stacks[i];
        for (int64_t l = 0; l < s->n_layers; l++) {
            if (s->layers[l].mixer.filter) s->layers[l].mixer.filter->n = 0;
            if (s->layers[l].mixer.absorbed) s->layers[l].mixer.absorbed->made = false;
        }
    }
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
