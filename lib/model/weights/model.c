/* Models in memory (model/model.h). */
#include <stdlib.h>
#include <string.h>
#include "model/config/arch.h"
#include "model/weights/ngram.h"

static int declare(const struct llm_config *c, bool gguf, struct llm_declare *d, struct llm_decoder **layout, struct llm_err *e)
{
    const struct llm_arch *arch = llm_arch_find(c->model_type);
    const struct llm_names *names = !gguf ? &arch->names : arch->gguf_names ? arch->gguf_names : &llm_gguf_names;
    *d = (struct llm_declare){.config = c, .arch = arch, .names = names, .gguf = gguf, .layer = -1, .err = e};
    *layout = llm_calloc(1, sizeof **layout, "model", e);
    if (*layout && arch->declare(d, *layout) == 0) return 0;
    llm_decoder_destroy(*layout, 0);
    llm_declare_release(d);
    *layout = NULL;
    return -1;
}

int llm_model_declare(const struct llm_config *c, struct llm_declare *d, struct llm_decoder **layout, struct llm_err *e)
{
    return declare(c, false, d, layout, e);
}

int llm_model_declare_gguf(const struct llm_config *c, struct llm_declare *d, struct llm_err *e)
{
    struct llm_decoder *layout;
    if (declare(c, true, d, &layout, e) < 0) return -1;
    llm_decoder_destroy(layout, 0); /* names and shapes are all that is wanted: slots are not filled */
    return 0;
}

/* The parameter of a declaration. */
static struct llm_param param_of(const struct llm_config *c, const struct llm_param_spec *s)
{
    struct llm_param p = {.spec = s, .n_dims = s->n_dims, .shape = {s->shape[0], s->n_dims > 1 ? s->shape[1] : 0}, .role = s->role,
                          .decay = llm_param_spec_decays(s), .running = s->running, .sharers = s->sharers,
                          .balances = s->balances, .balance_rate = s->balances ? (float)c->router_bias_update_rate : 0};
    memcpy(p.parts, s->parts, sizeof p.parts);
    p.weight.n = s->shape[0];
    p.weight.k = s->shape[1];
    if (s->middle) {
        p.n_dims = 3;
        p.shape[1] = 1;
        p.shape[2] = s->shape[1];
    }
    return p;
}

struct llm_model *llm_model_shape(const struct llm_config *c, struct llm_err *e)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    if (llm_model_declare(c, &d, &layout, e) < 0) return NULL;
    struct llm_model *m = llm_calloc(1, sizeof *m, "model", e);
    if (m) m->params = llm_calloc(d.n, sizeof *m->params, "model", e);
    if (!m || !m->params) {
        free(m);
        llm_decoder_destroy(layout, 0);
        llm_declare_release(&d);
        return NULL;
    }
    m->config = *c;
    m->arch = llm_arch_find(c->model_type);
    m->layout = layout;
    m->specs = d.specs;
    for (size_t i = 0; i < d.n; i++) {
        struct llm_param *p = &m->params[i];
        *p = param_of(c, &m->specs[i]);
        *m->specs[i].slot = p;
        p->name = m->specs[i].name;
        m->n_params++;
    }
    return m;
}

void llm_model_destroy(struct llm_model *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        llm_weight_release(&p->weight);
        if (p->owned) free((void *)p->weight.data);
        free(p->grad);
        free(p->grad_lookup);
        free(p->lookup_place);
        for (int u = 0; u < p->n_grad_uses; u++) free(p->grad_use[u]);
        free(p->grad_use);
    }
    llm_decoder_destroy(m->layout, m->n_params);
    llm_ngram_destroy(m->ngram);
    free(m->params);
    free(m->specs);
    llm_tokenizer_destroy(m->tokenizer);
    json_decref(m->training);
    free(m->chat_template);
    llm_labels_release(&m->labels);
    for (size_t i = 0; i < m->n_files; i++) llm_checkpoint_close(m->files[i]);
    free(m->files);
    free(m);
}

struct llm_param *llm_model_find(const struct llm_model *m, const char *name)
{
    for (size_t i = 0; i < m->n_params; i++) {
        if (strcmp(m->params[i].name, name) == 0) return &m->params[i];
    }
    return NULL;
}

struct llm_param *llm_model_embedding(const struct llm_model *m)
{
    return ((const struct llm_decoder *)m->layout)->stacks[LLM_STACK_MAIN].embed;
}

struct llm_param *llm_model_head(const struct llm_model *m)
{
    const struct llm_decoder *d = m->layout;
    return d->head ? d->head : d->stacks[LLM_STACK_MAIN].embed;
}

struct llm_param *llm_model_head_bias(const struct llm_model *m)
{
    return ((const struct llm_decoder *)m->layout)->head_bias;
}

int32_t llm_model_mask_token(const struct llm_model *m)
{
    int32_t id = (int32_t)m->config.mask_token_id;
    if (id < 0 && m->tokenizer) id = llm_tokenizer_special(m->tokenizer, "[MASK]");
    if (id < 0 && m->tokenizer) id = llm_tokenizer_special(m->tokenizer, "<mask>");
    return id < m->config.vocab_size ? id : -1;
}

int llm_model_check_ids(const struct llm_model *m, const int32_t *ids, int64_t n, struct llm_err *e)
{
    int64_t vocab = m->config.vocab_size;
    for (int64_t t = 0; t < n; t++) {
        if (ids[t] < 0 || ids[t] >= vocab) {
            return llm_fail(e, EX_DATAERR, "token id: expected below %lld (vocab_size), found %d", (long long)vocab, ids[t]);
        }
    }
    return 0;
}

/* Ids and positions are looked up: they must lie within their tables. */
static int check_batch(const struct llm_model *m, const struct llm_batch *b, struct llm_err *e)
{
    int64_t room = m->config.max_position_embeddings;
    if (!b->ids && !b->given) return llm_fail(e, LLM_EX_FAILURE, "a batch: expected ids or embeddings, found neither");
    for (int64_t t = 0; t < b->n_tokens && !b->ids; t++) {
        if (b->given_row[t] < 0) return llm_fail(e, LLM_EX_FAILURE, "a batch without ids: expected an embedding for each token, found none");
    }
    if (b->ids && llm_model_check_ids(m, b->ids, b->n_tokens, e) < 0) return -1;
    if (m->config.position != LLM_POSITION_LEARNED) return 0;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        if (b->positions[t] < 0 || b->positions[t] >= room) {
            return llm_fail(e, EX_DATAERR, "position: expected below %lld (the model's context), found %d", (long long)room, b->positions[t]);
        }
    }
    return 0;
}

static int must_see_back_only(const struct llm_model *m, struct llm_err *e)
{
    if (!m->config.bidirectional) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected a model that predicts the next token, found an encoder (%s): it embeds texts (llm-infer --embed)",
                    m->config.model_type);
}

struct llm_tensor *llm_model_forward(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b)
{
    if (llm_ctx_failed(c) || check_batch(m, b, &c->err) < 0) return &c->nothing;
    if (b->seqs && must_see_back_only(m, &c->err) < 0) return &c->nothing;
    if (m->config.num_encoder_layers > 0 && !b->source && !b->memories) {
        llm_fail(&c->err, EX_UNAVAILABLE, "expected a source text for an encoder-decoder (%s), found none", m->config.model_type);
        return &c->nothing;
    }
    if (b->source && (b->source->n_tokens < 1 || check_batch(m, b->source, &c->err) < 0)) return &c->nothing;
    if (m->arch->forward) return m->arch->forward(c, m, b);
    llm_fail(&c->err, EX_UNAVAILABLE, "expected a network, found %s", m->config.model_type);
    return &c->nothing;
}

int llm_model_must_generate(const struct llm_model *m, struct llm_err *e)
{
    if (m->config.num_labels > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "expected a model that predicts the next token, found one that tells classes apart (%s): "
                        "llm-infer --classify", m->config.model_type);
    }
    if (m->config.contrastive && !m->config.bidirectional) {
        return llm_fail(e, EX_UNAVAILABLE, "expected a model that predicts the next token, found one that compares texts (%s): llm-infer --embed",
                        m->config.model_type);
    }
    return must_see_back_only(m, e);
}

int llm_model_must_continue(const struct llm_model *m, struct llm_err *e)
{
    if (m->config.num_encoder_layers == 0) return llm_model_must_generate(m, e);
    return llm_fail(e, EX_UNAVAILABLE, "expected a model that continues texts, found an encoder-decoder (%s), which answers them",
                    m->config.model_type);
}

struct llm_tensor *llm_model_encode(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b)
{
    if (m->config.num_encoder_layers == 0) return llm_model_forward(c, m, b);
    if (llm_ctx_failed(c) || check_batch(m, b, &c->err) < 0) return &c->nothing;
    return llm_decoder_encode(c, m, b);
}

void llm_model_remember(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden, const struct llm_kv_seq *seqs)
{
    const struct llm_decoder *d = m->layout;
    const struct llm_attn a = llm_cross_attn(&m->config);
    const struct llm_stack *s = &d->stacks[LLM_STACK_MAIN];
    for (int64_t l = 0; l < s->n_layers && !llm_ctx_failed(c); l++) {
        struct llm_tensor *k, *v;
        size_t mark = llm_arena_mark(&c->acts);
        const struct llm_site site = {LLM_STACK_MAIN, l, c->watch ? c->watch->memory_who : NULL};
        llm_cross_keys(c, &s->layers[l].cross, &site, hidden, &k, &v);
        llm_attention_store(c, k, v, &a, seqs + l, 1);
        llm_arena_pop(&c->acts, mark);
    }
}

int32_t llm_model_answer_start(const struct llm_config *c)
{
    int64_t id = c->decoder_start_token_id >= 0 ? c->decoder_start_token_id : c->bos_token_id >= 0 ? c->bos_token_id : c->eos_token_id;
    return id >= 0 && id < c->vocab_size ? (int32_t)id : 0;
}

struct llm_tensor *llm_model_before_head(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden)
{
    const struct llm_decoder *d = m->layout;
    if (!d->head_dense.w) return hidden;
    hidden = llm_activation(c, llm_linear(c, hidden, d->head_dense.w, d->head_dense.b), m->config.act);
    hidden = llm_norm_apply(c, &m->config, &d->head_norm, hidden);
    if (!c->watch) return hidden;
    const struct llm_site site = llm_watch_head(c, hidden->rows);
    return llm_visit(c, &site, LLM_PLACE_HEAD_INPUT, hidden);
}

const struct llm_inner *llm_model_watched_logits(struct llm_ctx *c, int64_t n)
{
    if (!c->watch || llm_ctx_failed(c)) return NULL;
    const struct llm_site site = llm_watch_head(c, n);
    return llm_watch_inner(c, &site, LLM_PLACE_LOGITS);
}

void llm_model_set_dropout(struct llm_model *m, double p)
{
    struct llm_decoder *d = m->layout;
    m->config.embd_pdrop = m->config.attn_pdrop = m->config.resid_pdrop = p;
    for (int i = 0; d && i < LLM_MAX_STACKS; i++) {
        struct llm_config *own = d->stacks[i].own;
        if (own) own->embd_pdrop = own->attn_pdrop = own->resid_pdrop = p;
    }
}

struct llm_tensor *llm_model_logits(struct llm_ctx *c, struct llm_model *m, struct llm_tensor *hidden)
{
    const struct llm_decoder *d = m->layout;
    if (!llm_ctx_failed(c) && !llm_config_has_head(&m->config) && llm_model_must_generate(m, &c->err) < 0) return &c->nothing;
    if (m->config.bidirectional && !m->config.use_bidirectional_attention && !m->config.head_transform && !llm_ctx_failed(c)) {
        llm_fail(&c->err, EX_UNAVAILABLE, "expected a model with a masked-token head, found an encoder (%s) without one", m->config.model_type);
    }
    if (llm_ctx_failed(c)) return &c->nothing;
    struct llm_tensor *logits = llm_linear(c, llm_model_before_head(c, m, hidden), llm_model_head(m), d->head_bias);
    float cap = (float)m->config.final_logit_softcapping;
    if (m->config.logit_scale != 1) logits = llm_scale(c, logits, (float)m->config.logit_scale);
    if (cap > 0) logits = llm_scale(c, llm_activation(c, llm_scale(c, logits, 1 / cap), LLM_ACT_TANH), cap);
    if (!c->watch) return logits;
    const struct llm_site site = llm_watch_head(c, logits->rows);
    return llm_visit(c, &site, LLM_PLACE_LOGITS, logits);
}

int64_t llm_model_default_context(const struct llm_config *c)
{
    return c->position == LLM_POSITION_ROPE ? llm_rope_default_context(&c->rope_scaling, c->max_position_embeddings) : c->max_position_embeddings;
}

int llm_model_set_context(struct llm_model *m, int64_t context, struct llm_err *e)
{
    bool follows = m->config.position == LLM_POSITION_ROPE && llm_rope_follows_context(&m->config.rope_scaling);
    m->rope_context = follows ? context : 0;
    struct llm_decoder *d = m->layout;
    for (int i = 0; i < LLM_MAX_STACKS; i++) {
        struct llm_stack *s = &d->stacks[i];
        if (s->layers && llm_stack_set_rope(s, s->own ? s->own : &m->config, context, e) < 0) return -1;
    }
    return 0;
}

struct llm_state_shape llm_model_state(const struct llm_config *c, int64_t layer)
{
    const struct llm_module_kind *mixer = llm_decoder_mixer(c, layer);
    struct llm_state_shape s = {.source = layer};
    if (mixer->state) mixer->state(c, layer, &s);
    return s;
}

int64_t llm_state_floats(const struct llm_state_shape *s)
{
    int64_t n = 0;
    for (int i = 0; i < LLM_STATE_PARTS; i++) n += s->parts[i].name ? s->parts[i].rows * s->parts[i].cols : 0;
    return n;
}

bool llm_model_can_carry(const struct llm_config *c)
{
    return c->mixer != LLM_MIXER_ATTENTION && c->mixer != LLM_MIXER_WINDOW;
}

bool llm_model_is_recurrent(const struct llm_config *c)
{
    return llm_model_state_bytes(c) > 0;
}

static void add_end(const struct llm_model *m, int64_t id, int32_t *ids, size_t *n)
{
    if (id < 0 || id >= m->config.vocab_size || *n == LLM_MAX_ENDS) return;
    for (size_t i = 0; i < *n; i++) {
        if (ids[i] == id) return;
    }
    ids[(*n)++] = (int32_t)id;
}

size_t llm_model_ends(const struct llm_model *m, int32_t ids[LLM_MAX_ENDS])
{
    int32_t turns[8];
    size_t n = 0, n_turns = m->tokenizer ? llm_tokenizer_turn_ends(m->tokenizer, turns, 8) : 0;
    add_end(m, m->config.eos_token_id, ids, &n);
    for (int i = 0; i < m->config.n_more_eos; i++) add_end(m, m->config.more_eos_token_ids[i], ids, &n);
    if (m->tokenizer) add_end(m, llm_tokenizer_eos(m->tokenizer), ids, &n);
    for (size_t i = 0; i < n_turns; i++) add_end(m, turns[i], ids, &n);
    return n;
}
