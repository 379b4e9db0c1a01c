#include "train/shown.h"

#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/hash.h"
#include "io/image.h"
#include "token/chat/picture_paths.h"

int llm_shown_init(struct llm_shown *s, struct llm_model *m, struct llm_err *e)
{
    const int64_t token = m->config.projector.image_token;
    size_t n = 0;
    const char *piece = m->tokenizer && token < llm_tokenizer_vocab_size(m->tokenizer) ? llm_tokenizer_piece(m->tokenizer, (int32_t)token, &n) : NULL;
    *s = (struct llm_shown){.config = m->config, .tokenizer = m->tokenizer};
    if (!piece || n == 0 || !(s->placeholder = strndup(piece, n))) {
        return llm_fail(e, EX_DATAERR, "expected a tokenizer with a token %lld (image_token_index), which stands for a picture, found none",
                        (long long)token);
    }
    if (!m->preprocessor && llm_model_give_preprocessor(m, llm_picture_preprocessor(&m->config), e) < 0) return -1;
    json_t *o = llm_json_parse(m->preprocessor, strlen(m->preprocessor), e);
    int status = o ? llm_image_processor_parse(o, &s->processor, e) : -1;
    json_decref(o);
    return status < 0 ? llm_in(e, "preprocessor_config.json") : 0;
}

void llm_shown_release(struct llm_shown *s)
{
    for (size_t i = 0; i < s->n; i++) free(s->v[i].path);
    free(s->v);
    free(s->placeholder);
    *s = (struct llm_shown){.n = 0};
}

/* Adds the bytes of a file to the hash. 0 or -1. */
static int hash_file(struct llm_shown *s, const char *path, struct llm_err *e)
{
    char block[1 << 14];
    int64_t got = 1;
    struct llm_file *f = llm_file_open(path, e);
    while (f && (got = llm_file_read_some(f, block, sizeof block, e)) > 0) s->hash = llm_xxh64(block, (size_t)got, s->hash);
    llm_file_close(f);
    return f && got == 0 ? 0 : -1;
}

/* Reads a picture and makes it what the model reads; `px` is released by the caller. 0 or -1. */
static int prepare(const struct llm_shown *s, const char *path, struct llm_pixels *px, struct llm_err *e)
{
    const struct llm_vision *v = &s->config.vision;
    struct llm_image im = {0};
    struct llm_file *f = llm_file_open(path, e);
    int status = f ? llm_image_read(f, &im, e) : -1;
    if (status == 0) status = llm_image_process(&s->processor, &im, px, e);
    if (status == 0) status = llm_picture_check(&s->config, &px->crops, e);
    if (status == 0 && (v->num_channels != 3 || px->height != v->image_size || px->width != v->image_size)) {
        status = llm_fail(e, EX_DATAERR, "expected crops of %lld x %lld pixels (the model's), found %lld x %lld", (long long)v->image_size,
                          (long long)v->image_size, (long long)px->width, (long long)px->height);
    }
    llm_file_close(f);
    llm_image_release(&im);
    return status < 0 ? llm_in(e, "%s", path) : 0;
}

/* How a picture is cut depends on its size, if it may have tiles. */
static int add(struct llm_shown *s, const char *path, struct llm_err *e)
{
    struct llm_pixels px = {.crops.n = 1};
    int status = hash_file(s, path, e);
    if (status == 0 && s->processor.cut != LLM_IMAGE_WHOLE) status = prepare(s, path, &px, e);
    const struct llm_crops crops = px.crops;
    llm_pixels_release(&px);
    if (status < 0 || llm_grow((void **)&s->v, &s->room, s->n + 1, sizeof *s->v, e) < 0) return -1;
    const int64_t places = llm_picture_rows(&s->config, &crops, NULL);
    if (s->next > INT32_MAX - s->config.vocab_size - places) return llm_fail(e, EX_UNAVAILABLE, "expected fewer pictures");
    s->v[s->n] = (struct llm_shown_file){strdup(path), crops, s->next};
    if (!s->v[s->n].path) return llm_no_memory(e, "a picture's path");
    s->next += places;
    s->n++;
    return 0;
}

int64_t llm_shown_find(const struct llm_shown *s, int64_t id)
{
    size_t from = 0, to = s->n;
    while (to - from > 1) {
        const size_t middle = (from + to) / 2;
        if (s->v[middle].first <= id - s->config.vocab_size) from = middle;
        else to = middle;
    }
    return (int64_t)from;
}

/* The conversation's tokens with the pictures' own, of which the first has number `picture`. */
static int widen(const struct llm_shown *s, size_t picture, struct llm_conversation *c, struct llm_err *e)
{
    struct llm_conversation wide = {.ids = NULL};
    int status = 0;
    for (size_t i = 0; i < c->n && status == 0; i++) {
        if (c->ids[i] != s->config.projector.image_token) {
            status = llm_conversation_add(&wide, &c->ids[i], 1, c->mask[i], e);
            continue;
        }
        const struct llm_shown_file *f = &s->v[picture++];
        int32_t *text = NULL, next = (int32_t)(s->config.vocab_size + f->first);
        size_t n = 0;
        status = llm_picture_text(&s->config, s->tokenizer, &f->crops, &text, &n, e);
        for (size_t k = 0; k < n && status == 0; k++)
            if (text[k] == s->config.projector.image_token) text[k] = next++;
        if (status == 0) status = llm_conversation_add(&wide, text, n, 0, e);
        free(text);
    }
    if (status == 0) {
        c->n = 0;
        for (size_t i = 0; i < wide.n && status == 0; i++) status = llm_conversation_add(c, &wide.ids[i], 1, wide.mask[i], e);
    }
    llm_conversation_release(&wide);
    return status;
}

int llm_shown_put(struct llm_shown *s, const json_t *line, const json_t *messages, struct llm_conversation *c, struct llm_err *e)
{
    struct llm_picture_paths named = {0}, paths = {0};
    const size_t before = s->n;
    size_t found = 0, said = 0;
    int status = llm_picture_paths_line(line, &named, e);
    if (status == 0) status = llm_picture_paths_messages(messages, &named, &paths, e);
    for (size_t i = 0; i < c->n; i++) {
        found += c->ids[i] == s->config.projector.image_token;
        said += c->ids[i] == s->config.projector.image_token && c->mask[i];
    }
    if (status == 0 && (found != paths.n || said > 0)) {
        status = llm_fail(e, EX_DATAERR, "expected as many placeholders of pictures (token %lld), none of the assistant, as there are pictures, %zu, "
                          "found %zu", (long long)s->config.projector.image_token, paths.n, found);
    }
    for (size_t i = 0; i < paths.n && status == 0; i++) status = add(s, paths.v[i], e);
    if (status == 0 && paths.n > 0) status = widen(s, before, c, e);
    free(named.v);
    free(paths.v);
    return status;
}

int llm_shown_get(const struct llm_shown *s, int64_t k, float *pixels, struct llm_err *e)
{
    struct llm_pixels px = {0};
    int status = prepare(s, s->v[k].path, &px, e);
    if (status == 0 && memcmp(&px.crops, &s->v[k].crops, sizeof px.crops) != 0)
        status = llm_fail(e, EX_DATAERR, "%s: the picture has changed during the run", s->v[k].path);
    if (status == 0) memcpy(pixels, px.v, (size_t)(px.crops.n * llm_vision_floats(&s->config.vision)) * sizeof *pixels);
    llm_pixels_release(&px);
    return status;
}
