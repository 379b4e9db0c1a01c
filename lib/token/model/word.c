/* Pieces to ids, remembering what words became; the model "bpe". Text is made of few words: most pieces end at the first look-up. */
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "token/internal.h"

/* Up to 16 bytes that became up to 3 ids: two to a cache line, the newer first. */
struct word {
    uint64_t key[2]; /* the bytes, zero-padded */
    int32_t ids[3];
    uint8_t n_bytes, n_ids;
};
#define WORD_BITS 16
#define LINE 64 /* bytes of a cache line */
/* Longer ones, or of more ids. */
struct phrase {
    int32_t ids[12];
    uint8_t bytes[78];
    uint8_t n_bytes, n_ids;
};
#define PHRASE_BITS 12

struct llm_word_cache {
    void *memory;          /* zeros that cost nothing until they are used: a prompt of ten words needs a few pages */
    struct word *words;    /* [2^WORD_BITS], on a cache line */
    struct phrase *phrases; /* [2^PHRASE_BITS] */
};

struct llm_word_cache *llm_word_cache_create(struct llm_err *e)
{
    struct llm_word_cache *c = llm_calloc(1, sizeof *c, "the word cache", e);
    if (!c)
        return NULL;
    size_t words = sizeof *c->words << WORD_BITS, phrases = sizeof *c->phrases << PHRASE_BITS;
    c->memory = llm_calloc(1, LINE + words + phrases, "the word cache", e);
    if (!c->memory) {
        free(c);
        return NULL;
    }
    c->words = (void *)(((uintptr_t)c->memory + LINE - 1) / LINE * LINE);
    c->phrases = (void *)((unsigned char *)c->words + words);
    return c;
}

void llm_word_cache_destroy(struct llm_word_cache *c)
{
    if (c)
        free(c->memory);
    free(c);
}

static int bpe_new(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_tokenizer *t = en->t;
    size_t n_out;
    if (t->ignore_merges) {
        int32_t id = llm_tokenizer_whole(t, p, n);
        if (id >= 0) {
            en->ids[en->n_ids++] = id;
            return 0;
        }
    }
    if (llm_bpe_encode(&t->bpe, &en->work, p, n, en->ids + en->n_ids, &n_out, e) < 0)
        return -1;
    en->n_ids += n_out;
    return 0;
}

/* A piece that does not fit a `word`. */
static int encode_phrase(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    const struct llm_model_row *model = en->t->model;
    if (n > sizeof en->cache->phrases->bytes)
        return model->encode_new(en, p, n, e);
    struct phrase *f = &en->cache->phrases[llm_xxh64(p, n, 0) >> (64 - PHRASE_BITS)];
    if (f->n_bytes != n || memcmp(f->bytes, p, n) != 0) {
        size_t start = en->n_ids;
        if (model->encode_new(en, p, n, e) < 0)
            return -1;
        size_t n_out = en->n_ids - start;
        if (n_out <= sizeof f->ids / sizeof *f->ids) {
            memcpy(f->bytes, p, n);
            memcpy(f->ids, en->ids + start, n_out * sizeof *f->ids);
            f->n_bytes = (uint8_t)n;
            f->n_ids = (uint8_t)n_out;
        }
        return 0;
    }
    memcpy(en->ids + en->n_ids, f->ids, sizeof f->ids);
    en->n_ids += f->n_ids;
    return 0;
}

int llm_word_encode(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    if (n > 16)
        return encode_phrase(en, p, n, e);
    uint64_t key[2];
    memcpy(key, p, 16); /* the encoder's buffers end in 16 spare bytes */
    if (n < 8) {
        key[0] &= (UINT64_C(1) << 8 * n) - 1;
        key[1] = 0;
    } else if (n < 16) {
        key[1] &= (UINT64_C(1) << 8 * (n - 8)) - 1;
    }
    uint64_t h = (key[0] ^ key[1] * UINT64_C(0xC2B2AE3D27D4EB4F)) * UINT64_C(0x9E3779B97F4A7C15);
    struct word *w = &en->cache->words[(h >> (64 - WORD_BITS)) & ~(uint64_t)1];
    if (w->key[0] != key[0] || w->key[1] != key[1] || w->n_bytes != n) {
        if (w[1].key[0] == key[0] && w[1].key[1] == key[1] && w[1].n_bytes == n) {
            w++;
        } else {
            size_t start = en->n_ids;
            if (en->t->model->encode_new(en, p, n, e) < 0)
                return -1;
            size_t n_out = en->n_ids - start;
            if (n_out > 3)
                return 0;
            w[1] = w[0];
            *w = (struct word){{key[0], key[1]}, {0}, (uint8_t)n, (uint8_t)n_out};
            memcpy(w->ids, en->ids + start, n_out * sizeof *w->ids);
            return 0;
        }
    }
    memcpy(en->ids + en->n_ids, w->ids, sizeof w->ids);
    en->n_ids += w->n_ids;
    return 0;
}

const struct llm_model_row llm_model_bpe = {"bpe", llm_word_encode, bpe_new, false, false};
