/* llm-bench cost: what a configuration costs, without running it. */
#include "bin/bench/bench.h"
#include "measure/cost.h"

struct args {
    struct llm_common common;
    int64_t context;
    struct llm_strs set;
    int part;
};
#define AT(field) offsetof(struct args, field)
enum { PART_ALL, PART_PARTS, PART_TOTALS };

static const struct llm_opt options[] = {
    {'c', "context", "N", "number of tokens that attention sees [the model's maximum]", LLM_INT, AT(context), 0, 1 << 30, NULL},
    {0, "set", "KEY=VALUE", "set a key of the configuration; may be given several times", LLM_LIST, AT(set), 0, 0, NULL},
    {0, "table", "NAME", "tables to print: all, parts (parameters and FLOPs) or totals (bytes and FLOPs) [all]",
     LLM_CHOICE, AT(part), 0, 0, "all|parts|totals"},
    {0}};

const struct llm_cli bench_cost_cli = {
    .name = "llm-bench cost",
    .summary = "Compute parameters, FLOPs and bytes of a configuration by formula.",
    .usage = "[OPTION]... MODEL|CONFIG",
    .examples = "llm-bench cost small\n"
                "llm-bench cost --table totals --context 4096 config.json\n"
                "llm-bench cost --set num_key_value_heads=1 small",
    .options = options,
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG,
    .words = bench_cost_words,
};

int bench_cost(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.part = PART_ALL};
    int rest = llm_cli_parse(&bench_cost_cli, &a, argc, argv);
    llm_config_force(a.common.force_config);
    struct llm_config c;
    struct llm_table parts, totals, *both[] = {&parts, &totals};
    if (argc - rest != 1) llm_usage(&bench_cost_cli, "expected one model or configuration");
    if (bench_config(&c, argv[rest], &a.set, e) < 0) return -1;
    if (a.context == 0) a.context = c.max_position_embeddings;
    llm_table_init(&parts, llm_cost_part_columns);
    llm_table_init(&totals, llm_cost_total_columns);
    if (llm_cost_parts(&parts, &c, a.context, e) < 0 || llm_cost_totals(&totals, &c, a.context, e) < 0) {
        llm_table_release(&parts);
        llm_table_release(&totals);
        return -1;
    }
    if (a.part == PART_ALL) return bench_print(&a.common, both, 2, e);
    llm_table_release(both[a.part == PART_PARTS]);
    return bench_print(&a.common, &both[a.part == PART_TOTALS], 1, e);
}
