/* Signals. Programs that can save what they have finish the current step after SIGINT, SIGTERM or SIGHUP, save, and then die by that signal; the
 * others die at once, and their temporary files are unlinked. */
#ifndef LLM_BASE_SIGNALS_H
#define LLM_BASE_SIGNALS_H

#include <stdbool.h>

/* First thing in main: fills closed descriptors 0-2 with /dev/null, ignores SIGXFSZ (a write then fails with EFBIG). */
void llm_start(void);
/* Freed memory of some size goes back to the system at once (some allocators keep it): for programs that go on long after they have loaded. */
void llm_free_at_once(void);
/* SIGINT, SIGTERM, SIGHUP set a flag instead of killing; a second one kills at once. Without this call, llm_start's handlers unlink
 * the temporary files that are registered (llm_signal_unlink_add) and the process dies. */
void llm_signals_catch(void);
/* The signal caught so far, or 0. Cheap: look at it between steps or tokens. */
int llm_signal_caught(void);
/* Takes back `signal_number` where it was the one caught: the program goes on. Whether it was. */
bool llm_signal_take(int signal_number);
/* Restores the default action and raises the signal again, so that the shell sees a death by signal. Does nothing if none. */
void llm_signal_die(void);
/* Registers a temporary file (io/output.h does so for its own), to be unlinked when a signal kills the process (async-signal-safe).
 * Returns a slot, or -1 when all are taken. */
int llm_signal_unlink_add(const char *path);
void llm_signal_unlink_drop(int slot);
/* Removes all of them now, for a handler that ends the process. */
void llm_signal_unlink_all(void);

#endif
