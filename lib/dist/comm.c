/* The communicator: waits, collective calls and agreement over messages (dist/comm.h). */
#include "dist/comm.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/log.h"
#include "dist/transport.h"

enum { HOST_ROOM = 64, MAX_GROUPS = 1 << 14 /* tags up to 32,767 are MPI's least */, QUESTIONS = MAX_GROUPS, ANSWERS };

struct llm_comm {
    int rank, n;
    int group;                      /* keeps its messages apart */
    int *world;                     /* [n] rank in the job of each of its ranks */
    char (*hosts)[HOST_ROOM];       /* [n] */
    struct llm_transfer *transfers; /* [2 n] of collective calls */
    struct state {                  /* one for the whole job */
        double timeout;
        char place[80];
        bool broken, failed;
        int groups, n_ranks;        /* groups given so far; ranks */
        char (*hosts)[HOST_ROOM];   /* of all ranks; borrowed */
        struct said { void *request; int value; } question, answer;
        struct { void (*call)(void *arg); void *arg; bool busy; } idle;
        struct llm_comm_report report;
    } *job;
    bool is_world;                  /* owns `job` */
};

int llm_comm_rank(const struct llm_comm *c) { return c ? c->rank : 0; }
int llm_comm_size(const struct llm_comm *c) { return c ? c->n : 1; }
const char *llm_comm_host(const struct llm_comm *c, int rank) { return c ? c->hosts[rank] : "localhost"; }
bool llm_comm_broken(const struct llm_comm *c) { return c && c->job->broken; }

int llm_comm_give_up(struct llm_comm *c)
{
    if (c) c->job->broken = true;
    return -1;
}
bool llm_comm_failed(const struct llm_comm *c) { return c && c->job->failed; }

void llm_comm_set_timeout(struct llm_comm *c, double seconds)
{
    if (c) c->job->timeout = seconds;
}

void llm_comm_set_idle(struct llm_comm *c, void (*idle)(void *arg), void *arg)
{
    if (!c) return;
    c->job->idle.call = idle;
    c->job->idle.arg = arg;
}

void llm_comm_set_place(struct llm_comm *c, const char *place)
{
    if (c) snprintf(c->job->place, sizeof c->job->place, "%s", place);
}

struct llm_comm_report llm_comm_take_report(struct llm_comm *c)
{
    struct llm_comm_report r = {0};
    if (!c) return r;
    r = c->job->report;
    c->job->report = (struct llm_comm_report){0};
    return r;
}

void llm_comm_destroy(struct llm_comm *c)
{
    if (!c) return;
    if (c->is_world) free(c->job);
    free(c->world);
    free(c->hosts);
    free(c->transfers);
    free(c);
}

/* Memory of a communicator of n ranks. */
static struct llm_comm *create(int n, struct llm_err *e)
{
    struct llm_comm *c = llm_calloc(1, sizeof *c, "a communicator", e);
    if (!c) return NULL;
    c->n = n;
    c->world = llm_calloc((size_t)n, sizeof *c->world, "a communicator", e);
    c->hosts = llm_calloc((size_t)n, sizeof *c->hosts, "a communicator", e);
    c->transfers = llm_calloc(2 * (size_t)n, sizeof *c->transfers, "a communicator", e);
    if (c->world && c->hosts && c->transfers) return c;
    llm_comm_destroy(c);
    return NULL;
}

int llm_comm_start(struct llm_comm **out, struct llm_err *e)
{
    int launched, rank, n;
    *out = NULL;
    if (llm_comm_launched(&launched, &rank, e) < 0) return -1;
    if (launched == 1) return 0;
    if (llm_transport_start(&n, &rank, e) < 0) return -1;
    if (n != launched) {
        llm_transport_end();
        return llm_fail(e, EX_UNAVAILABLE, "the launcher started %d ranks, the program's MPI library sees %d: expected the launcher of the MPI that "
                        "the program was built with", launched, n);
    }
    struct llm_comm *c = create(n, e);
    if (c) c->job = llm_calloc(1, sizeof *c->job, "a communicator", e);
    if (!c || !c->job) {
        llm_comm_destroy(c);
        return -1;
    }
    c->is_world = true;
    c->job->hosts = c->hosts;
    c->job->n_ranks = n;
    c->rank = rank;
    for (int i = 0; i < n; i++) c->world[i] = i;
    if (gethostname(c->hosts[rank], HOST_ROOM) < 0) snprintf(c->hosts[rank], HOST_ROOM, "unknown");
    c->hosts[rank][HOST_ROOM - 1] = 0;
    if (llm_comm_gather_even(c, c->hosts, HOST_ROOM, e) < 0) {
        llm_comm_destroy(c);
        return -1;
    }
    for (int i = 0; i < n; i++) c->hosts[i][HOST_ROOM - 1] = 0;
    *out = c;
    return 0;
}

void llm_comm_end(struct llm_comm *c)
{
    if (!c) return;
    llm_comm_destroy(c);
    llm_transport_end();
}

void llm_comm_abort(struct llm_comm *c, int status)
{
    if (c) llm_transport_abort(status);
}

/* ---- messages ---- */

static int usable(const struct llm_comm *c, int peer, size_t bytes, struct llm_err *e)
{
    if (c->job->broken) return llm_fail(e, LLM_EX_FAILURE, "the connection to the other ranks is lost");
    if (peer >= 0 && peer < c->n && bytes <= LLM_COMM_BUCKET) return 0;
    return llm_fail(e, LLM_EX_FAILURE, "message: expected a rank below %d and at most %d bytes, found rank %d and %zu bytes", c->n, LLM_COMM_BUCKET,
                    peer, bytes);
}

int llm_comm_send(struct llm_comm *c, int to, const void *p, size_t bytes, struct llm_transfer *t, struct llm_err *e)
{
    if (usable(c, to, bytes, e) < 0) return -1;
    *t = (struct llm_transfer){.peer = to, .bytes = bytes};
    c->job->report.bytes += (double)bytes;
    if (llm_transport_send(c->world[to], c->group, p, bytes, &t->request, e) == 0) return 0;
    c->job->broken = true;
    return -1;
}

int llm_comm_receive(struct llm_comm *c, int from, void *p, size_t bytes, struct llm_transfer *t, struct llm_err *e)
{
    if (usable(c, from, bytes, e) < 0) return -1;
    *t = (struct llm_transfer){.peer = from, .bytes = bytes, .receives = true};
    if (llm_transport_receive(c->world[from], c->group, p, bytes, &t->request, e) == 0) return 0;
    c->job->broken = true;
    return -1;
}

int llm_comm_test(struct llm_comm *c, struct llm_transfer *t, size_t n, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (!t[i].request) continue;
        int got = llm_transport_test(&t[i].request, t[i].receives, t[i].bytes, e);
        if (got < 0) {
            c->job->broken = true;
            return llm_in(e, "rank %d (%s)", t[i].peer, c->hosts[t[i].peer]);
        }
        if (got == 0) return 0; /* the others make progress all the same: a test is MPI's time for all messages */
    }
    return 1;
}

/* ---- who does not answer ----
 * A rank that waits may wait for one that waits for another. So it asks it for whom, until one does not say: only what waits does. */

/* One number for another rank. Nothing if the one before has not left, as of a rank that is not there any more. */
static void say(struct said *s, int to, int group, int value)
{
    struct llm_err e = {0};
    if (s->request && llm_transport_test(&s->request, false, sizeof s->value, &e) != 1) return;
    s->value = value;
    if (llm_transport_send(to, group, &s->value, sizeof s->value, &s->request, &e) < 0) s->request = NULL;
}

/* The lowest rank of the job that has not answered. */
static int waited_for(const struct llm_comm *c, const struct llm_transfer *t, size_t n)
{
    size_t i = 0;
    while (i + 1 < n && !t[i].request) i++;
    return c->world[t[i].peer];
}

/* Tells those who have asked for whom this rank waits. */
static void answer(struct llm_comm *c, int waited)
{
    struct llm_err e = {0};
    int from, value;
    while (llm_transport_heard(QUESTIONS, &from, &value, &e) == 1) say(&c->job->answer, from, ANSWERS, waited);
}

#define ASKING .6 /* seconds: many times what a wait takes from one look to the next, and less than the next rank waits longer */

/* For whom rank q of the job waits; -1: it does not say. */
static int ask(struct llm_comm *c, int q, int waited)
{
    struct llm_err e = {0};
    int from, value;
    say(&c->job->question, q, QUESTIONS, 0);
    for (double began = llm_now(); llm_now() - began < ASKING; nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL)) {
        answer(c, waited);
        while (llm_transport_heard(ANSWERS, &from, &value, &e) == 1) {
            if (from == q && value >= 0 && value < c->job->n_ranks) return value;
        }
    }
    return -1;
}

static int timed_out(struct llm_comm *c, const struct llm_transfer *t, size_t n, double seconds, struct llm_err *e)
{
    const int waited = waited_for(c, t, n), me = c->world[c->rank];
    int silent = waited;
    for (int hops = 0, next; hops < c->job->n_ranks && (next = ask(c, silent, waited)) >= 0 && next != me; hops++) silent = next;
    c->job->broken = true;
    char by[HOST_ROOM + 64] = "it";
    if (silent != waited) snprintf(by, sizeof by, "rank %d (%s), and that for it", waited, c->job->hosts[waited]);
    return llm_fail(e, LLM_EX_FAILURE, "rank %d (%s) does not answer: rank %d (%s) has waited %.0f s for %s (%s)", silent, c->job->hosts[silent], me,
                    c->job->hosts[me], seconds, by, c->job->place[0] ? c->job->place : "start");
}

static void call_idle(struct state *job)
{
    if (!job->idle.call || job->idle.busy) return;
    job->idle.busy = true;
    job->idle.call(job->idle.arg);
    job->idle.busy = false;
}

int llm_comm_wait(struct llm_comm *c, struct llm_transfer *t, size_t n, struct llm_err *e)
{
    if (!c) return 0;
    double began = llm_now(), waited = 0, slept = 0, last = began;
    long pause = 0; /* nanoseconds */
    int got;
    for (int tries = 0; (got = llm_comm_test(c, t, n, e)) == 0; tries++) {
        call_idle(c->job);
        if (c->job->broken) return usable(c, c->rank, 0, e);
        /* Other ranks may need this CPU: after a short while of tests each pause is longer, up to a quarter of a millisecond. */
        if (tries < 64) sched_yield();
        else {
            pause = pause < 250000 ? pause + 5000 : pause;
            nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        }
        if (tries % 64 != 63) continue;
        double now = llm_now();
        if (now - last > c->job->timeout / 4) slept += now - last; /* this process was stopped itself, and blames no other for that time */
        last = now;
        waited = now - began - slept;
        if (waited > 1) answer(c, waited_for(c, t, n));
        if (c->job->timeout > 0 && waited > c->job->timeout + 2 * (double)c->world[c->rank]) return timed_out(c, t, n, waited, e);
    }
    c->job->report.seconds += llm_now() - began;
    return got < 0 ? -1 : 0;
}

/* ---- collective calls ---- */

/* Bytes of the piece at `at` of a part. */
static size_t piece(size_t bytes, size_t at)
{
    return bytes <= at ? 0 : bytes - at < LLM_COMM_BUCKET ? bytes - at : LLM_COMM_BUCKET;
}

int llm_comm_all_to_all(struct llm_comm *c, const void *const *out, const size_t *out_bytes, void *const *in, const size_t *in_bytes,
                        struct llm_err *e)
{
    int rank = llm_comm_rank(c), n = llm_comm_size(c);
    if (in_bytes[rank] > 0 && in[rank] != out[rank]) memmove(in[rank], out[rank], in_bytes[rank]);
    if (!c) return 0;
    size_t longest = 0;
    for (int q = 0; q < n; q++) {
        if (q != rank && out_bytes[q] > longest) longest = out_bytes[q];
        if (q != rank && in_bytes[q] > longest) longest = in_bytes[q];
    }
    for (size_t at = 0; at < longest; at += LLM_COMM_BUCKET) {
        size_t k = 0;
        for (int d = 1; d < n; d++) { /* each rank begins with its neighbour, so that no rank is met by all at once */
            int from = (rank - d + n) % n, to = (rank + d) % n;
            size_t receives = piece(in_bytes[from], at), sends = piece(out_bytes[to], at);
            if (receives > 0 && llm_comm_receive(c, from, (char *)in[from] + at, receives, &c->transfers[k++], e) < 0) return -1;
            if (sends > 0 && llm_comm_send(c, to, (const char *)out[to] + at, sends, &c->transfers[k++], e) < 0) return -1;
        }
        if (llm_comm_wait(c, c->transfers, k, e) < 0) return -1;
    }
    return 0;
}

/* What many ranks gather in rounds: small messages, of which each rank would send one to every other. Few ranks gather at once, so that no
 * message waits for another one. */
enum { MANY_RANKS = 17, SMALL_BYTES = 1 << 20 };

/* J. Bruck et al., "Efficient algorithms for all-to-all communications", 1997: before round k a rank has the parts of 2^k ranks from itself on, which
 * it sends to the rank 2^k before it. */
static int gather_in_rounds(struct llm_comm *c, void *const *parts, const size_t *bytes, size_t total, struct llm_err *e)
{
    char *all = llm_alloc(total, 1, "a message", e);
    int got = all ? 0 : llm_comm_give_up(c), has = 1;
    size_t length = bytes[c->rank];
    if (all && length > 0) memcpy(all, parts[c->rank], length);
    while (got == 0 && has < c->n) {
        const int more = has < c->n - has ? has : c->n - has;
        size_t sends = 0, receives = 0, k = 0;
        for (int i = 0; i < more; i++) {
            sends += bytes[(c->rank + i) % c->n];
            receives += bytes[(c->rank + has + i) % c->n];
        }
        if (receives > 0) got = llm_comm_receive(c, (c->rank + has) % c->n, all + length, receives, &c->transfers[k++], e);
        if (got == 0 && sends > 0) got = llm_comm_send(c, (c->rank - has + c->n) % c->n, all, sends, &c->transfers[k++], e);
        if (got == 0) got = llm_comm_wait(c, c->transfers, k, e);
        length += receives;
        has += more;
    }
    const char *at = all;
    for (int i = 0; i < c->n && got == 0; i++) {
        const int q = (c->rank + i) % c->n;
        if (i > 0 && bytes[q] > 0) memcpy(parts[q], at, bytes[q]);
        at += bytes[q];
    }
    free(all);
    return got;
}

int llm_comm_gather(struct llm_comm *c, void *const *parts, const size_t *bytes, struct llm_err *e)
{
    if (!c) return 0;
    size_t total = 0;
    for (int q = 0; q < c->n && total <= SMALL_BYTES; q++) total += bytes[q];
    if (c->n >= MANY_RANKS && total <= SMALL_BYTES) return total > 0 ? gather_in_rounds(c, parts, bytes, total, e) : 0;
    const void **out = llm_alloc((size_t)c->n, sizeof *out, "a message", e);
    size_t *out_bytes = llm_alloc((size_t)c->n, sizeof *out_bytes, "a message", e);
    int got = out && out_bytes ? 0 : llm_comm_give_up(c);
    for (int q = 0; q < c->n && got == 0; q++) {
        out[q] = parts[c->rank];
        out_bytes[q] = bytes[c->rank];
    }
    if (got == 0) got = llm_comm_all_to_all(c, out, out_bytes, parts, bytes, e);
    free(out);
    free(out_bytes);
    return got;
}

int llm_comm_gather_even(struct llm_comm *c, void *all, size_t bytes, struct llm_err *e)
{
    if (!c) return 0;
    void **parts = llm_alloc((size_t)c->n, sizeof *parts, "a message", e);
    size_t *lengths = llm_alloc((size_t)c->n, sizeof *lengths, "a message", e);
    int got = parts && lengths ? 0 : llm_comm_give_up(c);
    for (int q = 0; q < c->n && got == 0; q++) {
        parts[q] = (char *)all + (size_t)q * bytes;
        lengths[q] = bytes;
    }
    if (got == 0) got = llm_comm_gather(c, parts, lengths, e);
    free(parts);
    free(lengths);
    return got;
}

int llm_comm_scatter(struct llm_comm *c, int root, const void *const *parts, const size_t *bytes, void *mine, struct llm_err *e)
{
    int rank = llm_comm_rank(c), n = llm_comm_size(c);
    size_t longest = bytes[rank];
    for (int q = 0; rank == root && q < n; q++) longest = bytes[q] > longest ? bytes[q] : longest;
    if (rank == root && bytes[rank] > 0 && mine != parts[rank]) memmove(mine, parts[rank], bytes[rank]);
    for (size_t at = 0; c && at < longest; at += LLM_COMM_BUCKET) {
        size_t k = 0, receives = piece(bytes[rank], at);
        for (int q = 0; rank == root && q < n; q++) {
            size_t sends = q == root ? 0 : piece(bytes[q], at);
            if (sends > 0 && llm_comm_send(c, q, (const char *)parts[q] + at, sends, &c->transfers[k++], e) < 0) return -1;
        }
        if (rank != root && receives > 0 && llm_comm_receive(c, root, (char *)mine + at, receives, &c->transfers[k++], e) < 0) return -1;
        if (llm_comm_wait(c, c->transfers, k, e) < 0) return -1;
    }
    return 0;
}

/* A binomial tree: in round k the ranks below 2^k, counted from the root, send to those 2^k further. */
int llm_comm_broadcast(struct llm_comm *c, int root, void *p, size_t bytes, struct llm_err *e)
{
    if (!c) return 0;
    int mine = (c->rank - root + c->n) % c->n;
    for (size_t at = 0; at < bytes; at += LLM_COMM_BUCKET) {
        size_t n = piece(bytes, at), k = 0;
        int reach = 1;
        while (mine >= reach) reach *= 2;
        if (mine > 0) {
            int from = (mine - reach / 2 + root) % c->n;
            if (llm_comm_receive(c, from, (char *)p + at, n, &c->transfers[0], e) < 0 || llm_comm_wait(c, c->transfers, 1, e) < 0) return -1;
        }
        for (; mine + reach < c->n; reach *= 2) {
            if (llm_comm_send(c, (mine + reach + root) % c->n, (const char *)p + at, n, &c->transfers[k++], e) < 0) return -1;
        }
        if (llm_comm_wait(c, c->transfers, k, e) < 0) return -1;
    }
    return 0;
}

/* Dissemination: after round k a rank has heard, directly or not, of the 2^(k+1) - 1 ranks before it. */
int llm_comm_barrier(struct llm_comm *c, struct llm_err *e)
{
    for (int d = 1; d < llm_comm_size(c); d *= 2) {
        char in, out = 0;
        if (llm_comm_receive(c, (c->rank - d + c->n) % c->n, &in, 1, &c->transfers[0], e) < 0
            || llm_comm_send(c, (c->rank + d) % c->n, &out, 1, &c->transfers[1], e) < 0 || llm_comm_wait(c, c->transfers, 2, e) < 0) return -1;
    }
    return 0;
}

struct llm_comm *llm_comm_run(struct llm_comm *c, int first, int step, int n, struct llm_err *e)
{
    if (++c->job->groups >= MAX_GROUPS) {
        llm_fail(e, LLM_EX_FAILURE, "expected fewer than %d communicators", MAX_GROUPS);
        return NULL;
    }
    struct llm_comm *run = create(n, e);
    if (!run) return NULL;
    run->job = c->job;
    run->group = c->job->groups; /* disjoint runs may share it */
    run->rank = (c->rank - first) / step;
    for (int q = 0; q < n; q++) {
        run->world[q] = c->world[first + q * step];
        memcpy(run->hosts[q], c->hosts[first + q * step], HOST_ROOM);
    }
    return run;
}

struct llm_comm *llm_comm_twin(struct llm_comm *c, struct llm_err *e)
{
    return llm_comm_run(c, 0, 1, c->n, e);
}

struct llm_comm *llm_comm_split(struct llm_comm *c, uint64_t color, struct llm_err *e)
{
    int n = llm_comm_size(c), members = 0;
    uint64_t *colors = llm_calloc((size_t)n, sizeof *colors, "a communicator", e);
    if (!colors || !c) {
        free(colors);
        if (colors) llm_fail(e, LLM_EX_FAILURE, "one rank alone has nothing to split");
        return NULL;
    }
    colors[c->rank] = color;
    struct llm_comm *sub = NULL;
    if (llm_comm_gather_even(c, colors, sizeof *colors, e) < 0) goto end;
    if (++c->job->groups >= MAX_GROUPS) {
        llm_fail(e, LLM_EX_FAILURE, "expected fewer than %d communicators", MAX_GROUPS);
        goto end;
    }
    for (int q = 0; q < n; q++) members += colors[q] == color;
    if (!(sub = create(members, e))) goto end;
    sub->job = c->job;
    sub->group = c->job->groups; /* disjoint parts may share it */
    for (int q = 0, i = 0; q < n; q++) {
        if (colors[q] != color) continue;
        if (q == c->rank) sub->rank = i;
        sub->world[i] = c->world[q];
        memcpy(sub->hosts[i++], c->hosts[q], HOST_ROOM);
    }
end:
    free(colors);
    return sub;
}

/* ---- agreement ---- */

struct word { int32_t got, status, signal; };
struct text { char of[sizeof((struct llm_err *)0)->text]; };

/* Of the ranks' words, which come from outside: -1, 0 or 1. */
static void clean(struct word *w)
{
    w->got = w->got < 0 ? -1 : w->got > 0;
    w->status = w->status > 0 && w->status < 128 ? w->status : LLM_EX_FAILURE;
    w->signal = w->signal > 0 && w->signal < 65 ? w->signal : 0;
}

/* The failure of rank `bad`, in the words of that rank, becomes `e` on all of them; `mine`: what this rank has failed of, or NULL. */
static int report_failure(struct llm_comm *c, const struct word *all, int bad, const struct llm_err *mine, struct llm_err *e)
{
    bool same = true;
    struct text *texts = llm_calloc((size_t)c->n, sizeof *texts, "agreement", e);
    if (!texts) return llm_comm_give_up(c);
    if (mine) memcpy(texts[c->rank].of, mine->text, sizeof mine->text);
    if (llm_comm_gather_even(c, texts, sizeof *texts, e) == 0) {
        for (int q = 0; q < c->n; q++) {
            texts[q].of[sizeof texts[q].of - 1] = 0;
            same = same && all[q].got < 0 && strcmp(texts[q].of, texts[bad].of) == 0;
        }
        llm_fail(e, all[bad].status, "%s", texts[bad].of);
        if (!same) llm_in(e, "rank %d (%s)", bad, c->hosts[bad]);
        c->job->failed = true;
    }
    free(texts);
    return -1;
}

int llm_comm_agree(struct llm_comm *c, int got, int *signal, struct llm_err *e)
{
    if (!c) return got;
    struct llm_err problem = {0};
    const struct llm_err mine = got < 0 && e ? *e : problem;
    if (c->job->broken) llm_fail(&problem, LLM_EX_FAILURE, "the connection to the other ranks is lost");
    struct word *all = c->job->broken ? NULL : llm_calloc((size_t)c->n, sizeof *all, "agreement", &problem);
    if (!all) {
        if (got >= 0 && e) *e = problem;
        return llm_comm_give_up(c);
    }
    all[c->rank] = (struct word){got, mine.status, signal ? *signal : 0};
    c->job->failed = false;
    int agreed = llm_comm_gather_even(c, all, sizeof *all, &problem), bad = -1;
    for (int q = 0; agreed >= 0 && q < c->n; q++) {
        clean(&all[q]);
        if (all[q].got < 0 && bad < 0) bad = q;
        if (all[q].got > agreed) agreed = all[q].got;
        if (signal && all[q].signal > *signal) *signal = all[q].signal;
    }
    if (bad >= 0) agreed = report_failure(c, all, bad, got < 0 ? &mine : NULL, &problem);
    free(all);
    if (agreed < 0 && e) *e = problem;
    return agreed;
}
