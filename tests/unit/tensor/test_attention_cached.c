/* Attention over a cache has the bits of attention over the row: prefill in one call, token by token, in pieces, beside other sequences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attention_reference.h"
#include "cpu/detect.h"
#include "cpu/kernels.h"
#include "cpu/pool.h"

#define ARENA ((size_t)1 << 30)

/* The cache of one sequence; memory beyond what is stored is poison. */
struct cache { void **k, **v; int64_t tiles; struct llm_kv_view view; };

static struct cache cache_make(const struct llm_attn *a, int64_t tokens, enum llm_dtype type, enum llm_dtype v_type)
{
    struct cache c = {.tiles = (tokens + LLM_KV_TILE - 1) / LLM_KV_TILE};
    size_t k = llm_dtype_bytes(type, (uint64_t)(a->n_kv_heads * LLM_KV_TILE * a->d_k)),
           v = llm_dtype_bytes(v_type, (uint64_t)(a->n_kv_heads * LLM_KV_TILE * a->d_v));
    c.k = calloc((size_t)c.tiles, sizeof *c.k);
    c.v = calloc((size_t)c.tiles, sizeof *c.v);
    for (int64_t t = 0; t < c.tiles; t++) {
        c.k[t] = malloc(k);
        c.v[t] = malloc(v);
        memset(c.k[t], 0xff, k);
        memset(c.v[t], 0xff, v);
    }
    c.view = (struct llm_kv_view){c.k, c.v, type, v_type};
    return c;
}

static void cache_release(struct cache *c)
{
    for (int64_t t = 0; t < c->tiles; t++) {
        free(c->k[t]);
        free(c->v[t]);
    }
    free(c->k);
    free(c->v);
}

static const struct attn_case cached_cases[] = {
    {"grouped", 3, 150, {.n_heads = 4, .n_kv_heads = 2, .d_k = 32, .d_v = 64, .causal = true}, false, false, {0}},
    {"window, sinks, cap", 3, 140,
     {.n_heads = 3, .n_kv_heads = 1, .d_k = 64, .d_v = 32, .causal = true, .window = 50, .softcap = 5}, true, false, {0}},
    {"bias, prefix", 2, 131, {.n_heads = 2, .n_kv_heads = 2, .d_k = 32, .d_v = 32, .causal = true, .rel_max = 30}, false, false, {0}},
    {"chunks", 1, 2100, {.n_heads = 4, .n_kv_heads = 2, .d_k = 32, .d_v = 32, .causal = true}, false, false, {0}},
    {"chunks, window", 1, 2100, {.n_heads = 2, .n_kv_heads = 1, .d_k = 32, .d_v = 32, .causal = true, .window = 1000}, true, false, {0}},
};
static const int n_cached_cases = sizeof cached_cases / sizeof *cached_cases;

struct fixture { struct problem p; struct llm_attn a; struct llm_param bias, sinks; struct llm_ctx c; };

static void fixture_open(struct fixture *f, const struct attn_case *what, enum llm_compute compute)
{
    struct llm_err e = {0};
    f->p = problem_make(what, 21);
    f->a = f->p.a;
    f->bias = (struct llm_param){.n_dims = 1, .shape = {f->a.n_heads * (2 * f->a.rel_max - 1)}, .weight = {.data = f->p.bias}};
    f->sinks = (struct llm_param){.n_dims = 1, .shape = {f->a.n_heads}, .weight = {.data = f->p.sinks}};
    if (f->p.bias) f->a.rel_bias = &f->bias;
    if (f->p.sinks) f->a.sinks = &f->sinks;
    assert_int_equal(llm_ctx_init(&f->c, ARENA, 0, false, &e), 0);
    f->c.compute = compute;
    f->c.n_rows = f->p.n_rows;
    f->c.row_len = f->p.row_len;
}

static void fixture_close(struct fixture *f)
{
    llm_ctx_release(&f->c);
    problem_release(&f->p);
}

/* The tokens listed, one after another, as a matrix. */
static struct llm_tensor *rows(struct fixture *f, const float *x, int64_t width, const int64_t *tokens, int64_t n)
{
    struct llm_tensor *t = llm_tensor_create(&f->c, n, width);
    for (int64_t i = 0; i < n; i++) memcpy(t->data + i * width, x + tokens[i] * width, (size_t)width * sizeof *x);
    return t;
}

/* Feeds every sequence (row) of the problem in runs of step[0], step[1], … tokens (the last repeats), all sequences in one call, or each alone;
 * returns the outputs in the order of the problem's rows. */
static float *feed(struct fixture *f, enum llm_dtype type, enum llm_dtype v_type, const int64_t *steps, bool together)
{
    const struct llm_attn *a = &f->a;
    int64_t wq = a->n_heads * a->d_k, wk = a->n_kv_heads * a->d_k, wv = a->n_kv_heads * a->d_v, wo = a->n_heads * a->d_v;
    int64_t n_rows = f->p.n_rows, len = f->p.row_len, *tokens = malloc((size_t)(n_rows * len) * sizeof *tokens), done[8] = {0};
    float *out = malloc((size_t)(n_rows * len * wo) * sizeof *out);
    struct cache caches[8];
    for (int64_t r = 0; r < n_rows; r++) caches[r] = cache_make(a, len, type, v_type);
    for (int64_t call = 0, left = 1; left; call++) {
        struct llm_kv_seq seqs[8];
        int64_t n_seqs = 0, n = 0, step = *steps;
        left = 0;
        for (int64_t r = 0; r < n_rows; r++) {
            int64_t take = done[r] + step + r < len ? step + r : len - done[r]; /* sequences drift apart */
            if (!together && call % n_rows != r) take = 0;
            if (take == 0 && together) continue;
            seqs[n_seqs++] = (struct llm_kv_seq){.first = n, .n = take, .pos = done[r], .view = caches[r].view};
            for (int64_t i = 0; i < take; i++) tokens[n++] = r * len + done[r] + i;
            done[r] += take;
        }
        for (int64_t r = 0; r < n_rows; r++) left += len - done[r];
        size_t mark = llm_arena_mark(&f->c.acts);
        struct llm_tensor *y = llm_attention_cached(&f->c, rows(f, f->p.q, wq, tokens, n), rows(f, f->p.k, wk, tokens, n),
                                                    rows(f, f->p.v, wv, tokens, n), a, seqs, n_seqs);
        if (llm_ctx_failed(&f->c)) fail_msg("%s", f->c.err.text);
        for (int64_t i = 0; i < n; i++) memcpy(out + tokens[i] * wo, y->data + i * wo, (size_t)wo * sizeof *out);
        llm_arena_pop(&f->c.acts, mark);
        if (steps[1]) steps++;
    }
    for (int64_t r = 0; r < n_rows; r++) cache_release(&caches[r]);
    free(tokens);
    return out;
}

static const int64_t whole[] = {100000, 0}, singly[] = {1, 0}, pieces[] = {7, 64, 1, 130, 33, 0}, prompt[] = {100, 1, 0};
static const int64_t lumps[] = {700, 400, 16, 1, 600, 17, 390, 0}, long_prompt[] = {2060, 1, 0}, prompt_in_two[] = {1024, 2000, 0};
static const int64_t *const short_splits[] = {whole, singly, pieces, prompt}, *const long_splits[] = {whole, lumps, long_prompt, prompt_in_two};

/* What comes back of n numbers of rows of `width` from a cache of this type. */
static void as_stored(float *x, int64_t n, int64_t width, enum llm_dtype type)
{
    unsigned char stored[64 * sizeof *x];
    for (int64_t i = 0; i < n; i += width) {
        llm_dtypes[type].encode(x + i, stored, (size_t)width);
        llm_dtypes[type].decode(stored, x + i, (size_t)width);
    }
}

/* Also of what the cache holds, where its type rounds. */
static void same_as_row(const struct attn_case *what, enum llm_compute compute, enum llm_dtype type)
{
    struct fixture f, rounded;
    fixture_open(&f, what, compute);
    fixture_open(&rounded, what, compute);
    as_stored(rounded.p.k, queries(&f.p) * f.a.n_kv_heads * f.a.d_k, f.a.d_k, type);
    as_stored(rounded.p.v, queries(&f.p) * f.a.n_kv_heads * f.a.d_v, f.a.d_v, type);
    int64_t all[8192], tokens = queries(&f.p), n = tokens * f.a.n_heads * f.a.d_v;
    for (int64_t i = 0; i < tokens; i++) all[i] = i;
    struct llm_tensor *q = rows(&f, f.p.q, f.a.n_heads * f.a.d_k, all, tokens), *k = rows(&f, rounded.p.k, f.a.n_kv_heads * f.a.d_k, all, tokens);
    struct llm_tensor *v = rows(&f, rounded.p.v, f.a.n_kv_heads * f.a.d_v, all, tokens);
    struct llm_tensor *want = llm_attention(&f.c, q, k, v, &f.a, NULL);
    if (llm_ctx_failed(&f.c)) fail_msg("%s", f.c.err.text);
    const int64_t *const *splits = f.p.row_len > 1000 ? long_splits : short_splits;
    for (size_t s = 0; s < 4; s++)
        for (int together = 0; together < 2; together++) {
            float *got = feed(&f, type, type, splits[s], together);
            if (memcmp(got, want->data, (size_t)n * sizeof *got) != 0)
                fail_msg("%s, %s, %s, compute %d, split %zu, together %d: expected the bits of the whole row", llm_isa_name(), what->name,
                         llm_dtypes[type].name, (int)compute, s, together);
            free(got);
        }
    fixture_close(&rounded);
    fixture_close(&f);
}

static void same_bits(void **state)
{
    (void)state;
    for (const struct llm_isa *isa = llm_isas; isa->name; isa++) {
        if (!isa->usable()) continue;
        isa->fill(&llm_k);
        llm_k.isa = isa->name;
        bool slow = strcmp(isa->name, "scalar") == 0;
        for (int i = 0; i < n_cached_cases; i++) {
            if (slow && cached_cases[i].row_len > 1000) continue;
            same_as_row(&cached_cases[i], LLM_COMPUTE_F32, LLM_F32);
            same_as_row(&cached_cases[i], LLM_COMPUTE_BF16, LLM_BF16);
            if (slow ? i > 0 : i > 2) continue;
            same_as_row(&cached_cases[i], LLM_COMPUTE_F32, i % 2 ? LLM_Q8_0 : LLM_Q4_0);
            same_as_row(&cached_cases[i], LLM_COMPUTE_BF16, i % 2 ? LLM_Q4_0 : LLM_Q8_0);
        }
    }
}

/* Sequences that share tiles, in one call, have the bits that each has alone. `length`: tokens in the cache before the call. */
static void check_shared(const struct attn_case *what, enum llm_compute compute, enum llm_dtype type, int64_t length)
{
    enum { SEQS = 6, OWN = 2 };
    struct fixture f;
    fixture_open(&f, what, compute);
    const struct llm_attn *a = &f.a;
    int64_t wq = a->n_heads * a->d_k, wk = a->n_kv_heads * a->d_k, wv = a->n_kv_heads * a->d_v, wo = a->n_heads * a->d_v, all[4096], n = 0;
    const size_t k = llm_dtype_bytes(type, (uint64_t)(LLM_KV_TILE * wk)), v = llm_dtype_bytes(type, (uint64_t)(LLM_KV_TILE * wv));
    struct cache base = cache_make(a, length + OWN * LLM_KV_TILE, type, type), caches[SEQS];
    struct llm_kv_seq seqs[SEQS], begin = {.n = length, .view = base.view};
    for (int64_t i = 0; i < length; i++) all[i] = i;
    size_t mark = llm_arena_mark(&f.c.acts);
    llm_attention_cached(&f.c, rows(&f, f.p.q, wq, all, length), rows(&f, f.p.k, wk, all, length), rows(&f, f.p.v, wv, all, length), a, &begin, 1);
    llm_arena_pop(&f.c.acts, mark);
    for (int64_t s = 0; s < SEQS; s++) { /* the last has one shared tile fewer than the others */
        int64_t own = length / LLM_KV_TILE - (s == SEQS - 1);
        caches[s] = cache_make(a, length + OWN * LLM_KV_TILE, type, type);
        for (int64_t t = 0; t < caches[s].tiles; t++) {
            memcpy(caches[s].k[t], base.k[t], k);
            memcpy(caches[s].v[t], base.v[t], v);
            if (t >= own) continue;
            free(caches[s].k[t]);
            free(caches[s].v[t]);
            caches[s].k[t] = base.k[t];
            caches[s].v[t] = base.v[t];
        }
        seqs[s] = (struct llm_kv_seq){.first = n, .n = 1 + s % 3, .pos = length, .view = caches[s].view};
        for (int64_t i = 0; i < seqs[s].n; i++, n++) all[n] = (n * 37 + 5) % f.p.row_len; /* any tokens */
    }
    float *want = malloc((size_t)(n * wo) * sizeof *want);
    for (int64_t s = 0; s < SEQS; s++) {
        struct llm_kv_seq alone = seqs[s];
        const int64_t *tokens = all + alone.first;
        alone.first = 0;
        struct llm_tensor *y = llm_attention_cached(&f.c, rows(&f, f.p.q, wq, tokens, alone.n), rows(&f, f.p.k, wk, tokens, alone.n),
                                                    rows(&f, f.p.v, wv, tokens, alone.n), a, &alone, 1);
        memcpy(want + seqs[s].first * wo, y->data, (size_t)(alone.n * wo) * sizeof *want);
    }
    struct llm_tensor *y = llm_attention_cached(&f.c, rows(&f, f.p.q, wq, all, n), rows(&f, f.p.k, wk, all, n), rows(&f, f.p.v, wv, all, n), a, seqs,
                                                SEQS);
    if (llm_ctx_failed(&f.c)) fail_msg("%s", f.c.err.text);
    assert_memory_not_equal(want, want + wo, (size_t)wo * sizeof *want);
    if (memcmp(want, y->data, (size_t)(n * wo) * sizeof *want) != 0)
        fail_msg("%s, %s, %s, compute %d: expected the bits of sequences alone", llm_isa_name(), what->name, llm_dtypes[type].name, (int)compute);
    for (int64_t s = 0; s < SEQS; s++) {
        for (int64_t t = 0; t < caches[s].tiles; t++) {
            if (caches[s].k[t] == base.k[t]) caches[s].k[t] = caches[s].v[t] = NULL;
        }
        cache_release(&caches[s]);
    }
    cache_release(&base);
    free(want);
    fixture_close(&f);
}

static void shared_tiles(void **state)
{
    (void)state;
    for (const struct llm_isa *isa = llm_isas; isa->name; isa++) {
        if (!isa->usable()) continue;
        isa->fill(&llm_k);
        llm_k.isa = isa->name;
        for (int i = 0; i < n_cached_cases; i++) {
            const int64_t length = cached_cases[i].row_len > 1000 ? 1300 : 130;
            if (strcmp(isa->name, "scalar") == 0 && length > 1000) continue;
            check_shared(&cached_cases[i], LLM_COMPUTE_F32, LLM_F32, length);
            check_shared(&cached_cases[i], LLM_COMPUTE_BF16, LLM_BF16, length);
            check_shared(&cached_cases[i], LLM_COMPUTE_BF16, LLM_Q8_0, length);
            check_shared(&cached_cases[i], LLM_COMPUTE_BF16, LLM_Q4_0_ROT, length);
        }
    }
}

/* Other cache types: close to the formula, and the same bits for every split and number of threads. */
static void cache_types(void **state)
{
    static const struct { enum llm_dtype type, v; double limit; } rows_of[] = {
        {LLM_F16, LLM_F16, 3e-3}, {LLM_BF16, LLM_BF16, 3e-2}, {LLM_Q8_0, LLM_Q8_0, 5e-2}, {LLM_Q4_0, LLM_Q4_0, 2e-1}, {LLM_Q8_0, LLM_Q4_0, 2e-1},
        {LLM_F32, LLM_Q8_0, 5e-2}, {LLM_Q8_0, LLM_BF16, 5e-2}, {LLM_BF16, LLM_F32, 3e-2}, {LLM_F16, LLM_Q4_0, 2e-1}, {LLM_Q8_0_ROT, LLM_Q8_0, 5e-2},
        {LLM_Q4_0_ROT, LLM_Q4_0, 2e-1}, {LLM_Q4_0_ROT, LLM_Q4_0_ROT, 2e-1}};
    struct llm_err e = {0};
    (void)state;
    for (size_t t = 0; t < sizeof rows_of / sizeof *rows_of; t++)
        for (int i = 0; i < 3; i++) {
            struct fixture f;
            fixture_open(&f, &cached_cases[i], LLM_COMPUTE_F32);
            int64_t n = queries(&f.p) * f.a.n_heads * f.a.d_v;
            struct reference want = reference(&f.p);
            float *got = feed(&f, rows_of[t].type, rows_of[t].v, prompt, true), *singles;
            double difference = 0, size = 0;
            for (int64_t x = 0; x < n; x++) {
                difference += (got[x] - want.out[x]) * (got[x] - want.out[x]);
                size += want.out[x] * want.out[x];
            }
            if (!(sqrt(difference / size) < rows_of[t].limit))
                fail_msg("%s, %s, %s: expected within %g, found %g", cached_cases[i].name, llm_dtypes[rows_of[t].type].name,
                         llm_dtypes[rows_of[t].v].name, rows_of[t].limit, sqrt(difference / size));
            for (int threads = 1; threads <= 3; threads += 2) {
                llm_pool_stop();
                assert_int_equal(llm_pool_start(threads, &e), 0);
                singles = feed(&f, rows_of[t].type, rows_of[t].v, singly, true);
                assert_memory_equal(got, singles, (size_t)n * sizeof *got);
                free(singles);
            }
            free(got);
            reference_release(&want);
            fixture_close(&f);
        }
}

static void refusals(void **state)
{
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        struct fixture f;
        fixture_open(&f, &plain_case, LLM_COMPUTE_F32);
        const int64_t token = 0;
        struct cache cache = cache_make(&cached_cases[0].a, 1, LLM_F32, LLM_F32);
        struct llm_kv_seq seq = {.n = 1, .view = cache.view};
        if (bad == 0) seq.n = 2;
        if (bad == 1) seq.view.k_type = LLM_Q8_0; /* 24 and 17 are no whole blocks */
        if (bad == 2) f.a.kv_row_len = 5;
        llm_attention_cached(&f.c, rows(&f, f.p.q, f.a.n_heads * f.a.d_k, &token, 1), rows(&f, f.p.k, f.a.n_kv_heads * f.a.d_k, &token, 1),
                             rows(&f, f.p.v, f.a.n_kv_heads * f.a.d_v, &token, 1), &f.a, &seq, 1);
        assert_int_equal(f.c.err.status, LLM_EX_FAILURE);
        cache_release(&cache);
        fixture_close(&f);
    }
}

/* A sequence's ring holds its last queries, also when one call brings more than it has room for. */
static void kept_queries(void **state)
{
    (void)state;
    struct fixture f;
    fixture_open(&f, &cached_cases[0], LLM_COMPUTE_F32);
    enum { ROOM = 5 };
    int64_t width = f.a.n_heads * f.a.d_k, all[150], steps[] = {131, 1, 1, 2, 0}, pos = 0;
    for (int64_t i = 0; i < 150; i++) all[i] = i;
    struct cache cache = cache_make(&f.a, 150, LLM_F32, LLM_F32);
    float *ring = malloc((size_t)(ROOM * width) * sizeof *ring);
    for (int call = 0; steps[call]; pos += steps[call++]) {
        int64_t n = steps[call];
        struct llm_kv_seq seq = {.n = n, .pos = pos, .view = cache.view, .queries = ring, .n_queries = ROOM};
        llm_attention_cached(&f.c, rows(&f, f.p.q, width, all + pos, n), rows(&f, f.p.k, f.a.n_kv_heads * f.a.d_k, all + pos, n),
                             rows(&f, f.p.v, f.a.n_kv_heads * f.a.d_v, all + pos, n), &f.a, &seq, 1);
        assert_int_equal(f.c.err.status, 0);
        for (int64_t t = pos + n - ROOM; t < pos + n; t++)
            assert_memory_equal(ring + t % ROOM * width, f.p.q + t * width, (size_t)width * sizeof *ring);
    }
    free(ring);
    cache_release(&cache);
    fixture_close(&f);
}

static int start(void **state)
{
    struct llm_err e = {0};
    (void)state;
    return llm_pool_start(2, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cache_types), cmocka_unit_test(refusals), cmocka_unit_test(kept_queries),
                                       cmocka_unit_test(shared_tiles), cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests(tests, start, NULL);
}
