/* Pictures by their content, and turned as they say. */
#include <string.h>
#include "base/buf.h"
#include "io/image_internal.h"

/* Orientations from 5 on exchange rows and columns; of what then lies there, some are mirrored from left to right and some from top to bottom. */
static int turn(struct llm_image *im, int how, struct llm_err *e)
{
    int swap = how >= 5, mirror = how == 2 || how == 3 || how == 7 || how == 8, flip = how == 3 || how == 4 || how == 6 || how == 7;
    struct llm_image out;
    if (how == 1) return 0;
    if (llm_image_alloc(&out, swap ? im->height : im->width, swap ? im->width : im->height, e) < 0) return -1;
    unsigned char *to = out.rgb;
    for (int64_t y = 0; y < out.height; y++) {
        for (int64_t x = 0; x < out.width; x++, to += 3) {
            int64_t sx = swap ? y : x, sy = swap ? x : y; /* of the source, before it is mirrored */
            if (mirror) sx = im->width - 1 - sx;
            if (flip) sy = im->height - 1 - sy;
            memcpy(to, im->rgb + (sy * im->width + sx) * 3, 3);
        }
    }
    llm_image_release(im);
    *im = out;
    return 0;
}

int llm_image_decode(const unsigned char *p, size_t n, struct llm_image *im, struct llm_err *e)
{
    int bad, orientation = 1;
    *im = (struct llm_image){0};
    if (n == 0) return llm_fail(e, EX_DATAERR, "expected a picture, found an empty file");
    if (n >= 8 && memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0)
        bad = llm_image_png(p, n, im, &orientation, e);
    else if (n >= 3 && memcmp(p, "\xff\xd8\xff", 3) == 0)
        bad = llm_image_jpeg(p, n, im, &orientation, e);
    else
        return llm_fail(e, EX_DATAERR, "expected a picture (PNG, JPEG)");
    if (bad == 0) bad = turn(im, orientation, e);
    if (bad < 0) llm_image_release(im);
    return bad;
}

int llm_image_read(struct llm_file *f, struct llm_image *im, struct llm_err *e)
{
    struct llm_buf b = {0};
    int64_t got = 1;
    int bad = 0;
    while (bad == 0 && got > 0) {
        bad = llm_buf_reserve(&b, b.n + (1 << 16), e);
        got = bad < 0 ? 0 : llm_file_read_some(f, b.p + b.n, b.room - b.n, e);
        if (got < 0) bad = -1;
        else b.n += (size_t)got;
    }
    if (bad == 0 && llm_image_decode((const unsigned char *)b.p, b.n, im, e) < 0) bad = llm_in(e, "%s", llm_file_name(f));
    llm_buf_release(&b);
    return bad;
}
