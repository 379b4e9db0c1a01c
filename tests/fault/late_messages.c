/* For LD_PRELOAD under mpirun: messages that take their time. A request is not seen to be complete before a moment chosen at random, up to
 * LATE_MICROSECONDS [3000] after it began, so messages complete in any order, as on networks, and late. Both MPIs: requests are compared as bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LATE = 1 << 16 };
static struct { MPI_Request request; double ready; } late[MAX_LATE];
static size_t n_late;
static unsigned state;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double some_time(void)
{
    const char *most = getenv("LATE_MICROSECONDS");
    if (state == 0) state = (unsigned)getpid();
    return 1e-6 * (most ? atof(most) : 3000) * rand_r(&state) / RAND_MAX;
}

static void note(MPI_Request request)
{
    if (n_late == MAX_LATE) abort();
    late[n_late].request = request;
    late[n_late++].ready = now() + some_time();
}

int MPI_Isend(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    const int got = PMPI_Isend(p, n, type, to, tag, comm, request);
    note(*request);
    return got;
}

int MPI_Irecv(void *p, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    const int got = PMPI_Irecv(p, n, type, from, tag, comm, request);
    note(*request);
    return got;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    const MPI_Request before = *request;
    size_t i = 0;
    while (i < n_late && memcmp(&late[i].request, &before, sizeof before) != 0) i++;
    if (i < n_late && now() < late[i].ready) {
        *flag = 0;
        return MPI_SUCCESS;
    }
    const int got = PMPI_Test(request, flag, status);
    if (*flag && i < n_late) late[i] = late[--n_late];
    return got;
}
