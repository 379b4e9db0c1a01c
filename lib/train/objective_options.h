/* Options that belong to objectives. Each objective lists the options that it takes in its own file (llm_objective.options); the command line,
 * --help, the completion and training states take them from there.
 *
 * An option has one value for each name: objectives that take an option of the same name share the value, and list it with the same type. The
 * value of an option that was not given is the `fallback` of the objective in use. */
#ifndef LLM_TRAIN_OBJECTIVE_OPTIONS_H
#define LLM_TRAIN_OBJECTIVE_OPTIONS_H

#include "base/cli.h"

struct llm_objective_option {
    const char *name, *arg, *help;  /* as in struct llm_opt: long name, argument (NULL: a flag), one line of help */
    enum llm_opt_type type;         /* any but LLM_SIZE, LLM_LIST and LLM_HEADING */
    double min, max;                /* range of LLM_INT and LLM_REAL; ignored if both are 0 */
    const char *choices;            /* of LLM_CHOICE: "a|b|c" */
    double fallback;                /* the value if the option was not given; a text is then NULL */
    bool if_given;                  /* it is stored in the training state only if it was given: an option of few models, which others' files lack */
    bool begins;                    /* the option shapes a new model (llm_objective.configure) and is not stored in the training state */
};

union llm_option_value {
    int64_t i;
    double r;
    int word;                       /* flags and choices */
    const char *text;               /* the command line's, or the training state's from which it was read */
};
enum { LLM_MAX_OBJECTIVE_OPTIONS = 96 };
struct llm_objective_values { union llm_option_value v[LLM_MAX_OBJECTIVE_OPTIONS]; };

struct llm_train_options;
/* Option number i of all objectives, each name once, in the order of llm_objectives; its value is o->own.v[i]. NULL after the last. */
const struct llm_objective_option *llm_objective_option_at(int i);
/* Makes every value one that was not given. */
void llm_objective_values_default(struct llm_objective_values *v);

/* The value of an option: the given one, else the fallback of the objective in use. `name` must be an option of some objective; in it '_' is the same
 * as '-'. */
double llm_option_real(const struct llm_train_options *o, const char *name);
int64_t llm_option_int(const struct llm_train_options *o, const char *name);
int llm_option_word(const struct llm_train_options *o, const char *name);
const char *llm_option_text(const struct llm_train_options *o, const char *name);
/* Whether the value was given, on the command line or by a training state. */
bool llm_option_given(const struct llm_train_options *o, const char *name);
void llm_option_set_real(struct llm_train_options *o, const char *name, double value);
void llm_option_set_word(struct llm_train_options *o, const char *name, int value);
void llm_option_set_text(struct llm_train_options *o, const char *name, const char *value);

/* The key of an option in a training state: its name with '_' for '-'. */
void llm_option_key(const char *name, char key[64]);
/* The value of an option as a training state holds it. NULL: out of memory. */
json_t *llm_option_to_json(const struct llm_train_options *o, const char *name);
/* Takes the value of an option from a training state; an absent key leaves it. 0 or -1. */
int llm_option_from_json(struct llm_train_options *o, const char *name, const json_t *state, struct llm_err *e) LLM_MUST_CHECK;
/* The rows of a command line: those of `base`, which ends as llm_cli.options does, with the objectives' options inserted after the row named `after`.
 * `offset`: of struct llm_objective_values in the program's arguments. The table is made once and lives as long as the process. */
const struct llm_opt *llm_objective_command_line(const struct llm_opt *base, const char *after, size_t offset);

#endif
