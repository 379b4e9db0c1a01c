#include "bin/quantize/calibrate.h"

#include <inttypes.h>
#include "base/cli.h"
#include "base/log.h"
#include "cpu/pages.h"
#include "data/input.h"
#include "quant/curvature.h"
#include "quant/imatrix.h"

static int gather(const struct calibration *c, struct llm_model *model, struct llm_moments *m, struct llm_err *e)
{
    struct llm_input in = {0};
    int status = llm_input_read(&in, c->text, model, e);
    if (status == 0 && c->tokens > 0 && in.n > (size_t)c->tokens) in.n = (size_t)c->tokens;
    if (status == 0) status = llm_moments_gather(m, model, in.ids, in.n, c->context, e);
    if (status == 0 && c->curvature) status = llm_curvature_gather(m, model, in.ids, in.n, c->context, e);
    llm_input_release(&in);
    for (size_t i = 0; i < model->n_params && status == 0; i++) { /* packed forms and mapped pages: quantising reads one weight at a time */
        struct llm_weight *w = &model->params[i].weight;
        llm_weight_release(w);
        llm_weight_release_pages(w, 0, llm_dtype_bytes(w->dtype, (uint64_t)llm_param_count(&model->params[i])));
    }
    return status;
}

static void tell(const struct llm_moments *m)
{
    struct llm_coverage c = llm_moments_coverage(m);
    if (m->tokens > 0) llm_note("calibration: %.0f tokens in %" PRId64 " windows", m->tokens, m->chunks);
    if (c.unseen > 0) {
        llm_note("calibration: no token chose %zu of %zu experts: their matrices are quantised without importances", c.unseen, c.experts);
    } else if (c.experts > 0) {
        llm_note("calibration: each of %zu experts saw at least %.0f tokens", c.experts, c.least);
    }
}

static int write_out(const struct calibration *c, const struct llm_model *model, const struct llm_moments *m, struct llm_err *e)
{
    const char *dataset = c->text ? c->text : c->importances;
    struct llm_output *o = llm_output_open(c->out, true, e);
    if (!o) return -1;
    if (llm_imatrix_write(m, model, llm_ends_with(c->out, ".dat"), dataset, c->context ? c->context : 512, o, e) < 0) {
        llm_output_abandon(o);
        return -1;
    }
    return llm_output_commit(o, e);
}

int quantize_calibrate(const struct calibration *c, struct llm_model *model, struct llm_moments *m, struct llm_err *e)
{
    size_t unknown = 0;
    int status = c->out ? llm_output_try(c->out, true, e) : 0;
    if (status == 0) status = llm_moments_init(m, model, e);
    if (c->products && status == 0) llm_moments_want_products(m);
    m->memory = c->memory;
    if (status == 0) status = c->text ? gather(c, model, m, e) : llm_imatrix_read(m, model, c->importances, &unknown, e);
    if (status != 0) return status;
    if (unknown > 0) llm_note("%s: %zu entries are of no matrix of this model", c->importances, unknown);
    tell(m);
    return c->out ? write_out(c, model, m, e) : 0;
}
