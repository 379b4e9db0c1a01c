/* What the files of the generator share. */
#ifndef LLM_INFER_GENERATE_INTERNAL_H
#define LLM_INFER_GENERATE_INTERNAL_H

#include "infer/generate.h"

/* A prompt and its completions. */
struct job {
    struct job *next;
    struct llm_prompt prompt;
    struct llm_kv kv;            /* the cache of the prompt, until all completions have begun */
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
    struct job **prefilled;      /* [n_feeds - n_active] the jobs of the other feeds */
    int64_t n_active, n_feeds, n_chosen, n_wanted;
    float *logits;
    float *spare;                /* a copy of a prompt's logits; NULL until one is needed */
    int32_t ends[LLM_MAX_ENDS];  /* [n_ends] the model's end tokens */
    size_t n_ends;
};

static inline int64_t llm_generate_vocab(const struct state *s)
{
    return s->g->engine->model->config.vocab_size;
}

/* generate_drafts.c. A completion begins: it gets room for drafts and, if the engine drafts, a copy of the prompt's hidden states that the drafting
 * layer has not read yet. 0 or -1. */
int llm_generate_begin_drafts(const struct state *s, const struct job *j, struct llm_completion *c) LLM_MUST_CHECK;
/* Drafts tokens for the running completions, before a pass is assembled. 0, 1 when a signal was caught, -1. */
int llm_generate_draft(struct state *s) LLM_MUST_CHECK;
/* Of drafts of repetitions and of forced texts: learns from a pass in which `right` of `n` drafted tokens were right. */
void llm_generate_adapt_depth(const struct state *s, struct llm_completion *c, int64_t n, int64_t right);
/* Removes wrong drafts from the cache, and notes the hidden states that the drafting layer, if there is one, is to read. `row`: the completion's
 * first in the pass, in which it had `fed` tokens. 0 or -1. */
int llm_generate_keep_right(struct llm_completion *c, bool layer, const struct llm_tensor *hidden, int64_t row, int64_t fed, struct llm_err *e)
    LLM_MUST_CHECK;
/* Notes the hidden states of prompts read in this pass for the drafting layer. 0 or -1. */
int llm_generate_note_prompts(struct state *s, const struct llm_tensor *hidden) LLM_MUST_CHECK;

#endif
