#define ZSTD_STATIC_LINKING_ONLY /* for the name ZSTD_c_literalCompressionMode; every libzstd since 1.3.8 knows the parameter */
#include "io/zstd_frames.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "base/buf.h"
#include "cpu/pool.h"
#include "io/planes.h"

enum { SKIPPABLE_HEADER = 8, SEEK_ENTRY = 8, SEEK_FOOTER = 9, PIECE = 1 << 17, CHECKSUM_FLAG = 4, WINDOW_LOG = 22 };
enum { BATCH_LIMIT = LLM_FRAMES_LIMIT / 2 };
enum { NAMING_FRAME = SKIPPABLE_HEADER + sizeof LLM_CHECKPOINT_NAME - 1 };

static void put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- writing ---- */

struct packed { unsigned char *p; size_t room, bytes, raw_bytes; }; /* a compressed frame until it is written; bytes 0: memory was short */

struct llm_frame_writer {
    struct llm_output *out;
    int level;
    struct llm_frame *table;
    size_t n, room;
    const struct llm_frame_team *team;
    uint64_t at;                /* of the next frame in the file */
    /* While one batch is compressed, the previous one is written. */
    struct packed batch[2][BATCH_LIMIT];
    int turn;
    bool few;                   /* llm_frames_few */
    size_t n_before;
    const struct llm_frame_job *jobs;
    const size_t *mine;         /* of a team: the jobs of a batch that this process does */
    struct llm_err *e;
    bool failed;
};

static int note_frame(struct llm_frame_writer *w, size_t packed, size_t bytes, struct llm_err *e)
{
    void *table = w->table;
    if (llm_grow(&table, &w->room, w->n + 1, sizeof *w->table, e) < 0) return -1;
    w->table = table;
    w->table[w->n++] = (struct llm_frame){.packed = (uint32_t)packed, .bytes = (uint32_t)bytes};
    return 0;
}

/* The next n bytes of the file, which process `maker` of a team has made: they are written by whom the team says. */
static int put(struct llm_frame_writer *w, int maker, void *p, size_t n, struct llm_err *e)
{
    const struct llm_frame_team *t = w->team;
    const int writer = t ? t->writer[maker] : 0, rank = t ? t->rank : 0;
    const uint64_t at = w->at;
    w->at += n;
    if (maker != writer && (rank == maker || rank == writer) && t->pass(t->arg, maker, p, n, e) < 0) return -1;
    if (rank != writer) return 0;
    if (t && (t->place ? t->place(t->arg, at, n, e) : llm_output_seek(w->out, at, e)) < 0) return -1;
    return llm_output_write(w->out, p, n, e);
}

struct llm_frame_writer *llm_frame_writer_create(struct llm_output *o, int level, const struct llm_frame_team *team, struct llm_err *e)
{
    unsigned char name[] = "        " LLM_CHECKPOINT_NAME; /* after the frame's header */
    struct llm_frame_writer *w = llm_calloc(1, sizeof *w, "checkpoint", e);
    if (!w) return NULL;
    w->out = o;
    w->level = level;
    w->team = team;
    put32(name, LLM_SKIPPABLE_NAME);
    put32(name + 4, NAMING_FRAME - SKIPPABLE_HEADER);
    if (put(w, 0, name, NAMING_FRAME, e) == 0 && note_frame(w, NAMING_FRAME, 0, e) == 0) return w;
    llm_frame_writer_destroy(w);
    return NULL;
}

void llm_frame_writer_destroy(struct llm_frame_writer *w)
{
    if (!w) return;
    for (int i = 0; i < BATCH_LIMIT; i++) {
        free(w->batch[0][i].p);
        free(w->batch[1][i].p);
    }
    free(w->table);
    free(w);
}

/* Measured on BF16 weights (tests/bench/checkpoint_bench.c): exponents repeat as symbols and not as strings, mantissas not at all, so looking for
 * matches costs time and even bytes. A huge targetLength makes the fast strategy leap over the content; the Huffman code of the literals, which that
 * would switch off, does the work. */
static void set_for_planes(ZSTD_CCtx *c)
{
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, 1);
    ZSTD_CCtx_setParameter(c, ZSTD_c_strategy, ZSTD_fast);
    ZSTD_CCtx_setParameter(c, ZSTD_c_minMatch, 7);
    ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, 17);
    ZSTD_CCtx_setParameter(c, ZSTD_c_hashLog, 6);
    ZSTD_CCtx_setParameter(c, ZSTD_c_targetLength, ZSTD_TARGETLENGTH_MAX);
    ZSTD_CCtx_setParameter(c, ZSTD_c_literalCompressionMode, 1);
}

static size_t compress(const struct llm_frame_writer *w, const struct llm_frame_job *job, unsigned char *out, size_t room, const void *raw)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    if (!c) return 0;
    if (job->plane_width && !w->level) set_for_planes(c);
    else ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, w->level ? w->level : 3);
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    size_t got = ZSTD_compress2(c, out, room, raw, job->bytes);
    ZSTD_freeCCtx(c);
    return ZSTD_isError(got) ? 0 : got;
}

static void compress_job(struct llm_frame_writer *w, struct packed *p, const struct llm_frame_job *job, int thread)
{
    struct llm_err ignored;
    size_t room = ZSTD_compressBound(job->bytes);
    const unsigned char *raw = job->raw;
    p->bytes = 0;
    p->raw_bytes = job->bytes;
    void *grown = p->p;
    if (llm_grow(&grown, &p->room, room, 1, &ignored) < 0) return;
    p->p = grown;
    unsigned char *planes = job->plane_width || !raw ? llm_scratch(thread, 2 * job->bytes) : NULL;
    if (!planes && (job->plane_width || !raw)) return;
    if (!raw) {
        job->give(job->give_arg, job->name, job->from, job->bytes, planes + job->bytes);
        raw = planes + job->bytes;
    }
    if (job->plane_width) {
        llm_planes_split(raw, planes, job->bytes, job->plane_width);
        raw = planes;
    }
    p->bytes = compress(w, job, p->p, room, raw);
    if (job->packed) job->packed(job->packed_arg, job->name, job->from, job->bytes);
}

static int write_batch(struct llm_frame_writer *w, struct packed *batch, size_t n, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (!batch[i].bytes) return llm_no_memory(e, "compressing a frame");
        if (put(w, 0, batch[i].p, batch[i].bytes, e) < 0 || note_frame(w, batch[i].bytes, batch[i].raw_bytes, e) < 0) return -1;
    }
    return 0;
}

/* Work item 0 writes the previous batch; the others compress one frame each. */
static void batch_piece(void *arg, size_t i, int thread)
{
    struct llm_frame_writer *w = arg;
    if (i) compress_job(w, &w->batch[w->turn][i - 1], &w->jobs[i - 1], thread);
    else w->failed = write_batch(w, w->batch[!w->turn], w->n_before, w->e) < 0;
}

/* Frames of a batch: enough for all threads to be busy. The frames themselves do not depend on it. */
static size_t batch_limit(bool few)
{
    const size_t limit = (few ? 1 : 4) * (size_t)llm_pool_threads();
    return limit < BATCH_LIMIT ? limit : BATCH_LIMIT;
}

void llm_frames_few(struct llm_frame_writer *w)
{
    w->few = true;
}

size_t llm_frames_in_memory(void)
{
    return 2 * batch_limit(false); /* one batch is written while the next is made */
}

void llm_frames_room_add(struct llm_frames_room *r, double bytes, bool given)
{
    const uint64_t most = llm_frames_in_memory(), n = (uint64_t)ceil(bytes / (double)LLM_FRAME_BYTES);
    for (uint64_t i = 0; i < n && i < most; i++) {
        const double frame = fmin(bytes - (double)i * (double)LLM_FRAME_BYTES, (double)LLM_FRAME_BYTES);
        double *buffer = &r->buffers[(r->n + i) % most];
        *buffer = fmax(*buffer, frame);
        r->scratch = fmax(r->scratch, given ? 2 * frame : frame); /* its planes, and what they are of */
    }
    r->n += n;
}

double llm_frames_memory(const struct llm_frames_room *r)
{
    double bytes = llm_pool_threads() * r->scratch;
    for (size_t i = 0; i < llm_frames_in_memory(); i++) bytes += r->buffers[i];
    return bytes;
}

double llm_frames_memory_joined(double bytes, double n, double largest)
{
    const double most = (double)llm_frames_in_memory(), held = n < most ? n : most;
    return n > 0 ? held * (largest + bytes / n) + largest * (1 + 2 * llm_pool_threads()) : 0;
}

/* ---- writing by several processes ---- */

/* The frames of a batch: who makes each and how long they have become, [limit of the team * its processes]; which of them this process makes; how
 * many each process makes; room for one that another process has made and this one writes. */
struct team_batch { int *makers; uint32_t *sizes; size_t n, *mine, *made; unsigned char *passed; };

static struct packed *slot(struct llm_frame_writer *w, size_t i)
{
    return &w->batch[i / BATCH_LIMIT][i % BATCH_LIMIT];
}

static void make_piece(void *arg, size_t i, int thread)
{
    struct llm_frame_writer *w = arg;
    compress_job(w, slot(w, i), &w->jobs[w->mine[i]], thread);
}

/* Decides who makes the next jobs, until one process has as many as it can. Those that all can make go to the process that has the fewest. */
static void divide(const struct llm_frame_team *t, const struct llm_frame_job *jobs, size_t n, struct team_batch *b)
{
    memset(b->made, 0, (size_t)t->n * sizeof *b->made);
    for (b->n = 0; b->n < n; b->n++) {
        int maker = jobs[b->n].name ? t->maker(t->arg, &jobs[b->n]) : 0;
        if (maker < 0) {
            maker = 0;
            for (int q = 1; q < t->n; q++) maker = b->made[q] < b->made[maker] ? q : maker;
        }
        if (b->made[maker] == t->limit) return;
        if (maker == t->rank) b->mine[b->made[maker]] = b->n;
        b->made[maker]++;
        b->makers[b->n] = maker;
    }
}

/* Makes the frames of a batch that are this process's, and tells the others how long they are. */
static int make_batch(struct llm_frame_writer *w, const struct llm_frame_job *jobs, const struct team_batch *b, struct llm_err *e)
{
    const struct llm_frame_team *t = w->team;
    const size_t n = b->made[t->rank];
    w->jobs = jobs;
    w->mine = b->mine;
    llm_parallel(n, make_piece, w);
    for (size_t i = 0; i < n; i++) b->sizes[b->mine[i]] = (uint32_t)slot(w, i)->bytes;
    if (t->tell_sizes(t->arg, b->makers, b->sizes, b->n, e) < 0) return -1;
    for (size_t i = 0; i < b->n; i++) {
        if (b->sizes[i] == 0 || b->sizes[i] > ZSTD_compressBound(LLM_FRAME_BYTES)) return llm_no_memory(e, "compressing a frame");
    }
    return 0;
}

/* Writes the frames of a batch. A process that cannot write still passes on, and receives, what others wait for. */
static int put_batch(struct llm_frame_writer *w, const struct llm_frame_job *jobs, const struct team_batch *b, struct llm_err *e)
{
    struct llm_err later;
    int got = 0;
    for (size_t i = 0, mine = 0; i < b->n; i++) {
        struct llm_err *err = got < 0 ? &later : e;
        unsigned char *p = b->makers[i] == w->team->rank ? slot(w, mine++)->p : b->passed;
        if (put(w, b->makers[i], p, b->sizes[i], err) < 0 || note_frame(w, b->sizes[i], jobs[i].bytes, err) < 0) got = -1;
    }
    return got;
}

/* llm_frames_write of a team. */
static int write_together(struct llm_frame_writer *w, const struct llm_frame_job *jobs, size_t n, struct llm_err *e)
{
    const struct llm_frame_team *t = w->team;
    const size_t limit = t->limit * (size_t)t->n;
    struct team_batch b = {.makers = llm_alloc(limit, sizeof *b.makers, "checkpoint", e), .sizes = llm_alloc(limit, sizeof *b.sizes, "checkpoint", e),
                           .mine = llm_alloc(t->limit, sizeof *b.mine, "checkpoint", e),
                           .made = llm_calloc((size_t)t->n, sizeof *b.made, "checkpoint", e),
                           .passed = llm_alloc(ZSTD_compressBound(LLM_FRAME_BYTES), 1, "checkpoint", e)};
    int got = b.makers && b.sizes && b.mine && b.made && b.passed ? 0 : -1; /* this process's */
    int all = t->begin(t->arg, got, NULL, NULL, 0, e);
    for (size_t at = 0; all == 0 && at < n; at += b.n) {
        divide(t, jobs + at, n - at, &b);
        all = t->begin(t->arg, got, jobs + at, b.makers, b.n, e);
        if (all == 0) all = make_batch(w, jobs + at, &b, e);
        if (all == 0) got = put_batch(w, jobs + at, &b, e);
    }
    free(b.makers);
    free(b.sizes);
    free(b.mine);
    free(b.made);
    free(b.passed);
    return all < 0 ? -1 : got;
}

int llm_frames_write(struct llm_frame_writer *w, const struct llm_frame_job *jobs, size_t n, struct llm_err *e)
{
    const size_t limit = batch_limit(w->few);
    if (w->team) return write_together(w, jobs, n, e);
    w->n_before = 0;
    w->e = e;
    for (size_t at = 0; at < n; at += w->n_before) {
        size_t step = n - at < limit ? n - at : limit;
        w->jobs = jobs + at;
        llm_parallel(step + 1, batch_piece, w);
        if (w->failed) return -1;
        w->n_before = step;
        w->turn = !w->turn;
    }
    return write_batch(w, w->batch[!w->turn], w->n_before, e);
}

int llm_frames_finish(struct llm_frame_writer *w, struct llm_err *e)
{
    unsigned char head[SKIPPABLE_HEADER], entry[SEEK_ENTRY], footer[SEEK_FOOTER] = {0};
    uint64_t size = (uint64_t)w->n * SEEK_ENTRY + SEEK_FOOTER;
    if (size > UINT32_MAX) return llm_fail(e, LLM_EX_FAILURE, "too many frames for a seekable table: %zu", w->n);
    put32(head, LLM_SKIPPABLE_SEEK);
    put32(head + 4, (uint32_t)size);
    if (put(w, 0, head, sizeof head, e) < 0) return -1;
    for (size_t i = 0; i < w->n; i++) {
        put32(entry, w->table[i].packed);
        put32(entry + 4, w->table[i].bytes);
        if (put(w, 0, entry, sizeof entry, e) < 0) return -1;
    }
    put32(footer, (uint32_t)w->n); /* then the descriptor, 0: no checksums here, the frames carry theirs */
    put32(footer + 5, LLM_SEEK_MAGIC);
    return put(w, 0, footer, sizeof footer, e);
}

/* ---- reading: shared by files and pipes ---- */

bool llm_is_checkpoint(const unsigned char *p, size_t n)
{
    static const char name[] = LLM_CHECKPOINT_NAME;
    size_t known = sizeof name - 3; /* without the version */
    return n >= SKIPPABLE_HEADER + known && get32(p) == LLM_SKIPPABLE_NAME && memcmp(p + SKIPPABLE_HEADER, name, known) == 0;
}

static int check_name(const unsigned char *p, const char *where, struct llm_err *e)
{
    static const char name[] = LLM_CHECKPOINT_NAME;
    if (!llm_is_checkpoint(p, NAMING_FRAME)) return llm_fail(e, EX_DATAERR, "%s: byte 0: expected the frame that names a checkpoint", where);
    if (get32(p + 4) == sizeof name - 1 && memcmp(p + SKIPPABLE_HEADER, name, sizeof name - 1) == 0) return 0;
    return llm_fail(e, EX_DATAERR, "%s: byte %d: checkpoint of a version that is not known", where, NAMING_FRAME - 2);
}

/* A frame that begins with these 5 bytes. */
static int check_frame_head(const unsigned char *p, const char *where, uint64_t at, struct llm_err *e)
{
    if (get32(p) != ZSTD_MAGICNUMBER) return llm_fail(e, EX_DATAERR, "%s: byte %llu: expected a zstd frame", where, (unsigned long long)at);
    if (p[4] & CHECKSUM_FLAG) return 0;
    return llm_fail(e, EX_DATAERR, "%s: byte %llu: zstd frame without a checksum", where, (unsigned long long)at);
}

/* ---- reading a mapped file ---- */

int llm_frames_table(const unsigned char *file, uint64_t size, const char *name, struct llm_frame **frames, size_t *n, struct llm_err *e)
{
    *frames = NULL;
    *n = 0;
    if (size >= NAMING_FRAME && check_name(file, name, e) < 0) return -1;
    if (size < NAMING_FRAME + SKIPPABLE_HEADER + SEEK_FOOTER || get32(file + size - 4) != LLM_SEEK_MAGIC)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: expected the seekable table at the end (cut short?)", name, (unsigned long long)size);
    uint32_t count = get32(file + size - SEEK_FOOTER);
    uint64_t content = (uint64_t)count * SEEK_ENTRY + SEEK_FOOTER;
    if (file[size - 5] != 0)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: seekable table: unknown descriptor %u", name, (unsigned long long)(size - 5), file[size - 5]);
    if (content + SKIPPABLE_HEADER > size) return llm_fail(e, EX_DATAERR, "%s: seekable table of %u frames is larger than the file", name, count);
    uint64_t start = size - content - SKIPPABLE_HEADER, at = 0;
    const unsigned char *head = file + start;
    if (get32(head) != LLM_SKIPPABLE_SEEK || get32(head + 4) != content)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: expected a seekable table of %u frames", name, (unsigned long long)start, count);
    struct llm_frame *v = llm_alloc(count, sizeof *v, "seekable table", e);
    if (!v) return -1;
    for (uint32_t i = 0; i < count; i++) {
        struct llm_frame f = {at, get32(head + SKIPPABLE_HEADER + SEEK_ENTRY * (size_t)i),
                              get32(head + SKIPPABLE_HEADER + SEEK_ENTRY * (size_t)i + 4)};
        at += f.packed;
        bool possible = i == 0 ? f.packed == NAMING_FRAME && f.bytes == 0 : f.packed > SEEK_ENTRY && f.bytes > 0 && f.bytes <= LLM_FRAME_BYTES;
        if (at > start || !possible) {
            llm_fail(e, EX_DATAERR, "%s: seekable table: frame %u at byte %llu: impossible size", name, i, (unsigned long long)f.offset);
            goto bad;
        }
        if (i) v[(*n)++] = f;
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

struct llm_frame_decoder {
    ZSTD_DCtx *z;
    unsigned char *planes;    /* LLM_FRAME_BYTES, made when first needed */
};

struct llm_frame_decoder *llm_frame_decoder_create(struct llm_err *e)
{
    struct llm_frame_decoder *d = llm_calloc(1, sizeof *d, "zstd", e);
    if (!d) return NULL;
    d->z = ZSTD_createDCtx();
    if (d->z) return d;
    llm_no_memory(e, "zstd");
    llm_frame_decoder_destroy(d);
    return NULL;
}

void llm_frame_decoder_destroy(struct llm_frame_decoder *d)
{
    if (!d) return;
    ZSTD_freeDCtx(d->z);
    free(d->planes);
    free(d);
}

static int decode(struct llm_frame_decoder *d, const unsigned char *file, const struct llm_frame *f, void *out, const char *name, struct llm_err *e)
{
    if (check_frame_head(file + f->offset, name, f->offset, e) < 0) return -1;
    size_t whole = ZSTD_findFrameCompressedSize(file + f->offset, f->packed);
    if (ZSTD_isError(whole) || whole != f->packed)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: expected one zstd frame of %u bytes", name, (unsigned long long)f->offset, f->packed);
    size_t got = ZSTD_decompressDCtx(d->z, out, f->bytes, file + f->offset, f->packed);
    if (ZSTD_isError(got))
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: zstd frame: %s", name, (unsigned long long)f->offset, ZSTD_getErrorName(got));
    if (got != f->bytes)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: zstd frame: expected %u bytes, found %zu", name, (unsigned long long)f->offset, f->bytes, got);
    return 0;
}

int llm_frame_decode(struct llm_frame_decoder *d, const unsigned char *file, const struct llm_frame *f, int plane_width, void *out, const char *name,
                     struct llm_err *e)
{
    if (!plane_width) return decode(d, file, f, out, name, e);
    if (!d->planes) d->planes = llm_alloc(LLM_FRAME_BYTES, 1, "planes", e);
    if (!d->planes || decode(d, file, f, d->planes, name, e) < 0) return -1;
    llm_planes_join(d->planes, out, f->bytes, plane_width);
    return 0;
}

/* ---- reading a pipe ---- */

struct llm_unzstd {
    struct llm_file *file;
    ZSTD_DStream *z;
    ZSTD_inBuffer in;
    struct llm_frame *table;  /* the frames read, to be compared with the table at the end */
    size_t n, room;
    uint64_t packed, bytes;   /* of the current frame, so far */
    bool in_frame, ended;
    unsigned char buffer[PIECE];
};

/* The file's offset without what is still in the buffer. */
static unsigned long long offset(const struct llm_unzstd *z)
{
    return (unsigned long long)(llm_file_offset(z->file) - (z->in.size - z->in.pos));
}

/* At least n bytes in the buffer (n ≤ 64), or all that are left: how many there are, or -1. */
static int64_t look(struct llm_unzstd *z, size_t n, struct llm_err *e)
{
    size_t have = z->in.size - z->in.pos;
    if (have >= n) return (int64_t)have;
    memmove(z->buffer, z->buffer + z->in.pos, have);
    for (int64_t more = 1; have < n && more > 0; have += (size_t)more)
        if ((more = llm_file_read_some(z->file, z->buffer + have, sizeof z->buffer - have, e)) < 0) return -1;
    z->in = (ZSTD_inBuffer){z->buffer, have, 0};
    return (int64_t)have;
}

/* Takes n bytes that must be there; NULL: see `e`. */
static const unsigned char *take(struct llm_unzstd *z, size_t n, const char *what, struct llm_err *e)
{
    int64_t have = look(z, n, e);
    if (have < 0) return NULL;
    if ((size_t)have < n) {
        llm_fail(e, EX_DATAERR, "%s: byte %llu: cut short: expected %s", llm_file_name(z->file), offset(z), what);
        return NULL;
    }
    z->in.pos += n;
    return z->buffer + z->in.pos - n;
}

static int note_came(struct llm_unzstd *z, uint64_t packed, uint64_t bytes, struct llm_err *e)
{
    void *table = z->table;
    if (llm_grow(&table, &z->room, z->n + 1, sizeof *z->table, e) < 0) return -1;
    z->table = table;
    z->table[z->n++] = (struct llm_frame){.packed = (uint32_t)packed, .bytes = (uint32_t)bytes};
    return 0;
}

struct llm_unzstd *llm_unzstd_create(struct llm_file *f, struct llm_err *e)
{
    struct llm_unzstd *z = llm_calloc(1, sizeof *z, "zstd", e);
    if (!z) return NULL;
    z->file = f;
    z->in.src = z->buffer;
    z->z = ZSTD_createDStream();
    const unsigned char *name = NULL;
    if (!z->z) llm_no_memory(e, "zstd");
    else name = take(z, NAMING_FRAME, "the frame that names a checkpoint", e);
    if (name && check_name(name, llm_file_name(f), e) == 0 && note_came(z, NAMING_FRAME, 0, e) == 0) {
        ZSTD_DCtx_setParameter(z->z, ZSTD_d_windowLogMax, WINDOW_LOG);
        return z;
    }
    llm_unzstd_destroy(z);
    return NULL;
}

void llm_unzstd_destroy(struct llm_unzstd *z)
{
    if (!z) return;
    ZSTD_freeDStream(z->z);
    free(z->table);
    free(z);
}

const struct llm_frame *llm_unzstd_frames(const struct llm_unzstd *z, size_t *n)
{
    *n = z->n;
    return z->table;
}

/* Reads the seekable table, which must match the frames read and must end the input. */
static int read_table(struct llm_unzstd *z, struct llm_err *e)
{
    const char *name = llm_file_name(z->file);
    const unsigned char *p = take(z, SKIPPABLE_HEADER, "the seekable table", e);
    if (!p) return -1;
    if (get32(p + 4) != z->n * SEEK_ENTRY + SEEK_FOOTER)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: expected a seekable table of %zu frames", name, offset(z) - SKIPPABLE_HEADER, z->n);
    for (size_t i = 0; i < z->n; i++) {
        if (!(p = take(z, SEEK_ENTRY, "the seekable table", e))) return -1;
        if (get32(p) != z->table[i].packed || get32(p + 4) != z->table[i].bytes)
            return llm_fail(e, EX_DATAERR, "%s: byte %llu: seekable table: frame %zu: wrong size", name, offset(z) - SEEK_ENTRY, i);
    }
    if (!(p = take(z, SEEK_FOOTER, "the seekable table", e))) return -1;
    if (get32(p) != z->n || p[4] != 0 || get32(p + 5) != LLM_SEEK_MAGIC)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: seekable table: wrong footer", name, offset(z) - SEEK_FOOTER);
    int64_t more = look(z, 1, e);
    if (more > 0) return llm_fail(e, EX_DATAERR, "%s: byte %llu: expected the end after the seekable table", name, offset(z));
    z->ended = true;
    return more < 0 ? -1 : 0;
}

/* Between frames: another one begins, or the table comes. */
static int begin_frame(struct llm_unzstd *z, struct llm_err *e)
{
    int64_t have = look(z, SKIPPABLE_HEADER, e);
    if (have < 0) return -1;
    const unsigned char *p = z->buffer + z->in.pos;
    if (have < SKIPPABLE_HEADER)
        return llm_fail(e, EX_DATAERR, "%s: byte %llu: cut short: expected a frame or the seekable table", llm_file_name(z->file), offset(z));
    if (get32(p) == LLM_SKIPPABLE_SEEK) return read_table(z, e);
    if (check_frame_head(p, llm_file_name(z->file), offset(z), e) < 0) return -1;
    z->in_frame = true;
    z->packed = z->bytes = 0;
    return 0;
}

/* Decodes up to n bytes; *got 0 only at the end of input. */
static int unzstd_some(struct llm_unzstd *z, void *p, size_t n, size_t *got, struct llm_err *e)
{
    const char *name = llm_file_name(z->file);
    *got = 0;
    while (*got == 0 && !z->ended) {
        if (!z->in_frame) {
            if (begin_frame(z, e) < 0) return -1;
            continue;
        }
        int64_t have = look(z, 1, e);
        if (have < 0) return -1;
        if (have == 0) return llm_fail(e, EX_DATAERR, "%s: byte %llu: cut short within a zstd frame", name, offset(z));
        size_t before = z->in.pos;
        ZSTD_outBuffer out = {p, n, 0};
        size_t hint = ZSTD_decompressStream(z->z, &out, &z->in);
        if (ZSTD_isError(hint)) return llm_fail(e, EX_DATAERR, "%s: byte %llu: zstd frame: %s", name, offset(z), ZSTD_getErrorName(hint));
        z->packed += z->in.pos - before;
        z->bytes += *got = out.pos;
        if (z->bytes > LLM_FRAME_BYTES)
            return llm_fail(e, EX_DATAERR, "%s: byte %llu: zstd frame of more than %zu bytes", name, offset(z), LLM_FRAME_BYTES);
        if (hint == 0) {
            z->in_frame = false;
            if (note_came(z, z->packed, z->bytes, e) < 0) return -1;
        }
    }
    return 0;
}

int llm_unzstd_read(struct llm_unzstd *z, void *p, size_t n, struct llm_err *e)
{
    for (size_t have = 0, got; have < n; have += got) {
        if (unzstd_some(z, (char *)p + have, n - have, &got, e) < 0) return -1;
        if (got == 0)
            return llm_fail(e, EX_DATAERR, "%s: byte %llu: cut short: expected %zu more bytes of content", llm_file_name(z->file), offset(z),
                            n - have);
    }
    return 0;
}

int llm_unzstd_finish(struct llm_unzstd *z, struct llm_err *e)
{
    unsigned char extra;
    size_t got;
    if (unzstd_some(z, &extra, 1, &got, e) < 0) return -1;
    if (got == 0) return 0;
    return llm_fail(e, EX_DATAERR, "%s: byte %llu: more content than the header says", llm_file_name(z->file), offset(z));
}
