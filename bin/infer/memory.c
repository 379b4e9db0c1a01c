/* llm-infer --memory: what of a bound of memory is left to caches. */
#include <inttypes.h>
#include "bin/infer/infer.h"
#include "cpu/pool.h"
#include "infer/plan.h"

/* Of what the weights and passes leave, the caches may have all but a twentieth: pages come in huge pages, and other buffers grow. */
static const double CACHE_SHARE = .95;

int memory_split(struct session *s, const struct llm_infer_plan *p, struct memory_split *m, struct llm_err *e)
{
    const struct args *a = s->a;
    const struct llm_kv_pool *pool = &s->engine.pool;
    struct llm_generate g = {0};
    drafts_set(s, &g);
    int64_t drafts = g.drafts > s->engine.draft ? g.drafts : s->engine.draft, rows = a->parallel * (1 + drafts);
    if (rows > s->engine.batch) rows = s->engine.batch;
    double row = 4. * (double)s->model->config.vocab_size; /* a row of logits; sampling has five times as much a thread */
    *m = (struct memory_split){.fixed = p->weight_bytes + p->working_bytes + p->other_bytes
                                        + row * (double)(rows + a->parallel + 5 * llm_pool_threads())};
    int64_t least = llm_kv_sequence_bytes(pool, 1);
    if (s->draft_model) {
        struct llm_infer_plan other;
        if (llm_infer_plan(&s->drafter, 1, false, &other, e) < 0) return -1;
        m->fixed += other.weight_bytes + other.working_bytes + other.other_bytes;
        least += llm_kv_sequence_bytes(&s->drafter.pool, 1);
    }
    double left = CACHE_SHARE * ((double)a->memory - m->fixed);
    if (left < (double)least) {
        return llm_fail(e, EX_UNAVAILABLE, "--memory: expected at least %.0f bytes (weights, activations, logits and a page of the cache), found %"
                        PRId64, m->fixed + (double)least / CACHE_SHARE, a->memory);
    }
    m->cache = (int64_t)left;
    return 0;
}

int memory_open(struct session *s, struct llm_err *e)
{
    struct llm_infer_plan p;
    struct memory_split m;
    if (s->a->memory == 0) return 0;
    if (llm_infer_plan(&s->engine, 1, false, &p, e) < 0 || memory_split(s, &p, &m, e) < 0) return -1;
    s->cache_memory = m.cache;
    return 0;
}

/* What sliding windows have passed is released, unless the cache is saved, or other completions or prompts have it, too. */
int64_t memory_of_sequence(const struct session *s, int64_t all, int64_t prompt, bool shared)
{
    const struct args *a = s->a;
    if (a->kv_out) return llm_kv_sequence_bytes(&s->engine.pool, all);
    shared = shared || (a->jsonl && !a->no_sharing);
    return llm_kv_windowed_bytes(&s->engine.pool, all, shared ? prompt : 0, s->engine.batch);
}

int memory_check(const struct session *s, const struct llm_prompt *p, struct llm_err *e)
{
    const struct llm_kv_pool *pool = &s->engine.pool;
    bool encodes = s->model->config.num_encoder_layers > 0;
    int64_t begun = p->begin ? p->begin->n : 0, context = s->engine.context, before = encodes ? 1 : begun + p->n;
    int64_t all = p->max_tokens < 0 || p->max_tokens > context - before ? context : before + p->max_tokens;
    if (s->cache_memory == 0) return 0;
    int64_t bytes = memory_of_sequence(s, all, before, p->samples > 1 || begun > 0) + (encodes ? llm_kv_sequence_bytes(pool, p->n) : 0);
    if (p->samples > 1 || begun > 0) bytes += llm_kv_sequence_bytes(pool, 1); /* a page that is shared is copied before it is written */
    bool guided = p->cfg_scale != 0 && p->cfg_scale != 1;
    if (guided) bytes += llm_kv_sequence_bytes(pool, all - before + (p->n_negative > 0 ? p->n_negative : 1));
    if (s->draft_model) bytes += llm_kv_sequence_bytes(&s->drafter.pool, all);
    if (bytes <= s->cache_memory) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "--memory: expected a prompt and completion of at most %" PRId64 " bytes of cache, found %" PRId64 " tokens, %"
                    PRId64 " bytes; -n bounds the completion", s->cache_memory, all, bytes);
}
