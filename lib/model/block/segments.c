/* Which tokens of a pass follow each other, for layers that go through them in order. */
#include "model/arch.h"
#include "tensor/tape.h"

/* Runs of the rows of training, or only their number. */
static int64_t cut_rows(const struct llm_ctx *c, const struct llm_batch *b, struct llm_segment *out)
{
    int64_t row_len = llm_row_len(c, b->n_tokens), n = 0;
    for (int64_t t = 0; t < b->n_tokens; t++) {
        bool begins = t % row_len == 0 || (b->doc_start && b->doc_start[t] == t % row_len);
        if (begins) {
            if (out) out[n] = (struct llm_segment){.first = t};
            n++;
        }
        if (out) out[n - 1].n++;
    }
    return n;
}

const struct llm_segment *llm_pass_segments(struct llm_ctx *c, const struct llm_pass *p, int64_t skip, int64_t *n)
{
    const struct llm_batch *b = p->batch;
    *n = b->seqs ? b->n_seqs : cut_rows(c, b, NULL);
    struct llm_segment *out = llm_op_alloc(c, *n, sizeof *out);
    if (!out) return NULL;
    if (!b->seqs) cut_rows(c, b, out);
    for (int64_t s = 0; b->seqs && s < b->n_seqs; s++) {
        const struct llm_kv_seq *q = &b->seqs[p->layer * b->n_seqs + s];
        out[s] = (struct llm_segment){q->first, q->n, q->state + skip, q->state + skip};
    }
    return out;
}
