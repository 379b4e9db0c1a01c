/* Inputs as documents: whole files, parts between separators, or lines of JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/progress.h"
#include "base/json_long.h"
#include "io/file.h"
#include "bin/tokenize/tokenize.h"

#define CHUNK ((size_t)256 << 10)
#define MAX_LINE ((size_t)1 << 30)

struct reading {
    const struct document_options *options;
    const struct document_sink *sink;
    const char *name;
    uint64_t number;          /* of the line or document */
    char separator[256];      /* without its escapes */
    size_t n_separator;
    struct llm_buf held;      /* a line, or the beginning of a separator */
    struct llm_json_long json; /* of a line */
    bool open;                /* a document has begun */
    bool empty;               /* nothing of the file has been read */
};

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int unescape(const char *text, char *out, size_t room, size_t *n, struct llm_err *e)
{
    static const char letters[] = "ntr0\\", meanings[] = "\n\t\r\0\\";
    *n = 0;
    if (!*text || strlen(text) >= room)
        return llm_fail(e, LLM_EX_USAGE, "expected 1 to %zu bytes", room - 1);
    for (const char *p = text; *p; p++) {
        char c = *p;
        if (c == '\\') {
            const char *known = *++p ? strchr(letters, *p) : NULL;
            if (known) {
                c = meanings[known - letters];
            } else if (*p == 'x' && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
                c = (char)(hex_digit(p[1]) << 4 | hex_digit(p[2]));
                p += 2;
            } else {
                return llm_fail(e, LLM_EX_USAGE, "unknown escape '\\%.1s'", p);
            }
        }
        out[(*n)++] = c;
    }
    return 0;
}

void check_inputs(const struct llm_cli *cli, const char *tokenizer, char *const *paths, int n_paths)
{
    int from_stdin = (tokenizer && strcmp(tokenizer, "-") == 0) + (n_paths == 0);
    for (int i = 0; i < n_paths; i++)
        from_stdin += strcmp(paths[i], "-") == 0;
    if (from_stdin > 1)
        llm_usage(cli, "standard input can be read only once");
}

void check_documents(const struct llm_cli *cli, const struct document_options *o)
{
    if (o->jsonl + o->lines + (o->separator != NULL) > 1)
        llm_usage(cli, "--jsonl, --lines and --separator: only one of them");
    if (o->field && !o->jsonl)
        llm_usage(cli, "--field needs --jsonl");
}

static void begin(struct reading *r, const char *what)
{
    r->number++;
    r->open = true;
    r->sink->begin(r->sink->arg, r->name, what, r->number);
}

static int end(struct reading *r, struct llm_err *e)
{
    r->open = false;
    return r->sink->end(r->sink->arg, e);
}

/* A long text is passed on in parts, so that its consumer need not hold all of it. */
static int put_text(struct reading *r, const char *p, size_t n, struct llm_err *e)
{
    size_t done = 0;
    do {
        size_t step = n - done < CHUNK ? n - done : CHUNK;
        if (r->sink->part(r->sink->arg, p + done, step, e) < 0)
            return -1;
        done += step;
    } while (done < n);
    return 0;
}

static int take_line(struct reading *r, char *p, size_t n, struct llm_err *e)
{
    const char *field = r->options->field ? r->options->field : "text";
    size_t blank = 0;
    while (blank < n && (p[blank] == ' ' || p[blank] == '\t' || p[blank] == '\r'))
        blank++;
    begin(r, "line");
    if (blank == n) {
        r->open = false;
        return 0;
    }
    json_t *line = llm_json_long_parse(&r->json, p, n, e);
    if (!line)
        return llm_in(e, "%s: line %" PRIu64, r->name, r->number);
    const json_t *text = json_object_get(line, field);
    size_t length;
    const char *content = llm_json_long_string(&r->json, text, &length);
    int bad;
    if (!content)
        bad = llm_fail(e, EX_DATAERR, "%s: line %" PRIu64 ": field '%s': expected a string, found %s", r->name, r->number, field,
                       !json_is_object(line) ? "no object" : text ? "something else" : "nothing");
    else
        bad = put_text(r, content, length, e);
    json_decref(line);
    return bad < 0 ? -1 : end(r, e);
}

static int take_lines(struct reading *r, char *p, size_t n, bool last, struct llm_err *e)
{
    while (n) {
        char *stop = memchr(p, '\n', n);
        size_t len = stop ? (size_t)(stop - p) : n;
        if (!stop || r->held.n) {
            if (r->held.n + len > MAX_LINE)
                return llm_fail(e, EX_DATAERR, "%s: line %" PRIu64 ": longer than %zu bytes", r->name, r->number + 1, MAX_LINE);
            if (llm_buf_put(&r->held, p, len, e) < 0)
                return -1;
        }
        if (stop) {
            if (take_line(r, r->held.n ? r->held.p : p, r->held.n ? r->held.n : len, e) < 0)
                return -1;
            r->held.n = 0;
            len++;
        }
        p += len;
        n -= len;
    }
    if (last && r->held.n && take_line(r, r->held.p, r->held.n, e) < 0)
        return -1;
    return 0;
}

static int put(struct reading *r, const char *p, size_t n, struct llm_err *e)
{
    if (n == 0)
        return 0;
    if (!r->open)
        begin(r, "document");
    return r->sink->part(r->sink->arg, p, n, e);
}

/* Passes on the text between separators; two separators in a row make no document. */
static int take_separated(struct reading *r, const char *p, size_t n, bool last, struct llm_err *e)
{
    if (llm_buf_put(&r->held, p, n, e) < 0)
        return -1;
    const char *at = r->held.p, *stop = at + r->held.n, *found;
    while ((found = memmem(at, (size_t)(stop - at), r->separator, r->n_separator)) != NULL) {
        if (put(r, at, (size_t)(found - at), e) < 0 || (r->open && end(r, e) < 0))
            return -1;
        at = found + r->n_separator;
    }
    size_t keep = last ? 0 : r->n_separator - 1;
    if ((size_t)(stop - at) > keep) {
        if (put(r, at, (size_t)(stop - at) - keep, e) < 0)
            return -1;
        at = stop - keep;
    }
    r->held.n = (size_t)(stop - at);
    memmove(r->held.p, at, r->held.n);
    return last && r->open ? end(r, e) : 0;
}

/* Passes on lines as they are; a line that continues in the next chunk stays open. */
static int take_whole_lines(struct reading *r, const char *p, size_t n, bool last, struct llm_err *e)
{
    while (n) {
        const char *stop = memchr(p, '\n', n);
        size_t len = stop ? (size_t)(stop - p) + 1 : n;
        if (!r->open)
            begin(r, "line");
        if (r->sink->part(r->sink->arg, p, len, e) < 0 || (stop && end(r, e) < 0))
            return -1;
        p += len;
        n -= len;
    }
    return last && r->open ? end(r, e) : 0;
}

static int take(struct reading *r, char *p, size_t n, bool last, struct llm_err *e)
{
    if (r->options->jsonl)
        return take_lines(r, p, n, last, e);
    if (r->options->lines)
        return take_whole_lines(r, p, n, last, e);
    if (r->n_separator)
        return take_separated(r, p, n, last, e);
    if (last && r->empty) return 0; /* an empty file is no document */
    return r->sink->part(r->sink->arg, p, n, e) < 0 || (last && end(r, e) < 0) ? -1 : 0;
}

static int read_one(struct reading *r, const char *path, struct llm_progress *progress, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    char *chunk = f ? llm_alloc(CHUNK, 1, "input", e) : NULL;
    int bad = chunk ? 0 : -1;
    r->number = 0;
    r->held.n = 0;
    r->empty = true;
    r->name = strcmp(path, "-") == 0 ? "standard input" : path;
    if (chunk && !r->options->jsonl && !r->options->lines && !r->n_separator) {
        r->open = true;
        r->sink->begin(r->sink->arg, r->name, NULL, 0);
    }
    for (bool last = false; !last && bad == 0;) {
        int64_t got = llm_file_read_some(f, chunk, CHUNK, e);
        last = got == 0;
        r->empty = r->empty && got <= 0;
        bad = got < 0 ? -1 : take(r, chunk, (size_t)got, last, e);
        llm_progress_set(progress, progress->done + (got > 0 ? got : 0), NULL);
    }
    free(chunk);
    llm_file_close(f);
    return bad;
}

static int64_t total_size(char *const *paths, int n_paths)
{
    int64_t total = 0;
    for (int i = 0; i < n_paths; i++) {
        struct stat s;
        if (stat(paths[i], &s) != 0 || !S_ISREG(s.st_mode))
            return 0;
        total += s.st_size;
    }
    return total;
}

int read_documents(const struct document_options *o, char *const *paths, int n_paths, const struct document_sink *sink, struct llm_err *e)
{
    static char *const only_stdin[] = {"-", NULL};
    struct reading r = {.options = o, .sink = sink};
    struct llm_progress progress;
    int bad = 0;
    if (o->separator && unescape(o->separator, r.separator, sizeof r.separator, &r.n_separator, e) < 0)
        return llm_in(e, "--separator");
    if (n_paths == 0) {
        paths = only_stdin;
        n_paths = 1;
    }
    llm_progress_start(&progress, "read", "B", total_size(paths, n_paths));
    for (int i = 0; i < n_paths && bad == 0; i++)
        bad = read_one(&r, paths[i], &progress, e);
    llm_progress_end(&progress);
    llm_buf_release(&r.held);
    llm_json_long_release(&r.json);
    return bad;
}
