/* llm-bench: measures this machine, and models on it. */
#include <string.h>
#include "base/signals.h"
#include "bin/bench/bench.h"

static const struct llm_cli *const commands[] = {&bench_speed_cli, &bench_train_cli, &bench_kernels_cli, &bench_cost_cli, &bench_quality_cli,
                                                &bench_eval_cli,  &bench_steer_cli, &bench_dictionary_cli, &bench_plot_cli, &bench_scaling_cli,
                                                &bench_zoo_cli, &bench_comm_cli, NULL};
static int (*const runs[])(int, char **, struct llm_err *) = {bench_speed, bench_train, bench_kernels, bench_cost, bench_quality,
                                                                   bench_eval,  bench_steer, bench_dictionary, bench_plot, bench_scaling,
                                                                   bench_zoo,   bench_comm};

static const struct llm_cli cli = {
    .name = "llm-bench",
    .summary = "Measure speed, quality and cost of models, and the peaks of this machine.",
    .usage = "COMMAND [OPTION]... [FILE]...",
    .examples = "llm-bench kernels --peaks\n"
                "llm-bench speed -m model.llm\n"
                "llm-bench quality -m model.llm held-out.txt\n"
                "llm-bench cost small",
    .commands = commands,
};

const char *bench_program;

int main(int argc, char **argv)
{
    struct llm_err e = {0};
    llm_start();
    const struct llm_cli *command = llm_cli_command(&cli, argc, argv);
    int i = 0;
    while (commands[i] != command) i++;
    bench_program = argv[0];
    return runs[i](argc - 1, argv + 1, &e) < 0 ? llm_report(&e) : 0;
}
