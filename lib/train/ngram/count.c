/* From tokens to counted n-grams: parts of the data that fit into memory are sorted there, equal n-grams added up, and written to a file where
 * there is more than one such part; the parts are merged. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/signals.h"
#include "cpu/pool.h"
#include "io/temporary.h"
#include "train/ngram/ngram_internal.h"

enum { BLOCK = 1 << 16, PIECES = 256 };

/* ---- tokens by rank ---- */

static int count_seen(struct llm_estimate *w, struct llm_err *e)
{
    int64_t vocab = w->source->vocab_size;
    int32_t *ids = llm_alloc(BLOCK, sizeof *ids, "tokens", e);
    w->seen = llm_calloc((size_t)vocab + 1, sizeof *w->seen, "tokens", e);
    w->rank_of = llm_calloc((size_t)vocab + 1, sizeof *w->rank_of, "tokens", e);
    w->id_of = llm_calloc((size_t)vocab + 2, sizeof *w->id_of, "tokens", e);
    int got = ids && w->seen && w->rank_of && w->id_of ? 0 : -1;
    for (uint64_t at = 0, n; got == 0 && at < w->source->n; at += n) {
        n = w->source->n - at < BLOCK ? w->source->n - at : BLOCK;
        llm_tokens_get(w->source->tokens, at, (size_t)n, ids, NULL);
        for (uint64_t i = 0; i < n; i++) w->seen[ids[i]]++;
    }
    free(ids);
    for (int64_t id = 0; got == 0 && id <= vocab; id++) {
        if (w->seen[id] == 0 && id != w->begin) continue;
        w->rank_of[id] = ++w->n_ranks;
        w->id_of[w->n_ranks] = (int32_t)id;
    }
    return got;
}

/* Pieces of about equal numbers of tokens. */
static int make_cuts(struct llm_estimate *w, struct llm_err *e)
{
    uint64_t goal = w->source->n / PIECES + 1, sum = 0;
    w->cuts.rank = llm_calloc(PIECES + 2, sizeof *w->cuts.rank, "n-grams", e);
    if (!w->cuts.rank) return -1;
    w->cuts.rank[0] = 1;
    for (uint32_t r = 1; r <= w->n_ranks; r++) {
        sum += w->seen[w->id_of[r]];
        if (sum < goal && r < w->n_ranks) continue;
        w->cuts.rank[++w->cuts.n] = r + 1;
        sum = 0;
    }
    return 0;
}

/* ---- keys ---- */

struct fill {
    struct llm_estimate *w;
    struct llm_ngram_record *r;
    uint64_t first, n;             /* tokens of this part */
    const uint64_t *ends;
    size_t n_ends;
    int failed;
};

/* The document ends that lie at or before `at`. */
static size_t ends_before(const struct fill *f, uint64_t at)
{
    size_t low = 0, high = f->n_ends;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->ends[middle] <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Makes the records of one block of tokens; a token that no n-gram ends with gets a key that is greater than all others. */
static void fill_block(void *arg, size_t block, int thread)
{
    struct fill *f = arg;
    const struct llm_estimate *w = f->w;
    uint64_t at = f->first + block * BLOCK, end = at + BLOCK < f->first + f->n ? at + BLOCK : f->first + f->n, before = (uint64_t)w->order - 1;
    size_t document = ends_before(f, at);
    uint64_t start = document > 0 ? f->ends[document - 1] : 0, from = at - start > before ? at - before : start;
    int32_t *ids = llm_scratch(thread, (size_t)(end - from) * (sizeof *ids + 1));
    const int key_bits = w->bits * w->order;
    if (!ids) {
        f->failed = 1;
        return;
    }
    uint8_t *mask = (uint8_t *)(ids + (end - from));
    llm_tokens_get(w->source->tokens, from, (size_t)(end - from), ids, mask);
    struct llm_ngram_key key = {0, 0};
    bool begins = from == start;
    for (uint64_t i = from; i < end; i++) {
        uint32_t rank = w->rank_of[ids[i - from]];
        bool counts = mask[i - from] != 0;
        if (document < f->n_ends && i == f->ends[document]) {
            document++;
            begins = true;
        }
        if (begins && ids[i - from] != w->begin) key = llm_key_put((struct llm_ngram_key){0, 0}, 0, w->bits, w->begin_rank);
        else if (begins) counts = false, key = (struct llm_ngram_key){0, 0};
        begins = false;
        key = llm_key_put(llm_key_first(llm_key_right(key, w->bits), key_bits), 0, w->bits, rank);
        if (i < at) continue;
        struct llm_ngram_record none = {{UINT64_MAX, UINT64_MAX}, 0};
        f->r[i - f->first] = counts ? (struct llm_ngram_record){key, 1} : none;
    }
}

/* ---- parts ---- */

struct compact { struct llm_run *pieces; };

static void compact_piece(void *arg, size_t i, int thread)
{
    struct llm_run *p = &((struct compact *)arg)->pieces[i];
    (void)thread;
    p->n = llm_records_merge(p->r, (size_t)p->n);
}

/* Tokens [first, first + n) as sorted n-grams in w->pieces, in r. */
static int sort_part(struct llm_estimate *w, uint64_t first, uint64_t n, struct llm_ngram_record *r, struct llm_ngram_record *scratch,
                     struct llm_err *e)
{
    struct fill f = {.w = w, .r = r, .first = first, .n = n};
    if (!w->options->cross_document) f.ends = llm_tokens_doc_ends(w->source->tokens, &f.n_ends);
    llm_parallel((size_t)((n + BLOCK - 1) / BLOCK), fill_block, &f);
    if (f.failed) return llm_no_memory(e, "tokens");
    if (llm_signal_caught()) return 1;
    if (llm_records_sort(r, scratch, (size_t)n, w->bits * w->order, e) < 0) return -1;
    const struct llm_run all = {r, n};
    uint64_t at = llm_run_search(&all, w->cuts.rank[0], w->bits);
    for (size_t i = 0; i < w->cuts.n; i++) {
        uint64_t end = llm_run_search(&all, w->cuts.rank[i + 1], w->bits);
        w->pieces[i] = (struct llm_run){r + at, end - at};
        at = end;
    }
    llm_parallel(w->cuts.n, compact_piece, &(struct compact){w->pieces});
    return llm_signal_caught() ? 1 : 0;
}

static int write_all(int fd, const void *p, size_t n, struct llm_err *e)
{
    for (size_t at = 0; at < n;) {
        ssize_t put = write(fd, (const char *)p + at, n - at < (1 << 26) ? n - at : 1 << 26);
        if (put < 0 && errno != EINTR) return llm_fail_errno(e, EX_IOERR, "cannot write n-grams to a temporary file");
        if (put > 0) at += (size_t)put;
    }
    return 0;
}

/* The part's pieces become a run of the file. */
static int write_part(struct llm_estimate *w, int fd, struct llm_run *run, struct llm_err *e)
{
    run->n = 0;
    for (size_t i = 0; i < w->cuts.n; i++) {
        if (write_all(fd, w->pieces[i].r, (size_t)w->pieces[i].n * sizeof *w->pieces[i].r, e) < 0) return -1;
        run->n += w->pieces[i].n;
    }
    return 0;
}

static int merge_file(struct llm_estimate *w, int fd, struct llm_run *runs, size_t n_runs, struct llm_err *e)
{
    uint64_t total = 0, at = 0;
    for (size_t i = 0; i < n_runs; i++) total += runs[i].n;
    if (total == 0) return 0;
    uint64_t bytes = total * sizeof(struct llm_ngram_record);
    struct llm_ngram_record *all = mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (all == MAP_FAILED) return llm_fail_errno(e, EX_UNAVAILABLE, "cannot map a temporary file");
    w->budget.in_files += bytes;
    if (w->budget.in_files > w->budget.most_in_files) w->budget.most_in_files = w->budget.in_files;
    for (size_t i = 0; i < n_runs; i++) {
        runs[i].r = all + at;
        at += runs[i].n;
    }
    int got = llm_store_init(&w->counted, &w->budget, bytes, e);
    if (got == 0) got = llm_runs_merge(runs, n_runs, &w->cuts, w->bits, w->counted.data, w->pieces, e);
    munmap(all, (size_t)bytes);
    w->budget.in_files -= bytes;
    return got;
}

static int count_parts(struct llm_estimate *w, uint64_t part, struct llm_ngram_record *scratch, struct llm_err *e)
{
    size_t n_runs = (size_t)((w->source->n + part - 1) / part);
    struct llm_run *runs = llm_calloc(n_runs, sizeof *runs, "n-grams", e);
    struct llm_store buffer = {.data = NULL};
    int fd = runs ? llm_temporary_open(e) : -1, got = fd < 0 ? -1 : 0;
    if (got == 0) got = llm_store_init(&buffer, &w->budget, part * sizeof(struct llm_ngram_record), e);
    for (size_t i = 0; got == 0 && i < n_runs; i++) {
        uint64_t at = i * part, n = w->source->n - at < part ? w->source->n - at : part;
        got = sort_part(w, at, n, buffer.data, scratch, e);
        if (got == 0) got = write_part(w, fd, &runs[i], e);
    }
    llm_store_release(&buffer, &w->budget);
    w->report->runs = n_runs;
    if (got == 0) got = merge_file(w, fd, runs, n_runs, e);
    if (fd >= 0) close(fd);
    free(runs);
    return got;
}

int llm_ngram_count_tokens(struct llm_estimate *w, struct llm_err *e)
{
    const uint64_t record = sizeof(struct llm_ngram_record), n = w->source->n;
    if (count_seen(w, e) < 0) return -1;
    w->begin_rank = w->rank_of[w->begin];
    while ((uint64_t)1 << w->bits < (uint64_t)w->n_ranks + 2) w->bits++; /* 0 and all ones are no tokens */
    if (w->bits * w->order > 128) {
        return llm_fail(e, LLM_EX_USAGE, "order %d: expected at most %d with %" PRIu32 " different tokens", w->order, 128 / w->bits, w->n_ranks);
    }
    if (make_cuts(w, e) < 0 || !(w->pieces = llm_calloc(w->cuts.n, sizeof *w->pieces, "n-grams", e))) return -1;
    uint64_t part = w->budget.limit / record > 4096 ? w->budget.limit / record : 4096;
    if (part > n) part = n;
    struct llm_ngram_record *scratch = llm_alloc((size_t)part, record, "n-grams", e);
    if (!scratch) return -1;
    int got;
    if (part < n) {
        got = count_parts(w, part, scratch, e);
    } else {
        w->report->runs = 1;
        got = llm_store_init(&w->counted, &w->budget, n * record, e);
        if (got == 0) got = sort_part(w, 0, n, w->counted.data, scratch, e);
    }
    free(scratch);
    return got;
}
