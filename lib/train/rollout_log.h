/* The log of a run of reinforcement: JSON Lines of completions with their rewards, each with "iteration" (train/teach.h). */
#ifndef LLM_TRAIN_ROLLOUT_LOG_H
#define LLM_TRAIN_ROLLOUT_LOG_H

#include "base/json.h"

struct llm_rollout_log {
    const char *path;           /* NULL: there is no log */
    int fd;
    struct llm_buf text;
    json_t **v;                 /* lines of iterations that are still to be learned, in the order of iterations; owned, NULL once taken */
    size_t n, room, first;      /* `first`: those before it are taken */
    int64_t done;               /* iterations that the weights have seen */
    int64_t last, step;         /* iteration of the last line read; step of the weights */
    int64_t behind;             /* steps that the weights which sampled an iteration after the first are behind those that learn from it */
};
/* Opens or makes the file, and reads what iterations after training step `step` need. `path` NULL: a log without lines, which takes none. A log
 * that is damaged before its last line: EX_DATAERR. A log that another run writes: EX_CANTCREAT. Zero-initialise; release either way. */
int llm_rollout_log_open(struct llm_rollout_log *l, const char *path, int64_t step, int64_t behind, struct llm_err *e) LLM_MUST_CHECK;
/* Takes the line of this completion, of the first iteration that has lines left, out of those read. The caller owns it; NULL: there is none. */
json_t *llm_rollout_log_take(struct llm_rollout_log *l, int64_t iteration, int64_t group, int64_t sample);
/* Appends a line in one write. */
int llm_rollout_log_add(struct llm_rollout_log *l, const json_t *line, struct llm_err *e) LLM_MUST_CHECK;
/* Pushes what was written to the disk. */
int llm_rollout_log_sync(struct llm_rollout_log *l, struct llm_err *e) LLM_MUST_CHECK;
void llm_rollout_log_release(struct llm_rollout_log *l);

#endif
