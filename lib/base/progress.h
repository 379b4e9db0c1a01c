/* The progress bar. No other file draws or erases it; messages are written through this file, so that they do not break the bar. */
#ifndef LLM_BASE_PROGRESS_H
#define LLM_BASE_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

/* A bar with rate and remaining time. It is drawn on stderr, at most 10 times a second, if stderr is a terminal and -q was not given. There is one
 * bar at a time. A message of base/log.h or of llm_report erases it; a note or a warning then draws it again below. */
struct llm_progress {
    const char *label, *unit; /* "encode", "tokens"; unit "B" prints KiB, MiB */
    int64_t total;            /* 0: unknown */
    int64_t done;
    double started, drawn; /* seconds */
    int on;
};
void llm_progress_start(struct llm_progress *p, const char *label, const char *unit, int64_t total);
/* `note` (may be NULL) stands at the end of the line, e.g. "loss 2.31". */
void llm_progress_set(struct llm_progress *p, int64_t done, const char *note);
void llm_progress_end(struct llm_progress *p); /* erases the bar */
/* Erases the bar that is drawn, if any, before something else writes to the terminal; the next llm_progress_set may draw it again. */
void llm_progress_hide(void);
/* Writes a line of n bytes to stderr in one write. If there is a bar, the line replaces it, and the bar is drawn again below. */
void llm_progress_write(char *line, size_t n);

#endif
