#include "train/value.h"

#include "base/rng.h"
#include "model/weights/beside.h"

int llm_value_init(struct llm_value_head *v, int64_t hidden, double deviation, uint64_t seed, struct llm_err *e)
{
    if (llm_param_make(&v->params[0], "value_head.weight", 2, (int64_t[]){1, hidden}, LLM_ROLE_HEAD, e) < 0
        || llm_param_make(&v->params[1], "value_head.bias", 1, (int64_t[]){1}, LLM_ROLE_VECTOR, e) < 0) {
        return -1;
    }
    struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_VALUE, 0, 0, 0);
    float *w = (float *)v->params[0].weight.data;
    for (int64_t i = 0; i < hidden; i++) w[i] = (float)deviation * llm_rng_normal(&r, (uint32_t)i);
    return 0;
}

void llm_value_release(struct llm_value_head *v)
{
    for (int i = 0; i < 2; i++) llm_param_release(&v->params[i]);
    *v = (struct llm_value_head){0};
}
