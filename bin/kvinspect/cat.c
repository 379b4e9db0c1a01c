/* llm-kvinspect cat: caches after one another. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "bin/kvinspect/kvinspect.h"
#include "infer/kvjoin.h"

struct args { struct llm_common common; };
static const struct llm_opt options[] = {{0}};
const struct llm_cli kv_cat_cli = {
    .name = "llm-kvinspect cat", .summary = "Join caches of one model: keys are rotated to the positions that they then have.",
    .usage = "[OPTION]... FILE...",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect cat -o both.kv first.kv second.kv", .common = LLM_COMMON_OUTPUT | LLM_COMMON_CONFIG};

static int join(const struct llm_kv_file *parts, int64_t n, const char *path, struct llm_err *e)
{
    struct llm_kv_file all = {0};
    int64_t rotated = 0;
    int status = llm_kv_file_join(&all, parts, n, &rotated, e);
    if (status == 0 && rotated > 0) llm_note("%" PRId64 " of %" PRId64 " tokens have other positions than before", rotated, all.n);
    if (status == 0) status = write_cache(&all, path, e);
    llm_kv_file_release(&all);
    return status;
}

int kv_cat(int argc, char **argv, struct llm_err *e)
{
    struct args a = {0};
    int rest = llm_cli_parse(&kv_cat_cli, &a, argc, argv), n = argc - rest, dashes = 0;
    llm_config_force(a.common.force_config);
    if (n == 0) llm_usage(&kv_cat_cli, "expected files, found none");
    for (int i = rest; i < argc; i++) dashes += strcmp(argv[i], "-") == 0;
    if (dashes > 1) llm_usage(&kv_cat_cli, "standard input cannot be two inputs at once");
    struct llm_kv_file *parts = llm_calloc((size_t)n, sizeof *parts, "caches", e);
    int status = parts ? 0 : -1;
    for (int i = 0; i < n && status == 0; i++) status = llm_kv_file_read(&parts[i], argv[rest + i], e);
    if (status == 0) status = join(parts, n, a.common.output, e);
    for (int i = 0; parts && i < n; i++) llm_kv_file_release(&parts[i]);
    free(parts);
    return status;
}
