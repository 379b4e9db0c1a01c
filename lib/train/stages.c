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

/* A chunk of layers that the rank has. */
struct chunk {
    struct llm_stage cut;
    struct llm_stages *p;
    int64_t number;               /* of all stages' chunks */
    int before, after;            /* the ranks that have the chunks before it and after it; -1: there is none */
};

/* A pass of a chunk under way. */
struct slot {
    struct llm_ctx *c, own;       /* c: own, or of the first slot the trainer's */
    const struct chunk *chunk;    /* NULL: no pass is under way */
    int64_t pass;
    struct llm_rows rows, part;   /* part: this rank's of each row, where ranks divide rows */
    struct llm_tensor *in, *out;  /* of the chunk's layers; NULL: there is none */
    float *idle;                  /* [tokens of a pass, hidden_size] what is exchanged without computing */
    int64_t *loads[2];            /* of mixtures: see put_loads. 0: on their way to later chunks; 1: those of all layers */
    struct message ahead;         /* sends to the next chunk */
};

/* A gradient on its way to the chunk before, or that of heads to the first chunk. Its pass may be over before it has arrived: where chunks lie
 * between those of other stages, stages that waited for that would wait for one another. */
struct letter { float *x; int64_t *loads; struct message sent; };
struct letters { struct letter *v; size_t n, room; };

struct llm_stages {
    struct llm_trainer *t;        /* borrowed */
    struct llm_comm *comm, *back, *heads; /* of all ranks: what flows ahead, and back; heads of tied embeddings; owned, as all below */
    struct chunk *chunks;         /* [n_chunks] */
    int stage, n, n_chunks;       /* of n stages, each with so many chunks */
    bool gpipe;
    int64_t tokens, experts;      /* of a pass, at most; of a router, 0: the model has none */
    struct slot **slots, *current; /* current: whose forward pass is run; NULL: an evaluation's */
    size_t n_slots, slots_room;
    struct letters inputs;        /* gradients of chunks' inputs */
    const struct llm_trainer_pass *pass; /* of the action at hand */
    struct llm_trainer_pass *passes; /* of the step */
    size_t n_passes, passes_room;
    int64_t at;                   /* actions that are done, two of each pass of a chunk */
    bool received, sent;          /* by the action at hand, or a chunk of the evaluation */
    /* a tied embedding: the head's gradient, which the last stage sends to the first */
    int64_t tied;                 /* floats of all parameters that are tied, as this rank has them */
    struct letters tables;        /* their gradients, of shards */
    /* an evaluation */
    int64_t eval_tokens;          /* of the pass at hand; 0: none */
    int eval_chunk;               /* that runs it */
    float *eval_x;                /* [eval_rows, hidden_size]: what is exchanged without computing */
    struct message eval_sent;
};

/* ---- messages ---- */

static int post(struct llm_comm *c, int peer, void *x, int64_t floats, bool receives, struct message *m, struct llm_err *e)
{
    return llm_share_post(c, &(struct llm_transfers){&m->v, &m->n, &m->room}, peer, x, (size_t)floats * sizeof(float), receives, e);
}

static int finish(const struct llm_stages *p, struct message *m, struct llm_err *e)
{
    const int got = llm_comm_wait(p->comm, m->v, m->n, e);
    m->n = 0;
    return got;
}

static int receive(const struct llm_stages *p, struct llm_comm *c, int peer, void *x, int64_t floats, struct llm_err *e)
{
    LLM_PROFILE("stages: waiting", 0);
    struct message m = {0};
    int got = post(c, peer, x, floats, true, &m, e);
    if (got == 0) got = finish(p, &m, e);
    free(m.v);
    return got;
}

static int64_t width(const struct llm_stages *p) { return p->t->model->config.hidden_size; }

static int64_t rows_of(const struct llm_trainer_pass *a) { return a->idle ? 1 : a->end - a->first; }

static int64_t floats_of(const struct llm_stages *p)
{
    return rows_of(p->pass) * (p->t->rows.row_len / p->t->share.cp) * width(p);
}

/* A message of router loads: the number of layers that were added, then [rows, experts] (llm_router_loads). */
static int64_t numbers_of_loads(const struct llm_stages *p) { return 1 + rows_of(p->pass) * p->experts; }

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

/* llm_stage.input: from the chunk before. */
static struct llm_tensor *input(struct llm_stage *cut, struct llm_ctx *c, int64_t rows, int64_t cols)
{
    const struct chunk *k = (const struct chunk *)((char *)cut - offsetof(struct chunk, cut));
    struct llm_stages *p = k->p;
    struct llm_tensor *x = llm_tensor_create(c, rows, cols);
    if (llm_ctx_failed(c)) return x;
    int got = receive(p, p->comm, k->before, x->data, rows * cols, &c->err);
    if (got == 0 && p->current && p->experts > 0) got = receive(p, p->comm, k->before, p->current->loads[0], floats_of_loads(p), &c->err);
    p->received = true;
    if (got < 0) return &c->nothing;
    if (p->current && p->experts > 0) take_loads(p, p->current->loads[0], c);
    x->needs_grad = c->tape != NULL;
    x->spare = true;
    if (p->current) p->current->in = x;
    return x;
}

static int send_ahead(const struct chunk *k, float *x, int64_t floats, struct llm_err *e)
{
    struct llm_stages *p = k->p;
    struct message *m = p->current ? &p->current->ahead : &p->eval_sent;
    p->sent = true;
    if (post(p->comm, k->after, x, floats, false, m, e) < 0) return -1;
    return p->current && p->experts > 0 ? post(p->comm, k->after, p->current->loads[0], floats_of_loads(p), false, m, e) : 0;
}

/* llm_stage.output: to the next chunk. */
static void output(struct llm_stage *cut, struct llm_ctx *c, struct llm_tensor *x)
{
    const struct chunk *k = (const struct chunk *)((char *)cut - offsetof(struct chunk, cut));
    struct llm_stages *p = k->p;
    if (llm_ctx_failed(c)) return;
    if (p->current) p->current->out = x;
    if (p->current && p->experts > 0) put_loads(p, &c->router_loads, p->current->loads[0]);
    (void)send_ahead(k, x->data, x->rows * x->cols, &c->err); /* a failure is in c->err */
}

/* ---- a pass ---- */

static int run_forward(struct llm_stages *p, struct slot *s, const struct llm_whole *whole, struct llm_err *e)
{
    s->in = s->out = NULL;
    s->rows = llm_pass_rows(p->t, p->pass);
    return llm_pass_forward(p->t, s->c, whole, p->pass, &s->rows, &s->part, e);
}

/* The forward pass of a pass, with its messages. whole NULL: these alone. */
static int forward(struct llm_stages *p, struct slot *s, const struct llm_whole *whole, struct llm_err *e)
{
    const struct chunk *k = s->chunk;
    struct llm_err problem, *first = e;
    int got = 0;
    p->current = s;
    if (whole && (got = run_forward(p, s, whole, e)) < 0) first = &problem;
    if (k->before >= 0 && !p->received) {
        p->received = true;
        if (receive(p, p->comm, k->before, s->idle, floats_of(p), first) < 0) return -1;
        if (p->experts > 0 && receive(p, p->comm, k->before, s->loads[0], floats_of_loads(p), first) < 0) return -1;
    }
    if (k->after >= 0 && !p->sent && send_ahead(k, s->idle, floats_of(p), first) < 0) return -1;
    return got;
}

/* Receives the gradient of the chunk's output, and the loads of all layers. */
static int receive_back(struct llm_stages *p, struct slot *s, bool computes, struct llm_err *e)
{
    const int after = s->chunk->after;
    float *g = computes && s->out ? llm_tensor_grad(s->c, s->out) : NULL; /* NULL: no parameter up to here is trained */
    p->received = true;
    if (p->experts > 0 && after >= 0 && receive(p, p->back, after, s->loads[1], floats_of_loads(p), e) < 0) return -1;
    if (p->experts > 0 && after < 0 && computes) put_loads(p, &s->c->router_loads, s->loads[1]);
    if (p->experts > 0 && computes) take_loads(p, s->loads[1], s->c);
    return after >= 0 ? receive(p, p->back, after, g ? g : s->idle, floats_of(p), e) : 0;
}

static int run_backward(struct llm_stages *p, struct slot *s, struct llm_err *e)
{
    struct llm_trainer *t = p->t;
    llm_share_begin(&t->share, p->pass->shard, p->pass->ends_shard);
    t->share.between.recorded = 1; /* the forward passes of others lie between */
    llm_pass_backward(t, s->c, p->pass);
    if (!llm_ctx_failed(s->c)) return 0;
    *e = s->c->err;
    return -1;
}

/* Room for a gradient on its way, of so many floats and loads: that of one which has arrived. NULL: see `e`. */
static struct letter *find_letter(const struct llm_stages *p, struct letters *k, int64_t floats, int64_t loads, struct llm_err *e)
{
    size_t i = 0;
    for (int got = 0; i < k->n; i++) {
        struct message *m = &k->v[i].sent;
        if (m->n > 0 && (got = llm_comm_test(p->comm, m->v, m->n, e)) < 0) return NULL;
        if (m->n == 0 || got == 1) break;
    }
    if (i == k->n) {
        if (llm_grow((void **)&k->v, &k->room, i + 1, sizeof *k->v, e) < 0) return NULL;
        struct letter *l = &k->v[k->n++];
        *l = (struct letter){.x = llm_calloc((size_t)floats, sizeof *l->x, "gradients of stages", e)};
        if (loads > 0) l->loads = llm_calloc((size_t)loads, sizeof *l->loads, "stages", e);
    }
    struct letter *l = &k->v[i];
    l->sent.n = 0;
    return l->x && (l->loads || loads == 0) ? l : NULL;
}

/* find_letter, by a rank for whose gradient another one waits: without room the ranks end at once. */
static struct letter *make_letter(const struct llm_stages *p, struct letters *k, int64_t floats, int64_t loads, struct llm_err *e)
{
    struct letter *l = find_letter(p, k, floats, loads, e);
    if (!l) (void)llm_comm_give_up(p->comm);
    return l;
}

static int finish_letters(const struct llm_stages *p, struct letters *k, struct llm_err *e)
{
    for (size_t i = 0; i < k->n; i++) {
        if (finish(p, &k->v[i].sent, e) < 0) return -1;
    }
    return 0;
}

static void release_letters(struct letters *k)
{
    for (size_t i = 0; i < k->n; i++) {
        free(k->v[i].x);
        free(k->v[i].loads);
        free(k->v[i].sent.v);
    }
    free(k->v);
}

/* Sends the gradient of the chunk's input to the chunk before. */
static int send_back(struct llm_stages *p, struct slot *s, bool computed, struct llm_err *e)
{
    const float *g = computed && s->in ? llm_tensor_grad(s->c, s->in) : NULL;
    struct letter *l = make_letter(p, &p->inputs, p->tokens * width(p), p->experts > 0 ? 1 + p->tokens * p->experts : 0, e);
    p->sent = true;
    if (!l) return -1;
    if (g) memcpy(l->x, g, (size_t)floats_of(p) * sizeof *g);
    if (p->experts > 0) memcpy(l->loads, s->loads[1], (size_t)numbers_of_loads(p) * sizeof *l->loads);
    if (p->experts > 0 && post(p->back, s->chunk->before, l->loads, floats_of_loads(p), false, &l->sent, e) < 0) return -1;
    return post(p->back, s->chunk->before, l->x, floats_of(p), false, &l->sent, e);
}

static int backward(struct llm_stages *p, struct slot *s, bool computes, struct llm_err *e)
{
    struct llm_err problem, *first = e;
    int got = 0;
    if (!p->received && receive_back(p, s, computes, e) < 0) return -1;
    if (computes && (got = run_backward(p, s, e)) < 0) first = &problem;
    if (s->chunk->before >= 0 && !p->sent && send_back(p, s, computes && got == 0, first) < 0) return -1;
    if (finish(p, &s->ahead, first) < 0) return -1;
    llm_ctx_reset(s->c);
    return got;
}

/* The gradient of a tied embedding's head in a shard, from the last chunk to the first, which adds that of its lookups. */
static int join_tied(struct llm_stages *p, const struct chunk *k, struct llm_err *e)
{
    const struct llm_share *s = &p->t->share;
    const int others = (p->n - 1) * s->tp; /* ranks from the first stage to the last one */
    if (p->tied == 0 || (k->before >= 0 && k->after >= 0)) return 0;
    if (p->n_chunks == 1 && finish_letters(p, &p->tables, e) < 0) return -1; /* memory for one is enough */
    struct letter *l = p->stage > 0 ? make_letter(p, &p->tables, p->tied, 0, e) : NULL;
    if (p->stage > 0 && !l) return -1;
    float *to = l ? l->x : NULL;
    for (size_t i = 0; i < s->n_params; i++) {
        const struct llm_param *q = s->t[i].p;
        if (s->params[i].copies != LLM_SHARE_TIED || !llm_share_has(s, i)) continue;
        const int64_t n = (int64_t)llm_share_gradient_floats(s, i);
        if (p->stage == 0 && receive(p, p->heads, s->rank + others, q->grad, n, e) < 0) return -1;
        if (p->stage == 0) continue;
        memcpy(to, q->grad, (size_t)n * sizeof *to);
        memset(q->grad, 0, (size_t)n * sizeof *q->grad);
        if (post(p->heads, s->rank - others, to, n, false, &l->sent, e) < 0) return -1;
        to += n;
    }
    return 0;
}

/* ---- a step ---- */

static struct llm_stage_order order_of(const struct llm_stages *p)
{
    return (struct llm_stage_order){p->stage, p->n, p->n_chunks, (int64_t)p->n_passes, p->gpipe};
}

static bool is_done(const struct llm_stages *p)
{
    const struct llm_stage_order order = order_of(p);
    return p->n_passes == 0 || p->at == llm_stages_acts(&order);
}

/* The slot of a pass of a chunk, or, of one that is not under way, a free one. */
static struct slot *slot_of(const struct llm_stages *p, const struct chunk *k, int64_t pass)
{
    struct slot *free = NULL;
    for (size_t i = p->n_slots; i-- > 0;) {
        if (p->slots[i]->chunk == k && p->slots[i]->pass == pass) return p->slots[i];
        if (!p->slots[i]->chunk) free = p->slots[i];
    }
    return free;
}

/* The action at hand. whole NULL: its messages alone. */
static int act(struct llm_stages *p, const struct llm_whole *whole, struct llm_err *e)
{
    const struct llm_stage_order order = order_of(p);
    const struct llm_stage_act at = llm_stages_act(&order, p->at);
    if (at.pass < 0) {
        p->at++;
        return 0;
    }
    const struct llm_trainer_pass *a = p->pass = &p->passes[at.pass];
    struct chunk *k = &p->chunks[at.chunk];
    struct slot *s = slot_of(p, k, at.pass);
    struct llm_share *share = &p->t->share;
    const bool empty = rows_of(a) == 0;
    struct llm_err problem;
    int got = 0;
    s->chunk = k;
    s->pass = at.pass;
    s->c->cut = &k->cut;
    llm_share_begin_act(share, k->number, a->number, at.forward);
    if (!empty) got = at.forward ? forward(p, s, whole, e) : backward(p, s, whole, e);
    if (llm_comm_broken(p->comm)) return -1;
    p->at++;
    p->received = p->sent = false;
    p->current = NULL;
    if (!at.forward && got == 0 && whole) llm_share_end_members(share, a->number, k->number);
    if (!at.forward && a->ends_shard && join_tied(p, k, got < 0 ? &problem : e) < 0) got = -1;
    if (llm_share_end_act(share, k->number, at.forward, got < 0 ? &problem : e) < 0) got = -1;
    if (at.forward) return got;
    s->chunk = NULL;
    return got == 0 && whole && a->ends_shard && share->zero < 2 ? llm_share_end(share, a->shard, k->number, e) : got;
}

static void destroy_slot(struct slot *s)
{
    if (s) s->own.grads = (struct llm_arena){0};
    if (s && s->c == &s->own) llm_ctx_release(&s->own);
    if (s) llm_rows_release(&s->part);
    if (s) free(s->idle);
    for (int i = 0; s && i < 2; i++) free(s->loads[i]);
    if (s) free(s->ahead.v);
    free(s);
}

static int add_slot(struct llm_stages *p, struct llm_err *e)
{
    struct llm_trainer *t = p->t;
    if (llm_grow((void **)&p->slots, &p->slots_room, p->n_slots + 1, sizeof *p->slots, e) < 0) return -1;
    struct slot *s = llm_calloc(1, sizeof *s, "stages", e);
    if (!s || !(s->idle = llm_calloc((size_t)(p->tokens * width(p)), sizeof *s->idle, "activations of stages", e))) goto fail;
    if (t->share.cp > 1 && llm_rows_init(&s->part, t->o.batch, t->o.context / t->share.cp, e) < 0) goto fail;
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
        s->c->sequence = t->ctx.sequence;
    }
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
    while (t->share.zero >= 2 && (int64_t)p->n_passes < t->share.rounds) { /* as many as the replica with most, whose messages come with them */
        if (llm_grow((void **)&p->passes, &p->passes_room, p->n_passes + 1, sizeof *p->passes, e) < 0) return -1;
        p->passes[p->n_passes] = (struct llm_trainer_pass){.number = (int64_t)p->n_passes};
        p->n_passes++;
    }
    const struct llm_stage_order order = order_of(p);
    const int64_t slots = p->n_passes > 0 ? llm_stages_flying(&order) : 0;
    while ((int64_t)p->n_slots < slots) {
        if (add_slot(p, e) < 0) return -1;
    }
    return 0;
}

int llm_stages_run(struct llm_trainer *t, const struct llm_whole *whole, struct llm_err *e)
{
    struct llm_stages *p = t->stages;
    while (!is_done(p)) {
        if (act(p, whole, e) < 0) return -1;
    }
    return 0;
}

int llm_stages_finish(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_stages *p = t->stages;
    while (!is_done(p)) {
        if (act(p, NULL, e) < 0) return -1;
    }
    for (size_t i = 0; i < p->n_slots; i++) {
        if (finish(p, &p->slots[i]->ahead, e) < 0) return -1;
        llm_ctx_reset(p->slots[i]->c);
    }
    return finish_letters(p, &p->inputs, e) < 0 ? -1 : finish_letters(p, &p->tables, e);
}

/* ---- an evaluation ---- */

/* Exchanges what the chunk at hand has not, and waits until its output, which lies in the context, is sent. */
static int end_chunk(struct llm_stages *p, struct llm_err *e)
{
    const struct chunk *k = &p->chunks[p->eval_chunk++];
    const int64_t floats = p->eval_tokens * width(p);
    if (k->before >= 0 && !p->received && receive(p, p->comm, k->before, p->eval_x, floats, e) < 0) return -1;
    if (k->after >= 0 && !p->sent && send_ahead(k, p->eval_x, floats, e) < 0) return -1;
    p->received = p->sent = false;
    return finish(p, &p->eval_sent, e);
}

int llm_stages_end_eval(struct llm_trainer *t, struct llm_err *e)
{
    struct llm_stages *p = t->stages;
    if (!p || p->eval_tokens == 0) return 0;
    const int64_t n = p->eval_tokens;
    const bool last = p->stage == p->n - 1;
    while (p->eval_chunk < p->n_chunks) {
        if (end_chunk(p, e) < 0) return -1;
    }
    p->eval_tokens = 0;
    p->eval_chunk = 0;
    for (int k = 0; k < p->n - 1 && last; k++) {
        if (post(p->comm, t->share.rank + (k - p->stage) * t->share.tp, t->token_loss, n, false, &p->eval_sent, e) < 0) return -1;
    }
    if (finish(p, &p->eval_sent, e) < 0) return -1;
    return last ? 0 : receive(p, p->comm, t->share.rank + (p->n - 1 - p->stage) * t->share.tp, t->token_loss, n, e);
}

int llm_stages_eval(struct llm_trainer *t, const struct llm_rows *rows, struct llm_err *e)
{
    struct llm_stages *p = t->stages;
    struct llm_err problem;
    int got = 0;
    p->eval_tokens = rows->n_rows * rows->row_len;
    while (p->eval_chunk < p->n_chunks && got == 0) {
        if (p->eval_chunk > 0) llm_ctx_reset(&t->eval_ctx);
        t->eval_ctx.cut = &p->chunks[p->eval_chunk].cut;
        got = t->objective->run(&t->eval_ctx, &t->task, rows, 1, t->token_loss, e);
        if (got == 0 && p->eval_chunk < p->n_chunks - 1) got = end_chunk(p, e);
        else if (got == 0) break;
    }
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
    const size_t n = p->n_slots, inputs = p->inputs.n;
    for (size_t i = 0; i < n + inputs + p->tables.n; i++) {
        struct message *m = i < n ? &p->slots[i]->ahead : i < n + inputs ? &p->inputs.v[i - n].sent : &p->tables.v[i - n - inputs].sent;
        if (m->n > 0 && llm_comm_test(p->comm, m->v, m->n, &ignored) == 1) m->n = 0;
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

static int make_chunks(struct llm_stages *p, struct llm_err *e)
{
    const struct llm_share *s = &p->t->share;
    const int to_last = (p->n - 1) * s->tp; /* ranks from the first stage to the last one */
    if (!(p->chunks = llm_calloc((size_t)p->n_chunks, sizeof *p->chunks, "stages", e))) return -1;
    for (int v = 0; v < p->n_chunks; v++) {
        const int number = v * p->n + p->stage, last = number == p->n * p->n_chunks - 1;
        p->chunks[v] = (struct chunk){.p = p, .number = number, .before = p->stage > 0 ? s->rank - s->tp : v > 0 ? s->rank + to_last : -1,
                                      .after = p->stage < p->n - 1 ? s->rank + s->tp : last ? -1 : s->rank - to_last};
        p->chunks[v].cut = (struct llm_stage){.model = p->t->model, .first = s->first_layer[number], .end = s->first_layer[number + 1],
                                              .last = last, .input = input, .output = output};
    }
    return 0;
}

struct llm_stages *llm_stages_create(struct llm_trainer *t, struct llm_err *e)
{
    const struct llm_share *s = &t->share;
    const struct llm_config *c = &t->model->config;
    struct llm_stages *p = llm_calloc(1, sizeof *p, "stages", e);
    if (!p) return NULL;
    *p = (struct llm_stages){.t = t, .stage = s->stage, .n = s->pp, .n_chunks = s->vp, .gpipe = t->layout.gpipe};
    p->tokens = t->o.batch * t->o.context / s->cp;
    p->experts = c->num_experts;
    for (size_t i = 0; i < s->n_params; i++) {
        if (s->params[i].copies == LLM_SHARE_TIED && llm_share_has(s, i)) p->tied += (int64_t)llm_share_gradient_floats(s, i);
    }
    if (!(p->comm = llm_comm_twin(t->comm, e)) || !(p->back = llm_comm_twin(t->comm, e)) || !(p->heads = llm_comm_twin(t->comm, e))
        || make_chunks(p, e) < 0
        || !(p->eval_x = llm_calloc((size_t)(t->eval_rows.room_tokens * width(p)), sizeof *p->eval_x, "activations of stages", e))) {
        llm_stages_destroy(p);
        return NULL;
    }
    llm_pool_set_poll(poll, p);
    return p;
}

void llm_stages_destroy(struct llm_stages *p)
{
    if (!p) return;
    llm_pool_set_poll(NULL, NULL);
    for (size_t i = 0; i < p->n_slots; i++) destroy_slot(p->slots[i]);
    release_letters(&p->inputs);
    release_letters(&p->tables);
    free(p->slots);
    free(p->chunks);
    free(p->passes);
    free(p->eval_x);
    free(p->eval_sent.v);
    llm_comm_destroy(p->comm);
    llm_comm_destroy(p->back);
    llm_comm_destroy(p->heads);
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
