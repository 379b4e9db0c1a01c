/* Muon (Jordan et al. 2024): momentum, made orthogonal, for hidden matrices; AdamW for embeddings, heads, gains and biases. As torch.optim.Muon. */
#include <math.h>
#include "cpu/optim.h"
#include "train/optim.h"

static double shape_factor(enum llm_muon_scale scale, int64_t rows, int64_t cols)
{
    double m = (double)rows, k = (double)cols;
    return scale == LLM_MUON_ORIGINAL ? sqrt(fmax(1, m / k)) : .2 * sqrt(fmax(m, k));
}

/* Updates rows [from, from + rows) of p. The step is computed in the gradient's memory. */
static int update_part(struct llm_trainable *t, int64_t from, int64_t rows, const struct llm_update *u, struct llm_err *e)
{
    const struct llm_param *p = t->p;
    int64_t cols = p->shape[1], at = from * cols;
    struct llm_optim_span s = {.master = p->master + at, .grad = p->grad + at, .m = t->m + at, .n = (size_t)(rows * cols)};
    struct llm_optim_step o = u->step;
    llm_optim_update(llm_k.optim.blend, &s, &o);
    if (llm_newton_schulz(s.grad, rows, cols, u->compute, u->work, e) < 0) return -1;
    o.weight_decay *= u->matrix_lr; /* the rate of decay knows nothing of the shape */
    o.lr = u->matrix_lr * shape_factor(u->muon_scale, rows, cols);
    o.weight_decay = o.lr > 0 ? o.weight_decay / o.lr : 0;
    o.clip = 1;
    s.m = NULL;
    llm_optim_update(llm_k.optim.decoupled, &s, &o);
    return 0;
}

static int update_matrix(struct llm_trainable *t, const struct llm_update *u, struct llm_err *e)
{
    int64_t from = 0;
    for (int i = 0; i < LLM_MAX_PARTS && t->p->parts[i] > 0; i++) {
        if (update_part(t, from, t->p->parts[i], u, e) < 0) return -1;
        from += t->p->parts[i];
    }
    return from < t->p->shape[0] ? update_part(t, from, t->p->shape[0] - from, u, e) : 0;
}

extern const struct llm_optim llm_optim_muon;
const struct llm_optim llm_optim_muon = {.name = "muon", .kind = LLM_OPTIM_ORTHOGONAL, .m = "m", .update_matrix = update_matrix,
                                         .others = "adamw", .beta2 = .95, .eps = 1e-8, .momentum = .95, .nesterov = true};
