#include "measure/heatmap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "io/png.h"

enum { WIDE = 1200, TALL = 800, LARGEST_CELL = 32 };

void llm_heatmap_colour(double x, unsigned char rgb[3])
{
    /* Brightness grows evenly, so that a grey print is still right. */
    static const double stops[][3] = {{6, 6, 24}, {60, 15, 110}, {150, 40, 110}, {225, 90, 60}, {250, 175, 60}, {255, 255, 225}};
    enum { LAST = sizeof stops / sizeof *stops - 1 };
    double at = (x < 0 ? 0 : x > 1 ? 1 : x) * LAST;
    int i = at >= LAST ? LAST - 1 : (int)at;
    for (int k = 0; k < 3; k++) rgb[k] = (unsigned char)lrint(stops[i][k] + (at - i) * (stops[i + 1][k] - stops[i][k]));
}

static int64_t cell(int64_t count, int64_t room)
{
    int64_t n = room / count;
    return n < 1 ? 1 : n > LARGEST_CELL ? LARGEST_CELL : n;
}

int llm_heatmap_write(struct llm_output *o, const float *v, int64_t rows, int64_t cols, struct llm_err *e)
{
    if (rows < 1 || cols < 1) return llm_fail(e, EX_DATAERR, "nothing to paint");
    double least = INFINITY, most = -INFINITY;
    int64_t w = cell(cols, WIDE), h = cell(rows, TALL);
    for (int64_t i = 0; i < rows * cols; i++) {
        if (!isfinite(v[i])) continue;
        least = v[i] < least ? v[i] : least;
        most = v[i] > most ? v[i] : most;
    }
    unsigned char *rgb = llm_alloc((size_t)(rows * h), (size_t)(cols * w * 3), "an image", e);
    if (!rgb) return -1;
    for (int64_t r = 0; r < rows; r++) {
        unsigned char *line = rgb + r * h * cols * w * 3;
        for (int64_t c = 0; c < cols; c++) {
            unsigned char colour[3] = {128, 128, 128};
            double x = v[r * cols + c];
            if (isfinite(x)) llm_heatmap_colour(most > least ? (x - least) / (most - least) : 0, colour);
            for (int64_t i = 0; i < w; i++) memcpy(line + (c * w + i) * 3, colour, 3);
        }
        for (int64_t i = 1; i < h; i++) memcpy(line + i * cols * w * 3, line, (size_t)(cols * w * 3));
    }
    int status = llm_png_write(o, rgb, cols * w, rows * h, e);
    free(rgb);
    return status;
}
