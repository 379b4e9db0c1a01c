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

/* A JSON file without a model: GPT-2's encoder.json when its vocab.bpe lies beside it. */
static struct llm_tokenizer *load_encoder(const char *path, struct llm_err *e)
{
    struct llm_buf merges = {0};
    struct llm_tokenizer *t = NULL;
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) + 1 : 0;
    if (llm_buf_printf(&merges, e, "%.*svocab.bpe", n, path) == 0 && exists(merges.p))
        t = llm_tokenizer_from_gpt2(path, merges.p, "GPT2Tokenizer", e);
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

static struct llm_tokenizer *load_spm(struct llm_file *f, const json_t *config, struct llm_err *e)
{
    struct llm_buf b = {0};
    struct llm_tokenizer *t = read_whole(f, &b, e) == 0 ? llm_tokenizer_from_spm((const unsigned char *)b.p, b.n, config, e) : NULL;
    if (!t)
        llm_in(e, "%s", llm_file_name(f));
    llm_buf_release(&b);
    return t;
}

static struct llm_tokenizer *load_rwkv(struct llm_file *f, struct llm_err *e)
{
    struct llm_buf b = {0};
    struct llm_tokenizer *t = read_whole(f, &b, e) == 0 ? llm_tokenizer_from_rwkv((const unsigned char *)b.p, b.n, e) : NULL;
    if (!t)
        llm_in(e, "%s", llm_file_name(f));
    llm_buf_release(&b);
    return t;
}

/* The folder's tokenizer_config.json, or NULL where there is none; *bad: it cannot be read. */
static json_t *load_config(const char *folder, bool *bad, struct llm_err *e)
{
    struct llm_buf name = {0};
    json_t *config = NULL;
    *bad = llm_buf_printf(&name, e, "%s/tokenizer_config.json", folder) < 0;
    if (!*bad && exists(name.p))
        *bad = !(config = llm_json_load(name.p, MAX_FILE, e));
    llm_buf_release(&name);
    return config;
}

/* vocab.json and merges.txt, of which tokenizer_config.json says whose they are. */
static struct llm_tokenizer *load_two_files(const char *folder, const char *vocab, const char *merges, struct llm_err *e)
{
    bool bad;
    const char *class = "";
    json_t *config = load_config(folder, &bad, e);
    struct llm_tokenizer *t = NULL;
    if (!bad && (!config || llm_json_str(config, "tokenizer_class", &class, e) == 0))
        t = llm_tokenizer_from_gpt2(vocab, merges, class, e);
    json_decref(config);
    if (!t)
        llm_in(e, "%s", folder);
    return t;
}

/* tokenizer.model or spiece.model: SentencePiece's, with what tokenizer_config.json, where there is one, says of it; or ranks. */
static struct llm_tokenizer *load_model(const char *folder, const char *path, const char *pattern, struct llm_err *e)
{
    bool bad;
    json_t *config = load_config(folder, &bad, e);
    struct llm_file *f = bad ? NULL : llm_file_open(path, e);
    size_t n;
    const unsigned char *p = f ? llm_file_peek(f, 1024, &n, e) : NULL;
    struct llm_tokenizer *t = NULL;
    if (p)
        t = llm_is_spm(p, n) ? load_spm(f, config, e) : llm_tokenizer_load(path, pattern, e);
    llm_file_close(f);
    json_decref(config);
    return t;
}

/* A folder: tokenizer.json, tokenizer.model, spiece.model, the two files of GPT-2 or CLIP, or RWKV's vocabulary. */
static struct llm_tokenizer *load_folder(const char *path, const char *pattern, struct llm_err *e)
{
    struct llm_buf json = {0}, model = {0}, encoder = {0}, merges = {0}, vocab = {0}, lines = {0}, rwkv = {0}, spiece = {0};
    struct llm_tokenizer *t = NULL;
    int n = (int)strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    if (llm_buf_printf(&json, e, "%.*s/tokenizer.json", n, path) < 0 || llm_buf_printf(&model, e, "%.*s/tokenizer.model", n, path) < 0
        || llm_buf_printf(&encoder, e, "%.*s/encoder.json", n, path) < 0 || llm_buf_printf(&merges, e, "%.*s/vocab.bpe", n, path) < 0
        || llm_buf_printf(&vocab, e, "%.*s/vocab.json", n, path) < 0 || llm_buf_printf(&lines, e, "%.*s/merges.txt", n, path) < 0
        || llm_buf_printf(&spiece, e, "%.*s/spiece.model", n, path) < 0 || llm_buf_printf(&rwkv, e, "%.*s/" LLM_NAME_RWKV_VOCABULARY, n, path) < 0)
        goto done;
    if (exists(json.p))
        t = llm_tokenizer_load(json.p, pattern, e);
    else if (exists(model.p))
        t = load_model(path, model.p, pattern, e);
    else if (exists(spiece.p))
        t = load_model(path, spiece.p, pattern, e);
    else if (exists(encoder.p) && exists(merges.p))
        t = llm_tokenizer_from_gpt2(encoder.p, merges.p, "GPT2Tokenizer", e);
    else if (exists(vocab.p) && exists(lines.p))
        t = load_two_files(path, vocab.p, lines.p, e);
    else if (exists(rwkv.p))
        t = llm_tokenizer_load(rwkv.p, pattern, e);
    else
        llm_fail(e, EX_NOINPUT,
                 "%s: expected a tokenizer.json, a tokenizer.model, a spiece.model, encoder.json and vocab.bpe, vocab.json and merges.txt, "
                 "or " LLM_NAME_RWKV_VOCABULARY ", in this folder", path);
done:
    llm_buf_release(&json);
    llm_buf_release(&model);
    llm_buf_release(&encoder);
    llm_buf_release(&merges);
    llm_buf_release(&vocab);
    llm_buf_release(&lines);
    llm_buf_release(&rwkv);
    llm_buf_release(&spiece);
    return t;
}

struct llm_tokenizer *llm_tokenizer_load(const char *path, const char *pattern, struct llm_err *e)
{
    static const char wanted[] = "a tokenizer (tokenizer.json, tiktoken ranks, SentencePiece's .model, RWKV's vocabulary or a checkpoint)";
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
    char kind[32] = "";
    if (p && content == LLM_CONTENT_MESSAGE && llm_sniff_kind(f, kind, e) < 0)
        p = NULL;
    bool other = kind[0] && strcmp(kind, "checkpoint") != 0; /* tokens, a cache */
    if (p && !other && (content == LLM_CONTENT_CHECKPOINT || content == LLM_CONTENT_MESSAGE || content == LLM_CONTENT_GGUF)) {
        struct llm_checkpoint *c = llm_checkpoint_from_file(f, e); /* takes f */
        if (c)
            t = llm_tokenizer_from_checkpoint(c, e);
        llm_checkpoint_close(c);
        return t;
    }
    if (p && (content == LLM_CONTENT_JSON || is_ranks(p, n)))
        t = load_text(f, path, pattern, content == LLM_CONTENT_JSON, e);
    else if (p && llm_is_spm(p, n))
        t = load_spm(f, NULL, e);
    else if (p && llm_is_rwkv(p, n))
        t = load_rwkv(f, e);
    else if (p)
        llm_sniff_refuse(f, wanted, e);
    llm_file_close(f);
    return t;
}
