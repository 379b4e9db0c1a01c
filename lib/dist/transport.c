#include "dist/transport.h"

#ifdef LLM_MPI

#include <mpi.h>
#include <stdlib.h>

/* Not MPI_COMM_WORLD, so that messages of other libraries in the process stay apart. */
static MPI_Comm ours = MPI_COMM_NULL;

static int failed(int code, const char *what, struct llm_err *e)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;
    if (MPI_Error_string(code, text, &n) != MPI_SUCCESS) n = 0;
    return llm_fail(e, LLM_EX_FAILURE, "MPI: %s: %.*s", what, n, text);
}

int llm_transport_start(int *n_ranks, int *rank, struct llm_err *e)
{
    int provided, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(MPI_COMM_WORLD, &ours);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(ours, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_size(ours, n_ranks);
    if (code == MPI_SUCCESS) code = MPI_Comm_rank(ours, rank);
    return code == MPI_SUCCESS ? 0 : failed(code, "start", e);
}

void llm_transport_end(void)
{
    MPI_Comm_free(&ours);
    MPI_Finalize();
}

void llm_transport_abort(int status)
{
    MPI_Abort(ours, status);
}

static int started(int code, MPI_Request *r, const char *what, void **request, struct llm_err *e)
{
    if (code != MPI_SUCCESS) {
        free(r);
        return failed(code, what, e);
    }
    *request = r;
    return 0;
}

int llm_transport_send(int to, int group, const void *p, size_t bytes, void **request, struct llm_err *e)
{
    MPI_Request *r = malloc(sizeof *r);
    if (!r) return llm_no_memory(e, "a message");
    return started(MPI_Isend(p, (int)bytes, MPI_BYTE, to, group, ours, r), r, "send", request, e);
}

int llm_transport_receive(int from, int group, void *p, size_t bytes, void **request, struct llm_err *e)
{
    MPI_Request *r = malloc(sizeof *r);
    if (!r) return llm_no_memory(e, "a message");
    return started(MPI_Irecv(p, (int)bytes, MPI_BYTE, from, group, ours, r), r, "receive", request, e);
}

int llm_transport_test(void **request, bool receives, size_t bytes, struct llm_err *e)
{
    MPI_Status status;
    int done = 0, count = 0, code = MPI_Test(*request, &done, &status);
    if (code != MPI_SUCCESS) return failed(code, receives ? "receive" : "send", e);
    if (!done) return 0;
    free(*request);
    *request = NULL;
    if (!receives) return 1;
    code = MPI_Get_count(&status, MPI_BYTE, &count);
    if (code != MPI_SUCCESS) return failed(code, "receive", e);
    if ((size_t)count == bytes) return 1;
    return llm_fail(e, LLM_EX_FAILURE, "expected a message of %zu bytes, found %d", bytes, count);
}

int llm_transport_heard(int group, int *from, int *value, struct llm_err *e)
{
    MPI_Status status;
    int there = 0, code = MPI_Iprobe(MPI_ANY_SOURCE, group, ours, &there, &status);
    if (code == MPI_SUCCESS && there) code = MPI_Recv(value, (int)sizeof *value, MPI_BYTE, status.MPI_SOURCE, group, ours, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return failed(code, "receive", e);
    *from = there ? status.MPI_SOURCE : -1;
    return there;
}

#else

int llm_transport_start(int *n_ranks, int *rank, struct llm_err *e)
{
    (void)n_ranks;
    (void)rank;
    return llm_fail(e, EX_UNAVAILABLE, "expected one process: the program was built without MPI (mpicc was not found)");
}

/* Nothing starts, so nothing below is reached. */
void llm_transport_end(void) {}
void llm_transport_abort(int status) { (void)status; }

int llm_transport_send(int to, int group, const void *p, size_t bytes, void **request, struct llm_err *e)
{
    (void)to, (void)group, (void)p, (void)bytes, (void)request;
    return llm_fail(e, EX_UNAVAILABLE, "built without MPI");
}

int llm_transport_receive(int from, int group, void *p, size_t bytes, void **request, struct llm_err *e)
{
    return llm_transport_send(from, group, p, bytes, request, e);
}

int llm_transport_test(void **request, bool receives, size_t bytes, struct llm_err *e)
{
    (void)receives;
    return llm_transport_send(0, 0, NULL, bytes, request, e);
}

int llm_transport_heard(int group, int *from, int *value, struct llm_err *e)
{
    (void)group, (void)from, (void)value;
    return llm_transport_send(0, 0, NULL, 0, NULL, e);
}

#endif
