/* Prefix language modelling (Raffel et al. 2020, 3.2.2): the first tokens of a document see each other in both directions, later ones see the tokens
 * before, and these alone are learned. Where a document's first tokens have loss mask 0 they are its prefix; else its length is drawn evenly. */
#include "train/objective.h"

static int check(const struct llm_model *m, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    if (llm_objective_check_next(m, e) < 0) return -1;
    const char *found = c->mixer != LLM_MIXER_ATTENTION ? "layers without attention" : c->sliding_window > 0 ? "a sliding window"
                      : c->dual_chunk_size > 0 ? "dual chunks" : c->num_latents > 0 ? "blocks of latents"
                      : c->num_nextn_predict_layers > 0 ? "layers that predict more than one token" : NULL;
    if (!found) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected attention to all tokens, found %s (%s)", found, c->model_type);
}

static int configure(struct llm_config *c, const struct llm_train_options *o, const struct llm_train_data *data,
                     struct llm_err *e)
{
    (void)o;
    (void)data;
    (void)e;
    c->prefix_lm = true;
    return 0;
}

/* The prefix of the tokens [from, to) of a row, which are one document or a part of it. */
static void cut(struct llm_rows *rows, const struct llm_rng *r, int64_t from, int64_t to)
{
    int64_t n = 0;
    while (from + n < to && !rows->own[from + n]) n++;
    if ((n == 0 || n == to - from) && to - from > 1) n = 1 + (int64_t)llm_rng_below(r, 0, (uint64_t)(to - from - 1));
    rows->prefixes[from] = (int32_t)n;
    for (int64_t i = from; i + 1 < from + n; i++) rows->targets[i] = -1;
}

static int transform(const struct llm_task *t, const struct llm_rows_key *key, struct llm_rows *rows, struct llm_err *e)
{
    (void)t;
    (void)e;
    rows->prefixed = true;
    for (int64_t row = 0; row < rows->n_rows; row++) {
        int64_t at = row * rows->row_len, end = at + rows->row_len;
        for (int64_t from = at, to; from < end; from = to) {
            struct llm_rng r = llm_rng_at(key->seed, key->step, LLM_RNG_PREFIX, 0, (uint32_t)(key->first_row + row), (uint32_t)(from - at));
            for (to = from + 1; to < end && rows->doc_start[to] == rows->doc_start[from]; to++) {}
            cut(rows, &r, from, to);
        }
    }
    return 0;
}

extern const struct llm_objective llm_objective_prefix;
const struct llm_objective llm_objective_prefix = {.name = "prefix", .summary = "continue a prefix that is seen both ways", .check = check,
                                                   .configure = configure, .transform = transform, .run = llm_objective_run_next,
                                                   .means = {LLM_MEAN_FURTHER}};
