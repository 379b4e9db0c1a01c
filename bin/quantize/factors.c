#include "bin/quantize/factors.h"

#include <string.h>
#include "base/log.h"
#include "bin/quantize/adapters.h"
#include "model/weights/gguf_names.h"
#include "model/weights/save_folder.h"

static int check_params(const struct llm_model *m, const struct llm_quant_plan *plan, const struct llm_gguf_names *names, struct llm_err *e)
{
    struct llm_quant_plan with = *plan;
    with.gguf = names ? names->specs : NULL;
    for (size_t i = 0; i < m->n_params; i++) {
        const char *kept = NULL;
        if (!llm_lowrank_wants(&m->params[i])) continue;
        llm_quant_choose(m, &m->params[i], &with, &kept);
        if (!kept && llm_lora_check_param(m, &m->params[i], names, e) < 0) return -1;
    }
    return 0;
}

int factors_try(const struct llm_model *m, const struct llm_quant_plan *plan, const char *path, struct llm_err *e)
{
    struct llm_gguf_names names = {.params = NULL};
    const bool gguf = llm_ends_with(path, ".gguf");
    if (llm_ends_with(path, ".llm")) return llm_output_try(path, true, e);
    int status = gguf ? llm_output_try(path, true, e) : llm_model_try_folder(path, e);
    if (status == 0 && gguf) status = llm_gguf_names_of(&names, m, e);
    if (status == 0) status = check_params(m, plan, gguf ? &names : NULL, e);
    llm_gguf_names_release(&names);
    return status < 0 && e->status == EX_UNAVAILABLE ? llm_in(e, "%s", path) : status;
}

int factors_attach(struct llm_model *m, const struct llm_lowrank *l, struct llm_err *e)
{
    if (l->n == 0) return llm_fail(e, EX_DATAERR, "--factors: expected a matrix of a layer that changes, found none");
    if (llm_lora_from_factors(m, l->v, l->n, e) < 0) return -1;
    llm_note("factors of %zu matrices, rank %lld at most: %.1f MiB in F32", l->n, (long long)m->lora->rank, llm_lora_elements(m->lora) * 4 / 1048576);
    return 0;
}

int factors_write(struct llm_model *m, const char *model, bool gguf, const char *path, struct llm_err *e)
{
    m->fingerprint[0] = 0; /* the base's, without the adapter */
    m->adapted = false;
    if (llm_model_base_fingerprint(m, e) < 0 || llm_lora_renew(m, model, -1, -1, e) < 0) return -1;
    if (gguf) m->lora->base_fingerprint[0] = 0;
    return adapter_write(m, path, llm_ends_with(path, ".gguf"), LLM_F32, e);
}
