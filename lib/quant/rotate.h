/* Rotations that are folded into a model's matrices, so that it computes the same function while no channel is much larger than the others (QuaRot,
 * Ashkboos et al. 2024): of the residual stream, and of each head's values. The gains of the norms before matrices are folded into these first. */
#ifndef LLM_QUANT_ROTATE_H
#define LLM_QUANT_ROTATE_H

#include "model/weights/model.h"
#include "quant/spool.h"

/* An orthogonal matrix Q [n, n], n = 2ᵃ·m: signs, then a Hadamard matrix of 2ᵃ beside a Hartley matrix of m (all elements ±1/√n if m is 1). */
struct llm_rotor {
    int64_t n, hadamard, m;        /* hadamard: 2ᵃ */
    double *signs, *hartley;       /* [n] ±1/√n; [m, m] cos + sin; owned */
};
/* Zero-initialise; release either way. The signs are drawn from `seed`. 0 or -1. */
int llm_rotor_init(struct llm_rotor *r, int64_t n, uint64_t seed, struct llm_err *e) LLM_MUST_CHECK;
void llm_rotor_release(struct llm_rotor *r);
/* x [n] becomes x·Q. work [n]. */
void llm_rotor_turn(const struct llm_rotor *r, double *x, double *work);

struct llm_rotated {
    int64_t width, hadamard;       /* channels of the residual stream; 2ᵃ */
    int64_t heads;                 /* layers whose heads' values are rotated */
    bool untied;                   /* the head is a matrix of its own now */
};
/* Rotates *m, whose changed parameters become F32 and go to `spool` (NULL: they stay in memory). A tied head becomes a matrix of its own, as the last
 * norm's gain is folded into it alone: *m is then another model, which has the weights of the old one. 0 or -1; EX_UNAVAILABLE: why this model cannot
 * be rotated, which is then unchanged. */
int llm_rotate(struct llm_model **m, struct llm_quant_spool *spool, struct llm_rotated *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
