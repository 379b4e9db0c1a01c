/* JSON Lines as training data: an objective turns each line into documents (llm_objective.record), which are kept in memory. */
#ifndef LLM_TRAIN_LINES_H
#define LLM_TRAIN_LINES_H

#include "data/records.h"
#include "token/chat/conversation.h"
#include "train/options.h"
#include "train/shown.h"

/* Why a line is not learned. Lines are counted by reason and reported at the end; with --strict the first one is an error. */
enum llm_skip {
    LLM_SKIP_MASKED,            /* no token counts in the loss */
    LLM_SKIP_LONG,              /* more tokens than a row has */
    LLM_SKIP_ROLE,              /* a role that is not known */
    LLM_N_SKIPS
};

struct llm_objective;
struct llm_model;
struct llm_lines {
    const struct llm_train_options *o;
    const struct llm_objective *objective;
    const struct llm_tokenizer *tokenizer;
    const struct llm_model *model; /* that is trained; of objectives with data_per_run its fingerprint is known */
    struct llm_shown *shown;    /* takes the pictures of conversations, for models that read them; NULL: others. Borrowed */
    int64_t context;            /* tokens of a row */
    struct llm_chat chat;       /* the chat template; template NULL: none was found */
    struct llm_err no_chat;     /* then why */
    struct llm_conversation scratch;
    struct llm_records *records; /* what `record` adds to */
    void *own;                  /* the objective's, between `record` and `recorded` */
    int64_t n_lines, skipped[LLM_N_SKIPS];
};
/* Finds the chat template: of --chat-template, else of the file or folder `path` (NULL: there is none). A template that is not found is an error
 * only when a line needs one (llm_lines_chat). Zero-initialise; release either way. */
int llm_lines_init(struct llm_lines *l, const struct llm_train_options *o, const struct llm_tokenizer *t, const char *path, int64_t context,
                   struct llm_err *e) LLM_MUST_CHECK;
void llm_lines_release(struct llm_lines *l);
/* Whether the file holds JSON Lines for the objective of the options, if it reads them. Standard input and pipes do. 1, 0 or -1. */
int llm_lines_are(const struct llm_train_options *o, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Reads files into new records, which the caller destroys, and reports what was skipped. NULL: "file: line 3: ..." */
struct llm_records *llm_lines_read(struct llm_lines *l, const char *const *paths, size_t n_paths, struct llm_err *e) LLM_MUST_CHECK;
/* Calls `take` with each line of a file that is not blank, of any length, in order; number: from 1. `line` is borrowed. 0 or -1:
 * "file: line 3: ..." */
typedef int llm_line_take(void *arg, json_t *line, int64_t number, struct llm_err *e);
int llm_lines_each(const char *path, llm_line_take *take, void *arg, struct llm_err *e) LLM_MUST_CHECK;

/* ---- for llm_objective.record ---- */
/* Counts a line that is not learned: returns 0; or -1 with --strict, and then says why. */
int llm_lines_skip(struct llm_lines *l, enum llm_skip why, struct llm_err *e, const char *fmt, ...) LLM_PRINTF(4, 5);
/* Fails with the reason if there is no chat template. */
int llm_lines_chat(const struct llm_lines *l, struct llm_err *e) LLM_MUST_CHECK;
/* The line as a conversation, as --map says: *messages, a new array of objects with "role" and "content", roles by their usual names. 1;
 * 0: skipped; -1. */
int llm_lines_messages(struct llm_lines *l, const json_t *line, json_t **messages, struct llm_err *e) LLM_MUST_CHECK;
/* The messages of a prompt (a text: the user's; a message or messages; NULL or JSON null: none) and a reply (a text: the assistant's; a message or
 * messages), a new array. NULL: see `e` (EX_DATAERR: another type). */
json_t *llm_lines_join(const json_t *prompt, const json_t *reply, struct llm_err *e) LLM_MUST_CHECK;
/* How many of the first n messages are the assistant's. */
int llm_lines_turns(const json_t *messages, size_t n);
/* Checks the value of --map. */
int llm_lines_check_map(const char *map, struct llm_err *e) LLM_MUST_CHECK;
/* The rows of the options that objectives over JSON Lines share (struct llm_objective_option). */
#define LLM_LINES_OPTIONS \
    {.name = "chat-template", .arg = "FILE|NAME", .help = "chat template of conversations: a file or a built-in name [the model's own]", \
     .type = LLM_STR, .begins = true}, \
    {.name = "strict", .help = "refuse lines that cannot be learned from, instead of counting and skipping them", .type = LLM_FLAG, \
     .begins = true}

#endif
