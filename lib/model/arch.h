/* Families of models, one row each. To add one: arch/<name>.c with its keys, names and (where llm_decoder_* do not serve) its own declaration
 * and forward function; its row in arch.c. */
#ifndef LLM_MODEL_ARCH_H
#define LLM_MODEL_ARCH_H

#include "model/block.h"

enum llm_key_type {
    LLM_KEY_INT,      /* int64_t within [min, max]; null keeps the default */
    LLM_KEY_TOKEN,    /* int64_t ≥ 0, null: -1; of a list the first */
    LLM_KEY_REAL, LLM_KEY_BOOL,
    LLM_KEY_WORD,     /* enum: one of `words` (NULL-terminated) */
    LLM_KEY_ACT,      /* enum llm_act by its Hugging Face name */
    LLM_KEY_SCALE     /* double, or "1/sqrt(hidden)" */
};
/* One key of config.json: where it goes, and what it may be. */
struct llm_config_key {
    const char *name;
    enum llm_key_type type;
    size_t offset;                 /* in struct llm_config */
    double min, max;
    const char *const *words;
    bool extension;                /* not a key of transformers: written only when it differs from the family's default */
};

struct llm_arch {
    const char *model_type;
    const char *architecture;      /* "LlamaForCausalLM": what transformers makes of config.json */
    const struct llm_config_key *keys; /* ends with a name of NULL */
    void (*defaults)(struct llm_config *c);
    /* Keys that need more than a table row; then what follows from the others (head_dim, n_inner). May be NULL. */
    int (*finish)(struct llm_config *c, const json_t *o, struct llm_err *e);
    int (*extra)(const struct llm_config *c, json_t *o); /* writes what `finish` reads; 0, or -1 when memory is short */
    struct llm_names names;
    bool transposed;               /* matrices within layers lie [in, out] in files (Conv1D) */
    bool scaled_residual;          /* initial residual projections × 1/sqrt(2·layers) */
    int (*declare)(struct llm_declare *d, struct llm_decoder *m);
    struct llm_tensor *(*forward)(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *b);
};

extern const struct llm_arch *const llm_archs[]; /* NULL-terminated */
const struct llm_arch *llm_arch_find(const char *model_type);

#endif
