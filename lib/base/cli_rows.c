/* The rows of a command line: which there are, and how a word names one. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cli_internal.h"

/* Rows for the common options, in the order of --help. `bit` 0: every program has it. */
static const struct { struct llm_opt opt; int bit; } common[] = {
    {{'o', "output", "FILE", "write to FILE [standard output]", LLM_OUTPUT, offsetof(struct llm_common, output), 0, 0, NULL}, LLM_COMMON_OUTPUT},
    {{'j', "threads", "N", "number of threads [the CPUs that the process may use]",
     LLM_INT, offsetof(struct llm_common, threads), 1, 256, NULL}, LLM_COMMON_THREADS},
    {{0, "seed", "N", "seed of the random numbers [0]", LLM_INT, offsetof(struct llm_common, seed), 0, 9e18, NULL}, LLM_COMMON_SEED},
    {{0, "json", NULL, "print JSON", LLM_FLAG, offsetof(struct llm_common, json), 0, 0, NULL}, LLM_COMMON_JSON},
    {{0, "force-config", NULL, "ignore unknown keys of a model's configuration instead of refusing the file", LLM_FLAG,
      offsetof(struct llm_common, force_config), 0, 0, NULL}, LLM_COMMON_CONFIG},
    {{0, "format", "FORMAT", "write tables as tsv, aligned, json, csv or md; auto: aligned on a terminal, else tsv [auto]", LLM_CHOICE,
      offsetof(struct llm_common, format), 0, 0, LLM_TABLE_FORMS}, LLM_COMMON_TABLE},
    {{'q', "quiet", NULL, "print errors only", LLM_FLAG, offsetof(struct llm_common, quiet), 0, 0, NULL}, 0},
    {{'v', "verbose", NULL, "print more messages", LLM_FLAG, offsetof(struct llm_common, verbose), 0, 0, NULL}, 0},
    {{'h', "help", NULL, "print this help", LLM_FLAG, 0, 0, 0, NULL}, 0},
    {{'V', "version", NULL, "print the version", LLM_FLAG, 0, 0, 0, NULL}, 0},
};

size_t llm_cli_rows(const struct llm_cli *cli, const struct llm_opt *rows[LLM_MAX_OPTIONS])
{
    size_t n = 0;
    for (const struct llm_opt *o = cli->options; o && (o->name || o->type == LLM_HEADING) && n < LLM_MAX_OPTIONS; o++) rows[n++] = o;
    for (size_t i = 0; i < sizeof common / sizeof *common && n < LLM_MAX_OPTIONS; i++)
        if (common[i].bit == 0 || (cli->common & common[i].bit)) rows[n++] = &common[i].opt;
    return n;
}

size_t llm_cli_options(const struct llm_cli *cli, const struct llm_opt *rows[LLM_MAX_OPTIONS])
{
    size_t all = llm_cli_rows(cli, rows), n = 0;
    for (size_t i = 0; i < all; i++)
        if (rows[i]->type != LLM_HEADING) rows[n++] = rows[i];
    return n;
}

bool llm_cli_listed(const char *list, const char *name) { return list && llm_choose(list, name) >= 0; }

int llm_choose(const char *choices, const char *word)
{
    size_t n = strlen(word);
    int index = 0;
    for (const char *p = choices; *p; index++) {
        size_t len = strcspn(p, "|");
        if (len == n && strncasecmp(p, word, n) == 0) return index;
        p += len + (p[len] == '|');
    }
    return -1;
}


bool llm_cli_is_named(const struct llm_opt *o, const char *name, size_t n)
{
    if (o->type == LLM_HEADING || strnlen(o->name, n + 1) != n) return false;
    for (size_t i = 0; i < n; i++)
        if (o->name[i] != (name[i] == '_' ? '-' : name[i])) return false;
    return true;
}

const struct llm_opt *llm_cli_option(const struct llm_cli *cli, const char *name)
{
    const struct llm_opt *rows[LLM_MAX_OPTIONS];
    size_t n = llm_cli_rows(cli, rows), length = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (llm_cli_is_named(rows[i], name, length)) return rows[i];
    for (const struct llm_alias *a = cli->aliases; a && a->word; a++) {
        const struct llm_opt alias = {.name = a->word + 2};
        if (a->word[1] == '-' && llm_cli_is_named(&alias, name, length)) return llm_cli_option(cli, a->option);
    }
    return NULL;
}

const struct llm_words *llm_cli_words(const struct llm_cli *cli, const char *option)
{
    for (const struct llm_words *w = cli->words; w && w->word; w++)
        if (option && w->option ? strcmp(w->option, option) == 0 : !option && !w->option) return w;
    return NULL;
}

const char *llm_cli_word(const struct llm_cli *cli, const struct llm_opt *o, int i, char room[64])
{
    const struct llm_words *w = llm_cli_words(cli, o->name);
    if (!o->choices) return w ? w->word(i) : NULL;
    const char *p = o->choices;
    for (; i > 0 && *p; i--) {
        p += strcspn(p, "|");
        p += *p == '|';
    }
    if (!*p) return NULL;
    snprintf(room, 64, "%.*s", (int)strcspn(p, "|"), p);
    return room;
}

void llm_cli_suggest(const struct llm_cli *cli, struct llm_suggest *s)
{
    const struct llm_opt *rows[LLM_MAX_OPTIONS];
    size_t n = llm_cli_rows(cli, rows);
    for (size_t i = 0; i < n; i++)
        if (rows[i]->type != LLM_HEADING) llm_suggest_add(s, rows[i]->name, rows[i]->name);
    for (const struct llm_alias *a = cli->aliases; a && a->word; a++)
        if (a->word[1] == '-') llm_suggest_add(s, a->word + 2, a->option);
}
