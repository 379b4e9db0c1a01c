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
    static const char *const names[] = {"bpe", "bpe-rules", "unigram", "unigram-bytes", "char", "word", "word-bytes", "unigram-user"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        fuzz_tokenizer(load(names[i]));
}

/* Every beginning of a file is refused, also where a protobuf message ends; no byte that changes does harm. */
static void cut_and_changed(void **state)
{
    size_t n;
    char *p = read_file("bpe-rules.model", &n);
    (void)state;
    for (size_t i = 0; i < n; i += i < 400 ? 1 : 13) {
        struct llm_err e = {0};
        char *copy = malloc(i + 1); /* so that reading beyond it shows under AddressSanitizer */
        memcpy(copy, p, i);
        assert_null(llm_tokenizer_from_spm((unsigned char *)copy, i, NULL, &e));
        assert_int_equal(e.status, EX_DATAERR);
        free(copy);
        p[i] = (char)(p[i] ^ 0xFF);
        e.status = 0;
        struct llm_tokenizer *t = llm_tokenizer_from_spm((unsigned char *)p, n, NULL, &e);
        assert_true(t || e.status);
        llm_tokenizer_destroy(t);
        p[i] = (char)(p[i] ^ 0xFF);
    }
    free(p);
}

/* The end of the field of the message that begins at p[at]. */
static size_t field_end(const unsigned char *p, size_t at)
{
    size_t n = 0, shift = 0;
    do n |= (size_t)(p[++at] & 0x7F) << shift, shift += 7;
    while (p[at] >= 0x80);
    return at + 1 + n;
}

/* Cut after any field, every model is refused: Google's library takes most of these (tests/oracle/sentencepiece_cuts.py). */
static void cut_between_fields(void **state)
{
    static const char *const names[] = {"bpe", "bpe-rules", "unigram", "unigram-bytes", "char", "word", "word-bytes", "unigram-user"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[100];
        size_t n, at = 0, cuts = 0;
        snprintf(name, sizeof name, "%s.model", names[i]);
        char *p = read_file(name, &n);
        while ((at = field_end((unsigned char *)p, at)) < n) {
            struct llm_err e = {0};
            assert_null(llm_tokenizer_from_spm((unsigned char *)p, at, NULL, &e));
            assert_int_equal(e.status, EX_DATAERR);
            assert_true(strstr(e.text, "found no trainer_spec") || strstr(e.text, "found no normalizer_spec"));
            cuts++;
        }
        assert_int_equal(at, n);
        assert_true(cuts > 30);
        free(p);
    }
}

static void refuse(const char *bytes, size_t n, int status, const char *words)
{
    struct llm_err e = {0};
    assert_null(llm_tokenizer_from_spm((const unsigned char *)bytes, n, NULL, &e));
    assert_int_equal(e.status, status);
    if (!strstr(e.text, words))
        fail_msg("expected '%s' in: %s", words, e.text);
}
#define SPECS "\x12\x00\x1A\x00" /* a trainer_spec and a normalizer_spec, both empty */
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
    REFUSE("\x0A\x03\x0A\x01" "a", EX_DATAERR, "cut short: expected a trainer_spec and a normalizer_spec, found no trainer_spec");
    REFUSE("\x0A\x03\x0A\x01" "a" "\x12\x00", EX_DATAERR, "found no normalizer_spec");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02" SPECS, EX_DATAERR, "expected pieces of text, found none among 1 pieces");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02" "\x0A\x0A\x0A\x06<0x00>\x18\x06" "\x0A\x03\x0A\x01" "b" SPECS, EX_DATAERR,
           "expected 0 byte pieces (byte_fallback is false), found 1");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02" "\x0A\x0A\x0A\x06<0x00>\x18\x06" "\x0A\x03\x0A\x01" "b" "\x12\x03\x98\x02\x01\x1A\x00", EX_DATAERR,
           "expected 256 byte pieces (byte_fallback is true), found 1");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02" "\x0A\x0A\x0A\x06<0xG0>\x18\x06" "\x0A\x03\x0A\x01" "b" SPECS, EX_DATAERR, "found '<0xG0>'");
    REFUSE("\x0A\x03\x0A\x01" "a" SPECS, EX_DATAERR, "unknown piece");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x0A\x05\x0A\x01" "b\x18\x02\x0A\x03\x0A\x01" "c" SPECS, EX_DATAERR, "second unknown");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x0A\x03\x0A\x01" "b\x0A\x03\x0A\x01" "b" SPECS, EX_DATAERR, "the same");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x0A\x03\x0A\x01" "b\x12\x02\x18\x09\x1A\x00", EX_DATAERR, "model type 9");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x0A\x03\x0A\x01" "b\x12\x03\xC0\x01\x01\x1A\x00", EX_UNAVAILABLE, "treat_whitespace_as_suffix");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x12\x02\x18\x02\x0A\x05\x0A\x01" "b\x18\x05\x1A\x00", EX_UNAVAILABLE, "unused pieces");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x12\x02\x18\x02\x0A\x04\x0A\x02" "bc\x1A\x00", EX_UNAVAILABLE, "no piece itself");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x0A\x03\x0A\x01" "b\x12\x00\x1A\x05\x12\x03" "abc", EX_DATAERR, "character map");
    REFUSE("\x0A\x05\x0A\x01" "a\x18\x02\x0A\x03\x0A\x01" "b\x2A\x03\x12\x01" "a" SPECS, EX_UNAVAILABLE, "denormalizer_spec");
    REFUSE("\x0A\x02\x08\x01", EX_DATAERR, "another type");
    REFUSE("\x0B", EX_DATAERR, "wire type");
    REFUSE("\x0D\x01", EX_DATAERR, "cut short");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(vectors), cmocka_unit_test(forms), cmocka_unit_test(cut_and_changed),
                                       cmocka_unit_test(cut_between_fields),
                                       cmocka_unit_test(refused)};
    return cmocka_run_group_tests_name("sentencepiece", tests, NULL, NULL);
}
