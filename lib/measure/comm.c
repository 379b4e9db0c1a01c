#include "measure/comm.h"

#include <math.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/buf.h"

const char *const llm_comm_time_columns[] = {"collective", "ranks", "bytes", "seconds", "bytes_per_second", NULL};
const char *const llm_comm_fit_columns[] = {"collective", "ranks", "latency_seconds", "bytes_per_second", NULL};

enum { ROUNDS = 5, MAX_SIZES = 16 };

/* What one measurement works with: memory of as many parts as there are ranks. */
struct ground {
    struct llm_comm *c;
    char *out, *in;
    void **in_parts;
    const void **out_parts;
    size_t *bytes;
    size_t n;           /* bytes of a part */
    int root;           /* each rank in turn, so that a call cannot begin before the one before it has arrived */
};

static int message(struct ground *g, struct llm_err *e)
{
    struct llm_transfer t = {0};
    int rank = llm_comm_rank(g->c);
    for (int turn = 0; turn < 2 && rank < 2; turn++) { /* there and back */
        bool sends = rank == turn;
        int got = sends ? llm_comm_send(g->c, 1 - rank, g->out, g->n, &t, e) : llm_comm_receive(g->c, 1 - rank, g->in, g->n, &t, e);
        if (got < 0 || llm_comm_wait(g->c, &t, 1, e) < 0) return -1;
    }
    return 0;
}

static int next_root(struct ground *g)
{
    return g->root = (g->root + 1) % llm_comm_size(g->c);
}

static int broadcast(struct ground *g, struct llm_err *e) { return llm_comm_broadcast(g->c, next_root(g), g->out, g->n, e); }
static int barrier(struct ground *g, struct llm_err *e) { return llm_comm_barrier(g->c, e); }
static int gather(struct ground *g, struct llm_err *e) { return llm_comm_gather_even(g->c, g->in, g->n, e); }
static int scatter(struct ground *g, struct llm_err *e) { return llm_comm_scatter(g->c, next_root(g), g->out_parts, g->bytes, g->in, e); }
static int all_to_all(struct ground *g, struct llm_err *e)
{
    return llm_comm_all_to_all(g->c, g->out_parts, g->bytes, g->in_parts, g->bytes, e);
}

/* `each`: how many of the other ranks a rank sends its part to; 0: one. `calls`: messages one after another. */
static const struct collective {
    const char *name;
    int (*run)(struct ground *g, struct llm_err *e);
    bool each, sized;
    double calls;
} collectives[] = {
    {"message", message, false, true, 2}, {"broadcast", broadcast, false, true, 1}, {"gather", gather, true, true, 1},
    {"scatter", scatter, true, true, 1},  {"all_to_all", all_to_all, true, true, 1}, {"barrier", barrier, false, false, 1},
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median over some rounds of the slowest rank's seconds for one call. */
static int time_of(const struct collective *k, struct ground *g, double *seconds, struct llm_err *e)
{
    const int calls = g->n < (64 << 10) ? 50 : g->n < (4 << 20) ? 10 : 2, ranks = llm_comm_size(g->c);
    double rounds[ROUNDS], *all = llm_calloc((size_t)ranks, sizeof *all, "times", e);
    if (!all || k->run(g, e) < 0) {
        free(all);
        return -1;
    }
    for (int r = 0; r < ROUNDS; r++) {
        if (llm_comm_barrier(g->c, e) < 0) break;
        double began = llm_now();
        int got = 0;
        for (int i = 0; i < calls && got == 0; i++) got = k->run(g, e);
        all[llm_comm_rank(g->c)] = (llm_now() - began) / calls / k->calls;
        if (got < 0 || llm_comm_gather_even(g->c, all, sizeof *all, e) < 0) break;
        rounds[r] = 0;
        for (int q = 0; q < ranks; q++) rounds[r] = all[q] > rounds[r] ? all[q] : rounds[r];
    }
    free(all);
    if (llm_comm_broken(g->c)) return -1;
    qsort(rounds, ROUNDS, sizeof *rounds, compare);
    *seconds = rounds[ROUNDS / 2];
    return 0;
}

void llm_comm_fit(const double *x, const double *y, size_t n, double *a, double *b)
{
    double s = 0, sx = 0, sxx = 0, sy = 0, sxy = 0;
    for (size_t i = 0; i < n; i++) {
        const double w = 1 / (y[i] * y[i]);
        s += w;
        sx += w * x[i];
        sxx += w * x[i] * x[i];
        sy += w * y[i];
        sxy += w * x[i] * y[i];
    }
    const double det = s * sxx - sx * sx;
    *b = n < 2 || !(det > 0) ? 0 : (s * sxy - sx * sy) / det;
    *a = s > 0 ? (sy - *b * sx) / s : 0;
}

static int measure(const struct collective *k, struct ground *g, size_t largest, struct llm_table *times, struct llm_table *fits, struct llm_err *e)
{
    const int ranks = llm_comm_size(g->c);
    const bool shown = llm_comm_rank(g->c) == 0;
    double x[MAX_SIZES], y[MAX_SIZES], latency, slope;
    size_t n = 0;
    for (size_t bytes = k->sized ? 8 : 0; n < MAX_SIZES; bytes *= 8) {
        g->n = bytes;
        for (int q = 0; q < ranks; q++) {
            g->out_parts[q] = g->out + (size_t)q * bytes;
            g->in_parts[q] = g->in + (size_t)q * bytes;
            g->bytes[q] = bytes;
        }
        x[n] = (double)bytes;
        if (time_of(k, g, &y[n], e) < 0) return -1;
        if (shown) {
            llm_table_text(times, k->name);
            llm_table_count(times, ranks);
            llm_table_count(times, (double)bytes);
            llm_table_number(times, y[n], 3);
            llm_table_number(times, k->sized ? (double)bytes * (k->each ? ranks - 1 : 1) / y[n] : NAN, 3);
        }
        n++;
        if (!k->sized || bytes > largest / 8) break;
    }
    llm_comm_fit(x, y, n, &latency, &slope);
    if (!shown) return 0;
    llm_table_text(fits, k->name);
    llm_table_count(fits, ranks);
    llm_table_number(fits, latency, 3);
    llm_table_number(fits, slope > 0 ? 1 / slope : NAN, 3);
    return 0;
}

int llm_comm_measure(struct llm_comm *c, size_t largest, struct llm_table *times, struct llm_table *fits, struct llm_err *e)
{
    const size_t ranks = (size_t)llm_comm_size(c), room = ranks * (largest > 64 ? largest : 64);
    struct ground g = {.c = c};
    g.out = llm_calloc(room, 1, "messages", e);
    g.in = llm_calloc(room, 1, "messages", e);
    g.in_parts = llm_calloc(ranks, sizeof *g.in_parts, "messages", e);
    g.out_parts = llm_calloc(ranks, sizeof *g.out_parts, "messages", e);
    g.bytes = llm_calloc(ranks, sizeof *g.bytes, "messages", e);
    int got = llm_comm_agree(c, g.out && g.in && g.in_parts && g.out_parts && g.bytes ? 0 : -1, NULL, e);
    for (size_t i = 0; got == 0 && i < sizeof collectives / sizeof *collectives; i++) got = measure(&collectives[i], &g, largest, times, fits, e);
    free(g.out);
    free(g.in);
    free(g.in_parts);
    free(g.out_parts);
    free(g.bytes);
    return got;
}
