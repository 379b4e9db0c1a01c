#include <stdlib.h>
#include <string.h>
#include "infer/kvfile.h"
#include "bin/kvinspect/kvinspect.h"
#include "measure/rounding.h"

struct args { struct llm_common common; };
static const struct llm_opt options[] = {{0}};
const struct llm_cli kv_size_cli = {
    .name = "llm-kvinspect size", .summary = "Print the bytes that the cache takes, as it is and in every cache type.", .usage = "[OPTION]... [FILE]",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect size cache.kv", .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG};

static void put_row(struct llm_table *t, const struct llm_kv_file *f, const char *type, bool here, double token)
{
    const int64_t state = (int64_t)llm_model_state_bytes(&f->config);
    llm_table_text(t, type);
    llm_table_text(t, here ? "yes" : "no");
    llm_table_count(t, (double)((int64_t)token / f->n_layers));
    llm_table_count(t, token);
    llm_table_count(t, (double)(state + (int64_t)token * f->rows));
    llm_table_count(t, (double)(state + (int64_t)token * f->config.max_position_embeddings));
    llm_table_count(t, (double)state);
}

/* A row for each type, and if the cache has several a row for what it has. */
static int print(const struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    static const char *const columns[] = {"type", "here", "bytes_per_token_and_layer", "bytes_per_token", "bytes", "bytes_at_full_context",
                                          "state_bytes", NULL};
    if (f->config.bidirectional) return llm_fail(e, EX_DATAERR, "expected a cache of a text, found one of a picture (%s)", f->config.model_type);
    char *here = llm_kv_file_types(f, e);
    bool one = false;
    struct llm_table t;
    if (!here) return -1;
    llm_table_init(&t, columns);
    t.as_shown = true;
    enum llm_dtype types[LLM_ROUNDING_TYPES];
    (void)llm_rounding_types(f, types);
    for (const enum llm_dtype *type = types; *type != LLM_NO_DTYPE; type++) {
        const bool is_here = strcmp(llm_dtypes[*type].name, here) == 0;
        one |= is_here;
        put_row(&t, f, llm_dtypes[*type].name, is_here, llm_model_kv_bytes_per_token(&f->config, *type));
    }
    if (!one) put_row(&t, f, here, true, (double)llm_kv_file_token_bytes(f));
    free(here);
    return print_table(&t, &a->common, e);
}

int kv_size(int argc, char **argv, struct llm_err *e)
{
    struct args a = {0};
    struct llm_kv_file f = {0};
    const char *path = one_operand(&kv_size_cli, llm_cli_parse(&kv_size_cli, &a, argc, argv), argc, argv);
    llm_config_force(a.common.force_config);
    int status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = print(&f, &a, e);
    llm_kv_file_release(&f);
    return status;
}
