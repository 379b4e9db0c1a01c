/* Tensor messages and streams of them (formats/tensor-message.md): one safetensors document whose __metadata__ says what it is. */
#ifndef LLM_IO_MESSAGE_H
#define LLM_IO_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/json.h"
#include "cpu/dtype.h"
#include "io/file.h"
#include "io/output.h"

#define LLM_MAX_DIMS 8
#define LLM_MAX_HEADER 100000000

/* One tensor as a header describes it. */
struct llm_entry {
    const char *name;
    enum llm_dtype dtype;         /* true dtype: Q8_0 even though the file says U8 (from llm.tensors) */
    int n_dims;
    int64_t shape[LLM_MAX_DIMS];  /* true shape */
    uint64_t offset, bytes;       /* within the message's data, as stored */
    int planes;                   /* 1: stored as split byte planes (checkpoints only) */
    const void *source;           /* writing: the tensor's bytes, borrowed; NULL when read */
};

/* A message's header: entries sorted by offset, metadata as a JSON object of strings. */
struct llm_header {
    const char *kind;             /* "tokens", …; NULL for other people's files */
    json_t *metadata;             /* object of strings; never NULL; owned */
    struct llm_entry *entries;    /* names owned by the header */
    const struct llm_entry **by_name; /* pointers to the entries, sorted by name */
    size_t n_entries;
    uint64_t header_bytes;        /* 8 + JSON length */
    uint64_t data_bytes;
};
void llm_header_release(struct llm_header *h);
/* Parses and checks `n` bytes of header JSON: names unique, dtypes known, offsets contiguous from 0, size = shape × dtype, products
 * checked. `where` names the file in errors. */
int llm_header_parse(struct llm_header *h, const char *json, size_t n, const char *where, struct llm_err *e) LLM_MUST_CHECK;
const struct llm_entry *llm_header_find(const struct llm_header *h, const char *name);
/* metadata string or NULL */
const char *llm_header_meta(const struct llm_header *h, const char *key);

/* ---- reading ---- */
/* Whether messages of the kind have the form of a checkpoint (io/checkpoint.h): "checkpoint", "adapter", "lens", "dictionary". */
bool llm_kind_is_checkpoint(const char *kind);

struct llm_stream; /* opaque; one thread at a time */
/* Opens `path` ("-": stdin). NULL: see `e`. The caller destroys it. */
struct llm_stream *llm_stream_create(const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* As llm_stream_create, from an open file, which may have been peeked. The stream takes it over. */
struct llm_stream *llm_stream_from_file(struct llm_file *f, struct llm_err *e) LLM_MUST_CHECK;
/* 1: *h is the next message's header, the stream's own until the next call; data not read is skipped. `end` messages are checked
 * (count, XXH64) and not shown. 0: the stream ended properly. -1: `e`. A multi kind without its `end` is an error. */
int llm_stream_next(struct llm_stream *s, const struct llm_header **h, struct llm_err *e) LLM_MUST_CHECK;
/* The next `n` bytes of the current message's data, in order. */
int llm_stream_read(struct llm_stream *s, void *p, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Appends the next `n` bytes of the current message's data to *p, which holds `have` bytes and grows as bytes come. *p is the caller's to free, also
 * after -1. `what` names it when memory runs out. */
int llm_stream_append(struct llm_stream *s, void **p, uint64_t have, uint64_t n, const char *what, struct llm_err *e) LLM_MUST_CHECK;
/* Passes over the next `n` bytes of the current message's data. */
int llm_stream_skip(struct llm_stream *s, uint64_t n, struct llm_err *e) LLM_MUST_CHECK;
const char *llm_stream_name(const struct llm_stream *s);
uint64_t llm_stream_offset(const struct llm_stream *s);
void llm_stream_destroy(struct llm_stream *s);

/* Reads the 8-byte length and the JSON of one message into `json` (8 bytes, then the text) and parses them into *h. */
int llm_read_header(struct llm_file *f, struct llm_buf *json, struct llm_header *h, struct llm_err *e) LLM_MUST_CHECK;

/* ---- writing ---- */
struct llm_tensor_out {           /* a tensor to write */
    const char *name;
    enum llm_dtype dtype;
    int n_dims;
    int64_t shape[LLM_MAX_DIMS];
    const void *data;             /* contiguous; NULL (checkpoints only): llm_checkpoint_options.give writes it */
};
struct llm_writer; /* opaque: counts and hashes what it wrote, for the `end` message */
struct llm_writer *llm_writer_create(struct llm_output *o, struct llm_err *e) LLM_MUST_CHECK; /* borrows `o` */
/* Writes one message: tensors in canonical order (element size descending, then name). `meta`: an object of strings or NULL, borrowed. */
int llm_writer_message(struct llm_writer *w, const char *kind, const json_t *meta, const struct llm_tensor_out *t, size_t n,
                       struct llm_err *e) LLM_MUST_CHECK;
/* Closes a multi stream with its `end` message. */
int llm_writer_end(struct llm_writer *w, struct llm_err *e) LLM_MUST_CHECK;
void llm_writer_destroy(struct llm_writer *w);
/* Makes the header JSON alone, padded so that data starts on a multiple of 64 (8-byte length not included). For checkpoints. */
int llm_header_build(const char *kind, const json_t *meta, const struct llm_entry *entries, size_t n, struct llm_buf *out,
                     struct llm_err *e) LLM_MUST_CHECK;
/* Puts `n` tensors into canonical order with their offsets; `planes`: float tensors will be split. entries: room for n; names borrowed. */
int llm_layout(const struct llm_tensor_out *t, size_t n, bool planes, struct llm_entry *entries, struct llm_err *e) LLM_MUST_CHECK;

#endif
