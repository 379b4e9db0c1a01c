/* Results of quantisation, matrices that were decompressed or rotated, or sums of a calibration, in an unlinked temporary file (in TMPDIR, else
 * /tmp), so that they take no memory until they are read. */
#ifndef LLM_QUANT_SPOOL_H
#define LLM_QUANT_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "model/model.h"

/* Zero-initialise; release after the last use of what was put. */
struct llm_quant_spool {
    int fd;                        /* -1 after a failure; used once `open` is set */
    bool open;
    uint64_t size;                 /* of the file */
    struct llm_spooled { void *p; size_t bytes; } *v; /* [n] mapped pieces */
    size_t n, room;
};
/* Copies `bytes` bytes, at least LLM_SPOOL_LEAST, to the file and returns a mapping of them, [p, p + bytes rounded up to pages), that may be written
 * to. NULL: they are too few, or the file cannot be made or is full; they then stay where they are. */
void *llm_quant_spool_put(struct llm_quant_spool *s, const void *data, size_t bytes);
/* The bytes of the mapping p, if llm_quant_spool_put returned it; else 0. */
size_t llm_quant_spool_bytes(const struct llm_quant_spool *s, const void *p);
/* Moves the data of a parameter, if they are in memory of their own and as many, to the file. spool: NULL: they stay. */
void llm_quant_spool_param(struct llm_quant_spool *s, struct llm_param *p);
void llm_quant_spool_release(struct llm_quant_spool *s);
#define LLM_SPOOL_LEAST ((size_t)1 << 18)

#endif
