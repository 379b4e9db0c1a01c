#include "io/png.h"

#include <inttypes.h>
#include <png.h>

/* Where an image goes: an output, or the end of a buffer. */
struct sink {
    struct llm_output *o;
    struct llm_buf *b;
    struct llm_err *e;
    int failed;
};

static void put(png_structp png, png_bytep p, size_t n)
{
    struct sink *s = png_get_io_ptr(png);
    if ((s->b ? llm_buf_put(s->b, p, n, s->e) : llm_output_write(s->o, p, n, s->e)) < 0) {
        s->failed = 1;
        png_error(png, "write error");
    }
}

static void flush(png_structp png)
{
    (void)png;
}

static void fail(png_structp png, png_const_charp text)
{
    struct sink *s = png_get_error_ptr(png);
    if (!s->failed) llm_fail(s->e, EX_UNAVAILABLE, "PNG: %s", text);
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp text)
{
    (void)png, (void)text;
}

static int write_image(struct sink s, const unsigned char *rgb, int64_t width, int64_t height, struct llm_err *e)
{
    png_infop info = NULL;
    if (width < 1 || height < 1 || width > 1000000 || height > 1000000) {
        return llm_fail(e, EX_UNAVAILABLE, "PNG: expected at most 1000000 pixels a side, found %" PRId64 " by %" PRId64, width, height);
    }
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &s, fail, ignore);
    if (!png) return llm_no_memory(e, "a PNG image");
    if (setjmp(png_jmpbuf(png))) {
        png_destroy_write_struct(&png, &info);
        return -1;
    }
    info = png_create_info_struct(png);
    if (!info) png_error(png, "out of memory");
    png_set_write_fn(png, &s, put, flush);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int64_t y = 0; y < height; y++) png_write_row(png, rgb + y * width * 3);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return 0;
}

int llm_png_write(struct llm_output *o, const unsigned char *rgb, int64_t width, int64_t height, struct llm_err *e)
{
    return write_image((struct sink){.o = o, .e = e}, rgb, width, height, e);
}

int llm_png_put(struct llm_buf *b, const unsigned char *rgb, int64_t width, int64_t height, struct llm_err *e)
{
    return write_image((struct sink){.b = b, .e = e}, rgb, width, height, e);
}
