/* Checkpoints: what is written is read back from files and pipes, whole or not at all; the bytes do not depend on threads. */
#include "fixture.h"

#include <zstd.h>

#include "base/rng.h"
#include "cpu/pool.h"
#include "io/checkpoint.h"
#include "io/planes.h"
#include "io/sniff.h"

enum { N = 6 };
static const int64_t sizes[N] = {3000001, 5, 77, 96, 0, 13}; /* the first needs two frames of F16 and three of F32 */
static const enum llm_dtype dtypes[N] = {LLM_BF16, LLM_F32, LLM_F64, LLM_Q8_0, LLM_F32, LLM_U8};
static const char *const names[N] = {"big", "short", "double", "blocks", "empty", "text"};
static void *data[N];
static struct llm_tensor_out tensors[N];

static void make_tensors(bool small)
{
    for (int i = 0; i < N; i++) {
        int64_t n = small && i == 0 ? 41 : sizes[i];
        size_t bytes = llm_dtype_bytes(dtypes[i], (uint64_t)n);
        data[i] = malloc(bytes + 1);
        assert_non_null(data[i]);
        for (size_t k = 0; k < bytes; k += 2) {
            struct llm_rng r = llm_rng_at(1, 0, LLM_RNG_TEST, (uint32_t)i, (uint32_t)k, 0);
            uint16_t x = llm_bf16_from_f32(0.02f * llm_rng_normal(&r, 0));
            memcpy((char *)data[i] + k, &x, k + 2 <= bytes ? 2 : 1);
        }
        tensors[i] = (struct llm_tensor_out){names[i], dtypes[i], 1, {n}, data[i]};
    }
}

static void free_tensors(void)
{
    for (int i = 0; i < N; i++) free(data[i]);
}

static void give(void *arg, const char *name, uint64_t from, size_t n, void *out)
{
    int i = 0;
    while (strcmp(names[i], name) != 0) i++;
    assert_ptr_equal(arg, data);
    memcpy(out, (const char *)data[i] + from, n);
}

static void write_to(const char *path, bool planes, bool plain, int level)
{
    struct llm_err e = {0};
    struct llm_output *o = llm_output_open(path, true, &e);
    json_t *meta = json_pack("{s:s}", "llm.config", "{}");
    const struct llm_checkpoint_options opt = {.planes = planes, .plain = plain, .level = level, .give = give, .give_arg = data};
    assert_non_null(o);
    if (llm_checkpoint_write(o, meta, tensors, N, &opt, &e) < 0) fail_msg("%s", e.text);
    json_decref(meta);
    assert_int_equal(llm_output_commit(o, &e), 0);
}

/* 0: all tensors came back, equal; 1: they came and differ; -1: refused. */
static int read_back(const char *path, bool backwards, bool many, struct llm_err *e)
{
    int got = 0;
    *e = (struct llm_err){0};
    struct llm_checkpoint *c = llm_checkpoint_open(path, e);
    if (!c) return -1;
    const struct llm_header *h = llm_checkpoint_header(c);
    void *out[N] = {NULL};
    struct llm_wanted wanted[N];
    for (int k = 0; k < N && got == 0; k++) {
        int i = backwards ? N - 1 - k : k;
        const struct llm_entry *t = llm_header_find(h, names[i]);
        if (!t || t->dtype != dtypes[i] || t->shape[0] != tensors[i].shape[0]) {
            got = 1;
            break;
        }
        out[i] = malloc(t->bytes + 1);
        wanted[k] = (struct llm_wanted){t, out[i]};
        if (!many) got = llm_checkpoint_read(c, t, out[i], e);
    }
    if (got == 0 && many) got = llm_checkpoint_read_many(c, wanted, N, e);
    for (int i = 0; i < N && got == 0; i++)
        got = memcmp(out[i], data[i], llm_dtype_bytes(dtypes[i], (uint64_t)tensors[i].shape[0])) != 0;
    for (int i = 0; i < N; i++) free(out[i]);
    llm_checkpoint_close(c);
    return got;
}

static int read_pipe(const unsigned char *bytes, size_t n, size_t step, bool backwards, struct llm_err *e)
{
    pid_t pid = pipe_in(bytes, n, step);
    int got = read_back("-", backwards, false, e);
    pipe_done(pid);
    return got;
}

static void round_trips(void **state)
{
    struct llm_err e;
    (void)state;
    make_tensors(false);
    for (int way = 0; way < 4; way++) {
        size_t n;
        write_to("c", way == 0 || way == 3, way == 2, way == 3 ? 5 : 0);
        for (int k = 0; k < 4; k++)
            if (read_back("c", k & 1, k & 2, &e) != 0) fail_msg("way %d: %s", way, e.text);
        unsigned char *bytes = get_file("c", &n);
        for (int k = 0; k < 4; k++)
            if (read_pipe(bytes, n, k & 1 ? 1 << 20 : 777, k & 2, &e) != 0) fail_msg("way %d, pipe: %s", way, e.text);
        free(bytes);
    }
    free_tensors();
}

/* What is given while it is written comes out as what lay there. */
static void given(void **state)
{
    (void)state;
    make_tensors(false);
    for (int way = 0; way < 4; way++) {
        size_t n[2];
        unsigned char *bytes[2];
        for (int i = 0; i < 2; i++) {
            for (int k = 0; i == 1 && k < N; k += 2) tensors[k].data = NULL;
            write_to("c", way == 0 || way == 3, way == 2, way == 3 ? 5 : 0);
            bytes[i] = get_file("c", &n[i]);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], n[0]);
        for (int i = 0; i < 2; i++) free(bytes[i]);
        for (int k = 0; k < N; k++) tensors[k].data = data[k];
    }
    free_tensors();
}

static void threads_do_not_show(void **state)
{
    struct llm_err e = {0};
    size_t n[2];
    unsigned char *bytes[2];
    (void)state;
    make_tensors(false);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(llm_pool_start(i ? 3 : 1, &e), 0);
        write_to("c", true, false, 0);
        assert_int_equal(read_back("c", false, true, &e), 0);
        bytes[i] = get_file("c", &n[i]);
        llm_pool_stop();
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    assert_true(n[0] < 3000001 * 14 / 10 + 4000); /* 0.70 of the raw bytes */
    free(bytes[0]);
    free(bytes[1]);
    free_tensors();
}

/* Without planes, what zstd unpacks is a plain safetensors file. */
static void unpacks_to_safetensors(void **state)
{
    size_t n, plain_n, at = 0, room;
    (void)state;
    make_tensors(false);
    write_to("plain", false, true, 0);
    write_to("c", false, false, 0);
    unsigned char *bytes = get_file("c", &n), *plain = get_file("plain", &plain_n), *out = malloc(plain_n);
    ZSTD_DCtx *d = ZSTD_createDCtx();
    room = 0;
    while (at < n) {
        size_t step = ZSTD_findFrameCompressedSize(bytes + at, n - at);
        assert_false(ZSTD_isError(step));
        size_t got = ZSTD_decompressDCtx(d, out + room, plain_n - room, bytes + at, step);
        assert_false(ZSTD_isError(got));
        room += got;
        at += step;
    }
    assert_int_equal(room, plain_n);
    assert_memory_equal(out, plain, plain_n);
    ZSTD_freeDCtx(d);
    free(bytes);
    free(plain);
    free(out);
    free_tensors();
}

/* A plain file is mapped, and its tensors lie where they are. */
static void plain_files_are_borrowed(void **state)
{
    struct llm_err e = {0};
    (void)state;
    make_tensors(true);
    write_to("plain", false, true, 0);
    struct llm_checkpoint *c = llm_checkpoint_open("plain", &e);
    assert_non_null(c);
    for (int i = 0; i < N; i++) {
        const struct llm_entry *t = llm_header_find(llm_checkpoint_header(c), names[i]);
        const void *p = llm_checkpoint_borrow(c, t);
        if (i == 2 || i == 1) assert_non_null(p); /* canonical order: the widest come first, on a multiple of 64 */
        if (p) assert_memory_equal(p, data[i], t->bytes);
    }
    llm_checkpoint_close(c);
    write_to("c", true, false, 0);
    c = llm_checkpoint_open("c", &e);
    assert_null(llm_checkpoint_borrow(c, &llm_checkpoint_header(c)->entries[0]));
    llm_checkpoint_close(c);
    free_tensors();
}

/* Every cut is refused, from a file and from a pipe; a changed byte is refused or changes nothing (bits that zstd ignores). */
static void damage_is_noticed(void **state)
{
    struct llm_err e;
    size_t n;
    (void)state;
    make_tensors(true);
    for (int way = 0; way < 2; way++) {
        write_to("c", way == 0, false, 0);
        unsigned char *bytes = get_file("c", &n);
        size_t harmless = 0;
        for (size_t cut = 0; cut < n; cut += cut < n - 200 ? 3 : 1) {
            put_file("cut", bytes, cut);
            assert_int_equal(read_back("cut", false, false, &e), -1);
            assert_int_equal(e.status, EX_DATAERR);
            assert_memory_equal(e.text, "cut: ", 5);
        }
        for (size_t cut = 0; cut < n; cut += 29) assert_int_equal(read_pipe(bytes, cut, 4096, false, &e), -1);
        for (size_t i = 0; i < n; i++) {
            bytes[i] ^= (unsigned char)(1 << i % 8);
            put_file("flip", bytes, n);
            int got = read_back("flip", false, false, &e);
            assert_true(got <= 0);
            if (got == 0) harmless++;
            else assert_int_equal(e.status, EX_DATAERR);
            if (i % 5 == 0 || i > n - 100) assert_int_equal(read_pipe(bytes, n, 4096, false, &e), got);
            bytes[i] ^= (unsigned char)(1 << i % 8);
        }
        assert_true(harmless <= 4);
        bytes = realloc(bytes, n + 1);
        bytes[n] = 'x';
        put_file("long", bytes, n + 1);
        assert_int_equal(read_back("long", false, false, &e), -1);
        assert_int_equal(read_pipe(bytes, n + 1, 4096, false, &e), -1);
        free(bytes);
    }
    free_tensors();
}

static void other_things_are_refused(void **state)
{
    static const struct { const char *bytes; size_t n; const char *says; } rows[] = {
        {"", 0, "empty"}, {"GGUF\3\0\0\0........", 16, "number of tensors"}, {"{\"version\":\"1.0\"}", 17, "JSON"}, {"Once upon a time", 16, "text"},
        {"\x28\xB5\x2F\xFD....", 8, "zstd data"}, {"\0\0\0\0\0\0\0\x80{}      ", 16, "header length"},
        {"\x2b\0\0\0\0\0\0\0{\"__metadata__\":{\"llm.kind\":\"kvcache\"}}    ", 51, "found a tensor message of kind 'kvcache'"}};
    struct llm_err e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_file("other", rows[i].bytes, rows[i].n);
        assert_null(llm_checkpoint_open("other", &e));
        assert_int_equal(e.status, EX_DATAERR);
        if (!strstr(e.text, rows[i].says)) fail_msg("expected '%s', found '%s'", rows[i].says, e.text);
        pid_t pid = pipe_in(rows[i].bytes, rows[i].n, 100);
        assert_null(llm_checkpoint_open("-", &e));
        pipe_done(pid);
        if (!strstr(e.text, rows[i].says)) fail_msg("pipe: expected '%s', found '%s'", rows[i].says, e.text);
    }
}

static void pipes_give_each_tensor_once(void **state)
{
    struct llm_err e = {0};
    size_t n;
    unsigned char out[2000];
    (void)state;
    make_tensors(true);
    write_to("c", true, false, 0);
    unsigned char *bytes = get_file("c", &n);
    pid_t pid = pipe_in(bytes, n, 100);
    struct llm_checkpoint *c = llm_checkpoint_open("-", &e);
    const struct llm_entry *t = llm_header_find(llm_checkpoint_header(c), "text");
    assert_int_equal(llm_checkpoint_read(c, t, out, &e), 0);
    assert_int_equal(llm_checkpoint_read(c, t, out, &e), -1);
    llm_checkpoint_close(c);
    pipe_done(pid);
    free(bytes);
    free_tensors();
}

static void planes_by_the_formula(void **state)
{
    (void)state;
    for (int width = 2; width <= 8; width *= 2)
        for (size_t count = 0; count < 200; count += 13) {
            unsigned char *x = malloc(count * (size_t)width + 1), *p = malloc(count * (size_t)width + 1), *back = malloc(count * (size_t)width + 1);
            for (size_t i = 0; i < count * (size_t)width; i++) x[i] = (unsigned char)(i * 151 + 7);
            llm_planes_split(x, p, count * (size_t)width, width);
            for (size_t i = 0; i < count; i++) {
                uint64_t v = 0;
                for (int b = 0; b < width; b++) v |= (uint64_t)x[i * (size_t)width + (size_t)b] << (8 * b);
                v = v << 1 | v >> (8 * width - 1);
                for (int b = 0; b < width; b++) assert_int_equal(p[(size_t)b * count + i], (unsigned char)(v >> (8 * (width - 1 - b))));
            }
            llm_planes_join(p, back, count * (size_t)width, width);
            assert_memory_equal(x, back, count * (size_t)width);
            free(x);
            free(p);
            free(back);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trips), cmocka_unit_test(given), cmocka_unit_test(threads_do_not_show),
                                       cmocka_unit_test(unpacks_to_safetensors), cmocka_unit_test(plain_files_are_borrowed),
                                       cmocka_unit_test(damage_is_noticed),
                                       cmocka_unit_test(other_things_are_refused), cmocka_unit_test(pipes_give_each_tensor_once),
                                       cmocka_unit_test(planes_by_the_formula)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
