#include "base/progress.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/log.h"

static char erase[] = "\r\033[K";
static char bar[300]; /* the progress bar on the terminal's last line, as it was written; empty: there is none */
static size_t bar_length;

static void put(const char *bytes, size_t n)
{
    ssize_t ignored = write(STDERR_FILENO, bytes, n); /* if stderr fails there is nowhere to report it */
    (void)ignored;
}

void llm_progress_hide(void)
{
    if (bar_length > 0) put(erase, sizeof erase - 1);
    bar_length = 0;
}

void llm_progress_write(char *line, size_t n)
{
    const struct iovec parts[] = {{erase, bar_length > 0 ? sizeof erase - 1 : 0}, {line, n}, {bar, bar_length}};
    ssize_t ignored = writev(STDERR_FILENO, parts, 3);
    (void)ignored;
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

/* Cuts the bar to the width of the terminal: a line that wraps could not be erased. The bar is ASCII but for the note, whose end may be cut. */
static void fit_terminal(void)
{
    static const char end[] = "\033[K";
    struct winsize w;
    size_t columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
    size_t wanted = bar_length < columns ? bar_length : columns; /* the carriage return and columns - 1 characters */
    while (wanted > 0 && wanted < bar_length && ((unsigned char)bar[wanted] & 0xc0) == 0x80) wanted--;
    if (wanted > sizeof bar - sizeof end) wanted = sizeof bar - sizeof end;
    memcpy(bar + wanted, end, sizeof end);
    bar_length = wanted + sizeof end - 1;
}

void llm_progress_set(struct llm_progress *p, int64_t done, const char *note)
{
    p->done = done;
    if (!p->on) return;
    double now = llm_now(), spent = now - p->started;
    if (now - p->drawn < 0.1) return;
    p->drawn = now;
    double rate = spent > 0 ? (double)done / spent : 0;
    char count[32], speed[32], filled[21], left[32] = "";
    human(count, (double)done, p->unit);
    human(speed, rate, p->unit);
    memset(filled, ' ', 20);
    filled[20] = 0;
    if (p->total > 0) {
        double share = (double)done / (double)p->total;
        memset(filled, '#', (size_t)(20 * (share > 1 ? 1 : share)));
        int64_t s = rate > 0 ? (int64_t)((double)(p->total - done) / rate) : 0;
        snprintf(left, sizeof left, " %d:%02d:%02d left", (int)(s / 3600), (int)(s / 60 % 60), (int)(s % 60));
    }
    int n = snprintf(bar, sizeof bar, "\r%s%s%s%s %s, %s/s%s%s%s", p->label, p->total > 0 ? " [" : "", p->total > 0 ? filled : "",
                     p->total > 0 ? "]" : ":", count, speed, left, note ? ", " : "", note ? note : "");
    bar_length = n < 0 ? 0 : (size_t)n < sizeof bar ? (size_t)n : sizeof bar - 1;
    fit_terminal();
    put(bar, bar_length);
}

void llm_progress_end(struct llm_progress *p)
{
    if (p->on) llm_progress_hide();
    p->on = 0;
}
