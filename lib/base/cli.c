#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/cli_internal.h"
#include "base/log.h"
#include "base/utf8.h"

bool llm_ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

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
        const char *what = o->type == LLM_REAL ? "a number" : "an integer";
        if (bounded && o->max < 1e15) llm_usage(cli, "--%s: expected %s from %.15g to %.15g, found '%s'", o->name, what, o->min, o->max, value);
        if (bounded) llm_usage(cli, "--%s: expected %s of at least %.15g, found '%s'", o->name, what, o->min, value);
        llm_usage(cli, "--%s: expected %s, found '%s'", o->name, what, value);
    }
    if (o->type == LLM_REAL) *(double *)field = r;
    else *(int64_t *)field = i;
}

/* Lists live as long as the process, even if the struct of arguments that points to them does not. These pointers keep leak checkers quiet. */
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

/* The words of a choice as "a|b|c". */
static const char *list_words(const struct llm_cli *cli, const struct llm_opt *o, char *text, size_t room)
{
    const char *word;
    char one[64];
    size_t at = 0;
    if (o->choices) return o->choices;
    text[0] = 0;
    for (int i = 0; (word = llm_cli_word(cli, o, i, one)) && at < room; i++)
        at += (size_t)snprintf(text + at, room - at, "%s%s", i ? "|" : "", word);
    return text;
}

static void set_choice(const struct llm_cli *cli, const struct llm_opt *o, int *field, const char *value)
{
    struct llm_suggest near;
    char room[64], list[600], words[32][64];
    const char *word;
    llm_suggest_begin(&near, value);
    for (int i = 0; (word = llm_cli_word(cli, o, i, room)); i++) {
        if (strcasecmp(word, value) == 0) {
            *field = i;
            return;
        }
        if (i >= 32) continue;
        snprintf(words[i], sizeof words[i], "%s", word);
        llm_suggest_add(&near, words[i], words[i]);
    }
    llm_usage(cli, "--%s: expected one of %s, found '%s'%s", o->name, list_words(cli, o, list, sizeof list), value, llm_suggest_text(&near, ""));
}

static void set(const struct llm_cli *cli, const struct llm_opt *o, void *args, const char *value)
{
    void *field = (char *)args + o->offset;
    switch (o->type) {
    case LLM_FLAG: *(int *)field = 1; break;
    case LLM_INT:
    case LLM_SIZE:
    case LLM_REAL: set_number(cli, o, field, value); break;
    case LLM_INPUT:
    case LLM_INPUTS:
    case LLM_OUTPUT:
        if (!*value) llm_usage(cli, "--%s: expected the name of a file, found ''", o->name);
        if (o->type == LLM_INPUTS) append(cli, o, field, value);
        else *(const char **)field = value;
        break;
    case LLM_STR: *(const char **)field = value; break;
    case LLM_LIST: append(cli, o, field, value); break;
    case LLM_CHOICE: set_choice(cli, o, field, value); break;
    case LLM_HEADING: break;
    }
}

static struct llm_given *given; /* of the last parse */
static size_t n_given, given_room;

size_t llm_cli_given(const struct llm_given **out)
{
    *out = given;
    return n_given;
}

static void remember(const struct llm_cli *cli, const struct llm_opt *o, const char *value)
{
    struct llm_err e;
    if (llm_grow((void **)&given, &given_room, n_given + 1, sizeof *given, &e) < 0) llm_usage(cli, "%s", e.text);
    given[n_given++] = (struct llm_given){o, value};
}

struct parse {
    const struct llm_cli *cli;
    struct llm_common *args;
    const struct llm_opt *rows[LLM_MAX_OPTIONS];
    size_t n;
    char **argv;
    int argc, next;     /* argv[next] is read next */
    int n_options;      /* argv[1 .. n_options] are options and their values */
    char **operands;
    int n_operands;
};

/* The next word belongs to the options. */
static char *take_word(struct parse *p) { return p->argv[++p->n_options] = p->argv[p->next++]; }

static bool is_common(const struct llm_opt *o, char letter, const char *name)
{
    return o->letter == letter && strcmp(o->name, name) == 0;
}

/* `value`: what follows '=', or NULL; `written`: the option as the user wrote it. */
static void take_option(struct parse *p, const struct llm_opt *o, const char *value, const char *written)
{
    if (is_common(o, 'h', "help")) {
        if (value && strcmp(value, "all") != 0) llm_usage(p->cli, "--help: expected all, found '%s'", value);
        llm_cli_print_help(p->cli, value != NULL);
        finish();
    }
    if (o->type == LLM_FLAG && value) {
        char whole[84];
        snprintf(whole, sizeof whole, "--%.80s", o->name);
        bool shortened = written[1] == '-' && strcmp(whole, written) != 0;
        llm_usage(p->cli, "option '%s'%s%s%s takes no argument, found '%s'", written, shortened ? " (" : "", shortened ? whole : "",
                  shortened ? ")" : "", value);
    }
    if (is_common(o, 'V', "version")) {
        printf("%.*s (llmutils) " LLM_VERSION "\n", (int)strcspn(p->cli->name, " "), p->cli->name);
        finish();
    }
    if (o->type != LLM_FLAG && !value) {
        if (p->next >= p->argc) llm_usage(p->cli, "option '%s' needs an argument", written);
        value = take_word(p);
    }
    remember(p->cli, o, value);
    set(p->cli, o, p->args, value);
    if (strcmp(o->name, "seed") == 0) p->args->seed_given = 1;
}

/* If other tools have the option `word` (n bytes) and the program has an answer for it (struct llm_foreign), prints the answer and exits. */
static void answer_foreign(const struct llm_cli *cli, const char *word, size_t n)
{
    for (const struct llm_foreign *f = cli->foreign; f && f->word; f++) {
        const struct llm_opt name = {.name = f->word};
        if (llm_cli_is_named(&name, word, n)) llm_usage(cli, "there is no %s here: %s", f->word, f->answer);
    }
}

/* Whether `name` [n] is the beginning of `whole`. */
static bool begins(const char *whole, const char *name, size_t n)
{
    char word[80];
    const struct llm_opt begin = {.name = word};
    snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), whole);
    return n > 0 && llm_cli_is_named(&begin, name, n);
}

/* The option whose alias begins with `name`; NULL if there is none, or more than one. */
static const struct llm_opt *abbreviated_alias(const struct llm_cli *cli, const char *name, size_t n)
{
    const struct llm_opt *found = NULL;
    for (const struct llm_alias *a = cli->aliases; a && a->word; a++) {
        if (a->word[1] != '-' || !begins(a->word + 2, name, n)) continue;
        const struct llm_opt *o = llm_cli_option(cli, a->option);
        if (found && o != found) return NULL;
        found = o;
    }
    return found;
}

/* The only row whose name begins with `name` [n]. Exits if there is none, or more than one. */
static const struct llm_opt *abbreviated(const struct parse *p, const char *name, size_t n, const char *written)
{
    const struct llm_opt *found = NULL;
    char list[600], word[80];
    size_t at = 0, matches = 0;
    struct llm_suggest near;
    for (size_t i = 0; i < p->n; i++) {
        const struct llm_opt *o = p->rows[i];
        if (o->type == LLM_HEADING || !begins(o->name, name, n)) continue;
        found = o;
        if (at < sizeof list) at += (size_t)snprintf(list + at, sizeof list - at, "%s--%s", matches ? ", " : "", o->name);
        matches++;
    }
    if (matches == 1) return found;
    if (matches == 0 && (found = abbreviated_alias(p->cli, name, n))) return found;
    if (matches > 1) llm_usage(p->cli, "option '%s' is ambiguous: %s", written, list);
    snprintf(word, sizeof word, "%.*s", (int)(n < 79 ? n : 79), name);
    llm_suggest_begin(&near, word);
    llm_cli_suggest(p->cli, &near);
    llm_usage(p->cli, "unknown option '%s'%s", written, llm_suggest_text(&near, "--"));
}

/* "--name", "--name=value" */
static void take_long(struct parse *p, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    char name[80], written[84];
    snprintf(name, sizeof name, "%.*s", (int)(n < 79 ? n - 2 : 77), word + 2);
    snprintf(written, sizeof written, "--%s", name);
    const struct llm_opt *o = llm_cli_option(p->cli, name);
    if (!o) answer_foreign(p->cli, word, n);
    if (!o) o = abbreviated(p, name, strlen(name), written);
    take_option(p, o, equals ? equals + 1 : NULL, written);
}

static const struct llm_opt *by_letter(const struct parse *p, char letter)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->rows[i]->type != LLM_HEADING && p->rows[i]->letter == letter) return p->rows[i];
    for (const struct llm_alias *a = p->cli->aliases; a && a->word; a++)
        if (a->word[1] == letter && !a->word[2]) return llm_cli_option(p->cli, a->option);
    return NULL;
}

/* Bytes of the character at `at`: 1 if the bytes there are not UTF-8. */
static int character_bytes(const char *at)
{
    uint32_t c;
    int n = llm_utf8_next((const unsigned char *)at, strlen(at), &c);
    return n > 1 ? n : 1;
}

/* "-x", "-xVALUE", "-x VALUE", "-abx": letters of flags, the last one of any option */
static void take_letters(struct parse *p, const char *word)
{
    for (const struct llm_alias *a = p->cli->aliases; a && a->word; a++) { /* "-sys" */
        if (!word[2] || strcmp(a->word, word) != 0) continue;
        take_option(p, llm_cli_option(p->cli, a->option), NULL, word);
        return;
    }
    answer_foreign(p->cli, word, strcspn(word, "="));
    for (const char *at = word + 1; *at; at++) {
        char written[6] = {'-', *at, 0};
        const struct llm_opt *o = by_letter(p, *at);
        if (!o) snprintf(written + 1, sizeof written - 1, "%.*s", character_bytes(at), at);
        if (!o) llm_usage(p->cli, "unknown option '%s'%s%s%s", written, word[2] ? " in '" : "", word[2] ? word : "", word[2] ? "'" : "");
        bool attached = o->type != LLM_FLAG && at[1];
        take_option(p, o, attached ? at + 1 : NULL, written);
        if (attached) return;
    }
}

int llm_cli_parse(const struct llm_cli *cli, void *args, int argc, char **argv)
{
    struct parse p = {.cli = cli, .args = args, .argv = argv, .argc = argc, .next = 1};
    llm_program = cli->name;
    n_given = 0;
    p.n = llm_cli_rows(cli, p.rows);
    if (argc > 1 && strcmp(argv[1], "--complete-options") == 0) {
        llm_cli_print_complete(cli);
        finish();
    }
    if (argc > 1 && strcmp(argv[1], "--complete-aliases") == 0) {
        llm_cli_print_aliases(cli);
        finish();
    }
    p.operands = calloc((size_t)argc + 1, sizeof *p.operands);
    if (!p.operands) llm_usage(cli, "out of memory: the command line");
    while (p.next < argc) {
        char *word = argv[p.next];
        if (word[0] != '-' || !word[1]) {
            p.operands[p.n_operands++] = argv[p.next++];
            continue;
        }
        take_word(&p);
        if (strcmp(word, "--") == 0) break;
        if (word[1] == '-') take_long(&p, word);
        else take_letters(&p, word);
    }
    while (p.next < argc) p.operands[p.n_operands++] = argv[p.next++];
    memcpy(argv + p.n_options + 1, p.operands, (size_t)p.n_operands * sizeof *p.operands);
    free(p.operands);
    if ((cli->common & LLM_COMMON_TABLE) && p.args->json && p.args->format) llm_usage(cli, "--json and --format: only one of them");
    llm_verbosity = p.args->quiet ? -1 : p.args->verbose ? 1 : 0;
    llm_cli_check_paths(cli, args, argv + p.n_options + 1, argc - p.n_options - 1);
    return p.n_options + 1;
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
    struct llm_suggest near;
    llm_suggest_begin(&near, argv[1]);
    for (const struct llm_cli *const *c = cli->commands; *c; c++) {
        const char *verb = strrchr((*c)->name, ' ');
        llm_suggest_add(&near, verb ? verb + 1 : (*c)->name, verb ? verb + 1 : (*c)->name);
    }
    llm_usage(cli, "unknown command '%s'%s", argv[1], llm_suggest_text(&near, ""));
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
