/* Second moments of inputs: against an observer of the same places, experts' shares against what the whole layer read; importance files in both
 * forms, and malformed ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cpu/pool.h"
#include "model/forward/watch.h"
#include "quant/imatrix.h"
#include "tests/unit/model_of.h"
#include "tests/unit/near.h"

enum { N = 100, CONTEXT = 40 };
static const char dense[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"
                            "\"num_attention_heads\":2,\"initializer_range\":0.3,\"tie_word_embeddings\":true}";
static const char mixture[] = "{\"model_type\":\"mixtral\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":16,\"num_hidden_layers\":2,"
                              "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"num_local_experts\":6,\"num_experts_per_tok\":2,"
                              "\"initializer_range\":0.3}";

static int32_t ids[N];

static size_t number_of(const struct llm_model *m, const char *name)
{
    for (size_t i = 0; i < m->n_params; i++)
        if (strstr(m->params[i].name, name)) return i;
    fail_msg("no parameter %s", name);
    return 0;
}

struct seen { double squares[64], total, rows; };

static int see(void *arg, const struct llm_sight *s, struct llm_err *e)
{
    struct seen *to = arg;
    (void)e;
    for (int64_t t = 0; t < s->rows; t++) {
        for (int64_t j = 0; j < s->cols; j++) {
            double square = (double)s->x[t * s->stride + j] * (double)s->x[t * s->stride + j];
            if (j < 64) to->squares[j] += square;
            to->total += square;
        }
    }
    to->rows += (double)s->rows;
    return 0;
}

/* What a place of layer 1 has in the windows that the calibration reads. */
static struct seen seen_at(struct llm_model *m, enum llm_place_kind kind, int64_t layer)
{
    struct seen s = {0};
    struct llm_err e = {0};
    struct llm_engine g = {0};
    const struct llm_engine_options o = {.compute = LLM_COMPUTE_BF16, .context = CONTEXT, .batch = CONTEXT};
    const struct llm_watcher watcher = {.at = {kind, LLM_STACK_MAIN, layer, layer}, .observe = see, .arg = &s};
    struct llm_watch watch = {.v = &watcher, .n = 1};
    assert_int_equal(llm_engine_init(&g, m, &o, &e), 0);
    g.ctx.watch = &watch;
    for (int64_t at = 0; at < N; at += CONTEXT) {
        struct llm_kv kv;
        llm_kv_init(&kv, &g.pool);
        assert_int_equal(llm_engine_prefill(&g, &kv, ids + at, N - at < CONTEXT ? N - at : CONTEXT, false, false, NULL, NULL, &e), 0);
        llm_kv_release(&kv);
    }
    g.ctx.watch = NULL;
    llm_engine_release(&g);
    return s;
}

static void gather(struct llm_moments *moments, struct llm_model *m)
{
    struct llm_err e = {0};
    assert_int_equal(llm_moments_init(moments, m, &e), 0);
    assert_int_equal(llm_moments_gather(moments, m, ids, N, CONTEXT, &e), 0);
    assert_true(moments->tokens == N && moments->chunks == 3);
}

static void records_are_what_observers_see(void **state)
{
    static const struct { const char *param; enum llm_place_kind kind; int64_t layer, k; } rows[] = {
        {"layers.1.self_attn.q_proj.weight", LLM_PLACE_ATTENTION_INPUT, 1, 32},
        {"layers.1.self_attn.v_proj.weight", LLM_PLACE_ATTENTION_INPUT, 1, 32},
        {"layers.0.self_attn.o_proj.weight", LLM_PLACE_ATTENTION_HEADS, 0, 32}, {"layers.0.mlp.up_proj.weight", LLM_PLACE_MLP_INPUT, 0, 32},
        {"layers.1.mlp.down_proj.weight", LLM_PLACE_MLP_HIDDEN, 1, 48}, {"embed_tokens.weight", LLM_PLACE_FINAL_NORM, -1, 32}};
    struct llm_moments moments = {0};
    float importance[64];
    (void)state;
    struct llm_model *m = model_of(dense);
    gather(&moments, m);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct seen s = seen_at(m, rows[i].kind, rows[i].layer);
        size_t p = number_of(m, rows[i].param);
        const struct llm_moment *r = &moments.v[moments.of[p]];
        assert_true(r->k == rows[i].k && r->count == N && s.rows == N);
        assert_true(llm_moments_importance(&moments, p, importance));
        for (int64_t j = 0; j < r->k; j++) {
            assert_true(r->squares[j] == s.squares[j]);
            assert_true(importance[j] == (float)((double)(float)s.squares[j] / N));
        }
    }
    assert_true(moments.of[number_of(m, "layers.0.input_layernorm")] == -1);
    assert_int_equal(moments.of[number_of(m, "0.self_attn.q_proj")], moments.of[number_of(m, "0.self_attn.k_proj")]);
    llm_moments_release(&moments);
    llm_model_destroy(m);
}

/* Two experts of six see each token: their records add up to twice what the layer read, and to all of the inner values. */
static void experts_share_what_the_layer_reads(void **state)
{
    struct llm_moments moments = {0};
    float importance[64];
    struct llm_err e = {0};
    (void)state;
    struct llm_model *m = model_of(mixture);
    gather(&moments, m);
    const struct seen in = seen_at(m, LLM_PLACE_MLP_INPUT, 1), inner = seen_at(m, LLM_PLACE_MLP_HIDDEN, 1);
    double tokens = 0, squares[32] = {0}, total = 0;
    for (int x = 0; x < 6; x++) {
        char name[80];
        snprintf(name, sizeof name, "layers.1.block_sparse_moe.experts.%d.w1", x);
        const struct llm_moment *gate = &moments.v[moments.of[number_of(m, name)]];
        snprintf(name, sizeof name, "layers.1.block_sparse_moe.experts.%d.w2", x);
        const struct llm_moment *down = &moments.v[moments.of[number_of(m, name)]];
        assert_true(gate->k == 32 && down->k == 16 && gate->count == down->count && gate->expert == x);
        tokens += gate->count;
        for (int j = 0; j < 32; j++) squares[j] += gate->squares[j];
        for (int j = 0; j < 16; j++) total += down->squares[j];
    }
    assert_true(tokens == 2 * N);
    for (int j = 0; j < 32; j++) near(squares[j], 2 * in.squares[j], 1e-12, 0);
    near(total, inner.total, 1e-12, 0);
    struct llm_coverage c = llm_moments_coverage(&moments);
    assert_int_equal(c.experts, 12);
    llm_moments_release(&moments);
    /* A text of one token: four experts of each layer see nothing, and have no importances. */
    assert_int_equal(llm_moments_init(&moments, m, &e), 0);
    assert_int_equal(llm_moments_gather(&moments, m, ids, 1, CONTEXT, &e), 0);
    c = llm_moments_coverage(&moments);
    assert_true(c.experts == 12 && c.unseen == 8 && c.least == 0);
    size_t known = 0;
    for (size_t i = 0; i < m->n_params; i++) known += strstr(m->params[i].name, ".w1.") && llm_moments_importance(&moments, i, importance);
    assert_int_equal(known, 4);
    assert_int_equal(llm_moments_gather(&moments, m, ids, 0, CONTEXT, &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    llm_moments_release(&moments);
    llm_model_destroy(m);
}

static void write_file(const struct llm_moments *moments, const struct llm_model *m, bool old, const char *path)
{
    struct llm_err e = {0};
    struct llm_output *o = llm_output_open(path, true, &e);
    assert_non_null(o);
    assert_int_equal(llm_imatrix_write(moments, m, old, "text", CONTEXT, o, &e), 0);
    assert_int_equal(llm_output_commit(o, &e), 0);
}

/* Both forms keep the importances, to the precision of floats; a file that is cut anywhere is refused. */
static void files_of_importances(void **state)
{
    static const char *const configs[] = {dense, mixture};
    char path[] = "/tmp/moments-XXXXXX";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    for (int round = 0; round < 4; round++) {
        struct llm_moments moments = {0}, back = {0};
        struct llm_err e = {0};
        size_t unknown;
        float want[64], got[64];
        struct llm_model *m = model_of(configs[round / 2]), *other = model_of(configs[1 - round / 2]);
        gather(&moments, m);
        write_file(&moments, m, round % 2, path);
        assert_int_equal(llm_moments_init(&back, m, &e), 0);
        assert_int_equal(llm_imatrix_read(&back, m, path, &unknown, &e), 0);
        assert_int_equal(unknown, 0);
        for (size_t i = 0; i < m->n_params; i++) {
            bool known = llm_moments_importance(&moments, i, want);
            assert_int_equal(llm_moments_importance(&back, i, got), known);
            for (int64_t j = 0; known && j < m->params[i].weight.k; j++) near((double)got[j], (double)want[j], 1e-6, 1e-12);
        }
        llm_moments_release(&back);
        FILE *f = fopen(path, "rb");
        char *bytes = malloc(1 << 20);
        size_t n = fread(bytes, 1, 1 << 20, f), tail = round % 2 ? 12 : 1; /* the older form may end after the entries */
        fclose(f);
        for (size_t cut = 0; cut + tail < n; cut += cut < 200 ? 1 : 997) {
            f = fopen(path, "wb");
            fwrite(bytes, 1, cut, f);
            fclose(f);
            assert_int_equal(llm_moments_init(&back, m, &e), 0);
            assert_int_equal(llm_imatrix_read(&back, m, path, &unknown, &e), -1);
            llm_moments_release(&back);
        }
        f = fopen(path, "wb");
        fwrite(bytes, 1, n, f);
        fclose(f);
        free(bytes);
        assert_int_equal(llm_moments_init(&back, other, &e), 0); /* channels or names of another model */
        int status = llm_imatrix_read(&back, other, path, &unknown, &e);
        assert_true(status == -1 ? e.status == EX_DATAERR : unknown > 0);
        llm_moments_release(&back);
        llm_moments_release(&moments);
        llm_model_destroy(m);
        llm_model_destroy(other);
    }
    unlink(path);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(records_are_what_observers_see), cmocka_unit_test(experts_share_what_the_layer_reads),
                                       cmocka_unit_test(files_of_importances)};
    for (int i = 0; i < N; i++) ids[i] = (i * 7 + i * i) % 61;
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
