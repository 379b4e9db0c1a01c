#include "token/train/counts.h"
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"

const unsigned char *llm_counts_word(const struct llm_counts *c, const struct llm_count *slot)
{
    return slot->n <= 16 ? (const unsigned char *)slot->key : (const unsigned char *)c->blob.p + slot->key[1];
}

static size_t slot_of(const struct llm_counts *c, const uint64_t key[2], bool is_short)
{
    uint64_t h = (key[0] ^ (is_short ? key[1] * UINT64_C(0xC2B2AE3D27D4EB4F) : 0)) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(h >> (64 - c->bits));
}

static int grow(struct llm_counts *c, struct llm_err *e)
{
    struct llm_counts bigger = {.bits = c->bits ? c->bits + 1 : 12, .n = c->n, .blob = c->blob};
    size_t n = (size_t)1 << bigger.bits;
    bigger.slots = llm_calloc(n, sizeof *bigger.slots, "word counts", e);
    if (!bigger.slots)
        return -1;
    for (size_t i = 0; c->slots && i < (size_t)1 << c->bits; i++) {
        const struct llm_count *old = &c->slots[i];
        if (old->n == 0)
            continue;
        size_t at = slot_of(&bigger, old->key, old->n <= 16);
        while (bigger.slots[at].n)
            at = (at + 1) & (n - 1);
        bigger.slots[at] = *old;
    }
    free(c->slots);
    *c = bigger;
    return 0;
}

int llm_counts_add(struct llm_counts *c, const unsigned char *p, size_t n, uint64_t count, struct llm_err *e)
{
    uint64_t key[2];
    bool is_short = n <= 16;
    if (n > UINT32_MAX)
        return llm_fail(e, EX_UNAVAILABLE, "a piece of %zu bytes without a split point", n);
    if ((c->bits == 0 || c->n * 2 >= (size_t)1 << c->bits) && grow(c, e) < 0)
        return -1;
    if (is_short) {
        memcpy(key, p, 16);
        if (n < 8) {
            key[0] &= (UINT64_C(1) << 8 * n) - 1;
            key[1] = 0;
        } else if (n < 16) {
            key[1] &= (UINT64_C(1) << 8 * (n - 8)) - 1;
        }
    } else {
        key[0] = llm_xxh64(p, n, 0);
        key[1] = c->blob.n;
    }
    size_t mask = ((size_t)1 << c->bits) - 1;
    for (size_t at = slot_of(c, key, is_short);; at = (at + 1) & mask) {
        struct llm_count *s = &c->slots[at];
        if (s->n == 0) {
            if (!is_short && llm_buf_put(&c->blob, p, n, e) < 0)
                return -1;
            *s = (struct llm_count){{key[0], key[1]}, count, (uint32_t)n};
            c->n++;
            return 0;
        }
        if (s->n == n && s->key[0] == key[0] && (is_short ? s->key[1] == key[1] : memcmp(c->blob.p + s->key[1], p, n) == 0)) {
            s->count += count;
            return 0;
        }
    }
}

int llm_counts_merge(struct llm_counts *c, const struct llm_counts *from, struct llm_err *e)
{
    for (size_t i = 0; from->slots && i < (size_t)1 << from->bits; i++) {
        const struct llm_count *s = &from->slots[i];
        if (s->n && llm_counts_add(c, llm_counts_word(from, s), s->n, s->count, e) < 0)
            return -1;
    }
    return 0;
}

void llm_counts_release(struct llm_counts *c)
{
    free(c->slots);
    llm_buf_release(&c->blob);
    *c = (struct llm_counts){0};
}
