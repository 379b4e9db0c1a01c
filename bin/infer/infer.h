/* llm-infer: what its parts share. */
#ifndef LLM_BIN_INFER_H
#define LLM_BIN_INFER_H

#include "base/cli.h"
#include "infer/activations.h"
#include "infer/beams.h"
#include "infer/constrain/constraint.h"
#include "infer/generate.h"
#include "infer/zero_shot.h"
#include "infer/kvfile.h"
#include "infer/sample/dry.h"
#include "infer/sample/options.h"
#include "io/table.h"
#include "model/weights/fim.h"
#include "token/chat/find.h"

struct args {
    struct llm_common common;
    const char *chat_template, *system;
    const char *fim_prefix, *fim_suffix;
    int fim_spm;
    int chat, lines, shift, no_think;
    const char *chat_log, *context_from;
    struct llm_knn_options knn;    /* --knn */
    const char *model, *mmproj, *tokenizer, *prompt, *file, *kv_in, *kv_out;
    int jsonl, score, per_token, entropy, add_eos;
    int logits, embed, classify, score_reward, ref_logprobs, ids, special, echo, ignore_eos, no_timings, plan;
    int profile, rollout;
    int64_t top, n, context, batch, draft, parallel, samples, kv_keep, trace_queries;
    const char *cache_type;
    int precision, pooling;
    int64_t embd_normalize;
    int normalize, embed_as;       /* embed_as: index into "query|passage"; -1: neither */
    int64_t dims;                  /* elements of a vector that --embed keeps; 0: all */
    const char *embed_prefix, *rerank;
    int resume, unordered, no_sharing;
    int draft_ngram;
    const char *prefix_cache;
    int64_t prefix_cache_size;
    const char *draft_model;
    int accept;                    /* index into "exact|maximal" */
    int64_t logprobs;              /* --logprobs; -1: the option was not given */
    int64_t limit, retries;
    int64_t memory;                /* bytes; 0: not bounded */
    double cfg_scale;
    const char *negative_prompt;
    int64_t beams, beam_groups;
    double diversity_penalty, length_penalty, penalty_alpha; /* penalty_alpha 0: no contrastive search */
    int early_stopping;            /* enum llm_early */
    double latency_target;         /* milliseconds; 0: none */
    const char *part;              /* "I/N" */
    int64_t part_number, parts;    /* what it says: from 0; 1 part if it was not given */
    struct llm_sampling sampling;  /* bias and seed are not in it: session.sampling has them */
    struct llm_strs stop, logit_bias, dry_breakers, adapters, labels, export, attribute, steer, patch, ablate, splice;
    const char *which_tokens, *neurons, *png;
    int64_t neurons_top;
    struct llm_strs images;        /* --image: pictures in place of a prompt, or of it */
    const char *grammar, *regex, *choices, *json_schema; /* at most one of these and json_object is given */
    int json_object;
    const char *lens;              /* --lens: "logit" or "tuned:FILE"; NULL: the option was not given */
};

enum { INFER_UNSET = -2 }; /* an option that was not given, whose default follows from others */

/* usage.c: status 2 and one line for operands and options that do not go together. */
void infer_check_operands(const struct args *a, int n, char **operands);
void infer_check_options(struct args *a, const char *operand);
bool infer_is_dash(const char *s); /* standard input or output */

/* Tables of the command line: words.c. */
extern const struct llm_cli infer_cli;
extern const struct args infer_defaults; /* what the options are if they are not given; those of sampling apart */
extern const struct llm_words infer_words[];
extern const struct llm_alias infer_aliases[];
/* Options that a line of --jsonl may give for itself. */
#define LINE_OPTIONS "cfg-scale|tokens|samples|seed|ignore-eos|logprobs|" LLM_SAMPLING_NAMES
extern const struct llm_foreign infer_foreign[];

/* What --chat knows of the model. */
struct chat {
    bool open;
    struct llm_chat found;
    struct tm now;
    int32_t ends[4];
    size_t n_ends;
};

/* Sources of --context-from (bin/infer/sources.h). */
struct sources {
    json_t *ids;                   /* an object whose keys are their ids; NULL: there are none */
    struct llm_buf text;           /* what is put before the first message of the user */
    struct llm_err unknown;        /* status set: an answer cited what is no source */
};

struct resume;
struct session {
    const struct args *a;
    struct llm_model *model;
    struct llm_engine engine;
    struct llm_model *draft_model; /* of --draft; NULL without */
    struct llm_engine drafter;     /* runs it */
    struct llm_sampling sampling;  /* from the options */
    struct llm_zero_shot zero_shot; /* the classes of --labels; empty without */
    struct llm_logit_bias *bias;
    struct llm_dry_breakers dry_breakers; /* of sampling */
    int64_t cache_memory;          /* bytes that --memory leaves to caches; 0: not bounded */
    int32_t *negative;             /* [n_negative] tokens of --negative-prompt */
    size_t n_negative;
    struct llm_kv begin;           /* from --kv-in; empty without */
    enum llm_pool_kind pool;       /* of --embed and --classify */
    int64_t normalize;
    struct llm_buf prefix;         /* text before each text of --embed */
    struct llm_buf placeholder;    /* the text, with NUL, of the token that stands for a picture; empty: the model reads none in texts */
    struct chat chat;              /* with --chat */
    struct sources sources;
    struct llm_knn knn;            /* of --knn; zero without */
    bool hinted;                   /* chat_hint was called */
    bool tools_unseen;             /* it was said that the template shows no tools */
    struct llm_fim fim;            /* the markers of fill-in-the-middle, if fim_known */
    bool fim_known;
    int32_t fim_ends[LLM_FIM_MARKS]; /* markers that also end a middle, if the model generates one */
    struct llm_buf around[2];      /* the texts of --fim-prefix and --fim-suffix */
    struct llm_editors editors;    /* of --steer, --patch, --ablate and --splice */
    struct llm_watch watch;        /* the list of these editors and of observers that is attached to the engine */
    struct constraints *constraints; /* of --grammar, --regex, --choices, --json-schema and of lines; NULL: none was needed yet */
    struct llm_constraint *constraint; /* of the command line; NULL: none. s->constraints owns it */
    struct llm_output *out;        /* text, tables or tensors; NULL: only the cache goes to standard output */
    struct resume *resume;         /* with --resume: the answers that the output has already; else NULL */
    struct llm_err refused;        /* set if lines were answered with an error; reported, with its status, after the output is complete */
};

/* Encodes a text as the options say (--ids, --special); the ids are checked to be below the vocabulary. *ids is malloced. */
int prompt_encode(const struct session *s, const char *text, size_t n, int32_t **ids, size_t *n_ids, struct llm_err *e) LLM_MUST_CHECK;
/* As prompt_encode, of a text with pictures: if it has no placeholders, they come before it, each on a line. */
int prompt_encode_seeing(const struct session *s, const char *text, size_t n, size_t n_pictures, int32_t **ids, size_t *n_ids,
                         struct llm_err *e) LLM_MUST_CHECK;
/* Token ids from a JSON list, checked to be below the vocabulary. *ids is malloced. */
int prompt_take_ids(const struct session *s, const json_t *list, int32_t **ids, size_t *n_ids, struct llm_err *e) LLM_MUST_CHECK;
/* The tokens of a line of --jsonl, {"prompt": …} or {"ids": […]}. *ids is malloced. */
int prompt_of_line(const struct session *s, const json_t *o, int32_t **ids, size_t *n_ids, struct llm_err *e) LLM_MUST_CHECK;
/* Takes the prompt of a line whose whole output is numbers, without pictures: its tokens, as prompt_of_line and prompt_begin make them.
 * "prompt" and "ids" leave the object; if it has no "id", the line's number becomes its "id". *ids is malloced. */
int prompt_take(const struct session *s, json_t *o, int64_t line, int32_t **ids, size_t *n_ids, struct llm_err *e) LLM_MUST_CHECK;
/* The prompt that operand, -f or standard input give; tokens that begin a text where it is empty. */
int prompt_read(const struct session *s, const char *operand, int32_t **ids, size_t *n_ids, struct llm_err *e) LLM_MUST_CHECK;
/* The prompt of fill-in-the-middle: the tokens of two texts with their markers, so that the model continues with the middle. *ids is malloced. */
int fim_encode(struct session *s, const char *prefix, size_t n_prefix, const char *suffix, size_t n_suffix, int32_t **ids, size_t *n_ids,
               struct llm_err *e) LLM_MUST_CHECK;
/* As fim_encode, with the texts of the files of --fim-prefix and --fim-suffix. */
int fim_read(struct session *s, int32_t **ids, size_t *n_ids, struct llm_err *e) LLM_MUST_CHECK;
/* Without tokens, and without a cache to begin with, the prompt is the token that begins a text, or ends one. *ids is malloced. */
int prompt_begin(const struct session *s, int32_t **ids, size_t *n_ids, struct llm_err *e) LLM_MUST_CHECK;
/* The maximum of bytes of a prompt's text. A longer text is refused before it fills the memory. */
size_t prompt_max_bytes(const struct session *s);
/* Reads a whole file, or standard input, of at most prompt_max_bytes bytes. 0 or -1. */
int prompt_read_all(const struct session *s, const char *path, struct llm_buf *text, struct llm_err *e) LLM_MUST_CHECK;
/* With --add-eos: the end token after the text. */
int prompt_end(const struct session *s, int32_t **ids, size_t *n_ids, struct llm_err *e) LLM_MUST_CHECK;
/* Refuses ids that the model's embedding does not have: a tokenizer may have more tokens than the model. 0 or -1. */
int prompt_check_vocab(const struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Refuses a prompt of n_ids tokens that does not fit into the context after the cache of --kv-in. Nothing is cut. 0 or -1. */
int prompt_check(const struct session *s, size_t n_ids, struct llm_err *e) LLM_MUST_CHECK;
/* Says that the context is full. */
void note_full(const struct session *s);

/* Loads the model of --draft and checks that its tokens are the model's. 0 or -1. */
int drafts_open(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
void drafts_release(struct session *s);
/* How completions are drafted, as the options say. */
void drafts_set(struct session *s, struct llm_generate *g);
/* Refuses guidance that the model, or the context with the negative prompt, has no room for. 0 or -1. */
int negative_check(const struct session *s, const struct llm_prompt *p, struct llm_err *e) LLM_MUST_CHECK;
/* llm_generate, or llm_beams_search if the options ask for beams or contrastive search. */
int generate(struct session *s, const struct llm_generate *g, struct llm_err *e) LLM_MUST_CHECK;

struct llm_infer_plan;
/* How --memory is divided. */
struct memory_split {
    double fixed;                  /* bytes of weights, activations, logits, the program */
    int64_t cache;                 /* bytes left to caches */
};
/* -1 (69): --memory is too little for a page of cache. `p`: llm_infer_plan's. */
int memory_split(struct session *s, const struct llm_infer_plan *p, struct memory_split *m, struct llm_err *e) LLM_MUST_CHECK;
/* Sets s->cache_memory as --memory says. 0 or -1. */
int memory_open(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
/* Bytes that the cache of `all` tokens takes at most, of which `prompt` are the prompt's, that others have, too, if it is `shared`. */
int64_t memory_of_sequence(const struct session *s, int64_t all, int64_t prompt, bool shared);
/* Refuses (69) a prompt that --memory has no room for, even if nothing else runs. 0 or -1. */
int memory_check(const struct session *s, const struct llm_prompt *p, struct llm_err *e) LLM_MUST_CHECK;

/* Gives the model the adapters of --adapter. */
int adapters_load(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
/* Reads "adapter" of a line of --jsonl: a text FILE or FILE:SCALE, or a list of them, of those that --adapter names; null or an empty list: none.
 * *factors: by the number of the adapter, malloced; NULL: the line says nothing. A line that cannot be used: EX_DATAERR. 0 or -1. */
int adapters_take(const struct session *s, const json_t *object, float **factors, struct llm_err *e) LLM_MUST_CHECK;

/* Reads "steer" of a line of --jsonl: a text FILE, FILE:STRENGTH or FILE:STRENGTH@LAYERS, or a list of them, of those that --steer names; null or an
 * empty list: none. *strengths: by the number of the editor, malloced; NULL: the line says nothing. A line that cannot be used: EX_DATAERR.
 * 0 or -1. */
int steer_take(const struct session *s, const json_t *object, float **strengths, struct llm_err *e) LLM_MUST_CHECK;

/* Makes the constraint that the options ask for, if any: s->constraint. 0 or -1. */
int constraints_open(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
/* Whether a member of a line says what its text must be. */
bool constraints_know(const char *name);
/* Takes "grammar", "regex", "choices", "json_schema", "json_object" or OpenAI's "response_format" of a line of --jsonl, in place of the command
 * line's constraint; null: none. The members leave the object. *c: NULL if the line is not constrained; it lives at least until constraints_drop,
 * which a line with a constraint needs. A line that cannot be used: EX_DATAERR. 0 or -1. */
int constraints_take(struct session *s, json_t *object, struct llm_constraint **c, struct llm_err *e) LLM_MUST_CHECK;
/* The constraint of calls of tools (LLM_CONSTRAIN_TOOLS); as of constraints_take. */
int constraints_find_tools(struct session *s, const char *text, size_t n, struct llm_constraint **c, struct llm_err *e) LLM_MUST_CHECK;
void constraints_drop(struct session *s, struct llm_constraint *c);
void constraints_release(struct session *s);

/* Finds the template and what ends a turn, unless that is done. */
int chat_open(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
void chat_release(struct session *s);
/* Tokens of a conversation up to where the assistant speaks next, and of `begun`, with which it begins (NULL: as what is no call of a tool begins).
 * messages: an array; tools: an array or NULL. given: variables of the template, an object or NULL. *ids is malloced. */
int chat_encode(const struct session *s, const json_t *messages, const json_t *tools, const json_t *given, const char *begun, int32_t **ids,
                size_t *n_ids, struct llm_err *e) LLM_MUST_CHECK;

/* A plain prompt got an empty text from a model that may be made for conversations: says so, once, where it has a chat template. */
void chat_hint(struct session *s);

/* Each runs one way of working: 0, 1 when a signal was caught, -1. */
int run_text(struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int run_jsonl(struct session *s, const char *operand, struct llm_err *e) LLM_MUST_CHECK;
/* --classify: the classes of a prompt. */
/* Tables of --classify (classify.c). `pictures`: with a column of their numbers. The form that the table is written in. */
enum llm_table_form classes_begin(const struct session *s, struct llm_table *t, bool pictures);
/* The names of the classes: those of the model's classifier, or of --labels. */
const struct llm_labels *classes_names(const struct session *s);
/* The templates of --labels; what names of ensembles stand for is in them (templates.c). Zero-initialise it. */
struct templates { char **v; size_t n, room; };
/* Whether a template has a place for the label, or is the name of an ensemble. */
bool template_fits(const char *text);
/* On failure, too, `t` is to be released. */
int templates_expand(struct templates *t, const struct llm_strs *given, struct llm_err *e) LLM_MUST_CHECK;
void templates_release(struct templates *t);
/* --labels: makes the classes whose names are in the file. 0; 1 if a signal was caught; -1. */
int zero_shot_open(struct session *s, const char *path, struct llm_err *e) LLM_MUST_CHECK;
/* Adds a row for each class with its probability of p, the most likely first. picture 0: there is no column of pictures. */
int classes_put(struct session *s, struct llm_table *t, int64_t picture, const double *p, struct llm_err *e) LLM_MUST_CHECK;
/* --image: --embed or --classify of pictures. */
int run_pictures(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
int run_classify(struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* --score-reward: the score of a prompt by a reward model. */
int run_reward(struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* --score-reward with --jsonl: each line is written again with its score. */
int run_reward_lines(struct session *s, const char *operand, struct llm_err *e) LLM_MUST_CHECK;
/* --ref-logprobs: each line, a pair of replies, is written again with their log-probabilities. */
int run_references(struct session *s, const char *operand, struct llm_err *e) LLM_MUST_CHECK;
/* --embed, --classify or --rerank with --jsonl: a vector, the classes or a score for each line. */
int run_embed_lines(struct session *s, const char *operand, struct llm_err *e) LLM_MUST_CHECK;
/* Sets s->prefix as --embed-prefix or --embed-as say. 0, or -1 if the model's folder names no such prefix. */
int embed_prefix_open(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
/* The elements of a vector that --dims keeps of `width`. */
int64_t embed_dims(const struct session *s);
/* A conversation: the operand is its one message, else all of -f or standard input is, or with --lines each line; a terminal is talked with. */
int run_chat(struct session *s, const char *operand, struct llm_err *e) LLM_MUST_CHECK;
/* --score with --jsonl: the sum of log-probabilities for each line. */
int run_score_lines(struct session *s, const char *operand, struct llm_err *e) LLM_MUST_CHECK;
/* --logits --top: the most likely tokens after each token of a text, or of each line, as lines of JSON. */
int run_top(struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int run_top_lines(struct session *s, const char *operand, struct llm_err *e) LLM_MUST_CHECK;
int run_score(struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int run_tensors(struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int run_export(struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int run_lens(struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
int run_neurons(struct session *s, const char *operand, struct llm_err *e) LLM_MUST_CHECK;
int run_attribute(struct session *s, const int32_t *ids, size_t n, struct llm_err *e) LLM_MUST_CHECK;
/* Attaches the editors of --steer, --patch, --ablate and --splice to all passes from here on. 0 or -1. */
int inside_attach(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
/* Refuses a text of n tokens that would be read in windows while --patch is given: there tokens do not have the positions of the file. 0 or -1. */
int inside_whole(const struct session *s, int64_t n, struct llm_err *e) LLM_MUST_CHECK;
void inside_release(struct session *s);
int run_plan(struct session *s, struct llm_err *e) LLM_MUST_CHECK;
/* Generates -n tokens after the prompt; *all is the whole sequence, malloced. */
int extend(struct session *s, const int32_t *ids, size_t n, int32_t **all, size_t *n_all, struct llm_err *e) LLM_MUST_CHECK;

#endif
