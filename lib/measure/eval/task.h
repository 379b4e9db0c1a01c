/* Evaluation tasks: how the records of a data file become prompts and answers (formats/task.md). A task is a small JSON object whose texts are Jinja2
 * templates over the members of a record; layouts.c has the tasks of well-known data sets. */
#ifndef LLM_MEASURE_EVAL_TASK_H
#define LLM_MEASURE_EVAL_TASK_H

#include "base/json.h"
#include "token/chat/chat.h"

enum llm_eval_kind {
    LLM_EVAL_CHOICE,   /* "choices": which continuation of a context is the most likely */
    LLM_EVAL_CLOZE,    /* "target": how likely the continuation is, and whether each of its tokens is the most likely one */
    LLM_EVAL_GENERATE, /* "target" and "generate": whether what the model writes holds the answer */
    LLM_EVAL_TEXT      /* "text": how likely a whole text is */
};

struct llm_eval_templates {
    struct llm_chat_template **v; /* owned */
    size_t n;
};
struct llm_eval_task {
    json_t *o;                    /* the task's object; owned. The texts below belong to it */
    const char *name;
    enum llm_eval_kind kind;
    struct llm_eval_templates description, context, choices, answer, text; /* text: also the target */
    const char *delimiter;        /* between a context and its continuation */
    const char *separator;        /* between examples */
    const char *data, *labels, *shots_from; /* files, or NULL */
    int64_t shots;
    int64_t answer_from;          /* the number of the first choice: 0 or 1 */
    bool first_shots;             /* the first examples of the file instead of a draw by seed */
    int64_t max_tokens;           /* of a generation */
};
/* `what`: the name of a built-in task, or a file. Status 65 for a file that is no task, 2 for a name that is neither. Zero-initialise; release
 * either way. */
int llm_eval_task_load(struct llm_eval_task *t, const char *what, struct llm_err *e) LLM_MUST_CHECK;
void llm_eval_task_release(struct llm_eval_task *t);
/* Name of built-in task i, NULL after the last; its JSON text. */
const char *llm_eval_task_word(int i);
const char *llm_eval_task_text(const char *name);

/* The records of a file. */
struct llm_eval_data {
    json_t *records;              /* an array of objects; owned */
    char hash[17];                /* XXH64 of the bytes of the files, hexadecimal */
};
/* Reads JSON Lines, a JSON array, HellaSwag's text form (six lines a record), MMLU's CSV, or lines of text (one record {"text": ...} each) if
 * the task asks for "text". labels: NULL, or a file with an answer a line, which becomes the member "label". Zero-initialise; release either way. */
int llm_eval_data_load(struct llm_eval_data *d, const struct llm_eval_task *t, const char *path, const char *labels, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_eval_data_release(struct llm_eval_data *d);

/* A continuation of a context. */
struct llm_eval_choice {
    struct llm_buf context, text; /* without description, examples and delimiter */
    bool right;
};
struct llm_eval_item {
    struct llm_buf description;
    struct llm_eval_choice *v;    /* [n]; one, right, if the kind has no choices. A text: context is empty */
    size_t n, room;
};
/* Makes the texts of a record, which must have at least two different choices and an answer among them. EX_DATAERR otherwise. */
int llm_eval_item_make(struct llm_eval_item *item, const struct llm_eval_task *t, const json_t *record, struct llm_err *e) LLM_MUST_CHECK;
void llm_eval_item_release(struct llm_eval_item *item);
/* Which `n` records of `available` are the examples of item `number`: drawn by seed without repetition, or the first ones; never `number` itself if
 * `same` (they are from the same file). */
void llm_eval_pick_shots(const struct llm_eval_task *t, uint64_t seed, int64_t number, bool same, int64_t available, int64_t *picked, int64_t n);

#endif
