/* Block-local attention with a state, for the latents of a Perceiver: a token sees only its own block of tokens, counted from the text's beginning.
 * The state of a sequence holds the keys and values of the current block, F32, in tiles of 64 as in a KV cache. Its size does not depend on the
 * text. */
#include <string.h>
#include "model/forward/block.h"
#include "tensor/tape.h"

/* Floats of the keys of one tile, and also of its values. */
static int64_t tile_floats(const struct llm_config *c) { return c->num_key_value_heads * LLM_KV_TILE * c->head_dim; }

/* Sets *out to n new tokens that lie in one block, at position `pos` of it. The block's keys and values are at `tiles`. False: no memory. */
static bool set_part(struct llm_ctx *c, const struct llm_config *f, struct llm_kv_seq *out, int64_t first, int64_t n, int64_t pos, float *tiles,
                     int64_t n_tiles)
{
    void **views = llm_op_alloc(c, 2 * n_tiles, sizeof *views);
    if (!views || !tiles) return false;
    for (int64_t i = 0; i < 2 * n_tiles; i++) views[i] = tiles + i * tile_floats(f);
    *out = (struct llm_kv_seq){.first = first, .n = n, .pos = pos, .view = {views, views + n_tiles, LLM_F32}};
    return true;
}

/* Divides a sequence's new tokens at the ends of blocks, into out[…]; NULL: counts the parts only. The last part uses the sequence's state as its
 * tiles, the earlier ones use temporary tiles on `acts`. Returns the number of parts, or -1 after a failure. */
static int64_t cut(struct llm_ctx *c, const struct llm_config *f, const struct llm_kv_seq *s, int64_t block, struct llm_kv_seq *out)
{
    int64_t n_tiles = llm_latents_tiles(block), floats = 2 * n_tiles * tile_floats(f), parts = 0;
    for (int64_t at = 0, n; at < s->n; at += n, parts++) {
        int64_t pos = (s->pos + at) % block;
        n = block - pos < s->n - at ? block - pos : s->n - at;
        if (!out) continue;
        float *tiles = at + n == s->n ? s->state : llm_op_alloc(c, floats, sizeof *tiles);
        if (!set_part(c, f, &out[parts], s->first + at, n, pos, tiles, n_tiles)) return -1;
        if (tiles == s->state) continue;
        if (pos > 0) memcpy(tiles, s->state, (size_t)floats * sizeof *tiles);
        else memset(tiles, 0, (size_t)floats * sizeof *tiles);
    }
    return parts;
}

struct llm_tensor *llm_latents_attend(struct llm_ctx *c, const struct llm_pass *p, struct llm_tensor *q, struct llm_tensor *k, struct llm_tensor *v,
                                      const struct llm_attn *a)
{
    const struct llm_batch *b = p->batch;
    const struct llm_kv_seq *seqs = b->seqs + p->layer * b->n_seqs;
    int64_t block = llm_config_block(p->config, p->layer), n = 0;
    for (int64_t s = 0; s < b->n_seqs; s++) n += cut(c, p->config, &seqs[s], block, NULL);
    struct llm_kv_seq *parts = llm_op_alloc(c, n, sizeof *parts);
    if (!parts) return &c->nothing;
    n = 0;
    for (int64_t s = 0; s < b->n_seqs; s++) {
        int64_t more = cut(c, p->config, &seqs[s], block, parts + n);
        if (more < 0) return &c->nothing;
        n += more;
    }
    return llm_attention_cached(c, q, k, v, a, parts, n);
}
