/* Pictures read: PNG (libpng) and JPEG (libjpeg-turbo), as 8-bit RGB, the way up that their EXIF orientation says. Grey, palettes, alpha (left out),
 * 16 bits and CMYK become RGB as Pillow's `convert("RGB")` makes them. */
#ifndef LLM_IO_IMAGE_H
#define LLM_IO_IMAGE_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "io/file.h"

/* A larger picture is refused before memory is reserved: the limit at which Pillow refuses. */
#define LLM_IMAGE_MAX_PIXELS 178956970

struct llm_image {
    int64_t width, height;
    unsigned char *rgb;            /* [height, width, 3], rows from the top; owned */
};
/* The picture in `n` bytes. EX_DATAERR: no PNG or JPEG, too large, cut or damaged; the text does not name the file. */
int llm_image_decode(const unsigned char *p, size_t n, struct llm_image *im, struct llm_err *e) LLM_MUST_CHECK;
/* Reads all of `f` and decodes it; errors name the file. */
int llm_image_read(struct llm_file *f, struct llm_image *im, struct llm_err *e) LLM_MUST_CHECK;
/* Checks sides against the limit and allocates `rgb`, which is not initialised. */
int llm_image_alloc(struct llm_image *im, int64_t width, int64_t height, struct llm_err *e) LLM_MUST_CHECK;
void llm_image_release(struct llm_image *im);

#endif
