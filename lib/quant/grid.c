#include "quant/grid.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include "cpu/kernels.h"

enum { BLOCK = LLM_GRID_BLOCK, GROUPS = 16, FIRST = 12 /* scales that a group is tried with first */, ROUNDS = 3 };

/* ---- sizes of points, by dimension ---- */

static float sizes_of_8[1024 * 8 + 512 * 8 + 256 * 8], sizes_of_4[512 * 4 + 256 * 4];
static const struct { const struct llm_grid *grid; float *at; } places[] = {
    {&llm_iq2_s_grid, sizes_of_8}, {&llm_iq2_xs_grid, sizes_of_8 + 1024 * 8}, {&llm_iq2_xxs_grid, sizes_of_8 + 1536 * 8},
    {&llm_iq3_s_grid, sizes_of_4}, {&llm_iq3_xxs_grid, sizes_of_4 + 512 * 4}};
enum { PLACES = sizeof places / sizeof *places };

static void fill_sizes(void)
{
    for (int k = 0; k < PLACES; k++) {
        const struct llm_grid *g = places[k].grid;
        for (int i = 0; i < g->dims; i++)
            for (int p = 0; p < g->points; p++) places[k].at[i * g->points + p] = (float)llm_grid_size(g, p, i);
    }
}

static const float *sizes_of(const struct llm_grid *grid)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_sizes);
    int k = 0;
    while (places[k].grid != grid) k++;
    return places[k].at;
}

/* ---- a group ---- */

struct block {
    const struct llm_grid_kind *kind;
    const float *sizes;
    float w[BLOCK], wx[BLOCK];       /* weights; these times what sizes should be, negative for a value whose sign is forced */
};

/* What points leave at a scale: 2·c·a - c²·b is the gain. */
struct sums { double a, b; };

static int best_of(const double *gains, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) best = gains[i] > gains[best] ? i : best;
    return best;
}

/* The scale of the n that gains most in group g, its points and their sums; *gain is what it gains. */
static int best_scale(const struct block *s, int g, const float *scales, int n, uint16_t *points, struct sums *sums, double *gain)
{
    const struct llm_grid *grid = s->kind->grid;
    const int dims = grid->dims, first = g * s->kind->group;
    struct llm_fit_points p = {.grid = grid, .sizes = s->sizes, .n = n};
    int found[8][FIRST];             /* a group has at most eight points */
    double gains[FIRST] = {0};
    memcpy(p.scale, scales, (size_t)n * sizeof *scales);
    for (int at = 0; at < s->kind->group; at += dims) {
        p.wx = s->wx + first + at;
        p.w = s->w + first + at;
        llm_k.fit.points(&p);
        for (int i = 0; i < n; i++) {
            gains[i] += (double)p.gain[i];
            found[at / dims][i] = p.point[i];
        }
    }
    const int best = best_of(gains, n);
    *sums = (struct sums){0};
    for (int at = 0; at < s->kind->group; at += dims) {
        const int point = found[at / dims][best];
        points[(first + at) / dims] = (uint16_t)point;
        for (int i = 0; i < dims; i++) {
            const double size = (double)llm_grid_size(grid, point, i);
            sums->a += (double)s->wx[first + at + i] * size;
            sums->b += (double)s->w[first + at + i] * size * size;
        }
    }
    *gain = gains[best];
    return best;
}

/* The scale of group g, before it is rounded. */
static float fit_group(const struct block *s, int g, const float *x, enum llm_block_effort effort)
{
    const int first = g * s->kind->group, n = effort == LLM_BLOCK_RTN ? 1 : FIRST;
    const float largest = (float)s->kind->grid->sizes[s->kind->grid->dims == 8 ? 2 : 7];
    float top = 0, scales[FIRST];
    double gain;
    uint16_t points[64];
    struct sums sums;
    for (int j = first; j < first + s->kind->group; j++) top = fmaxf(top, fabsf(x[j]));
    if (!(top >= 1e-30f)) return 0;
    for (int i = 0; i < n; i++) scales[i] = top / largest * (n == 1 ? 1 : 0.55f + 0.065f * (float)i);
    if (n == 1) return scales[0];
    const int best = best_scale(s, g, scales, n, points, &sums, &gain);
    return sums.a > 0 && sums.b > 0 ? (float)(sums.a / sums.b) : scales[best];
}

/* ---- the block ---- */

/* Weights, signs, and what sizes should be. */
static void begin(const struct llm_grid_kind *kind, const float *x, const float *w, struct block *s, struct llm_grid_block *b)
{
    s->kind = kind;
    s->sizes = sizes_of(kind->grid);
    for (int first = 0; first < BLOCK; first += kind->group) {
        float sum = 0;
        for (int j = 0; j < kind->group; j++) sum += w[first + j];
        for (int j = first; j < first + kind->group; j++) s->w[j] = sum > 0 ? w[j] : 1;
    }
    for (int k = 0; k < BLOCK / 8; k++) {
        unsigned negative = 0;
        int least = 0;
        for (int i = 0; i < 8; i++) {
            const int j = k * 8 + i;
            negative |= (unsigned)(x[j] < 0) << i;
            s->wx[j] = s->w[j] * fabsf(x[j]);
            if (s->wx[j] < s->wx[k * 8 + least]) least = i;
        }
        if (kind->even && __builtin_parity(negative)) { /* the sign that costs least is the wrong one */
            negative ^= 1u << least;
            s->wx[k * 8 + least] = -s->wx[k * 8 + least];
        }
        b->negative[k] = (uint8_t)negative;
    }
}

/* For the block's scale d, the best integer scale of each group near the one that it asks for, and its points. Returns what all gain; *d becomes the
 * scale that is best for these. */
static double choose_all(const struct block *s, const float *fits, int near, float *d, struct llm_grid_block *b)
{
    const float unit = b->d * s->kind->unit;
    double whole = 0, a = 0, bb = 0;
    for (int g = 0; g < BLOCK / s->kind->group; g++) {
        float scales[3];
        int integers[3], n = 0;
        double gain;
        struct sums sums;
        const float ask = unit > 0 ? (fits[g] / unit - 1) / 2 : 0;
        const int middle = ask >= 15 ? 15 : ask > 0 ? (int)lrintf(ask) : 0;
        for (int i = middle - near; i <= middle + near; i++) {
            if (i < 0 || i > 15) continue;
            integers[n] = i;
            scales[n++] = unit * (float)(2 * i + 1);
        }
        const int best = best_scale(s, g, scales, n, b->point, &sums, &gain);
        const double m = (double)s->kind->unit * (2 * integers[best] + 1);
        b->scale[g] = (uint8_t)integers[best];
        whole += gain;
        a += m * sums.a;
        bb += m * m * sums.b;
    }
    *d = a > 0 && bb > 0 ? (float)(a / bb) : 0;
    return whole;
}

void llm_grid_choose(const struct llm_grid_kind *kind, const float *x, const float *w, enum llm_block_effort effort, struct llm_grid_block *b)
{
    struct block s;
    float fits[GROUPS], top = 0, next;
    memset(b, 0, sizeof *b);
    begin(kind, x, w, &s, b);
    for (int g = 0; g < BLOCK / kind->group; g++) {
        fits[g] = fit_group(&s, g, x, effort);
        top = fmaxf(top, fits[g]);
    }
    b->d = llm_block_round_f16(top / (31 * kind->unit));
    struct llm_grid_block try = *b;
    double best = choose_all(&s, fits, effort == LLM_BLOCK_RTN ? 0 : 1, &next, b);
    for (int round = 1; effort != LLM_BLOCK_RTN && round < ROUNDS; round++) {
        const float d = llm_block_round_f16(next);
        if (d == try.d || d == b->d) break;
        try.d = d;
        const double gain = choose_all(&s, fits, 1, &next, &try);
        if (!(gain > best)) break;
        best = gain;
        *b = try;
    }
}

void llm_grid_choose_eight(const struct llm_grid_kind *kind, const float *x, const float *w, int k, struct llm_grid_block *b)
{
    const struct llm_grid *grid = kind->grid;
    const int dims = grid->dims;
    struct llm_fit_points p = {.grid = grid, .sizes = sizes_of(grid), .n = 1};
    float wx[8], best = -INFINITY;
    unsigned negative = 0;
    p.scale[0] = b->d * kind->unit * (float)(2 * b->scale[k * 8 / kind->group] + 1);
    for (int i = 0; i < 8; i++) negative |= (unsigned)(x[i] < 0) << i;
    const bool one_is_wrong = kind->even && __builtin_parity(negative);
    for (int wrong = one_is_wrong ? 0 : 8; wrong < (one_is_wrong ? 8 : 9); wrong++) {
        int found[2] = {0};
        float gain = 0;
        for (int i = 0; i < 8; i++) wx[i] = w[i] * (i == wrong ? -fabsf(x[i]) : fabsf(x[i]));
        for (int at = 0; at < 8; at += dims) {
            p.wx = wx + at;
            p.w = w + at;
            llm_k.fit.points(&p);
            gain += p.gain[0];
            found[at / dims] = p.point[0];
        }
        if (!(gain > best)) continue;
        best = gain;
        for (int at = 0; at < 8; at += dims) b->point[(k * 8 + at) / dims] = (uint16_t)found[at / dims];
        b->negative[k] = (uint8_t)(negative ^ (wrong < 8 ? 1u << wrong : 0));
    }
}

void llm_grid_stretch(const struct llm_grid_kind *kind, const float *x, const float *w, struct llm_grid_block *b)
{
    float y[BLOCK];
    llm_grid_values(kind, b, y);
    b->d = llm_block_round_f16(b->d * llm_block_shortness(x, y, w, BLOCK));
}
