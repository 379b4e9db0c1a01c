/* Pieces to ids, remembering what words became; the model "bpe". Text is made of few words: most pieces end at the first look-up. */
#include <stdlib.h>
#include <string.h>
#include "base/arena.h"
#include "base/hash.h"
#include "base/pages.h"
#include "token/internal.h"

/* Up to 15 bytes that became up to 3 ids: two to a cache line, the newer first. */
struct word {
    uint64_t key[2]; /* the bytes, zero-padded; the last is their number */
    int32_t ids[3];
    int32_t n_ids;
};
#define WORD_BYTES 15
#define WORD_IDS 3
#define WORD_BITS 17
#define PAGE ((size_t)2 << 20) /* a huge one: what an arena begins on */
/* As many bytes that became more ids. */
struct syllables {
    uint64_t key[2];
    int32_t ids[11];
    int32_t n_ids;
};
#define SYLLABLES_BITS 13
/* Longer ones. */
struct phrase {
    int32_t ids[12];
    uint8_t bytes[78];
    uint8_t n_bytes, n_ids;
};
#define PHRASE_BITS 12

/* Fresh from the system: zeros, which cost nothing until they are used. A prompt of ten words needs a few pages. */
struct llm_word_cache {
    struct llm_arena arena;      /* of what follows */
    struct syllables *syllables; /* [2^SYLLABLES_BITS] */
    struct phrase *phrases;      /* [2^PHRASE_BITS] */
    struct word *words;          /* [2^WORD_BITS] */
    bool large;                  /* words are on huge pages */
};
#define WORDS_BYTES (sizeof(struct word) << WORD_BITS)
#define OTHERS_BYTES ((sizeof(struct syllables) << SYLLABLES_BITS) + (sizeof(struct phrase) << PHRASE_BITS))
_Static_assert(sizeof(struct word) == 32 && LLM_PIECES <= UINT16_MAX, "ids and their number are copied together");
_Static_assert(OTHERS_BYTES % 64 == 0 && OTHERS_BYTES <= PAGE && WORDS_BYTES % PAGE == 0, "words begin on a huge page");

struct llm_word_cache *llm_word_cache_create(struct llm_err *e)
{
    struct llm_word_cache *c = llm_calloc(1, sizeof *c, "the word cache", e);
    if (!c)
        return NULL;
    if (llm_arena_init(&c->arena, PAGE + WORDS_BYTES, e) < 0) {
        free(c);
        return NULL;
    }
    c->syllables = llm_arena_alloc(&c->arena, sizeof *c->syllables << SYLLABLES_BITS);
    /* with what fills the first page, so that words begin on the next */
    c->phrases = llm_arena_alloc(&c->arena, PAGE - (sizeof *c->syllables << SYLLABLES_BITS));
    c->words = llm_arena_alloc(&c->arena, WORDS_BYTES);
    llm_pages_small(c->words, WORDS_BYTES);
    return c;
}

void llm_word_cache_destroy(struct llm_word_cache *c)
{
    if (c)
        llm_arena_release(&c->arena);
    free(c);
}

void llm_word_cache_expect(struct llm_word_cache *c, size_t n)
{
    if (c->large || n < 32768)
        return;
    c->large = true;
    llm_pages_huge(c->words, WORDS_BYTES); /* one fault instead of hundreds; without it, it is only slower */
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
    if (n > 2 * LLM_BPE_WINDOW && en->flush) {
        if (en->flush(en->flush_arg, en->ids, en->n_ids, e) < 0)
            return -1;
        en->n_ids = 0;
    }
    if (llm_bpe_encode_long(t, &en->work, p, n, LLM_BPE_WINDOW, en->ids + en->n_ids, &n_out, en->flush, en->flush_arg, e) < 0)
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

/* The first n bytes of a word. */
#define BYTES(n) ((UINT64_C(1) << 8 * (n)) - 1)
static const uint64_t low_bytes[WORD_BYTES + 1] = {0,        BYTES(1),   BYTES(2),   BYTES(3),   BYTES(4),   BYTES(5),   BYTES(6),   BYTES(7),
                                                   UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
static const uint64_t high_bytes[WORD_BYTES + 1] = {0, 0, 0, 0, 0, 0, 0, 0, 0, BYTES(1), BYTES(2), BYTES(3), BYTES(4), BYTES(5), BYTES(6), BYTES(7)};

struct key { uint64_t low, high; };

/* 16 bytes at p are read: the encoder's buffers end in spare ones. */
static inline struct key key_of(const unsigned char *p, size_t n)
{
    struct key k;
    memcpy(&k.low, p, 8);
    memcpy(&k.high, p + 8, 8);
    k.low &= low_bytes[n];
    k.high = (k.high & high_bytes[n]) | (uint64_t)n << 56;
    return k;
}

static inline uint64_t hash_of(struct key k)
{
    return (k.low * UINT64_C(0x9E3779B97F4A7C15)) ^ (k.high * UINT64_C(0xC2B2AE3D27D4EB4F));
}

static inline struct word *pair_of(const struct llm_word_cache *c, uint64_t hash)
{
    return &c->words[(hash >> (64 - WORD_BITS)) & ~(uint64_t)1];
}

static inline uint64_t differs(const uint64_t key[2], struct key k)
{
    return (key[0] ^ k.low) | (key[1] ^ k.high);
}

static inline struct syllables *syllables_of(const struct llm_word_cache *c, uint64_t hash)
{
    return &c->syllables[hash >> 20 & (((uint64_t)1 << SYLLABLES_BITS) - 1)];
}

static void remember(struct llm_word_cache *c, struct key k, const int32_t *ids, size_t n)
{
    uint64_t hash = hash_of(k);
    struct word *w = pair_of(c, hash);
    struct syllables *s = syllables_of(c, hash);
    if (n <= WORD_IDS && differs(w->key, k)) {
        w[1] = w[0];
        *w = (struct word){{k.low, k.high}, {0}, (int32_t)n};
        memcpy(w->ids, ids, n * sizeof *w->ids);
    } else if (n > WORD_IDS && n <= sizeof s->ids / sizeof *s->ids) {
        *s = (struct syllables){{k.low, k.high}, {0}, (int32_t)n};
        memcpy(s->ids, ids, n * sizeof *s->ids);
    }
}

/* A word that is in neither place of its pair. */
static __attribute__((noinline)) int encode_word(struct llm_encoder *en, const unsigned char *p, size_t n, struct key k, struct llm_err *e)
{
    struct llm_word_cache *c = en->cache;
    const struct syllables *s = syllables_of(c, hash_of(k));
    if (!differs(s->key, k)) {
        memcpy(en->ids + en->n_ids, s->ids, sizeof s->ids);
        en->n_ids += (size_t)s->n_ids;
        return 0;
    }
    size_t start = en->n_ids;
    if (en->t->model->encode_new(en, p, n, e) < 0)
        return -1;
    size_t n_out = en->n_ids - start;
    remember(c, k, en->ids + start, n_out);
    return 0;
}

int llm_word_encode(struct llm_encoder *en, const unsigned char *p, size_t n, struct llm_err *e)
{
    if (n > WORD_BYTES)
        return encode_phrase(en, p, n, e);
    struct key k = key_of(p, n);
    const struct word *w = pair_of(en->cache, hash_of(k));
    if (differs(w->key, k) && differs((++w)->key, k))
        return encode_word(en, p, n, k, e);
    memcpy(en->ids + en->n_ids, w->ids, sizeof w->ids);
    en->n_ids += (size_t)w->n_ids;
    return 0;
}

static inline size_t begin_of(const size_t *ends, size_t i)
{
    return i ? ends[i - 1] : 0;
}

/* Encodes and remembers the pieces `missing` [n] of a run, which are in no pair: words that are merged side by side wait for memory together. Pieces
 * that are longer than a word or have a byte without a token, and words whose place another one takes, are left to llm_word_encode. */
static void encode_new_words(struct llm_encoder *en, const unsigned char *p, const size_t *ends, const uint16_t *missing, size_t n)
{
    const struct llm_tokenizer *t = en->t;
    struct llm_bpe_word words[LLM_PIECES];
    size_t n_words = 0, n_merged = 0;
    for (size_t i = 0; i < n; i++) {
        struct llm_bpe_word *w = &words[n_words];
        w->p = p + begin_of(ends, missing[i]);
        w->n = ends[missing[i]] - begin_of(ends, missing[i]);
        if (w->n > WORD_BYTES)
            continue;
        struct key k = key_of(w->p, w->n);
        if (!differs(syllables_of(en->cache, hash_of(k))->key, k) || llm_bpe_no_token(&t->bpe, w->p, w->n, true) < w->n)
            continue;
        if (t->ignore_merges)
            llm_tokenizer_expect_whole(t, w->p, w->n);
        n_words++;
    }
    for (size_t i = 0; i < n_words; i++) {
        int32_t id = t->ignore_merges ? llm_tokenizer_whole(t, words[i].p, words[i].n) : -1;
        if (id >= 0) {
            remember(en->cache, key_of(words[i].p, words[i].n), &id, 1);
            continue;
        }
        words[n_merged].p = words[i].p;
        words[n_merged++].n = words[i].n;
    }
    llm_bpe_encode_words(&t->bpe, words, n_merged);
    for (size_t i = 0; i < n_merged; i++)
        remember(en->cache, key_of(words[i].p, words[i].n), words[i].ids, words[i].n_ids);
}

/* In passes, so that the slots of all words are loading before the first is read. The slot of the pair is chosen, and missing words are listed,
 * without a branch: it would be unpredictable, and a misprediction would discard the loads already in flight. */
int llm_words_encode(struct llm_encoder *en, const unsigned char *p, const size_t *ends, size_t n, struct llm_err *e)
{
    const struct llm_word_cache *c = en->cache;
    struct { struct key key; const struct word *pair; } places[LLM_PIECES];
    struct { int32_t ids[WORD_IDS], n; } found[LLM_PIECES];
    uint16_t missing[LLM_PIECES + 1];
    size_t n_missing = 0;
    for (size_t i = 0, from = 0; i < n; from = ends[i++]) {
        size_t len = ends[i] - from;
        places[i].key = key_of(p + from, len <= WORD_BYTES ? len : 0);
        places[i].pair = pair_of(c, hash_of(places[i].key));
        __builtin_prefetch(places[i].pair);
    }
    for (size_t i = 0, from = 0; i < n; from = ends[i++]) {
        const struct word *w = places[i].pair;
        uint64_t first = differs(w[0].key, places[i].key), second = differs(w[1].key, places[i].key);
        memcpy(&found[i], w[first != 0].ids, sizeof found[i]);
        missing[n_missing] = (uint16_t)i;
        n_missing += ((first != 0) & (second != 0)) | (ends[i] - from > WORD_BYTES);
    }
    if (n_missing && !en->t->bpe.joined)
        encode_new_words(en, p, ends, missing, n_missing);
    missing[n_missing] = (uint16_t)n;
    for (size_t i = 0, m = 0; i < n; i++) {
        int32_t *ids = en->ids;
        size_t n_ids = en->n_ids;
        for (; i < missing[m]; i++) {
            memcpy(ids + n_ids, found[i].ids, sizeof found[i].ids);
            n_ids += (size_t)found[i].n;
        }
        en->n_ids = n_ids;
        if (i < n && llm_word_encode(en, p + begin_of(ends, i), ends[i] - begin_of(ends, i), e) < 0)
            return -1;
        m++;
    }
    return 0;
}

const struct llm_model_row llm_model_bpe = {"bpe", llm_word_encode, bpe_new, llm_words_encode, NULL, false, false};
