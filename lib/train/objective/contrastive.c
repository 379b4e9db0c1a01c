/* Pairs of texts, or of a picture and a text, that belong together: each is to be found by the other among all of the pass (CLIP's symmetric InfoNCE,
 * or SigLIP's sigmoid loss), by the vectors that llm-infer --embed makes, of length 1. Two texts go through the same weights, in one pass of twice
 * the rows; a picture and its text go through a tower each. The others of a pass are what a pair is told from: passes of a step are batches of their
 * own. */
#include <math.h>
#include <string.h>
#include "tensor/tape.h"
#include "train/objective.h"

static int check(const struct llm_model *m, struct llm_err *e)
{
    const struct llm_config *c = &m->config;
    if (c->num_encoder_layers > 0 || c->num_labels > 0) {
        return llm_fail(e, EX_UNAVAILABLE, "expected one stack of layers without classes, found another model (%s)", c->model_type);
    }
    if (c->pooling == LLM_POOL_OTHER) return llm_fail(e, EX_UNAVAILABLE, "pooling: expected mean, cls or last, found another");
    if (c->pooling == LLM_POOL_EOS && c->eos_token_id == 2) {
        return llm_fail(e, EX_UNAVAILABLE, "eos_token_id: expected an end token other than 2, for which CLIP takes the largest id of a text");
    }
    if (c->pooling == LLM_POOL_EOS && (c->eos_token_id < 0 || c->eos_token_id >= c->vocab_size)) {
        return llm_fail(e, EX_UNAVAILABLE, "expected a tokenizer with an end token (llm-tokenize train --special '<|endoftext|>'), found none");
    }
    if (c->contrastive) return 0;
    return llm_fail(e, EX_UNAVAILABLE, "expected a model that compares texts (\"contrastive\"), found another (%s)", c->model_type);
}

static int configure(struct llm_config *c, const struct llm_train_options *o, const struct llm_train_data *data,
                     struct llm_err *e)
{
    double temperature = llm_option_real(o, "temperature");
    (void)data;
    (void)e;
    if (llm_option_word(o, "sigmoid-loss") && !c->sigmoid_loss) {
        c->sigmoid_loss = true;
        c->logit_scale_init = log(10);
    }
    if (temperature > 0) c->logit_scale_init = -log(temperature);
    if (llm_option_word(o, "fixed-temperature")) c->fixed_logit_scale = true;
    if (c->num_encoder_layers == 0 && c->num_labels == 0) llm_config_compare(c);
    return 0;
}

/* Texts that are filled are filled up to the positions wherever they are read, so a row has as many tokens. */
static int create(struct llm_task *t, struct llm_err *e)
{
    const struct llm_config *c = &t->model->config;
    if (c->text_padding < 0 || t->o.context == c->max_position_embeddings) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--context: expected %lld (max_position_embeddings), up to which texts are filled, found %lld",
                    (long long)c->max_position_embeddings, (long long)t->o.context);
}

/* A text into a row's place. */
static void put(int32_t *ids, int32_t *length, int64_t room, const int32_t *text, int64_t n)
{
    memcpy(ids, text, (size_t)n * sizeof *ids);
    memset(ids + n, 0, (size_t)(room - n) * sizeof *ids);
    *length = (int32_t)n;
}

/* The text of a picture, which ends with the end token or is filled with padding, and the picture's number in `source`. */
static int caption(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    const struct llm_config *c = &t->model->config;
    const int64_t at = row * rows->row_len, room = rows->row_len;
    const bool padded = c->text_padding >= 0;
    int64_t n = !t->pictures && d->n > room ? room - 1 : d->n - 1; /* without data, rows are as long as may be */
    const int64_t end = padded ? -1 : llm_config_pooled_token(c, LLM_POOL_EOS, d->ids + 1, n);
    if (end >= 0) n = end;
    if (n + !padded > room)
        return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld", (long long)room, (long long)n + !padded);
    put(rows->ids + at, &rows->lengths[row], room, d->ids + 1, n);
    if (!padded) rows->ids[at + n++] = (int32_t)c->eos_token_id;
    while (padded && n < room) rows->ids[at + n++] = (int32_t)c->text_padding;
    rows->lengths[row] = (int32_t)n;
    rows->source[at] = d->ids[0];
    for (int64_t i = 0; i < room; i++) {
        rows->positions[at + i] = (int32_t)i;
        rows->doc_start[at + i] = 0;
        rows->own[at + i] = i < n;
        rows->targets[at + i] = i == 0 ? 0 : -1;
    }
    return 0;
}

static int document(const struct llm_task *t, struct llm_rows *rows, int64_t row, const struct llm_document *d, struct llm_err *e)
{
    int64_t at = row * rows->row_len, first = 0, room = rows->row_len;
    if (llm_config_two_towers(&t->model->config)) return caption(t, rows, row, d, e);
    while (first < d->n && !d->mask[first]) first++;
    if (first == 0 || first == d->n) {
        return llm_fail(e, EX_DATAERR, "expected two texts (llm-tokenize encode --pair), found %lld and %lld tokens", (long long)first,
                        (long long)(d->n - first));
    }
    if (first > room || d->n - first > room) {
        return llm_fail(e, EX_DATAERR, "expected at most %lld tokens (--context), found %lld and %lld", (long long)room, (long long)first,
                        (long long)(d->n - first));
    }
    put(rows->source + at, &rows->source_len[row], room, d->ids, first);
    put(rows->ids + at, &rows->lengths[row], room, d->ids + first, d->n - first);
    for (int64_t i = 0; i < room; i++) {
        rows->positions[at + i] = (int32_t)i;
        rows->doc_start[at + i] = 0;
        rows->own[at + i] = i < d->n - first;
        rows->targets[at + i] = i == 0 ? 0 : -1;
    }
    return 0;
}

/* The vectors [2n, width] of both texts of n rows. */
static struct llm_tensor *both_texts(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows)
{
    struct llm_model *m = t->model;
    int64_t n = rows->n_rows, tokens = n * rows->row_len;
    int32_t *ids = llm_op_alloc(c, 4 * tokens + 2 * n, sizeof *ids), *positions = ids + 2 * tokens, *lengths = ids + 4 * tokens;
    c->n_rows = 2 * n;
    c->first_row *= 2;
    c->token_weight /= 2; /* there are twice the tokens */
    if (llm_ctx_failed(c)) return &c->nothing;
    memcpy(ids, rows->source, (size_t)tokens * sizeof *ids);
    memcpy(ids + tokens, rows->ids, (size_t)tokens * sizeof *ids);
    memcpy(positions, rows->positions, (size_t)tokens * sizeof *ids);
    memcpy(positions + tokens, rows->positions, (size_t)tokens * sizeof *ids);
    memcpy(lengths, rows->source_len, (size_t)n * sizeof *ids);
    memcpy(lengths + n, rows->lengths, (size_t)n * sizeof *ids);
    const struct llm_batch b = {.ids = ids, .positions = positions, .n_tokens = 2 * tokens, .checkpoint_every = t->o.checkpoint_every,
                                .routers = &t->routers, .lengths = m->config.bidirectional ? lengths : NULL};
    return llm_model_pool(c, m, llm_model_forward(c, m, &b), ids, lengths, 2 * n);
}

/* The vectors [2n, width] of the pictures of n rows, then of their texts. */
static struct llm_tensor *both_towers(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows)
{
    struct llm_config eyes;
    struct llm_model *m = t->model;
    const int64_t n = rows->n_rows;
    int32_t *twice = llm_op_alloc(c, 4 * n, sizeof *twice), *texts = twice + 2 * n;
    (void)llm_config_sees(&m->config, &eyes);
    c->n_rows = n;
    if (llm_ctx_failed(c)) return &c->nothing;
    const struct llm_batch seen = llm_task_see(c, t, &eyes, rows->source, rows->row_len, n, NULL);
    const struct llm_batch read = {.ids = rows->ids, .positions = rows->positions, .n_tokens = n * rows->row_len,
                                   .checkpoint_every = t->o.checkpoint_every, .routers = &t->routers,
                                   .lengths = m->config.bidirectional ? rows->lengths : NULL};
    for (int64_t r = 0; r < 2 * n; r++) {
        twice[r] = (int32_t)(r % n);
        texts[r] = r < n ? -1 : (int32_t)(r - n);
    }
    struct llm_tensor *pictures = llm_model_project(c, m, llm_model_pool_pictures(c, m, llm_model_forward(c, m, &seen), n), true);
    struct llm_tensor *pooled = llm_model_pool(c, m, llm_model_forward(c, m, &read), rows->ids, rows->lengths, n);
    /* pictures stand twice, and texts replace the second ones */
    return llm_replace(c, llm_gather(c, pictures, twice, 2 * n), llm_model_project(c, m, pooled, false), texts);
}

static int run(struct llm_ctx *c, struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss, struct llm_err *e)
{
    struct llm_model *m = t->model;
    int64_t n = rows->n_rows, len = rows->row_len, tokens = n * len;
    float *losses = llm_op_alloc(c, n, sizeof *losses);
    struct llm_param *bias = m->config.sigmoid_loss ? llm_model_find(m, "logit_bias") : NULL;
    int64_t found = 0;
    c->row_len = len;
    struct llm_tensor *x = llm_unit(c, llm_config_two_towers(&m->config) ? both_towers(c, t, rows) : both_texts(c, t, rows));
    if (!llm_ctx_failed(c)) {
        const struct llm_contrastive loss = {.grad_scale = grad_scale, .fixed = m->config.fixed_logit_scale, .bias = bias, .loss = losses,
                                            .found = c->training ? NULL : &found};
        llm_contrastive(c, x, llm_model_find(m, "logit_scale"), &loss);
    }
    if (llm_ctx_failed(c)) {
        *e = c->err;
        return -1;
    }
    if (!c->training) {
        t->means[0].sum += (double)found;
        t->means[0].n += 2 * (double)n;
    }
    memset(token_loss, 0, (size_t)tokens * sizeof *token_loss);
    for (int64_t r = 0; r < n; r++) token_loss[r * len] = losses[r];
    return 0;
}

static int check_options(const struct llm_train_options *o, struct llm_err *e)
{
    return o->batch >= 2 ? 0 : llm_fail(e, LLM_EX_USAGE, "batch: expected at least 2 pairs to tell apart, found %lld", (long long)o->batch);
}

static const struct llm_objective_option options[] = {
    {.name = "temperature", .arg = "T", .type = LLM_REAL, .max = 100, .begins = true,
     .help = "initial temperature of --objective contrastive [0.07]; temperature of distill [1]"},
    {.name = "fixed-temperature", .help = "keep --temperature constant instead of learning it", .type = LLM_FLAG, .begins = true},
    {.name = "sigmoid-loss", .help = "ask of each two of a pass whether they belong together (SigLIP), in place of InfoNCE", .type = LLM_FLAG,
     .begins = true},
    {.name = NULL}};

extern const struct llm_objective llm_objective_contrastive;
const struct llm_objective llm_objective_contrastive = {.name = "contrastive", .summary = "find the text that belongs to a text or picture",
                                                        .check = check,
                                                        .configure = configure, .check_options = check_options, .options = options,
                                                        .create = create, .document = document, .run = run, .two_texts = true, .captions = true,
                                                        .means = {"recall_at_1"}, .other_targets = true, .by_pass = true};
