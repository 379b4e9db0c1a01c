/* What a cache looks like, and how two differ: against the formulas written out here, over caches put together by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "measure/kv.h"
#include "tests/unit/model_of.h"
#include "tests/unit/near.h"

enum { TOKENS = 40, HEADS = 4, KV_HEADS = 2, D_K = 8, D_V = 4, QUERIES = 6, LAYERS = 3, WINDOW = 10 };

/* Layer 1 has a window, layer 2 reads the keys of layer 0. */
struct cache {
    struct llm_kv_file f;
    struct llm_kv_file_layer layers[LAYERS];
    float k[LAYERS][TOKENS][KV_HEADS][D_K], v[LAYERS][TOKENS][KV_HEADS][D_V], q[LAYERS][QUERIES][HEADS][D_K];
    int32_t ids[TOKENS], positions[TOKENS];
    float part[3 * 5];
};

static struct cache *create(uint32_t seed)
{
    struct cache *c = calloc(1, sizeof *c);
    struct llm_rng r = llm_rng_at(seed, 0, LLM_RNG_TEST, 0, 0, 0);
    uint32_t at = 0;
    assert_non_null(c);
    const char text[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":3,"
                        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8}";
    c->f.config = config_of(text);
    c->f.config.sliding_window = WINDOW;
    c->f.config.local_layers[0] = 2;
    c->f.n = c->f.rows = TOKENS;
    c->f.n_layers = LAYERS;
    c->f.layers = c->layers;
    c->f.ids = c->ids;
    c->f.positions = c->positions;
    c->f.n_queries = QUERIES;
    float *const parts[] = {&c->k[0][0][0][0], &c->v[0][0][0][0], &c->q[0][0][0][0]};
    const size_t counts[] = {sizeof c->k / sizeof(float), sizeof c->v / sizeof(float), sizeof c->q / sizeof(float)};
    for (int p = 0; p < 3; p++)
        for (size_t i = 0; i < counts[p]; i++) parts[p][i] = llm_rng_normal(&r, at++);
    for (int t = 0; t < TOKENS; t++) {
        c->ids[t] = t * 7 % 61;
        c->positions[t] = t + t / 20 * 3; /* a gap, as when the middle was taken out */
    }
    for (int l = 0; l < LAYERS; l++) {
        struct llm_state_shape shape = {KV_HEADS, D_K, D_V, l == 2 ? 0 : l, {{0}}};
        c->layers[l] = (struct llm_kv_file_layer){.shape = shape, .types = {LLM_F32, LLM_F32}, .k = l == 2 ? NULL : c->k[l],
                                                    .v = l == 2 ? NULL : c->v[l], .q = c->q[l]};
    }
    return c;
}

/* Mean and deviation of the norms of one head's vectors of d numbers, `step` floats apart. */
static void norms(const float *x, int d, size_t step, double *mean, double *sd, double *first)
{
    double norm[TOKENS];
    *mean = *sd = 0;
    for (int t = 0; t < TOKENS; t++) {
        double sum = 0;
        for (int i = 0; i < d; i++) sum += (double)x[(size_t)t * step + (size_t)i] * (double)x[(size_t)t * step + (size_t)i];
        norm[t] = sqrt(sum);
        *mean += norm[t] / TOKENS;
    }
    for (int t = 0; t < TOKENS; t++) *sd += (norm[t] - *mean) * (norm[t] - *mean) / (TOKENS - 1);
    *sd = sqrt(*sd);
    *first = norm[0];
}

static void norms_of_keys_and_values(void **state)
{
    (void)state;
    struct cache *c = create(1);
    struct llm_err e;
    struct llm_kv_head rows[LAYERS * HEADS];
    float maps[LAYERS * HEADS][TOKENS];
    assert_int_equal(llm_kv_heads_rows(&c->f, -1), LAYERS * HEADS);
    assert_int_equal(llm_kv_heads_rows(&c->f, 2), 2 * HEADS);
    assert_int_equal(llm_kv_heads_rows(&c->f, 0), 0);
    for (int value = 0; value < 2; value++) {
        assert_int_equal(llm_kv_heads(&c->f, rows, value ? 'v' : 'k', &maps[0][0], &e), 0);
        for (int i = 0; i < LAYERS * HEADS; i++) {
            int layer = i / HEADS, head = i % HEADS, kv_head = head / 2, source = layer == 2 ? 0 : layer;
            double mean, sd, first;
            assert_int_equal(rows[i].layer, layer);
            assert_int_equal(rows[i].head, head);
            assert_int_equal(rows[i].kv_head, kv_head);
            norms(&c->k[source][0][kv_head][0], D_K, KV_HEADS * D_K, &mean, &sd, &first);
            near(rows[i].k_norm, mean, 1e-6, 1e-6);
            near(rows[i].k_norm_sd, sd, 1e-6, 1e-6);
            near(rows[i].k_norm_first, first, 1e-6, 1e-6);
            if (!value) near(maps[i][0], first, 1e-6, 1e-6);
            norms(&c->v[source][0][kv_head][0], D_V, KV_HEADS * D_V, &mean, &sd, &first);
            near(rows[i].v_norm, mean, 1e-6, 1e-6);
            near(rows[i].v_norm_sd, sd, 1e-6, 1e-6);
            near(rows[i].v_norm_first, first, 1e-6, 1e-6);
            if (value) near(maps[i][0], first, 1e-6, 1e-6);
        }
    }
    free(c);
}

/* The averages over the traced queries of one head, and the mean probability of each token. */
static struct llm_kv_head look(const struct cache *c, int layer, int head, double cap, double map[TOKENS])
{
    struct llm_kv_head h = {0};
    int source = layer == 2 ? 0 : layer;
    memset(map, 0, TOKENS * sizeof *map);
    for (int q = 0; q < QUERIES; q++) {
        int t = TOKENS - QUERIES + q, in_sight = 0;
        double p[TOKENS] = {0}, sum = 0, largest = 0;
        for (int j = 0; j <= t; j++) {
            if (layer == 1 && c->positions[t] - c->positions[j] >= WINDOW) continue;
            double s = 0;
            for (int i = 0; i < D_K; i++) s += (double)c->q[layer][q][head][i] * (double)c->k[source][j][head / 2][i];
            s /= sqrt(D_K);
            p[j] = exp(cap > 0 ? cap * tanh(s / cap) : s);
            sum += p[j];
            in_sight++;
        }
        for (int j = 0; j <= t; j++) {
            p[j] /= sum;
            if (p[j] > 0) h.entropy -= p[j] * log(p[j]) / QUERIES;
            h.distance += p[j] * (c->positions[t] - c->positions[j]) / QUERIES;
            largest = p[j] > largest ? p[j] : largest;
            map[j] += p[j] / QUERIES;
        }
        h.entropy_most += log(in_sight) / QUERIES;
        h.sink += p[0] / QUERIES;
        h.largest += largest / QUERIES;
    }
    return h;
}

static void where_queries_look(void **state)
{
    (void)state;
    struct cache *c = create(2);
    struct llm_err e;
    struct llm_kv_head rows[LAYERS * HEADS];
    float maps[LAYERS * HEADS][TOKENS];
    for (int capped = 0; capped < 2; capped++) {
        c->f.config.attn_logit_softcapping = capped ? 1.5 : 0;
        assert_int_equal(llm_kv_heads(&c->f, rows, 'a', &maps[0][0], &e), 0);
        for (int i = 0; i < LAYERS * HEADS; i++) {
            double map[TOKENS], sum = 0;
            struct llm_kv_head want = look(c, i / HEADS, i % HEADS, c->f.config.attn_logit_softcapping, map);
            near(rows[i].entropy, want.entropy, 1e-6, 1e-6);
            near(rows[i].entropy_most, want.entropy_most, 1e-6, 1e-6);
            near(rows[i].sink, want.sink, 1e-6, 1e-6);
            near(rows[i].largest, want.largest, 1e-6, 1e-6);
            near(rows[i].distance, want.distance, 1e-6, 1e-6);
            for (int t = 0; t < TOKENS; t++) {
                near(maps[i][t], map[t], 1e-6, 1e-6);
                sum += (double)maps[i][t];
            }
            near(sum, 1, 1e-6, 1e-6);
            if (i / HEADS == 1) assert_true(rows[i].sink == 0); /* the window has left the first token behind */
            else assert_true(rows[i].sink > 0);
        }
    }
    c->f.n_queries = 0;
    assert_int_equal(llm_kv_heads(&c->f, rows, 'a', &maps[0][0], &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    assert_string_equal(e.text, "expected traced queries (llm-infer --kv-out --trace-queries N), found none");
    assert_int_equal(llm_kv_heads(&c->f, rows, 'k', &maps[0][0], &e), 0);
    assert_true(isnan(rows[0].entropy) && isnan(rows[0].sink) && isnan(rows[0].distance));
    free(c);
}

static void common_beginnings(void **state)
{
    (void)state;
    struct cache *a = create(3), *b = create(3);
    assert_int_equal(llm_kv_common(&a->f, &b->f), TOKENS);
    b->f.n = 25;
    assert_int_equal(llm_kv_common(&a->f, &b->f), 25);
    assert_int_equal(llm_kv_common(&b->f, &a->f), 25);
    b->positions[20]++;
    assert_int_equal(llm_kv_common(&a->f, &b->f), 20);
    b->ids[7]++;
    assert_int_equal(llm_kv_common(&a->f, &b->f), 7);
    b->ids[0]++;
    assert_int_equal(llm_kv_common(&a->f, &b->f), 0);
    free(a);
    free(b);
}

static void differences(void **state)
{
    (void)state;
    struct cache *a = create(4), *b = create(5);
    struct llm_err e;
    enum { ROWS = 2 * KV_HEADS * 2, COMMON = 30 };
    struct llm_kv_difference rows[ROWS + 1];
    float maps[ROWS + 1][COMMON];
    b->ids[COMMON] = 60 - b->ids[COMMON];
    assert_int_equal(llm_kv_diff_rows(&a->f), ROWS); /* layers that read another's have none of their own */
    assert_int_equal(llm_kv_diff(&a->f, &b->f, rows, &maps[0][0], &e), 0);
    for (int i = 0; i < ROWS; i++) {
        int layer = i / 4, head = i / 2 % 2, value = i % 2, d = value ? D_V : D_K;
        double xx = 0, yy = 0, xy = 0, all = 0, most = 0;
        assert_int_equal(rows[i].layer, layer);
        assert_int_equal(rows[i].kv_head, head);
        assert_string_equal(rows[i].what, value ? "v" : "k");
        for (int t = 0; t < COMMON; t++) {
            double dd = 0;
            for (int k = 0; k < d; k++) {
                double x = (double)(value ? a->v[layer][t][head][k] : a->k[layer][t][head][k]);
                double y = (double)(value ? b->v[layer][t][head][k] : b->k[layer][t][head][k]);
                dd += (x - y) * (x - y);
                xx += x * x;
                yy += y * y;
                xy += x * y;
                most = fabs(x - y) > most ? fabs(x - y) : most;
            }
            near(maps[i][t], sqrt(dd / d), 1e-6, 1e-6);
            all += dd;
        }
        near(rows[i].rmse, sqrt(all / (COMMON * d)), 1e-6, 1e-6);
        near(rows[i].max_error, most, 1e-6, 1e-6);
        near(rows[i].relative, sqrt(all / xx), 1e-6, 1e-6);
        near(rows[i].cosine, xy / sqrt(xx * yy), 1e-6, 1e-6);
    }
    assert_int_equal(llm_kv_diff(&a->f, &a->f, rows, NULL, &e), 0);
    for (int i = 0; i < ROWS; i++) {
        assert_true(rows[i].rmse == 0 && rows[i].max_error == 0 && rows[i].relative == 0);
        near(rows[i].cosine, 1, 1e-6, 1e-6);
    }
    memset(a->k[1], 0, sizeof a->k[1]); /* nothing to be relative to */
    assert_int_equal(llm_kv_diff(&a->f, &b->f, rows, NULL, &e), 0);
    assert_true(isinf(rows[4].relative) && rows[4].cosine == 0);
    free(a);
    free(b);
}

static void differences_of_states(void **state)
{
    (void)state;
    struct cache *a = create(6), *b = create(6);
    struct llm_err e;
    struct llm_kv_difference rows[16];
    for (int k = 0; k < 2; k++) {
        struct cache *c = k ? b : a;
        c->layers[1] = (struct llm_kv_file_layer){.shape = {.source = 1}, .parts = {c->part}};
        c->layers[1].shape.parts[0] = (struct llm_state_part){"ssm", 3, 5};
        for (int i = 0; i < 15; i++) c->part[i] = (float)(i - 4);
    }
    b->part[3] += 1.5f;
    b->part[14] -= 0.5f;
    assert_int_equal(llm_kv_diff_rows(&a->f), 2 * KV_HEADS + 1);
    assert_int_equal(llm_kv_diff(&a->f, &b->f, rows, NULL, &e), 0);
    const struct llm_kv_difference *r = &rows[2 * KV_HEADS];
    assert_int_equal(r->kv_head, -1);
    assert_string_equal(r->what, "ssm");
    near(r->rmse, sqrt((1.5 * 1.5 + 0.5 * 0.5) / 15), 1e-6, 1e-6);
    near(r->max_error, 1.5, 1e-6, 1e-6);
    b->layers[1].shape.parts[0].cols = 4;
    assert_int_equal(llm_kv_diff(&a->f, &b->f, rows, NULL, &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    b->layers[0].shape.d_k = 16;
    assert_int_equal(llm_kv_diff(&a->f, &b->f, rows, NULL, &e), -1);
    assert_string_equal(e.text, "expected caches of one shape, found in layer 0 2 heads of 8 and 2 heads of 16");
    b->f.n_layers = 2;
    assert_int_equal(llm_kv_diff(&a->f, &b->f, rows, NULL, &e), -1);
    assert_string_equal(e.text, "expected caches of one shape, found 3 layers and 2");
    free(a);
    free(b);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(norms_of_keys_and_values), cmocka_unit_test(where_queries_look),
                                       cmocka_unit_test(common_beginnings), cmocka_unit_test(differences),
                                       cmocka_unit_test(differences_of_states)};
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
