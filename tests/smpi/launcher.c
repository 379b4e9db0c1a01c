/* What SimGrid's SMPI has in the place of a launcher and of the operating system. All ranks are threads of control in one process, which run one at a
 * time: they have one environment, and one standard error, which none of them may close. */
#include <sched.h>
#include <stdlib.h>
#include "dist/comm.h"

/* In the place of lib/dist/launcher.c. */
int llm_comm_launched(int *n_ranks, int *rank, struct llm_err *e)
{
    const char *text = getenv("SMPI_GLOBAL_SIZE");
    const long n = text ? strtol(text, NULL, 10) : 0;
    *n_ranks = 1;
    *rank = 0;
    if (n < 1 || n > LLM_COMM_MAX_RANKS) return llm_fail(e, LLM_EX_USAGE, "SMPI_GLOBAL_SIZE: expected a number of ranks: smpirun sets it");
    *n_ranks = (int)n;
    return 0;
}

/* Other ranks run, and simulated time passes, only while this one sleeps. */
int sched_yield(void)
{
    return usleep(5);
}
