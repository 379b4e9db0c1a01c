#include "data/feed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

struct llm_feed {
    char **paths;             /* still to be opened: paths[next …] */
    size_t n_paths, next;
    struct llm_stream *stream; /* of paths[next - 1]; NULL: none open */
    char tokenizer[65];
    int32_t vocab_size, declared;
    /* Tokens [position, position + n), and the document ends among them, from the beginning of the data */
    uint64_t position;
    size_t n, from;           /* the first of them lies at ids[from] */
    int32_t *ids;
    uint8_t *mask;
    size_t room, room_mask;
    uint64_t *ends;
    size_t n_ends, room_ends;
    struct llm_xxh *hash;
};

void llm_feed_destroy(struct llm_feed *f)
{
    if (!f) return;
    for (size_t i = 0; i < f->n_paths && f->paths; i++) free(f->paths[i]);
    free(f->paths);
    llm_stream_destroy(f->stream);
    llm_xxh_destroy(f->hash);
    free(f->ids);
    free(f->mask);
    free(f->ends);
    free(f);
}

int32_t llm_feed_vocab_size(const struct llm_feed *f) { return f->declared; }
uint64_t llm_feed_position(const struct llm_feed *f) { return f->position; }
uint64_t llm_feed_hash(const struct llm_feed *f) { return llm_xxh_digest(f->hash); }

/* Forgets what was passed. */
static void compact(struct llm_feed *f)
{
    size_t gone = 0;
    memmove(f->ids, f->ids + f->from, f->n * sizeof *f->ids);
    memmove(f->mask, f->mask + f->from, f->n);
    f->from = 0;
    while (gone < f->n_ends && f->ends[gone] <= f->position) gone++;
    f->n_ends -= gone;
    if (f->n_ends) memmove(f->ends, f->ends + gone, f->n_ends * sizeof *f->ends);
}

static int read_ends(struct llm_feed *f, uint64_t n, uint64_t base, uint64_t limit, struct llm_err *e)
{
    const char *name = llm_stream_name(f->stream);
    if (n > limit) return llm_fail(e, EX_DATAERR, "%s: doc_ends: expected at most as many as tokens, found %" PRIu64, name, n);
    if (llm_grow((void **)&f->ends, &f->room_ends, f->n_ends + n, sizeof *f->ends, e) < 0) return -1;
    if (n && llm_stream_read(f->stream, f->ends + f->n_ends, n * sizeof *f->ends, e) < 0) return -1;
    for (uint64_t i = 0, last = 0; i < n; i++) {
        uint64_t at = f->ends[f->n_ends];
        if (at <= last || at > limit)
            return llm_fail(e, EX_DATAERR, "%s: doc_ends[%" PRIu64 "]: %" PRIu64 ": expected ascending, at most %" PRIu64, name, i, at, limit);
        f->ends[f->n_ends++] = base + at;
        last = at;
    }
    return 0;
}

static int read_ids(struct llm_feed *f, uint64_t n, bool wide, uint64_t base, struct llm_err *e)
{
    int32_t limit = f->vocab_size > 0 ? f->vocab_size : f->declared, *ids = f->ids + f->n;
    unsigned char *raw = (unsigned char *)ids; /* two bytes each lie in the lower half until they are spread, from the end */
    if (n && llm_stream_read(f->stream, raw, n * (wide ? 4 : 2), e) < 0) return -1;
    for (uint64_t i = n; !wide && i-- > 0;) ids[i] = raw[2 * i] | raw[2 * i + 1] << 8;
    for (uint64_t i = 0; limit > 0 && i < n; i++) {
        if (ids[i] < 0 || ids[i] >= limit)
            return llm_fail(e, EX_DATAERR, "%s: token %" PRIu64 ": id %u, expected below %d", llm_stream_name(f->stream), base + i, (uint32_t)ids[i],
                            limit);
    }
    return 0;
}

static int add_message(struct llm_feed *f, const struct llm_header *h, struct llm_err *e)
{
    struct llm_tokens_message m;
    const char *name = llm_stream_name(f->stream);
    if (llm_tokens_message_check(h, f->tokenizer, name, &m, e) < 0) return -1;
    if (m.vocab_size > f->declared) f->declared = m.vocab_size;
    uint64_t n = (uint64_t)m.ids->shape[0], base = f->position + f->n;
    if (n > LLM_TOKENS_PER_MESSAGE)
        return llm_fail(e, EX_DATAERR, "%s: expected at most %zu tokens a message, found %" PRIu64, name, LLM_TOKENS_PER_MESSAGE, n);
    compact(f);
    if (llm_grow((void **)&f->ids, &f->room, f->n + n, sizeof *f->ids, e) < 0 || llm_grow((void **)&f->mask, &f->room_mask, f->n + n, 1, e) < 0) {
        return -1;
    }
    memset(f->mask + f->n, 1, n);
    for (size_t i = 0; i < h->n_entries; i++) { /* in the order of the file */
        const struct llm_entry *t = &h->entries[i];
        unsigned char waste[4096];
        int got = 0;
        if (t == m.ids) got = read_ids(f, n, t->dtype == LLM_U32, base, e);
        else if (t == m.ends) got = read_ends(f, (uint64_t)t->shape[0], base, n, e);
        else if (t == m.mask) got = n ? llm_stream_read(f->stream, f->mask + f->n, n, e) : 0;
        else {
            for (uint64_t left = t->bytes, step; left && got == 0; left -= step) {
                step = left < sizeof waste ? left : sizeof waste;
                got = llm_stream_read(f->stream, waste, step, e);
            }
        }
        if (got < 0) return -1;
    }
    f->n += n;
    return 0;
}

/* One more message. 1; 0: there is none; -1. */
static int more(struct llm_feed *f, struct llm_err *e)
{
    for (;;) {
        const struct llm_header *h;
        if (!f->stream) {
            if (f->next == f->n_paths) return 0;
            struct llm_file *file = llm_tokens_file(f->paths[f->next++], e);
            if (!file || !(f->stream = llm_stream_from_file(file, e))) return -1;
        }
        int got = llm_stream_next(f->stream, &h, e);
        if (got < 0) return -1;
        if (got > 0) return add_message(f, h, e) < 0 ? -1 : 1;
        llm_stream_destroy(f->stream);
        f->stream = NULL;
    }
}

struct llm_feed *llm_feed_create(const char *const *paths, size_t n_paths, const char *tokenizer_id, int32_t vocab_size, struct llm_err *e)
{
    struct llm_feed *f = llm_calloc(1, sizeof *f, "tokens", e);
    if (!f) return NULL;
    f->vocab_size = vocab_size;
    if (tokenizer_id) snprintf(f->tokenizer, sizeof f->tokenizer, "%s", tokenizer_id);
    f->hash = llm_xxh_create(e);
    f->paths = f->hash ? llm_calloc(n_paths, sizeof *f->paths, "paths", e) : NULL;
    bool good = f->paths && llm_grow((void **)&f->ids, &f->room, 1, sizeof *f->ids, e) == 0
                && llm_grow((void **)&f->mask, &f->room_mask, 1, 1, e) == 0;
    for (; good && f->n_paths < n_paths; f->n_paths++) {
        if (!(f->paths[f->n_paths] = strdup(paths[f->n_paths]))) good = llm_no_memory(e, "a path") == 0;
        if (!good) break;
    }
    if (good && more(f, e) >= 0) return f;
    llm_feed_destroy(f);
    return NULL;
}

int llm_feed_cut(struct llm_feed *f, struct llm_rows *r, int64_t row, uint64_t ahead, bool cross_document, struct llm_err *e)
{
    uint64_t n_tokens = (uint64_t)r->row_len + 1;
    while (f->n < ahead + n_tokens) {
        int got = more(f, e);
        if (got <= 0) return got;
    }
    size_t at = f->from + ahead;
    llm_rows_put(r, row, f->ids + at, f->mask + at, (int64_t)n_tokens, f->ends, f->n_ends, f->position + ahead, cross_document);
    return 1;
}

int llm_feed_advance(struct llm_feed *f, uint64_t n, struct llm_err *e)
{
    while (n > 0) {
        size_t step = f->n < n ? f->n : n;
        llm_xxh_update(f->hash, f->ids + f->from, step * sizeof *f->ids);
        f->from += step;
        f->n -= step;
        f->position += step;
        n -= step;
        int got = n > 0 ? more(f, e) : 1;
        if (got <= 0) return got;
    }
    return 0;
}
