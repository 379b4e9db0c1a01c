/* Snapshots: the checkpoint of a step in parts, which the ranks keep in memory of their machines, in files of a folder (--snapshot, such as
 * /dev/shm). A part is the frames that a rank makes of the checkpoint (train/together.h), and where in the file they belong. If ranks have different
 * folders, as on several machines, each part has a copy in another folder, so that one machine may be lost. A run that goes on first completes its
 * checkpoint with the newest step of which all parts are found, by whatever rank. It is then loaded as always, so that any number of ranks goes on
 * with the same bits.
 *
 * The files of a run are called llm-snapshot-RUN-LAUNCH-STEP-PART-PARTS. RUN is the hash of the checkpoint's path. Those of older steps, and those
 * that an earlier launch left, are removed. Those of other runs are not touched. */
#ifndef LLM_TRAIN_SNAPSHOT_H
#define LLM_TRAIN_SNAPSHOT_H

#include "train/trainer.h"

struct llm_snapshots {
    struct llm_comm *comm;      /* borrowed, as the folder; NULL: one rank */
    const char *folder;
    int64_t every;              /* steps from one snapshot to the next */
    uint64_t run, launch;       /* launch: parts of one snapshot are of one launch */
    int64_t step;               /* of the newest snapshot; -1: none */
    int *copied_to;             /* [ranks] which rank keeps a copy of each part; -1: none */
    int n_sharing;              /* ranks that keep their parts in the same folder as this one */
};

/* Before the run of the checkpoint `path` is loaded: if a snapshot of a later step is whole, the checkpoint becomes that. Removes the run's other
 * snapshots. Collective. 0 or -1. */
int llm_snapshots_recover(struct llm_comm *c, const char *folder, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Finds out who shares a folder, removes the run's snapshots, and fails if the folder has no room for two of them. Collective. Release either way. */
int llm_snapshots_begin(struct llm_snapshots *s, struct llm_trainer *t, const char *folder, int64_t every, const char *path, struct llm_err *e)
    LLM_MUST_CHECK;
/* Keeps the step that the run has done; the snapshot before it is removed when all ranks have the new one. Collective. 0 or -1. */
int llm_snapshots_take(struct llm_snapshots *s, struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* The run was saved: the newest snapshot is no longer needed. */
void llm_snapshots_remove(struct llm_snapshots *s);
void llm_snapshots_release(struct llm_snapshots *s);

#endif
