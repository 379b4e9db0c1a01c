/* Adapters added to the matrices of their model. */
#include <stdlib.h>
#include "cpu/pool.h"
#include "model/weights/lora_internal.h"
#include "tensor/ops.h"

struct merge { const struct llm_param *p; float *out; const float **a, **b; /* [adapters of the matrix], decoded */ };

enum { COLUMNS = 512 }; /* summed at a time */

/* Columns [from, to) of row `row` of Σ scale · B·A, added to sum. */
static void add_adapters(const struct merge *w, int64_t row, int64_t from, int64_t to, double *sum)
{
    int64_t k = w->p->weight.k;
    size_t i = 0;
    for (const struct llm_adapter *o = w->p->adapter; o; o = o->next, i++) {
        int64_t rank = o->a->weight.n;
        for (int64_t r = 0; r < rank; r++) {
            double factor = (double)llm_adapter_gain(o, row) * (double)o->scale * (double)w->b[i][row * rank + r];
            const float *a = w->a[i] + r * k;
            for (int64_t c = from; c < to; c++) sum[c - from] += factor * (double)a[c];
        }
    }
}

/* Row `row` of W + Σ scale · B·A, with magnitudes of gain · (W + scale · B·A): added in double, rounded once. */
static void merge_row(void *arg, size_t row, int thread)
{
    const struct merge *w = arg;
    int64_t k = w->p->weight.k;
    float *out = w->out + (int64_t)row * k;
    double sum[COLUMNS], keeps = (double)llm_adapter_keeps(w->p, (int64_t)row);
    (void)thread;
    llm_weight_decode(&w->p->weight, (int64_t)row * k, k, out);
    for (int64_t at = 0, end; at < k; at = end) {
        end = at + COLUMNS < k ? at + COLUMNS : k;
        for (int64_t c = at; c < end; c++) sum[c - at] = keeps * (double)out[c];
        add_adapters(w, (int64_t)row, at, end, sum);
        for (int64_t c = at; c < end; c++) out[c] = (float)sum[c - at];
    }
}

enum { MAX_ADAPTERS = 64 };

static int merge_param(struct llm_param *p, struct llm_err *e)
{
    const float *a[MAX_ADAPTERS], *b[MAX_ADAPTERS];
    struct merge w = {.p = p, .a = a, .b = b};
    int n = 0;
    for (const struct llm_adapter *o = p->adapter; o; o = o->next, n++) {
        if (n == MAX_ADAPTERS) return llm_fail(e, EX_UNAVAILABLE, "expected at most %d adapters, found more", MAX_ADAPTERS);
        a[n] = o->a->weight.data; /* F32, as adapters are in memory */
        b[n] = o->b->weight.data;
    }
    w.out = llm_alloc_huge((size_t)llm_param_count(p), sizeof *w.out, p->name, e);
    if (!w.out) return -1;
    llm_parallel((size_t)p->weight.n, merge_row, &w);
    llm_weight_release(&p->weight);
    if (p->owned) free((void *)(uintptr_t)p->weight.data);
    p->weight.data = w.out;
    p->weight.dtype = LLM_F32;
    p->weight.map = p->weight.map_end = NULL; /* no file has the new data: their pages must not be released */
    p->owned = true;
    return 0;
}

int llm_lora_merge(struct llm_model *m, enum llm_dtype *was, struct llm_err *e)
{
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        was[i] = LLM_NO_DTYPE;
        if (!p->adapter) continue;
        was[i] = p->weight.dtype;
        if (merge_param(p, e) < 0) return -1;
    }
    llm_lora_release(m);
    m->fingerprint[0] = 0;
    m->adapted = false;
    return 0;
}
