/* Steps and evaluations (train/trainer.h). */
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/hash.h"
#include "base/log.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "cpu/profile.h"

static size_t memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (size_t)pages * (size_t)size : (size_t)16 << 30;
}

static void resolve(struct llm_trainer *t)
{
    struct llm_train_options *o = &t->o;
    if (o->context == 0) o->context = llm_model_default_context(&t->model->config);
    if (o->min_lr < 0) o->min_lr = o->lr / 10;
    t->optim = llm_optims[o->optimizer];
    if (o->beta2 < 0) o->beta2 = t->optim->beta2;
    if (o->momentum < 0) o->momentum = t->optim->momentum;
    if (o->nesterov < 0) o->nesterov = t->optim->nesterov;
    if (o->muon_lr < 0) o->muon_lr = o->muon_scale == LLM_MUON_ORIGINAL ? .02 : o->lr;
    t->schedule = llm_schedules[o->schedule];
    t->objective = llm_objectives[o->objective];
    t->best_loss = INFINITY;
    t->val_share_right = NAN;
}

static int count_pieces(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_tokenizer *tok = t->model->tokenizer;
    if (!tok) return 0;
    int64_t n = t->model->config.vocab_size;
    t->piece_bytes = llm_calloc((size_t)n, sizeof *t->piece_bytes, "piece lengths", e);
    if (!t->piece_bytes) return -1;
    for (int32_t id = 0; id < n && id < llm_tokenizer_vocab_size(tok); id++) {
        size_t bytes = 0;
        bool text = !llm_tokenizer_is_special(tok, id) && llm_tokenizer_piece(tok, id, &bytes);
        t->piece_bytes[id] = text ? (uint32_t)bytes : 0;
    }
    return 0;
}

/* The model's class of each label of a stream. */
static int place_labels(struct llm_trainer *t, const struct llm_tokens *tokens, const char *what, int32_t **classes, struct llm_err *e)
{
    const struct llm_labels *names, *ours = &t->model->labels;
    if (!tokens) return 0;
    if (!llm_tokens_labels(tokens, &names)) {
        return llm_fail(e, EX_DATAERR, "%s: expected a class of each document (llm-tokenize encode --label), found none", what);
    }
    *classes = llm_calloc((size_t)llm_labels_count(names), sizeof **classes, "classes", e);
    for (int64_t i = 0; *classes && i < llm_labels_count(names); i++) {
        int64_t class = llm_labels_find(ours, llm_labels_name(names, i));
        if (class < 0) {
            return llm_fail(e, EX_DATAERR, "%s: expected classes that the model knows (%s, ...), found '%s'", what,
                            llm_labels_count(ours) ? llm_labels_name(ours, 0) : "none", llm_labels_name(names, i));
        }
        (*classes)[i] = (int32_t)class;
    }
    return *classes ? 0 : -1;
}

/* Documents are drawn as windows of one token are. */
static int place_documents(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_train_data *d = &t->data;
    size_t n = 0, n_val = 0;
    if (d->feed) return llm_fail(e, LLM_EX_USAGE, "--objective %s takes documents: not with --stream", t->objective->name);
    if (t->objective->labelled && (place_labels(t, d->train, "training data", &t->classes[0], e) < 0
                                   || place_labels(t, d->val, "validation data", &t->classes[1], e) < 0)) {
        return -1;
    }
    if (d->train) llm_tokens_doc_ends(d->train, &n);
    if (d->val) llm_tokens_doc_ends(d->val, &n_val);
    uint64_t held = (uint64_t)((double)n * (1 - d->val_share));
    t->order = (struct llm_order){.kind = (enum llm_order_kind)t->o.order, .seed = (uint64_t)t->o.seed, .n = held + 1, .context = 1};
    if (d->train && held < 1) return llm_fail(e, EX_DATAERR, "training data: expected documents, found none");
    if ((d->val && n_val < 1) || (d->val_share > 0 && n == held)) return llm_fail(e, EX_DATAERR, "validation data: expected documents, found none");
    return 0;
}

static int place_data(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_train_data *d = &t->data;
    if (t->objective->document) return place_documents(t, e);
    uint64_t n = d->train ? llm_tokens_count(d->train) : 0, held = (uint64_t)((double)n * (1 - d->val_share));
    t->order = (struct llm_order){.kind = (enum llm_order_kind)t->o.order, .seed = (uint64_t)t->o.seed, .n = held, .context = t->o.context};
    if (d->train && held <= (uint64_t)t->o.context) {
        return llm_fail(e, EX_DATAERR, "training data: expected more than one context of %lld tokens (--context), found %llu",
                        (long long)t->o.context, (unsigned long long)held);
    }
    if (d->val_share > 0 && n - held < 2) return llm_fail(e, EX_DATAERR, "validation data: expected at least 2 tokens, found %llu",
                                                          (unsigned long long)(n - held));
    if (d->val && llm_tokens_count(d->val) < 2) return llm_fail(e, EX_DATAERR, "%s: expected at least 2 tokens to validate on", d->val_path);
    return 0;
}

/* States for two steps: of each row of a step, all layers'. */
static int place_states(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_config *c = &t->model->config;
    if (!t->o.carry_state) return 0;
    if (!llm_model_can_carry(c) || t->objective != llm_objective_find("lm")) {
        return llm_fail(e, LLM_EX_USAGE, "--carry-state: expected a model with a state and --objective lm, found %s and %s", c->model_type,
                        t->objective->name);
    }
    for (int64_t l = 0; l < c->num_hidden_layers; l++) {
        struct llm_state_shape s = llm_model_state(c, l);
        t->rows.state_floats += llm_state_floats(&s);
    }
    for (int i = 0; i < 2; i++) {
        t->carried[i] = llm_calloc((size_t)t->rows.n_rows, (size_t)t->rows.state_floats * sizeof **t->carried, "carried states", e);
        if (!t->carried[i]) return -1;
    }
    t->order.kind = LLM_ORDER_STREAMS;
    t->order.rows = (uint64_t)t->rows.n_rows;
    if (t->data.train && llm_order_stream_windows(&t->order) < 1) {
        return llm_fail(e, EX_DATAERR, "training data: expected a context of %lld tokens (--context) for each of %lld rows, found %llu tokens",
                        (long long)t->o.context, (long long)t->rows.n_rows, (unsigned long long)t->order.n);
    }
    return 0;
}

/* Steps of a run that is asked for in epochs, and the warm-up that follows from the number of steps. */
static int place_steps(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_train_options *o = &t->o;
    if (o->epochs > 0 && !t->data.train) return llm_fail(e, LLM_EX_USAGE, "--epochs: expected data that can be read again (no --stream)");
    if (o->epochs > 0) {
        bool streams = t->order.kind == LLM_ORDER_STREAMS;
        uint64_t windows = streams ? llm_order_stream_windows(&t->order) : llm_order_windows(&t->order);
        o->steps = (int64_t)ceil(o->epochs * (double)windows / (double)(streams ? 1 : t->rows.n_rows));
    }
    if (o->warmup < 0) o->warmup = o->steps / 10 < 100 ? o->steps / 10 : 100;
    return 0;
}

int llm_trainer_init(struct llm_trainer *t, const struct llm_train_options *o, struct llm_model *m, struct llm_train_data *d, struct llm_err *e)
{
    t->o = *o;
    t->model = m;
    t->data = *d;
    *d = (struct llm_train_data){0};
    resolve(t);
    if (t->objective->check(m, e) < 0) return llm_in(e, "--objective %s", t->objective->name);
    if (llm_train_options_check(&t->o, e) < 0) return -1;
    if (m->config.position == LLM_POSITION_LEARNED && t->o.context > m->config.max_position_embeddings) {
        return llm_fail(e, LLM_EX_USAGE, "--context: expected at most %lld (the model's positions), found %lld",
                        (long long)m->config.max_position_embeddings, (long long)t->o.context);
    }
    if (llm_model_set_context(m, t->o.context, e) < 0) return -1;
    int64_t rows = t->o.batch * t->o.accumulate, eval_rows = t->o.batch > 2048 / t->o.context ? t->o.batch : 2048 / t->o.context;
    if (place_data(t, e) < 0 || llm_trainer_prepare(t, e) < 0 || count_pieces(t, e) < 0) return -1;
    if (llm_rows_init(&t->rows, rows, t->o.context, e) < 0 || llm_rows_init(&t->eval_rows, eval_rows, t->o.context, e) < 0) return -1;
    if (place_states(t, e) < 0 || place_steps(t, e) < 0) return -1;
    t->token_loss = llm_calloc((size_t)((rows > eval_rows ? rows : eval_rows) * t->o.context), sizeof *t->token_loss, "losses", e);
    if (!t->token_loss) return -1;
    size_t limit = memory_bytes();
    if (llm_ctx_init(&t->ctx, limit, limit, true, e) < 0) return -1;
    t->eval_ctx.acts = t->ctx.acts; /* one memory, in turns: between steps no activations are kept */
    t->ctx.compute = t->eval_ctx.compute = (enum llm_compute)t->o.precision;
    t->ctx.seed = t->eval_ctx.seed = (uint64_t)t->o.seed;
    t->ctx.training = true;
    t->ctx.stored = (enum llm_stored)t->o.activations;
    return 0;
}

void llm_trainer_release(struct llm_trainer *t)
{
    for (size_t i = 0; i < t->n_params; i++) {
        free(t->params[i].m);
        free(t->params[i].v);
        free(t->params[i].ema);
    }
    free(t->params);
    free(t->work);
    free(t->carried[0]);
    free(t->carried[1]);
    llm_ctx_release(&t->ctx);
    t->eval_ctx.acts = (struct llm_arena){0};
    llm_ctx_release(&t->eval_ctx);
    llm_rows_release(&t->rows);
    llm_rows_release(&t->eval_rows);
    free(t->token_loss);
    free(t->piece_bytes);
    free(t->classes[0]);
    free(t->classes[1]);
    llm_model_destroy(t->model);
    llm_train_data_release(&t->data);
    *t = (struct llm_trainer){.step = 0};
}

/* ---- a step ---- */

/* Adds losses to *sum one by one in the order of tokens, so that the sum does not depend on how rows are divided into passes. *bytes: of the texts of
 * counted targets. */
static void fold(const struct llm_trainer *t, const struct llm_rows *rows, double *sum, double *bytes)
{
    for (int64_t i = 0; i < rows->n_rows * rows->row_len; i++) {
        if (rows->targets[i] < 0) continue;
        *sum += (double)t->token_loss[i];
        if (t->piece_bytes && !t->objective->other_targets) *bytes += t->piece_bytes[rows->targets[i]];
    }
}

/* Row `row` becomes document `number`. */
static int put_document(struct llm_trainer *t, struct llm_rows *rows, int64_t row, const struct llm_tokens *tokens, uint64_t number,
                        struct llm_err *e)
{
    size_t n_ends;
    const uint64_t *ends = llm_tokens_doc_ends(tokens, &n_ends);
    uint64_t from = number > 0 ? ends[number - 1] : 0, n = ends[number] - from;
    const struct llm_labels *names;
    const int32_t *labels = llm_tokens_labels(tokens, &names), *classes = t->classes[tokens == t->data.val];
    int status = n <= 2 * (uint64_t)rows->row_len + 2 ? 0
        : llm_fail(e, EX_DATAERR, "expected at most %lld tokens%s (--context), found %llu in all", (long long)rows->row_len,
                   t->objective->two_texts ? " of source and of target" : "", (unsigned long long)n);
    if (status == 0) {
        llm_tokens_get(tokens, from, (size_t)n, rows->window, rows->mask);
        const struct llm_document d = {rows->window, rows->mask, (int64_t)n, labels && classes ? classes[labels[number]] : -1};
        status = t->objective->document(t->model, rows, row, &d, e);
    }
    return status < 0 ? llm_in(e, "document %llu", (unsigned long long)number + 1) : 0;
}

/* Tokens drawn at random, where there is no data (plans, gradient checks). */
static int invent(struct llm_trainer *t, int64_t row, struct llm_err *e)
{
    struct llm_rng r = llm_rng_at((uint64_t)t->o.seed, t->o.overfit_one ? 0 : (uint64_t)t->step, LLM_RNG_TEST, 0, (uint32_t)row, 0);
    bool documents = t->objective->document, two = t->objective->two_texts;
    for (int64_t i = 0; i <= (documents ? 2 : 1) * t->o.context; i++) {
        t->rows.window[i] = (int32_t)llm_rng_below(&r, (uint32_t)i, (uint64_t)t->model->config.vocab_size);
        t->rows.mask[i] = !two || i >= t->o.context - row % 3;
    }
    int64_t n = (two ? 2 : 1) * t->o.context - 1 - row % 3, classes = t->model->config.num_labels;
    const struct llm_document d = {t->rows.window, t->rows.mask, n > 0 ? n : 1, classes > 0 ? (int32_t)(row % classes) : -1};
    if (documents) return t->objective->document(t->model, &t->rows, row, &d, e);
    llm_rows_put(&t->rows, row, t->rows.window, t->rows.mask, t->o.context + 1, NULL, 0, 0, true);
    return 0;
}

/* A row of the feed. 1: it has ended, or a signal came. */
static int feed_row(struct llm_trainer *t, int64_t r, struct llm_err *e)
{
    int got = llm_feed_cut(t->data.feed, &t->rows, r, (uint64_t)(r * t->o.context), t->o.cross_document, e);
    if (got > 0) return 0;
    if (llm_signal_caught()) return 1; /* which may have ended the producer too */
    if (got < 0) return -1;
    t->ended = true;
    return 1;
}

/* Rows that begin a text, or their part of the data again, begin with nothing. */
static void begin_states(struct llm_trainer *t)
{
    const struct llm_order *o = &t->order;
    for (int64_t r = 0; r < t->rows.n_rows; r++) {
        uint64_t sample = t->sample + (uint64_t)r;
        bool begins = t->data.train && sample / o->rows % llm_order_stream_windows(o) == 0;
        begins |= t->data.train && !t->o.cross_document && llm_tokens_begins(t->data.train, llm_order_at(o, sample));
        if (begins) memset(t->carried[0] + r * t->rows.state_floats, 0, (size_t)t->rows.state_floats * sizeof **t->carried);
    }
    t->rows.state = t->carried[0];
    t->rows.state_after = t->carried[1];
}

static int gather(struct llm_trainer *t, int64_t *counted, struct llm_err *e)
{
    LLM_PROFILE("batch", 0);
    if (t->o.carry_state) begin_states(t);
    for (int64_t r = 0; r < t->rows.n_rows; r++) {
        if (t->data.feed) {
            int got = feed_row(t, r, e);
            if (got) return got;
            continue;
        }
        if (!t->data.train) {
            if (invent(t, r, e) < 0) return -1;
            continue;
        }
        uint64_t sample = t->o.overfit_one ? (uint64_t)r : t->sample + (uint64_t)r;
        if (t->objective->document) {
            if (put_document(t, &t->rows, r, t->data.train, llm_order_at(&t->order, sample), e) < 0) return -1;
            continue;
        }
        llm_rows_cut(&t->rows, r, t->data.train, llm_order_at(&t->order, sample), t->o.context + 1, t->o.cross_document);
    }
    const struct llm_rows_key key = {(uint64_t)t->o.seed, t->o.overfit_one ? 0 : (uint64_t)t->step, 0};
    if (t->objective->remake && t->objective->remake(t->model, &t->o, &key, &t->rows, e) < 0) return -1;
    *counted = llm_rows_part(&t->rows, 0, t->rows.n_rows).counted;
    if (*counted > 0) return 0;
    return llm_fail(e, EX_DATAERR, "step %lld: expected some tokens to learn from, found all %lld targets masked", (long long)t->step + 1,
                    (long long)(t->rows.n_rows * t->o.context));
}

/* The first tensor that is not finite, in the order of the model. */
static const char *first_bad(const struct llm_trainer *t, bool gradients)
{
    for (size_t i = 0; i < t->n_params; i++) {
        const struct llm_param *p = t->params[i].p;
        const float *x = gradients ? p->grad : p->master;
        for (int64_t k = 0, n = llm_param_count(p); k < n; k++) {
            if (!isfinite(x[k])) return p->name;
        }
    }
    return NULL;
}

/* Where, in the model, the first row whose loss is not finite becomes so. */
static bool bad_activation(struct llm_trainer *t, const struct llm_rows *rows, char *name, size_t n)
{
    struct llm_ctx *c = &t->eval_ctx;
    int64_t at = 0;
    while (at < rows->n_rows * rows->row_len - 1 && isfinite(t->token_loss[at])) at++;
    struct llm_rows part = llm_rows_part(rows, at / rows->row_len, 1);
    const struct llm_batch source = llm_rows_source(&part);
    const struct llm_batch b = {.ids = part.ids, .positions = part.positions, .n_tokens = part.row_len,
                                .doc_start = part.documents ? part.doc_start : NULL,
                                .prefixes = part.prefixed ? part.prefixes : NULL, .kinds = part.kinded ? part.kinds : NULL,
                                .source = t->model->config.num_encoder_layers > 0 ? &source : NULL};
    c->n_rows = 1;
    c->row_len = part.row_len;
    bool bad = llm_model_first_bad(c, t->model, &b, name, n);
    llm_ctx_reset(c);
    return bad;
}

static int not_finite(struct llm_trainer *t, const struct llm_rows *rows, double loss, struct llm_err *e)
{
    const char *weight = first_bad(t, false), *value = isnan(loss) ? "not a number" : "infinite";
    char name[200];
    long long step = (long long)t->step + 1;
    if (weight) return llm_fail(e, LLM_EX_FAILURE, "step %lld: the loss is %s: first bad tensor: weight '%s'", step, value, weight);
    if (!bad_activation(t, rows, name, sizeof name)) snprintf(name, sizeof name, "an activation under dropout");
    return llm_fail(e, LLM_EX_FAILURE, "step %lld: the loss is %s: first bad tensor: %s; a lower --lr or --clip may help", step, value, name);
}

void llm_trainer_forget(struct llm_trainer *t)
{
    for (size_t i = 0; i < t->n_params; i++) {
        struct llm_param *p = t->params[i].p;
        memset(p->grad, 0, (size_t)llm_param_count(p) * sizeof(float));
        if (p->grad_lookup) memset(p->grad_lookup, 0, (size_t)llm_param_count(p) * sizeof(float));
        llm_lookups_forget(p);
        for (int u = 0; u < p->n_grad_uses; u++) {
            if (p->grad_use[u]) memset(p->grad_use[u], 0, (size_t)llm_param_count(p) * sizeof(float));
        }
    }
}

static void report_routers(struct llm_trainer *t, struct llm_step_report *r)
{
    const struct llm_router_report *q = &t->ctx.router;
    double tokens = q->tokens > 0 ? (double)q->tokens : NAN;
    r->router_balance = q->balance / tokens;
    r->router_peak = q->peak / tokens;
    r->router_z = q->z / tokens;
    r->router_dropped = (double)q->dropped / (tokens * (double)t->model->config.num_experts_per_tok);
    t->ctx.router = (struct llm_router_report){0};
    r->next_loss = t->ctx.next_tokens > 0 ? t->ctx.next_nll / (double)t->ctx.next_tokens : NAN;
    t->ctx.next_nll = 0;
    t->ctx.next_tokens = 0;
}

int llm_trainer_gradient(struct llm_trainer *t, struct llm_step_report *r, struct llm_err *e)
{
    const struct llm_param *bad;
    int64_t counted;
    double bytes = 0, loss = 0;
    int got = gather(t, &counted, e);
    if (got) return got;
    for (int64_t i = 0; i < t->o.accumulate; i++) {
        struct llm_rows part = llm_rows_part(&t->rows, i * t->o.batch, t->o.batch);
        t->ctx.step = (uint64_t)t->step;
        t->ctx.first_row = i * t->o.batch;
        t->ctx.z_loss = t->main_loss_alone ? 0 : t->o.z_loss;
        t->ctx.token_weight = t->main_loss_alone ? 0 : 1.0 / (double)(t->rows.n_rows * t->rows.row_len);
        if (t->objective->run(&t->ctx, t->model, &part, t->o.checkpoint_every, 1.0 / (double)counted,
                              t->token_loss + i * t->o.batch * t->o.context, e) < 0) {
            return -1;
        }
        llm_backward(&t->ctx);
        if (llm_ctx_failed(&t->ctx)) {
            *e = t->ctx.err;
            return -1;
        }
        llm_ctx_reset(&t->ctx);
        if (llm_signal_caught()) return 1;
    }
    fold(t, &t->rows, &loss, &bytes);
    loss /= (double)counted;
    if (!isfinite(loss)) return not_finite(t, &t->rows, loss, e);
    r->grad_norm = llm_grad_norm(t->params, t->n_params, &bad);
    if (!isfinite(r->grad_norm)) {
        const char *name = first_bad(t, true);
        return llm_fail(e, LLM_EX_FAILURE, "step %lld: the norm of the gradient is %s: first bad tensor: gradient of '%s'", (long long)t->step + 1,
                        isnan(r->grad_norm) ? "not a number" : "infinite", name ? name : bad->name);
    }
    report_routers(t, r);
    r->loss = loss;
    r->bits_per_byte = bytes > 0 ? loss * (double)counted / log(2) / bytes : NAN;
    r->tokens = t->rows.n_rows * t->o.context;
    t->tokens += (uint64_t)counted;
    return 0;
}

/* What the step does to the weights. */
static struct llm_update update_of(const struct llm_trainer *t, const struct llm_step_report *r)
{
    const struct llm_train_options *o = &t->o;
    double n = (double)(t->step + 1), clip = o->clip > 0 && r->grad_norm > o->clip ? o->clip / r->grad_norm : 1;
    return (struct llm_update){
        .step = {.lr = r->lr, .clip = clip, .weight_decay = o->weight_decay, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
                 .correction1 = 1 - pow(o->beta1, n), .correction2 = 1 - pow(o->beta2, n), .momentum = o->momentum, .nesterov = o->nesterov > 0},
        .matrix_lr = o->lr > 0 ? o->muon_lr * (r->lr / o->lr) : 0,
        .muon_scale = (enum llm_muon_scale)o->muon_scale, .compute = (enum llm_compute)o->precision, .work = t->work, .ema = o->ema,
        .passes = o->accumulate};
}

int llm_trainer_step(struct llm_trainer *t, struct llm_step_report *r, struct llm_err *e)
{
    double started = llm_now();
    const struct llm_train_options *o = &t->o;
    const struct llm_schedule_options rates = {.steps = o->steps, .warmup = o->warmup, .lr = o->lr, .min_lr = o->min_lr,
                                               .decay_fraction = o->decay_fraction, .decay_style = (enum llm_decay_style)o->decay_style};
    *r = (struct llm_step_report){.step = t->step + 1, .lr = llm_schedule_lr(t->schedule, t->step, &rates)};
    int dropped = llm_trainer_gradient(t, r, e);
    if (dropped) {
        llm_trainer_forget(t);
        return dropped;
    }
    const struct llm_update u = update_of(t, r);
    if (llm_params_update(t->params, t->n_params, &u, e) < 0) return -1;
    t->step++;
    t->sample += (uint64_t)t->rows.n_rows;
    float *behind = t->carried[1];
    t->carried[1] = t->carried[0];
    t->carried[0] = behind;
    if (t->data.feed && !o->overfit_one && llm_feed_advance(t->data.feed, (uint64_t)r->tokens, e) < 0) return -1;
    r->seconds = llm_now() - started;
    r->activation_bytes = llm_ctx_peak_bytes(&t->ctx);
    return 0;
}

void llm_trainer_swap_ema(struct llm_trainer *t)
{
    for (size_t i = 0; i < t->n_params; i++) {
        struct llm_param *p = t->params[i].p;
        float *x = p->master, *y = t->params[i].ema;
        size_t n = (size_t)llm_param_count(p);
        if (!y) continue;
        for (size_t k = 0; k < n; k++) {
            float swapped = x[k];
            x[k] = y[k];
            y[k] = swapped;
        }
        llm_weight_changed(&p->weight);
    }
    t->ema_in_place = !t->ema_in_place;
}

/* ---- evaluation ---- */

bool llm_trainer_has_val(const struct llm_trainer *t)
{
    return t->data.val || t->data.val_share > 0;
}

int llm_trainer_eval(struct llm_trainer *t, double *loss, double *bits_per_byte, struct llm_err *e)
{
    const struct llm_tokens *tokens = t->data.val ? t->data.val : t->data.train;
    uint64_t first = t->data.val ? 0 : t->order.n, end = llm_tokens_count(tokens), context = (uint64_t)t->o.context;
    uint64_t windows = (end - first - 1 + context - 1) / context;
    if (t->objective->document) {
        size_t n_ends;
        llm_tokens_doc_ends(tokens, &n_ends);
        first = t->data.val ? 0 : t->order.n - 1;
        windows = n_ends - first;
    }
    double sum = 0, bytes = 0;
    int64_t counted = 0;
    t->eval_ctx.judged = t->eval_ctx.right = 0;
    if (t->o.eval_rows > 0 && windows > (uint64_t)t->o.eval_rows) windows = (uint64_t)t->o.eval_rows;
    for (uint64_t w = 0, n; w < windows; w += n) {
        n = windows - w < (uint64_t)t->eval_rows.n_rows ? windows - w : (uint64_t)t->eval_rows.n_rows;
        for (uint64_t i = 0; i < n; i++) {
            if (t->objective->document) {
                if (put_document(t, &t->eval_rows, (int64_t)i, tokens, first + w + i, e) < 0) return -1;
                continue;
            }
            uint64_t at = first + (w + i) * context, left = end - at;
            llm_rows_cut(&t->eval_rows, (int64_t)i, tokens, at, (int64_t)(left < context + 1 ? left : context + 1), t->o.cross_document);
        }
        struct llm_rows part = llm_rows_part(&t->eval_rows, 0, (int64_t)n);
        const struct llm_rows_key key = {(uint64_t)t->o.seed, LLM_EVAL_STEP, (int64_t)w};
        if (t->objective->remake && t->objective->remake(t->model, &t->o, &key, &part, e) < 0) return -1;
        part = llm_rows_part(&part, 0, (int64_t)n);
        if (llm_signal_caught()) return 1;
        if (part.counted == 0) continue;
        if (t->objective->run(&t->eval_ctx, t->model, &part, 0, 1, t->token_loss, e) < 0) return -1;
        llm_ctx_reset(&t->eval_ctx);
        fold(t, &part, &sum, &bytes);
        counted += part.counted;
        if (!isfinite(sum)) return not_finite(t, &part, sum, e);
    }
    if (counted == 0) return llm_fail(e, EX_DATAERR, "validation data: expected tokens to predict, found all masked");
    t->val_share_right = t->eval_ctx.judged > 0 ? (double)t->eval_ctx.right / (double)t->eval_ctx.judged : NAN;
    *loss = sum / (double)counted;
    *bits_per_byte = bytes > 0 ? sum / log(2) / bytes : NAN;
    return 0;
}

struct hash_work {
    const struct llm_trainer *t;
    uint64_t *hashes;
};

static void hash_piece(void *arg, size_t i, int thread)
{
    const struct hash_work *w = arg;
    const struct llm_param *p = w->t->params[i].p;
    (void)thread;
    w->hashes[i] = llm_xxh64(p->master, (size_t)llm_param_count(p) * sizeof(float), 0);
}

uint64_t llm_trainer_hash(const struct llm_trainer *t)
{
    struct hash_work w = {t, calloc(t->n_params, sizeof *w.hashes)};
    if (!w.hashes) return 0;
    llm_parallel(t->n_params, hash_piece, &w);
    uint64_t h = llm_xxh64(w.hashes, t->n_params * sizeof *w.hashes, 0);
    free(w.hashes);
    return h;
}
