/* zstd frames of a checkpoint: each compressed in one shot with its checksum, listed in a seekable table at the end of the file
 * (zstd's contrib/seekable_format specification). Bytes only: checkpoint.c knows what they mean. */
#ifndef LLM_IO_ZSTD_FRAMES_H
#define LLM_IO_ZSTD_FRAMES_H

#include <stdbool.h>
#include <stdint.h>
#include "io/file.h"
#include "io/output.h"

#define LLM_SKIPPABLE_NAME 0x184D2A50u  /* first frame: names the file */
#define LLM_SKIPPABLE_SEEK 0x184D2A5Eu  /* last frame: the seekable table */
#define LLM_SEEK_MAGIC 0x8F92EAB1u
#define LLM_CHECKPOINT_NAME "llmutils checkpoint 1\n"

struct llm_frame { uint64_t offset; uint32_t packed, bytes; }; /* in the file; compressed and raw size */

/* ---- writing ---- */
struct llm_frame_writer; /* opaque: the output, the table so far */
struct llm_frame_job {   /* one frame to make */
    const unsigned char *raw; /* its content; NULL: `give` writes it */
    void (*give)(void *arg, const char *name, uint64_t from, size_t n, void *out); /* writes bytes [from, from + n) of tensor `name` to out */
    void *give_arg;
    /* Called by the thread that has compressed bytes [from, from + n) of tensor `name`; NULL: nobody asks. */
    void (*packed)(void *arg, const char *name, uint64_t from, size_t n);
    void *packed_arg;
    const char *name;
    uint64_t from;
    size_t bytes;        /* 1 … LLM_FRAME_BYTES */
    int plane_width;     /* bytes per element (2, 4, 8) if the content is split into byte planes first; 0: it is not */
};
/* Several processes that write one file together. Each makes some of the frames. As soon as all know how long those of a batch have become, each
 * writes its own where they belong, or sends them to process 0 if it cannot write to the file. All processes have the same jobs, in the same order,
 * but only those that can make a frame need its content. Without a failure of messages all processes end at the same batch. */
struct llm_frame_team {
    int rank, n;                /* this process of n */
    size_t limit;               /* frames that a process makes in a batch, at most; the same on all, 1 … LLM_FRAMES_LIMIT */
    const int *writer;          /* [n] who writes the frames that a process makes: itself, or process 0. Process 0 writes its own */
    void *arg;
    /* Which process makes a frame of a tensor; -1: all can. The same on all processes. Frames without a tensor's name are process 0's. */
    int (*maker)(void *arg, const struct llm_frame_job *job);
    /* Before a batch of n jobs is made, whose makers are known: fails on all processes if `got` is -1 on one. Else `give` can make each. */
    int (*begin)(void *arg, int got, const struct llm_frame_job *jobs, const int *makers, size_t n, struct llm_err *e);
    /* sizes [n]: each process has set those of the frames that it has made, and gets the others. */
    int (*tell_sizes)(void *arg, const int *makers, uint32_t *sizes, size_t n, struct llm_err *e);
    /* n bytes of process `from` go to process 0. Only these two call it. */
    int (*pass)(void *arg, int from, void *p, size_t n, struct llm_err *e);
    /* Before this process writes n bytes that belong at byte `at` of the file; NULL: the output is the file (llm_output_seek). */
    int (*place)(void *arg, uint64_t at, uint64_t n, struct llm_err *e);
    /* n bytes of process 0 go to all. */
    int (*tell)(void *arg, void *p, size_t n, struct llm_err *e);
};
enum { LLM_FRAMES_LIMIT = 128 };

/* Writes the naming frame. `o` of a team: NULL if the process does not write. `team` is borrowed; NULL: one process. */
struct llm_frame_writer *llm_frame_writer_create(struct llm_output *o, int level, const struct llm_frame_team *team, struct llm_err *e)
    LLM_MUST_CHECK;
/* One process: as few frames are in memory at once as keep all threads busy, which wait for each other more often. */
void llm_frames_few(struct llm_frame_writer *w);
/* Frames that llm_frames_write has in memory at once, compressed, without llm_frames_few. */
size_t llm_frames_in_memory(void);
/* An estimate of the memory that llm_frames_write takes, of tensors that are added in their order: buffers of compressed frames, each of which keeps
 * the size of its largest one, and those in which threads compress. Zero-initialise. */
struct llm_frames_room { double buffers[LLM_FRAMES_LIMIT], scratch; uint64_t n; };
/* given: llm_frame_job.give makes it */
void llm_frames_room_add(struct llm_frames_room *r, double bytes, bool given);
double llm_frames_memory(const struct llm_frames_room *r);
/* An estimate for one process of a team whose frames are assembled from the shards of several: a batch's shards are gathered before compression, each
 * output buffer keeps the size of its largest frame (`largest` bytes), and one more buffer receives the frames of other processes. */
double llm_frames_memory_joined(double bytes, double n, double largest);
/* Compresses the jobs with all threads and writes them in order. */
int llm_frames_write(struct llm_frame_writer *w, const struct llm_frame_job *jobs, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int llm_frames_finish(struct llm_frame_writer *w, struct llm_err *e) LLM_MUST_CHECK; /* writes the table */
void llm_frame_writer_destroy(struct llm_frame_writer *w);

/* Whether these first bytes are a checkpoint's naming frame, of whatever version (29 bytes are enough). */
bool llm_is_checkpoint(const unsigned char *p, size_t n);

/* ---- reading a mapped file ---- */
/* The table of a whole file: frames with content only. Checked against the file: sizes add up to its length. *frames is malloced. */
int llm_frames_table(const unsigned char *file, uint64_t size, const char *name, struct llm_frame **frames, size_t *n, struct llm_err *e)
    LLM_MUST_CHECK;
/* The memory that one thread needs to decode frames. Its creation is expensive: reuse it. */
struct llm_frame_decoder;
struct llm_frame_decoder *llm_frame_decoder_create(struct llm_err *e) LLM_MUST_CHECK;
void llm_frame_decoder_destroy(struct llm_frame_decoder *d);
/* Decodes one frame, which must give exactly f->bytes, and joins its planes (width 0: it has none) into `out`. */
int llm_frame_decode(struct llm_frame_decoder *d, const unsigned char *file, const struct llm_frame *f, int plane_width, void *out, const char *name,
                     struct llm_err *e) LLM_MUST_CHECK;

/* ---- reading a pipe ---- */
struct llm_unzstd; /* opaque */
struct llm_unzstd *llm_unzstd_create(struct llm_file *f, struct llm_err *e) LLM_MUST_CHECK; /* borrows f */
/* Exactly n bytes of content, or -1. */
int llm_unzstd_read(struct llm_unzstd *z, void *p, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Reads to the end of the input: there may be no more content, and the seekable table must match the frames that were read. */
int llm_unzstd_finish(struct llm_unzstd *z, struct llm_err *e) LLM_MUST_CHECK;
/* The frames read so far; the first is the naming frame. */
const struct llm_frame *llm_unzstd_frames(const struct llm_unzstd *z, size_t *n);
void llm_unzstd_destroy(struct llm_unzstd *z);

#endif
