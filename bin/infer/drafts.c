/* llm-infer --draft, --draft-ngram: where drafts come from besides the model's own layers. */
#include <string.h>
#include "bin/infer/infer.h"

/* Rejected drafts are cut out of the drafting model's cache. */
static int check_cut(const char *path, const struct llm_kv_pool *pool, struct llm_err *e)
{
    if (pool->state_floats == 0) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "%s: expected a drafting model without a recurrent state", path);
}

static int check_tokens(const struct session *s, struct llm_err *e)
{
    const struct llm_model *m = s->model, *d = s->draft_model;
    if (m->config.vocab_size != d->config.vocab_size) {
        return llm_fail(e, EX_DATAERR, "%s: expected a vocabulary of %lld tokens, as of %s, found %lld", s->a->draft_model,
                        (long long)m->config.vocab_size, s->a->model, (long long)d->config.vocab_size);
    }
    if (!m->tokenizer || !d->tokenizer) return 0; /* --ids */
    if (strcmp(llm_tokenizer_id(m->tokenizer), llm_tokenizer_id(d->tokenizer)) == 0) return 0;
    return llm_fail(e, EX_DATAERR, "%s: expected the tokenizer of %s, found another", s->a->draft_model, s->a->model);
}

int drafts_open(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    struct llm_engine_options o = {.compute = s->engine.ctx.compute, .context = s->engine.context, .batch = s->engine.batch};
    if (!a->draft_model) return 0;
    s->draft_model = llm_model_load(a->draft_model, e);
    if (!s->draft_model || llm_model_must_continue(s->draft_model, e) < 0) return -1;
    if (check_tokens(s, e) < 0 || llm_engine_init(&s->drafter, s->draft_model, &o, e) < 0) return -1;
    return check_cut(a->draft_model, &s->drafter.pool, e);
}

void drafts_release(struct session *s)
{
    llm_engine_release(&s->drafter);
    llm_model_destroy(s->draft_model);
}

void drafts_set(struct session *s, struct llm_generate *g)
{
    enum { REPEATED = 12, MODELLED = 8, MAXIMAL = 4 }; /* the depth of the last does not adapt */
    const struct args *a = s->a;
    g->maximal = a->accept == 1;
    if (a->draft_ngram || s->draft_model) g->drafts = a->draft > 0 ? a->draft : g->maximal ? MAXIMAL : a->draft_ngram ? REPEATED : MODELLED;
    g->repeats = a->draft_ngram;
    g->drafter = s->draft_model ? &s->drafter : NULL;
    g->memory = s->cache_memory;
    g->latency = a->latency_target / 1e3;
    g->forced = a->draft != 0 && s->engine.draft == 0 && s->engine.pool.state_floats == 0;
}

int generate(struct session *s, const struct llm_generate *g, struct llm_err *e)
{
    const struct args *a = s->a;
    struct llm_beams o = {.beams = a->beams, .groups = a->beam_groups, .diversity_penalty = a->diversity_penalty, .alpha = a->penalty_alpha,
                           .length_penalty = a->length_penalty, .early = (enum llm_early)a->early_stopping};
    return a->beams > 1 || a->penalty_alpha > 0 ? llm_beams_search(g, &o, e) : llm_generate(g, e);
}

int negative_check(const struct session *s, const struct llm_prompt *p, struct llm_err *e)
{
    const struct llm_config *c = &s->model->config;
    if (p->cfg_scale == 0 || p->cfg_scale == 1) return 0;
    if (c->num_encoder_layers > 0 || c->prefix_lm) {
        return llm_fail(e, EX_UNAVAILABLE, "--cfg-scale: expected a decoder that reads from left to right");
    }
    if (s->engine.batch < 2) return llm_fail(e, LLM_EX_USAGE, "--cfg-scale: expected a -b of 2 or more");
    if (p->n == 0 && p->n_negative == 0) return llm_fail(e, EX_DATAERR, "--cfg-scale: expected --negative-prompt, as there is no prompt");
    int64_t after = p->max_tokens < 0 || p->max_tokens > s->engine.context ? s->engine.context : p->max_tokens, begun = p->begin ? p->begin->n : 0;
    if (after > s->engine.context - begun - p->n) after = s->engine.context - begun - p->n;
    return p->n_negative + after > s->engine.context ? llm_engine_too_long(&s->engine, p->n_negative + after, e) : 0;
}
