/* The walk through a model's stacks: one function for training, prefill, decoding, recomputation and observers (model/forward/watch.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "model/forward/block.h"
#include "tensor/tape.h"

/* A run of layers of one stack: the argument of llm_run_block. It has a copy of the batch, because the caller's may be gone when the backward pass
 * runs the layers again. */
struct run {
    const struct llm_model *model;
    const struct llm_stack *stack;
    const struct llm_config *config; /* the stack's */
    struct llm_batch batch;
    struct llm_tensor *memory; /* the rows that cross-attention attends to; NULL: none */
    const int32_t *memory_len;
    const int32_t *latents;    /* ids of learned latents, which pass through the layers instead of tokens; NULL: the model has none */
    struct llm_site site, memory_site;
    struct llm_first_values *first_values; /* NULL: the model is not RWKV 7 */
    int64_t first, n;
    bool alone;                /* within stored_layers */
};

static struct run run_of(struct llm_ctx *c, const struct llm_model *model, int stack, const struct llm_batch *b)
{
    const struct llm_decoder *m = model->layout;
    const struct llm_stack *s = &m->stacks[stack];
    return (struct run){.model = model, .stack = s, .config = s->own ? s->own : &model->config, .batch = *b,
                        .site = {stack, -1, llm_watch_rows(c, b)}, .memory_site = {stack, -1, NULL}};
}

/* Whether something happens between the layers of the run. */
static bool is_watched_between(const struct llm_ctx *c, const struct run *r)
{
    return c->between && c->between->model == r->model && r->site.stack == LLM_STACK_MAIN;
}

/* The cut of the run's stack; NULL: all of it runs here. */
static struct llm_stage *cut_of(const struct llm_ctx *c, const struct run *r)
{
    return c->cut && c->cut->model == r->model && r->site.stack == LLM_STACK_MAIN ? c->cut : NULL;
}

/* ---- a layer ---- */

static struct llm_tensor *norm(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    return m->kind ? llm_module_run(c, m, p, x) : x;
}

static const struct llm_module *module_of(const struct llm_layer *layer, int i)
{
    return i == LLM_SUB_MIXER ? &layer->mixer : i == LLM_SUB_FFN ? &layer->ffn : &layer->cross;
}

/* The output of sub-layer i for its normed input x. */
static struct llm_tensor *branch_of(struct llm_ctx *c, const struct llm_layer *layer, int i, const struct llm_pass *p, struct llm_tensor *normed)
{
    static const enum llm_rng_site sites[] = {LLM_RNG_DROPOUT_RESID, LLM_RNG_DROPOUT_FFN, LLM_RNG_DROPOUT_CROSS};
    const struct llm_module *m = module_of(layer, i);
    struct llm_tensor *y = llm_module_run(c, m, p, llm_visit(c, &p->site, m->kind->input, normed));
    if (p->config->norm_place != LLM_NORM_POST) y = norm(c, &layer->after[i], p, y);
    bool last_bare = p->config->norm_place == LLM_NORM_BARE && p->layer == p->config->num_hidden_layers - 1; /* dropout is between layers */
    if (!last_bare) y = llm_dropout(c, y, (float)p->config->resid_pdrop, sites[i]);
    return llm_visit(c, &p->site, m->kind->output, y);
}

/* The matrices that multiply the module's input; 0 if something else may read it too. */
static int readers_of(const struct llm_module *m, struct llm_param *w[LLM_MATMUL_MAX])
{
    static const struct { const struct llm_module_kind *kind; int readers[LLM_MATMUL_MAX + 1]; } rows[] = {
        {&llm_module_attention, {LLM_ATTENTION_QKV, LLM_ATTENTION_Q, LLM_ATTENTION_K, LLM_ATTENTION_V, -1}},
        {&llm_module_mla, {LLM_MLA_Q, LLM_MLA_Q_A, LLM_MLA_KV_A, -1}},
        {&llm_module_cross, {LLM_CROSS_Q, -1}},
        {&llm_module_mamba, {LLM_MAMBA_IN, -1}},
        {&llm_module_mamba2, {LLM_MAMBA_IN, -1}},
        {&llm_module_hyena, {LLM_HYENA_IN, -1}},
        {&llm_module_mlp, {LLM_MLP_GATE_UP, LLM_MLP_GATE, LLM_MLP_UP, -1}}};
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (const int *r = rows[i].readers; m->kind == rows[i].kind && *r >= 0; r++)
            if (m->p[*r].w) w[n++] = m->p[*r].w;
    }
    return n;
}

/* What sub-layer i adds to x. */
static struct llm_tensor *branch(struct llm_ctx *c, const struct llm_layer *layer, int i, const struct llm_pass *p, struct llm_tensor *x)
{
    const struct llm_module *m = module_of(layer, i);
    struct llm_param *readers[LLM_MATMUL_MAX];
    c->recompute = LLM_RECOMPUTE_NORM; /* only the module reads the norm's output, so the backward pass can recompute it */
    llm_panels_for(c, readers_of(m, readers), readers);
    struct llm_tensor *y = norm(c, &layer->before[i], p, x);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    return branch_of(c, layer, i, p, y);
}

/* x + the output of sub-layer i for `of`; normed if the configuration has norms after the sum. */
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
    y = llm_visit(c, &p->site, LLM_PLACE_RESIDUAL_BETWEEN, y);
    return llm_add_over(c, y, branch_of(c, layer, LLM_SUB_FFN, p, normed));
}

static struct llm_tensor *one_by_one(struct llm_ctx *c, const struct llm_layer *layer, const struct llm_pass *p, struct llm_tensor *x)
{
    struct llm_tensor *y = add_branch(c, layer, LLM_SUB_MIXER, p, x, x);
    if (layer->cross.kind || layer->ffn.kind) y = llm_visit(c, &p->site, LLM_PLACE_RESIDUAL_BETWEEN, y);
    if (layer->cross.kind) y = add_branch(c, layer, LLM_SUB_CROSS, p, y, y);
    if (layer->cross.kind && layer->ffn.kind) y = llm_visit(c, &p->site, LLM_PLACE_RESIDUAL_CROSS, y);
    return layer->ffn.kind ? add_branch(c, layer, LLM_SUB_FFN, p, y, p->config->parallel_residual ? x : y) : y;
}

static struct llm_tensor *layer_forward(struct llm_ctx *c, const struct llm_layer *layer, const struct llm_pass *p, struct llm_tensor *x)
{
    x = llm_visit(c, &p->site, LLM_PLACE_RESIDUAL_BEFORE, x);
    x = p->config->shared_norm ? side_by_side(c, layer, p, x) : one_by_one(c, layer, p, x);
    return llm_visit(c, &p->site, LLM_PLACE_RESIDUAL_AFTER, x);
}

/* The rotation of a layer's queries and keys; NULL: they are not rotated. */
static const struct llm_rope *rope_of(const struct run *r, int64_t layer)
{
    const struct llm_config *f = r->config;
    if (f->position != LLM_POSITION_ROPE || llm_layer_in(f->no_rope_layers, layer)) return NULL;
    return &r->stack->rope[f->rope_local_theta > 0 && llm_config_window(f, layer) > 0];
}

static struct llm_pass pass_of(const struct run *r, struct llm_shared_kv *shared, int64_t layer)
{
    return (struct llm_pass){.config = r->config, .batch = &r->batch, .rope = rope_of(r, layer), .bidirectional = r->config->bidirectional,
                             .rel_bias = r->stack->rel_bias, .rel_map = r->stack->rel_map, .memory = r->memory,
                             .memory_len = r->memory_len, .shared = shared, .first_values = r->first_values, .layer = layer,
                             .site = {r->site.stack, layer, r->site.who}, .memory_site = {r->site.stack, layer, r->memory_site.who}};
}

static struct llm_tensor *layers(struct llm_ctx *c, void *arg, struct llm_tensor *x);

/* Layers that run again for their backward pass: the activations of each are kept as c->stored says, as they are without checkpointing. */
static struct llm_tensor *stored_layers(struct llm_ctx *c, const struct run *r, struct llm_tensor *x)
{
    const int64_t together = llm_config_together(r->config);
    struct run *some = llm_op_alloc(c, r->n, sizeof *some);
    for (int64_t i = 0; some && i < r->n; i += together) {
        some[i] = *r;
        some[i].first = r->first + i;
        some[i].n = r->n - i < together ? r->n - i : together;
        some[i].alone = true;
        x = llm_run_block(c, layers, &some[i], x, true);
    }
    return x;
}

static struct llm_tensor *layers(struct llm_ctx *c, void *arg, struct llm_tensor *x)
{
    const struct run *r = arg;
    struct llm_shared_kv shared = {NULL, NULL};
    if (c->tape && c->recomputing && c->stored != LLM_STORED_F32 && !r->alone) return stored_layers(c, r, x);
    for (int64_t l = r->first; l < r->first + r->n; l++) {
        const struct llm_pass p = pass_of(r, &shared, l);
        c->layer = (uint32_t)(r->stack->first + l);
        if (is_watched_between(c, r) && l < r->stack->n_layers) c->between->enter(c->between, c, l);
        x = layer_forward(c, &r->stack->layers[l], &p, x);
    }
    return x;
}

struct llm_tensor *llm_decoder_layer(struct llm_ctx *c, const struct llm_model *model, const struct llm_batch *b, int64_t number,
                                     struct llm_tensor *x)
{
    struct run r = run_of(c, model, LLM_STACK_MAIN, b);
    r.first = number;
    r.n = 1;
    return layers(c, &r, x);
}

/* ---- the input of a stack's first layer ---- */

/* Adds the embeddings of token types. Without types in the batch every token has type 0. */
static struct llm_tensor *add_types(struct llm_ctx *c, const struct llm_stack *s, const struct llm_batch *b, struct llm_tensor *x)
{
    if (b->kinds) return llm_add_over(c, x, llm_embedding(c, b->kinds, x->rows, s->token_types, 1));
    int32_t *kinds = llm_op_alloc(c, x->rows, sizeof *kinds);
    if (!kinds) return &c->nothing;
    memset(kinds, 0, (size_t)x->rows * sizeof *kinds);
    return llm_add_over(c, x, llm_embedding(c, kinds, x->rows, s->token_types, 1));
}

/* Embeddings of the tokens: from the table, or those that the batch gives for them. */
static struct llm_tensor *look_up(struct llm_ctx *c, const struct run *r)
{
    const struct llm_batch *b = &r->batch;
    const struct llm_decoder *m = r->model->layout;
    struct llm_param *table = r->stack->embed ? r->stack->embed : m->stacks[LLM_STACK_MAIN].embed;
    if (b->patches && !r->stack->embed) return llm_linear(c, b->patches, r->stack->patches.w, r->stack->patches.b);
    if (b->patches) {
        struct llm_tensor *x = llm_embedding(c, b->ids, b->n_tokens, table, 1);
        return llm_replace(c, x, llm_linear(c, b->patches, r->stack->patches.w, r->stack->patches.b), b->given_row);
    }
    if (!b->ids) return llm_gather(c, b->given, b->given_row, b->n_tokens);
    c->use = r->site.stack; /* each stack that looks up has an accumulator of its own */
    struct llm_tensor *x = llm_embedding(c, b->ids, b->n_tokens, table, (float)r->config->embedding_scale);
    c->use = 0;
    return b->given ? llm_replace(c, x, b->given, b->given_row) : x;
}

/* Puts each picture's registers into the places after its class token. They are looked up for each, so that gradients are added picture by picture,
 * however many a pass has. */
static struct llm_tensor *put_registers(struct llm_ctx *c, const struct run *r, struct llm_tensor *x)
{
    const int64_t n = r->config->num_registers, length = llm_config_picture_tokens(r->config), all = x->rows / length * n;
    int32_t *numbers = llm_op_alloc(c, all + x->rows, sizeof *numbers), *rows = numbers + all;
    for (int64_t i = 0; i < all && !llm_ctx_failed(c); i++) numbers[i] = (int32_t)(i % n);
    for (int64_t t = 0; t < x->rows && !llm_ctx_failed(c); t++) {
        const int64_t at = t % length - 1;
        rows[t] = at >= 0 && at < n ? (int32_t)(t / length * n + at) : -1;
    }
    if (llm_ctx_failed(c)) return &c->nothing;
    return llm_replace(c, x, llm_embedding(c, numbers, all, r->stack->registers, 1), rows);
}

static struct llm_tensor *embed(struct llm_ctx *c, const struct run *r)
{
    const struct llm_config *f = r->config;
    const struct llm_stack *s = r->stack;
    const struct llm_batch *b = &r->batch;
    c->layer = (uint32_t)s->first;
    struct llm_tensor *x = look_up(c, r);
    if (s->registers && !f->bare_registers) x = put_registers(c, r, x);
    if (f->position == LLM_POSITION_LEARNED) x = llm_add_over(c, x, llm_embedding(c, b->positions, b->n_tokens, s->positions, 1));
    if (s->registers && f->bare_registers) x = put_registers(c, r, x);
    if (f->position == LLM_POSITION_SINUSOIDAL) x = llm_add_sinusoidal(c, x, b->positions);
    if (s->token_types) x = add_types(c, s, b, x);
    if (s->embed_norm.w) x = llm_norm_apply(c, f, &s->embed_norm, x);
    x = llm_dropout(c, x, (float)f->embd_pdrop, LLM_RNG_DROPOUT_EMBED);
    return llm_visit(c, &r->site, LLM_PLACE_EMBEDDING, x);
}

static struct llm_tensor *input(struct llm_ctx *c, const struct run *r)
{
    if (!r->latents) return embed(c, r);
    return llm_visit(c, &r->site, LLM_PLACE_LATENTS, llm_embedding(c, r->latents, r->batch.n_tokens, r->stack->latents, 1));
}

/* ---- stacks ---- */

/* Without a tape the values of RWKV 7's first layer are kept in memory which blocks do not release. NULL for other models, and after a failure. */
static struct llm_first_values *first_values(struct llm_ctx *c, const struct run *r)
{
    if (r->config->mixer != LLM_MIXER_RWKV7) return NULL;
    struct llm_first_values *first = llm_op_alloc(c, 1, sizeof *first);
    if (!first) return NULL;
    *first = (struct llm_first_values){.outlives = !c->tape};
    if (first->outlives) first->v = llm_tensor_create(c, r->batch.n_tokens, llm_rwkv_width(r->config));
    return first;
}

/* All layers of one stack that run here, and the norm after them. */
static struct llm_tensor *run_stack(struct llm_ctx *c, const struct run *whole)
{
    const struct llm_config *f = whole->config;
    const struct llm_batch *b = &whole->batch;
    const struct llm_stack *s = whole->stack;
    struct llm_stage *cut = cut_of(c, whole);
    const int64_t begin = cut ? cut->first : 0, end = cut ? cut->end : s->n_run;
    bool keep = c->tape && b->checkpoint_every <= 0;
    bool recompute = c->tape && !keep;
    const bool whole_tensors = keep && c->stored == LLM_STORED_F32; /* what a layer made can be read by later blocks */
    int64_t every = recompute ? b->checkpoint_every : 1, together = c->tape && !whole_tensors ? llm_config_together(f) : f->kv_sharing;
    every = (every + together - 1) / together * together;
    struct run *runs = llm_op_alloc(c, s->n_run + 1, sizeof *runs); /* below the memory that blocks release */
    struct llm_first_values *first = first_values(c, whole);
    if (llm_ctx_failed(c)) return &c->nothing;
    size_t mark = llm_arena_mark(&c->acts);
    if (c->tape && is_watched_between(c, whole)) c->between->recorded++;
    struct llm_tensor *x = begin > 0 ? cut->input(cut, c, b->n_tokens, f->hidden_size) : input(c, whole);
    for (int64_t l = begin, n; l < end; l += n) {
        n = end - l < every ? end - l : every;
        runs[l] = *whole;
        runs[l].first_values = first;
        runs[l].first = l;
        runs[l].n = n;
        c->boundary = c->tape && is_watched_between(c, whole) ? l + 1 : 0;
        if (c->tape) x = llm_run_block(c, layers, &runs[l], x, keep);
        else x = llm_keep_only(c, mark, layers(c, &runs[l], x)); /* one hidden state at a time */
    }
    if (cut && !cut->last) {
        cut->output(cut, c, x);
        return x;
    }
    c->boundary = c->tape && is_watched_between(c, whole) ? s->n_layers + 1 : 0;
    const bool normed = !s->projector[0].w || whole->model->config.projector.shuffle > 0; /* LLaVA projects states before the norm */
    if (s->final_norm.w && normed) x = llm_visit(c, &whole->site, LLM_PLACE_FINAL_NORM, llm_norm_apply(c, f, &s->final_norm, x));
    return x;
}

static struct llm_tensor *encode(struct llm_ctx *c, const struct llm_model *model, const struct llm_batch *b, struct llm_site *site)
{
    const struct run r = run_of(c, model, LLM_STACK_ENCODER, b);
    *site = r.site;
    if (c->watch) c->watch->memory_who = r.site.who;
    return run_stack(c, &r);
}

struct llm_tensor *llm_decoder_encode(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b)
{
    struct llm_site site;
    return encode(c, model, b, &site);
}

/* A run of the learned latents of each row, which attend to the row's text. */
static struct run look_at(struct llm_ctx *c, const struct llm_model *model, const struct llm_batch *b)
{
    int64_t n = model->config.num_latents, rows = c->n_rows > 0 ? c->n_rows : 1;
    const struct run text = run_of(c, model, LLM_STACK_MAIN, b);
    struct run r = text;
    int32_t *numbers = llm_op_alloc(c, rows * n, sizeof *numbers);
    struct llm_row_id *who = c->watch ? llm_op_alloc(c, rows * n, sizeof *who) : NULL;
    for (int64_t i = 0; i < rows * n && numbers; i++) {
        numbers[i] = (int32_t)(i % n);
        if (who) who[i] = (struct llm_row_id){c->first_row + i / n, -1, -1};
    }
    r.batch = (struct llm_batch){.n_tokens = rows * n, .checkpoint_every = b->checkpoint_every, .routers = b->routers};
    r.latents = numbers;
    r.memory = embed(c, &text);
    r.memory_len = b->lengths;
    r.site.who = who;
    r.memory_site.who = text.site.who;
    return r;
}

/* A run of the batch; the encoder of an encoder-decoder runs first. */
static struct run begin(struct llm_ctx *c, const struct llm_model *model, const struct llm_batch *b)
{
    if (llm_config_learns_latents(&model->config)) return look_at(c, model, b);
    struct run r = run_of(c, model, b->patches && model->config.vision.patch_size > 0 ? LLM_STACK_VISION : LLM_STACK_MAIN, b);
    if (!b->source) return r;
    struct llm_batch source = *b->source;
    source.checkpoint_every = b->checkpoint_every;
    source.routers = b->routers;
    r.memory = encode(c, model, &source, &r.memory_site);
    r.memory_len = source.lengths;
    return r;
}

struct llm_tensor *llm_decoder_forward(struct llm_ctx *c, struct llm_model *model, const struct llm_batch *b)
{
    const struct run r = begin(c, model, b);
    if (c->watch) {
        c->watch->who = r.site.who;
        c->watch->n_who = r.batch.n_tokens;
        c->watch->picked = NULL;
    }
    return run_stack(c, &r);
}
