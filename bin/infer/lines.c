#include "bin/infer/lines.h"

#include <string.h>

int lines_open(struct lines *l, const char *path, struct llm_err *e)
{
    l->file = llm_file_open(path, e);
    return l->file ? 0 : -1;
}

void lines_close(struct lines *l)
{
    llm_file_close(l->file);
    llm_buf_release(&l->text);
}

/* 1: a line, which may be blank. */
static int next(struct lines *l, const char **line, size_t *n, struct llm_err *e)
{
    for (size_t seen = l->at;;) {
        const char *end = l->text.n > seen ? memchr(l->text.p + seen, '\n', l->text.n - seen) : NULL;
        seen = l->text.n;
        if (!end) {
            if (l->at > 0) memmove(l->text.p, l->text.p + l->at, l->text.n -= l->at);
            seen -= l->at;
            l->at = 0;
            if (llm_buf_reserve(&l->text, l->text.n + (1 << 16), e) < 0) return -1;
            int64_t got = llm_file_read_some(l->file, l->text.p + l->text.n, 1 << 16, e);
            if (got < 0) return -1;
            l->text.n += (size_t)got;
            if (got > 0) continue;
            if (l->text.n == 0) return 0;
            end = l->text.p + l->text.n; /* the last line may lack its newline */
        }
        *line = l->text.p + l->at;
        *n = (size_t)(end - *line);
        l->at += *n + (l->at + *n < l->text.n);
        l->number++;
        return 1;
    }
}

int lines_next(struct lines *l, const char **line, size_t *n, struct llm_err *e)
{
    for (;;) {
        int got = next(l, line, n, e);
        if (got <= 0 || (strspn(*line, " \t\r") < *n && *n > 0)) return got;
    }
}
