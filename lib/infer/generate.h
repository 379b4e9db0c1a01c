/* Generation of many completions at once (continuous batching): each pass takes one token of every running completion and fills up with tokens of
 * prompts not yet read. A completion starts when fewer than `parallel` are running and leaves the batch when it ends; samples of one prompt share its
 * cache. The results do not depend on any of this: each completion is what it would be alone.
 *
 * If there are drafts (by the engine, infer/draft.h; by a smaller model; of repetitions, infer/repeat.h), a completion's token is followed in the
 * pass by its drafted tokens. What a constraint forces comes before what the text repeats, and that before what a smaller model says, which drafts
 * as deep as measured costs and acceptance make worth it. Each next token is then chosen from the logits of the token before it, as without drafts,
 * by the same random numbers; the first one that differs from its draft ends the completion's part of the pass. Drafts therefore change no token, and
 * a drafted token is accepted at most as often as by rejection sampling, which llm_generate.maximal asks for. Recurrent models keep the state before
 * the pass: where a draft was wrong, the tokens before it are computed again from there, in one more pass for all completions.
 *
 * Where a pass has few rows, drafts of a smaller model and of repetitions branch: a second draft begins with the token that is the next likely, or
 * that followed another occurrence. Measured times decide whether that is worth its rows.
 *
 * Prompts that begin alike share the cache of their beginning (infer/prefix.h), if llm_generate.share is set: prompts are read ahead, and those that
 * continue a beginning that is in memory start before others.
 *
 * With a bound of memory (llm_generate.memory) a prompt starts when there is room for it. Where running completions outgrow the bound, the caches of
 * those that came last are released, and computed again when there is room: their tokens stay the same, because the bits of a token do not depend on
 * how a text is cut into passes.
 *
 * Results are delivered in the order of the prompts and their samples, whatever order they end in, unless `unordered` is set. */
#ifndef LLM_INFER_GENERATE_H
#define LLM_INFER_GENERATE_H

#include "infer/constrain/constraint.h"
#include "infer/draft.h"
#include "infer/prefix.h"
#include "infer/sample/accept.h"
#include "infer/sample/sampler.h"
#include "infer/text.h"

/* Where a constraint begins to hold that does not hold from the beginning. */
struct llm_trigger {
    const char *text;            /* it holds after this text was generated */
    int32_t id;                  /* or after this token; -1: none */
    bool first;                  /* only if the completion begins with the text, which is then part of what is constrained. White space before it is
                                  * not */
};

/* What to continue. Its pointers must stay valid until the last of its completions was delivered. */
struct llm_prompt {
    const int32_t *ids;          /* tokens that follow what `begin` holds, checked to be below the vocabulary; encoder-decoders: the source text */
    int64_t n;
    const struct llm_kv *begin;  /* a cache to begin with, of the engine's pool; NULL: none. n ≥ 1 or begin->n ≥ 1 */
    int64_t max_tokens;          /* -1: until the context is full */
    int64_t samples;             /* completions wanted, ≥ 1 */
    struct llm_sampling sampling;
    const char *const *stops;
    size_t n_stops;
    double cfg_scale;            /* classifier-free guidance (Sanchez et al. 2023): log-probabilities are moved from those after `negative` by this
                                  * factor; 0 or 1: off. Takes two tokens of a pass at least */
    const int32_t *negative;     /* [n_negative] with guidance: the other prompt; none: the last token of `ids` */
    int64_t n_negative;
    const float *adapters;       /* as in struct llm_kv; NULL: all adapters of the model act. It must be NULL if there is a cache to begin with */
    const float *strengths;      /* likewise, of steering directions */
    const int32_t *ends;         /* tokens that end a completion besides the model's own */
    size_t n_ends;
    struct llm_constraint *constraint; /* what the text must be; NULL: anything */
    struct llm_trigger trigger;  /* text NULL: the constraint holds from the beginning */
    bool ignore_eos;             /* the model's end tokens are never chosen */
    bool keep_cache;             /* keep the cache until `done` was called; else it is released when the completion ends */
    int64_t trace_queries;       /* tokens whose queries are kept; 0: none */
    bool log_probs;              /* the model's log-probability of each token is kept, before edits, filters and temperature */
    int64_t top;                 /* with log_probs: so many of the most likely tokens at each place are kept, too */
    bool rollout;                /* log-probabilities of the tokens are kept, and an end token that was chosen is the last of the ids */
    void *user;                  /* the caller's own */
};

enum llm_finish {
    LLM_FINISH_STOP,             /* end token or stop string, or the constraint's text is complete */
    LLM_FINISH_LENGTH,
    LLM_FINISH_CONTEXT,
    LLM_FINISH_STUCK             /* no token of the vocabulary continues the text as the constraint wants it */
};
extern const char *const llm_finish_names[]; /* "stop", "length", "context", "stuck" */

#define LLM_MAX_TOP_LOG_PROBS 100
struct llm_top_choice {
    int32_t id;
    float log_prob;
};

struct llm_completion {
    struct llm_prompt prompt;
    int64_t sample;              /* 0 .. samples - 1 */
    int32_t *ids;                /* [n] what was generated; an end token is not part of it, the tokens of a stop string are */
    int64_t n;
    size_t ids_room;
    struct llm_top_choice *top;  /* log_probs: [n, prompt.top] the most likely tokens, the first the most */
    size_t top_room;
    float *log_probs;            /* log_probs: [n] the model's log-probability of each id, given all before it; rollouts: with the bits of a
                                  * training loss */
    float *drawn_log_probs;      /* rollouts: [n] the same in the distribution that was drawn from: edited, filtered, with temperature */
    size_t log_probs_room, drawn_room;
    int64_t ids_shown;           /* how many of them `text` has been called with */
    struct llm_text text;
    enum llm_finish finish;
    struct llm_kv kv;            /* prompt and all generated tokens but the last, with keep_cache */
    int64_t drafted, accepted;   /* tokens of drafts and of branches that passes verified, and how many of them were accepted */
    double prompt_seconds, decode_seconds; /* from the first pass of its kind to the last */
    int64_t prompt_tokens;       /* begin->n + n */
    int64_t shared_tokens;       /* of these, tokens whose cache an earlier prompt had computed */
    int64_t recomputed_tokens;   /* tokens computed again, because their cache had been released for others */
    double score;                /* of a search (infer/beams.h): the sum of log-probabilities, divided by the length's power */
    double slowest_seconds;      /* the longest time from one token to the next */
    /* The fields from here on belong to the generator: */
    struct llm_sample_state sample_state;
    struct llm_matcher matcher;
    struct llm_limit limit;      /* the matcher's, for the sampler */
    bool untriggered;            /* what followed the trigger was not as the constraint wants it, or there is nothing to wait for */
    struct llm_draft draft;
    int32_t *drafts;             /* [the maximum of drafts]: tokens drafted after the last one */
    struct llm_drafted *drafted_from; /* [llm_generate.drafts] with `maximal`: what each draft was drawn from */
    int64_t n_drafts;
    enum llm_draft_source { LLM_DRAFT_LAYER, LLM_DRAFT_MODEL, LLM_DRAFT_REPEATED, LLM_DRAFT_FORCED } source; /* of these drafts */
    int64_t forced_depth, forced_pause, forced_wrong; /* of these: as `depth`, `pause` and `wrong` */
    int64_t depth, pause, wrong; /* drafts of repetitions: how many tokens now, how many passes without, how many drafts in turn were wrong */
    double right;                /* the acceptance rate of `drafter`'s recent drafts; those after a wrong one do not count */
    int64_t undrafted;           /* passes in turn in which `drafter` would have cost more than it gives */
    int32_t *branch;             /* [n_branch] a second draft, which begins with another token; NULL: there are none. Part of `drafts` */
    int64_t n_branch;
    struct llm_kv branch_kv;     /* of a pass with a branch: the cache with the branch, or, after the branch was taken, without it */
    int64_t branch_logits;       /* as first_logits, of the branch's first token */
    bool on_branch;              /* the tokens of the current pass are the branch's */
    double branch_gain;          /* recent mean of the tokens that a branch gained */
    int64_t unbranched;          /* passes in turn in which a branch would have cost more than it gains */
    int64_t branched;            /* passes in which the branch was right */
    float *state;                /* of recurrent models: what kv.state was before the current pass, if that has drafts */
    struct llm_kv draft_kv;      /* the drafting model's cache */
    struct llm_sample_state draft_state; /* of the sampling of its drafts */
    struct llm_kv guide_kv;      /* with guidance: of the negative prompt and what was generated */
    int64_t guide_logits;        /* as first_logits, of the guide */
    int64_t first_logits;        /* index of its first row among the logits of the current pass */
    double started, last;        /* when it began; when its last token was chosen */
    bool running, ended;
    bool paused;                 /* running, but its cache is not whole: it was released for others */
    int32_t *again;              /* of one that is paused and computed again: all of its tokens but the last */
    int64_t n_again;
    struct llm_err err;          /* status not 0: the completion has failed (fail_alone) */
};

enum { LLM_NEXT_LATER = 2, LLM_NEXT_AGAIN };
struct llm_generate {
    struct llm_engine *engine;
    int64_t parallel;            /* maximum number of completions running at once */
    /* Fills in the next prompt and returns 1. 0: no more prompts. LLM_NEXT_LATER: none now, call again after a pass.
     * LLM_NEXT_AGAIN: none yet, call again at once. -1: failed. */
    int (*next)(void *arg, struct llm_prompt *p, struct llm_err *e);
    /* Whether `next` would return without waiting; NULL: always. While it would wait, running completions continue, so that their texts arrive. */
    bool (*ready)(void *arg);
    /* More of the first undelivered completion: tokens ids[ids_shown..n), and the text of these or earlier tokens that can be shown now. Either may
     * be empty. May be NULL. */
    int (*text)(void *arg, const struct llm_completion *c, const char *bytes, size_t n, struct llm_err *e);
    /* A completion has ended and all of its text was shown. It may be changed, and is freed afterwards. */
    int (*done)(void *arg, struct llm_completion *c, struct llm_err *e);
    /* A signal was caught before this completion of a prompt with keep_cache ended: what `kv` holds of prompt and text, which the caller may take by
     * leaving another cache of the pool in its place. `c` is NULL while the prompt is read. May be NULL. */
    void (*dropped)(void *arg, const struct llm_completion *c, struct llm_kv *kv);
    void *arg;
    int64_t drafts;              /* maximum of tokens drafted at a time by `drafter` or of repetitions; engines that draft have their own number */
    bool repeats;                /* what the text repeats is drafted */
    bool forced;                 /* where a constraint leaves no choice, its text is drafted, before other drafts; the engine has no recurrent state,
                                  * and does not draft itself */
    bool maximal;                /* drafts of `drafter` are accepted as sample/accept.h has it: the distribution stays the same, the tokens do not */
    struct llm_engine *drafter;  /* a smaller model of the same tokens, whose caches can be cut; NULL: none */
    bool unordered;              /* completions of a prompt are delivered when they have ended, in their order; `text` is NULL */
    int64_t memory;              /* bytes that caches, shared beginnings and those of `drafter` may take together, at least those of one whole
                                  * sequence; 0: not bounded */
    double latency;              /* seconds from one token to the next that prompts, read beside running completions, are to leave; 0: any */
    struct llm_prefix *share;    /* an index of the engine's pool; NULL: each prompt is computed alone */
    bool fail_alone;             /* a completion whose logits are not finite, or whose constraint fails, ends with `err` set, and is delivered; else
                              * llm_generate fails */
};
/* Until `next` has no more. 0; 1 when a signal was caught (unfinished completions are dropped); -1. If `next` fails, the completions begun before
 * are finished and delivered first. */
int llm_generate(const struct llm_generate *g, struct llm_err *e) LLM_MUST_CHECK;

#endif
