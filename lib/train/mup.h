/* Maximal update parametrisation (Yang et al. 2022, Tensor Programs V, table 8): the factors that the optimizer applies. */
#ifndef LLM_TRAIN_MUP_H
#define LLM_TRAIN_MUP_H

#include "train/optim.h"

/* The factor of p's learning rate in a model `ratio` times as wide as the base. Hidden matrices: Adam's kind 1/ratio, gradients' 1, Muon's
 * 1 (original scale: its steps follow the shape) or 1/sqrt(ratio). All else: Adam's kind 1, gradients' ratio. */
double llm_mup_rate(const struct llm_optim *o, const struct llm_param *p, double ratio, enum llm_muon_scale scale);

#endif
