/* SentencePiece's compiled rules: a blob (up to the last 64 bytes) and a text, through both ways in which they are applied. */
#include "token/norm/charsmap.h"
#include "fuzz.h"
#include "token/norm/norm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0};
    size_t text = n < 64 ? 0 : 64;
    struct llm_buf map = {0}, out = {0};
    MUST(llm_buf_put(&map, data, n - text, &e) == 0);
    int got = llm_charsmap_check(&map, &e);
    MUST(got == 0 || e.status);
    if (got == 0) {
        struct llm_norm s = {.row = &llm_norm_sentencepiece, .flags = LLM_NORM_DUMMY | LLM_NORM_EXTRA | LLM_NORM_ESCAPE, .map = map};
        struct llm_norm_place at = {.first = true, .last = true, .limit = llm_norm_limit(text)};
        MUST(llm_norm_sentencepiece.run(&s, &at, data + n - text, text, &out, &e) == 0 || e.status == EX_DATAERR);
        at.limit += out.n;
        /* Precompiled takes valid text alone */
        size_t ascii = 0;
        while (ascii < text && data[n - text + ascii] < 0x80) ascii++;
        MUST(llm_norm_precompiled.run(&s, &at, data + n - text, ascii, &out, &e) == 0 || e.status == EX_DATAERR);
    }
    llm_buf_release(&map);
    llm_buf_release(&out);
    return 0;
}
