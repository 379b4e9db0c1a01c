#include "data/pictures.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/hash.h"
#include "io/message.h"
#include "io/temporary.h"

/* ---- reading ---- */

struct piece {                   /* one message's tensors, in a mapping */
    int64_t first, n;            /* pictures before it; pictures in it */
    const unsigned char *pixels, *labels; /* F32 and I64, unaligned; labels NULL: none */
    char *text;                  /* of a message of one picture; NULL: none; owned */
};

struct llm_pictures {
    struct llm_map *maps;
    size_t n_maps, room_maps;
    struct piece *pieces;
    size_t n_pieces, room_pieces;
    int64_t count, shape[3], size, classes; /* size: numbers of a picture */
};

void llm_pictures_close(struct llm_pictures *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->n_maps; i++) llm_map_close(&p->maps[i]);
    for (size_t i = 0; i < p->n_pieces; i++) free(p->pieces[i].text);
    free(p->maps);
    free(p->pieces);
    free(p);
}

int64_t llm_pictures_count(const struct llm_pictures *p) { return p->count; }
const int64_t *llm_pictures_shape(const struct llm_pictures *p) { return p->shape; }
int64_t llm_pictures_classes(const struct llm_pictures *p) { return p->classes; }

static int64_t label_at(const struct piece *m, int64_t i)
{
    int64_t label;
    memcpy(&label, m->labels + i * 8, 8);
    return label;
}

static int check_labels(struct llm_pictures *p, const struct piece *m, struct llm_err *e)
{
    if (p->count > 0 && (p->classes > 0) != (m->labels != NULL)) return llm_fail(e, EX_DATAERR, "expected labels in all messages, or in none");
    for (int64_t i = 0; i < m->n && m->labels; i++) {
        int64_t label = label_at(m, i);
        if (label < 0 || label >= INT32_MAX) {
            return llm_fail(e, EX_DATAERR, "labels[%" PRId64 "]: expected a class from 0 on, found %" PRId64, i, label);
        }
        if (label >= p->classes) p->classes = label + 1;
    }
    return 0;
}

static int check_finite(const struct llm_pictures *p, const struct piece *m, struct llm_err *e)
{
    for (int64_t i = 0; i < m->n * p->size; i++) {
        float v;
        memcpy(&v, m->pixels + i * 4, 4);
        if (isfinite(v)) continue;
        return llm_fail(e, EX_DATAERR, "picture %" PRId64 ": expected finite numbers, found %f", p->count + i / p->size + 1, (double)v);
    }
    return 0;
}

static int check_shape(struct llm_pictures *p, const int64_t *shape, struct llm_err *e)
{
    if (shape[1] != 1) return llm_fail(e, EX_DATAERR, "expected pictures of one crop, found %" PRId64, shape[1]);
    if (p->size == 0) {
        memcpy(p->shape, shape + 2, sizeof p->shape);
        p->size = shape[2] * shape[3] * shape[4]; /* the header's products are checked */
        if (p->size < 1) return llm_fail(e, EX_DATAERR, "expected pictures, found some without pixels");
    }
    if (memcmp(p->shape, shape + 2, sizeof p->shape) == 0) return 0;
    return llm_fail(e, EX_DATAERR, "expected pictures of %" PRId64 " channels, %" PRId64 " x %" PRId64 " pixels, as the first; found %" PRId64
                    ", %" PRId64 " x %" PRId64, p->shape[0], p->shape[2], p->shape[1], shape[2], shape[4], shape[3]);
}

const struct llm_entry *llm_pictures_find(const struct llm_header *h, struct llm_err *e)
{
    const struct llm_entry *t = llm_header_find(h, "pixel_values");
    if (h->kind && strcmp(h->kind, "images") == 0 && t && t->dtype == LLM_F32 && t->n_dims == 5) return t;
    llm_fail(e, EX_DATAERR, "expected messages of kind images with pixel_values (llm-tokenize image), found %s", h->kind ? h->kind : "tensors");
    return NULL;
}

static int add_message(struct llm_pictures *p, const struct llm_header *h, const unsigned char *data, struct llm_err *e)
{
    const struct llm_entry *t = llm_pictures_find(h, e), *labels = llm_header_find(h, "labels");
    if (!t) return -1;
    if (labels && (labels->dtype != LLM_I64 || labels->n_dims != 1 || labels->shape[0] != t->shape[0])) {
        return llm_fail(e, EX_DATAERR, "tensor 'labels': expected I64, as many as pictures");
    }
    if (t->shape[0] == 0) return 0;
    struct piece m = {p->count, t->shape[0], data + t->offset, labels ? data + labels->offset : NULL, NULL};
    const char *text = m.n == 1 ? llm_header_meta(h, "llm.text") : NULL;
    if (check_shape(p, t->shape, e) < 0 || check_labels(p, &m, e) < 0 || check_finite(p, &m, e) < 0) return -1;
    if (m.n > INT32_MAX - p->count) return llm_fail(e, EX_UNAVAILABLE, "expected at most %d pictures", INT32_MAX);
    if (llm_grow((void **)&p->pieces, &p->room_pieces, p->n_pieces + 1, sizeof *p->pieces, e) < 0) return -1;
    if (text && !(m.text = strdup(text))) return llm_no_memory(e, "a picture's text");
    p->pieces[p->n_pieces++] = m;
    p->count += m.n;
    return 0;
}

/* Walks the messages of a mapping, which closes with its `end`. */
static int add_map(struct llm_pictures *p, const struct llm_map *m, const char *name, struct llm_err *e)
{
    struct llm_file *f = llm_file_from_memory(m->p, m->n, name, e);
    struct llm_stream *s = f ? llm_stream_from_file(f, e) : NULL;
    const struct llm_header *h;
    int got = s ? 1 : -1;
    while (got > 0 && (got = llm_stream_next(s, &h, e)) > 0) {
        const uint64_t at = llm_stream_offset(s);
        if (at > m->n || h->data_bytes > m->n - at) got = llm_fail(e, EX_DATAERR, "%s: byte %" PRIu64 ": cut short", name, at);
        else if (add_message(p, h, m->p + at, e) < 0) got = llm_in(e, "%s", name);
    }
    llm_stream_destroy(s);
    return got;
}

int llm_pictures_add(struct llm_pictures *p, const char *path, struct llm_err *e)
{
    if (llm_grow((void **)&p->maps, &p->room_maps, p->n_maps + 1, sizeof *p->maps, e) < 0) return -1;
    struct llm_file *f = llm_file_open(path, e);
    int got = f ? llm_temporary_map(&p->maps[p->n_maps], f, e) : -1;
    if (got == 0) got = add_map(p, &p->maps[p->n_maps++], llm_file_name(f), e);
    llm_file_close(f);
    return got;
}

struct llm_pictures *llm_pictures_open(const char *const *paths, size_t n_paths, struct llm_err *e)
{
    struct llm_pictures *p = llm_calloc(1, sizeof *p, "pictures", e);
    for (size_t i = 0; i < n_paths && p; i++) {
        if (llm_pictures_add(p, paths[i], e) == 0) continue;
        llm_pictures_close(p);
        return NULL;
    }
    return p;
}

static const struct piece *piece_of(const struct llm_pictures *p, int64_t i)
{
    size_t low = 0, high = p->n_pieces;
    while (high - low > 1) { /* the last piece that begins at or before i */
        size_t middle = low + (high - low) / 2;
        if (p->pieces[middle].first <= i) low = middle;
        else high = middle;
    }
    return &p->pieces[low];
}

int32_t llm_pictures_label(const struct llm_pictures *p, int64_t i)
{
    const struct piece *m = piece_of(p, i);
    return m->labels ? (int32_t)label_at(m, i - m->first) : -1;
}

const char *llm_pictures_text(const struct llm_pictures *p, int64_t i) { return piece_of(p, i)->text; }

void llm_pictures_get(const struct llm_pictures *p, int64_t i, float *to)
{
    const struct piece *m = piece_of(p, i);
    memcpy(to, m->pixels + (i - m->first) * p->size * 4, (size_t)p->size * sizeof *to);
}

uint64_t llm_pictures_hash(const struct llm_pictures *p, int64_t first, int64_t n)
{
    uint64_t h = llm_xxh64(p->shape, sizeof p->shape, 0);
    for (int64_t i = first; i < first + n; i++) {
        const struct piece *m = piece_of(p, i);
        const int32_t label = llm_pictures_label(p, i);
        h = llm_xxh64(m->pixels + (i - m->first) * p->size * 4, (size_t)p->size * sizeof(float), h);
        h = llm_xxh64(&label, sizeof label, h);
    }
    return h;
}

/* ---- augmentation ---- */

/* Beta(alpha, alpha): the share of one of two gamma variates, by Jöhnk's method, which rejects pairs of powers whose sum is above 1. Channels from
 * `from` on. */
static double draw_share(const struct llm_rng *r, uint32_t from, double alpha)
{
    for (uint32_t i = 0; i < 1000; i++) { /* at alpha 4 one pair in 70 is taken */
        const double a = pow(llm_rng_uniform64(r, from + 4 * i), 1 / alpha), b = pow(llm_rng_uniform64(r, from + 4 * i + 2), 1 / alpha);
        if (a + b > 0 && a + b <= 1) return a / (a + b);
    }
    return .5;
}

static struct llm_moved draw_move(const struct llm_augment *a, const struct llm_rng *r, uint32_t from)
{
    const uint64_t range = 2 * (uint64_t)a->crop + 1;
    return (struct llm_moved){.dx = (int64_t)llm_rng_below(r, from, range) - a->crop, .dy = (int64_t)llm_rng_below(r, from + 2, range) - a->crop,
                              .flip = llm_rng_uniform64(r, from + 4) < a->flip};
}

struct llm_augmented llm_augment_draw(const struct llm_augment *a, uint64_t seed, uint64_t step, uint32_t row, int64_t n)
{
    const struct llm_rng r = llm_rng_at(seed, step, LLM_RNG_AUGMENT, 0, row, 0);
    struct llm_augmented d = {.own = draw_move(a, &r, 0), .keep = 1};
    if (!(a->mixup > 0) || n < 1) return d;
    d.other = (int64_t)llm_rng_below(&r, 8, (uint64_t)n);
    d.others = draw_move(a, &r, 12);
    d.keep = (float)draw_share(&r, 24, a->mixup);
    return d;
}

/* Adds share times picture i, moved, to `to`. */
static void add_moved(const struct llm_pictures *p, int64_t i, const struct llm_moved *m, float share, float *room, float *to)
{
    const int64_t height = p->shape[1], width = p->shape[2];
    llm_pictures_get(p, i, room);
    for (int64_t row = 0; row < p->shape[0] * height; row++) {
        const int64_t channel = row / height, y = row % height - m->dy;
        for (int64_t x, k = 0; k < width && y >= 0 && y < height; k++) {
            x = (m->flip ? width - 1 - k : k) - m->dx;
            if (x >= 0 && x < width) to[row * width + k] += share * room[(channel * height + y) * width + x];
        }
    }
}

void llm_pictures_augmented(const struct llm_pictures *p, int64_t i, const struct llm_augmented *a, float *room, float *to)
{
    memset(to, 0, (size_t)p->size * sizeof *to);
    add_moved(p, i, &a->own, a->keep, room, to);
    if (a->keep < 1) add_moved(p, a->other, &a->others, 1 - a->keep, room, to);
}
