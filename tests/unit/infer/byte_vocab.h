/* A vocabulary for tests of constraints. Include it after cmocka.h. */
#ifndef LLM_TESTS_UNIT_INFER_BYTE_VOCAB_H
#define LLM_TESTS_UNIT_INFER_BYTE_VOCAB_H

#include <string.h>
#include "base/buf.h"
#include "infer/constrain/constraint.h"

/* A vocabulary of all bytes, and of texts that cross the borders of what grammars speak of. */
static const char *const texts[] = {"\"a\"", "\", \"", "\": ", "{\"", "\"}", "true", "fal", "12", "-1", "abc", "ab", "é", "日本", "日", " the",
                                    "\xC3\xA9t\xC3", "[[", "]]", "],", "\"}]",
                                    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\\\"", "\\u00", "zz", "a\n", "  "};
enum { N_TEXTS = sizeof texts / sizeof *texts, END = 256, FIRST = 257, VOCAB = FIRST + N_TEXTS };

struct fixture { struct llm_tokenizer *tokenizer; struct llm_tokens *tokens; };

/* What a vocabulary of byte-level BPE writes for a byte. */
static inline void put_byte(struct llm_buf *b, unsigned char byte)
{
    struct llm_err e;
    unsigned char out[4];
    uint32_t c = byte, other = 256;
    for (unsigned x = 0; x < 256; x++) {
        bool shown = (x >= 33 && x <= 126) || (x >= 161 && x != 173);
        if (!shown && x == byte) c = other;
        other += !shown;
    }
    int n = llm_utf8_put(c, out);
    if (c == '"' || c == '\\') assert_int_equal(llm_buf_put(b, "\\", 1, &e), 0);
    assert_int_equal(llm_buf_put(b, out, (size_t)n, &e), 0);
}

static inline int setup(void **state)
{
    static struct fixture f;
    struct llm_err e = {0};
    struct llm_buf b = {0};
    assert_int_equal(llm_buf_printf(&b, &e, "{\"added_tokens\":[{\"id\":256,\"content\":\"<end>\",\"special\":true}],"
                                            "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                                            "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{"), 0);
    for (int i = 0; i < VOCAB; i++) {
        if (i == END) continue;
        assert_int_equal(llm_buf_printf(&b, &e, i ? ",\"" : "\""), 0);
        if (i < 256) put_byte(&b, (unsigned char)i);
        else for (const char *p = texts[i - FIRST]; *p; p++) put_byte(&b, (unsigned char)*p);
        assert_int_equal(llm_buf_printf(&b, &e, "\":%d", i), 0);
    }
    assert_int_equal(llm_buf_printf(&b, &e, "},\"merges\":[]}}"), 0);
    f.tokenizer = llm_tokenizer_from_json(b.p, b.n, "test", &e);
    if (!f.tokenizer) fail_msg("%s", e.text);
    f.tokens = llm_tokens_create(f.tokenizer, &e);
    assert_non_null(f.tokens);
    llm_buf_release(&b);
    *state = &f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    llm_tokens_destroy(f->tokens);
    llm_tokenizer_destroy(f->tokenizer);
    return 0;
}

static const int32_t ends[] = {END};

static inline struct llm_constraint *create(const struct fixture *f, enum llm_constraint_kind kind, const char *text, struct llm_matcher *m)
{
    struct llm_err e = {0};
    struct llm_constraint *c = llm_constraint_create(kind, text, strlen(text), f->tokens, &e);
    if (!c) fail_msg("%s: %s", text, e.text);
    *m = (struct llm_matcher){.ends[0] = {ends, 1}};
    llm_matcher_begin(m, c);
    return c;
}

#endif
