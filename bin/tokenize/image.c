/* llm-tokenize image: pictures to the numbers that a model reads, as messages of kind "images". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/progress.h"
#include "io/idx.h"
#include "io/image.h"
#include "io/message.h"
#include "token/image/processor.h"
#include "bin/tokenize/tokenize.h"

#define IDX_PICTURES 64            /* of an IDX file in a message */
#define MAX_LINE ((size_t)1 << 24)

struct args {
    struct llm_common common;
    const char *model, *labels, *field;
    int jsonl, pillow;             /* pillow: 0: as 13; 1: as 12 */
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {0, "for", "MODEL", "a folder with preprocessor_config.json, or that file: how its model wants pictures", LLM_INPUT, AT(model), 0, 0, NULL},
    {0, "labels", "IDX", "the class of each picture of an IDX file of pictures, as an IDX file", LLM_INPUT, AT(labels), 0, 0, NULL},
    {0, "jsonl", NULL, "each line is a JSON object with the path of a picture, and perhaps \"text\" and \"label\"", LLM_FLAG, AT(jsonl), 0, 0, NULL},
    {0, "field", "NAME", "key of the path in a line of --jsonl [image]", LLM_STR, AT(field), 0, 0, NULL},
    {0, "pillow", "VERSION", "resize as this version of Pillow does; 12: as all before 13 [13]", LLM_CHOICE, AT(pillow), 0, 0, "13|12"},
    {0}};

static const struct llm_foreign foreign[] = {{"--image", "files are operands"}, {"--input", "files are operands"},
                                             {"--mmproj", "--for names the model whose preprocessor_config.json counts"}, {0}};

const struct llm_cli tokenize_image_cli = {
    .name = "llm-tokenize image",
    .summary = "Turn pictures (PNG, JPEG, IDX) into the numbers that a model reads: messages of kind images.",
    .usage = "[OPTION]... [FILE]...",
    .examples = "llm-tokenize image --for clip-vit-base-patch32 cat.jpg dog.png > pictures.images\n"
                "llm-tokenize image --for model --jsonl captions.jsonl > pairs.images\n"
                "llm-tokenize image --labels train-labels-idx1-ubyte train-images-idx3-ubyte > train.images",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_OUTPUT,
    .foreign = foreign,
};

struct job {
    const struct args *a;
    struct llm_image_processor processor;
    struct llm_writer *w;
    struct llm_pixels pixels;
    struct llm_file *labels;       /* NULL: none */
    struct llm_idx label_idx;
    uint64_t pictures;
};

/* One message: `pictures` of the same shape, one after another at `v`; `label` NULL: none. `text` may be NULL. */
static int message(struct job *j, const char *source, const char *text, const float *v, const int64_t shape[5], const int64_t *label,
                   const struct llm_crops *crops, struct llm_err *e)
{
    struct llm_tensor_out t[2] = {{.name = "pixel_values", .dtype = LLM_F32, .n_dims = 5, .data = v},
                                  {.name = "labels", .dtype = LLM_I64, .n_dims = 1, .shape = {shape[0]}, .data = label}};
    memcpy(t[0].shape, shape, 5 * sizeof *shape);
    json_t *meta = json_object();
    int bad = !meta || json_object_set_new(meta, "llm.image.source", llm_json_text(source, strlen(source))) < 0;
    if (text) bad |= json_object_set_new(meta, "llm.text", llm_json_text(text, strlen(text))) < 0;
    if (crops->rows) {
        bad |= json_object_set_new(meta, "llm.image.grid", json_sprintf("%" PRId64 " %" PRId64, crops->rows, crops->columns)) < 0;
        bad |= json_object_set_new(meta, "llm.image.size", json_sprintf("%" PRId64 " %" PRId64, crops->height, crops->width)) < 0;
    }
    bad = bad ? llm_no_memory(e, "a message") : llm_writer_message(j->w, "images", meta, t, label ? 2 : 1, e);
    json_decref(meta);
    j->pictures += (uint64_t)shape[0];
    return bad;
}

static int picture(struct job *j, struct llm_file *f, const char *text, const int64_t *label, struct llm_err *e)
{
    struct llm_image im;
    if (llm_image_read(f, &im, e) < 0) return -1;
    int bad = llm_image_process(&j->processor, &im, &j->pixels, e);
    llm_image_release(&im);
    const struct llm_pixels *px = &j->pixels;
    if (bad < 0) return llm_in(e, "%s", llm_file_name(f));
    return message(j, llm_file_name(f), text, px->v, (const int64_t[]){1, px->crops.n, 3, px->height, px->width}, label,
                   &px->crops, e);
}

/* Grey pictures of bytes become [pictures, 1, 1, height, width], or three channels where a model is named. */
static int idx_batch(struct job *j, const struct llm_idx *x, const unsigned char *bytes, int64_t n, const int64_t *labels, struct llm_err *e)
{
    int64_t area = x->shape[1] * x->shape[2], crops = 1, height = x->shape[1], width = x->shape[2];
    struct llm_pixels *px = &j->pixels, all = {0};
    int bad = 0;
    if (!j->a->model) {
        if (llm_grow((void **)&all.v, &all.room, (size_t)(n * area), sizeof *all.v, e) < 0) return -1;
        for (int64_t i = 0; i < n * area; i++) all.v[i] = (float)(bytes[i] * j->processor.factor);
        bad = message(j, llm_file_name(x->f), NULL, all.v, (const int64_t[]){n, 1, 1, height, width}, labels, &(struct llm_crops){.n = 1}, e);
    }
    for (int64_t i = 0; i < n && bad == 0 && j->a->model; i++) {
        struct llm_image im;
        bad = llm_image_alloc(&im, width, height, e);
        if (bad < 0) break;
        for (int64_t k = 0; k < area; k++) memset(im.rgb + k * 3, bytes[i * area + k], 3);
        bad = llm_image_process(&j->processor, &im, px, e);
        llm_image_release(&im);
        int64_t size = bad < 0 ? 0 : px->crops.n * 3 * px->height * px->width;
        if (bad == 0) bad = llm_grow((void **)&all.v, &all.room, (size_t)((i + 1) * size), sizeof *all.v, e);
        if (bad == 0) memcpy(all.v + i * size, px->v, (size_t)size * sizeof *all.v);
        crops = px->crops.n;
    }
    if (bad == 0 && j->a->model) {
        bad = message(j, llm_file_name(x->f), NULL, all.v, (const int64_t[]){n, crops, 3, px->height, px->width}, labels, &px->crops,
                      e);
    }
    llm_pixels_release(&all);
    return bad;
}

static int idx_file(struct job *j, struct llm_file *f, struct llm_err *e)
{
    struct llm_idx x;
    int64_t labels[IDX_PICTURES];
    unsigned char classes[IDX_PICTURES], *bytes = NULL;
    if (llm_idx_open(&x, f, 3, e) < 0) return -1;
    if (x.shape[1] > LLM_IMAGE_MAX_PIXELS / x.shape[2] / IDX_PICTURES)
        return llm_file_bad(f, e, "pictures of %" PRId64 " x %" PRId64, x.shape[2], x.shape[1]);
    if (j->labels && j->label_idx.shape[0] != x.shape[0])
        return llm_fail(e, EX_DATAERR, "%s: expected %" PRId64 " labels, as there are pictures in %s, found %" PRId64, llm_file_name(j->labels),
                        x.shape[0], llm_file_name(f), j->label_idx.shape[0]);
    int64_t area = x.shape[1] * x.shape[2];
    if (!(bytes = llm_alloc((size_t)area, IDX_PICTURES, "pictures", e))) return -1;
    int bad = 0;
    for (int64_t i = 0; i < x.shape[0] && bad == 0; i += IDX_PICTURES) {
        int64_t n = x.shape[0] - i < IDX_PICTURES ? x.shape[0] - i : IDX_PICTURES;
        bad = llm_file_read(f, bytes, (size_t)(n * area), e);
        if (bad == 0 && j->labels) bad = llm_file_read(j->labels, classes, (size_t)n, e);
        for (int64_t k = 0; k < n && j->labels && bad == 0; k++) labels[k] = classes[k];
        if (bad == 0) bad = idx_batch(j, &x, bytes, n, j->labels ? labels : NULL, e);
    }
    free(bytes);
    if (bad == 0) bad = llm_idx_end(&x, e);
    return bad == 0 && j->labels ? llm_idx_end(&j->label_idx, e) : bad;
}

static int json_line(struct job *j, const char *p, size_t n, struct llm_err *e)
{
    const char *path = NULL, *text = NULL, *key = j->a->field ? j->a->field : "image";
    int64_t label = -1;
    json_t *o = llm_json_parse(p, n, e);
    if (!o) return -1;
    int bad = !json_is_object(o) ? llm_fail(e, EX_DATAERR, "expected an object") : 0;
    if (bad == 0) bad = llm_json_str(o, key, &path, e);
    if (bad == 0) bad = llm_json_str(o, "text", &text, e);
    if (bad == 0) bad = llm_json_int(o, "label", 0, INT32_MAX, &label, e);
    if (bad == 0 && !path) bad = llm_fail(e, EX_DATAERR, "expected \"%s\", the path of a picture", key);
    struct llm_file *f = bad == 0 ? llm_file_open(path, e) : NULL;
    bad = f ? picture(j, f, text, label < 0 ? NULL : &label, e) : -1;
    llm_file_close(f);
    json_decref(o);
    return bad;
}

static int json_file(struct job *j, struct llm_file *f, struct llm_err *e)
{
    struct llm_buf line = {0};
    uint64_t number = 0;
    int bad = 0, at_end = 0;
    while (bad == 0 && (at_end = llm_file_at_end(f, e)) == 0) {
        size_t got = 0;
        const unsigned char *p = llm_file_peek(f, 1 << 16, &got, e), *end = p ? memchr(p, '\n', got) : NULL;
        size_t n = end ? (size_t)(end - p) + 1 : got;
        if (!p || llm_buf_reserve(&line, line.n + n, e) < 0 || llm_file_read(f, line.p + line.n, n, e) < 0) bad = -1;
        else line.n += n;
        if (bad == 0 && line.n > MAX_LINE) bad = llm_file_bad(f, e, "a line of more than %zu bytes", MAX_LINE);
        if (bad < 0 || (!end && llm_file_at_end(f, e) == 0)) continue;
        number++;
        while (line.n > 0 && (line.p[line.n - 1] == '\n' || line.p[line.n - 1] == '\r')) line.n--;
        if (line.n > 0 && json_line(j, line.p, line.n, e) < 0) bad = llm_in(e, "%s: line %" PRIu64, llm_file_name(f), number);
        line.n = 0;
    }
    llm_buf_release(&line);
    return bad < 0 || at_end < 0 ? -1 : 0;
}

static int one_file(struct job *j, const char *path, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    if (!f) return -1;
    int bad;
    if (j->a->jsonl) bad = json_file(j, f, e);
    else if (llm_idx_begins(f)) bad = idx_file(j, f, e);
    else if (j->labels) bad = llm_file_bad(f, e, "--labels: expected an IDX file of pictures");
    else bad = picture(j, f, NULL, NULL, e);
    llm_file_close(f);
    return bad;
}

int tokenize_image(int argc, char **argv)
{
    struct args a = {0};
    struct llm_err e = {0};
    struct job j = {.a = &a};
    int rest = llm_cli_parse(&tokenize_image_cli, &a, argc, argv), n_files = argc - rest;
    if (a.field && !a.jsonl)
        llm_usage(&tokenize_image_cli, "--field needs --jsonl");
    if (a.labels && (a.jsonl || n_files > 1))
        llm_usage(&tokenize_image_cli, "--labels: only with one IDX file of pictures");
    check_inputs(&tokenize_image_cli, a.labels, argv + rest, n_files);
    llm_image_processor_plain(&j.processor);
    int bad = a.model ? llm_image_processor_load(a.model, &j.processor, &e) : 0;
    j.processor.columns_first = a.pillow == 1;
    if (bad == 0 && a.labels) {
        j.labels = llm_file_open(a.labels, &e);
        bad = j.labels ? llm_idx_open(&j.label_idx, j.labels, 1, &e) : -1;
    }
    struct llm_output *out = bad == 0 ? llm_output_open(a.common.output, true, &e) : NULL;
    j.w = out ? llm_writer_create(out, &e) : NULL;
    bad = j.w ? 0 : -1;
    if (bad == 0 && n_files == 0) bad = one_file(&j, "-", &e);
    for (int i = 0; i < n_files && bad == 0; i++) bad = one_file(&j, argv[rest + i], &e);
    if (bad == 0) bad = llm_writer_end(j.w, &e);
    llm_writer_destroy(j.w);
    if (bad == 0) bad = llm_output_commit(out, &e);
    else llm_output_abandon(out);
    llm_file_close(j.labels);
    llm_pixels_release(&j.pixels);
    if (bad < 0)
        return llm_report(&e);
    llm_verbose("%" PRIu64 " pictures", j.pictures);
    return 0;
}
