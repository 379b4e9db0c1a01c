/* llm-train under a launcher: the start of the ranks, what one rank alone does, and the end of all. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "bin/train/train.h"
#include "cpu/pool.h"

static int errors = -1; /* standard error of a rank that keeps silent */
static int unspoken = -1; /* a file in memory: what it would have said */
static int silent_rank;

/* A rank that ends silently, on a command line that is wrong for all, leaves the first rank the time to say so, upon which Open MPI ends the job. If
 * the job still stands after 3 seconds, the command line was wrong for this rank alone, or the launcher (MPICH's) lets the job stand: the rank says
 * what is wrong. */
static void wait_silently(void)
{
    static const char program[] = "llm-train: ";
    char text[4096], host[256] = "";
    if (errors < 0) return;
    const ssize_t n = pread(unspoken, text, sizeof text, 0);
    const struct timespec pause = {.tv_sec = n > 0 ? 3 : 0, .tv_nsec = n > 0 ? 0 : 500000000};
    nanosleep(&pause, NULL);
    const ssize_t named = sizeof program - 1, skipped = n >= named && memcmp(text, program, (size_t)named) == 0 ? named : 0;
    if (n > 0) gethostname(host, sizeof host - 1);
    if (n > 0) dprintf(errors, "%srank %d (%s): %.*s", program, silent_rank, host, (int)(n - skipped), text + skipped);
}

void llm_ranks_hush(void)
{
    struct llm_err e;
    int n;
    if (llm_comm_launched(&n, &silent_rank, &e) < 0 || silent_rank == 0 || (unspoken = memfd_create("unspoken", MFD_CLOEXEC)) < 0) return;
    errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(unspoken, STDERR_FILENO);
    atexit(wait_silently);
}

void llm_ranks_speak(void)
{
    if (errors < 0) return;
    dup2(errors, STDERR_FILENO);
    close(errors);
    close(unspoken);
    errors = unspoken = -1;
}

/* What one process does alone. NULL: the command line asks for steps. */
static const char *alone(const struct args *a)
{
    return a->plan ? "--plan" : a->show > 0 ? "--show" : a->gradcheck ? "--gradcheck" : a->coordcheck ? "--coordcheck" : a->key ? "--key"
        : a->sweep.n > 0 ? "--sweep" : a->teach.prompts ? "--prompts" : llm_run_is_ngram(a) ? "--objective ngram"
        : llm_objectives[a->o.objective]->beside ? llm_objectives[a->o.objective]->name : a->ngram_bar ? "--ngram-bar" : NULL;
}

static bool reads_stdin(const struct args *a, const char *const *data, size_t n_data)
{
    bool found = (a->init && strcmp(a->init, "-") == 0) || (a->resume && strcmp(a->resume, "-") == 0);
    for (size_t i = 0; i < n_data; i++) found |= strcmp(data[i], "-") == 0;
    return found;
}

static int by_name(const void *a, const void *b)
{
    const struct llm_given *x = *(const struct llm_given *const *)a, *y = *(const struct llm_given *const *)b;
    const int c = strcmp(x->option->name, y->option->name);
    return c ? c : (x > y) - (x < y); /* of several, in the order in which they were given */
}

/* Options that may differ between ranks: they change nothing that ranks exchange. */
static bool is_own(const struct llm_opt *o)
{
    static const char *const own[] = {"threads", "quiet", "verbose"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(o->name, own[i]) == 0) return true;
    }
    return false;
}

/* Paths may differ between machines. Their contents are compared later (llm_trainer_same). */
static bool is_path(const struct llm_opt *o)
{
    if (o->type == LLM_INPUT || o->type == LLM_INPUTS || o->type == LLM_OUTPUT) return true;
    return strcmp(o->name, "config") == 0 || strcmp(o->name, "snapshot") == 0 || strcmp(o->name, "chat-template") == 0;
}

/* Appends the command line's options in the order of their names, as "name\0value\0": paths and flags have an empty value. */
static int put_options(struct llm_buf *b, struct llm_err *e)
{
    const struct llm_given *given;
    const size_t n = llm_cli_given(&given);
    const struct llm_given **sorted = llm_alloc(n + 1, sizeof *sorted, "options", e);
    int status = sorted ? 0 : -1;
    for (size_t i = 0; sorted && i < n; i++) sorted[i] = &given[i];
    if (sorted && n > 0) qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 0; i < n && status == 0; i++) {
        const struct llm_opt *o = sorted[i]->option;
        const char *value = is_path(o) || !sorted[i]->value ? "" : sorted[i]->value;
        if (!is_own(o) && (llm_buf_put(b, o->name, strlen(o->name) + 1, e) < 0 || llm_buf_put(b, value, strlen(value) + 1, e) < 0)) status = -1;
    }
    free(sorted);
    return status;
}

/* Fails at a rank whose options are not those of rank 0, which `first` lists, naming the first that differs. */
static int compare_options(const struct llm_buf *first, const struct llm_buf *mine, struct llm_err *e)
{
    size_t a = 0, b = 0;
    while (a < first->n || b < mine->n) {
        const char *x = a < first->n ? first->p + a : NULL, *y = b < mine->n ? mine->p + b : NULL;
        const int c = !x ? 1 : !y ? -1 : strcmp(x, y);
        if (c < 0) return llm_fail(e, LLM_EX_FAILURE, "--%s: expected the option, as at rank 0, found none", x);
        if (c > 0) return llm_fail(e, LLM_EX_FAILURE, "--%s: expected no such option, as at rank 0, found one", y);
        const char *v = x + strlen(x) + 1, *w = y + strlen(y) + 1;
        if (strcmp(v, w) != 0) return llm_fail(e, LLM_EX_FAILURE, "--%s: expected %s, as at rank 0, found %s", x, v, w);
        a = (size_t)(v - first->p) + strlen(v) + 1;
        b = (size_t)(w - mine->p) + strlen(w) + 1;
    }
    return 0;
}

/* What ranks exchange depends on their options: ranks of different command lines would wait for one another, or misread what comes. */
static int check_options(struct llm_comm *c, struct llm_err *e)
{
    struct llm_buf mine = {0}, first = {0};
    int got = put_options(&mine, e);
    uint64_t n = mine.n;
    got = llm_comm_agree(c, got, NULL, e);
    if (got == 0) got = llm_comm_broadcast(c, 0, &n, sizeof n, e);
    int made = got == 0 ? llm_buf_reserve(&first, n + 1, e) : -1;
    if (made == 0 && n > 0 && llm_comm_rank(c) == 0) memcpy(first.p, mine.p, n);
    first.n = n;
    if (got == 0) got = llm_comm_agree(c, made, NULL, e);
    if (got == 0 && n > 0) got = llm_comm_broadcast(c, 0, first.p, n, e);
    if (got == 0) got = llm_comm_agree(c, compare_options(&first, &mine, e), NULL, e);
    (void)llm_comm_take_report(c); /* no step's bytes */
    llm_buf_release(&mine);
    llm_buf_release(&first);
    return got;
}

int llm_ranks_start(const struct llm_cli *cli, const struct args *a, const char *const *data, size_t n_data, struct llm_run *r, struct llm_err *e)
{
    int n, rank;
    struct llm_layout layout = {0};
    if (llm_comm_launched(&n, &rank, e) < 0) return -1;
    if (a->shard && llm_layout_read(&layout, a->shard, e) < 0) return -1;
    const int64_t least = llm_layout_lanes(&layout) * llm_layout_experts(&layout) * llm_layout_rows(&layout);
    const bool unsaid = layout.dp == 0 && least == 1; /* how many ranks there are */
    if (a->plan && layout.automatic && layout.ranks == 0) llm_usage(cli, "--plan --shard: expected ranks=RANKS beside auto");
    if (a->plan && layout.zero > 0 && unsaid) llm_usage(cli, "--plan --shard: expected dp=RANKS beside zero=%d", (int)layout.zero);
    if (n > 1 && alone(a)) llm_usage(cli, "%s: expected one process, found a launcher of %d", alone(a), n);
    if (n > 1 && reads_stdin(a, data, n_data)) llm_usage(cli, "expected files that each of %d ranks can read, found standard input", n);
    if (n == 1 && !a->plan && llm_layout_check(&layout, n, e) < 0) return -1;
    r->trainer.layout = layout;
    if (llm_comm_start(&r->trainer.comm, e) < 0) return -1;
    llm_comm_set_timeout(r->trainer.comm, a->rank_timeout);
    if (llm_comm_size(r->trainer.comm) == 1) return 0;
    return check_options(r->trainer.comm, e) < 0 ? -1 : llm_layout_check(&layout, n, e);
}

int llm_ranks_pool(const struct llm_run *r, int64_t threads, struct llm_err *e)
{
    struct llm_comm *c = r->trainer.comm;
    if (c) {
        const char *host = llm_comm_host(c, llm_comm_rank(c));
        struct llm_comm *node = llm_comm_split(c, llm_xxh64(host, strlen(host), 0), e);
        if (!node) return -1;
        llm_pool_share(llm_comm_size(node));
        llm_comm_destroy(node);
    }
    return llm_pool_start(threads, e);
}

int llm_ranks_end(struct llm_run *r, int failed, struct llm_err *e)
{
    struct llm_comm *c = r->trainer.comm;
    if (c) llm_comm_set_place(c, "the end");
    if (c && !llm_comm_broken(c) && !(failed && llm_comm_failed(c))) failed = llm_comm_agree(c, failed ? -1 : 0, NULL, e) < 0;
    int rank = llm_comm_rank(c), status = 0;
    if (llm_comm_broken(c)) {
        status = llm_report(e);
        llm_comm_abort(c, status);
    }
    if (failed) status = rank == 0 ? llm_report(e) : e->status ? e->status : LLM_EX_FAILURE;
    llm_run_release(r);
    llm_comm_end(c);
    return status;
}
