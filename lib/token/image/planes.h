/* Pictures in FP32: samples are rescaled first, then resized, as torchvision's processors of transformers do where Pillow has no part (DINOv3). */
#ifndef LLM_TOKEN_IMAGE_PLANES_H
#define LLM_TOKEN_IMAGE_PLANES_H

#include "token/image/processor.h"

/* The one crop that a processor with `planes` makes of `im`, which it resizes to height x width if these differ from the picture's. Replaces what
 * `out` had. */
int llm_image_planes(const struct llm_image_processor *p, const struct llm_image *im, int64_t height, int64_t width, struct llm_pixels *out,
                     struct llm_err *e) LLM_MUST_CHECK;

#endif
