/* --shard auto: what the ranks know together, and the layout that they agree upon. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/train/train.h"
#include "cpu/detect.h"

/* Bytes that each rank may take: the least, over the machines, of a machine's memory divided by its ranks. Without a launcher, a plan's ranks are
 * all on this machine. */
static int memory_of_rank(struct llm_comm *c, int64_t ranks, double *bytes, struct llm_err *e)
{
    const int n = llm_comm_size(c), rank = llm_comm_rank(c);
    double beside = 0, *all = llm_calloc((size_t)n, sizeof *all, "memory", e);
    if (!all) return -1;
    for (int q = 0; c && q < n; q++) beside += strcmp(llm_comm_host(c, q), llm_comm_host(c, rank)) == 0;
    all[rank] = (double)llm_machine_memory() / (c ? beside : (double)ranks);
    const int got = c ? llm_comm_gather_even(c, all, sizeof *all, e) : 0;
    *bytes = all[0];
    for (int q = 1; q < n; q++) *bytes = all[q] < *bytes ? all[q] : *bytes;
    free(all);
    return got;
}

int llm_run_choose(struct llm_run *r, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *o,
                   struct llm_plan_trials *trials, struct llm_err *e)
{
    struct llm_layout *l = &r->trainer.layout;
    struct llm_comm *comm = r->trainer.comm;
    struct { int got; struct llm_layout l; struct llm_err e; } said = {.got = 0};
    double memory;
    if (!l->automatic) return 0;
    if (llm_comm_agree(comm, 0, NULL, e) < 0) return -1; /* ranks that have come to no model are not waited for */
    if (l->ranks == 0) l->ranks = llm_comm_size(comm);
    if (memory_of_rank(comm, l->ranks, &memory, e) < 0) return -1;
    const struct llm_layout_costs costs = llm_layout_costs_all(&l->costs, memory);
    if (llm_comm_rank(comm) == 0) said.got = llm_layout_choose(l, c, m, o, &costs, trials, &said.e);
    said.l = *l;
    if (comm && llm_comm_broadcast(comm, 0, &said, sizeof said, e) < 0) return -1;
    *l = said.l;
    if (said.got < 0) *e = said.e;
    return said.got;
}
