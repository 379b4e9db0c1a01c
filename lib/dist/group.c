#include "dist/group.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"

static uint64_t LEFT = UINT64_MAX; /* in place of a length; never written */

struct llm_group {
    struct llm_group_head head;
    struct llm_comm *comm;          /* NULL: the other ranks are not there. Owned, as all below */
    bool abandoned, said;           /* said: that this rank has left the pass */
    bool *left;                     /* [n] has said that it has left the pass */
    uint64_t *arrived, *sent;       /* [n] headers */
    void **mine;                    /* [n] what a gather sends to each */
    size_t *mine_bytes;             /* [n] */
    uint64_t *owed;                 /* [n] bytes of data that follow a header that has arrived, and have not been received */
    struct llm_transfer *headers;   /* [n] */
    struct llm_transfer *transfers; /* of sends and data; those of an exchange that failed are waited for by llm_group_leave */
    size_t n_transfers, room;
};

void llm_group_destroy(struct llm_group *g)
{
    if (!g) return;
    llm_comm_destroy(g->comm);
    free(g->left);
    free(g->arrived);
    free(g->sent);
    free(g->mine);
    free(g->mine_bytes);
    free(g->owed);
    free(g->headers);
    free(g->transfers);
    free(g);
}

static int gather(struct llm_group *g, void *const *parts, const size_t *bytes, struct llm_err *e);
static int exchange(struct llm_group *g, void *const *out, const size_t *out_bytes, void *const *in, const size_t *in_bytes, struct llm_err *e);

struct llm_group *llm_group_create(struct llm_comm *c, int first, int step, int n, struct llm_err *e)
{
    struct llm_group *g = llm_calloc(1, sizeof *g, "a group of ranks", e);
    if (!g) return NULL;
    g->head = (struct llm_group_head){n, 0, gather, exchange};
    if (!c || (g->comm = llm_comm_run(c, first, step, n, e))) {
        g->head.rank = llm_comm_rank(g->comm);
        g->left = llm_calloc((size_t)g->head.n, sizeof *g->left, "a group of ranks", e);
        g->arrived = llm_calloc((size_t)g->head.n, sizeof *g->arrived, "a group of ranks", e);
        g->sent = llm_calloc((size_t)g->head.n, sizeof *g->sent, "a group of ranks", e);
        g->mine = llm_calloc((size_t)g->head.n, sizeof *g->mine, "a group of ranks", e);
        g->mine_bytes = llm_calloc((size_t)g->head.n, sizeof *g->mine_bytes, "a group of ranks", e);
        g->owed = llm_calloc((size_t)g->head.n, sizeof *g->owed, "a group of ranks", e);
        g->headers = llm_calloc((size_t)g->head.n, sizeof *g->headers, "a group of ranks", e);
        if (g->left && g->arrived && g->sent && g->mine && g->mine_bytes && g->owed && g->headers) return g;
    }
    llm_group_destroy(g);
    return NULL;
}

/* Sends or receives in messages of at most LLM_COMM_BUCKET bytes. */
static int post(struct llm_group *g, int peer, void *p, size_t bytes, bool receives, struct llm_err *e)
{
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < LLM_COMM_BUCKET ? bytes - at : LLM_COMM_BUCKET;
        if (llm_grow((void **)&g->transfers, &g->room, g->n_transfers + 1, sizeof *g->transfers, e) < 0) return llm_comm_give_up(g->comm);
        struct llm_transfer *t = &g->transfers[g->n_transfers];
        char *from = (char *)p + at;
        if ((receives ? llm_comm_receive(g->comm, peer, from, n, t, e) : llm_comm_send(g->comm, peer, from, n, t, e)) < 0) return -1;
        g->n_transfers++;
    }
    return 0;
}

/* Waits for what was posted. */
static int finish(struct llm_group *g, struct llm_err *e)
{
    const int got = llm_comm_wait(g->comm, g->transfers, g->n_transfers, e);
    g->n_transfers = 0;
    return got;
}

/* The next header of every rank. */
static int receive_headers(struct llm_group *g, struct llm_err *e)
{
    size_t n = 0;
    for (int q = 0; q < g->head.n; q++) {
        if (q != g->head.rank && llm_comm_receive(g->comm, q, &g->arrived[q], sizeof *g->arrived, &g->headers[n++], e) < 0) return -1;
    }
    if (llm_comm_wait(g->comm, g->headers, n, e) < 0) return -1;
    for (int q = 0; q < g->head.n; q++) {
        if (q == g->head.rank) continue;
        if (g->arrived[q] == LEFT) g->left[q] = g->abandoned = true;
        else g->owed[q] = g->arrived[q];
    }
    return 0;
}

/* Sends and receives what lies with other ranks. */
static int swap(struct llm_group *g, void *const *out, const size_t *out_bytes, void *const *in, const size_t *in_bytes, struct llm_err *e)
{
    for (int d = 1; d < g->head.n; d++) {
        const int to = (g->head.rank + d) % g->head.n;
        g->sent[to] = out_bytes[to];
        if (post(g, to, &g->sent[to], sizeof *g->sent, false, e) < 0 || post(g, to, out[to], out_bytes[to], false, e) < 0) return -1;
    }
    if (receive_headers(g, e) < 0) return -1;
    if (g->abandoned) return llm_fail(e, LLM_EX_FAILURE, "another rank has left the pass");
    for (int q = 0; q < g->head.n; q++) {
        if (q == g->head.rank) continue;
        if (g->arrived[q] != in_bytes[q]) {
            return llm_fail(e, LLM_EX_FAILURE, "expected a message of %zu bytes from rank %d (%s) of the group, found %llu", in_bytes[q], q,
                            llm_comm_host(g->comm, q), (unsigned long long)g->arrived[q]);
        }
        if (post(g, q, in[q], in_bytes[q], true, e) < 0) return -1;
        g->owed[q] = 0;
    }
    return finish(g, e);
}

static int gather(struct llm_group *g, void *const *parts, const size_t *bytes, struct llm_err *e)
{
    for (int q = 0; q < g->head.n; q++) {
        if (!g->comm && q != g->head.rank) memset(parts[q], 0, bytes[q]);
        g->mine[q] = parts[g->head.rank];
        g->mine_bytes[q] = bytes[g->head.rank];
    }
    return g->comm ? swap(g, g->mine, g->mine_bytes, parts, bytes, e) : 0;
}

static int exchange(struct llm_group *g, void *const *out, const size_t *out_bytes, void *const *in, const size_t *in_bytes, struct llm_err *e)
{
    const int own = g->head.rank;
    for (int q = 0; q < g->head.n; q++) {
        if ((q != own && g->comm) || in_bytes[q] == 0) continue; /* without a message there may be no memory either */
        if (in_bytes[q] == out_bytes[own]) memcpy(in[q], out[own], in_bytes[q]);
        else memset(in[q], 0, in_bytes[q]);
    }
    return g->comm ? swap(g, out, out_bytes, in, in_bytes, e) : 0;
}

/* Receives the data of rank q that follow a header, without using them. `p`: memory of LLM_COMM_BUCKET bytes. */
static int discard(struct llm_group *g, int q, unsigned char *p, struct llm_err *e)
{
    struct llm_transfer t;
    for (size_t n; g->owed[q] > 0; g->owed[q] -= n) {
        n = g->owed[q] < LLM_COMM_BUCKET ? (size_t)g->owed[q] : LLM_COMM_BUCKET;
        if (llm_comm_receive(g->comm, q, p, n, &t, e) < 0 || llm_comm_wait(g->comm, &t, 1, e) < 0) return -1;
    }
    return 0;
}

int llm_group_say(struct llm_group *g, struct llm_err *e)
{
    if (!g || !g->comm || g->said) return 0;
    g->said = true;
    for (int q = 0; q < g->head.n; q++) {
        if (q != g->head.rank && post(g, q, &LEFT, sizeof LEFT, false, e) < 0) return -1;
    }
    return 0;
}

int llm_group_leave(struct llm_group *g, bool *abandoned, struct llm_err *e)
{
    struct llm_transfer t;
    *abandoned = false;
    if (!g || !g->comm) return 0;
    unsigned char *p = llm_alloc(LLM_COMM_BUCKET, 1, "messages", e); /* touched only if something is discarded */
    int got = p ? llm_group_say(g, e) : llm_comm_give_up(g->comm);
    for (int q = 0; q < g->head.n && got == 0; q++) {
        while (q != g->head.rank && got == 0) {
            got = discard(g, q, p, e);
            if (got < 0 || g->left[q]) break;
            if (llm_comm_receive(g->comm, q, &g->arrived[q], sizeof *g->arrived, &t, e) < 0 || llm_comm_wait(g->comm, &t, 1, e) < 0) got = -1;
            if (got == 0 && g->arrived[q] == LEFT) g->left[q] = true;
            else if (got == 0) g->owed[q] = g->arrived[q];
        }
        g->left[q] = false;
    }
    if (got == 0) got = finish(g, e);
    *abandoned = g->abandoned;
    g->abandoned = g->said = false;
    free(p);
    return got;
}
