/* A trainer's life: what the options leave open, memory, the exchange of averages, the hash (train/trainer.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/hash.h"
#include "cpu/detect.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "dist/group.h"
#include "model/weights/slices.h"
#include "train/stages.h"
#include "train/shards.h"
#include "train/trainer_internal.h"

static int resolve(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_train_options *o = &t->o;
    t->optim = llm_optims[o->optimizer];
    t->schedule = llm_schedules[o->schedule];
    t->objective = llm_objectives[o->objective];
    t->documents = llm_objective_documents(t->objective, o);
    t->data_per_run = llm_objective_per_run(t->objective, o);
    if (t->data_per_run) t->schedule = llm_schedule_find("constant");
    t->best_loss = INFINITY;
    for (int i = 0; i < LLM_MAX_MEANS; i++) t->val_means[i] = NAN;
    return llm_train_options_resolve(o, &t->model->config, e);
}

int llm_trainer_check(const struct llm_train_options *o, const struct llm_config *c, bool adapted, const struct llm_layout *l, int64_t replicas,
                      struct llm_err *e)
{
    const struct llm_objective *objective = llm_objectives[o->objective];
    if (llm_train_options_check(o, e) < 0) return -1;
    if (llm_shard_check(o, llm_objective_by_pass(objective, c), e) < 0) return -1;
    if (llm_model_check_slices(c, o->tensor_parts, e) < 0) return -1;
    if (o->tensor_parts > 1 && adapted) return llm_fail(e, LLM_EX_USAGE, "--tensor-parts: expected a model without an adapter");
    if (llm_share_check_members(l, o, e) < 0) return -1;
    if (llm_share_check_parts(l, o, c, adapted, objective, e) < 0) return -1;
    if (llm_share_check_experts(l, o, c, adapted, objective, e) < 0) return -1;
    if (llm_layout_stages(l) > 1 && llm_stages_check(objective, adapted, l, e) < 0) return -1;
    return llm_share_check(replicas, l, o, e);
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

uint64_t llm_trainer_samples(const struct llm_trainer *t)
{
    return t->groups.n > 0 ? 1 : (uint64_t)t->rows.n_rows;
}

/* That the documents of a run with own data fill whole steps, and how often they are passed over. */
static int place_own(struct llm_trainer *t, uint64_t documents, struct llm_err *e)
{
    struct llm_train_options *o = &t->o;
    if (documents % (uint64_t)t->rows.n_rows != 0) {
        return llm_fail(e, LLM_EX_USAGE, "expected lines in a multiple of the %lld rows of a step (--batch × --accumulate), found %llu",
                        (long long)t->rows.n_rows, (unsigned long long)documents);
    }
    if (!(o->epochs > 0)) o->epochs = 1;
    return 0;
}

/* Steps of a run that is asked for in epochs, and the warm-up that follows from the number of steps. */
static int place_steps(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_train_options *o = &t->o;
    uint64_t documents = llm_train_data_documents(&t->data, false);
    if (t->data_per_run) o->warmup = 0;
    if (t->data_per_run && t->data.records && place_own(t, documents, e) < 0) return -1;
    if (t->data_per_run && !t->data.records) return 0; /* llm_trainer_renew brings them */
    if (o->epochs > 0 && !t->data.train && !t->data.records)
        return llm_fail(e, LLM_EX_USAGE, "--epochs: expected data that can be read again (no --stream)");
    if (o->epochs > 0) {
        bool streams = t->order.kind == LLM_ORDER_STREAMS;
        uint64_t windows = streams ? llm_order_stream_windows(&t->order) : llm_order_windows(&t->order);
        o->steps = (int64_t)ceil(o->epochs * (double)windows / (double)(streams ? 1 : llm_trainer_samples(t)));
    }
    if (o->outer != LLM_OUTER_NONE && o->epochs > 0) o->steps = (o->steps + o->inner_steps - 1) / o->inner_steps * o->inner_steps;
    if (o->outer != LLM_OUTER_NONE && o->steps % o->inner_steps != 0) {
        return llm_fail(e, LLM_EX_USAGE, "--steps: expected a multiple of %lld (--inner-steps), found %lld", (long long)o->inner_steps,
                        (long long)o->steps);
    }
    if (o->warmup < 0) o->warmup = o->steps / 10 < 100 ? o->steps / 10 : 100;
    return 0;
}

/* What of the rows this rank trains on. Evaluations have whole rows, whose losses do not depend on parts. */
static int place_sequence(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_share *s = &t->share;
    const int64_t rows = llm_trainer_pass_rows(t), own = t->rows.row_len / s->cp;
    const int rank = s->replica % s->cp;
    t->sequence = (struct llm_sequence){.parts = s->parts, .ranks = s->cp, .rank = rank};
    t->ctx.sequence = &t->sequence;
    if (s->cp == 1) return 0;
    if (!(t->sequence.group = llm_group_create(t->comm, s->rank - rank * s->lanes, s->lanes, s->cp, e))) return -1;
    t->own_loss = llm_calloc((size_t)(rows * own), sizeof *t->own_loss, "losses", e);
    return t->own_loss ? llm_rows_init(&t->own_rows, rows, own, e) : -1;
}

int llm_trainer_init(struct llm_trainer *t, const struct llm_train_options *o, struct llm_model *m, struct llm_train_data *d, struct llm_err *e)
{
    t->o = *o;
    t->model = m;
    t->data = *d;
    *d = (struct llm_train_data){0};
    if (resolve(t, e) < 0 || llm_task_init(&t->task, t->objective, m, &t->o, &t->data, e) < 0) return -1;
    const int64_t of_replica = llm_layout_lanes(&t->layout) * llm_layout_rows(&t->layout);
    if (llm_trainer_check(&t->o, &m->config, m->lora, &t->layout, t->comm ? llm_comm_size(t->comm) / of_replica : 1, e) < 0) return -1;
    if (llm_config_is_limited(&m->config) && t->o.context > m->config.max_position_embeddings) {
        return llm_fail(e, LLM_EX_USAGE, "--context: expected at most %lld (the model's positions), found %lld",
                        (long long)m->config.max_position_embeddings, (long long)t->o.context);
    }
    if (llm_model_set_context(m, t->o.context, e) < 0) return -1;
    int64_t rows = t->o.batch * t->o.accumulate, eval_rows = t->o.batch > 2048 / t->o.context ? t->o.batch : 2048 / t->o.context;
    if (llm_trainer_place_data(t, e) < 0 || llm_trainer_prepare(t, e) < 0 || count_pieces(t, e) < 0) return -1;
    int got = t->groups.n > 0 ? llm_rows_init_within(&t->rows, t->groups.most, t->o.batch_tokens, t->o.context, e)
        : llm_rows_init(&t->rows, rows, t->o.context, e);
    if (got < 0 || llm_rows_init(&t->eval_rows, eval_rows, t->o.context, e) < 0) return -1;
    int64_t choices = t->data.records ? llm_records_choices(t->data.records) : 0;
    if (t->data.val_records && llm_records_choices(t->data.val_records) != choices) {
        return llm_fail(e, EX_DATAERR, "--val: expected %lld choices a token, as the training data have, found %lld", (long long)choices,
                        (long long)llm_records_choices(t->data.val_records));
    }
    if (llm_rows_add_columns(&t->rows, t->objective->columns, choices, e) < 0
        || llm_rows_add_columns(&t->eval_rows, t->objective->columns, choices, e) < 0) return -1;
    if (llm_trainer_place_states(t, e) < 0 || place_steps(t, e) < 0) return -1;
    int64_t losses = t->rows.room_tokens > t->eval_rows.room_tokens ? t->rows.room_tokens : t->eval_rows.room_tokens;
    t->token_loss = llm_calloc((size_t)losses, sizeof *t->token_loss, "losses", e);
    if (!t->token_loss) return -1;
    size_t limit = llm_machine_memory();
    if (llm_ctx_init(&t->ctx, limit, limit, true, e) < 0) return -1;
    t->eval_ctx.acts = t->ctx.acts; /* one memory, in turns: between steps no activations are kept */
    t->ctx.compute = t->eval_ctx.compute = (enum llm_compute)t->o.precision;
    t->ctx.seed = t->eval_ctx.seed = (uint64_t)t->o.seed;
    t->ctx.training = true;
    t->ctx.stored = (enum llm_stored)t->o.activations;
    t->ctx.stored_share = t->o.activations_share;
    t->ctx.stored_rank = t->o.activations_rank;
    if (t->share.pp > 1 && !(t->stages = llm_stages_create(t, e))) return -1;
    const int members = t->share.tp, first = t->share.rank - t->share.rank % members;
    if (members > 1 && !(t->group = llm_group_create(t->comm, first, 1, members, e))) return -1;
    t->ctx.group = t->eval_ctx.group = t->group;
    const int ep = t->share.ep, lanes = t->share.lanes, of_lane = t->share.rank - t->share.replica % ep * lanes;
    if (ep > 1 && !(t->experts = llm_group_create(t->comm, of_lane, lanes, ep, e))) return -1;
    t->ctx.experts = t->eval_ctx.experts = t->experts;
    if (t->o.seq_parts > 1 && place_sequence(t, e) < 0) return -1;
    if (ep > 1 && llm_pass_place_members(t, e) < 0) return -1;
    if (t->comm) {
        t->ctx.between = &t->share.between;
        t->eval_ctx.between = &t->share.eval_between;
    }
    return 0;
}

void llm_trainer_release(struct llm_trainer *t)
{
    llm_stages_destroy(t->stages);
    llm_group_destroy(t->group);
    llm_group_destroy(t->experts);
    llm_group_destroy(t->sequence.group);
    llm_share_forget_places(&t->share);
    llm_outer_release(&t->outer);
    for (size_t i = 0; i < t->n_params; i++) {
        free(t->params[i].m);
        free(t->params[i].v);
        free(t->params[i].ema);
        free(t->params[i].shards);
        free(t->params[i].own_grad);
        free(t->params[i].own_master);
    }
    llm_share_release(&t->share);
    free(t->params);
    free(t->hashes);
    free(t->work);
    free(t->carried[0]);
    free(t->carried[1]);
    llm_task_release(&t->task);
    llm_ctx_release(&t->ctx);
    t->eval_ctx.acts = (struct llm_arena){0};
    llm_ctx_release(&t->eval_ctx);
    llm_groups_release(&t->groups);
    llm_rows_release(&t->rows);
    llm_rows_release(&t->eval_rows);
    llm_rows_release(&t->own_rows);
    free(t->own_loss);
    free(t->idle_targets);
    free(t->idle_loss);
    free(t->token_loss);
    free(t->piece_bytes);
    free(t->classes[0]);
    free(t->classes[1]);
    llm_model_destroy(t->model);
    llm_train_data_release(&t->data);
    *t = (struct llm_trainer){.step = 0};
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
    llm_model_changed(t->model);
    t->ema_in_place = !t->ema_in_place;
}

int llm_trainer_renew(struct llm_trainer *t, struct llm_records *records, struct llm_err *e)
{
    llm_records_destroy(t->data.records);
    t->data.records = records;
    llm_records_fingerprint(records, t->data.fingerprint);
    t->sample = 0;
    t->task.first_step = (uint64_t)t->step;
    if (llm_trainer_place_data(t, e) < 0 || place_own(t, llm_train_data_documents(&t->data, false), e) < 0) return -1;
    t->o.steps = t->step + (int64_t)ceil(t->o.epochs * (double)llm_order_windows(&t->order) / (double)t->rows.n_rows);
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

int llm_trainer_update_hash(struct llm_trainer *t, struct llm_err *e)
{
    if (llm_share_wait_weights(&t->share, e) < 0) return -1;
    if (!t->hashes) return 0;
    if (t->outer.replicas) return llm_outer_hash(&t->outer, t->hashes, e);
    LLM_PROFILE("ranks: hash", 0);
    for (size_t i = 0; i < t->n_params; i++) {
        const struct llm_param *p = t->params[i].p;
        const size_t bytes = (size_t)llm_param_count(p) * sizeof(float);
        const bool first = t->share.rank == 0, away = llm_share_collects(&t->share, i), parts = away || llm_share_rounded(&t->share, i);
        const float *own = llm_share_own_master(&t->share, i);
        float *room = away && first ? llm_alloc_huge(bytes, 1, "weights", e) : NULL, *whole = room ? room : p->master;
        int got = away && first && !room ? -1 : 0;
        if (away) got = llm_comm_agree(t->comm, got, NULL, e);
        if (got == 0 && parts) got = llm_share_collect(&t->share, i, own, whole, e); /* exact values take the place of rounded ones */
        if (got == 0 && whole && (first || !parts)) t->hashes[i] = llm_xxh64(whole, bytes, 0);
        free(room);
        if (got < 0) return -1;
    }
    return 0;
}

uint64_t llm_trainer_hash(const struct llm_trainer *t)
{
    if (t->hashes) return llm_xxh64(t->hashes, t->n_hashes * sizeof *t->hashes, 0);
    struct hash_work w = {t, calloc(t->n_params, sizeof *w.hashes)};
    if (!w.hashes) return 0;
    llm_parallel(t->n_params, hash_piece, &w);
    uint64_t h = llm_xxh64(w.hashes, t->n_params * sizeof *w.hashes, 0);
    free(w.hashes);
    return h;
}
