#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "infer/kvfile.h"
#include "io/npy.h"
#include "bin/kvinspect/kvinspect.h"

struct args {
    struct llm_common common;
    const char *tensor;
};
static const struct llm_opt options[] = {
    {0, "tensor", "NAME", "which: ids, positions, layers.N.k, layers.N.v or layers.N.q", LLM_STR, offsetof(struct args, tensor), 0, 0, NULL}, {0}};
const struct llm_cli kv_export_cli = {
    .name = "llm-kvinspect export", .summary = "one tensor as a NumPy file", .usage = "--tensor NAME [OPTION]... [FILE]", .options = options,
    .examples = "llm-kvinspect export --tensor layers.0.k -o k.npy cache.kv", .common = LLM_COMMON_OUTPUT};

static int write_tensor(const struct llm_kv_file *f, const char *name, struct llm_output *o, struct llm_err *e)
{
    if (strcmp(name, "ids") == 0) return llm_npy_write(o, LLM_I32, 1, &f->n, f->ids, e);
    if (strcmp(name, "positions") == 0) return llm_npy_write(o, LLM_I32, 1, &f->n, f->positions, e);
    char letter = 0, rest = 0;
    int layer = -1;
    if (sscanf(name, "layers.%d.%c%c", &layer, &letter, &rest) == 2 && layer >= 0 && layer < f->shape.n_layers) {
        int64_t kv[3] = {f->n, f->shape.n_kv_heads, letter == 'v' ? f->shape.d_v : f->shape.d_k};
        int64_t q[3] = {f->n_queries, f->config.num_attention_heads, f->shape.d_k};
        if (letter == 'k') return llm_npy_write(o, f->dtype, 3, kv, f->k[layer], e);
        if (letter == 'v') return llm_npy_write(o, f->dtype, 3, kv, f->v[layer], e);
        if (letter == 'q' && f->n_queries > 0) return llm_npy_write(o, LLM_F32, 3, q, f->q[layer], e);
    }
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected ids, positions, or k or v%s of layers.0 to layers.%" PRId64 ", found none such", name,
                    f->n_queries > 0 ? " or q" : "", f->shape.n_layers - 1);
}

static int export_tensor(const struct llm_kv_file *f, const struct args *a, struct llm_err *e)
{
    struct llm_output *o = llm_output_open(a->common.output, true, e);
    if (!o) return -1;
    if (write_tensor(f, a->tensor, o, e) < 0) {
        llm_output_abandon(o);
        return -1;
    }
    return llm_output_commit(o, e);
}

int kv_export(int argc, char **argv, struct llm_err *e)
{
    struct args a = {0};
    struct llm_kv_file f = {0};
    const char *path = one_operand(&kv_export_cli, llm_cli_parse(&kv_export_cli, &a, argc, argv), argc, argv);
    if (!a.tensor) llm_usage(&kv_export_cli, "expected a tensor (--tensor NAME)");
    int status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = export_tensor(&f, &a, e);
    llm_kv_file_release(&f);
    return status;
}
