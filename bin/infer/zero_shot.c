/* --classify --labels: classes that are texts, made of the names in a file by templates, for pictures of a model of two towers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "bin/infer/infer.h"

struct texts {
    struct templates templates;
    int32_t *ids;
    int64_t *lengths;
    size_t n_ids, ids_room, n, room;
};

/* The template with each "{}" replaced by the name. */
static int fill(struct llm_buf *out, const char *template, const char *name, struct llm_err *e)
{
    out->n = 0;
    for (const char *at = template, *next; at; at = next ? next + 2 : NULL) {
        next = strstr(at, "{}");
        if (llm_buf_put(out, at, next ? (size_t)(next - at) : strlen(at), e) < 0) return -1;
        if (next && llm_buf_put(out, name, strlen(name), e) < 0) return -1;
    }
    return 0;
}

static int add_text(const struct session *s, struct texts *t, const struct llm_buf *text, struct llm_err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    int status = prompt_encode(s, text->p, text->n, &ids, &n, e);
    if (status == 0) status = prompt_check(s, n, e);
    if (status == 0) status = llm_grow((void **)&t->ids, &t->ids_room, t->n_ids + n, sizeof *ids, e);
    if (status == 0) status = llm_grow((void **)&t->lengths, &t->room, t->n + 1, sizeof *t->lengths, e);
    if (status == 0) {
        memcpy(t->ids + t->n_ids, ids, n * sizeof *ids);
        t->n_ids += n;
        t->lengths[t->n++] = (int64_t)n;
    }
    free(ids);
    return status;
}

static int add_label(struct session *s, struct texts *t, const char *name, struct llm_err *e)
{
    struct llm_buf text = {0};
    const int64_t before = llm_labels_count(&s->zero_shot.labels), at = llm_labels_add(&s->zero_shot.labels, name, e);
    int status = at < 0 ? -1 : at < before ? llm_fail(e, EX_DATAERR, "expected each label once, found '%s' again", name) : 0;
    for (size_t i = 0; i < t->templates.n && status == 0; i++) {
        status = fill(&text, t->templates.v[i], name, e);
        if (status == 0) status = add_text(s, t, &text, e);
    }
    llm_buf_release(&text);
    return status;
}

/* A label a line; empty lines are skipped. */
static int read_labels(struct session *s, const char *path, struct texts *t, struct llm_err *e)
{
    struct llm_buf all = {0};
    int status = prompt_read_all(s, path, &all, e);
    int64_t number = 1;
    if (status == 0) status = llm_buf_put(&all, "", 1, e);
    if (status == 0 && strlen(all.p) + 1 != all.n) status = llm_fail(e, EX_DATAERR, "%s: expected text, found a byte 0", path);
    for (char *line = all.p, *end; status == 0 && *line; line = end, number++) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        if (*line && (status = add_label(s, t, line, e)) < 0) llm_in(e, "%s: line %" PRId64, path, number);
    }
    llm_buf_release(&all);
    if (status == 0 && t->n == 0) return llm_fail(e, EX_DATAERR, "%s: expected labels, one a line, found none", path);
    return status;
}

int zero_shot_open(struct session *s, const char *path, struct llm_err *e)
{
    struct texts t = {0};
    int status = templates_expand(&t.templates, &s->a->labels, e);
    if (status == 0) status = read_labels(s, path, &t, e);
    if (status == 0) status = llm_zero_shot_init(&s->zero_shot, &s->engine, t.ids, t.lengths, (int64_t)t.templates.n, e);
    templates_release(&t.templates);
    free(t.ids);
    free(t.lengths);
    return status;
}
