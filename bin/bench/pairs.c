/* llm-bench speed --against: two sides, each a process of its own, measured in alternation. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/json.h"
#include "base/progress.h"
#include "base/signals.h"
#include "bin/bench/pairs.h"
#include "measure/stats.h"

extern char **environ;

enum { MAX_ROWS = 200, RESAMPLES = 2000 };

/* What a side measures: tokens a second of a test, or seconds of a part. */
struct row { char name[80]; bool seconds; double *v[2]; /* [side][pairs] */ };

struct pairs {
    const struct bench_pairs *p;
    struct row rows[MAX_ROWS];
    size_t n_rows;
    char **argv[2];              /* of the sides; ends with NULL */
};

/* ---- a process ---- */

static int start(char **argv, int out, pid_t *pid, struct llm_err *e)
{
    posix_spawn_file_actions_t files;
    if (posix_spawn_file_actions_init(&files) != 0) return llm_no_memory(e, "a process");
    int got = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    if (got == 0) got = posix_spawn(pid, "/bin/sh", &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    errno = got;
    return got == 0 ? 0 : llm_fail_errno(e, EX_UNAVAILABLE, "/bin/sh");
}

static int read_all(int fd, struct llm_buf *out, struct llm_err *e)
{
    enum { STEP = 4096, MAX = 1 << 24 };
    for (;;) {
        if (llm_buf_reserve(out, out->n + STEP, e) < 0) return -1;
        ssize_t got = read(fd, out->p + out->n, STEP);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return llm_fail_errno(e, EX_IOERR, "a pipe");
        if (got == 0) return 0;
        out->n += (size_t)got;
        if (out->n > MAX) return llm_fail(e, EX_DATAERR, "expected a table of speeds, found more than %d bytes", MAX);
    }
}

static const char *const side_names[] = {"this side", "the side of --against"};

/* Runs a side; what it prints. 0, 1 if it ended by a signal that this process caught too, or -1. */
static int run(const struct pairs *x, int side, struct llm_buf *out, struct llm_err *e)
{
    int ends[2], ended = 0;
    pid_t pid = 0;
    out->n = 0;
    if (pipe(ends) < 0) return llm_fail_errno(e, EX_UNAVAILABLE, "a pipe");
    int status = fcntl(ends[0], F_SETFD, FD_CLOEXEC) < 0 || fcntl(ends[1], F_SETFD, FD_CLOEXEC) < 0 ? llm_fail_errno(e, EX_UNAVAILABLE, "a pipe") : 0;
    if (status == 0) status = start(x->argv[side], ends[1], &pid, e);
    close(ends[1]);
    if (status == 0) status = read_all(ends[0], out, e);
    close(ends[0]);
    while (pid > 0 && waitpid(pid, &ended, 0) < 0 && errno == EINTR) continue;
    if (llm_signal_caught()) return 1;
    if (status < 0) return -1;
    if (WIFSIGNALED(ended)) return llm_fail(e, LLM_EX_FAILURE, "%s: signal %d ended it", side_names[side], WTERMSIG(ended));
    if (WEXITSTATUS(ended) != 0) return llm_fail(e, WEXITSTATUS(ended), "%s: status %d", side_names[side], WEXITSTATUS(ended));
    return 0;
}

/* ---- what it says ---- */

static struct row *row_of(struct pairs *x, const char *name, bool seconds, struct llm_err *e)
{
    size_t i = 0, n = (size_t)x->p->pairs;
    while (i < x->n_rows && (strcmp(x->rows[i].name, name) != 0 || x->rows[i].seconds != seconds)) i++;
    if (i < x->n_rows) return &x->rows[i];
    if (i == MAX_ROWS) {
        llm_fail(e, EX_DATAERR, "expected at most %d tests, found more", MAX_ROWS);
        return NULL;
    }
    struct row *r = &x->rows[i];
    snprintf(r->name, sizeof r->name, "%s", name);
    r->seconds = seconds;
    for (int s = 0; s < 2; s++) {
        if (!(r->v[s] = llm_alloc(n, sizeof *r->v[s], "pairs", e))) return NULL;
        for (size_t k = 0; k < n; k++) r->v[s][k] = (double)NAN;
    }
    x->n_rows++;
    return r;
}

static int take(struct pairs *x, int side, size_t pair, const struct llm_buf *text, struct llm_err *e)
{
    for (size_t at = 0, end; at < text->n; at = end + 1) {
        const char *newline = memchr(text->p + at, '\n', text->n - at);
        end = newline ? (size_t)(newline - text->p) : text->n;
        json_t *line = llm_json_parse(text->p + at, end - at, e);
        if (!line) return llm_in(e, "%s: what it printed", side_names[side]);
        const char *test = json_string_value(json_object_get(line, "test")), *part = json_string_value(json_object_get(line, "part"));
        double v = json_number_value(json_object_get(line, test ? "tokens_per_s" : "seconds"));
        struct row *r = (test || part) && v > 0 ? row_of(x, test ? test : part, !test, e) : NULL;
        bool known = (test || part) && v > 0;
        json_decref(line);
        if (!known) return llm_fail(e, EX_DATAERR, "%s: expected lines of tests with tokens_per_s, or of parts with seconds", side_names[side]);
        if (!r) return -1;
        r->v[side][pair] = v;
    }
    return 0;
}

static int measure(struct pairs *x, struct llm_err *e)
{
    struct llm_buf text = {0};
    struct llm_progress bar;
    int status = 0;
    llm_progress_start(&bar, "speed", "pairs", x->p->pairs);
    for (int64_t pair = 0; pair < x->p->pairs && status == 0; pair++) {
        for (int k = 0; k < 2 && status == 0; k++) {
            int side = (int)((pair + k) % 2); /* A B, B A: what drifts with time favours neither */
            status = run(x, side, &text, e);
            if (status == 0) status = take(x, side, (size_t)pair, &text, e);
        }
        llm_progress_set(&bar, pair + 1, NULL);
    }
    llm_progress_end(&bar);
    llm_buf_release(&text);
    return status;
}

/* ---- the table ---- */

static const char *const columns[] = {"test", "unit", "this", "against", "ratio", "low_95", "high_95", "pairs", "replicates", "verdict", NULL};

static int put(struct llm_table *t, struct row *r, size_t n, uint64_t seed, struct llm_err *e)
{
    /* logarithms, so that sides that change places have the same interval, turned round, for even numbers of pairs too */
    double *ratios = llm_alloc(n, sizeof *ratios, "pairs", e), interval[2];
    if (!ratios) return -1;
    int status = 0;
    for (size_t i = 0; i < n && status == 0; i++) {
        ratios[i] = log(r->v[r->seconds][i] / r->v[!r->seconds][i]);
        if (!isfinite(ratios[i])) status = llm_fail(e, EX_DATAERR, "%s: expected both sides to measure it", r->name);
    }
    if (status == 0) status = llm_bootstrap_median(ratios, n, RESAMPLES, seed, interval, e);
    if (status == 0) {
        llm_table_text(t, r->name);
        llm_table_text(t, r->seconds ? "s" : "tokens/s");
        for (int s = 0; s < 2; s++) llm_table_number(t, llm_median(r->v[s], n), 5);
        llm_table_number(t, exp(llm_median(ratios, n)), 4);
        llm_table_number(t, exp(interval[0]), 4);
        llm_table_number(t, exp(interval[1]), 4);
        llm_table_count(t, (double)n);
        llm_table_count(t, RESAMPLES);
        llm_table_text(t, interval[0] > 0 ? "faster" : interval[1] < 0 ? "slower" : "no difference shown");
    }
    free(ratios);
    return status;
}

/* ---- command lines ---- */

/* sh -c 'LLM_BENCH_SIDE=1 exec "$0" "$@" AGAINST' PROGRAM speed --OPTION…: the shell splits AGAINST as it splits what is typed. */
static char **command(const struct bench_pairs *p, bool against, struct llm_err *e)
{
    const struct llm_given *given;
    size_t n = llm_cli_given(&given), at = 0;
    char **argv = llm_calloc(n + 8, sizeof *argv, "a command", e);
    struct llm_buf script = {0};
    if (!argv) return NULL;
    const char *program = against && p->against_program ? p->against_program : p->program;
    int bad = llm_buf_printf(&script, e, BENCH_SIDE "=1 exec \"$0\" \"$@\" %s", against && p->against ? p->against : "");
    argv[at++] = strdup("sh");
    argv[at++] = strdup("-c");
    argv[at++] = script.p;
    argv[at++] = strdup(program);
    argv[at++] = strdup("speed");
    argv[at++] = strdup("--json");
    argv[at++] = strdup("--runs=1");
    for (size_t i = 0; i < n && !bad; i++) {
        struct llm_buf word = {0};
        if (llm_cli_listed(p->own, given[i].option->name)) continue;
        bad = llm_buf_printf(&word, e, "--%s%s%s", given[i].option->name, given[i].value ? "=" : "", given[i].value ? given[i].value : "");
        argv[at++] = word.p;
    }
    for (size_t i = 0; i < at && !bad; i++)
        if (!argv[i]) bad = llm_no_memory(e, "a command");
    if (!bad) return argv;
    for (size_t i = 0; i < n + 8; i++) free(argv[i]);
    free(argv);
    return NULL;
}

static void release(struct pairs *x)
{
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; x->argv[s] && x->argv[s][i]; i++) free(x->argv[s][i]);
        free(x->argv[s]);
    }
    for (size_t i = 0; i < x->n_rows; i++) {
        free(x->rows[i].v[0]);
        free(x->rows[i].v[1]);
    }
}

int bench_pairs(const struct bench_pairs *p, const struct llm_common *common, struct llm_err *e)
{
    struct pairs x = {.p = p};
    struct llm_table t, *tables[] = {&t};
    x.argv[0] = command(p, false, e);
    x.argv[1] = x.argv[0] ? command(p, true, e) : NULL;
    llm_signals_catch();
    int status = x.argv[1] ? measure(&x, e) : -1;
    llm_table_init(&t, columns);
    for (size_t i = 0; i < x.n_rows && status == 0; i++) status = put(&t, &x.rows[i], (size_t)p->pairs, p->seed, e);
    release(&x);
    llm_signal_die();
    if (status == 0) return bench_print(common, tables, 1, e);
    llm_table_release(&t);
    return -1;
}
