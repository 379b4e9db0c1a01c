/* What image.c shares with the reader of each format. */
#ifndef LLM_IO_IMAGE_INTERNAL_H
#define LLM_IO_IMAGE_INTERNAL_H

#include "io/image.h"

/* The orientation that a block of EXIF says (TIFF, tag 0x0112 of the first directory): 1 to 8; 1 if its value is none of these; 0 if none is said. */
int llm_exif_orientation(const unsigned char *p, size_t n);
/* The orientation that XMP says (tiff:Orientation, as an attribute or an element), in the same way. Programs that keep metadata in XMP alone say it
 * there; EXIF goes before it. */
int llm_xmp_orientation(const char *p, size_t n);
/* The picture as it is stored; *orientation keeps its value where the file says none. */
int llm_image_png(const unsigned char *p, size_t n, struct llm_image *im, int *orientation, struct llm_err *e) LLM_MUST_CHECK;
int llm_image_jpeg(const unsigned char *p, size_t n, struct llm_image *im, int *orientation, struct llm_err *e) LLM_MUST_CHECK;

#endif
