/* The pool runs one job at a time. The job's work items are cut into one range per thread, so that a thread mostly takes neighbouring items, which
 * are neighbours in memory, from a counter that no other thread touches. A thread whose range is empty takes items from other ranges. Ranges change
 * by compare-and-swap and hold the job's number: a thread that wakes late finds another number or no item left and changes nothing. The caller
 * therefore waits for items to finish, never for threads to wake. */
#include "cpu/pool.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/fault.h"
#include "base/pages.h"
#include "cpu/cgroup.h"
#include "cpu/detect.h"
#include "cpu/profile.h"
#include "cpu/scratch.h"

#define SPINS 2000           /* about 50 to 100 us of pauses before a thread sleeps */
#define MAX_RANGES 16       /* more threads share them: each has to be written for every job */
#define INDEX_BITS 20        /* of a range: its end, above it the next, above it the job's number */
#define MAX_INDICES ((UINT64_C(1) << INDEX_BITS) - 1)
#define NUMBERS (UINT64_MAX >> 2 * INDEX_BITS)

typedef void piece_fn(void *arg, size_t i, int thread);

static struct {
    int threads; /* the caller's included; 0 before start */
    pthread_t worker[LLM_MAX_THREADS];
    pthread_mutex_t caller;  /* held while a job runs */
    pthread_mutex_t lock;    /* for sleeping */
    pthread_cond_t work, done;
    struct { _Alignas(64) _Atomic uint64_t range; } ranges[MAX_RANGES];
    _Alignas(64) _Atomic uint64_t number; /* the last job's */
    _Atomic(piece_fn *) piece;
    _Atomic(void *) arg;
    _Atomic size_t n, n_ranges, each; /* pieces an index stands for */
    atomic_int sleepers, caller_sleeps, stopping;
    _Alignas(64) _Atomic size_t finished;
} pool = {.caller = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};

static _Thread_local int current; /* this thread's number */

static struct { void *p; size_t n, asked; } scratch[LLM_MAX_THREADS][LLM_SCRATCH_SLOTS];

static inline void pause_cpu(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

/* Runs the pieces of an index; returns how many. */
static size_t run_index(piece_fn *piece, void *arg, uint64_t index, size_t each, size_t n)
{
    size_t first = (size_t)index * each, end = n - first < each ? n : first + each;
    for (size_t i = first; i < end; i++) piece(arg, i, current);
    return end - first;
}

/* Takes and runs pieces of job `number` until none is left. What a late thread reads here may be the next job's, but then it takes no piece. */
static void run_pieces(uint64_t number)
{
    piece_fn *piece = atomic_load_explicit(&pool.piece, memory_order_acquire);
    void *arg = atomic_load_explicit(&pool.arg, memory_order_acquire);
    size_t n = atomic_load_explicit(&pool.n, memory_order_acquire), each = atomic_load_explicit(&pool.each, memory_order_acquire);
    size_t n_ranges = atomic_load_explicit(&pool.n_ranges, memory_order_acquire), done = 0;
    for (size_t r = 0; r < n_ranges; r++) {
        _Atomic uint64_t *range = &pool.ranges[((size_t)current + r) % n_ranges].range;
        uint64_t t = atomic_load(range);
        while (t >> 2 * INDEX_BITS == number && (t >> INDEX_BITS & MAX_INDICES) < (t & MAX_INDICES)) {
            if (!atomic_compare_exchange_weak(range, &t, t + (UINT64_C(1) << INDEX_BITS))) continue;
            done += run_index(piece, arg, t >> INDEX_BITS & MAX_INDICES, each, n);
            t = atomic_load(range);
        }
    }
    if (done > 0 && atomic_fetch_add(&pool.finished, done) + done == n && atomic_load(&pool.caller_sleeps)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_signal(&pool.done);
        pthread_mutex_unlock(&pool.lock);
    }
}

static bool nothing_new(uint64_t seen)
{
    return atomic_load(&pool.number) == seen && !atomic_load_explicit(&pool.stopping, memory_order_acquire);
}

static void *work(void *number)
{
    uint64_t seen = 0; /* no job's */
    current = (int)(intptr_t)number;
    llm_pool_set_inside(true);
    for (;;) {
        for (int i = 0; i < SPINS && nothing_new(seen); i++) pause_cpu();
        if (nothing_new(seen)) {
            pthread_mutex_lock(&pool.lock);
            atomic_fetch_add(&pool.sleepers, 1);
            while (nothing_new(seen)) pthread_cond_wait(&pool.work, &pool.lock);
            atomic_fetch_sub(&pool.sleepers, 1);
            pthread_mutex_unlock(&pool.lock);
        }
        if (atomic_load(&pool.stopping)) return NULL;
        seen = atomic_load(&pool.number);
        run_pieces(seen);
    }
}

static void wait_for(size_t n)
{
    LLM_PROFILE_PART("waiting for threads");
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&pool.finished) == n) return;
        pause_cpu();
    }
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.caller_sleeps, 1);
    while (atomic_load(&pool.finished) != n) pthread_cond_wait(&pool.done, &pool.lock);
    atomic_store(&pool.caller_sleeps, 0);
    pthread_mutex_unlock(&pool.lock);
}

/* No piece of the job before is left: its ranges are empty, and nobody takes what stands here for its own before the number is there. */
static void publish(size_t n, piece_fn *piece, void *arg)
{
    uint64_t number = atomic_load_explicit(&pool.number, memory_order_relaxed) % NUMBERS + 1;
    size_t each = n / MAX_INDICES + 1, indices = (n + each - 1) / each, ranges = indices < MAX_RANGES ? indices : MAX_RANGES;
    if (ranges > (size_t)pool.threads) ranges = (size_t)pool.threads;
    atomic_store_explicit(&pool.piece, piece, memory_order_release);
    atomic_store_explicit(&pool.arg, arg, memory_order_release);
    atomic_store_explicit(&pool.n, n, memory_order_release);
    atomic_store_explicit(&pool.each, each, memory_order_release);
    atomic_store_explicit(&pool.n_ranges, ranges, memory_order_release);
    atomic_store_explicit(&pool.finished, 0, memory_order_release);
    for (size_t r = 0; r < ranges; r++) {
        uint64_t first = indices * r / ranges, end = indices * (r + 1) / ranges;
        atomic_store_explicit(&pool.ranges[r].range, number << 2 * INDEX_BITS | first << INDEX_BITS | end, memory_order_release);
    }
    atomic_store(&pool.number, number);
}

static struct { void (*call)(void *arg); void *arg; bool busy; } poll_of;

void llm_pool_set_poll(void (*poll)(void *arg), void *arg)
{
    poll_of.call = poll;
    poll_of.arg = arg;
}

static void poll_once(void)
{
    if (poll_of.busy || llm_pool_inside()) return;
    poll_of.busy = true;
    poll_of.call(poll_of.arg);
    poll_of.busy = false;
}

void llm_parallel(size_t n, piece_fn *piece, void *arg)
{
    if (poll_of.call) poll_once();
    if (llm_pool_inside() || pool.threads <= 1 || n <= 1) {
        bool before = llm_pool_set_inside(true);
        llm_fault_suspend();
        for (size_t i = 0; i < n; i++) piece(arg, i, current);
        llm_fault_resume();
        llm_pool_set_inside(before);
        return;
    }
    pthread_mutex_lock(&pool.caller);
    publish(n, piece, arg);
    if (atomic_load(&pool.sleepers)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.work);
        pthread_mutex_unlock(&pool.lock);
    }
    llm_pool_set_inside(true);
    llm_fault_suspend();
    run_pieces(atomic_load_explicit(&pool.number, memory_order_relaxed));
    llm_pool_set_inside(false);
    wait_for(n);
    llm_fault_resume();
    pthread_mutex_unlock(&pool.caller);
}

int llm_pool_threads(void) { return pool.threads ? pool.threads : 1; }

static int sharers = 1;

void llm_pool_share(int n)
{
    sharers = n > 1 ? n : 1;
}

static int64_t usable_cpus(void)
{
    cpu_set_t *set = CPU_ALLOC(8192);
    int64_t n = 1;
    if (set && sched_getaffinity(0, CPU_ALLOC_SIZE(8192), set) == 0) n = CPU_COUNT_S(CPU_ALLOC_SIZE(8192), set);
    CPU_FREE(set);
    const int64_t allowed = llm_cgroup_self().cpus, online = sysconf(_SC_NPROCESSORS_ONLN);
    n = n < 1 ? 1 : n < allowed ? n : allowed;
    if (sharers == 1) return n;
    /* A launcher may have bound each process to CPUs of its own, or none. */
    const int64_t all = (online < allowed ? online : allowed) / sharers;
    return n < all ? n : all > 1 ? all : 1;
}

static int count_threads(int64_t want, int *threads, struct llm_err *e)
{
    const char *text = getenv("LLM_THREADS");
    if (want == 0 && text && *text) {
        char *end;
        errno = 0;
        want = strtoll(text, &end, 10);
        if (errno || *end || want < 1 || want > LLM_MAX_THREADS)
            return llm_fail(e, LLM_EX_USAGE, "LLM_THREADS: expected a number from 1 to %d, found '%s'", LLM_MAX_THREADS, text);
    }
    if (want < 0 || want > LLM_MAX_THREADS)
        return llm_fail(e, LLM_EX_USAGE, "threads: expected a number from 1 to %d, found %" PRId64, LLM_MAX_THREADS, want);
    if (want == 0) want = usable_cpus();
    *threads = want > LLM_MAX_THREADS ? LLM_MAX_THREADS : (int)want;
    return 0;
}

int llm_pool_start(int64_t want, struct llm_err *e)
{
    int threads = 1;
    if (llm_kernels_init(e) < 0 || count_threads(want, &threads, e) < 0) return -1;
    llm_pool_stop();
    atomic_store(&pool.number, 0);
    pool.threads = 1;
    sigset_t all, before; /* signals are the main thread's */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    while (pool.threads < threads && !failed) {
        failed = pthread_create(&pool.worker[pool.threads], NULL, work, (void *)(intptr_t)pool.threads);
        if (!failed) pool.threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failed) return 0;
    llm_pool_stop();
    return llm_fail(e, EX_UNAVAILABLE, "threads: cannot start %d: %s", threads, strerror(failed));
}

void llm_pool_stop(void)
{
    pthread_mutex_lock(&pool.lock);
    atomic_store(&pool.stopping, 1);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 1; i < pool.threads; i++) pthread_join(pool.worker[i], NULL);
    llm_scratch_release();
    pool.threads = 0;
    atomic_store(&pool.stopping, 0);
}

void *llm_scratch_slot(int thread, enum llm_scratch_use use, size_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    if (bytes > scratch[thread][use].n) {
        if (bytes > SIZE_MAX / 2) return NULL;
        size_t want = bytes + bytes / 4, unit = want < huge ? 4096 : huge;
        want = (want + unit - 1) / unit * unit;
        free(scratch[thread][use].p);
        scratch[thread][use].p = aligned_alloc(unit, want);
        scratch[thread][use].n = scratch[thread][use].p ? want : 0;
        if (scratch[thread][use].p && unit == huge) llm_pages_huge(scratch[thread][use].p, want);
    }
    if (bytes > scratch[thread][use].asked) scratch[thread][use].asked = bytes;
    return scratch[thread][use].p;
}

size_t llm_scratch_bytes(void)
{
    size_t sum = 0;
    for (int s = 0; s < LLM_SCRATCH_SLOTS; s++) {
        size_t largest = 0, asked = 0;
        for (int i = 0; i < LLM_MAX_THREADS; i++) {
            if (scratch[i][s].asked > largest) largest = scratch[i][s].asked;
            asked += scratch[i][s].asked;
        }
        /* Which threads have run a piece so far is chance: any of them may run one later. */
        sum += s == LLM_SCRATCH_CALL ? asked : largest * (size_t)llm_pool_threads();
    }
    return sum;
}

void llm_scratch_release(void)
{
    for (int i = 0; i < LLM_MAX_THREADS; i++)
        for (int s = 0; s < LLM_SCRATCH_SLOTS; s++) {
            free(scratch[i][s].p);
            scratch[i][s].p = NULL;
            scratch[i][s].n = scratch[i][s].asked = 0;
        }
}

void *llm_scratch(int thread, size_t bytes) { return llm_scratch_slot(thread, LLM_SCRATCH_PIECE, bytes); }

int llm_pool_current(void) { return current; }
