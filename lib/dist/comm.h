/* The communicator: the processes ("ranks") that work on one job. Under a launcher (mpirun, srun) they are MPI's; alone there is one rank, every
 * call returns at once, and MPI is not initialised. MPI moves bytes and never adds: sums have a canonical order that the callers keep
 * (lib/README.md). All transfers are nonblocking MPI 3.1 point-to-point messages. The collective calls are built of them, so that a wait ends with
 * the name of the rank that does not answer.
 *
 * All ranks of a communicator must make the same collective calls in the same order. One thread at a time. A transfer arrives with exactly the
 * announced number of bytes, or fails. After a failure of a transfer the communicator is broken: every later call fails at once. */
#ifndef LLM_DIST_COMM_H
#define LLM_DIST_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct llm_comm; /* opaque; NULL in every call: a communicator of one rank */

enum {
    LLM_COMM_BUCKET = 32 << 20, /* bytes of the largest message; the collective calls cut what is longer */
    LLM_COMM_MAX_RANKS = 1 << 16
};

/* ---- launchers ---- */
/* What the environment says: the number of ranks that a launcher started and which of them this process is; 1 and 0 without a launcher.
 * -1: `e` says why the launcher does not serve (srun without PMI). No MPI is called. */
int llm_comm_launched(int *n_ranks, int *rank, struct llm_err *e) LLM_MUST_CHECK;
/* Initialises MPI under a launcher of several ranks. NULL in *c: alone. Fails if the program was built without MPI, or if the launcher belongs to
 * another MPI library. Call it once. */
int llm_comm_start(struct llm_comm **c, struct llm_err *e) LLM_MUST_CHECK;
/* Finalises MPI: collective. NULL is fine. After a failure that the ranks have not agreed upon, call llm_comm_abort instead. */
void llm_comm_end(struct llm_comm *c);
/* Ends all ranks of the job now with the exit status. Does not return, unless `c` is NULL. */
void llm_comm_abort(struct llm_comm *c, int status);
/* Seconds after which a wait fails, naming who is waited for, or, if that one waits itself, for whom it does; 0: never. Lower ranks report first.
 * NULL is fine. */
void llm_comm_set_timeout(struct llm_comm *c, double seconds);
/* Every wait of the job calls idle(arg) between tests, but not from within it: other messages make progress. NULL: nothing is called. A NULL
 * communicator is fine. */
void llm_comm_set_idle(struct llm_comm *c, void (*idle)(void *arg), void *arg);
/* What the job is at ("step 12: gradients"), for messages about waits. Copied. NULL is fine. */
void llm_comm_set_place(struct llm_comm *c, const char *place);

/* ---- ten calls ---- */
int llm_comm_rank(const struct llm_comm *c);
int llm_comm_size(const struct llm_comm *c);
const char *llm_comm_host(const struct llm_comm *c, int rank);
/* A communicator of the ranks of `c` that give the same color, in their order: collective. The caller destroys it before `c` ends. NULL: see `e`. */
struct llm_comm *llm_comm_split(struct llm_comm *c, uint64_t color, struct llm_err *e) LLM_MUST_CHECK;
/* A communicator of all ranks of `c`, whose messages are kept apart from those of `c`. Every rank makes the same twins in the same order; no message
 * is sent. The caller destroys it before `c` ends. NULL: see `e`. */
struct llm_comm *llm_comm_twin(struct llm_comm *c, struct llm_err *e) LLM_MUST_CHECK;
/* A communicator of n ranks of `c`, first, first + step and so on, of which this rank is one: disjoint runs cover all ranks, and every rank makes its
 * own. No message is sent, as of llm_comm_twin. */
struct llm_comm *llm_comm_run(struct llm_comm *c, int first, int step, int n, struct llm_err *e) LLM_MUST_CHECK;
void llm_comm_destroy(struct llm_comm *c);

/* A message under way: at most LLM_COMM_BUCKET bytes. Zero-initialise. The bytes are borrowed until it has arrived. */
struct llm_transfer {
    void *request;      /* the library's; NULL: none, or arrived */
    int peer;           /* rank of the communicator */
    size_t bytes;
    bool receives;
};
int llm_comm_send(struct llm_comm *c, int to, const void *p, size_t bytes, struct llm_transfer *t, struct llm_err *e) LLM_MUST_CHECK;
int llm_comm_receive(struct llm_comm *c, int from, void *p, size_t bytes, struct llm_transfer *t, struct llm_err *e) LLM_MUST_CHECK;
/* 1: all n transfers have arrived; 0: not yet; -1: see `e`. */
int llm_comm_test(struct llm_comm *c, struct llm_transfer *t, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Tests until all have arrived, leaving the CPU to others between tests. */
int llm_comm_wait(struct llm_comm *c, struct llm_transfer *t, size_t n, struct llm_err *e) LLM_MUST_CHECK;

/* Every rank gets all parts: part r, bytes[r] long, lies at parts[r]; a rank has filled its own. */
int llm_comm_gather(struct llm_comm *c, void *const *parts, const size_t *bytes, struct llm_err *e) LLM_MUST_CHECK;
/* The same of parts of equal length that follow one another. */
int llm_comm_gather_even(struct llm_comm *c, void *all, size_t bytes, struct llm_err *e) LLM_MUST_CHECK;
/* Rank r gets bytes[r] bytes of the root's parts[r] in `mine`. parts: of the root alone. */
int llm_comm_scatter(struct llm_comm *c, int root, const void *const *parts, const size_t *bytes, void *mine, struct llm_err *e) LLM_MUST_CHECK;
/* Rank r sends out[q], out_bytes[q] long, to each rank q, and receives in[q] of in_bytes[q] from it. Its own part is copied. */
int llm_comm_all_to_all(struct llm_comm *c, const void *const *out, const size_t *out_bytes, void *const *in, const size_t *in_bytes,
                        struct llm_err *e) LLM_MUST_CHECK;
/* The root's bytes reach all ranks. */
int llm_comm_broadcast(struct llm_comm *c, int root, void *p, size_t bytes, struct llm_err *e) LLM_MUST_CHECK;
int llm_comm_barrier(struct llm_comm *c, struct llm_err *e) LLM_MUST_CHECK;

/* ---- what was moved ---- */
struct llm_comm_report {
    double seconds;     /* in waits */
    double bytes;       /* sent by this rank */
};
/* Since the last call; 0 of NULL. */
struct llm_comm_report llm_comm_take_report(struct llm_comm *c);

/* ---- agreement ---- */
/* Makes the ranks' results of the same work one: collective. `got` is -1 (with `e`), 0 or 1. Returns -1 on all ranks if any failed: `e` is then the
 * lowest failing rank's on all of them, with that rank's name before it unless all failed with the same text. Else 1 if any had 1, else 0.
 * *signal (NULL: none): becomes the largest of the ranks'. Returns `got` if `c` is NULL. */
int llm_comm_agree(struct llm_comm *c, int got, int *signal, struct llm_err *e) LLM_MUST_CHECK;
/* Whether a transfer has failed: the ranks cannot agree any more. */
bool llm_comm_broken(const struct llm_comm *c);
/* This rank cannot take part in the next call, for which the others would wait (it lacks memory): breaks the communicator. -1. */
int llm_comm_give_up(struct llm_comm *c);
/* Whether the last agreement was on a failure, which all ranks then know. */
bool llm_comm_failed(const struct llm_comm *c);

#endif
