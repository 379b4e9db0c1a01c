/* A training run: weights, gradients, moments, data and where in it we are. One call a step; the caller decides when to evaluate, save and stop. */
#ifndef LLM_TRAIN_TRAINER_H
#define LLM_TRAIN_TRAINER_H

#include "data/groups.h"
#include "tensor/sequence.h"
#include "train/objective.h"
#include "train/optim.h"
#include "train/options.h"
#include "train/outer.h"
#include "train/schedule.h"
#include "train/share.h"

struct llm_trainer {
    struct llm_train_options o;
    struct llm_model *model;           /* owned */
    struct llm_train_data data;        /* owned */
    struct llm_comm *comm;             /* borrowed; set before llm_trainer_init. NULL: one rank */
    struct llm_layout layout;          /* as comm. If it has members (tp) and comm is NULL, the others are not there: for a plan */
    bool keeps_forms;                  /* as comm: both forms of every matrix are kept even if a step has one pass, for a plan */
    struct llm_share share;            /* what this rank does */
    struct llm_stages *stages;     /* owned; NULL: the rank runs all layers */
    struct llm_group *group;       /* the ranks that have the slices of the model's matrices; owned; NULL: this one has all */
    struct llm_group *experts;     /* the ranks that divide experts; owned; NULL: this one has all */
    struct llm_sequence sequence;  /* what of the rows this rank has in training; owns its group */
    struct llm_rows own_rows;      /* of a pass, where ranks divide rows: this rank's part of each */
    float *own_loss;               /* of these */
    int32_t *idle_targets;         /* of idle passes (llm_pass_next): [row_len], where no loss counts; NULL: there are none */
    float *idle_loss;              /* [row_len] of such passes */
    bool in_pass;                  /* an evaluation's pass has begun, which llm_group_leave must end */
    struct llm_outer outer;            /* replicas that are trained apart */
    uint64_t *hashes;                  /* [n_hashes] of masters, as they were when they were last whole, or of replicas; NULL: masters always are */
    size_t n_hashes;
    bool hashes_step;                  /* weights are hashed after the step at hand, which waits for all of them */
    int signal;                        /* that some rank caught; the step that found out is done by all */
    const struct llm_optim *optim;
    const struct llm_schedule *schedule;
    const struct llm_objective *objective;
    bool documents, data_per_run;      /* llm_objective_documents, llm_objective_per_run */
    struct llm_task task;              /* the objective at work */
    struct llm_trainable *params;      /* those that are trained, in the model's order */
    size_t n_params;
    float *work;                       /* of updates of matrices; NULL where none need it */
    size_t work_floats;
    struct llm_ctx ctx, eval_ctx;
    struct llm_order order;
    struct llm_groups groups;          /* of documents grouped by tokens: `order` is that of its batches, each of which is a step; n 0: not so */
    float *carried[2];                 /* --carry-state: [rows of a step, rows.state_floats] each, states before and after the next step; else NULL */
    struct llm_rows rows, eval_rows;   /* a whole step's; one pass of evaluation */
    float *token_loss;                 /* as many as the larger of them */
    uint32_t *piece_bytes;             /* [vocab_size] bytes of text that each id stands for; NULL: there is no tokenizer */
    uint64_t held;                     /* of documents: those that are trained on, which come before those that are held out */
    int64_t step;                      /* steps done */
    uint64_t sample, tokens;           /* rows seen, or steps if documents are grouped; targets learned from */
    double best_loss;                  /* of evaluations; infinite: none */
    bool ema_in_place;                 /* the averages stand where the weights do, and these where the averages: during an evaluation of them */
    int64_t best_step, eval_step;      /* eval_step: of the last evaluation */
    int32_t *classes[2];               /* labelled objectives: of the data's labels, and the validation data's; the model's number of each */
    bool eval_agreed;                  /* llm_trainer_agree_on_pass */
    double val_means[LLM_MAX_MEANS];   /* of the last evaluation, named by objective->means; NaN: there was nothing */
    bool main_loss_alone;              /* routers' own losses have no gradient */
    bool ended;                        /* a feed has no whole step left */
};

struct llm_step_report {
    int64_t step;                      /* that was done, from 1 */
    double loss;                       /* nats per counted token */
    double bits_per_byte;              /* NaN without a tokenizer */
    double lr, grad_norm;              /* before clipping */
    double means[LLM_MAX_MEANS];       /* named by objective->means; NaN: there was nothing */
    /* Of mixtures of experts, means over tokens and layers; NaN without. Balance: experts·Σ load·probability, 1 is even; peak: the busiest expert's
     * load by the mean; z: logsumexp² of the router's logits; dropped: the share of choices that found no room. */
    double router_balance, router_peak, router_z, router_dropped;
    int64_t tokens;                    /* that went through the model */
    double activation_bytes;           /* of activations, their gradients and what is kept of them in fewer bits: each at its most so far */
    double seconds;
    double comm_seconds, comm_bytes;   /* this rank's waits for others, and what it sent; NaN: there are no others */
    double comm_hidden;                /* llm_share_hidden */
};

/* A report of nothing but the number of a step. */
struct llm_step_report llm_step_report_none(int64_t step);

/* Whether a run of these resolved options, divided so among so many replicas, can be: the one check of runs and of plans. 0 or -1. */
int llm_trainer_check(const struct llm_train_options *o, const struct llm_config *c, bool adapted, const struct llm_layout *l, int64_t replicas,
                      struct llm_err *e) LLM_MUST_CHECK;
/* Takes over `m` and `*d` (also on failure). o->context 0: the model's. Resolves what the options leave open. Zero-initialise; release either way. */
int llm_trainer_init(struct llm_trainer *t, const struct llm_train_options *o, struct llm_model *m, struct llm_train_data *d, struct llm_err *e)
    LLM_MUST_CHECK;
void llm_trainer_release(struct llm_trainer *t);
/* One step: forward, backward, update. On failure (a loss or gradient that is not finite names the first bad tensor) no weight has changed.
 * 1: a signal was caught or the feed has ended (t->ended), the step was dropped. */
int llm_trainer_step(struct llm_trainer *t, struct llm_step_report *r, struct llm_err *e) LLM_MUST_CHECK;
/* Fills t->rows with the rows of the next step, without training. 0; 1: a signal was caught or the feed has ended; -1. */
int llm_trainer_rows(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* How many samples of the order the step of t->rows takes: its rows, or 1 if they are a batch of t->groups. */
uint64_t llm_trainer_samples(const struct llm_trainer *t);
/* Rows of a pass of the step of t->rows: t->o.batch, or as many as have no more tokens than t->o.batch rows of t->o.context. */
int64_t llm_trainer_pass_rows(const struct llm_trainer *t);
/* The loss and gradient of the next step's rows without an update: gradients are left in the parameters. For checks. */
int llm_trainer_gradient(struct llm_trainer *t, struct llm_step_report *r, struct llm_err *e) LLM_MUST_CHECK;
/* Exchanges the weights and their averages: twice is nothing. Between, what is evaluated or saved alone is the average. */
void llm_trainer_swap_ema(struct llm_trainer *t);
/* Makes the ranks' results of the same work one, as llm_comm_agree. Signals that ranks have caught count in steps alone. */
int llm_trainer_agree(struct llm_trainer *t, int got, struct llm_err *e) LLM_MUST_CHECK;
/* Fails unless all ranks have the same program, instruction set, configuration, data and weights: names what differs. Collective. */
int llm_trainer_same(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* Gradients become zero, and what the step's passes saw is forgotten. */
void llm_trainer_forget(struct llm_trainer *t);
/* A run with data_per_run goes on with other data: takes over the records, places the run at their beginning, and sets t->o.steps to their end
 * after o->epochs passes. 0 or -1. */
int llm_trainer_renew(struct llm_trainer *t, struct llm_records *records, struct llm_err *e) LLM_MUST_CHECK;
bool llm_trainer_has_val(const struct llm_trainer *t);
/* Mean loss over the held-out windows, in order; bits_per_byte as in the report. 1: a signal was caught, nothing came out. With zero 3, with
 * stages and with members of a group the ranks agree before each pass, and t->eval_agreed says that they have agreed on a result other than 0. */
int llm_trainer_eval(struct llm_trainer *t, double *loss, double *bits_per_byte, struct llm_err *e) LLM_MUST_CHECK;
/* After an llm_trainer_eval that a fault may have interrupted: exchanges what is left of the pass's messages between stages, and waits until the
 * members of the rank's group have left the pass. 0 or -1. */
int llm_trainer_end_eval(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* XXH64 of all weights (masters), so that two runs can be compared as they go. Of several ranks that keep them in parts: as of the last
 * llm_trainer_update_hash. */
uint64_t llm_trainer_hash(const struct llm_trainer *t);
/* Rank 0 gets the hash of weights that the ranks keep in parts: collective. 0 or -1. */
int llm_trainer_update_hash(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;

/* ---- state.c ---- */
enum llm_save_as {
    LLM_SAVE_RUN,              /* .llm: the model and what --resume needs */
    LLM_SAVE_MODEL,            /* .llm: the model alone */
    LLM_SAVE_SAFETENSORS       /* the model alone, unpacked */
};
int llm_trainer_save(struct llm_trainer *t, const char *path, enum llm_save_as as, struct llm_err *e) LLM_MUST_CHECK;
/* What this rank writes of the file of LLM_SAVE_RUN goes to `o`, and *extents says where in the file it belongs (train/together.h). All ranks. */
struct llm_extents;
int llm_trainer_save_part(struct llm_trainer *t, struct llm_output *o, struct llm_extents *extents, struct llm_err *e) LLM_MUST_CHECK;
/* Bytes of the tensors of that file before they are compressed. */
int llm_trainer_saved_bytes(struct llm_trainer *t, double *bytes, struct llm_err *e) LLM_MUST_CHECK;
/* From a model that llm_trainer_save wrote: options, and where its data was. `m->training` must not be NULL. */
int llm_state_options(const struct llm_model *m, struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;
/* Borrowed from m->training: paths of the data and the validation's (NULL: none). The list is the caller's to free. */
int llm_state_data(const struct llm_model *m, const char ***paths, size_t *n_paths, const char **val, struct llm_err *e) LLM_MUST_CHECK;
/* Puts masters, moments and position into a trainer made of the same model; checks the data's fingerprint. */
int llm_state_restore(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;

/* ---- params.c ---- */
/* Masters, working copies, gradients and moments of the parameters that are trained. Others stay as they are stored. */
int llm_trainer_prepare(struct llm_trainer *t, struct llm_err *e) LLM_MUST_CHECK;
/* Whether the options train the parameter. */
bool llm_trains(const struct llm_train_options *o, const struct llm_param_spec *s);
/* That each pattern of the options matches one of n parameters, and that some are trained. 0 or -1. */
struct llm_param_spec;
int llm_trains_check(const struct llm_train_options *o, const struct llm_param_spec *specs, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Whether all of the model is trained, and nothing else. */
bool llm_trainer_trains_all(const struct llm_trainer *t);
/* How many numbers are trained. */
double llm_trainer_trained(const struct llm_trainer *t);
/* FLOPs of a step per token, without attention's scores: 2 for each active parameter forward and 2 for its inputs' gradient, and 2 for each that is
 * trained. */
double llm_trainer_flops_per_token(const struct llm_trainer *t);

#endif
