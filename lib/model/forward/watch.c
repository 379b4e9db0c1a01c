#include "model/forward/watch.h"

#include "model/forward/forward.h"
#include "tensor/tape.h"

/* The editors and observers of one place during one pass; lives until the backward pass. */
struct view {
    const struct llm_watch *watch;
    struct llm_place place;
    const struct llm_row_id *who;
};

static bool wanted(const struct llm_watch *w, struct llm_place p)
{
    for (size_t i = 0; i < w->n; i++) {
        if (llm_place_within(&w->v[i].at, p)) return true;
    }
    return false;
}

/* Whether the place has an editor, which replaces the value. */
static bool replaced(const struct llm_watch *w, struct llm_place p)
{
    for (size_t i = 0; i < w->n; i++) {
        if (w->v[i].edit && llm_place_within(&w->v[i].at, p)) return true;
    }
    return false;
}

/* Calls the editors and observers of a place in their order. `again`: the values are recomputed, so observers are not called a second time. */
static void call(const struct view *v, struct llm_ctx *c, int64_t first, float *x, int64_t rows, int64_t cols, int64_t stride, bool again)
{
    const struct llm_sight s = {v->place, x, rows, cols, stride, v->who + first, v->watch->strengths};
    for (size_t i = 0; i < v->watch->n && !llm_ctx_failed(c); i++) {
        const struct llm_watcher *w = &v->watch->v[i];
        struct llm_err e = {0};
        int got = 0;
        if (!llm_place_within(&w->at, v->place)) continue;
        if (w->edit) got = w->edit(w->arg, &s, x, &e);
        else if (!again) got = w->observe(w->arg, &s, &e);
        if (got < 0) c->err = e;
    }
}

static void look(const struct llm_inner *inner, struct llm_ctx *c, int64_t first, float *x, int64_t rows, int64_t cols, int64_t stride, bool again)
{
    call(inner->arg, c, first, x, rows, cols, stride, again || c->recomputing);
}

const struct llm_inner *llm_watch_inner(struct llm_ctx *c, const struct llm_site *site, enum llm_place_kind kind)
{
    const struct llm_place p = {kind, site->stack, llm_places[kind].in_layer ? site->layer : -1};
    if (!c->watch || !wanted(c->watch, p)) return NULL;
    struct view *v = llm_op_alloc(c, 1, sizeof *v);
    struct llm_inner *inner = llm_op_alloc(c, 1, sizeof *inner);
    if (!inner) return NULL;
    *v = (struct view){c->watch, p, site->who};
    *inner = (struct llm_inner){look, v};
    return inner;
}

struct llm_tensor *llm_watch_visit(struct llm_ctx *c, const struct llm_site *site, enum llm_place_kind kind, struct llm_tensor *x)
{
    struct llm_place p = {kind, site->stack, LLM_PLACE_NONE == kind || !llm_places[kind].in_layer ? -1 : site->layer};
    if (kind == LLM_PLACE_NONE || llm_ctx_failed(c) || !wanted(c->watch, p)) return x;
    if (!replaced(c->watch, p)) {
        call(&(struct view){c->watch, p, site->who}, c, 0, x->data, x->rows, x->cols, x->stride, c->recomputing);
        return llm_ctx_failed(c) ? &c->nothing : x;
    }
    const struct llm_inner *inner = llm_watch_inner(c, site, kind);
    return inner ? llm_edit(c, x, inner) : &c->nothing;
}

/* ---- identities of rows ---- */

/* Fills `who` for a batch without caches: rows of training, or texts one after another that begin where doc_start says. */
static void name_rows(const struct llm_ctx *c, const struct llm_batch *b, struct llm_row_id *who)
{
    int64_t row_len = llm_row_len(c, b->n_tokens), text = -1;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        text += t == 0 || (b->doc_start && b->doc_start[t] != b->doc_start[t - 1]);
        who[t].sequence = c->n_rows > 0 ? c->first_row + t / row_len : text;
    }
}

const struct llm_row_id *llm_watch_rows(struct llm_ctx *c, const struct llm_batch *b)
{
    if (!c->watch) return NULL;
    struct llm_row_id *who = llm_op_alloc(c, b->n_tokens, sizeof *who);
    if (!who) return NULL;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        bool given = !b->ids || (b->given && b->given_row[t] >= 0);
        who[t] = (struct llm_row_id){0, b->positions ? b->positions[t] : -1, given ? -1 : b->ids[t]};
    }
    if (!b->seqs) name_rows(c, b, who);
    for (int64_t s = 0; b->seqs && s < b->n_seqs; s++) {
        for (int64_t i = 0; i < b->seqs[s].n; i++) who[b->seqs[s].first + i].sequence = s;
    }
    return who;
}

static void pick(struct llm_ctx *c, const int64_t *rows, const int32_t *rows32, int64_t n)
{
    if (!c->watch) return;
    struct llm_row_id *who = llm_op_alloc(c, n, sizeof *who);
    if (!who) return;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = rows ? rows[i] : rows32[i];
        who[i] = row >= 0 && row < c->watch->n_who ? c->watch->who[row] : (struct llm_row_id){-1, -1, -1};
    }
    c->watch->picked = who;
    c->watch->n_picked = n;
}

void llm_watch_pick(struct llm_ctx *c, const int64_t *rows, int64_t n) { pick(c, rows, NULL, n); }
void llm_watch_pick32(struct llm_ctx *c, const int32_t *rows, int64_t n) { pick(c, NULL, rows, n); }

struct llm_site llm_watch_head(struct llm_ctx *c, int64_t n)
{
    struct llm_site site = {.layer = -1};
    if (!c->watch) return site;
    if (c->watch->picked && c->watch->n_picked == n) site.who = c->watch->picked;
    else if (c->watch->n_who == n) site.who = c->watch->who;
    if (site.who || llm_ctx_failed(c)) return site;
    struct llm_row_id *who = llm_op_alloc(c, n, sizeof *who); /* a row for each text */
    for (int64_t i = 0; i < n && who; i++) who[i] = (struct llm_row_id){i, -1, -1};
    site.who = who;
    return site;
}
