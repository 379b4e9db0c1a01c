/* A checkpoint that all ranks write together (io/zstd_frames.h): each makes frames of what it has, and writes them into the one file. Of a tensor
 * that the ranks have in parts (train/share.h), the rank that owns most of a frame makes it, and gets the rest from its owners. A rank that does not
 * see the file's folder, as on a machine with a disk of its own, sends its frames to rank 0. */
#ifndef LLM_TRAIN_TOGETHER_H
#define LLM_TRAIN_TOGETHER_H

#include "io/checkpoint.h"
#include "train/share.h"

/* Where bytes of a file belong that a rank keeps one after another. */
struct llm_extents { struct llm_extent { uint64_t at, bytes; } *v; size_t n, room; };

struct llm_together {
    struct llm_share *share;        /* borrowed */
    struct llm_model *model;        /* borrowed; what is not among the tensors below is its */
    struct llm_held {
        const char *name;           /* borrowed */
        size_t param;               /* the parameter whose shape it has */
        int maker;                  /* the rank that has all of it; -1: each rank has the elements that it owns */
        const float *own;           /* what this rank has of it; borrowed */
        const struct llm_slices *slices; /* the tensor is cut: its slices are those of parameters param, param + 1, …; NULL: it is not */
        const float **slice;        /* [slices->n] what this rank has of each; owned, the pointers are borrowed */
    } *v;                           /* the same on all ranks */
    size_t n, room;
    struct llm_frame_team team;     /* of llm_checkpoint_options; its `arg` is this struct */
    int *writers;                   /* [ranks] */
    struct llm_extents *extents;  /* of llm_together_apart */
    struct llm_brought { const char *name; uint64_t from; unsigned char *p; } *brought; /* frames of a batch that more than one rank owns */
    size_t n_brought, brought_room;
    struct llm_transfer *transfers;
    size_t n_transfers, transfers_room;
};

/* A tensor of F32 that has the shape of parameter number `param`: this rank has `own` of it, and the others have the rest; if shard >= 0, the rank
 * that has the shard has all of it. Before llm_together_open. */
int llm_together_add(struct llm_together *w, const char *name, size_t param, int64_t shard, const float *own, struct llm_err *e) LLM_MUST_CHECK;
/* A tensor that is cut as parameter number `param`, the first of its slices, is: slice[j], what this rank has of slice j, is copied. */
int llm_together_add_slices(struct llm_together *w, const char *name, size_t param, const float *const *slice, struct llm_err *e) LLM_MUST_CHECK;
/* Rank 0 opens the file, and those that see it join it: collective. NULL in *o: this rank does not write. 0 or -1. */
int llm_together_open(struct llm_together *w, const char *path, struct llm_output **o, struct llm_err *e) LLM_MUST_CHECK;
/* In place of llm_together_open: each rank writes its frames into an output of its own, one after another, and notes in *extents, which it frees,
 * where they belong. Collective. 0 or -1. */
int llm_together_apart(struct llm_together *w, struct llm_extents *extents, struct llm_err *e) LLM_MUST_CHECK;
/* The outputs that llm_together_open has opened take their place, unless `got` is -1 on some rank: collective. Frees `o`. 0 or -1. */
int llm_together_commit(struct llm_together *w, struct llm_output *o, int got, struct llm_err *e) LLM_MUST_CHECK;
/* llm_checkpoint_options.give; arg: the struct llm_together. */
void llm_together_give(void *arg, const char *name, uint64_t from, size_t n, void *out);
void llm_together_release(struct llm_together *w);

#endif
