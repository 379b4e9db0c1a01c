/* Writing GGUF, version 3, little-endian: metadata is collected in memory; a callback writes the tensors, one after another. */
#ifndef LLM_IO_GGUF_WRITE_H
#define LLM_IO_GGUF_WRITE_H

#include "base/buf.h"
#include "io/gguf.h"

/* Metadata in the making. Zero-initialise it with `err` set. Errors are sticky: checked once, by llm_gguf_header. */
struct llm_gguf_out {
    struct llm_buf values;
    uint64_t n;
    struct llm_err *err;
    bool failed;
};
void llm_gguf_put_u16(struct llm_gguf_out *o, const char *key, uint16_t v);
void llm_gguf_put_u32(struct llm_gguf_out *o, const char *key, uint32_t v);
void llm_gguf_put_i32(struct llm_gguf_out *o, const char *key, int32_t v);
void llm_gguf_put_f32(struct llm_gguf_out *o, const char *key, float v);
void llm_gguf_put_bool(struct llm_gguf_out *o, const char *key, bool v);
void llm_gguf_put_str(struct llm_gguf_out *o, const char *key, const char *s, size_t n);
/* Begins an array; its `n` elements must follow, one by one (llm_gguf_add_*). */
void llm_gguf_put_array(struct llm_gguf_out *o, const char *key, enum llm_gguf_type type, uint64_t n);
void llm_gguf_add_u8(struct llm_gguf_out *o, uint8_t v);
void llm_gguf_add_i32(struct llm_gguf_out *o, int32_t v);
void llm_gguf_add_f32(struct llm_gguf_out *o, float v);
void llm_gguf_add_str(struct llm_gguf_out *o, const char *s, size_t n);
void llm_gguf_out_release(struct llm_gguf_out *o);

/* Appends to `out` everything before the data, padded to LLM_GGUF_ALIGNMENT. `t`: names, types and shapes (C order) of the tensors, in the order of
 * the file; their data are not used. */
#define LLM_GGUF_ALIGNMENT 32
int llm_gguf_header(const struct llm_gguf_out *o, const struct llm_tensor_out *t, size_t n, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
/* The whole file. `put(arg, i, out)` writes exactly the bytes of t[i]. `out` is not committed. */
typedef int (*llm_gguf_put_data)(void *arg, size_t i, struct llm_output *out, struct llm_err *e);
int llm_gguf_write(struct llm_output *out, const struct llm_gguf_out *o, const struct llm_tensor_out *t, size_t n, llm_gguf_put_data put, void *arg,
                   struct llm_err *e) LLM_MUST_CHECK;
/* Writes a model as several files, PREFIX-00001-of-0000N.gguf (PREFIX: `path` without ".gguf"). Each has at least one tensor, at most `max_tensors`
 * tensors and `max_bytes` bytes of data (0: no limit). The first has the metadata. Either all files appear, or none. */
#define LLM_GGUF_MAX_PARTS 1024
int llm_gguf_write_parts(const char *path, int64_t max_bytes, int64_t max_tensors, struct llm_gguf_out *o, const struct llm_tensor_out *t, size_t n,
                         llm_gguf_put_data put, void *arg, struct llm_err *e) LLM_MUST_CHECK;
/* Bytes of a tensor's data in the file, without padding. */
uint64_t llm_gguf_bytes(const struct llm_tensor_out *t);

#endif
