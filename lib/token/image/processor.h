/* What a model wants of a picture, as its preprocessor_config.json says: sizes, crops, numbers of pixels. The results are those of transformers'
 * processors over Pillow, or over torchvision where a family has no other (DINOv3), to the bit. */
#ifndef LLM_TOKEN_IMAGE_PROCESSOR_H
#define LLM_TOKEN_IMAGE_PROCESSOR_H

#include <stdbool.h>
#include "base/json.h"
#include "token/image/resample.h"

#define LLM_IMAGE_MAX_GRIDS 64

/* The picture's way into crops. */
enum llm_image_cut {
    LLM_IMAGE_WHOLE,               /* one picture: ViT, DeiT, CLIP, SigLIP, LLaVA 1.5 */
    LLM_IMAGE_ANY_RESOLUTION,      /* LLaVA-NeXT: the whole, then tiles of the best of some resolutions */
    LLM_IMAGE_TILES                /* Idefics 3 and SmolVLM: tiles of a multiple of the tower's size, then the whole */
};

struct llm_image_processor {
    enum llm_image_cut cut;
    bool resize, centre_crop, rescale, normalise;
    bool pad_square;               /* in the colour of the mean, before anything else */
    bool planes;                   /* rescaled before it is resized, in FP32 (token/image/planes.h) */
    bool split;                    /* LLM_IMAGE_TILES: tiles at all */
    int64_t shortest, longest;     /* of the resized picture; 0: not said */
    int64_t height, width;         /* both sides, where they are said; else 0 */
    int64_t crop_height, crop_width;
    int64_t tile;                  /* LLM_IMAGE_TILES: a side of the tower's input */
    int64_t n_grids, grids[LLM_IMAGE_MAX_GRIDS][2]; /* LLM_IMAGE_ANY_RESOLUTION: height, width */
    enum llm_filter filter;
    bool columns_first;            /* llm_image_resize; not of the file */
    double factor;                 /* of a sample, before the mean is subtracted */
    double mean[3], deviation[3];
};

/* Samples of 0 to 1, nothing resized. */
void llm_image_processor_plain(struct llm_image_processor *p);
/* Of a parsed preprocessor_config.json: defaults are those of the processor that it names. EX_DATAERR names the key. */
int llm_image_processor_parse(const json_t *config, struct llm_image_processor *p, struct llm_err *e) LLM_MUST_CHECK;

#define LLM_IMAGE_PROCESSOR_PATH 4096
/* The folder of `n` bytes of a model: the object of its processor, a new reference, and in `path` the file that has it: "image_processor" in
 * processor_config.json, as transformers 5 saves it, else preprocessor_config.json. If it names no processor, the one of config.json's model_type is
 * set in it. */
json_t *llm_image_processor_find(const char *folder, size_t n, char path[LLM_IMAGE_PROCESSOR_PATH], struct llm_err *e) LLM_MUST_CHECK;

/* Loads it from `path`: a model's folder, a preprocessor_config.json, or a checkpoint with the metadata llm.preprocessor. Errors name the file. */
int llm_image_processor_load(const char *path, struct llm_image_processor *p, struct llm_err *e) LLM_MUST_CHECK;

/* How crops make a picture: the whole alone, or the whole and tiles of it. */
struct llm_crops {
    int64_t n;                     /* crops */
    int64_t rows, columns;         /* of the tiles; 0: none */
    int64_t height, width;         /* of the picture before anything was done to it */
};
/* What a picture became. Zero-initialise it; a second call reuses the memory. */
struct llm_pixels {
    float *v;                      /* [crops.n, 3, height, width] */
    size_t room;                   /* of floats */
    int64_t height, width;
    struct llm_crops crops;
};
int llm_image_process(const struct llm_image_processor *p, const struct llm_image *im, struct llm_pixels *out, struct llm_err *e) LLM_MUST_CHECK;
void llm_pixels_release(struct llm_pixels *px);

#endif
