/* How fast latent attention (MLA, absorbed) decodes: a token of each sequence, whose heads all look at the same keys in a BF16 cache. */
#ifndef LLM_MEASURE_LATENT_H
#define LLM_MEASURE_LATENT_H

#include <stdint.h>
#include "base/err.h"

#define LLM_LATENT_ROPE 64 /* rotated channels after the latent ones, as in DeepSeek-V2 and V3 */

struct llm_latent_job { int64_t keys, n_heads, rank, n_seqs; };
/* Operations of scores, over rank + LLM_LATENT_ROPE channels, and of values, over rank; bytes of the caches that are read. */
double llm_latent_flops(const struct llm_latent_job *job);
double llm_latent_bytes(const struct llm_latent_job *job);
/* Operations a second, of runs over about `seconds`, at least three. 0 or -1. */
int llm_latent_speed(const struct llm_latent_job *job, double seconds, double *median, double *best, struct llm_err *e) LLM_MUST_CHECK;

#endif
