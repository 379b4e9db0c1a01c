/* GGUF (ggml's format, versions 2 and 3, little-endian): typed metadata, then tensors. Nothing is copied but names and keys: values and tensors
 * are read where they lie. */
#ifndef LLM_IO_GGUF_H
#define LLM_IO_GGUF_H

#include "io/message.h"

enum llm_gguf_type { /* numbers of the format */
    LLM_GGUF_U8, LLM_GGUF_I8, LLM_GGUF_U16, LLM_GGUF_I16, LLM_GGUF_U32, LLM_GGUF_I32, LLM_GGUF_F32, LLM_GGUF_BOOL, LLM_GGUF_STRING,
    LLM_GGUF_ARRAY, LLM_GGUF_U64, LLM_GGUF_I64, LLM_GGUF_F64, LLM_GGUF_N_TYPES
};
/* A value of the metadata; an array's elements lie one after another, a string as its length (u64) and bytes. */
struct llm_gguf_value {
    const char *key;            /* owned by the metadata */
    enum llm_gguf_type type;    /* of an array: of its elements; never LLM_GGUF_ARRAY */
    bool is_array;
    uint64_t n;                 /* elements; 1 if it is no array */
    const unsigned char *p;     /* in the file */
    uint64_t bytes;
};
struct llm_gguf {
    struct llm_gguf_value *values; /* sorted by key */
    size_t n;
};

/* Parses and checks a whole file of `n` bytes at `p`, which must outlive `g`. Every length is bounded by the bytes that remain; keys and names are
 * unique, tensors aligned, inside the file, apart from each other. Shapes come out in C order (the last varies fastest); h->header_bytes is where
 * tensor data begins. On failure nothing is left to release. */
int llm_gguf_parse(struct llm_gguf *g, struct llm_header *h, const unsigned char *p, uint64_t n, const char *where, struct llm_err *e) LLM_MUST_CHECK;
void llm_gguf_release(struct llm_gguf *g);

const struct llm_gguf_value *llm_gguf_find(const struct llm_gguf *g, const char *key);
/* The value of a key. 0: *out is set, or unchanged if the key is absent. -1: the value has another type or is out of range. */
int llm_gguf_int(const struct llm_gguf *g, const char *key, int64_t min, int64_t max, int64_t *out, struct llm_err *e) LLM_MUST_CHECK;
int llm_gguf_real(const struct llm_gguf *g, const char *key, double *out, struct llm_err *e) LLM_MUST_CHECK;
int llm_gguf_bool(const struct llm_gguf *g, const char *key, bool *out, struct llm_err *e) LLM_MUST_CHECK;
/* Not NUL-terminated. */
int llm_gguf_str(const struct llm_gguf *g, const char *key, const char **out, size_t *n, struct llm_err *e) LLM_MUST_CHECK;
/* Element `i` of an array of numbers of any type, or a single number (i = 0). */
double llm_gguf_number(const struct llm_gguf_value *v, uint64_t i);
int64_t llm_gguf_whole(const struct llm_gguf_value *v, uint64_t i);
/* Strings of an array in order: *at begins at 0 and moves on. False after the last. */
bool llm_gguf_next(const struct llm_gguf_value *v, uint64_t *at, const char **s, size_t *n);

#endif
