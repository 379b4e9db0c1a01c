/* What the files of the generator share. */
#ifndef LLM_INFER_GENERATE_INTERNAL_H
#define LLM_INFER_GENERATE_INTERNAL_H

#include "infer/generate.h"

/* A prompt and its completions. */
struct job {
    struct job *next;
    struct llm_prompt prompt;
    struct llm_kv kv;            /* the cache of the prompt, until all completions have begun */
    const int32_t *source;       /* [n_source] encoder-decoders: the text that the encoder reads */
    int64_t n_source;
    int32_t start;               /* encoder-decoders: the first token of the decoder, which is then the whole prompt.ids */
    int64_t fed;                 /* tokens of the prompt that have been in a pass */
    bool starts;                 /* its first token has been in a pass, or its beginning was taken from the index */
    bool read;                   /* all of its tokens have been in a pass */
    int64_t shared;              /* tokens whose cache was taken from the index */
    int64_t matched;             /* tokens that the index has, at version matched_at - 1 of it */
    uint64_t matched_at;         /* 0: never */
    int64_t in_pass;             /* tokens that it has in common with a prompt of the current pass */
    int64_t passed_over;         /* how many prompts after it started before it */
    float *logits;               /* [vocab_size] after the prompt's last token; NULL before it was read, and after the last completion has begun */
    struct llm_draft draft;
    double started, seconds;
    struct llm_completion *completions; /* [samples] */
    int64_t begun, delivered;
};

struct state {
    const struct llm_generate *g;
    struct llm_err *e;
    struct job *first, **last;   /* list of jobs in the order of prompts; `last` points to the last `next` */
    int64_t running;             /* completions that have begun and not ended */
    int64_t waiting;             /* completions of jobs in the list that have not begun */
    int64_t starting;            /* of these, completions of jobs that have started */
    int64_t held;                /* completions that have ended and were not delivered, because an earlier one has not */
    bool no_more;
    struct llm_err source_error; /* the error of llm_generate.next, reported after the completions begun before it */
    /* the current pass: */
    struct llm_feed *feeds;      /* [n_feeds] those of running completions, then those of prompts */
    struct llm_draft_feed *drafts;
    int32_t *ids;                /* the tokens that feeds of completions point to */
    int64_t *rows;               /* [n_wanted] rows of the pass whose logits are needed: n_chosen of completions, then those of prompts */
    struct llm_completion **active; /* [n_active] the completions of the first feeds */
    struct job **prefilled;      /* [n_feeds - n_active] the jobs of the other feeds; NULL: the feed is of a paused completion */
    int64_t n_active, n_feeds, n_chosen, n_wanted;
    int64_t n_own, own_rows;     /* the first feeds that are of completions, their guides and branches; the tokens of these feeds */
    float *logits;
    struct llm_sampler *samplers; /* one a thread */
    int64_t free;                /* of llm_generate.memory: bytes that this pass's feeds leave; INT64_MAX: not bounded */
    int64_t n_paused;
    struct llm_cost { double seconds; int64_t n; } pass_cost, draft_cost; /* recent time of a pass without prompts, and of one of `drafter` */
    /* Of recent passes of few rows without prompts: means of rows, seconds, squared rows, rows times seconds, tokens chosen. */
    struct llm_row_costs { double rows, seconds, squares, products, tokens; int64_t n; } row_costs;
    int64_t chunk;               /* tokens of prompts that a pass beside running completions may have, for llm_generate.latency */
    float *spare;                /* a copy of a prompt's logits; NULL until one is needed */
    int32_t ends[LLM_MAX_ENDS];  /* [n_ends] the model's end tokens */
    size_t n_ends;
};

static inline int64_t llm_generate_vocab(const struct state *s)
{
    return s->g->engine->model->config.vocab_size;
}

enum { LLM_LEAST_SHARED = 16 }; /* tokens: of shorter common beginnings nothing is gained */
/* generate_begin.c. Lets the cache of a job or completion begin: empty, or with what the prompt begins with. 0 or -1. */
int llm_generate_open_cache(struct state *s, const struct job *j, struct llm_kv *kv) LLM_MUST_CHECK;
/* Whether the prompt's cache may be shared with other prompts. */
bool llm_generate_is_sharing(const struct state *s, const struct job *j);
/* Tokens at the beginning of `ids` [n] that need not be computed for a prompt like the job's. */
int64_t llm_generate_shared(const struct state *s, const struct job *j, const int32_t *ids, int64_t n);

/* generate_guide.c. Whether the completion is guided by what follows a negative prompt. */
bool llm_generate_is_guided(const struct llm_prompt *p);
/* A completion begins: reads its negative prompt. *logits: those after it, on the engine's arena; NULL if it is not guided. 0, 1 when a signal was
 * caught, -1. */
int llm_generate_begin_guide(struct state *s, struct llm_completion *c, float **logits) LLM_MUST_CHECK;
/* Before a pass: reads what guides have lost. 0, 1 when a signal was caught, -1. */
int llm_generate_catch_up_guides(struct state *s) LLM_MUST_CHECK;
/* Moves log-probabilities: scale · (log p - log q) + log q, p of `logits`, q of `guide`. */
void llm_generate_guide(double scale, float *logits, const float *guide, int64_t n);

/* generate_memory.c. Before a pass: releases caches, those of the last completions first, until every running completion may have its next tokens and
 * drafts. */
void llm_generate_make_room(struct state *s);
/* Bytes that are free after the next token of every running completion; INT64_MAX if memory is not bounded. */
int64_t llm_generate_free(const struct state *s);
/* Whether a prompt may start: there is room for it, `shared` tokens of it having their cache, and for what has started already. */
bool llm_generate_may_start(struct state *s, const struct job *j, int64_t shared);
/* At most how many of n tokens fit into what is free; they are taken from it. */
int64_t llm_generate_fit(struct state *s, const struct llm_kv *kv, int64_t n);
/* Adds feeds of paused completions, whose caches are computed again, to the pass; `left`: tokens that it may still have. 0 or -1. */
int llm_generate_feed_paused(struct state *s, int64_t *left, int64_t *at) LLM_MUST_CHECK;
/* Nothing could be fed: releases every cache but the oldest. */
void llm_generate_release_all(struct state *s);
/* After a pass: completions whose caches are whole go on. */
void llm_generate_resume(struct state *s);

/* generate_drafts.c. A completion begins: it gets room for drafts and, if the engine drafts, a copy of the prompt's hidden states that the drafting
 * layer has not read yet. 0 or -1. */
int llm_generate_begin_drafts(const struct state *s, const struct job *j, struct llm_completion *c) LLM_MUST_CHECK;
/* Drafts tokens for the running completions, before a pass is assembled. 0, 1 when a signal was caught, -1. */
int llm_generate_draft(struct state *s) LLM_MUST_CHECK;
/* Learns from a pass in which `right` of `n` drafted tokens were right. The model's own layers always draft as many as they are told. */
void llm_generate_adapt_depth(const struct state *s, struct llm_completion *c, int64_t n, int64_t right);
/* Adds a measured time to a moving average. */
void llm_generate_note_cost(struct llm_cost *c, double seconds);
/* Recurrent models: keeps the states of completions with drafts, before a pass. 0 or -1. */
int llm_generate_keep_states(struct state *s) LLM_MUST_CHECK;
/* The state becomes that before the pass, whose first n tokens are to be computed again. */
void llm_generate_restore_state(struct llm_completion *c, int64_t n);
/* Removes wrong drafts from the cache, and notes the hidden states that the drafting layer, if there is one, is to read. `row`: the completion's
 * first in the pass, in which it had `fed` tokens. 0 or -1. */
int llm_generate_keep_right(struct llm_completion *c, bool layer, const struct llm_tensor *hidden, int64_t row, int64_t fed, struct llm_err *e)
    LLM_MUST_CHECK;
/* Notes the hidden states of prompts read in this pass for the drafting layer. 0 or -1. */
int llm_generate_note_prompts(struct state *s, const struct llm_tensor *hidden) LLM_MUST_CHECK;

/* generate_branches.c. A completion begins that may have branches: `drafts` has room for them. */
void llm_generate_begin_branches(struct llm_completion *c, int32_t *drafts);
/* Whether the completion's draft may have a branch, if the pass has room. */
bool llm_generate_may_branch(const struct state *s, const struct llm_completion *c);
/* Tokens that a branch of so many rows gains, less those that its time costs; 0 if there may be none. */
double llm_generate_branch_gain(const struct state *s, const struct llm_completion *c, int64_t rows);
/* Adds feeds of the branches that are worth their rows to the pass, of which `left` tokens remain; discards the other branches. 0 or -1. */
int llm_generate_feed_branches(struct state *s, int64_t *left, int64_t *at, int64_t *wanted) LLM_MUST_CHECK;
/* If the first token that was chosen in the pass is the branch's, the branch takes the draft's place. Runs on any thread. */
bool llm_generate_takes_branch(struct llm_completion *c);
/* Learns from a pass in which the branch gained so many tokens: 0 if it was not taken. */
void llm_generate_learn_branch(struct llm_completion *c, int64_t gained);
/* Releases what a branch of the pass took. */
void llm_generate_end_branch(struct llm_completion *c);
/* Learns the time of a pass without prompts, of so many rows, which chose so many tokens. */
void llm_generate_note_rows(struct state *s, int64_t rows, int64_t tokens, double seconds);

#endif
