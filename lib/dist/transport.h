/* What moves the bytes of a communicator: MPI's point-to-point messages, or nothing in a program that was built without MPI. */
#ifndef LLM_DIST_TRANSPORT_H
#define LLM_DIST_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

/* Ranks here are those of the whole job. `group` keeps messages of different communicators apart. */
int llm_transport_start(int *n_ranks, int *rank, struct llm_err *e) LLM_MUST_CHECK;
void llm_transport_end(void);
void llm_transport_abort(int status);
/* Starts a message and returns it in *request. */
int llm_transport_send(int to, int group, const void *p, size_t bytes, void **request, struct llm_err *e) LLM_MUST_CHECK;
int llm_transport_receive(int from, int group, void *p, size_t bytes, void **request, struct llm_err *e) LLM_MUST_CHECK;
/* 1: arrived and *request freed; 0: not yet; -1: failed, also if another number of bytes came. */
int llm_transport_test(void **request, bool receives, size_t bytes, struct llm_err *e) LLM_MUST_CHECK;
/* 1: a message of one number of the group has come, from whichever rank; 0: none has; -1: failed. */
int llm_transport_heard(int group, int *from, int *value, struct llm_err *e) LLM_MUST_CHECK;

#endif
