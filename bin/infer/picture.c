/* --image: vectors or classes of pictures. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "bin/infer/infer.h"
#include "infer/embed.h"
#include "io/message.h"
#include "io/sniff.h"
#include "token/image/processor.h"

struct run {
    struct session *s;
    struct llm_table table;        /* of --classify */
    struct llm_writer *w;          /* of --embed */
    json_t *meta;
    float *vectors;                /* [pictures of a message, hidden_size] */
    size_t vectors_room;
    double *classes;
    int64_t n;                     /* pictures so far */
};

/* What a message has: [pictures, 1, channels, side, side] as the model wants them. */
static int check_shape(const struct run *r, const int64_t shape[5], struct llm_err *e)
{
    const struct llm_config *f = &r->s->model->config;
    if (shape[1] == 1 && shape[2] == f->num_channels && shape[3] == f->image_size && shape[4] == f->image_size) return 0;
    return llm_fail(e, EX_DATAERR, "expected pictures of 1 crop, %" PRId64 " channels, %" PRId64 " x %" PRId64 " pixels (the model's); found %" PRId64
                    ", %" PRId64 ", %" PRId64 " x %" PRId64, f->num_channels, f->image_size, f->image_size, shape[1], shape[2], shape[4], shape[3]);
}

static int take(struct run *r, const float *pixels, int64_t n, struct llm_err *e)
{
    struct session *s = r->s;
    int64_t width = s->model->config.hidden_size, kept = embed_dims(s);
    if (llm_grow((void **)&r->vectors, &r->vectors_room, (size_t)(n * width), sizeof *r->vectors, e) < 0) return -1;
    int status = llm_embed_pictures(&s->engine, pixels, n, s->pool, r->vectors, e);
    for (int64_t i = 0; i < n && status == 0; i++) {
        float *v = r->vectors + i * width;
        r->n++;
        if (s->a->classify) {
            status = classes_add(s, &r->table, r->n, v, r->classes, e);
        } else {
            memmove(r->vectors + i * kept, v, (size_t)kept * sizeof *v);
            llm_embed_normalize(r->vectors + i * kept, kept, s->normalize);
        }
    }
    if (status != 0 || s->a->classify) return status;
    struct llm_tensor_out t = {"embeddings", LLM_F32, 2, {n, kept}, r->vectors};
    return llm_writer_message(r->w, "embeddings", r->meta, &t, 1, e);
}

/* The pictures of one message, whose other tensors are skipped. */
static int take_message(struct run *r, struct llm_stream *in, const struct llm_header *h, struct llm_err *e)
{
    const struct llm_entry *t = llm_header_find(h, "pixel_values");
    if (!h->kind || strcmp(h->kind, "images") != 0 || !t || t->dtype != LLM_F32 || t->n_dims != 5)
        return llm_fail(e, EX_DATAERR, "expected messages of kind images with pixel_values (llm-tokenize image)");
    if (check_shape(r, t->shape, e) < 0) return -1;
    unsigned char skipped[4096];
    for (uint64_t at = 0, step; at < t->offset; at += step) {
        step = t->offset - at < sizeof skipped ? t->offset - at : sizeof skipped;
        if (llm_stream_read(in, skipped, (size_t)step, e) < 0) return -1;
    }
    int64_t size = t->shape[2] * t->shape[3] * t->shape[4], some = t->shape[0] < 64 ? t->shape[0] : 64;
    float *pixels = llm_alloc((size_t)some, (size_t)size * sizeof *pixels, "pictures", e);
    int status = pixels ? 0 : -1;
    for (int64_t at = 0; at < t->shape[0] && status == 0; at += some) {
        int64_t n = t->shape[0] - at < some ? t->shape[0] - at : some;
        status = llm_stream_read(in, pixels, (size_t)(n * size) * sizeof *pixels, e);
        if (status == 0) status = take(r, pixels, n, e);
    }
    free(pixels);
    return status;
}

static int take_stream(struct run *r, struct llm_file *f, struct llm_err *e)
{
    const struct llm_header *h;
    struct llm_stream *in = llm_stream_from_file(f, e);
    int got = in ? 0 : -1, status = got;
    while (status == 0 && (got = llm_stream_next(in, &h, e)) == 1) {
        status = take_message(r, in, h, e);
        if (status < 0) llm_in(e, "%s", llm_stream_name(in));
    }
    llm_stream_destroy(in);
    return got < 0 ? -1 : status;
}

/* A picture itself, made what the model's folder says. */
static int take_picture(struct run *r, struct llm_file *f, struct llm_err *e)
{
    struct llm_image_processor p;
    struct llm_pixels px = {0};
    struct llm_image im;
    if (llm_image_processor_load(r->s->a->model, &p, e) < 0) return llm_in(e, "--image of a picture that llm-tokenize image did not prepare");
    if (llm_image_read(f, &im, e) < 0) return -1;
    int status = llm_image_process(&p, &im, &px, e);
    if (status == 0) status = check_shape(r, (const int64_t[]){1, px.crops, 3, px.height, px.width}, e);
    if (status < 0) llm_in(e, "%s", llm_file_name(f));
    if (status == 0) status = take(r, px.v, 1, e);
    llm_image_release(&im);
    llm_pixels_release(&px);
    return status;
}

int run_pictures(struct session *s, struct llm_err *e)
{
    struct run r = {.s = s};
    enum llm_content content;
    enum llm_table_form form = classes_begin(s, &r.table, true);
    struct llm_file *f = llm_file_open(s->a->image, e);
    int status = f ? llm_sniff(f, &content, e) : -1;
    if (status == 0 && s->a->embed) {
        if (llm_model_fingerprint(s->model, e) == 0) r.meta = json_pack("{s:s}", "llm.fingerprint", s->model->fingerprint);
        r.w = r.meta ? llm_writer_create(s->out, e) : NULL;
        status = r.w ? 0 : -1;
    } else if (status == 0) {
        r.classes = llm_alloc((size_t)s->model->config.num_labels, sizeof *r.classes, "classes", e);
        status = r.classes ? 0 : -1;
    }
    if (status == 0 && content == LLM_CONTENT_MESSAGE) {
        status = take_stream(&r, f, e);
        f = NULL; /* the stream took it over */
    } else if (status == 0) {
        status = take_picture(&r, f, e);
    }
    llm_file_close(f);
    if (status == 0) status = s->a->embed ? llm_writer_end(r.w, e) : llm_table_write(&r.table, form, s->out, e);
    llm_writer_destroy(r.w);
    llm_table_release(&r.table);
    json_decref(r.meta);
    free(r.vectors);
    free(r.classes);
    return status;
}
