#include "io/zstd_frames.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/buf.h"
#include "cpu/pool.h"
#include "io/planes.h"

enum { SKIPPABLE_HEADER = 8, SEEK_ENTRY = 8, SEEK_FOOTER = 9, BATCH = 16, MIN_MATCH = 7, PIECE = 1 << 17 };

static void put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- writing ---- */

struct llm_frame_writer {
    struct llm_output *out;
    int level;
    struct llm_frame *table;
    size_t n, room;
    unsigned char *packed[BATCH]; /* what the threads made, until it is written */
    size_t packed_bytes[BATCH];
    const struct llm_frame_job *jobs;
};

static int note_frame(struct llm_frame_writer *w, size_t packed, size_t bytes, struct llm_err *e)
{
    void *table = w->table;
    if (llm_grow(&table, &w->room, w->n + 1, sizeof *w->table, e) < 0) return -1;
    w->table = table;
    w->table[w->n++] = (struct llm_frame){.packed = (uint32_t)packed, .bytes = (uint32_t)bytes};
    return 0;
}

struct llm_frame_writer *llm_frame_writer_create(struct llm_output *o, int level, struct llm_err *e)
{
    static const char name[] = LLM_CHECKPOINT_NAME;
    unsigned char head[SKIPPABLE_HEADER];
    struct llm_frame_writer *w = llm_calloc(1, sizeof *w, "checkpoint", e);
    if (!w) return NULL;
    w->out = o;
    w->level = level;
    put32(head, LLM_SKIPPABLE_NAME);
    put32(head + 4, sizeof name - 1);
    if (llm_output_write(o, head, sizeof head, e) == 0 && llm_output_write(o, name, sizeof name - 1, e) == 0
        && note_frame(w, sizeof head + sizeof name - 1, 0, e) == 0)
        return w;
    llm_frame_writer_destroy(w);
    return NULL;
}

void llm_frame_writer_destroy(struct llm_frame_writer *w)
{
    if (!w) return;
    for (int i = 0; i < BATCH; i++) free(w->packed[i]);
    free(w->table);
    free(w);
}

/* The fast strategy with long matches only: on planes of floats matches are rare and Huffman does the work (formats/checkpoint.md). */
static size_t compress(const struct llm_frame_writer *w, const struct llm_frame_job *job, unsigned char *out, size_t room, const void *raw)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    if (!c) return 0;
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, w->level ? w->level : job->plane_width ? 1 : 3);
    if (!w->level && job->plane_width) {
        ZSTD_CCtx_setParameter(c, ZSTD_c_strategy, ZSTD_fast);
        ZSTD_CCtx_setParameter(c, ZSTD_c_minMatch, MIN_MATCH);
    }
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    size_t got = ZSTD_compress2(c, out, room, raw, job->bytes);
    ZSTD_freeCCtx(c);
    return ZSTD_isError(got) ? 0 : got;
}

static void compress_piece(void *arg, size_t i, int thread)
{
    struct llm_frame_writer *w = arg;
    const struct llm_frame_job *job = &w->jobs[i];
    size_t room = ZSTD_compressBound(job->bytes);
    const void *raw = job->raw;
    w->packed_bytes[i] = 0;
    if (!w->packed[i]) w->packed[i] = malloc(ZSTD_compressBound(LLM_FRAME_BYTES));
    if (!w->packed[i]) return;
    if (job->plane_width) {
        unsigned char *planes = llm_scratch(thread, job->bytes);
        if (!planes) return;
        llm_planes_split(job->raw, planes, job->bytes, job->plane_width);
        raw = planes;
    }
    w->packed_bytes[i] = compress(w, job, w->packed[i], room, raw);
}

int llm_frames_write(struct llm_frame_writer *w, const struct llm_frame_job *jobs, size_t n, struct llm_err *e)
{
    for (size_t at = 0; at < n; at += BATCH) {
        size_t step = n - at < BATCH ? n - at : BATCH;
        w->jobs = jobs + at;
        llm_parallel(step, compress_piece, w);
        for (size_t i = 0; i < step; i++) {
            if (!w->packed_bytes[i]) return llm_no_memory(e, "compressing a frame");
            if (llm_output_write(w->out, w->packed[i], w->packed_bytes[i], e) < 0) return -1;
            if (note_frame(w, w->packed_bytes[i], jobs[at + i].bytes, e) < 0) return -1;
        }
    }
    return 0;
}

int llm_frames_finish(struct llm_frame_writer *w, struct llm_err *e)
{
    unsigned char head[SKIPPABLE_HEADER], entry[SEEK_ENTRY], footer[SEEK_FOOTER] = {0};
    uint64_t size = (uint64_t)w->n * SEEK_ENTRY + SEEK_FOOTER;
    if (size > UINT32_MAX) return llm_fail(e, LLM_EX_FAILURE, "too many frames for a seekable table: %zu", w->n);
    put32(head, LLM_SKIPPABLE_SEEK);
    put32(head + 4, (uint32_t)size);
    if (llm_output_write(w->out, head, sizeof head, e) < 0) return -1;
    for (size_t i = 0; i < w->n; i++) {
        put32(entry, w->table[i].packed);
        put32(entry + 4, w->table[i].bytes);
        if (llm_output_write(w->out, entry, sizeof entry, e) < 0) return -1;
    }
    put32(footer, (uint32_t)w->n); /* then the descriptor, 0: no checksums here, the frames carry theirs */
    put32(footer + 5, LLM_SEEK_MAGIC);
    return llm_output_write(w->out, footer, sizeof footer, e);
}

/* ---- reading a mapped file ---- */

int llm_frames_table(const unsigned char *file, uint64_t size, const char *name, struct llm_frame **frames, size_t *n, struct llm_err *e)
{
    *frames = NULL;
    *n = 0;
    if (size < SKIPPABLE_HEADER + SEEK_FOOTER || get32(file + size - 4) != LLM_SEEK_MAGIC)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: expected the seekable table at the end (cut short?)", name, (unsigned long long)size);
    uint32_t count = get32(file + size - SEEK_FOOTER);
    uint64_t content = (uint64_t)count * SEEK_ENTRY + SEEK_FOOTER;
    if (file[size - 5] != 0) return llm_fail(e, EX_DATAERR, "%s: byte %llu: seekable table: unknown descriptor %u", name, (unsigned long long)(size - 5), file[size - 5]);
    if (content + SKIPPABLE_HEADER > size) return llm_fail(e, EX_DATAERR, "%s: seekable table of %u frames is larger than the file", name, count);
    uint64_t start = size - content - SKIPPABLE_HEADER, at = 0;
    const unsigned char *head = file + start;
    if (get32(head) != LLM_SKIPPABLE_SEEK || get32(head + 4) != content)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: expected a seekable table of %u frames", name, (unsigned long long)start, count);
    struct llm_frame *v = llm_alloc(count, sizeof *v, "seekable table", e);
    if (!v) return -1;
    for (uint32_t i = 0; i < count; i++) {
        struct llm_frame f = {at, get32(head + SKIPPABLE_HEADER + SEEK_ENTRY * (size_t)i), get32(head + SKIPPABLE_HEADER + SEEK_ENTRY * (size_t)i + 4)};
        at += f.packed;
        if (at > start || f.packed == 0 || f.bytes > LLM_FRAME_BYTES) {
            llm_fail(e, EX_DATAERR, "%s: seekable table: frame %u at byte %llu: impossible size", name, i, (unsigned long long)f.offset);
            goto bad;
        }
        if (f.bytes) v[(*n)++] = f;
    }
    if (at == start) {
        *frames = v;
        return 0;
    }
    llm_fail(e, EX_DATAERR, "%s: seekable table: frames end at byte %llu, expected %llu", name, (unsigned long long)at, (unsigned long long)start);
bad:
    free(v);
    *n = 0;
    return -1;
}

int llm_frame_decode(const unsigned char *file, const struct llm_frame *f, void *out, const char *name, struct llm_err *e)
{
    size_t whole = ZSTD_findFrameCompressedSize(file + f->offset, f->packed);
    if (ZSTD_isError(whole) || whole != f->packed)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: expected one zstd frame of %u bytes", name, (unsigned long long)f->offset, f->packed);
    size_t got = ZSTD_decompress(out, f->bytes, file + f->offset, f->packed);
    if (ZSTD_isError(got)) return llm_fail(e, EX_DATAERR, "%s: byte %llu: zstd frame: %s", name, (unsigned long long)f->offset, ZSTD_getErrorName(got));
    if (got != f->bytes)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: zstd frame: expected %u bytes, found %zu", name, (unsigned long long)f->offset, f->bytes, got);
    return 0;
}

/* ---- reading a pipe ---- */

struct llm_unzstd {
    struct llm_file *file;
    ZSTD_DStream *z;
    ZSTD_inBuffer in;
    bool mid_frame;
    unsigned char buffer[PIECE];
};

struct llm_unzstd *llm_unzstd_create(struct llm_file *f, struct llm_err *e)
{
    struct llm_unzstd *z = llm_calloc(1, sizeof *z, "zstd", e);
    if (!z) return NULL;
    z->file = f;
    z->in.src = z->buffer;
    z->z = ZSTD_createDStream();
    if (z->z) {
        ZSTD_DCtx_setParameter(z->z, ZSTD_d_windowLogMax, 27);
        return z;
    }
    llm_no_memory(e, "zstd");
    llm_unzstd_destroy(z);
    return NULL;
}

void llm_unzstd_destroy(struct llm_unzstd *z)
{
    if (!z) return;
    ZSTD_freeDStream(z->z);
    free(z);
}

/* Decodes up to n bytes; *got 0 only at the end of input. */
static int unzstd_some(struct llm_unzstd *z, void *p, size_t n, size_t *got, struct llm_err *e)
{
    ZSTD_outBuffer out = {p, n, 0};
    for (;;) {
        size_t before = z->in.pos;
        size_t hint = ZSTD_decompressStream(z->z, &out, &z->in);
        if (ZSTD_isError(hint)) return llm_file_bad(z->file, e, "zstd: %s", ZSTD_getErrorName(hint));
        if (z->in.pos != before || out.pos) z->mid_frame = hint != 0;
        *got = out.pos;
        if (out.pos) return 0;
        if (z->in.pos < z->in.size) continue;
        int64_t more = llm_file_read_some(z->file, z->buffer, sizeof z->buffer, e);
        if (more < 0) return -1;
        if (more == 0) return z->mid_frame ? llm_file_bad(z->file, e, "cut short within a zstd frame") : 0;
        z->in = (ZSTD_inBuffer){z->buffer, (size_t)more, 0};
    }
}

int llm_unzstd_read(struct llm_unzstd *z, void *p, size_t n, struct llm_err *e)
{
    for (size_t have = 0, got; have < n; have += got) {
        if (unzstd_some(z, (char *)p + have, n - have, &got, e) < 0) return -1;
        if (got == 0) return llm_file_bad(z->file, e, "cut short: expected %zu more bytes of content", n - have);
    }
    return 0;
}

int llm_unzstd_finish(struct llm_unzstd *z, struct llm_err *e)
{
    unsigned char extra;
    size_t got;
    if (unzstd_some(z, &extra, 1, &got, e) < 0) return -1;
    return got ? llm_file_bad(z->file, e, "more content than the header says") : 0;
}
