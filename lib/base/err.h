/* Errors are values. A function that can fail takes a `struct llm_err *`, returns -1 or NULL, and has then filled it
 * with one line for a person and the exit status that fits. Only bin/ exits. Each level may add what it knows. */
#ifndef LLM_BASE_ERR_H
#define LLM_BASE_ERR_H

#include <stdarg.h>
#include <sysexits.h> /* EX_DATAERR 65, EX_NOINPUT 66, EX_UNAVAILABLE 69, EX_CANTCREAT 73, EX_IOERR 74 */

#define LLM_EX_FAILURE 1 /* failure at run time */
#define LLM_EX_USAGE 2   /* wrong command line */

#define LLM_MUST_CHECK __attribute__((warn_unused_result))
#define LLM_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

struct llm_err {
    int status;     /* exit status; 0: no error */
    char text[1000]; /* one line, without the program's name */
};

/* Fills `e` (which may be NULL) and returns -1, so that a caller writes `return llm_fail(e, EX_DATAERR, "…", …)`. */
int llm_fail(struct llm_err *e, int status, const char *fmt, ...) LLM_PRINTF(3, 4);
/* As llm_fail, with ": " and strerror(errno) added. */
int llm_fail_errno(struct llm_err *e, int status, const char *fmt, ...) LLM_PRINTF(3, 4);
/* One level up: puts "context: " before the text. Returns -1. */
int llm_in(struct llm_err *e, const char *fmt, ...) LLM_PRINTF(2, 3);
/* Out of memory while making `what` ("tensor 'x'"): status EX_UNAVAILABLE. Returns -1. */
int llm_no_memory(struct llm_err *e, const char *what);
/* Writes "program: text" to stderr in one write and returns the exit status. Control characters and bytes that are not UTF-8 (in file names) are
 * escaped as llm_utf8_escape does. */
int llm_report(const struct llm_err *e);

/* The program's name in messages; llm_cli_parse sets it. */
extern const char *llm_program;

#endif
