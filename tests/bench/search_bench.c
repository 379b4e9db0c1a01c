/* Flat searches against the machine: one query beside a read of the same bytes, many queries beside the peak of FP32 products.
 *
 *   make build/libllm.a && cc -O2 -march=native -D_GNU_SOURCE -Ilib -o build/search_bench tests/bench/search_bench.c build/libllm.a \
 *       -lzstd -ljansson -lxxhash -lnettle -lpcre2-8 -lutf8proc -lpng -ljpeg -lm -lpthread && build/search_bench INDEX THREADS [QUERIES]
 *
 * INDEX is an index of F32 vectors, stored plain; its first rows are the queries [1000]. Turns alternate; medians of nine
 * turns and of their ratios. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "cpu/pool.h"
#include "measure/peaks.h"
#include "search/search.h"

enum { ROUNDS = 9, K = 10 };
static struct llm_index x;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double search(int64_t m, struct llm_hit *hits, int64_t *n)
{
    const struct llm_lookup s = {.k = K};
    struct llm_err e = {0};
    double begun = now();
    if (llm_search_flat(&x, x.vectors, m, &s, hits, n, &e) < 0) exit(llm_report(&e));
    return now() - begun;
}

static int by_size(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static double median(double *v)
{
    qsort(v, ROUNDS, sizeof *v, by_size);
    return v[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    struct llm_err e = {0};
    if (argc < 3) return 2;
    const int64_t many = argc > 3 ? atoll(argv[3]) : 1000;
    if (llm_pool_start(atoi(argv[2]), &e) < 0 || llm_index_open(&x, argv[1], true, &e) < 0) return llm_report(&e);
    struct llm_hit *hits = calloc((size_t)many * K, sizeof *hits);
    int64_t *n = calloc((size_t)many, sizeof *n);
    double one[ROUNDS], read[ROUNDS], all[ROUNDS], peak[ROUNDS], of_read[ROUNDS], of_peak[ROUNDS];
    const double bytes = 4 * (double)x.n * (double)x.dims, work = 2 * (double)many * (double)x.n * (double)x.dims;
    if (!hits || !n) return 1;
    for (int i = -1; i < ROUNDS; i++) { /* the first turn does not count */
        const int at = i < 0 ? 0 : i;
        read[at] = llm_peaks_read_once(x.vectors, (size_t)bytes);
        one[at] = bytes / search(1, hits, n);
        peak[at] = llm_peaks_compute_once("f32");
        all[at] = work / search(many, hits, n);
        of_read[at] = one[at] / read[at];
        of_peak[at] = all[at] / peak[at];
    }
    printf("one query\t%.2f GB/s\tread %.2f GB/s\tratio %.3f\n", 1e-9 * median(one), 1e-9 * median(read), median(of_read));
    printf("%lld queries\t%.1f GFLOP/s\tpeak %.1f GFLOP/s\tratio %.3f\n", (long long)many, 1e-9 * median(all), 1e-9 * median(peak), median(of_peak));
    llm_index_release(&x);
    return 0;
}
