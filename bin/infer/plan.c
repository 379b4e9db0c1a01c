/* --plan */
#include <stdio.h>
#include "bin/infer/infer.h"
#include "infer/plan.h"

int run_plan(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    struct llm_infer_plan p;
    int64_t sequences = a->jsonl || a->samples > a->parallel ? a->parallel : a->samples;
    if (llm_infer_plan(&s->engine, sequences, &p, e) < 0) return -1;
    const struct { const char *name; double value; } rows[] = {
        {"parameters", p.parameters}, {"weight_bytes", p.weight_bytes}, {"cache_bytes_per_token", p.cache_bytes_per_token},
        {"state_bytes", p.state_bytes}, {"cache_bytes", p.cache_bytes}, {"working_bytes", p.working_bytes},
        {"memory_bytes", p.weight_bytes + p.cache_bytes + p.working_bytes}, {"flops_per_token", p.flops_per_token},
        {"read_bytes_per_token", p.read_bytes_per_token}};
    struct llm_output *o = llm_output_open(a->common.output, false, e);
    if (!o) return -1;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (llm_output_printf(o, e, "%s\t%.0f\n", rows[i].name, rows[i].value) < 0) {
            llm_output_abandon(o);
            return -1;
        }
    }
    return llm_output_commit(o, e);
}
