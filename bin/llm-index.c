/* llm-index: finds texts by vectors and words. One file a sub-command, or several close ones, in bin/index/. */
#include <string.h>
#include "base/signals.h"
#include "bin/index/index.h"
#include "cpu/pool.h"

static const struct llm_cli *const commands[] = {&index_build_cli, &index_add_cli, &index_delete_cli, &index_search_cli, &index_stat_cli,
                                                &index_check_cli, NULL};
static int (*const runs[])(int, char **, struct llm_err *) = {index_build, index_add, index_delete, index_search, index_stat, index_check};

static const struct llm_cli cli = {
    .name = "llm-index",
    .summary = "Make indexes of texts and their vectors, and find the nearest to a query.",
    .usage = "build|add|delete|search|stat|check [OPTION]... [FILE]...",
    .examples = "llm-tokenize chunk -T model.llm *.md | llm-infer -m model.llm --embed --jsonl | llm-index build notes.idx\n"
                "echo '{\"text\": \"how is tea made?\"}' | llm-infer -m model.llm --embed --jsonl | llm-index search notes.idx\n"
                "llm-index check notes.idx",
    .commands = commands,
};

int main(int argc, char **argv)
{
    struct llm_err e = {0};
    int status = 0;
    llm_start();
    const struct llm_cli *c = llm_cli_command(&cli, argc, argv);
    for (int i = 0; commands[i]; i++) {
        if (commands[i] == c) status = runs[i](argc - 1, argv + 1, &e);
    }
    llm_pool_stop();
    return status < 0 ? llm_report(&e) : status;
}
