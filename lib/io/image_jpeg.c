/* JPEG to RGB. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <jerror.h>
#include "base/buf.h"
#include "io/image_internal.h"

struct failure {
    struct jpeg_error_mgr manager; /* libjpeg's; first, so that a pointer to it is one to this */
    jmp_buf back;
    struct llm_err *e;
};

static void fail(j_common_ptr c)
{
    struct failure *f = (struct failure *)c->err;
    char text[JMSG_LENGTH_MAX];
    c->err->format_message(c, text);
    llm_fail(f->e, EX_DATAERR, "JPEG: %s", text);
    longjmp(f->back, 1);
}

/* A file that ends too early gives a warning and grey pixels: an error here. Other damage is passed over, as everywhere. */
static void message(j_common_ptr c, int level)
{
    if (level < 0 && c->err->msg_code == JWRN_JPEG_EOF) fail(c);
}

static int clip_div255(int a, int b)
{
    int v = a * b + 128;
    return ((v >> 8) + v) >> 8;
}

/* Inks are stored inverted (Adobe's convention, which Pillow takes for granted): 255 is none. */
static void inks_to_rgb(const unsigned char *inks, unsigned char *rgb, int64_t width)
{
    for (int64_t x = 0; x < width; x++) {
        int paper = inks[x * 4 + 3];
        for (int i = 0; i < 3; i++) {
            int v = paper - clip_div255(255 - inks[x * 4 + i], paper);
            rgb[x * 3 + i] = (unsigned char)(v < 0 ? 0 : v);
        }
    }
}

static void find_orientation(jpeg_saved_marker_ptr m, int *orientation)
{
    static const char xmp[] = "http://ns.adobe.com/xap/1.0/"; /* with its NUL */
    int by_exif = 0, by_xmp = 0;
    for (; m; m = m->next) {
        if (m->data_length > 6 && memcmp(m->data, "Exif\0\0", 6) == 0) {
            if (!by_exif) by_exif = llm_exif_orientation(m->data, m->data_length);
        } else if (m->data_length > sizeof xmp && memcmp(m->data, xmp, sizeof xmp) == 0) {
            by_xmp = llm_xmp_orientation((const char *)m->data + sizeof xmp, m->data_length - sizeof xmp);
        }
    }
    if (by_exif || by_xmp) *orientation = by_exif ? by_exif : by_xmp;
}

int llm_image_jpeg(const unsigned char *p, size_t n, struct llm_image *im, int *orientation, struct llm_err *e)
{
    struct jpeg_decompress_struct c;
    struct failure f = {.e = e};
    unsigned char *volatile inks = NULL;
    c.err = jpeg_std_error(&f.manager);
    f.manager.error_exit = fail;
    f.manager.emit_message = message;
    if (setjmp(f.back)) {
        jpeg_destroy_decompress(&c);
        free(inks);
        llm_image_release(im);
        return -1;
    }
    jpeg_create_decompress(&c);
    jpeg_mem_src(&c, p, n);
    jpeg_save_markers(&c, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&c, TRUE);
    find_orientation(c.marker_list, orientation);
    int four = c.jpeg_color_space == JCS_CMYK || c.jpeg_color_space == JCS_YCCK;
    c.out_color_space = four ? JCS_CMYK : JCS_RGB;
    int bad = llm_image_alloc(im, c.image_width, c.image_height, e);
    if (bad == 0 && four && !(inks = llm_alloc(c.image_width, 4, "a row of a picture", e))) bad = -1;
    if (bad < 0) {
        jpeg_destroy_decompress(&c);
        return -1;
    }
    jpeg_start_decompress(&c);
    while (c.output_scanline < c.output_height) {
        unsigned char *rgb = im->rgb + (size_t)c.output_scanline * c.output_width * 3;
        JSAMPROW row = four ? inks : rgb;
        jpeg_read_scanlines(&c, &row, 1);
        if (four) inks_to_rgb(inks, rgb, im->width);
    }
    jpeg_finish_decompress(&c);
    jpeg_destroy_decompress(&c);
    free(inks);
    return 0;
}
