/* Small models of SentencePiece (tests/oracle/sentencepiece_models.py): its ids of awkward texts, its texts of random ids; files cut short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include "tests/fuzz/tokenizer.h"

#define FOLDER "tests/golden/sentencepiece/"

static char *read_file(const char *name, size_t *n)
{
    char path[300];
    snprintf(path, sizeof path, FOLDER "%s", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *p = malloc(1 << 20);
    *n = fread(p, 1, 1 << 20, f);
    fclose(f);
    return p;
}

static struct llm_tokenizer *load(const char *name)
{
    char path[300];
    struct llm_err e = {0};
    snprintf(path, sizeof path, FOLDER "%s.model", name);
    struct llm_tokenizer *t = llm_tokenizer_load(path, NULL, &e);
    if (!t)
        fail_msg("%s", e.text);
    return t;
}

static void check_encode(const struct llm_tokenizer *t, const char *name, const char *text, size_t n, const json_t *want)
{
    for (size_t way = 0; way < 2; way++) { /* byte by byte, and whole */
        size_t step = way ? n + 1 : 1;
        struct llm_err e = {0};
        int32_t *ids = NULL;
        size_t n_ids = 0, room = 0, at = 0;
        struct llm_encoder *en = llm_encoder_create(t, 0, &e);
        do {
            size_t len = n - at < step ? n - at : step;
            if (llm_encoder_feed(en, text + at, len, at + len == n, &ids, &n_ids, &room, &e) < 0)
                fail_msg("%s: '%s': %s", name, text, e.text);
            at += len;
        } while (at < n);
        bool same = n_ids == json_array_size(want);
        for (size_t i = 0; same && i < n_ids; i++)
            same = ids[i] == json_integer_value(json_array_get(want, i));
        if (!same)
            fail_msg("%s: '%s': other ids (%zu, expected %zu)", name, text, n_ids, json_array_size(want));
        llm_encoder_destroy(en);
        free(ids);
    }
}

static void check_decode(const struct llm_tokenizer *t, const char *name, const json_t *list, const json_t *text)
{
    struct llm_buf out = {0};
    struct llm_err e = {0};
    int32_t ids[64];
    size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    assert_int_equal(llm_decode(t, ids, n, false, &out, &e), 0);
    if (out.n != json_string_length(text) || (out.n && memcmp(out.p, json_string_value(text), out.n) != 0))
        fail_msg("%s: decoded '%s', expected '%s'", name, out.p, json_string_value(text));
    llm_buf_release(&out);
}

static void vectors(void **state)
{
    char line[1 << 16], last[100] = "";
    struct llm_tokenizer *t = NULL;
    FILE *f = fopen(FOLDER "vectors.jsonl", "r");
    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *row = json_loadb(line, strlen(line), JSON_ALLOW_NUL, NULL);
        const char *name = json_string_value(json_object_get(row, "model")), *hex = json_string_value(json_object_get(row, "hex"));
        const json_t *text = json_object_get(row, "text"), *decode = json_object_get(row, "decode");
        char bytes[64];
        if (strcmp(name, last) != 0) {
            llm_tokenizer_destroy(t);
            t = load(name);
            snprintf(last, sizeof last, "%s", name);
        }
        for (size_t i = 0; hex && i < strlen(hex) / 2; i++) {
            unsigned v;
            sscanf(hex + 2 * i, "%2x", &v);
            bytes[i] = (char)v;
        }
        if (decode)
            check_decode(t, name, decode, text);
        else
            check_encode(t, name, hex ? bytes : json_string_value(text), hex ? strlen(hex) / 2 : json_string_length(text),
                         json_object_get(row, "ids"));
        json_decref(row);
    }
    llm_tokenizer_destroy(t);
    fclose(f);
}

static void forms(void **state)
{
    static const char *const names[] = {"bpe", "bpe-rules", "unigram", "unigram-bytes", "char", "word"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fuzz_tokenizer(load(names[i]));
}

/* Every beginning of a file is refused, or is a model of fewer pieces; no byte that changes does harm. */
static void cut_and_changed(void **state)
{
    size_t n;
    char *p = read_file("bpe-rules.model", &n);
    (void)state;
    for (size_t i = 0; i < n; i += i < 400 ? 1 : 13) {
        struct llm_err e = {0};
        char *copy = malloc(i + 1); /* so that reading beyond it shows under AddressSanitizer */
        memcpy(copy, p, i);
        struct llm_tokenizer *t = llm_tokenizer_from_spm((unsigned char *)copy, i, NULL, &e);
        assert_true(t || e.status);
        llm_tokenizer_destroy(t);
        free(copy);
        p[i] = (char)(p[i] ^ 0xFF);
        e.status = 0;
        t = llm_tokenizer_from_spm((unsigned char *)p, n, NULL, &e);
        assert_true(t || e.status);
        llm_tokenizer_destroy(t);
        p[i] = (char)(p[i] ^ 0xFF);
    }
    free(p);
}

static void refuse(const char *bytes, size_t n, int status, const char *words)
{
    struct llm_err e = {0};
    assert_null(llm_tokenizer_from_spm((const unsigned char *)bytes, n, NULL, &e));
    assert_int_equal(e.status, status);
    if (!strstr(e.text, words))
        fail_msg("expected '%s' in: %s", words, e.text);
}
#define REFUSE(bytes, status, words) refuse(bytes, sizeof bytes - 1, status, words)

static void refused(void **state)
{
    (void)state;
    REFUSE("", EX_DATAERR, "no pieces");
    REFUSE("\x0A\x7F\x0A\x01" "a", EX_DATAERR, "longer than what is left");
    REFUSE("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", EX_DATAERR, "longer than what is left");
    REFUSE("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", EX_DATAERR, "64 bits");
    REFUSE("\x0A\x03\x0A\x01\xFF", EX_DATAERR, "piece 0: expected text");
    REFUSE("\x0A\x00", EX_DATAERR, "piece 0: expected text");
    REFUSE("\x0A\x08\x0A\x01" "a\x15\x00\x00\x80\x7F", EX_DATAERR, "finite");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x09", EX_DATAERR, "type");
    REFUSE("\x0A\x03\x0A\x01" "a", EX_DATAERR, "unknown piece");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x0A\x05\x0A\x01" "b\x18\x02", EX_DATAERR, "second unknown");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x0A\x03\x0A\x01" "b\x0A\x03\x0A\x01" "b", EX_DATAERR, "the same");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x12\x02\x18\x09", EX_DATAERR, "model type 9");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x12\x03\xC0\x01\x01", EX_UNAVAILABLE, "treat_whitespace_as_suffix");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x12\x02\x18\x02\x0A\x05\x0A\x01" "b\x18\x05", EX_UNAVAILABLE, "unused pieces");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x12\x02\x18\x02\x0A\x04\x0A\x02" "bc", EX_UNAVAILABLE, "no piece itself");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x1A\x05\x12\x03" "abc", EX_DATAERR, "character map");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x2A\x03\x12\x01" "a", EX_UNAVAILABLE, "denormalizer_spec");
    REFUSE("\x0A\x02\x08\x01", EX_DATAERR, "another type");
    REFUSE("\x0B", EX_DATAERR, "wire type");
    REFUSE("\x0D\x01", EX_DATAERR, "cut short");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(forms), cmocka_unit_test(cut_and_changed),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests_name("sentencepiece", tests, NULL, NULL);
}
