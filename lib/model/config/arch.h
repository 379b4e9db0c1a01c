/* Families of models: what a configuration knows of one. A later room fills the rows: spec/arch/<name>.c has a family's keys and names, and a
 * declaration of its own if llm_decoder_declare does not serve; spec/arch.c lists the family. To add a family: these two. */
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
/* Where a key comes from, which decides when it is written. */
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

/* One key of GGUF's metadata. In files the architecture's name and a dot precede it ("llama.block_count"). */
enum llm_gguf_key_type {
    LLM_GGUF_KEY_WHOLE, /* int64_t */
    LLM_GGUF_KEY_REAL,  /* double */
    LLM_GGUF_KEY_BOOL,
    LLM_GGUF_KEY_OWN    /* llm_arch.gguf_get and gguf_put read and write it */
};
struct llm_gguf_key {
    const char *key;
    enum llm_gguf_key_type type;
    size_t offset;                 /* in struct llm_config */
    double min, max;
    double absent;                 /* the value if the file has no such key */
};

/* Another beginning of tensors' names in files. */
struct llm_rename { const char *ours, *theirs; };

struct llm_declare;
struct llm_decoder;
struct llm_arch {
    const char *model_type;
    const char *gguf;              /* general.architecture of its GGUF files; NULL: GGUF has no architecture for the family */
    /* Several families share this GGUF architecture name: returns whether the file's metadata describe this one. NULL: this family is the default for
     * the name. */
    bool (*is_gguf)(const struct llm_gguf *g);
    const struct llm_gguf_key *gguf_keys; /* further keys; one that all families have is replaced. Ends with a key of NULL. NULL: none */
    /* Metadata that need more than a row of gguf_keys. gguf_get is called after all rows were read, gguf_put before they are written. NULL: none. */
    int (*gguf_get)(struct llm_config *c, const struct llm_gguf *g, struct llm_err *e);
    void (*gguf_put)(struct llm_gguf_out *o, const struct llm_config *c, bool kv_b_whole); /* kv_b_whole: see model/config/gguf.h */
    const char *gguf_as;           /* if `gguf` is NULL: the model_type of the family that GGUF files present the model as; NULL: none */
    const char *architecture;      /* the class that transformers makes of config.json: "LlamaForCausalLM" */
    const struct llm_config_key *keys; /* ends with a name of NULL */
    const struct llm_other_key *other_keys; /* looked at before those of all families (keys.c). Ends with a name of NULL. NULL: none */
    /* Names of `keys` that transformers' class of the family ignores. They are dropped from files that transformers wrote. Ends with NULL. NULL:
     * none. */
    const char *const *ignored;
    /* Changes a configuration that transformers wrote to what its class of the family makes of it before any other code reads it, or refuses it. 0 or
     * -1. NULL: nothing. */
    int (*of_transformers)(json_t *o, struct llm_err *e);
    /* Objects of config.json whose members are keys as well, named "text_config.hidden_size". Ends with NULL. NULL: none. */
    const char *const *sections;
    void (*defaults)(struct llm_config *c);
    /* Reads the keys of `o` that need more than a row of `keys`, then computes what follows from other keys (head_dim, n_inner). 0 or -1. NULL:
     * nothing. */
    int (*finish)(struct llm_config *c, const json_t *o, struct llm_err *e);
    int (*extra)(const struct llm_config *c, json_t *o); /* writes to `o` the keys that `finish` reads; 0, or -1: out of memory */
    /* Sets what only the tensors of files tell: whether the model has optional parts. NULL: they tell nothing. */
    void (*in_files)(struct llm_config *c, const struct llm_model_files *files);
    /* Sets how values in GGUF files differ from those in other files: converters reorder channels for rotary positions, and add 1 to gains. NULL: not
     * at all. */
    void (*in_gguf)(struct llm_config *c);
    struct llm_names names;
    const struct llm_names *gguf_names; /* NULL: llm_gguf_names */
    const struct llm_names *rwkv_cpp_names; /* in files of rwkv.cpp; NULL: it has no such family */
    const struct llm_rename *renamed; /* other beginnings of names in files, instead of names without the prefix; ends with NULL. NULL: none */
    const char *const *unused;     /* prefixes of names of tensors that files may have and that are ignored; ends with NULL. NULL: none */
    bool transposed;               /* matrices within layers lie [in, out] in files (Conv1D) */
    bool out_bias_apart;           /* attention_bias does not apply to the output projection */
    /* How positions of patches are resampled to the size of pictures that the folder's preprocessor makes: by four neighbours each way, or by an
     * antialiased filter. */
    enum { LLM_FIT_NONE, LLM_FIT_CUBIC, LLM_FIT_ANTIALIASED } fits_positions;
    bool scaled_residual;          /* the initial deviation of residual projections is multiplied by 1/sqrt(2·layers) */
    int (*declare)(struct llm_declare *d, struct llm_decoder *m); /* its parameters (model/spec/block.h) */
    /* Families that are no networks (n-grams): their weights are tables, not parameters, and they have no forward pass. */
    bool tables;
};

/* llm_arch.finish and extra of decoders like Llama: heads, rotary positions, which layers are local. Their rows of keys are in arch/keys.h. */
int llm_decoder_finish(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
int llm_decoder_extra(const struct llm_config *c, json_t *o);
/* llm_arch.defaults of Llama; families that derive from Llama call it and change some of them. */
void llm_llama_defaults(struct llm_config *c);
/* llm_arch.in_gguf of Llama: in GGUF files rows of q and k are ordered so that adjacent channels rotate together. */
void llm_llama_in_gguf(struct llm_config *c);
extern const struct llm_names llm_gguf_names;
/* Of a vision tower and its projector in mmproj files. */
const struct llm_names *llm_gguf_vision_names(const struct llm_config *c);

/* What a key of config.json means to a family (keys.c). */
enum llm_key_use {
    LLM_KEY_UNKNOWN,
    LLM_KEY_KNOWN,    /* it may change what the configuration says */
    LLM_KEY_HARMLESS  /* with this value it changes nothing */
};
/* `foreign`: the key is in a file that transformers wrote (llm_config_is_foreign). */
enum llm_key_use llm_config_key_use(const struct llm_arch *arch, const char *name, const json_t *value, bool foreign);
/* Whether transformers' class of the family ignores a key that has a row here (llm_arch.ignored). */
bool llm_config_ignores(const struct llm_arch *arch, const char *name);
/* Whether transformers wrote the configuration: it then has its version. */
bool llm_config_is_foreign(const json_t *o);
/* Checks that every key is known or harmless. Else -1 (EX_DATAERR); after llm_config_force(true) one line on standard error names the key, and the
 * result is 0. */
int llm_config_check_keys(const struct llm_arch *arch, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* The rows of keys that all families have; ends with a name of NULL. */
extern const struct llm_config_key llm_config_common_keys[];
/* Whether a table's row reads the key: the family's, or one of all families. */
bool llm_config_has_row(const struct llm_arch *arch, const char *name);

/* Reads the classes of a classifier: "id2label" or "num_labels". 0 or -1. */
int llm_config_read_labels(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
/* The family's defaults, before any key is read. */
struct llm_config llm_config_blank(const struct llm_arch *arch);
/* Computes what follows from the keys that were read and checks that all values fit together. `o`: the object of further keys that llm_arch.finish
 * reads, empty for GGUF files. 0 or -1. */
int llm_config_finish(struct llm_config *c, const json_t *o, struct llm_err *e) LLM_MUST_CHECK;
extern const struct llm_arch *const llm_archs[]; /* NULL-terminated */
const struct llm_arch *llm_arch_find(const char *model_type);

#endif
