/* The order of rows of adapted matrices in other programs' files: converters to GGUF permute the rows of queries and keys, and some families store
 * the rows of q, k and v head by head. */
#include <stdlib.h>
#include <string.h>
#include "model/config/arch.h"
#include "model/weights/lora_internal.h"
#include "model/weights/names.h"

/* The pairing of rotary channels that files of `order` have. */
static int pairing_of(const struct llm_model *m, enum llm_lora_order order)
{
    if (order == LLM_LORA_OWN || m->config.position != LLM_POSITION_ROPE || m->config.kv_lora_rank > 0) return (int)m->config.rope_pairing;
    struct llm_config usual = llm_config_blank(m->arch);
    if (order == LLM_LORA_GGUF && m->arch->in_gguf) m->arch->in_gguf(&usual);
    return (int)usual.rope_pairing;
}

int llm_lora_reorder(const struct llm_model *m, const struct llm_param *p, enum llm_lora_order order, bool to_file, float *rows, int64_t cols,
                     struct llm_err *e)
{
    const struct llm_param_spec *s = p->spec;
    int own = (int)m->config.rope_pairing, other = pairing_of(m, order);
    bool attention = s->unit == LLM_UNIT_ATTENTION, pairs = own != other && attention && (s->stem == LLM_STEM_Q || s->stem == LLM_STEM_K);
    bool heads = order == LLM_LORA_HF && s->by_head;
    if (own != other && attention && s->stem == LLM_STEM_QKV)
        return llm_fail(e, EX_UNAVAILABLE, "'%s': the order of its rows in such a file is not known", p->name);
    if (!pairs && !heads) return 0;
    size_t bytes = (size_t)(p->weight.n * cols) * sizeof *rows;
    float *out = llm_alloc(bytes, 1, "an adapter", e);
    if (!out) return -1;
    if (heads) llm_rows_by_head(&m->config, rows, (size_t)cols * sizeof *rows, to_file, out);
    else llm_rows_in_pairs(&m->config, rows, p->weight.n, (size_t)cols * sizeof *rows, (to_file ? other : own) == LLM_ROPE_INTERLEAVED, out);
    memcpy(rows, out, bytes);
    free(out);
    return 0;
}
