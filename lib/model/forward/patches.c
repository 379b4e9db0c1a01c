/* Pictures as batches of vision transformers (model/forward/forward.h). */
#include <string.h>
#include "model/forward/forward.h"
#include "tensor/tape.h"

struct llm_batch llm_model_pictures(struct llm_ctx *c, const struct llm_config *f, int64_t n)
{
    const int64_t patches = llm_config_patches(f), length = patches + 1, total = n * length;
    int32_t *ids = llm_op_alloc(c, 4 * total, sizeof *ids), *positions = ids + total, *starts = positions + total, *rows = starts + total;
    struct llm_tensor *x = llm_tensor_create(c, n * patches, llm_config_patch_width(f));
    if (llm_ctx_failed(c)) return (struct llm_batch){.n_tokens = 0};
    for (int64_t i = 0; i < total; i++) {
        const int64_t picture = i / length, place = i % length;
        ids[i] = 0;
        positions[i] = (int32_t)place;
        starts[i] = (int32_t)(picture * length);
        rows[i] = place == 0 ? -1 : (int32_t)(picture * patches + place - 1);
    }
    return (struct llm_batch){.ids = ids, .positions = positions, .n_tokens = total, .patches = x, .given_row = rows, .doc_start = starts};
}

/* Patches go from the upper left one on, row by row, each as (channel, row, column). */
void llm_model_put_picture(const struct llm_config *f, const struct llm_batch *b, int64_t i, const float *pixels)
{
    const int64_t side = f->image_size, p = f->patch_size, across = side / p, patches = across * across;
    for (int64_t k = 0; k < patches; k++) {
        float *to = b->patches->data + (i * patches + k) * b->patches->stride;
        for (int64_t c = 0; c < f->num_channels; c++) {
            for (int64_t y = 0; y < p; y++, to += p) {
                memcpy(to, pixels + (c * side + k / across * p + y) * side + k % across * p, (size_t)p * sizeof *to);
            }
        }
    }
}
