/* A whole block: groups are fitted one by one (fit.c); then the block's own scale is chosen, the groups' scales become integers of it, and the
 * block's scale is fitted again to the codes that came out, as long as the error falls. */
#include "quant/block.h"

#include <math.h>
#include <string.h>

static int nearest_within(float x, int least, int most)
{
    return x >= (float)most ? most : x > (float)least ? (int)lrintf(x) : least; /* `least` for NaN */
}

double llm_block_codes(const struct llm_block_kind *kind, const float *x, const float *w, int g, struct llm_block *b)
{
    const float d = b->d * (float)b->scale[g], low = b->least * (float)b->low[g], inverse = d != 0 ? 1 / d : 0;
    uint8_t *q = b->q + g * kind->group;
    double error = 0;
    for (int j = 0; j < kind->group; j++) {
        int code = llm_block_code(kind, (x[j] + low) * inverse);
        float less = x[j] - (d * (float)llm_block_level(kind, code) - low);
        q[j] = (uint8_t)code;
        error += (double)(w[j] * less * less);
    }
    return error;
}

static double all_codes(const struct llm_block_kind *kind, const float *x, const float *w, struct llm_block *b)
{
    double error = 0;
    for (int g = 0; g * kind->group < kind->size; g++) error += llm_block_codes(kind, x + g * kind->group, w + g * kind->group, g, b);
    return error;
}

/* The integer scale and offset of group g that leave the least error, near those that the fit asks for. */
static double choose_integers(const struct llm_block_kind *kind, const float *x, const float *w, const struct llm_group_fit *fit, int g,
                              struct llm_block *b)
{
    struct llm_block try = *b;
    double best = INFINITY;
    int scale = nearest_within(b->d != 0 ? fit->scale / b->d : 0, kind->scale_min, kind->scale_max);
    int low = nearest_within(b->least != 0 ? fit->low / b->least : 0, 0, kind->low_max);
    for (int s = scale - 1; s <= scale + 1; s++) {
        if (s < kind->scale_min || s > kind->scale_max) continue;
        for (int m = low - 1; m <= low + 1; m++) {
            if (m < 0 || m > kind->low_max || (kind->low_max == 0 && m != 0)) continue;
            try.scale[g] = (int16_t)s;
            try.low[g] = (uint8_t)m;
            double error = llm_block_codes(kind, x, w, g, &try);
            if (error < best) {
                best = error;
                b->scale[g] = (int16_t)s;
                b->low[g] = (uint8_t)m;
                memcpy(b->q + g * kind->group, try.q + g * kind->group, (size_t)kind->group);
            }
        }
    }
    return best;
}

/* The block's scales by least squares, its codes and the groups' integers being fixed. false: there is no better one. */
static bool refit(const struct llm_block_kind *kind, const float *x, const float *w, struct llm_block *b)
{
    double aa = 0, am = 0, mm = 0, xa = 0, xm = 0;
    for (int j = 0; j < kind->size; j++) {
        int g = j / kind->group;
        double a = (double)b->scale[g] * llm_block_level(kind, b->q[j]), m = -(double)b->low[g], wj = (double)w[j];
        aa += wj * a * a;
        am += wj * a * m;
        mm += wj * m * m;
        xa += wj * a * (double)x[j];
        xm += wj * m * (double)x[j];
    }
    double det = aa * mm - am * am, d = (double)b->d, least = (double)b->least;
    if (mm > 0 && det > 1e-9 * aa * mm) {
        d = (xa * mm - xm * am) / det;
        least = (xm * aa - xa * am) / det;
    } else if (aa > 0) {
        d = (xa - least * am) / aa;
    }
    if (kind->low_max > 1 && least < 0) return false;
    float was_d = b->d, was_least = b->least;
    b->d = kind->round((float)d);
    b->least = kind->low_max ? kind->round((float)least) : 0;
    return b->d != was_d || b->least != was_least;
}

/* The first scales of the block: those that make the largest group's integer scale the largest one. */
static void first_scales(const struct llm_block_kind *kind, const struct llm_group_fit *fits, int groups, struct llm_block *b)
{
    float top = 0, low = 0;
    for (int g = 0; g < groups; g++) {
        top = fabsf(fits[g].scale) > fabsf(top) ? fits[g].scale : top;
        low = fabsf(fits[g].low) > fabsf(low) ? fits[g].low : low;
    }
    int most = kind->scale_min < 0 ? kind->scale_min : kind->scale_max;
    b->d = kind->round(top / (float)most);
    b->least = kind->low_max ? kind->round(low / (float)kind->low_max) : 0;
    for (int g = 0; g < groups; g++) {
        b->scale[g] = (int16_t)nearest_within(b->d != 0 ? fits[g].scale / b->d : 0, kind->scale_min, kind->scale_max);
        b->low[g] = (uint8_t)nearest_within(b->least != 0 ? fits[g].low / b->least : 0, 0, kind->low_max);
        if (kind->scale_max == 1) b->scale[g] = 1;
        if (kind->low_max == 1) b->low[g] = 1;
    }
}

/* Powers of two have no neighbours that least squares could find. */
static void choose_power(const struct llm_block_kind *kind, const float *x, const float *w, struct llm_block *b)
{
    struct llm_block try = *b;
    double best = all_codes(kind, x, w, b);
    for (int i = 0; i < 2; i++) {
        try.d = kind->round(b->d * (i ? 0.5f : 2.0f));
        double error = all_codes(kind, x, w, &try);
        if (error < best) {
            best = error;
            *b = try;
        }
    }
}

static void improve(const struct llm_block_kind *kind, const float *x, const float *w, const struct llm_group_fit *fits, struct llm_block *b)
{
    const int groups = kind->size / kind->group;
    double best = all_codes(kind, x, w, b);
    struct llm_block try = *b;
    for (int round = 0; round < 4; round++) {
        double error = 0;
        if (groups > 1) for (int g = 0; g < groups; g++) error += choose_integers(kind, x + g * kind->group, w + g * kind->group, &fits[g], g, &try);
        else error = all_codes(kind, x, w, &try);
        if (error < best) {
            best = error;
            *b = try;
        } else if (round > 0) {
            break;
        }
        if (!refit(kind, x, w, &try)) break;
        error = all_codes(kind, x, w, &try);
        if (error < best) {
            best = error;
            *b = try;
        }
    }
}

void llm_block_choose(const struct llm_block_kind *kind, const float *x, const float *w, enum llm_block_effort effort, struct llm_block *b)
{
    struct llm_group_fit fits[LLM_BLOCK_GROUPS];
    float weights[LLM_BLOCK_MAX];
    const int groups = kind->size / kind->group;
    memset(b, 0, sizeof *b);
    for (int g = 0; g < groups; g++) {
        float sum = 0, *mine = weights + g * kind->group;
        for (int j = 0; j < kind->group; j++) sum += w[g * kind->group + j];
        for (int j = 0; j < kind->group; j++) mine[j] = sum > 0 ? w[g * kind->group + j] : 1;
        fits[g] = llm_group_fit(kind, x + g * kind->group, mine, kind->group, effort);
    }
    first_scales(kind, fits, groups, b);
    all_codes(kind, x, weights, b);
    if (effort == LLM_BLOCK_RTN) return;
    if (kind->levels && kind->levels[0] == 0) choose_power(kind, x, weights, b);
    else improve(kind, x, weights, fits, b);
}

void llm_block_regroup(const struct llm_block_kind *kind, const float *x, const float *w, int g, struct llm_block *b)
{
    float sum = 0, ones[LLM_BLOCK_MAX];
    for (int j = 0; j < kind->group; j++) sum += w[j];
    for (int j = 0; j < kind->group && !(sum > 0); j++) ones[j] = 1;
    if (!(sum > 0)) w = ones;
    const struct llm_group_fit fit = llm_group_fit(kind, x, w, kind->group, LLM_BLOCK_SEARCH);
    choose_integers(kind, x, w, &fit, g, b);
}
