/* Words for people: everything goes to stderr, each message in one write. */
#ifndef LLM_BASE_LOG_H
#define LLM_BASE_LOG_H

#include <stdint.h>
#include "base/err.h"

/* -q: -1 (errors only), default 0, -v: 1. Set by llm_cli_parse. */
extern int llm_verbosity;

/* "program: text" when not quiet. */
void llm_note(const char *fmt, ...) LLM_PRINTF(1, 2);
/* "program: text" with -v. */
void llm_verbose(const char *fmt, ...) LLM_PRINTF(1, 2);
/* "program: warning: text", unless quiet. */
void llm_warn(const char *fmt, ...) LLM_PRINTF(1, 2);

/* A bar with rate and time left, on stderr, only when that is a terminal and -q was not given; drawn at most 10 times a second. There is one bar at
 * a time. A message of this header or of llm_report erases it; a note or warning then draws it again below. */
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

/* Monotonic seconds. */
double llm_now(void);

#endif
