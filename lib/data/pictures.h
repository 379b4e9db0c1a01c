/* Pictures to learn from: messages of kind "images" (formats/images.md), read at random from mapped files. All have one shape. */
#ifndef LLM_DATA_PICTURES_H
#define LLM_DATA_PICTURES_H

#include <stdbool.h>
#include <stdint.h>
#include "base/rng.h"
#include "io/message.h"

struct llm_pictures; /* opaque */

/* The pixels of a message of kind images: F32 [pictures, crops, channels, height, width]. NULL: it is none (EX_DATAERR). */
const struct llm_entry *llm_pictures_find(const struct llm_header *h, struct llm_err *e) LLM_MUST_CHECK;

/* Several inputs ("-": standard input) as one run of pictures. NULL: see `e`: EX_DATAERR if a message has no labels although the others have them, or
 * pictures of another shape, of several crops, or numbers that are not finite. */
struct llm_pictures *llm_pictures_open(const char *const *paths, size_t n_paths, struct llm_err *e) LLM_MUST_CHECK;
/* Adds the pictures of another input. 0 or -1. */
int llm_pictures_add(struct llm_pictures *p, const char *path, struct llm_err *e) LLM_MUST_CHECK;
void llm_pictures_close(struct llm_pictures *p); /* NULL is fine */
int64_t llm_pictures_count(const struct llm_pictures *p);
/* Numbers of a picture: channels, height, width. */
const int64_t *llm_pictures_shape(const struct llm_pictures *p);
/* The class of picture i, from 0; -1: pictures have none. */
int32_t llm_pictures_label(const struct llm_pictures *p, int64_t i);
/* The text of picture i; NULL: it has none. */
const char *llm_pictures_text(const struct llm_pictures *p, int64_t i);
/* One more than the largest class; 0: pictures have none. */
int64_t llm_pictures_classes(const struct llm_pictures *p);
/* Copies picture i: [channels, height, width] floats. */
void llm_pictures_get(const struct llm_pictures *p, int64_t i, float *to);
/* XXH64 of pixels and labels of pictures [first, first + n). */
uint64_t llm_pictures_hash(const struct llm_pictures *p, int64_t first, int64_t n);

/* ---- augmentation ---- */
struct llm_augment {
    int64_t crop;            /* the picture is moved by up to this many pixels each way; what comes in is 0, the mean of normalised pixels */
    double flip;             /* the probability that left and right change places */
    double mixup;            /* alpha of Beta(alpha, alpha), the share of another picture (Zhang et al. 2018); 0: pictures are not mixed */
};
/* What is done to one picture of a step. */
struct llm_moved { int64_t dx, dy; bool flip; };
struct llm_augmented {
    struct llm_moved own, others;
    int64_t other;           /* the number, below n, of the picture that is mixed in */
    float keep;              /* the picture's own share; 1: nothing is mixed in */
};
/* A function of (seed, step, row of the step) alone. n: pictures that may be mixed in. */
struct llm_augmented llm_augment_draw(const struct llm_augment *a, uint64_t seed, uint64_t step, uint32_t row, int64_t n);
/* Picture i changed so; `room`: [channels, height, width] floats of scratch. */
void llm_pictures_augmented(const struct llm_pictures *p, int64_t i, const struct llm_augmented *a, float *room, float *to);

#endif
