#include "io/checksums.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/hash.h"

/* Whether a metadata value has a checksum. */
static bool counts(const char *key)
{
    return strncmp(key, "llm.", 4) == 0 && strcmp(key, "llm.kind") != 0 && strcmp(key, "llm.tensors") != 0 && strcmp(key, LLM_META_CHECKSUMS) != 0;
}

static int compare(const struct llm_checksums *c, const char *what, const char *name, uint64_t hash, struct llm_err *e)
{
    char found[17];
    const char *said = json_string_value(json_object_get(c->said, name));
    snprintf(found, sizeof found, "%016" PRIx64, hash);
    if (said && strcmp(said, found) == 0) return 0;
    return llm_fail(e, EX_DATAERR, "%s '%s': checksum: expected %s, found %s", what, name, said ? said : "one in " LLM_META_CHECKSUMS, found);
}

/* A tensor begins; tensors without bytes are complete at once. */
static int next_tensor(struct llm_checksums *c, struct llm_err *e)
{
    for (; c->at < c->h->n_entries; c->at++) {
        const struct llm_entry *t = &c->h->entries[c->at];
        c->left = t->bytes;
        if (c->left > 0) {
            llm_xxh_destroy(c->hash);
            c->hash = llm_xxh_create(e);
            return c->hash ? 0 : -1;
        }
        if (compare(c, "tensor", t->name, llm_xxh64("", 0, 0), e) < 0) return -1;
    }
    return 0;
}

/* A message without checksums may be one whose key of them was damaged: then another key differs from theirs in one byte. */
static int check_absent(const struct llm_header *h, struct llm_err *e)
{
    static const char own[] = LLM_META_CHECKSUMS;
    const char *key;
    json_t *v;
    json_object_foreach(h->metadata, key, v) {
        size_t wrong = 0;
        if (strlen(key) != sizeof own - 1) continue;
        for (size_t i = 0; i < sizeof own - 1; i++) wrong += key[i] != own[i];
        if (wrong == 1) return llm_fail(e, EX_DATAERR, "metadata '%s': expected no key that is nearly " LLM_META_CHECKSUMS, key);
    }
    return 0;
}

int llm_checksums_begin(struct llm_checksums *c, const struct llm_header *h, struct llm_err *e)
{
    const char *text = llm_header_meta(h, LLM_META_CHECKSUMS), *key;
    json_t *v;
    size_t n = h->n_entries;
    llm_checksums_release(c);
    if (!text) return check_absent(h, e);
    c->h = h;
    c->said = llm_json_parse(text, strlen(text), e);
    if (!c->said) return llm_in(e, LLM_META_CHECKSUMS);
    if (!json_is_object(c->said)) return llm_fail(e, EX_DATAERR, LLM_META_CHECKSUMS ": expected an object");
    json_object_foreach(h->metadata, key, v) {
        if (!counts(key)) continue;
        if (compare(c, "metadata", key, llm_xxh64(json_string_value(v), json_string_length(v), 0), e) < 0) return -1;
        n++;
    }
    if (json_object_size(c->said) != n) {
        return llm_fail(e, EX_DATAERR, LLM_META_CHECKSUMS ": expected %zu checksums (tensors and metadata), found %zu", n, json_object_size(c->said));
    }
    return next_tensor(c, e);
}

int llm_checksums_feed(struct llm_checksums *c, const void *p, size_t n, struct llm_err *e)
{
    while (c->said && n > 0 && c->at < c->h->n_entries) {
        size_t step = n < c->left ? n : (size_t)c->left;
        llm_xxh_update(c->hash, p, step);
        p = (const char *)p + step;
        n -= step;
        c->left -= step;
        if (c->left > 0) continue;
        if (compare(c, "tensor", c->h->entries[c->at].name, llm_xxh_digest(c->hash), e) < 0) return -1;
        c->at++;
        if (next_tensor(c, e) < 0) return -1;
    }
    return 0;
}

void llm_checksums_release(struct llm_checksums *c)
{
    json_decref(c->said);
    llm_xxh_destroy(c->hash);
    *c = (struct llm_checksums){0};
}

static int put(json_t *sums, const char *name, const void *p, size_t n, struct llm_err *e)
{
    json_t *v = json_sprintf("%016llx", (unsigned long long)llm_xxh64(p, n, 0));
    return v && json_object_set_new(sums, name, v) == 0 ? 0 : llm_no_memory(e, "checksums");
}

int llm_checksums_add(json_t *meta, const struct llm_tensor_out *t, size_t n, struct llm_err *e)
{
    json_t *sums = json_object(), *v;
    struct llm_buf text = {0};
    const char *key;
    int got = sums ? 0 : llm_no_memory(e, "checksums");
    for (size_t i = 0; got == 0 && i < n; i++) {
        uint64_t elements = 1;
        for (int k = 0; k < t[i].n_dims; k++) elements *= (uint64_t)t[i].shape[k];
        got = put(sums, t[i].name, t[i].data, llm_dtype_bytes(t[i].dtype, elements), e);
    }
    json_object_foreach(meta, key, v) {
        if (got == 0 && counts(key)) got = put(sums, key, json_string_value(v), json_string_length(v), e);
    }
    if (got == 0) got = llm_json_dump(sums, &text, e);
    if (got == 0 && json_object_set_new(meta, LLM_META_CHECKSUMS, json_stringn(text.p, text.n)) < 0) got = llm_no_memory(e, "checksums");
    json_decref(sums);
    llm_buf_release(&text);
    return got;
}
