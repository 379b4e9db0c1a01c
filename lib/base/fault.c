#include "base/fault.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/signals.h"

/* The signal handler walks this list without a lock. So entries are complete before they are added at the head, and they are never removed; an entry
 * with n 0 is free and will be reused. */
struct llm_fault_map {
    const unsigned char *p;
    atomic_size_t n;
    char *name;
    dev_t device; /* the file, whatever its name stands for later */
    ino_t inode;
    bool reported;
    struct llm_fault_map *next;
};
static _Atomic(struct llm_fault_map *) maps;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local sigjmp_buf *volatile guarded;
static _Thread_local volatile int suspended;
static const struct llm_fault_map *volatile met; /* the fault that a guard or a check has found; NULL: none */
static volatile uint64_t met_at, met_size;
static atomic_flag told = ATOMIC_FLAG_INIT;

static struct llm_fault_map *find(const unsigned char *p)
{
    for (struct llm_fault_map *m = maps; m; m = m->next) {
        size_t n = m->n;
        if (n > 0 && p >= m->p && p < m->p + n) return m;
    }
    return NULL;
}

/* The file's size now, in bytes; UINT64_MAX: unknown. */
static uint64_t size_now(const char *name)
{
    struct stat st;
    return stat(name, &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : UINT64_MAX;
}

static size_t put(char *line, size_t at, size_t room, const char *text)
{
    for (; *text && at + 1 < room; text++) line[at++] = (unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text;
    return at;
}

static size_t put_number(char *line, size_t at, size_t room, uint64_t v)
{
    char digits[24];
    size_t i = sizeof digits - 1;
    digits[i] = 0;
    do digits[--i] = (char)('0' + v % 10);
    while (v /= 10);
    return put(line, at, room, digits + i);
}

/* "FILE: byte N: expected … bytes, as when it was opened, found …". Written without stdio: a handler calls it. */
static size_t describe(char *line, size_t at, size_t room, const struct llm_fault_map *m, uint64_t byte, uint64_t found)
{
    at = put(line, at, room, m->name);
    at = put(line, at, room, ": byte ");
    at = put_number(line, at, room, byte);
    if (found < m->n) {
        at = put(line, at, room, ": cut short while it was read: expected ");
        at = put_number(line, at, room, m->n);
        at = put(line, at, room, " bytes, found ");
        at = put_number(line, at, room, found);
    } else at = put(line, at, room, ": cannot be read: its disk failed, or it was cut short while it was read");
    return at;
}

static void say(const struct llm_fault_map *m, uint64_t byte)
{
    char line[1200];
    size_t at = put(line, 0, sizeof line, llm_program);
    at = put(line, at, sizeof line, ": ");
    at = describe(line, at, sizeof line, m, byte, size_now(m->name));
    line[at++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, at); /* if stderr fails there is nowhere to report it */
    (void)ignored;
}

/* A fault of m is reported, and with it those of all mappings of its file. */
static void note(struct llm_fault_map *m, uint64_t at, uint64_t size)
{
    for (struct llm_fault_map *o = maps; o; o = o->next) o->reported |= o->device == m->device && o->inode == m->inode;
    met_at = at;
    met_size = size;
    met = m;
}

static void handle(int number, siginfo_t *info, void *context)
{
    (void)context;
    const unsigned char *p = info->si_addr;
    struct llm_fault_map *m = info->si_code > 0 ? find(p) : NULL;
    if (!m) { /* not in a watched mapping: die as without a handler */
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    sigjmp_buf *to = guarded;
    if (to && !suspended) {
        guarded = NULL;
        note(m, (uint64_t)(p - m->p), size_now(m->name));
        siglongjmp(*to, 1);
    }
    if (atomic_flag_test_and_set(&told)) {
        for (;;) pause(); /* another thread is ending the process */
    }
    llm_signal_unlink_all();
    say(m, (uint64_t)(p - m->p));
    _exit(EX_DATAERR);
}

static void install(void)
{
    struct sigaction new = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&new.sa_mask);
    sigaction(SIGBUS, &new, NULL);
}

struct llm_fault_map *llm_fault_watch(const void *p, size_t n, int fd, const char *name)
{
    struct stat st = {0};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct llm_fault_map *m = maps;
    char *copy = strdup(name);
    pthread_once(&once, install);
    pthread_mutex_lock(&lock);
    while (m && m->n > 0) m = m->next;
    bool is_new = !m;
    if (is_new) m = calloc(1, sizeof *m);
    if (copy && m) {
        free(m->name);
        m->name = copy;
        m->p = p;
        m->reported = fstat(fd, &st) < 0;
        m->device = st.st_dev;
        m->inode = st.st_ino;
        if (is_new) m->next = maps;
        m->n = n;
        if (is_new) maps = m;
    } else free(copy);
    pthread_mutex_unlock(&lock);
    return copy ? m : NULL;
}

void llm_fault_unwatch(struct llm_fault_map *m)
{
    if (m) m->n = 0;
}

int llm_fault_guard(int (*work)(void *arg, struct llm_err *e), void *arg, struct llm_err *e)
{
    sigjmp_buf here;
    if (sigsetjmp(here, 1)) return 1;
    guarded = &here;
    int got = work(arg, e);
    guarded = NULL;
    return got;
}

int llm_fault_check(struct llm_err *e)
{
    char text[sizeof e->text];
    if (!met) return 0;
    text[describe(text, 0, sizeof text, met, met_at, met_size)] = 0;
    return llm_fail(e, EX_DATAERR, "%s", text);
}

int llm_fault_check_sizes(struct llm_err *e)
{
    struct stat st;
    for (struct llm_fault_map *m = maps; m; m = m->next) {
        size_t n = m->n;
        if (n == 0 || m->reported || stat(m->name, &st) < 0) continue;
        if (st.st_dev != m->device || st.st_ino != m->inode || (uint64_t)st.st_size >= n) continue;
        note(m, (uint64_t)st.st_size, (uint64_t)st.st_size);
        return llm_fault_check(e);
    }
    return 0;
}

void llm_fault_touch(const void *p, size_t n)
{
    const volatile unsigned char *bytes = p;
    for (size_t i = 0; i < n; i++) (void)bytes[i];
}

void llm_fault_suspend(void)
{
    suspended++;
}

void llm_fault_resume(void)
{
    suspended--;
}
