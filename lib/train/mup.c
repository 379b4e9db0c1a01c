#include "train/mup.h"

#include <math.h>

double llm_mup_rate(const struct llm_optim *o, const struct llm_param *p, double ratio, enum llm_muon_scale scale)
{
    bool hidden = p->role == LLM_ROLE_HIDDEN;
    switch (o->kind) {
    case LLM_OPTIM_ADAPTIVE: return hidden ? 1 / ratio : 1;
    case LLM_OPTIM_GRADIENT: return hidden ? 1 : ratio;
    case LLM_OPTIM_ORTHOGONAL: break;
    }
    return scale == LLM_MUON_ORIGINAL ? 1 : 1 / sqrt(ratio);
}
