/* Identity: SHA-256 of a canonical form, the same whichever file the tokenizer came from.
 *   "llm-tokenizer 1\n", type, "\n", normaliser ("-": none), "\n", for each split: its row's name or "/" and its pattern, "\n"; "\n";
 *   where the tokens that end a word have a suffix: "e", the suffix, "\n", before the empty line;
 *   "P" when a space is put in front; "W" when whole pieces win over merges and that changes something; "\n";
 *   for each id: length (32 bits, little-endian; all ones: no such id), bytes;
 *   for each token of the model that merges make, in the order of rank: left, right, id (32 bits each).
 * Of a tokenizer whose texts are handled as a whole, instead of normaliser, splits and "P": "n", name and parameters of each normaliser, "p", those
 * of each pre-tokenizer, "m", those of the model (see put_settings); behind the texts the scores of a Unigram model (doubles, little-endian) and,
 * where there are user-defined symbols, their ids.
 * Merges over characters that make runs of "▁" are left out.
 * A merge that never makes its token when the token's bytes are encoded alone (rank files have many) is not part of it. */
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "token/internal.h"

struct llm_bpe_merge *llm_tokenizer_derivations(const struct llm_tokenizer *t, bool *all_made, struct llm_err *e)
{
    struct llm_bpe_merge *made = llm_alloc((size_t)t->vocab_size, sizeof *made, "merges", e);
    struct llm_bpe_work work = {0};
    int32_t *ids = NULL;
    size_t room = 0;
    *all_made = true;
    for (int32_t id = 0; made && id < t->vocab_size; id++) {
        size_t n = t->offsets[id + 1] - t->offsets[id], n_ids = 0;
        made[id] = (struct llm_bpe_merge){LLM_BPE_NONE, LLM_BPE_NONE, LLM_BPE_NONE, (uint32_t)id};
        if (n == 0 || !(t->flags[id] & LLM_TOKEN_MODEL))
            continue;
        struct llm_err why = {0};
        bool ends;
        n = llm_without_suffix(t, t->pieces + t->offsets[id], n, &ends);
        int derived = llm_grow((void **)&ids, &room, n, sizeof *ids, &why);
        if (derived == 0 && t->model == &llm_model_bpe_chars)
            derived = llm_bpe_chars_derive(t, &work, t->pieces + t->offsets[id], n, ends, ids, &n_ids, &made[id], &why);
        else if (derived == 0)
            derived = llm_bpe_derive(&t->bpe, &work, t->pieces + t->offsets[id], n, ends, ids, &n_ids, &made[id], &why);
        if (derived < 0 && why.status != EX_DATAERR) { /* a token with a byte that has none is one that is never made */
            free(made);
            made = NULL;
            if (e)
                *e = why;
        } else if (n_ids != 1 || ids[0] != id) {
            made[id].left = LLM_BPE_NONE;
            *all_made = *all_made && t->flags[id] & LLM_TOKEN_ADDED;
        }
    }
    free(ids);
    llm_bpe_work_release(&work);
    return made;
}

static void put32(struct llm_sha256 *h, uint32_t v)
{
    unsigned char b[4] = {(unsigned char)v, (unsigned char)(v >> 8), (unsigned char)(v >> 16), (unsigned char)(v >> 24)};
    llm_sha256_update(h, b, 4);
}

static void put_text(struct llm_sha256 *h, const char *s)
{
    llm_sha256_update(h, s, strlen(s));
}

static int by_rank(const void *a, const void *b)
{
    const struct llm_bpe_merge *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : (x->id > y->id) - (x->id < y->id);
}

static void put_buf(struct llm_sha256 *h, const struct llm_buf *b)
{
    put32(h, (uint32_t)b->n);
    llm_sha256_update(h, b->p, b->n);
}

static void put_settings(struct llm_sha256 *h, const struct llm_tokenizer *t)
{
    for (int i = 0; i < t->n_norms; i++) {
        const struct llm_norm *s = &t->norms[i];
        put_text(h, "\nn");
        put_text(h, s->row->name);
        put32(h, s->flags | (s->regex ? 1u << 31 : 0));
        put_buf(h, &s->text);
        put_buf(h, &s->content);
        put_buf(h, &s->map);
    }
    for (int i = 0; i < t->n_pres; i++) {
        const struct llm_pre *s = &t->pres[i];
        const char *pattern = s->split.row ? s->split.row->name : s->split.pattern;
        put_text(h, "\np");
        put_text(h, s->row->name);
        put32(h, (uint32_t)s->behaviour | s->chars << 8 | (uint32_t)s->prepend << 16 | (s->invert ? 1u << 24 : 0) | (s->cut ? 1u << 25 : 0)
                     | (s->split.row ? 1u << 26 : 0));
        put_buf(h, &s->text);
        put_text(h, pattern ? pattern : "");
    }
    put_text(h, "\nm");
    put32(h, (uint32_t)t->unknown);
    put32(h, (t->byte_fallback ? 1 : 0) | (t->fuse_unknown ? 2 : 0) | (t->sentencepiece ? 4 : 0));
    if (t->model == &llm_model_wordpiece) {
        put32(h, (uint32_t)t->max_word);
        put_text(h, t->prefix);
    }
}

static void put_scores(struct llm_sha256 *h, const struct llm_tokenizer *t)
{
    for (int32_t id = 0; t->scores && id < t->vocab_size; id++) {
        uint64_t bits;
        memcpy(&bits, &t->scores[id], 8);
        if (!(t->flags[id] & LLM_TOKEN_MODEL))
            bits = UINT64_MAX;
        put32(h, (uint32_t)bits);
        put32(h, (uint32_t)(bits >> 32));
    }
    for (int32_t id = 0; id < t->vocab_size; id++)
        if (t->flags[id] & LLM_TOKEN_USER && !(t->flags[id] & LLM_TOKEN_ADDED))
            put32(h, (uint32_t)id);
}

/* "▁▁…": the same however the list of merges builds it up, which is where lists for one .model differ. */
static bool is_indent(const struct llm_tokenizer *t, int32_t id)
{
    size_t n;
    const unsigned char *p = llm_model_piece(t, id, &n);
    for (size_t i = 0; i < n; i += 3)
        if (n % 3 || memcmp(p + i, "\xE2\x96\x81", 3) != 0)
            return false;
    return t->model == &llm_model_bpe_chars;
}

static int compute(const struct llm_tokenizer *t, char hex[65], struct llm_err *e)
{
    bool all_made = true;
    struct llm_bpe_merge *made = NULL;
    if (t->model == &llm_model_bpe || t->model == &llm_model_bpe_chars) {
        made = llm_tokenizer_derivations(t, &all_made, e);
        if (!made)
            return -1;
        qsort(made, (size_t)t->vocab_size, sizeof *made, by_rank);
    }
    struct llm_sha256 *h = llm_sha256_create(e);
    if (!h) {
        free(made);
        return -1;
    }
    put_text(h, "llm-tokenizer 1\n");
    put_text(h, t->model->name);
    put_text(h, "\n");
    if (t->generic)
        put_settings(h, t);
    else
        put_text(h, t->normaliser ? t->normaliser->name : "-");
    for (int i = 0; i < t->n_splits; i++) {
        put_text(h, t->splits[i].row ? "\n" : "\n/");
        put_text(h, t->splits[i].row ? t->splits[i].row->name : t->splits[i].pattern);
    }
    if (t->suffix) {
        put_text(h, "\ne");
        put_text(h, t->suffix);
    }
    put_text(h, "\n\n");
    put_text(h, t->add_prefix_space ? "P" : "");
    put_text(h, t->ignore_merges && !all_made ? "W" : "");
    put_text(h, "\n");
    for (int32_t id = 0; id < t->vocab_size; id++) {
        uint32_t n = t->offsets[id + 1] - t->offsets[id];
        put32(h, t->flags[id] ? n : UINT32_MAX);
        llm_sha256_update(h, t->pieces + t->offsets[id], n);
    }
    if (t->generic)
        put_scores(h, t);
    for (int32_t i = 0; made && i < t->vocab_size && made[i].rank != LLM_BPE_NONE; i++) {
        if (made[i].left == LLM_BPE_NONE || is_indent(t, (int32_t)made[i].id))
            continue;
        put32(h, made[i].left);
        put32(h, made[i].right);
        put32(h, made[i].id);
    }
    llm_sha256_finish(h, hex);
    free(made);
    return 0;
}

const char *llm_tokenizer_id(const struct llm_tokenizer *t)
{
    struct llm_tokenizer *own = (struct llm_tokenizer *)(uintptr_t)t; /* a cache behind a lock: the object stays the same */
    struct llm_err e;
    pthread_mutex_lock(&own->lock);
    if (!own->id_known && compute(t, own->id, &e) == 0)
        own->id_known = true;
    pthread_mutex_unlock(&own->lock);
    return own->id;
}
