/* The pictures of conversations in a pass (train/objective.h, llm_task_show). */
#include <string.h>
#include "tensor/tape.h"
#include "train/objective.h"
#include "train/shown.h"

/* The pictures of each row of a pass, by number, in the order in which they come first; most: crops of the row with the most of them. */
struct row_pictures { int64_t *number, *n, most; };

/* Without data every row begins with a picture that is drawn. */
static struct llm_crops crops_of(const struct llm_task *t, const struct llm_config *c, int64_t picture)
{
    return t->drawn ? llm_picture_least(c) : t->shown->v[picture].crops;
}

/* Of token x of the rows: the number of its picture, and in *i which of its embeddings it is; -1: it is of no picture. */
static int64_t picture_of(const struct llm_task *t, const struct llm_config *c, const struct llm_rows *rows, int64_t x, int64_t *i)
{
    if (t->drawn) {
        const struct llm_crops k = llm_picture_least(c);
        const int64_t places = llm_picture_rows(c, &k, NULL);
        *i = x % rows->row_len;
        return rows->row_len >= places && *i < places ? 0 : -1;
    }
    if (rows->ids[x] < c->vocab_size) return -1;
    const int64_t picture = llm_shown_find(t->shown, rows->ids[x]);
    *i = rows->ids[x] - c->vocab_size - t->shown->v[picture].first;
    return picture;
}

static struct row_pictures find_pictures(struct llm_ctx *c, const struct llm_task *t, const struct llm_config *f, const struct llm_rows *rows)
{
    const int64_t len = rows->row_len;
    struct row_pictures p = {llm_op_alloc(c, rows->n_rows * len, sizeof *p.number), llm_op_alloc(c, rows->n_rows, sizeof *p.n), 0};
    for (int64_t r = 0; r < rows->n_rows && !llm_ctx_failed(c); r++) {
        int64_t *number = p.number + r * len, crops = 0, i;
        p.n[r] = 0;
        for (int64_t x = r * len; x < (r + 1) * len; x++) {
            const int64_t picture = picture_of(t, f, rows, x, &i);
            if (picture < 0 || (p.n[r] > 0 && number[p.n[r] - 1] == picture)) continue;
            number[p.n[r]++] = picture;
            crops += crops_of(t, f, picture).n;
        }
        if (crops > p.most) p.most = crops;
    }
    return p;
}

/* Whether a parameter of the tower, or an adapter of one, is trained. */
static bool trains_tower(const struct llm_model *m)
{
    for (size_t i = 0; i < m->n_params; i++) {
        const struct llm_param_spec *s = m->params[i].spec;
        if (s->stack != LLM_STACK_VISION || llm_stem_projects(s->stem)) continue;
        if (m->params[i].grad || m->params[i].adapter) return true;
    }
    return false;
}

/* Puts the pictures of row r into a batch of crops, of which the row has `most`; what remains is 0. */
static void put_row(struct llm_ctx *c, const struct llm_task *t, const struct llm_config *whole, const struct llm_config *f,
                    const struct row_pictures *p, const struct llm_rows *rows, int64_t r, float *pixels, const struct llm_batch *seen)
{
    const int64_t size = llm_vision_floats(&whole->vision);
    const struct llm_rng rng = llm_rng_at(c->seed, 0, LLM_RNG_TEST, 0, (uint32_t)(c->first_row + r), 1);
    int64_t crop = r * p->most;
    for (int64_t k = 0; k < p->n[r]; k++) {
        const int64_t picture = p->number[r * rows->row_len + k], n = crops_of(t, whole, picture).n;
        for (int64_t x = 0; x < n * size && t->drawn; x++) pixels[x] = llm_rng_normal(&rng, (uint32_t)x);
        if (!t->drawn && llm_shown_get(t->shown, picture, pixels, &c->err) < 0) return;
        for (int64_t i = 0; i < n; i++) llm_model_put_picture(f, seen, crop++, pixels + i * size);
    }
    memset(pixels, 0, (size_t)size * sizeof *pixels);
    while (crop < (r + 1) * p->most) llm_model_put_picture(f, seen, crop++, pixels);
}

/* The ids of row r without those of pictures, and for each token the row of all crops' embeddings that stands for it; -1: none does. */
static void put_places(struct llm_ctx *c, const struct llm_task *t, const struct llm_config *whole, const struct row_pictures *p,
                       const struct llm_rows *rows, int64_t r, int32_t *ids, int32_t *given)
{
    const int64_t each = llm_config_crop_rows(whole);
    int64_t crop = r * p->most, before = -1, next = crop, i;
    int32_t *from = NULL;
    for (int64_t x = r * rows->row_len; x < (r + 1) * rows->row_len; x++) {
        const int64_t picture = picture_of(t, whole, rows, x, &i);
        ids[x] = picture < 0 ? rows->ids[x] : (int32_t)whole->projector.image_token;
        given[x] = -1;
        if (picture < 0) continue;
        if (picture != before) {
            const struct llm_crops k = crops_of(t, whole, picture);
            from = llm_op_alloc(c, llm_picture_rows(whole, &k, NULL), sizeof *from);
            if (llm_ctx_failed(c)) return;
            (void)llm_picture_rows(whole, &k, from);
            crop = next;
            next += k.n;
            before = picture;
        }
        given[x] = (int32_t)(crop * each + from[i]);
    }
}

/* Each row has room for as many crops as the row with the most of them, so that a row's gradients do not depend on the other rows. A tower that is
 * not trained runs without the tape. */
void llm_task_show(struct llm_ctx *c, struct llm_task *t, struct llm_model *m, const struct llm_rows *rows, struct llm_batch *b)
{
    struct llm_config f;
    const struct llm_config *whole = &m->config;
    if (!(t->shown || (t->drawn && t->objective->shows)) || !llm_config_projects(whole)) return;
    const struct row_pictures p = find_pictures(c, t, whole, rows);
    if (llm_ctx_failed(c) || p.most == 0 || !llm_config_sees(whole, &f)) return;
    const int64_t n = rows->n_rows * p.most, length = llm_config_picture_tokens(&f);
    int32_t *ids = llm_op_alloc(c, 2 * b->n_tokens + n * length, sizeof *ids), *given = ids + b->n_tokens, *starts = given + b->n_tokens;
    float *pixels = llm_op_alloc(c, p.most * llm_vision_floats(&whole->vision), sizeof *pixels);
    struct llm_batch seen = llm_model_pictures(c, &f, n);
    for (int64_t r = 0; r < rows->n_rows && !llm_ctx_failed(c); r++) {
        put_row(c, t, whole, &f, &p, rows, r, pixels, &seen);
        if (!llm_ctx_failed(c)) put_places(c, t, whole, &p, rows, r, ids, given);
    }
    if (llm_ctx_failed(c)) return;
    for (int64_t i = 0; i < n * length; i++) starts[i] = (int32_t)(i / length % p.most * length);
    seen.doc_start = starts;
    seen.checkpoint_every = t->o.checkpoint_every;
    seen.routers = &t->routers;
    b->given = llm_model_crop_embeddings(c, m, &seen, n, trains_tower(m));
    b->given_row = given;
    b->ids = ids;
}
