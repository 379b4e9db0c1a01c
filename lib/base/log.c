#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include "base/progress.h"
#include "base/utf8.h"

int llm_verbosity;

static void say(const char *prefix, const char *fmt, va_list args)
{
    char text[1200], line[2 * sizeof text];
    int n = snprintf(line, sizeof line, "%s: %s", llm_program, prefix);
    if (n < 0 || (size_t)n >= sizeof text) return;
    int m = vsnprintf(text, sizeof text, fmt, args);
    if (m < 0) return;
    size_t whole = (size_t)m < sizeof text ? (size_t)m : llm_utf8_complete(text, sizeof text - 1);
    size_t len = (size_t)n + llm_utf8_escape(text, whole, line + n, sizeof line - (size_t)n - 1);
    line[len++] = '\n';
    llm_progress_write(line, len);
}

void llm_note(const char *fmt, ...)
{
    if (llm_verbosity < 0) return;
    va_list args;
    va_start(args, fmt);
    say("", fmt, args);
    va_end(args);
}

void llm_verbose(const char *fmt, ...)
{
    if (llm_verbosity < 1) return;
    va_list args;
    va_start(args, fmt);
    say("", fmt, args);
    va_end(args);
}

void llm_warn(const char *fmt, ...)
{
    if (llm_verbosity < 0) return;
    va_list args;
    va_start(args, fmt);
    say("warning: ", fmt, args);
    va_end(args);
}
