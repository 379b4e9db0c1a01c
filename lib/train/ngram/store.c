/* Memory for records, in files where there is not enough; sorting and merging in it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "io/temporary.h"
#include "train/ngram/ngram_internal.h"

/* The blocks are there before they are mapped: a full disk is an error here, not a signal later. */
static void *map_file(uint64_t bytes, struct llm_err *e)
{
    int fd = llm_temporary_open(e);
    if (fd < 0) return NULL;
    int problem = posix_fallocate(fd, 0, (off_t)bytes);
    void *p = problem ? MAP_FAILED : mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (problem) errno = problem;
    if (p == MAP_FAILED) {
        llm_fail_errno(e, EX_IOERR, "%s: a temporary file of %.0f MiB", llm_temporary_folder(), (double)bytes / 1048576);
        p = NULL;
    }
    close(fd);
    return p;
}

int llm_store_init(struct llm_store *s, struct llm_budget *b, uint64_t bytes, struct llm_err *e)
{
    *s = (struct llm_store){.bytes = bytes, .file = bytes > b->limit || b->used > b->limit - bytes};
    if (bytes == 0) return 0;
    if (s->file) {
        if (!(s->data = map_file(bytes, e))) return -1;
        b->in_files += bytes;
        if (b->in_files > b->most_in_files) b->most_in_files = b->in_files;
        return 0;
    }
    s->data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->data == MAP_FAILED) {
        s->data = NULL;
        return llm_no_memory(e, "n-grams");
    }
    b->used += bytes;
    return 0;
}

void llm_store_release(struct llm_store *s, struct llm_budget *b)
{
    if (s->data) {
        munmap(s->data, (size_t)s->bytes);
        *(s->file ? &b->in_files : &b->used) -= s->bytes;
    }
    *s = (struct llm_store){.data = NULL};
}

uint64_t llm_run_search(const struct llm_run *run, uint32_t rank, int bits)
{
    uint64_t low = 0, high = run->n;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (llm_key_token(run->r[middle].key, 0, bits) < rank) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* ---- merging: a heap of runs by their first key; equal keys in the order of the runs ---- */

struct merge {
    const struct llm_run *runs;
    size_t n_runs;
    const struct llm_cuts *cuts;
    int bits;
    struct llm_ngram_record *out;
    struct llm_run *pieces;
    uint64_t *bounds;              /* [n_runs][cuts->n + 1] */
    uint64_t *begin;               /* [cuts->n]: in out */
};
struct head { const struct llm_ngram_record *at, *end; };

static void sift(struct head *heap, size_t n, size_t i)
{
    struct head x = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && llm_key_less(heap[child + 1].at->key, heap[child].at->key)) child++;
        if (!llm_key_less(heap[child].at->key, x.at->key)) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void merge_piece(void *arg, size_t piece, int thread)
{
    struct merge *m = arg;
    struct head *heap = llm_scratch(thread, m->n_runs * sizeof *heap);
    size_t n = 0;
    uint64_t kept = 0;
    struct llm_ngram_record *out = m->out + m->begin[piece];
    m->pieces[piece] = (struct llm_run){heap ? out : NULL, 0};
    if (!heap || llm_signal_caught()) return;
    for (size_t r = 0; r < m->n_runs; r++) {
        const uint64_t *b = m->bounds + r * (m->cuts->n + 1) + piece;
        if (b[0] < b[1]) heap[n++] = (struct head){m->runs[r].r + b[0], m->runs[r].r + b[1]};
    }
    for (size_t i = n / 2; i-- > 0;) sift(heap, n, i);
    while (n > 0) {
        const struct llm_ngram_record *r = heap[0].at++;
        if (kept && llm_key_equal(out[kept - 1].key, r->key)) out[kept - 1].n += r->n;
        else out[kept++] = *r;
        if (heap[0].at == heap[0].end) heap[0] = heap[--n];
        if (n > 0) sift(heap, n, 0);
    }
    m->pieces[piece].n = kept;
}

int llm_runs_merge(const struct llm_run *runs, size_t n_runs, const struct llm_cuts *cuts, int bits, struct llm_ngram_record *out,
                   struct llm_run *pieces, struct llm_err *e)
{
    struct merge m = {.runs = runs, .n_runs = n_runs, .cuts = cuts, .bits = bits, .out = out, .pieces = pieces};
    m.bounds = llm_calloc(n_runs * (cuts->n + 1), sizeof *m.bounds, "merging n-grams", e);
    m.begin = llm_calloc(cuts->n, sizeof *m.begin, "merging n-grams", e);
    int got = m.bounds && m.begin ? 0 : -1;
    uint64_t at = 0;
    for (size_t p = 0; got == 0 && p <= cuts->n; p++) {
        for (size_t r = 0; r < n_runs; r++) m.bounds[r * (cuts->n + 1) + p] = llm_run_search(&runs[r], cuts->rank[p], bits);
        for (size_t r = 0; p > 0 && r < n_runs; r++) at += m.bounds[r * (cuts->n + 1) + p] - m.bounds[r * (cuts->n + 1) + p - 1];
        if (p < cuts->n) m.begin[p] = at;
    }
    if (got == 0) llm_parallel(cuts->n, merge_piece, &m);
    for (size_t p = 0; got == 0 && p < cuts->n; p++) {
        if (!pieces[p].r) got = llm_no_memory(e, "merging n-grams");
    }
    free(m.bounds);
    free(m.begin);
    return got == 0 && llm_signal_caught() ? 1 : got;
}

/* ---- sorting a store ---- */

static int merge_parts(struct llm_store *s, uint64_t n, uint64_t part, const struct llm_cuts *cuts, int bits, struct llm_budget *b, struct llm_err *e)
{
    size_t n_runs = (size_t)((n + part - 1) / part);
    struct llm_run *runs = llm_calloc(n_runs, sizeof *runs, "sorting n-grams", e);
    struct llm_run *pieces = llm_calloc(cuts->n, sizeof *pieces, "sorting n-grams", e);
    struct llm_store to = {.data = NULL};
    int got = runs && pieces ? llm_store_init(&to, b, s->bytes, e) : -1;
    for (size_t i = 0; got == 0 && i < n_runs; i++) {
        uint64_t at = i * part;
        runs[i] = (struct llm_run){(struct llm_ngram_record *)s->data + at, n - at < part ? n - at : part};
    }
    if (got == 0) got = llm_runs_merge(runs, n_runs, cuts, bits, to.data, pieces, e);
    free(runs);
    free(pieces);
    llm_store_release(got == 0 ? s : &to, b);
    if (got == 0) *s = to;
    return got;
}

int llm_store_sort(struct llm_store *s, uint64_t n, const struct llm_cuts *cuts, int bits, int key_bits, struct llm_budget *b, struct llm_err *e)
{
    struct llm_ngram_record *r = s->data, *scratch;
    uint64_t part = b->limit / sizeof *r > 4096 ? b->limit / sizeof *r : 4096;
    if (part > n) part = n;
    if (n == 0) return 0;
    scratch = llm_alloc((size_t)part, sizeof *scratch, "sorting n-grams", e);
    if (!scratch) return -1;
    int got = 0;
    for (uint64_t at = 0; got == 0 && at < n; at += part) {
        got = llm_records_sort(r + at, scratch, (size_t)(n - at < part ? n - at : part), key_bits, e);
        if (got == 0 && llm_signal_caught()) got = 1;
    }
    free(scratch);
    return got == 0 && part < n ? merge_parts(s, n, part, cuts, bits, b, e) : got;
}
