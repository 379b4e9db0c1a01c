/* Embeddings, layers of mixer and feed-forward, final norm, head: decoders, and encoders, which differ by parameters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/arch.h"
#include "tensor/tape.h"

/* What a layer is made of. */
const struct llm_module_kind *llm_decoder_mixer(const struct llm_config *c, int64_t layer)
{
    static const struct llm_module_kind *const others[] = {[LLM_MIXER_RNN] = &llm_module_rnn, [LLM_MIXER_LSTM] = &llm_module_lstm,
                                                         [LLM_MIXER_MAMBA] = &llm_module_mamba, [LLM_MIXER_MAMBA2] = &llm_module_mamba2,
                                                         [LLM_MIXER_WINDOW] = &llm_module_window};
    if (layer == 0 && llm_config_learns_latents(c)) return &llm_module_cross; /* at the text */
    if (c->mixer != LLM_MIXER_ATTENTION) return others[c->mixer];
    return c->kv_lora_rank > 0 ? &llm_module_mla : &llm_module_attention;
}

/* NULL: the layer has none. */
static const struct llm_module_kind *ffn_of(const struct llm_config *c, int64_t layer)
{
    if (c->mixer != LLM_MIXER_ATTENTION) return NULL;
    return llm_config_is_mixture(c, layer) ? &llm_module_moe : &llm_module_mlp;
}

static void declare_module(struct llm_declare *d, struct llm_module *m, const struct llm_module_kind *kind, enum llm_stem stem)
{
    m->kind = kind;
    m->stem = stem;
    d->unit = kind->unit;
    kind->declare(d, m);
}

int llm_decoder_set_rope(struct llm_decoder *m, const struct llm_config *c, int64_t context, struct llm_err *e)
{
    static const struct llm_rope_scaling plain = {.kind = LLM_ROPE_PLAIN};
    if (c->position != LLM_POSITION_ROPE) return 0;
    for (int local = 0; local < (c->rope_local_theta > 0 ? 2 : 1); local++) {
        struct llm_rope *r = &m->rope[local];
        if (!m->inv_freq[local]) m->inv_freq[local] = llm_alloc((size_t)c->rotary_dim / 2, sizeof **m->inv_freq, "rotary frequencies", e);
        if (!m->inv_freq[local]) return -1;
        *r = (struct llm_rope){.head_dim = c->head_dim, .rotary_dim = c->rotary_dim, .pairing = c->rope_pairing, .inv_freq = m->inv_freq[local]};
        llm_rope_frequencies(local ? &plain : &c->rope_scaling, local ? c->rope_local_theta : c->rope_theta, c->rotary_dim,
                             context ? context : llm_model_default_context(c), c->max_position_embeddings, m->inv_freq[local], &r->magnitude);
    }
    return 0;
}

/* One of a layer's parts. */
static struct llm_module *part_of(struct llm_layer *layer, int i)
{
    return i == LLM_SUB_MIXER ? &layer->mixer : i == LLM_SUB_FFN ? &layer->ffn : &layer->cross;
}

/* A part of a layer with the norms that stand around it. */
static void declare_sub_layer(struct llm_declare *d, struct llm_layer *layer, int i, const struct llm_module_kind *kind)
{
    static const enum llm_stem befores[] = {LLM_STEM_NORM_1, LLM_STEM_NORM_2, LLM_STEM_CROSS_NORM};
    enum llm_norm_place place = d->config->norm_place;
    if (!kind) return;
    enum llm_stem before = befores[i], after = i == LLM_SUB_FFN ? LLM_STEM_POST_2 : LLM_STEM_POST_1;
    if (place == LLM_NORM_POST) declare_module(d, &layer->after[i], &llm_module_norm, before);
    bool shares = d->config->shared_norm && i == LLM_SUB_FFN; /* the mixer's */
    if (!shares && (place == LLM_NORM_PRE || place == LLM_NORM_SANDWICH)) declare_module(d, &layer->before[i], &llm_module_norm, before);
    declare_module(d, part_of(layer, i), kind, 0);
    if (place == LLM_NORM_SANDWICH || place == LLM_NORM_OUTPUT) declare_module(d, &layer->after[i], &llm_module_norm, after);
}

/* Whether these names (GGUF's have not all) can say what the configuration asks for. */
static int check_names(const struct llm_declare *d)
{
    const struct llm_config *c = d->config;
    const struct llm_names *n = d->names;
    const struct { bool wanted; const char *name, *what; } parts[] = {
        {c->type_vocab_size > 0, n->token_types, "kinds of segments"}, {c->embedding_norm, n->embed_norm, "a norm of embeddings"},
        {c->pooler, n->pooler, "a pooler"}, {c->position == LLM_POSITION_BUCKETS, n->rel_bias, "a bias of distances"},
        {c->num_encoder_layers > 0, n->encoder ? n->encoder->layer : NULL, "an encoder"}, {c->head_transform, n->head_dense, "a masked-token head"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].wanted && !parts[i].name) return llm_fail(d->err, EX_UNAVAILABLE, "%s of %s has no name here", parts[i].what, c->model_type);
    }
    return 0;
}

static void declare_embeddings(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    d->layer = -1;
    d->unit = LLM_UNIT_EMBEDDINGS;
    llm_declare_table(d, &m->embed, LLM_STEM_EMBED, c->vocab_size, llm_config_embedding(c),
                      c->embedding_size > 0 ? "vocab_size, embedding_size" : "vocab_size, hidden_size", true);
    /* As torch.nn.Embedding: gates hear nothing of small ones. What is a head too begins small. */
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

static void declare_head(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    d->layer = -1;
    d->unit = LLM_UNIT_NORMS;
    if (!c->no_final_norm) llm_declare_norm(d, &m->final_norm, LLM_STEM_FINAL_NORM, c->hidden_size, "hidden_size");
    d->unit = LLM_UNIT_HEAD;
    if (c->pooler) llm_declare_linear(d, &m->pooler, LLM_STEM_POOLER, c->hidden_size, c->hidden_size, "hidden_size, hidden_size", true);
    if (c->head_transform) {
        llm_declare_linear(d, &m->head_dense, LLM_STEM_HEAD_DENSE, c->hidden_size, c->hidden_size, "hidden_size, hidden_size", true);
        llm_declare_norm(d, &m->head_norm, LLM_STEM_HEAD_NORM, c->hidden_size, "hidden_size");
    }
    if (c->head_transform || (c->head_bias && llm_config_has_head(c)))
        llm_declare_bias(d, &m->head_bias, LLM_STEM_HEAD_BIAS, c->vocab_size, "vocab_size");
    if (c->num_labels > 0) llm_classes_declare(d, m);
    if (c->contrastive) llm_declare_plain(d, &m->logit_scale, LLM_STEM_LOGIT_SCALE, 1, 0, "1", LLM_INIT_LOGIT_SCALE);
    if (!c->tie_word_embeddings && llm_config_has_head(c)) {
        llm_declare_table(d, &m->head, LLM_STEM_HEAD, c->vocab_size, c->hidden_size, "vocab_size, hidden_size", false);
    }
}

void llm_decoder_declare_layer(struct llm_declare *d, struct llm_layer *layer, int64_t number)
{
    d->layer = (int)number;
    declare_sub_layer(d, layer, LLM_SUB_MIXER, llm_decoder_mixer(d->config, number));
    if (d->config->num_encoder_layers > 0) declare_sub_layer(d, layer, LLM_SUB_CROSS, &llm_module_cross);
    declare_sub_layer(d, layer, LLM_SUB_FFN, ffn_of(d->config, number));
}

/* T5's buckets (Raffel et al. 2020): near distances have their own, farther ones share them by their logarithm, in single precision as there. */
static int32_t bucket(const struct llm_config *c, int64_t distance, bool bidirectional)
{
    int64_t n = bidirectional ? c->rel_buckets / 2 : c->rel_buckets, first = bidirectional && distance > 0 ? n : 0, exact = n / 2;
    int64_t d = bidirectional ? (distance < 0 ? -distance : distance) : distance < 0 ? -distance : 0;
    if (d < exact) return (int32_t)(first + d);
    float share = logf((float)d / (float)exact) / (float)log((double)c->rel_max_distance / (double)exact) * (float)(n - exact);
    int64_t at = exact + (int64_t)share;
    return (int32_t)(first + (at < n ? at : n - 1));
}

/* The biases of distances that all n_layers of a stack share. */
static int declare_buckets(struct llm_declare *d, struct llm_decoder *m, bool bidirectional, int64_t n_layers)
{
    const struct llm_config *c = d->config;
    if (c->position != LLM_POSITION_BUCKETS) return 0;
    int32_t *map = llm_alloc(2 * (size_t)c->rel_max_distance + 1, sizeof *map, "distances", d->err);
    if (!map) return -1;
    for (int64_t x = -c->rel_max_distance; x <= c->rel_max_distance; x++) map[x + c->rel_max_distance] = bucket(c, x, bidirectional);
    m->rel_map[bidirectional] = map;
    d->layer = -1;
    d->unit = LLM_UNIT_EMBEDDINGS;
    llm_declare_table(d, &m->rel_bias[bidirectional], LLM_STEM_DISTANCES, c->rel_buckets, c->num_attention_heads,
                      "relative_attention_num_buckets, num_heads", true);
    if (!d->failed) d->specs[d->n - 1].sharers = (int)n_layers;
    return 0;
}

/* The other stack of an encoder-decoder, under its own names. Its layers count behind the decoder's where layers are counted. */
static int declare_encoder(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    const struct llm_names *names = d->names;
    m->n_encoder = c->num_encoder_layers;
    if (m->n_encoder == 0) return 0;
    m->encoder = llm_calloc((size_t)m->n_encoder, sizeof *m->encoder, "layers", d->err);
    if (!m->encoder) return -1;
    d->names = names->encoder;
    d->encoder = true;
    if (declare_buckets(d, m, true, m->n_encoder) < 0) return -1;
    for (int l = 0; l < m->n_encoder; l++) {
        d->layer = l;
        declare_sub_layer(d, &m->encoder[l], LLM_SUB_MIXER, &llm_module_attention);
        declare_sub_layer(d, &m->encoder[l], LLM_SUB_FFN, &llm_module_mlp);
    }
    d->layer = -1;
    if (!c->no_final_norm) llm_declare_norm(d, &m->encoder_norm, LLM_STEM_FINAL_NORM, c->hidden_size, "hidden_size");
    d->encoder = false;
    d->names = names;
    return 0;
}

int llm_decoder_declare(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    m->n_layers = c->num_hidden_layers;
    m->n_next = c->num_nextn_predict_layers;
    m->layers = llm_calloc((size_t)(m->n_layers + m->n_next), sizeof *m->layers, "layers", d->err);
    if (!m->layers || check_names(d) < 0 || llm_decoder_set_rope(m, c, 0, d->err) < 0) return -1;
    declare_embeddings(d, m);
    if (declare_encoder(d, m) < 0 || declare_buckets(d, m, c->bidirectional, m->n_layers) < 0) return -1;
    for (int64_t l = 0; l < m->n_layers; l++) llm_decoder_declare_layer(d, &m->layers[l], l);
    declare_head(d, m);
    if (m->n_next > 0 && llm_next_declare(d, m) < 0) return -1;
    return d->failed ? -1 : 0;
}

void llm_decoder_destroy(struct llm_decoder *m, size_t n_params)
{
    if (!m) return;
    for (size_t i = 0; m->staging && i < n_params; i++) free(m->staging[i]);
    free(m->staging);
    llm_buf_release(&m->tokenizer_json);
    for (int64_t l = 0; m->layers && l < m->n_layers + m->n_next; l++) {
        free(m->layers[l].ffn.experts);
        free(m->layers[l].mixer.head_gains);
        llm_absorbed_destroy(m->layers[l].mixer.absorbed);
    }
    free(m->inv_freq[0]);
    free(m->inv_freq[1]);
    free(m->layers);
    free(m->next);
    free(m->encoder);
    free(m->rel_map[0]);
    free(m->rel_map[1]);
    free(m);
}

/* A run of layers, as llm_run_block wants it. A copy of the batch, since the way back comes when the caller's may be gone. */
struct run {
    const struct llm_model *model;
    struct llm_batch batch;
    bool encoder;              /* the other stack's layers */
    struct llm_tensor *memory; /* what cross-attention looks at */
    const int32_t *memory_len;
    const int32_t *latents;    /* numbers of learned latents, which go through the layers in place of tokens; NULL */
    int64_t first, n;
};

static struct llm_tensor *norm(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    return m->kind ? m->kind->forward(c, m, p, x) : x;
}

/* What sub-layer i adds, from its normed input. */
static struct llm_tensor *branch_of(struct llm_ctx *c, const struct llm_layer *layer, int i, const struct llm_pass *p, struct llm_tensor *normed)
{
    static const enum llm_rng_site sites[] = {LLM_RNG_DROPOUT_RESID, LLM_RNG_DROPOUT_FFN, LLM_RNG_DROPOUT_CROSS};
    const struct llm_module *m = i == LLM_SUB_MIXER ? &layer->mixer : i == LLM_SUB_FFN ? &layer->ffn : &layer->cross;
    struct llm_tensor *y = m->kind->forward(c, m, p, normed);
    if (p->config->norm_place != LLM_NORM_POST) y = norm(c, &layer->after[i], p, y);
    if (p->config->norm_place == LLM_NORM_BARE && p->layer == p->config->num_hidden_layers - 1) return y; /* dropout stands between layers */
    return llm_dropout(c, y, (float)p->config->resid_pdrop, sites[i]);
}

/* What sub-layer i adds to x. */
static struct llm_tensor *branch(struct llm_ctx *c, const struct llm_layer *layer, int i, const struct llm_pass *p, struct llm_tensor *x)
{
    c->passing = LLM_PASSING_NORM; /* the module alone reads it */
    struct llm_tensor *y = norm(c, &layer->before[i], p, x);
    c->passing = LLM_STAYS;
    return branch_of(c, layer, i, p, y);
}

/* x and sub-layer i of `of`, normed where norms stand behind the sum. */
static struct llm_tensor *add_branch(struct llm_ctx *c, const struct llm_layer *layer, int i, const struct llm_pass *p, struct llm_tensor *x,
                                     struct llm_tensor *of)
{
    struct llm_tensor *y = branch(c, layer, i, p, of);
    if (p->config->norm_place == LLM_NORM_BARE) return y;
    x = llm_add_over(c, x, y);
    return p->config->norm_place == LLM_NORM_POST ? norm(c, &layer->after[i], p, x) : x;
}

/* shared_norm: the norm's output, which two modules read, is computed once and kept for the backward pass. */
static struct llm_tensor *side_by_side(struct llm_ctx *c, const struct llm_layer *layer, const struct llm_pass *p, struct llm_tensor *x)
{
    struct llm_tensor *normed = norm(c, &layer->before[LLM_SUB_MIXER], p, x);
    struct llm_tensor *y = llm_add_over(c, x, branch_of(c, layer, LLM_SUB_MIXER, p, normed));
    return llm_add_over(c, y, branch_of(c, layer, LLM_SUB_FFN, p, normed));
}

static struct llm_tensor *layer_forward(struct llm_ctx *c, const struct llm_layer *layer, const struct llm_pass *p, struct llm_tensor *x)
{
    if (p->config->shared_norm) return side_by_side(c, layer, p, x);
    struct llm_tensor *y = add_branch(c, layer, LLM_SUB_MIXER, p, x, x);
    if (layer->cross.kind) y = add_branch(c, layer, LLM_SUB_CROSS, p, y, y);
    if (!layer->ffn.kind) return y;
    return add_branch(c, layer, LLM_SUB_FFN, p, y, p->config->parallel_residual ? x : y);
}

/* The rotation of a layer's queries and keys, or NULL. */
static const struct llm_rope *rope_of(const struct llm_decoder *m, const struct llm_config *c, int64_t layer)
{
    if (c->position != LLM_POSITION_ROPE || llm_layer_in(c->no_rope_layers, layer)) return NULL;
    return &m->rope[c->rope_local_theta > 0 && llm_config_window(c, layer) > 0];
}

static struct llm_pass pass_of(const struct run *r, struct llm_shared_kv *shared, int64_t layer)
{
    const struct llm_config *f = &r->model->config;
    const struct llm_decoder *m = r->model->layout;
    bool both_ways = r->encoder || f->bidirectional;
    return (struct llm_pass){.config = f, .batch = &r->batch, .rope = rope_of(m, f, layer), .bidirectional = both_ways,
                             .rel_bias = m->rel_bias[both_ways], .rel_map = m->rel_map[both_ways], .memory = r->memory,
                             .memory_len = r->memory_len, .shared = shared, .layer = layer};
}

struct llm_tensor *llm_decoder_layer(struct llm_ctx *c, const struct llm_model *model, const struct llm_batch *b, int64_t number,
                                     struct llm_tensor *x)
{
    const struct llm_decoder *m = model->layout;
    struct llm_shared_kv shared = {NULL, NULL};
    const struct run r = {.model = model, .batch = *b};
    const struct llm_pass p = pass_of(&r, &shared, number);
    c->layer = (uint32_t)number;
    return layer_forward(c, &m->layers[number], &p, x);
}

static struct llm_tensor *layers(struct llm_ctx *c, void *arg, struct llm_tensor *x)
{
    const struct run *r = arg;
    const struct llm_decoder *m = r->model->layout;
    struct llm_shared_kv shared = {NULL, NULL};
    for (int64_t l = r->first; l < r->first + r->n; l++) {
        const struct llm_pass p = pass_of(r, &shared, l);
        c->layer = (uint32_t)(r->encoder ? m->n_layers + l : l); /* random numbers of their own */
        x = layer_forward(c, r->encoder ? &m->encoder[l] : &m->layers[l], &p, x);
    }
    return x;
}

/* Where nobody says otherwise every token is of the first kind of segment. */
static struct llm_tensor *add_types(struct llm_ctx *c, const struct llm_decoder *m, const struct llm_batch *b, struct llm_tensor *x)
{
    if (b->kinds) return llm_add_over(c, x, llm_embedding(c, b->kinds, x->rows, m->token_types, 1));
    int32_t *kinds = llm_arena_alloc(&c->acts, (size_t)x->rows * sizeof *kinds);
    if (!kinds) {
        if (!llm_ctx_failed(c)) llm_fail(&c->err, EX_UNAVAILABLE, "activations: expected at most %zu MiB, found more", c->acts.limit >> 20);
        return &c->nothing;
    }
    memset(kinds, 0, (size_t)x->rows * sizeof *kinds);
    return llm_add_over(c, x, llm_embedding(c, kinds, x->rows, m->token_types, 1));
}

static struct llm_tensor *embed(struct llm_ctx *c, const struct llm_model *model, const struct llm_batch *b, bool encoder)
{
    const struct llm_config *f = &model->config;
    const struct llm_decoder *m = model->layout;
    c->layer = encoder ? (uint32_t)m->n_layers : 0;
    c->use = encoder; /* the decoder's tokens have the first */
    struct llm_tensor *x = llm_embedding(c, b->ids, b->n_tokens, m->embed, (float)f->embedding_scale);
    c->use = 0;
    if (f->position == LLM_POSITION_LEARNED) x = llm_add_over(c, x, llm_embedding(c, b->positions, b->n_tokens, m->positions, 1));
    if (f->position == LLM_POSITION_SINUSOIDAL) x = llm_add_sinusoidal(c, x, b->positions);
    if (m->token_types) x = add_types(c, m, b, x);
    if (m->embed_norm.w) x = llm_norm_apply(c, f, &m->embed_norm, x);
    return llm_dropout(c, x, (float)f->embd_pdrop, LLM_RNG_DROPOUT_EMBED);
}

/* What the first layer of a stack takes. */
static struct llm_tensor *input(struct llm_ctx *c, const struct run *r)
{
    const struct llm_decoder *m = r->model->layout;
    if (!r->latents) return embed(c, r->model, &r->batch, r->encoder);
    return llm_embedding(c, r->latents, r->batch.n_tokens, m->latents, 1);
}

/* All layers of one stack, and the norm behind them. */
static struct llm_tensor *run_stack(struct llm_ctx *c, const struct run *whole, int64_t n_layers, const struct llm_linear_params *last)
{
    const struct llm_config *f = &whole->model->config;
    const struct llm_batch *b = &whole->batch;
    bool keep = c->tape && b->checkpoint_every <= 0;
    int64_t every = c->tape && b->checkpoint_every > 0 ? b->checkpoint_every : 1;
    every = (every + f->kv_sharing - 1) / f->kv_sharing * f->kv_sharing; /* layers that share stay together */
    struct run *runs = llm_arena_alloc(&c->acts, (size_t)n_layers * sizeof *runs); /* below what the blocks give up */
    if (!runs) {
        if (!llm_ctx_failed(c)) llm_fail(&c->err, EX_UNAVAILABLE, "activations: expected at most %zu MiB, found more", c->acts.limit >> 20);
        return &c->nothing;
    }
    size_t mark = llm_arena_mark(&c->acts);
    struct llm_tensor *x = input(c, whole);
    for (int64_t l = 0, n; l < n_layers; l += n) {
        n = n_layers - l < every ? n_layers - l : every;
        runs[l] = *whole;
        runs[l].first = l;
        runs[l].n = n;
        if (c->tape) x = llm_run_block(c, layers, &runs[l], x, keep);
        else x = llm_keep_only(c, mark, layers(c, &runs[l], x)); /* one hidden state at a time */
    }
    return last->w ? llm_norm_apply(c, f, last, x) : x;
}

struct llm_tensor *llm_decoder_encode(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b)
{
    const struct llm_decoder *m = model->layout;
    const struct run r = {.model = model, .batch = *b, .encoder = true};
    return run_stack(c, &r, m->n_encoder, &m->encoder_norm);
}

/* Learned latents of each row, which look at the row's text. */
static struct run look_at(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b)
{
    int64_t n = model->config.num_latents, rows = c->n_rows > 0 ? c->n_rows : 1;
    struct run r = {.model = model, .batch = {.n_tokens = rows * n, .checkpoint_every = b->checkpoint_every}, .memory_len = b->lengths};
    int32_t *numbers = llm_op_alloc(c, rows * n, sizeof *numbers);
    for (int64_t i = 0; i < rows * n && numbers; i++) numbers[i] = (int32_t)(i % n);
    r.latents = numbers;
    r.memory = embed(c, model, b, false);
    return r;
}

/* A batch, with what its encoder makes of the source. */
static struct run begin(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b)
{
    struct run r = {.model = model, .batch = *b};
    if (llm_config_learns_latents(&model->config)) return look_at(c, model, b);
    if (!b->source) return r;
    struct llm_batch source = *b->source;
    source.checkpoint_every = b->checkpoint_every;
    r.memory = llm_decoder_encode(c, model, &source);
    r.memory_len = source.lengths;
    return r;
}

struct llm_tensor *llm_decoder_forward(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b)
{
    const struct llm_decoder *m = model->layout;
    const struct run r = begin(c, model, b);
    return run_stack(c, &r, m->n_layers, &m->final_norm);
}

void llm_model_walk(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b,
                    bool (*visit)(void *arg, const char *place, const struct llm_tensor *x), void *arg)
{
    const struct llm_decoder *m = model->layout;
    static const int order[] = {LLM_SUB_MIXER, LLM_SUB_CROSS, LLM_SUB_FFN};
    const struct llm_names *names = &model->arch->names;
    struct llm_shared_kv shared = {NULL, NULL};
    char place[200];
    const struct run r = begin(c, model, b);
    bool on = !r.memory || visit(arg, r.latents ? "the embeddings" : "what the encoder says", r.memory);
    struct llm_tensor *x = input(c, &r);
    on = on && visit(arg, r.latents ? "the latents" : "the embeddings", x);
    for (int64_t l = 0; l < m->n_layers && on; l++) {
        struct llm_layer *layer = &m->layers[l];
        const struct llm_pass p = pass_of(&r, &shared, l);
        struct llm_tensor *in = model->config.shared_norm ? norm(c, &layer->before[LLM_SUB_MIXER], &p, x) : x;
        for (int i = 0; i < LLM_N_SUBS && on; i++) {
            const struct llm_module *part = part_of(layer, order[i]);
            if (!part->kind) continue;
            c->layer = (uint32_t)l;
            x = add_branch(c, layer, order[i], &p, x, order[i] == LLM_SUB_FFN && model->config.parallel_residual ? in : x);
            snprintf(place, sizeof place, "%s%s%lld after its %s", names->prefix, names->layer, (long long)l, llm_unit_names[part->kind->unit]);
            on = visit(arg, place, x);
        }
    }
    if (on && m->final_norm.w) {
        x = llm_norm_apply(c, &model->config, &m->final_norm, x);
        snprintf(place, sizeof place, "%s%s", names->prefix, names->final_norm);
        on = visit(arg, place, x);
    }
    if (on && llm_config_has_head(&model->config)) visit(arg, "the logits", llm_model_logits(c, model, x));
}

struct search { char *name; size_t n; bool bad; };

/* Notes the first place with a value that is not finite. */
static bool look(void *arg, const char *place, const struct llm_tensor *x)
{
    struct search *s = arg;
    for (int64_t r = 0; r < x->rows && !s->bad; r++) {
        for (int64_t i = 0; i < x->cols && !s->bad; i++) s->bad = !isfinite(x->data[r * x->stride + i]);
    }
    if (s->bad) snprintf(s->name, s->n, "%s", place);
    return !s->bad;
}

bool llm_model_first_bad(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b, char *name, size_t n)
{
    struct search s = {name, n, false};
    llm_model_walk(c, model, b, look, &s);
    return s.bad && !llm_ctx_failed(c);
}
