/* Headers are believed only when every length, offset and product fits; streams know their end. */
#include "fixture.h"

#include "base/hash.h"
#include "io/message.h"

static int parse(const char *json, struct llm_header *h, struct llm_err *e)
{
    *e = (struct llm_err){0};
    return llm_header_parse(h, json, strlen(json), "x", e);
}

static void good_headers(void **state)
{
    struct llm_header h;
    struct llm_err e;
    (void)state;
    assert_int_equal(parse("{}", &h, &e), 0);
    assert_int_equal(h.n_entries, 0);
    llm_header_release(&h);
    /* in any order, empty tensors and scalars too, padded with spaces */
    assert_int_equal(
        parse("{\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[8,11]},\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
              "\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},\"__metadata__\":{\"format\":\"pt\"}}   ",
              &h, &e),
        0);
    assert_int_equal(h.n_entries, 3);
    assert_int_equal(h.data_bytes, 11);
    assert_string_equal(h.entries[0].name, "a");
    assert_string_equal(h.entries[1].name, "z");
    assert_string_equal(h.entries[2].name, "b");
    assert_ptr_equal(llm_header_find(&h, "b"), &h.entries[2]);
    assert_null(llm_header_find(&h, "c"));
    assert_null(h.kind);
    assert_string_equal(llm_header_meta(&h, "format"), "pt");
    llm_header_release(&h);
    /* the true type of what is declared U8 */
    assert_int_equal(parse("{\"__metadata__\":{\"llm.kind\":\"x\",\"llm.tensors\":\"{\\\"q\\\":{\\\"dtype\\\":\\\"q8_0\\\",\\\"shape\\\":[2,32]}}\"},"
                           "\"q\":{\"dtype\":\"U8\",\"shape\":[68],\"data_offsets\":[0,68]}}", &h, &e), 0);
    assert_int_equal(h.entries[0].dtype, LLM_Q8_0);
    assert_int_equal(h.entries[0].n_dims, 2);
    assert_int_equal(h.entries[0].shape[1], 32);
    llm_header_release(&h);
}

#define ONE(dtype, shape, offsets) "{\"w\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TRUE_TYPE(text) "{\"__metadata__\":{\"llm.tensors\":\"" text "\"},\"q\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static void bad_headers(void **state)
{
    static const struct { const char *json, *says;
    } rows[] = {
        {"", "'{'"},
        {"[]", "'{'"},
        {" {}", "'{'"},
        {"{", "JSON"},
        {"{} x", "JSON"},
        {ONE("F32", "[2]", "[0,9]"), "expected 8 bytes"},
        {ONE("F32", "[2]", "[4,12]"), "expected to begin at 0"},
        {ONE("F32", "[2]", "[8,0]"), "data_offsets"},
        {ONE("F32", "[2]", "[-8,0]"), "data_offsets"},
        {ONE("F32", "[2]", "[0,8,9]"), "data_offsets"},
        {ONE("F32", "[2]", "8"), "data_offsets"},
        {ONE("F32", "[2]", "[0.0,8.0]"), "data_offsets"},
        {ONE("F32", "[-2]", "[0,8]"), "dimension 0"},
        {ONE("F32", "[2.0]", "[0,8]"), "dimension 0"},
        {ONE("F32", "2", "[0,8]"), "shape"},
        {ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), "at most 8 dimensions"},
        {ONE("F32", "[4294967296,4294967296]", "[0,0]"), "overflows"},
        {ONE("F64", "[4611686018427387904]", "[0,0]"), "overflows"},
        {ONE("F32", "[99999999999999999999]", "[0,0]"), "JSON"},
        {ONE("F7", "[2]", "[0,8]"), "unknown dtype 'F7'"},
        {ONE("f32", "[2]", "[0,8]"), "unknown dtype"},
        {ONE("q8_0", "[32]", "[0,34]"), "unknown dtype"},
        {"{\"w\":5}", "expected an object"},
        {"{\"w\":{\"shape\":[1],\"data_offsets\":[0,1]}}", "unknown dtype"},
        {"{\"w\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,1]}}", "expected a string"},
        {"{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}", "JSON"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         "expected to begin at 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}",
         "expected to begin at 2"},
        {"{\"__metadata__\":[]}", "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", "expected a string"},
        {"{\"__metadata__\":{\"a\":\"x\\u0000y\"}}", "without NUL"},
        {"{\"__metadata__\":{\"llm.require.cipher\":\"1\"}}", "later version"},
        {TRUE_TYPE("{"), "llm.tensors"},
        {TRUE_TYPE("[]"), "llm.tensors"},
        {TRUE_TYPE("{\\\"q\\\":5}"), "expected an object"},
        {TRUE_TYPE("{\\\"q\\\":{\\\"dtype\\\":\\\"F16\\\",\\\"shape\\\":[4]}}"), "expected 8 bytes"},
        {TRUE_TYPE("{\\\"q\\\":{\\\"dtype\\\":\\\"F16\\\",\\\"shape\\\":[2],\\\"encoding\\\":\\\"zip\\\"}}"), "unknown encoding"},
        {TRUE_TYPE("{\\\"q\\\":{\\\"dtype\\\":\\\"I16\\\",\\\"shape\\\":[2],\\\"encoding\\\":\\\"planes\\\"}}"), "no float"},
        {TRUE_TYPE("{\\\"q\\\":{\\\"dtype\\\":\\\"F16\\\",\\\"shape\\\":[2],\\\"key\\\":\\\"1\\\"}}"), "unknown key"},
        {TRUE_TYPE("{\\\"r\\\":{\\\"dtype\\\":\\\"F16\\\",\\\"shape\\\":[2]}}"), "no tensor"},
        {TRUE_TYPE("{\\\"q\\\":{\\\"dtype\\\":\\\"q8_0\\\",\\\"shape\\\":[31]}}"), "block of 32"},
    };
    struct llm_header h;
    struct llm_err e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (parse(rows[i].json, &h, &e) == 0) fail_msg("accepted: %s", rows[i].json);
        if (e.status != EX_DATAERR || strncmp(e.text, "x: header: ", 11) != 0 || !strstr(e.text, rows[i].says))
            fail_msg("%s\n says: %s", rows[i].json, e.text);
    }
}

/* What is built is read back, and data begins on a multiple of 64. */
static void thousands_of_tensors(void **state)
{
    enum { N = 5000 };
    struct llm_buf json = {0};
    struct llm_err e = {0};
    struct llm_header h;
    static char names[N][24];
    struct llm_tensor_out *t = calloc(N, sizeof *t);
    struct llm_entry *entries = calloc(N, sizeof *entries);
    static const uint8_t data[64];
    (void)state;
    assert_true(t && entries);
    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "layer.%zu.weight", (i * 7919) % N);
        t[i] = (struct llm_tensor_out){names[i], i % 3 ? LLM_F16 : LLM_U8, 1, {(int64_t)(i % 5)}, data};
    }
    assert_int_equal(llm_layout(t, N, false, entries, &e), 0);
    assert_int_equal(llm_header_build("test", NULL, entries, N, &json, &e), 0);
    assert_int_equal((8 + json.n) % 64, 0);
    assert_int_equal(llm_header_parse(&h, json.p, json.n, "x", &e), 0);
    assert_int_equal(h.n_entries, N);
    for (size_t i = 0; i < N; i++) assert_non_null(llm_header_find(&h, names[i]));
    for (size_t i = 1; i < N; i++) assert_true(h.entries[i - 1].offset <= h.entries[i].offset);
    llm_header_release(&h);
    llm_buf_release(&json);
    free(entries);
    free(t);
}

/* Two messages and `end`, as bytes in a file. */
static void write_stream(const char *path)
{
    struct llm_err e = {0};
    struct llm_output *o = llm_output_open(path, true, &e);
    struct llm_writer *w = llm_writer_create(o, &e);
    static const float x[3] = {1, 2, 3};
    static const uint8_t bytes[5] = "abcd";
    const struct llm_tensor_out t[2] = {{"text", LLM_U8, 1, {5}, bytes}, {"x", LLM_F32, 2, {3, 1}, x}};
    json_t *meta = json_pack("{s:s}", "note", "a \"quoted\" \xc3\xa9");
    for (int i = 0; i < 2; i++) assert_int_equal(llm_writer_message(w, "logits", meta, t, 2, &e), 0);
    assert_int_equal(llm_writer_end(w, &e), 0);
    llm_writer_destroy(w);
    json_decref(meta);
    assert_int_equal(llm_output_commit(o, &e), 0);
}

/* Messages seen, or -1. `read`: read all their data rather than skip it. */
static int walk(const char *path, bool read, struct llm_err *e)
{
    const struct llm_header *h;
    int got, n = 0;
    *e = (struct llm_err){0};
    struct llm_stream *s = llm_stream_create(path, e);
    if (!s) return -1;
    while ((got = llm_stream_next(s, &h, e)) > 0) {
        char data[200];
        n++;
        if (h->data_bytes > sizeof data) got = -1;
        if (read && got > 0) got = llm_stream_read(s, data, h->data_bytes, e);
        if (got < 0) break;
    }
    llm_stream_destroy(s);
    return got < 0 ? -1 : n;
}

static void streams(void **state)
{
    struct llm_err e;
    size_t n;
    (void)state;
    write_stream("a");
    unsigned char *bytes = get_file("a", &n);
    assert_int_equal(walk("a", true, &e), 2);
    assert_int_equal(walk("a", false, &e), 2);
    /* on a pipe, in crumbs */
    for (size_t step = 1; step < 2000; step *= 7) {
        pid_t pid = pipe_in(bytes, n, step);
        assert_int_equal(walk("-", true, &e), 2);
        pipe_done(pid);
    }
    /* one after another */
    unsigned char *twice = malloc(2 * n);
    memcpy(twice, bytes, n);
    memcpy(twice + n, bytes, n);
    put_file("aa", twice, 2 * n);
    assert_int_equal(walk("aa", true, &e), 4);
    /* every cut and every changed byte is noticed */
    for (size_t cut = 0; cut < n; cut++) {
        put_file("cut", bytes, cut);
        assert_int_equal(walk("cut", true, &e), -1);
        assert_int_equal(e.status, EX_DATAERR);
        assert_memory_equal(e.text, "cut: ", 5);
    }
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 0x04;
        put_file("flip", bytes, n);
        assert_int_equal(walk("flip", true, &e), -1);
        assert_int_equal(e.status, EX_DATAERR);
        bytes[i] ^= 0x04;
    }
    free(twice);
    free(bytes);
}

static void put_message(FILE *f, const char *json, size_t data)
{
    uint64_t n = strlen(json);
    fwrite(&n, 8, 1, f);
    fwrite(json, 1, n, f);
    for (size_t i = 0; i < data; i++) fputc('x', f);
}

/* Messages that prove their own length stand before and after streams that need an `end`, never within. */
static void kinds(void **state)
{
    static const char kv[] = "{\"__metadata__\":{\"llm.kind\":\"kvcache\"},\"k\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    static const char tok[] = "{\"__metadata__\":{\"llm.kind\":\"tokens\"},\"k\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    static const char foreign[] = "{\"k\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    struct llm_err e;
    size_t n;
    (void)state;
    FILE *f = fopen("kinds", "wb");
    put_message(f, kv, 3);
    put_message(f, foreign, 3);
    fclose(f);
    assert_int_equal(walk("kinds", true, &e), 2);
    assert_int_equal(walk("kinds", false, &e), 2);
    write_stream("a");
    unsigned char *a = get_file("a", &n);
    f = fopen("kinds", "ab");
    fwrite(a, 1, n, f);
    put_message(f, kv, 3);
    fclose(f);
    assert_int_equal(walk("kinds", true, &e), 5);
    f = fopen("kinds", "wb");
    put_message(f, tok, 3);
    put_message(f, kv, 3);
    fclose(f);
    assert_int_equal(walk("kinds", true, &e), -1);
    assert_non_null(strstr(e.text, "expected 'end'"));
    f = fopen("kinds", "wb");
    put_message(f, tok, 3);
    fclose(f);
    assert_int_equal(walk("kinds", true, &e), -1);
    assert_non_null(strstr(e.text, "cut short: expected another message or 'end'"));
    free(a);
}

static void header_lengths(void **state)
{
    static const struct { uint64_t n; const char *says; } rows[] = {
        {UINT64_C(1) << 63, "byte 8: header length: expected at most 100000000, found 9223372036854775808"},
        {UINT64_MAX, "header length"}, {100000001, "header length"}, {100000000, "cut short"}, {0, "'{'"}, {3, "JSON"}};
    struct llm_err e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char bytes[20] = "........{}          ";
        memcpy(bytes, &rows[i].n, 8);
        put_file("length", bytes, rows[i].n == 3 ? 11 : sizeof bytes);
        if (rows[i].n == 3) bytes[9] = '{', put_file("length", bytes, 11);
        assert_int_equal(walk("length", true, &e), -1);
        if (!strstr(e.text, rows[i].says)) fail_msg("expected %s, found %s", rows[i].says, e.text);
    }
    put_file("length", "", 0);
    assert_int_equal(walk("length", true, &e), -1);
    assert_non_null(strstr(e.text, "empty"));
    assert_int_equal(walk("absent", true, &e), -1);
    assert_int_equal(e.status, EX_NOINPUT);
    assert_int_equal(walk(".", true, &e), -1);
    assert_int_equal(e.status, EX_NOINPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(good_headers), cmocka_unit_test(bad_headers), cmocka_unit_test(thousands_of_tensors),
                                       cmocka_unit_test(streams), cmocka_unit_test(kinds), cmocka_unit_test(header_lengths)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
