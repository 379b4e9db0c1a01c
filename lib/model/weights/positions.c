/* DINOv2 reads pictures of other sizes than it was made for: as in transformers, its table of positions is resampled to their patches. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "model/weights/open.h"
#include "token/image/processor.h"

/* The cubic convolution (Keys 1981). */
static double cubic(double a, double x)
{
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* weights [to, from]: what each of `to` places along a side takes of each of `from`, with a = -3/4, of its four neighbours, as torch's bicubic
 * resampling has it. Beyond a border the outermost place is repeated. */
static void fill_cubic(double *weights, int64_t from, int64_t to)
{
    memset(weights, 0, (size_t)(to * from) * sizeof *weights);
    for (int64_t i = 0; i < to; i++) {
        const double at = (double)from / (double)to * ((double)i + .5) - .5, first = floor(at) - 1;
        for (int k = 0; k < 4; k++) {
            const int64_t place = (int64_t)fmin(fmax(first + k, 0), (double)(from - 1));
            weights[i * from + place] += cubic(-.75, at - (first + k));
        }
    }
}

/* The same with a = -1/2 and a filter that is as much wider as places are fewer, as torch's antialiased resampling has it. */
static void fill_antialiased(double *weights, int64_t from, int64_t to)
{
    const double scale = (double)from / (double)to, wide = fmax(scale, 1);
    for (int64_t i = 0; i < to; i++) {
        double *w = weights + i * from, sum = 0, centre = scale * ((double)i + .5);
        const int64_t first = (int64_t)fmax(centre - 2 * wide + .5, 0), end = (int64_t)fmin(centre + 2 * wide + .5, (double)from);
        for (int64_t k = 0; k < from; k++) {
            w[k] = k < first || k >= end ? 0 : cubic(-.5, ((double)k - centre + .5) / wide);
            sum += w[k];
        }
        for (int64_t k = 0; k < from; k++) w[k] /= sum;
    }
}

/* out [to, to, width] from x [from, from, width]: columns first, then rows, in memory `between` [from, to, width]. */
static void resample(const float *x, int64_t from, int64_t to, int64_t width, const double *weights, double *between, float *out)
{
    for (int64_t i = 0; i < from * to * width; i++) {
        const int64_t y = i / (to * width), at = i / width % to, c = i % width;
        between[i] = 0;
        for (int64_t k = 0; k < from; k++) between[i] += weights[at * from + k] * (double)x[(y * from + k) * width + c];
    }
    for (int64_t i = 0; i < to * to * width; i++) {
        const int64_t at = i / (to * width), rest = i % (to * width);
        double sum = 0;
        for (int64_t k = 0; k < from; k++) sum += weights[at * from + k] * between[k * to * width + rest];
        out[i] = (float)sum;
    }
}

/* Makes the table [1 + from * from, width] one of [1 + to * to, width]; the class token keeps its position. 0 or -1. */
static int refit(struct llm_model *m, struct llm_param *p, int64_t from, int64_t to, struct llm_err *e)
{
    const int64_t width = p->shape[1], rows = 1 + to * to;
    float *x = llm_alloc((size_t)llm_param_count(p), sizeof *x, p->name, e);
    float *out = llm_alloc((size_t)rows, (size_t)width * sizeof *out, p->name, e);
    double *weights = llm_alloc((size_t)to, (size_t)from * sizeof *weights, p->name, e);
    double *between = llm_alloc((size_t)(from * to), (size_t)width * sizeof *between, p->name, e);
    const int status = x && out && weights && between ? 0 : -1;
    if (status == 0) {
        llm_weight_decode(&p->weight, 0, llm_param_count(p), x);
        memcpy(out, x, (size_t)width * sizeof *out);
        (m->arch->fits_positions == LLM_FIT_CUBIC ? fill_cubic : fill_antialiased)(weights, from, to);
        resample(x + width, from, to, width, weights, between, out + width);
        struct llm_param_spec *spec = &m->specs[p->spec - m->specs];
        spec->shape[0] = spec->file_shape[1] = p->shape[0] = rows;
        llm_weight_release(&p->weight);
        if (p->owned) free((void *)p->weight.data);
        p->weight = (struct llm_weight){.data = out, .dtype = LLM_F32, .n = rows, .k = width};
        p->owned = true;
    } else {
        free(out);
    }
    free(x);
    free(weights);
    free(between);
    return status;
}

/* The side of the square pictures that a preprocessor makes; 0: they have no such side, or it is not known. */
static int64_t side_of(const char *preprocessor)
{
    struct llm_image_processor p;
    struct llm_err ignored = {0}; /* said where pictures are read */
    json_t *o = preprocessor ? llm_json_parse(preprocessor, strlen(preprocessor), &ignored) : NULL;
    const bool good = o && llm_image_processor_parse(o, &p, &ignored) == 0;
    json_decref(o);
    if (!good) return 0;
    const int64_t height = p.centre_crop ? p.crop_height : p.resize ? p.height : 0, width = p.centre_crop ? p.crop_width : p.resize ? p.width : 0;
    return height == width ? height : 0;
}

int llm_model_fit_positions(struct llm_model *m, struct llm_err *e)
{
    struct llm_config *c = &m->config;
    struct llm_stack *s = &((struct llm_decoder *)m->layout)->stacks[LLM_STACK_MAIN];
    if (!m->arch->fits_positions) return 0;
    const int64_t side = side_of(m->preprocessor), from = c->image_size / c->patch_size, to = side / c->patch_size;
    if (side == 0 || side == c->image_size) return 0;
    if (to < 1 || side > 1 << 14) {
        return llm_fail(e, EX_DATAERR, "preprocessor_config.json: expected pictures of %lld to %d pixels a side, found %lld",
                        (long long)c->patch_size, 1 << 14, (long long)side);
    }
    if (to != from && refit(m, s->positions, from, to, e) < 0) return -1;
    c->image_size = side;
    c->max_position_embeddings = 1 + to * to;
    return 0;
}
