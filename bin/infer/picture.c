/* --image: vectors, classes or caches of pictures. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/infer/infer.h"
#include "bin/infer/sight.h"
#include "infer/classify.h"
#include "infer/embed.h"
#include "infer/kvpicture.h"
#include "io/message.h"

struct run {
    struct session *s;
    struct llm_table table;        /* of --classify */
    struct llm_writer *w;          /* of --embed */
    json_t *meta;
    float *vectors;                /* [pictures of a message, llm_config_vector] */
    size_t vectors_room;
    double *classes;               /* probabilities of the classes of a message's pictures, or of one picture's labels */
    size_t classes_room;
    int64_t n;                     /* pictures so far */
};

/* The rows of the table for n pictures of a model with classes. */
static int classify(struct run *r, const float *pixels, int64_t n, struct llm_err *e)
{
    struct session *s = r->s;
    const int64_t classes = s->model->config.num_labels;
    if (llm_grow((void **)&r->classes, &r->classes_room, (size_t)(n * classes), sizeof *r->classes, e) < 0) return -1;
    int status = llm_classify_pictures(&s->engine, pixels, n, r->classes, e);
    for (int64_t i = 0; i < n && status == 0; i++) status = classes_put(s, &r->table, ++r->n, r->classes + i * classes, e);
    return status;
}

static int take(void *arg, const float *pixels, int64_t n, const struct llm_crops *k, struct llm_err *e)
{
    (void)k; /* one crop each */
    struct run *r = arg;
    struct session *s = r->s;
    if (s->a->classify && s->a->labels.n == 0) return classify(r, pixels, n, e);
    int64_t width = llm_config_vector(&s->model->config), kept = embed_dims(s);
    if (llm_grow((void **)&r->vectors, &r->vectors_room, (size_t)(n * width), sizeof *r->vectors, e) < 0) return -1;
    int status = llm_embed_pictures(&s->engine, pixels, n, s->pool, r->vectors, e);
    for (int64_t i = 0; i < n && status == 0; i++) {
        float *v = r->vectors + i * width;
        r->n++;
        if (s->a->classify) {
            llm_zero_shot_classify(&s->zero_shot, s->model, v, r->classes);
            status = classes_put(s, &r->table, r->n, r->classes, e);
        } else {
            memmove(r->vectors + i * kept, v, (size_t)kept * sizeof *v);
            llm_embed_normalize(r->vectors + i * kept, kept, s->normalize);
        }
    }
    if (status != 0 || s->a->classify) return status;
    struct llm_tensor_out t = {"embeddings", LLM_F32, 2, {n, kept}, r->vectors};
    return llm_writer_message(r->w, "embeddings", r->meta, &t, 1, e);
}

/* The cache of the one picture. */
struct cache { struct session *s; struct llm_kv_file file; };

static int see(void *arg, const float *pixels, int64_t n, const struct llm_crops *k, struct llm_err *e)
{
    (void)k; /* one crop each */
    struct cache *c = arg;
    if (n > 1 || c->file.n > 0) return llm_fail(e, EX_DATAERR, "expected one picture for --kv-out, found more");
    return llm_kv_file_see(&c->file, &c->s->engine, pixels, c->s->a->trace_queries, e);
}

static int write_cache(struct session *s, struct llm_err *e)
{
    struct cache c = {.s = s};
    int status = 0;
    for (size_t i = 0; i < s->a->images.n && status == 0; i++) status = sight_read(s, s->a->images.v[i], see, &c, e);
    struct llm_output *o = status == 0 ? llm_output_open(s->a->kv_out, true, e) : NULL;
    if (!o) status = -1;
    if (status == 0) status = llm_kv_file_save(&c.file, o, e);
    if (status == 0) status = llm_output_commit(o, e);
    else llm_output_abandon(o);
    llm_kv_file_release(&c.file);
    return status;
}

int run_pictures(struct session *s, struct llm_err *e)
{
    struct run r = {.s = s};
    if (s->a->kv_out) return write_cache(s, e);
    enum llm_table_form form = classes_begin(s, &r.table, true);
    int status = 0;
    if (s->a->embed) {
        if (llm_model_fingerprint(s->model, e) == 0) r.meta = json_pack("{s:s}", "llm.fingerprint", s->model->fingerprint);
        r.w = r.meta ? llm_writer_create(s->out, e) : NULL;
        status = r.w ? 0 : -1;
    } else {
        status = llm_grow((void **)&r.classes, &r.classes_room, (size_t)llm_labels_count(classes_names(s)), sizeof *r.classes, e);
    }
    for (size_t i = 0; i < s->a->images.n && status == 0; i++) status = sight_read(s, s->a->images.v[i], take, &r, e);
    if (status == 0) status = s->a->embed ? llm_writer_end(r.w, e) : llm_table_write(&r.table, form, s->out, e);
    llm_writer_destroy(r.w);
    llm_table_release(&r.table);
    json_decref(r.meta);
    free(r.vectors);
    free(r.classes);
    return status;
}
