/* Attention whose work ranks divide (llm_attn_members): what the backward pass of one needs of the others' queries. */
#include "tensor/op/attention_internal.h"

#include "cpu/profile.h"
#include "dist/group.h"
#include "tensor/sequence.h"

/* The statistics of the tokens that `owner` owns, to or from a message [tokens of the owner, n_heads, 3]. Returns where the message ends. */
static float *move(const struct llm_attn *a, int64_t tokens, int owner, float *message, float *stats, float *d, bool out)
{
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t i = t * a->n_heads; i < (t + 1) * a->n_heads && a->members->owner[t] == owner; i++, message += 3) {
            float *const of[] = {&stats[2 * i], &stats[2 * i + 1], &d[i]};
            for (int k = 0; k < 3; k++) {
                if (out) message[k] = *of[k];
                else *of[k] = message[k];
            }
        }
    }
    return message;
}

bool attn_exchange_statistics(struct llm_ctx *c, const struct llm_attn *a, int64_t tokens, float *stats, float *d)
{
    LLM_PROFILE("sequence: exchange", 0);
    const struct llm_attn_members *m = a->members;
    const int own = m->first + m->member;
    void *out[LLM_MAX_PARTS_OF_ROW] = {NULL}, *in[LLM_MAX_PARTS_OF_ROW] = {NULL};
    size_t out_bytes[LLM_MAX_PARTS_OF_ROW] = {0}, in_bytes[LLM_MAX_PARTS_OF_ROW] = {0};
    float *const messages = llm_op_alloc(c, 3 * tokens * a->n_heads, sizeof *messages), *at = messages;
    if (!messages) return false;
    for (int i = 0; i < m->n; i++) {
        float *const end = move(a, tokens, i, at, stats, d, true); /* what is not this rank's is undefined, and then overwritten */
        in[m->first + i] = at;
        in_bytes[m->first + i] = (size_t)(end - at) * sizeof *at;
        at = end;
    }
    for (int q = m->first; q < m->first + m->n; q++) {
        out[q] = in[own];
        out_bytes[q] = in_bytes[own];
    }
    in_bytes[own] = 0; /* it lies there */
    if (llm_group_exchange(m->group, out, out_bytes, in, in_bytes, &c->err) < 0) return false;
    at = messages;
    for (int i = 0; i < m->n; i++) at = move(a, tokens, i, at, stats, d, false);
    return true;
}
