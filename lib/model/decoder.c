/* The decoder that both families are: embeddings, layers of mixer and feed-forward, final norm, head. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "model/arch.h"

/* What a layer is made of. */
static const struct llm_module_kind *mixer_of(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return &llm_module_attention;
}

static const struct llm_module_kind *ffn_of(const struct llm_config *c, int64_t layer)
{
    (void)c, (void)layer;
    return &llm_module_mlp;
}

static void declare_module(struct llm_declare *d, struct llm_module *m, const struct llm_module_kind *kind, enum llm_stem stem)
{
    m->kind = kind;
    m->stem = stem;
    d->row = kind->name;
    kind->declare(d, m);
}

static int make_inv_freq(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    if (c->position != LLM_POSITION_ROPE) return 0;
    m->inv_freq = llm_alloc((size_t)c->head_dim / 2, sizeof *m->inv_freq, "rotary frequencies", d->err);
    if (!m->inv_freq) return -1;
    for (int64_t i = 0; i < c->head_dim / 2; i++) m->inv_freq[i] = (float)pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim);
    return 0;
}

int llm_decoder_declare(struct llm_declare *d, struct llm_decoder *m)
{
    const struct llm_config *c = d->config;
    char name[100];
    m->n_layers = c->num_hidden_layers;
    m->layers = llm_calloc((size_t)m->n_layers, sizeof *m->layers, "layers", d->err);
    if (!m->layers || make_inv_freq(d, m) < 0) return -1;
    d->layer = -1;
    d->row = "embeddings";
    snprintf(name, sizeof name, "%s%s", d->names->prefix, d->names->embed);
    llm_declare_table(d, &m->embed, name, c->vocab_size, c->hidden_size, "vocab_size, hidden_size", true);
    if (c->position == LLM_POSITION_LEARNED) {
        snprintf(name, sizeof name, "%s%s", d->names->prefix, d->names->positions);
        llm_declare_table(d, &m->positions, name, c->max_position_embeddings, c->hidden_size, "max_position_embeddings, hidden_size", true);
    }
    for (int l = 0; l < m->n_layers; l++) {
        struct llm_layer *layer = &m->layers[l];
        d->layer = l;
        declare_module(d, &layer->norm[0], &llm_module_norm, LLM_STEM_NORM_1);
        declare_module(d, &layer->mixer, mixer_of(c, l), 0);
        declare_module(d, &layer->norm[1], &llm_module_norm, LLM_STEM_NORM_2);
        declare_module(d, &layer->ffn, ffn_of(c, l), 0);
    }
    d->layer = -1;
    d->row = llm_module_norm.name;
    snprintf(name, sizeof name, "%s%s", d->names->prefix, d->names->final_norm);
    llm_declare_norm(d, &m->final_norm, name);
    d->row = "head";
    if (!c->tie_word_embeddings) {
        llm_declare_table(d, &m->head, d->names->head, c->vocab_size, c->hidden_size, "vocab_size, hidden_size", false);
    }
    return d->failed ? -1 : 0;
}

void llm_decoder_destroy(struct llm_decoder *m, size_t n_params)
{
    if (!m) return;
    for (size_t i = 0; m->staging && i < n_params; i++) free(m->staging[i]);
    free(m->staging);
    llm_buf_release(&m->tokenizer_json);
    free(m->inv_freq);
    free(m->layers);
    free(m);
}

/* A run of layers, as llm_run_block wants it. A copy of the batch, since the way back comes when the caller's may be gone. */
struct run {
    const struct llm_model *model;
    struct llm_batch batch;
    int64_t first, n;
};

static struct llm_tensor *sub_layer(struct llm_ctx *c, const struct llm_module *norm, const struct llm_module *module, const struct llm_pass *p,
                                    enum llm_rng_site site, struct llm_tensor *x)
{
    bool pre = p->config->norm_place == LLM_NORM_PRE;
    struct llm_tensor *y = module->kind->forward(c, module, p, pre ? norm->kind->forward(c, norm, p, x) : x);
    x = llm_add(c, x, llm_dropout(c, y, (float)p->config->resid_pdrop, site));
    return pre ? x : norm->kind->forward(c, norm, p, x);
}

static struct llm_tensor *layers(struct llm_ctx *c, void *arg, struct llm_tensor *x)
{
    const struct run *r = arg;
    const struct llm_decoder *m = r->model->layout;
    for (int64_t l = r->first; l < r->first + r->n; l++) {
        const struct llm_pass p = {.config = &r->model->config, .batch = &r->batch, .inv_freq = m->inv_freq, .layer = l};
        const struct llm_layer *layer = &m->layers[l];
        c->layer = (uint32_t)l;
        x = sub_layer(c, &layer->norm[0], &layer->mixer, &p, LLM_RNG_DROPOUT_RESID, x);
        x = sub_layer(c, &layer->norm[1], &layer->ffn, &p, LLM_RNG_DROPOUT_FFN, x);
    }
    return x;
}

static struct llm_tensor *embed(struct llm_ctx *c, const struct llm_model *model, const struct llm_batch *b)
{
    const struct llm_config *f = &model->config;
    const struct llm_decoder *m = model->layout;
    c->layer = 0;
    struct llm_tensor *x = llm_embedding(c, b->ids, b->n_tokens, m->embed, 1);
    if (f->position == LLM_POSITION_LEARNED) x = llm_add(c, x, llm_embedding(c, b->positions, b->n_tokens, m->positions, 1));
    if (f->position == LLM_POSITION_SINUSOIDAL) x = llm_add_sinusoidal(c, x, b->positions);
    return llm_dropout(c, x, (float)f->embd_pdrop, LLM_RNG_DROPOUT_EMBED);
}

struct llm_tensor *llm_decoder_forward(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b)
{
    const struct llm_config *f = &model->config;
    const struct llm_decoder *m = model->layout;
    bool keep = c->tape && b->checkpoint_every <= 0;
    int64_t every = c->tape && b->checkpoint_every > 0 ? b->checkpoint_every : 1;
    struct run *runs = llm_arena_alloc(&c->acts, (size_t)m->n_layers * sizeof *runs); /* below what the blocks give up */
    if (!runs) {
        if (!llm_ctx_failed(c)) llm_fail(&c->err, EX_UNAVAILABLE, "activations: expected at most %zu MiB, found more", c->acts.limit >> 20);
        return &c->nothing;
    }
    struct llm_tensor *x = embed(c, model, b);
    for (int64_t l = 0, n; l < m->n_layers; l += n) {
        n = m->n_layers - l < every ? m->n_layers - l : every;
        runs[l] = (struct run){model, *b, l, n};
        x = llm_run_block(c, layers, &runs[l], x, keep);
    }
    return llm_norm_apply(c, f, &m->final_norm, x);
}

static bool all_finite(const struct llm_tensor *x)
{
    for (int64_t r = 0; r < x->rows; r++) {
        for (int64_t i = 0; i < x->cols; i++) {
            if (!isfinite(x->data[r * x->stride + i])) return false;
        }
    }
    return true;
}

bool llm_model_first_bad(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b, char *name, size_t n)
{
    const struct llm_decoder *m = model->layout;
    const struct llm_names *names = &model->arch->names;
    struct llm_tensor *x = embed(c, model, b);
    bool bad = !all_finite(x);
    snprintf(name, n, "the embeddings");
    for (int64_t l = 0; l < m->n_layers && !bad; l++) {
        const struct llm_layer *layer = &m->layers[l];
        const struct llm_pass p = {.config = &model->config, .batch = b, .inv_freq = m->inv_freq, .layer = l};
        for (int i = 0; i < 2 && !bad; i++) {
            const struct llm_module *module = i ? &layer->ffn : &layer->mixer;
            c->layer = (uint32_t)l;
            x = sub_layer(c, &layer->norm[i], module, &p, i ? LLM_RNG_DROPOUT_FFN : LLM_RNG_DROPOUT_RESID, x);
            bad = !all_finite(x);
            snprintf(name, n, "%s%s%lld after its %s", names->prefix, names->layer, (long long)l, module->kind->name);
        }
    }
    if (!bad) {
        x = llm_norm_apply(c, &model->config, &m->final_norm, x);
        bad = !all_finite(x);
        snprintf(name, n, "%s%s", names->prefix, names->final_norm);
    }
    if (!bad) {
        bad = !all_finite(llm_model_logits(c, model, x));
        snprintf(name, n, "the logits");
    }
    return bad && !llm_ctx_failed(c);
}
