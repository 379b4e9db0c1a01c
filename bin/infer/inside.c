/* What looks into a pass or changes it: --export, --lens; --steer, --patch, --ablate and --splice are editors that any way of working runs with. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/pattern.h"
#include "base/utf8.h"
#include "bin/infer/inside.h"
#include "cpu/pool.h"
#include "infer/lens.h"
#include "infer/score.h"
#include "measure/heatmap.h"
#include "model/forward/forward.h"
#include "token/label.h"

enum { BLOCK = 512 /* tokens that are read before their values are written */, LENS_ROWS = 16 };

int inside_attach(struct session *s, struct llm_err *e)
{
    const struct args *a = s->a;
    if (a->steer.n + a->patch.n + a->ablate.n + a->splice.n == 0) return 0;
    if (!llm_predictor_of(s->model)->has_states) return llm_fail(e, EX_DATAERR, "%s: expected a network, found an n-gram model", a->model);
    for (size_t i = 0; i < a->ablate.n; i++) {
        if (llm_editors_ablate(&s->editors, a->ablate.v[i], s->model, e) < 0) return -1;
    }
    for (size_t i = 0; i < a->patch.n; i++) {
        if (llm_editors_patch(&s->editors, a->patch.v[i], s->model, e) < 0) return -1;
    }
    for (size_t i = 0; i < a->splice.n; i++) {
        if (llm_editors_splice(&s->editors, a->splice.v[i], s->model, s->engine.ctx.compute, e) < 0) return llm_in(e, "--splice");
    }
    for (size_t i = 0; i < a->steer.n; i++) {
        if (llm_editors_steer(&s->editors, a->steer.v[i], s->model, e) < 0) return -1;
    }
    s->watch = (struct llm_watch){.v = s->editors.v, .n = s->editors.n};
    s->engine.ctx.watch = &s->watch;
    return 0;
}

int steer_take(const struct session *s, const json_t *object, float **strengths, struct llm_err *e)
{
    const json_t *given = json_object_get(object, "steer"), *v;
    size_t i;
    *strengths = NULL;
    if (!given || (json_is_null(given) && s->a->steer.n == 0)) return 0;
    if (s->a->steer.n == 0) return llm_fail(e, EX_DATAERR, "\"steer\": expected --steer, which loads what lines may name");
    if (s->begin.n > 0) return llm_fail(e, EX_DATAERR, "\"steer\": expected no --kv-in, which has been made with the directions of --steer");
    *strengths = llm_calloc(s->editors.n, sizeof **strengths, "a line", e);
    if (!*strengths) return -1;
    json_t *list = json_is_array(given) ? json_incref((json_t *)(uintptr_t)given) : json_is_null(given) ? json_array() : json_pack("[O]", given);
    int status = list ? 0 : llm_no_memory(e, "a line");
    json_array_foreach(list, i, v) {
        if (status == 0 && !json_is_string(v)) status = llm_fail(e, EX_DATAERR, "expected a string or a list of strings");
        if (status == 0) status = llm_editors_strengths(&s->editors, json_string_value(v), *strengths, e);
    }
    json_decref(list);
    return status < 0 ? llm_in(e, "\"steer\"") : 0;
}

int inside_whole(const struct session *s, int64_t n, struct llm_err *e)
{
    if (s->a->patch.n == 0 || n <= s->engine.context) return 0;
    return llm_fail(e, EX_DATAERR, "--patch: expected at most %" PRId64 " tokens (the context), found %" PRId64
                    ": a longer text is read in windows, where tokens do not have the positions of the file", s->engine.context, n);
}

void inside_release(struct session *s)
{
    llm_editors_release(&s->editors);
}

/* ---- reading a prompt with observers ---- */

int look_begin(struct look *l, const char *const *places, size_t n, struct llm_err *e)
{
    struct session *s = l->s;
    size_t editors = s->editors.n;
    bool together = s->model->config.prefix_lm || s->model->config.bidirectional;
    int64_t room = together || l->n < BLOCK ? l->n : BLOCK;
    if (!llm_predictor_of(s->model)->has_states) return llm_fail(e, EX_DATAERR, "%s: expected a network, found an n-gram model", s->a->model);
    if (llm_taking_begin(&l->taking, &s->model->config, places, n, room, e) < 0) return llm_in(e, "--%s", l->option);
    l->picked = llm_alloc((size_t)room, sizeof *l->picked, "tokens", e);
    l->watchers = llm_alloc(editors + n, sizeof *l->watchers, "observers", e);
    if (!l->picked || !l->watchers) return -1;
    if (editors > 0) memcpy(l->watchers, s->editors.v, editors * sizeof *l->watchers);
    for (size_t i = 0; i < n; i++) l->watchers[editors + i] = llm_taking_watcher(&l->taking, i);
    s->watch = (struct llm_watch){.v = l->watchers, .n = editors + n};
    s->engine.ctx.watch = &s->watch;
    return 0;
}

void look_end(struct look *l)
{
    l->s->engine.ctx.watch = NULL;
    llm_taking_release(&l->taking);
    free(l->watchers);
    free(l->picked);
}

/* Whether --which-tokens selects token i of the prompt. */
static bool selected(const struct look *l, int64_t i)
{
    const char *which = l->s->a->which_tokens;
    char text[256];
    size_t n = 0;
    if (!which || strcmp(which, "all") == 0) return true;
    if (strcmp(which, "last") == 0) return i == l->n - 1;
    const struct llm_tokenizer *t = l->s->model->tokenizer;
    const char *piece = t && l->ids[i] < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, l->ids[i], &n) : NULL;
    if (!piece || n >= sizeof text) return false;
    memcpy(text, piece, n);
    text[n] = 0;
    return llm_pattern_any(&which, 1, text);
}

/* A visitor that does nothing: prefill computes logits only if it has a visitor, and here observers read them. */
static int pass_by(void *arg, const struct llm_span *s, struct llm_err *e)
{
    (void)arg, (void)s, (void)e;
    return 0;
}

/* Reads the tokens of a window block by block; `use` sees the values of those from p->skip on. 0, 1 when a signal was caught, -1. */
static int read_window(struct look *l, const struct llm_score_part *p, bool head, bool *found,
                       int (*use)(struct look *l, int64_t from, void *arg, struct llm_err *e), void *arg, struct llm_err *e)
{
    struct session *s = l->s;
    struct llm_kv kv;
    llm_kv_init(&kv, &s->engine.pool);
    int status = llm_kv_fork(&kv, &s->begin, e);
    l->window = p->at;
    for (int64_t at = 0, step; at < p->n && status == 0; at += step) {
        step = p->n - at < l->taking.room ? p->n - at : l->taking.room;
        llm_taking_at(&l->taking, l->base + at, step);
        status = llm_engine_prefill(&s->engine, &kv, l->ids + p->at + at, step, s->model->config.prefix_lm && kv.n == 0, head,
                                    head ? pass_by : NULL, NULL, e);
        l->n_picked = 0;
        for (int64_t i = 0; i < step; i++) {
            if (at + i >= p->skip && selected(l, p->at + at + i)) l->picked[l->n_picked++] = i;
        }
        *found |= l->n_picked > 0;
        if (status == 0 && l->n_picked > 0) status = use(l, p->at + at, arg, e);
    }
    llm_kv_release(&kv);
    return status;
}

/* Reads the prompt block by block, in windows if it is longer than the context; `use` sees each block's values. 0, 1 when a signal was caught, -1. */
int look_read(struct look *l, int (*use)(struct look *l, int64_t from, void *arg, struct llm_err *e), void *arg, struct llm_err *e)
{
    struct session *s = l->s;
    bool head = llm_taking_wants(&l->taking, LLM_PLACE_LOGITS) || llm_taking_wants(&l->taking, LLM_PLACE_HEAD_INPUT);
    bool found = false;
    struct llm_score_part p = {0};
    int status = l->base > 0 ? 0 : inside_whole(s, l->n, e); /* after a cache there are no windows */
    while (status == 0 && llm_score_next(l->base > 0 ? l->n : s->engine.context, l->n, &p)) {
        if (p.at == 0) p.skip = 0;
        status = read_window(l, &p, head, &found, use, arg, e);
    }
    if (status == 0 && l->n == 0) return llm_fail(e, EX_DATAERR, "the prompt is empty: there is no token to show");
    if (status == 0 && !found) {
        return llm_fail(e, EX_DATAERR, "--which-tokens: expected tokens like '%s' in the prompt, found none", s->a->which_tokens);
    }
    return status;
}

/* ---- --export ---- */

struct export {
    struct llm_writer *w;
    json_t *meta;
};

static int write_block(struct look *l, int64_t from, void *arg, struct llm_err *e)
{
    struct export *x = arg;
    for (int64_t at = 0; at < l->n_picked; at += LLM_SPAN_MAX) {
        int64_t n = l->n_picked - at < LLM_SPAN_MAX ? l->n_picked - at : LLM_SPAN_MAX;
        if (llm_taking_write(&l->taking, x->w, x->meta, l->ids + from, l->window, l->picked + at, n, e) < 0) return -1;
    }
    return 0;
}

int run_export(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct look l = {.s = s, .ids = ids, .n = (int64_t)n, .base = s->begin.n, .option = "export"};
    struct export x = {0};
    int status = look_begin(&l, s->a->export.v, s->a->export.n, e);
    if (status == 0) status = llm_model_fingerprint(s->model, e);
    if (status == 0 && !(x.meta = json_pack("{s:s}", "llm.fingerprint", s->model->fingerprint))) status = llm_no_memory(e, "a header");
    if (status == 0 && !(x.w = llm_writer_create(s->out, e))) status = -1;
    if (status == 0) status = look_read(&l, write_block, &x, e);
    if (status == 0) status = llm_writer_end(x.w, e);
    llm_writer_destroy(x.w);
    json_decref(x.meta);
    look_end(&l);
    return status;
}

/* ---- --lens ---- */

struct reading {
    int32_t top; /* -1: none, the logits are no numbers */
    double p, entropy, kl;
};
struct lens {
    const struct look *l;
    struct llm_lens tuned;     /* --lens tuned:FILE; without parameters: the logit lens */
    int64_t layers, vocab;
    double *last;              /* [LENS_ROWS, vocab] log-probabilities after the last layer */
    float *logits;             /* [rows, vocab] of the current layer */
    float *picture;            /* with --png: [tokens, layers] divergences from the last layer of the tokens so far */
    int32_t *columns;          /* [tokens] their numbers in the prompt */
    size_t n, picture_room, columns_room;
    struct reading *v;         /* [rows] of the current layer */
};

/* Computes log softmax of a row and the row's reading. `to`: takes the log-probabilities of the last layer; NULL: the row is compared with `last`. */
static void read_row(const struct lens *x, const float *logits, const double *last, double *to, struct reading *r)
{
    float max = -INFINITY;
    double sum = 0;
    *r = (struct reading){0};
    for (int64_t i = 0; i < x->vocab; i++) {
        if (!(logits[i] > max)) continue;
        max = logits[i];
        r->top = (int32_t)i;
    }
    for (int64_t i = 0; i < x->vocab; i++) sum += exp((double)logits[i] - max);
    sum = log(sum) + max;
    r->p = exp(logits[r->top] - sum);
    for (int64_t i = 0; i < x->vocab; i++) {
        double log_p = logits[i] - sum;
        if (log_p > -700) r->entropy -= exp(log_p) * log_p;
        if (to) to[i] = log_p;
        else if (last[i] > -700) r->kl += exp(last[i]) * (last[i] - log_p);
    }
    /* A NaN among the logits makes every probability NaN. */
    if (isnan(sum)) {
        r->p = r->entropy = (double)NAN;
        r->top = -1;
    }
    if (isnan(sum) || (last && isnan(last[0]))) r->kl = (double)NAN;
}

static void read_layer_row(void *arg, size_t i, int thread)
{
    const struct lens *x = arg;
    (void)thread;
    read_row(x, x->logits + (int64_t)i * x->vocab, x->last + (int64_t)i * x->vocab, NULL, &x->v[i]);
}

static void read_last_row(void *arg, size_t i, int thread)
{
    const struct lens *x = arg;
    (void)thread;
    read_row(x, x->logits + (int64_t)i * x->vocab, NULL, x->last + (int64_t)i * x->vocab, &x->v[i]);
}

static const struct llm_taken *residual_after(const struct look *l, int64_t layer)
{
    for (size_t i = 0; i < l->taking.n; i++) {
        if (l->taking.v[i].place.layer == layer) return &l->taking.v[i];
    }
    return NULL;
}

/* Readings of picked rows [at, at + n) after one layer. */
static int read_layer(struct lens *x, int64_t layer, int64_t at, int64_t n, struct reading *out, struct llm_err *e)
{
    const struct look *l = x->l;
    struct llm_ctx *c = &l->s->engine.ctx;
    const struct llm_taken *from = residual_after(l, layer);
    size_t mark = llm_arena_mark(&c->acts);
    struct llm_watch *watch = c->watch;
    if (!from) return llm_fail(e, EX_UNAVAILABLE, "--lens: expected a residual after layer %" PRId64 ", found none", layer);
    c->watch = NULL; /* norms and logits computed here are no values of the pass: observers must not see them */
    struct llm_tensor *hidden = llm_tensor_create(c, n, from->cols);
    for (int64_t i = 0; i < n && !llm_ctx_failed(c); i++) {
        memcpy(hidden->data + i * hidden->stride, from->x + l->picked[at + i] * from->cols, (size_t)from->cols * sizeof(float));
    }
    if (x->tuned.n_params > 0) hidden = llm_lens_apply(c, &x->tuned, layer, hidden);
    struct llm_tensor *logits = llm_model_lens(c, l->s->model, hidden);
    c->watch = watch;
    if (llm_ctx_failed(c)) return llm_fail(e, c->err.status, "%s", c->err.text);
    x->logits = logits->data;
    x->v = out;
    llm_parallel((size_t)n, layer == x->layers - 1 ? read_last_row : read_layer_row, x);
    llm_arena_pop(&c->acts, mark);
    return 0;
}

static int put_piece(struct llm_buf *b, const struct llm_tokenizer *t, int32_t id, struct llm_err *e)
{
    char text[300] = "";
    size_t n = 0;
    const char *piece = t && id < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, id, &n) : NULL;
    if (piece) llm_utf8_escape(piece, n, text, sizeof text);
    return llm_buf_printf(b, e, "\t%" PRId32 "\t%s", id, text);
}

/* Keeps the readings of a token for the picture. */
static int keep(struct lens *x, int64_t token, const struct reading *of, struct llm_err *e)
{
    if (!x->l->s->a->png) return 0;
    if (llm_grow((void **)&x->picture, &x->picture_room, (x->n + 1) * (size_t)x->layers, sizeof *x->picture, e) < 0
        || llm_grow((void **)&x->columns, &x->columns_room, x->n + 1, sizeof *x->columns, e) < 0) return -1;
    for (int64_t l = 0; l < x->layers; l++) x->picture[(int64_t)x->n * x->layers + l] = (float)of[l * LENS_ROWS].kl;
    x->columns[x->n++] = (int32_t)token;
    return 0;
}

/* A row for each layer, the last on top, a column for each token. */
static int draw(const struct lens *x, struct llm_err *e)
{
    const struct session *s = x->l->s;
    const struct llm_tokenizer *t = s->model->tokenizer;
    int64_t n = (int64_t)x->n;
    char subtitle[200];
    struct llm_buf text = {0};
    float *v = llm_alloc(x->n, (size_t)x->layers * sizeof *v, "a picture", e);
    int32_t *layers = llm_alloc((size_t)x->layers + x->n, sizeof *layers, "a picture", e), *positions = layers + x->layers;
    size_t *starts = llm_alloc(x->n, sizeof *starts, "labels", e);
    const char **labels = llm_alloc(x->n, sizeof *labels, "labels", e);
    int status = v && layers && starts && labels ? 0 : -1;
    for (int64_t l = 0; l < x->layers && status == 0; l++) layers[l] = (int32_t)(x->layers - 1 - l);
    for (int64_t i = 0; i < n && status == 0; i++) {
        for (int64_t l = 0; l < x->layers; l++) v[l * n + i] = x->picture[i * x->layers + x->layers - 1 - l];
        positions[i] = (int32_t)x->l->base + x->columns[i];
        starts[i] = text.n;
        if (t) status = llm_token_label(t, x->l->ids[x->columns[i]], &text, e) < 0 ? -1 : llm_buf_put(&text, "", 1, e);
    }
    for (int64_t i = 0; i < n && status == 0 && t; i++) labels[i] = text.p + starts[i];
    snprintf(subtitle, sizeof subtitle, "%s, %" PRId64 " layers; final norm and head on the residual after each%s", s->model->config.model_type,
             x->layers, x->tuned.n_params > 0 ? ", translated" : "");
    const struct llm_heatmap h = {.title = x->tuned.n_params > 0 ? "Tuned lens" : "Logit lens", .subtitle = subtitle,
                                  .value = "KL(last layer || this one), nats", .v = v,
                                  .x = {.n = n, .name = "token", .labels = t ? labels : NULL, .numbers = positions, .numbered = t != NULL},
                                  .y = {.n = x->layers, .name = "layer", .numbers = layers}, .scale = LLM_SCALE_AUTO};
    struct llm_output *o = status == 0 ? llm_output_open(s->a->png, true, e) : NULL;
    if (o && llm_heatmap_write(o, &h, e) == 0) status = llm_output_commit(o, e);
    else if (o) llm_output_abandon(o);
    if (!o || e->status) status = -1;
    free(v);
    free(layers);
    free(starts);
    free(labels);
    llm_buf_release(&text);
    return status;
}

static int lens_block(struct look *l, int64_t from, void *arg, struct llm_err *e)
{
    struct lens *x = arg;
    const struct llm_tokenizer *t = l->s->model->tokenizer;
    struct reading *all = llm_alloc((size_t)x->layers, LENS_ROWS * sizeof *all, "readings", e);
    struct llm_buf b = {0};
    int status = all ? 0 : -1;
    for (int64_t at = 0; at < l->n_picked && status == 0; at += LENS_ROWS) {
        int64_t n = l->n_picked - at < LENS_ROWS ? l->n_picked - at : LENS_ROWS;
        for (int64_t layer = x->layers - 1; layer >= 0 && status == 0; layer--) status = read_layer(x, layer, at, n, all + layer * LENS_ROWS, e);
        for (int64_t i = 0; i < n && status == 0; i++) {
            int64_t token = from + l->picked[at + i];
            status = keep(x, token, all + i, e);
            for (int64_t layer = 0; layer < x->layers && status == 0; layer++) {
                const struct reading *r = &all[layer * LENS_ROWS + i];
                status = llm_buf_printf(&b, e, "%" PRId64, l->base + token);
                if (status == 0) status = put_piece(&b, t, l->ids[token], e);
                if (status == 0) status = llm_buf_printf(&b, e, "\t%" PRId64, layer);
                if (status == 0) status = r->top < 0 ? llm_buf_printf(&b, e, "\t-\t-") : put_piece(&b, t, r->top, e);
                if (status == 0) status = llm_buf_printf(&b, e, "\t%.6f\t%.6f\t%.6f\n", r->p, r->entropy, r->kl);
            }
        }
        if (status == 0) status = llm_output_write(l->s->out, b.p, b.n, e);
        b.n = 0;
    }
    llm_buf_release(&b);
    free(all);
    return status;
}

int run_lens(struct session *s, const int32_t *ids, size_t n, struct llm_err *e)
{
    static const char *const places[] = {"layers.*.residual.after"};
    struct look l = {.s = s, .ids = ids, .n = (int64_t)n, .base = s->begin.n, .option = "lens"};
    struct lens x = {.l = &l, .layers = s->model->config.num_hidden_layers, .vocab = s->model->config.vocab_size};
    int status = llm_model_must_continue(s->model, e) < 0 ? -1 : 0;
    if (status == 0 && strncmp(s->a->lens, "tuned:", 6) == 0) status = llm_lens_load(&x.tuned, s->a->lens + 6, s->model, e);
    else if (status == 0 && strcmp(s->a->lens, "logit") != 0) {
        status = llm_fail(e, LLM_EX_USAGE, "--lens: expected logit or tuned:FILE, found '%s'", s->a->lens);
    }
    if (status == 0) status = look_begin(&l, places, 1, e);
    if (status == 0 && !(x.last = llm_alloc(LENS_ROWS, (size_t)x.vocab * sizeof *x.last, "log-probabilities", e))) status = -1;
    if (status == 0) status = llm_output_printf(s->out, e, "position\tid\ttext\tlayer\ttop_id\ttop_text\tp\tentropy\tkl\n");
    if (status == 0) status = look_read(&l, lens_block, &x, e);
    if (status == 0 && s->a->png) status = draw(&x, e);
    free(x.last);
    free(x.picture);
    free(x.columns);
    llm_lens_release(&x.tuned);
    look_end(&l);
    return status;
}
