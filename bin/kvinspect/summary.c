#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "infer/kvfile.h"
#include "bin/kvinspect/kvinspect.h"

struct args { struct llm_common common; };
static const struct llm_opt options[] = {{0}};
const struct llm_cli kv_summary_cli = {.name = "llm-kvinspect summary",
                                       .summary = "what the cache is (the default)",
                                       .usage = "[OPTION]... [FILE]",
                                       .options = options,
                                       .examples = "llm-kvinspect cache.kv\nllm-infer -m model.llm --kv-out - \"Once upon\" | llm-kvinspect",
                                       .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON};

static int print(const struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    static const char *const names[] = {"model_type", "fingerprint", "tokenizer", "tokens", "first_position", "last_position", "layers", "heads",
                                        "kv_heads", "d_k", "d_v", "type", "bytes_per_token", "bytes", "traced_queries", NULL};
    static const char *const pairs[] = {"key", "value", NULL};
    int64_t per_token = f->shape.n_layers * f->shape.n_kv_heads
                        * (int64_t)(llm_dtype_bytes(f->dtype, (uint64_t)f->shape.d_k) + llm_dtype_bytes(f->dtype, (uint64_t)f->shape.d_v));
    const char *texts[] = {f->config.model_type, f->fingerprint, f->tokenizer};
    const int64_t numbers[] = {f->n, f->n ? f->positions[0] : 0, f->n ? f->positions[f->n - 1] : 0, f->shape.n_layers,
                               f->config.num_attention_heads, f->shape.n_kv_heads, f->shape.d_k, f->shape.d_v, 0, per_token, per_token * f->n,
                               f->n_queries};
    struct table t;
    if (table_open(&t, a->common.output, a->common.json, a->common.json ? names : pairs, e) < 0) return -1;
    for (int i = 0; names[i]; i++) {
        if (!a->common.json) table_text(&t, names[i]);
        if (i < 3) table_text(&t, texts[i]);
        else if (i == 11) table_text(&t, llm_dtypes[f->dtype].name);
        else table_integer(&t, numbers[i - 3]);
    }
    return table_close(&t, 0);
}

int kv_summary(int argc, char **argv, struct llm_err *e)
{
    struct args a = {0};
    struct llm_kv_file f = {0};
    const char *path = one_operand(&kv_summary_cli, llm_cli_parse(&kv_summary_cli, &a, argc, argv), argc, argv);
    int status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = print(&f, &a, e);
    llm_kv_file_release(&f);
    return status;
}
