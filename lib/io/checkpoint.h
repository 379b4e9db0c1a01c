/* `.llm`: one tensor message of kind `checkpoint` in zstd (formats/checkpoint.md), or of another kind of this form. Knows bytes, not models:
 * lib/model says what the tensors mean. Metadata carries "llm.config" (config.json as text), "llm.training" (state as JSON text), and so on. */
#ifndef LLM_IO_CHECKPOINT_H
#define LLM_IO_CHECKPOINT_H

#include "io/gguf.h"
#include "io/message.h"
#include "io/rwkv_cpp.h"
#include "io/zstd_frames.h"

/* ---- reading: from a file in parallel, one tensor alone, or from a pipe in order; plain safetensors and
 * GGUF and rwkv.cpp too (mapped; from a pipe these two are kept in memory) ---- */
struct llm_checkpoint; /* opaque; of a file, tensors may be read from several threads; of a pipe, from one */
struct llm_checkpoint *llm_checkpoint_open(const char *path, struct llm_err *e) LLM_MUST_CHECK; /* "-": stdin */
struct llm_checkpoint *llm_checkpoint_from_file(struct llm_file *f, struct llm_err *e) LLM_MUST_CHECK; /* takes f over */
const struct llm_header *llm_checkpoint_header(const struct llm_checkpoint *c);
/* The metadata of a GGUF file, alive as long as `c`; NULL for others. */
const struct llm_gguf *llm_checkpoint_gguf(const struct llm_checkpoint *c);
/* What the header of a model of rwkv.cpp says, alive as long as `c`; NULL for others. */
const struct llm_rwkv_cpp *llm_checkpoint_rwkv_cpp(const struct llm_checkpoint *c);
const char *llm_checkpoint_name(const struct llm_checkpoint *c);
/* Decodes tensor `t` (an entry of the header) into `out` (its true bytes: llm_dtype_bytes). Uses all threads of the pool. From a pipe
 * tensors that come before it are kept in memory, and each can be read once; with the last one the end of the input is checked. */
int llm_checkpoint_read(struct llm_checkpoint *c, const struct llm_entry *t, void *out, struct llm_err *e) LLM_MUST_CHECK;
/* Decodes bytes [from, from + n) of tensor `t`. A part of a tensor is possible in files of GGUF and rwkv.cpp only; the whole: as
 * llm_checkpoint_read. */
int llm_checkpoint_read_part(struct llm_checkpoint *c, const struct llm_entry *t, uint64_t from, uint64_t n, void *out, struct llm_err *e)
    LLM_MUST_CHECK;
/* Decodes several tensors at once, which is faster than one by one if they are small. */
struct llm_wanted { const struct llm_entry *entry; void *out; };
int llm_checkpoint_read_many(struct llm_checkpoint *c, const struct llm_wanted *w, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* A pointer to the tensor's bytes in the mapped file; valid as long as `c`. NULL if the file is compressed or a pipe, or if the bytes are not aligned
 * for their dtype. */
const void *llm_checkpoint_borrow(const struct llm_checkpoint *c, const struct llm_entry *t);
/* Whether borrowed tensors lie in a mapping of a file: then their pages can be released at any time, and are read from the file again when needed. */
bool llm_checkpoint_is_mapped(const struct llm_checkpoint *c);
/* The mapping is [*from, *end); NULL: there is none. */
void llm_checkpoint_mapping(const struct llm_checkpoint *c, const char **from, const char **end);
/* Releases all pages of the mapping to the operating system. */
void llm_checkpoint_release_pages(const struct llm_checkpoint *c);
void llm_checkpoint_close(struct llm_checkpoint *c);

/* ---- writing ---- */
struct llm_checkpoint_options {
    const char *kind; /* llm.kind: "adapter", "lens", …; NULL: "checkpoint" */
    bool planes;    /* split float tensors into byte planes (default on) */
    int level;      /* zstd level; 0: the fast default */
    bool plain;     /* write plain safetensors, no zstd */
    /* For tensors without data: writes bytes [from, from + n) of the tensor `name`, which are whole elements, to `out`. Called from several
     * threads. */
    void (*give)(void *arg, const char *name, uint64_t from, size_t n, void *out);
    void *give_arg;
    /* Called once bytes [from, from + n) of the tensor `name` were compressed or written, from several threads. As few frames are in memory at a
     * time then as keep all threads busy. NULL: nobody asks. Not of a team's. */
    void (*written)(void *arg, const char *name, uint64_t from, size_t n);
    void *written_arg;
    /* Of several processes that write the message together, in zstd (io/zstd_frames.h); NULL: one process. Process 0 alone needs `meta`. */
    const struct llm_frame_team *team;
};
/* Writes the whole message; compresses with all threads; the bytes depend neither on their number nor on that of processes. `o` is not committed. */
int llm_checkpoint_write(struct llm_output *o, const json_t *meta, const struct llm_tensor_out *t, size_t n,
                         const struct llm_checkpoint_options *opt, struct llm_err *e) LLM_MUST_CHECK;

#endif
