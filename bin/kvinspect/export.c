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
    {0, "tensor", "NAME", "tensor to write: ids, positions, layers.N.k, layers.N.v, layers.N.q; layers.N.h, c, conv, ssm of recurrent models",
     LLM_STR,
     offsetof(struct args, tensor), 0, 0, NULL},
    {0}};
const struct llm_cli kv_export_cli = {
    .name = "llm-kvinspect export", .summary = "Write one tensor as a NumPy file.", .usage = "--tensor NAME [OPTION]... [FILE]",
    .options = options, .operands = LLM_OPERANDS_INPUT, .foreign = kv_foreign,
    .examples = "llm-kvinspect export --tensor layers.0.k -o k.npy cache.kv", .common = LLM_COMMON_OUTPUT | LLM_COMMON_CONFIG};

static int write_tensor(struct llm_kv_file *f, const char *name, struct llm_output *o, struct llm_err *e)
{
    if (strcmp(name, "ids") == 0) return llm_npy_write(o, LLM_I32, 1, &f->n, f->ids, e);
    if (strcmp(name, "positions") == 0) return llm_npy_write(o, LLM_I32, 1, &f->n, f->positions, e);
    struct llm_kv_slot slot;
    if (llm_kv_file_slot(f, name, &slot)) return llm_npy_write(o, slot.dtype, slot.n_dims, slot.shape, *slot.data, e);
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected ids, positions, or what the cache has of layers.0 to layers.%" PRId64
                    " (llm-kvinspect summary names it), found none such", name, f->n_layers - 1);
}

static int export_tensor(struct llm_kv_file *f, const struct args *a, struct llm_err *e)
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
    llm_config_force(a.common.force_config);
    if (!a.tensor) llm_usage(&kv_export_cli, "expected a tensor (--tensor NAME)");
    int status = llm_kv_file_read(&f, path, e);
    if (status == 0) status = export_tensor(&f, &a, e);
    llm_kv_file_release(&f);
    return status;
}
