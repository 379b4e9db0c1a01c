/* PNG to RGB. */
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "io/image_internal.h"

struct source {
    const unsigned char *p;
    size_t n;
    struct llm_err *e;
};

static void take(png_structp png, png_bytep to, size_t n)
{
    struct source *s = png_get_io_ptr(png);
    if (n > s->n) png_error(png, "cut short");
    memcpy(to, s->p, n);
    s->p += n;
    s->n -= n;
}

static void fail(png_structp png, png_const_charp text)
{
    struct source *s = png_get_error_ptr(png);
    llm_fail(s->e, EX_DATAERR, "PNG: %s", text);
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

/* Deflate makes of a byte at most 1,032: a picture that claims more than its file can hold is refused before there is memory for it. */
static int possible(png_uint_32 width, png_uint_32 height, int bits, size_t bytes)
{
    uint64_t rows = ((uint64_t)width * (unsigned)bits + 7) / 8 * height;
    return rows / 1032 <= bytes;
}

/* The orientation in the chunk eXIf, which libpng's own reader hands out only from some versions on; -1 if the file has no such chunk. */
static int chunk_orientation(const unsigned char *p, size_t n)
{
    for (size_t at = 8; n - at >= 12;) {
        size_t length = (size_t)p[at] << 24 | (size_t)p[at + 1] << 16 | (size_t)p[at + 2] << 8 | p[at + 3];
        if (length > n - at - 12) return -1;
        if (memcmp(p + at + 4, "eXIf", 4) == 0) return llm_exif_orientation(p + at + 8, length);
        at += 12 + length;
    }
    return -1;
}

/* ImageMagick's way to store EXIF before there was a chunk for it: a line break, the name, the length, then the bytes in hexadecimal digits. The
 * digits of `text` are replaced by what they say. */
static int profile_orientation(char *text)
{
    static const char hexadecimal[] = "0123456789abcdef";
    unsigned char *to = (unsigned char *)text;
    size_t digits = 0;
    for (int line = 0; line < 3; line++) {
        text = strchr(text, '\n');
        if (!text) return 0;
        text++;
    }
    for (; *text; text++) {
        const char *digit = strchr(hexadecimal, *text | 0x20);
        if (!digit) continue;
        const unsigned char v = (unsigned char)(digit - hexadecimal);
        to[digits / 2] = (unsigned char)(digits % 2 ? to[digits / 2] | v : v << 4);
        digits++;
    }
    return llm_exif_orientation(to, digits / 2);
}

/* Where the picture's orientation may stand, the first that says it. */
static void find_orientation(png_structp png, png_infop info, const unsigned char *p, size_t n, int *orientation)
{
    png_textp text;
    int count = 0, by_xmp = 0, by_exif = chunk_orientation(p, n);
    png_get_text(png, info, &text, &count);
    for (int i = 0; i < count; i++) {
        if (by_exif < 0 && strcmp(text[i].key, "Raw profile type exif") == 0) by_exif = profile_orientation(text[i].text);
        else if (strcmp(text[i].key, "XML:com.adobe.xmp") == 0) by_xmp = llm_xmp_orientation(text[i].text, strlen(text[i].text));
    }
    if (by_exif > 0 || by_xmp) *orientation = by_exif > 0 ? by_exif : by_xmp;
}

/* Grey of 16 bits is a mode of its own to Pillow, whose conversion to RGB cuts values off at 255. (Colours, and grey with alpha, lose their low
 * bytes.) A row is changed in its place, from its end. */
static void clip_deep(unsigned char *row, png_uint_32 width)
{
    for (png_uint_32 x = width; x-- > 0;) memset(row + (size_t)x * 3, row[(size_t)x * 2] ? 255 : row[(size_t)x * 2 + 1], 3);
}

int llm_image_png(const unsigned char *p, size_t n, struct llm_image *im, int *orientation, struct llm_err *e)
{
    struct source s = {p, n, e};
    png_infop info = NULL;
    png_bytep *volatile rows = NULL;
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, fail, ignore);
    if (!png) return llm_no_memory(e, "a PNG image");
    if (setjmp(png_jmpbuf(png))) {
        png_destroy_read_struct(&png, &info, NULL);
        free(rows);
        llm_image_release(im);
        return -1;
    }
    info = png_create_info_struct(png);
    if (!info) png_error(png, "out of memory");
    png_set_user_limits(png, LLM_IMAGE_MAX_PIXELS, LLM_IMAGE_MAX_PIXELS);
    png_set_read_fn(png, &s, take);
    png_read_info(png, info);
    png_uint_32 width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    int bits = png_get_bit_depth(png, info) * png_get_channels(png, info);
    int bad = !possible(width, height, bits, n)
        ? llm_fail(e, EX_DATAERR, "PNG: %u x %u pixels cannot be in a file of %zu bytes", width, height, n)
        : llm_image_alloc(im, width, height, e);
    if (bad == 0 && !(rows = llm_alloc(height, sizeof *rows, "rows of a picture", e))) bad = -1;
    if (bad < 0) {
        png_destroy_read_struct(&png, &info, NULL);
        return -1;
    }
    int deep = png_get_bit_depth(png, info) == 16 && png_get_color_type(png, info) == PNG_COLOR_TYPE_GRAY;
    if (!deep) {
        png_set_strip_16(png);
        png_set_expand(png);
        png_set_strip_alpha(png);
        png_set_gray_to_rgb(png);
    }
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != (size_t)width * (deep ? 2 : 3)) png_error(png, "unknown layout of pixels");
    for (png_uint_32 y = 0; y < height; y++) rows[y] = im->rgb + (size_t)y * width * 3;
    png_read_image(png, rows);
    png_read_end(png, info);
    find_orientation(png, info, p, n, orientation);
    png_destroy_read_struct(&png, &info, NULL);
    free(rows);
    for (png_uint_32 y = 0; y < height && deep; y++) clip_deep(im->rgb + (size_t)y * width * 3, width);
    return 0;
}
