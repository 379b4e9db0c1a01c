#include "measure/gemm.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/rng.h"
#include "cpu/form_memory.h"
#include "measure/stats.h"

enum { MAX_RUNS = 1000, MIN_RUNS = 3, FEW_TOKENS = 16, MAX_COPIES = 4096 };
#define COLD_BYTES ((size_t)256 << 20) /* beyond what caches keep until a copy's turn comes again */

/* The weight once, or, where reading it takes the time, in so many copies that each is read from memory, as decoding does. */
struct operands { float *x, *y, *wide; void *panels; char *w; struct llm_weight *weights; size_t n_weights; };

static void fill(float *p, int64_t n, uint32_t row)
{
    struct llm_rng r = llm_rng_at(0, 0, LLM_RNG_TEST, 0, row, 0);
    for (int64_t i = 0; i < n; i++) p[i] = llm_rng_uniform(&r, (uint32_t)i) - 0.5f;
}

/* As activations lie in arenas: aligned to lines of the cache, on huge pages. */
static float *matrix(int64_t rows, int64_t cols, struct llm_err *e)
{
    float *p = llm_form_memory_create((size_t)(rows * cols) * sizeof *p);
    if (!p) llm_no_memory(e, "a matrix");
    return p;
}

static int make(const struct llm_gemm_job *j, struct operands *o, struct llm_err *e)
{
    size_t bytes = llm_dtype_bytes(j->weight, (uint64_t)(j->n * j->k));
    if (bytes == 0 || j->k % llm_dtypes[j->weight].block_size) {
        return llm_fail(e, LLM_EX_USAGE, "%s: expected rows of a multiple of %d", llm_dtypes[j->weight].name, llm_dtypes[j->weight].block_size);
    }
    o->x = matrix(j->m, j->k, e);
    o->y = matrix(j->m, j->n, e);
    o->wide = matrix(j->n, j->k, e);
    size_t copies = llm_gemm_is_cold(j) ? COLD_BYTES / bytes + 1 : 1;
    if (copies > MAX_COPIES) copies = MAX_COPIES;
    o->w = llm_alloc(copies, bytes, "a matrix", e);
    o->weights = llm_calloc(copies, sizeof *o->weights, "matrices", e);
    if (!o->x || !o->y || !o->wide || !o->w || !o->weights) return -1;
    fill(o->x, j->m * j->k, 0);
    fill(o->wide, j->n * j->k, 1);
    fill(o->y, j->m * j->n, 2);
    if (j->panels) {
        o->panels = llm_form_memory_create(llm_panels_bytes(j->m, j->k));
        if (!o->panels) return llm_no_memory(e, "packed activations");
        for (int64_t r = 0; r < j->m; r++) llm_panels_put(o->x + r * j->k, r, 0, j->k, j->k, o->panels);
    }
    llm_dtypes[j->weight].encode(o->wide, o->w, (size_t)(j->n * j->k));
    for (size_t i = 0; i < copies; i++) {
        struct llm_weight *w = &o->weights[o->n_weights++];
        if (i > 0) memcpy(o->w + i * bytes, o->w, bytes);
        *w = (struct llm_weight){.data = o->w + i * bytes, .dtype = j->weight, .n = j->n, .k = j->k};
        if (!llm_dtypes[j->weight].is_quantised && llm_weight_pack(w, j->compute, j->pass == LLM_GEMM_DX, e) < 0) return -1;
    }
    return 0;
}

static void release(struct operands *o)
{
    for (size_t i = 0; i < o->n_weights; i++) llm_weight_release(&o->weights[i]);
    free(o->weights);
    llm_form_memory_destroy(o->x);
    llm_form_memory_destroy(o->panels);
    llm_form_memory_destroy(o->y);
    llm_form_memory_destroy(o->wide);
    free(o->w);
}

bool llm_gemm_is_cold(const struct llm_gemm_job *j)
{
    return j->pass == LLM_GEMM_FORWARD && j->m <= FEW_TOKENS;
}

double llm_gemm_bytes(const struct llm_gemm_job *j)
{
    return (double)llm_dtype_bytes(j->weight, (uint64_t)(j->n * j->k)) + 4 * (double)j->m * (double)(j->n + j->k);
}

static int once(const struct llm_gemm_job *j, const struct operands *o, struct llm_weight *w, struct llm_err *e)
{
    if (j->pass == LLM_GEMM_DW && o->panels) return llm_matmul_dw_panels(o->wide, o->y, j->n, o->panels, j->m, j->m, j->n, j->k, e);
    if (j->pass == LLM_GEMM_DW) return llm_matmul_dw(o->wide, o->y, j->n, o->x, j->k, j->m, j->m, j->n, j->k, j->compute, e);
    if (j->pass == LLM_GEMM_DX) {
        return llm_matmul_dx(&(struct llm_matmul){.m = j->m, .x = o->y, .ldx = j->n, .y = o->x, .ldy = j->k, .compute = j->compute}, w, e);
    }
    return llm_matmul(&(struct llm_matmul){.m = j->m, .x = o->x, .ldx = j->k, .panels = o->panels, .y = o->y, .ldy = j->n, .compute = j->compute}, w,
                      e);
}

int llm_gemm_speed(const struct llm_gemm_job *j, double seconds, double *median, double *best, struct llm_err *e)
{
    struct operands o = {0};
    double rates[MAX_RUNS], all = 0, work = 2 * (double)j->m * (double)j->n * (double)j->k;
    size_t n = 0;
    int status = make(j, &o, e);
    if (status == 0) status = once(j, &o, &o.weights[0], e); /* touches everything */
    *best = 0;
    while (status == 0 && n < MAX_RUNS && (all < seconds || n < MIN_RUNS)) {
        double start = llm_now();
        status = once(j, &o, &o.weights[(n + 1) % o.n_weights], e);
        double took = llm_now() - start;
        all += took;
        rates[n++] = work / took;
        if (work / took > *best) *best = work / took;
    }
    *median = llm_median(rates, n);
    release(&o);
    return status;
}
