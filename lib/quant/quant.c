#include "quant/quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/pattern.h"
#include "cpu/pool.h"

const enum llm_dtype llm_quant_types[] = {LLM_F32, LLM_F16, LLM_BF16, LLM_Q8_0, LLM_Q4_0, LLM_NO_DTYPE};

const char *llm_quant_word(int i)
{
    enum { N = sizeof llm_quant_types / sizeof *llm_quant_types };
    if (i >= N) return NULL;
    return llm_quant_types[i] == LLM_NO_DTYPE ? "keep" : llm_dtypes[llm_quant_types[i]].name;
}

#define PIECE 4096 /* values; a multiple of every block size */

struct sums { double xx, yy, xy, dd, max; bool bad; };

struct work {
    const unsigned char *in;
    unsigned char *out;
    const struct llm_dtype_row *from, *to;
    uint64_t n;
    struct sums *sums; /* [pieces] */
};

static size_t bytes_of(const struct llm_dtype_row *t, uint64_t n)
{
    return n / (uint64_t)t->block_size * (uint64_t)t->block_bytes;
}

static void quantize_piece(void *arg, size_t i, int thread)
{
    struct work *w = arg;
    float x[PIECE], y[PIECE];
    uint64_t first = (uint64_t)i * PIECE;
    size_t n = w->n - first < PIECE ? (size_t)(w->n - first) : PIECE;
    struct sums s = {0};
    (void)thread;
    w->from->decode(w->in + bytes_of(w->from, first), x, n);
    for (size_t k = 0; k < n; k++) s.bad |= !isfinite(x[k]);
    w->to->encode(x, w->out + bytes_of(w->to, first), n);
    w->to->decode(w->out + bytes_of(w->to, first), y, n);
    for (size_t k = 0; k < n; k++) {
        double d = (double)x[k] - (double)y[k];
        s.xx += (double)x[k] * (double)x[k];
        s.yy += (double)y[k] * (double)y[k];
        s.xy += (double)x[k] * (double)y[k];
        s.dd += d * d;
        s.max = fabs(d) > s.max ? fabs(d) : s.max;
    }
    w->sums[i] = s;
}

int llm_quantize_tensor(const void *in, enum llm_dtype from, void *out, enum llm_dtype to, uint64_t n, struct llm_quant_report *r,
                        struct llm_err *e)
{
    size_t pieces = (size_t)((n + PIECE - 1) / PIECE);
    struct work w = {in, out, &llm_dtypes[from], &llm_dtypes[to], n, llm_calloc(pieces, sizeof *w.sums, "sums of errors", e)};
    struct sums all = {0};
    if (!w.sums) return -1;
    llm_parallel(pieces, quantize_piece, &w);
    for (size_t i = 0; i < pieces; i++) {
        const struct sums *s = &w.sums[i];
        all = (struct sums){all.xx + s->xx, all.yy + s->yy, all.xy + s->xy, all.dd + s->dd, s->max > all.max ? s->max : all.max, all.bad || s->bad};
    }
    free(w.sums);
    if (all.bad) return llm_fail(e, EX_DATAERR, "expected finite values, found NaN or infinity");
    r->rmse = n > 0 ? sqrt(all.dd / (double)n) : 0;
    r->max_error = all.max;
    r->snr_db = all.dd > 0 ? 10 * log10(all.xx / all.dd) : INFINITY;
    r->cosine = all.xx > 0 && all.yy > 0 ? all.xy / sqrt(all.xx * all.yy) : all.xx == all.yy;
    return 0;
}

static bool matches(const struct llm_strs *patterns, const char *name)
{
    return llm_pattern_any(patterns->v, patterns->n, name);
}

static const char *why_kept(const struct llm_param *p, const struct llm_quant_plan *plan)
{
    if (plan->type == LLM_NO_DTYPE) return "keep";
    if (p->n_dims < 2) return "1-D";
    if ((plan->only->n > 0 && !matches(plan->only, p->name)) || matches(plan->except, p->name)) return "pattern";
    if (p->weight.dtype == plan->type) return "same";
    if (p->weight.k % llm_dtypes[plan->type].block_size != 0) return "rows";
    return NULL;
}

static int change(struct llm_model *m, struct llm_param *p, struct llm_quant_report *r, struct llm_err *e)
{
    uint64_t n = (uint64_t)llm_param_count(p);
    void *out = aligned_alloc(64, (r->bytes_to + 63) / 64 * 64);
    if (!out) return llm_no_memory(e, p->name);
    if (llm_quantize_tensor(p->weight.data, r->from, out, r->to, n, r, e) < 0) {
        free(out);
        return llm_in(e, "tensor '%s'", p->name);
    }
    llm_weight_release(&p->weight);
    if (p->owned) free((void *)p->weight.data);
    p->weight.data = out;
    p->weight.dtype = r->to;
    p->weight.map = p->weight.map_end = NULL; /* the new data is in no file: its pages must not be released */
    p->owned = true;
    m->fingerprint[0] = 0;
    return 0;
}

int llm_quantize_model(struct llm_model *m, const struct llm_quant_plan *plan,
                       int (*report)(void *arg, const struct llm_quant_report *r, struct llm_err *e), void *arg, struct llm_err *e)
{
    for (size_t i = 0; i < m->n_params; i++) {
        struct llm_param *p = &m->params[i];
        struct llm_quant_report r = {.name = p->name, .n_dims = p->n_dims, .from = p->weight.dtype, .to = plan->type, .kept = why_kept(p, plan),
                                     .snr_db = INFINITY, .cosine = 1};
        memcpy(r.shape, p->shape, sizeof r.shape);
        if (r.kept) r.to = r.from;
        r.bytes_from = llm_dtype_bytes(r.from, (uint64_t)llm_param_count(p));
        r.bytes_to = llm_dtype_bytes(r.to, (uint64_t)llm_param_count(p));
        if ((!r.kept && change(m, p, &r, e) < 0) || report(arg, &r, e) < 0) return -1;
    }
    return 0;
}
