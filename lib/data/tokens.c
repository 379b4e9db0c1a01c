#include "data/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cli.h"
#include "base/hash.h"
#include "io/sniff.h"
#include "io/temporary.h"

#define LABELS "llm.labels"

/* ---- writing ---- */

struct llm_tokens_writer {
    struct llm_writer *out;
    json_t *meta;
    bool wide, with_mask;
    void *ids;               /* U16 or U32, LLM_TOKENS_PER_MESSAGE of them */
    uint8_t *mask;
    size_t n;
    uint64_t *doc_ends;      /* within the message, exclusive */
    size_t n_ends, room;
    int32_t vocab_size;
    uint64_t messages;
    struct llm_labels names;
    int32_t *labels;         /* [n_ends], where there are names */
    size_t labels_room;
    int64_t label;           /* of the document under way; -1: not said */
};

struct llm_tokens_writer *llm_tokens_writer_create(struct llm_output *o, const char *tokenizer_id, int32_t vocab_size, bool with_mask,
                                                   struct llm_err *e)
{
    struct llm_tokens_writer *w = llm_calloc(1, sizeof *w, "tokens", e);
    if (!w) return NULL;
    w->wide = vocab_size > 65536;
    w->with_mask = with_mask;
    w->vocab_size = vocab_size;
    w->label = -1;
    w->out = llm_writer_create(o, e);
    w->meta = json_pack("{s:s, s:o}", "llm.tokenizer", tokenizer_id, "llm.vocab_size", json_sprintf("%d", vocab_size));
    w->ids = llm_alloc_huge(LLM_TOKENS_PER_MESSAGE, w->wide ? 4 : 2, "tokens", e);
    if (with_mask) w->mask = llm_alloc(LLM_TOKENS_PER_MESSAGE, 1, "tokens", e);
    if (w->out && w->meta && w->ids && (w->mask || !with_mask)) return w;
    if (!w->meta) llm_no_memory(e, "tokens");
    llm_tokens_writer_destroy(w);
    return NULL;
}

void llm_tokens_writer_destroy(struct llm_tokens_writer *w)
{
    if (!w) return;
    llm_writer_destroy(w->out);
    json_decref(w->meta);
    free(w->ids);
    free(w->mask);
    free(w->doc_ends);
    free(w->labels);
    llm_labels_release(&w->names);
    free(w);
}

/* The names so far. */
static int set_labels(struct llm_tokens_writer *w, struct llm_err *e)
{
    struct llm_buf text = {0};
    int status = llm_labels_to_text(&w->names, &text, e);
    if (status == 0 && json_object_set_new(w->meta, LABELS, json_stringn(text.p, text.n)) < 0) status = llm_no_memory(e, "labels");
    llm_buf_release(&text);
    return status;
}

static int flush(struct llm_tokens_writer *w, struct llm_err *e)
{
    struct llm_tensor_out t[4];
    size_t n = 0;
    if (w->names.names && set_labels(w, e) < 0) return -1;
    t[n++] = (struct llm_tensor_out){"doc_ends", LLM_U64, 1, {(int64_t)w->n_ends}, w->doc_ends};
    t[n++] = (struct llm_tensor_out){"ids", w->wide ? LLM_U32 : LLM_U16, 1, {(int64_t)w->n}, w->ids};
    if (w->with_mask) t[n++] = (struct llm_tensor_out){"loss_mask", LLM_U8, 1, {(int64_t)w->n}, w->mask};
    if (w->names.names) t[n++] = (struct llm_tensor_out){"labels", LLM_I32, 1, {(int64_t)w->n_ends}, w->labels};
    int got = llm_writer_message(w->out, "tokens", w->meta, t, n, e);
    w->n = w->n_ends = 0;
    w->messages++;
    return got;
}

/* A check and a loop of its own for each width: the compiler makes vectors of them. */
static int put_ids(struct llm_tokens_writer *w, const int32_t *ids, size_t n, struct llm_err *e)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) largest = (uint32_t)ids[i] > largest ? (uint32_t)ids[i] : largest;
    for (size_t i = 0; n && largest >= (uint32_t)w->vocab_size && i < n; i++)
        if (ids[i] < 0 || ids[i] >= w->vocab_size) return llm_fail(e, EX_DATAERR, "token id %d: expected below %d", ids[i], w->vocab_size);
    if (w->wide) {
        memcpy((uint32_t *)w->ids + w->n, ids, n * sizeof *ids);
        return 0;
    }
    uint16_t *out = (uint16_t *)w->ids + w->n;
    for (size_t i = 0; i < n; i++) out[i] = (uint16_t)ids[i];
    return 0;
}

int llm_tokens_put(struct llm_tokens_writer *w, const int32_t *ids, const uint8_t *loss_mask, size_t n, struct llm_err *e)
{
    for (size_t at = 0, step; at < n; at += step) {
        if (w->n == LLM_TOKENS_PER_MESSAGE && flush(w, e) < 0) return -1; /* only when more comes: an end of document may still join */
        step = LLM_TOKENS_PER_MESSAGE - w->n;
        if (step > n - at) step = n - at;
        if (put_ids(w, ids + at, step, e) < 0) return -1;
        if (w->with_mask && loss_mask) memcpy(w->mask + w->n, loss_mask + at, step);
        else if (w->with_mask) memset(w->mask + w->n, 1, step);
        w->n += step;
    }
    return 0;
}

int llm_tokens_label(struct llm_tokens_writer *w, const char *label, struct llm_err *e)
{
    if (!w->names.names && (w->n_ends || w->messages)) return llm_fail(e, LLM_EX_FAILURE, "tokens: expected a label of each document");
    w->label = llm_labels_add(&w->names, label, e);
    return w->label < 0 ? -1 : 0;
}

int llm_tokens_end_document(struct llm_tokens_writer *w, struct llm_err *e)
{
    void *ends = w->doc_ends;
    if (w->n_ends && w->doc_ends[w->n_ends - 1] == w->n) return 0; /* an empty document leaves no trace */
    if (w->n == 0) return 0;
    if (llm_grow(&ends, &w->room, w->n_ends + 1, sizeof *w->doc_ends, e) < 0) return -1;
    w->doc_ends = ends;
    if (w->names.names) {
        if (llm_grow((void **)&w->labels, &w->labels_room, w->n_ends + 1, sizeof *w->labels, e) < 0) return -1;
        if (w->label < 0) return llm_fail(e, LLM_EX_FAILURE, "tokens: expected a label of each document");
        w->labels[w->n_ends] = (int32_t)w->label;
        w->label = -1;
    }
    w->doc_ends[w->n_ends++] = w->n;
    return 0;
}

int llm_tokens_finish(struct llm_tokens_writer *w, struct llm_err *e)
{
    if ((w->n || w->messages == 0) && flush(w, e) < 0) return -1; /* no tokens at all are one empty message */
    return llm_writer_end(w->out, e);
}

/* ---- reading ---- */

struct piece {                /* one message's tensors, in a mapping */
    uint64_t first, n;        /* tokens before it; tokens in it */
    const unsigned char *ids; /* unaligned */
    const uint8_t *mask;
    bool wide;
};

struct llm_tokens {
    struct llm_map *maps;
    size_t n_maps;
    struct piece *pieces;
    size_t n_pieces, room_pieces;
    uint64_t *doc_ends;
    size_t n_ends, room_ends;
    int32_t *labels;          /* of each document; NULL: they have none */
    size_t room_labels;
    struct llm_labels names;
    uint64_t count;
    int32_t vocab_size;
    char tokenizer[65];
    uint64_t hash;
};

void llm_tokens_close(struct llm_tokens *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_maps; i++) llm_map_close(&t->maps[i]);
    free(t->maps);
    free(t->pieces);
    free(t->doc_ends);
    free(t->labels);
    llm_labels_release(&t->names);
    free(t);
}

uint64_t llm_tokens_count(const struct llm_tokens *t) { return t->count; }
int32_t llm_tokens_vocab_size(const struct llm_tokens *t) { return t->vocab_size; }
const char *llm_tokens_tokenizer(const struct llm_tokens *t) { return t->tokenizer; }

const uint64_t *llm_tokens_doc_ends(const struct llm_tokens *t, size_t *n)
{
    *n = t->n_ends;
    return t->doc_ends;
}

const int32_t *llm_tokens_labels(const struct llm_tokens *t, const struct llm_labels **names)
{
    *names = &t->names;
    return t->labels;
}

bool llm_tokens_begins(const struct llm_tokens *t, uint64_t at)
{
    size_t n, low = 0;
    const uint64_t *ends = llm_tokens_doc_ends(t, &n);
    size_t high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ends[middle] < at) low = middle + 1;
        else high = middle;
    }
    return at == 0 || (low < n && ends[low] == at);
}

static int check_ids(const struct piece *p, int32_t vocab_size, const char *name, struct llm_err *e)
{
    for (uint64_t i = 0; i < p->n; i++) {
        uint32_t id = 0;
        if (p->wide) memcpy(&id, p->ids + 4 * i, 4);
        else id = (uint32_t)(p->ids[2 * i] | p->ids[2 * i + 1] << 8);
        if (id >= (uint32_t)vocab_size)
            return llm_fail(e, EX_DATAERR, "%s: token %" PRIu64 ": id %u, expected below %d", name, p->first + i, id, vocab_size);
    }
    return 0;
}

int llm_tokens_message_check(const struct llm_header *h, char tokenizer[65], const char *name, struct llm_tokens_message *m, struct llm_err *e)
{
    const struct llm_entry *ids = llm_header_find(h, "ids"), *ends = llm_header_find(h, "doc_ends"), *mask = llm_header_find(h, "loss_mask");
    const struct llm_entry *labels = llm_header_find(h, "labels");
    const char *id = llm_header_meta(h, "llm.tokenizer"), *vocab = llm_header_meta(h, "llm.vocab_size");
    int64_t declared = 0;
    if (!h->kind || strcmp(h->kind, "tokens") != 0)
        return llm_fail(e, EX_DATAERR, "%s: expected tokens, found a message of kind '%s'", name, h->kind ? h->kind : "(none)");
    if (!ids || (ids->dtype != LLM_U16 && ids->dtype != LLM_U32) || ids->n_dims != 1)
        return llm_fail(e, EX_DATAERR, "%s: tensor 'ids': expected U16 or U32 of one dimension", name);
    if (mask && (mask->dtype != LLM_U8 || mask->n_dims != 1 || mask->shape[0] != ids->shape[0]))
        return llm_fail(e, EX_DATAERR, "%s: tensor 'loss_mask': expected U8 [%lld]", name, (long long)ids->shape[0]);
    if (labels && (labels->dtype != LLM_I32 || labels->n_dims != 1 || labels->shape[0] != (ends ? ends->shape[0] : 0)
                   || !llm_header_meta(h, LABELS)))
        return llm_fail(e, EX_DATAERR, "%s: tensor 'labels': expected I32, as many as document ends, and " LABELS, name);
    if (ends && (ends->dtype != LLM_U64 || ends->n_dims != 1))
        return llm_fail(e, EX_DATAERR, "%s: tensor 'doc_ends': expected U64 of one dimension", name);
    if (vocab && (llm_parse_int(vocab, &declared) < 0 || declared < 1 || declared > INT32_MAX))
        return llm_fail(e, EX_DATAERR, "%s: llm.vocab_size: expected a positive number, found '%s'", name, vocab);
    if (id && tokenizer[0] && strcmp(id, tokenizer) != 0)
        return llm_fail(e, EX_DATAERR, "%s: made with another tokenizer: expected %.16s..., found %.16s...", name, tokenizer, id);
    if (id && !tokenizer[0]) snprintf(tokenizer, 65, "%s", id);
    *m = (struct llm_tokens_message){ids, ends, mask, labels, (int32_t)declared};
    return 0;
}

/* The classes of a message's documents, which are the last n_ends of all, by their numbers in the list of all messages. */
static int add_labels(struct llm_tokens *t, const struct llm_header *h, const struct llm_entry *labels, const unsigned char *data, uint64_t n_ends,
                      const char *name, struct llm_err *e)
{
    struct llm_labels here = {0};
    bool first = t->n_ends == n_ends;
    if (labels ? !first && !t->labels : t->labels && n_ends > 0) {
        return llm_fail(e, EX_DATAERR, "%s: expected labels in all messages with documents, or in none", name);
    }
    if (!labels) return 0;
    int status = llm_labels_from_text(&here, llm_header_meta(h, LABELS), e) < 0 ? llm_in(e, "%s: metadata " LABELS, name) : 0;
    if (status == 0) status = llm_grow((void **)&t->labels, &t->room_labels, t->n_ends + 1, sizeof *t->labels, e);
    for (uint64_t i = 0; i < n_ends && status == 0; i++) {
        int32_t number;
        memcpy(&number, data + labels->offset + 4 * i, 4);
        if (number < 0 || number >= llm_labels_count(&here)) {
            status = llm_fail(e, EX_DATAERR, "%s: labels[%" PRIu64 "]: expected below %lld, found %d", name, i,
                              (long long)llm_labels_count(&here), number);
            break;
        }
        int64_t global = llm_labels_add(&t->names, llm_labels_name(&here, number), e);
        if (global < 0) status = -1;
        t->labels[t->n_ends - n_ends + i] = (int32_t)global;
    }
    llm_labels_release(&here);
    return status;
}

/* The tensors of one message, checked. */
static int add_message(struct llm_tokens *t, const struct llm_header *h, const unsigned char *data, int32_t vocab_size, const char *name,
                       struct llm_err *e)
{
    struct llm_tokens_message m;
    if (llm_tokens_message_check(h, t->tokenizer, name, &m, e) < 0) return -1;
    const struct llm_entry *ids = m.ids, *ends = m.ends, *mask = m.mask;
    if (m.vocab_size > t->vocab_size) t->vocab_size = m.vocab_size;
    void *pieces = t->pieces;
    if (llm_grow(&pieces, &t->room_pieces, t->n_pieces + 1, sizeof *t->pieces, e) < 0) return -1;
    t->pieces = pieces;
    struct piece *p = &t->pieces[t->n_pieces++];
    *p = (struct piece){t->count, (uint64_t)ids->shape[0], data + ids->offset, mask ? data + mask->offset : NULL, ids->dtype == LLM_U32};
    int32_t limit = vocab_size > 0 ? vocab_size : m.vocab_size;
    if (limit > 0 && check_ids(p, limit, name, e) < 0) return -1;
    uint64_t n_ends = ends ? (uint64_t)ends->shape[0] : 0, last = 0;
    void *all = t->doc_ends;
    if (llm_grow(&all, &t->room_ends, t->n_ends + n_ends, sizeof *t->doc_ends, e) < 0) return -1;
    t->doc_ends = all;
    for (uint64_t i = 0; i < n_ends; i++) {
        uint64_t at;
        memcpy(&at, data + ends->offset + 8 * i, 8);
        if (at <= last || at > p->n)
            return llm_fail(e, EX_DATAERR, "%s: doc_ends[%" PRIu64 "]: %" PRIu64 ": expected ascending, at most %" PRIu64, name, i, at, p->n);
        t->doc_ends[t->n_ends++] = t->count + at;
        last = at;
    }
    t->count += p->n;
    return add_labels(t, h, m.labels, data, n_ends, name, e);
}

/* Walks the messages of a mapping; each multi stream must close with its `end`. */
static int add_map(struct llm_tokens *t, const struct llm_map *m, int32_t vocab_size, const char *name, struct llm_err *e)
{
    struct llm_file *f = llm_file_from_memory(m->p, m->n, name, e);
    struct llm_stream *s = f ? llm_stream_from_file(f, e) : NULL;
    const struct llm_header *h;
    int got;
    if (!s) return -1;
    while ((got = llm_stream_next(s, &h, e)) > 0)
        if (llm_stream_offset(s) > m->n || h->data_bytes > m->n - llm_stream_offset(s)) {
            got = llm_fail(e, EX_DATAERR, "%s: byte %" PRIu64 ": cut short: expected %" PRIu64 " bytes of tensors, found %" PRIu64, name,
                           llm_stream_offset(s), h->data_bytes, m->n - llm_stream_offset(s));
            break;
        } else if ((got = add_message(t, h, m->p + llm_stream_offset(s), vocab_size, name, e)) < 0) {
            break;
        }
    llm_stream_destroy(s);
    return got;
}

/* What is known to be something else is said at once. */
static int check_content(struct llm_file *f, struct llm_err *e)
{
    enum llm_content content;
    if (llm_sniff(f, &content, e) < 0) return -1;
    if (content == LLM_CONTENT_MESSAGE || content == LLM_CONTENT_OTHER) return 0; /* the reader says what is wrong, and where */
    return llm_fail(e, EX_DATAERR, "%s: expected a token stream (llm-tokenize encode makes one), found %s", llm_file_name(f),
                    llm_content_name(content));
}

struct llm_file *llm_tokens_file(const char *path, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    if (f && check_content(f, e) == 0) return f;
    llm_file_close(f);
    return NULL;
}

static int add_file(struct llm_tokens *t, struct llm_file *f, int32_t vocab_size, struct llm_err *e)
{
    if (check_content(f, e) < 0 || llm_temporary_map(&t->maps[t->n_maps], f, e) < 0) return -1;
    return add_map(t, &t->maps[t->n_maps++], vocab_size, llm_file_name(f), e);
}

static int add_input(struct llm_tokens *t, const char *path, int32_t vocab_size, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    int got = f ? add_file(t, f, vocab_size, e) : -1;
    llm_file_close(f);
    return got;
}

static int hash_all(struct llm_tokens *t, struct llm_err *e)
{
    struct llm_xxh *h = llm_xxh_create(e);
    if (!h) return -1;
    for (size_t i = 0; i < t->n_pieces; i++) {
        const struct piece *p = &t->pieces[i];
        llm_xxh_update(h, p->ids, p->n * (p->wide ? 4 : 2));
        if (p->mask) llm_xxh_update(h, p->mask, p->n);
    }
    llm_xxh_update(h, t->doc_ends, t->n_ends * sizeof *t->doc_ends);
    for (size_t i = 0; i < t->n_ends && t->labels; i++) {
        const char *name = llm_labels_name(&t->names, t->labels[i]);
        llm_xxh_update(h, name, strlen(name) + 1);
    }
    t->hash = llm_xxh_digest(h);
    llm_xxh_destroy(h);
    return 0;
}

/* Room for n inputs, and none yet. */
static struct llm_tokens *create(size_t n, const char *tokenizer_id, struct llm_err *e)
{
    struct llm_tokens *t = llm_calloc(1, sizeof *t, "tokens", e);
    if (!t) return NULL;
    if (tokenizer_id) snprintf(t->tokenizer, sizeof t->tokenizer, "%s", tokenizer_id);
    t->maps = llm_calloc(n, sizeof *t->maps, "tokens", e);
    if (t->maps) return t;
    llm_tokens_close(t);
    return NULL;
}

static struct llm_tokens *finish(struct llm_tokens *t, int got, struct llm_err *e)
{
    if (got == 0 && hash_all(t, e) == 0) return t;
    llm_tokens_close(t);
    return NULL;
}

struct llm_tokens *llm_tokens_open(const char *const *paths, size_t n_paths, const char *tokenizer_id, int32_t vocab_size, struct llm_err *e)
{
    struct llm_tokens *t = create(n_paths, tokenizer_id, e);
    int got = t ? 0 : -1;
    for (size_t i = 0; got == 0 && i < n_paths; i++) got = add_input(t, paths[i], vocab_size, e);
    return finish(t, got, e);
}

struct llm_tokens *llm_tokens_from_file(struct llm_file *f, const char *tokenizer_id, int32_t vocab_size, struct llm_err *e)
{
    struct llm_tokens *t = create(1, tokenizer_id, e);
    return finish(t, t ? add_file(t, f, vocab_size, e) : -1, e);
}

void llm_tokens_get(const struct llm_tokens *t, uint64_t at, size_t n, int32_t *ids, uint8_t *mask)
{
    size_t low = 0, high = t->n_pieces;
    while (high - low > 1) { /* the last piece that begins at or before `at` */
        size_t middle = low + (high - low) / 2;
        if (t->pieces[middle].first <= at) low = middle;
        else high = middle;
    }
    for (size_t done = 0; done < n; low++) {
        const struct piece *p = &t->pieces[low];
        uint64_t from = at + done - p->first;
        size_t step = from < p->n ? (size_t)(p->n - from) : 0;
        if (step > n - done) step = n - done;
        for (size_t i = 0; i < step; i++) {
            if (p->wide) memcpy(&ids[done + i], p->ids + 4 * (from + i), 4);
            else ids[done + i] = p->ids[2 * (from + i)] | p->ids[2 * (from + i) + 1] << 8;
        }
        if (mask && p->mask) memcpy(mask + done, p->mask + from, step);
        else if (mask) memset(mask + done, 1, step);
        done += step;
    }
}

int llm_tokens_fingerprint(const struct llm_tokens *t, char hex[17], struct llm_err *e)
{
    (void)e;
    snprintf(hex, 17, "%016" PRIx64, t->hash);
    return 0;
}
