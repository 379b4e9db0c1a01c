/* Hyena (Poli et al. 2023), as HyenaDNA (Nguyen et al. 2023) has it: one projection to hyena_order gates and values, a short convolution of all,
 * then for each gate but the first: values ⊙ gate, through a long convolution whose filter a small network makes of positions. Then ⊙ the first
 * gate. */
#include <stdlib.h>
#include <string.h>
#include "model/forward/block.h"
#include "tensor/tape.h"

#define WINDOW_SHIFT .05f /* the window's value far away, in HyenaDNA */

/* Values of the filters at n positions, [n, filters]. Always in F32: BF16 does not tell neighbouring positions apart. */
static struct llm_tensor *filters_at(struct llm_ctx *c, const struct llm_module *m, const struct llm_config *f, const int32_t *positions, int64_t n)
{
    const enum llm_compute compute = c->compute;
    const struct llm_linear_params *layer = &m->p[LLM_HYENA_FILTER];
    c->compute = LLM_COMPUTE_F32;
    struct llm_tensor *x = llm_embedding(c, positions, n, m->p[LLM_HYENA_POSITIONS].w, 1);
    for (int64_t i = 0; i <= f->filter_inner; i++) x = llm_sine(c, llm_linear(c, x, layer[i].w, layer[i].b), m->p[LLM_HYENA_FREQ].w, i);
    x = llm_linear(c, x, layer[f->filter_inner + 1].w, NULL);
    c->compute = compute;
    return llm_decay_window(c, x, positions, m->p[LLM_HYENA_TIME].w, m->p[LLM_HYENA_DECAY].w, WINDOW_SHIFT);
}

/* The positions of `copies` filters of n values each. */
static int32_t *positions_of(struct llm_ctx *c, int64_t first, int64_t n, int64_t copies)
{
    int32_t *positions = llm_op_alloc(c, n * copies, sizeof *positions);
    for (int64_t i = 0; positions && i < n * copies; i++) positions[i] = (int32_t)(first + i % n);
    return positions;
}

/* The filters for a text of n tokens in the module's memory, which becomes twice as long as it was if it is too short. Values at a position do not
 * depend on what else is computed. NULL after a failure. */
static const float *kept_filters(struct llm_ctx *c, const struct llm_module *m, const struct llm_config *f, int64_t n)
{
    struct llm_hyena_filter *kept = m->filter;
    const int64_t wide = llm_hyena_filters(f), room = 2 * kept->n < f->max_position_embeddings ? 2 * kept->n : f->max_position_embeddings;
    if (n <= kept->n) return kept->values;
    if (n < room) n = room;
    float *values = realloc(kept->values, (size_t)(n * wide) * sizeof *values);
    if (!values) {
        llm_op_fail(c, EX_UNAVAILABLE, "out of memory for filters of %lld positions", (long long)n);
        return NULL;
    }
    kept->values = values;
    enum { RUN = 4096 };
    for (int64_t at = kept->n; at < n && !llm_ctx_failed(c); at += RUN) {
        const size_t mark = llm_arena_mark(&c->acts);
        const int64_t run = n - at < RUN ? n - at : RUN;
        const int32_t *positions = positions_of(c, at, run, 1);
        if (!positions) return NULL;
        struct llm_tensor *x = filters_at(c, m, f, positions, run);
        if (llm_ctx_failed(c)) return NULL;
        memcpy(values + at * wide, x->data, (size_t)(run * wide) * sizeof *values);
        llm_arena_pop(&c->acts, mark);
        kept->n = at + run;
    }
    return kept->values;
}

/* The values v, through gates and long convolutions; u: gates and values after the short convolution. */
static struct llm_tensor *convolve(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *u)
{
    const struct llm_config *f = p->config;
    const struct llm_batch *b = p->batch;
    const int64_t width = f->hidden_size, row_len = llm_row_len(c, b->n_tokens);
    struct llm_tensor *v = llm_columns(c, u, f->hyena_order * width, width);
    /* Each row of a batch that is trained has its own copy of the filters, so that their gradients are sums over rows in order. */
    const int64_t copies = c->tape ? b->n_tokens / row_len : 1;
    struct llm_long_conv o = {.length = row_len};
    o.segments = llm_pass_segments(c, p, 0, &o.n_segments);
    const int32_t *positions = positions_of(c, 0, row_len, copies);
    if (!positions) return &c->nothing;
    struct llm_tensor *filters = filters_at(c, m, f, positions, row_len * copies);
    for (int64_t i = f->hyena_order - 1; i >= 1; i--) {
        o.at = (f->hyena_order - 1 - i) * width;
        v = llm_long_conv(c, v, llm_columns(c, u, i * width, width), llm_columns(c, filters, o.at, width), m->p[LLM_HYENA_SKIP].w, &o);
    }
    return v;
}

static struct llm_tensor *convolve_cached(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *u)
{
    const struct llm_config *f = p->config;
    const struct llm_batch *b = p->batch;
    const struct llm_kv_seq *seqs = b->seqs + p->layer * b->n_seqs;
    const int64_t width = f->hidden_size, wide = llm_hyena_filters(f);
    int64_t longest = 1;
    for (int64_t s = 0; s < b->n_seqs; s++) longest = seqs[s].pos + seqs[s].n > longest ? seqs[s].pos + seqs[s].n : longest;
    if (llm_ctx_failed(c)) return &c->nothing;
    const float *filters = kept_filters(c, m, f, longest);
    struct llm_tensor *v = llm_columns(c, u, f->hyena_order * width, width);
    for (int64_t i = f->hyena_order - 1, head = 0; filters && i >= 1; i--, head++) {
        v = llm_long_conv_cached(c, v, llm_columns(c, u, i * width, width), filters + head * width, wide, m->p[LLM_HYENA_SKIP].w, head * width, head,
                                 seqs, b->n_seqs);
    }
    return v;
}

struct llm_tensor *llm_forward_hyena(struct llm_ctx *c, const struct llm_module *m, const struct llm_pass *p, struct llm_tensor *x)
{
    int64_t n;
    const struct llm_segment *segments = llm_pass_segments(c, p, 0, &n);
    struct llm_tensor *u = llm_linear(c, x, m->p[LLM_HYENA_IN].w, m->p[LLM_HYENA_IN].b);
    u = llm_short_conv(c, u, m->p[LLM_HYENA_CONV].w, m->p[LLM_HYENA_CONV].b, false, segments, n);
    u = llm_visit(c, &p->site, LLM_PLACE_MIXER_CONV, u);
    struct llm_tensor *v = (p->batch->seqs ? convolve_cached : convolve)(c, m, p, u);
    c->recompute = LLM_RECOMPUTE_INNER;
    llm_panels_for(c, 1, &m->p[LLM_HYENA_OUT].w);
    v = llm_gated(c, v, llm_columns(c, u, 0, p->config->hidden_size), LLM_ACT_LINEAR);
    c->recompute = LLM_KEPT;
    c->to_panels = false;
    v = llm_visit(c, &p->site, LLM_PLACE_MIXER_HIDDEN, v);
    return llm_linear(c, v, m->p[LLM_HYENA_OUT].w, m->p[LLM_HYENA_OUT].b);
}
