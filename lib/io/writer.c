#include "io/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

struct llm_writer {
    struct llm_output *out;
    struct llm_xxh *hash;     /* of all bytes since the last `end` */
    uint64_t count;
};

struct llm_writer *llm_writer_create(struct llm_output *o, struct llm_err *e)
{
    struct llm_writer *w = llm_calloc(1, sizeof *w, "stream", e);
    if (!w) return NULL;
    w->out = o;
    w->hash = llm_xxh_create(e);
    if (w->hash) return w;
    llm_writer_destroy(w);
    return NULL;
}

void llm_writer_destroy(struct llm_writer *w)
{
    if (w) llm_xxh_destroy(w->hash);
    free(w);
}

static int put(struct llm_writer *w, const void *p, size_t n, struct llm_err *e)
{
    llm_xxh_update(w->hash, p, n);
    return llm_output_write(w->out, p, n, e);
}

static int put_header(struct llm_writer *w, const struct llm_buf *json, struct llm_err *e)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)json->n >> (8 * i));
    return put(w, length, sizeof length, e) < 0 ? -1 : put(w, json->p, json->n, e);
}

int llm_writer_message(struct llm_writer *w, const char *kind, const json_t *meta, const struct llm_tensor_out *t, size_t n, struct llm_err *e)
{
    struct llm_buf json = {0};
    struct llm_entry *entries = llm_calloc(n, sizeof *entries, "header", e);
    int got = -1;
    if (entries && llm_layout(t, n, false, entries, e) == 0 && llm_header_build(kind, meta, entries, n, &json, e) == 0)
        got = put_header(w, &json, e);
    for (size_t i = 0; got == 0 && i < n; i++) got = put(w, entries[i].source, entries[i].bytes, e);
    w->count++;
    llm_buf_release(&json);
    free(entries);
    return got;
}

int llm_writer_end(struct llm_writer *w, struct llm_err *e)
{
    struct llm_buf json = {0};
    json_t *meta = json_pack("{s:o, s:o}", "llm.count", json_sprintf("%llu", (unsigned long long)w->count), "llm.xxh64",
                             json_sprintf("%016llx", (unsigned long long)llm_xxh_digest(w->hash)));
    int got = meta ? llm_header_build("end", meta, NULL, 0, &json, e) : llm_no_memory(e, "stream");
    if (got == 0) got = put_header(w, &json, e);
    json_decref(meta);
    llm_buf_release(&json);
    w->count = 0;
    llm_xxh_destroy(w->hash);
    w->hash = llm_xxh_create(e);
    return w->hash ? got : -1;
}
