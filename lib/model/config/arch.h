/* Families of models: what a configuration knows of one. The rows are in later rooms' hands: spec/arch/<name>.c has a family's keys, names and
 * (where llm_decoder_declare does not serve) its own declaration, spec/arch.c lists it. To add a family: these two. */
#ifndef LLM_MODEL_CONFIG_ARCH_H
#define LLM_MODEL_CONFIG_ARCH_H

#include "io/gguf_write.h"
#include "model/config/config.h"
#include "model/config/files.h"
#include "model/config/names.h"

enum llm_key_type {
    LLM_KEY_INT,      /* int64_t within [min, max]; null keeps the default */
    LLM_KEY_TOKEN,    /* int64_t ≥ 0, null: -1; of a list the first */
    LLM_KEY_LENGTH,   /* int64_t ≥ 0, where null is 0 */
    LLM_KEY_REAL, LLM_KEY_BOOL,
    LLM_KEY_CAP,      /* double ≥ 0, where null is 0 */
    LLM_KEY_WORD,     /* enum: one of `words` (NULL-terminated) */
    LLM_KEY_ACT,      /* enum llm_act by its Hugging Face name */
    LLM_KEY_LAYERS,   /* llm_layer_set: a list of layers by number, null: none */
    LLM_KEY_SCALE     /* double, or "1/sqrt(hidden)" */
};
/* Whose key it is, from which follows when it is written. */
enum llm_key_origin {
    LLM_KEY_HF,       /* transformers' own: always written */
    LLM_KEY_OURS,     /* not a key of transformers: written only when it differs from the family's default */
    LLM_KEY_ALIAS     /* another name of the key with the same offset: it is read, and never written */
};
/* One key of config.json: where it goes, and what it may be. */
struct llm_config_key {
    const char *name;
    enum llm_key_type type;
    size_t offset;                 /* in struct llm_config */
    double min, max;
    const char *const *words;
    enum llm_key_origin origin;
};

/* A key of config.json that no row of a table reads. `values`: "read": other code of ours reads it; "*": it changes nothing of ours; else a JSON
 * list of the values with which it changes nothing. With null no key changes anything. */
struct llm_other_key { const char *name, *values; };

/* One key of GGUF's metadata, behind the architecture's name. */
enum llm_gguf_key_type {
    LLM_GGUF_KEY_WHOLE, /* int64_t */
    LLM_GGUF_KEY_REAL,  /* double */
    LLM_GGUF_KEY_BOOL,
    LLM_GGUF_KEY_OWN    /* gguf_get and gguf_put see to it */
};
struct llm_gguf_key {
    const char *key;
    enum llm_gguf_key_type type;
    size_t offset;                 /* in struct llm_config */
    double min, max;
    double absent;                 /* what a file without it means */
};

struct llm_declare;
struct llm_decoder;
struct llm_arch {
    const char *model_type;
    const char *gguf;              /* its general.architecture in GGUF files; NULL: has none of its own */
    /* Several families share this GGUF architecture name: returns whether the file's metadata describe this one. NULL: this family is the default for
     * the name. */
    bool (*is_gguf)(const struct llm_gguf *g);
    const struct llm_gguf_key *gguf_keys; /* beside those of all families, or instead of one of them; ends with a key of NULL; NULL */
    /* What needs more than rows: after they were read; before they are written. May be NULL. */
    int (*gguf_get)(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e);
    void (*gguf_put)(struct llm_gguf_out *o, const struct llm_config *c, bool kv_b_whole); /* kv_b_whole: see model/config/gguf.h */
    const char *gguf_as;           /* … and the family that it is written as instead; NULL: none */
    const char *architecture;      /* "LlamaForCausalLM": what transformers makes of config.json */
    const struct llm_config_key *keys; /* ends with a name of NULL */
    const struct llm_other_key *other_keys; /* before those of all families (keys.c); ends with a name of NULL; NULL */
    /* Rows of `keys` that transformers' class of the family ignores: in files that transformers wrote they say nothing. Ends with NULL; NULL. */
    const char *const *ignored;
    void (*defaults)(struct llm_config *c);
    /* Keys that need more than a table row; then what follows from the others (head_dim, n_inner). May be NULL. */
    int (*finish)(struct llm_config *c, const json_t *o, struct llm_err *e);
    int (*extra)(const struct llm_config *c, json_t *o); /* writes what `finish` reads; 0, or -1 when memory is short */
    /* What only the tensors of files tell: parts that a model may have or not. May be NULL. */
    void (*in_files)(struct llm_config *c, const struct llm_model_files *files);
    /* How GGUF files differ: converters turn pairs of channels, add 1 to gains. May be NULL. */
    void (*in_gguf)(struct llm_config *c);
    struct llm_names names;
    const struct llm_names *gguf_names; /* NULL: llm_gguf_names */
    const char *const *unused;     /* beginnings of names of tensors that files may carry and that are not read; NULL-terminated, or NULL */
    bool transposed;               /* matrices within layers lie [in, out] in files (Conv1D) */
    bool out_bias_apart;           /* attention_bias says nothing of the output projection */
    bool scaled_residual;          /* initial residual projections × 1/sqrt(2·layers) */
    int (*declare)(struct llm_declare *d, struct llm_decoder *m); /* its parameters (model/spec/block.h) */
    /* Families that are no networks (n-grams): their weights are tables, not parameters, and they have no forward pass. */
    bool tables;
};

/* What decoders like Llama share: keys (arch/keys.h), `finish` (heads, rotary positions, which layers are local) and `extra`. */
int llm_decoder_finish(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
int llm_decoder_extra(const struct llm_config *c, json_t *o);
/* Llama's defaults, from which families that grew out of it differ by a few. */
void llm_llama_defaults(struct llm_config *c);
/* As GGUF files have it. */
void llm_llama_in_gguf(struct llm_config *c);
extern const struct llm_names llm_gguf_names;

/* What a key of config.json is to a family (keys.c). */
enum llm_key_use {
    LLM_KEY_UNKNOWN,
    LLM_KEY_KNOWN,    /* it may change what the configuration says */
    LLM_KEY_HARMLESS  /* with this value it changes nothing */
};
/* `foreign`: in a file that transformers wrote. */
enum llm_key_use llm_config_key_use(const struct llm_arch *arch, const char *name, const json_t *value, bool foreign);
/* Whether transformers' class of the family ignores a key that has a row here. */
bool llm_config_ignores(const struct llm_arch *arch, const char *name);
/* Whether transformers wrote the configuration: it then has its version. */
bool llm_config_is_foreign(const json_t *o);
/* Every key is known or harmless, else -1 (EX_DATAERR), or, after llm_config_force(true), one line on standard error. */
int llm_config_check_keys(const struct llm_arch *arch, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* The rows of keys that all families have; ends with a name of NULL. */
extern const struct llm_config_key llm_config_common_keys[];
/* Whether a table's row reads the key: the family's, or one of all families. */
bool llm_config_has_row(const struct llm_arch *arch, const char *name);

/* Reads the classes of a classifier: "id2label" or "num_labels". 0 or -1. */
int llm_config_read_labels(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* The family's defaults, before any key is read. */
struct llm_config llm_config_blank(const struct llm_arch *arch);
/* What follows from the keys, whichever file they came from (`o`: further keys, maybe an empty object), and that all of it fits. */
int llm_config_finish(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
extern const struct llm_arch *const llm_archs[]; /* NULL-terminated */
const struct llm_arch *llm_arch_find(const char *model_type);

#endif
