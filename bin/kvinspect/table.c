#include <inttypes.h>
#include "bin/kvinspect/kvinspect.h"

int print_table(struct llm_table *t, const struct llm_common *common, struct llm_err *e)
{
    return llm_tables_print(common->output, llm_table_form(common), &t, 1, e);
}

const char *one_operand(const struct llm_cli *cli, int rest, int argc, char **argv)
{
    if (rest + 1 < argc) llm_usage(cli, "expected one file, found another operand '%s'", argv[rest + 1]);
    return rest < argc ? argv[rest] : "-";
}

int check_layer(const struct llm_kv_file *f, int64_t layer, struct llm_err *e)
{
    if (layer < f->n_layers) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--layer: expected below %" PRId64 ", found %" PRId64, f->n_layers, layer);
}

int write_cache(const struct llm_kv_file *f, const char *path, struct llm_err *e)
{
    struct llm_output *o = llm_output_open(path, true, e);
    if (!o) return -1;
    if (llm_kv_file_save(f, o, e) == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}
