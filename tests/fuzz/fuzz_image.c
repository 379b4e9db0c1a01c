/* Pictures: whatever is decoded has the pixels that it says, and small ones go through a processor of each way of cutting. */
#include "fuzz.h"
#include "token/image/processor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    struct llm_image im;
    if (llm_image_decode(data, n, &im, &e) < 0) {
        MUST(e.status == EX_DATAERR && !im.rgb);
        return 0;
    }
    MUST(im.width > 0 && im.height > 0 && im.rgb);
    struct llm_image_processor p = {.cut = (enum llm_image_cut)(n % 3), .resize = true, .split = true, .rescale = true, .factor = 1 / 255.,
                                    .shortest = 8, .longest = n % 3 == LLM_IMAGE_TILES ? 24 : 0, .crop_height = 8, .crop_width = 8,
                                    .centre_crop = true, .tile = 8, .n_grids = 2, .grids = {{8, 24}, {16, 16}},
                                    .filter = (enum llm_filter)(n / 3 % LLM_FILTERS)};
    struct llm_pixels px = {0};
    int64_t sum = im.rgb[0] + im.rgb[im.width * im.height * 3 - 1];
    if (im.width <= 64 && im.height <= 64 && llm_image_process(&p, &im, &px, &e) == 0) {
        for (int64_t i = 0; i < px.crops.n * 3 * px.height * px.width; i++) MUST(px.v[i] >= 0 && px.v[i] <= 1);
    }
    MUST(sum >= 0);
    llm_pixels_release(&px);
    llm_image_release(&im);
    return 0;
}
