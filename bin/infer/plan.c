/* --plan */
#include <math.h>
#include "bin/infer/infer.h"
#include "infer/plan.h"
#include "io/table.h"

int run_plan(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    struct llm_infer_plan p;
    const int64_t sequences = a->jsonl || a->samples > a->parallel ? a->parallel : a->samples;
    /* One prompt, whose last token alone has logits, and one token after another: nothing else is loaded, and no pass has several rows. */
    const bool searches = a->beams > 1 || a->penalty_alpha > 0 || a->draft > 0 || a->draft_ngram || a->draft_model || a->cfg_scale != 1;
    const bool all_rows = a->score || a->logits || a->top > 0 || a->ref_logprobs;
    const bool one_text = !a->jsonl && !a->chat && a->samples == 1 && !all_rows && !a->kv_in && !searches;
    if (llm_infer_plan(&s->engine, sequences, one_text, &p, e) < 0) return -1;
    static const char *columns[] = {"parameters", "weight_bytes", "cache_bytes_per_token", "state_bytes", "cache_bytes", "working_bytes",
                                    "other_bytes", "memory_bytes", "flops_per_token", "read_bytes_per_token",
                                    "memory_limit_bytes", "cache_limit_bytes", "cache_limit_tokens", "cache_limit_contexts", NULL};
    double values[] = {p.parameters, p.weight_bytes, p.cache_bytes_per_token, p.state_bytes, p.cache_bytes, p.working_bytes,
                       p.other_bytes, p.memory_bytes, p.flops_per_token,
                       p.read_bytes_per_token, 0, 0, 0, 0};
    enum { COLUMNS = sizeof values / sizeof *values, LIMITS = 4 };
    if (a->memory > 0) {
        const struct llm_kv_pool *pool = &s->engine.pool;
        struct memory_split m;
        if (drafts_open(s, e) < 0 || memory_split(s, &p, &m, e) < 0) return -1;
        const int64_t context = s->engine.context;
        double tile = (double)llm_kv_sequence_bytes(pool, LLM_KV_TILE), whole = (double)memory_of_sequence(s, context, context, a->samples > 1);
        values[COLUMNS - 4] = (double)a->memory;
        values[COLUMNS - 3] = (double)m.cache;
        values[COLUMNS - 2] = pool->page_bytes > 0 ? floor((double)m.cache / tile) * LLM_KV_TILE : 0;
        values[COLUMNS - 1] = floor((double)m.cache / whole);
    } else {
        columns[COLUMNS - LIMITS] = NULL;
    }
    struct llm_table t, *tables[] = {&t};
    llm_table_init(&t, columns);
    t.record = t.no_heading = true;
    for (size_t i = 0; i < COLUMNS && columns[i]; i++) llm_table_count(&t, values[i]);
    return llm_tables_print(a->common.output, llm_table_form(&a->common), tables, 1, e);
}
