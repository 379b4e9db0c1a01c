/* Where a run that is resumed goes on in its log (JSON Lines, a line or two for each step, most with the hash of the parameters after it). */
#ifndef LLM_TRAIN_LOG_PLACE_H
#define LLM_TRAIN_LOG_PLACE_H

#include <stdint.h>
#include "base/json.h"

struct llm_log_place {
    int64_t end;     /* bytes of the lines up to and of the step; what follows is of steps that will be taken again */
    int64_t late_at; /* where the step's line begins if it has no evaluation; -1 */
    json_t *late;    /* that line, the caller's to release; NULL */
};
/* Finds the place after `step`, whose line must have `hash`, if it has one. A log that begins with the step after it, or is empty, is continued from
 * its beginning. -1: the log is of another run, or no log (65); `place` needs no release then. Memory: one line. */
int llm_log_find(const char *path, int64_t step, uint64_t hash, struct llm_log_place *place, struct llm_err *e) LLM_MUST_CHECK;

#endif
