#include "token/stream.h"
#include <stdlib.h>
#include <string.h>
#include "cpu/pool.h"
#include "token/internal.h"
#include "token/unicode.h"

#define BATCH ((size_t)2 << 20) /* bytes encoded side by side … */
#define BATCH_ALONE ((size_t)256 << 10) /* … and by one thread: they stay in its cache */
#define PART ((size_t)64 << 10) /* bytes of one part */

struct label {
    const char *name, *what;
    uint64_t number;
};

struct part {
    const unsigned char *p;
    size_t n;
    uint64_t offset; /* in its document */
    struct label label;
    bool first, last;
    int32_t *ids;
    size_t n_ids, room;
    struct llm_err e;
};

struct llm_encode_stream {
    const struct llm_tokenizer *t;
    int flags;
    llm_encode_sink *sink;
    void *arg;
    size_t batch;             /* bytes that are waited for */
    bool may_cut;
    struct llm_encoder *encoders[LLM_MAX_THREADS]; /* one a thread, made when it first works */
    struct llm_encoder *alone;                     /* for a document without a safe cut */
    int32_t *alone_ids;
    size_t alone_room;
    struct llm_buf text;      /* not encoded yet */
    struct document_end { size_t at; struct label label; } *ends; /* of the documents in `text` */
    size_t n_ends, room_ends;
    bool begun;               /* part of the first document in `text` is encoded already … */
    bool in_alone;            /* … by `alone` */
    uint64_t offset;          /* of the text's start in its document */
    struct label label;       /* of the document being put */
    struct part *parts;
    size_t n_parts, room_parts;
};

/* Is the last character of p[0, n) white space? Nothing counts as white space. */
static bool ends_in_space(const unsigned char *p, size_t n)
{
    uint32_t cp;
    if (n == 0)
        return true;
    if (p[n - 1] < 0x80)
        return llm_ascii_class[p[n - 1]] & LLM_CH_SPACE;
    for (size_t back = 2; back <= 4 && back <= n; back++)
        if (p[n - back] >= 0xC0)
            return llm_utf8_next(p + n - back, back, &cp) == (int)back && llm_char_class(cp) & LLM_CH_SPACE;
    return false;
}

static bool begins_with_letter(const unsigned char *p, size_t n)
{
    uint32_t cp;
    return llm_utf8_next(p, n, &cp) > 0 && llm_char_class(cp) & LLM_CH_LETTER;
}

size_t llm_split_cut(const unsigned char *p, size_t n)
{
    for (size_t at = n; at-- > 1;) {
        if (p[at] == ' ' && !ends_in_space(p, at))
            return at;
        if (p[at - 1] == '\n' && !ends_in_space(p, at - 1) && begins_with_letter(p + at, n - at))
            return at;
    }
    return 0;
}

/* A cut must not fall into an added token. */
static bool may_cut(const struct llm_tokenizer *t)
{
    if (t->n_splits > 1 || (t->n_splits == 1 && !t->splits[0].row) || (t->n_splits == 0 && !t->model->any_cut))
        return false;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        size_t n;
        const char *text = llm_tokenizer_piece(t, id, &n);
        for (size_t i = 1; t->flags[id] & LLM_TOKEN_ADDED && i < n; i++)
            if (text[i] == ' ' || text[i - 1] == '\n')
                return false;
    }
    return true;
}

struct llm_encode_stream *llm_encode_stream_create(const struct llm_tokenizer *t, int flags, llm_encode_sink *sink, void *arg, struct llm_err *e)
{
    struct llm_encode_stream *s = llm_calloc(1, sizeof *s, "an encoder", e);
    if (!s)
        return NULL;
    s->t = t;
    s->flags = flags;
    s->sink = sink;
    s->arg = arg;
    s->batch = llm_pool_threads() == 1 ? BATCH_ALONE : BATCH;
    s->may_cut = may_cut(t);
    return s;
}

void llm_encode_stream_destroy(struct llm_encode_stream *s)
{
    if (!s)
        return;
    for (int i = 0; i < LLM_MAX_THREADS; i++)
        llm_encoder_destroy(s->encoders[i]);
    llm_encoder_destroy(s->alone);
    free(s->alone_ids);
    llm_buf_release(&s->text);
    free(s->ends);
    for (size_t i = 0; i < s->room_parts; i++)
        free(s->parts[i].ids);
    free(s->parts);
    free(s);
}

struct llm_encoder *llm_encode_stream_encoder(struct llm_encode_stream *s, int i)
{
    return i < LLM_MAX_THREADS ? s->encoders[i] : s->alone;
}

/* ---- parts side by side ---- */

static int add_part(struct llm_encode_stream *s, size_t at, size_t n, bool first, bool last, const struct label *label,
                    struct llm_err *e)
{
    size_t old = s->room_parts;
    if (llm_grow((void **)&s->parts, &s->room_parts, s->n_parts + 1, sizeof *s->parts, e) < 0)
        return -1;
    memset(s->parts + old, 0, (s->room_parts - old) * sizeof *s->parts); /* new ones have no ids yet; old ones keep theirs */
    struct part *p = &s->parts[s->n_parts++];
    p->p = (const unsigned char *)s->text.p + at;
    p->n = n;
    p->first = first;
    p->last = last;
    p->offset = s->offset;
    p->label = *label;
    s->offset += n;
    if (last)
        s->offset = 0;
    return 0;
}

/* Parts of text[at, end); the document continues after `end` unless `last`. */
static int plan(struct llm_encode_stream *s, size_t at, size_t end, bool first, bool last, const struct label *label,
                struct llm_err *e)
{
    for (;;) {
        size_t n = end - at;
        if (s->may_cut && n > PART) {
            size_t cut = llm_split_cut((const unsigned char *)s->text.p + at, PART);
            if (cut == 0)
                cut = llm_split_cut((const unsigned char *)s->text.p + at, n); /* a long piece: the last cut of all */
            if (cut)
                n = cut;
        }
        bool rest = at + n < end;
        if (add_part(s, at, n, first, last && !rest, label, e) < 0)
            return -1;
        if (!rest)
            return 0;
        at += n;
        first = false;
    }
}

/* Room for a part's ids, most of which are never touched; there is nothing yet to be kept when it grows. */
static int make_room(struct part *p)
{
    size_t want = p->n + p->n / 16 + 64;
    if (p->room >= p->n + 32)
        return 0;
    free(p->ids);
    p->ids = llm_alloc(want, sizeof *p->ids, "ids", &p->e);
    p->room = p->ids ? want : 0;
    return p->ids ? 0 : -1;
}

static void encode_part(void *arg, size_t i, int thread)
{
    struct llm_encode_stream *s = arg;
    struct part *p = &s->parts[i];
    struct llm_encoder **en = &s->encoders[thread];
    p->e.status = 0;
    p->n_ids = 0;
    if ((!*en && !(*en = llm_encoder_create(s->t, s->flags, &p->e))) || make_room(p) < 0)
        return;
    (*en)->ids = p->ids;
    (*en)->room = p->room;
    if (llm_encoder_chunk(*en, p->p, p->n, p->first, p->last, p->offset, &p->e) < 0 && p->e.status == 0)
        p->e.status = LLM_EX_FAILURE;
    p->ids = (*en)->ids;
    p->n_ids = (*en)->n_ids;
    p->room = (*en)->room;
    (*en)->ids = NULL;
}

static int in_document(const struct label *l, struct llm_err *e)
{
    if (l->what)
        llm_in(e, "%s %llu", l->what, (unsigned long long)l->number);
    return l->name ? llm_in(e, "%s", l->name) : -1;
}

static int give_part(struct llm_encode_stream *s, const struct part *p, struct llm_err *e)
{
    if (p->e.status) {
        if (e)
            *e = p->e;
        return in_document(&p->label, e);
    }
    return p->n_ids || p->last ? s->sink(s->arg, p->ids, p->n_ids, p->last, e) : 0;
}

/* The room for ids goes from part to part: it stays in the cache. */
static void hand_on(struct part *from, struct part *to)
{
    int32_t *ids = to->ids;
    size_t room = to->room;
    to->ids = from->ids;
    to->room = from->room;
    from->ids = ids;
    from->room = room;
}

static int run_parts(struct llm_encode_stream *s, struct llm_err *e)
{
    int bad = 0;
    bool alone = llm_pool_threads() == 1;
    if (!alone)
        llm_parallel(s->n_parts, encode_part, s);
    for (size_t i = 0; i < s->n_parts && bad == 0; i++) {
        struct part *p = &s->parts[i];
        if (alone && i)
            hand_on(p - 1, p);
        if (alone)
            encode_part(s, i, 0);
        bad = give_part(s, p, e);
    }
    if (alone && s->n_parts)
        hand_on(&s->parts[s->n_parts - 1], &s->parts[0]);
    s->n_parts = 0;
    return bad;
}

/* ---- one document without a cut ---- */

/* Ids of a long piece, before the others of its feed. */
static int give_ids(void *arg, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct llm_encode_stream *s = arg;
    return n ? s->sink(s->arg, ids, n, false, e) : 0;
}

static int feed_alone(struct llm_encode_stream *s, size_t n, bool last, struct llm_err *e)
{
    size_t n_ids = 0;
    if (!s->alone && !(s->alone = llm_encoder_create(s->t, s->flags, e)))
        return -1;
    s->alone->flush = give_ids;
    s->alone->flush_arg = s;
    if (s->begun) { /* it goes on where the parts ended */
        s->alone->in_document = s->alone->in_segment = true;
        s->alone->document_bytes = s->offset;
        s->begun = false;
    }
    s->offset = 0;
    if (llm_encoder_feed(s->alone, s->text.p, n, last, &s->alone_ids, &n_ids, &s->alone_room, e) < 0)
        return in_document(last ? &s->ends[0].label : &s->label, e);
    s->in_alone = !last;
    return n_ids || last ? s->sink(s->arg, s->alone_ids, n_ids, last, e) : 0;
}

/* Forgets the first n bytes and the first n_ends ends. */
static void drop(struct llm_encode_stream *s, size_t n, size_t n_ends)
{
    if (n)
        memmove(s->text.p, s->text.p + n, s->text.n - n);
    s->text.n -= n;
    s->n_ends -= n_ends;
    for (size_t i = 0; i < s->n_ends; i++) {
        s->ends[i] = s->ends[i + n_ends];
        s->ends[i].at -= n;
    }
}

/* Encodes all of `text` that may be: whole documents, and the last one as far as its last safe cut. */
static int encode_batch(struct llm_encode_stream *s, struct llm_err *e)
{
    size_t at = 0;
    if (s->in_alone) {
        bool last = s->n_ends > 0;
        size_t n = last ? s->ends[0].at : s->text.n;
        if (feed_alone(s, n, last, e) < 0)
            return -1;
        drop(s, n, last);
        if (!last)
            return 0;
    }
    size_t n_ends = s->n_ends;
    for (size_t i = 0; i < n_ends; i++) {
        if (plan(s, at, s->ends[i].at, !s->begun, true, &s->ends[i].label, e) < 0)
            return -1;
        s->begun = false;
        at = s->ends[i].at;
    }
    size_t cut = s->may_cut && s->text.n > at ? llm_split_cut((const unsigned char *)s->text.p + at, s->text.n - at) : 0;
    if (cut) {
        if (plan(s, at, at + cut, !s->begun, false, &s->label, e) < 0)
            return -1;
        s->begun = true;
        at += cut;
    }
    if (run_parts(s, e) < 0)
        return -1;
    drop(s, at, n_ends);
    if (s->text.n < s->batch)
        return 0;
    /* no way to cut what is left, and it fills the batch: from here to its end the document is encoded alone */
    if (feed_alone(s, s->text.n, false, e) < 0)
        return -1;
    drop(s, s->text.n, 0);
    return 0;
}

int llm_encode_stream_put(struct llm_encode_stream *s, const char *text, size_t n, struct llm_err *e)
{
    if ((n >= PART && llm_buf_reserve(&s->text, s->batch + n, e) < 0) || llm_buf_put(&s->text, text, n, e) < 0)
        return -1;
    return s->text.n >= s->batch ? encode_batch(s, e) : 0;
}

void llm_encode_stream_label(struct llm_encode_stream *s, const char *name, const char *what, uint64_t number)
{
    s->label = (struct label){name, what, number};
}

int llm_encode_stream_end_document(struct llm_encode_stream *s, struct llm_err *e)
{
    if (llm_grow((void **)&s->ends, &s->room_ends, s->n_ends + 1, sizeof *s->ends, e) < 0)
        return -1;
    s->ends[s->n_ends++] = (struct document_end){s->text.n, s->label};
    return s->n_ends >= 65536 ? encode_batch(s, e) : 0;
}

int llm_encode_stream_finish(struct llm_encode_stream *s, struct llm_err *e)
{
    size_t ended = s->n_ends ? s->ends[s->n_ends - 1].at : 0;
    if ((s->text.n > ended || (s->n_ends == 0 && (s->begun || s->in_alone))) && llm_encode_stream_end_document(s, e) < 0)
        return -1;
    return encode_batch(s, e);
}
