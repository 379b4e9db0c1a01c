/* Inputs of llm-tokenize as documents: whole files, lines, lines of JSON, separators. The first byte says which; what comes out does not
 * depend on whether a file or a pipe holds the rest. */
#include "base/hash.h"
#include "bin/tokenize/tokenize.h"
#include "fuzz.h"

struct seen { uint64_t hash, parts, documents, begun; };

static void begin(void *arg, const char *name, const char *what, uint64_t number)
{
    struct seen *s = arg;
    (void)what;
    MUST(name && number <= ++s->begun);
}

static int part(void *arg, const char *text, size_t n, struct llm_err *e)
{
    struct seen *s = arg;
    (void)e;
    for (size_t i = 0; i < n; i++) s->hash = (s->hash ^ (unsigned char)text[i]) * 0x100000001B3u;
    s->parts++;
    return 0;
}

static int end(void *arg, struct llm_err *e)
{
    struct seen *s = arg;
    (void)e;
    s->hash = (s->hash ^ 256) * 0x100000001B3u;
    s->documents++;
    return 0;
}

static int run(const struct document_options *o, char *path, struct seen *s, struct llm_err *e)
{
    const struct document_sink sink = {s, part, end, begin};
    char *const paths[] = {path, NULL};
    return read_documents(o, paths, 1, &sink, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct llm_err e = {0}, e2 = {0};
    struct seen file = {0}, pipe_seen = {0};
    char path[40];
    int kind = n ? data[0] % 4 : 0, ends[2];
    const struct document_options o = {.lines = kind == 1, .jsonl = kind == 2, .separator = kind == 3 ? "\\n--\\n" : NULL,
                                       .field = kind == 2 && data[0] & 4 ? "prompt" : NULL};
    if (n) data++, n--;
    int fd = fuzz_file(data, n, path), got = run(&o, path, &file, &e);
    close(fd);
    MUST(got == 0 || e.status);
    if (n > 60000) return 0; /* more than a pipe holds */
    MUST(pipe(ends) == 0 && write(ends[1], data, n) == (ssize_t)n);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    MUST(run(&o, path, &pipe_seen, &e2) == got && e.status == e2.status);
    MUST(file.hash == pipe_seen.hash && file.documents == pipe_seen.documents);
    close(ends[0]);
    return 0;
}
