#include "train/judge.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/log.h"
#include "base/signals.h"

extern char **environ;

enum { MAX_BARREN = 3 /* processes of a job, one after another, that answer nothing */, MAX_LINE = 1 << 28 };

struct item {
    json_t *line;
    bool answered;
};

struct job {
    pid_t pid;               /* 0: no process */
    int in, out;             /* its standard input and output; -1: closed */
    struct llm_buf to, from; /* what it has yet to read; what it wrote of a line that is not complete */
    size_t sent;             /* bytes of `to` */
    size_t *items;           /* numbers of its completions */
    size_t n, room, first;   /* `first`: those before it are answered */
    int64_t lines;           /* that the process has written */
    int barren;
    bool fruitful;           /* the process has answered something */
    double progress;         /* when something last moved */
};

struct llm_judge {
    struct llm_judge_options o;
    llm_judge_done *done;
    void *arg;
    struct item *items;
    size_t n, room, answered;
    struct job *jobs;
    bool closing;            /* no more completions come */
};

struct llm_judge *llm_judge_create(const struct llm_judge_options *o, llm_judge_done *done, void *arg, struct llm_err *e)
{
    struct llm_judge *j = llm_calloc(1, sizeof *j, "a reward command", e);
    if (!j) return NULL;
    *j = (struct llm_judge){.o = *o, .done = done, .arg = arg, .jobs = llm_calloc((size_t)o->jobs, sizeof *j->jobs, "a reward command", e)};
    for (int64_t i = 0; j->jobs && i < o->jobs; i++) j->jobs[i].in = j->jobs[i].out = -1;
    if (j->jobs) return j;
    free(j);
    return NULL;
}

static void close_end(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Ends the job's process, with what it has started. */
static void stop(struct job *p)
{
    if (p->pid > 0) {
        kill(-p->pid, SIGKILL);
        while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    p->pid = 0;
    close_end(&p->in);
    close_end(&p->out);
    p->to.n = p->from.n = p->sent = 0;
}

void llm_judge_destroy(struct llm_judge *j)
{
    if (!j) return;
    for (int64_t i = 0; i < j->o.jobs; i++) {
        stop(&j->jobs[i]);
        llm_buf_release(&j->jobs[i].to);
        llm_buf_release(&j->jobs[i].from);
        free(j->jobs[i].items);
    }
    for (size_t i = 0; i < j->n; i++) json_decref(j->items[i].line);
    free(j->items);
    free(j->jobs);
    free(j);
}

/* ---- a process ---- */

static int spawn(pid_t *pid, const char *command, int in, int out, struct llm_err *e)
{
    char *const argv[] = {"sh", "-c", (char *)(uintptr_t)command, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t pipes;
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE); /* which this process ignores */
    if (posix_spawn_file_actions_init(&files) != 0) return llm_no_memory(e, "a process");
    if (posix_spawnattr_init(&how) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return llm_no_memory(e, "a process");
    }
    int got = posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    if (got == 0) got = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawnattr_setsigdefault(&how, &pipes);
    posix_spawnattr_setpgroup(&how, 0); /* a group of its own: it is ended with what it has started, and not by the terminal's signals */
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    if (got == 0) got = posix_spawn(pid, "/bin/sh", &files, &how, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    errno = got;
    return got == 0 ? 0 : llm_fail_errno(e, EX_UNAVAILABLE, "/bin/sh");
}

static int start(struct llm_judge *j, struct job *p, struct llm_err *e)
{
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    int status = pipe(to) < 0 || pipe(from) < 0 ? llm_fail_errno(e, EX_UNAVAILABLE, "reward command: a pipe") : 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        if (fcntl(to[i], F_SETFD, FD_CLOEXEC) < 0 || fcntl(from[i], F_SETFD, FD_CLOEXEC) < 0) status = llm_fail_errno(e, EX_UNAVAILABLE, "a pipe");
    }
    if (status == 0 && (fcntl(to[1], F_SETFL, O_NONBLOCK) < 0 || fcntl(from[0], F_SETFL, O_NONBLOCK) < 0)) {
        status = llm_fail_errno(e, EX_UNAVAILABLE, "reward command: a pipe");
    }
    if (status == 0) status = spawn(&p->pid, j->o.command, to[0], from[1], e);
    close_end(&to[0]);
    close_end(&from[1]);
    if (status < 0) {
        close_end(&to[1]);
        close_end(&from[0]);
        p->pid = 0;
        return -1;
    }
    p->in = to[1];
    p->out = from[0];
    p->lines = 0;
    p->fruitful = false;
    p->progress = llm_now();
    return 0;
}

static int queue(struct llm_judge *j, struct job *p, size_t item, struct llm_err *e)
{
    if (p->pid == 0 && start(j, p, e) < 0) return -1;
    return llm_json_dump(j->items[item].line, &p->to, e) < 0 ? -1 : llm_buf_put(&p->to, "\n", 1, e);
}

/* ---- answers ---- */

/* Hands over a completion that has its reward, or the fallback if the command `failed` (what it did; NULL: it did not). */
static int deliver(struct llm_judge *j, struct job *p, size_t item, const char *failed, struct llm_err *e)
{
    struct item *x = &j->items[item];
    x->answered = true;
    j->answered++;
    while (p->first < p->n && j->items[p->items[p->first]].answered) p->first++;
    int status = j->done(j->arg, x->line, failed, e);
    json_decref(x->line);
    x->line = NULL;
    return status;
}

/* A process hung, died or wrote nonsense: the first completion without an answer gets the fallback, and a new process the others. */
static int fail(struct llm_judge *j, struct job *p, const struct llm_err *why, struct llm_err *e)
{
    p->barren = p->fruitful ? 0 : p->barren + 1;
    stop(p);
    if (isnan(j->o.fallback) || p->barren >= MAX_BARREN) {
        *e = *why;
        return llm_in(e, "reward command");
    }
    llm_warn("reward command: %s: the reply's reward is %g", why->text, j->o.fallback);
    size_t item = p->items[p->first];
    if (json_object_set_new(j->items[item].line, "reward", json_real(j->o.fallback)) < 0
        || json_object_set_new(j->items[item].line, "reward_error", llm_json_text(why->text, strlen(why->text))) < 0) {
        return llm_no_memory(e, "a reward");
    }
    if (deliver(j, p, item, why->text, e) < 0) return -1;
    for (size_t i = p->first; i < p->n; i++) {
        if (!j->items[p->items[i]].answered && queue(j, p, p->items[i], e) < 0) return -1;
    }
    return 0;
}

/* The completion that an answer is for: SIZE_MAX if there is none. */
static size_t item_of(const struct llm_judge *j, const struct job *p, const json_t *answer)
{
    const json_t *group = json_object_get(answer, "group"), *sample = json_object_get(answer, "sample");
    if (p->first == p->n) return SIZE_MAX;
    if (!group || !sample) return p->items[p->first];
    for (size_t i = p->first; i < p->n; i++) {
        const struct item *x = &j->items[p->items[i]];
        if (!x->answered && json_equal(group, json_object_get(x->line, "group")) && json_equal(sample, json_object_get(x->line, "sample"))) {
            return p->items[i];
        }
    }
    return SIZE_MAX;
}

static bool is_number(const json_t *v)
{
    return json_is_number(v) && isfinite(json_number_value(v));
}

static int check_answer(const json_t *answer, const json_t *line, struct llm_err *e)
{
    const json_t *one = json_object_get(answer, "reward"), *each = json_object_get(answer, "rewards"), *v;
    size_t i;
    if (is_number(answer) || is_number(one)) return 0;
    if (!json_is_object(answer)) return llm_fail(e, EX_DATAERR, "expected an object or a number");
    if (one || !each) {
        return llm_fail(e, EX_DATAERR, "\"reward\": expected a finite number, found %s", one ? "something else" : "no such member");
    }
    size_t wanted = json_array_size(json_object_get(line, "ids"));
    if (!json_is_array(each) || json_array_size(each) != wanted) {
        return llm_fail(e, EX_DATAERR, "\"rewards\": expected a list of %zu numbers", wanted);
    }
    json_array_foreach((json_t *)(uintptr_t)each, i, v) {
        if (!is_number(v)) return llm_fail(e, EX_DATAERR, "\"rewards\": element %zu: expected a finite number", i);
    }
    return 0;
}

/* What the command says of a completion is added to it; what is known of it stays. */
static int add_answer(json_t *line, json_t *answer, struct llm_err *e)
{
    if (json_is_number(answer)) return json_object_set(line, "reward", answer) < 0 ? llm_no_memory(e, "a reward") : 0;
    const char *const members[] = {"reward", "rewards"};
    for (size_t i = 0; i < 2; i++) json_object_del(line, members[i]);
    return json_object_update_missing(line, answer) < 0 ? llm_no_memory(e, "a reward") : 0;
}

/* 0; 1: the answer is of no use, see `why`; -1. */
static int take_answer(struct llm_judge *j, struct job *p, const char *text, size_t n, struct llm_err *why, struct llm_err *e)
{
    while (n > 0 && strchr(" \t\r", text[n - 1])) n--;
    if (n == 0) return 0;
    p->lines++;
    json_t *answer = llm_json_parse(text, n, why);
    size_t item = answer ? item_of(j, p, answer) : SIZE_MAX;
    int got = answer ? 0 : 1;
    if (answer && item == SIZE_MAX) {
        llm_fail(why, EX_DATAERR, "expected an answer to a completion that has none yet, found another");
        got = 1;
    }
    if (got == 0 && check_answer(answer, j->items[item].line, why) < 0) got = 1;
    if (got == 0) got = add_answer(j->items[item].line, answer, e);
    if (got == 0) {
        p->fruitful = true;
        got = deliver(j, p, item, NULL, e);
    }
    if (got == 1) llm_in(why, "line %" PRId64 " of its output", p->lines);
    json_decref(answer);
    return got;
}

static size_t unanswered(const struct llm_judge *j, const struct job *p)
{
    size_t n = 0;
    for (size_t i = p->first; i < p->n; i++) n += !j->items[p->items[i]].answered;
    return n;
}

/* The process has closed its output. */
static int ended(struct llm_judge *j, struct job *p, struct llm_err *e)
{
    struct llm_err why = {0};
    int status = 0;
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) continue;
    kill(-p->pid, SIGKILL); /* what it may have left behind */
    p->pid = 0;
    size_t left = unanswered(j, p);
    if (left == 0) {
        stop(p);
        return 0;
    }
    if (WIFSIGNALED(status)) llm_fail(&why, EX_DATAERR, "killed by signal %d with %zu replies to judge", WTERMSIG(status), left);
    else if (WEXITSTATUS(status) == 127) llm_fail(&why, EX_UNAVAILABLE, "exit status 127: the shell did not find it");
    else llm_fail(&why, EX_DATAERR, "ended (exit status %d) with %zu replies to judge", WEXITSTATUS(status), left);
    return fail(j, p, &why, e);
}

/* ---- moving bytes ---- */

static int send_some(struct llm_judge *j, struct job *p, struct llm_err *e)
{
    while (p->in >= 0 && p->sent < p->to.n) {
        ssize_t got = write(p->in, p->to.p + p->sent, p->to.n - p->sent);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        if (got < 0 && errno == EPIPE) { /* it has read enough; whether it has answered enough shows at its end */
            close_end(&p->in);
            return 0;
        }
        if (got < 0) return llm_fail_errno(e, EX_IOERR, "reward command");
        p->sent += (size_t)got;
        p->progress = llm_now();
    }
    p->to.n = p->sent = 0;
    if (j->closing) close_end(&p->in);
    return 0;
}

/* Reads what there is. 0 or -1. */
static int receive_some(struct llm_judge *j, struct job *p, struct llm_err *e)
{
    char block[1 << 14];
    while (p->out >= 0) {
        ssize_t got = read(p->out, block, sizeof block);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 0;
        if (got < 0) return llm_fail_errno(e, EX_IOERR, "reward command");
        p->progress = llm_now();
        if (llm_buf_put(&p->from, got > 0 ? block : "\n", got > 0 ? (size_t)got : 1, e) < 0) return -1;
        struct llm_err why = {0};
        int bad = p->from.n > MAX_LINE ? 1 : 0;
        if (bad) llm_fail(&why, EX_DATAERR, "expected lines of at most %d bytes", MAX_LINE);
        size_t at = 0;
        for (const char *end; bad == 0 && (end = memchr(p->from.p + at, '\n', p->from.n - at)); at = (size_t)(end - p->from.p) + 1) {
            bad = take_answer(j, p, p->from.p + at, (size_t)(end - p->from.p) - at, &why, e);
        }
        if (bad) return bad < 0 ? -1 : fail(j, p, &why, e);
        memmove(p->from.p, p->from.p + at, p->from.n - at);
        p->from.n -= at;
        if (got == 0) return ended(j, p, e);
    }
    return 0;
}

static int move(struct llm_judge *j, struct llm_err *e)
{
    for (int64_t i = 0; i < j->o.jobs; i++) {
        struct job *p = &j->jobs[i];
        if (p->pid > 0 && (send_some(j, p, e) < 0 || receive_some(j, p, e) < 0)) return -1;
    }
    return 0;
}

int llm_judge_give(struct llm_judge *j, json_t *line, struct llm_err *e)
{
    struct job *p = &j->jobs[j->n % (size_t)j->o.jobs];
    if (llm_grow((void **)&j->items, &j->room, j->n + 1, sizeof *j->items, e) < 0
        || llm_grow((void **)&p->items, &p->room, p->n + 1, sizeof *p->items, e) < 0) return -1;
    j->items[j->n] = (struct item){.line = json_incref(line)};
    p->items[p->n++] = j->n++;
    return queue(j, p, j->n - 1, e) < 0 ? -1 : move(j, e);
}

int llm_judge_pump(struct llm_judge *j, struct llm_err *e)
{
    return move(j, e);
}

/* Waits a moment for a process to read or write. */
static void wait_some(struct llm_judge *j)
{
    enum { MAX = 64, MILLISECONDS = 50 };
    struct pollfd fds[MAX];
    nfds_t n = 0;
    for (int64_t i = 0; i < j->o.jobs && n + 2 <= MAX; i++) {
        struct job *p = &j->jobs[i];
        if (p->pid == 0) continue;
        if (p->in >= 0 && p->sent < p->to.n) fds[n++] = (struct pollfd){.fd = p->in, .events = POLLOUT};
        fds[n++] = (struct pollfd){.fd = p->out, .events = POLLIN};
    }
    poll(fds, n, MILLISECONDS); /* a signal that interrupts it is looked at next */
}

static bool running(const struct llm_judge *j)
{
    for (int64_t i = 0; i < j->o.jobs; i++) {
        if (j->jobs[i].pid > 0) return true;
    }
    return false;
}

/* A process that was silent for too long. If it has answered everything it may just not end; it is ended. */
static int silent(struct llm_judge *j, struct job *p, struct llm_err *e)
{
    struct llm_err why = {0};
    if (p->pid == 0 || llm_now() - p->progress < j->o.seconds) return 0;
    if (p->first == p->n) {
        stop(p);
        return 0;
    }
    llm_fail(&why, EX_DATAERR, "silent for %g s with %zu replies to judge", j->o.seconds, unanswered(j, p));
    return fail(j, p, &why, e);
}

int llm_judge_finish(struct llm_judge *j, struct llm_err *e)
{
    j->closing = true;
    for (int64_t i = 0; i < j->o.jobs; i++) j->jobs[i].progress = llm_now();
    while (j->answered < j->n || running(j)) {
        if (llm_signal_caught()) return 1;
        if (move(j, e) < 0) return -1;
        for (int64_t i = 0; i < j->o.jobs; i++) {
            if (silent(j, &j->jobs[i], e) < 0) return -1;
        }
        if (running(j)) wait_some(j);
    }
    return 0;
}
