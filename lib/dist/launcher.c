/* What launchers leave in the environment (dist/comm.h). */
#include <stdlib.h>
#include "dist/comm.h"

/* The integer of a variable, or -1. */
static int of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return -1;
    long v = strtol(text, &end, 10);
    return *end || v < 0 || v > LLM_COMM_MAX_RANKS ? -1 : (int)v;
}

int llm_comm_launched(int *n_ranks, int *rank, struct llm_err *e)
{
    static const struct { const char *size, *rank; } launchers[] = {
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, /* Open MPI's mpirun */
        {"PMI_SIZE", "PMI_RANK"},                         /* MPICH's mpiexec; srun --mpi=pmi2 */
        {"SLURM_STEP_NUM_TASKS", "PMIX_RANK"},            /* srun --mpi=pmix */
    };
    *n_ranks = 1;
    *rank = 0;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        int n = of(launchers[i].size), r = of(launchers[i].rank);
        if (n < 1 || r < 0 || r >= n) continue;
        *n_ranks = n;
        *rank = r;
        return 0;
    }
    int tasks = of("SLURM_STEP_NUM_TASKS");
    if (tasks <= 1 || of("SLURM_PROCID") < 0) return 0;
    return llm_fail(e, LLM_EX_USAGE, "srun started %d tasks that do not know one another: expected srun --mpi=pmix or --mpi=pmi2", tasks);
}
