/* Checksums of a tensor message (formats/kv.md): metadata "llm.checksums" is a JSON object that holds the XXH64 of each tensor's bytes and of each
 * metadata value whose key begins with "llm.", apart from llm.kind, llm.tensors (both are checked by their meaning) and itself. */
#ifndef LLM_IO_CHECKSUMS_H
#define LLM_IO_CHECKSUMS_H

#include "io/message.h"

#define LLM_META_CHECKSUMS "llm.checksums"

/* Checks a message while its data passes. Zero-initialise. */
struct llm_checksums {
    json_t *said;               /* NULL: the message has none, and nothing is checked */
    const struct llm_header *h; /* borrowed */
    size_t at;                  /* the tensor whose bytes come next */
    uint64_t left;              /* bytes of that tensor that have not been fed yet */
    struct llm_xxh *hash;       /* XXH64 of its bytes so far */
};
/* Begins a new message and checks its metadata. -1: a checksum is wrong or missing, or names something that the message does not have. */
int llm_checksums_begin(struct llm_checksums *c, const struct llm_header *h, struct llm_err *e) LLM_MUST_CHECK;
/* The next n bytes of data. -1: a tensor is complete and its checksum wrong. */
int llm_checksums_feed(struct llm_checksums *c, const void *p, size_t n, struct llm_err *e) LLM_MUST_CHECK;
void llm_checksums_release(struct llm_checksums *c);

/* Adds the checksums of all tensors and of what `meta` holds to `meta`; nothing may be added to it afterwards. */
int llm_checksums_add(json_t *meta, const struct llm_tensor_out *t, size_t n, struct llm_err *e) LLM_MUST_CHECK;

#endif
