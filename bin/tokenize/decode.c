/* llm-tokenize decode: token ids to text. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "io/message.h"
#include "io/sniff.h"
#include "bin/tokenize/tokenize.h"

struct args {
    struct llm_common common;
    const char *tokenizer, *pattern, *separator;
    int text, skip_special;
};
#define AT(field) offsetof(struct args, field)

static const struct llm_opt options[] = {
    {'T', "tokenizer", "TOK", "the tokenizer: tokenizer.json, tiktoken ranks, a vocabulary, a folder, a model", LLM_INPUT, AT(tokenizer), 0, 0, NULL},
    {0, "pattern", "NAME|REGEX", "split pattern to use with a file of tiktoken ranks that is not a known one", LLM_STR, AT(pattern), 0, 0, NULL},
    {0, "text", NULL, "the input is ids in decimal, separated by white space [known by its content]", LLM_FLAG, AT(text), 0, 0, NULL},
    {0, "skip-special", NULL, "do not print special tokens", LLM_FLAG, AT(skip_special), 0, 0, NULL},
    {0, "separator", "STR", "print STR after each document; with --text after each line [nothing]", LLM_STR, AT(separator), 0, 0, NULL},
    {0}};

const struct llm_cli tokenize_decode_cli = {
    .name = "llm-tokenize decode",
    .summary = "Turn token ids into text.",
    .usage = "-T TOK [OPTION]... [FILE]...",
    .examples = "llm-tokenize decode -T tok.json corpus.tok\n"
                "echo 15496 995 | llm-tokenize decode -T gpt2/ --text",
    .options = options, .operands = LLM_OPERANDS_INPUT,
    .common = LLM_COMMON_OUTPUT,
    .aliases = tokenize_decode_aliases,
    .foreign = tokenize_decode_foreign,
};

#define CHUNK 65536

struct job {
    const struct args *a;
    const struct llm_tokenizer *t;
    struct llm_detokenizer *detokenizer;
    struct llm_output *out;
    struct llm_buf bytes;
    char separator[256];
    size_t n_separator;
    uint64_t tokens; /* of this input */
};

static int put_ids(struct job *j, const int32_t *ids, size_t n, struct llm_err *e)
{
    for (size_t i = 0; i < n; i++) {
        size_t len;
        if (!llm_tokenizer_piece(j->t, ids[i], &len))
            return llm_fail(e, EX_DATAERR, "token %" PRIu64 ": id %" PRIu32 " is not in the vocabulary of %d", j->tokens + i, (uint32_t)ids[i],
                            llm_tokenizer_vocab_size(j->t));
    }
    j->bytes.n = 0;
    j->tokens += n;
    if (llm_detokenizer_put(j->detokenizer, ids, n, &j->bytes, e) < 0)
        return -1;
    return j->bytes.n ? llm_output_text(j->out, j->bytes.p, j->bytes.n, e) : 0;
}

/* Ends a text. */
static int end_text(struct job *j, struct llm_err *e)
{
    j->bytes.n = 0;
    if (llm_detokenizer_end(j->detokenizer, &j->bytes, e) < 0)
        return -1;
    return j->bytes.n ? llm_output_text(j->out, j->bytes.p, j->bytes.n, e) : 0;
}

static int put_separator(struct job *j, struct llm_err *e)
{
    return j->n_separator ? llm_output_write(j->out, j->separator, j->n_separator, e) : 0;
}

/* ---- ids as text ---- */

static int decode_text(struct job *j, struct llm_file *f, struct llm_err *e)
{
    char *chunk = llm_alloc(CHUNK, 1, "input", e);
    int32_t *ids = llm_alloc(CHUNK, sizeof *ids, "ids", e);
    int64_t value = -1, got = 0; /* -1: between numbers */
    size_t n = 0;
    int bad = chunk && ids ? 0 : -1;
    while (bad == 0 && (got = llm_file_read_some(f, chunk, CHUNK, e)) > 0)
        for (int64_t i = 0; i < got && bad == 0; i++) {
            unsigned char c = (unsigned char)chunk[i];
            if (c >= '0' && c <= '9') {
                value = (value < 0 ? 0 : value) * 10 + (c - '0');
                if (value > INT32_MAX)
                    bad = llm_fail(e, EX_DATAERR, "token %" PRIu64 ": id %" PRId64 "… is not in the vocabulary", j->tokens + n, value);
                continue;
            }
            if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
                bad = llm_fail(e, EX_DATAERR, "byte %" PRIu64 ": expected ids in decimal, found 0x%02X",
                               llm_file_offset(f) - (uint64_t)(got - i), c);
                continue;
            }
            if (value >= 0)
                ids[n++] = (int32_t)value;
            value = -1;
            if (n == CHUNK || (c == '\n' && j->n_separator)) {
                bad = put_ids(j, ids, n, e);
                n = 0;
            }
            if (c == '\n' && bad == 0 && j->n_separator)
                bad = end_text(j, e) < 0 ? -1 : put_separator(j, e);
        }
    if (bad == 0 && value >= 0)
        ids[n++] = (int32_t)value;
    if (bad == 0)
        bad = got < 0 || put_ids(j, ids, n, e) < 0 ? -1 : end_text(j, e);
    free(chunk);
    free(ids);
    return bad;
}

/* ---- token streams ---- */

static int check_header(const struct job *j, const struct llm_header *h, struct llm_err *e)
{
    const char *id = llm_header_meta(h, "llm.tokenizer");
    const struct llm_entry *ids = llm_header_find(h, "ids");
    if (!h->kind || strcmp(h->kind, "tokens") != 0)
        return llm_fail(e, EX_DATAERR, "expected a message of kind 'tokens', found '%s'", h->kind ? h->kind : "none");
    if (!ids || ids->n_dims != 1 || (ids->dtype != LLM_U16 && ids->dtype != LLM_U32))
        return llm_fail(e, EX_DATAERR, "tensor 'ids': expected U16 or U32 [tokens]");
    if (id && *id && strcmp(id, llm_tokenizer_id(j->t)) != 0)
        return llm_fail(e, EX_DATAERR, "made with another tokenizer: expected %.16s…, found %.16s…", llm_tokenizer_id(j->t), id);
    return 0;
}

/* Reads the message's ids in chunks, which are cut where documents end. */
static int decode_ids(struct job *j, struct llm_stream *s, const struct llm_entry *t, const uint64_t *ends, size_t n_ends, struct llm_err *e)
{
    uint64_t n = (uint64_t)t->shape[0], at = 0;
    size_t width = t->dtype == LLM_U16 ? 2 : 4, end = 0;
    unsigned char *raw = llm_alloc(CHUNK, width, "ids", e);
    int32_t *ids = llm_alloc(CHUNK, sizeof *ids, "ids", e);
    int bad = raw && ids ? 0 : -1;
    while (bad == 0 && at < n) {
        uint64_t stop = end < n_ends && ends[end] < n ? ends[end] : n;
        size_t k = stop - at < CHUNK ? (size_t)(stop - at) : CHUNK;
        if (llm_stream_read(s, raw, k * width, e) < 0) {
            bad = -1;
            break;
        }
        for (size_t i = 0; i < k; i++) {
            const unsigned char *p = raw + i * width;
            uint32_t id = p[0] | (uint32_t)p[1] << 8 | (width == 4 ? (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24 : 0);
            ids[i] = id > INT32_MAX ? -1 : (int32_t)id;
        }
        bad = put_ids(j, ids, k, e);
        at += k;
        for (; bad == 0 && end < n_ends && ends[end] <= at; end++)
            bad = end_text(j, e) < 0 ? -1 : put_separator(j, e);
    }
    free(raw);
    free(ids);
    return bad;
}

/* doc_ends precede ids in the message: tensors with wider elements come first. */
static int decode_message(struct job *j, struct llm_stream *s, const struct llm_header *h, struct llm_err *e)
{
    uint64_t *ends = NULL, at = 0;
    size_t n_ends = 0;
    int bad = check_header(j, h, e);
    for (size_t i = 0; i < h->n_entries && bad == 0; i++) {
        const struct llm_entry *t = &h->entries[i];
        char skipped[4096];
        for (; bad == 0 && at < t->offset; at += sizeof skipped < t->offset - at ? sizeof skipped : t->offset - at)
            bad = llm_stream_read(s, skipped, sizeof skipped < t->offset - at ? sizeof skipped : (size_t)(t->offset - at), e);
        if (bad < 0)
            break;
        if (strcmp(t->name, "doc_ends") == 0 && t->dtype == LLM_U64) {
            n_ends = (size_t)(t->bytes / 8);
            ends = llm_alloc(n_ends, 8, "document ends", e);
            bad = ends ? llm_stream_read(s, ends, n_ends * 8, e) : -1;
            at = t->offset + t->bytes;
        } else if (strcmp(t->name, "ids") == 0) {
            bad = decode_ids(j, s, t, ends, n_ends, e);
            break;
        }
    }
    free(ends);
    return bad;
}

static int decode_stream(struct job *j, struct llm_file *f, struct llm_err *e)
{
    const struct llm_header *h;
    int got = -1;
    struct llm_stream *s = llm_stream_from_file(f, e); /* takes f */
    while (s && (got = llm_stream_next(s, &h, e)) > 0)
        if (decode_message(j, s, h, e) < 0) {
            got = -1;
            break;
        }
    llm_stream_destroy(s);
    return got < 0 ? -1 : end_text(j, e);
}

/* Decides whether the input is ids in decimal or a token stream. If the first bytes are ids, no more is read: ids may arrive slowly. */
static int recognise(struct llm_file *f, bool *text, struct llm_err *e)
{
    enum llm_content content;
    size_t n, digits = 0;
    const unsigned char *p = llm_file_peek(f, 9, &n, e);
    if (!p)
        return -1;
    while (digits < n && strchr("0123456789 \t\r\n", p[digits]) && p[digits])
        digits++;
    *text = n && digits == n;
    if (*text)
        return 0;
    if (llm_sniff(f, &content, e) < 0)
        return -1;
    *text = content == LLM_CONTENT_TEXT; /* the error then names the byte that belongs to no id */
    return *text || content == LLM_CONTENT_MESSAGE ? 0 : llm_sniff_refuse(f, "token ids (a token stream, or numbers in decimal)", e);
}

static int decode_file(struct job *j, const char *path, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    if (!f)
        return -1;
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    bool text = j->a->text;
    if (!text && recognise(f, &text, e) < 0) {
        llm_file_close(f);
        return -1;
    }
    j->tokens = 0;
    int bad;
    if (text) {
        bad = decode_text(j, f, e);
        llm_file_close(f);
    } else {
        bad = decode_stream(j, f, e);
    }
    return bad < 0 && strncmp(e->text, name, strlen(name)) != 0 ? llm_in(e, "%s", name) : bad;
}

static int decode(struct job *j, char *const *paths, int n_paths, struct llm_err *e)
{
    const char *separator = j->a->separator;
    if (separator && unescape(separator, j->separator, sizeof j->separator, &j->n_separator, e) < 0)
        return llm_in(e, "--separator");
    j->out = llm_output_open(j->a->common.output, false, e);
    if (!j->out)
        return -1;
    if (n_paths == 0 && decode_file(j, "-", e) < 0)
        return -1;
    for (int i = 0; i < n_paths; i++)
        if (decode_file(j, paths[i], e) < 0)
            return -1;
    struct llm_output *done = j->out;
    j->out = NULL;
    return llm_output_commit(done, e);
}

int tokenize_decode(int argc, char **argv)
{
    struct args a = {0};
    struct llm_err e = {0};
    int rest = llm_cli_parse(&tokenize_decode_cli, &a, argc, argv);
    struct job j = {.a = &a};
    if (!a.tokenizer)
        llm_usage(&tokenize_decode_cli, "expected -T TOK");
    check_inputs(&tokenize_decode_cli, a.tokenizer, argv + rest, argc - rest);
    struct llm_tokenizer *t = llm_tokenizer_load(a.tokenizer, a.pattern, &e);
    j.t = t;
    j.detokenizer = t ? llm_detokenizer_create(t, a.skip_special, &e) : NULL;
    int bad = j.detokenizer ? decode(&j, argv + rest, argc - rest, &e) : -1;
    llm_output_abandon(j.out);
    llm_buf_release(&j.bytes);
    llm_detokenizer_destroy(j.detokenizer);
    llm_tokenizer_destroy(t);
    return bad < 0 ? llm_report(&e) : 0;
}
