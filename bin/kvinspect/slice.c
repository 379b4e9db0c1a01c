/* llm-kvinspect slice: some tokens of a cache. */
#include <inttypes.h>
#include "bin/kvinspect/kvinspect.h"
#include "infer/kvjoin.h"

struct args {
    struct llm_common common;
    int64_t from, to;
};
static const struct llm_opt options[] = {
    {0, "from", "N", "the first token, from 0 [0]", LLM_INT, offsetof(struct args, from), 0, 1 << 30, NULL},
    {0, "to", "N", "the token after the last [the end]", LLM_INT, offsetof(struct args, to), 0, 1 << 30, NULL},
    {0}};
const struct llm_cli kv_slice_cli = {
    .name = "llm-kvinspect slice", .summary = "Write the keys and values of some tokens, which keep their positions, as a cache.",
    .usage = "[OPTION]... [FILE]",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect slice --from 100 --to 200 -o part.kv cache.kv", .common = LLM_COMMON_OUTPUT | LLM_COMMON_CONFIG};

static int slice(struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    int64_t to = a->to < 0 ? f->n : a->to;
    if (to > f->n) return llm_fail(e, LLM_EX_USAGE, "--to: expected at most %" PRId64 " (tokens), found %" PRId64, f->n, to);
    if (a->from >= to) return llm_fail(e, LLM_EX_USAGE, "--from: expected below %" PRId64 ", found %" PRId64, to, a->from);
    if (llm_kv_file_cut(f, a->from, to, e) < 0) return -1;
    return write_cache(f, a->common.output, e);
}

int kv_slice(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.to = -1};
    struct llm_kv_file f = {0};
    const char *path = one_operand(&kv_slice_cli, llm_cli_parse(&kv_slice_cli, &a, argc, argv), argc, argv);
    llm_config_force(a.common.force_config);
    int status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = slice(&f, &a, e);
    llm_kv_file_release(&f);
    return status;
}
