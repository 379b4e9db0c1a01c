/* How the cache of a prompt, or of a completion whose cache is computed again, begins. */
#include "infer/generate_internal.h"

/* The width n_heads · d_k of the queries of the widest layer; 0 if the model has no queries. */
static int64_t query_width(const struct llm_engine *g)
{
    int64_t d = 0;
    if (g->model->config.mixer == LLM_MIXER_HYENA) return 0; /* convolutions sum up what it caches */
    for (int64_t l = 0; l < g->pool.n_layers; l++) d = g->pool.layers[l].shape.d_k > d ? g->pool.layers[l].shape.d_k : d;
    return g->model->config.num_attention_heads * d;
}

int llm_generate_open_cache(struct state *s, const struct job *j, struct llm_kv *kv)
{
    struct llm_engine *g = s->g->engine;
    const struct llm_prompt *p = &j->prompt;
    kv->adapters = p->adapters;
    kv->strengths = p->strengths;
    if (p->trace_queries > 0 && llm_kv_trace(kv, p->trace_queries, query_width(g), s->e) < 0) return -1;
    if (j->source) return llm_engine_remember(g, kv, j->source, j->n_source, s->e);
    if (!p->begin) return 0;
    if (llm_kv_fork(kv, p->begin, s->e) < 0) return -1;
    return p->ids == p->begin->ids + p->begin->n - 1 ? llm_engine_rewind(g, kv, p->begin->n - 1, s->e) : 0;
}

bool llm_generate_is_sharing(const struct state *s, const struct job *j)
{
    const struct llm_prompt *p = &j->prompt;
    return s->g->share && !p->begin && !p->adapters && !p->strengths && p->trace_queries == 0 && s->g->engine->draft == 0
           && s->g->engine->model->config.num_encoder_layers == 0 && !s->g->engine->model->config.prefix_lm;
}

int64_t llm_generate_shared(const struct state *s, const struct job *j, const int32_t *ids, int64_t n)
{
    int64_t matched = llm_generate_is_sharing(s, j) ? llm_prefix_match(s->g->share, ids, n) : 0;
    return matched >= LLM_LEAST_SHARED ? matched : 0;
}
