/* Embeddings, layers of mixer and feed-forward, final norm, head: decoders, and encoders, which differ by parameters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/arch.h"

/* What a layer is made of. */
const struct llm_module_kind *llm_decoder_mixer(const struct llm_config *c, int64_t layer)
{
    static const struct llm_module_kind *const others[] = {[LLM_MIXER_RNN] = &llm_module_rnn, [LLM_MIXER_LSTM] = &llm_module_lstm};
    (void)layer;
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
    d->row = kind->name;
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
                             context ? context : c->max_position_embeddings, c->max_position_embeddings, m->inv_freq[local], &r->magnitude);
    }
    return 0;
}

/* Attention (i = 0) or feed-forward (1) with the norms that stand around it. */
static void declare_sub_layer(struct llm_declare *d, struct llm_layer *layer, int i, struct llm_module *m, const struct llm_module_kind *kind)
{
    enum llm_norm_place place = d->config->norm_place;
    if (!kind) return;
    enum llm_stem before = i ? LLM_STEM_NORM_2 : LLM_STEM_NORM_1, after = i ? LLM_STEM_POST_2 : LLM_STEM_POST_1;
    if (place == LLM_NORM_POST) declare_module(d, &layer->after[i], &llm_module_norm, before);
    if (place == LLM_NORM_PRE || place == LLM_NORM_SANDWICH) declare_module(d, &layer->before[i], &llm_module_norm, before);
    declare_module(d, m, kind, 0);
    if (place == LLM_NORM_SANDWICH || place == LLM_NORM_OUTPUT) declare_module(d, &layer->after[i], &llm_module_norm, after);
}

/* Whether these names (GGUF's have not all) can say what the configuration asks for. */
static int check_names(const struct llm_declare *d)
{
    const struct llm_config *c = d->config;
    const struct llm_names *n = d->names;
    const struct { bool wanted; const char *name, *what; } parts[] = {
        {c->type_vocab_size > 0, n->token_types, "kinds of segments"}, {c->embedding_norm, n->embed_norm, "a norm of embeddings"},
        {c->pooler, n->pooler, "a pooler"}, {c->head_transform, n->head_dense, "a masked-token head"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].wanted && !parts[i].name) return llm_fail(d->err, EX_UNAVAILABLE, "%s of %s has no name here", parts[i].what, c->model_type);
    }
    return 0;
}

/* A name after the family's prefix; until the next call. */
static const char *full(const struct llm_declare *d, const char *name)
{
    static _Thread_local char text[100];
    snprintf(text, sizeof text, "%s%s", d->names->prefix, name);
    return text;
}

static void declare_embeddings(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    const struct llm_names *n = d->names;
    d->layer = -1;
    d->row = "embeddings";
    llm_declare_table(d, &m->embed, full(d, n->embed), c->vocab_size, llm_config_embedding(c),
                      c->embedding_size > 0 ? "vocab_size, embedding_size" : "vocab_size, hidden_size", true);
    /* As torch.nn.Embedding: gates hear nothing of small ones. What is a head too begins small. */
    if (c->norm_place == LLM_NORM_BARE && !c->tie_word_embeddings && !d->failed) d->specs[d->n - 1].init = LLM_INIT_UNIT;
    if (c->position == LLM_POSITION_LEARNED) {
        llm_declare_table(d, &m->positions, full(d, n->positions), c->max_position_embeddings, c->hidden_size,
                          "max_position_embeddings, hidden_size", true);
    }
    if (c->type_vocab_size > 0) {
        llm_declare_table(d, &m->token_types, full(d, n->token_types), c->type_vocab_size, c->hidden_size, "type_vocab_size, hidden_size", true);
    }
    d->row = llm_module_norm.name;
    if (c->embedding_norm) llm_declare_norm(d, &m->embed_norm, full(d, n->embed_norm), c->hidden_size, "hidden_size");
}

static void declare_head(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    const struct llm_names *n = d->names;
    d->layer = -1;
    d->row = llm_module_norm.name;
    if (!c->no_final_norm) llm_declare_norm(d, &m->final_norm, full(d, n->final_norm), c->hidden_size, "hidden_size");
    d->row = "head";
    if (c->pooler) llm_declare_dense(d, &m->pooler, full(d, n->pooler), c->hidden_size, c->hidden_size, "hidden_size, hidden_size");
    if (c->head_transform) {
        llm_declare_dense(d, &m->head_dense, n->head_dense, c->hidden_size, c->hidden_size, "hidden_size, hidden_size");
        llm_declare_norm(d, &m->head_norm, n->head_norm, c->hidden_size, "hidden_size");
    }
    if (c->head_transform || c->head_bias) llm_declare_bias(d, &m->head_bias, n->head_bias, c->vocab_size, "vocab_size");
    if (!c->tie_word_embeddings) llm_declare_table(d, &m->head, n->head, c->vocab_size, c->hidden_size, "vocab_size, hidden_size", false);
}

void llm_decoder_declare_layer(struct llm_declare *d, struct llm_layer *layer, int64_t number)
{
    d->layer = (int)number;
    declare_sub_layer(d, layer, 0, &layer->mixer, llm_decoder_mixer(d->config, number));
    declare_sub_layer(d, layer, 1, &layer->ffn, ffn_of(d->config, number));
}

int llm_decoder_declare(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    m->n_layers = c->num_hidden_layers;
    m->n_next = c->num_nextn_predict_layers;
    m->layers = llm_calloc((size_t)(m->n_layers + m->n_next), sizeof *m->layers, "layers", d->err);
    if (!m->layers || check_names(d) < 0 || llm_decoder_set_rope(m, c, 0, d->err) < 0) return -1;
    declare_embeddings(d, m);
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
        llm_absorbed_destroy(m->layers[l].mixer.absorbed);
    }
    free(m->inv_freq[0]);
    free(m->inv_freq[1]);
    free(m->layers);
    free(m->next);
    free(m);
}

/* A run of layers, as llm_run_block wants it. A copy of the batch, since the way back comes when the caller's may be gone. */
struct run {
    const struct llm_model *model;
    struct llm_batch batch;
    int64_t first, n;
};

static struct llm_tensor *norm(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    return m->kind ? m->kind->forward(c, m, p, x) : x;
}

/* What sub-layer i adds to x. */
static struct llm_tensor *branch(struct llm_ctx *c, const struct llm_layer *layer, int i, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_module *m = i ? &layer->ffn : &layer->mixer;
    struct llm_tensor *y = m->kind->forward(c, m, p, norm(c, &layer->before[i], p, x));
    if (p->config->norm_place != LLM_NORM_POST) y = norm(c, &layer->after[i], p, y);
    if (p->config->norm_place == LLM_NORM_BARE && p->layer == p->config->num_hidden_layers - 1) return y; /* dropout stands between layers */
    return llm_dropout(c, y, (float)p->config->resid_pdrop, i ? LLM_RNG_DROPOUT_FFN : LLM_RNG_DROPOUT_RESID);
}

/* x and sub-layer i of `of`, normed where norms stand behind the sum. */
static struct llm_tensor *add_branch(struct llm_ctx *c, const struct llm_layer *layer, int i, const struct llm_pass *p, struct llm_tensor *x,
                                     struct llm_tensor *of)
{
    struct llm_tensor *y = branch(c, layer, i, p, of);
    if (p->config->norm_place == LLM_NORM_BARE) return y;
    x = llm_add(c, x, y);
    return p->config->norm_place == LLM_NORM_POST ? norm(c, &layer->after[i], p, x) : x;
}

static struct llm_tensor *layer_forward(struct llm_ctx *c, const struct llm_layer *layer, const struct llm_pass *p, struct llm_tensor *x)
{
    struct llm_tensor *y = add_branch(c, layer, 0, p, x, x);
    if (!layer->ffn.kind) return y;
    return add_branch(c, layer, 1, p, y, p->config->parallel_residual ? x : y);
}

/* The rotation of a layer's queries and keys, or NULL. */
static const struct llm_rope *rope_of(const struct llm_decoder *m, const struct llm_config *c, int64_t layer)
{
    if (c->position != LLM_POSITION_ROPE || llm_layer_in(c->no_rope_layers, layer)) return NULL;
    return &m->rope[c->rope_local_theta > 0 && llm_config_window(c, layer) > 0];
}

struct llm_tensor *llm_decoder_layer(struct llm_ctx *c, const struct llm_model *model, const struct llm_batch *b, int64_t number,
                                     struct llm_tensor *x)
{
    const struct llm_decoder *m = model->layout;
    struct llm_shared_kv shared = {NULL, NULL};
    const struct llm_pass p = {.config = &model->config, .batch = b, .rope = rope_of(m, &model->config, number), .shared = &shared, .layer = number};
    c->layer = (uint32_t)number;
    return layer_forward(c, &m->layers[number], &p, x);
}

static struct llm_tensor *layers(struct llm_ctx *c, void *arg, struct llm_tensor *x)
{
    const struct run *r = arg;
    const struct llm_decoder *m = r->model->layout;
    struct llm_shared_kv shared = {NULL, NULL};
    for (int64_t l = r->first; l < r->first + r->n; l++) {
        const struct llm_pass p = {.config = &r->model->config, .batch = &r->batch, .rope = rope_of(m, &r->model->config, l),
                                  .shared = &shared, .layer = l};
        c->layer = (uint32_t)l;
        x = layer_forward(c, &m->layers[l], &p, x);
    }
    return x;
}

/* Every token is of the first kind of segment. */
static struct llm_tensor *add_types(struct llm_ctx *c, const struct llm_decoder *m, struct llm_tensor *x)
{
    int32_t *kinds = llm_arena_alloc(&c->acts, (size_t)x->rows * sizeof *kinds);
    if (!kinds) {
        if (!llm_ctx_failed(c)) llm_fail(&c->err, EX_UNAVAILABLE, "activations: expected at most %zu MiB, found more", c->acts.limit >> 20);
        return &c->nothing;
    }
    memset(kinds, 0, (size_t)x->rows * sizeof *kinds);
    return llm_add(c, x, llm_embedding(c, kinds, x->rows, m->token_types, 1));
}

static struct llm_tensor *embed(struct llm_ctx *c, const struct llm_model *model, const struct llm_batch *b)
{
    const struct llm_config *f = &model->config;
    const struct llm_decoder *m = model->layout;
    c->layer = 0;
    struct llm_tensor *x = llm_embedding(c, b->ids, b->n_tokens, m->embed, (float)f->embedding_scale);
    if (f->position == LLM_POSITION_LEARNED) x = llm_add(c, x, llm_embedding(c, b->positions, b->n_tokens, m->positions, 1));
    if (f->position == LLM_POSITION_SINUSOIDAL) x = llm_add_sinusoidal(c, x, b->positions);
    if (m->token_types) x = add_types(c, m, x);
    if (m->embed_norm.w) x = llm_norm_apply(c, f, &m->embed_norm, x);
    return llm_dropout(c, x, (float)f->embd_pdrop, LLM_RNG_DROPOUT_EMBED);
}

struct llm_tensor *llm_decoder_forward(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b)
{
    const struct llm_config *f = &model->config;
    const struct llm_decoder *m = model->layout;
    bool keep = c->tape && b->checkpoint_every <= 0;
    int64_t every = c->tape && b->checkpoint_every > 0 ? b->checkpoint_every : 1;
    every = (every + f->kv_sharing - 1) / f->kv_sharing * f->kv_sharing; /* layers that share stay together */
    struct run *runs = llm_arena_alloc(&c->acts, (size_t)m->n_layers * sizeof *runs); /* below what the blocks give up */
    if (!runs) {
        if (!llm_ctx_failed(c)) llm_fail(&c->err, EX_UNAVAILABLE, "activations: expected at most %zu MiB, found more", c->acts.limit >> 20);
        return &c->nothing;
    }
    size_t mark = llm_arena_mark(&c->acts);
    struct llm_tensor *x = embed(c, model, b);
    for (int64_t l = 0, n; l < m->n_layers; l += n) {
        n = m->n_layers - l < every ? m->n_layers - l : every;
        runs[l] = (struct run){model, *b, l, n};
        if (c->tape) x = llm_run_block(c, layers, &runs[l], x, keep);
        else x = llm_keep_only(c, mark, layers(c, &runs[l], x)); /* one hidden state at a time */
    }
    return m->final_norm.w ? llm_norm_apply(c, f, &m->final_norm, x) : x;
}

void llm_model_walk(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b,
                    bool (*visit)(void *arg, const char *place, const struct llm_tensor *x), void *arg)
{
    const struct llm_decoder *m = model->layout;
    const struct llm_names *names = &model->arch->names;
    struct llm_shared_kv shared = {NULL, NULL};
    char place[200];
    struct llm_tensor *x = embed(c, model, b);
    bool on = visit(arg, "the embeddings", x);
    for (int64_t l = 0; l < m->n_layers && on; l++) {
        const struct llm_layer *layer = &m->layers[l];
        const struct llm_pass p = {.config = &model->config, .batch = b, .rope = rope_of(m, &model->config, l), .shared = &shared, .layer = l};
        struct llm_tensor *in = x;
        for (int i = 0; i < (layer->ffn.kind ? 2 : 1) && on; i++) {
            c->layer = (uint32_t)l;
            x = add_branch(c, layer, i, &p, x, model->config.parallel_residual ? in : x);
            snprintf(place, sizeof place, "%s%s%lld after its %s", names->prefix, names->layer, (long long)l,
                     (i ? &layer->ffn : &layer->mixer)->kind->name);
            on = visit(arg, place, x);
        }
    }
    if (on && m->final_norm.w) {
        x = llm_norm_apply(c, &model->config, &m->final_norm, x);
        snprintf(place, sizeof place, "%s%s", names->prefix, names->final_norm);
        on = visit(arg, place, x);
    }
    if (on) visit(arg, "the logits", llm_model_logits(c, model, x));
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
