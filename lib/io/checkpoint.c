#include "io/checkpoint.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pages.h"
#include "cpu/pool.h"
#include "io/planes.h"
#include "io/sniff.h"
#include "io/zstd_frames.h"

/* Where a checkpoint's bytes come from: five ways, one interface.
 *   zstd in a file (mapped, frames at random) · zstd in a pipe (in order) · plain in a file (mapped) · plain in a pipe (in order) · GGUF and
 *   rwkv.cpp (mapped, or all of a pipe in memory: tensors are in no order that a reader could wait for) */
struct llm_checkpoint {
    struct llm_file *file;
    struct llm_map map;              /* files */
    struct llm_buf whole;            /* GGUF or rwkv.cpp from a pipe */
    const unsigned char *bytes;      /* the whole file, in `map` or `whole` */
    struct llm_gguf gguf;
    struct llm_rwkv_cpp rwkv_cpp;
    enum llm_content content;
    struct llm_frame *frames;        /* zstd in a file: those with tensor data, in order */
    size_t n_frames, *first_frame;   /* first_frame[i]: of entry i */
    struct llm_unzstd *unzstd;       /* zstd in a pipe */
    pthread_mutex_t lock;            /* protects the list of idle decoders, which has as many as ever worked at once */
    struct llm_frame_decoder *idle[LLM_MAX_THREADS];
    size_t n_idle;
    struct llm_header header;
    size_t next;                     /* pipes: the next entry to come */
    unsigned char **kept;            /* pipes: entries that were read before the caller wanted them, as stored */
};

const struct llm_header *llm_checkpoint_header(const struct llm_checkpoint *c)
{
    return &c->header;
}

const struct llm_gguf *llm_checkpoint_gguf(const struct llm_checkpoint *c)
{
    return c->content == LLM_CONTENT_GGUF ? &c->gguf : NULL;
}

const struct llm_rwkv_cpp *llm_checkpoint_rwkv_cpp(const struct llm_checkpoint *c)
{
    return c->content == LLM_CONTENT_RWKV_CPP ? &c->rwkv_cpp : NULL;
}

/* Whether the whole file is in memory or mapped, its tensors in any order. */
static bool is_whole(const struct llm_checkpoint *c)
{
    return c->content == LLM_CONTENT_GGUF || c->content == LLM_CONTENT_RWKV_CPP;
}

const char *llm_checkpoint_name(const struct llm_checkpoint *c)
{
    return llm_file_name(c->file);
}

void llm_checkpoint_close(struct llm_checkpoint *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n_idle; i++) llm_frame_decoder_destroy(c->idle[i]);
    pthread_mutex_destroy(&c->lock);
    for (size_t i = 0; c->kept && i < c->header.n_entries; i++) free(c->kept[i]);
    free(c->kept);
    free(c->first_frame);
    free(c->frames);
    llm_unzstd_destroy(c->unzstd);
    llm_gguf_release(&c->gguf);
    llm_header_release(&c->header);
    llm_buf_release(&c->whole);
    llm_map_close(&c->map);
    llm_file_close(c->file);
    free(c);
}

static uint64_t length_at(const unsigned char *p)
{
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n |= (uint64_t)p[i] << (8 * i);
    return n;
}

static int bad_length(const struct llm_checkpoint *c, uint64_t n, struct llm_err *e)
{
    return llm_fail(e, EX_DATAERR, "%s: byte 0: header length: expected at most %d, found %llu", llm_checkpoint_name(c), LLM_MAX_HEADER,
                    (unsigned long long)n);
}

static int map_file(struct llm_checkpoint *c, struct llm_err *e)
{
    uint64_t size;
    int fd = llm_file_regular(c->file, &size);
    if (llm_map_fd(&c->map, fd, size, llm_checkpoint_name(c), e) < 0) return -1;
    c->bytes = c->map.p;
    return 0;
}

static int open_plain_file(struct llm_checkpoint *c, struct llm_err *e)
{
    const char *name = llm_checkpoint_name(c);
    if (map_file(c, e) < 0) return -1;
    if (c->map.n < 8) return llm_fail(e, EX_DATAERR, "%s: byte 0: cut short: expected 8 bytes, found %llu", name, (unsigned long long)c->map.n);
    uint64_t n = length_at(c->map.p);
    if (n > LLM_MAX_HEADER) return bad_length(c, n, e);
    if (n > c->map.n - 8)
        return llm_fail(e, EX_DATAERR, "%s: byte 8: cut short: expected a header of %llu bytes, found %llu", name, (unsigned long long)n,
                        (unsigned long long)(c->map.n - 8));
    if (llm_header_parse(&c->header, (const char *)c->map.p + 8, n, name, e) < 0) return -1;
    uint64_t want = c->header.header_bytes + c->header.data_bytes;
    if (c->map.n != want)
        return llm_fail(e, EX_DATAERR, "%s: %s: the header asks for %llu bytes in all, found %llu", name,
                        c->map.n < want ? "cut short" : "more than one message", (unsigned long long)want, (unsigned long long)c->map.n);
    return 0;
}

/* Each tensor begins with a frame of its own, and all but its last are full. first_frame[i], where it is not NULL: of entry i. */
static int check_frames(const struct llm_checkpoint *c, const struct llm_frame *frames, size_t n, size_t *first_frame, struct llm_err *e)
{
    size_t at = 0;
    for (size_t i = 0; i < c->header.n_entries; i++) {
        if (first_frame) first_frame[i] = at;
        for (uint64_t left = c->header.entries[i].bytes, want; left; left -= want, at++) {
            want = left < LLM_FRAME_BYTES ? left : LLM_FRAME_BYTES;
            if (at >= n || frames[at].bytes != want)
                return llm_fail(e, EX_DATAERR, "%s: tensor '%s': expected a frame of %llu bytes, found %u", llm_checkpoint_name(c),
                                c->header.entries[i].name, (unsigned long long)want, at < n ? frames[at].bytes : 0);
        }
    }
    return at == n ? 0 : llm_fail(e, EX_DATAERR, "%s: %zu frames more than the header asks for", llm_checkpoint_name(c), n - at);
}

static int header_frame(const struct llm_checkpoint *c, uint64_t want, uint64_t found, struct llm_err *e)
{
    return llm_fail(e, EX_DATAERR, "%s: header: expected a frame to end after %llu bytes, found %llu", llm_checkpoint_name(c),
                    (unsigned long long)want, (unsigned long long)found);
}

static struct llm_frame_decoder *take_decoder(struct llm_checkpoint *c, struct llm_err *e)
{
    pthread_mutex_lock(&c->lock);
    struct llm_frame_decoder *d = c->n_idle ? c->idle[--c->n_idle] : NULL;
    pthread_mutex_unlock(&c->lock);
    return d ? d : llm_frame_decoder_create(e);
}

static void give_decoder(struct llm_checkpoint *c, struct llm_frame_decoder *d)
{
    pthread_mutex_lock(&c->lock);
    bool kept = c->n_idle < LLM_MAX_THREADS;
    if (kept) c->idle[c->n_idle++] = d;
    pthread_mutex_unlock(&c->lock);
    if (!kept) llm_frame_decoder_destroy(d);
}

static int decode_frame(struct llm_checkpoint *c, const struct llm_frame *f, int width, void *out, struct llm_err *e)
{
    struct llm_frame_decoder *d = take_decoder(c, e);
    if (!d) return -1;
    int got = llm_frame_decode(d, c->map.p, f, width, out, llm_checkpoint_name(c), e);
    give_decoder(c, d);
    llm_pages_release_within((void *)(uintptr_t)(c->map.p + f->offset), f->packed, 0); /* else all of the file would be resident beside its content */
    return got;
}

static int open_zstd_file(struct llm_checkpoint *c, struct llm_err *e)
{
    const char *name = llm_checkpoint_name(c);
    struct llm_buf head = {0};
    size_t used = 0;
    uint64_t want = 8;
    int got = -1;
    if (map_file(c, e) < 0 || llm_frames_table(c->map.p, c->map.n, name, &c->frames, &c->n_frames, e) < 0) return -1;
    while (head.n < want) { /* the header's frames come first; it ends where a frame ends */
        if (used == c->n_frames) {
            llm_fail(e, EX_DATAERR, "%s: cut short: expected a header of %llu bytes, found %zu", name, (unsigned long long)want, head.n);
            goto done;
        }
        const struct llm_frame *f = &c->frames[used++];
        if (llm_buf_reserve(&head, head.n + f->bytes, e) < 0 || decode_frame(c, f, 0, head.p + head.n, e) < 0) goto done;
        head.n += f->bytes;
        if (want == 8 && head.n >= 8) {
            uint64_t n = length_at((unsigned char *)head.p);
            if (n > LLM_MAX_HEADER) {
                bad_length(c, n, e);
                goto done;
            }
            want = 8 + n;
        }
    }
    if (head.n != want)
        header_frame(c, want, head.n, e);
    else if (llm_header_parse(&c->header, head.p + 8, head.n - 8, name, e) == 0) got = 0;
    memmove(c->frames, c->frames + used, (c->n_frames - used) * sizeof *c->frames);
    c->n_frames -= used;
done:
    llm_buf_release(&head);
    if (got == 0) c->first_frame = llm_calloc(c->header.n_entries, sizeof *c->first_frame, "header", e);
    return c->first_frame ? check_frames(c, c->frames, c->n_frames, c->first_frame, e) : -1;
}

/* The next n bytes of content from a pipe. */
static int read_content(struct llm_checkpoint *c, void *p, size_t n, struct llm_err *e)
{
    return c->unzstd ? llm_unzstd_read(c->unzstd, p, n, e) : llm_file_read(c->file, p, n, e);
}

/* Checks the frames at the end of the pipe: only then all of their sizes are known. */
static int finish_zstd_pipe(struct llm_checkpoint *c, struct llm_err *e)
{
    if (llm_unzstd_finish(c->unzstd, e) < 0) return -1;
    size_t n, used = 1;
    uint64_t have = 0;
    const struct llm_frame *frames = llm_unzstd_frames(c->unzstd, &n);
    while (used < n && have < c->header.header_bytes) have += frames[used++].bytes;
    if (have != c->header.header_bytes) return header_frame(c, c->header.header_bytes, have, e);
    return check_frames(c, frames + used, n - used, NULL, e);
}

static int finish_content(struct llm_checkpoint *c, struct llm_err *e)
{
    if (c->unzstd) return finish_zstd_pipe(c, e);
    int end = llm_file_at_end(c->file, e);
    return end < 0 ? -1 : end ? 0 : llm_file_bad(c->file, e, "more content than the header says");
}

static int open_zstd_pipe(struct llm_checkpoint *c, struct llm_err *e)
{
    unsigned char raw[8];
    struct llm_buf json = {0};
    int got = -1;
    c->unzstd = llm_unzstd_create(c->file, e);
    if (!c->unzstd || llm_unzstd_read(c->unzstd, raw, sizeof raw, e) < 0) return -1;
    uint64_t n = length_at(raw);
    if (n > LLM_MAX_HEADER) return bad_length(c, n, e);
    for (uint64_t have = 0, step; have < n; have += step) { /* memory follows bytes that came */
        step = n - have < 1 << 20 ? n - have : 1 << 20;
        if (llm_buf_reserve(&json, have + step, e) < 0 || llm_unzstd_read(c->unzstd, json.p + have, step, e) < 0) goto done;
    }
    got = llm_header_parse(&c->header, json.p, n, llm_checkpoint_name(c), e);
done:
    llm_buf_release(&json);
    return got;
}

static int open_plain_pipe(struct llm_checkpoint *c, struct llm_err *e)
{
    struct llm_buf json = {0};
    int got = llm_read_header(c->file, &json, &c->header, e);
    llm_buf_release(&json);
    return got;
}

static int open_whole(struct llm_checkpoint *c, bool regular, struct llm_err *e)
{
    int64_t got = 1;
    if (regular && map_file(c, e) < 0) return -1;
    while (!regular && got > 0) { /* memory follows bytes that came */
        if (llm_buf_reserve(&c->whole, c->whole.n + (1 << 20), e) < 0) return -1;
        got = llm_file_read_some(c->file, c->whole.p + c->whole.n, 1 << 20, e);
        if (got < 0) return -1;
        c->whole.n += (size_t)got;
        c->bytes = (const unsigned char *)c->whole.p;
    }
    const uint64_t n = regular ? c->map.n : c->whole.n;
    if (c->content == LLM_CONTENT_RWKV_CPP) return llm_rwkv_cpp_parse(&c->rwkv_cpp, &c->header, c->bytes, n, llm_checkpoint_name(c), e);
    return llm_gguf_parse(&c->gguf, &c->header, c->bytes, n, llm_checkpoint_name(c), e);
}

/* Opens the source in one of these ways, by its content. A file that clearly has another format is refused before it is parsed. */
static int open_any(struct llm_checkpoint *c, bool regular, struct llm_err *e)
{
    char kind[32];
    if (llm_sniff(c->file, &c->content, e) < 0 || llm_sniff_kind(c->file, kind, e) < 0) return -1;
    if (c->content == LLM_CONTENT_CHECKPOINT) return regular ? open_zstd_file(c, e) : open_zstd_pipe(c, e);
    if (is_whole(c)) return open_whole(c, regular, e);
    if (c->content != LLM_CONTENT_MESSAGE || (kind[0] && !llm_kind_is_checkpoint(kind)))
        return llm_sniff_refuse(c->file, "a checkpoint (.llm), safetensors or GGUF", e);
    return regular ? open_plain_file(c, e) : open_plain_pipe(c, e);
}

struct llm_checkpoint *llm_checkpoint_from_file(struct llm_file *f, struct llm_err *e)
{
    struct llm_checkpoint *c = llm_calloc(1, sizeof *c, "checkpoint", e);
    if (!c) {
        llm_file_close(f);
        return NULL;
    }
    c->file = f;
    pthread_mutex_init(&c->lock, NULL);
    bool regular = llm_file_regular(f, NULL) >= 0;
    int got = open_any(c, regular, e);
    if (got == 0 && c->header.kind && !llm_kind_is_checkpoint(c->header.kind))
        got = llm_fail(e, EX_DATAERR, "%s: expected a checkpoint, found a message of kind '%s'", llm_file_name(f), c->header.kind);
    if (got == 0 && !regular && !is_whole(c)) {
        c->kept = llm_calloc(c->header.n_entries, sizeof *c->kept, "header", e);
        if (!c->kept || (c->header.n_entries == 0 && finish_content(c, e) < 0)) got = -1;
    }
    if (got == 0) return c;
    llm_checkpoint_close(c);
    return NULL;
}

struct llm_checkpoint *llm_checkpoint_open(const char *path, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    return f ? llm_checkpoint_from_file(f, e) : NULL;
}

/* ---- one tensor ---- */

/* Appends " (tensor 'name')" to the error, whose text begins with the file's name. Returns -1. */
static int in_tensor(struct llm_err *e, const char *name)
{
    size_t n = e ? strlen(e->text) : 0;
    if (e) snprintf(e->text + n, sizeof e->text - n, " (tensor '%s')", name);
    return -1;
}

static int plane_width(const struct llm_entry *t)
{
    return t->planes ? llm_dtypes[t->dtype].block_bytes : 0;
}

static void join_stored(const struct llm_entry *t, const unsigned char *stored, unsigned char *out)
{
    for (uint64_t at = 0, step; at < t->bytes; at += step) {
        step = t->bytes - at < LLM_FRAME_BYTES ? t->bytes - at : LLM_FRAME_BYTES;
        if (t->planes) llm_planes_join(stored + at, out + at, step, plane_width(t));
        else memcpy(out + at, stored + at, step);
    }
}

/* Frames of several tensors, decoded at once. */
struct decode_job {
    struct llm_checkpoint *c;
    const struct llm_wanted *wanted;
    size_t *first;               /* [n + 1]: pieces before tensor i */
    size_t n;
    pthread_mutex_t lock;
    size_t failed_piece;         /* the lowest one that failed, so that the message does not depend on threads */
    struct llm_err e;
};

static void decode_piece(void *arg, size_t i, int thread)
{
    struct decode_job *j = arg;
    struct llm_err e = {0};
    size_t low = 0, high = j->n;
    (void)thread;
    while (high - low > 1) { /* the tensor that piece i is of: the last that begins at or before it */
        size_t middle = low + (high - low) / 2;
        if (j->first[middle] <= i) low = middle;
        else high = middle;
    }
    const struct llm_entry *t = j->wanted[low].entry;
    size_t k = i - j->first[low];
    const struct llm_frame *f = &j->c->frames[j->c->first_frame[t - j->c->header.entries] + k];
    if (decode_frame(j->c, f, plane_width(t), (unsigned char *)j->wanted[low].out + k * LLM_FRAME_BYTES, &e) == 0) return;
    in_tensor(&e, t->name);
    pthread_mutex_lock(&j->lock);
    if (i < j->failed_piece) {
        j->failed_piece = i;
        j->e = e;
    }
    pthread_mutex_unlock(&j->lock);
}

static int read_frames(struct llm_checkpoint *c, const struct llm_wanted *w, size_t n, struct llm_err *e)
{
    struct decode_job j = {.c = c, .wanted = w, .n = n, .failed_piece = SIZE_MAX};
    j.first = llm_calloc(n + 1, sizeof *j.first, "checkpoint", e);
    if (!j.first) return -1;
    for (size_t i = 0; i < n; i++) j.first[i + 1] = j.first[i] + (w[i].entry->bytes + LLM_FRAME_BYTES - 1) / LLM_FRAME_BYTES;
    pthread_mutex_init(&j.lock, NULL);
    llm_parallel(j.first[n], decode_piece, &j);
    pthread_mutex_destroy(&j.lock);
    free(j.first);
    if (j.failed_piece == SIZE_MAX) return 0;
    if (e) *e = j.e;
    return -1;
}

/* Reads entry `next` of a pipe as it is stored. Memory follows bytes that came. NULL: see `e`. */
static unsigned char *take_next(struct llm_checkpoint *c, struct llm_err *e)
{
    const struct llm_entry *t = &c->header.entries[c->next];
    struct llm_buf b = {0};
    for (uint64_t have = 0, step; have < t->bytes; have += step) {
        uint64_t room = have < 64 << 20 ? 64 << 20 : have; /* doubles */
        step = t->bytes - have < room ? t->bytes - have : room;
        if (llm_buf_reserve(&b, have + step, e) < 0 || read_content(c, b.p + have, step, e) < 0) goto bad;
    }
    if (!b.p && llm_buf_reserve(&b, 1, e) < 0) goto bad;
    c->next++;
    if (c->next == c->header.n_entries && finish_content(c, e) < 0) goto bad;
    return (unsigned char *)b.p;
bad:
    llm_buf_release(&b);
    return NULL;
}

static int read_pipe(struct llm_checkpoint *c, const struct llm_entry *t, void *out, struct llm_err *e)
{
    size_t index = (size_t)(t - c->header.entries);
    while (c->next <= index) {
        size_t at = c->next;
        c->kept[at] = take_next(c, e);
        if (!c->kept[at]) return in_tensor(e, c->header.entries[at].name);
    }
    if (!c->kept[index]) return llm_fail(e, LLM_EX_FAILURE, "%s: tensor '%s' was read before", llm_checkpoint_name(c), t->name);
    join_stored(t, c->kept[index], out);
    free(c->kept[index]);
    c->kept[index] = NULL;
    return 0;
}

int llm_checkpoint_read_many(struct llm_checkpoint *c, const struct llm_wanted *w, size_t n, struct llm_err *e)
{
    if (c->frames) return read_frames(c, w, n, e);
    for (size_t i = 0; i < n; i++) {
        if (c->kept && read_pipe(c, w[i].entry, w[i].out, e) < 0) return -1;
        if (!c->kept) join_stored(w[i].entry, c->bytes + c->header.header_bytes + w[i].entry->offset, w[i].out);
    }
    return 0;
}

int llm_checkpoint_read(struct llm_checkpoint *c, const struct llm_entry *t, void *out, struct llm_err *e)
{
    const struct llm_wanted one = {t, out};
    return llm_checkpoint_read_many(c, &one, 1, e);
}

int llm_checkpoint_read_part(struct llm_checkpoint *c, const struct llm_entry *t, uint64_t from, uint64_t n, void *out, struct llm_err *e)
{
    if (from == 0 && n == t->bytes) return llm_checkpoint_read(c, t, out, e);
    if (!is_whole(c) || from > t->bytes || n > t->bytes - from) {
        return llm_fail(e, LLM_EX_FAILURE, "%s: tensor '%s': cannot be read in parts", llm_checkpoint_name(c), t->name);
    }
    memcpy(out, c->bytes + c->header.header_bytes + t->offset + from, n);
    return 0;
}

const void *llm_checkpoint_borrow(const struct llm_checkpoint *c, const struct llm_entry *t)
{
    if (c->frames || c->kept || t->planes || t->bytes == 0) return NULL;
    const unsigned char *p = c->bytes + c->header.header_bytes + t->offset;
    const struct llm_dtype_row *row = &llm_dtypes[t->dtype];
    uintptr_t alignment = row->block_size > 1 ? 2 : (uintptr_t)row->block_bytes; /* blocks begin with a half */
    return (uintptr_t)p % alignment ? NULL : p;
}

bool llm_checkpoint_is_mapped(const struct llm_checkpoint *c)
{
    return c->map.p && c->bytes == c->map.p;
}

void llm_checkpoint_mapping(const struct llm_checkpoint *c, const char **from, const char **end)
{
    *from = llm_checkpoint_is_mapped(c) ? (const char *)c->map.p : NULL;
    *end = *from ? *from + c->map.n : NULL;
}

void llm_checkpoint_release_pages(const struct llm_checkpoint *c)
{
    if (llm_checkpoint_is_mapped(c)) llm_pages_release((void *)(uintptr_t)c->map.p, c->map.n);
}

/* ---- writing ---- */

/* Writes a tensor part by part. One without data is made by llm_checkpoint_options.give. */
static int write_parts(struct llm_output *o, const struct llm_entry *entry, const struct llm_checkpoint_options *opt, struct llm_err *e)
{
    char *part = entry->source ? NULL : llm_alloc(LLM_FRAME_BYTES, 1, "checkpoint", e);
    int got = entry->source || part ? 0 : -1;
    for (uint64_t at = 0, step; got == 0 && at < entry->bytes; at += step) {
        step = entry->bytes - at < LLM_FRAME_BYTES ? entry->bytes - at : LLM_FRAME_BYTES;
        if (part) opt->give(opt->give_arg, entry->name, at, step, part);
        got = llm_output_write(o, part ? part : (const char *)entry->source + at, step, e);
        if (opt->written) opt->written(opt->written_arg, entry->name, at, step);
    }
    free(part);
    return got;
}

static int write_plain(struct llm_output *o, const struct llm_buf *head, const struct llm_entry *entries, size_t n,
                       const struct llm_checkpoint_options *opt, struct llm_err *e)
{
    if (llm_output_write(o, head->p, head->n, e) < 0) return -1;
    for (size_t i = 0; i < n; i++) {
        if (write_parts(o, &entries[i], opt, e) < 0) return -1;
    }
    return 0;
}

/* Divides `whole`, a job for a tensor of `bytes` bytes, into jobs of one frame each. NULL jobs: counts them only. */
static size_t cut(struct llm_frame_job *jobs, const struct llm_frame_job *whole, uint64_t bytes)
{
    size_t n = 0;
    for (uint64_t at = 0, step; at < bytes; at += step, n++) {
        step = bytes - at < LLM_FRAME_BYTES ? bytes - at : LLM_FRAME_BYTES;
        if (!jobs) continue;
        jobs[n] = *whole;
        jobs[n].bytes = step;
        jobs[n].from = at;
        if (whole->raw) jobs[n].raw = whole->raw + at;
    }
    return n;
}

static int write_zstd(struct llm_output *o, const struct llm_buf *head, const struct llm_entry *entries, size_t n,
                      const struct llm_checkpoint_options *opt, struct llm_err *e)
{
    size_t total = cut(NULL, NULL, head->n), at;
    for (size_t i = 0; i < n; i++) total += cut(NULL, NULL, entries[i].bytes);
    struct llm_frame_job *jobs = llm_alloc(total, sizeof *jobs, "checkpoint", e);
    struct llm_frame_writer *w = jobs ? llm_frame_writer_create(o, opt->level, opt->team, e) : NULL;
    int got = w ? 0 : -1;
    if (opt->team) got = opt->team->begin(opt->team->arg, got, NULL, NULL, 0, e);
    if (got == 0) {
        if (opt->written) llm_frames_few(w);
        at = cut(jobs, &(struct llm_frame_job){.raw = (const unsigned char *)head->p}, head->n);
        for (size_t i = 0; i < n; i++) {
            const struct llm_frame_job whole = {.raw = entries[i].source, .give = opt->give, .give_arg = opt->give_arg, .name = entries[i].name,
                                                .plane_width = plane_width(&entries[i]), .packed = opt->written, .packed_arg = opt->written_arg};
            at += cut(jobs + at, &whole, entries[i].bytes);
        }
        got = llm_frames_write(w, jobs, at, e);
        if (got == 0) got = llm_frames_finish(w, e);
    }
    llm_frame_writer_destroy(w);
    free(jobs);
    return got;
}

/* The message's header, with its length before it. */
static int build_head(struct llm_buf *head, const json_t *meta, const struct llm_entry *entries, size_t n, const char *kind, struct llm_err *e)
{
    struct llm_buf json = {0};
    int got = llm_buf_put(head, "\0\0\0\0\0\0\0", 8, e);
    if (got == 0) got = llm_header_build(kind ? kind : "checkpoint", meta, entries, n, &json, e);
    if (got == 0) got = llm_buf_put(head, json.p, json.n, e);
    for (int i = 0; got == 0 && i < 8; i++) head->p[i] = (char)((uint64_t)json.n >> (8 * i));
    llm_buf_release(&json);
    return got;
}

/* All processes get the length of the header that process 0 has, or fail as one of them has. */
static int tell_head(const struct llm_frame_team *t, int got, struct llm_buf *head, struct llm_err *e)
{
    struct llm_err lost;
    uint64_t n = head->n;
    if (t->tell(t->arg, &n, sizeof n, got < 0 ? &lost : e) < 0) got = -1;
    got = t->begin(t->arg, got, NULL, NULL, 0, e);
    head->n = n;
    return got;
}

int llm_checkpoint_write(struct llm_output *o, const json_t *meta, const struct llm_tensor_out *t, size_t n,
                         const struct llm_checkpoint_options *opt, struct llm_err *e)
{
    const struct llm_frame_team *team = opt->team;
    struct llm_buf head = {0};
    struct llm_entry *entries = llm_calloc(n, sizeof *entries, "checkpoint", e);
    int got = entries ? llm_layout(t, n, opt->planes && !opt->plain, entries, e) : -1;
    if (got == 0 && (!team || team->rank == 0)) got = build_head(&head, meta, entries, n, opt->kind, e);
    if (team) got = tell_head(team, got, &head, e);
    if (got == 0) got = opt->plain ? write_plain(o, &head, entries, n, opt, e) : write_zstd(o, &head, entries, n, opt, e);
    llm_buf_release(&head);
    free(entries);
    return got;
}
