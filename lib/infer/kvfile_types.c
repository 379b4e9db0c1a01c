/* The types of a cache's layers, and the bytes that they take. */
#include "infer/kvfile.h"

char *llm_kv_file_types(const struct llm_kv_file *f, struct llm_err *e)
{
    struct llm_kv_pair of[LLM_MAX_LAYERS];
    for (int64_t l = 0; l < f->n_layers; l++) of[l] = f->layers[l].types;
    return llm_kv_types_text(of, f->n_layers, e);
}

size_t llm_kv_file_token_bytes(const struct llm_kv_file *f)
{
    size_t bytes = 0;
    for (int64_t l = 0; l < f->n_layers; l++) {
        const struct llm_state_shape *s = &f->layers[l].shape;
        const struct llm_kv_pair types = f->layers[l].types;
        if (s->n_kv_heads == 0 || s->source != l) continue;
        bytes += (size_t)s->n_kv_heads * (llm_dtype_bytes(types.k, (uint64_t)s->d_k) + llm_dtype_bytes(types.v, (uint64_t)s->d_v));
    }
    return bytes;
}
