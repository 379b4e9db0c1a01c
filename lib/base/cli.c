#include "base/cli.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

enum { MAX_OPTIONS = 128, LONG_ONLY = 1000 };

/* Rows for the common options, in the order of --help. `bit` 0: every program has it. */
static const struct { struct llm_opt opt; int bit; } common[] = {
    {{'o', "output", "FILE", "write to FILE [standard output]", LLM_STR, offsetof(struct llm_common, output), 0, 0, NULL}, LLM_COMMON_OUTPUT},
    {{'j', "threads", "N", "use N threads [the CPUs allowed]", LLM_INT, offsetof(struct llm_common, threads), 1, 256, NULL}, LLM_COMMON_THREADS},
    {{0, "seed", "N", "seed of the random numbers [0]", LLM_INT, offsetof(struct llm_common, seed), 0, 9e18, NULL}, LLM_COMMON_SEED},
    {{0, "json", NULL, "print JSON", LLM_FLAG, offsetof(struct llm_common, json), 0, 0, NULL}, LLM_COMMON_JSON},
    {{'q', "quiet", NULL, "say nothing but errors", LLM_FLAG, offsetof(struct llm_common, quiet), 0, 0, NULL}, 0},
    {{'v', "verbose", NULL, "say more", LLM_FLAG, offsetof(struct llm_common, verbose), 0, 0, NULL}, 0},
    {{'h', "help", NULL, "print this help", LLM_FLAG, 0, 0, 0, NULL}, 0},
    {{'V', "version", NULL, "print the version", LLM_FLAG, 0, 0, 0, NULL}, 0},
};

int llm_parse_int(const char *s, int64_t *out)
{
    char *end;
    if (isspace((unsigned char)*s) || !*s) return -1;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || *end) return -1;
    *out = v;
    return 0;
}

int llm_parse_real(const char *s, double *out)
{
    char *end;
    if (isspace((unsigned char)*s) || !*s) return -1;
    errno = 0;
    double v = strtod(s, &end);
    if (*end || !isfinite(v) || (errno == ERANGE && v != 0 && fabs(v) > 1)) return -1;
    *out = v;
    return 0;
}

int llm_parse_size(const char *s, int64_t *out)
{
    size_t n = strlen(s);
    char digits[32];
    int shift = 0;
    if (n == 0 || n >= sizeof digits) return -1;
    memcpy(digits, s, n + 1);
    const char *suffix = strchr("KMG", toupper((unsigned char)digits[n - 1]));
    if (suffix && *suffix) {
        shift = (int)(suffix - "KMG" + 1) * 10;
        digits[n - 1] = 0;
    }
    int64_t v;
    if (llm_parse_int(digits, &v) < 0 || __builtin_mul_overflow(v, (int64_t)1 << shift, &v)) return -1;
    *out = v;
    return 0;
}

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

/* All rows of a program: its own, then the common ones it takes. */
static size_t rows_of(const struct llm_cli *cli, const struct llm_opt **rows)
{
    size_t n = 0;
    for (const struct llm_opt *o = cli->options; o && (o->name || o->type == LLM_HEADING) && n < MAX_OPTIONS; o++) rows[n++] = o;
    for (size_t i = 0; i < sizeof common / sizeof *common && n < MAX_OPTIONS; i++)
        if (common[i].bit == 0 || (cli->common & common[i].bit)) rows[n++] = &common[i].opt;
    return n;
}

static void print_row(const struct llm_opt *o)
{
    char left[80];
    char letter[5] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, o->name, o->arg ? "=" : "", o->arg ? o->arg : "");
    printf("%-30s %s\n", left, o->help);
}

static int choose(const char *choices, const char *word)
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

/* Headings stand over the rows that are shown. */
static void print_rows(const struct llm_cli *cli, bool all)
{
    const struct llm_opt *rows[MAX_OPTIONS], *heading = NULL;
    size_t n = rows_of(cli, rows), n_own = 0;
    bool first = true;
    while (n_own < n && cli->options && (cli->options[n_own].name || cli->options[n_own].type == LLM_HEADING)) n_own++;
    for (size_t i = 0; i < n; i++) {
        if (rows[i]->type == LLM_HEADING) {
            heading = rows[i];
            continue;
        }
        if (!all && cli->usual && i < n_own && choose(cli->usual, rows[i]->name) < 0) continue;
        if (heading) printf("%s%s\n", first ? "" : "\n", heading->help);
        heading = NULL;
        first = false;
        print_row(rows[i]);
        if (!all && cli->usual && strcmp(rows[i]->name, "help") == 0) printf("%-30s show all options\n", "      --help=all");
    }
}

static void print_help(const struct llm_cli *cli, bool all)
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

/* The tables as data, for completion and for the test that compares them with the man page. */
static void print_complete(const struct llm_cli *cli)
{
    const struct llm_opt *rows[MAX_OPTIONS];
    if (cli->commands) {
        for (const struct llm_cli *const *c = cli->commands; *c; c++) {
            const char *verb = strrchr((*c)->name, ' ');
            printf("command\t%s\n", verb ? verb + 1 : (*c)->name);
        }
        return;
    }
    size_t n = rows_of(cli, rows);
    for (size_t i = 0; i < n; i++) {
        const struct llm_opt *o = rows[i];
        if (o->type == LLM_HEADING) continue;
        if (o->letter) printf("-%c", o->letter);
        printf("\t--%s\t%s\t%s\n", o->name, o->type == LLM_CHOICE ? o->choices : o->arg ? o->arg : "", o->help);
    }
}

static _Noreturn void finish(void)
{
    struct llm_err e = {0};
    exit(llm_close_stdout(&e) < 0 ? llm_report(&e) : 0);
}

static void set_number(const struct llm_cli *cli, const struct llm_opt *o, void *field, const char *value)
{
    bool bounded = o->min != 0 || o->max != 0;
    int64_t i = 0;
    double r = 0;
    int bad = o->type == LLM_INT ? llm_parse_int(value, &i) : o->type == LLM_SIZE ? llm_parse_size(value, &i) : llm_parse_real(value, &r);
    if (o->type != LLM_REAL) r = (double)i;
    if (bad || (bounded && (r < o->min || r > o->max))) {
        const char *what = o->type == LLM_REAL ? "a number" : "a whole number";
        if (bounded && o->max < 1e15) llm_usage(cli, "--%s: expected %s from %.15g to %.15g, found '%s'", o->name, what, o->min, o->max, value);
        if (bounded) llm_usage(cli, "--%s: expected %s of at least %.15g, found '%s'", o->name, what, o->min, value);
        llm_usage(cli, "--%s: expected %s, found '%s'", o->name, what, value);
    }
    if (o->type == LLM_REAL) *(double *)field = r;
    else *(int64_t *)field = i;
}

/* Lists live as long as the process, also when the arguments that held them are gone; here they are found (a leak checker looks). */
static const char **lists[32];

static void append(const struct llm_cli *cli, const struct llm_opt *o, struct llm_strs *list, const char *value)
{
    size_t slot = 0;
    while (slot + 1 < sizeof lists / sizeof *lists && lists[slot] != list->v) slot++;
    const char **v = realloc(list->v, (list->n + 1) * sizeof *v);
    if (!v) llm_usage(cli, "out of memory: --%s", o->name);
    lists[slot] = list->v = v;
    list->v[list->n++] = value;
}

static void set(const struct llm_cli *cli, const struct llm_opt *o, void *args, const char *value)
{
    void *field = (char *)args + o->offset;
    int index;
    switch (o->type) {
    case LLM_FLAG: *(int *)field = 1; break;
    case LLM_INT:
    case LLM_SIZE:
    case LLM_REAL: set_number(cli, o, field, value); break;
    case LLM_STR: *(const char **)field = value; break;
    case LLM_LIST: append(cli, o, field, value); break;
    case LLM_CHOICE:
        index = choose(o->choices, value);
        if (index < 0) llm_usage(cli, "--%s: expected one of %s, found '%s'", o->name, o->choices, value);
        *(int *)field = index;
        break;
    case LLM_HEADING: break;
    }
}

/* getopt's tables from ours: `val` is LONG_ONLY + index of the row. */
static void tables(const struct llm_opt *const *rows, size_t n, struct option *longs, char *shorts)
{
    size_t s = 0, l = 0;
    shorts[s++] = ':'; /* we write the messages */
    for (size_t i = 0; i < n; i++) {
        if (rows[i]->type == LLM_HEADING) continue;
        int has = rows[i]->type == LLM_FLAG ? no_argument : required_argument;
        if (strcmp(rows[i]->name, "help") == 0) has = optional_argument; /* --help=all */
        longs[l++] = (struct option){rows[i]->name, has, NULL, LONG_ONLY + (int)i};
        if (!rows[i]->letter) continue;
        shorts[s++] = rows[i]->letter;
        if (has == required_argument) shorts[s++] = ':';
    }
    longs[l] = (struct option){0};
    shorts[s] = 0;
}

int llm_cli_parse(const struct llm_cli *cli, void *args, int argc, char **argv)
{
    const struct llm_opt *rows[MAX_OPTIONS];
    struct option longs[MAX_OPTIONS + 1];
    char shorts[2 * MAX_OPTIONS + 2];
    size_t n = rows_of(cli, rows);
    struct llm_common *c = args;
    llm_program = cli->name;
    tables(rows, n, longs, shorts);
    if (argc > 1 && strcmp(argv[1], "--complete-options") == 0) {
        print_complete(cli);
        finish();
    }
    optind = 0; /* GNU: start afresh, even after another table was parsed */
    opterr = 0;
    for (int got; (got = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        const struct llm_opt *o = NULL;
        if (got == '?' || got == ':') {
            char letter[3] = {'-', (char)optopt, 0};
            bool is_short = optopt > 0 && optopt < LONG_ONLY;
            const char *name = is_short ? letter : optind > 0 && optind <= argc ? argv[optind - 1] : "?";
            if (got == ':') llm_usage(cli, "option '%s' needs an argument", name);
            llm_usage(cli, "unknown or ambiguous option '%s'", name);
        }
        if (got >= LONG_ONLY) o = rows[got - LONG_ONLY];
        for (size_t i = 0; !o && i < n; i++)
            if (rows[i]->letter == got && rows[i]->type != LLM_HEADING) o = rows[i];
        if (!o) llm_usage(cli, "unknown option");
        if (o->letter == 'h' && strcmp(o->name, "help") == 0) {
            if (optarg && strcmp(optarg, "all") != 0) llm_usage(cli, "--help: expected all, found '%s'", optarg);
            print_help(cli, optarg != NULL);
            finish();
        }
        if (o->letter == 'V' && strcmp(o->name, "version") == 0) {
            printf("%.*s (llmutils) " LLM_VERSION "\n", (int)strcspn(cli->name, " "), cli->name);
            finish();
        }
        set(cli, o, args, optarg);
        if (strcmp(o->name, "seed") == 0) c->seed_given = 1;
    }
    llm_verbosity = c->quiet ? -1 : c->verbose ? 1 : 0;
    return optind;
}

const struct llm_cli *llm_cli_command(const struct llm_cli *cli, int argc, char **argv)
{
    llm_program = cli->name;
    if (argc < 2) llm_usage(cli, "expected a command");
    if (argv[1][0] == '-') { /* --help, --version, or a mistake */
        const char *o = argv[1] + strspn(argv[1], "-");
        for (int i = 2; i < argc && *o != 'h' && *o != 'V' && strncmp(o, "ver", 3) != 0; i++)
            for (const struct llm_cli *const *known = cli->commands; *known; known++) {
                const char *verb = strrchr((*known)->name, ' ');
                if (verb && strcmp(verb + 1, argv[i]) == 0)
                    llm_usage(cli, "expected the command before its options: %s %s %s ...", cli->name, argv[i], argv[1]);
            }
        struct llm_common c = {0};
        const struct llm_cli top = {.name = cli->name, .summary = cli->summary, .usage = cli->usage, .examples = cli->examples,
                                    .commands = cli->commands};
        llm_cli_parse(&top, &c, 2, argv);
        llm_usage(cli, "expected a command before the options");
    }
    for (const struct llm_cli *const *c = cli->commands; *c; c++) {
        const char *verb = strrchr((*c)->name, ' ');
        if (strcmp(verb ? verb + 1 : (*c)->name, argv[1]) == 0) return *c;
    }
    llm_usage(cli, "unknown command '%s'", argv[1]);
}

int llm_close_stdout(struct llm_err *e)
{
    bool bad = ferror(stdout);
    errno = 0;
    if (fclose(stdout) != 0) bad = true;
    if (!bad) return 0;
    if (errno) return llm_fail_errno(e, EX_IOERR, "standard output");
    return llm_fail(e, EX_IOERR, "standard output: write error");
}
