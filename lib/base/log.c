#include "base/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

int llm_verbosity;

static void say(const char *prefix, const char *fmt, va_list args)
{
    char text[1200], line[2 * sizeof text];
    int n = snprintf(line, sizeof line, "%s: %s", llm_program, prefix);
    if (n < 0 || (size_t)n >= sizeof line) return;
    int m = vsnprintf(text, sizeof text, fmt, args);
    if (m < 0) return;
    size_t whole = (size_t)m < sizeof text ? (size_t)m : llm_utf8_complete(text, sizeof text - 1);
    size_t len = (size_t)n + llm_utf8_escape(text, whole, line + n, sizeof line - (size_t)n - 1);
    line[len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, len); /* nowhere left to complain to */
    (void)ignored;
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

double llm_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void llm_progress_start(struct llm_progress *p, const char *label, const char *unit, int64_t total)
{
    *p = (struct llm_progress){.label = label, .unit = unit, .total = total, .started = llm_now()};
    p->on = llm_verbosity >= 0 && isatty(STDERR_FILENO);
}

/* "1.23 M" and the like into text; bytes count in 1024s. */
static void human(char text[32], double v, const char *unit)
{
    bool bytes = strcmp(unit, "B") == 0;
    double base = bytes ? 1024 : 1000;
    static const char *const prefixes[] = {"", "k", "M", "G", "T"};
    int thousands = 0;
    for (; v >= base && thousands < 4; thousands++) v /= base;
    const char *prefix = prefixes[thousands];
    snprintf(text, 32, "%.*f %s%s%s", v < 10 && *prefix ? 2 : v < 100 && *prefix ? 1 : 0, v, prefix, bytes && *prefix ? "i" : "",
             unit);
}

void llm_progress_set(struct llm_progress *p, int64_t done, const char *note)
{
    p->done = done;
    if (!p->on) return;
    double now = llm_now(), spent = now - p->started;
    if (now - p->drawn < 0.1) return;
    p->drawn = now;
    double rate = spent > 0 ? (double)done / spent : 0;
    char count[32], speed[32], bar[21], left[32] = "", line[300];
    human(count, (double)done, p->unit);
    human(speed, rate, p->unit);
    memset(bar, ' ', 20);
    bar[20] = 0;
    if (p->total > 0) {
        double share = (double)done / (double)p->total;
        memset(bar, '#', (size_t)(20 * (share > 1 ? 1 : share)));
        int64_t s = rate > 0 ? (int64_t)((double)(p->total - done) / rate) : 0;
        snprintf(left, sizeof left, " %d:%02d:%02d left", (int)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
    }
    int n = snprintf(line, sizeof line, "\r%s%s%s%s %s, %s/s%s%s%s\033[K", p->label, p->total > 0 ? " [" : "", p->total > 0 ? bar : "",
                     p->total > 0 ? "]" : ":", count, speed, left, note ? ", " : "", note ? note : "");
    if (n < 0) return;
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
    (void)ignored;
}

void llm_progress_end(struct llm_progress *p)
{
    if (!p->on) return;
    ssize_t ignored = write(STDERR_FILENO, "\r\033[K", 4);
    (void)ignored;
    p->on = 0;
}
