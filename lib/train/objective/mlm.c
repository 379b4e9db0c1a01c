/* Masked-token modelling (BERT; Devlin et al. 2019): of each row a share of the tokens, drawn without replacement, is to be guessed from both
 * sides. 80 % of them are replaced by the mask token, 10 % replaced by any token, 10 % left as they are. */
#include <math.h>
#include <stdlib.h>
#include "train/objective.h"

static int check(const struct llm_model *m, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    if (!c->bidirectional) {
        return llm_fail(e, EX_UNAVAILABLE, "expected an encoder, found %s (%s)",
                        c->num_encoder_layers > 0 ? "an encoder-decoder" : "a model that predicts the next token", c->model_type);
    }
    if (!c->head_transform && !c->use_bidirectional_attention) {
        return llm_fail(e, EX_UNAVAILABLE, "expected an encoder with a masked-token head, found one without (%s)", c->model_type);
    }
    if (llm_model_mask_token(m) >= 0) return 0;
    return llm_fail(e, EX_DATAERR, "expected a mask token ([MASK] or <mask> of the tokenizer, or mask_token_id), found none");
}

struct candidate { uint32_t rank; int32_t place; };

static int by_rank(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : (x->place > y->place) - (x->place < y->place);
}

static int by_place(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

/* Hides one token. Channel 0 of its numbers was its rank. */
static int32_t hidden(const struct llm_model *m, const struct llm_rng *r, int32_t id)
{
    double u = llm_rng_uniform64(r, 2);
    if (u < .8) return llm_model_mask_token(m);
    return u < .9 ? (int32_t)llm_rng_below(r, 4, (uint64_t)m->config.vocab_size) : id;
}

static void transform_row(const struct llm_model *m, const struct llm_rows_key *key, struct llm_rows *rows, int64_t row, struct candidate *all)
{
    int64_t at = row * rows->row_len, n = 0, k;
    int32_t *ids = rows->ids + at, *targets = rows->targets + at, *picks = rows->picks + at;
    for (int64_t i = 0; i < rows->row_len; i++) {
        struct llm_rng r = llm_rng_at(key->seed, key->step, LLM_RNG_MASK, 0, (uint32_t)(key->first_row + row), (uint32_t)i);
        targets[i] = -1;
        if (!rows->own[at + i] || (m->tokenizer && llm_tokenizer_is_special(m->tokenizer, ids[i]))) continue;
        all[n++] = (struct candidate){llm_rng_u32(&r, 0), (int32_t)i};
    }
    qsort(all, (size_t)n, sizeof *all, by_rank);
    k = n < rows->n_picks ? n : rows->n_picks;
    qsort(all, (size_t)k, sizeof *all, by_place);
    for (int64_t i = 0; i < rows->n_picks; i++) {
        picks[i] = i < k ? all[i].place : -1;
        if (i >= k) continue;
        struct llm_rng r = llm_rng_at(key->seed, key->step, LLM_RNG_MASK, 0, (uint32_t)(key->first_row + row), (uint32_t)picks[i]);
        targets[picks[i]] = ids[picks[i]];
        ids[picks[i]] = hidden(m, &r, ids[picks[i]]);
    }
}

static int transform(const struct llm_task *t, const struct llm_rows_key *key, struct llm_rows *rows, struct llm_err *e)
{
    struct candidate *all = llm_alloc((size_t)rows->row_len, sizeof *all, "a batch", e);
    if (!all) return -1;
    int64_t picks = (int64_t)llround(llm_option_real(&t->o, "mask-rate") * (double)rows->row_len);
    rows->n_picks = picks < 1 ? 1 : picks > rows->row_len ? rows->row_len : picks;
    for (int64_t row = 0; row < rows->n_rows; row++) transform_row(t->model, key, rows, row, all);
    free(all);
    return 0;
}

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    double rate = llm_option_real(o, "mask-rate");
    return rate > 0 && rate < 1 ? 0 : llm_fail(e, LLM_EX_USAGE, "mask_rate: expected between 0 and 1, found %g", rate);
}

static const struct llm_objective_option options[] = {
    {.name = "mask-rate", .arg = "P", .help = "share of tokens that --objective mlm masks [0.15]", .type = LLM_REAL, .max = 1, .fallback = .15},
    {.name = NULL}};

extern const struct llm_objective llm_objective_mlm;
const struct llm_objective llm_objective_mlm = {.name = "mlm", .summary = "guess masked tokens", .check = check, .transform = transform,
                                                .check_options = check_options, .options = options,
                                                .run = llm_objective_run_picks};
