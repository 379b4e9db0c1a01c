/* Updated weights that every op reads rounded to BF16 travel so (train/share.h): half the bytes, and the same bits of the step. They arrive in the
 * upper half of their own place, where they are widened from the lower end on: no float is written over a number that is still to be read. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cpu/kernels.h"
#include "cpu/optim.h"
#include "cpu/pool.h"
#include "train/share_internal.h"

enum { BLOCK = 4096 /* elements that are widened at once */, CELLS = LLM_OPTIM_BLOCK /* that are rounded at once */ };

bool llm_share_rounded(const struct llm_share *s, size_t i)
{
    return s->rounded && s->t[i].p->spec && s->t[i].p->n_dims > 1;
}

/* ---- from an owner ---- */

/* Whether another rank keeps what this rank keeps of a unit. */
static bool is_sent(const struct llm_share *s, const struct llm_share_unit *u)
{
    int keepers = 0;
    for (int q = 0; q < s->n; q++) keepers += q == s->rank || (llm_share_keeps(s, u, q) && !llm_share_near(s, q));
    return keepers > 1;
}

struct rounding { uint16_t *out; const float *x; size_t n; };

static void round_cells(void *arg, size_t i, int thread)
{
    const struct rounding *w = arg;
    const size_t at = i * CELLS;
    (void)thread;
    llm_k.elementwise.to_bf16(w->out + at, w->x + at, w->n - at < CELLS ? w->n - at : CELLS);
}

uint16_t *llm_share_round(struct llm_share_brought *b, const struct llm_share_run *r, const float *x)
{
    struct rounding w = {b->rounded + b->n_rounded, x, r->n};
    b->n_rounded += r->n;
    llm_parallel((r->n + CELLS - 1) / CELLS, round_cells, &w);
    return w.out;
}

int llm_share_make_rounded(struct llm_share *s, struct llm_share_brought *b, struct llm_err *e)
{
    size_t n = 0;
    b->n_rounded = 0;
    for (size_t u = 0; s->rounded && u < s->n_units; u++) {
        const struct llm_share_unit *x = &s->units[u];
        struct llm_share_run r;
        if (x->group != b->group || !is_sent(s, x)) continue;
        for (size_t at = x->first; llm_share_next_run(s, x, s->rank, &at, &r);) n += llm_share_rounded(s, r.param) ? r.n : 0;
    }
    if (n <= b->rounded_room) return 0;
    free(b->rounded);
    b->rounded = llm_alloc_huge(n, sizeof *b->rounded, "messages", e);
    b->rounded_room = b->rounded ? n : 0;
    return b->rounded ? 0 : llm_comm_give_up(s->comm);
}

/* ---- at the others ---- */

void *llm_share_place_rounded(float *x, size_t n)
{
    return (char *)x + n * sizeof(uint16_t);
}

static void widen(void *arg, size_t i, int thread)
{
    const struct llm_share_widened *w = (const struct llm_share_widened *)arg + i;
    const char *from = llm_share_place_rounded(w->x, w->n);
    uint16_t block[BLOCK];
    (void)thread;
    for (size_t at = 0, n; at < w->n; at += n) {
        n = w->n - at < BLOCK ? w->n - at : BLOCK;
        memcpy(block, from + at * sizeof *block, n * sizeof *block);
        llm_k.elementwise.from_bf16(w->x + at, block, n);
    }
}

int llm_share_add_widened(struct llm_share_brought *b, float *x, size_t n, struct llm_err *e)
{
    if (llm_grow((void **)&b->widened, &b->widened_room, b->n_widened + 1, sizeof *b->widened, e) < 0) return -1;
    b->widened[b->n_widened++] = (struct llm_share_widened){x, n};
    return 0;
}

void llm_share_widen(struct llm_share_brought *b)
{
    llm_parallel(b->n_widened, widen, b->widened);
    b->n_widened = 0;
}
