/* Caches as files (formats/kv.md): one tensor message of kind `kvcache`, read whole, checked, and laid out token after token. */
#ifndef LLM_INFER_KVFILE_H
#define LLM_INFER_KVFILE_H

#include "infer/kv.h"

/* A layer's tensors in the file; NULL if the layer has no such tensor. A layer that reads another layer's keys has queries alone. */
struct llm_kv_file_layer {
    struct llm_state_shape shape;
    struct llm_kv_pair types;   /* of k and v; those of its source where the layer shares; a latent's type twice */
    void *k, *v;                /* [rows, n_kv_heads, d_k] (named "latent" where d_v is 0), [rows, n_kv_heads, d_v] */
    int32_t *kept;              /* evicted caches: [rows, n_kv_heads], the token of each row, ascending in each head up to n - 1; else NULL */
    void *q;                    /* F32 [n_queries, n_heads, d_k], oldest first */
    void *parts[LLM_STATE_PARTS]; /* F32 [rows, cols] */
};
struct llm_kv_file {
    int64_t n;                  /* tokens */
    int64_t rows;               /* keys of each head: n, or fewer in an evicted cache */
    bool evicted;               /* heads have keys of some of the tokens, each of its own */
    int64_t n_layers;
    struct llm_kv_file_layer *layers;
    struct llm_config config;   /* of the model that made it */
    json_t *config_json;        /* `config` as the file has it; owned */
    char fingerprint[17];       /* of the model; "" when not known */
    char tokenizer[65];         /* its tokenizer's identity; "" when it has none */
    int32_t *ids, *positions;   /* [n]; positions ascend */
    int64_t rope_context;       /* the context that keys were rotated for; 0: not recorded, or frequencies do not depend on it */
    int64_t n_queries;          /* queries of the last tokens, 0 when not traced */
};

/* What files have of a layer: what a model keeps of it (llm_model_state), or the keys and values of a vision transformer, which keeps nothing. */
struct llm_state_shape llm_kv_file_shape(const struct llm_config *c, int64_t layer);
/* Reads and checks a cache ("-": stdin). 0 or -1; release either way. Zero-initialise `f`. */
int llm_kv_file_read(struct llm_kv_file *f, const char *path, struct llm_err *e) LLM_MUST_CHECK;
void llm_kv_file_release(struct llm_kv_file *f);
/* Writes what `kv` holds; `m` says of which model. `o` is not committed. */
int llm_kv_file_write(const struct llm_kv *kv, struct llm_model *m, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* Writes a cache that lies in memory. `o` is not committed. */
int llm_kv_file_save(const struct llm_kv_file *f, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
/* Puts the first `n` tokens (n ≤ f->n) into `kv` (initialised, empty), converting them if the pool's dtype differs. Fails (65) if the file
 * belongs to another model, does not begin at position 0, or holds a recurrent state or is evicted and n < f->n. */
int llm_kv_file_restore(const struct llm_kv_file *f, int64_t n, struct llm_model *m, struct llm_kv *kv, struct llm_err *e) LLM_MUST_CHECK;

/* Finds the tensor "layers.N.x" of a cache; false if it has no tensor of this name. */
struct llm_kv_slot {
    void **data;
    enum llm_dtype dtype;
    int n_dims;
    int64_t shape[3];
};
bool llm_kv_file_slot(struct llm_kv_file *f, const char *name, struct llm_kv_slot *slot);
/* Row `r` of layer `l`'s keys or values (`what` 'k' or 'v'; 'q' queries) of head `h`, decoded into out [d]. Unless the cache is evicted, row r
 * belongs to token r. */
void llm_kv_file_decode(const struct llm_kv_file *f, char what, int64_t l, int64_t r, int64_t h, float *out);
/* The token whose key lies in row `r` of head `h` of the keys that layer `l` reads. */
int64_t llm_kv_file_token(const struct llm_kv_file *f, int64_t l, int64_t r, int64_t h);
/* The types of all layers (llm_kv_types_text). The caller frees it. NULL: no memory. */
char *llm_kv_file_types(const struct llm_kv_file *f, struct llm_err *e) LLM_MUST_CHECK;
/* Bytes of the keys and values of a token. */
size_t llm_kv_file_token_bytes(const struct llm_kv_file *f);
/* What keeps keys of this model from being evicted, as a clause ("it has a sliding window"); NULL: nothing. */
const char *llm_kv_file_unevictable(const struct llm_config *c);

#endif
