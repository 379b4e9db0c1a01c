#include "measure/gemm.h"

#include <stdlib.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/rng.h"
#include "measure/stats.h"

enum { MAX_RUNS = 1000, MIN_RUNS = 3 };

struct operands { float *x, *y, *wide; void *w; };

static void fill(float *p, int64_t n, uint32_t row)
{
    struct llm_rng r = llm_rng_at(0, 0, LLM_RNG_TEST, 0, row, 0);
    for (int64_t i = 0; i < n; i++) p[i] = llm_rng_uniform(&r, (uint32_t)i) - 0.5f;
}

static int make(const struct llm_gemm_job *j, struct operands *o, struct llm_err *e)
{
    size_t bytes = llm_dtype_bytes(j->weight, (uint64_t)(j->n * j->k));
    if (bytes == 0 || j->k % llm_dtypes[j->weight].block_size) {
        return llm_fail(e, LLM_EX_USAGE, "%s: expected rows of a multiple of %d", llm_dtypes[j->weight].name, llm_dtypes[j->weight].block_size);
    }
    o->x = llm_alloc((size_t)(j->m * j->k), sizeof(float), "a matrix", e);
    o->y = llm_calloc((size_t)(j->m * j->n), sizeof(float), "a matrix", e);
    o->wide = llm_alloc((size_t)(j->n * j->k), sizeof(float), "a matrix", e);
    o->w = llm_alloc(bytes, 1, "a matrix", e);
    if (!o->x || !o->y || !o->wide || !o->w) return -1;
    fill(o->x, j->m * j->k, 0);
    fill(o->wide, j->n * j->k, 1);
    if (j->pass != LLM_GEMM_FORWARD) fill(o->y, j->m * j->n, 2);
    llm_dtypes[j->weight].encode(o->wide, o->w, (size_t)(j->n * j->k));
    return 0;
}

static int once(const struct llm_gemm_job *j, const struct operands *o, struct llm_weight *w, struct llm_err *e)
{
    if (j->pass == LLM_GEMM_DW) return llm_matmul_dw(o->wide, o->y, j->n, o->x, j->k, j->m, j->m, j->n, j->k, j->compute, e);
    if (j->pass == LLM_GEMM_DX) {
        return llm_matmul_dx(&(struct llm_matmul){.m = j->m, .x = o->y, .ldx = j->n, .y = o->x, .ldy = j->k, .compute = j->compute}, w, e);
    }
    return llm_matmul(&(struct llm_matmul){.m = j->m, .x = o->x, .ldx = j->k, .y = o->y, .ldy = j->n, .compute = j->compute}, w, e);
}

int llm_gemm_speed(const struct llm_gemm_job *j, double seconds, double *median, double *best, struct llm_err *e)
{
    struct operands o = {0};
    double rates[MAX_RUNS], all = 0, work = 2 * (double)j->m * (double)j->n * (double)j->k;
    size_t n = 0;
    int status = make(j, &o, e);
    struct llm_weight w = {.data = o.w, .dtype = j->weight, .n = j->n, .k = j->k};
    if (status == 0 && !llm_dtypes[j->weight].is_quantised) status = llm_weight_pack(&w, j->compute, j->pass == LLM_GEMM_DX, e);
    if (status == 0) status = once(j, &o, &w, e); /* touches everything */
    *best = 0;
    while (status == 0 && n < MAX_RUNS && (all < seconds || n < MIN_RUNS)) {
        double start = llm_now();
        status = once(j, &o, &w, e);
        double took = llm_now() - start;
        all += took;
        rates[n++] = work / took;
        if (work / took > *best) *best = work / took;
    }
    *median = llm_median(rates, n);
    llm_weight_release(&w);
    free(o.x);
    free(o.y);
    free(o.wide);
    free(o.w);
    return status;
}
