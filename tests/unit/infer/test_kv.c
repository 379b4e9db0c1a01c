/* Pages of caches: every key and value of every layer, head and position has a place of its own; copies share pages until one of them writes; what is
 * forgotten is used again, as zeros; states go back to their beginning only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "infer/kv.h"
#include "tests/unit/model_of.h"

enum { LENGTH = 150 };

static const char llama[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":64,\"intermediate_size\":48,\"num_hidden_layers\":3,"
                            "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32}";
static const char shared[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":4,"
                             "\"num_attention_heads\":2,\"kv_sharing\":2}";
static const char narrow[] = "{\"model_type\":\"llama\",\"vocab_size\":61,\"hidden_size\":40,\"intermediate_size\":48,\"num_hidden_layers\":1,"
                             "\"num_attention_heads\":2}";
static const char mamba[] = "{\"model_type\":\"mamba\",\"vocab_size\":61,\"hidden_size\":24,\"num_hidden_layers\":2,\"state_size\":5,"
                            "\"conv_kernel\":4,\"time_step_rank\":3}";
static const char latent[] = "{\"model_type\":\"deepseek_v2\",\"vocab_size\":61,\"hidden_size\":32,\"intermediate_size\":48,\"num_hidden_layers\":2,"
                             "\"num_attention_heads\":2,\"kv_lora_rank\":16,\"qk_nope_head_dim\":8,\"qk_rope_head_dim\":4,\"v_head_dim\":8}";

static void open_pool(struct llm_kv_pool *p, const char *config, enum llm_dtype dtype)
{
    struct llm_err e;
    const struct llm_config c = config_of(config);
    if (llm_kv_pool_init(p, &c, llm_dtypes[dtype].name, &e) < 0) fail_msg("%s", e.text);
}

/* A sequence of n tokens, whose id is its place times `factor`. */
static void fill(struct llm_kv *kv, int64_t n, int32_t factor)
{
    struct llm_err e;
    int32_t ids[LENGTH];
    for (int64_t i = 0; i < n; i++) ids[i] = (int32_t)(kv->n + i) * factor;
    assert_int_equal(llm_kv_reserve(kv, kv->n + n, &e), 0);
    llm_kv_append(kv, ids, n);
}

/* Writes to, or expects at, all places of [from, end) bytes that name layer, head and position; `salt` names the sequence. */
static void mark(const struct llm_kv *kv, int64_t from, int64_t end, int salt, bool write)
{
    for (int64_t l = 0; l < kv->pool->n_layers; l++) {
        const struct llm_kv_layer *layer = &kv->pool->layers[l];
        for (int64_t h = 0; h < layer->shape.n_kv_heads && layer->shape.source == l; h++) {
            for (int64_t t = from; t < end; t++) {
                for (int value = 0; value < (layer->v_row > 0 ? 2 : 1); value++) {
                    unsigned char *p = value ? llm_kv_value(kv, l, h, t) : llm_kv_key(kv, l, h, t);
                    size_t n = value ? layer->v_row : layer->k_row;
                    unsigned char want = (unsigned char)(l * 89 + h * 37 + t * 3 + value * 17 + salt);
                    if (write) memset(p, want, n);
                    for (size_t i = 0; i < n; i++) assert_int_equal(p[i], want);
                }
            }
        }
    }
}

static void all_places_are_different(void **state)
{
    static const enum llm_dtype types[] = {LLM_F32, LLM_F16, LLM_BF16, LLM_Q8_0, LLM_Q4_0, LLM_Q4_0_ROT};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct llm_kv_pool pool;
        struct llm_kv kv, other;
        open_pool(&pool, llama, types[i]);
        assert_int_equal(pool.page_bytes, 3 * 2 * 2 * LLM_KV_TILE * llm_dtype_bytes(types[i], 32));
        llm_kv_init(&kv, &pool);
        llm_kv_init(&other, &pool);
        fill(&kv, 7, 1);
        fill(&other, 9, 2);
        fill(&kv, LENGTH - 7, 1);
        fill(&other, LENGTH - 9, 2);
        assert_int_equal(pool.n_pages, 6);
        mark(&kv, 0, LENGTH, 0, true);
        mark(&other, 0, LENGTH, 101, true);
        mark(&kv, 0, LENGTH, 0, false);
        mark(&other, 0, LENGTH, 101, false);
        for (int32_t t = 0; t < LENGTH; t++) assert_int_equal(other.ids[t], 2 * t);
        for (int64_t l = 0; l < 3; l++) { /* what attention is given */
            struct llm_kv_view v = llm_kv_view(&kv, l);
            assert_true(v.k_type == types[i] && v.v_type == llm_dtype_unrotated(types[i]));
            assert_ptr_equal((char *)v.k[2] + pool.layers[l].k_row * (LLM_KV_TILE + 9), llm_kv_key(&kv, l, 1, 2 * LLM_KV_TILE + 9));
            assert_ptr_equal((char *)v.v[1] + pool.layers[l].v_row * 5, llm_kv_value(&kv, l, 0, LLM_KV_TILE + 5));
            assert_int_equal((uintptr_t)v.k[0] % 64, 0);
        }
        llm_kv_release(&kv);
        llm_kv_release(&other);
        llm_kv_pool_release(&pool);
    }
}

static void layers_may_read_those_of_others(void **state)
{
    struct llm_kv_pool pool, plain;
    struct llm_kv kv;
    (void)state;
    open_pool(&pool, shared, LLM_F32);
    llm_kv_init(&kv, &pool);
    fill(&kv, 70, 1);
    assert_int_equal(pool.page_bytes, 2 * 2 * 2 * LLM_KV_TILE * 16 * sizeof(float)); /* two layers' worth */
    assert_ptr_equal(llm_kv_key(&kv, 1, 1, 69), llm_kv_key(&kv, 0, 1, 69));
    assert_ptr_equal(llm_kv_value(&kv, 3, 0, 3), llm_kv_value(&kv, 2, 0, 3));
    assert_ptr_not_equal(llm_kv_key(&kv, 2, 1, 69), llm_kv_key(&kv, 0, 1, 69));
    llm_kv_release(&kv);
    llm_kv_pool_release(&pool);
    open_pool(&pool, latent, LLM_F32); /* one latent vector stands for the keys and values of all heads */
    llm_kv_init(&kv, &pool);
    fill(&kv, 70, 1);
    assert_int_equal(pool.page_bytes, 2 * LLM_KV_TILE * 20 * sizeof(float));
    assert_null(llm_kv_view(&kv, 0).v);
    mark(&kv, 0, 70, 5, true);
    mark(&kv, 0, 70, 5, false);
    llm_kv_release(&kv);
    llm_kv_pool_release(&pool);
    struct llm_err e;
    const struct llm_config c = config_of(narrow);
    assert_int_equal(llm_kv_pool_init(&plain, &c, "q8_0", &e), -1);
    assert_int_equal(e.status, EX_UNAVAILABLE);
    assert_string_equal(e.text, "cache type q8_0: expected heads of a multiple of 32, found 20 and 20");
    llm_kv_pool_release(&plain);
}

static void copies_share_until_one_writes(void **state)
{
    struct llm_err e;
    struct llm_kv_pool pool;
    struct llm_kv kv, copy;
    (void)state;
    open_pool(&pool, llama, LLM_F16);
    llm_kv_init(&kv, &pool);
    llm_kv_init(&copy, &pool);
    fill(&kv, 100, 1);
    mark(&kv, 0, 100, 0, true);
    assert_int_equal(llm_kv_fork(&copy, &kv, &e), 0);
    assert_int_equal(pool.n_pages, 2);
    assert_int_equal(copy.n, 100);
    assert_memory_equal(copy.ids, kv.ids, 100 * sizeof *kv.ids);
    assert_ptr_equal(llm_kv_key(&copy, 2, 1, 99), llm_kv_key(&kv, 2, 1, 99));
    fill(&copy, 1, 7); /* the page that it goes on in becomes its own, the one before it stays shared */
    assert_int_equal(pool.n_pages, 3);
    assert_ptr_equal(llm_kv_key(&copy, 2, 1, 63), llm_kv_key(&kv, 2, 1, 63));
    assert_ptr_not_equal(llm_kv_key(&copy, 2, 1, 64), llm_kv_key(&kv, 2, 1, 64));
    mark(&copy, 0, 100, 0, false);
    mark(&copy, 64, 101, 50, true);
    mark(&kv, 0, 100, 0, false);
    assert_int_equal(llm_kv_own(&copy, 10, 101, &e), 0); /* from the middle of the first page on */
    assert_int_equal(pool.n_pages, 4);
    mark(&copy, 0, 64, 0, false);
    mark(&copy, 64, 101, 50, false);
    mark(&copy, 0, 64, 80, true);
    mark(&kv, 0, 100, 0, false);
    llm_kv_release(&kv);
    mark(&copy, 0, 64, 80, false);
    llm_kv_release(&copy);
    llm_kv_pool_release(&pool);
}

static void what_is_forgotten_is_used_again(void **state)
{
    struct llm_kv_pool pool;
    struct llm_kv kv, other;
    (void)state;
    open_pool(&pool, llama, LLM_F32);
    llm_kv_init(&kv, &pool);
    llm_kv_init(&other, &pool);
    fill(&kv, LENGTH, 1);
    mark(&kv, 0, LENGTH, 0, true);
    assert_true(llm_kv_can_truncate(&kv, 65));
    llm_kv_truncate(&kv, 65);
    assert_int_equal(kv.n, 65);
    assert_int_equal(kv.n_pages, 2);
    mark(&kv, 0, 65, 0, false);
    fill(&other, 3, 1);
    assert_int_equal(pool.n_pages, 3); /* the third page is there again */
    const unsigned char *p = llm_kv_key(&other, 0, 0, 0);
    for (size_t i = 0; i < pool.page_bytes; i++) assert_int_equal(p[i], 0);
    llm_kv_truncate(&kv, 200); /* there is no more: nothing happens */
    assert_int_equal(kv.n, 65);
    llm_kv_truncate(&kv, 64);
    assert_int_equal(kv.n_pages, 1);
    llm_kv_release(&kv);
    llm_kv_release(&other);
    llm_kv_pool_release(&pool);
}

static void states_go_back_to_their_beginning(void **state)
{
    struct llm_err e;
    struct llm_kv_pool pool;
    struct llm_kv kv, copy;
    (void)state;
    open_pool(&pool, mamba, LLM_BF16);
    llm_kv_init(&kv, &pool);
    llm_kv_init(&copy, &pool);
    assert_null(llm_kv_state(&kv, 0));
    fill(&kv, 100, 1);
    assert_int_equal(kv.n_pages, 0);
    int64_t each = llm_state_floats(&pool.layers[0].shape);
    assert_true(each > 0);
    assert_int_equal(pool.state_floats, 2 * each);
    assert_ptr_equal(llm_kv_state(&kv, 1), llm_kv_state(&kv, 0) + each);
    for (int64_t i = 0; i < 2 * each; i++) {
        assert_true(kv.state[i] == 0);
        kv.state[i] = (float)i + 1;
    }
    assert_int_equal(llm_kv_fork(&copy, &kv, &e), 0);
    assert_memory_equal(copy.state, kv.state, (size_t)(2 * each) * sizeof(float));
    assert_ptr_not_equal(copy.state, kv.state);
    assert_false(llm_kv_can_truncate(&kv, 99));
    assert_true(llm_kv_can_truncate(&kv, 100));
    assert_true(llm_kv_can_truncate(&kv, 0));
    llm_kv_truncate(&kv, 100);
    assert_true(kv.state[3] == 4);
    llm_kv_truncate(&kv, 0);
    for (int64_t i = 0; i < 2 * each; i++) assert_true(kv.state[i] == 0);
    assert_true(copy.state[3] == 4);
    llm_kv_release(&kv);
    llm_kv_release(&copy);
    llm_kv_pool_release(&pool);
}

static void memories_and_queries(void **state)
{
    struct llm_err e;
    struct llm_kv_pool pool;
    struct llm_kv kv, copy;
    (void)state;
    open_pool(&pool, llama, LLM_F32);
    llm_kv_init(&kv, &pool);
    llm_kv_init(&copy, &pool);
    assert_int_equal(llm_kv_remember(&kv, 70, &e), 0);
    assert_int_equal(kv.memory->n, 0);
    assert_int_equal(kv.memory->n_pages, 2);
    fill(kv.memory, 70, 3);
    mark(kv.memory, 0, 70, 9, true);
    fill(&kv, 5, 1);
    assert_int_equal(llm_kv_fork(&copy, &kv, &e), 0);
    assert_ptr_not_equal(copy.memory, kv.memory);
    assert_ptr_equal(llm_kv_key(copy.memory, 1, 1, 69), llm_kv_key(kv.memory, 1, 1, 69));
    assert_int_equal(llm_kv_remember(&kv, 1, &e), 0); /* another text: the copy keeps the first */
    mark(copy.memory, 0, 70, 9, false);
    assert_int_equal(copy.memory->ids[69], 207);
    assert_int_equal(llm_kv_trace(&kv, 4, 128, &e), 0);
    for (int i = 0; i < 3 * 4 * 128; i++) assert_true(kv.queries[i] == 0);
    assert_int_equal(llm_kv_trace(&copy, 4, 0, &e), -1);
    assert_int_equal(e.status, EX_UNAVAILABLE);
    llm_kv_release(&kv);
    llm_kv_release(&copy);
    llm_kv_pool_release(&pool);
}

static const char local[] = "{\"model_type\":\"gemma3_text\",\"vocab_size\":300,\"hidden_size\":64,\"intermediate_size\":64,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":32,\"sliding_window\":70,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}";

static void windows_leave_pages(void **state)
{
    struct llm_err e;
    struct llm_kv_pool pool;
    struct llm_kv kv, copy;
    (void)state;
    open_pool(&pool, local, LLM_F32);
    assert_int_equal(pool.window, 70);
    assert_int_equal(pool.local_bytes, pool.page_bytes / 3 * 2);
    llm_kv_init(&kv, &pool);
    llm_kv_init(&copy, &pool);
    fill(&kv, 133, 1);
    mark(&kv, 0, 133, 0, true);
    for (int64_t n = 0; n <= 133; n++) assert_true(llm_kv_can_truncate(&kv, n)); /* every row is there yet */
    llm_kv_release_passed(&kv); /* the next query is at 133 and sees keys from 64 on */
    const int64_t page = (int64_t)pool.page_bytes, part = (int64_t)pool.local_bytes;
    assert_int_equal(llm_kv_used_bytes(&pool), 3 * page - part);
    assert_true(*(const unsigned char *)llm_kv_key(&kv, 0, 0, 3) == 0);
    assert_true(*(const unsigned char *)llm_kv_key(&kv, 1, 0, 3) != 0);
    mark(&kv, 64, 133, 0, false);
    assert_true(llm_kv_can_truncate(&kv, 133));
    assert_false(llm_kv_can_truncate(&kv, 132)); /* its window would begin at 63 */
    assert_true(llm_kv_can_truncate(&kv, 0));
    assert_int_equal(llm_kv_fork(&copy, &kv, &e), 0);
    fill(&kv, 64, 1); /* 197: it goes on in a page of its own */
    llm_kv_release_passed(&kv);
    assert_int_equal(llm_kv_used_bytes(&pool), 5 * page - part); /* the second page is the copy's, too */
    llm_kv_release(&copy);
    fill(&kv, 64, 1);
    llm_kv_release_passed(&kv);
    assert_int_equal(llm_kv_used_bytes(&pool), 5 * page - 3 * part);
    assert_int_equal(pool.n_pages, 5);
    llm_kv_truncate(&kv, 0); /* all of it is usable again */
    assert_int_equal(llm_kv_used_bytes(&pool), 0);
    fill(&kv, LENGTH, 1);
    mark(&kv, 0, LENGTH, 0, true);
    mark(&kv, 0, LENGTH, 0, false);
    llm_kv_release(&kv);
    llm_kv_pool_release(&pool);
}

static void a_layer_that_drafts_has_its_own(void **state)
{
    struct llm_err e;
    struct llm_kv_pool pool;
    struct llm_kv kv;
    const struct llm_config c = config_of(llama);
    (void)state;
    open_pool(&pool, llama, LLM_F32);
    size_t before = pool.page_bytes;
    assert_int_equal(llm_kv_pool_add_draft(&pool, &c, &e), 0);
    assert_int_equal(pool.n_all, 4);
    assert_int_equal(pool.page_bytes, before / 3 * 4);
    llm_kv_init(&kv, &pool);
    fill(&kv, LENGTH, 1);
    mark(&kv, 0, LENGTH, 0, true);
    for (int64_t t = 0; t < LENGTH; t++) memset(llm_kv_value(&kv, 3, 1, t), 0xEE, pool.layers[3].v_row);
    mark(&kv, 0, LENGTH, 0, false);
    assert_ptr_not_equal(llm_kv_key(&kv, 3, 0, 0), llm_kv_key(&kv, 2, 0, 0));
    llm_kv_release(&kv);
    llm_kv_pool_release(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_places_are_different),         cmocka_unit_test(layers_may_read_those_of_others),
        cmocka_unit_test(copies_share_until_one_writes),    cmocka_unit_test(what_is_forgotten_is_used_again),
        cmocka_unit_test(states_go_back_to_their_beginning), cmocka_unit_test(memories_and_queries),
        cmocka_unit_test(windows_leave_pages), cmocka_unit_test(a_layer_that_drafts_has_its_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
