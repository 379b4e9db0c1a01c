#include "infer/draft.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

void llm_draft_release(struct llm_draft *d)
{
    free(d->rows);
    *d = (struct llm_draft){0};
}

int llm_draft_note(struct llm_draft *d, const struct llm_tensor *hidden, int64_t row, int64_t first, int64_t n, struct llm_err *e)
{
    size_t width = (size_t)hidden->cols;
    if (llm_grow((void **)&d->rows, &d->room, (size_t)(d->n + n) * width, sizeof *d->rows, e) < 0) return -1;
    if (d->n == 0) d->first = first;
    for (int64_t i = 0; i < n; i++) {
        memcpy(d->rows + (size_t)(d->n + i) * width, hidden->data + (row + i) * hidden->stride, width * sizeof *d->rows);
    }
    d->n += n;
    return 0;
}

/* One pass of the drafting layer: rows of hidden states, the token that follows each, and the sequences that the rows belong to. */
struct pass {
    struct llm_tensor *hidden;
    int32_t *ids, *positions;
    struct llm_kv_seq *seqs;    /* [layers][n_seqs], of which the layer's own are set */
    int64_t n_tokens, n_seqs;
};

static int begin(struct llm_engine *g, struct pass *p, int64_t tokens, int64_t seqs, struct llm_err *e)
{
    struct llm_ctx *c = &g->ctx;
    size_t all = (size_t)((g->pool.n_layers + 1) * seqs);
    *p = (struct pass){.hidden = llm_tensor_create(c, tokens, g->model->config.hidden_size)};
    p->ids = llm_arena_alloc(&c->acts, (size_t)tokens * sizeof *p->ids);
    p->positions = llm_arena_alloc(&c->acts, (size_t)tokens * sizeof *p->positions);
    p->seqs = llm_arena_alloc(&c->acts, all * sizeof *p->seqs);
    if (llm_ctx_failed(c) || !p->ids || !p->positions || !p->seqs) return llm_no_memory(e, "a draft");
    memset(p->seqs, 0, all * sizeof *p->seqs);
    return 0;
}

/* Adds a sequence's n rows, the first of them at `position`. Its shared pages from there on are copied. */
static int add(struct llm_engine *g, struct pass *p, int64_t all_seqs, struct llm_kv *kv, int64_t position, int64_t n, struct llm_err *e)
{
    int64_t layer = g->pool.n_layers;
    if (llm_kv_own(kv, position, position + n, e) < 0) return -1;
    for (int64_t i = 0; i < n; i++) p->positions[p->n_tokens + i] = (int32_t)(position + i);
    p->seqs[layer * all_seqs + p->n_seqs++] = (struct llm_kv_seq){.first = p->n_tokens, .n = n, .pos = position, .view = llm_kv_view(kv, layer)};
    p->n_tokens += n;
    return 0;
}

static struct llm_tensor *run(struct llm_engine *g, const struct pass *p, struct llm_err *e)
{
    const struct llm_batch b = {.ids = p->ids, .positions = p->positions, .n_tokens = p->n_tokens, .seqs = p->seqs, .n_seqs = p->n_seqs};
    struct llm_tensor *said = llm_model_next(&g->ctx, g->model, 0, p->hidden, p->ids, &b);
    if (!llm_ctx_failed(&g->ctx)) return said;
    llm_fail(e, g->ctx.err.status, "%s", g->ctx.err.text);
    return NULL;
}

static int32_t most_likely(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

/* Runs the noted rows of all feeds. */
static struct llm_tensor *catch_up(struct llm_engine *g, const struct llm_draft_feed *feeds, int64_t n, struct llm_err *e)
{
    struct pass p;
    int64_t tokens = 0, width = g->model->config.hidden_size;
    for (int64_t s = 0; s < n; s++) tokens += feeds[s].n;
    llm_ctx_reset(&g->ctx);
    if (begin(g, &p, tokens, n, e) < 0) return NULL;
    for (int64_t s = 0; s < n; s++) {
        struct llm_draft *d = feeds[s].draft;
        int64_t at = p.n_tokens;
        for (int64_t i = 0; i < feeds[s].n; i++) {
            memcpy(p.hidden->data + (at + i) * p.hidden->stride, d->rows + i * width, (size_t)width * sizeof *d->rows);
            p.ids[at + i] = feeds[s].next(feeds[s].arg, d->first + i);
        }
        if (add(g, &p, n, feeds[s].kv, d->first, feeds[s].n, e) < 0) return NULL;
        d->first += feeds[s].n;
        d->n -= feeds[s].n;
        memmove(d->rows, d->rows + feeds[s].n * width, (size_t)(d->n * width) * sizeof *d->rows);
    }
    return run(g, &p, e);
}

/* Runs a row for each feed that wants more than `have` tokens, one position after its previous row. */
static struct llm_tensor *go_on(struct llm_engine *g, const struct llm_draft_feed *feeds, int64_t n, int64_t have, const struct llm_tensor *said,
                                const int64_t *rows, struct llm_err *e)
{
    struct pass p;
    int64_t left = 0;
    for (int64_t s = 0; s < n; s++) left += feeds[s].wanted > have;
    if (begin(g, &p, left, left, e) < 0) return NULL;
    for (int64_t s = 0; s < n; s++) {
        if (feeds[s].wanted <= have) continue;
        memcpy(p.hidden->data + p.n_tokens * p.hidden->stride, said->data + rows[s] * said->stride, (size_t)said->cols * sizeof(float));
        p.ids[p.n_tokens] = feeds[s].out[have - 1];
        if (add(g, &p, left, feeds[s].kv, feeds[s].draft->first + have - 1, 1, e) < 0) return NULL;
    }
    return run(g, &p, e);
}

int llm_engine_draft(struct llm_engine *g, const struct llm_draft_feed *feeds, int64_t n, struct llm_err *e)
{
    int64_t *rows = llm_alloc((size_t)n * 2, sizeof *rows, "a draft", e), *wanted = rows + n, max = 0, at = 0;
    struct llm_tensor *said = rows ? catch_up(g, feeds, n, e) : NULL;
    for (int64_t s = 0; said && s < n; s++) {
        at += feeds[s].n;
        rows[s] = at - 1;
        max = feeds[s].wanted > max ? feeds[s].wanted : max;
    }
    for (int64_t have = 0; said && have < max; have++) {
        int64_t count = 0;
        if (have > 0 && !(said = go_on(g, feeds, n, have, said, rows, e))) break;
        for (int64_t s = 0; s < n; s++) {
            if (feeds[s].wanted <= have) continue;
            if (have > 0) rows[s] = count;
            wanted[count++] = rows[s];
        }
        const float *logits = llm_engine_logits(g, said, wanted, count, e);
        if (!logits) {
            said = NULL;
            break;
        }
        count = 0;
        for (int64_t s = 0; s < n; s++) {
            int64_t vocab = g->model->config.vocab_size;
            if (feeds[s].wanted > have) feeds[s].out[have] = most_likely(logits + count++ * vocab, vocab);
        }
    }
    free(rows);
    return said ? 0 : -1;
}
