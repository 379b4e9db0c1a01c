/* The segments of a pass for recurrent layers: runs of tokens that follow each other in one text. */
#include "model/forward/block.h"
#include "tensor/sequence.h"
#include "tensor/tape.h"

/* The offset, in floats, of the layer's state within the carried state of a row (llm_batch.state). */
static int64_t carried_at(const struct llm_pass *p)
{
    int64_t at = 0;
    for (int64_t l = 0; l < p->layer; l++) {
        struct llm_state_shape s = llm_model_state(p->config, l);
        at += llm_state_floats(&s);
    }
    return at;
}

/* Writes the segments of the rows of training to `out`, one per document; NULL: counts them only. `at`: offset of the layer's state in the carried
 * state of a row, in floats. Returns the number of segments. */
static int64_t cut_rows(const struct llm_ctx *c, const struct llm_batch *b, int64_t at, struct llm_segment *out)
{
    int64_t row_len = llm_row_len(c, b->n_tokens), n = 0;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        bool begins = t % row_len == 0 || (b->doc_start && b->doc_start[t] == t % row_len);
        if (begins) {
            if (out) out[n] = (struct llm_segment){.first = t};
            if (out && b->state && t % row_len == 0) out[n].from = b->state + t / row_len * b->state_floats + at;
            n++;
        }
        if (out) out[n - 1].n++;
        if (out && b->state && t % row_len == row_len - 1) out[n - 1].to = b->state_after + t / row_len * b->state_floats + at;
    }
    return n;
}

/* The same with sequence parallelism: of this rank's tokens of each row. */
static int64_t cut_parts(const struct llm_ctx *c, const struct llm_batch *b, struct llm_segment *out)
{
    const int64_t own = llm_row_len(c, b->n_tokens), whole = own * c->sequence->ranks, first = llm_sequence_first(c, own);
    int64_t n = 0;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        const int32_t *starts = b->doc_start ? b->doc_start + t / own * whole : NULL; /* of the whole row */
        const int64_t at = first + t % own;
        const bool begins = starts ? starts[at] == at : at == 0;
        if (begins || t % own == 0) {
            if (out) out[n] = (struct llm_segment){.first = t, .enters = !begins};
            n++;
        }
        if (!out) continue;
        out[n - 1].n++;
        if (t % own < own - 1) continue;
        for (int64_t next = at + 1; next < whole && (!starts || starts[next] != next); next++) out[n - 1].follows++;
    }
    return n;
}

const struct llm_segment *llm_pass_segments(struct llm_ctx *c, const struct llm_pass *p, int64_t skip, int64_t *n)
{
    const struct llm_batch *b = p->batch;
    const bool divided = !b->seqs && llm_sequence_is_divided(c);
    *n = b->seqs ? b->n_seqs : divided ? cut_parts(c, b, NULL) : cut_rows(c, b, 0, NULL);
    struct llm_segment *out = llm_op_alloc(c, *n, sizeof *out);
    if (!out) return NULL;
    if (divided) cut_parts(c, b, out);
    else if (!b->seqs) cut_rows(c, b, b->state ? carried_at(p) + skip : 0, out);
    for (int64_t s = 0; b->seqs && s < b->n_seqs; s++) {
        const struct llm_kv_seq *q = &b->seqs[p->layer * b->n_seqs + s];
        out[s] = (struct llm_segment){.first = q->first, .n = q->n, .from = q->state + skip, .to = q->state + skip};
    }
    return out;
}
