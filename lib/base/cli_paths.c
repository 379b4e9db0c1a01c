#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "base/cli_internal.h"
#include "base/paths.h"

/* "--log", "-o" */
static const char *label_of(const struct llm_opt *o, char text[40])
{
    if (o->letter == 'o') snprintf(text, 40, "-o");
    else snprintf(text, 40, "--%.30s", o->name);
    return text;
}

void llm_cli_check_paths(const struct llm_cli *cli, const void *args, char *const *operands, int n_operands)
{
    static char labels[LLM_MAX_OPTIONS][40]; /* lives as long as base/paths.h remembers them */
    const struct llm_common *c = args;
    const char *replaced = NULL;
    const struct llm_opt *rows[LLM_MAX_OPTIONS];
    size_t n = llm_cli_rows(cli, rows);
    struct llm_err e;
    llm_paths_clear();
    for (size_t i = 0; i < n; i++) {
        if (rows[i]->type == LLM_INPUTS) {
            const struct llm_strs *list = (const void *)((const char *)args + rows[i]->offset);
            for (size_t k = 0; k < list->n; k++) llm_paths_add(LLM_PATH_INPUT, label_of(rows[i], labels[i]), list->v[k]);
        }
        if (rows[i]->type != LLM_INPUT && rows[i]->type != LLM_OUTPUT) continue;
        const char *path = *(const char *const *)((const char *)args + rows[i]->offset), *label = label_of(rows[i], labels[i]);
        bool is_replaced = cli->replaces && strcmp(rows[i]->name, cli->replaces) == 0;
        if (is_replaced) replaced = path;
        if (rows[i]->type == LLM_INPUT) llm_paths_add(is_replaced ? LLM_PATH_REPLACED : LLM_PATH_INPUT, label, path);
        else llm_paths_add(cli->replaces && rows[i]->letter == 'o' ? LLM_PATH_REPLACING : LLM_PATH_OUTPUT, label, path);
    }
    bool first = (cli->operands == LLM_OPERANDS_FIRST_INPUT || cli->operands == LLM_OPERANDS_FIRST_TEXT) && n_operands > 0
                 && !(cli->replaces ? replaced : c->output);
    if (first) llm_paths_add(LLM_PATH_REPLACED, "operand", operands[0]);
    if (first && cli->replaces) replaced = operands[0];
    else if (first) llm_paths_add(LLM_PATH_REPLACING, "operand", operands[0]);
    if ((cli->common & LLM_COMMON_OUTPUT) && !c->output && (!first || cli->replaces)) {
        if (replaced) llm_paths_add(LLM_PATH_REPLACING, "-o", replaced);
        else llm_paths_add(LLM_PATH_STDOUT, "standard output", "-");
    }
    for (int i = 0; i < n_operands && cli->operands != LLM_OPERANDS_TEXT && (first ? i == 0 : cli->operands != LLM_OPERANDS_FIRST_TEXT); i++)
        if (!*operands[i]) llm_usage(cli, "operand %d: expected the name of a file, found ''", i + 1);
    bool inputs = cli->operands == LLM_OPERANDS_INPUT || cli->operands == LLM_OPERANDS_FIRST_INPUT;
    for (int i = first; i < n_operands && inputs; i++) llm_paths_add(LLM_PATH_INPUT, "operand", operands[i]);
    if (cli->operands == LLM_OPERANDS_IN_OUT && n_operands == 2) {
        llm_paths_add(LLM_PATH_REPLACED, "IN", operands[0]);
        llm_paths_add(LLM_PATH_REPLACING, "OUT", operands[1]);
    }
    if (llm_paths_check(&e) < 0) llm_usage(cli, "%s", e.text);
}
