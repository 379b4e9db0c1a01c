#include "io/sniff.h"

#include <string.h>

#include "base/utf8.h"
#include "io/rwkv_cpp.h"
#include "io/zstd_frames.h"

enum { LOOK = 4096 };

/* A length, which is no text, followed by a JSON header. The reader checks whether the length is possible, and names the byte in its error. */
static bool is_message(const unsigned char *p, size_t n)
{
    bool text = true;
    for (size_t i = 0; n >= 9 && i < 8; i++) text = text && p[i] >= 0x09 && p[i] < 0x80;
    return n >= 9 && p[8] == '{' && !text;
}

static bool is_gguf(const unsigned char *p, size_t n)
{
    return n >= 4 && memcmp(p, "GGUF", 4) == 0;
}

static bool is_zstd(const unsigned char *p, size_t n)
{
    return n >= 4 && (memcmp(p, "\x28\xB5\x2F\xFD", 4) == 0 || ((p[0] & 0xF0) == 0x50 && memcmp(p + 1, "\x2A\x4D\x18", 3) == 0));
}

static bool is_json(const unsigned char *p, size_t n)
{
    size_t i = llm_utf8_mark(p, n);
    while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '\n' || p[i] == '\r')) i++;
    return i < n && (p[i] == '{' || p[i] == '[');
}

static bool is_arpa(const unsigned char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '\n' || p[i] == '\r')) i++;
    return n - i >= 6 && memcmp(p + i, "\\data\\", 6) == 0;
}

/* No NUL, no byte that UTF-8 never has, no control characters but white space and escape. */
static bool is_text(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((p[i] < 0x20 && !strchr("\t\n\v\f\r\033", p[i])) || p[i] == 0 || p[i] == 0xC0 || p[i] == 0xC1 || p[i] > 0xF4) return false;
    return n > 0;
}

/* The first row that fits decides. */
static const struct { bool (*is)(const unsigned char *p, size_t n); enum llm_content content; const char *name; } rows[] = {
    {llm_is_checkpoint, LLM_CONTENT_CHECKPOINT, "a checkpoint (.llm)"},
    {is_zstd, LLM_CONTENT_ZSTD, "zstd data"},
    {is_gguf, LLM_CONTENT_GGUF, "a GGUF file"},
    {llm_is_rwkv_cpp, LLM_CONTENT_RWKV_CPP, "a model of rwkv.cpp"},
    {is_message, LLM_CONTENT_MESSAGE, "a tensor message"},
    {is_arpa, LLM_CONTENT_ARPA, "an ARPA file"},
    {is_json, LLM_CONTENT_JSON, "JSON"},
    {is_text, LLM_CONTENT_TEXT, "text"},
};

int llm_sniff(struct llm_file *f, enum llm_content *content, struct llm_err *e)
{
    size_t n;
    const unsigned char *p = llm_file_peek(f, LOOK, &n, e);
    if (!p) return -1;
    *content = n ? LLM_CONTENT_OTHER : LLM_CONTENT_EMPTY;
    for (size_t i = 0; n && i < sizeof rows / sizeof *rows; i++)
        if (rows[i].is(p, n)) {
            *content = rows[i].content;
            break;
        }
    return 0;
}

const char *llm_content_name(enum llm_content content)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].content == content) return rows[i].name;
    return content == LLM_CONTENT_EMPTY ? "an empty file" : "data of an unknown kind";
}

int llm_sniff_kind(struct llm_file *f, char kind[32], struct llm_err *e)
{
    static const char key[] = "{\"__metadata__\":{\"llm.kind\":\"";
    enum llm_content content;
    size_t n;
    kind[0] = 0;
    if (llm_sniff(f, &content, e) < 0) return -1;
    if (content != LLM_CONTENT_MESSAGE) return 0;
    const unsigned char *p = llm_file_peek(f, 8 + sizeof key - 1 + 32, &n, e); /* our writers put the kind first */
    if (!p) return -1;
    if (n > 8 + sizeof key && memcmp(p + 8, key, sizeof key - 1) == 0) {
        const char *word = (const char *)p + 8 + sizeof key - 1;
        size_t room = n - (8 + sizeof key - 1), length = 0;
        while (length < room && length < 31 && word[length] != '"') length++;
        if (length < room && word[length] == '"') {
            memcpy(kind, word, length);
            kind[length] = 0;
        }
    }
    return 0;
}

int llm_sniff_refuse(struct llm_file *f, const char *what, struct llm_err *e)
{
    enum llm_content content;
    char kind[32];
    if (llm_sniff(f, &content, e) < 0 || llm_sniff_kind(f, kind, e) < 0) return -1;
    return llm_fail(e, EX_DATAERR, "%s: expected %s, found %s%s%s%s", llm_file_name(f), what, llm_content_name(content), kind[0] ? " of kind '" : "",
                    kind, kind[0] ? "'" : "");
}
