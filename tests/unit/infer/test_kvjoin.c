/* Caches cut, joined and evicted, in every family: a key that is rotated to another position is the key that the model computes there; what cannot be
 * rotated, cut or evicted is refused; an evicted cache that keeps all keys goes on with the same bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cpu/pool.h"
#include "infer/engine.h"
#include "infer/kvjoin.h"
#include "measure/evict.h"
#include "tests/unit/model_of.h"

enum { FIRST = 7, SECOND = 6, ALL = FIRST + SECOND };

struct made {
    struct llm_model *m;
    struct llm_engine g;
    int32_t ids[ALL];
};

static void make(struct made *x, const struct llm_config *c)
{
    struct llm_err e = {0};
    struct llm_engine_options o = {.compute = LLM_COMPUTE_F32, .batch = 64};
    *x = (struct made){.m = llm_model_create(c, 5, &e)};
    if (!x->m || llm_engine_init(&x->g, x->m, &o, &e) < 0) fail_msg("%s: %s", c->model_type, e.text);
    for (int i = 0; i < ALL; i++) x->ids[i] = (int32_t)((i * 37 + 11) % c->vocab_size);
}

static void unmake(struct made *x)
{
    llm_engine_release(&x->g);
    llm_model_destroy(x->m);
}

/* The cache of ids [from, to), as a file that was written and read. */
static void cache_of(struct made *x, int from, int to, struct llm_kv_file *f)
{
    struct llm_err e = {0};
    struct llm_kv kv;
    char path[] = "/tmp/llm-kvjoin-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    llm_kv_init(&kv, &x->g.pool);
    struct llm_output *o = llm_output_open(path, true, &e);
    assert_non_null(o);
    if (llm_engine_prefill(&x->g, &kv, x->ids + from, to - from, x->m->config.prefix_lm, false, NULL, NULL, &e) != 0
        || llm_kv_file_write(&kv, x->m, o, &e) < 0 || llm_output_commit(o, &e) < 0 || llm_kv_file_read(f, path, &e) < 0) fail_msg("%s", e.text);
    llm_kv_release(&kv);
    unlink(path);
}

/* Layers [0, n_layers) have the same keys of the second text, to 1e-5 of the largest. b: from its row `row` on. */
static void same_keys(const struct llm_kv_file *a, int64_t a_row, const struct llm_kv_file *b, int64_t b_row, int64_t n_layers, const char *name)
{
    float *x = malloc(sizeof *x * 4096), *y = malloc(sizeof *y * 4096);
    assert_true(x && y);
    for (int64_t l = 0; l < n_layers; l++) {
        for (int64_t h = 0; h < (a->layers[l].k ? a->layers[l].shape.n_kv_heads : 0); h++) {
            double most = 0, off = 0;
            for (int64_t r = 0; r < SECOND; r++) {
                llm_kv_file_decode(a, 'k', l, a_row + r, h, x);
                llm_kv_file_decode(b, 'k', l, b_row + r, h, y);
                for (int64_t i = 0; i < a->layers[l].shape.d_k; i++) {
                    most = fmax(most, fabs((double)x[i]));
                    off = fmax(off, fabs((double)x[i] - (double)y[i]));
                }
            }
            if (!(off <= 1e-5 * most)) fail_msg("%s: layer %d, head %d: keys differ by %g of %g", name, (int)l, (int)h, off, most);
        }
    }
    free(x);
    free(y);
}

/* Whether caches of the family can be joined; checks what comes out. */
static bool joins(const struct llm_config *c, const char *name)
{
    struct made x;
    struct llm_kv_file parts[2] = {0}, whole = {0}, joined = {0}, back = {0};
    struct llm_err e = {0};
    int64_t rotated = 0;
    make(&x, c);
    cache_of(&x, 0, FIRST, &parts[0]);
    cache_of(&x, FIRST, ALL, &parts[1]);
    cache_of(&x, 0, ALL, &whole);
    bool good = llm_kv_file_join(&joined, parts, 2, &rotated, &e) == 0;
    if (good) {
        assert_int_equal(joined.n, ALL);
        assert_int_equal(rotated, SECOND);
        assert_memory_equal(joined.ids, whole.ids, ALL * sizeof *joined.ids);
        assert_memory_equal(joined.positions, whole.positions, ALL * sizeof *joined.ids);
        same_keys(&whole, FIRST, &joined, FIRST, 1, name); /* those of the first layer depend on token and position alone */
        if (llm_kv_file_cut(&joined, FIRST, ALL, &e) < 0 || llm_kv_file_join(&back, &joined, 1, &rotated, &e) < 0) fail_msg("%s: %s", name, e.text);
        assert_int_equal(back.positions[0], 0);
        same_keys(&parts[1], 0, &back, 0, back.n_layers, name);
    } else assert_int_equal(e.status, EX_DATAERR);
    llm_kv_file_release(&joined);
    llm_kv_file_release(&back);
    /* the two halves of one text go together again whatever the positions, bit for bit; a recurrent state does not */
    struct llm_kv_file halves[2] = {0};
    int64_t none = -1;
    cache_of(&x, 0, ALL, &halves[0]);
    cache_of(&x, 0, ALL, &halves[1]);
    bool cut = llm_kv_file_cut(&halves[0], 0, FIRST, &e) == 0 && llm_kv_file_cut(&halves[1], FIRST, ALL, &e) == 0;
    assert_true(cut || x.g.pool.state_floats > 0);
    if (cut) {
        if (llm_kv_file_join(&joined, halves, 2, &none, &e) < 0) fail_msg("%s: %s", name, e.text);
        assert_int_equal(none, 0);
        for (int64_t l = 0; l < joined.n_layers; l++) {
            const struct llm_state_shape *s = &joined.layers[l].shape;
            if (joined.layers[l].k) assert_memory_equal(joined.layers[l].k, whole.layers[l].k, ALL * s->n_kv_heads * s->d_k * 4);
            if (joined.layers[l].v) assert_memory_equal(joined.layers[l].v, whole.layers[l].v, ALL * s->n_kv_heads * s->d_v * 4);
        }
    }
    for (int i = 0; i < 2; i++) {
        llm_kv_file_release(&parts[i]);
        llm_kv_file_release(&halves[i]);
    }
    llm_kv_file_release(&whole);
    llm_kv_file_release(&joined);
    unmake(&x);
    return good;
}

/* The logits after token `id` over a cache. */
static const float *after(struct made *x, const struct llm_kv_file *f, int32_t id, struct llm_err *e)
{
    static float logits[4096];
    struct llm_kv kv;
    llm_kv_init(&kv, &x->g.pool);
    struct llm_feed feed = {&kv, &id, 1, false};
    struct llm_tensor *hidden = llm_kv_file_restore(f, f->n, x->m, &kv, e) < 0 ? NULL : llm_engine_run(&x->g, &feed, 1, e);
    const float *own = hidden ? llm_engine_logits(&x->g, hidden, (const int64_t[]){0}, 1, e) : NULL;
    if (own) memcpy(logits, own, (size_t)x->m->config.vocab_size * sizeof *own);
    llm_kv_release(&kv);
    return own ? logits : NULL;
}

static bool evicts(const struct llm_config *c, const char *name)
{
    struct made x;
    struct llm_kv_file f = {0}, fewer = {0};
    struct llm_err e = {0};
    float want[4096];
    make(&x, c);
    cache_of(&x, 0, ALL, &f);
    cache_of(&x, 0, ALL, &fewer);
    const float *got = after(&x, &f, 3, &e);
    if (!got) fail_msg("%s: %s", name, e.text);
    memcpy(want, got, (size_t)c->vocab_size * sizeof *want);
    const struct llm_evict all = llm_evict_of(LLM_EVICT_WINDOW, ALL), some = llm_evict_of(LLM_EVICT_SINKS, 5);
    bool good = llm_evict(&f, &all, &e) == 0;
    if (good) {
        assert_true(f.evicted && f.rows == ALL);
        got = after(&x, &f, 3, &e);
        if (!got) fail_msg("%s: %s", name, e.text);
        assert_memory_equal(want, got, (size_t)c->vocab_size * sizeof *want);
        if (llm_evict(&fewer, &some, &e) < 0) fail_msg("%s: %s", name, e.text);
        assert_int_equal(fewer.rows, 5);
        got = after(&x, &fewer, 3, &e);
        if (!got) fail_msg("%s: %s", name, e.text);
        double off = 0;
        for (int64_t i = 0; i < c->vocab_size; i++) off = fmax(off, fabs((double)got[i] - (double)want[i]));
        assert_true(off > 0 && isfinite(off));
    } else assert_int_equal(e.status, EX_DATAERR);
    llm_kv_file_release(&f);
    llm_kv_file_release(&fewer);
    unmake(&x);
    return good;
}

static void test_families(void **state)
{
    int joined = 0, fixed = 0, evicted = 0, kept = 0;
    DIR *d = opendir("tests/golden/families");
    (void)state;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[400];
        if (!strstr(entry->d_name, ".safetensors")) continue;
        snprintf(path, sizeof path, "tests/golden/families/%s", entry->d_name);
        struct llm_config c = golden_config(path);
        if (c.bidirectional || c.num_encoder_layers > 0 || c.vocab_size > 4096) continue; /* they have no cache to save */
        c.initializer_range = .2;
        bool good = joins(&c, path), expected = c.position != LLM_POSITION_LEARNED && c.mixer == LLM_MIXER_ATTENTION;
        if (good != expected) fail_msg("%s: expected joining to be %s", path, expected ? "possible" : "refused");
        if (c.rope_local_theta > 0) { /* the first layer as one without a window, which has other frequencies */
            c.local_layers[0] ^= 1;
            assert_true(joins(&c, path));
            c.local_layers[0] ^= 1;
        }
        bool open = evicts(&c, path);
        bool windowed = llm_kv_file_unevictable(&c) != NULL;
        if (open != (!windowed && c.mixer == LLM_MIXER_ATTENTION)) fail_msg("%s: %s", path, open ? "expected a refusal" : "expected eviction");
        joined += good;
        fixed += !good;
        evicted += open;
        kept += !open;
    }
    closedir(d);
    assert_true(joined >= 20 && fixed >= 6 && evicted >= 15 && kept >= 8);
}

int main(void)
{
    struct llm_err e;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families)};
    if (llm_pool_start(0, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
