#include "train/value.h"

#include <stdlib.h>
#include "base/buf.h"
#include "base/rng.h"

static int make(struct llm_param *p, const char *name, int n_dims, int64_t n, struct llm_err *e)
{
    float *data = llm_calloc((size_t)n, sizeof *data, name, e);
    bool matrix = n_dims == 2;
    if (!data) return -1;
    *p = (struct llm_param){.name = name, .n_dims = n_dims, .shape = {1, matrix ? n : 0}, .role = matrix ? LLM_ROLE_HEAD : LLM_ROLE_VECTOR,
                            .decay = matrix, .owned = true, .weight = {.dtype = LLM_F32, .data = data, .n = 1, .k = n}};
    return 0;
}

int llm_value_init(struct llm_value_head *v, int64_t hidden, double deviation, uint64_t seed, struct llm_err *e)
{
    if (make(&v->params[0], "value_head.weight", 2, hidden, e) < 0 || make(&v->params[1], "value_head.bias", 1, 1, e) < 0) return -1;
    struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_VALUE, 0, 0, 0);
    float *w = (float *)v->params[0].weight.data;
    for (int64_t i = 0; i < hidden; i++) w[i] = (float)deviation * llm_rng_normal(&r, (uint32_t)i);
    return 0;
}

void llm_value_release(struct llm_value_head *v)
{
    for (int i = 0; i < 2; i++) {
        struct llm_param *p = &v->params[i];
        if (!p->name) continue;
        llm_weight_release(&p->weight);
        if (p->owned) free((void *)p->weight.data);
        free(p->grad);
    }
    *v = (struct llm_value_head){0};
}
