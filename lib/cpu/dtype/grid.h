/* Grid types (IQ2 and IQ3): super-blocks of 256 values. A code names a point of the type's grid, the sizes of 4 or 8 values together; signs stand
 * apart, and groups of 16 or 32 values share an integer scale. */
#ifndef LLM_CPU_DTYPE_GRID_H
#define LLM_CPU_DTYPE_GRID_H

#include <stdbool.h>
#include <stdint.h>
#include "cpu/dtype.h"

struct llm_grid {
    int points, dims, bits;        /* a point has `dims` sizes, the code of each being `bits` bits of its number, the first lowest */
    const uint8_t *sizes;          /* [2^bits] */
    const uint16_t *codes;         /* [points] */
};
extern const struct llm_grid llm_iq2_xxs_grid, llm_iq2_xs_grid, llm_iq2_s_grid, llm_iq3_xxs_grid, llm_iq3_s_grid;
extern const uint16_t llm_iq1_points[2048]; /* eight values less than 1 apart from their codes, two bits each */

static inline int llm_grid_size(const struct llm_grid *g, int point, int i)
{
    return g->sizes[g->codes[point] >> i * g->bits & ((1 << g->bits) - 1)];
}

enum { LLM_GRID_BLOCK = 256 };
/* A block in parts. Value j has the size d · unit · (2·scale + 1) · size, and is negative where bit j % 8 of negative[j / 8] is set. */
struct llm_grid_block {
    float d;                       /* as the type stores it: half precision */
    uint8_t scale[16];             /* of each group, at most 15 */
    uint16_t point[64];            /* of each `dims` values */
    uint8_t negative[32];
};
struct llm_grid_kind {
    const struct llm_grid *grid;
    int group;                     /* values that share a scale */
    float unit;                    /* a power of two */
    bool even;                     /* of each eight values an even number is negative: only seven signs are stored */
    void (*pack)(const struct llm_grid_block *b, void *out); /* NULL: the type is only read */
    void (*open)(const void *in, struct llm_grid_block *b);
};
/* NULL for other types. */
const struct llm_grid_kind *llm_grid_kind_of(enum llm_dtype t);
/* Value j, to the bit as the type's decode function computes it. */
static inline float llm_grid_value(const struct llm_grid_kind *kind, const struct llm_grid_block *b, int j)
{
    const float scale = b->d * kind->unit * (float)(2 * b->scale[j / kind->group] + 1);
    const float size = scale * (float)llm_grid_size(kind->grid, b->point[j / kind->grid->dims], j % kind->grid->dims);
    return b->negative[j / 8] >> j % 8 & 1 ? -size : size;
}
/* All values of the block. */
void llm_grid_values(const struct llm_grid_kind *kind, const struct llm_grid_block *b, float *out);

#endif
