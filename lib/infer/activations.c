#include "infer/activations.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/cli.h"
#include "infer/dictionary.h"
#include "io/gguf.h"
#include "io/gguf_write.h"

/* ---- taking out ---- */

int llm_taking_begin(struct llm_taking *t, const struct llm_config *c, const char *const *places, size_t n, int64_t room, struct llm_err *e)
{
    t->room = room;
    t->ranges = llm_calloc(n, sizeof *t->ranges, "places", e);
    if (!t->ranges) return -1;
    for (; t->n_ranges < n; t->n_ranges++) {
        if (llm_place_parse(places[t->n_ranges], c, &t->ranges[t->n_ranges], e) < 0) return -1;
    }
    return 0;
}

void llm_taking_release(struct llm_taking *t)
{
    for (size_t i = 0; i < t->n; i++) {
        free(t->v[i].x);
        free(t->v[i].have);
    }
    free(t->v);
    free(t->ranges);
    *t = (struct llm_taking){0};
}

void llm_taking_at(struct llm_taking *t, int64_t first, int64_t rows)
{
    t->first = first;
    t->rows = rows;
    for (size_t i = 0; i < t->n; i++) memset(t->v[i].have, 0, (size_t)t->room * sizeof *t->v[i].have);
}

bool llm_taking_wants(const struct llm_taking *t, enum llm_place_kind kind)
{
    for (size_t i = 0; i < t->n_ranges; i++) {
        if (t->ranges[i].kind == kind) return true;
    }
    return false;
}

static struct llm_taken *taken_of(struct llm_taking *t, const struct llm_sight *s, struct llm_err *e)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct llm_place *p = &t->v[i].place;
        if (p->kind == s->place.kind && p->stack == s->place.stack && p->layer == s->place.layer) return &t->v[i];
    }
    if (llm_grow((void **)&t->v, &t->v_room, t->n + 1, sizeof *t->v, e) < 0) return NULL;
    struct llm_taken *one = &t->v[t->n];
    *one = (struct llm_taken){.place = s->place, .cols = s->cols};
    llm_place_print(s->place, one->name, sizeof one->name);
    one->x = llm_alloc((size_t)t->room, (size_t)s->cols * sizeof *one->x, one->name, e);
    one->have = llm_calloc((size_t)t->room, sizeof *one->have, one->name, e);
    if (!one->x || !one->have) {
        free(one->x);
        free(one->have);
        return NULL;
    }
    t->n++;
    return one;
}

static int take(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    struct llm_taking *t = arg;
    struct llm_taken *one = taken_of(t, s, e);
    if (!one) return -1;
    if (s->cols != one->cols) return llm_fail(e, EX_UNAVAILABLE, "%s: its width changes from row to row", one->name);
    for (int64_t r = 0; r < s->rows; r++) {
        int64_t row = s->who[r].position - t->first;
        if (s->who[r].position < 0 || row < 0 || row >= t->rows) continue;
        memcpy(one->x + row * one->cols, s->x + r * s->stride, (size_t)s->cols * sizeof *one->x);
        one->have[row] = true;
    }
    return 0;
}

struct llm_watcher llm_taking_watcher(struct llm_taking *t, size_t i)
{
    return (struct llm_watcher){.at = t->ranges[i], .observe = take, .arg = t};
}

int llm_taking_write(const struct llm_taking *t, struct llm_writer *w, const json_t *meta, const int32_t *ids, int64_t moved, const int64_t *picked,
                     int64_t n, struct llm_err *e)
{
    struct llm_tensor_out *out = llm_calloc(t->n + 2, sizeof *out, "activations", e);
    int32_t *who = llm_alloc(2 * (size_t)n, sizeof *who, "activations", e);
    int status = out && who ? 0 : -1;
    for (int64_t i = 0; i < n && status == 0; i++) {
        who[i] = ids[picked[i]];
        who[n + i] = (int32_t)(moved + t->first + picked[i]);
    }
    for (size_t k = 0; k < t->n && status == 0; k++) {
        const struct llm_taken *one = &t->v[k];
        float *x = llm_alloc((size_t)n, (size_t)one->cols * sizeof *x, one->name, e);
        out[k] = (struct llm_tensor_out){one->name, LLM_F32, 2, {n, one->cols}, x};
        if (!x) status = -1;
        for (int64_t i = 0; i < n && status == 0; i++) {
            if (!one->have[picked[i]]) {
                status = llm_fail(e, EX_UNAVAILABLE, "%s: expected a row for each token, found none for token %" PRId64, one->name,
                                  t->first + picked[i]);
                break;
            }
            memcpy(x + i * one->cols, one->x + picked[i] * one->cols, (size_t)one->cols * sizeof *x);
        }
    }
    for (size_t i = 0; i < t->n_ranges && status == 0; i++) {
        bool seen = false;
        for (size_t k = 0; k < t->n; k++) seen |= llm_place_within(&t->ranges[i], t->v[k].place);
        if (!seen) status = llm_fail(e, EX_UNAVAILABLE, "%s: the pass did not come there", llm_places[t->ranges[i].kind].name);
    }
    if (status == 0) {
        out[t->n] = (struct llm_tensor_out){"ids", LLM_I32, 1, {n}, who};
        out[t->n + 1] = (struct llm_tensor_out){"positions", LLM_I32, 1, {n}, who + n};
        status = llm_writer_message(w, "activations", meta, out, t->n + 2, e);
    }
    for (size_t k = 0; k < t->n && out; k++) free((void *)(uintptr_t)out[k].data);
    free(out);
    free(who);
    return status;
}

/* ---- reading ---- */

void llm_activations_release(struct llm_activations *a)
{
    for (size_t i = 0; i < a->n; i++) free(a->v[i].x);
    free(a->v);
    free(a->ids);
    free(a->positions);
    *a = (struct llm_activations){0};
}

const struct llm_activation_rows *llm_activations_find(const struct llm_activations *a, const char *place)
{
    for (size_t i = 0; i < a->n; i++) {
        if (strcmp(a->v[i].name, place) == 0) return &a->v[i];
    }
    return NULL;
}

static int read_entry(struct llm_activations *a, struct llm_stream *s, const struct llm_entry *t, int64_t rows, struct llm_err *e)
{
    bool ids = strcmp(t->name, "ids") == 0, positions = strcmp(t->name, "positions") == 0;
    if (ids || positions) {
        if (t->dtype != LLM_I32 || t->n_dims != 1 || t->shape[0] != rows) return llm_fail(e, EX_DATAERR, "tensor '%s': expected I32 [rows]", t->name);
        return llm_stream_append(s, ids ? (void **)&a->ids : (void **)&a->positions, (uint64_t)a->rows * sizeof(int32_t), t->bytes, "activations", e);
    }
    if (t->dtype != LLM_F32 || t->n_dims != 2 || t->shape[0] != rows || strlen(t->name) >= LLM_PLACE_TEXT) return llm_stream_skip(s, t->bytes, e);
    struct llm_activation_rows *one = NULL;
    for (size_t i = 0; i < a->n; i++) one = strcmp(a->v[i].name, t->name) == 0 ? &a->v[i] : one;
    if (!one && a->rows > 0) return llm_fail(e, EX_DATAERR, "tensor '%s': the messages before have no such tensor", t->name);
    if (!one) {
        if (llm_grow((void **)&a->v, &a->v_room, a->n + 1, sizeof *a->v, e) < 0) return -1;
        one = &a->v[a->n++];
        *one = (struct llm_activation_rows){.cols = t->shape[1]};
        snprintf(one->name, sizeof one->name, "%s", t->name);
    }
    if (one->cols != t->shape[1]) {
        return llm_fail(e, EX_DATAERR, "tensor '%s': expected a width of %" PRId64 ", found %" PRId64, t->name, one->cols, t->shape[1]);
    }
    if (llm_stream_append(s, (void **)&one->x, (uint64_t)(one->rows * one->cols) * sizeof(float), t->bytes, "activations", e) < 0) return -1;
    one->rows += rows;
    return 0;
}

static int read_message(struct llm_activations *a, struct llm_stream *s, const struct llm_header *h, struct llm_err *e)
{
    const struct llm_entry *positions = llm_header_find(h, "positions");
    const char *fingerprint = llm_header_meta(h, "llm.fingerprint");
    if (!h->kind || strcmp(h->kind, "activations") != 0) {
        return llm_fail(e, EX_DATAERR, "expected activations, found %s", h->kind ? h->kind : "tensors");
    }
    if (!positions || positions->n_dims != 1 || !llm_header_find(h, "ids")) return llm_fail(e, EX_DATAERR, "expected tensors 'ids' and 'positions'");
    if (a->rows > 0 && fingerprint && strcmp(a->fingerprint, fingerprint) != 0) {
        return llm_fail(e, EX_DATAERR, "expected activations of one model (%s), found those of another (%s)", a->fingerprint, fingerprint);
    }
    if (fingerprint) snprintf(a->fingerprint, sizeof a->fingerprint, "%s", fingerprint);
    int64_t rows = positions->shape[0];
    for (size_t i = 0; i < h->n_entries; i++) {
        if (read_entry(a, s, &h->entries[i], rows, e) < 0) return -1;
    }
    a->rows += rows;
    for (size_t i = 0; i < a->n; i++) {
        if (a->v[i].rows != a->rows) return llm_fail(e, EX_DATAERR, "tensor '%s': a message lacks it", a->v[i].name);
    }
    return 0;
}

int llm_activations_read(struct llm_activations *a, const char *path, struct llm_err *e)
{
    struct llm_stream *s = llm_stream_create(path, e);
    const struct llm_header *h;
    int got = s ? 1 : -1;
    while (got > 0 && (got = llm_stream_next(s, &h, e)) > 0) {
        if (read_message(a, s, h, e) < 0) {
            llm_in(e, "%s", path);
            got = -1;
        }
    }
    llm_stream_destroy(s);
    return got < 0 ? -1 : 0;
}

/* ---- directions ---- */

static int new_direction(struct llm_directions *d, int64_t layer, const char *name, const void *x, int64_t width, struct llm_err *e)
{
    if (layer < 0 || layer >= d->n_layers) return llm_fail(e, EX_DATAERR, "'%s': expected a layer below %" PRId64, name, d->n_layers);
    if (width != d->width) {
        return llm_fail(e, EX_DATAERR, "'%s': expected a width of %" PRId64 " (hidden_size), found %" PRId64, name, d->width, width);
    }
    free(d->v[layer]);
    d->v[layer] = llm_alloc((size_t)width, sizeof **d->v, "a direction", e);
    if (d->v[layer]) memcpy(d->v[layer], x, (size_t)width * sizeof **d->v);
    return d->v[layer] ? 0 : -1;
}

static int directions_of_gguf(struct llm_directions *d, const struct llm_map *map, const char *path, struct llm_err *e)
{
    struct llm_gguf g;
    struct llm_header h;
    int status = 0, found = 0;
    if (llm_gguf_parse(&g, &h, map->p, map->n, path, e) < 0) return -1;
    for (size_t i = 0; i < h.n_entries && status == 0; i++) {
        const struct llm_entry *t = &h.entries[i];
        int64_t layer;
        if (strncmp(t->name, "direction.", 10) != 0 || llm_parse_int(t->name + 10, &layer) < 0) continue;
        found++;
        if (t->dtype != LLM_F32 || t->n_dims != 1) status = llm_fail(e, EX_DATAERR, "'%s': expected a vector of F32", t->name);
        else status = new_direction(d, layer, t->name, map->p + h.header_bytes + t->offset, t->shape[0], e);
    }
    if (status == 0 && found == 0) status = llm_fail(e, EX_DATAERR, "expected tensors 'direction.N' (a control vector), found none");
    llm_header_release(&h);
    llm_gguf_release(&g);
    return status < 0 ? llm_in(e, "%s", path) : 0;
}

static int directions_of_activations(struct llm_directions *d, const char *path, struct llm_err *e)
{
    struct llm_activations a = {0};
    int status = llm_activations_read(&a, path, e), found = 0;
    for (int64_t l = 0; l < d->n_layers && status == 0; l++) {
        char name[LLM_PLACE_TEXT];
        llm_place_print((struct llm_place){LLM_PLACE_RESIDUAL_AFTER, LLM_STACK_MAIN, l}, name, sizeof name);
        const struct llm_activation_rows *one = llm_activations_find(&a, name);
        if (!one) continue;
        found++;
        if (one->rows != 1) status = llm_fail(e, EX_DATAERR, "%s: '%s': expected one row, found %" PRId64, path, name, one->rows);
        else status = new_direction(d, l, name, one->x, one->cols, e);
    }
    if (status == 0 && found == 0) status = llm_fail(e, EX_DATAERR, "%s: expected directions for the residual after layers, found none", path);
    llm_activations_release(&a);
    return status;
}

int llm_directions_read(struct llm_directions *d, const char *path, const struct llm_config *c, struct llm_err *e)
{
    struct llm_map map = {0};
    *d = (struct llm_directions){.n_layers = c->num_hidden_layers, .width = c->hidden_size};
    d->v = llm_calloc((size_t)d->n_layers, sizeof *d->v, "directions", e);
    if (!d->v || llm_map_open(&map, path, e) < 0) return -1;
    bool gguf = map.n >= 4 && memcmp(map.p, "GGUF", 4) == 0;
    int status = gguf ? directions_of_gguf(d, &map, path, e) : 0;
    llm_map_close(&map);
    return gguf ? status : directions_of_activations(d, path, e);
}

void llm_directions_release(struct llm_directions *d)
{
    for (int64_t i = 0; i < d->n_layers && d->v; i++) free(d->v[i]);
    free(d->v);
    *d = (struct llm_directions){0};
}

static int put_direction(void *arg, size_t i, struct llm_output *out, struct llm_err *e)
{
    const struct llm_tensor_out *t = arg;
    return llm_output_write(out, t[i].data, (size_t)t[i].shape[0] * sizeof(float), e);
}

int llm_directions_write(const struct llm_directions *d, const char *model_type, struct llm_output *o, struct llm_err *e)
{
    struct llm_gguf_out g = {.err = e};
    struct llm_tensor_out *t = llm_calloc((size_t)d->n_layers, sizeof *t, "directions", e);
    char(*names)[32] = llm_calloc((size_t)d->n_layers, sizeof *names, "directions", e);
    size_t n = 0;
    int status = t && names ? 0 : -1;
    for (int64_t l = 1; l < d->n_layers && status == 0; l++) {
        if (!d->v[l]) continue;
        snprintf(names[n], sizeof names[n], "direction.%" PRId64, l);
        t[n] = (struct llm_tensor_out){names[n], LLM_F32, 1, {d->width}, d->v[l]};
        n++;
    }
    if (status == 0) {
        llm_gguf_put_str(&g, "general.architecture", "controlvector", 13);
        llm_gguf_put_str(&g, "controlvector.model_hint", model_type, strlen(model_type));
        llm_gguf_put_i32(&g, "controlvector.layer_count", (int32_t)n);
        status = llm_gguf_write(o, &g, t, n, put_direction, t, e);
    }
    llm_gguf_out_release(&g);
    free(t);
    free(names);
    return status;
}

/* ---- putting back ---- */

struct llm_editor {
    struct llm_activations file;      /* of a patch */
    struct llm_directions directions; /* of a direction */
    struct llm_splice splice;         /* of a dictionary */
    char *path, *layers;              /* of a direction, as they were spelled; layers NULL: all */
    float strength;
    size_t number;                    /* among all editors */
    int64_t head, heads;              /* of an ablation: columns [head, head + 1) · cols / heads */
};

void llm_editors_release(struct llm_editors *s)
{
    for (size_t i = 0; i < s->n; i++) {
        llm_activations_release(&s->own[i]->file);
        llm_directions_release(&s->own[i]->directions);
        llm_splice_release(&s->own[i]->splice);
        free(s->own[i]->path);
        free(s->own[i]->layers);
        free(s->own[i]);
    }
    free(s->v);
    free(s->own);
    *s = (struct llm_editors){0};
}

/* A new editor that does nothing yet. */
static struct llm_editor *add(struct llm_editors *s, struct llm_watcher **w, struct llm_err *e)
{
    if (llm_grow((void **)&s->v, &s->room, s->n + 1, sizeof *s->v, e) < 0) return NULL;
    if (llm_grow((void **)&s->own, &s->own_room, s->n + 1, sizeof *s->own, e) < 0) return NULL;
    struct llm_editor *x = llm_calloc(1, sizeof *x, "an editor", e);
    if (!x) return NULL;
    x->number = s->n;
    s->own[s->n] = x;
    *w = &s->v[s->n++];
    **w = (struct llm_watcher){.arg = x};
    return x;
}

static int edit_patch(void *arg, const struct llm_sight *s, float *x, struct llm_err *e)
{
    const struct llm_editor *own = arg;
    char name[LLM_PLACE_TEXT];
    llm_place_print(s->place, name, sizeof name);
    const struct llm_activation_rows *from = llm_activations_find(&own->file, name);
    if (!from) return 0;
    if (from->cols != s->cols) return llm_fail(e, EX_DATAERR, "%s: expected a width of %" PRId64 ", found %" PRId64, name, s->cols, from->cols);
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t k = 0; k < own->file.rows; k++) {
            if (own->file.positions[k] != s->who[r].position) continue;
            memcpy(x + r * s->stride, from->x + k * from->cols, (size_t)s->cols * sizeof *x);
        }
    }
    return 0;
}

int llm_editors_patch(struct llm_editors *s, const char *spec, struct llm_model *m, struct llm_err *e)
{
    const char *at = strrchr(spec, '@');
    struct llm_watcher *w;
    struct llm_place_range range;
    if (!at || at == spec) return llm_fail(e, LLM_EX_USAGE, "--patch: expected FILE@PLACE, found '%s'", spec);
    if (llm_place_parse(at + 1, &m->config, &range, e) < 0) return llm_in(e, "--patch");
    struct llm_editor *own = add(s, &w, e);
    char *path = own ? strndup(spec, (size_t)(at - spec)) : NULL;
    int status = !own ? -1 : path ? llm_activations_read(&own->file, path, e) : llm_no_memory(e, "a file's name");
    if (status == 0 && own->file.fingerprint[0]) status = llm_model_fingerprint(m, e);
    if (status == 0 && own->file.fingerprint[0] && strcmp(own->file.fingerprint, m->fingerprint) != 0) {
        status = llm_fail(e, EX_DATAERR, "%s: expected activations of this model (%s), found those of another (%s)", path, m->fingerprint,
                          own->file.fingerprint);
    }
    bool found = false;
    for (size_t i = 0; i < (own ? own->file.n : 0) && status == 0; i++) {
        struct llm_place_range one;
        struct llm_err ignored;
        found |= llm_place_parse(own->file.v[i].name, &m->config, &one, &ignored) == 0
                 && llm_place_within(&range, (struct llm_place){one.kind, one.stack, one.first});
    }
    if (status == 0 && !found) status = llm_fail(e, EX_DATAERR, "%s: expected activations at %s, found none", path, at + 1);
    free(path);
    if (status < 0) return -1;
    w->at = range;
    w->edit = edit_patch;
    return 0;
}

static int edit_steer(void *arg, const struct llm_sight *s, float *x, struct llm_err *e)
{
    const struct llm_editor *own = arg;
    const float *v = own->directions.v[s->place.layer];
    (void)e;
    for (int64_t r = 0; r < s->rows && v; r++) {
        const float *given = s->strengths ? s->strengths[s->who[r].sequence] : NULL;
        float strength = given ? given[own->number] : own->strength;
        for (int64_t i = 0; i < s->cols && strength != 0; i++) x[r * s->stride + i] += strength * v[i];
    }
    return 0;
}

/* "FILE:STRENGTH[@LAYERS]" in parts, which lie in `text`; *layers NULL: all. Without ":STRENGTH" *strength is NAN. 0, or -1 without a message. */
static int split_steer(char *text, double *strength, const char **layers)
{
    char *colon = strrchr(text, ':'), *at = colon ? strchr(colon, '@') : NULL;
    *layers = NULL;
    *strength = NAN;
    if (!colon) return 0;
    if (at) *at++ = 0;
    *colon = 0;
    *layers = at;
    return llm_parse_real(colon + 1, strength) < 0 || (at && strlen(at) > 20) ? -1 : 0;
}

int llm_editors_steer(struct llm_editors *s, const char *spec, struct llm_model *m, struct llm_err *e)
{
    char text[4096], place[LLM_PLACE_TEXT];
    const char *layers;
    struct llm_watcher *w;
    double strength;
    if (snprintf(text, sizeof text, "%s", spec) >= (int)sizeof text) return llm_fail(e, LLM_EX_USAGE, "--steer: the name is too long");
    if (split_steer(text, &strength, &layers) < 0 || isnan(strength)) {
        return llm_fail(e, LLM_EX_USAGE, "--steer: expected FILE:STRENGTH or FILE:STRENGTH@LAYERS, found '%s'", spec);
    }
    snprintf(place, sizeof place, "layers.%s.residual.after", layers ? layers : "*");
    struct llm_place_range range;
    if (llm_place_parse(place, &m->config, &range, e) < 0) return llm_in(e, "--steer");
    struct llm_editor *own = add(s, &w, e);
    if (!own || llm_directions_read(&own->directions, text, &m->config, e) < 0) return -1;
    own->path = strdup(text);
    own->layers = layers ? strdup(layers) : NULL;
    if (!own->path || (layers && !own->layers)) return llm_no_memory(e, "a direction");
    own->strength = (float)strength;
    if (range.last >= m->config.num_hidden_layers) range.last = m->config.num_hidden_layers - 1; /* "*" */
    w->at = range;
    w->edit = edit_steer;
    return 0;
}

int llm_editors_strengths(const struct llm_editors *s, const char *spec, float *strengths, struct llm_err *e)
{
    char text[4096];
    const char *layers;
    double strength;
    bool found = false;
    if (snprintf(text, sizeof text, "%s", spec) >= (int)sizeof text || split_steer(text, &strength, &layers) < 0) {
        return llm_fail(e, EX_DATAERR, "expected FILE, FILE:STRENGTH or FILE:STRENGTH@LAYERS, found '%s'", spec);
    }
    for (size_t i = 0; i < s->n; i++) {
        const struct llm_editor *own = s->own[i];
        if (!own->path || strcmp(own->path, text) != 0 || (layers && (!own->layers || strcmp(own->layers, layers) != 0))) continue;
        found = true;
        strengths[i] = isnan(strength) ? 1 : (float)strength;
    }
    return found ? 0 : llm_fail(e, EX_DATAERR, "expected a file (and layers) of --steer, found '%s'", spec);
}

int llm_editors_splice(struct llm_editors *s, const char *path, struct llm_model *m, enum llm_compute compute, struct llm_err *e)
{
    struct llm_watcher *w, both[2];
    struct llm_editor *own = add(s, &w, e);
    if (!own || llm_splice_begin(&own->splice, path, m, compute, e) < 0) return -1;
    int n = llm_splice_watchers(&own->splice, both);
    *w = both[0];
    if (n == 2 && !add(s, &w, e)) return -1;
    if (n == 2) *w = both[1];
    return 0;
}

static int edit_ablate(void *arg, const struct llm_sight *s, float *x, struct llm_err *e)
{
    const struct llm_editor *own = arg;
    int64_t width = s->cols / own->heads;
    (void)e;
    for (int64_t r = 0; r < s->rows; r++) memset(x + r * s->stride + own->head * width, 0, (size_t)(own->heads > 1 ? width : s->cols) * sizeof *x);
    return 0;
}

int llm_editors_ablate(struct llm_editors *s, const char *spec, struct llm_model *m, struct llm_err *e)
{
    char text[2 * LLM_PLACE_TEXT];
    struct llm_watcher *w;
    struct llm_place_range range;
    int64_t head = -1;
    snprintf(text, sizeof text, "%s", spec);
    char *colon = strchr(text, ':');
    if (colon) *colon = 0;
    if (llm_place_parse(text, &m->config, &range, e) < 0) return llm_in(e, "--ablate");
    bool by_heads = range.kind == LLM_PLACE_ATTENTION_HEADS || range.kind == LLM_PLACE_ATTENTION_Q || range.kind == LLM_PLACE_ATTENTION_Q_ROTATED;
    if (colon && (llm_parse_int(colon + 1, &head) < 0 || head < 0 || head >= m->config.num_attention_heads || !by_heads)) {
        return llm_fail(e, LLM_EX_USAGE, "--ablate: expected PLACE, or attention.heads, attention.q or attention.q_rotated and a head below %" PRId64
                        ", found '%s'", m->config.num_attention_heads, spec);
    }
    struct llm_editor *own = add(s, &w, e);
    if (!own) return -1;
    own->heads = colon ? m->config.num_attention_heads : 1;
    own->head = colon ? head : 0;
    w->at = range;
    w->edit = edit_ablate;
    return 0;
}
