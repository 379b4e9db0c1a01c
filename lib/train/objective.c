#include "train/objective.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include "tensor/tape.h"

#define OBJECTIVES(X) \
    X(lm) \
    X(ngram) \
    X(mlm) \
    X(seq2seq) \
    X(prefix) \
    X(fim) \
    X(classify) \
    X(contrastive) \
    X(sft) \
    X(dpo) \
    X(kto) \
    X(reward) \
    X(distill) \
    X(lens) \
    X(sae) \
    X(transcoder) \
    X(reinforce) \
    X(grpo) \
    X(ppo)

#define DECLARED(name) extern const struct llm_objective llm_objective_##name;
OBJECTIVES(DECLARED)
#define LISTED(name) &llm_objective_##name,
const struct llm_objective *const llm_objectives[] = {OBJECTIVES(LISTED) NULL};

const struct llm_objective *llm_objective_find(const char *name)
{
    for (size_t i = 0; llm_objectives[i]; i++) {
        if (strcmp(llm_objectives[i]->name, name) == 0) return llm_objectives[i];
    }
    return NULL;
}

bool llm_objective_by_pass(const struct llm_objective *o, const struct llm_config *c)
{
    return o->by_pass || c->norm == LLM_NORM_BATCH;
}

bool llm_objective_documents(const struct llm_objective *o, const struct llm_train_options *p)
{
    if (o->documents) return o->documents(p);
    return o->document && (!o->takes_lines || o->takes_lines(p));
}

bool llm_objective_per_run(const struct llm_objective *o, const struct llm_train_options *p)
{
    return o->per_run ? o->per_run(p) : o->data_per_run;
}

int llm_task_init(struct llm_task *t, const struct llm_objective *o, struct llm_model *m, const struct llm_train_options *options,
                  const struct llm_train_data *data, struct llm_err *e)
{
    *t = (struct llm_task){.objective = o, .model = m, .o = *options, .activations = data->activations, .pictures = data->pictures,
                           .shown = data->shown, .drawn = !data->train && !data->records && !data->feed};
    for (int i = 0; i < LLM_MAX_TASK_STATE; i++) t->state[i] = t->next_state[i] = NAN;
    if (m->config.patch_size > 0 && !o->pictures) {
        return llm_fail(e, EX_UNAVAILABLE, "--objective %s: expected a model of texts, found one of pictures (%s)", o->name, m->config.model_type);
    }
    if (llm_config_two_towers(&m->config) && !o->captions) {
        return llm_fail(e, EX_UNAVAILABLE, "--objective %s: expected a model of texts, found one of pictures and texts (%s)", o->name,
                        m->config.model_type);
    }
    if (o->check(m, e) < 0) return llm_in(e, "--objective %s", o->name);
    return o->create && o->create(t, e) < 0 ? llm_in(e, "--objective %s", o->name) : 0;
}

void llm_task_release(struct llm_task *t)
{
    if (t->objective && t->objective->destroy) t->objective->destroy(t);
    for (int i = 0; i < LLM_MAX_TASK_MODELS; i++) llm_model_destroy(t->models[i].model);
    *t = (struct llm_task){.objective = NULL};
}

void llm_task_reset(struct llm_task *t)
{
    memset(t->means, 0, sizeof t->means);
    t->beside = 0;
    t->routers = (struct llm_router_report){0};
}

double llm_task_mean(const struct llm_task *t, int i)
{
    return t->means[i].n > 0 ? t->means[i].sum / t->means[i].n : NAN;
}

void llm_task_note(struct llm_task *t, const char *name, double sum, double n)
{
    for (int i = 0; i < LLM_MAX_MEANS && t->objective->means[i]; i++) {
        if (strcmp(t->objective->means[i], name) != 0) continue;
        t->means[i].sum += sum;
        t->means[i].n += n;
    }
}

struct llm_model *llm_task_load(struct llm_task *t, const char *what, const char *path, struct llm_err *e)
{
    struct stat s;
    struct llm_task_model *m = t->models;
    if (stat(path, &s) < 0) {
        llm_fail_errno(e, EX_NOINPUT, "%s: %s", what, path);
        return NULL;
    }
    while (m < t->models + LLM_MAX_TASK_MODELS && m->model && (m->device != s.st_dev || m->inode != s.st_ino)) m++;
    if (m == t->models + LLM_MAX_TASK_MODELS) {
        llm_fail(e, LLM_EX_FAILURE, "%s: expected at most %d further models", what, LLM_MAX_TASK_MODELS);
        return NULL;
    }
    if (m->model) return m->model;
    m->model = llm_model_load(path, e);
    m->device = s.st_dev;
    m->inode = s.st_ino;
    if (!m->model) {
        llm_in(e, "%s", what);
        return NULL;
    }
    int64_t vocab = m->model->config.vocab_size, ours = t->model->config.vocab_size;
    if (vocab != ours) {
        llm_fail(e, EX_DATAERR, "%s: %s: expected a vocabulary of %lld tokens, found %lld", what, path, (long long)ours, (long long)vocab);
        return NULL;
    }
    return llm_model_set_context(m->model, t->o.context, e) < 0 ? NULL : m->model;
}

struct llm_cross_entropy llm_task_loss(const struct llm_task *t, const struct llm_rows *rows, double grad_scale, float *token_loss)
{
    struct llm_model *m = t->model;
    return (struct llm_cross_entropy){.targets = rows->targets, .weights = rows->weighted ? rows->weights : NULL, .bias = llm_model_head_bias(m),
                                      .logit_scale = (float)m->config.logit_scale, .grad_scale = grad_scale, .token_nll = token_loss,
                                      .logit_softcap = (float)m->config.final_logit_softcapping};
}

struct llm_tensor *llm_task_hidden(struct llm_ctx *c, struct llm_task *t, struct llm_model *m, const struct llm_rows *rows, struct llm_batch *b)
{
    c->n_rows = rows->n_rows;
    c->row_len = rows->row_len;
    *b = llm_rows_batch(t, rows);
    b->doc_start = rows->documents ? rows->doc_start : NULL;
    b->prefixes = rows->prefixed ? rows->prefixes : NULL;
    b->state = rows->state;
    b->state_after = rows->state_after;
    b->state_floats = rows->state_floats;
    llm_task_show(c, t, m, rows, b);
    return llm_model_forward(c, m, b);
}

struct llm_batch llm_rows_batch(struct llm_task *t, const struct llm_rows *rows)
{
    return (struct llm_batch){.ids = rows->ids, .positions = rows->positions, .n_tokens = rows->n_rows * rows->row_len,
                              .checkpoint_every = t->o.checkpoint_every, .routers = &t->routers};
}

struct llm_batch llm_task_see(struct llm_ctx *c, struct llm_task *t, const struct llm_config *f, const int32_t *number, int64_t step, int64_t n,
                              const struct llm_augmented *mixed)
{
    const int64_t size = f->num_channels * f->image_size * f->image_size;
    float *pixels = llm_op_alloc(c, 2 * size, sizeof *pixels);
    struct llm_batch b = llm_model_pictures(c, f, n);
    for (int64_t r = 0; r < n && !llm_ctx_failed(c); r++) {
        const struct llm_rng rng = llm_rng_at(c->seed, 0, LLM_RNG_TEST, 0, (uint32_t)(c->first_row + r), 1);
        if (t->pictures && mixed) llm_pictures_augmented(t->pictures, number[r * step], &mixed[r], pixels + size, pixels);
        else if (t->pictures) llm_pictures_get(t->pictures, number[r * step], pixels);
        for (int64_t i = 0; i < size && !t->pictures; i++) pixels[i] = llm_rng_normal(&rng, (uint32_t)i);
        llm_model_put_picture(f, &b, r, pixels);
    }
    b.doc_start = NULL; /* each picture is a row */
    b.checkpoint_every = t->o.checkpoint_every;
    b.routers = &t->routers;
    return b;
}

struct llm_batch llm_rows_source(const struct llm_rows *rows)
{
    return (struct llm_batch){.ids = rows->source, .positions = rows->positions, .n_tokens = rows->n_rows * rows->row_len,
                              .lengths = rows->source_len};
}
