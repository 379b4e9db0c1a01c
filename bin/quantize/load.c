#include "bin/quantize/load.h"

#include "quant/rotate.h"

struct llm_model *quantize_load(const struct quantize_in *in, struct llm_err *e)
{
    struct llm_model *m = llm_model_load(in->path, e);
    struct llm_rotated r;
    if (m && in->rotate && llm_rotate(&m, NULL, &r, e) < 0) {
        llm_model_destroy(m);
        return NULL;
    }
    return m;
}
