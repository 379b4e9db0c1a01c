/* The loss with a head that is cut into slices (tensor/slices.h): tiles of the vocabulary, each of which has a maximum and a sum of exponentials. The
 * tiles of a token are merged in their order, in double, and the gradients of its hidden state by the tiles are added in the tree of the slices. */
#include <math.h>
#include <string.h>
#include "cpu/kernels.h"
#include "cpu/profile.h"
#include "dist/group.h"
#include "tensor/op/cross_entropy_internal.h"
#include "tensor/slices.h"
#include "tensor/tape.h"

struct work {
    const struct llm_cross_entropy *a;
    const struct llm_slices *s;
    int64_t first, m, vocab, width; /* the chunk's first token and number of tokens; columns of all tiles, and of this rank's */
    int own, ranks;                 /* tiles of a rank */
    float *logits;                  /* [chunk, width]: this rank's tiles side by side */
    float *known;                   /* [ranks][m, own, 2] maximum and sum of each tile, then [m] the target's logit at the rank that has it */
    double *nll;                    /* [tokens of all chunks] */
    bool gradient;
    double z;
};

/* The columns of slice j: [tile(w, j), tile(w, j + 1)) of the vocabulary. */
static int64_t tile(const struct work *w, int64_t j)
{
    return llm_slices_row(w->s, j, w->vocab);
}

static int tile_of(const struct work *w, int64_t id)
{
    return (int)(((id + 1) * w->s->n - 1) / w->vocab);
}

/* Floats that each rank tells of a chunk. */
static int64_t told(const struct work *w)
{
    return w->m * (2 * w->own + 1);
}

static float *known_of(const struct work *w, int rank, int64_t row)
{
    return w->known + rank * told(w) + row * 2 * w->own;
}

static float *target_of(const struct work *w, int rank, int64_t row)
{
    return w->known + rank * told(w) + w->m * 2 * w->own + row;
}

/* Raw products to what ce_forward leaves, with what is known of each tile. */
static void tile_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct llm_cross_entropy *a = w->a;
    const int rank = w->s->first / w->own;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        float *x = w->logits + r * w->width, *known = known_of(w, rank, r), *target = target_of(w, rank, r);
        const int64_t id = a->targets[w->first + r];
        *target = 0;
        for (int i = 0; i < w->own; i++) {
            const int64_t begin = tile(w, w->s->first + i), n = tile(w, w->s->first + i + 1) - begin;
            const bool has = id >= begin && id < begin + n;
            if (has) *target = x[id - begin] * a->logit_scale;
            struct llm_ce_row row = {0};
            if (ce_counted(a, w->first + r)) row = llm_k.rows.ce_forward(x, a->logit_scale, a->logit_softcap, (size_t)n);
            if (has && a->logit_softcap != 0) *target = x[id - begin];
            known[2 * i] = row.max;
            known[2 * i + 1] = row.sum;
            x += n;
        }
    }
}

/* p·factor of each column of a tile, where no column is the target. */
static void back(float *x, struct llm_ce_row row, float factor, const struct llm_cross_entropy *a, size_t n)
{
    const float first = x[0], share = a->logit_softcap != 0 ? first / a->logit_softcap : 0;
    const float p = (a->logit_softcap != 0 ? expf(first - row.max) : first) * (factor * a->logit_scale / row.sum);
    llm_k.rows.ce_back(x, row, 0, factor, a->logit_scale, a->logit_softcap, n);
    x[0] = p * (1 - share * share);
}

/* Losses, and gradients in place of what tile_rows has left. */
static void loss_rows(void *arg, int64_t from, int64_t to, int thread)
{
    const struct work *w = arg;
    const struct llm_cross_entropy *a = w->a;
    (void)thread;
    for (int64_t r = from; r < to; r++) {
        const int64_t token = w->first + r, id = a->targets[token];
        float *x = w->logits + r * w->width, max = -INFINITY;
        double sum = 0;
        w->nll[token] = 0;
        if (!ce_counted(a, token)) {
            if (w->gradient) memset(x, 0, (size_t)w->width * sizeof *x);
            continue;
        }
        for (int j = 0; j < w->s->n; j++) max = fmaxf(max, known_of(w, j / w->own, r)[2 * (j % w->own)]);
        for (int j = 0; j < w->s->n; j++) {
            const float *known = known_of(w, j / w->own, r) + 2 * (j % w->own);
            sum += (double)known[1] * exp((double)known[0] - (double)max);
        }
        const double logit = (double)*target_of(w, tile_of(w, id) / w->own, r), cap = (double)a->logit_softcap;
        w->nll[token] = log(sum) - (logit - (double)max);
        if (!w->gradient) continue;
        if (w->z != 0) sum /= 1 + 2 * w->z * ((double)max + log(sum)); /* d(lse + z·lse²) = (1 + 2z·lse)·p: probabilities over a smaller sum */
        const double factor = a->grad_scale * ce_weight(a, token), inner = cap != 0 ? 1 - logit / cap * (logit / cap) : 1;
        for (int i = 0; i < w->own; i++) {
            const int64_t begin = tile(w, w->s->first + i), n = tile(w, w->s->first + i + 1) - begin;
            const double shift = (double)max - (double)known_of(w, w->s->first / w->own, r)[2 * i];
            const struct llm_ce_row row = {max, (float)(cap != 0 ? sum : sum * exp(shift))}; /* uncapped: exponentials have the tile's maximum */
            back(x, row, (float)factor, a, (size_t)n);
            if (id >= begin && id < begin + n) {
                x[id - begin] = (float)((exp(logit - (double)max) - sum) / sum * factor * (double)a->logit_scale * inner);
            }
            x += n;
        }
    }
}

static bool exchange(struct llm_ctx *c, const struct work *w)
{
    void *parts[LLM_MAX_SLICES];
    size_t bytes[LLM_MAX_SLICES];
    if (w->ranks == 1) return true;
    for (int q = 0; q < w->ranks; q++) {
        parts[q] = w->known + q * told(w);
        bytes[q] = (size_t)told(w) * sizeof *w->known;
    }
    return llm_group_gather(c->group, parts, bytes, &c->err) == 0;
}

/* The chunk of tokens [at, at + w->m). False after a failure. */
static bool chunk(struct llm_ctx *c, const struct llm_tensor *x, const struct llm_param *head, struct work *w, const struct llm_grad *dx)
{
    const struct llm_slices *s = w->s, *biases = w->a->bias ? w->a->bias->slices : NULL;
    const struct llm_folds all = llm_folds_of(c, x->rows);
    const struct llm_folds folds = {.row_len = all.row_len < w->m ? all.row_len : w->m, .parts = all.parts, .first = w->first / all.row_len};
    const int64_t begin = tile(w, s->first);
    const float *rows = x->data + w->first * x->stride;
    float *parts[LLM_MAX_SLICES], *sum;
    int64_t stride;
    const size_t mark = llm_arena_mark(&c->acts);
    w->known = llm_op_alloc(c, w->ranks, (size_t)told(w) * sizeof *w->known);
    for (int j = s->first; j < s->end && !llm_ctx_failed(c); j++) {
        LLM_PROFILE("head", 0);
        struct llm_matmul a = {.m = w->m, .x = rows, .ldx = x->stride, .y = w->logits + (tile(w, j) - begin), .ldy = w->width, .compute = c->compute,
                               .bias = biases ? llm_op_vector(c, &biases->of[j], s->of[j].weight.n) : NULL, .release = c->tape != NULL};
        if (!llm_ctx_failed(c) && llm_matmul(&a, &s->of[j].weight, &c->err) < 0) llm_in(&c->err, "'%s'", head->name);
    }
    if (llm_ctx_failed(c)) return false;
    llm_for_rows(w->m, w->width, tile_rows, w);
    if (!exchange(c, w)) return false;
    llm_for_rows(w->m, w->width, loss_rows, w);
    for (int j = s->first; j < s->end && w->gradient; j++) {
        float *dy = w->logits + (tile(w, j) - begin);
        llm_bias_grad(biases ? &biases->of[j] : NULL, dy, w->width, w->m, &folds, s->of[j].weight.n);
        LLM_PROFILE("head dw", 0);
        float *grad = s->of[j].grad;
        if (grad && !llm_weight_grad(c, &s->of[j], grad, dy, w->width, rows, x->stride, NULL, w->m, &folds, c->compute)) return false;
    }
    for (int j = s->first; j < s->end && dx->p; j++) {
        LLM_PROFILE("head dx", 0);
        float *part = parts[j - s->first] = llm_op_alloc(c, w->m, (size_t)x->cols * sizeof *part);
        struct llm_matmul a = {.m = w->m, .x = w->logits + (tile(w, j) - begin), .ldx = w->width, .y = part, .ldy = x->cols, .compute = c->compute,
                               .release = true};
        if (!part || llm_matmul_dx(&a, &s->of[j].weight, &c->err) < 0) return false;
    }
    if (dx->p) {
        if (!llm_slices_add(c, s, parts, w->m, x->cols, x->cols, &sum, &stride)) return false;
        llm_grad_give(&(struct llm_grad){dx->p + w->first * dx->stride, dx->stride, dx->add}, sum, stride, w->m, x->cols);
    }
    llm_arena_pop(&c->acts, mark);
    return true;
}

struct llm_loss ce_slices(struct llm_ctx *c, struct llm_tensor *x, struct llm_param *head, const struct llm_cross_entropy *a)
{
    const struct llm_slices *s = head->slices;
    const int64_t vocab = head->weight.n, tokens = x->rows, row_len = llm_folds_of(c, tokens).row_len;
    const size_t mark = llm_arena_mark(&c->acts);
    struct llm_node n = {.in = {x}};
    struct llm_grad dx = {0};
    struct work w = {.a = a, .s = s, .vocab = vocab, .own = s->end - s->first, .z = c->z_loss};
    int64_t longest = 0;
    if (llm_ctx_failed(c)) return (struct llm_loss){0};
    w.ranks = s->n / w.own;
    w.width = tile(&w, s->end) - tile(&w, s->first);
    w.gradient = !a->no_gradient && llm_tape_wants(c, &n);
    if (a->teacher || a->entropy || a->logits || (w.ranks > 1 && !c->group)) {
        llm_op_fail(c, LLM_EX_FAILURE, "'%s': expected a plain loss of all slices of the head", head->name);
    }
    for (int64_t at = 0, end; at < tokens; at = end) {
        end = ce_chunk_end(tokens, row_len, vocab, at);
        if (end - at > longest) longest = end - at;
    }
    for (int64_t t = 0; t < tokens && !llm_ctx_failed(c); t++) {
        if (a->targets[t] >= vocab) llm_op_fail(c, EX_DATAERR, "target: expected below %lld, found %d", (long long)vocab, (int)a->targets[t]);
    }
    w.nll = llm_op_alloc(c, tokens, sizeof *w.nll);
    if (w.gradient && !llm_grad_open(c, x, &dx)) dx.p = NULL;
    /* With a tape the logits use the memory of the gradients of the backward pass, as those of whole heads do. */
    struct llm_arena *arena = c->tape ? &c->grads : &c->acts;
    const size_t logits = llm_arena_mark(arena);
    w.logits = ce_floats(c, arena, longest, w.width);
    for (int64_t end; w.first < tokens && !llm_ctx_failed(c); w.first = end) {
        end = ce_chunk_end(tokens, row_len, vocab, w.first);
        w.m = end - w.first;
        if (!chunk(c, x, head, &w, &dx)) break; /* an exchange may have failed, which is no matter of the head */
    }
    if (llm_ctx_failed(c)) return (struct llm_loss){0};
    llm_arena_pop(arena, logits);
    struct llm_loss loss = ce_fold(c, a, w.nll, tokens);
    llm_arena_pop(&c->acts, mark);
    return loss;
}
