#include "io/image.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "io/image_internal.h"

int llm_image_alloc(struct llm_image *im, int64_t width, int64_t height, struct llm_err *e)
{
    if (width < 1 || height < 1 || width > LLM_IMAGE_MAX_PIXELS / height)
        return llm_fail(e, EX_DATAERR, "expected at most %d pixels, found %" PRId64 " x %" PRId64, LLM_IMAGE_MAX_PIXELS, width, height);
    im->width = width;
    im->height = height;
    im->rgb = llm_alloc((size_t)(width * height), 3, "a picture", e);
    return im->rgb ? 0 : -1;
}

void llm_image_release(struct llm_image *im)
{
    free(im->rgb);
    im->rgb = NULL;
}

static uint32_t number(const unsigned char *p, int bytes, int big)
{
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint32_t)p[i] << 8 * (big ? bytes - 1 - i : i);
    return v;
}

int llm_exif_orientation(const unsigned char *p, size_t n)
{
    for (int i = 0; i < 2 && n >= 6 && memcmp(p, "Exif\0\0", 6) == 0; i++) p += 6, n -= 6;
    if (n < 8 || (memcmp(p, "II*\0", 4) != 0 && memcmp(p, "MM\0*", 4) != 0)) return 0;
    int big = p[0] == 'M';
    size_t at = number(p + 4, 4, big);
    if (at > n - 2) return 0;
    size_t entries = number(p + at, 2, big);
    at += 2;
    for (size_t i = 0; i < entries && n - at >= 12; i++, at += 12) {
        if (number(p + at, 2, big) != 0x0112) continue;
        uint32_t type = number(p + at + 2, 2, big), count = number(p + at + 4, 4, big);
        int bytes = type == 3 || type == 8 ? 2 : type == 4 || type == 9 ? 4 : 0; /* integers of 16 and 32 bits, unsigned and signed */
        uint32_t v = bytes && count >= 1 && count <= 4 / (uint32_t)bytes ? number(p + at + 8, bytes, big) : 1;
        return v >= 1 && v <= 8 ? (int)v : 1;
    }
    return 0;
}

int llm_xmp_orientation(const char *p, size_t n)
{
    static const char name[] = "tiff:Orientation";
    const char *end = p + n;
    while ((p = memmem(p, (size_t)(end - p), name, sizeof name - 1))) {
        p += sizeof name - 1;
        const char *v = end - p >= 3 && memcmp(p, "=\"", 2) == 0 ? p + 2 : end - p >= 2 && *p == '>' ? p + 1 : NULL;
        if (v && *v >= '0' && *v <= '9') return *v >= '1' && *v <= '8' ? *v - '0' : 1;
    }
    return 0;
}
