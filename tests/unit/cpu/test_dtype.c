/* Data types: every 16-bit code, rounding to nearest even, NaN; block types against ggml's own encoder (tests/oracle/dtypes.py). */
#include "isas.h"
#include "base/hash.h"
#include "cpu/dtype.h"

static uint32_t bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* Halfway to the next code rounds to the even one, a little less down, a little more up; by arithmetic in double. */
static void check_rounding(uint16_t code, float (*decode)(uint16_t), uint16_t (*encode)(float))
{
    double low = decode(code), high = decode((uint16_t)(code + 1));
    float middle = (float)((low + high) / 2);
    if ((double)middle != (low + high) / 2) return; /* only where FP32 has the middle */
    assert_int_equal(encode(middle), code % 2 ? code + 1 : code);
    assert_int_equal(encode(nextafterf(middle, (float)low)), code);
    assert_int_equal(encode(nextafterf(middle, (float)high)), code + 1);
}

static void every_code(float (*decode)(uint16_t), uint16_t (*encode)(float), unsigned infinity, unsigned quiet)
{
    for (unsigned c = 0; c < 65536; c++) {
        float x = decode((uint16_t)c);
        unsigned size = c & 0x7fff;
        if (size > infinity) {
            assert_true(isnan(x));
            assert_int_equal(encode(x), c | quiet);
            continue;
        }
        assert_int_equal(encode(x), c);
        assert_true((signbit(x) != 0) == (c >> 15));
        if (size + 1 < infinity) check_rounding((uint16_t)c, decode, encode);
    }
}

static void test_bf16(void **state)
{
    (void)state;
    every_code(llm_bf16_to_f32, llm_bf16_from_f32, 0x7f80, 0x40);
    assert_int_equal(llm_bf16_from_f32(3.4028235e38f), 0x7f80); /* FLT_MAX is beyond the last finite code's middle */
    uint32_t signalling = 0x7f800001;
    float nan;
    memcpy(&nan, &signalling, 4);
    assert_true(isnan(llm_bf16_to_f32(llm_bf16_from_f32(nan))));
}

static void test_f16(void **state)
{
    (void)state;
    every_code(llm_f16_to_f32, llm_f16_from_f32, 0x7c00, 0x200);
    assert_int_equal(llm_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(llm_f16_from_f32(65520), 0x7c00);
    assert_int_equal(llm_f16_from_f32(0x1p-25f), 0);
    assert_int_equal(llm_f16_from_f32(0x1.000002p-25f), 1);
    assert_int_equal(llm_f16_from_f32(-INFINITY), 0xfc00);
    assert_true(llm_f16_to_f32(1) == 0x1p-24f);
}

static void test_rows(void **state)
{
    (void)state;
    for (int t = 0; t < LLM_N_DTYPES; t++) {
        const struct llm_dtype_row *row = &llm_dtypes[t];
        assert_non_null(row->name);
        assert_int_equal(llm_dtype_find(row->name), t);
        if (row->safetensors) assert_int_equal(llm_dtype_find(row->safetensors), t);
        assert_true(row->is_quantised == (row->block_size > 1 || t == LLM_ZERO));
        assert_true((row->decode != NULL) == (row->is_float || row->is_quantised));
        assert_int_equal(llm_dtype_bytes(t, 512), 512 / row->block_size * row->block_bytes);
        assert_int_equal(llm_dtype_bytes(t, UINT64_MAX - UINT64_MAX % 256), row->block_bytes > row->block_size
                             ? 0 : (UINT64_MAX - UINT64_MAX % 256) / (uint64_t)row->block_size * (uint64_t)row->block_bytes);
    }
    assert_int_equal(llm_dtype_bytes(LLM_Q8_0, 33), 0);
    assert_int_equal(llm_dtype_find("q8_0"), llm_dtype_find("Q8_0"));
    assert_int_equal(llm_dtype_find("f8"), LLM_NO_DTYPE);
    assert_int_equal(llm_dtype_find(""), LLM_NO_DTYPE);
}

/* tests/golden/dtypes.tsv: "name<TAB>input as hexadecimal FP32<TAB>block<TAB>decoded", all by the gguf package. */
static size_t from_hex(const char *text, unsigned char *out)
{
    size_t n = 0;
    for (; text[0] && text[1]; text += 2) {
        unsigned byte;
        assert_int_equal(sscanf(text, "%2x", &byte), 1);
        out[n++] = (unsigned char)byte;
    }
    return n;
}

static void test_golden(void **state)
{
    char name[16], input[1024], block[1024], decoded[1024];
    unsigned char x[512], b[512], y[512], got[512];
    int lines = 0;
    FILE *f = fopen("tests/golden/dtypes.tsv", "r");
    (void)state;
    assert_non_null(f);
    while (fscanf(f, "%15s %1023s %1023s %1023s", name, input, block, decoded) == 4) {
        enum llm_dtype t = llm_dtype_find(name);
        assert_true(t != LLM_NO_DTYPE);
        float values[32], back[32];
        size_t n = from_hex(input, x), bytes = from_hex(block, b);
        memcpy(values, x, n);
        assert_int_equal(n, sizeof values);
        assert_int_equal(from_hex(decoded, y), sizeof back);
        assert_int_equal(bytes, llm_dtype_bytes(t, 32));
        llm_dtypes[t].encode(values, got, 32);
        if (memcmp(got, b, bytes) != 0) fail_msg("%s: line %d encodes differently", name, lines + 1);
        llm_dtypes[t].decode(b, back, 32);
        if (memcmp(back, y, sizeof back) != 0) fail_msg("%s: line %d decodes differently", name, lines + 1);
        lines++;
    }
    fclose(f);
    assert_int_equal(lines, 6 * 64);
}

/* tests/golden/blocks.tsv (tests/oracle/blocks.py): "name<TAB>block<TAB>SHA-256 of the decoded FP32 values", by the gguf package. */
static void test_blocks(void **state)
{
    char name[16], block[1024], want[80], got[65];
    unsigned char b[512];
    float values[256];
    bool seen[LLM_N_DTYPES] = {0};
    FILE *f = fopen("tests/golden/blocks.tsv", "r");
    (void)state;
    assert_non_null(f);
    while (fscanf(f, "%15s %1023s %79s", name, block, want) == 3) {
        enum llm_dtype t = llm_dtype_find(name);
        assert_true(t != LLM_NO_DTYPE);
        size_t n = (size_t)llm_dtypes[t].block_size;
        assert_int_equal(from_hex(block, b), llm_dtypes[t].block_bytes);
        llm_dtypes[t].decode(b, values, n);
        struct llm_sha256 *h = llm_sha256_create(NULL);
        assert_non_null(h);
        llm_sha256_update(h, values, n * sizeof *values);
        llm_sha256_finish(h, got);
        if (strcmp(got, want) != 0) fail_msg("%s: block %s decodes differently", name, block);
        seen[t] = true;
    }
    fclose(f);
    for (int t = 0; t < LLM_N_DTYPES; t++) assert_true(seen[t] == (llm_dtypes[t].is_quantised != 0 && t != LLM_ZERO));
}

/* What is not finite stays visible or becomes zero, and nothing is undefined. */
static void test_not_finite(void **state)
{
    float x[32] = {1, NAN, -2, 3}, y[32];
    unsigned char block[64];
    (void)state;
    for (enum llm_dtype t = LLM_Q8_0; t <= LLM_Q4_0; t++) {
        llm_dtypes[t].encode(x, block, 32);
        llm_dtypes[t].decode(block, y, 32);
        assert_true(y[1] == 0 && fabsf(y[3] - 3) < 0.5f);
        memset(x, 0, sizeof x);
        llm_dtypes[t].encode(x, block, 32);
        llm_dtypes[t].decode(block, y, 32);
        for (int i = 0; i < 32; i++) assert_true(y[i] == 0);
        x[0] = 1;
        x[1] = NAN;
        x[2] = -2;
        x[3] = 3;
    }
    for (enum llm_dtype t = LLM_F32; t <= LLM_F64; t++) {
        llm_dtypes[t].encode(x, block, 4);
        llm_dtypes[t].decode(block, y, 4);
        assert_true(isnan(y[1]) && bits(y[2]) == bits(-2) && y[3] == 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bf16), cmocka_unit_test(test_f16), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_golden), cmocka_unit_test(test_blocks), cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
