/* A model's adapters (LoRA, Hu et al. 2021): low-rank pairs at some of its matrices, trained while the model itself stays as it is stored, and kept
 * in files of their own (formats/adapter.md; PEFT's folders, llama.cpp's GGUF). A model may have several. */
#ifndef LLM_MODEL_WEIGHTS_LORA_H
#define LLM_MODEL_WEIGHTS_LORA_H

#include "base/pattern.h"
#include "model/weights/model.h"

#define LLM_LORA_MAX_RANK 65536
#define LLM_LORA_NAME 176
#define LLM_META_ADAPTER "llm.adapter"             /* the text of PEFT's adapter_config.json */
#define LLM_META_BASE_FINGERPRINT "llm.base_fingerprint"
#define LLM_META_MODEL_DROPOUT "llm.model_dropout" /* of the base while the adapter is trained, if it is not the base's own */

/* The pair of one matrix of the model. */
struct llm_lora_pair {
    struct llm_param *param;       /* the model's matrix [n, k] */
    struct llm_param a, b;         /* [rank, k], [n, rank]; F32, owned */
    double alpha;                  /* its own; 0: the adapter's */
    struct llm_param magnitude;    /* [n], F32, owned; without data unless llm_lora.dora */
    float *norm;                   /* [n], owned; NULL without magnitude */
    struct llm_adapter op;         /* what products with the matrix read; linked into param->adapter */
    char names[3][LLM_LORA_NAME];  /* of a, b and magnitude, as PEFT names them */
};

struct llm_lora {
    struct llm_lora *next;         /* of the same model */
    int id;                        /* 0, 1, … in the order of the model's list */
    char *path;                    /* as it was given, for messages; NULL: the adapter is new. Owned */
    char *base_path;               /* owned; NULL: not known */
    char base_fingerprint[17];     /* ""; or the fingerprint of the model that it was made for */
    int64_t rank;                  /* the highest of its pairs */
    double alpha;
    json_t *alphas;                /* PEFT's alpha_pattern while it is read: module's pattern → alpha of its pair; owned; NULL: none */
    bool rslora;                   /* scale alpha / √rank in place of alpha / rank */
    bool dora;                     /* its pairs have magnitudes (DoRA, Liu et al. 2024) */
    double dropout;                /* in training, of the inputs of a */
    double model_dropout;          /* in training, of the model's own dropouts; -1: the model's configuration says it */
    float factor;                  /* × the scale of all its pairs, as the user asked */
    struct llm_lora_pair *pairs;   /* [n_pairs], in the model's order; they do not move */
    size_t n_pairs;
    struct llm_param **whole;      /* [n_whole]: parameters of the model that the adapter stores whole */
    size_t n_whole;
    char (*whole_names)[LLM_LORA_NAME]; /* [n_whole] */
    bool has_chat;                 /* its file has a chat template, which the model has taken */
    json_t *training;              /* the state of a run, or NULL; owned */
    struct llm_checkpoint *file;   /* that it was read from, while a run may still read its moments; owned; NULL */
    void **staging;                /* [n_staging] data that the last description made; owned */
    size_t n_staging;
};

/* A new adapter. */
struct llm_lora_options {
    int64_t rank;
    double alpha, dropout, model_dropout;
    bool rslora, dora;
    struct llm_patterns targets;   /* of matrices: names, or their last words ("q_proj"); none: all matrices of layers but routers */
    struct llm_patterns whole;     /* of parameters that are trained and stored whole */
    uint64_t seed;
    const char *base_path;
};
/* Gives `m` a new adapter, m->lora: a is uniform within ±1/√k (kaiming uniform with a = √5, as in PEFT), drawn by Philox; b is 0;
 * magnitudes are the lengths of the matrices' rows. The model's fingerprint becomes known, which reads all weights.
 * Patterns that match nothing are misuse (status 2). 0 or -1. */
int llm_lora_create(struct llm_model *m, const struct llm_lora_options *o, struct llm_err *e) LLM_MUST_CHECK;
/* Given factors of one matrix: b·a is added to it. */
struct llm_lora_factors { size_t param; /* number of the matrix [n, k] */ int64_t rank; float *a, *b; /* [rank, k], [n, rank] */ };
/* Gives `m` a new adapter of scale 1 with these n pairs, whose values are copied; its base's fingerprint and path are not yet known. 0 or -1. */
int llm_lora_from_factors(struct llm_model *m, const struct llm_lora_factors *f, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Gives `m` an adapter with pairs and whole parameters where `of`, a model of more layers, has them in its first adapter. For plans. 0 or -1. */
int llm_lora_mirror(struct llm_model *m, const struct llm_model *of, struct llm_err *e) LLM_MUST_CHECK;
/* Whether `path` holds an adapter: a .llm of kind `adapter`, a folder of PEFT's or a GGUF file of type `adapter`. 1; 0 if
 * it holds something else; -1 if reading it failed (EX_IOERR). */
int llm_lora_is_file(const char *path, struct llm_err *e);
/* Adds the adapter in `path` to the model's list, its scales multiplied by `factor`. It must fit: fingerprint (if the file has one), names, shapes. 0
 * or -1. */
int llm_lora_load(struct llm_model *m, const char *path, float factor, struct llm_err *e) LLM_MUST_CHECK;
/* The adapter of `m`, loaded before, as one that a new run trains: of the base at `base_path`, without the state of its own run. dropout,
 * model_dropout: -1: those of the file. 0 or -1. */
int llm_lora_renew(struct llm_model *m, const char *base_path, double dropout, double model_dropout, struct llm_err *e) LLM_MUST_CHECK;
/* The model that the adapter in `path` names as its base, with the adapter, for --resume: m->training is the adapter's. */
struct llm_model *llm_lora_load_with_base(const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* The path of the base that the adapter in `path` names, malloced. NULL: see `e`. */
char *llm_lora_base_of(const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* "FILE" or "FILE:SCALE". *path: malloced. 0 or -1. */
int llm_lora_parse(const char *text, char **path, float *factor, struct llm_err *e) LLM_MUST_CHECK;
/* Takes all adapters from the model. Parameters that an adapter stored whole keep its values. */
void llm_lora_release(struct llm_model *m);
/* Whether the parameter can have a pair: a matrix that llm_linear, llm_mixture or llm_cross_entropy multiplies. */
bool llm_lora_can_adapt(const struct llm_param_spec *s);
/* Whether the adapter changes nothing yet: all b are 0, and it stores no parameter whole. */
bool llm_lora_is_zero(const struct llm_lora *l);
bool llm_lora_is_whole(const struct llm_lora *l, const struct llm_param *p);
/* The pair of a parameter, or NULL. */
struct llm_lora_pair *llm_lora_pair_of(const struct llm_lora *l, const struct llm_param *p);
/* Elements of a pair, its magnitude included. */
double llm_lora_pair_elements(const struct llm_lora_pair *q);
/* Elements of its pairs, and of what it stores whole. */
double llm_lora_elements(const struct llm_lora *l);

/* Computes the norms of all magnitudes of the model's adapters again: to be called after a, b or the model's matrices have changed. */
void llm_lora_renorm(struct llm_model *m);

/* What a .llm of kind `adapter` stores but for training state: metadata and tensors, in the model's own order of rows. Tensors' data are valid until
 * the next description. 0 or -1. */
int llm_lora_describe(struct llm_lora *l, struct llm_model *m, json_t *meta, struct llm_tensor_list *tensors, struct llm_err *e) LLM_MUST_CHECK;
/* The fingerprint of a model with adapters, from the base's (m->fingerprint): a cache made with an adapter is no cache of the base. */
int llm_lora_fingerprint(struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;

/* Writes the adapter alone: as .llm without training state, as GGUF, as PEFT's folder, which is made unless it exists. type: F32, F16 or BF16. What
 * the format cannot say is EX_UNAVAILABLE. 0 or -1; `o` is not committed. */
int llm_lora_save(struct llm_lora *l, struct llm_model *m, struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK;
int llm_lora_save_gguf(struct llm_lora *l, struct llm_model *m, struct llm_output *o, enum llm_dtype type, struct llm_err *e) LLM_MUST_CHECK;
int llm_lora_save_folder(struct llm_lora *l, const struct llm_model *m, const char *path, enum llm_dtype type, struct llm_err *e) LLM_MUST_CHECK;
/* Whether an adapter's file can have a pair of the parameter: GGUF with these names of the model, or, NULL, PEFT's folder. 0 or -1
 * (EX_UNAVAILABLE). */
struct llm_gguf_names;
int llm_lora_check_param(const struct llm_model *m, const struct llm_param *p, const struct llm_gguf_names *names, struct llm_err *e) LLM_MUST_CHECK;
/* Adds the adapters to the matrices, which become F32, and takes them from the model. was: [n_params], set to the type that each changed parameter
 * had; LLM_NO_DTYPE: it is as it was. 0 or -1. */
int llm_lora_merge(struct llm_model *m, enum llm_dtype *was, struct llm_err *e) LLM_MUST_CHECK;

/* The text of adapter_config.json. NULL: memory is short. */
json_t *llm_lora_config(const struct llm_lora *l, const struct llm_model *m, struct llm_err *e) LLM_MUST_CHECK;

#endif
