/* Passages of documents: the first three bytes say the kind, the size and the overlap, the rest is the document. Passages move on, keep to the size,
 * and leave out white space alone. */
#include "fuzz.h"
#include "base/utf8.h"
#include "token/chunk.h"

struct seen {
    const struct llm_chunking *c;
    const unsigned char *text;
    size_t n, begin, end;          /* of the document; of the passage before */
    bool any;
};

static int take(void *arg, const struct llm_chunk *c, struct llm_err *e)
{
    struct seen *s = arg;
    (void)e;
    MUST(c->begin < c->end && c->end <= s->n && c->tokens >= 0 && c->tokens <= s->c->size);
    MUST(c->end > s->end && (!s->any || c->begin > s->begin) && (s->c->overlap || c->begin >= s->end));
    for (size_t i = s->end; i < c->begin;) { /* what lies between */
        uint32_t cp;
        int length = llm_utf8_next(s->text + i, s->n - i, &cp);
        MUST(length > 0 && llm_utf8_is_space(cp));
        i += (size_t)length;
    }
    for (int i = 0; i < LLM_CHUNK_HEADINGS; i++) MUST(c->headings[i].begin <= c->headings[i].end && c->headings[i].end <= s->n);
    s->begin = c->begin;
    s->end = c->end;
    s->any = true;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct llm_tokenizer *t;
    struct llm_err e = {0};
    if (!t) t = llm_tokenizer_load("tests/golden/tiny/tokenizer.json", NULL, &e);
    MUST(t);
    if (n < 3) return 0;
    struct seen s = {.text = data + 3, .n = n - 3};
    struct llm_chunking c = {.tokenizer = t, .kind = (enum llm_chunk_kind)(data[0] % 3), .size = 1 + data[1] % 64, .take = take, .arg = &s};
    c.overlap = data[2] % c.size;
    s.c = &c;
    MUST(llm_chunk(&c, (const char *)s.text, s.n, &e) == 0 || e.status == EX_DATAERR);
    return 0;
}
