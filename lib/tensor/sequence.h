/* Parts of rows (sequence parallelism). Each row of a batch is cut into parts of equal length. The gradients of a parameter by the tokens of
 * different parts are kept apart: they are terms of their own in the sum of a step (train/shards.h), so ranks can divide the parts and have the same
 * bits.
 *
 * A rank has a run of parts of every row. All operations but attention work on tokens by themselves. Attention is divided by heads (Jacobs et al.
 * 2023, DeepSpeed-Ulysses): the ranks exchange queries, keys and values, so that each has all tokens of some of the heads, and then the outputs. That
 * moves values, and adds none. Where the heads cannot be divided by the number of ranks, several ranks have the same heads and divide the queries:
 * each computes the outputs of its own, and in the backward pass the gradients of the queries, keys and values of the same tokens, for which the
 * probabilities are computed twice. Each sum has its terms at one rank, in the order of one process. */
#ifndef LLM_TENSOR_SEQUENCE_H
#define LLM_TENSOR_SEQUENCE_H

#include "tensor/experts.h"
#include "tensor/ops.h"

enum { LLM_MAX_PARTS_OF_ROW = 64 };

/* What a process has of the rows: llm_ctx.row_len tokens of each, in `parts` parts. The gradient of parameter p by part number i of these is at
 * p->grad + i·llm_grad_stride(p), and so for its other accumulators. */
struct llm_sequence {
    int64_t parts;
    int ranks, rank;          /* that divide the rows, and which of them this one is; 1 and 0: rows are whole */
    struct llm_group *group;  /* of these ranks; borrowed; NULL: there is one */
};
static inline int64_t llm_sequence_parts(const struct llm_ctx *c) { return c->sequence ? c->sequence->parts : 1; }
/* The position in its row of the first token of row_len that this rank has. */
static inline int64_t llm_sequence_first(const struct llm_ctx *c, int64_t row_len) { return c->sequence ? c->sequence->rank * row_len : 0; }

/* ---- recurrences: what goes from each of the ranks that divide rows to the next one, or, not `ahead`, to the one before ---- */
/* All ranks at once: `out` [n] goes on, `in` [n] has arrived; zeros at a rank at the end. False after a failure. */
bool llm_sequence_shift(struct llm_ctx *c, bool ahead, const float *out, float *in, int64_t n);
static inline bool llm_sequence_is_divided(const struct llm_ctx *c) { return c->sequence && c->sequence->ranks > 1; }

/* States, one rank after another: each receives them from the rank before it, computes, and sends its own to the next rank. */
struct llm_sequence_states {
    float *final;             /* [rows, state], after this rank's tokens; NULL: rows are whole, nothing is sent */
    int64_t state;
};
/* Receives the previous rank's final states as initial states: `from` of each segment that continues from that rank points to its own. `to` of each
 * segment that continues on the next rank points into `final`. Both buffers are on `acts`. False after a failure. */
bool llm_sequence_receive_states(struct llm_ctx *c, struct llm_sequence_states *s, struct llm_segment *segments, int64_t n_segments, int64_t tokens,
                                 int64_t state);
bool llm_sequence_send_states(struct llm_ctx *c, const struct llm_sequence_states *s);
/* The same where the state is the last n inputs [n, x->cols], oldest first, which all ranks send at the same time. Each rank has at least n tokens of
 * a row. The buffer is on `acts`. False after a failure. */
bool llm_sequence_inputs(struct llm_ctx *c, struct llm_segment *segments, int64_t n_segments, const struct llm_tensor *x, int64_t n);

/* The backward pass: gradients of states, [rows, state]. */
struct llm_state_grads {
    int64_t state, row_len;
    const float *arrived;     /* after this rank's tokens; NULL: rows are whole */
    float *sent;              /* before them */
};
/* Receives the gradients of the final states from the next rank; `sent` is zeroed. Both are on `acts`. False after a failure. Without ranks that
 * divide rows `arrived` is NULL. */
bool llm_sequence_receive_gradients(struct llm_ctx *c, struct llm_state_grads *g, int64_t tokens, int64_t state);
bool llm_sequence_send_gradients(struct llm_ctx *c, const struct llm_state_grads *g);
/* Where the gradient of the state after the segment is, and that of the state before it goes; NULL: it has none, or nobody wants it. */
static inline const float *llm_state_grad_after(const struct llm_state_grads *g, const struct llm_segment *s)
{
    return g->arrived && s->follows > 0 ? g->arrived + s->first / g->row_len * g->state : NULL;
}
static inline float *llm_state_grad_before(const struct llm_state_grads *g, const struct llm_segment *s)
{
    return g->arrived && s->enters ? g->sent + s->first / g->row_len * g->state : NULL;
}

static inline int64_t llm_common_divisor(int64_t a, int64_t b)
{
    for (int64_t left; b > 0; b = left) {
        left = a % b;
        a = b;
    }
    return a;
}

/* Each key/value head stands for so many of its own in attention over parts: any number of ranks that divides the parts, and the heads, divides these
 * as well, and so does the greatest common divisor of any number of ranks with the heads. The gradients of the copies are added in their order. */
static inline int64_t llm_sequence_copies(int64_t heads, int64_t kv_heads, int64_t parts)
{
    return llm_common_divisor(parts / llm_common_divisor(kv_heads, parts), heads / kv_heads);
}

/* llm_attention of rows that may be divided: q, k and v are those of this rank's tokens, and so is the result. a->doc_start and a->prefixes are of
 * whole rows. */
struct llm_tensor *llm_attention_of_parts(struct llm_ctx *c, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                          const struct llm_attn *a);

#endif
