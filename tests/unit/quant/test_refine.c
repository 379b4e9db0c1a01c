/* Refinement: no step changes no byte, of any type; the first step of a block's scale goes down the divergence as finite differences find it; the
 * divergence falls; any number of threads; undone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/dtype/block.h"
#include "cpu/pool.h"
#include "quant/kl.h"
#include "quant/refine.h"
#include "tests/unit/model_of.h"

static const char dense[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":256,\"intermediate_size\":64,\"num_hidden_layers\":2,"
                            "\"num_attention_heads\":2,\"initializer_range\":0.1,\"tie_word_embeddings\":true}";
enum { TOKENS = 256, CONTEXT = 64 };
static int32_t ids[TOKENS];

static int no_row(void *arg, const struct llm_quant_report *r, struct llm_err *e)
{
    (void)arg;
    (void)r;
    (void)e;
    return 0;
}

static const struct llm_quant_type *type_of(const char *name)
{
    int i = 0;
    while (strcmp(llm_quant_word(i), name) != 0) i++;
    return &llm_quant_types[i];
}

/* The model in another type, and what took its blocks. */
static struct llm_model *quantised(const struct llm_quant_type *type, enum llm_quant_method method, struct llm_refine **r)
{
    static const struct llm_strs none;
    struct llm_err e = {0};
    struct llm_model *m = model_of(dense);
    *r = llm_refine_create(m, &e);
    assert_non_null(*r);
    const struct llm_quant_sink sink = llm_refine_sink(*r);
    const struct llm_quant_plan plan = {.type = type, .only = &none, .except = &none, .pure = true, .method = method, .sink = &sink};
    assert_int_equal(llm_quantize_model(m, &plan, no_row, NULL, &e), 0);
    return m;
}

static size_t bytes_of(const struct llm_param *p)
{
    return (size_t)llm_dtype_bytes(p->weight.dtype, (uint64_t)llm_param_count(p));
}

/* All weights, one after another; malloced. */
static char *copy_of(const struct llm_model *m, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < m->n_params; i++) *n += bytes_of(&m->params[i]);
    char *out = malloc(*n);
    assert_non_null(out);
    for (size_t i = 0, at = 0; i < m->n_params; at += bytes_of(&m->params[i]), i++) {
        memcpy(out + at, m->params[i].weight.data, bytes_of(&m->params[i]));
    }
    return out;
}

static void run(struct llm_refine *r, struct llm_model *m, struct llm_model *base, int64_t steps)
{
    struct llm_err e = {0};
    if (llm_refine_run(r, m, base, &(struct llm_refine_text){ids, TOKENS, CONTEXT}, steps, &e) != 0) fail_msg("%s", e.text);
}

static void no_step_changes_nothing(void **state)
{
    int types = 0;
    (void)state;
    struct llm_model *base = model_of(dense);
    for (int i = 0; llm_quant_word(i); i++) {
        const struct llm_quant_type *type = &llm_quant_types[i];
        if (type->dtype == LLM_NO_DTYPE || !llm_block_kind_of(type->dtype)) continue;
        for (int method = LLM_QUANT_RTN; method <= LLM_QUANT_SEARCH; method++) {
            struct llm_refine *r;
            size_t n, again;
            struct llm_model *m = quantised(type, (enum llm_quant_method)method, &r);
            char *before = copy_of(m, &n);
            run(r, m, base, 0);
            if (method == LLM_QUANT_RTN) llm_refine_undo(r, m); /* ggml's encoder rounds ties in its own way */
            char *after = copy_of(m, &again);
            if (n != again || memcmp(before, after, n) != 0) fail_msg("%s changed", type->name);
            free(before);
            free(after);
            llm_refine_destroy(r);
            llm_model_destroy(m);
        }
        types++;
    }
    llm_model_destroy(base);
    assert_true(types >= 14);
}

static double kl_of(struct llm_kl_base *base, struct llm_model *m)
{
    struct llm_err e = {0};
    struct llm_kl kl;
    assert_int_equal(llm_kl_measure(base, m, &kl, NULL, &e), 0);
    return kl.mean;
}

/* One step of one window moves each scale by .2 % against the sign of its derivative: of the blocks whose scale matters, none goes up the divergence
 * of that window. The passes round to BF16, so blocks of little effect are left out: those below a tenth of the largest difference. */
static void first_step_goes_down(void **state)
{
    enum { BLOCKS = 24 };
    struct llm_err e = {0};
    struct llm_refine *r;
    struct llm_kl_base kl = {0};
    double slope[BLOCKS], largest = 0;
    int seen = 0;
    (void)state;
    struct llm_model *base = model_of(dense), *m = quantised(type_of("q4_0"), LLM_QUANT_SEARCH, &r);
    struct llm_param *p = llm_model_find(m, "model.layers.1.mlp.down_proj.weight");
    assert_non_null(p);
    const size_t bytes = bytes_of(p);
    unsigned char *blocks = (unsigned char *)(uintptr_t)p->weight.data, *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, blocks, bytes);
    assert_int_equal(llm_kl_base_init(&kl, base, ids, CONTEXT, CONTEXT, &e), 0);
    for (int i = 0; i < BLOCKS; i++) {
        double sides[2];
        for (int up = 0; up < 2; up++) {
            uint16_t half; /* a change of the last bits of the scale */
            memcpy(&half, before + i * 18, 2);
            half = (uint16_t)(up ? half + 16 : half - 16);
            memcpy(blocks + i * 18, &half, 2);
            llm_weight_changed(&p->weight);
            sides[up] = kl_of(&kl, m);
            memcpy(blocks + i * 18, before + i * 18, 2);
        }
        slope[i] = sides[1] - sides[0];
        largest = fabs(slope[i]) > largest ? fabs(slope[i]) : largest;
    }
    llm_weight_changed(&p->weight);
    assert_int_equal(llm_refine_run(r, m, base, &(struct llm_refine_text){ids, CONTEXT, CONTEXT}, 1, &e), 0);
    for (int i = 0; i < BLOCKS; i++) {
        uint16_t was, is;
        memcpy(&was, before + i * 18, 2);
        memcpy(&is, (const unsigned char *)p->weight.data + i * 18, 2);
        if (fabs(slope[i]) < 0.1 * largest) continue;
        const bool down = (slope[i] > 0) == ((is & 0x7fff) < (was & 0x7fff)) && is != was;
        if (!down) fail_msg("block %d: slope %g, scale %04x -> %04x", i, slope[i], was, is);
        seen++;
    }
    assert_true(seen >= 8);
    free(before);
    llm_kl_base_release(&kl);
    llm_refine_destroy(r);
    llm_model_destroy(m);
    llm_model_destroy(base);
}

static void falls_the_same_for_any_threads(void **state)
{
    struct llm_err e = {0};
    char *found[2];
    size_t n;
    (void)state;
    struct llm_model *base = model_of(dense);
    for (int i = 0; i < 2; i++) {
        struct llm_refine *r;
        struct llm_kl_base kl = {0};
        llm_pool_stop();
        assert_int_equal(llm_pool_start(i ? 3 : 1, &e), 0);
        struct llm_model *m = quantised(type_of("q2_k"), LLM_QUANT_SEARCH, &r);
        assert_int_equal(llm_kl_base_init(&kl, base, ids, TOKENS, CONTEXT, &e), 0);
        const double before = kl_of(&kl, m);
        char *old = copy_of(m, &n);
        run(r, m, base, 40);
        found[i] = copy_of(m, &n);
        const double after = kl_of(&kl, m);
        if (!(after < 0.8 * before)) fail_msg("%g -> %g", before, after);
        llm_refine_undo(r, m);
        char *undone = copy_of(m, &n);
        assert_memory_equal(undone, old, n);
        free(undone);
        free(old);
        llm_kl_base_release(&kl);
        llm_refine_destroy(r);
        llm_model_destroy(m);
    }
    assert_memory_equal(found[0], found[1], n);
    free(found[0]);
    free(found[1]);
    llm_model_destroy(base);
}

static void refused(void **state)
{
    struct llm_err e = {0};
    struct llm_refine *r;
    (void)state;
    struct llm_model *base = model_of(dense), *m = quantised(type_of("f16"), LLM_QUANT_AUTO, &r);
    assert_int_equal(llm_refine_run(r, m, base, &(struct llm_refine_text){ids, TOKENS, CONTEXT}, 1, &e), -1);
    assert_int_equal(e.status, EX_UNAVAILABLE);
    llm_refine_destroy(r);
    llm_model_destroy(m);
    llm_model_destroy(base);
}

int main(void)
{
    struct llm_err e;
    const struct llm_rng r = llm_rng_at(6, 0, LLM_RNG_TEST, 0, 0, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_step_changes_nothing), cmocka_unit_test(first_step_goes_down),
                                       cmocka_unit_test(falls_the_same_for_any_threads), cmocka_unit_test(refused)};
    for (uint32_t i = 0; i < TOKENS; i++) ids[i] = (int32_t)llm_rng_below(&r, i, 61);
    if (llm_pool_start(2, &e) < 0) return llm_report(&e);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
