#include "base/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static const int fatal[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
enum { N_FATAL = sizeof fatal / sizeof *fatal, N_SLOTS = 1040 /* enough for all parts of a split model */, PATH_ROOM = 4096 };

/* A slot keeps its memory once it was used, because a signal handler may read the path at any time; `live` is set after the path is complete. */
static char *paths[N_SLOTS];
static volatile sig_atomic_t live[N_SLOTS];
static volatile sig_atomic_t caught;
static bool held;

void llm_signal_unlink_all(void)
{
    for (int i = 0; i < N_SLOTS; i++)
        if (live[i]) unlink(paths[i]);
}

static void die(int signal_number)
{
    llm_signal_unlink_all();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void note(int signal_number)
{
    if (caught) die(signal_number); /* the second signal ends the process */
    caught = signal_number;
}

static void install(void (*handler)(int))
{
    struct sigaction old, new = {.sa_handler = handler, .sa_flags = SA_NODEFER};
    sigemptyset(&new.sa_mask);
    for (int i = 0; i < N_FATAL; i++) {
        sigaction(fatal[i], NULL, &old);
        if (old.sa_handler != SIG_IGN) sigaction(fatal[i], &new, NULL); /* nohup stays nohup */
    }
}

void llm_start(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY); /* using it fails, as it should */
    signal(SIGXFSZ, SIG_IGN);
    install(die);
}

void llm_free_at_once(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 << 10); /* an explicit threshold no longer grows with the size of freed blocks */
#endif
}

void llm_signals_catch(void)
{
    install(note);
}

int llm_signal_caught(void)
{
    return held ? 0 : caught;
}

int llm_signal_wait_input(int fd)
{
    struct pollfd input = {fd, POLLIN, 0};
    sigset_t fatals, before;
    int got = 0;
    sigemptyset(&fatals);
    for (int i = 0; i < N_FATAL; i++) sigaddset(&fatals, fatal[i]);
    pthread_sigmask(SIG_BLOCK, &fatals, &before);
    while (got == 0 && !llm_signal_caught()) {
        got = ppoll(&input, 1, NULL, &before); /* the signals pass only while it waits */
        if (got < 0 && errno == EINTR) got = 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (got == 0) errno = EINTR;
    return got > 0 ? 0 : -1;
}

void llm_signals_hold(bool hold)
{
    held = hold;
}

bool llm_signal_take(int signal_number)
{
    if (caught != signal_number) return false;
    caught = 0;
    return true;
}

void llm_signal_die(void)
{
    if (caught) die(caught);
}

int llm_signal_unlink_add(const char *path)
{
    size_t n = strlen(path) + 1;
    if (n > PATH_ROOM) return -1;
    int i = 0;
    while (i < N_SLOTS && live[i]) i++;
    if (i == N_SLOTS) return -1;
    if (!paths[i]) paths[i] = malloc(PATH_ROOM);
    if (!paths[i]) return -1;
    memcpy(paths[i], path, n);
    live[i] = 1;
    return i;
}

void llm_signal_unlink_drop(int slot)
{
    if (slot >= 0) live[slot] = 0;
}
