/* Models in memory (model/model.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "model/weights/lora.h"
#include "model/weights/model.h"
#include "model/weights/ngram.h"

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

static void release_param(struct llm_param *p)
{
    llm_weight_release(&p->weight);
    if (p->owned) free((void *)p->weight.data);
    free(p->grad);
    free(p->grad_lookup);
    free(p->lookup_place);
    for (int u = 0; u < p->n_grad_uses; u++) free(p->grad_use[u]);
    free(p->grad_use);
}

void llm_model_destroy(struct llm_model *m)
{
    if (!m) return;
    llm_lora_release(m);
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_slices *s = m->params[i].slices;
        release_param(&m->params[i]);
        for (int j = 0; s && s->of && j < s->n; j++) release_param(&s->of[j]);
        if (s) free(s->of);
        free(s);
    }
    llm_decoder_destroy(m->layout, m->n_params);
    llm_ngram_destroy(m->ngram);
    free(m->params);
    free(m->specs);
    llm_tokenizer_destroy(m->tokenizer);
    json_decref(m->training);
    free(m->chat_template);
    free(m->preprocessor);
    llm_labels_release(&m->labels);
    for (size_t i = 0; i < m->n_files; i++) llm_checkpoint_close(m->files[i]);
    free(m->files);
    llm_checkpoint_close(m->run_file);
    free(m);
}

void llm_model_changed(struct llm_model *m)
{
    llm_lora_renorm(m);
    llm_decoder_changed(m->layout);
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

int llm_model_end_text(const struct llm_model *m, int32_t **ids, size_t *n, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    size_t room = *n;
    if (c->pooling != LLM_POOL_EOS || c->eos_token_id < 0 || c->eos_token_id >= c->vocab_size) return 0;
    if (*n > 0 && llm_config_pooled_token(c, c->pooling, *ids, (int64_t)*n) >= 0) return 0;
    if (llm_grow((void **)ids, &room, *n + 1, sizeof **ids, e) < 0) return -1;
    (*ids)[(*n)++] = (int32_t)c->eos_token_id;
    return 0;
}

int llm_model_pad_text(const struct llm_model *m, int32_t **ids, size_t *n, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    const size_t full = (size_t)c->max_position_embeddings;
    size_t room = *n;
    if (c->text_padding < 0 || *n >= full) return 0;
    if (llm_grow((void **)ids, &room, full, sizeof **ids, e) < 0) return -1;
    while (*n < full) (*ids)[(*n)++] = (int32_t)c->text_padding;
    return 0;
}

int llm_model_must_be_causal(const struct llm_model *m, struct llm_err *e)
{
    if (!m->config.bidirectional) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected a model that predicts the next token, found an encoder (%s): it embeds texts (llm-infer --embed)",
                    m->config.model_type);
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
    return llm_model_must_be_causal(m, e);
}

int llm_model_must_continue(const struct llm_model *m, struct llm_err *e)
{
    if (m->config.num_encoder_layers == 0) return llm_model_must_generate(m, e);
    return llm_fail(e, EX_UNAVAILABLE, "expected a model that continues texts, found an encoder-decoder (%s), which answers them",
                    m->config.model_type);
}

static double number(const struct llm_param *p)
{
    float x = 0;
    llm_dtypes[p->weight.dtype].decode(p->weight.data, &x, 1);
    return (double)x;
}

double llm_model_logit_scale(const struct llm_model *m)
{
    const double x = number(((const struct llm_decoder *)m->layout)->logit_scale);
    return exp(m->config.sigmoid_loss ? x : fmin(x, log(100.0)));
}

double llm_model_logit_bias(const struct llm_model *m)
{
    const struct llm_param *p = ((const struct llm_decoder *)m->layout)->logit_bias;
    return p ? number(p) : 0;
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

struct llm_param *llm_model_classes(const struct llm_model *m, int head, struct llm_param **bias)
{
    const struct llm_decoder *d = m->layout;
    const struct llm_linear_params *p = head ? &d->classes_2 : &d->classes;
    *bias = p->b;
    return p->w;
}
