/* Frames of a `.llm` (formats/checkpoint.md): the naming frame, zstd frames of at most 4 MiB each made and undone in one shot, the seek table; and the
 * byte planes inside them. */
#ifndef LLM_IO_ZSTD_FRAMES_H
#define LLM_IO_ZSTD_FRAMES_H

#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "cpu/dtype.h"

#define LLM_FRAME_CONTENT ((size_t)4 << 20) /* most content of a frame */
#define LLM_NAMING_FRAME 32                 /* bytes of the naming frame */

/* The naming frame, which begins every `.llm`. */
extern const unsigned char llm_naming_frame[LLM_NAMING_FRAME];
/* Whether the `n` bytes begin with one. -1: they do, but it says something this version does not know (see `e`). */
int llm_naming_frame_check(const unsigned char *p, size_t n, const char *where, struct llm_err *e) LLM_MUST_CHECK;

/* Where each frame lies. The naming frame is number 0, with no content. */
struct llm_frames {
    uint32_t *compressed, *content; /* bytes of each */
    size_t n, room;
    uint64_t *at, *from;            /* prefix sums, n + 1 each: llm_frames_index makes them; else NULL */
};
int llm_frames_add(struct llm_frames *f, uint64_t compressed, uint64_t content, struct llm_err *e) LLM_MUST_CHECK;
int llm_frames_index(struct llm_frames *f, struct llm_err *e) LLM_MUST_CHECK;
void llm_frames_release(struct llm_frames *f);
/* The frame that begins with content byte `from`; n when none does. Empty frames are passed over. */
size_t llm_frames_find(const struct llm_frames *f, uint64_t from);

/* The seek table as bytes. */
int llm_seek_table_put(const struct llm_frames *f, struct llm_buf *out, struct llm_err *e) LLM_MUST_CHECK;
/* Reads the table at the end of a whole file of `n` bytes and checks it against that length: fills and indexes *f. */
int llm_seek_table_get(struct llm_frames *f, const unsigned char *file, uint64_t n, const char *where, struct llm_err *e) LLM_MUST_CHECK;
/* Checks a table's own bytes (all of its frame) against the frames that really came. */
int llm_seek_table_check(const struct llm_frames *f, const unsigned char *table, size_t n, const char *where, struct llm_err *e) LLM_MUST_CHECK;

/* How content is compressed. */
enum llm_frame_coding { LLM_FRAME_BYTES, LLM_FRAME_PLANES };
/* Most bytes that a frame of n content bytes takes. */
size_t llm_frame_bound(size_t n);
/* One frame, with content size and checksum. level 0: the fast default. Returns its bytes, or 0 and `e`. */
size_t llm_frame_compress(void *out, size_t room, const void *content, size_t n, enum llm_frame_coding coding, int level, struct llm_err *e)
    LLM_MUST_CHECK;
/* Undoes one frame, which must hold exactly n bytes. */
int llm_frame_decompress(void *content, size_t n, const void *frame, size_t frame_bytes, struct llm_err *e) LLM_MUST_CHECK;

/* n bytes of numbers `width` wide (2, 4 or 8; n a multiple): each rotated left by one bit, so that its sign becomes the lowest, then the most
 * significant byte of all, the next of all, … And back. */
void llm_planes_split(const void *numbers, void *planes, size_t n, int width);
void llm_planes_join(const void *planes, void *numbers, size_t n, int width);

#endif
