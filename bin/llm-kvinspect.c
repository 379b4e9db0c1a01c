/* llm-kvinspect: looks into KV caches. */
#include <string.h>
#include <unistd.h>
#include "base/signals.h"
#include "bin/kvinspect/kvinspect.h"

static const struct llm_cli *const commands[] = {&kv_summary_cli, &kv_heads_cli, &kv_attention_cli, &kv_spectrum_cli, &kv_quant_cli,
                                                &kv_evict_cli, &kv_slice_cli, &kv_cat_cli, &kv_size_cli, &kv_export_cli, &kv_diff_cli, NULL};
static int (*const runs[])(int, char **, struct llm_err *) = {kv_summary, kv_heads, kv_attention, kv_spectrum, kv_quant, kv_evict, kv_slice, kv_cat,
                                                            kv_size, kv_export, kv_diff};

static const struct llm_cli cli = {
    .name = "llm-kvinspect",
    .summary = "Look into KV caches that llm-infer saved.",
    .usage = "[COMMAND] [OPTION]... [FILE]",
    .examples = "llm-kvinspect cache.kv\n"
                "llm-infer -m model.llm --kv-out - --trace-queries 64 < prompt.txt | llm-kvinspect heads -\n"
                "llm-kvinspect export --tensor layers.0.k -o k.npy cache.kv\n"
                "llm-kvinspect diff a.kv b.kv",
    .commands = commands,
};

int main(int argc, char **argv)
{
    static const char *const about[] = {"-h", "--help", "-V", "--version", "--complete-options", NULL};
    struct llm_err e = {0};
    int status;
    llm_start();
    for (int i = 0; argc > 1 && about[i]; i++) {
        if (strcmp(argv[1], about[i]) == 0) (void)llm_cli_command(&cli, argc, argv);
    }
    for (int i = 0; argc > 1 && commands[i]; i++) {
        if (strcmp(strrchr(commands[i]->name, ' ') + 1, argv[1]) != 0) continue;
        status = runs[i](argc - 1, argv + 1, &e);
        return status < 0 ? llm_report(&e) : status;
    }
    /* With two operands of which the first is neither a command nor a file, the command is misspelt. */
    if (argc > 2 && argv[1][0] && argv[1][0] != '-' && argv[2][0] != '-' && access(argv[1], F_OK) != 0) (void)llm_cli_command(&cli, argc, argv);
    status = kv_summary(argc, argv, &e); /* no command: a summary */
    return status < 0 ? llm_report(&e) : status;
}
