/* Objectives: what a step minimises. An objective is one file, objective/<name>.c, which exports one struct llm_objective, and its row in
 * objective.c. The struct says everything that the rest of the program needs to know: the options that it takes, the columns of the data that it
 * reads, how a document becomes a row, how rows become losses and gradients, and what is reported of them. */
#ifndef LLM_TRAIN_OBJECTIVE_H
#define LLM_TRAIN_OBJECTIVE_H

#include "data/batch.h"
#include "model/model.h"
#include "tensor/ops.h"
#include "train/data.h"
#include "train/options.h"

/* The identity of rows, for random numbers: the same for the same data wherever a run was interrupted. */
struct llm_rows_key {
    uint64_t seed, step;
    int64_t first_row;
};
#define LLM_EVAL_STEP (UINT64_C(1) << 63) /* the step of evaluations, whose rows are windows of the data */

/* A document that becomes a row. */
struct llm_document {
    const int32_t *ids;
    const uint8_t *mask;        /* loss mask */
    int64_t n;
    int32_t label;              /* its class, if the objective is labelled */
    int64_t second;             /* the token at which the second of two texts begins; n: there is one text. In token streams: the first token whose
                                 * loss mask is 1 */
    const float *const *column; /* the objective's columns: n numbers per token, 1 per row, NULL if an optional column is absent; NULL: no columns */
};

struct llm_objective;
struct llm_lines;
enum { LLM_MAX_MEANS = 20, LLM_MAX_TASK_MODELS = 4, LLM_MAX_TASK_STATE = 2 };
struct llm_mean { double sum, n; };

/* An objective at work in one run. It owns the objective's further models and buffers, and what `run` has counted since the last reset. */
struct llm_task {
    const struct llm_objective *objective;
    struct llm_model *model;                /* the model that is trained (the policy); borrowed */
    struct llm_train_options o;             /* a copy */
    const struct llm_activations *activations; /* the data, of training and then of validation; borrowed. NULL: the data are tokens */
    const struct llm_pictures *pictures;    /* likewise */
    const struct llm_shown *shown;          /* the pictures of texts; borrowed. NULL: they have none */
    bool drawn;                             /* there are no data: rows are drawn at random (plans, gradient checks) */
    int64_t n_pictures;                     /* those of training, which come first and may be mixed into others */
    void *own;                              /* buffers that `create` made; NULL: none */
    struct llm_task_model {                 /* further models: reference, teacher, value. Owned; a file that is named twice is loaded once */
        struct llm_model *model;
        uint64_t device, inode;
    } models[LLM_MAX_TASK_MODELS];
    struct llm_mean means[LLM_MAX_MEANS];   /* of objective->means; `run` adds to them */
    uint64_t first_step;                    /* data_per_run: the step before which the model is the one that the data at hand came from */
    double beside;                          /* Σ of losses in nats, times their weight, that have a gradient but no place in token_loss */
    struct llm_router_report routers;       /* statistics of routers, which backward passes add to */
    struct llm_param *params;               /* [n_params] parameters that are trained beside the model's (a value head). `create` makes them; they
                                             * belong to `own`. Training states hold them as masters; without one they are as `create` left them */
    int n_params;
    double state[LLM_MAX_TASK_STATE];       /* numbers that go from step to step, named by objective->state, kept in training states; NaN: none yet */
    double next_state[LLM_MAX_TASK_STATE];  /* what they become when the first step over the data at hand is done */
    struct llm_records *surveyed;           /* while `run` looks at all documents before the first step: it may write columns of the records, of which
                                             * row r of the pass is number llm_ctx.first_row + r. NULL at other times */
};

struct llm_objective {
    const char *name, *summary;

    /* ---- options ---- */
    const struct llm_objective_option *options; /* the options that it takes; the last has no name. NULL: none */
    const char *init_option;    /* the option, of type LLM_INPUT, that is the model of --init if it is not given; NULL: none */
    /* Checks what no range of a single option says. 0, or -1 (LLM_EX_USAGE). NULL: nothing to check. */
    int (*check_options)(const struct llm_train_options *o, struct llm_err *e);

    /* ---- models ---- */
    /* Whether the objective can train the model: 0 or -1. */
    int (*check)(const struct llm_model *m, struct llm_err *e);
    /* Changes a configuration before there is a model of it. NULL: it stays as it is. */
    int (*configure)(struct llm_config *c, const struct llm_train_options *o, const struct llm_train_data *data, struct llm_err *e);
    /* Makes t->own and loads further models (llm_task_load), once a run; destroy frees t->own. NULL: it needs nothing. */
    int (*create)(struct llm_task *t, struct llm_err *e);
    void (*destroy)(struct llm_task *t);

    /* ---- data ---- */
    const struct llm_column *columns;       /* columns that it reads besides ids, mask and label; the last has no name. NULL: none */
    /* Turns a line of JSON into documents: adds them to l->records, or skips the line (train/lines.h). NULL: the data are token streams. 0 or -1. */
    int (*record)(struct llm_lines *l, const json_t *line, struct llm_err *e);
    /* After the last line: adds the documents under way unless reading has `failed`, and frees l->own. NULL: nothing is under way. 0 or -1. */
    int (*recorded)(struct llm_lines *l, struct llm_err *e, bool failed);
    /* Makes a document row number `row`, except for the columns, which are copied where the targets are: number i of a column per token belongs to
     * token i of the document. NULL: rows are windows of the data, not documents. */
    int (*document)(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e);
    bool data_per_run;          /* each run reads data of its own (rollouts of the policy as it is), in whole passes (--epochs, 1). A resumed run
                                 * begins with other data, the number of steps follows from them, and the learning rate is constant */
    /* Whether a run has data of its own, if its options say so. NULL: data_per_run says it. */
    bool (*per_run)(const struct llm_train_options *o);
    /* Whether rows are documents, as the options say. NULL: `takes_lines` says it. */
    bool (*documents)(const struct llm_train_options *o);
    /* Whether the data are JSON Lines, of an objective that learns from documents of lines or from windows of token streams, as options say. NULL: it
     * has one kind of rows, and data are lines if they look like it. */
    bool (*takes_lines)(const struct llm_train_options *o);
    bool unrewarded;            /* rollouts need no reward */
    /* data_per_run: whether `run` has to look at all documents before `begin`; NULL: only to check them, if there are several steps and a
     * `begin`. */
    bool (*surveys)(const struct llm_task *t);
    /* data_per_run: called before the first step over the records, after that look. Sets t->next_state. 0 or -1. NULL: nothing to do. */
    int (*begin)(struct llm_task *t, struct llm_records *records, struct llm_err *e);
    const char *state[LLM_MAX_TASK_STATE]; /* names of llm_task.state; NULL: fewer */
    bool two_texts;             /* a document consists of two texts, each of which has a row's room */
    bool labelled;              /* documents have classes */
    bool pictures;              /* data of vision transformers are pictures (data/pictures.h): llm_task.pictures. A document is one of them, its one
                                 * token the picture's number; a row has a picture's tokens */
    bool captions;              /* data of models of two towers are pictures with texts: a document is the picture's number, then the text's tokens */
    bool shows;                 /* conversations may have pictures, if the model reads them in texts: llm_task.shown */
    bool by_tokens;             /* documents may be grouped into steps by their tokens (llm_train_options.batch_tokens): `document` makes rows of any
                                 * length that holds the document */
    bool by_pass;               /* a row's loss depends on the other rows of its pass, so that the division of a step changes the result */
    bool other_targets;         /* targets are not tokens: no loss per byte is reported */
    const char *beside;         /* llm_task.params alone are trained: they are learned beside a model that stays as it is stored, and have a file of
                                 * this kind of their own (model/weights/beside.h). NULL: the model is trained */
    bool activations;           /* data are streams of activations (formats/activations.md) of the model of --init: llm_task.activations. A document
                                 * is one of them, its one token the number of its row. Rows have one token */
    /* Called after each update of the parameters. NULL: nothing to do. */
    void (*updated)(struct llm_task *t);
    /* Adds what that file says besides the parameters to its metadata. 0 or -1. NULL: nothing. */
    int (*describe)(const struct llm_task *t, json_t *meta, struct llm_err *e);
    /* Changes rows that were cut for the next token (masks, rearranges them). NULL: they stay as they are. */
    int (*transform)(const struct llm_task *t, const struct llm_rows_key *key, struct llm_rows *rows, struct llm_err *e);

    /* ---- a pass ---- */
    /* Runs the model over rows. With a tape in `c` the gradient of grad_scale · Σ weight · loss is then ready for llm_backward.
     * token_loss [n_rows, row_len]: the loss at each target, not multiplied by its weight; 0 where there is no target. 0 or -1.
     * NULL: the objective is not trained by steps (n-grams are counted). */
    int (*run)(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e);
    /* Names, in the log, of what `run` adds to llm_task.means. A mean that was added to follows the loss of its step and, as val_<name>, that of an
     * evaluation. NULL after the last. */
    const char *means[LLM_MAX_MEANS];
};
/* Checks that the objective can train the model, and makes what it owns; borrows `data`. Zero-initialise; release either way. */
int llm_task_init(struct llm_task *t, const struct llm_objective *o, struct llm_model *m, const struct llm_train_options *options,
                  const struct llm_train_data *data, struct llm_err *e) LLM_MUST_CHECK;
void llm_task_release(struct llm_task *t);
/* Clears the means and statistics: between steps, and before and after an evaluation. */
void llm_task_reset(struct llm_task *t);
/* Mean number i of what `run` has added; NaN: it added nothing. */
double llm_task_mean(const struct llm_task *t, int i);
/* Adds n values of the given sum to the mean of this name, which must be one of objective->means. */
void llm_task_note(struct llm_task *t, const char *name, double sum, double n);
/* The model of a file, for `create`: loaded, or the one that an earlier call loaded from the same file. It must take the ids of the policy's
 * vocabulary. `what` names it in messages ("--teacher"). Owned by the task. NULL: see `e`. */
struct llm_model *llm_task_load(struct llm_task *t, const char *what, const char *path, struct llm_err *e) LLM_MUST_CHECK;

/* The rows as a model takes them, with the options that concern memory, and the routers' report. */
struct llm_batch llm_rows_batch(struct llm_task *t, const struct llm_rows *rows);
/* A batch of n pictures, the rows of the pass, for the tower or transformer `f`: number[r * step] of the task's pictures, augmented as mixed[r] says
 * (NULL: not at all). Without data (plans, gradient checks) pixels are drawn. */
struct llm_batch llm_task_see(struct llm_ctx *c, struct llm_task *t, const struct llm_config *f, const int32_t *number, int64_t step, int64_t n,
                              const struct llm_augmented *mixed);
/* Puts the embeddings of pictures into a batch of rows whose ids have them (train/shown.h). Nothing is done if the task's texts have none, or if `m`
 * reads none. */
void llm_task_show(struct llm_ctx *c, struct llm_task *t, struct llm_model *m, const struct llm_rows *rows, struct llm_batch *b);
/* The sources of rows that have them, as an encoder takes them. */
struct llm_batch llm_rows_source(const struct llm_rows *rows);
/* The cross-entropy of the policy's head at the rows' targets, with their weights. */
struct llm_cross_entropy llm_task_loss(const struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss);
/* The policy's hidden states [n_rows · row_len, hidden] of rows that continue texts, with their documents, prefixes and carried states. */
struct llm_tensor *llm_task_hidden(struct llm_ctx *c, struct llm_task *t, struct llm_model *m, const struct llm_rows *rows, struct llm_batch *b);
/* `run` of objectives that predict the next token of rows as they are. */
int llm_objective_run_next(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss,
                           struct llm_err *e);
/* The name of the mean that it adds to, the first one: the loss, in nats, of tokens after the next one. */
#define LLM_MEAN_FURTHER "mtp_loss"
/* `run` of objectives whose rows have picks. */
int llm_objective_run_picks(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss,
                            struct llm_err *e);
/* Whether a model continues texts: 0 or -1. */
int llm_objective_check_next(const struct llm_model *m, struct llm_err *e);
/* Whether a model continues texts and predicts one token at each position, without layers that predict further ones (MTP): 0 or -1. */
int llm_objective_check_one(const struct llm_model *m, struct llm_err *e);
/* Whether the loss of a row depends on the other rows of its pass: by the objective, or by BatchNorm. */
bool llm_objective_by_pass(const struct llm_objective *o, const struct llm_config *c);
/* The options of objectives with `beside`; init_option is "base". */
#define LLM_BESIDE_OPTIONS \
    {.name = "base", .arg = "MODEL", .help = "model that a lens or dictionary is learned beside [that of --init]", .type = LLM_INPUT}
/* Whether rows are documents; else they are windows of a token stream. */
bool llm_objective_documents(const struct llm_objective *o, const struct llm_train_options *p);
/* Whether each run reads data of its own. */
bool llm_objective_per_run(const struct llm_objective *o, const struct llm_train_options *p);
extern const struct llm_objective *const llm_objectives[]; /* NULL-terminated */
const struct llm_objective *llm_objective_find(const char *name);

#endif
