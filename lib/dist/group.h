/* Exchanges of ranks that compute a pass together (tensor and expert parallelism). A pass may fail at one rank between any two exchanges, while the
 * others wait for the next one. So every message begins with a header that says its length, or that its sender has left the pass. A rank that has
 * left goes on receiving what the others send until they have left, too (llm_group_leave): no rank waits for a message that does not come. */
#ifndef LLM_DIST_GROUP_H
#define LLM_DIST_GROUP_H

#include "dist/comm.h"

struct llm_group; /* opaque; NULL in llm_group_say, llm_group_leave, llm_group_destroy: this rank computes alone */

/* A group of n ranks of `c`, first, first + step and so on, as llm_comm_run makes it. The caller destroys it before `c` ends. NULL: see `e`. If `c`
 * is NULL, this process is rank 0 of n, and the others are not there, for estimates of memory and time: in llm_group_gather they send zeros; in
 * llm_group_exchange each sends what this rank sends to itself, or zeros if that has another length. */
struct llm_group *llm_group_create(struct llm_comm *c, int first, int step, int n, struct llm_err *e) LLM_MUST_CHECK;
void llm_group_destroy(struct llm_group *g);
/* What begins a group. Operations call through it, so that programs which form no groups are not linked with MPI. */
struct llm_group_head {
    int n, rank;
    int (*gather)(struct llm_group *g, void *const *parts, const size_t *bytes, struct llm_err *e);
    int (*exchange)(struct llm_group *g, void *const *out, const size_t *out_bytes, void *const *in, const size_t *in_bytes, struct llm_err *e);
};
static inline int llm_group_size(const struct llm_group *g) { return ((const struct llm_group_head *)g)->n; }
static inline int llm_group_rank(const struct llm_group *g) { return ((const struct llm_group_head *)g)->rank; }

/* Within a pass. Every rank gets all parts: part r, bytes[r] long, lies at parts[r]; a rank has filled its own. -1: also if a rank has left the pass.
 * After a failure no further exchange may follow before llm_group_leave. */
LLM_MUST_CHECK static inline int llm_group_gather(struct llm_group *g, void *const *parts, const size_t *bytes, struct llm_err *e)
{
    return ((struct llm_group_head *)g)->gather(g, parts, bytes, e);
}
/* The same, but every rank sends out[q], out_bytes[q] long, to each rank q, and receives in[q] of in_bytes[q] from it. Its own part is copied. */
LLM_MUST_CHECK static inline int llm_group_exchange(struct llm_group *g, void *const *out, const size_t *out_bytes, void *const *in,
                                                    const size_t *in_bytes, struct llm_err *e)
{
    return ((struct llm_group_head *)g)->exchange(g, out, out_bytes, in, in_bytes, e);
}
/* After one or several passes, whether they have failed or not: tells the others that this rank has left them. It then may wait for ranks outside of
 * the group before llm_group_leave, which calls this unless it was called. */
int llm_group_say(struct llm_group *g, struct llm_err *e) LLM_MUST_CHECK;
/* Waits until all ranks have left the passes. *abandoned: whether an exchange failed because another rank had left, which then knows the reason. */
int llm_group_leave(struct llm_group *g, bool *abandoned, struct llm_err *e) LLM_MUST_CHECK;

#endif
