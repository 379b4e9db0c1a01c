/* Pictures made larger or smaller, byte for byte as Pillow's Image.resize makes them: an antialiased filter (its support grows with the reduction),
 * columns first, then rows, coefficients in fixed point. Since its version 13 Pillow begins with the rows where the height is reduced by more than
 * twice as many pixels as the width (its pull request 9549), which changes the last bit of some samples. */
#ifndef LLM_TOKEN_IMAGE_RESAMPLE_H
#define LLM_TOKEN_IMAGE_RESAMPLE_H

#include <stdbool.h>
#include "io/image.h"

/* Numbers as Pillow's and preprocessor_config.json's `resample` have them. */
enum llm_filter { LLM_NEAREST, LLM_LANCZOS, LLM_BILINEAR, LLM_BICUBIC, LLM_BOX, LLM_HAMMING, LLM_FILTERS };

/* `columns_first`: always, as Pillow before 13. `out` is new and may not be `in`. */
int llm_image_resize(const struct llm_image *in, int64_t width, int64_t height, enum llm_filter filter, bool columns_first, struct llm_image *out,
                     struct llm_err *e) LLM_MUST_CHECK;

#endif
