#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "infer/kvfile.h"
#include "bin/kvinspect/kvinspect.h"

struct args { struct llm_common common; };
static const struct llm_opt options[] = {{0}};
const struct llm_cli kv_summary_cli = {.name = "llm-kvinspect summary",
                                       .summary = "Print what the cache holds: model, layers, types, tokens (the default).",
                                       .usage = "[OPTION]... [FILE]",
                                       .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
                                       .examples = "llm-kvinspect cache.kv\nllm-infer -m model.llm --kv-out - \"Once upon\" | llm-kvinspect",
                                       .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE | LLM_COMMON_CONFIG};

/* "h [1, 128] c [1, 128]": of the first layer with a state. */
static void list_parts(const struct llm_kv_file *f, char *text, size_t n)
{
    size_t at = 0;
    int64_t l = 0;
    text[0] = 0;
    while (l < f->n_layers && !f->layers[l].shape.parts[0].name) l++;
    for (int i = 0; l < f->n_layers && i < LLM_STATE_PARTS && f->layers[l].shape.parts[i].name && at < n; i++) {
        const struct llm_state_part *p = &f->layers[l].shape.parts[i];
        at += (size_t)snprintf(text + at, n - at, "%s%s [%" PRId64 ", %" PRId64 "]", i ? " " : "", p->name, p->rows, p->cols);
    }
}

static int print(const struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    static const char *const names[] = {"model_type", "fingerprint", "tokenizer", "tokens", "first_position", "last_position", "layers", "heads",
                                        "kv_heads", "d_k", "d_v", "type", "bytes_per_token", "bytes", "traced_queries", "state_bytes", "state",
                                        "kept", NULL};
    int64_t per_token = (int64_t)llm_kv_file_token_bytes(f), state = (int64_t)llm_model_state_bytes(&f->config);
    struct llm_state_shape s = {0};
    char parts[100];
    for (int64_t l = f->n_layers - 1; l >= 0; l--) s = f->layers[l].shape.n_kv_heads > 0 ? f->layers[l].shape : s;
    list_parts(f, parts, sizeof parts);
    const char *texts[] = {f->config.model_type, f->fingerprint, f->tokenizer};
    const int64_t numbers[] = {f->n, f->n ? f->positions[0] : 0, f->n ? f->positions[f->n - 1] : 0, f->n_layers,
                               f->config.num_attention_heads, s.n_kv_heads, s.d_k, s.d_v, 0, per_token, per_token * f->rows + state,
                               f->n_queries, state, 0, f->rows};
    char *types = llm_kv_file_types(f, e);
    struct llm_table t;
    if (!types) return -1;
    llm_table_init(&t, names);
    t.record = t.as_shown = true;
    for (int i = 0; names[i]; i++) {
        if (i < 3) llm_table_text(&t, texts[i]);
        else if (i == 11) llm_table_text(&t, types);
        else if (i == 16) llm_table_text(&t, parts);
        else llm_table_count(&t, (double)numbers[i - 3]);
    }
    free(types);
    return print_table(&t, &a->common, e);
}

int kv_summary(int argc, char **argv, struct llm_err *e)
{
    struct args a = {0};
    struct llm_kv_file f = {0};
    const char *path = one_operand(&kv_summary_cli, llm_cli_parse(&kv_summary_cli, &a, argc, argv), argc, argv);
    llm_config_force(a.common.force_config);
    int status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = print(&f, &a, e);
    llm_kv_file_release(&f);
    return status;
}
