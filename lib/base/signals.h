/* Signals. Programs that can save what they have finish the current step after SIGINT, SIGTERM, SIGHUP or SIGUSR1
 * (a scheduler's warning), save, and then die by that signal; the others die at once, and their temporary files are unlinked. */
#ifndef LLM_BASE_SIGNALS_H
#define LLM_BASE_SIGNALS_H

#include <stdbool.h>

/* First thing in main: fills closed descriptors 0-2 with /dev/null, ignores SIGXFSZ (a write then fails with EFBIG). */
void llm_start(void);
/* Makes free() release blocks of 128 KiB and more to the operating system at once: for programs that run long after they have loaded a model, or
 * whose memory is planned. The system's pages are cleared one by one: what allocates such blocks often becomes slower. */
void llm_free_at_once(void);
/* SIGINT, SIGTERM, SIGHUP, SIGUSR1 set a flag instead of killing; a second one kills at once. Without this call, llm_start's handlers unlink
 * the temporary files that are registered (llm_signal_unlink_add) and the process dies. */
void llm_signals_catch(void);
/* The signal caught so far, or 0. Cheap: look at it between steps or tokens. */
int llm_signal_caught(void);
/* Waits until `fd` can be read (or is at its end). 0; -1 with errno EINTR once a signal is caught, also one that comes just before the wait:
 * a read() would sleep through it. */
int llm_signal_wait_input(int fd);
/* While they are held, llm_signal_caught returns 0: work that must not be left half done is finished first. A second signal still kills. */
void llm_signals_hold(bool hold);
/* If `signal_number` is the signal caught, resets the flag, so that the program continues. Returns whether it was. */
bool llm_signal_take(int signal_number);
/* If a signal was caught, restores its default action and raises it again, so that the shell sees a death by signal. */
void llm_signal_die(void);
/* Registers a temporary file (io/output.h does so for its own), to be unlinked when a signal kills the process (async-signal-safe).
 * Returns a slot, or -1 when all are taken. */
int llm_signal_unlink_add(const char *path);
void llm_signal_unlink_drop(int slot);
/* Unlinks all registered files now, for a handler that ends the process. */
void llm_signal_unlink_all(void);

#endif
