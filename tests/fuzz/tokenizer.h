/* What any tokenizer that a reader took must be able to do. */
#ifndef LLM_TESTS_FUZZ_TOKENIZER_H
#define LLM_TESTS_FUZZ_TOKENIZER_H

#include "fuzz.h"
#include "token/internal.h"

static const char fuzz_text[] = "Hello, world! it's  1234\n\n \xC3\xA9\xCC\x81 \xE4\xB8\xAD <s>ab</s> \xFF\x80 end ";

static const int fuzz_flags[] = {0, LLM_ENCODE_SPECIAL | LLM_ENCODE_ADD_SPECIAL, LLM_ENCODE_STRICT};

/* Its ids have text; decoding them gives the text back where the model carries all bytes. */
static inline void fuzz_encode(const struct llm_tokenizer *t, int flags)
{
    struct llm_err e = {0};
    int32_t *ids = NULL, *fed = NULL;
    size_t n = 0, n_fed = 0, room = 0, size = sizeof fuzz_text - 1;
    struct llm_buf back = {0};
    int got = llm_encode(t, fuzz_text, size, flags, &ids, &n, &e);
    struct llm_encoder *en = llm_encoder_create(t, flags, &e);
    MUST(en);
    int parts = 0;
    for (size_t at = 0; at < size && parts == 0; at += 5)
        parts = llm_encoder_feed(en, fuzz_text + at, size - at < 5 ? size - at : 5, at + 5 >= size, &fed, &n_fed, &room, &e);
    MUST(parts == got);
    if (got == 0) {
        MUST(n == n_fed && memcmp(ids, fed, n * sizeof *ids) == 0);
        MUST(llm_decode(t, ids, n, false, &back, &e) == 0);
        /* an id of "unknown" loses what it stands for; so may normalisers, pre-tokenizers and decoders that are not of bytes */
        if (!t->generic && !t->n_decoders && !t->normaliser && t->unknown < 0 && !t->add_prefix_space && !(flags & LLM_ENCODE_ADD_SPECIAL))
            MUST(back.n == size && memcmp(back.p, fuzz_text, size) == 0);
    }
    llm_encoder_destroy(en);
    llm_buf_release(&back);
    free(ids);
    free(fed);
}

static inline void fuzz_same(const struct llm_tokenizer *a, const struct llm_tokenizer *b)
{
    struct llm_err e = {0};
    MUST(strcmp(llm_tokenizer_id(a), llm_tokenizer_id(b)) == 0);
    for (int flags = 0; flags < 4; flags += 3) {
        int32_t *x = NULL, *y = NULL;
        size_t n = 0, m = 0;
        int got = llm_encode(a, fuzz_text, sizeof fuzz_text - 1, flags, &x, &n, &e);
        MUST(llm_encode(b, fuzz_text, sizeof fuzz_text - 1, flags, &y, &m, &e) == got);
        MUST(got < 0 || (n == m && memcmp(x, y, n * sizeof *x) == 0));
        free(x);
        free(y);
    }
}

static inline struct llm_tokenizer *fuzz_from_tables(const struct llm_tokenizer *t)
{
    struct llm_err e = {0};
    struct llm_tensor_out tables[8];
    struct llm_entry entries[8];
    size_t n = 0;
    struct llm_buf file = {0}, json = {0};
    MUST(llm_tokenizer_tables(t, tables, &n, &e) == 0 && n <= 8);
    MUST(llm_layout(tables, n, false, entries, &e) == 0 && llm_header_build("checkpoint", NULL, entries, n, &json, &e) == 0);
    for (int i = 0; i < 8; i++) MUST(llm_buf_put(&file, &(char){(char)((uint64_t)json.n >> (8 * i))}, 1, &e) == 0);
    MUST(llm_buf_put(&file, json.p, json.n, &e) == 0);
    for (size_t i = 0; i < n; i++) MUST(llm_buf_put(&file, entries[i].source, entries[i].bytes, &e) == 0);
    struct llm_checkpoint *c = llm_checkpoint_from_file(llm_file_from_memory(file.p, file.n, "tables", &e), &e);
    MUST(c);
    struct llm_tokenizer *again = llm_tokenizer_from_checkpoint(c, &e);
    if (!again) fprintf(stderr, "fuzz: %s\n", e.text);
    MUST(again);
    llm_checkpoint_close(c);
    llm_buf_release(&file);
    llm_buf_release(&json);
    return again;
}

/* Takes `t` over. */
static inline void fuzz_tokenizer(struct llm_tokenizer *t)
{
    struct llm_err e = {0};
    if (t->vocab_size <= 4096) {
        for (size_t i = 0; i < sizeof fuzz_flags / sizeof *fuzz_flags; i++) fuzz_encode(t, fuzz_flags[i]);
        struct llm_tokenizer *again = fuzz_from_tables(t);
        fuzz_same(t, again);
        llm_tokenizer_destroy(again);
        struct llm_buf json = {0};
        t->json.n = 0; /* so that it is written anew */
        MUST(llm_tokenizer_to_json(t, &json, &e) == 0);
        again = llm_tokenizer_from_json(json.p, json.n, "written", &e);
        if (!again) fprintf(stderr, "fuzz: %s\n", e.text);
        MUST(again);
        fuzz_same(t, again);
        llm_tokenizer_destroy(again);
        llm_buf_release(&json);
    }
    llm_tokenizer_destroy(t);
}

#endif
