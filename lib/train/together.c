#include "train/together.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "model/weights/model.h"
#include "model/weights/names.h"
#include "tensor/slices.h"

int llm_together_add(struct llm_together *w, const char *name, size_t param, int64_t shard, const float *own, struct llm_err *e)
{
    if (llm_grow((void **)&w->v, &w->room, w->n + 1, sizeof *w->v, e) < 0) return -1;
    int maker = shard < 0 ? -1 : 0;
    while (shard >= 0 && llm_shard_run(maker, w->share->n, w->share->run.n).end <= shard) maker++;
    w->v[w->n++] = (struct llm_held){.name = name, .param = param, .maker = maker, .own = own};
    return 0;
}

int llm_together_add_slices(struct llm_together *w, const char *name, size_t param, const float *const *slice, struct llm_err *e)
{
    const struct llm_slices *s = w->share->t[param].p->slice_of;
    const float **copy = llm_alloc((size_t)s->n, sizeof *copy, "slices", e);
    if (!copy || llm_together_add(w, name, param, -1, NULL, e) < 0) {
        free(copy);
        return -1;
    }
    memcpy(copy, slice, (size_t)s->n * sizeof *copy);
    w->v[w->n - 1].slices = s;
    w->v[w->n - 1].slice = copy;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct llm_held *)a)->name, ((const struct llm_held *)b)->name);
}

static const struct llm_held *find(const struct llm_together *w, const char *name)
{
    const struct llm_held key = {.name = name};
    return w->n > 0 ? bsearch(&key, w->v, w->n, sizeof *w->v, by_name) : NULL;
}

/* Elements [from, from + n) of a parameter that one rank owns. */
struct owned { int owner; size_t param, from, n; };

/* The next of those of [*at, end), at which it then ends. False: there is none. */
static bool next_owned(const struct llm_share *s, size_t param, size_t *at, size_t end, struct owned *o)
{
    *o = (struct owned){.param = param, .from = *at};
    for (size_t c = s->params[param].first; c < s->params[param].end && *at < end; c++) {
        const struct llm_share_cell *k = &s->cells[c];
        if (k->from + k->n <= *at) continue;
        if (o->n > 0 && k->owner != o->owner) break;
        const size_t to = k->from + k->n < end ? k->from + k->n : end;
        o->owner = k->owner;
        o->n += to - *at;
        *at = to;
    }
    return o->n > 0;
}

/* The elements of a held tensor that a frame has, [from, end), piece by piece: those of a tensor that is cut follow one another slice by slice. */
struct pieces { const struct llm_held *k; size_t from, end, at; int slice; bool in_slice; };

static struct pieces pieces_of(const struct llm_held *k, uint64_t from, size_t bytes)
{
    const size_t first = (size_t)from / sizeof(float);
    return (struct pieces){.k = k, .from = first, .end = first + bytes / sizeof(float), .at = first};
}

/* What slice j has of the frame: its elements [*from, *end). */
static void in_slice(const struct pieces *p, int j, size_t *from, size_t *end)
{
    *from = (size_t)llm_slices_before(p->k->slices, j, (int64_t)p->from);
    *end = (size_t)llm_slices_before(p->k->slices, j, (int64_t)p->end);
}

/* The next piece that one rank owns. False: there is none. */
static bool next_piece(const struct llm_share *s, struct pieces *p, struct owned *o)
{
    const struct llm_slices *k = p->k->slices;
    if (!k) return next_owned(s, p->k->param, &p->at, p->end, o);
    for (size_t from, end; p->slice < k->n; p->slice++) {
        in_slice(p, p->slice, &from, &end);
        if (!p->in_slice) p->at = from;
        p->in_slice = p->at < end && next_owned(s, p->k->param + (size_t)p->slice, &p->at, end, o);
        if (p->in_slice) return true;
    }
    return false;
}

/* llm_frame_team.maker: of what the ranks have in parts, the one that owns most. Of weights in parts rank 0 alone has all (state.c). */
static int maker(void *arg, const struct llm_frame_job *job)
{
    const struct llm_together *w = arg;
    const struct llm_held *k = find(w, job->name);
    if (!k) return llm_share_scatters(w->share) && strncmp(job->name, LLM_NAME_TRAINING, strlen(LLM_NAME_TRAINING)) != 0 ? 0 : -1;
    if (k->maker >= 0) return k->maker;
    size_t most = 0;
    int owner = 0;
    struct owned o;
    for (struct pieces p = pieces_of(k, job->from, job->bytes); next_piece(w->share, &p, &o);) {
        if (o.n > most) owner = o.owner;
        if (o.n > most) most = o.n;
    }
    return owner;
}

static void discard_brought(struct llm_together *w)
{
    for (size_t i = 0; i < w->n_brought; i++) free(w->brought[i].p);
    w->n_brought = w->n_transfers = 0;
}

/* The tensor of a job's frame if that is made of several pieces; else NULL. */
static const struct llm_held *is_joint(const struct llm_together *w, const struct llm_frame_job *job)
{
    const struct llm_held *k = job->name ? find(w, job->name) : NULL;
    struct owned o;
    if (!k || k->maker >= 0) return NULL;
    struct pieces p = pieces_of(k, job->from, job->bytes);
    return k->slices || (next_piece(w->share, &p, &o) && p.at < p.end) ? k : NULL;
}

static int make_room(struct llm_together *w, const struct llm_frame_job *jobs, const int *makers, size_t n, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (makers[i] != w->share->rank || !is_joint(w, &jobs[i])) continue;
        if (llm_grow((void **)&w->brought, &w->brought_room, w->n_brought + 1, sizeof *w->brought, e) < 0) return -1;
        struct llm_brought *b = &w->brought[w->n_brought];
        *b = (struct llm_brought){jobs[i].name, jobs[i].from, llm_alloc(jobs[i].bytes, 1, "what the ranks keep", e)};
        if (!b->p) return -1;
        w->n_brought++;
    }
    return 0;
}

/* What this rank owns of a frame that rank `to` makes, or, if it makes it itself (to: NULL), what all own. `p`: room for the frame, whose pieces
 * follow one another there. */
static int bring(struct llm_together *w, const struct llm_held *k, const struct llm_frame_job *job, int to, unsigned char *p, struct llm_err *e)
{
    const struct llm_share *s = w->share;
    struct owned o;
    size_t done = 0;
    for (struct pieces at = pieces_of(k, job->from, job->bytes); next_piece(s, &at, &o); done += o.n) {
        const float *own = k->slices ? k->slice[o.param - k->param] : k->own;
        const float *mine = o.owner == s->rank ? own + (o.from - s->t[o.param].own_from) : NULL;
        const size_t bytes = o.n * sizeof *mine;
        if (p && mine) memcpy(p + done * sizeof *mine, mine, bytes);
        if (p ? mine != NULL : mine == NULL) continue;
        if (llm_grow((void **)&w->transfers, &w->transfers_room, w->n_transfers + 1, sizeof *w->transfers, e) < 0) return llm_comm_give_up(s->comm);
        struct llm_transfer *t = &w->transfers[w->n_transfers++];
        *t = (struct llm_transfer){.request = NULL};
        const int got = p ? llm_comm_receive(s->comm, o.owner, p + done * sizeof *mine, bytes, t, e) : llm_comm_send(s->comm, to, mine, bytes, t, e);
        if (got < 0) return -1;
    }
    return 0;
}

/* llm_frame_team.begin */
static int begin(void *arg, int got, const struct llm_frame_job *jobs, const int *makers, size_t n, struct llm_err *e)
{
    struct llm_together *w = arg;
    size_t room = 0;
    discard_brought(w);
    if (got == 0) got = make_room(w, jobs, makers, n, e);
    got = llm_comm_agree(w->share->comm, got, NULL, e);
    for (size_t i = 0; i < n && got == 0; i++) {
        const struct llm_held *k = is_joint(w, &jobs[i]);
        if (k) got = bring(w, k, &jobs[i], makers[i], makers[i] == w->share->rank ? w->brought[room++].p : NULL, e);
    }
    return got < 0 ? -1 : llm_comm_wait(w->share->comm, w->transfers, w->n_transfers, e);
}

/* llm_frame_team.tell_sizes */
static int tell_sizes(void *arg, const int *makers, uint32_t *sizes, size_t n, struct llm_err *e)
{
    const struct llm_share *s = ((struct llm_together *)arg)->share;
    if (!s->comm) return 0;
    uint32_t *all = llm_alloc(n * (size_t)s->n, sizeof *all, "messages", e);
    if (!all) return llm_comm_give_up(s->comm);
    memcpy(all + n * (size_t)s->rank, sizes, n * sizeof *sizes);
    const int got = llm_comm_gather_even(s->comm, all, n * sizeof *all, e);
    for (size_t i = 0; i < n && got == 0; i++) sizes[i] = all[n * (size_t)makers[i] + i];
    free(all);
    return got;
}

/* llm_frame_team.pass */
static int pass(void *arg, int from, void *p, size_t n, struct llm_err *e)
{
    const struct llm_share *s = ((struct llm_together *)arg)->share;
    struct llm_transfer t = {.request = NULL};
    const int got = s->rank == from ? llm_comm_send(s->comm, 0, p, n, &t, e) : llm_comm_receive(s->comm, from, p, n, &t, e);
    return got < 0 ? -1 : llm_comm_wait(s->comm, &t, 1, e);
}

/* llm_frame_team.tell */
static int tell(void *arg, void *p, size_t n, struct llm_err *e)
{
    return llm_comm_broadcast(((struct llm_together *)arg)->share->comm, 0, p, n, e);
}

/* Who writes the frames of each rank, and how many a rank makes at once. */
static int make_team(struct llm_together *w, bool writes, struct llm_err *e)
{
    struct llm_share *s = w->share;
    uint64_t limit = llm_frames_in_memory();
    if (w->n > 0) qsort(w->v, w->n, sizeof *w->v, by_name);
    free(w->writers);
    if (!(w->writers = llm_calloc((size_t)s->n, sizeof *w->writers, "messages", e))) return llm_comm_give_up(s->comm);
    w->writers[s->rank] = writes ? s->rank : 0;
    if (llm_comm_gather_even(s->comm, w->writers, sizeof *w->writers, e) < 0) return -1;
    if (llm_comm_broadcast(s->comm, 0, &limit, sizeof limit, e) < 0) return -1;
    w->team = (struct llm_frame_team){.rank = s->rank, .n = s->n, .limit = (size_t)limit, .writer = w->writers, .arg = w, .maker = maker,
                                      .begin = begin, .tell_sizes = tell_sizes, .pass = pass, .tell = tell};
    for (int q = 1; q < s->n && s->rank == 0; q++) {
        if (w->writers[q] == 0) llm_verbose("rank %d (%s) does not see the file: rank 0 writes for it", q, llm_comm_host(s->comm, q));
    }
    return 0;
}

int llm_together_open(struct llm_together *w, const char *path, struct llm_output **o, struct llm_err *e)
{
    struct llm_comm *c = w->share->comm;
    char name[256] = "";
    *o = w->share->rank == 0 ? llm_output_open(path, true, e) : NULL;
    int got = llm_comm_agree(c, w->share->rank > 0 || *o ? 0 : -1, NULL, e);
    const char *temporary = *o ? llm_output_temporary(*o) : NULL;
    if (temporary && strlen(temporary) < sizeof name) memcpy(name, temporary, strlen(temporary) + 1);
    if (got == 0) got = llm_comm_broadcast(c, 0, name, sizeof name, e);
    name[sizeof name - 1] = 0;
    if (got == 0 && w->share->rank > 0 && name[0]) got = llm_output_join(o, path, name, e);
    if (got == 0) got = make_team(w, *o != NULL, e);
    got = llm_comm_agree(c, got, NULL, e);
    if (got == 0) return 0;
    llm_output_abandon(*o);
    *o = NULL;
    return -1;
}

/* llm_frame_team.place */
static int place(void *arg, uint64_t at, uint64_t n, struct llm_err *e)
{
    struct llm_extents *l = ((struct llm_together *)arg)->extents;
    struct llm_extent *last = l->n > 0 ? &l->v[l->n - 1] : NULL;
    if (last && last->at + last->bytes == at) {
        last->bytes += n;
        return 0;
    }
    if (llm_grow((void **)&l->v, &l->room, l->n + 1, sizeof *l->v, e) < 0) return -1;
    l->v[l->n++] = (struct llm_extent){at, n};
    return 0;
}

int llm_together_apart(struct llm_together *w, struct llm_extents *extents, struct llm_err *e)
{
    if (make_team(w, true, e) < 0) return -1;
    w->extents = extents;
    w->team.place = place;
    return 0;
}

int llm_together_commit(struct llm_together *w, struct llm_output *o, int got, struct llm_err *e)
{
    if (got == 0 && w->share->rank > 0 && o) got = llm_output_finish(o, e);
    got = llm_comm_agree(w->share->comm, got, NULL, e);
    if (got == 0 && w->share->rank == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return got;
}

/* A frame of a tensor that is cut: `brought`, what the ranks have sent of it, or NULL: this rank has all slices. */
static void give_slices(const struct llm_held *k, uint64_t at, size_t n, const unsigned char *brought, float *out)
{
    const struct pieces p = pieces_of(k, at, n);
    size_t from, end, done = 0;
    for (int j = 0; j < k->slices->n; j++) {
        in_slice(&p, j, &from, &end);
        const float *x = brought ? (const float *)brought + done : k->slice[j] + from;
        done += end - from;
        for (int64_t i = (int64_t)from, run, whole; i < (int64_t)end; i += run) {
            run = llm_slices_run(k->slices, j, i, &whole);
            if (run > (int64_t)end - i) run = (int64_t)end - i;
            memcpy(out + ((size_t)whole - p.from), x + ((size_t)i - from), (size_t)run * sizeof *out);
        }
    }
}

void llm_together_give(void *arg, const char *name, uint64_t from, size_t n, void *out)
{
    const struct llm_together *w = arg;
    const struct llm_held *k = find(w, name);
    const unsigned char *brought = NULL;
    if (!k) {
        llm_model_give(w->model, name, from, n, out);
        return;
    }
    for (size_t i = 0; i < w->n_brought && !brought; i++) {
        if (strcmp(w->brought[i].name, name) == 0 && w->brought[i].from == from) brought = w->brought[i].p;
    }
    if (k->slices) give_slices(k, from, n, brought, out);
    else if (brought) memcpy(out, brought, n);
    else {
        const size_t skipped = k->maker < 0 ? w->share->t[k->param].own_from * sizeof *k->own : 0;
        memcpy(out, (const char *)k->own + ((size_t)from - skipped), n);
    }
}

void llm_together_release(struct llm_together *w)
{
    discard_brought(w);
    free(w->brought);
    free(w->transfers);
    free(w->writers);
    for (size_t i = 0; i < w->n; i++) free(w->v[i].slice);
    free(w->v);
    *w = (struct llm_together){.share = NULL};
}
