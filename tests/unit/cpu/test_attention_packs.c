/* Keys and values of a cache packed as they are: the bits of decoding them first, for every type, form and instruction set. */
#include "isas.h"

enum { KEYS = LLM_ATTN_TILE, WIDEST = 96 };
static const enum llm_dtype types[] = {LLM_F16, LLM_BF16, LLM_Q8_0, LLM_Q4_0};

static void check(const struct llm_attention_math *math, enum llm_dtype type, int64_t width, int64_t have)
{
    enum { ROOM = WIDEST * (KEYS + 16) };
    static float decoded[KEYS * WIDEST];
    static _Alignas(64) float found[ROOM], wanted[ROOM];
    size_t bytes = llm_dtype_bytes(type, (uint64_t)width);
    float *x = noisy((size_t)(have * width), (uint64_t)width);
    char *rows = guarded((size_t)have * bytes);
    for (int64_t r = 0; r < have; r++) {
        llm_dtypes[type].encode(x + r * width, rows + (size_t)r * bytes, (size_t)width);
        llm_dtypes[type].decode(rows + (size_t)r * bytes, decoded + r * width, (size_t)width);
    }
    int64_t units = llm_attn_units(math, width), tile_units = llm_attn_units(math, KEYS), padded = (width + 15) / 16 * 16;
    memset(found, 1, sizeof found);
    memset(wanted, 1, sizeof wanted);
    math->pack_bt_of[type](found, KEYS, rows, width, have, width);
    math->pack_bt(wanted, KEYS, decoded, width, have, width);
    if (memcmp(found, wanted, (size_t)(units * KEYS) * sizeof *found) != 0)
        fail_msg("%s: keys of %s, %d wide, %d of them", llm_k.isa, llm_dtypes[type].name, (int)width, (int)have);
    math->pack_b_of[type](found, padded, rows, width, have, width, KEYS);
    math->pack_b(wanted, padded, decoded, width, have, width, KEYS);
    if (memcmp(found, wanted, (size_t)(tile_units * padded) * sizeof *found) != 0)
        fail_msg("%s: values of %s, %d wide, %d of them", llm_k.isa, llm_dtypes[type].name, (int)width, (int)have);
}

static void test_types(void **state)
{
    static const int64_t widths[] = {64, 96, 32, 40}, counts[] = {KEYS, 1, 17, 63};
    (void)state;
    FOR_EACH_ISA(isa)
        for (int form = 0; form < 2; form++)
            for (size_t t = 0; t < sizeof types / sizeof *types; t++)
                for (int w = 0; w < 4; w++)
                    for (int n = 0; n < 4; n++)
                        if (widths[w] % llm_dtypes[types[t]].block_size == 0) check(&llm_k.attention.math[form], types[t], widths[w], counts[n]);
}

int main(void)
{
    struct llm_err e = {0};
    if (llm_pool_start(1, &e) < 0) return llm_report(&e);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
