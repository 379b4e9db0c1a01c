/* Shared by the files of llm-train. */
#ifndef BIN_TRAIN_H
#define BIN_TRAIN_H

#include "base/cli.h"
#include "model/weights/format.h"
#include "train/plan.h"
#include "train/teach.h"

struct args {
    struct llm_common common;
    const char *config, *init, *tower, *resume, *tokenizer, *val, *best, *ema_output, *log;
    struct llm_strs sets, train, freeze;
    struct llm_strs targets, also_train; /* of the adapter */
    const char *adapter_init;
    int adapter;                /* enum adapter; -1: none */
    int64_t rank;               /* 0: not given */
    double alpha;               /* 0: not given */
    double adapter_dropout;     /* -1: not given */
    int rslora, dora;
    struct llm_train_options o;
    const char *coordcheck, *coordcheck_png;
    int64_t base_head_dim, save_every, show;
    int mup;
    int plan, gradcheck, profile;
    const char *activations;    /* --activations, read by llm_run_order */
    const char *order, *prune;  /* --order: of the data, or of n-grams */
    int64_t memory;             /* of counting n-grams; 0: half of the machine's */
    int ngram_order, ngram_bar; /* ngram_order 0: not given */
    struct llm_teach_options teach; /* --prompts */
    struct llm_strs sweep;
    int sweep_format;           /* enum sweep_format */
    int key;
    const char *shard;          /* --shard; NULL */
    double rank_timeout;        /* seconds; 0: never */
    const char *snapshot;       /* --snapshot; NULL */
    int64_t snapshot_every, hash_every;
    int to;                     /* enum llm_model_format: what -o is written as; -1: by its name */
};
/* Tables of the command line: words.c. */
extern const struct llm_words train_words[];
extern const struct llm_alias train_aliases[];
extern const struct llm_foreign train_foreign[];

enum adapter { ADAPTER_LORA };
enum sweep_format { SWEEP_SHELL, SWEEP_MAKE };
struct llm_run {
    struct llm_model *model;    /* until the trainer takes it */
    struct llm_config config;   /* --plan: of the model that is not made */
    struct llm_trainer trainer;
    struct llm_snapshots snapshots; /* --snapshot */
};
/* Options that exclude or need each other; misuse exits. */
int llm_run_check(const struct llm_cli *cli, const struct args *a, int has_data, struct llm_err *e) LLM_MUST_CHECK;
/* What `path` is written as: what --to says (`to`, -1: nothing), else by the end of its name. NULL: as .llm. */
enum llm_model_format llm_run_format(const char *path, int to);
/* The model of a run that was saved, and its options. `base`: of --base, or NULL. */
int llm_run_load(struct llm_run *r, const char *path, const char *base, struct llm_train_options *o, struct llm_err *e) LLM_MUST_CHECK;
/* Model, data and trainer are made. */
int llm_run_begin(struct llm_run *r, const struct args *a, const char *const *data, size_t n_data, struct llm_err *e) LLM_MUST_CHECK;
/* --coordcheck: the model of r->config at each width. */
int llm_run_coordcheck(const struct llm_run *r, const struct args *a, const char *const *data, size_t n_data, struct llm_err *e) LLM_MUST_CHECK;
/* Trains, or does what is asked for instead. */
int llm_run_go(struct llm_run *r, const struct args *a, struct llm_err *e) LLM_MUST_CHECK;
/* --prompts and the options that go with it; misuse exits. */
void llm_run_check_teach(const struct llm_cli *cli, const struct args *a, int has_data);
/* Options of adapters that exclude or need others; misuse exits. */
void llm_run_check_adapter(const struct llm_cli *cli, const struct args *a);
/* Gives the run's model the adapter that the options ask for. `loaded`: the model as it was loaded. */
int llm_run_adapt(struct llm_run *r, const struct args *a, const struct llm_model *loaded, struct llm_err *e) LLM_MUST_CHECK;
/* --train and --freeze become the run's; misuse exits. */
void llm_run_patterns(const struct llm_cli *cli, struct args *a);
/* With --batch-tokens conversations are not packed. Misuse ends the program. */
void llm_run_unpack(const struct llm_cli *cli, struct llm_train_options *o);
/* Whether a run that goes on has the --batch-tokens that it was saved with, if rows are documents: 0 or -1. */
int llm_run_keeps_tokens(const struct llm_train_options *o, const struct llm_train_options *stored, struct llm_err *e) LLM_MUST_CHECK;
/* --order as a word or a number, --objective ngram and what goes with it, and --activations; misuse exits. */
void llm_run_order(const struct llm_cli *cli, struct args *a);
bool llm_run_is_ngram(const struct args *a);
/* Counts n-grams and writes the model, or the plan. */
int llm_run_ngram(const struct llm_cli *cli, struct args *a, const char *const *data, size_t n_data, struct llm_err *e) LLM_MUST_CHECK;
/* Says what n-grams reach on the run's validation data. 0, 1 (signal), -1. */
int llm_run_ngram_bar(const struct llm_trainer *t, const struct args *a, struct llm_err *e) LLM_MUST_CHECK;
/* Standard input has one reader. */
int llm_run_check_stdin(const struct args *a, const char *const *data, size_t n_data, struct llm_err *e) LLM_MUST_CHECK;
/* Opens token streams. Nothing, if the objective reads the data as lines of JSON, which need the model: llm_run_open_lines. `tok`: of -T, or NULL. */
int llm_run_open_data(const struct llm_run *r, const struct args *a, const struct llm_tokenizer *tok, const char *const *paths, size_t n,
                      struct llm_train_data *d, struct llm_err *e) LLM_MUST_CHECK;
/* Reads lines of JSON, if the data are such, with the tokenizer and context of r->model, which takes over their chat template. */
int llm_run_open_lines(struct llm_run *r, const struct args *a, const char *const *paths, size_t n, struct llm_train_data *d, struct llm_err *e)
    LLM_MUST_CHECK;
/* --show: prints the first rows. */
int llm_run_show(struct llm_trainer *t, const struct args *a, struct llm_err *e) LLM_MUST_CHECK;
/* --key: prints the key of the result (io/key.h). `defaults`: the arguments of an empty command line. */
int llm_run_key(const struct llm_cli *cli, const struct args *a, const struct args *defaults, const char *const *data, size_t n_data,
                struct llm_err *e) LLM_MUST_CHECK;
/* --sweep: prints the commands of its runs, called `program`. Right after llm_cli_parse. */
int llm_run_sweep(const struct llm_cli *cli, const struct args *a, const char *program, const char *const *data, size_t n_data, struct llm_err *e)
    LLM_MUST_CHECK;
/* With --shard auto: the ranks agree on the layout of r->trainer, for a model of configuration `c` (llm_layout_choose). Collective; every rank that
 * has failed before calls llm_comm_agree instead. 0 or -1, on all ranks. */
int llm_run_choose(struct llm_run *r, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *o,
                   struct llm_plan_trials *trials, struct llm_err *e) LLM_MUST_CHECK;
void llm_run_release(struct llm_run *r);

/* ---- ranks.c ---- */
/* Ranks other than the first write nothing to standard error until they speak: what all would say of a command line is said once. */
void llm_ranks_hush(void);
void llm_ranks_speak(void);
/* Reads --shard and, under a launcher, starts the communicator of r->trainer. Misuse exits. */
int llm_ranks_start(const struct llm_cli *cli, const struct args *a, const char *const *data, size_t n_data, struct llm_run *r, struct llm_err *e)
    LLM_MUST_CHECK;
/* llm_pool_start for a rank: without -j the ranks of a machine share its CPUs. */
int llm_ranks_pool(const struct llm_run *r, int64_t threads, struct llm_err *e) LLM_MUST_CHECK;
/* The ranks agree on the end, one reports a failure, and the run is released. Returns the exit status. */
int llm_ranks_end(struct llm_run *r, int failed, struct llm_err *e);

#endif
