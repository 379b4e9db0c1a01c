/* llm-bench comm: how long messages between the ranks of a launcher take. */
#include <stdlib.h>
#include "bin/bench/bench.h"
#include "measure/comm.h"

struct args {
    struct llm_common common;
    int64_t largest;
    double timeout;
    int part;
};
#define AT(field) offsetof(struct args, field)
enum { PART_ALL, PART_TIMES, PART_FITS };

static const struct llm_opt options[] = {
    {0, "largest", "BYTES", "size of the largest message, and of a rank's part of a collective call [16M]", LLM_SIZE, AT(largest), 8, 1 << 30, NULL},
    {0, "rank-timeout", "S", "end if a rank does not answer for S seconds, naming it; 0: wait for ever [60]", LLM_REAL, AT(timeout), 0, 1e9, NULL},
    {0, "table", "NAME", "tables to print: all, times, or fits (latency and bandwidth) [all]", LLM_CHOICE, AT(part), 0, 0, "all|times|fits"},
    {0}};

const struct llm_cli bench_comm_cli = {
    .name = "llm-bench comm",
    .summary = "Measure messages and collective calls between the ranks of mpirun or srun.",
    .usage = "[OPTION]...",
    .examples = "mpirun -n 2 llm-bench comm --largest 1M",
    .options = options,
    .common = LLM_COMMON_OUTPUT | LLM_COMMON_JSON | LLM_COMMON_TABLE,
};

int bench_comm(int argc, char **argv, struct llm_err *e)
{
    struct args a = {.part = PART_ALL, .largest = 16 << 20, .timeout = 60};
    struct llm_comm *c;
    struct llm_table times, fits, *both[] = {&times, &fits};
    if (llm_cli_parse(&bench_comm_cli, &a, argc, argv) < argc) llm_usage(&bench_comm_cli, "expected no operands");
    if (llm_comm_start(&c, e) < 0) return -1;
    if (!c) llm_usage(&bench_comm_cli, "expected a launcher of at least two ranks: mpirun -n 2 llm-bench comm");
    llm_comm_set_timeout(c, a.timeout);
    llm_comm_set_place(c, "comm");
    llm_table_init(&times, llm_comm_time_columns);
    llm_table_init(&fits, llm_comm_fit_columns);
    int got = llm_comm_measure(c, (size_t)a.largest, &times, &fits, e);
    const int rank = llm_comm_rank(c);
    if (llm_comm_broken(c)) llm_comm_abort(c, llm_report(e));
    if (rank == 0 && got == 0) {
        if (a.part != PART_ALL) llm_table_release(both[a.part == PART_TIMES]);
        got = a.part == PART_ALL ? bench_print(&a.common, both, 2, e) : bench_print(&a.common, &both[a.part == PART_FITS], 1, e);
    } else {
        llm_table_release(&times);
        llm_table_release(&fits);
    }
    got = llm_comm_agree(c, got, NULL, e);
    if (got < 0) { /* the first rank says it, before the launcher sees a rank end and ends the others */
        int status = rank == 0 ? llm_report(e) : e->status;
        struct llm_err ignored;
        if (llm_comm_barrier(c, &ignored) < 0) llm_comm_abort(c, status);
        llm_comm_end(c);
        exit(status);
    }
    llm_comm_end(c);
    return 0;
}
