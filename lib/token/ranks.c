/* tiktoken's rank files: a line a token, base64 and rank. Any two neighbours whose bytes together are a token merge, the lowest rank first.
 * The file says nothing of the split pattern or special tokens; those of published files are known by the file's SHA-256. */
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "token/internal.h"
#include "token/norm/norm.h"

struct special { const char *text; int32_t id; };
struct known {
    const char *name, *sha256, *pattern;
    struct special specials[6];
};
static const struct known known[] = {
    {"r50k_base", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930", "gpt2", {{"<|endoftext|>", 50256}}},
    {"p50k_base", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069", "gpt2", {{"<|endoftext|>", 50256}}},
    {"cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7", "cl100k",
     {{"<|endoftext|>", 100257}, {"<|fim_prefix|>", 100258}, {"<|fim_middle|>", 100259}, {"<|fim_suffix|>", 100260}, {"<|endofprompt|>", 100276}}},
    {"o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d", "o200k",
     {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
};

static const struct known *find_known(const unsigned char *text, size_t n, struct llm_err *e)
{
    char hex[65];
    struct llm_sha256 *h = llm_sha256_create(e);
    if (!h)
        return NULL;
    llm_sha256_update(h, text, n);
    llm_sha256_finish(h, hex);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(hex, known[i].sha256) == 0)
            return &known[i];
    llm_fail(e, EX_DATAERR, "rank file with SHA-256 %.16s… is not a known one: its split pattern must be given (--pattern)", hex);
    return NULL;
}

/* Every line into the vocabulary; decoded bytes into `out`, which has room for the whole text and so stays where it is. */
static int read_lines(const unsigned char *p, size_t n, struct llm_buf *out, struct llm_vocab *v, struct llm_err *e)
{
    const unsigned char *end = p + n;
    for (size_t line = 1; p < end; line++) {
        const unsigned char *stop = memchr(p, '\n', (size_t)(end - p)), *space, *q;
        int64_t rank = 0;
        if (!stop)
            stop = end;
        const unsigned char *text_end = stop > p && stop[-1] == '\r' ? stop - 1 : stop;
        if (text_end > p) {
            space = memchr(p, ' ', (size_t)(text_end - p));
            size_t at = out->n;
            bool decoded = space && space > p && llm_base64_decode((const char *)p, (size_t)(space - p), out, NULL) == 0;
            for (q = space ? space + 1 : text_end; q < text_end && *q >= '0' && *q <= '9' && rank < LLM_MAX_VOCAB; q++)
                rank = rank * 10 + (*q - '0');
            if (!decoded || q != text_end || q == space + 1)
                return llm_fail(e, EX_DATAERR, "line %zu: expected base64, a space and a rank", line);
            if (llm_vocab_put(v, rank, (const unsigned char *)out->p + at, out->n - at, LLM_TOKEN_MODEL, e) < 0)
                return llm_in(e, "line %zu", line);
        }
        p = stop + 1;
    }
    return 0;
}

static int build(struct llm_tokenizer *t, struct llm_vocab *v, const char *pattern, const struct special *specials, struct llm_err *e)
{
    for (int i = 0; specials && specials[i].text; i++)
        if (llm_vocab_put(v, specials[i].id, (const unsigned char *)specials[i].text, strlen(specials[i].text),
                          LLM_TOKEN_ADDED | LLM_TOKEN_SPECIAL, e) < 0)
            return -1;
    t->model = &llm_model_bpe;
    t->ignore_merges = true;
    if (llm_tokenizer_add_split(t, pattern, e) < 0 || llm_tokenizer_set_vocab(t, v, e) < 0 || llm_tokenizer_index_whole(t, e) < 0)
        return -1;
    struct llm_bpe_merge *merges = NULL;
    size_t n = 0;
    if (llm_all_merges(t, NULL, &merges, &n, e) < 0) {
        free(merges);
        return -1;
    }
    return llm_tokenizer_finish(t, merges, n, e);
}

struct llm_tokenizer *llm_tokenizer_from_ranks(const unsigned char *text, size_t n, const char *pattern, struct llm_err *e)
{
    struct llm_vocab v = {.limit = 1024};
    const struct special *specials = NULL;
    for (size_t i = 0; i < n; i++) v.limit += 8 * (text[i] == ' '); /* as of a tokenizer.json of as many tokens: it can be written as one */
    if (!pattern) {
        const struct known *k = find_known(text, n, e);
        if (!k)
            return NULL;
        pattern = k->pattern;
        specials = k->specials;
        for (int i = 0; specials && specials[i].text; i++) v.limit += 8;
    }
    struct llm_buf bytes = {0};
    struct llm_tokenizer *t = llm_buf_reserve(&bytes, n + 4, e) == 0 ? llm_tokenizer_create(e) : NULL;
    if (t && (read_lines(text, n, &bytes, &v, e) < 0 || build(t, &v, pattern, specials, e) < 0)) {
        llm_tokenizer_destroy(t);
        t = NULL;
    }
    llm_buf_release(&bytes);
    llm_vocab_release(&v);
    return t;
}
