#include "measure/latent.h"

#include <math.h>
#include <stdlib.h>
#include "base/buf.h"
#include "base/log.h"
#include "base/rng.h"
#include "measure/stats.h"
#include "tensor/ops.h"

enum { MAX_RUNS = 1000, MIN_RUNS = 3 };

double llm_latent_flops(const struct llm_latent_job *j)
{
    return 2 * (double)(j->n_seqs * j->n_heads * j->keys) * (double)(2 * j->rank + LLM_LATENT_ROPE);
}

double llm_latent_bytes(const struct llm_latent_job *j)
{
    return (double)llm_dtype_bytes(LLM_BF16, (uint64_t)(j->rank + LLM_LATENT_ROPE)) * (double)(j->n_seqs * j->keys);
}

/* Tiles of the caches of all sequences, of numbers in [-1, 1). */
static void **make_tiles(const struct llm_latent_job *j, unsigned char **memory, struct llm_err *e)
{
    size_t d = (size_t)(j->rank + LLM_LATENT_ROPE), n = (size_t)(j->n_seqs * ((j->keys + LLM_KV_TILE - 1) / LLM_KV_TILE));
    uint16_t *cache = llm_alloc_huge(n * LLM_KV_TILE * d, sizeof *cache, "a cache", e);
    void **tiles = llm_alloc(n, sizeof *tiles, "a cache", e);
    float *row = llm_alloc(d, sizeof *row, "a cache", e);
    *memory = (unsigned char *)cache;
    for (size_t r = 0; cache && tiles && row && r < n * LLM_KV_TILE; r++) {
        struct llm_rng rng = llm_rng_at(0, 0, LLM_RNG_TEST, 0, (uint32_t)r, 0);
        for (size_t i = 0; i < d; i++) row[i] = 2 * llm_rng_uniform(&rng, (uint32_t)i) - 1;
        llm_dtypes[LLM_BF16].encode(row, cache + r * d, d);
        tiles[r / LLM_KV_TILE] = cache + r / LLM_KV_TILE * LLM_KV_TILE * d;
    }
    bool made = cache && tiles && row;
    free(row);
    if (made) return tiles;
    free(tiles);
    return NULL;
}

/* One run's seconds: a new token of each sequence. */
static double once(struct llm_ctx *c, const struct llm_latent_job *j, const struct llm_kv_seq *seqs)
{
    const int64_t d = j->rank + LLM_LATENT_ROPE;
    const struct llm_attn a = {.n_heads = j->n_heads, .n_kv_heads = 1, .d_k = d, .d_v = j->rank, .scale = (float)(1 / sqrt((double)d)),
                               .causal = true};
    llm_ctx_reset(c);
    struct llm_tensor *q = llm_tensor_create(c, j->n_seqs, j->n_heads * d), *k = llm_tensor_create(c, j->n_seqs, d);
    for (int64_t i = 0; i < q->rows * q->cols; i++) q->data[i] = (float)((i * 37 % 101) - 50) / 50;
    for (int64_t i = 0; i < k->rows * k->cols; i++) k->data[i] = (float)((i * 31 % 97) - 48) / 48;
    double start = llm_now();
    llm_attention_cached(c, q, k, llm_columns(c, k, 0, j->rank), &a, seqs, j->n_seqs);
    return llm_now() - start;
}

int llm_latent_speed(const struct llm_latent_job *j, double seconds, double *median, double *best, struct llm_err *e)
{
    struct llm_ctx c;
    double rates[MAX_RUNS], all = 0;
    size_t n = 0;
    int64_t tiles_each = (j->keys + LLM_KV_TILE - 1) / LLM_KV_TILE;
    unsigned char *memory = NULL;
    void **tiles = make_tiles(j, &memory, e);
    struct llm_kv_seq *seqs = llm_calloc((size_t)j->n_seqs, sizeof *seqs, "sequences", e);
    int status = tiles && seqs ? llm_ctx_init(&c, (size_t)1 << 30, (size_t)64 << 20, false, e) : -1;
    *best = *median = 0;
    if (status == 0) {
        c.compute = LLM_COMPUTE_BF16;
        for (int64_t s = 0; s < j->n_seqs; s++) {
            seqs[s] = (struct llm_kv_seq){.first = s, .n = 1, .pos = j->keys - 1, .view = {tiles + s * tiles_each, NULL, LLM_BF16}};
        }
        once(&c, j, seqs); /* touches everything */
        while (!llm_ctx_failed(&c) && n < MAX_RUNS && (all < seconds || n < MIN_RUNS)) {
            double took = once(&c, j, seqs);
            all += took;
            rates[n] = llm_latent_flops(j) / took;
            if (rates[n] > *best) *best = rates[n];
            n++;
        }
        *median = n > 0 ? llm_median(rates, n) : 0;
        if (llm_ctx_failed(&c)) {
            *e = c.err;
            status = -1;
        }
        llm_ctx_release(&c);
    }
    free(seqs);
    free(tiles);
    free(memory);
    return status;
}
