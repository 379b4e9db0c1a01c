/* tiktoken's rank files: a line a token, base64 and rank. Any two neighbours whose bytes together are a token merge, the lowest rank first.
 * The file says nothing of the split pattern or special tokens; those of published files are known by the file's SHA-256. */
#include <stdlib.h>
#include <string.h>
#include "base/hash.h"
#include "token/internal.h"

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

static int base64_digit(unsigned char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes [p, end) to `out`; its length, or -1. */
static long base64(const unsigned char *p, const unsigned char *end, unsigned char *out)
{
    unsigned char *start = out;
    size_t n = (size_t)(end - p);
    if (n == 0 || n % 4)
        return -1;
    for (; p < end; p += 4) {
        int a = base64_digit(p[0]), b = base64_digit(p[1]), c = base64_digit(p[2]), d = base64_digit(p[3]);
        bool last = p + 4 == end, two = last && p[3] == '=', one = two && p[2] == '=';
        if (a < 0 || b < 0 || (c < 0 && !one) || (d < 0 && !two))
            return -1;
        *out++ = (unsigned char)(a << 2 | b >> 4);
        if (!one)
            *out++ = (unsigned char)(b << 4 | c >> 2);
        if (!two)
            *out++ = (unsigned char)(c << 6 | d);
    }
    return out - start;
}

/* Every line into the vocabulary; decoded bytes into `out`, which is at least as long as the text. */
static int read_lines(const unsigned char *p, size_t n, unsigned char *out, struct llm_vocab *v, struct llm_err *e)
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
            long len = space ? base64(p, space, out) : -1;
            for (q = space ? space + 1 : text_end; q < text_end && *q >= '0' && *q <= '9' && rank < LLM_MAX_VOCAB; q++)
                rank = rank * 10 + (*q - '0');
            if (len <= 0 || q != text_end || q == space + 1)
                return llm_fail(e, EX_DATAERR, "line %zu: expected base64, a space and a rank", line);
            if (llm_vocab_put(v, rank, out, (size_t)len, LLM_TOKEN_MODEL, e) < 0)
                return llm_in(e, "line %zu", line);
            out += len;
        }
        p = stop + 1;
    }
    return 0;
}

/* Each way to cut a token into two tokens is a merge of its rank. */
static int all_merges(const struct llm_tokenizer *t, struct llm_bpe_merge **merges, size_t *n, struct llm_err *e)
{
    size_t room = 0;
    for (int32_t id = 0; id < t->vocab_size; id++) {
        const unsigned char *p = t->pieces + t->offsets[id];
        size_t len = t->offsets[id + 1] - t->offsets[id];
        if (!(t->flags[id] & LLM_TOKEN_MODEL))
            continue;
        int32_t first = llm_tokenizer_whole(t, p, len);
        if (first != id)
            return llm_fail(e, EX_DATAERR, "ranks %d and %d have the same bytes", first, id);
        for (size_t cut = 1; cut < len; cut++) {
            int32_t left = llm_tokenizer_whole(t, p, cut), right = left < 0 ? -1 : llm_tokenizer_whole(t, p + cut, len - cut);
            if (right < 0)
                continue;
            if (llm_grow((void **)merges, &room, *n + 1, sizeof **merges, e) < 0)
                return -1;
            (*merges)[(*n)++] = (struct llm_bpe_merge){(uint32_t)left, (uint32_t)right, (uint32_t)id, (uint32_t)id};
        }
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
    if (all_merges(t, &merges, &n, e) < 0) {
        free(merges);
        return -1;
    }
    return llm_tokenizer_finish(t, merges, n, e);
}

struct llm_tokenizer *llm_tokenizer_from_ranks(const unsigned char *text, size_t n, const char *pattern, struct llm_err *e)
{
    struct llm_vocab v = {.limit = 1024 + (int64_t)n};
    const struct special *specials = NULL;
    if (!pattern) {
        const struct known *k = find_known(text, n, e);
        if (!k)
            return NULL;
        pattern = k->pattern;
        specials = k->specials;
    }
    unsigned char *bytes = llm_alloc(n, 1, "a vocabulary", e);
    struct llm_tokenizer *t = bytes ? llm_tokenizer_create(e) : NULL;
    if (t && (read_lines(text, n, bytes, &v, e) < 0 || build(t, &v, pattern, specials, e) < 0)) {
        llm_tokenizer_destroy(t);
        t = NULL;
    }
    free(bytes);
    llm_vocab_release(&v);
    return t;
}
