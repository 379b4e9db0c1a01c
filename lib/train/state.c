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
#include "tensor/slices.h"
#include "train/stages.h"
#include "train/together.h"
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

/* What is written of a run besides its model. */
struct state { struct llm_tensor_list l; struct llm_together together; };

/* A tensor of which this rank has `own`, and others the rest, or of which the rank has it that has the shard. */
static int append_collected(const struct llm_trainer *t, struct state *s, const char *what, size_t param, int64_t shard, float *own,
                            struct llm_err *e)
{
    if (append(&s->l, what, t->params[param].p, NULL, e) < 0) return -1;
    return llm_together_add(&s->together, s->l.v[s->l.n - 1].name, param, shard, own, e);
}

/* Whether the parameter is the objective's, which no model stores. The file of an objective with `beside` has it as a tensor of its own name, any
 * other as the master of a state. */
static bool is_beside(const struct llm_trainer *t, const struct llm_param *p)
{
    return t->task.n_params > 0 && p >= t->task.params && p < t->task.params + t->task.n_params;
}

/* A tensor of a replica: `what` of parameter `param`. */
struct of_replica { int64_t replica; enum { REPLICA_MASTER, REPLICA_M, REPLICA_V, N_OF_REPLICA } what; size_t param; };

/* The next tensor of a replica that a state has, in the order of the file; begins with {0}. Masters differ from the shared weights only between outer
 * steps. False: there is none. */
static bool next_of_replica(const struct llm_trainer *t, struct of_replica *at, bool begins)
{
    if (!begins) at->param++;
    for (; at->replica < t->outer.n; at->replica++, at->what = REPLICA_MASTER) {
        for (; at->what < N_OF_REPLICA; at->what++, at->param = 0) {
            const bool stored = at->what != REPLICA_MASTER || t->step % t->o.inner_steps != 0;
            for (; stored && at->param < t->n_params; at->param++) {
                const struct llm_trainable *q = &t->params[at->param];
                const char *moment = q->p->running ? NULL : at->what == REPLICA_M ? q->optim->m : q->optim->v;
                if (at->what == REPLICA_MASTER || moment) return true;
            }
        }
    }
    return false;
}

/* What this rank has of it; NULL: another rank has the replica. */
static float *own_of_replica(const struct llm_trainer *t, const struct of_replica *at)
{
    const struct llm_replica *r = llm_outer_replica(&t->outer, at->replica);
    return !r ? NULL : (at->what == REPLICA_MASTER ? r->master : at->what == REPLICA_M ? r->m : r->v)[at->param];
}

/* "replicas.3.m" */
static void name_of_replica(const struct llm_trainer *t, const struct of_replica *at, char name[64])
{
    const struct llm_optim *o = t->params[at->param].optim;
    snprintf(name, 64, "replicas.%lld.%s", (long long)at->replica, at->what == REPLICA_MASTER ? "master" : at->what == REPLICA_M ? o->m : o->v);
}

/* The outer optimizer's momenta, and the replicas. */
static int append_outer(const struct llm_trainer *t, struct state *s, struct llm_err *e)
{
    struct of_replica at = {0};
    char name[64];
    for (size_t i = 0; i < t->n_params; i++) {
        if (t->outer.momenta[i] && append(&s->l, "outer.m", t->params[i].p, t->outer.momenta[i], e) < 0) return -1;
    }
    for (bool more = next_of_replica(t, &at, true); more; more = next_of_replica(t, &at, false)) {
        float *x = own_of_replica(t, &at);
        const struct llm_param *p = t->params[at.param].p;
        name_of_replica(t, &at, name);
        if ((t->comm ? append_collected(t, s, name, at.param, at.replica, x, e) : append(&s->l, name, p, x, e)) < 0) return -1;
    }
    return 0;
}

/* What is kept of a parameter. */
enum kept { KEPT_MASTER, KEPT_M, KEPT_V };

static float *kept_of(const struct llm_trainer *t, enum kept what, size_t i)
{
    return what == KEPT_MASTER ? llm_share_own_master(&t->share, i) : what == KEPT_M ? t->params[i].m : t->params[i].v;
}

/* A tensor of a parameter that is cut, with the first of its slices; slices are no tensors of files. */
static int append_slices(const struct llm_trainer *t, struct state *s, const char *name, enum kept what, size_t param, struct llm_err *e)
{
    const struct llm_slices *k = t->params[param].p->slice_of;
    const float *slice[LLM_MAX_SLICES];
    if (t->params[param].p != k->of) return 0;
    for (int j = 0; j < k->n; j++) slice[j] = kept_of(t, what, param + (size_t)j);
    if (append(&s->l, name, k->whole, NULL, e) < 0) return -1;
    return llm_together_add_slices(&s->together, s->l.v[s->l.n - 1].name, param, slice, e);
}

static int append_moment(const struct llm_trainer *t, struct state *s, const char *what, enum kept kind, size_t param, struct llm_err *e)
{
    float *x = kept_of(t, kind, param);
    if (!what || t->params[param].p->running || t->outer.replicas) return 0;
    if (t->params[param].p->slice_of) return append_slices(t, s, what, kind, param, e);
    const bool parts = t->share.zero > 0 || llm_share_scatters(&t->share);
    return parts ? append_collected(t, s, what, param, -1, x, e) : append(&s->l, what, t->params[param].p, x, e);
}

static int append_master(const struct llm_trainer *t, struct state *s, size_t param, struct llm_err *e)
{
    const struct llm_param *p = t->params[param].p;
    const bool parts = llm_share_divides_masters(&t->share);
    if (p->slice_of) return append_slices(t, s, "master", KEPT_MASTER, param, e);
    return parts ? append_collected(t, s, "master", param, -1, kept_of(t, KEPT_MASTER, param), e) : append(&s->l, "master", p, p->master, e);
}

static int append_state(const struct llm_trainer *t, struct state *s, struct llm_err *e)
{
    struct llm_tensor_list *l = &s->l;
    for (size_t i = 0; i < t->n_params; i++) {
        const struct llm_trainable *p = &t->params[i];
        bool beside = is_beside(t, p->p);
        bool master = beside ? !t->objective->beside : p->p->weight.rounded;
        if (master && append_master(t, s, i, e) < 0) return -1;
        if (append_moment(t, s, p->optim->m, KEPT_M, i, e) < 0 || append_moment(t, s, p->optim->v, KEPT_V, i, e) < 0) return -1;
        if (p->ema && append(l, "ema", p->p, p->ema, e) < 0) return -1;
    }
    if (t->outer.replicas) return append_outer(t, s, e);
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

/* What the model, or what is trained beside it, stores. A rank other than the first needs its tensors alone, and where none has all weights only
 * their shapes. */
static int describe(struct llm_trainer *t, json_t *meta, struct llm_tensor_list *l, struct llm_err *e)
{
    struct llm_model *m = t->model;
    if (!meta) return llm_no_memory(e, "metadata");
    if (m->lora) return llm_lora_describe(m->lora, m, meta, l, e); /* then it alone is written */
    if (t->objective->beside) return describe_beside(t, meta, l, e);
    return t->share.rank == 0 ? llm_model_describe(m, meta, l, e) : llm_model_describe_tensors(m, !llm_share_scatters(&t->share), l, e);
}

/* Where a save goes: to a file of all ranks, or in parts, to an output of each. */
struct target { const char *path; enum llm_save_as as; struct llm_output *part; struct llm_extents *extents; };

/* `s`: of LLM_SAVE_RUN. */
static int write_all(struct llm_trainer *t, const struct target *to, struct llm_output *o, struct state *s, struct llm_err *e)
{
    struct llm_together *w = &s->together;
    const enum llm_save_as as = to->as;
    struct llm_checkpoint_options opt = {.kind = t->model->lora ? "adapter" : t->objective->beside, .planes = true,
                                         .plain = as == LLM_SAVE_SAFETENSORS, .give = llm_together_give, .give_arg = w};
    struct llm_tensor_list l = {0};
    json_t *meta = json_object();
    int r = describe(t, meta, &l, e);
    if (r == 0 && as == LLM_SAVE_RUN && t->share.rank == 0) r = set_training(t, meta, e);
    if (r == 0) r = llm_grow((void **)&l.v, &l.room, l.n + s->l.n, sizeof *l.v, e);
    if (r == 0 && s->l.n > 0) memcpy(l.v + l.n, s->l.v, s->l.n * sizeof *l.v);
    if ((t->comm || to->part) && !opt.plain) opt.team = &w->team;
    r = llm_trainer_agree(t, r, e);
    if (r == 0 && (opt.team || t->share.rank == 0)) r = llm_checkpoint_write(o, meta, l.v, l.n + s->l.n, &opt, e);
    free(l.v);
    json_decref(meta);
    return r;
}

static int save(struct llm_trainer *t, const struct target *to, struct state *s, struct llm_err *e)
{
    struct llm_output *o;
    if (to->part) return llm_together_apart(&s->together, to->extents, e) < 0 ? -1 : write_all(t, to, to->part, s, e);
    if (llm_together_open(&s->together, to->path, &o, e) < 0) return -1;
    return llm_together_commit(&s->together, o, write_all(t, to, o, s, e), e);
}

/* Weights that no rank has all of, or that are cut: a rank that describes the model has them while it writes, rank 0 if they are collected. The place
 * of what is collected stays in `place`. */
struct masters { float **place, **whole; }; /* [n_params] */

/* Whether rank 0 collects parameter number i. */
static bool is_collected(const struct llm_trainer *t, size_t i)
{
    return llm_share_scatters(&t->share) && llm_share_collects(&t->share, i);
}

static void discard_master(struct llm_trainer *t, struct masters *k, size_t i)
{
    struct llm_param *p = t->params[i].p;
    if (k->whole[i] && p->master == k->whole[i]) p->weight.data = p->master = k->place[i];
    free(k->whole[i]);
    k->whole[i] = NULL;
}

/* Parameter number i, all of which this rank has, is one of the slices of a parameter: it takes its place there. */
static int join_slice(struct llm_trainer *t, struct masters *k, size_t i, struct llm_err *e)
{
    const struct llm_param *p = t->params[i].p;
    const struct llm_slices *s = p->slice_of;
    const int j = (int)(p - s->of);
    if (j == 0) s->whole->weight.data = s->whole->master = llm_alloc_huge((size_t)llm_param_count(s->whole), sizeof(float), "weights", e);
    if (!s->whole->master) return -1;
    llm_slices_put(s, j, p->master, s->whole->master);
    discard_master(t, k, i);
    return 0;
}

static int collect_masters(struct llm_trainer *t, struct masters *k, struct llm_err *e)
{
    const bool describes = !llm_share_scatters(&t->share) || t->share.rank == 0;
    k->place = llm_calloc(t->n_params, sizeof *k->place, "what the ranks keep", e);
    k->whole = llm_calloc(t->n_params, sizeof *k->whole, "what the ranks keep", e);
    int got = k->place && k->whole ? 0 : -1;
    for (size_t i = 0; i < t->n_params && t->share.rank == 0 && got == 0; i++) {
        if (!is_collected(t, i)) continue;
        if (!(k->whole[i] = llm_alloc_huge((size_t)llm_param_count(t->params[i].p), sizeof **k->whole, "what the ranks keep", e))) got = -1;
    }
    got = llm_trainer_agree(t, got, e);
    int joined = 0;
    for (size_t i = 0; i < t->n_params && got == 0; i++) {
        struct llm_param *p = t->params[i].p;
        if (is_collected(t, i)) {
            got = llm_share_collect(&t->share, i, llm_share_own_master(&t->share, i), k->whole[i], e);
            k->place[i] = p->master;
            if (t->share.rank == 0) p->weight.data = p->master = k->whole[i];
        }
        if (got == 0 && joined == 0 && describes && p->slice_of) joined = join_slice(t, k, i, e);
    }
    return got < 0 ? got : llm_trainer_agree(t, joined, e);
}

/* After collect_masters, also when it failed. */
static void discard_masters(struct llm_trainer *t, struct masters *k)
{
    for (size_t i = 0; k->place && k->whole && i < t->n_params; i++) discard_master(t, k, i);
    for (size_t i = 0; i < t->model->n_params; i++) {
        struct llm_param *p = &t->model->params[i];
        if (!p->slices) continue;
        free(p->master);
        p->weight.data = p->master = NULL;
    }
    free(k->place);
    free(k->whole);
}

static void release_state(struct state *s)
{
    llm_together_release(&s->together);
    for (size_t i = 0; i < s->l.n; i++) free((void *)s->l.v[i].name);
    free(s->l.v);
}

static int save_to(struct llm_trainer *t, const struct target *to, struct llm_err *e)
{
    struct masters k = {0};
    struct state s = {.together = {.share = &t->share, .model = t->model}};
    /* Weights are collected and frames are compressed in the memory that activations had, so that a save is not the peak of a run. */
    llm_arena_trim(&t->ctx.acts);
    llm_arena_trim(&t->ctx.grads);
    llm_arena_trim(&t->ctx.store);
    llm_stages_trim(t->stages);
    llm_comm_set_place(t->comm, "saving");
    if (llm_share_wait_weights(&t->share, e) < 0) return -1;
    int got = llm_share_scatters(&t->share) || t->o.tensor_parts > 1 ? collect_masters(t, &k, e) : 0;
    if (got == 0) got = llm_trainer_agree(t, to->as == LLM_SAVE_RUN ? append_state(t, &s, e) : 0, e);
    if (got == 0) got = llm_trainer_agree(t, save(t, to, &s, e), e);
    discard_masters(t, &k);
    release_state(&s);
    return got;
}

int llm_trainer_save(struct llm_trainer *t, const char *path, enum llm_save_as as, struct llm_err *e)
{
    return save_to(t, &(struct target){.path = path, .as = as}, e);
}

int llm_trainer_save_part(struct llm_trainer *t, struct llm_output *o, struct llm_extents *extents, struct llm_err *e)
{
    return save_to(t, &(struct target){.as = LLM_SAVE_RUN, .part = o, .extents = extents}, e);
}

int llm_trainer_saved_bytes(struct llm_trainer *t, double *bytes, struct llm_err *e)
{
    struct state s = {.together = {.share = &t->share, .model = t->model}};
    struct llm_tensor_list l = {0}, *const lists[] = {&l, &s.l};
    json_t *meta = json_object();
    int got = !meta ? llm_no_memory(e, "metadata") : t->model->lora ? llm_lora_describe(t->model->lora, t->model, meta, &l, e)
            : llm_model_describe_tensors(t->model, false, &l, e);
    if (got == 0) got = append_state(t, &s, e);
    *bytes = 0;
    for (size_t k = 0; k < 2 && got == 0; k++) {
        for (size_t i = 0; i < lists[k]->n; i++) {
            const struct llm_tensor_out *x = &lists[k]->v[i];
            double n = 1;
            for (int d = 0; d < x->n_dims; d++) n *= (double)x->shape[d];
            *bytes += (double)llm_dtype_bytes(x->dtype, (uint64_t)n);
        }
    }
    free(l.v);
    json_decref(meta);
    release_state(&s);
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

/* The master of parameter number i, which `whole` has: its hash, and what this rank keeps of it unless `whole` is that memory. */
static void keep_master(struct llm_trainer *t, size_t i, const float *whole)
{
    const struct llm_trainable *q = &t->params[i];
    const size_t n = (size_t)llm_param_count(q->p);
    if (llm_share_hashes_own(&t->share)) t->hashes[i] = llm_xxh64(whole, n * sizeof *whole, 0);
    if (q->p->master && !llm_share_pools_weights(&t->share, i)) {
        if (q->p->master != whole) memcpy(q->p->master, whole, n * sizeof *whole);
    } else if (q->own_n > 0) memcpy(llm_trainable_master(q), whole + q->own_from, q->own_n * sizeof *whole);
}

/* The master of parameter number i: all of it, or the elements that this rank keeps. */
static int read_master(struct llm_trainer *t, const char *what, size_t i, struct llm_err *e)
{
    const struct llm_trainable *q = &t->params[i];
    const bool parts = llm_share_pools_weights(&t->share, i) || !llm_share_has(&t->share, i) || llm_share_hashes_own(&t->share);
    float *whole = parts ? llm_alloc_huge((size_t)llm_param_count(q->p), sizeof *whole, "weights", e) : q->p->master;
    int got = whole ? read_tensor(t, what, q->p, whole, e) : -1;
    if (got == 0) keep_master(t, i, whole);
    if (parts) free(whole);
    return got;
}

/* What is kept of a parameter that is cut; i: the number of the first of its slices. */
static int read_slices(struct llm_trainer *t, const char *name, enum kept what, size_t i, struct llm_err *e)
{
    const struct llm_slices *s = t->params[i].p->slice_of;
    float *whole = llm_alloc_huge((size_t)llm_param_count(s->whole), sizeof *whole, "weights", e);
    float *slice = llm_alloc_huge((size_t)llm_param_count(&s->of[s->n - 1]), sizeof *slice, "weights", e); /* none is larger */
    int got = whole && slice ? read_tensor(t, name, s->whole, whole, e) : -1;
    for (int j = 0; j < s->n && got == 0; j++) {
        const struct llm_trainable *q = &t->params[i + (size_t)j];
        float *moment = kept_of(t, what, i + (size_t)j);
        llm_slices_take(s, j, whole, slice);
        if (what == KEPT_MASTER) keep_master(t, i + (size_t)j, slice);
        else if (moment) memcpy(moment, slice + q->own_from, llm_trainable_own(q) * sizeof *slice);
    }
    free(whole);
    free(slice);
    return got;
}

/* Masters that are stored apart from the model's rounded weights, and moments. */
static int restore_slices(struct llm_trainer *t, size_t i, struct llm_err *e)
{
    const struct llm_trainable *p = &t->params[i];
    if (p->p != p->p->slice_of->of) return 0; /* the first of the slices reads all */
    if (p->p->weight.rounded && read_slices(t, "master", KEPT_MASTER, i, e) < 0) return -1;
    if (p->optim->m && read_slices(t, p->optim->m, KEPT_M, i, e) < 0) return -1;
    return p->optim->v ? read_slices(t, p->optim->v, KEPT_V, i, e) : 0;
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

/* The outer optimizer's momenta, and this rank's replicas. */
static int restore_outer(struct llm_trainer *t, struct llm_err *e)
{
    struct of_replica at = {0};
    char name[64];
    llm_outer_spread(&t->outer);
    for (size_t i = 0; i < t->n_params; i++) {
        if (t->outer.momenta[i] && read_tensor(t, "outer.m", t->params[i].p, t->outer.momenta[i], e) < 0) return -1;
    }
    for (bool more = next_of_replica(t, &at, true); more; more = next_of_replica(t, &at, false)) {
        float *x = own_of_replica(t, &at);
        name_of_replica(t, &at, name);
        if (x && read_tensor(t, name, t->params[at.param].p, x, e) < 0) return -1;
    }
    return 0;
}

/* A run keeps its replicas, and how many steps they take apart: what it has stored of them follows from that. */
static int check_outer(const struct llm_trainer *t, struct llm_err *e)
{
    struct llm_train_options stored;
    llm_train_options_default(&stored);
    if (llm_state_options(t->model, &stored, e) < 0) return -1;
    if (stored.outer == t->o.outer && stored.replicas == t->o.replicas && stored.inner_steps == t->o.inner_steps) return 0;
    return llm_fail(e, LLM_EX_USAGE, "--outer, --replicas, --inner-steps: expected those of the run that goes on (%s, %lld, %lld)",
                    llm_outer_word(stored.outer), (long long)stored.replicas, (long long)stored.inner_steps);
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
    if (check_outer(t, e) < 0 || check_data(t, e) < 0 || read_states(t, e) < 0 || read_objective(&t->task, s, e) < 0) return -1;
    double averaged = 0; /* whether the run had averages so far */
    if (llm_json_real(json_object_get(s, "options"), "ema", &averaged, e) < 0) return llm_in(e, "training state");
    for (size_t i = 0; i < t->n_params; i++) {
        struct llm_trainable *p = &t->params[i];
        bool beside = is_beside(t, p->p);
        const char *what = t->objective->beside ? NULL : "master";
        if (p->p->slice_of && restore_slices(t, i, e) < 0) return -1;
        if (p->p->slice_of) continue;
        if (beside && what && !has_tensor(t, what, p->p)) continue; /* the run had another objective so far */
        if ((p->p->weight.rounded || beside) && read_master(t, what, i, e) < 0) return -1;
        if (beside) llm_weight_changed(&p->p->weight);
        if (p->m && read_moment(t, p->optim->m, p, p->m, e) < 0) return -1;
        if (p->v && read_moment(t, p->optim->v, p, p->v, e) < 0) return -1;
        if (p->ema && averaged > 0 && read_tensor(t, "ema", p->p, p->ema, e) < 0) return -1;
        if (p->ema && !(averaged > 0)) memcpy(p->ema, p->p->master, (size_t)llm_param_count(p->p) * sizeof(float)); /* they begin here */
    }
    llm_model_changed(t->model);
    return t->outer.replicas ? restore_outer(t, e) : 0;
}
