/* Merging: short and long pieces agree with the definition; bytes come back; streams do not depend on how they are fed or on threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "cpu/pool.h"
#include "token/internal.h"
#include "token/stream.h"
#include "token/train/train.h"

static uint32_t draws;

static uint32_t draw(uint32_t below)
{
    struct llm_rng r = llm_rng_at(11, 0, LLM_RNG_TEST, 0, 0, 0);
    return (uint32_t)llm_rng_below(&r, draws++, below);
}

/* Text of few letters, so that much merges. */
static void few_letters(unsigned char *p, size_t n, uint32_t letters)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(draw(6) == 0 ? ' ' : 'a' + draw(letters));
}

static struct llm_tokenizer *train(const char *text, size_t n, const struct llm_train_options *o)
{
    struct llm_err e = {0};
    struct llm_trainer *r = llm_trainer_create(o, &e);
    if (!r || llm_trainer_put(r, text, n, &e) < 0 || llm_trainer_end_document(r, &e) < 0)
        fail_msg("%s", e.text);
    struct llm_tokenizer *t = llm_trainer_finish(r, &e);
    if (!t)
        fail_msg("%s", e.text);
    llm_trainer_destroy(r);
    return t;
}

static struct llm_tokenizer *tokenizer;
static const char *const special_texts[] = {"<|end|>", "<|end|>x"};
static const struct llm_strs specials = {(const char **)(uintptr_t)special_texts, 2};

static int make(void **state)
{
    (void)state;
    char *text = malloc(60000);
    const struct llm_train_options o = {.model = LLM_TRAIN_BPE, .vocab_size = 900, .pattern = "gpt2", .min_frequency = 1, .specials = &specials};
    few_letters((unsigned char *)text, 60000, 4);
    tokenizer = train(text, 60000, &o);
    free(text);
    return 0;
}

static int drop(void **state)
{
    (void)state;
    llm_tokenizer_destroy(tokenizer);
    return 0;
}

/* The definition: again and again the leftmost of the pairs with the lowest rank. */
static size_t merge_plainly(const struct llm_bpe *b, const unsigned char *p, size_t n, int32_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)b->byte_id[p[i]];
    for (;;) {
        uint32_t best = LLM_BPE_NONE, best_rank = LLM_BPE_NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            uint32_t found = llm_bpe_find(b, (uint32_t)out[i], (uint32_t)out[i + 1]);
            uint32_t rank = found == LLM_BPE_NONE ? LLM_BPE_NONE : b->ranks ? b->ranks[found] : found;
            if (rank < best_rank) {
                best = found;
                best_rank = rank;
                at = i;
            }
        }
        if (best == LLM_BPE_NONE)
            return n;
        out[at] = (int32_t)(b->ids ? b->ids[best] : b->first_id + best);
        memmove(out + at + 1, out + at + 2, (n - at - 2) * sizeof *out);
        n--;
    }
}

static void short_and_long_are_the_definition(void **state)
{
    struct llm_bpe_work w = {0};
    (void)state;
    for (int round = 0; round < 400; round++) {
        unsigned char text[700];
        int32_t want[700], got[700];
        size_t n = 1 + draw(round % 4 ? LLM_BPE_SHORT + 20 : 700), n_got;
        few_letters(text, n, 1 + draw(5));
        size_t n_want = merge_plainly(&tokenizer->bpe, text, n, want);
        assert_int_equal(llm_bpe_encode(&tokenizer->bpe, &w, text, n, got, &n_got, NULL), 0);
        assert_int_equal(n_got, n_want);
        assert_memory_equal(got, want, n_got * sizeof *got);
    }
    llm_bpe_work_release(&w);
}

static void words_side_by_side_are_the_definition(void **state)
{
    static unsigned char text[50][16];
    static struct llm_bpe_word words[50];
    (void)state;
    for (size_t n = 0; n <= 50; n++) {
        for (size_t i = 0; i < n; i++) {
            words[i] = (struct llm_bpe_word){.p = text[i], .n = 1 + draw(16)};
            few_letters(text[i], words[i].n, 1 + draw(5));
        }
        llm_bpe_encode_words(&tokenizer->bpe, words, n);
        for (size_t i = 0; i < n; i++) {
            int32_t want[16];
            assert_int_equal(words[i].n_ids, merge_plainly(&tokenizer->bpe, words[i].p, words[i].n, want));
            assert_memory_equal(words[i].ids, want, words[i].n_ids * sizeof *want);
        }
    }
}

struct flushed { int32_t ids[8000]; size_t n; };

static int take(void *arg, const int32_t *ids, size_t n, struct llm_err *e)
{
    struct flushed *f = arg;
    (void)e;
    assert_true(f->n + n <= sizeof f->ids / sizeof *f->ids);
    memcpy(f->ids + f->n, ids, n * sizeof *ids);
    f->n += n;
    return 0;
}

/* Whatever the windows are; few letters make tokens that reach far, so that small windows do not fit and larger ones are tried. */
static void windows_give_the_ids_of_the_whole(void **state)
{
    static unsigned char text[8000];
    static int32_t want[8000], got[8000];
    static struct flushed f;
    struct llm_bpe_work w = {0};
    (void)state;
    for (int round = 0; round < 120; round++) {
        size_t n = 1000 + draw(7000), n_want, n_got, window = 33 + draw(400);
        few_letters(text, n, 1 + draw(5));
        if (round % 3 == 0) /* a change far behind */
            memset(text + 300, text[300], n - 300 - draw(600));
        assert_int_equal(llm_bpe_encode(&tokenizer->bpe, &w, text, n, want, &n_want, NULL), 0);
        assert_int_equal(llm_bpe_encode_long(tokenizer, &w, text, n, window, got, &n_got, NULL, NULL, NULL), 0);
        assert_int_equal(n_got, n_want);
        assert_memory_equal(got, want, n_got * sizeof *got);
        f.n = 0;
        assert_int_equal(llm_bpe_encode_long(tokenizer, &w, text, n, window, got, &n_got, take, &f, NULL), 0);
        assert_int_equal(take(&f, got, n_got, NULL), 0);
        assert_int_equal(f.n, n_want);
        assert_memory_equal(f.ids, want, n_want * sizeof *want);
    }
    llm_bpe_work_release(&w);
}

static void expect_back(const struct llm_tokenizer *t, const char *text, size_t n, int flags)
{
    int32_t *ids = NULL;
    size_t n_ids;
    struct llm_buf out = {0};
    struct llm_err e = {0};
    if (llm_encode(t, text, n, flags, &ids, &n_ids, &e) < 0 || llm_decode(t, ids, n_ids, false, &out, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(out.n, n);
    assert_memory_equal(out.p ? out.p : "", text, n);
    free(ids);
    llm_buf_release(&out);
}

static void any_bytes_come_back(void **state)
{
    char text[600];
    (void)state;
    const struct llm_train_options byte = {.model = LLM_TRAIN_BYTE, .specials = &specials};
    struct llm_tokenizer *bytes = train("", 0, &byte);
    for (int round = 0; round < 300; round++) {
        size_t n = draw(sizeof text);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)(round % 3 ? draw(256) : (unsigned char)"a <|end|>x\xC3\xA9\xE4\xB8\xAD"[draw(15)]);
        expect_back(tokenizer, text, n, round % 2 ? LLM_ENCODE_SPECIAL : 0);
        expect_back(bytes, text, n, 0);
    }
    assert_string_equal(llm_tokenizer_type(bytes), "byte");
    assert_int_equal(llm_tokenizer_vocab_size(bytes), 258);
    llm_tokenizer_destroy(bytes);
}

static void every_split_keeps_every_byte(void **state)
{
    /* merges over splits of their own, and patterns that match little, nothing but letters, or look behind */
    static const char *const patterns[] = {"gpt2", "llama3", "cl100k", "qwen2", "o200k", "[a-z]+", "(?<=\\s)\\S+|\\s", "x"};
    static const char *const bits[] = {"a", "B", "the", " ", "  ", "\n", "\r\n", "'s", "'LL", "1", "2345", "!", "_/", "\xC3\xA9", "\xCC\x81",
                                       "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xC2\xA0", "\xE3\x80\x80", "\xFF", "\x80", "\xC3", "\xE4\xB8", "\xC7\x85",
                                       "<|end|>", "<|end"};
    char text[400];
    (void)state;
    for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
        const struct llm_train_options o = {.model = LLM_TRAIN_BPE, .vocab_size = 330, .pattern = patterns[k], .min_frequency = 1,
                                            .specials = &specials};
        size_t n = 0;
        for (int i = 0; i < 80; i++) {
            const char *bit = bits[draw(sizeof bits / sizeof *bits)];
            memcpy(text + n, bit, strlen(bit));
            n += strlen(bit);
        }
        struct llm_tokenizer *t = train(text, n, &o);
        for (int round = 0; round < 200; round++) {
            n = 0;
            for (uint32_t more = draw(40); more && n < sizeof text - 8; more--) {
                const char *bit = bits[draw(sizeof bits / sizeof *bits)];
                if (draw(10) == 0)
                    text[n++] = (char)draw(256);
                else {
                    memcpy(text + n, bit, strlen(bit));
                    n += strlen(bit);
                }
            }
            expect_back(t, text, n, round % 2 ? LLM_ENCODE_SPECIAL : 0);
        }
        llm_tokenizer_destroy(t);
    }
}

/* One piece after another, as the splitter of single pieces cuts them, each merged anew: nothing remembered, nothing looked up ahead. */
static size_t plainly(const struct llm_tokenizer *t, const unsigned char *p, size_t n, int32_t *ids)
{
    struct llm_bpe_work work = {0};
    struct llm_err e;
    size_t count = 0;
    for (size_t at = 0, len; at < n; at += len) {
        size_t n_ids;
        len = t->splits[0].row->next(p + at, p + n, true);
        int32_t whole = t->ignore_merges ? llm_tokenizer_whole(t, p + at, len) : -1;
        ids[count] = whole;
        n_ids = 1;
        if (whole < 0)
            assert_int_equal(llm_bpe_encode(&t->bpe, &work, p + at, len, ids + count, &n_ids, &e), 0);
        count += n_ids;
    }
    llm_bpe_work_release(&work);
    return count;
}

/* Words of every length, many and few at once, new ones and old ones, beside each other: the same ids, at first and when words are remembered. */
static void many_pieces_at_once_are_the_definition(void **state)
{
    enum { N = 20000 };
    static const char *const between[] = {" ",      "\n",    "  ",      "'s ",      "'", " \xC3\xA9", "\xE4\xB8\xAD\xE6\x96\x87 ",
                                          " 12345 ", "\xFF", "!!! ", "\r\n\t", "\xC2\xA0", "/"};
    unsigned char *text = malloc(N + 64);
    int32_t *want = malloc((N + 64) * sizeof *want);
    (void)state;
    for (size_t i = 0; llm_split_rows[i]; i++) {
        few_letters(text, N, 3);
        const struct llm_train_options o = {.model = LLM_TRAIN_BPE, .vocab_size = 600, .pattern = llm_split_rows[i]->name, .min_frequency = 1};
        struct llm_tokenizer *t = train((char *)text, N, &o);
        for (int round = 0; round < 24; round++) {
            struct llm_err e = {0};
            struct llm_encoder *en = llm_encoder_create(t, 0, &e);
            size_t n = 0, room = 0;
            int32_t *ids = NULL;
            assert_non_null(en);
            t->ignore_merges = round & 1;
            if (t->ignore_merges && !t->whole)
                assert_int_equal(llm_tokenizer_index_whole(t, &e), 0);
            while (n < N - 200) {
                uint32_t len = draw(3) ? draw(6) : draw(round % 3 ? 20 : 130), letters = 1 + draw(26);
                for (uint32_t k = 0; k < len; k++)
                    text[n++] = (unsigned char)((draw(9) ? 'a' : 'A') + draw(letters));
                const char *more = between[draw(round % 4 ? 1 : sizeof between / sizeof *between)];
                memcpy(text + n, more, strlen(more));
                n += strlen(more);
            }
            size_t n_want = plainly(t, text, n, want);
            for (int again = 0; again < 2; again++) {
                size_t n_ids = 0;
                assert_int_equal(llm_encoder_feed(en, (char *)text, n, true, &ids, &n_ids, &room, &e), 0);
                assert_int_equal(n_ids, n_want);
                assert_memory_equal(ids, want, n_ids * sizeof *ids);
            }
            free(ids);
            llm_encoder_destroy(en);
        }
        llm_tokenizer_destroy(t);
    }
    free(text);
    free(want);
}

static void special_tokens_count_only_when_asked(void **state)
{
    static const char text[] = "ab<|end|>xc<|end|><|end|";
    int32_t *ids = NULL;
    size_t n;
    int found[2] = {0, 0};
    (void)state;
    for (int i = 0; i < 6; i++) { /* the encoder of one text serves the next, if that has the same flags */
        int flags = i / 2 % 2 ? LLM_ENCODE_SPECIAL : 0;
        assert_int_equal(llm_encode(tokenizer, text, sizeof text - 1, flags, &ids, &n, NULL), 0);
        found[0] = found[1] = 0;
        for (size_t k = 0; k < n; k++)
            if (ids[k] < 2)
                found[ids[k]]++;
        assert_int_equal(found[0], flags ? 1 : 0); /* of two that begin alike, the longer */
        assert_int_equal(found[1], flags ? 1 : 0);
        free(ids);
    }
    assert_int_equal(llm_tokenizer_special(tokenizer, "<|end|>x"), 1);
    assert_true(llm_tokenizer_is_special(tokenizer, 0) && !llm_tokenizer_is_special(tokenizer, 2));
}

/* ---- streams ---- */

struct collected { int32_t *ids; size_t n, room; int documents; };

static int collect(void *arg, const int32_t *ids, size_t n, bool ends, struct llm_err *e)
{
    struct collected *c = arg;
    if (llm_grow((void **)&c->ids, &c->room, c->n + n + 1, sizeof *c->ids, e) < 0)
        return -1;
    memcpy(c->ids + c->n, ids, n * sizeof *ids);
    c->n += n;
    if (ends)
        c->ids[c->n++] = -1;
    c->documents += ends;
    return 0;
}

static struct collected stream(const char *text, size_t n, size_t step, size_t document, int flags)
{
    struct collected c = {0};
    struct llm_err e = {0};
    struct llm_encode_stream *s = llm_encode_stream_create(tokenizer, flags, collect, &c, &e);
    for (size_t at = 0; at < n;) {
        size_t left = document - at % document, k = step < left ? step : left;
        if (k > n - at)
            k = n - at;
        if (llm_encode_stream_put(s, text + at, k, &e) < 0)
            fail_msg("%s", e.text);
        at += k;
        if (at % document == 0 && llm_encode_stream_end_document(s, &e) < 0)
            fail_msg("%s", e.text);
    }
    assert_int_equal(llm_encode_stream_finish(s, &e), 0);
    llm_encode_stream_destroy(s);
    return c;
}

/* Long words, no spaces for megabytes, special tokens at cuts: the ids are those of one encoder. */
static void streams_are_one_encoder(void **state)
{
    size_t n = (size_t)6 << 20, documents[] = {(size_t)6 << 20, 30011, (size_t)6 << 20, 30011}; /* by one thread and by three */
    char *text = malloc(n);
    (void)state;
    few_letters((unsigned char *)text, n, 4);
    memset(text + (1 << 20) + 1000, 'b', ((size_t)4 << 20) + 70000); /* fills a batch without a cut */
    for (size_t at = 0; at + 100 < n; at += 90000 + draw(90000))
        memcpy(text + at, draw(2) ? "<|end|>x\n\n a" : "a\n<|end|>  \n", 12);
    for (size_t d = 0; d < 4; d++) {
        if (d == 2)
            assert_int_equal(llm_pool_start(3, NULL), 0);
        struct collected want = {0}, got = stream(text, n, 70001, documents[d], LLM_ENCODE_SPECIAL);
        for (size_t at = 0; at < n; at += documents[d]) {
            int32_t *ids = NULL;
            size_t n_ids, k = documents[d] < n - at ? documents[d] : n - at;
            assert_int_equal(llm_encode(tokenizer, text + at, k, LLM_ENCODE_SPECIAL, &ids, &n_ids, NULL), 0);
            assert_int_equal(collect(&want, ids, n_ids, true, NULL), 0);
            free(ids);
        }
        assert_int_equal(got.documents, want.documents);
        assert_int_equal(got.n, want.n);
        assert_memory_equal(got.ids, want.ids, got.n * sizeof *got.ids);
        free(got.ids);
        free(want.ids);
    }
    llm_pool_stop();
    free(text);
}

static void strict_names_the_byte(void **state)
{
    static const struct { const char *text; size_t n; const char *says; } cases[] = {
        {"ab\xFFz", 4, "byte 2:"}, {"ab\xE4\xB8", 4, "byte 2:"}, {"\xE4\xB8\xAD\xC3(", 5, "byte 3:"}, {"\xED\xA0\x80", 3, "byte 0:"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 4; step++) {
            struct llm_err e = {0};
            struct llm_encoder *en = llm_encoder_create(tokenizer, LLM_ENCODE_STRICT, &e);
            int32_t *ids = NULL;
            size_t n = 0, room = 0, at = 0;
            int bad = 0;
            while (at < cases[i].n && bad == 0) {
                size_t k = step < cases[i].n - at ? step : cases[i].n - at;
                bad = llm_encoder_feed(en, cases[i].text + at, k, at + k == cases[i].n, &ids, &n, &room, &e);
                at += k;
            }
            assert_int_equal(bad, -1);
            assert_int_equal(e.status, EX_DATAERR);
            if (strncmp(e.text, cases[i].says, 7) != 0)
                fail_msg("case %zu, step %zu: %s", i, step, e.text);
            free(ids);
            llm_encoder_destroy(en);
        }
}

static void cut_characters_are_held(void **state)
{
    (void)state;
    assert_int_equal(llm_utf8_complete("a\xE4\xB8\xAD", 4), 4);
    assert_int_equal(llm_utf8_complete("a\xE4\xB8", 3), 1);
    assert_int_equal(llm_utf8_complete("a\xF0\x9F\x98", 4), 1);
    assert_int_equal(llm_utf8_complete("a\xFF", 2), 2);
    assert_int_equal(llm_utf8_complete("\x80\x80\x80\x80", 4), 4);
    assert_int_equal(llm_utf8_complete("", 0), 0);
}

/* ---- training ---- */

static void training_does_not_depend_on_threads(void **state)
{
    size_t n = 3000000;
    char *text = malloc(n), first[65] = "";
    const struct llm_train_options o = {.model = LLM_TRAIN_BPE, .vocab_size = 700, .pattern = "llama3", .min_frequency = 2};
    (void)state;
    few_letters((unsigned char *)text, n, 6);
    for (int threads = 1; threads <= 5; threads += 2) {
        struct llm_err e = {0};
        llm_pool_stop();
        assert_int_equal(llm_pool_start(threads, &e), 0);
        struct llm_tokenizer *t = train(text, n, &o);
        if (*first)
            assert_string_equal(llm_tokenizer_id(t), first);
        memcpy(first, llm_tokenizer_id(t), 65);
        assert_int_equal(strlen(first), 64);
        llm_tokenizer_destroy(t);
    }
    free(text);
}

static void writing_and_reading_keep_the_identity(void **state)
{
    static const enum llm_train_model models[] = {LLM_TRAIN_BPE, LLM_TRAIN_BYTE, LLM_TRAIN_CHAR};
    static const char text[] = "la la \"land\" \\ caf\xC3\xA9 caf\xC3\xA9\n";
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const struct llm_train_options o = {
            .model = models[i], .vocab_size = i == 2 ? 0 : 300, .pattern = "cl100k", .min_frequency = 1, .specials = &specials};
        struct llm_tokenizer *t = train(text, sizeof text - 1, &o);
        struct llm_buf json = {0};
        struct llm_err e = {0};
        assert_int_equal(llm_tokenizer_to_json(t, &json, &e), 0);
        struct llm_tokenizer *back = llm_tokenizer_from_json(json.p, json.n, "x", &e);
        if (!back)
            fail_msg("%s", e.text);
        assert_string_equal(llm_tokenizer_type(back), llm_tokenizer_type(t));
        assert_string_equal(llm_tokenizer_id(back), llm_tokenizer_id(t));
        expect_back(back, text, sizeof text - 1, 0);
        llm_tokenizer_destroy(back);
        llm_tokenizer_destroy(t);
        llm_buf_release(&json);
    }
}

static void characters(void **state)
{
    static const char text[] = "b\xC3\xA9" "a\na";
    const struct llm_train_options o = {.model = LLM_TRAIN_CHAR, .min_frequency = 1};
    static const int32_t want[] = {2, 3, 1, 0, 1}; /* in the order of the characters */
    struct llm_tokenizer *t = train(text, sizeof text - 1, &o);
    int32_t *ids;
    size_t n;
    struct llm_err e = {0};
    (void)state;
    assert_int_equal(llm_encode(t, text, sizeof text - 1, 0, &ids, &n, &e), 0);
    assert_int_equal(n, 5);
    assert_memory_equal(ids, want, sizeof want);
    free(ids);
    assert_int_equal(llm_encode(t, "ax", 2, 0, &ids, &n, &e), -1);
    assert_non_null(strstr(e.text, "U+0078"));
    assert_int_equal(llm_encode(t, "a\xFF", 2, 0, &ids, &n, &e), -1);
    assert_int_equal(e.status, EX_DATAERR);
    assert_int_equal(llm_encode(t, text, sizeof text - 1, 0, &ids, &n, &e), 0); /* nothing of the texts that failed is left */
    assert_int_equal(n, 5);
    assert_memory_equal(ids, want, sizeof want);
    free(ids);
    llm_tokenizer_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_and_long_are_the_definition), cmocka_unit_test(words_side_by_side_are_the_definition),
        cmocka_unit_test(windows_give_the_ids_of_the_whole), cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(every_split_keeps_every_byte), cmocka_unit_test(many_pieces_at_once_are_the_definition),
        cmocka_unit_test(special_tokens_count_only_when_asked), cmocka_unit_test(streams_are_one_encoder),
        cmocka_unit_test(strict_names_the_byte), cmocka_unit_test(cut_characters_are_held),
        cmocka_unit_test(training_does_not_depend_on_threads), cmocka_unit_test(writing_and_reading_keep_the_identity),
        cmocka_unit_test(characters)};
    return cmocka_run_group_tests_name("bpe", tests, make, drop);
}
