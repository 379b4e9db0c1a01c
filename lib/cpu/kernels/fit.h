/* The search for scales of blocks (quant/block.h). Lanes of vectors are candidates, and a candidate's sums run over the elements in order, without
 * fused products: every instruction set gives the same bits. */
#ifndef LLM_CPU_KERNELS_FIT_H
#define LLM_CPU_KERNELS_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cpu/dtype/block.h"
#include "cpu/dtype/grid.h"

/* value = scale · level - low */
struct llm_group_fit { float scale, low; };

enum { LLM_FIT_TRIES = 16, LLM_FIT_LANES = 16 };
/* The values and weights of groups that are searched together. More than one group: n rows of LLM_FIT_LANES, of which lane l is the row's element
 * of group l % groups. */
struct llm_fit_values {
    const float *x, *w;
    int n, groups;               /* values a group; groups, a divisor of LLM_FIT_LANES */
};
/* Candidates, each a scale and an offset for every group, at candidate · groups + group; and what they leave when every element takes the level
 * that is nearest. */
enum { LLM_FIT_PAIRS = LLM_FIT_TRIES * LLM_FIT_LANES };
struct llm_fit_tries {
    float scale[LLM_FIT_PAIRS], low[LLM_FIT_PAIRS];
    float error[LLM_FIT_PAIRS];                                    /* Σ w (x - value)² */
    float l[LLM_FIT_PAIRS], xl[LLM_FIT_PAIRS], ll[LLM_FIT_PAIRS]; /* if asked for: Σ w level, Σ w x level, Σ w level² */
};

/* Values [dims] of a point's place: weighted sizes w·x (negative where a value's sign is forced), and weights. For each of n scales c the point with
 * the largest gain 2·c·Σ wx·size - c²·Σ w·size², the first of equals. */
struct llm_fit_points {
    const struct llm_grid *grid;
    const float *sizes;            /* [dims, points] */
    const float *wx, *w;           /* [dims] */
    int n;                         /* at most LLM_FIT_TRIES */
    float scale[LLM_FIT_TRIES], gain[LLM_FIT_TRIES];
    int point[LLM_FIT_TRIES];
};

struct llm_fit_errors { double xx, yy, xy, dd, max; };

/* x[n] are a group's values, n a multiple of 16 and at most LLM_BLOCK_MAX, with weights w[n] ≥ 0 that are not all 0. */
struct llm_fit_kernels {
    /* The scale and offset with the least weighted squared error among many, each refined by least squares. */
    struct llm_group_fit (*group)(const struct llm_block_kind *kind, const float *x, const float *w, int n);
    /* Fills error, and with `sums` l, xl and ll, of the first `count` candidates; of others their content is not defined. */
    void (*tries)(const struct llm_block_kind *kind, const struct llm_fit_values *v, int count, bool sums, struct llm_fit_tries *t);
    /* The codes of the nearest levels. */
    void (*codes)(const struct llm_block_kind *kind, const float *x, int n, struct llm_group_fit fit, uint8_t *q);
    void (*points)(struct llm_fit_points *p);
    /* Adds Σ x², Σ y², Σ x·y and Σ (x - y)² to `sums`, whose max it raises to the largest |x - y|. Sums are NaN or infinite if a value is. */
    void (*errors)(const float *x, const float *y, size_t n, struct llm_fit_errors *sums);
};

#endif
