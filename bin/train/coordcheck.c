/* llm-train --coordcheck. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bin/train/train.h"
#include "base/log.h"
#include "train/coordcheck.h"

/* One width; the data is opened for it again. */
static int one(struct llm_coordcheck *k, const struct llm_run *r, const struct args *a, int64_t width, const char *const *data, size_t n_data,
               struct llm_err *e)
{
    struct llm_train_data d = {0};
    struct llm_config c = r->config;
    if (llm_config_widen(&c, width, e) < 0) return -1;
    if (a->mup) llm_config_mup(&c, a->o.mup_base_width, a->base_head_dim);
    if (n_data > 0 && llm_train_data_open(&d, data, n_data, NULL, NULL, c.vocab_size, e) < 0) {
        llm_train_data_release(&d);
        return -1;
    }
    return llm_coordcheck_run(k, &c, &a->o, &d, e);
}

static int draw(const struct llm_coordcheck *k, const char *path, struct llm_err *e)
{
    struct llm_output *o = llm_output_open(path, true, e);
    if (!o) return -1;
    if (llm_coordcheck_draw(k, o, e) == 0) return llm_output_commit(o, e);
    llm_output_abandon(o);
    return -1;
}

int llm_run_coordcheck(const struct llm_run *r, const struct args *a, const char *const *data, size_t n_data, struct llm_err *e)
{
    struct llm_coordcheck k = {0};
    const char *place;
    int got = 0;
    size_t n = 0;
    if (a->o.tensor_parts > 1) got = llm_fail(e, LLM_EX_USAGE, "--coordcheck: expected a run without --tensor-parts");
    for (const char *at = a->coordcheck; got == 0 && *at; n++) {
        size_t length = strcspn(at, ",");
        char word[24] = "";
        int64_t width;
        bool short_enough = length < sizeof word, ends_open = at[length] == ',' && at[length + 1] == '\0';
        if (short_enough) memcpy(word, at, length);
        if (!short_enough || ends_open || llm_parse_int(word, &width) < 0 || width < 1) {
            got = llm_fail(e, LLM_EX_USAGE, "--coordcheck: expected widths with commas between, found '%s'", a->coordcheck);
        } else got = one(&k, r, a, width, data, n_data, e);
        at += length + (at[length] == ',');
    }
    if (got == 0 && n == 0) got = llm_fail(e, LLM_EX_USAGE, "--coordcheck: expected widths with commas between, found none");
    if (got == 0) got = llm_coordcheck_print(&k, llm_table_form(&a->common), e);
    if (got == 0 && a->coordcheck_png) got = draw(&k, a->coordcheck_png, e);
    if (got == 0 && n > 1) {
        double slope = llm_coordcheck_slope(&k, &place);
        llm_note("after %d steps the size of activations goes with the power %.2f of the width at %s, where it changes most", LLM_COORDCHECK_STEPS,
                 slope, place);
    }
    llm_coordcheck_release(&k);
    return got;
}
