#include "train/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "cpu/pool.h"
#include "io/planes.h"
#include "io/zstd_frames.h"
#include "model/weights/lora.h"
#include "model/weights/slices.h"
#include "train/objective.h"
#include "train/plan_sent.h"
#include "train/shards.h"
#include "train/stages.h"

/* Moments, averages, further accumulators and packed forms of all parameters, and scratch of products and updates. */
static void add_state(const struct llm_trainer *t, struct llm_plan_sample *s)
{
    for (size_t i = 0; i < t->n_params; i++) {
        double bytes = 4 * (double)llm_param_count(t->params[i].p);
        s->moments += bytes * ((t->params[i].m != NULL) + (t->params[i].v != NULL));
        s->forms += (double)t->params[i].p->weight.packed_bytes;
        s->averages += t->params[i].ema ? bytes : 0;
        for (int u = 0; u < t->params[i].p->n_grad_uses; u++) s->uses += llm_param_use(t->params[i].p, u) ? bytes : 0;
    }
    s->scratch = 4 * (double)t->work_floats + (double)llm_scratch_bytes();
}

enum { PASSES = 2 };

/* What the options train, of the whole model. */
struct trained {
    double params, active, frozen_bytes, moments, frames, in_layers, largest;
    double expert_moments;      /* of the experts that ranks can divide */
    double frame;               /* bytes of the largest frame of a checkpoint */
    struct llm_frames_room room; /* of the frames of a checkpoint */
    double sliced, experts;     /* that ranks can divide: slices, of all members; experts */
    double unsliced;            /* that are in layers, and that members have whole */
    bool all, embedding;
};

/* Adds the tensors that a checkpoint has of a parameter after the model's own: moments and averages, all in F32. */
static void add_state_frames(struct trained *n, double elements, const struct llm_optim *optim, const struct llm_train_options *o)
{
    const int tensors = (optim->m != NULL) + (optim->v != NULL) + (o->ema > 0);
    for (int i = 0; i < tensors; i++) llm_frames_room_add(&n->room, 4 * elements, false);
}

/* With an adapter: its pairs, and what it stores whole. */
static void count_adapter(struct trained *n, const struct llm_model *m, const struct llm_train_options *o)
{
    const struct llm_param hidden = {.role = LLM_ROLE_HIDDEN};
    const struct llm_optim *optim = llm_optim_of(llm_optims[o->optimizer], &hidden);
    n->params = llm_lora_elements(m->lora);
    n->moments = 4 * n->params * ((optim->m != NULL) + (optim->v != NULL));
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param *p = &m->params[i];
        const struct llm_lora_pair *pair = llm_lora_pair_of(m->lora, p);
        double whole = llm_lora_is_whole(m->lora, p) ? (double)llm_param_count(p) : 0, active = p->spec->active > 0 ? p->spec->active : 1;
        if (whole == 0) n->frozen_bytes += (double)llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p));
        n->active += active * (whole + (pair ? llm_lora_pair_elements(pair) : 0));
        n->frames += (whole > 0) + 2 * (pair != NULL);
        const double written[] = {whole, pair ? (double)llm_param_count(&pair->a) : 0, pair ? (double)llm_param_count(&pair->b) : 0};
        for (size_t k = 0; k < sizeof written / sizeof *written; k++) {
            llm_frames_room_add(&n->room, 4 * written[k], false);
            add_state_frames(n, written[k], optim, o);
        }
        n->embedding |= whole > 0 && p->spec->stem == LLM_STEM_EMBED;
    }
}

/* In a checkpoint's order, that of types, then of names: the model's tensors in F32, averages, moments and masters of all, what it has in BF16. */
static void count_frames(struct trained *n, const struct llm_declare *d, const struct llm_train_options *o)
{
    enum { FLOATS, AVERAGE, M, MASTER, V, ROUNDED, KINDS };
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t i = 0; i < d->n; i++) {
            const struct llm_param_spec *s = &d->specs[i];
            const struct llm_param p = {.role = s->role};
            const struct llm_optim *optim = llm_optim_of(llm_optims[o->optimizer], &p);
            const bool trains = llm_trains(o, s) && !s->running, rounds = trains && o->precision == LLM_COMPUTE_BF16 && s->n_dims > 1;
            const bool has[KINDS] = {!rounds, trains && o->ema > 0, trains && optim->m, rounds, trains && optim->v, rounds};
            const bool given = kind == ROUNDED || ((kind == FLOATS || kind == MASTER) && s->transposed);
            if (has[kind]) llm_frames_room_add(&n->room, (kind == ROUNDED ? 2 : 4) * (double)s->shape[0] * (double)s->shape[1], given);
        }
    }
}

/* k NULL: of all stages; else of what one has. Of matrices that are cut, what one of `members` ranks has. */
static int count_trained(struct trained *n, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *o,
                         const struct llm_stage_chunks *k, int64_t members, struct llm_err *e)
{
    struct llm_declare d;
    struct llm_decoder *layout;
    *n = (struct trained){.all = o->train.n == 0 && o->freeze.n == 0};
    if (m && m->lora) {
        n->all = false;
        count_adapter(n, m, o);
        return 0;
    }
    if (llm_model_declare(c, &d, &layout, e) < 0) return -1;
    int got = llm_trains_check(o, d.specs, d.n, e);
    double group = 0;
    if (got == 0) count_frames(n, &d, o);
    for (size_t i = 0; got == 0 && i < d.n; i++) {
        const struct llm_param_spec *s = &d.specs[i];
        const struct llm_param p = {.role = s->role};
        const struct llm_optim *optim = llm_optim_of(llm_optims[o->optimizer], &p);
        double elements = (double)s->shape[0] * (double)s->shape[1];
        n->frames += ceil(4 * elements / (double)LLM_FRAME_BYTES);
        if (4 * elements > n->frame) n->frame = 4 * elements < (double)LLM_FRAME_BYTES ? 4 * elements : (double)LLM_FRAME_BYTES;
        if (llm_param_spec_sliced(s)) {
            n->sliced += elements;
            elements /= (double)members;
        }
        const bool in_layer = s->stack == LLM_STACK_MAIN && s->layer >= 0 && s->layer < c->num_hidden_layers && s->sharers == 0;
        if (i > 0 && s->layer != d.specs[i - 1].layer && s->layer % llm_share_group_layers(c, o) == 0) group = 0;
        if (llm_trains(o, s) && k && !llm_stage_has_param(k, s)) continue;
        if (llm_trains(o, s)) {
            n->in_layers += in_layer ? elements : 0;
            n->unsliced += in_layer && !llm_param_spec_sliced(s) ? elements : 0;
            group += in_layer ? elements : 0;
            n->largest = group > n->largest ? group : n->largest;
            n->params += elements;
            n->experts += llm_share_divides(s) ? elements : 0;
            n->active += elements * (s->active > 0 ? s->active : 1);
            const double moments = s->running ? 0 : 4 * elements * ((optim->m != NULL) + (optim->v != NULL));
            n->moments += moments;
            n->expert_moments += llm_share_divides(s) ? moments : 0;
            n->embedding |= s->stem == LLM_STEM_EMBED;
        } else {
            n->frozen_bytes += m && i < m->n_params ? (double)llm_dtype_bytes(m->params[i].weight.dtype, (uint64_t)elements) : 4 * elements;
        }
    }
    llm_decoder_destroy(layout, 0);
    llm_declare_release(&d);
    return got;
}

/* Patterns that match nothing in a model of fewer layers are left out there; if they then leave nothing to train, all is trained. */
static void fit_patterns(struct llm_train_options *o, const struct llm_model *m)
{
    struct llm_patterns *const lists[] = {&o->train, &o->freeze};
    bool trains = false;
    for (size_t k = 0; k < 2; k++) {
        size_t kept = 0;
        for (size_t i = 0; i < lists[k]->n; i++) {
            bool matches = false;
            for (size_t j = 0; j < m->n_params; j++) matches |= llm_pattern_any(&lists[k]->v[i], 1, m->params[j].name);
            if (matches) lists[k]->v[kept++] = lists[k]->v[i];
        }
        lists[k]->n = kept;
    }
    for (size_t j = 0; j < m->n_params; j++) trains |= llm_trains(o, m->params[j].spec);
    if (!trains) o->train.n = o->freeze.n = 0;
}

/* What steps are tried of. `rows`: of a pass; `rows_of_step`: of all passes of a step, or of the first PASSES. */
struct subject {
    const struct llm_config *c;
    const struct llm_model *of;
    const struct llm_train_options *o;
    const struct llm_layout *l;
    int64_t rows, rows_of_step;
};

static struct subject subject_of(const struct llm_config *c, const struct llm_model *of, const struct llm_train_options *o,
                                 const struct llm_layout *l)
{
    const int64_t of_shard = llm_shard_rows(o->grad_shards, o->batch * o->accumulate);
    return (struct subject){c, of, o, l, of_shard < o->batch ? of_shard : o->batch, o->batch * (o->accumulate < PASSES ? o->accumulate : PASSES)};
}

/* Trials have no tokenizer, and rows of random tokens: any token masks others, and rows of texts that are filled in are as long as
 * others. */
static void do_without_data(struct llm_config *c, struct llm_train_options *o)
{
    struct llm_train_options plain;
    llm_train_options_default(&plain);
    if (c->mask_token_id < 0) c->mask_token_id = 0;
    if (strcmp(llm_objectives[o->objective]->name, "fim") == 0) o->objective = plain.objective;
}

/* The memory and time of a step of a model of so many layers: of one pass of so many rows, or, of 0 rows, of the run's rows. */
static int try_layers(const struct subject *w, int64_t layers, int64_t rows, struct llm_plan_sample *s, struct llm_err *e)
{
    struct llm_config small = *w->c;
    struct llm_train_options options = *w->o;
    options.outer = LLM_OUTER_NONE; /* replicas take steps as the run without them does */
    options.replicas = options.inner_steps = 0;
    options.outer_lr = options.outer_momentum = -1;
    struct llm_train_data none = {0};
    const int64_t members = llm_layout_members(w->l), ep = llm_layout_experts(w->l);
    struct llm_trainer t = {.layout = {.tp = members, .ep = ep, .cp = llm_layout_rows(w->l), .zero = members > 1 || ep > 1}};
    struct llm_step_report r;
    small.num_hidden_layers = layers;
    do_without_data(&small, &options);
    if (options.checkpoint_every > layers) options.checkpoint_every = layers;
    if (rows > 0) {
        t.keeps_forms = options.accumulate > 1 || options.grad_shards > 1;
        options.batch = rows;
        options.accumulate = options.grad_shards = 1;
    } else if (options.accumulate > PASSES) { /* they repeat: memory is that of two, time is multiplied */
        options.grad_shards = options.grad_shards * PASSES / options.accumulate; /* which divide passes as those of the run do */
        if (options.grad_shards < 1) options.grad_shards = 1;
        options.accumulate = PASSES;
    }
    llm_scratch_release();
    struct llm_model *m = llm_model_create(&small, 1, e);
    if (m) fit_patterns(&options, m);
    if (m && w->of && w->of->lora && llm_lora_mirror(m, w->of, e) < 0) {
        llm_model_destroy(m);
        return -1;
    }
    int got = m ? llm_trainer_init(&t, &options, m, &none, e) : -1;
    llm_option_set_word(&t.task.o, "off-policy", true); /* rows of no policy */
    for (int i = 0; got == 0 && i < (rows > 0 ? 1 : 2); i++) { /* the first touches memory, which counts little where a step takes long */
        got = llm_trainer_step(&t, &r, e);
        if (got == 0) *s = (struct llm_plan_sample){.bytes = r.activation_bytes, .seconds = r.seconds, .shared = (double)t.ctx.shared_arena.peak,
                                           .grads = (double)t.ctx.grads.peak};
    }
    if (got == 0) add_state(&t, s);
    if (m) llm_trainer_release(&t);
    return got;
}

/* ---- steps that take long: from passes of fewer rows ---- */

enum { FEWER = 4 };                         /* the smallest pass that is tried has as many rows as this part of the run's */
static const double LONG = 1e11;            /* FLOPs of a step: about a second. No clock decides, since memory differs by a few bytes */

static int64_t fewer_rows(const struct subject *w) { return w->rows < FEWER ? 1 : w->rows / FEWER; }

/* Whether steps of few layers take long, and memory and time of a pass grow in proportion to its rows. */
static bool is_long(const struct subject *w, int64_t layers)
{
    const struct llm_objective *k = llm_objectives[w->o->objective];
    const int64_t context = w->o->context;
    struct llm_config small = *w->c;
    small.num_hidden_layers = layers;
    if (6 * llm_model_active_params(&small) * (double)(w->rows_of_step * context) < LONG) return false;
    return k->run == llm_objective_run_next && !llm_objective_by_pass(k, w->c) && w->o->batch_tokens == 0 && !w->o->carry_state;
}

/* A straight line through what two passes take: at `rows` rows. */
static double along(double fewer, double more, const struct subject *w, int64_t rows)
{
    const double n = (double)fewer_rows(w), slope = more > fewer ? (more - fewer) / n : 0;
    return fewer + slope * ((double)rows - n);
}

/* The sample of a step of few layers, of which `fewer` is that of a pass of fewer rows: also of one of twice as many. */
static int from_fewer_rows(const struct subject *w, int64_t layers, const struct llm_plan_sample *fewer, struct llm_plan_sample *s, struct llm_err *e)
{
    const int64_t n = fewer_rows(w);
    struct llm_plan_sample more = *fewer;
    *s = *fewer;
    if (w->rows < 2 * n) {
        s->seconds *= (double)w->rows_of_step / (double)n;
        return 0;
    }
    if (try_layers(w, layers, 2 * n, &more, e) < 0) return -1;
    *s = more;
    s->bytes = along(fewer->bytes, more.bytes, w, w->rows);
    s->shared = along(fewer->shared, more.shared, w, w->rows);
    s->grads = along(fewer->grads, more.grads, w, w->rows);
    s->scratch = along(fewer->scratch, more.scratch, w, w->rows);
    s->seconds = along(fewer->seconds, more.seconds, w, w->rows_of_step);
    return 0;
}

/* The sample of more layers, of which `fewer` is that of a pass of fewer rows: further layers take as much as in such a pass for each row. */
static void from_fewer_layers(const struct subject *w, const struct llm_plan_trial *few, const struct llm_plan_sample *fewer,
                              struct llm_plan_sample *s)
{
    const double times = (double)w->rows / (double)fewer_rows(w);
    *s = *fewer;
    s->bytes = few->s.bytes + times * (fewer->bytes - few->fewer.bytes);
    s->shared = few->s.shared + times * (fewer->shared - few->fewer.shared);
    s->grads = few->s.grads + times * (fewer->grads - few->fewer.grads);
    s->seconds = few->s.seconds * fewer->seconds / few->fewer.seconds;
    s->scratch = fmax(few->s.scratch, fewer->scratch);
}

/* few NULL: the sample of few layers; else of more than those of `few`. */
static int try_sample(const struct subject *w, const struct llm_plan_trial *few, struct llm_plan_trial *k, struct llm_err *e)
{
    if (!is_long(w, few ? few->layers : k->layers)) return try_layers(w, k->layers, 0, &k->s, e);
    if (try_layers(w, k->layers, fewer_rows(w), &k->fewer, e) < 0) return -1;
    if (!few) return from_fewer_rows(w, k->layers, &k->fewer, &k->s, e);
    from_fewer_layers(w, few, &k->fewer, &k->s);
    return 0;
}

/* The sample of a model of so many layers, unless it was tried before; zeros without `trials`. few: that of fewer layers; NULL: there is none. */
static int sample_layers(struct llm_plan_trials *trials, const struct subject *w, int64_t layers, const struct llm_plan_trial *few,
                         struct llm_plan_trial *k, struct llm_err *e)
{
    const size_t room = trials ? sizeof trials->v / sizeof *trials->v : 0;
    *k = (struct llm_plan_trial){layers, llm_layout_members(w->l), llm_layout_experts(w->l), llm_layout_rows(w->l), {.bytes = 0}, {.bytes = 0}};
    for (size_t i = 0; trials && i < trials->n; i++) {
        const struct llm_plan_trial *old = &trials->v[i];
        if (old->layers != layers || old->members != k->members || old->experts != k->experts || old->rows != k->rows) continue;
        *k = *old;
        return 0;
    }
    if (!trials) return 0;
    if (try_sample(w, few, k, e) < 0) return -1;
    if (trials->n < room) trials->v[trials->n++] = *k;
    return 0;
}

/* What is measured of the layers of the model, as a straight line: the first `few` take `at`, and each further one `each`. */
struct line { double at, each; };
static double value_at(const struct line *l, int64_t few, double layers) { return l->at + (layers - (double)few) * l->each; }

struct measured { struct line bytes, seconds; double shared, grads, forms; int64_t few; };

/* llm_share_cost of what a rank has, of so many replicas. If they divide experts, each has the weights of its own, and their gradients for each
 * member of its group. */
static struct llm_share_cost cost_of(const struct trained *t, int64_t replicas, const struct llm_layout *l, const struct llm_train_options *o)
{
    const double n = llm_layout_experts(l) > 1 ? t->experts : 0, of_largest = t->in_layers > 0 ? t->largest * n / t->in_layers : 0;
    const struct llm_share_size others = {t->params - n, t->in_layers - n, t->largest - of_largest}, experts = {n, n, of_largest};
    struct llm_share_cost c = llm_share_cost(replicas, l, o, &others);
    if (n > 0) llm_share_add_experts(replicas, l, o, &experts, &c);
    return c;
}

/* What of `moments`, those of all that is trained, one of so many ranks keeps. */
static double own_moments(double moments, const struct trained *t, int64_t ranks, const struct llm_layout *l)
{
    return l->zero > 0 ? moments / (double)ranks : moments - t->expert_moments * (1 - 1 / (double)llm_layout_experts(l));
}

/* A plan of one process, whose gradients are those of lookups alone and whose `other` lacks packed forms and saves, becomes that of the stage that
 * takes most memory. */
static int plan_stages(struct llm_plan *p, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *o,
                       const struct llm_layout *l, const struct measured *of, struct llm_err *e)
{
    const int64_t n = l->pp, ep = llm_layout_experts(l), dp = l->dp > 0 ? l->dp : ep;
    const int64_t rows = o->batch * o->accumulate, shards = llm_shard_rows(dp, o->grad_shards);
    const int64_t context = o->context, own_rows = shards * llm_shard_rows(o->grad_shards, rows);
    const int64_t of_shard = llm_shard_rows(o->grad_shards, rows), passes = shards * ((of_shard + o->batch - 1) / o->batch);
    const int64_t members = llm_layout_members(l), cp = llm_layout_rows(l);
    const double table = c->tie_word_embeddings ? (double)c->vocab_size * (double)c->hidden_size / (double)members : 0, all = p->trained;
    const double states = 4 * (double)(o->batch * context * c->hidden_size / cp), own = (double)(own_rows * context * c->hidden_size / cp);
    const double parts = (double)(o->seq_parts / cp);
    const struct llm_optim *of_table = llm_optim_of(llm_optims[o->optimizer], &(struct llm_param){.role = LLM_ROLE_TABLE});
    int64_t first[LLM_PLAN_MAX_STAGES + 1];
    struct llm_plan most = {.total = -1};
    double slowest = 0;
    const int64_t vp = llm_layout_chunks(l);
    if (llm_stages_cut(c, context, n, vp, first, e) < 0) return -1;
    p->n_stages = n;
    for (int64_t k = 0; k < n; k++) {
        const struct llm_stage_chunks stage = {k, n, n * vp, first};
        const bool last = k == n - 1;
        const struct llm_stage_order order = {k, n, vp, passes, l->gpipe};
        const int64_t flying = llm_stages_flying(&order); /* passes of chunks */
        const double waiting = vp > 1 ? (double)(shards < flying ? shards : flying) : 1; /* gradients of the head that may be on their way */
        const double copy = last ? table : 0, sends = (double)(2 * vp - (k == 0) - last); /* chunks ahead and back */
        double layers = 0;
        struct trained t;
        for (int64_t i = 0; i < c->num_hidden_layers; i++) layers += llm_stage_has_layer(&stage, i);
        if (count_trained(&t, c, m, o, &stage, members, e) < 0) return -1;
        const struct llm_share_cost shared = cost_of(&t, dp * cp, l, o);
        double sent;
        if (llm_sent_of_params(&sent, c, m, o, l, &stage, dp * cp, e) < 0) return -1;
        const double elsewhere = all - t.params + t.experts * (1 - 1 / (double)ep); /* of other stages, or experts of other ranks */
        struct llm_plan s = *p;
        s.weights = shared.weights + t.frozen_bytes + 4 * copy;
        s.gradients = shared.gradients + (k == 0 ? p->gradients : 0) + (1 + waiting) * 4 * copy * parts;
        s.moments = own_moments(t.moments, &t, dp * cp, l) + (l->zero == 0 ? 4 * copy * ((of_table->m != NULL) + (of_table->v != NULL)) : 0);
        const double outside = value_at(&of->bytes, of->few, 0) - of->shared - of->grads; /* of layers */
        s.activations = (double)flying * (layers / (double)vp * of->bytes.each + of->shared + 2 * states) + of->grads;
        s.activations += last && outside > 0 ? outside : 0;
        const double formed = l->zero == 3 ? t.params - t.in_layers : t.params; /* weights that come and go have no packed forms */
        const bool rounds = k == 0 && dp * cp == 1 && llm_share_rounds(l, o, m && m->lora); /* the table, for the last stage */
        s.other = p->other + shared.staging + shared.rounded + (rounds ? 2 * table : 0) + of->forms * (double)members * formed / all;
        const double collected = k == 0 ? 4 * (elsewhere + t.params - formed) : 0;
        const double saving = collected + llm_frames_memory(&t.room);
        s.other += saving > s.activations ? saving - s.activations : 0;
        s.nodes = dp * cp > 1 ? (double)shared.nodes : 0;
        s.ahead = shared.ahead;
        s.behind = shared.behind * (double)shared.nodes;
        s.sent = sent + 4 * own * sends + 4 * copy * (double)shards * parts;
        if (cp > 1) s.sent += llm_sent_by_rows(c, o, l, own / (double)c->hidden_size, layers);
        if (members > 1) s.sent += llm_sent_by_member(c, o, members, own / (double)c->hidden_size, layers, k == 0, last);
        if (ep > 1) s.sent += llm_sent_to_experts(c, o, l, llm_stage_mixtures(c, &stage), own / (double)c->hidden_size);
        s.total = s.weights + s.gradients + s.moments + s.averages + s.activations + s.other;
        p->stages[k].layers = (int64_t)layers;
        p->stages[k].bytes = s.total;
        const double seconds = layers * of->seconds.each + (last ? value_at(&of->seconds, of->few, 0) : 0);
        slowest = seconds > slowest ? seconds : slowest;
        if (s.total > most.total) most = s;
    }
    memcpy(most.stages, p->stages, sizeof most.stages);
    *p = most;
    p->step_seconds = slowest * ((double)passes + (double)(n - 1) / (double)vp) / (double)passes;
    return 0;
}

int llm_plan_make(struct llm_plan *p, const struct llm_config *c, const struct llm_model *m, const struct llm_train_options *given,
                  const struct llm_layout *l, struct llm_plan_trials *trials, struct llm_err *e)
{
    const bool cut = llm_layout_stages(l) > 1;
    const int64_t members = llm_layout_members(l);
    const int64_t ep = llm_layout_experts(l), replicas = l->dp > 0 ? l->dp : ep, ranks = cut ? 1 : replicas; /* stage by stage below */
    const int64_t cp = llm_layout_rows(l);
    const double program = l->dp > 1 || ep > 1 || members > 1 || cp > 1 || cut ? 24e6 : 16e6; /* with an MPI library */
    struct llm_train_options placed = *given, rows_of;
    const struct llm_train_options *const o = &placed;
    if (llm_train_options_resolve(&placed, c, e) < 0) return -1;
    rows_of = placed; /* as a run has it */
    placed.batch_tokens = 0;
    struct llm_plan_trial first, second;
    struct llm_plan_sample one, two;
    struct llm_cost_row rows[32];
    double tokens = (double)(o->batch * o->accumulate) * (double)o->context;
    double of_shard = tokens / (double)(o->batch * o->accumulate) * (double)llm_shard_rows(o->grad_shards, o->batch * o->accumulate);
    double looked_up = 4 * (double)c->hidden_size * (of_shard < (double)c->vocab_size ? of_shard : (double)c->vocab_size);
    if (llm_trainer_check(&rows_of, c, m && m->lora, l, replicas, e) < 0) return -1;
    const int64_t chunks = cut ? l->pp * llm_layout_chunks(l) : 1;
    if (chunks > LLM_PLAN_MAX_STAGES) {
        const char *what = llm_layout_chunks(l) > 1 ? "pp × vp" : "pp";
        return llm_fail(e, LLM_EX_USAGE, "--plan --shard: expected at most %s=%d, found %s=%lld", what, LLM_PLAN_MAX_STAGES, what, (long long)chunks);
    }
    int64_t context = o->context, every = o->checkpoint_every > 0 ? o->checkpoint_every : 1;
    double n = llm_model_params(c), attention = 0, collected = 0, stored_moments = 0;
    struct trained trained, whole;
    int64_t few = every, more = 2 * every;
    if (c->num_hidden_layers <= more && cut && c->num_hidden_layers > 1) {
        more = c->num_hidden_layers;
        few = more / 2;
    } else if (c->num_hidden_layers <= more) few = c->num_hidden_layers; /* no need to go on from smaller models */
    if (count_trained(&whole, c, m, o, NULL, 1, e) < 0 || count_trained(&trained, c, m, o, NULL, members, e) < 0) return -1;
    const struct subject tried = subject_of(c, m, o, l);
    if (sample_layers(trials, &tried, few, NULL, &first, e) < 0) return -1;
    second = first;
    if (few < c->num_hidden_layers && sample_layers(trials, &tried, more, &first, &second, e) < 0) return -1;
    one = first.s;
    two = second.s;
    size_t n_rows = llm_model_cost(c, context / 2, rows, sizeof rows / sizeof *rows); /* a causal token sees half on average */
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].unit == LLM_UNIT_ATTENTION) attention = rows[i].flops_forward - 2 * rows[i].params;
    }
    double steps = few == c->num_hidden_layers ? 0 : (double)(c->num_hidden_layers - few) / (double)(more - few);
    const struct llm_share_cost shared = cost_of(&trained, ranks * cp, l, o);
    const double of_table = (double)c->hidden_size * (double)c->vocab_size / (double)members;
    if (o->seq_parts > cp) looked_up = 4 * (double)(o->seq_parts / cp) * of_table; /* all rows of each part */
    *p = (struct llm_plan){.params = n,
                           .trained = whole.params,
                           .weights = shared.weights + trained.frozen_bytes,
                           .gradients = shared.gradients + (c->tie_word_embeddings && trained.embedding ? looked_up : 0) + two.uses,
                           .moments = trained.all && ep == 1 ? one.moments + steps * (two.moments - one.moments) : trained.moments,
                           .averages = o->ema > 0 ? 4 * trained.params : 0,
                           .tokens_per_step = tokens};
    if (ranks * cp > 1) {
        const int64_t parts = llm_train_options_parts(o);
        const double own = (double)llm_shard_rows(ranks, parts) / (double)parts; /* of a step's shards, at most */
        p->ranks = (double)(ranks * cp);
        p->nodes = (double)shared.nodes;
        if (llm_sent_of_params(&p->sent, c, m, o, l, NULL, ranks * cp, e) < 0) return -1;
        p->ahead = shared.ahead;
        p->behind = shared.behind * (double)shared.nodes;
        stored_moments = p->moments;
        if (l->zero == 3) collected = 4 * trained.in_layers; /* by the first rank, while it saves */
        p->moments = own_moments(p->moments, &trained, ranks * cp, l);
        p->other += shared.staging + shared.rounded;
        one.seconds *= own;
        two.seconds *= own;
    }
    const double of_replica = tokens * (double)llm_shard_rows(ranks, o->grad_shards) / (double)o->grad_shards;
    if (cp > 1) p->sent += llm_sent_by_rows(c, o, l, of_replica / (double)cp, (double)c->num_hidden_layers);
    if (ep > 1) {
        if (l->zero < 3) collected = 4 * trained.experts * (1 - 1 / (double)ep);
        p->sent += llm_sent_to_experts(c, o, l, llm_stage_mixtures(c, NULL), of_replica / (double)cp);
    }
    if (o->tensor_parts > 1) collected = 4 * (whole.sliced + (l->zero == 3 ? whole.unsliced : 0)); /* while the model is described */
    if (members > 1 && !cut) {
        const int64_t parts = llm_train_options_parts(o);
        const double own = tokens * (double)llm_shard_rows(ranks, parts) / (double)parts; /* a rank's tokens */
        p->ranks = (double)(ranks * cp * members);
        p->nodes = ranks * cp > 1 ? p->nodes : 0;
        p->sent += llm_sent_by_member(c, o, members, own / (double)cp, (double)c->num_hidden_layers, true, true);
    }
    if (o->outer != LLM_OUTER_NONE) {
        const double own = (double)llm_shard_rows(ranks, o->replicas); /* replicas of a rank, at most */
        p->moments = own * (p->moments + 4 * trained.params) + 4 * trained.params; /* with weights of their own, and the outer momentum */
        p->sent /= (double)o->inner_steps;
    }
    p->flops_per_step = p->tokens_per_step * (4 * llm_model_active_params(c) + 2 * whole.active + 3 * attention);
    const double forward = p->tokens_per_step * (2 * llm_model_active_params(c) + attention) / p->flops_per_step;
    if (llm_plan_add_work(p, c, o, l, forward, e) < 0) return -1;
    double each = two.seconds > one.seconds ? two.seconds - one.seconds : 0; /* of a disturbed clock, not less than nothing */
    const double passes = (double)o->accumulate / (double)(o->accumulate < PASSES ? o->accumulate : PASSES);
    if (cut) {
        const double layers = (double)(more - few);
        const struct measured of = {.bytes = {one.bytes, (two.bytes - one.bytes) / layers}, .seconds = {passes * one.seconds, passes * each / layers},
                                    .shared = two.shared, .grads = two.grads, .forms = one.forms + steps * (two.forms - one.forms), .few = few};
        p->gradients -= shared.gradients;
        p->other += program + two.scratch + 20.0 * (double)(o->batch * o->accumulate * context);
        p->ranks = (double)(replicas * cp * llm_layout_lanes(l));
        if (plan_stages(p, c, m, o, l, &of, e) < 0) return -1;
        p->seconds = p->step_seconds * (double)o->steps;
        return 0;
    }
    p->activations = one.bytes + steps * (two.bytes - one.bytes);
    /* Weights that come and go have no packed forms. */
    const double formed = l->zero == 3 && ranks * cp > 1 ? 1 - trained.in_layers / trained.params : 1;
    p->other += formed * (one.forms + steps * (two.forms - one.forms)) + program + two.scratch
              + 20.0 * (double)(o->batch * o->accumulate * context);
    /* A save takes the memory of the activations, and more if they have less. */
    const double stored = p->weights + (stored_moments > 0 ? stored_moments : p->moments) + p->averages;
    const double frames = stored * whole.frames / (4 * whole.params + whole.frozen_bytes); /* those of ranks are as long as those of one process */
    /* With zero=1 frames of experts, which are most of the file, are short and come from few ranks. */
    const bool joined = members > 1 || (ranks * cp > 1 && l->zero > (ep > 1));
    const double saving = collected + (joined ? llm_frames_memory_joined(stored, frames, whole.frame) : llm_frames_memory(&whole.room));
    p->other += fmax(saving - p->activations, shared.passing);
    p->total = p->weights + p->gradients + p->moments + p->averages + p->activations + p->other;
    p->step_seconds = (one.seconds + steps * each) * passes;
    p->seconds = p->step_seconds * (double)o->steps;
    return 0;
}

int llm_plan_print(const struct llm_plan *p, enum llm_table_form form, struct llm_err *e)
{
    enum { COUNT, TIME, RANKS }; /* RANKS: counts that one process has no need of */
    const struct { const char *key; double v; int kind; } rows[] = {
        {"parameters", p->params, COUNT}, {"trained_parameters", p->trained, COUNT}, {"weight_bytes", p->weights, COUNT},
        {"gradient_bytes", p->gradients, COUNT},
        {"moment_bytes", p->moments, COUNT}, {"average_bytes", p->averages, COUNT},
        {"activation_bytes", p->activations, COUNT}, {"other_bytes", p->other, COUNT}, {"total_bytes", p->total, COUNT},
        {"ranks", p->ranks, RANKS}, {"rank_nodes", p->nodes, RANKS}, {"rank_sent_bytes", p->sent, RANKS},
        {"tokens_per_step", p->tokens_per_step, COUNT}, {"flops_per_step", p->flops_per_step, COUNT}, {"step_seconds", p->step_seconds, TIME},
        {"seconds", p->seconds, TIME}, {"peak_flops_per_second", p->peak, COUNT},
    };
    const char *columns[sizeof rows / sizeof *rows + 2 * LLM_PLAN_MAX_STAGES + 1] = {NULL};
    char names[2 * LLM_PLAN_MAX_STAGES][48];
    struct llm_table t, *tables[] = {&t};
    size_t n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].kind != RANKS || p->ranks > 0) columns[n++] = rows[i].key;
    }
    for (int64_t k = 0; k < 2 * p->n_stages; k++) {
        snprintf(names[k], sizeof *names, "stage_%lld_%s", (long long)k / 2, k % 2 ? "total_bytes" : "layers");
        columns[n++] = names[k];
    }
    llm_table_init(&t, columns);
    t.record = t.no_heading = t.as_shown = t.spaced = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].kind == RANKS && p->ranks == 0) continue;
        llm_table_printed(&t, rows[i].v, LLM_NUMBER_FIXED, rows[i].kind == TIME && rows[i].v < 1e6 ? 6 : 0);
    }
    for (int64_t k = 0; k < p->n_stages; k++) {
        llm_table_count(&t, (double)p->stages[k].layers);
        llm_table_printed(&t, p->stages[k].bytes, LLM_NUMBER_FIXED, 0);
    }
    return llm_tables_print(NULL, form, tables, 1, e);
}
