/* A run in a checkpoint, and back: masters, moments, options, where in the data we are. Nothing that does not change the result. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/hash.h"
#include "model/weights/beside.h"
#include "model/weights/lora.h"
#include "model/weights/names.h"
#include "train/trainer.h"

static json_t *data_json(const struct llm_train_data *d)
{
    json_t *paths = json_array();
    for (size_t i = 0; paths && i < d->n_paths; i++) json_array_append_new(paths, json_string(d->paths[i]));
    json_t *o = json_pack("{s:o}", "paths", paths);
    if (o && (d->train || d->records)) json_object_set_new(o, "fingerprint", json_string(d->fingerprint));
    if (o && d->train) json_object_set_new(o, "tokens", json_integer((json_int_t)llm_tokens_count(d->train)));
    if (o && d->feed) {
        json_object_set_new(o, "streamed", json_integer((json_int_t)llm_feed_position(d->feed)));
        json_object_set_new(o, "hash", json_sprintf("%016llx", (unsigned long long)llm_feed_hash(d->feed)));
    }
    if (o && d->val_path) json_object_set_new(o, "val", json_string(d->val_path));
    if (o && (d->val || d->val_records)) json_object_set_new(o, "val_fingerprint", json_string(d->val_fingerprint));
    return o;
}

/* A run's options. The rows of a pass are among them only where they change the result. */
static json_t *options_json(const struct llm_trainer *t, struct llm_err *e)
{
    json_t *o = llm_train_options_to_json(&t->o, e);
    bool by_pass = llm_objective_by_pass(t->objective, &t->model->config);
    if (!o || !by_pass || json_object_set_new(o, "batch", json_integer(t->o.batch)) == 0) return o;
    json_decref(o);
    llm_no_memory(e, "training options");
    return NULL;
}

/* The objective's numbers that are known, by name. */
static json_t *objective_json(const struct llm_task *t)
{
    json_t *o = json_object();
    for (int i = 0; o && i < LLM_MAX_TASK_STATE && t->objective->state[i]; i++) {
        if (isfinite(t->state[i])) json_object_set_new(o, t->objective->state[i], json_real(t->state[i]));
    }
    return o;
}

static int read_objective(struct llm_task *t, const json_t *state, struct llm_err *e)
{
    const json_t *o = json_object_get(state, "objective");
    for (int i = 0; i < LLM_MAX_TASK_STATE && t->objective->state[i]; i++) {
        if (llm_json_real(o, t->objective->state[i], &t->state[i], e) < 0) return llm_in(e, "training state: objective");
    }
    return 0;
}

static int set_training(const struct llm_trainer *t, json_t *meta, struct llm_err *e)
{
    struct llm_buf text = {0};
    json_t *options = options_json(t, e);
    if (!options) return -1;
    json_t *o = json_pack("{s:I,s:I,s:I,s:I,s:o}", "step", (json_int_t)t->step, "sample", (json_int_t)t->sample, "tokens",
                          (json_int_t)t->tokens, "eval_step", (json_int_t)t->eval_step, "options", options);
    if (o && t->data.n_paths > 0) json_object_set_new(o, "data", data_json(&t->data));
    if (o && isfinite(t->best_loss)) {
        json_object_set_new(o, "best_loss", json_real(t->best_loss));
        json_object_set_new(o, "best_step", json_integer(t->best_step));
    }
    if (o && t->objective->state[0]) json_object_set_new(o, "objective", objective_json(&t->task));
    int r = o ? llm_json_dump(o, &text, e) : llm_no_memory(e, "training state");
    if (r == 0 && json_object_set_new(meta, LLM_META_TRAINING, json_stringn(text.p, text.n)) < 0) r = llm_no_memory(e, "training state");
    json_decref(o);
    llm_buf_release(&text);
    return r;
}

/* "training.m.model.norm.weight". `what` NULL: the tensor itself, "layers.0.lens.weight". */
static char *state_name(const char *what, const char *name, struct llm_err *e)
{
    struct llm_buf b = {0};
    if (llm_buf_printf(&b, e, "%s%s%s%s", what ? LLM_NAME_TRAINING : "", what ? what : "", what ? "." : "", name) == 0) return b.p;
    llm_buf_release(&b);
    return NULL;
}

static int append(struct llm_tensor_list *l, const char *what, const struct llm_param *p, const float *data, struct llm_err *e)
{
    char *name = state_name(what, p->name, e);
    if (!name || llm_grow((void **)&l->v, &l->room, l->n + 1, sizeof *l->v, e) < 0) {
        free(name);
        return -1;
    }
    l->v[l->n++] = (struct llm_tensor_out){.name = name, .dtype = LLM_F32, .n_dims = p->n_dims, .shape = {p->shape[0], p->shape[1], p->shape[2]},
                                           .data = data};
    return 0;
}

/* Whether the parameter is the objective's, which no model stores. The file of an objective with `beside` has it as a tensor of its own name, any
 * other as the master of a state. */
static bool is_beside(const struct llm_trainer *t, const struct llm_param *p)
{
    return t->task.n_params > 0 && p >= t->task.params && p < t->task.params + t->task.n_params;
}

static int append_state(const struct llm_trainer *t, struct llm_tensor_list *l, struct llm_err *e)
{
    for (size_t i = 0; i < t->n_params; i++) {
        const struct llm_trainable *p = &t->params[i];
        bool beside = is_beside(t, p->p);
        bool master = beside ? !t->objective->beside : p->p->weight.rounded;
        if (master && append(l, "master", p->p, p->p->master, e) < 0) return -1;
        if (p->m && append(l, p->optim->m, p->p, p->m, e) < 0) return -1;
        if (p->v && append(l, p->optim->v, p->p, p->v, e) < 0) return -1;
        if (p->ema && append(l, "ema", p->p, p->ema, e) < 0) return -1;
    }
    if (!t->o.carry_state) return 0;
    char *name = state_name("carried", "state", e);
    if (!name || llm_grow((void **)&l->v, &l->room, l->n + 1, sizeof *l->v, e) < 0) {
        free(name);
        return -1;
    }
    l->v[l->n++] = (struct llm_tensor_out){.name = name, .dtype = LLM_F32, .n_dims = 2, .shape = {t->rows.n_rows, t->rows.state_floats},
                                           .data = t->carried[0]};
    return 0;
}

static int describe_beside(struct llm_trainer *t, json_t *meta, struct llm_tensor_list *l, struct llm_err *e)
{
    const struct llm_task *task = &t->task;
    if (task->objective->describe && task->objective->describe(task, meta, e) < 0) return -1;
    return llm_beside_describe(t->model, llm_option_text(&t->o, "base"), task->params, (size_t)task->n_params, meta, l, e);
}

static int save(struct llm_trainer *t, const char *path, enum llm_save_as as, struct llm_err *e)
{
    struct llm_lora *adapter = t->model->lora; /* then it alone is written */
    const char *beside = t->objective->beside;
    const struct llm_checkpoint_options opt = {.kind = adapter ? "adapter" : beside, .planes = true, .plain = as == LLM_SAVE_SAFETENSORS,
                                               .give = llm_model_give, .give_arg = t->model};
    struct llm_tensor_list l = {0};
    /* Frames are compressed in the memory that activations had, so that a save is not the peak of a run. */
    llm_arena_trim(&t->ctx.acts);
    llm_arena_trim(&t->ctx.grads);
    llm_arena_trim(&t->ctx.store);
    struct llm_output *o = llm_output_open(path, true, e);
    json_t *meta = json_object();
    int r = !o ? -1 : !meta ? llm_no_memory(e, "metadata") : adapter ? llm_lora_describe(adapter, t->model, meta, &l, e)
            : beside ? describe_beside(t, meta, &l, e) : llm_model_describe(t->model, meta, &l, e);
    size_t first = l.n;
    if (r == 0 && as == LLM_SAVE_RUN) r = set_training(t, meta, e);
    if (r == 0 && as == LLM_SAVE_RUN) r = append_state(t, &l, e);
    if (r == 0) r = llm_checkpoint_write(o, meta, l.v, l.n, &opt, e);
    if (r == 0) r = llm_output_commit(o, e);
    else llm_output_abandon(o);
    for (size_t i = first; i < l.n; i++) free((void *)l.v[i].name);
    free(l.v);
    json_decref(meta);
    return r;
}

/* What the ranks keep in parts: rank 0 has it whole while it writes it. Its own parts stay in `part`. */
enum { PART_M, PART_V, PART_MASTER, N_PARTS };
struct parts { float **part, **whole; };

/* Where parameter number i / N_PARTS has its part; NULL: it has none that is to be saved. */
static float **part_of(struct llm_trainer *t, size_t i, bool moments)
{
    struct llm_trainable *q = &t->params[i / N_PARTS];
    const int what = (int)(i % N_PARTS);
    if (what == PART_MASTER) return llm_share_pools_weights(&t->share, i / N_PARTS) ? &q->own_master : NULL;
    if (!moments || t->share.zero == 0 || q->p->running) return NULL;
    return what == PART_M ? (q->optim->m ? &q->m : NULL) : q->optim->v ? &q->v : NULL;
}

/* Makes x, a gathered tensor or again the part of this rank, what a checkpoint is written from. */
static void put_part(struct llm_trainer *t, size_t i, float *x)
{
    struct llm_trainable *q = &t->params[i / N_PARTS];
    if (i % N_PARTS == PART_M) q->m = x;
    else if (i % N_PARTS == PART_V) q->v = x;
    else q->p->weight.data = q->p->master = x;
}

static int collect(struct llm_trainer *t, struct parts *k, bool moments, struct llm_err *e)
{
    const size_t n = N_PARTS * t->n_params;
    k->part = llm_calloc(n, sizeof *k->part, "what the ranks keep", e);
    k->whole = llm_calloc(n, sizeof *k->whole, "what the ranks keep", e);
    int got = k->part && k->whole ? 0 : -1;
    for (size_t i = 0; i < n && got == 0; i++) {
        if (!part_of(t, i, moments) || t->share.rank > 0) continue;
        if (!(k->whole[i] = llm_alloc_huge((size_t)llm_param_count(t->params[i / N_PARTS].p), sizeof **k->whole, "what the ranks keep", e))) got = -1;
    }
    got = llm_trainer_agree(t, got, e);
    for (size_t i = 0; i < n && got == 0; i++) {
        float **part = part_of(t, i, moments);
        if (!part) continue;
        got = llm_share_collect(&t->share, i / N_PARTS, *part, k->whole[i], e);
        k->part[i] = i % N_PARTS == PART_MASTER ? t->params[i / N_PARTS].p->master : *part;
        if (t->share.rank == 0) put_part(t, i, k->whole[i]);
    }
    return got;
}

/* After collect, also when it failed. */
static void discard(struct llm_trainer *t, struct parts *k)
{
    for (size_t i = 0; k->whole && i < N_PARTS * t->n_params; i++) {
        const struct llm_trainable *q = &t->params[i / N_PARTS];
        const float *now = i % N_PARTS == PART_M ? q->m : i % N_PARTS == PART_V ? q->v : q->p->master;
        if (k->whole[i] && now == k->whole[i]) put_part(t, i, k->part[i]);
        free(k->whole[i]);
    }
    free(k->part);
    free(k->whole);
}

int llm_trainer_save(struct llm_trainer *t, const char *path, enum llm_save_as as, struct llm_err *e)
{
    struct parts k = {0};
    llm_comm_set_place(t->comm, "saving");
    int got = t->share.zero == 3 || (t->share.zero > 0 && as == LLM_SAVE_RUN) ? collect(t, &k, as == LLM_SAVE_RUN, e) : 0;
    if (got == 0) got = llm_trainer_agree(t, t->share.rank == 0 ? save(t, path, as, e) : 0, e);
    discard(t, &k);
    return got;
}

int llm_state_options(const struct llm_model *m, struct llm_train_options *o, struct llm_err *e)
{
    const json_t *options = json_object_get(m->training, "options");
    if (!json_is_object(options)) return llm_fail(e, EX_DATAERR, "training state: expected options, found none");
    return llm_train_options_from_json(o, options, e) < 0 ? llm_in(e, "training state") : 0;
}

int llm_state_data(const struct llm_model *m, const char ***paths, size_t *n_paths, const char **val, struct llm_err *e)
{
    const json_t *data = json_object_get(m->training, "data"), *list = json_object_get(data, "paths"), *v;
    size_t i;
    *val = NULL;
    if (!list) return 0; /* a model that was never trained */
    if (!json_is_array(list)) return llm_fail(e, EX_DATAERR, "training state: expected paths of data as a list");
    if (llm_json_str(data, "val", val, e) < 0) return -1;
    *n_paths = json_array_size(list);
    *paths = llm_calloc(*n_paths, sizeof **paths, "paths", e);
    if (!*paths) return -1;
    json_array_foreach(list, i, v) {
        if (!((*paths)[i] = json_string_value(v))) return llm_fail(e, EX_DATAERR, "training state: expected paths of data as text");
    }
    return 0;
}

/* The file that the run was saved in. */
static struct llm_checkpoint *run_file(const struct llm_trainer *t)
{
    const struct llm_model *m = t->model;
    return m->run_file ? m->run_file : m->lora ? m->lora->file : m->files[0];
}

static int read_tensor(struct llm_trainer *t, const char *what, const struct llm_param *p, float *out, struct llm_err *e)
{
    char *name = state_name(what, p->name, e);
    if (!name) return -1;
    const struct llm_entry *entry = llm_header_find(llm_checkpoint_header(run_file(t)), name);
    int r = 0;
    if (!entry) r = llm_fail(e, EX_DATAERR, "tensor '%s': expected to go on with %s, found none", name, t->optim->name);
    else if (entry->dtype != LLM_F32 || entry->n_dims != p->n_dims || entry->shape[0] != p->shape[0]
             || (p->n_dims > 1 && entry->shape[1] != p->shape[1]) || (p->n_dims > 2 && entry->shape[2] != p->shape[2])) {
        r = llm_fail(e, EX_DATAERR, "tensor '%s': expected F32 of the weight's shape", name);
    } else r = llm_checkpoint_read(run_file(t), entry, out, e);
    free(name);
    return r;
}

/* A moment: all of it, or the elements that this rank updates. */
static int read_moment(struct llm_trainer *t, const char *what, const struct llm_trainable *q, float *out, struct llm_err *e)
{
    const size_t own = llm_trainable_own(q), n = (size_t)llm_param_count(q->p);
    if (own == n) return read_tensor(t, what, q->p, out, e);
    if (own == 0) return 0;
    float *whole = llm_alloc_huge(n, sizeof *whole, "moments", e);
    int got = whole ? read_tensor(t, what, q->p, whole, e) : -1;
    if (got == 0) memcpy(out, whole + q->own_from, own * sizeof *out);
    free(whole);
    return got;
}

/* The master of parameter number i: all of it, or the elements that this rank keeps. */
static int read_master(struct llm_trainer *t, const char *what, size_t i, struct llm_err *e)
{
    const struct llm_trainable *q = &t->params[i];
    const size_t n = (size_t)llm_param_count(q->p);
    const bool parts = llm_share_pools_weights(&t->share, i);
    float *whole = parts ? llm_alloc_huge(n, sizeof *whole, "weights", e) : q->p->master;
    int got = whole ? read_tensor(t, what, q->p, whole, e) : -1;
    if (got == 0 && t->hashes) t->hashes[i] = llm_xxh64(whole, n * sizeof *whole, 0);
    if (got == 0 && parts && q->own_n > 0) memcpy(q->own_master, whole + q->own_from, q->own_n * sizeof *whole);
    if (parts) free(whole);
    return got;
}

static bool has_tensor(const struct llm_trainer *t, const char *what, const struct llm_param *p)
{
    struct llm_err ignored;
    char *name = state_name(what, p->name, &ignored);
    bool found = name && llm_header_find(llm_checkpoint_header(run_file(t)), name);
    free(name);
    return found;
}

/* The rows' states; a run that begins to carry them begins with nothing. */
static int read_states(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_entry *entry = llm_header_find(llm_checkpoint_header(run_file(t)), LLM_NAME_TRAINING "carried.state");
    if (!t->o.carry_state || !entry) return 0;
    if (entry->dtype == LLM_F32 && entry->n_dims == 2 && entry->shape[0] == t->rows.n_rows && entry->shape[1] == t->rows.state_floats) {
        return llm_checkpoint_read(run_file(t), entry, t->carried[0], e);
    }
    return llm_fail(e, EX_DATAERR, "tensor '" LLM_NAME_TRAINING "carried.state': expected F32 [%lld, %lld] (rows of a step, their state)",
                    (long long)t->rows.n_rows, (long long)t->rows.state_floats);
}

/* Passes over what the run has seen, and makes sure that it is that. */
static int find_place(const struct llm_trainer *t, const json_t *data, struct llm_err *e)
{
    struct llm_feed *f = t->data.feed;
    const char *want = NULL;
    char found[17];
    int64_t n = -1;
    if (llm_json_int(data, "streamed", 0, INT64_MAX / 2, &n, e) < 0 || llm_json_str(data, "hash", &want, e) < 0) return -1;
    if (n < 0) return t->step == 0 ? 0 : llm_fail(e, LLM_EX_USAGE, "--stream: expected a run that began with it");
    if (llm_feed_advance(f, (uint64_t)n, e) < 0) return -1;
    snprintf(found, sizeof found, "%016llx", (unsigned long long)llm_feed_hash(f));
    if (want && strcmp(want, found) == 0) return 0;
    return llm_fail(e, EX_DATAERR, "%s: expected the data that the run began with (hash %s of %lld tokens), found %s", t->data.paths[0],
                    want ? want : "none", (long long)n, found);
}

static int check_data(const struct llm_trainer *t, struct llm_err *e)
{
    const json_t *data = json_object_get(t->model->training, "data");
    const char *found = NULL, *val = NULL;
    if (t->data_per_run) return 0;
    if (llm_json_str(data, "fingerprint", &found, e) < 0 || llm_json_str(data, "val_fingerprint", &val, e) < 0) return -1;
    if (t->data.feed && find_place(t, data, e) < 0) return -1;
    if (found && (t->data.train || t->data.records) && strcmp(found, t->data.fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "%s: expected the data that the run began with (fingerprint %s), found %s", t->data.paths[0], found,
                        t->data.fingerprint);
    }
    if (val && (t->data.val || t->data.val_records) && strcmp(val, t->data.val_fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "%s: expected the validation data that the run began with (fingerprint %s), found %s", t->data.val_path, val,
                        t->data.val_fingerprint);
    }
    return 0;
}

int llm_state_restore(struct llm_trainer *t, struct llm_err *e)
{
    const json_t *s = t->model->training;
    int64_t sample = -1, tokens = -1;
    t->step = -1;
    if (llm_json_int(s, "step", 0, INT64_MAX / 2, &t->step, e) < 0 || llm_json_int(s, "sample", 0, INT64_MAX / 2, &sample, e) < 0
        || llm_json_int(s, "tokens", 0, INT64_MAX / 2, &tokens, e) < 0 || llm_json_real(s, "best_loss", &t->best_loss, e) < 0
        || llm_json_int(s, "eval_step", 0, INT64_MAX / 2, &t->eval_step, e) < 0
        || llm_json_int(s, "best_step", 0, INT64_MAX / 2, &t->best_step, e) < 0) {
        return llm_in(e, "training state");
    }
    if (t->step < 0 || sample < 0 || tokens < 0) return llm_fail(e, EX_DATAERR, "training state: expected step, sample and tokens");
    t->sample = (uint64_t)sample;
    t->tokens = (uint64_t)tokens;
    t->task.first_step = (uint64_t)t->step;
    if (t->data_per_run) {
        t->sample = 0;
        t->o.steps += t->step;
    }
    if (check_data(t, e) < 0 || read_states(t, e) < 0 || read_objective(&t->task, s, e) < 0) return -1;
    double averaged = 0; /* whether the run had averages so far */
    if (llm_json_real(json_object_get(s, "options"), "ema", &averaged, e) < 0) return llm_in(e, "training state");
    for (size_t i = 0; i < t->n_params; i++) {
        struct llm_trainable *p = &t->params[i];
        bool beside = is_beside(t, p->p);
        const char *what = t->objective->beside ? NULL : "master";
        if (beside && what && !has_tensor(t, what, p->p)) continue; /* the run had another objective so far */
        if ((p->p->weight.rounded || beside) && read_master(t, what, i, e) < 0) return -1;
        if (beside) llm_weight_changed(&p->p->weight);
        if (p->m && read_moment(t, p->optim->m, p, p->m, e) < 0) return -1;
        if (p->v && read_moment(t, p->optim->v, p, p->v, e) < 0) return -1;
        if (p->ema && averaged > 0 && read_tensor(t, "ema", p->p, p->ema, e) < 0) return -1;
        if (p->ema && !(averaged > 0)) memcpy(p->ema, p->p->master, (size_t)llm_param_count(p->p) * sizeof(float)); /* they begin here */
    }
    llm_lora_renorm(t->model);
    return 0;
}
