/* Command lines: one table is the parser, --help, the bash completion and what the man-page test reads. */
#ifndef LLM_BASE_CLI_H
#define LLM_BASE_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/json.h"

enum llm_opt_type {
    LLM_FLAG,   /* int: set to 1 */
    LLM_INT,    /* int64_t, within [min, max] when min < max */
    LLM_SIZE,   /* int64_t with an optional K, M, G suffix (×1024, as in GNU tools) */
    LLM_REAL,   /* double, within [min, max] when min < max; finite */
    LLM_STR,    /* const char * */
    LLM_INPUT,  /* const char *: the path of a file that is read (base/paths.h) */
    LLM_INPUTS, /* struct llm_strs: paths of files that are read; may be given several times */
    LLM_OUTPUT, /* const char *: the path of a file that is written */
    LLM_LIST,   /* struct llm_strs: may be given several times */
    LLM_CHOICE, /* int: index into the words of `choices` ("bpe|byte|char") or of a table (struct llm_words) */
    LLM_HEADING /* no option: `help` is a heading line in --help */
};

struct llm_strs { const char **v; size_t n; }; /* grows by malloc; lives as long as the process */

struct llm_opt {
    char letter;          /* or 0 */
    const char *name;     /* long name, without "--" */
    const char *arg;      /* "N", "FILE": shown in help; NULL for flags */
    const char *help;     /* one line, the default in [brackets]; %w stands for the words of a choice, separated by commas */
    enum llm_opt_type type;
    size_t offset;        /* offsetof(struct args, field) */
    double min, max;      /* for LLM_INT, LLM_SIZE, LLM_REAL; ignored when both are 0 */
    const char *choices;  /* for LLM_CHOICE; NULL: llm_cli.words has them */
};

/* Options common to all programs. Every args struct begins with this one. */
struct llm_common {
    int64_t threads;      /* -j; 0: decided by cpu/pool.h */
    const char *output;   /* -o; NULL or "-": stdout */
    int quiet, verbose, json;
    int force_config;     /* --force-config; see llm_config_force */
    int format;           /* --format, an index into LLM_TABLE_FORMS */
    int64_t seed;
    int seed_given;
};
/* Which common options a program shows and takes. -h, -V, -q, -v always. */
enum { LLM_COMMON_THREADS = 1, LLM_COMMON_OUTPUT = 2, LLM_COMMON_SEED = 4, LLM_COMMON_JSON = 8, LLM_COMMON_ALL = 15, LLM_COMMON_CONFIG = 16,
       LLM_COMMON_TABLE = 32 /* --format */ };
#define LLM_TABLE_FORMS "auto|tsv|aligned|json|csv|md"
/* `choices` of options that are a truth value: the index of the word is the value. */
#define LLM_NO_YES "no|yes"
#define LLM_OFF_ON "off|on"

/* Words that come from a table elsewhere (objectives, dtypes, presets): `word(i)` is the name in row i, NULL after the last row. */
struct llm_words {
    const char *option;          /* long name of a choice, or of a text that may be one of these words; NULL: the operands */
    const char *(*word)(int i);
};
/* Another name of an option, as it is written ("--temperature", "-t"): not in --help, but in the manual. */
struct llm_alias { const char *word, *option; };
/* An option that other tools have and this program lacks ("--lora", "-ngl"), and what to say to whoever writes it: a clause that follows a colon. */
struct llm_foreign { const char *word, *answer; };
enum llm_operands {
    LLM_OPERANDS_TEXT,  /* no files, or files only if certain options are given */
    LLM_OPERANDS_INPUT, /* files that are read */
    LLM_OPERANDS_IN_OUT, /* two: a file that is read, and one that is written and may replace the first */
    /* The first stands for the option that `replaces` names, or for -o where `replaces` is NULL, unless that option is given. */
    LLM_OPERANDS_FIRST_INPUT, /* the others are files that are read */
    LLM_OPERANDS_FIRST_TEXT   /* the others are no files */
};

struct llm_cli {
    const char *name;           /* "llm-tokenize", or "llm-tokenize encode" for a sub-command */
    const char *summary;        /* one line */
    const char *usage;          /* what follows the name: "[OPTION]... [FILE]..." ; several lines allowed */
    const char *examples;       /* lines, each a command */
    const char *usual;          /* long names, "a|b|c", that --help shows beside the common ones; the others are for --help=all. NULL: all */
    const struct llm_opt *options; /* ends with {0} */
    enum llm_operands operands; /* what the operands are */
    const char *neutral;        /* long names, "a|b|c", of options that do not change a result (io/key.h); options of LLM_OUTPUT never do */
    const char *replaces;       /* long name of the LLM_INPUT whose file -o may replace, and does if -o is not given; NULL */
    int common;                 /* LLM_COMMON_* bits */
    const struct llm_cli *const *commands; /* sub-commands, NULL-terminated, or NULL */
    /* Each ends with {0}, or is NULL. */
    const struct llm_words *words;
    const struct llm_alias *aliases;
    const struct llm_foreign *foreign;
};

/* Parses into `args` (a struct that begins with struct llm_common; defaults are what it holds before the call).
 * Options may stand anywhere; "--" ends them. A long option may be shortened to what no other option begins with, and written with '_' for '-'.
 * Returns the index of the first operand in argv, which is permuted so that operands come last.
 * --help and --version print to stdout and exit 0; misuse prints one line and exits 2 (this function alone in lib/ may exit).
 * Misuse, too, is an output that is the same file as an input or as another output (base/paths.h).
 * Two hidden options answer questions of the completion and of tests, in lines of fields between tabulators:
 *   --complete-options   "-x", "--long", argument, help, words "a|b|c" of an argument that may be one of them; "command", name; "operand", "", words
 *   --complete-aliases   "alias", word, option; "foreign", word, answer */
int llm_cli_parse(const struct llm_cli *cli, void *args, int argc, char **argv);
/* For a program with sub-commands: the one that argv[1] names; prints help, or exits 2 with the list when it is not known. */
const struct llm_cli *llm_cli_command(const struct llm_cli *cli, int argc, char **argv);
/* Prints "program: text" and "Try 'program --help'." to stderr, and exits with status 2. */
_Noreturn void llm_usage(const struct llm_cli *cli, const char *fmt, ...) LLM_PRINTF(2, 3);

/* Integers with commas between, the value of `option`: at most `room` of them, each from min to max. Status 2 otherwise. Returns how many. */
size_t llm_cli_numbers(const struct llm_cli *cli, const char *option, const char *text, int64_t min, int64_t max, int64_t *out, size_t room);

/* The options of the last llm_cli_parse, in their order; value NULL for a flag. They are valid until the next call. Returns how many. */
struct llm_given { const struct llm_opt *option; const char *value; };
size_t llm_cli_given(const struct llm_given **given);
/* Whether `name` is one of "a|b|c". NULL: it is not. */
bool llm_cli_listed(const char *list, const char *name);

/* The row of the option with this long name or alias, without dashes in front, '_' for '-' or not; NULL: there is none. */
const struct llm_opt *llm_cli_option(const struct llm_cli *cli, const char *name);
/* The rows of all options, headings left out: the program's own and those common options that it takes. Returns their number. */
enum { LLM_MAX_OPTIONS = 256 };
size_t llm_cli_options(const struct llm_cli *cli, const struct llm_opt *rows[LLM_MAX_OPTIONS]);
/* Word i of an option's words, NULL after the last. `room` (64 bytes) may hold it. */
const char *llm_cli_word(const struct llm_cli *cli, const struct llm_opt *o, int i, char room[64]);

/* Takes the members of `object` that name an option among `allowed` ("tokens|top-k"; members are "top-k", "top_k" or an alias) into `args` and
 * removes them from it; null leaves an option as it is. Numbers and flags only. Status 65 if a value has another type or is out of range. */
int llm_cli_take_json(const struct llm_cli *cli, const char *allowed, void *args, json_t *object, struct llm_err *e) LLM_MUST_CHECK;

/* Whether a text, such as a file's name, ends with `end`. */
bool llm_ends_with(const char *s, const char *end);
/* Strict numbers: the whole string must be the number; no overflow, no NaN. llm_parse_size accepts a suffix K, M or G. 0 or -1. */
int llm_parse_int(const char *s, int64_t *out);
int llm_parse_real(const char *s, double *out);
int llm_parse_size(const char *s, int64_t *out);

/* Flushes and closes stdout. 0, or -1 with EX_IOERR in `e` if this or an earlier write failed. */
int llm_close_stdout(struct llm_err *e) LLM_MUST_CHECK;

#define LLM_VERSION "0.1.0"

#endif
