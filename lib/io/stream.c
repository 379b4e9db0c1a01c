#include "io/message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "io/checksums.h"
#include "io/sniff.h"

enum { CHUNK = 1 << 20 };

struct llm_stream {
    struct llm_file *file;
    struct llm_header header;
    struct llm_buf json;
    uint64_t left;            /* data bytes of the current message not read yet */
    bool open_multi;          /* a multi kind waits for its `end` */
    uint64_t count;           /* messages since the last `end` */
    struct llm_xxh *hash;     /* of their bytes */
    struct llm_checksums sums; /* of the current message's tensors */
};

struct llm_stream *llm_stream_from_file(struct llm_file *f, struct llm_err *e)
{
    struct llm_stream *s = llm_calloc(1, sizeof *s, "stream", e);
    if (!s) {
        llm_file_close(f);
        return NULL;
    }
    s->file = f;
    s->hash = llm_xxh_create(e);
    if (s->hash) return s;
    llm_stream_destroy(s);
    return NULL;
}

struct llm_stream *llm_stream_create(const char *path, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    return f ? llm_stream_from_file(f, e) : NULL;
}

void llm_stream_destroy(struct llm_stream *s)
{
    if (!s) return;
    llm_checksums_release(&s->sums);
    llm_header_release(&s->header);
    llm_buf_release(&s->json);
    llm_xxh_destroy(s->hash);
    llm_file_close(s->file);
    free(s);
}

const char *llm_stream_name(const struct llm_stream *s)
{
    return llm_file_name(s->file);
}

uint64_t llm_stream_offset(const struct llm_stream *s)
{
    return llm_file_offset(s->file);
}

bool llm_kind_is_checkpoint(const char *kind)
{
    static const char *const kinds[] = {"checkpoint", "adapter", "lens", "dictionary", "index"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kind, kinds[i]) == 0) return true;
    }
    return false;
}

/* Kinds that are one message, whose header proves its length. */
static bool is_single(const char *kind)
{
    return llm_kind_is_checkpoint(kind) || strcmp(kind, "kvcache") == 0;
}

int llm_read_header(struct llm_file *f, struct llm_buf *json, struct llm_header *h, struct llm_err *e)
{
    unsigned char raw[8];
    uint64_t n = 0;
    if (llm_file_read(f, raw, sizeof raw, e) < 0) return -1;
    for (int i = 0; i < 8; i++) n |= (uint64_t)raw[i] << (8 * i);
    if (n > LLM_MAX_HEADER) return llm_file_bad(f, e, "header length: expected at most %d, found %" PRIu64, LLM_MAX_HEADER, n);
    if (llm_buf_reserve(json, sizeof raw, e) < 0) return -1;
    memcpy(json->p, raw, sizeof raw);
    json->n = sizeof raw;
    for (uint64_t have = 0, step; have < n; have += step) { /* memory follows bytes that came */
        step = n - have < CHUNK ? n - have : CHUNK;
        if (llm_buf_reserve(json, json->n + step, e) < 0 || llm_file_read(f, json->p + json->n, step, e) < 0) return -1;
        json->n += step;
    }
    return llm_header_parse(h, json->p + sizeof raw, n, llm_file_name(f), e);
}

static int restart(struct llm_stream *s, struct llm_err *e)
{
    s->open_multi = false;
    s->count = 0;
    llm_xxh_destroy(s->hash);
    s->hash = llm_xxh_create(e);
    return s->hash ? 0 : -1;
}

static int check_end(struct llm_stream *s, struct llm_err *e)
{
    const char *count = llm_header_meta(&s->header, "llm.count"), *hash = llm_header_meta(&s->header, "llm.xxh64");
    char want_count[24], want_hash[24];
    snprintf(want_count, sizeof want_count, "%" PRIu64, s->count);
    snprintf(want_hash, sizeof want_hash, "%016" PRIx64, llm_xxh_digest(s->hash));
    if (s->header.n_entries) return llm_file_bad(s->file, e, "'end' message: expected no tensors");
    if (!count || strcmp(count, want_count) != 0)
        return llm_file_bad(s->file, e, "'end' message: expected a count of %s messages, found %s", want_count, count ? count : "none");
    if (!hash || strcmp(hash, want_hash) != 0)
        return llm_file_bad(s->file, e, "'end' message: checksum: expected %s, found %s", want_hash, hash ? hash : "none");
    return restart(s, e);
}

int llm_stream_read(struct llm_stream *s, void *p, size_t n, struct llm_err *e)
{
    if (n > s->left) return llm_fail(e, EX_DATAERR, "%s: message holds %" PRIu64 " more bytes, wanted %zu", llm_stream_name(s), s->left, n);
    if (llm_file_read(s->file, p, n, e) < 0) return -1;
    if (s->open_multi) llm_xxh_update(s->hash, p, n);
    s->left -= n;
    return llm_checksums_feed(&s->sums, p, n, e) < 0 ? llm_in(e, "%s", llm_stream_name(s)) : 0;
}

int llm_stream_skip(struct llm_stream *s, uint64_t n, struct llm_err *e)
{
    unsigned char waste[16384];
    for (uint64_t step; n > 0; n -= step) {
        step = n < sizeof waste ? n : sizeof waste;
        if (llm_stream_read(s, waste, step, e) < 0) return -1;
    }
    return 0;
}

int llm_stream_append(struct llm_stream *s, void **p, uint64_t have, uint64_t n, const char *what, struct llm_err *e)
{
    for (uint64_t at = 0, step; at < n; at += step) {
        step = n - at < CHUNK ? n - at : CHUNK;
        void *more = realloc(*p, have + at + step);
        if (!more) return llm_no_memory(e, what);
        *p = more;
        if (llm_stream_read(s, (unsigned char *)*p + have + at, step, e) < 0) return -1;
    }
    return 0;
}

/* Refuses content of another known format; read as a length, text would be a very large number. */
static int check_content(struct llm_stream *s, struct llm_err *e)
{
    enum llm_content content;
    if (llm_sniff(s->file, &content, e) < 0) return -1;
    return content == LLM_CONTENT_MESSAGE || content == LLM_CONTENT_OTHER ? 0 : llm_sniff_refuse(s->file, "a tensor message", e);
}

int llm_stream_next(struct llm_stream *s, const struct llm_header **h, struct llm_err *e)
{
    if (llm_stream_skip(s, s->left, e) < 0) return -1;
    for (;;) {
        llm_checksums_release(&s->sums);
        llm_header_release(&s->header);
        int end = llm_file_at_end(s->file, e);
        if (end < 0) return -1;
        if (end && s->open_multi) return llm_file_bad(s->file, e, "cut short: expected another message or 'end'");
        if (llm_stream_offset(s) == 0 && check_content(s, e) < 0) return -1;
        if (end) return 0;
        s->json.n = 0;
        if (llm_read_header(s->file, &s->json, &s->header, e) < 0) return -1;
        s->left = s->header.data_bytes;
        const char *kind = s->header.kind;
        if (kind && strcmp(kind, "end") == 0) {
            if (check_end(s, e) < 0) return -1;
            continue;
        }
        if (!kind || is_single(kind)) {
            if (s->open_multi) return llm_file_bad(s->file, e, "expected 'end' before a message of another kind");
        } else {
            s->open_multi = true;
        }
        if (s->open_multi) {
            s->count++;
            llm_xxh_update(s->hash, s->json.p, s->json.n);
        }
        *h = &s->header;
        return llm_checksums_begin(&s->sums, &s->header, e) < 0 ? llm_in(e, "%s", llm_stream_name(s)) : 1;
    }
}
