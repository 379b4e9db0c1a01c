/* Leaving out the layers that a model's predictions need least: each layer's harm is measured, the least harmful one goes, and the harms of the
 * others are measured anew ("ShortGPT", Men et al. 2024, with the divergence of the predictions in place of a similarity). */
#ifndef LLM_QUANT_DROP_H
#define LLM_QUANT_DROP_H

#include "quant/kl.h"

/* A layer that was left out: its number in the model that was there first, and the divergence from that model's predictions without it and those left
 * out before it. */
struct llm_dropped { int64_t layer; struct llm_kl kl; };
/* Leaves `n` layers of *m out, which becomes another model that has the weights of the old one; out [n]. A layer can go if all others stay what they
 * are in the shorter model (window, rotary positions, mixture, whose keys it reads). base: of the predictions of *m. 0; 1 if a signal was caught; -1;
 * EX_UNAVAILABLE: no layer can go. */
int llm_drop_layers(struct llm_model **m, struct llm_kl_base *base, int64_t n, struct llm_dropped *out, struct llm_err *e) LLM_MUST_CHECK;

#endif
