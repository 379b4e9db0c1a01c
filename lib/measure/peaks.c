#include "measure/peaks.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "base/log.h"
#include "base/pages.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"

enum { RUNS = 5, PIECES_A_THREAD = 4 };
#define READ_BYTES ((size_t)256 << 20) /* a thread's share exceeds any private cache; the whole exceeds most shared ones */
#define READ_PIECE ((size_t)1 << 20)

struct loop { double (*run)(int64_t iterations); int64_t iterations; double done[LLM_MAX_THREADS * PIECES_A_THREAD]; };

static void loop_piece(void *arg, size_t i, int thread)
{
    struct loop *l = arg;
    (void)thread;
    l->done[i] = l->run(l->iterations);
}

/* So many iterations that a piece takes a millisecond or two. */
static int64_t calibrate(double (*run)(int64_t))
{
    int64_t iterations = 500;
    for (double seconds = 0; seconds < 0.001;) {
        iterations *= 2;
        double start = llm_now();
        run(iterations);
        seconds = llm_now() - start;
    }
    return iterations;
}

/* Operations a second of all threads. */
static double once(double (*run)(int64_t), int64_t iterations)
{
    struct loop l = {.run = run, .iterations = iterations};
    size_t pieces = (size_t)llm_pool_threads() * PIECES_A_THREAD;
    double start = llm_now(), all = 0;
    llm_parallel(pieces, loop_piece, &l);
    double seconds = llm_now() - start;
    for (size_t i = 0; i < pieces; i++) all += l.done[i];
    return all / seconds;
}

/* Seconds that the process's threads have run. */
static double processor_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

struct time_given { double asked, given; };

/* The best of several; 0 when there is no such loop. Adds to `time`. */
static double rate(double (*run)(int64_t), struct time_given *time)
{
    double best = 0;
    if (!run) return 0;
    int64_t iterations = calibrate(run);
    double started = llm_now(), before = processor_seconds();
    for (int r = 0; r < RUNS * 2; r++) {
        double now = once(run, iterations);
        if (now > best) best = now;
    }
    time->asked += (llm_now() - started) * llm_pool_threads();
    time->given += processor_seconds() - before;
    return best;
}

double llm_peaks_compute_once(const char *kind)
{
    double (*run)(int64_t) = strcmp(kind, "bf16") == 0 ? llm_k.gemm.peak_bf16 : strcmp(kind, "int8") == 0 ? llm_k.gemm.peak_int8 : NULL;
    if (!run) run = llm_k.gemm.peak_f32;
    return once(run, calibrate(run));
}

struct reading { const char *p; size_t bytes; };

static void read_piece(void *arg, size_t i, int thread)
{
    const struct reading *r = arg;
    size_t from = i * READ_PIECE, n = r->bytes - from < READ_PIECE ? r->bytes - from : READ_PIECE;
    volatile float keep = llm_k.gemm.read(r->p + from, n / 256 * 256);
    (void)keep;
    (void)thread;
}

double llm_peaks_read_once(const void *memory, size_t bytes)
{
    struct reading r = {memory, bytes};
    double start = llm_now();
    llm_parallel((bytes + READ_PIECE - 1) / READ_PIECE, read_piece, &r);
    return (double)bytes / (llm_now() - start);
}

static int read_bandwidth(double *best, struct llm_err *e)
{
    void *p = aligned_alloc((size_t)2 << 20, READ_BYTES);
    if (!p) return llm_no_memory(e, "the memory bandwidth test");
    llm_pages_huge(p, READ_BYTES);
    memset(p, 1, READ_BYTES);
    *best = 0;
    for (int i = 0; i < RUNS; i++) {
        double now = llm_peaks_read_once(p, READ_BYTES);
        if (now > *best) *best = now;
    }
    free(p);
    return 0;
}

/* Ends when all threads have come. */
static void meet(void *arg, size_t i, int thread)
{
    atomic_size_t *came = arg;
    size_t threads = (size_t)llm_pool_threads(), all = (atomic_fetch_add(came, 1) / threads + 1) * threads;
    (void)i;
    (void)thread;
    for (int spins = 0; atomic_load(came) < all; spins++) {
        if (spins > 10000) sched_yield(); /* more threads than CPUs */
    }
}

static double barrier(void)
{
    enum { JOBS = 20 };
    atomic_size_t came = 0;
    double best = 0;
    if (llm_pool_threads() == 1) return 0;
    for (int r = 0; r < RUNS * 4; r++) {
        double start = llm_now();
        for (int i = 0; i < JOBS; i++) llm_parallel((size_t)llm_pool_threads(), meet, &came);
        double each = (llm_now() - start) / JOBS;
        if (r == 0 || each < best) best = each;
    }
    return best;
}

int llm_peaks_measure(struct llm_peaks *out, struct llm_err *e)
{
    struct time_given time = {0};
    *out = (struct llm_peaks){.threads = llm_pool_threads()};
    out->f32 = rate(llm_k.gemm.peak_f32, &time);
    out->bf16 = rate(llm_k.gemm.peak_bf16, &time);
    out->int8 = rate(llm_k.gemm.peak_int8, &time);
    out->f32_reading = rate(llm_k.gemm.reading_f32, &time);
    out->int8_reading = rate(llm_k.gemm.reading_int8, &time);
    out->cpu_share = time.given < time.asked ? time.given / time.asked : 1;
    out->barrier = barrier();
    return read_bandwidth(&out->read_bandwidth, e);
}
