/* llm-train --key, which names a result by all that determines it, and --sweep, which prints the commands of many runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/train/train.h"
#include "cpu/detect.h"
#include "cpu/pool.h"
#include "io/key.h"
#include "io/output.h"
#include "model/config/files.h"
#include "model/config/preset.h"

/* ---- --key ---- */

int llm_run_key(const struct llm_cli *cli, const struct args *a, const struct args *defaults, const char *const *data, size_t n_data,
                struct llm_err *e)
{
    char hex[17], rows[48];
    if (llm_pool_start(a->common.threads, e) < 0) return -1; /* which chooses the instruction set */
    struct llm_key *k = llm_key_create(cli, e);
    if (!k) return -1;
    snprintf(rows, sizeof rows, "%lld", a->o.batch_tokens > 0 ? 0 : (long long)(a->o.batch * a->o.accumulate)); /* passes do not count */
    llm_key_text(k, "rows", rows);
    llm_key_text(k, "isa", llm_isa_name());
    llm_key_text(k, "to", llm_trained_format_word((int)llm_run_format(a->common.output, a->to)));
    int status = llm_key_options(k, cli, a, defaults, "config|batch|accumulate|to", e);
    if (status == 0 && a->config && llm_preset_find(a->config)) llm_key_text(k, "config", a->config);
    else if (status == 0 && a->config) status = llm_key_file(k, "config", a->config, e);
    for (size_t i = 0; i < n_data && status == 0; i++) status = llm_key_file(k, "data", data[i], e);
    llm_key_hex(k, hex);
    llm_key_destroy(k);
    return status < 0 || printf("%s\n", hex) < 0 ? -1 : 0;
}

/* ---- --sweep: what is varied ---- */

enum { MAX_AXES = 16, MAX_VALUES = 256, MAX_RUNS = 100000 };

/* "NAME=V,V,…": NAME is an option, or a key of the configuration. */
struct axis {
    char name[80];
    bool key;                 /* of the configuration: --set NAME=V */
    char *values[MAX_VALUES];
    size_t n, at;
};

struct sweep {
    const struct llm_cli *cli;
    const struct args *a;
    const char *program;
    const char *const *data;
    size_t n_data;
    struct axis axes[MAX_AXES];
    size_t n_axes;
    struct llm_buf suffix, line, names; /* names: of the outputs so far, each ended by a line feed */
};

static void read_axis(struct sweep *s, struct axis *x, const char *text)
{
    const char *equals = strchr(text, '=');
    size_t n = equals ? (size_t)(equals - text) : 0;
    if (n == 0 || n >= sizeof x->name || !equals[1]) llm_usage(s->cli, "--sweep: expected NAME=VALUE,..., found '%s'", text);
    snprintf(x->name, sizeof x->name, "%.*s", (int)n, text);
    const struct llm_opt *o = llm_cli_option(s->cli, x->name);
    x->key = !o;
    if (o && (o->type == LLM_FLAG || o->type == LLM_OUTPUT || llm_cli_listed("sweep|sweep-format", o->name)))
        llm_usage(s->cli, "--sweep: expected an option with a value that changes the result, found '%s'", x->name);
    if (!o && !s->a->config) llm_usage(s->cli, "--sweep: expected an option, or with -c a key of the configuration; found '%s'", x->name);
    if (o) snprintf(x->name, sizeof x->name, "%s", o->name);
    for (const char *at = equals + 1; at; at = *at ? at + 1 : NULL) {
        size_t length = strcspn(at, ",");
        if (length == 0) llm_usage(s->cli, "--sweep: expected values with commas between, found '%s'", text);
        if (x->n == MAX_VALUES) llm_usage(s->cli, "--sweep: expected at most %d values, found more: %s", MAX_VALUES, x->name);
        if (!(x->values[x->n++] = strndup(at, length))) llm_usage(s->cli, "out of memory: --sweep");
        at += length;
    }
    for (size_t i = 0; i < s->n_axes; i++)
        if (strcmp(s->axes[i].name, x->name) == 0) llm_usage(s->cli, "--sweep: '%s' is there twice", x->name);
}

/* ---- words of a shell ---- */

static bool plain(const char *text, const char *also)
{
    for (const char *c = text; *c; c++)
        if (!(*c >= 'a' && *c <= 'z') && !(*c >= 'A' && *c <= 'Z') && !(*c >= '0' && *c <= '9') && !strchr(also, *c)) return false;
    return *text != 0;
}

/* Appends a word as a shell reads it, after a space unless it is the first; `make`: each $ twice. A line break cannot be in a line. */
static int word(struct sweep *s, const char *text, bool make, struct llm_err *e)
{
    struct llm_buf *b = &s->line;
    int bad = b->n > 0 ? llm_buf_put(b, " ", 1, e) : 0;
    if (strchr(text, '\n')) return llm_fail(e, LLM_EX_USAGE, "--sweep: expected words without a line break, found one in '%s'", text);
    if (!bad && plain(text, "_@%+=:,./-")) return llm_buf_put(b, text, strlen(text), e);
    if (!bad) bad = llm_buf_put(b, "'", 1, e);
    for (const char *c = text; *c && !bad; c++) {
        if (*c == '\'') bad = llm_buf_printf(b, e, "'\\''");
        else bad = llm_buf_printf(b, e, "%c%s", *c, make && *c == '$' ? "$" : "");
    }
    return bad ? -1 : llm_buf_put(b, "'", 1, e);
}

static int option(struct sweep *s, const char *name, const char *value, bool make, struct llm_err *e)
{
    struct llm_buf text = {0};
    int status = llm_buf_printf(&text, e, "--%s%s%s", name, value ? "=" : "", value ? value : "");
    if (status == 0) status = word(s, text.p, make, e);
    llm_buf_release(&text);
    return status;
}

/* ---- names of outputs ---- */

/* "-lr_1e-3-batch_8": characters that file names and make do not like become '_'. */
static int make_suffix(struct sweep *s, struct llm_err *e)
{
    s->suffix.n = 0;
    for (size_t i = 0; i < s->n_axes; i++) {
        const struct axis *x = &s->axes[i];
        if (llm_buf_printf(&s->suffix, e, "-%s_", x->name) < 0) return -1;
        for (const char *c = x->values[x->at]; *c; c++) {
            const char one[2] = {*c, 0};
            if (llm_buf_printf(&s->suffix, e, "%c", plain(one, "._+-") ? *c : '_') < 0) return -1;
        }
    }
    return 0;
}

/* "runs/model.llm" with the values put before the ending; `ending` NULL: its own. */
static int derive(const struct sweep *s, const char *path, const char *ending, struct llm_buf *out, struct llm_err *e)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    if (!dot || dot == base) dot = path + strlen(path);
    out->n = 0;
    return llm_buf_printf(out, e, "%.*s%s%s", (int)(dot - path), path, s->suffix.p, ending ? ending : dot);
}

/* ---- a command ---- */

/* Parses the command as llm-train will, so that mistakes show here. */
static int check(struct sweep *s, struct llm_err *e)
{
    const char *argv[2 * MAX_AXES + 2] = {s->program};
    char room[MAX_AXES][200];
    struct args a = {.o = s->a->o};
    struct llm_config c;
    struct llm_strs sets = s->a->sets;
    const char *v[64];
    int argc = 1;
    const char *config = s->a->config;
    for (size_t i = 0; i < s->n_axes; i++) {
        const struct axis *x = &s->axes[i];
        snprintf(room[i], sizeof room[i], x->key ? "%s=%s" : "--%s=%s", x->name, x->values[x->at]);
        if (!x->key && strcmp(x->name, "config") == 0) config = x->values[x->at];
        if (!x->key) argv[argc++] = room[i];
    }
    if (sets.n + s->n_axes > 64) return llm_fail(e, LLM_EX_USAGE, "--sweep: expected at most 64 keys of the configuration, found more");
    for (size_t i = 0; i < s->a->sets.n; i++) v[i] = s->a->sets.v[i];
    for (size_t i = 0; i < s->n_axes; i++)
        if (s->axes[i].key) v[sets.n++] = room[i];
    llm_cli_parse(s->cli, &a, argc, (char **)(uintptr_t)argv); /* exits if a value is wrong */
    return config && llm_config_load(&c, config, v, sets.n, e) < 0 ? -1 : 0;
}

/* The command into s->line, with --key if `key`, of which `given` are the options as they were written. */
static int command(struct sweep *s, const struct llm_given *given, size_t n, const char *output, bool make, bool key, struct llm_err *e)
{
    struct llm_buf path = {0};
    bool logged = false;
    s->line.n = 0;
    int status = word(s, s->program, make, e);
    if (status == 0 && key) status = option(s, "key", NULL, make, e);
    for (size_t i = 0; i < n && status == 0; i++) {
        const struct llm_opt *o = given[i].option;
        if (llm_cli_listed("sweep|sweep-format|output|key", o->name)) continue;
        if (o->type == LLM_OUTPUT) {
            logged = logged || strcmp(o->name, "log") == 0;
            status = derive(s, given[i].value, NULL, &path, e);
        }
        if (status == 0) status = option(s, o->name, o->type == LLM_OUTPUT ? path.p : given[i].value, make, e);
    }
    for (size_t i = 0; i < s->n_axes && status == 0; i++) {
        const struct axis *x = &s->axes[i];
        path.n = 0;
        status = x->key ? llm_buf_printf(&path, e, "%s=%s", x->name, x->values[x->at]) : llm_buf_printf(&path, e, "%s", x->values[x->at]);
        if (status == 0) status = option(s, x->key ? "set" : x->name, path.p, make, e);
    }
    if (status == 0) status = word(s, "-o", make, e);
    if (status == 0) status = word(s, output, make, e);
    if (status == 0 && !logged) status = derive(s, s->a->common.output, ".jsonl", &path, e);
    if (status == 0 && !logged) status = option(s, "log", path.p, make, e);
    bool dashed = false;
    for (size_t i = 0; i < s->n_data; i++) dashed = dashed || (s->data[i][0] == '-' && s->data[i][1]);
    if (status == 0 && dashed) status = word(s, "--", make, e);
    for (size_t i = 0; i < s->n_data && status == 0; i++) status = word(s, s->data[i], make, e);
    llm_buf_release(&path);
    return status;
}

/* A Makefile rule that rebuilds the model when its key has changed. s->line: the command. */
static int rule(struct sweep *s, const struct llm_given *given, size_t n, const char *name, struct llm_buf *out, struct llm_err *e)
{
    if (llm_buf_printf(out, e, "%s: %s.key\n\t%s\n", name, name, s->line.p) < 0 || command(s, given, n, name, true, true, e) < 0) return -1;
    return llm_buf_printf(out, e, "%s.key: FORCE\n\t@%s > $@.new && if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi\n", name, s->line.p);
}

/* Whether an earlier run has the name. */
static bool is_taken(const struct sweep *s, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = s->names.n ? s->names.p : NULL; at && *at; at += strcspn(at, "\n") + 1)
        if (strncmp(at, name, n) == 0 && at[n] == '\n') return true;
    return false;
}

static int add_run(struct sweep *s, const struct llm_given *given, size_t n, bool make, struct llm_buf *out, struct llm_err *e)
{
    struct llm_buf name = {0};
    int status = make_suffix(s, e);
    if (status == 0) status = derive(s, s->a->common.output, NULL, &name, e);
    if (status == 0 && make && !plain(name.p, "_+./-"))
        status = llm_fail(e, LLM_EX_USAGE, "--sweep-format=make: expected names of letters, digits and _ + . / -, found '%s'", name.p);
    if (status == 0 && is_taken(s, name.p)) status = llm_fail(e, LLM_EX_USAGE, "--sweep: expected a name for each run, found '%s' twice", name.p);
    if (status == 0) status = llm_buf_printf(&s->names, e, "%s\n", name.p);
    if (status == 0) status = command(s, given, n, name.p, make, false, e);
    if (status == 0) status = make ? rule(s, given, n, name.p, out, e) : llm_buf_printf(out, e, "%s\n", s->line.p);
    llm_buf_release(&name);
    return status;
}

/* The next combination, the last axis fastest. */
static bool advance(struct sweep *s)
{
    for (size_t i = s->n_axes; i-- > 0;) {
        if (++s->axes[i].at < s->axes[i].n) return true;
        s->axes[i].at = 0;
    }
    return false;
}

static void check_outputs(const struct sweep *s, const struct llm_given *given, size_t n)
{
    if (!s->a->common.output) llm_usage(s->cli, "--sweep: expected -o OUT.llm, from which each run's name is derived");
    for (size_t i = 0; i < n; i++)
        if (given[i].option->type == LLM_OUTPUT && strcmp(given[i].value, "-") == 0)
            llm_usage(s->cli, "--%s: expected a file, from which each run's name is derived; found standard output", given[i].option->name);
}

int llm_run_sweep(const struct llm_cli *cli, const struct args *a, const char *program, const char *const *data, size_t n_data, struct llm_err *e)
{
    struct sweep s = {.cli = cli, .a = a, .program = program, .data = data, .n_data = n_data};
    struct llm_buf out = {0}, all = {0};
    const struct llm_given *last;
    size_t n = llm_cli_given(&last), runs = 1;
    struct llm_given *given = llm_alloc(n, sizeof *given, "options", e); /* llm_cli_parse, which checks each run, has others */
    if (!given) return -1;
    memcpy(given, last, n * sizeof *given);
    check_outputs(&s, given, n);
    if (a->sweep.n > MAX_AXES) llm_usage(cli, "--sweep: expected at most %d of them, found %zu", MAX_AXES, a->sweep.n);
    for (size_t i = 0; i < a->sweep.n; i++) {
        read_axis(&s, &s.axes[s.n_axes], a->sweep.v[i]);
        runs *= s.axes[s.n_axes++].n;
        if (runs > MAX_RUNS) llm_usage(cli, "--sweep: expected at most %d runs, found more", MAX_RUNS);
    }
    bool make = a->sweep_format == SWEEP_MAKE;
    int status = 0;
    do {
        status = check(&s, e);
        if (status == 0) status = add_run(&s, given, n, make, &out, e);
    } while (status == 0 && advance(&s));
    for (char *c = s.names.p; make && status == 0 && c && *c; c++)
        if (*c == '\n') *c = ' ';
    if (status == 0 && make) status = llm_buf_printf(&all, e, ".PHONY: sweep FORCE\nsweep: %.*s\nFORCE:\n", (int)s.names.n - 1, s.names.p);
    if (status == 0) status = llm_buf_put(&all, out.p, out.n, e);
    struct llm_output *o = status == 0 ? llm_output_open(NULL, false, e) : NULL;
    if (o && (llm_output_text(o, all.p, all.n, e) < 0 || llm_output_commit(o, e) < 0)) status = -1;
    if (!o) status = -1;
    for (size_t i = 0; i < s.n_axes; i++)
        for (size_t k = 0; k < s.axes[i].n; k++) free(s.axes[i].values[k]);
    llm_buf_release(&s.suffix);
    llm_buf_release(&s.line);
    llm_buf_release(&s.names);
    llm_buf_release(&out);
    llm_buf_release(&all);
    free(given);
    return status;
}
