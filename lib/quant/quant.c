/* One tensor: pieces of fixed size are decoded, encoded, and compared with what they became. */
#include "quant/quant.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/pages.h"
#include "cpu/kernels.h"
#include "cpu/pages.h"
#include "cpu/pool.h"
#include "quant/block.h"
#include "quant/gptq.h"
#include "quant/grid.h"
#include "quant/weights.h"

const char *const llm_quant_methods[LLM_QUANT_METHODS] = {[LLM_QUANT_AUTO] = "auto", [LLM_QUANT_RTN] = "rtn", [LLM_QUANT_SEARCH] = "search",
                                                          [LLM_QUANT_GPTQ] = "gptq", [LLM_QUANT_KL] = "kl"};


#define PIECE 4096 /* values; a multiple of every block size */
#define READ ((size_t)2 << 20) /* bytes that are read before their pages are released */

struct work {
    const struct llm_quant_job *job;
    const struct llm_dtype_row *from, *to;
    size_t first_piece;
    enum llm_quant_method method;
    struct llm_fit_errors *sums; /* [pieces] */
    size_t *zeros;               /* [pieces] elements that are 0 */
    atomic_bool crowded;         /* a type for two of each four met more */
};

static size_t bytes_of(const struct llm_dtype_row *t, uint64_t n)
{
    return n / (uint64_t)t->block_size * (uint64_t)t->block_bytes;
}

enum llm_quant_method llm_quant_method_of(const struct llm_quant_job *j)
{
    const struct llm_dtype_row *to = &llm_dtypes[j->to];
    if (!llm_block_kind_of(j->to) && !llm_grid_kind_of(j->to)) return LLM_QUANT_AUTO;
    if (j->method == LLM_QUANT_RTN || j->method == LLM_QUANT_SEARCH) return j->method;
    if (j->method >= LLM_QUANT_GPTQ && j->products) return j->method == LLM_QUANT_KL && j->gradients ? LLM_QUANT_KL : LLM_QUANT_GPTQ;
    return to->encode && !j->importance ? LLM_QUANT_RTN : LLM_QUANT_SEARCH;
}

/* Elements [first, first + n) of the tensor, block by block. */
static void encode_blocks(const struct work *w, uint64_t first, const float *x, size_t n, void *out)
{
    const struct llm_block_kind *kind = llm_block_kind_of(w->job->to);
    const struct llm_grid_kind *grid = llm_grid_kind_of(w->job->to);
    const enum llm_block_effort effort = w->method == LLM_QUANT_RTN ? LLM_BLOCK_RTN : LLM_BLOCK_SEARCH;
    const struct llm_quant_job *j = w->job;
    const size_t size = (size_t)w->to->block_size;
    float weights[LLM_BLOCK_MAX], squares[PIECE / LLM_BLOCK_AROUND];
    struct llm_grid_block points;
    struct llm_block b;
    llm_block_squares(x, n, squares);
    for (size_t i = 0; i < n; i += size) {
        const float *importance = j->importance ? j->importance + (first + i) % (uint64_t)j->row : NULL;
        llm_block_weights(j->to, x + i, squares[i / LLM_BLOCK_AROUND], importance, weights);
        char *to = (char *)out + i / size * (size_t)w->to->block_bytes;
        if (grid) {
            llm_grid_choose(grid, x + i, weights, effort, &points);
            if (effort == LLM_BLOCK_SEARCH) llm_grid_stretch(grid, x + i, weights, &points);
            grid->pack(&points, to);
        } else {
            llm_block_choose(kind, x + i, weights, effort, &b);
            if (effort == LLM_BLOCK_SEARCH) llm_block_stretch(kind, x + i, weights, &b);
            kind->pack(&b, to);
            if (j->sink) j->sink->take(j->sink->arg, j->param, (first + i) / size, &b);
        }
    }
}

static size_t count_zeros(const float *x, size_t n)
{
    uint32_t zeros[8] = {0};
    size_t i = 0, all = 0;
    for (; i + 8 <= n; i += 8) {
        for (int k = 0; k < 8; k++) zeros[k] += x[i + (size_t)k] == 0;
    }
    for (; i < n; i++) all += x[i] == 0;
    for (int k = 0; k < 8; k++) all += zeros[k];
    return all;
}

/* Whether three of four neighbours are not 0. */
static bool is_crowded(const float *x, size_t n)
{
    bool crowded = false;
    for (size_t i = 0; i < n; i += 4) crowded |= (x[i] != 0) + (x[i + 1] != 0) + (x[i + 2] != 0) + (x[i + 3] != 0) > 2;
    return crowded;
}

static void quantize_piece(void *arg, size_t item, int thread)
{
    struct work *w = arg;
    float x[PIECE], y[PIECE];
    const size_t i = w->first_piece + item;
    uint64_t first = (uint64_t)i * PIECE;
    size_t n = w->job->n - first < PIECE ? (size_t)(w->job->n - first) : PIECE;
    char *out = (char *)w->job->out + bytes_of(w->to, first);
    (void)thread;
    const void *in = (const char *)w->job->in + bytes_of(w->from, first);
    if (w->job->from == LLM_BF16) llm_k.elementwise.from_bf16(x, in, n);
    else w->from->decode(in, x, n);
    const bool plain = (!llm_block_kind_of(w->job->to) && !llm_grid_kind_of(w->job->to)) || (w->method == LLM_QUANT_RTN && w->to->encode);
    const float *values = w->job->values ? w->job->values + first : x;
    if (llm_quant_dense(w->job->to) != w->job->to && is_crowded(values, n)) atomic_store(&w->crowded, true);
    if (plain) w->to->encode(values, out, n);
    else if (w->method < LLM_QUANT_GPTQ) encode_blocks(w, first, values, n, out); /* theirs are written */
    if (plain && w->job->sink) { /* the same parts but for ties, which ggml's encoder rounds in its own way */
        char others[PIECE * 2];
        encode_blocks(w, first, values, n, others);
    }
    w->to->decode(out, y, n);
    llm_k.fit.errors(x, y, n, &w->sums[i]);
    w->zeros[i] = count_zeros(y, n);
}

/* Writes what `method` has not written yet, and tells the errors of all. */
static int write_and_compare(const struct llm_quant_job *j, enum llm_quant_method method, struct llm_quant_report *r, struct llm_err *e)
{
    size_t pieces = (size_t)((j->n + PIECE - 1) / PIECE);
    struct work w = {.job = j, .from = &llm_dtypes[j->from], .to = &llm_dtypes[j->to], .method = method,
                     .sums = llm_calloc(pieces, sizeof *w.sums, "sums of errors", e)};
    struct llm_fit_errors all = {0};
    double zeros = 0;
    w.zeros = w.sums ? llm_calloc(pieces, sizeof *w.zeros, "sums of errors", e) : NULL;
    if (!w.zeros) {
        free(w.sums);
        return -1;
    }
    const size_t stored = (size_t)bytes_of(w.from, PIECE), of_values = PIECE * sizeof *j->values;
    const size_t piece_bytes = stored > 0 ? stored : 1; /* values of type zero have none */
    const size_t group = j->values && piece_bytes < of_values ? READ / of_values : j->mapped || j->values ? READ / piece_bytes : pieces;
    for (size_t done = 0, n; done < pieces; done += n) {
        n = pieces - done < group ? pieces - done : group;
        w.first_piece = done;
        llm_parallel(n, quantize_piece, &w);
        if (j->mapped) llm_weight_release_pages(j->mapped, done * piece_bytes, n * piece_bytes);
        if (j->values) llm_pages_release_within(j->values + done * PIECE, n * of_values, LLM_HUGE_PAGE);
    }
    for (size_t i = 0; i < pieces; i++) {
        const struct llm_fit_errors *s = &w.sums[i];
        all = (struct llm_fit_errors){all.xx + s->xx, all.yy + s->yy, all.xy + s->xy, all.dd + s->dd, s->max > all.max ? s->max : all.max};
        zeros += (double)w.zeros[i];
    }
    free(w.sums);
    free(w.zeros);
    if (atomic_load(&w.crowded))
        return llm_fail(e, EX_DATAERR, "expected two zeros in each four values, as --prune 2:4 makes them, for %s; found one or none", w.to->name);
    if (!isfinite(all.xx)) return llm_fail(e, EX_DATAERR, "expected finite values, found NaN or infinity");
    r->zeros = j->n > 0 ? zeros / (double)j->n : 0;
    if (!isfinite(all.yy)) return llm_fail(e, EX_DATAERR, "expected values that %s can represent, found larger ones", w.to->name);
    r->rmse = j->n > 0 ? sqrt(all.dd / (double)j->n) : 0;
    r->max_error = all.max;
    r->snr_db = all.dd > 0 ? 10 * log10(all.xx / all.dd) : INFINITY;
    r->cosine = all.xx > 0 && all.yy > 0 ? all.xy / sqrt(all.xx * all.yy) : all.xx == all.yy;
    return 0;
}

int llm_quantize_tensor(const struct llm_quant_job *j, struct llm_quant_report *r, struct llm_err *e)
{
    const enum llm_quant_method method = llm_quant_method_of(j);
    r->damping = 0;
    if (method >= LLM_QUANT_GPTQ && llm_gptq(j, &r->damping, e) < 0) return -1;
    if (write_and_compare(j, method, r, e) < 0) return -1;
    r->weighted = j->importance && method >= LLM_QUANT_SEARCH;
    r->method = method == LLM_QUANT_AUTO ? NULL : llm_quant_methods[method];
    return 0;
}

int llm_quant_compare(const struct llm_quant_job *j, struct llm_quant_report *r, struct llm_err *e)
{
    return write_and_compare(j, LLM_QUANT_GPTQ, r, e); /* after which all blocks are written */
}
