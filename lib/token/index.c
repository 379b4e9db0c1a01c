/* The index of a vocabulary: from the bytes of a token to its id. */
#include <string.h>
#include "base/hash.h"
#include "token/internal.h"

static inline uint64_t load64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline uint32_t load32(const unsigned char *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* Pieces are short: two loads that may overlap. Longer ones are rare. */
uint32_t llm_piece_hash(const unsigned char *p, size_t n)
{
    if (n == 0)
        return 0;
    if (n > 16)
        return (uint32_t)(llm_xxh64(p, n, 0) >> 32);
    uint64_t a = n >= 8 ? load64(p) : n >= 4 ? load32(p) : (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 8 | p[n - 1];
    uint64_t b = n >= 8 ? load64(p + n - 8) : n >= 4 ? load32(p + n - 4) : 0;
    uint64_t h = (a + n) * UINT64_C(0x9E3779B97F4A7C15) ^ b * UINT64_C(0xC2B2AE3D27D4EB4F);
    return (uint32_t)((h ^ h >> 29) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
}

#define EMPTY UINT32_MAX

/* The place of the token whose text is p[n], or the empty one where it would be. */
static size_t find_whole(const struct llm_tokenizer *t, const unsigned char *p, size_t n, uint32_t hash)
{
    uint32_t ids = ((uint32_t)1 << t->whole_id_bits) - 1;
    size_t mask = ((size_t)1 << t->whole_bits) - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        size_t len;
        if (t->whole[i] == EMPTY)
            return i;
        if ((t->whole[i] ^ hash) & ~ids)
            continue;
        const unsigned char *text = llm_model_piece(t, (int32_t)(t->whole[i] & ids), &len);
        if (len == n && memcmp(text, p, n) == 0)
            return i;
    }
}

void llm_tokenizer_expect_whole(const struct llm_tokenizer *t, const unsigned char *p, size_t n)
{
    __builtin_prefetch(&t->whole[llm_piece_hash(p, n) & (((size_t)1 << t->whole_bits) - 1)]);
}

int32_t llm_tokenizer_whole(const struct llm_tokenizer *t, const unsigned char *p, size_t n)
{
    uint32_t slot = t->whole[find_whole(t, p, n, llm_piece_hash(p, n))];
    return slot == EMPTY ? -1 : (int32_t)(slot & (((uint32_t)1 << t->whole_id_bits) - 1));
}

int llm_tokenizer_index_whole(struct llm_tokenizer *t, struct llm_err *e)
{
    for (t->whole_bits = 8; (int32_t)1 << t->whole_bits < t->vocab_size * 2; t->whole_bits++) {
    }
    size_t slots = (size_t)1 << t->whole_bits;
    t->whole = llm_alloc(slots, sizeof *t->whole, "a vocabulary's index", e);
    if (!t->whole)
        return -1;
    memset(t->whole, 0xFF, slots * sizeof *t->whole);
    for (t->whole_id_bits = 8; t->vocab_size >> t->whole_id_bits; t->whole_id_bits++) {
    }
    for (int32_t id = 0; id < t->vocab_size; id++) {
        uint32_t n = t->offsets[id + 1] - t->offsets[id];
        if (n == 0 || !(t->flags[id] & LLM_TOKEN_MODEL))
            continue;
        uint32_t h = llm_piece_hash(t->pieces + t->offsets[id], n), ids = ((uint32_t)1 << t->whole_id_bits) - 1;
        uint32_t *slot = &t->whole[find_whole(t, t->pieces + t->offsets[id], n, h)];
        if (*slot != EMPTY)
            return llm_fail(e, EX_DATAERR, "tokens %d and %d have the same text", (int32_t)(*slot & ids), id);
        *slot = (h & ~ids) | (uint32_t)id;
    }
    return 0;
}
