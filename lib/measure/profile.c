#include "measure/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"
#include "cpu/profile.h"
#include "measure/peaks.h"
#include "io/table.h"

static const char *const columns[] = {"what", "kind", "calls", "seconds", "share", "gbytes", "gflop", "gbytes_per_s", "gflops", "limit",
                                      "share_of_limit", NULL};

/* Seconds that the row's arithmetic takes at its peaks, and the name of the largest part of it. */
static double least_seconds(const struct llm_profile_row *r, const struct llm_peaks *p, const char **limit)
{
    static const char *const names[] = {"f32", "bf16", "int8"};
    const double peak[] = {p->f32, p->bf16 > 0 ? p->bf16 : p->f32, p->int8 > 0 ? p->int8 : p->f32};
    double memory = r->bytes / p->read_bandwidth, sum = 0, max = 0;
    *limit = "-";
    for (int u = 0; u < LLM_PROFILE_UNITS; u++) {
        double seconds = r->flops[u] / peak[u];
        sum += seconds;
        if (seconds > max) {
            max = seconds;
            *limit = names[u];
        }
    }
    if (memory <= sum) return sum;
    *limit = "memory";
    return memory;
}

static void put(struct llm_table *t, const struct llm_profile_row *r, const char *kind, double all, const struct llm_peaks *p)
{
    const char *limit;
    double flops = 0, least = least_seconds(r, p, &limit);
    for (int u = 0; u < LLM_PROFILE_UNITS; u++) flops += r->flops[u];
    llm_table_text(t, r->name);
    llm_table_text(t, kind);
    llm_table_count(t, (double)r->calls);
    llm_table_number(t, r->seconds, 4);
    llm_table_number(t, r->seconds / all, 3);
    llm_table_number(t, r->bytes / 1e9, 4);
    llm_table_number(t, flops / 1e9, 6);
    llm_table_number(t, r->bytes / 1e9 / r->seconds, 3);
    llm_table_number(t, flops / 1e9 / r->seconds, 4);
    llm_table_text(t, limit);
    llm_table_number(t, least > 0 ? least / r->seconds : (double)NAN, 3);
}

static int by_seconds(const void *a, const void *b)
{
    const struct llm_profile_row *const *x = a, *const *y = b;
    return ((*x)->seconds < (*y)->seconds) - ((*x)->seconds > (*y)->seconds);
}

static void fill(struct llm_table *t, const struct llm_profile_row **sorted, size_t n, double seconds, const struct llm_peaks *p)
{
    struct llm_profile_row all = {.name = "all", .seconds = seconds}, rest = {.name = "elsewhere", .seconds = seconds};
    for (size_t i = 0; i < n; i++) {
        if (sorted[i]->part) continue;
        put(t, sorted[i], "op", seconds, p);
        rest.seconds -= sorted[i]->seconds;
        all.calls += sorted[i]->calls;
        all.bytes += sorted[i]->bytes;
        for (int u = 0; u < LLM_PROFILE_UNITS; u++) all.flops[u] += sorted[i]->flops[u];
    }
    put(t, &rest, "rest", seconds, p);
    put(t, &all, "all", seconds, p);
    for (size_t i = 0; i < n; i++) {
        if (sorted[i]->part) put(t, sorted[i], "part", seconds, p);
    }
}

int llm_profile_print(bool json, struct llm_err *e)
{
    const struct llm_profile_row *rows;
    struct llm_table t;
    struct llm_buf b = {0};
    struct llm_peaks p;
    llm_profile_stop();
    size_t n = llm_profile_rows(&rows);
    const struct llm_profile_row **sorted = llm_calloc(n + 1, sizeof *sorted, "the profile", e);
    if (!sorted) return -1;
    for (size_t i = 0; i < n; i++) sorted[i] = &rows[i];
    qsort(sorted, n, sizeof *sorted, by_seconds);
    llm_table_init(&t, columns);
    int status = llm_peaks_measure(&p, e);
    if (status == 0) {
        fill(&t, sorted, n, llm_profile_seconds(), &p);
        status = llm_table_show(&t, json ? LLM_TABLE_JSON : LLM_TABLE_ALIGNED, &b, e);
    }
    if (status == 0 && b.n > 0) fwrite(b.p, 1, b.n, stderr);
    llm_buf_release(&b);
    llm_table_release(&t);
    free(sorted);
    return status;
}
