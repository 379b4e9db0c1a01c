/* The end of a program that was called wrongly. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/cli_internal.h"

void llm_usage(const struct llm_cli *cli, const char *fmt, ...)
{
    struct llm_err e = {0};
    va_list args;
    va_start(args, fmt);
    vsnprintf(e.text, sizeof e.text, fmt, args);
    va_end(args);
    e.status = LLM_EX_USAGE;
    llm_report(&e);
    fprintf(stderr, "Try '%s --help'.\n", cli->name);
    exit(LLM_EX_USAGE);
}
