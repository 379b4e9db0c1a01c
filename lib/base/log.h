/* Messages for people, to stderr, each in one write. */
#ifndef LLM_BASE_LOG_H
#define LLM_BASE_LOG_H

#include "base/clock.h"
#include "base/err.h"

/* -q: -1 (errors only), default 0, -v: 1. Set by llm_cli_parse. */
extern int llm_verbosity;

/* "program: text" when not quiet. */
void llm_note(const char *fmt, ...) LLM_PRINTF(1, 2);
/* "program: text" with -v. */
void llm_verbose(const char *fmt, ...) LLM_PRINTF(1, 2);
/* "program: warning: text", unless quiet. */
void llm_warn(const char *fmt, ...) LLM_PRINTF(1, 2);

#endif
