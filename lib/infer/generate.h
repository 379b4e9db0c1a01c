/* Generation of many completions at once (continuous batching): each pass takes one token of every completion under way and, in the room that is
 * left, tokens of prompts not yet read. Completions begin when there is a place for them and leave when they end; samples of one prompt share its
 * cache. None of this shows in the results: each completion is what it would be alone.
 *
 * Where the engine drafts (infer/draft.h), a completion's token is followed by those that were drafted behind it. Each is then chosen from the logits
 * behind the one before, as without drafts, by the same random numbers; the first that comes out as another ends what the pass was good for. So
 * drafts change no token of any completion, and a drafted token is accepted as often as it would be by rejection sampling.
 *
 * Results are handed over in the order of the prompts and their samples, whatever order they end in. */
#ifndef LLM_INFER_GENERATE_H
#define LLM_INFER_GENERATE_H

#include "infer/draft.h"
#include "infer/sample/sampler.h"
#include "infer/text.h"

/* What to continue. Pointers live until the last of its completions was handed over. */
struct llm_prompt {
    const int32_t *ids;          /* tokens behind what `begin` holds, checked to be below the vocabulary; for an encoder-decoder the text to answer */
    int64_t n;
    const struct llm_kv *begin;  /* a cache to begin with, of the engine's pool; NULL: none. n ≥ 1 or begin->n ≥ 1 */
    int64_t max_tokens;          /* -1: until the context is full */
    int64_t samples;             /* completions wanted, ≥ 1 */
    struct llm_sampling sampling;
    const char *const *stops;
    size_t n_stops;
    const int32_t *ends;         /* tokens that end a completion besides the model's own */
    size_t n_ends;
    bool ignore_eos;             /* the model's end tokens are never chosen */
    bool keep_cache;             /* until it is handed over; else the cache is given back when the completion ends */
    int64_t trace_queries;       /* tokens whose queries are kept; 0: none */
    void *user;                  /* the caller's own */
};

enum llm_finish { LLM_FINISH_STOP /* end token or stop string */, LLM_FINISH_LENGTH, LLM_FINISH_CONTEXT };
extern const char *const llm_finish_names[]; /* "stop", "length", "context" */

struct llm_completion {
    struct llm_prompt prompt;
    int64_t sample;              /* 0 .. samples - 1 */
    int32_t *ids;                /* [n] what was generated; an end token is not part of it, the tokens of a stop string are */
    int64_t n;
    size_t ids_room;
    int64_t ids_shown;           /* those before were there when `text` was called last */
    struct llm_text text;
    enum llm_finish finish;
    struct llm_kv kv;            /* prompt and all generated tokens but the last, with keep_cache */
    int64_t drafted, accepted;   /* tokens that were drafted, and those of them that were right */
    double prompt_seconds, decode_seconds; /* from the first pass of its kind to the last */
    int64_t prompt_tokens;       /* begin->n + n */
    /* the generator's own */
    struct llm_sampler sampler;
    struct llm_draft draft;
    int32_t *drafts;             /* [the engine's draft] behind the last token */
    int64_t n_drafts;
    int64_t first_logits;        /* of the pass at hand */
    double started;
    bool running, ended;
    struct llm_err err;
};

enum { LLM_NEXT_LATER = 2 };
struct llm_generate {
    struct llm_engine *engine;
    int64_t parallel;            /* most completions under way at once */
    /* The next prompt: 1; 0: no more; LLM_NEXT_LATER: none this time, to be asked again after a pass; -1. */
    int (*next)(void *arg, struct llm_prompt *p, struct llm_err *e);
    /* Whether `next` would answer without waiting; NULL: always. What is under way goes on meanwhile, so that who waits for an answer gets it. */
    bool (*ready)(void *arg);
    /* More of the completion whose turn it is: tokens ids[ids_shown..n), and text that can be shown now, of them or earlier ones; either may be
     * none. May be NULL. */
    int (*text)(void *arg, const struct llm_completion *c, const char *bytes, size_t n, struct llm_err *e);
    /* A completion has ended and all of its text was shown. It may be changed, and is freed afterwards. */
    int (*done)(void *arg, struct llm_completion *c, struct llm_err *e);
    void *arg;
};
/* Until `next` has no more. 0; 1 when a signal was caught (unfinished completions are dropped); -1. When `next` fails, the completions begun before
 * are finished and handed over first. */
int llm_generate(const struct llm_generate *g, struct llm_err *e) LLM_MUST_CHECK;

#endif
