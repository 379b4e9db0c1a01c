#include "bin/quantize/refine.h"

#include <inttypes.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/log.h"
#include "bin/quantize/budget.h"
#include "data/input.h"
#include "quant/block.h"
#include "quant/kl.h"

static int tell(const struct llm_kl *a, const struct llm_kl *b, const double *windows, int64_t n, double *difference, struct llm_err *e)
{
    double *paired = llm_calloc((size_t)n, sizeof *paired, "windows", e);
    if (!paired) return -1;
    for (int64_t i = 0; i < n; i++) paired[i] = windows[n + i] - windows[i];
    const struct llm_kl_mean mean = llm_kl_mean_of(paired, n);
    *difference = b->mean - a->mean;
    llm_note("refine: KL %.6f -> %.6f nats a token on %" PRId64 " tokens held out; difference %.6f%s%s: the %s is written", a->mean, b->mean,
             a->tokens, *difference, llm_kl_interval(mean.half).text, n > 1 ? " (95%)" : "", *difference < 0 ? "refined model" : "model before");
    free(paired);
    return 0;
}

/* The errors of the matrices that were refined. */
static int report_again(struct llm_model *m, const struct llm_model *base, struct llm_quant_report *reports, struct llm_err *e)
{
    int status = 0;
    for (size_t i = 0; i < m->n_params && status == 0; i++) {
        const struct llm_param *p = &m->params[i], *was = &base->params[i];
        const struct llm_quant_job job = {.in = was->weight.data, .out = (void *)(uintptr_t)p->weight.data, .from = was->weight.dtype,
                                          .to = p->weight.dtype, .n = (uint64_t)llm_param_count(p), .row = p->weight.k};
        if (!reports[i].kept && llm_block_kind_of(job.to)) status = llm_quant_compare(&job, &reports[i], e);
    }
    return status;
}

int quantize_refine(const struct refine_request *q, struct llm_refine *r, struct llm_model *m, struct llm_quant_report *reports, struct llm_err *e)
{
    struct llm_kl_base held = {0};
    struct llm_kl before, after;
    struct llm_input text = {0};
    const int64_t first = quantize_tokens_before("refine", q->text, m, q->max, e); /* of those held out */
    struct llm_model *base = first < 0 ? NULL : quantize_load(&q->in, e);
    double *windows = NULL, difference;
    int status = base ? llm_input_read(&text, q->text, base, e) : -1;
    const int64_t n = q->max > 0 && text.n > (size_t)q->max ? q->max : (int64_t)text.n;
    if (status == 0) status = llm_kl_base_init(&held, base, text.ids + first, n - first, q->context, e);
    const int64_t n_windows = status == 0 ? llm_kl_windows(&held) : 0;
    if (status == 0) status = (windows = llm_calloc((size_t)(2 * n_windows), sizeof *windows, "windows", e)) ? 0 : -1;
    if (status == 0) status = llm_kl_measure(&held, m, &before, windows, e);
    if (status == 0) status = llm_refine_run(r, m, base, &(struct llm_refine_text){text.ids, first, q->context}, q->steps, e);
    if (status == 0) status = llm_kl_measure(&held, m, &after, windows + n_windows, e);
    if (status == 0) status = tell(&before, &after, windows, n_windows, &difference, e);
    if (status == 0 && difference >= 0) llm_refine_undo(r, m);
    else if (status == 0) status = report_again(m, base, reports, e);
    llm_kl_base_release(&held);
    llm_model_destroy(base);
    llm_input_release(&text);
    free(windows);
    return status;
}
