#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/progress.h"

#include "base/utf8.h"

const char *llm_program = "llmutils";

static void put(struct llm_err *e, int status, const char *fmt, va_list args)
{
    e->status = status;
    vsnprintf(e->text, sizeof e->text, fmt, args);
}

int llm_fail(struct llm_err *e, int status, const char *fmt, ...)
{
    if (!e) return -1;
    va_list args;
    va_start(args, fmt);
    put(e, status, fmt, args);
    va_end(args);
    return -1;
}

int llm_fail_errno(struct llm_err *e, int status, const char *fmt, ...)
{
    int saved = errno;
    if (!e) return -1;
    va_list args;
    va_start(args, fmt);
    put(e, status, fmt, args);
    va_end(args);
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n, ": %s", strerror(saved));
    errno = saved;
    return -1;
}

int llm_in(struct llm_err *e, const char *fmt, ...)
{
    if (!e) return -1;
    char context[sizeof e->text], text[sizeof e->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(context, sizeof context, fmt, args);
    va_end(args);
    memcpy(text, e->text, sizeof text);
    size_t n = strlen(context);
    if (n > sizeof e->text / 2) n = sizeof e->text / 2; /* a long context must not push out the reason */
    snprintf(e->text, sizeof e->text, "%.*s: %.*s", (int)n, context, (int)(sizeof e->text - n - 3), text);
    return -1;
}

int llm_no_memory(struct llm_err *e, const char *what)
{
    return llm_fail(e, EX_UNAVAILABLE, "out of memory: %s", what);
}

int llm_report(const struct llm_err *e)
{
    char line[4 * sizeof e->text];
    int n = snprintf(line, sizeof line, "%s: ", llm_program);
    size_t len = n < 0 ? 0 : (size_t)n, text = strlen(e->text);
    if (text + 1 == sizeof e->text) text = llm_utf8_complete(e->text, text); /* cut for lack of room */
    len += llm_utf8_escape(e->text, text, line + len, sizeof line - len - 1);
    line[len++] = '\n';
    llm_progress_hide();
    ssize_t ignored = write(STDERR_FILENO, line, len); /* if stderr fails there is nowhere to report it */
    (void)ignored;
    return e->status ? e->status : LLM_EX_FAILURE;
}
