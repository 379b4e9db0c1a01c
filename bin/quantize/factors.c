#include "bin/quantize/factors.h"

#include <string.h>
#include "base/log.h"
#include "bin/quantize/adapters.h"

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
