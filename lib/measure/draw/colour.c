#include "measure/draw/colour.h"

#include <math.h>

const struct llm_rgb llm_ink = {32, 33, 36}, llm_pale_ink = {95, 99, 104}, llm_no_value = {205, 205, 205};

/* Stops at equal distances in OKLab: lightness .26 to .92 with the hue going from 305 to 105 degrees, and .42, .97, .42 with hues 255 and 35, each
 * with as much chroma as sRGB holds there. */
static const unsigned char sequence[][3] = {{49, 14, 77}, {47, 44, 115}, {15, 77, 146}, {7, 111, 147}, {4, 142, 153},
                                            {9, 174, 153}, {26, 208, 122}, {158, 226, 67}, {249, 234, 18}};
static const unsigned char diverging[][3] = {{1, 75, 149}, {26, 114, 211}, {93, 159, 242}, {166, 203, 252}, {245, 245, 245},
                                             {247, 182, 165}, {230, 122, 95}, {194, 67, 35}, {139, 33, 2}};

static struct llm_rgb between(const unsigned char stops[][3], int n, double x)
{
    double at = (x < 0 ? 0 : x > 1 ? 1 : x) * (n - 1);
    int i = at >= n - 1 ? n - 2 : (int)at;
    unsigned char c[3];
    for (int k = 0; k < 3; k++) c[k] = (unsigned char)lrint(stops[i][k] + (at - i) * (stops[i + 1][k] - stops[i][k]));
    return (struct llm_rgb){c[0], c[1], c[2]};
}

struct llm_rgb llm_colour_sequence(double x)
{
    return between(sequence, sizeof sequence / sizeof *sequence, x);
}

struct llm_rgb llm_colour_diverging(double x)
{
    return between(diverging, sizeof diverging / sizeof *diverging, (x + 1) / 2);
}
