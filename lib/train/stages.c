#include "train/stages.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/pool.h"
#include "cpu/profile.h"
#include "dist/group.h"
#include "train/share_internal.h"
#include "train/trainer_internal.h"

/* A message, of one or several transfers. */
struct message { struct llm_transfer *v; size_t n, room; };

/* A pass under way. */
struct slot {
    struct llm_ctx *c, own;       /* c: own, or of the first slot the trainer's */
    struct llm_rows rows;
    struct llm_tensor *in, *out;  /* of the stage's layers; NULL: there is none */
    float *gradient;              /* [tokens of a pass, hidden_size] of `in`, while it is sent; without computing what is exchanged */
    int64_t *loads[2];            /* of mixtures: see put_loads. 0: on their way to later stages; 1: those of all layers */
    struct message ahead, back;   /* sends to the next stage; to the one before */
};

struct llm_stages {
    struct llm_trainer *t;        /* borrowed */
    struct llm_comm *comm;        /* of all ranks; owned, as all below */
    struct llm_stage cut;
    int stage, n, before, after;  /* of n stages; the ranks of the neighbours */
    bool gpipe;
    int64_t tokens, experts;      /* of a pass, at most; of a router, 0: the model has none */
    struct slot **slots, *current; /* current: whose forward pass is run; NULL: an evaluation's */
    size_t n_slots, slots_room;
    const struct llm_trainer_pass *pass; /* of the action at hand */
    struct llm_trainer_pass *passes; /* of the step */
    size_t n_passes, passes_room, at; /* at: actions that are done, two of each pass */
    bool received, sent;          /* by the action at hand, or the evaluation */
    /* a tied embedding: the head's gradient, which the last stage sends to the first */
    float *head;                  /* of all parameters that are tied, as this rank has them; NULL: none is */
    struct message head_sent;
    /* an evaluation */
    int64_t eval_tokens;          /* of the pass at hand; 0: none */
    float *eval_x;                /* [eval_rows, hidden_size]: what is exchanged without computing */
    struct message eval_sent;
};

/* ---- messages ---- */

static int post(const struct llm_stages *p, int peer, void *x, int64_t floats, bool receives, struct message *m, struct llm_err *e)
{
    return llm_share_post(p->comm, &(struct llm_transfers){&m->v, &m->n, &m->room}, peer, x, (size_t)floats, receives, e);
}

static int finish(const struct llm_stages *p, struct message *m, struct llm_err *e)
{
    const int got = llm_comm_wait(p->comm, m->v, m->n, e);
    m->n = 0;
    return got;
}

static int receive(const struct llm_stages *p, int peer, void *x, int64_t floats, struct llm_err *e)
{
    LLM_PROFILE("stages: waiting", 0);
    struct message m = {0};
    int got = post(p, peer, x, floats, true, &m, e);
    if (got == 0) got = finish(p, &m, e);
    free(m.v);
    return got;
}

static int64_t width(const struct llm_stages *p) { return p->t->model->config.hidden_size; }

static int64_t floats_of(const struct llm_stages *p)
{
    return (p->pass->end - p->pass->first) * p->t->rows.row_len * width(p);
}

/* A message of router loads: the number of layers that were added, then [rows, experts] (llm_router_loads). */
static int64_t numbers_of_loads(const struct llm_stages *p) { return 1 + (p->pass->end - p->pass->first) * p->experts; }

static int64_t floats_of_loads(const struct llm_stages *p) { return numbers_of_loads(p) * (int64_t)(sizeof(int64_t) / sizeof(float)); }

static void put_loads(const struct llm_stages *p, const struct llm_router_loads *l, int64_t *message)
{
    memset(message, 0, (size_t)numbers_of_loads(p) * sizeof *message);
    message[0] = l->n_layers;
    if (l->n_layers > 0) memcpy(message + 1, l->sum, (size_t)(l->rows * l->experts) * sizeof *message);
}

static void take_loads(const struct llm_stages *p, const int64_t *message, struct llm_ctx *c)
{
    struct llm_router_loads *l = &c->router_loads;
    const size_t n = (size_t)(c->n_rows * p->experts);
    if (message[0] == 0 || llm_grow((void **)&l->sum, &l->room, n, sizeof *l->sum, &c->err) < 0) return;
    if (l->n_layers == 0) l->n_seen = 0;
    l->n_layers = message[0];
    l->rows = c->n_rows;
    l->experts = p->experts;
    memcpy(l->sum, message + 1, n * sizeof *l->sum);
}

/* llm_stage.input: from the stage before. */
static struct llm_tensor *input(struct llm_stage *cut, struct llm_ctx *c, int64_t rows, int64_t cols)
{
    struct llm_stages *p = (struct llm_stages *)((char *)cut - offsetof(struct llm_stages, cut));
    struct llm_tensor *x = llm_tensor_create(c, rows, cols);
    if (llm_ctx_failed(c)) return x;
    int got = receive(p, p->before, x->data, rows * cols, &c->err);
    if (got == 0 && p->current && p->experts > 0) got = receive(p, p->before, p->current->loads[0], floats_of_loads(p), &c->err);
    p->received = true;
    if (got < 0) return &c->nothing;
    if (p->current && p->experts > 0) take_loads(p, p->current->loads[0], c);
    x->needs_grad = c->tape != NULL;
    x->spare = true;
    if (p->current) p->current->in = x;
    return x;
}

static int send_ahead(struct llm_stages *p, float *x, int64_t floats, struct llm_err *e)
{
    struct message *m = p->current ? &p->current->ahead : &p->eval_sent;
    p->sent = true;
    if (post(p, p->after, x, floats, false, m, e) < 0) return -1;
    return p->current && p->experts > 0 ? post(p, p->after, p->current->loads[0], floats_of_loads(p), false, m, e) : 0;
}

/* llm_stage.output: to the next stage. */
static void output(struct llm_stage *cut, struct llm_ctx *c, struct llm_tensor *x)
{
    struct llm_stages *p = (struct llm_stages *)((char *)cut - offsetof(struct llm_stages, cut));
    if (llm_ctx_failed(c)) return;
    if (p->current) p->current->out = x;
    if (p->current && p->experts > 0) put_loads(p, &c->router_loads, p->current->loads[0]);
    (void)send_ahead(p, x->data, x->rows * x->cols, &c->err); /* a failure is in c->err */
}

/* ---- a pass ---- */

static int run_forward(struct llm_stages *p, struct slot *s, const struct llm_whole *whole, struct llm_err *e)
{
    s->in = s->out = NULL;
    s->rows = llm_rows_part(&p->t->rows, p->pass->first, p->pass->end - p->pass->first);
    return llm_pass_forward(p->t, s->c, whole, p->pass, &s->rows, e);
}

/* The forward pass of a pass, with its messages. whole NULL: these alone. */
static int forward(struct llm_stages *p, struct slot *s, const struct llm_whole *whole, struct llm_err *e)
{
    struct llm_err problem, *first = e;
    int got = finish(p, &s->back, e);
    p->current = s;
    if (got == 0 && whole && (got = run_forward(p, s, whole, e)) < 0) first = &problem;
    if (p->stage > 0 && !p->received) {
        p->received = true;
        if (receive(p, p->before, s->gradient, floats_of(p), first) < 0) return -1;
        if (p->experts > 0 && receive(p, p->before, s->loads[0], floats_of_loads(p), first) < 0) return -1;
    }
    if (p->after >= 0 && !p->sent && send_ahead(p, s->gradient, floats_of(p), first) < 0) return -1;
    return got;
}

/* Receives the gradient of the stage's output, and the loads of all layers. */
static int receive_back(struct llm_stages *p, struct slot *s, bool computes, struct llm_err *e)
{
    float *g = computes && s->out ? llm_tensor_grad(s->c, s->out) : NULL; /* NULL: no parameter up to here is trained */
    p->received = true;
    if (p->experts > 0 && p->after >= 0 && receive(p, p->after, s->loads[1], floats_of_loads(p), e) < 0) return -1;
    if (p->experts > 0 && p->after < 0 && computes) put_loads(p, &s->c->router_loads, s->loads[1]);
    if (p->experts > 0 && computes) take_loads(p, s->loads[1], s->c);
    return p->after >= 0 ? receive(p, p->after, g ? g : s->gradient, floats_of(p), e) : 0;
}

static int run_backward(struct llm_stages *p, struct slot *s, struct llm_err *e)
{
    struct llm_trainer *t = p->t;
    llm_share_begin(&t->share, p->pass->shard, p->pass->ends_shard);
    t->share.between.recorded = 1; /* the forward passes of others lie between */
    llm_backward(s->c);
    const float *g = s->in ? llm_tensor_grad(s->c, s->in) : NULL;
    if (g) memcpy(s->gradient, g, (size_t)floats_of(p) * sizeof *g);
    if (!llm_ctx_failed(s->c)) return 0;
    *e = s->c->err;
    return -1;
}

/* Sends the gradient of the stage's input to the stage before. */
static int send_back(struct llm_stages *p, struct slot *s, struct llm_err *e)
{
    p->sent = true;
    if (p->experts > 0 && post(p, p->before, s->loads[1], floats_of_loads(p), false, &s->back, e) < 0) return -1;
    return post(p, p->before, s->gradient, floats_of(p), false, &s->back, e);
}

static int backward(struct llm_stages *p, struct slot *s, bool computes, struct llm_err *e)
{
    struct llm_err problem, *first = e;
    int got = 0;
    if (!p->received && receive_back(p, s, computes, e) < 0) return -1;
    if (computes && (got = run_backward(p, s, e)) < 0) first = &problem;
    if (p->stage > 0 && !p->sent && send_back(p, s, first) < 0) return -1;
    if (finish(p, &s->ahead, first) < 0) return -1;
    llm_ctx_reset(s->c);
    return got;
}

/* The gradient of a tied embedding's head in a shard, from the last stage to the first, which adds that of its lookups. */
static int join_tied(struct llm_stages *p, struct llm_err *e)
{
    const struct llm_share *s = &p->t->share;
    const int others = (p->n - 1) * s->tp; /* ranks from the first stage to the last one */
    float *to = p->head;
    if (p->stage > 0 && p->after >= 0) return 0;
    if (p->stage > 0 && finish(p, &p->head_sent, e) < 0) return -1;
    for (size_t i = 0; i < s->n_params; i++) {
        const struct llm_param *q = s->t[i].p;
        if (s->params[i].copies != LLM_SHARE_TIED || !llm_share_has(s, i)) continue;
        const int64_t n = llm_param_count(q);
        if (p->stage == 0 && receive(p, s->rank + others, q->grad, n, e) < 0) return -1;
        if (p->stage == 0) continue;
        memcpy(to, q->grad, (size_t)n * sizeof *to);
        memset(q->grad, 0, (size_t)n * sizeof *q->grad);
        if (post(p, s->rank - others, to, n, false, &p->head_sent, e) < 0) return -1;
        to += n;
    }
    return 0;
}

/* ---- a step ---- */

/* The number of forward passes in the warm-up of a stage. After the warm-up, forward and backward passes alternate. */
static size_t ahead_of(const struct llm_stages *p)
{
    const size_t later = (size_t)(p->n - 1 - p->stage);
    return (p->gpipe && p->after >= 0) || later > p->n_passes ? p->n_passes : later;
}

/* The pass of action number i, and whether it is forward. */
static size_t action(const struct llm_stages *p, size_t i, bool *forward)
{
    const size_t w = ahead_of(p), n = p->n_passes;
    *forward = i < w || (i < 2 * n - w && (i - w) % 2 == 0);
    return i < w ? i : i >= 2 * n - w ? i - n : *forward ? w + (i - w) / 2 : (i - w) / 2;
}

/* The action at hand. whole NULL: its messages alone. */
static int act(struct llm_stages *p, const struct llm_whole *whole, struct llm_err *e)
{
    bool is_forward;
    const struct llm_trainer_pass *a = p->pass = &p->passes[action(p, p->at, &is_forward)];
    struct slot *s = p->slots[(size_t)(a - p->passes) % p->n_slots];
    const bool empty = a->end == a->first;
    int got = 0;
    if (!empty) got = is_forward ? forward(p, s, whole, e) : backward(p, s, whole, e);
    if (llm_comm_broken(p->comm)) return -1;
    p->at++;
    p->received = p->sent = false;
    p->current = NULL;
    if (is_forward || !a->ends_shard) return got;
    struct llm_err problem;
    if (join_tied(p, got < 0 ? &problem : e) < 0) got = -1;
    return got == 0 && whole ? llm_share_end(&p->t->share, a->shard, e) : got;
}

static void destroy_slot(struct slot *s)
{
    if (s) s->own.grads = (struct llm_arena){0};
    if (s && s->c == &s->own) llm_ctx_release(&s->own);
    if (s) free(s->gradient);
    for (int i = 0; s && i < 2; i++) free(s->loads[i]);
    if (s) free(s->ahead.v);
    if (s) free(s->back.v);
    free(s);
}

static int add_slot(struct llm_stages *p, struct llm_err *e)
{
    struct llm_trainer *t = p->t;
    if (llm_grow((void **)&p->slots, &p->slots_room, p->n_slots + 1, sizeof *p->slots, e) < 0) return -1;
    struct slot *s = llm_calloc(1, sizeof *s, "stages", e);
    if (!s || !(s->gradient = llm_calloc((size_t)(p->tokens * width(p)), sizeof *s->gradient, "activations of stages", e))) goto fail;
    for (int i = 0; i < 2 && p->experts > 0; i++) { /* as many rows as tokens, at most */
        if (!(s->loads[i] = llm_calloc((size_t)(1 + p->tokens * p->experts), sizeof **s->loads, "stages", e))) goto fail;
    }
    s->c = &t->ctx;
    if (p->n_slots > 0) {
        if (llm_ctx_init(&s->own, t->ctx.acts.limit, t->ctx.grads.limit, true, e) < 0) goto fail;
        s->c = &s->own;
        llm_arena_release(&s->own.grads);
        s->own.grads = t->ctx.grads; /* one memory, in turns: between backward passes it is empty */
        s->c->compute = t->ctx.compute;
        s->c->seed = t->ctx.seed;
        s->c->training = true;
        s->c->stored = t->ctx.stored;
        s->c->stored_share = t->ctx.stored_share;
        s->c->stored_rank = t->ctx.stored_rank;
        s->c->between = t->ctx.between;
        s->c->group = t->ctx.group;
        s->c->experts = t->ctx.experts;
    }
    s->c->cut = &p->cut;
    p->slots[p->n_slots++] = s;
    return 0;
fail:
    destroy_slot(s);
    return -1;
}

int llm_stages_prepare(struct llm_trainer *t, const struct llm_whole *whole, struct llm_err *e)
{
    struct llm_stages *p = t->stages;
    struct llm_trainer_pass a = {0};
    p->n_passes = p->at = 0;
    while (llm_pass_next(t, whole, t->share.run, &a)) {
        if (llm_grow((void **)&p->passes, &p->passes_room, p->n_passes + 1, sizeof *p->passes, e) < 0) return -1;
        p->passes[p->n_passes++] = a;
    }
    const size_t w = ahead_of(p), slots = w < p->n_passes ? w + 1 : w;
    while (p->n_slots < slots) {
        if (add_slot(p, e) < 0) return -1;
    }
    return 0;
}

int llm_stages_run(struct llm_trainer *t, const struct llm_whole *whole, struct llm_err *e)
{
    struct llm_stages *p = t->stages;
    while (p->at < 2 * p->n_passes) {
        if (act(p, whole, e) < 0) return -1;
    }
    return 0;
}

int llm_stages_finish(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_stages *p = t->stages;
    while (p->at < 2 * p->n_passes) {
        if (act(p, NULL, e) < 0) return -1;
    }
    for (size_t i = 0; i < p->n_slots; i++) {
        if (finish(p, &p->slots[i]->ahead, e) < 0 || finish(p, &p->slots[i]->back, e) < 0) return -1;
        llm_ctx_reset(p->slots[i]->c);
    }
    return finish(p, &p->head_sent, e);
}

/* ---- an evaluation ---- */

int llm_stages_end_eval(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_stages *p = t->stages;
    if (!p || p->eval_tokens == 0) return 0;
    const int64_t n = p->eval_tokens;
    p->eval_tokens = 0;
    if (p->stage > 0 && !p->received && receive(p, p->before, p->eval_x, n * width(p), e) < 0) return -1;
    if (p->after >= 0 && !p->sent && send_ahead(p, p->eval_x, n * width(p), e) < 0) return -1;
    p->received = p->sent = false;
    for (int k = 0; k < p->n - 1 && p->after < 0; k++) {
        if (post(p, t->share.rank + (k - p->stage) * t->share.tp, t->token_loss, n, false, &p->eval_sent, e) < 0) return -1;
    }
    if (finish(p, &p->eval_sent, e) < 0) return -1;
    return p->after >= 0 ? receive(p, t->share.rank + (p->n - 1 - p->stage) * t->share.tp, t->token_loss, n, e) : 0;
}

int llm_stages_eval(struct llm_trainer *t, const struct llm_rows *rows, struct llm_err *e)
{
    struct llm_stages *p = t->stages;
    struct llm_err problem;
    p->eval_tokens = rows->n_rows * rows->row_len;
    const int got = t->objective->run(&t->eval_ctx, &t->task, rows, 1, t->token_loss, e);
    if (llm_trainer_say(t, got < 0 ? &problem : e) < 0) return -1;
    return llm_stages_end_eval(t, got < 0 ? &problem : e) < 0 ? -1 : got;
}

/* ---- its life ---- */

/* Sends make progress while the rank computes. A failure breaks the communicator, so that the next wait reports it. */
static void poll(void *stages)
{
    const struct llm_stages *p = stages;
    struct llm_err ignored;
    llm_share_poll(&p->t->share);
    for (size_t i = 0; i < p->n_slots; i++) {
        struct message *const sent[] = {&p->slots[i]->ahead, &p->slots[i]->back};
        for (int k = 0; k < 2; k++) {
            if (sent[k]->n > 0 && llm_comm_test(p->comm, sent[k]->v, sent[k]->n, &ignored) == 1) sent[k]->n = 0;
        }
    }
}

int llm_stages_check(const struct llm_objective *o, bool adapted, const struct llm_layout *l, struct llm_err *e)
{
    if (o->run != llm_objective_run_next) {
        return llm_fail(e, LLM_EX_USAGE, "--shard: pp=%d: expected an objective that predicts the next token in one pass (lm, sft, prefix, fim), "
                        "found %s", (int)l->pp, o->name);
    }
    return adapted ? llm_fail(e, LLM_EX_USAGE, "--shard: pp=%d: expected a model without an adapter", (int)l->pp) : 0;
}

struct llm_stages *llm_stages_create(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_share *s = &t->share;
    const struct llm_config *c = &t->model->config;
    struct llm_stages *p = llm_calloc(1, sizeof *p, "stages", e);
    if (!p) return NULL;
    *p = (struct llm_stages){.t = t, .stage = s->stage, .n = s->pp, .gpipe = t->layout.gpipe};
    p->before = p->stage > 0 ? s->rank - s->tp : -1;
    p->after = p->stage < p->n - 1 ? s->rank + s->tp : -1;
    int64_t tied = 0;
    p->cut = (struct llm_stage){.model = t->model, .first = s->first_layer[p->stage], .end = s->first_layer[p->stage + 1], .last = p->after < 0,
                              .input = input, .output = output};
    p->tokens = t->o.batch * t->o.context;
    p->experts = c->num_experts;
    for (size_t i = 0; i < s->n_params; i++) {
        if (s->params[i].copies == LLM_SHARE_TIED && llm_share_has(s, i)) tied += llm_param_count(s->t[i].p);
    }
    const bool sends_head = tied > 0 && p->after < 0;
    if (!(p->comm = llm_comm_twin(t->comm, e))
        || !(p->eval_x = llm_calloc((size_t)(t->eval_rows.room_tokens * width(p)), sizeof *p->eval_x, "activations of stages", e))
        || (sends_head && !(p->head = llm_calloc((size_t)tied, sizeof *p->head, "gradients of stages", e)))) {
        llm_stages_destroy(p);
        return NULL;
    }
    t->eval_ctx.cut = &p->cut;
    llm_pool_set_poll(poll, p);
    return p;
}

void llm_stages_destroy(struct llm_stages *p)
{
    if (!p) return;
    llm_pool_set_poll(NULL, NULL);
    for (size_t i = 0; i < p->n_slots; i++) destroy_slot(p->slots[i]);
    free(p->slots);
    free(p->passes);
    free(p->head);
    free(p->head_sent.v);
    free(p->eval_x);
    free(p->eval_sent.v);
    llm_comm_destroy(p->comm);
    free(p);
}

double llm_stages_bytes(const struct llm_stages *p)
{
    double bytes = 0;
    for (size_t i = 1; p && i < p->n_slots; i++) bytes += llm_ctx_peak_bytes(p->slots[i]->c) - (double)p->slots[i]->c->grads.peak;
    return bytes;
}

void llm_stages_trim(struct llm_stages *p)
{
    for (size_t i = 1; p && i < p->n_slots; i++) {
        llm_arena_trim(&p->slots[i]->own.acts);
        llm_arena_trim(&p->slots[i]->own.store);
    }
}
