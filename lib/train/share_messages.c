/* Lists of messages, and how long they take (train/share.h). */
#include <math.h>
#include "base/buf.h"
#include "base/log.h"
#include "train/share_internal.h"

int llm_share_post(struct llm_comm *c, const struct llm_transfers *l, int peer, void *p, size_t bytes, bool receives, struct llm_err *e)
{
    for (size_t at = 0; at < bytes; at += LLM_COMM_BUCKET) {
        const size_t n = bytes - at < LLM_COMM_BUCKET ? bytes - at : LLM_COMM_BUCKET;
        char *piece = (char *)p + at;
        if (llm_grow((void **)l->v, l->room, *l->n + 1, sizeof **l->v, e) < 0) return llm_comm_give_up(c);
        struct llm_transfer *t = &(*l->v)[*l->n];
        if ((receives ? llm_comm_receive(c, peer, piece, n, t, e) : llm_comm_send(c, peer, piece, n, t, e)) < 0) return -1;
        ++*l->n;
    }
    return 0;
}

void llm_share_count(struct llm_share *s, int change)
{
    const double now = llm_now();
    if (s->under_way == 0) s->since = now;
    s->under_way += (size_t)change;
    if (s->under_way == 0) s->busy += now - s->since;
}

int llm_share_wait(struct llm_share *s, struct llm_comm *c, struct llm_transfer *t, size_t n, struct llm_err *e)
{
    const double began = llm_now();
    const int got = llm_comm_wait(c, t, n, e);
    s->blocked += llm_now() - began;
    return got;
}

double llm_share_hidden(struct llm_share *s)
{
    const double hidden = s->busy > 0 ? 1 - s->blocked / s->busy : NAN;
    s->busy = s->blocked = 0;
    return hidden < 0 ? 0 : hidden;
}
