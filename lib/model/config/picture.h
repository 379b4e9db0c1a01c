/* Pictures in texts of models that read both (llm_config_projects): the embeddings of a picture's crops, and which of them stand for it. LLaVA-NeXT
 * lays those of its tiles out as one large picture, leaves out what is beyond the picture's own proportions, and ends each row with a learned
 * vector. Idefics 3 has those of all tiles and of the whole picture, each after tokens that say where it lies. */
#ifndef LLM_MODEL_CONFIG_PICTURE_H
#define LLM_MODEL_CONFIG_PICTURE_H

#include "model/config/config.h"
#include "token/image/processor.h"
#include "token/tokenizer.h"

#define LLM_MAX_CROPS 1024 /* of a picture */

/* Rows that are computed for one crop: an embedding of each of its places and, for LLaVA-NeXT, the vector that ends rows. */
int64_t llm_config_crop_rows(const struct llm_config *c);
/* Of these, the places. */
int64_t llm_config_crop_places(const struct llm_config *c);
/* Checks that the model reads pictures of such crops; a size that it does not need becomes 0. 0 or -1 (EX_DATAERR). */
int llm_picture_check(const struct llm_config *c, struct llm_crops *k, struct llm_err *e) LLM_MUST_CHECK;
/* The number of embeddings that stand for a picture of such crops, which llm_picture_check has accepted. row, unless NULL: for each the row of the
 * crops' rows [k->n * llm_config_crop_rows]. */
int64_t llm_picture_rows(const struct llm_config *c, const struct llm_crops *k, int32_t *row);
/* The tokens that a picture of such crops takes in a text, of which those that are image_token stand for its embeddings, in order. *ids is malloced.
 * t: needed by Idefics 3, whose other tokens say where crops lie. 0 or -1. */
int llm_picture_text(const struct llm_config *c, const struct llm_tokenizer *t, const struct llm_crops *k, int32_t **ids, size_t *n,
                     struct llm_err *e) LLM_MUST_CHECK;
/* Where the patches of the whole picture are: their tokens, from the upper left patch on, row by row. Idefics 3: a patch is what one embedding stands
 * for. */
struct llm_patches {
    int32_t *token;                /* [side * side]; owned, malloced */
    int64_t side;
    int64_t pixels;                /* the patches cover this many rows and columns of the crop, from the upper left corner */
};
/* ids [n]: the tokens of a vision transformer's picture, or of a text with one picture of crops `k`, at whose places image_token stands. 0 or -1
 * (EX_DATAERR: the tokens are not those of such a picture). */
int llm_picture_patches(const struct llm_config *c, const struct llm_crops *k, const int32_t *ids, int64_t n, struct llm_patches *p,
                        struct llm_err *e) LLM_MUST_CHECK;
/* The crops of a picture with few of them, for passes without data. */
struct llm_crops llm_picture_least(const struct llm_config *c);
/* The preprocessor_config.json of a new model of the family, at the size of its tower. New reference; NULL: out of memory. */
json_t *llm_picture_preprocessor(const struct llm_config *c);

#endif
