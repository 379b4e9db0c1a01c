/* Min-p (Nguyen et al. 2024): tokens at least min_p times as likely as the most likely one. */
#include <math.h>
#include "infer/sample/steps.h"

static bool active(const struct llm_sampling *p)
{
    return p->min_p > 0;
}

static void filter(const struct llm_sampling *p, struct llm_candidates *c)
{
    llm_candidates_floor(c, llm_candidates_max(c) + log(p->min_p));
}

const struct llm_sample_step llm_sample_min_p = {.name = "min-p", .active = active, .filter = filter};
