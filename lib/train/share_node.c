/* One copy of the weights in the memory that ranks of a machine have together (train/share.h). The owners write it in their updates, which follow the
 * norm of the gradient, for which all ranks have finished their passes. In place of the weights a rank sends the others of its machine one byte for
 * each group when its own are there. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "train/share_internal.h"

static size_t room_of(const struct llm_share *s, size_t i) { return (llm_shard_stride(s->t[i].p) * sizeof(float) + 63) / 64 * 64; }

int llm_share_node_init(struct llm_share *s, const struct llm_train_options *o, bool adapted, struct llm_err *e)
{
    size_t bytes = 0;
    const bool serves = (s->zero == 1 || s->zero == 2) && s->lanes == 1 && s->ep == 1 && s->n_stages == 0 && o->ema == 0 && !adapted;
    if (!serves) return 0;
    if (llm_comm_agree(s->comm, 0, NULL, e) < 0) return -1; /* ranks that have come to no model are not waited for */
    if (!(s->owns = llm_calloc((size_t)(s->n_groups + 1) * (size_t)s->n, sizeof *s->owns, "the ranks' shares", e))) return llm_comm_give_up(s->comm);
    for (size_t c = 0; c < s->n_cells; c++) {
        s->owns[s->params[s->cells[c].param].group * s->n + llm_share_owner(s, &s->cells[c])] = true;
    }
    for (size_t i = 0; i < s->n_params; i++) bytes += room_of(s, i);
    if (llm_node_memory_create(&s->together, s->comm, bytes, e) < 0) return -1;
    bool any = false, several = false;
    for (int q = 0; q < s->n; q++) {
        any |= s->together.node[q] != q;
        several |= s->together.node[q] != s->together.node[0];
    }
    s->apart = any && several;
    return 0;
}

void llm_share_node_place(struct llm_share *s, size_t i)
{
    struct llm_param *p = s->t[i].p;
    char *at = s->together.p;
    if (!at) return;
    for (size_t k = 0; k < i; k++) at += room_of(s, k);
    memcpy(at, p->master, (size_t)llm_param_count(p) * sizeof(float)); /* every rank the same */
    free((void *)p->weight.data);
    p->owned = false;
    p->weight.data = p->master = (float *)(void *)at;
}

void llm_share_node_forget(struct llm_share *s)
{
    for (size_t i = 0; s->together.p && i < s->n_params; i++) {
        struct llm_param *p = s->t[i].p;
        const char *at = (const char *)p->master, *first = s->together.p;
        if (at >= first && at < first + s->together.bytes) p->weight.data = p->master = NULL;
    }
    llm_node_memory_release(&s->together);
}

bool llm_share_near(const struct llm_share *s, int q)
{
    return s->together.node && s->together.node[q] == s->together.node[s->rank];
}

bool llm_share_receives(const struct llm_share *s, int q)
{
    return !s->together.node || s->together.node[q] == q;
}

bool llm_share_owns_of(const struct llm_share *s, int64_t group, int q)
{
    return s->owns[group * s->n + q];
}
