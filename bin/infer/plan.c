/* --plan */
#include "bin/infer/infer.h"
#include "infer/plan.h"
#include "io/table.h"

int run_plan(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    struct llm_infer_plan p;
    int64_t sequences = a->jsonl || a->samples > a->parallel ? a->parallel : a->samples;
    if (llm_infer_plan(&s->engine, sequences, &p, e) < 0) return -1;
    static const char *const columns[] = {"parameters", "weight_bytes", "cache_bytes_per_token", "state_bytes", "cache_bytes", "working_bytes",
                                          "other_bytes", "memory_bytes", "flops_per_token", "read_bytes_per_token", NULL};
    const double values[] = {p.parameters, p.weight_bytes, p.cache_bytes_per_token, p.state_bytes, p.cache_bytes, p.working_bytes,
                             p.other_bytes, p.weight_bytes + p.cache_bytes + p.working_bytes + p.other_bytes, p.flops_per_token,
                             p.read_bytes_per_token};
    struct llm_table t, *tables[] = {&t};
    llm_table_init(&t, columns);
    t.record = t.no_heading = true;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) llm_table_count(&t, values[i]);
    return llm_tables_print(a->common.output, llm_table_form(&a->common), tables, 1, e);
}
