/* --help, and the hidden options that print the tables for completion and tests. */
#include <stdio.h>
#include <string.h>

#include "base/cli_internal.h"

/* The help of an option; %w becomes its words. */
static void print_help_text(const struct llm_cli *cli, const struct llm_opt *o)
{
    const char *w = strstr(o->help, "%w"), *word;
    char room[64];
    if (!w) {
        printf("%s", o->help);
        return;
    }
    printf("%.*s", (int)(w - o->help), o->help);
    for (int i = 0; (word = llm_cli_word(cli, o, i, room)); i++) printf("%s%s", i ? ", " : "", word);
    printf("%s", w + 2);
}

static void print_row(const struct llm_cli *cli, const struct llm_opt *o)
{
    char left[80];
    char letter[5] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, o->name, o->arg ? "=" : "", o->arg ? o->arg : "");
    printf("%-30s ", left);
    print_help_text(cli, o);
    printf("\n");
}

/* Prints the rows. A heading is printed if one of its rows is. */
static void print_rows(const struct llm_cli *cli, bool all)
{
    const struct llm_opt *rows[LLM_MAX_OPTIONS], *heading = NULL;
    size_t n = llm_cli_rows(cli, rows), n_own = 0;
    bool first = true;
    while (n_own < n && cli->options && (cli->options[n_own].name || cli->options[n_own].type == LLM_HEADING)) n_own++;
    for (size_t i = 0; i < n; i++) {
        if (rows[i]->type == LLM_HEADING) {
            heading = rows[i];
            continue;
        }
        bool rare = i < n_own || strcmp(rows[i]->name, "force-config") == 0; /* the other common ones are always shown */
        if (!all && cli->usual && rare && llm_choose(cli->usual, rows[i]->name) < 0) continue;
        if (heading) printf("%s%s\n", first ? "" : "\n", heading->help);
        heading = NULL;
        first = false;
        print_row(cli, rows[i]);
        if (!all && cli->usual && strcmp(rows[i]->name, "help") == 0) printf("%-30s show all options\n", "      --help=all");
    }
}

void llm_cli_print_help(const struct llm_cli *cli, bool all)
{
    printf("%s: %s\n", cli->name, cli->summary);
    const char *line = cli->usage;
    for (bool first = true; line && *line; first = false) {
        size_t len = strcspn(line, "\n");
        printf("%s %s %.*s\n", first ? "Usage:" : "      ", cli->name, (int)len, line);
        line += len + (line[len] == '\n');
    }
    if (cli->commands) {
        printf("\nCommands:\n");
        for (const struct llm_cli *const *c = cli->commands; *c; c++) {
            const char *verb = strrchr((*c)->name, ' ');
            printf("  %-12s %s\n", verb ? verb + 1 : (*c)->name, (*c)->summary);
        }
        printf("\n'%s COMMAND --help' shows the options of one.\n", cli->name);
    } else {
        printf("\n");
        print_rows(cli, all);
    }
    if (cli->examples) {
        printf("\nExamples:\n");
        for (const char *p = cli->examples; *p;) {
            size_t len = strcspn(p, "\n");
            printf("  %.*s\n", (int)len, p);
            p += len + (p[len] == '\n');
        }
    }
}

/* "a|b|c" */
static void print_words(const struct llm_cli *cli, const struct llm_opt *o)
{
    const char *word;
    char room[64];
    for (int i = 0; (word = llm_cli_word(cli, o, i, room)); i++) printf("%s%s", i ? "|" : "", word);
}

/* The tables as data, for completion and for the test that compares them with the man page. */
void llm_cli_print_complete(const struct llm_cli *cli)
{
    const struct llm_opt *rows[LLM_MAX_OPTIONS];
    if (cli->commands) {
        for (const struct llm_cli *const *c = cli->commands; *c; c++) {
            const char *verb = strrchr((*c)->name, ' ');
            printf("command\t%s\n", verb ? verb + 1 : (*c)->name);
        }
        return;
    }
    size_t n = llm_cli_rows(cli, rows);
    for (size_t i = 0; i < n; i++) {
        const struct llm_opt *o = rows[i];
        if (o->type == LLM_HEADING) continue;
        if (o->letter) printf("-%c", o->letter);
        printf("\t--%s\t", o->name);
        if (o->type == LLM_CHOICE) print_words(cli, o);
        else printf("%s", o->arg ? o->arg : "");
        printf("\t");
        print_help_text(cli, o);
        printf("\t");
        if (o->type != LLM_CHOICE && o->arg) print_words(cli, o);
        printf("\n");
    }
    const struct llm_opt operands = {.name = NULL};
    if (!llm_cli_words(cli, NULL)) return;
    printf("operand\t\t");
    print_words(cli, &operands);
    printf("\n");
}

void llm_cli_print_aliases(const struct llm_cli *cli)
{
    for (const struct llm_alias *a = cli->aliases; a && a->word; a++) printf("alias\t%s\t--%s\n", a->word, a->option);
    for (const struct llm_foreign *f = cli->foreign; f && f->word; f++) printf("foreign\t%s\t%s\n", f->word, f->answer);
}
