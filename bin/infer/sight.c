/* Pictures: read from files for --embed and --classify, or put into the places of texts that stand for them. */
#include "bin/infer/sight.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "data/pictures.h"
#include "io/message.h"
#include "io/sniff.h"
#include "token/image/processor.h"

/* A reading of a file of pictures, which gives them to `take`. Embeddings of pictures, which sight_write wrote, go to `embeddings`; NULL: they are
 * refused. */
struct reader { struct session *s; sight_take *take, *embeddings; void *arg; };

/* Whether crops [.., channels, height, width] are what the model reads, and a picture of such crops is. 0 or -1. */
static int check_shape(const struct reader *r, int64_t channels, int64_t height, int64_t width, struct llm_crops *k, struct llm_err *e)
{
    struct llm_config sees;
    const struct llm_config *f = &sees, *c = &r->s->model->config;
    (void)llm_config_sees(c, &sees); /* it does: checked when the model was loaded */
    if (llm_config_projects(c) && llm_picture_check(c, k, e) < 0) return -1;
    if ((llm_config_projects(c) || k->n == 1) && channels == f->num_channels && height == f->image_size && width == f->image_size) return 0;
    return llm_fail(e, EX_DATAERR, "expected pictures of 1 crop, %" PRId64 " channels, %" PRId64 " x %" PRId64 " pixels (the model's); found %" PRId64
                    ", %" PRId64 ", %" PRId64 " x %" PRId64, f->num_channels, f->image_size, f->image_size, k->n, channels, width, height);
}

/* Two integers of at least 1 in the metadata; 0 without such. */
static void read_pair(const struct llm_header *h, const char *key, int64_t *a, int64_t *b)
{
    const char *text = llm_header_meta(h, key);
    char *end = NULL;
    *a = text ? strtoll(text, &end, 10) : 0;
    *b = end ? strtoll(end, &end, 10) : 0;
    if (*a < 1 || *b < 1 || *a > 1 << 20 || *b > 1 << 20 || *end) *a = *b = 0;
}

/* The metadata of a message about how the crops make a picture (formats/images.md). */
static struct llm_crops read_crops(const struct llm_header *h)
{
    struct llm_crops k;
    read_pair(h, "llm.image.grid", &k.rows, &k.columns);
    read_pair(h, "llm.image.size", &k.height, &k.width);
    k.n = 1 + k.rows * k.columns;
    return k;
}

/* The embeddings of one picture. */
static int take_embeddings(struct reader *r, struct llm_stream *in, const struct llm_header *h, struct llm_err *e)
{
    const struct llm_config *c = &r->s->model->config;
    struct llm_crops k = read_crops(h);
    if (llm_picture_check(c, &k, e) < 0) return -1;
    const int64_t places = llm_picture_rows(c, &k, NULL), width = c->hidden_size;
    const char *fingerprint = llm_header_meta(h, "llm.fingerprint");
    const struct llm_entry *t = llm_header_find(h, "embeddings");
    if (llm_model_fingerprint(r->s->model, e) < 0) return -1;
    if (!fingerprint || strcmp(fingerprint, r->s->model->fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "llm.fingerprint: expected embeddings that this model made (%s), found %s", r->s->model->fingerprint,
                        fingerprint ? fingerprint : "none");
    }
    if (!t || h->n_entries != 1 || t->dtype != LLM_F32 || t->n_dims != 2 || t->shape[0] != places || t->shape[1] != width) {
        return llm_fail(e, EX_DATAERR, "expected one tensor 'embeddings' of f32 [%" PRId64 ", %" PRId64 "], found another", places, width);
    }
    float *rows = llm_alloc((size_t)places, (size_t)width * sizeof *rows, "a picture", e);
    int status = rows ? llm_stream_read(in, rows, (size_t)(places * width) * sizeof *rows, e) : -1;
    if (status == 0) status = r->embeddings(r->arg, rows, 1, &k, e);
    free(rows);
    return status;
}

/* The pictures of one message, whose other tensors are skipped. */
static int take_message(struct reader *r, struct llm_stream *in, const struct llm_header *h, struct llm_err *e)
{
    const char *kind = llm_header_meta(h, "llm.kind");
    if (r->embeddings && kind && strcmp(kind, "embeddings") == 0) return take_embeddings(r, in, h, e);
    const struct llm_entry *t = llm_pictures_find(h, e);
    struct llm_crops k = read_crops(h);
    if (!t) return -1;
    if (k.n != t->shape[1]) k = (struct llm_crops){.n = t->shape[1]};
    if (check_shape(r, t->shape[2], t->shape[3], t->shape[4], &k, e) < 0) return -1;
    unsigned char skipped[4096];
    for (uint64_t at = 0, step; at < t->offset; at += step) {
        step = t->offset - at < sizeof skipped ? t->offset - at : sizeof skipped;
        if (llm_stream_read(in, skipped, (size_t)step, e) < 0) return -1;
    }
    int64_t size = t->shape[1] * t->shape[2] * t->shape[3] * t->shape[4], some = t->shape[0] < 64 ? t->shape[0] : 64;
    float *pixels = llm_alloc((size_t)some, (size_t)size * sizeof *pixels, "pictures", e);
    int status = pixels ? 0 : -1;
    for (int64_t at = 0; at < t->shape[0] && status == 0; at += some) {
        int64_t n = t->shape[0] - at < some ? t->shape[0] - at : some;
        status = llm_stream_read(in, pixels, (size_t)(n * size) * sizeof *pixels, e);
        if (status == 0) status = r->take(r->arg, pixels, n, &k, e);
    }
    free(pixels);
    return status;
}

static int take_stream(struct reader *r, struct llm_file *f, struct llm_err *e)
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

/* How the model wants pictures, as its folder or file says, or the mmproj file beside it. 0 or -1. */
static int load_processor(const struct session *s, struct llm_image_processor *p, struct llm_err *e)
{
    if (!s->a->mmproj) return llm_image_processor_load(s->a->model, p, e);
    json_t *o = llm_json_parse(s->model->preprocessor, strlen(s->model->preprocessor), e);
    int status = o ? llm_image_processor_parse(o, p, e) : -1;
    json_decref(o);
    return status < 0 ? llm_in(e, "%s", s->a->mmproj) : 0;
}

/* A picture itself, made what the model's folder says. */
static int take_picture(struct reader *r, struct llm_file *f, struct llm_err *e)
{
    struct llm_image_processor p;
    struct llm_pixels px = {0};
    struct llm_image im;
    if (load_processor(r->s, &p, e) < 0) return llm_in(e, "--image of a picture that llm-tokenize image did not prepare");
    if (llm_image_read(f, &im, e) < 0) return -1;
    int status = llm_image_process(&p, &im, &px, e);
    if (status == 0) status = check_shape(r, 3, px.height, px.width, &px.crops, e);
    if (status < 0) llm_in(e, "%s", llm_file_name(f));
    if (status == 0) status = r->take(r->arg, px.v, 1, &px.crops, e);
    llm_image_release(&im);
    llm_pixels_release(&px);
    return status;
}

static int read_file(struct reader *r, const char *path, struct llm_err *e)
{
    enum llm_content content;
    struct llm_file *f = llm_file_open(path, e);
    int status = f ? llm_sniff(f, &content, e) : -1;
    if (status == 0 && content == LLM_CONTENT_MESSAGE) {
        status = take_stream(r, f, e);
        f = NULL; /* the stream took it over */
    } else if (status == 0) {
        status = take_picture(r, f, e);
    }
    llm_file_close(f);
    return status;
}

int sight_read(struct session *s, const char *path, sight_take *take, void *arg, struct llm_err *e)
{
    return read_file(&(struct reader){.s = s, .take = take, .arg = arg}, path, e);
}

/* ---- pictures of a text ---- */

bool sight_is(const struct session *s) { return llm_config_projects(&s->model->config); }

int sight_open(struct session *s, struct llm_err *e)
{
    size_t n = 0;
    const struct llm_tokenizer *t = sight_is(s) ? s->model->tokenizer : NULL;
    const char *piece = t ? llm_tokenizer_piece(t, (int32_t)s->model->config.projector.image_token, &n) : NULL;
    if (!piece) return 0;
    return llm_buf_put(&s->placeholder, piece, n, e) < 0 || llm_buf_put(&s->placeholder, "", 1, e) < 0 ? -1 : 0;
}

/* A picture as it was read: at `at` of the pixels' floats its own, or its embeddings if `given`; the tokens that stand for it (llm_picture_text). */
struct picture { size_t at; bool given; struct llm_crops crops; int64_t places; int32_t *text; size_t n_text; };
struct pictures { struct session *s; float *v; struct picture *p; size_t n_v, v_room, n, room; };

static int keep_one(struct pictures *p, const float *data, int64_t n, bool given, const struct llm_crops *k, struct llm_err *e)
{
    if (llm_grow((void **)&p->v, &p->v_room, p->n_v + (size_t)n, sizeof *p->v, e) < 0
        || llm_grow((void **)&p->p, &p->room, p->n + 1, sizeof *p->p, e) < 0) return -1;
    memcpy(p->v + p->n_v, data, (size_t)n * sizeof *p->v);
    p->p[p->n++] = (struct picture){.at = p->n_v, .given = given, .crops = *k, .places = llm_picture_rows(&p->s->model->config, k, NULL)};
    p->n_v += (size_t)n;
    return 0;
}

static int keep(void *arg, const float *pixels, int64_t n, const struct llm_crops *k, struct llm_err *e)
{
    struct pictures *p = arg;
    const int64_t each = k->n * llm_vision_floats(&p->s->model->config.vision);
    for (int64_t i = 0; i < n; i++)
        if (keep_one(p, pixels + i * each, each, false, k, e) < 0) return -1;
    return 0;
}

static int keep_embeddings(void *arg, const float *rows, int64_t n, const struct llm_crops *k, struct llm_err *e)
{
    struct pictures *p = arg;
    const struct llm_config *c = &p->s->model->config;
    return n == 1 ? keep_one(p, rows, llm_picture_rows(c, k, NULL) * c->hidden_size, true, k, e) : -1;
}

static void release_pictures(struct pictures *p)
{
    for (size_t i = 0; i < p->n; i++) free(p->p[i].text);
    free(p->v);
    free(p->p);
}

/* Reads the pictures of all files, or what llm-infer made of pictures. `p` is released by the caller, after a failure too. 0 or -1. */
static int read_all(struct session *s, const struct llm_strs *paths, struct pictures *p, struct llm_err *e)
{
    struct reader r = {s, keep, keep_embeddings, p};
    *p = (struct pictures){.s = s};
    for (size_t i = 0; i < paths->n; i++)
        if (read_file(&r, paths->v[i], e) < 0) return -1;
    return 0;
}

/* The tokens of all pictures. 0 or -1. */
static int find_texts(const struct session *s, struct pictures *p, struct llm_err *e)
{
    for (size_t i = 0; i < p->n; i++)
        if (llm_picture_text(&s->model->config, s->model->tokenizer, &p->p[i].crops, &p->p[i].text, &p->p[i].n_text, e) < 0) return -1;
    return 0;
}

/* Gives picture i to the engine. 0 or -1. */
static int show(struct session *s, const struct pictures *p, size_t i, int32_t *first, struct llm_err *e)
{
    const struct picture *one = &p->p[i];
    return (one->given ? llm_engine_show_embeddings : llm_engine_show)(&s->engine, p->v + one->at, &one->crops, first, e);
}

/* The metadata of a picture's embeddings. NULL: out of memory. */
static json_t *meta_of(const struct session *s, const struct llm_crops *k)
{
    json_t *o = json_pack("{s:s}", "llm.fingerprint", s->model->fingerprint);
    if (o && k->rows > 0) json_object_set_new(o, "llm.image.grid", json_sprintf("%" PRId64 " %" PRId64, k->rows, k->columns));
    if (o && k->height > 0) json_object_set_new(o, "llm.image.size", json_sprintf("%" PRId64 " %" PRId64, k->height, k->width));
    return o;
}

int sight_write(struct session *s, struct llm_err *e)
{
    struct pictures p;
    int status = read_all(s, &s->a->images, &p, e);
    if (status == 0) status = llm_model_fingerprint(s->model, e);
    struct llm_writer *w = status == 0 ? llm_writer_create(s->out, e) : NULL;
    if (!w) status = -1;
    for (size_t i = 0; i < p.n && status == 0; i++) {
        int32_t first;
        json_t *meta = meta_of(s, &p.p[i].crops);
        status = meta ? show(s, &p, i, &first, e) : llm_no_memory(e, "a picture");
        const struct llm_tensor_out t = {"embeddings", LLM_F32, 2, {p.p[i].places, s->model->config.hidden_size},
                                         status == 0 ? llm_engine_shown(&s->engine, first) : NULL};
        if (status == 0) status = llm_writer_message(w, "embeddings", meta, &t, 1, e);
        if (status == 0) llm_engine_forget(&s->engine, first);
        json_decref(meta);
    }
    if (status == 0) status = llm_writer_end(w, e);
    llm_writer_destroy(w);
    release_pictures(&p);
    return status;
}

/* The ids with the tokens of each picture in the place of its one placeholder. *ids is malloced, and replaced. 0 or -1. */
static int expand(const struct llm_config *c, const struct pictures *p, int32_t **ids, size_t *n, struct llm_err *e)
{
    size_t n_wide = *n, at = 0, picture = 0;
    for (size_t i = 0; i < p->n; i++) n_wide += p->p[i].n_text - 1;
    int32_t *wide = llm_alloc(n_wide, sizeof *wide, "a prompt", e);
    if (!wide) return -1;
    for (size_t i = 0; i < *n; i++) {
        if ((*ids)[i] != c->projector.image_token) {
            wide[at++] = (*ids)[i];
            continue;
        }
        const struct picture *one = &p->p[picture++];
        memcpy(wide + at, one->text, one->n_text * sizeof *wide);
        at += one->n_text;
    }
    free(*ids);
    *ids = wide;
    *n = n_wide;
    return 0;
}

/* Checks that ids from *at on have the placeholders of a picture as its tokens have them, and moves *at after the last. 0 or -1. */
static int check_places(const struct llm_config *c, const struct picture *one, const int32_t *ids, size_t n, size_t *at, struct llm_err *e)
{
    const int32_t mark = (int32_t)c->projector.image_token;
    size_t k = 0;
    int64_t found = 0;
    while (k < one->n_text && one->text[k] != mark) k++;
    while (k < one->n_text && *at < n && ids[*at] != mark) (*at)++;
    for (; found < one->places && *at < n && ids[*at] == one->text[k]; k++, (*at)++) found += one->text[k] == mark;
    if (found == one->places) return 0;
    return llm_fail(e, EX_DATAERR, "expected %" PRId64 " placeholders of a picture after another, found %" PRId64, one->places, found);
}

/* Makes ids[0..n) have a placeholder for each embedding of each picture: they have that already, or one for each picture. 0 or -1. */
static int place(const struct llm_config *c, const struct pictures *p, int32_t **ids, size_t *n, struct llm_err *e)
{
    size_t found = 0, places = 0, at = 0;
    for (size_t i = 0; i < *n; i++) found += (*ids)[i] == c->projector.image_token;
    for (size_t i = 0; i < p->n; i++) places += (size_t)p->p[i].places;
    if (found == p->n) return expand(c, p, ids, n, e);
    if (found != places) {
        return llm_fail(e, EX_DATAERR, "expected as many placeholders of pictures (token %" PRId64 ") as there are pictures, %zu, found %zu",
                        c->projector.image_token, p->n, found);
    }
    for (size_t i = 0; i < p->n; i++)
        if (check_places(c, &p->p[i], *ids, *n, &at, e) < 0) return -1;
    return 0;
}

/* Gives the pictures to the engine, and their own ids to the placeholders. 0 or -1. */
static int fill(struct session *s, const struct pictures *p, struct sight *held, int32_t *ids, struct llm_err *e)
{
    if (llm_grow((void **)&held->first, &held->room, held->n + p->n, sizeof *held->first, e) < 0) return -1;
    held->engine = &s->engine;
    for (size_t i = 0, at = 0; i < p->n; i++) {
        const int32_t *first = &held->first[held->n];
        if (show(s, p, i, &held->first[held->n], e) < 0) return -1;
        held->n++;
        for (int64_t k = 0; k < p->p[i].places; at++)
            if (ids[at] == s->model->config.projector.image_token) ids[at] = (int32_t)(*first + k++);
    }
    return 0;
}

int sight_refuse(const struct session *s, const json_t *o, const int32_t *ids, size_t n, struct llm_err *e)
{
    if (!sight_is(s)) return 0;
    bool has = llm_picture_paths_count(o) > 0;
    for (size_t i = 0; i < n; i++) has |= ids[i] == s->model->config.projector.image_token;
    return has ? llm_fail(e, EX_DATAERR, "expected a text without pictures, which only completions, --chat and --logits of a prompt read") : 0;
}

int sight_put(struct session *s, const struct llm_strs *paths, struct sight *held, int32_t **ids, size_t *n, struct llm_err *e)
{
    struct pictures p;
    const struct args *a = s->a;
    if (!sight_is(s)) return 0;
    if (paths->n > 0 && (a->rollout || a->prefix_cache || a->draft_model || a->kv_in)) {
        return llm_fail(e, EX_DATAERR, "a text with pictures does not go with --rollout, --prefix-cache, --draft MODEL or --kv-in");
    }
    int status = read_all(s, paths, &p, e);
    if (status == 0) status = find_texts(s, &p, e);
    if (status == 0) status = place(&s->model->config, &p, ids, n, e);
    if (status == 0) status = fill(s, &p, held, *ids, e);
    release_pictures(&p);
    return status;
}

void sight_release(struct sight *held)
{
    for (size_t i = 0; i < held->n; i++) llm_engine_forget(held->engine, held->first[i]);
    free(held->first);
    *held = (struct sight){0};
}
