#include "model/config/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/buf.h"

static int64_t across(const struct llm_config *c) { return c->vision.image_size / c->vision.patch_size; }

int64_t llm_config_crop_places(const struct llm_config *c)
{
    const int64_t side = c->projector.shuffle > 0 ? across(c) / c->projector.shuffle : across(c);
    return side * side + (c->projector.select == LLM_SELECT_ALL) - (c->vision.patches_only && c->projector.shuffle == 0);
}

int64_t llm_config_crop_rows(const struct llm_config *c) { return llm_config_crop_places(c) + (c->projector.n_grids > 0); }

int llm_picture_check(const struct llm_config *c, struct llm_crops *k, struct llm_err *e)
{
    const int64_t side = c->vision.image_size;
    bool known = false;
    if (c->projector.shuffle > 0) {
        if (k->n != 1 + k->rows * k->columns || k->n > LLM_MAX_CROPS)
            return llm_fail(e, EX_DATAERR, "expected tiles and the whole picture, %d crops at most, found %" PRId64 " crops, %" PRId64 " x %" PRId64
                            " of them tiles", LLM_MAX_CROPS, k->n, k->rows, k->columns);
        k->height = k->width = 0;
        return 0;
    }
    if (c->projector.n_grids == 0) {
        if (k->n != 1) return llm_fail(e, EX_DATAERR, "expected pictures of 1 crop, found %" PRId64, k->n);
        *k = (struct llm_crops){.n = 1};
        return 0;
    }
    for (int64_t i = 0; i < c->projector.n_grids; i++)
        known |= k->rows == c->projector.grids[i][0] / side && k->columns == c->projector.grids[i][1] / side;
    if (known && k->n == 1 + k->rows * k->columns && k->height > 0 && k->width > 0) return 0;
    return llm_fail(e, EX_DATAERR, "expected the whole picture and tiles of one of image_grid_pinpoints, found %" PRId64 " crops, %" PRId64
                    " x %" PRId64 " of them tiles", k->n, k->rows, k->columns);
}

/* The integer below x after it is rounded to 7 decimals, as the model was trained to round. */
static int64_t nearly(double x)
{
    char text[40];
    snprintf(text, sizeof text, "%.7f", x);
    return strtoll(text, NULL, 10);
}

/* The rows at the top, and as many at the bottom, that lie beyond a picture of height x width which covers all `columns` of rows x columns. */
static int64_t beyond(int64_t height, int64_t width, int64_t rows, int64_t columns)
{
    return (rows - nearly((double)height * ((double)columns / (double)width))) / 2;
}

int64_t llm_picture_rows(const struct llm_config *c, const struct llm_crops *k, int32_t *row)
{
    const int64_t places = llm_config_crop_places(c), all = llm_config_crop_rows(c), side = across(c);
    const int64_t height = k->rows * side, width = k->columns * side;
    const int64_t plain = c->projector.n_grids == 0 ? k->n * places : places; /* that stand for the picture as they are */
    int64_t n = 0, top = 0, left = 0;
    for (int64_t i = 0; i < plain; i++, n++)
        if (row) row[n] = (int32_t)i;
    if (c->projector.n_grids == 0) return n;
    if ((double)k->width / (double)k->height > (double)width / (double)height) top = beyond(k->height, k->width, height, width);
    else left = beyond(k->width, k->height, width, height);
    for (int64_t y = top; y < height - top; y++) {
        for (int64_t x = left; x < width - left; x++, n++)
            if (row) row[n] = (int32_t)((1 + y / side * k->columns + x / side) * all + y % side * side + x % side);
        if (row) row[n] = (int32_t)places;
        n++;
    }
    return n;
}

/* What Idefics 3's processor puts in the place of a picture: each crop after tokens that say where it lies. */
static int framed(const struct llm_crops *k, int64_t places, const char *mark, int n_mark, struct llm_buf *text, struct llm_err *e)
{
    static const char fake[] = "<fake_token_around_image>";
    int status = 0;
    for (int64_t i = 0; i < k->n && status == 0; i++) {
        const bool whole = i == k->rows * k->columns;
        if (i > 0 && i % k->columns == 0) status = llm_buf_put(text, "\n\n", whole ? 2 : 1, e);
        if (status == 0 && whole) status = llm_buf_printf(text, e, "%s<global-img>", fake);
        else if (status == 0) status = llm_buf_printf(text, e, "%s<row_%" PRId64 "_col_%" PRId64 ">", fake, i / k->columns + 1, i % k->columns + 1);
        for (int64_t p = 0; p < places && status == 0; p++) status = llm_buf_put(text, mark, (size_t)n_mark, e);
    }
    return status == 0 ? llm_buf_put(text, fake, sizeof fake - 1, e) : -1;
}

int llm_picture_text(const struct llm_config *c, const struct llm_tokenizer *t, const struct llm_crops *k, int32_t **ids, size_t *n,
                     struct llm_err *e)
{
    const int64_t token = c->projector.image_token, rows = llm_picture_rows(c, k, NULL);
    struct llm_buf text = {0};
    size_t n_mark = 0;
    *ids = NULL;
    if (c->projector.shuffle == 0) {
        *n = (size_t)rows;
        *ids = llm_alloc(*n, sizeof **ids, "a picture's tokens", e);
        for (size_t i = 0; *ids && i < *n; i++) (*ids)[i] = (int32_t)token;
        return *ids ? 0 : -1;
    }
    const char *mark = t && token < llm_tokenizer_vocab_size(t) ? llm_tokenizer_piece(t, (int32_t)token, &n_mark) : NULL;
    if (!mark) return llm_fail(e, EX_DATAERR, "expected a tokenizer with a token %" PRId64 " (image_token_id), found none", token);
    int status = framed(k, llm_config_crop_places(c), mark, (int)n_mark, &text, e);
    if (status == 0) status = llm_encode(t, text.p, text.n, LLM_ENCODE_SPECIAL, ids, n, e);
    llm_buf_release(&text);
    int64_t found = 0;
    for (size_t i = 0; status == 0 && i < *n; i++) found += (*ids)[i] == token;
    if (status < 0 || found == rows) return status;
    free(*ids);
    *ids = NULL;
    return llm_fail(e, EX_DATAERR, "token %" PRId64 " (image_token_id): expected a special token, found a piece of text", token);
}

int llm_picture_patches(const struct llm_config *c, const struct llm_crops *k, const int32_t *ids, int64_t n, struct llm_patches *p,
                        struct llm_err *e)
{
    const bool alone = c->patch_size > 0;
    const int64_t together = c->projector.shuffle > 0 ? c->projector.shuffle : 1, patch = alone ? c->patch_size : c->vision.patch_size;
    struct llm_crops crops = *k;
    if (!alone && !llm_config_projects(c)) return llm_fail(e, EX_DATAERR, "expected tokens of a picture, found those of texts (%s)", c->model_type);
    if (!alone && llm_picture_check(c, &crops, e) < 0) return -1;
    p->side = (alone ? c->image_size / patch : across(c)) / together;
    p->pixels = p->side * together * patch;
    const int64_t patches = p->side * p->side, places = alone ? llm_config_picture_tokens(c) : llm_config_crop_places(c);
    const int64_t first = (c->projector.shuffle > 0 ? crops.n * places : places) - patches; /* Idefics 3 has the whole picture last */
    const int64_t wanted = alone ? places : llm_picture_rows(c, &crops, NULL);
    int64_t found = 0;
    p->token = llm_alloc((size_t)patches, sizeof *p->token, "a picture's patches", e);
    if (!p->token) return -1;
    for (int64_t t = 0; t < n; t++) {
        if (!alone && ids[t] != c->projector.image_token) continue;
        if (found >= first && found < first + patches) p->token[found - first] = (int32_t)t;
        found++;
    }
    if (found == wanted) return 0;
    free(p->token);
    p->token = NULL;
    return llm_fail(e, EX_DATAERR, "expected the %" PRId64 " tokens of one picture of %" PRId64 " crops, found %" PRId64, wanted, crops.n, found);
}

struct llm_crops llm_picture_least(const struct llm_config *c)
{
    const int64_t side = c->vision.image_size, *grid = c->projector.grids[0];
    if (c->projector.n_grids == 0) return (struct llm_crops){.n = 1};
    struct llm_crops k = {.rows = grid[0] / side, .columns = grid[1] / side, .height = grid[0], .width = grid[1]};
    k.n = 1 + k.rows * k.columns;
    return k;
}

json_t *llm_picture_preprocessor(const struct llm_config *c)
{
    const struct llm_projector *p = &c->projector;
    const json_int_t side = c->vision.image_size;
    if (p->shuffle > 0) {
        return json_pack("{s:s,s:{s:I},s:{s:I}}", "image_processor_type", "Idefics3ImageProcessor", "size", "longest_edge", 4 * side,
                         "max_image_size", "longest_edge", side);
    }
    json_t *o = json_pack("{s:s,s:{s:I},s:{s:I,s:I}}", "image_processor_type", p->n_grids > 0 ? "LlavaNextImageProcessor" : "CLIPImageProcessor",
                          "size", "shortest_edge", side, "crop_size", "height", side, "width", side), *grids = json_array();
    for (int64_t i = 0; i < p->n_grids; i++)
        json_array_append_new(grids, json_pack("[I,I]", (json_int_t)p->grids[i][0], (json_int_t)p->grids[i][1]));
    if (p->n_grids > 0) json_object_set(o, "image_grid_pinpoints", grids);
    json_decref(grids);
    return o;
}
