/* Pictures as batches of vision transformers (model/forward/forward.h). */
#include <string.h>
#include "model/config/picture.h"
#include "model/forward/block.h"
#include "tensor/tape.h"

struct llm_batch llm_model_pictures(struct llm_ctx *c, const struct llm_config *f, int64_t n)
{
    const int64_t patches = llm_config_patches(f), length = llm_config_picture_tokens(f), total = n * length;
    int32_t *ids = llm_op_alloc(c, 4 * total, sizeof *ids), *positions = ids + total, *starts = positions + total, *rows = starts + total;
    struct llm_tensor *x = llm_tensor_create(c, n * patches, llm_config_patch_width(f));
    if (llm_ctx_failed(c)) return (struct llm_batch){.n_tokens = 0};
    for (int64_t i = 0; i < total; i++) {
        const int64_t picture = i / length, place = i % length;
        ids[i] = 0;
        const int64_t later = place - f->num_registers; /* of patches, if registers take no positions */
        positions[i] = (int32_t)(!f->bare_registers ? place : later > 0 ? later : 0);
        starts[i] = (int32_t)(picture * length);
        const int64_t patch = place - (length - patches); /* below 0: the class token */
        rows[i] = patch < 0 ? -1 : (int32_t)(picture * patches + patch);
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

/* The projector's outputs [n * places, width], with the vector that ends rows after those of each of the n crops. */
static struct llm_tensor *add_newlines(struct llm_ctx *c, struct llm_param *newline, struct llm_tensor *x, int64_t n)
{
    const int64_t places = x->rows / n, rows = n * (places + 1);
    int32_t *ids = llm_op_alloc(c, 2 * rows, sizeof *ids), *from = ids + rows;
    for (int64_t i = 0; i < rows && !llm_ctx_failed(c); i++) {
        ids[i] = 0;
        from[i] = i % (places + 1) < places ? (int32_t)(i / (places + 1) * places + i % (places + 1)) : -1;
    }
    if (llm_ctx_failed(c)) return &c->nothing;
    return llm_replace(c, llm_embedding(c, ids, rows, newline, 1), x, from);
}

/* Idefics 3: from the states of all patches [n * patches, width] those of each square of `side` x side patches side by side. */
static struct llm_tensor *shuffle(struct llm_ctx *c, const struct llm_config *f, struct llm_tensor *x, int64_t n, int64_t side)
{
    const int64_t across = f->image_size / f->patch_size, squares = across / side, patches = across * across, area = side * side;
    int32_t *rows = llm_op_alloc(c, n * patches, sizeof *rows);
    for (int64_t i = 0; i < n * patches && !llm_ctx_failed(c); i++) {
        const int64_t square = i % patches / area, y = square / squares * side + i % area / side, at = square % squares * side + i % side;
        rows[i] = (int32_t)(i / patches * patches + y * across + at);
    }
    return llm_gather_abreast(c, x, rows, n * patches / area, area);
}

/* The states of the n crops' places [n * places, width]: without the class token's, where it is no place. */
static struct llm_tensor *choose(struct llm_ctx *c, struct llm_tensor *x, int64_t n, int64_t places)
{
    const int64_t length = x->rows / n;
    int32_t *rows = llm_op_alloc(c, n * places, sizeof *rows);
    for (int64_t i = 0; i < n * places && !llm_ctx_failed(c); i++) rows[i] = (int32_t)(i / places * length + length - places + i % places);
    return llm_gather(c, x, rows, n * places);
}

struct llm_tensor *llm_model_crop_embeddings(struct llm_ctx *c, struct llm_model *m, const struct llm_batch *pictures, int64_t n, bool tower)
{
    const struct llm_stack *s = &((const struct llm_decoder *)m->layout)->stacks[LLM_STACK_VISION];
    const int64_t side = m->config.projector.shuffle;
    struct llm_tape *tape = c->tape;
    if (!tower) c->tape = NULL;
    struct llm_tensor *x = llm_model_forward(c, m, pictures);
    if (llm_ctx_failed(c)) return x;
    x = side > 0 ? shuffle(c, s->own, x, n, side) : choose(c, x, n, llm_config_crop_places(&m->config));
    c->tape = tape;
    x = llm_linear(c, x, s->projector[0].w, s->projector[0].b);
    if (side > 0) return x;
    x = llm_linear(c, llm_activation(c, x, m->config.projector.act), s->projector[1].w, s->projector[1].b);
    return s->newline ? add_newlines(c, s->newline, x, n) : x;
}
