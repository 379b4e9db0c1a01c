/* Which kind of tokenizer a file holds, by its content. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "io/file.h"
#include "io/sniff.h"
#include "token/internal.h"

#define MAX_FILE ((size_t)1 << 30)

static int exists(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

static int read_whole(struct llm_file *f, struct llm_buf *b, struct llm_err *e)
{
    for (;;) {
        if (b->n > MAX_FILE)
            return llm_file_bad(f, e, "too long for a tokenizer");
        if (llm_buf_reserve(b, b->n + (1 << 16), e) < 0)
            return -1;
        int64_t got = llm_file_read_some(f, b->p + b->n, 1 << 16, e);
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        b->n += (size_t)got;
    }
    b->p[b->n] = '\0';
    return 0;
}

/* A folder: tokenizer.json, or GPT-2's two files. */
static struct llm_tokenizer *load_folder(const char *path, const char *pattern, struct llm_err *e)
{
    struct llm_buf one = {0}, two = {0};
    struct llm_tokenizer *t = NULL;
    if (llm_buf_printf(&one, e, "%s/tokenizer.json", path) == 0 && exists(one.p)) {
        t = llm_tokenizer_load(one.p, pattern, e);
    } else {
        one.n = 0;
        if (llm_buf_printf(&one, e, "%s/encoder.json", path) == 0 && llm_buf_printf(&two, e, "%s/vocab.bpe", path) == 0) {
            if (exists(one.p) && exists(two.p))
                t = llm_tokenizer_from_gpt2(one.p, two.p, e);
            else
                llm_fail(e, EX_NOINPUT, "%s: expected a tokenizer.json, or encoder.json and vocab.bpe, in this folder", path);
        }
    }
    llm_buf_release(&one);
    llm_buf_release(&two);
    return t;
}

/* A JSON file without a model: GPT-2's encoder.json when its vocab.bpe lies beside it. */
static struct llm_tokenizer *load_encoder(const char *path, struct llm_err *e)
{
    struct llm_buf merges = {0};
    struct llm_tokenizer *t = NULL;
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) + 1 : 0;
    if (llm_buf_printf(&merges, e, "%.*svocab.bpe", n, path) == 0 && exists(merges.p))
        t = llm_tokenizer_from_gpt2(path, merges.p, e);
    else
        llm_fail(e, EX_DATAERR, "%s: expected a tokenizer.json (an object with a 'model'), or GPT-2's encoder.json with vocab.bpe beside it", path);
    llm_buf_release(&merges);
    return t;
}

static bool has_model(const struct llm_buf *b)
{
    for (const char *p = b->p; (p = strstr(p, "\"model\"")) != NULL; p += 7) {
        const char *q = p + 7 + strspn(p + 7, " \t\r\n");
        if (*q == ':' && q[1 + strspn(q + 1, " \t\r\n")] == '{')
            return true;
    }
    return false;
}

static bool is_ranks(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] > ' ' && p[i] < 0x7F)
        i++;
    return i >= 4 && i % 4 == 0 && i + 1 < n && p[i] == ' ' && p[i + 1] >= '0' && p[i + 1] <= '9';
}

static struct llm_tokenizer *load_text(struct llm_file *f, const char *path, const char *pattern, bool json, struct llm_err *e)
{
    struct llm_buf b = {0};
    struct llm_tokenizer *t = NULL;
    if (read_whole(f, &b, e) == 0) {
        if (json && has_model(&b)) {
            t = llm_tokenizer_from_json(b.p, b.n, llm_file_name(f), e);
        } else if (json) {
            t = load_encoder(path, e);
        } else {
            t = llm_tokenizer_from_ranks((const unsigned char *)b.p, b.n, pattern, e);
            if (!t)
                llm_in(e, "%s", llm_file_name(f));
        }
    }
    llm_buf_release(&b);
    return t;
}

static struct llm_tokenizer *load_with(struct llm_file *f, struct llm_tokenizer *(*from)(const unsigned char *, size_t, struct llm_err *),
                                       struct llm_err *e)
{
    struct llm_buf b = {0};
    struct llm_tokenizer *t = read_whole(f, &b, e) == 0 ? from((const unsigned char *)b.p, b.n, e) : NULL;
    if (!t)
        llm_in(e, "%s", llm_file_name(f));
    llm_buf_release(&b);
    return t;
}

struct llm_tokenizer *llm_tokenizer_load(const char *path, const char *pattern, struct llm_err *e)
{
    struct stat s;
    if (strcmp(path, "-") != 0 && stat(path, &s) == 0 && S_ISDIR(s.st_mode))
        return load_folder(path, pattern, e);
    struct llm_file *f = llm_file_open(path, e);
    if (!f)
        return NULL;
    size_t n;
    enum llm_content content = LLM_CONTENT_EMPTY;
    const unsigned char *p = llm_sniff(f, &content, e) < 0 ? NULL : llm_file_peek(f, 1024, &n, e);
    struct llm_tokenizer *t = NULL;
    if (p && (content == LLM_CONTENT_CHECKPOINT || content == LLM_CONTENT_MESSAGE || content == LLM_CONTENT_GGUF)) {
        struct llm_checkpoint *c = llm_checkpoint_from_file(f, e); /* takes f */
        if (c)
            t = llm_tokenizer_from_checkpoint(c, e);
        llm_checkpoint_close(c);
        return t;
    }
    if (p && (content == LLM_CONTENT_JSON || is_ranks(p, n)))
        t = load_text(f, path, pattern, content == LLM_CONTENT_JSON, e);
    else if (p && llm_is_spm(p, n))
        t = load_with(f, llm_tokenizer_from_spm, e);
    else if (p && llm_is_rwkv(p, n))
        t = load_with(f, llm_tokenizer_from_rwkv, e);
    else if (p)
        llm_sniff_refuse(f, "a tokenizer (tokenizer.json, tiktoken ranks, SentencePiece's .model, RWKV's vocabulary or a checkpoint)", e);
    llm_file_close(f);
    return t;
}
