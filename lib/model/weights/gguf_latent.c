/* What makes keys and values of latent vectors (MLA), in GGUF files: since 2025 as two tensors, so that queries and outputs can absorb them: for each
 * head [rank, nope] that makes keys, transposed, and [v, rank] that makes values. Models have both as one matrix, head after head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/weights/gguf_latent.h"
#include "model/weights/names.h"

struct halves { int64_t heads, rank, nope, values; };

static struct halves halves_of(const struct llm_config *c)
{
    return (struct halves){c->num_attention_heads, c->kv_lora_rank, c->qk_nope_head_dim, c->v_head_dim};
}

static int check(const struct llm_entry *t, int64_t heads, int64_t rows, int64_t cols, struct llm_err *e)
{
    const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
    if (!row->is_float && !row->is_quantised) return llm_fail(e, EX_DATAERR, "tensor '%s': expected numbers, found %s", t->name, row->name);
    if (t->n_dims == 3 && t->shape[0] == heads && t->shape[1] == rows && t->shape[2] == cols) return 0;
    return llm_fail(e, EX_DATAERR, "tensor '%s': expected [%lld, %lld, %lld], found another shape", t->name, (long long)heads, (long long)rows,
                    (long long)cols);
}

/* Reads a whole tensor into new memory, as elements of type `to`: its own type or F32. NULL: see `e`. */
static void *values_of(struct llm_checkpoint *f, const struct llm_entry *t, enum llm_dtype to, uint64_t n, struct llm_err *e)
{
    const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
    void *data = llm_alloc(t->bytes, 1, t->name, e), *out = data;
    if (!data || llm_checkpoint_read(f, t, data, e) < 0) {
        free(data);
        return NULL;
    }
    if (to == t->dtype) return data;
    out = llm_alloc(n, sizeof(float), t->name, e);
    if (out) row->decode(data, out, n);
    free(data);
    return out;
}

static int join(const struct halves *h, size_t element, const char *keys, const char *values, char *out, struct llm_err *e)
{
    size_t key_bytes = (size_t)(h->nope * h->rank) * element, value_bytes = (size_t)(h->values * h->rank) * element;
    for (int64_t i = 0; i < h->heads; i++, keys += key_bytes, values += value_bytes) {
        void *transposed = llm_transposed(keys, element, h->rank, h->nope, e);
        if (!transposed) return -1;
        memcpy(out, transposed, key_bytes);
        memcpy(out + key_bytes, values, value_bytes);
        out += key_bytes + value_bytes;
        free(transposed);
    }
    return 0;
}

/* Joins the two halves into the parameter. The keys' half is transposed, so quantised blocks run along the wrong dimension: the parameter becomes
 * F32. */
static int read_halves(const struct halves *h, const struct llm_latent_halves *t, struct llm_param *p, struct llm_err *e)
{
    bool same = t->keys->dtype == t->values->dtype && llm_dtypes[t->keys->dtype].is_float;
    enum llm_dtype type = same ? t->keys->dtype : LLM_F32;
    size_t element = (size_t)llm_dtypes[type].block_bytes;
    char *keys = values_of(t->key_file, t->keys, type, (uint64_t)(h->heads * h->nope * h->rank), e);
    char *values = keys ? values_of(t->value_file, t->values, type, (uint64_t)(h->heads * h->values * h->rank), e) : NULL;
    char *out = values ? llm_alloc((size_t)llm_param_count(p), element, t->keys->name, e) : NULL;
    int r = out ? join(h, element, keys, values, out, e) : -1;
    free(keys);
    free(values);
    p->weight.dtype = type;
    p->weight.data = out;
    p->owned = out != NULL;
    return r;
}

/* Writes the name that GGUF files give one half of `whole`. false: the parameter is not stored in halves. */
static bool half_name(const struct llm_param_spec *whole, bool keys, char name[120])
{
    const struct llm_names *n = &llm_gguf_names;
    if (whole->stem != LLM_STEM_KV_B) return false;
    snprintf(name, 120, "%s%s%d.%s.weight", n->prefix, n->layer, whole->layer, n->stem[keys ? LLM_STEM_K_B : LLM_STEM_V_B]);
    return true;
}

bool llm_latent_is_half(const struct llm_param_spec *whole, const char *name)
{
    char half[120];
    return (half_name(whole, true, half) && strcmp(half, name) == 0) || (half_name(whole, false, half) && strcmp(half, name) == 0);
}

bool llm_latent_find(const struct llm_model_files *files, const struct llm_param_spec *whole, struct llm_latent_halves *t)
{
    char name[120];
    *t = (struct llm_latent_halves){0};
    if (half_name(whole, true, name)) t->keys = llm_model_files_find(files, name, &t->key_file);
    if (half_name(whole, false, name)) t->values = llm_model_files_find(files, name, &t->value_file);
    return t->keys && t->values;
}

int llm_latent_read(const struct llm_config *c, const struct llm_latent_halves *t, struct llm_param *p, struct llm_err *e)
{
    const struct halves h = halves_of(c);
    if (check(t->keys, h.heads, h.rank, h.nope, e) < 0 || check(t->values, h.heads, h.values, h.rank, e) < 0) return -1;
    return read_halves(&h, t, p, e);
}

struct llm_tensor_out llm_latent_half(const struct llm_config *c, const struct llm_param *p, const struct llm_param_spec *whole, bool keys,
                                      char name[120])
{
    const struct halves h = halves_of(c);
    half_name(whole, keys, name);
    return (struct llm_tensor_out){.name = name, .dtype = p->weight.dtype, .n_dims = 3,
                                   .shape = {h.heads, keys ? h.rank : h.values, keys ? h.nope : h.rank}};
}

int llm_latent_write(const struct llm_config *c, const struct llm_param *p, bool keys, struct llm_output *o, struct llm_err *e)
{
    const struct halves h = halves_of(c);
    size_t element = (size_t)llm_dtypes[p->weight.dtype].block_bytes, row = (size_t)h.rank * element;
    const char *at = p->weight.data;
    for (int64_t i = 0; i < h.heads; i++, at += (size_t)(h.nope + h.values) * row) {
        void *transposed = keys ? llm_transposed(at, element, h.nope, h.rank, e) : NULL;
        if (keys && !transposed) return -1;
        int r = llm_output_write(o, keys ? transposed : at + (size_t)h.nope * row, (size_t)(keys ? h.nope : h.values) * row, e);
        free(transposed);
        if (r < 0) return -1;
    }
    return 0;
}
