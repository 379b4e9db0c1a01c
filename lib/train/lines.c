#include "train/lines.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/log.h"
#include "io/sniff.h"
#include "train/objective.h"

int llm_lines_init(struct llm_lines *l, const struct llm_train_options *o, const struct llm_tokenizer *t, const char *path, int64_t context,
                   struct llm_err *e)
{
    const char *spec = llm_option_text(o, "chat-template");
    *l = (struct llm_lines){.o = o, .objective = llm_objectives[o->objective], .tokenizer = t, .context = context, .scratch.numbered = true};
    if (!t) return llm_fail(e, LLM_EX_USAGE, "--objective %s: expected a tokenizer (-T), which lines of JSON are encoded with", l->objective->name);
    if (llm_chat_find(&l->chat, spec, path, t, spec ? e : &l->no_chat) < 0 && spec) return llm_in(e, "--chat-template");
    return 0;
}

void llm_lines_release(struct llm_lines *l)
{
    llm_chat_release(&l->chat);
    llm_conversation_release(&l->scratch);
}

int llm_lines_are(const struct llm_train_options *o, const char *path, struct llm_err *e)
{
    const struct llm_objective *objective = llm_objectives[o->objective];
    enum llm_content content = LLM_CONTENT_JSON;
    struct stat s;
    if (!objective->record || (objective->takes_lines && !objective->takes_lines(o))) return 0;
    if (strcmp(path, "-") == 0 || (stat(path, &s) == 0 && !S_ISREG(s.st_mode))) return 1; /* what is looked at would be gone */
    struct llm_file *f = llm_file_open(path, e);
    int status = f ? llm_sniff(f, &content, e) : -1;
    llm_file_close(f);
    return status < 0 ? -1 : content == LLM_CONTENT_JSON || content == LLM_CONTENT_TEXT;
}

int llm_lines_chat(const struct llm_lines *l, struct llm_err *e)
{
    if (l->chat.template) return 0;
    *e = l->no_chat;
    return llm_in(e, "--chat-template");
}

int llm_lines_skip(struct llm_lines *l, enum llm_skip why, struct llm_err *e, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    l->skipped[why]++;
    if (!llm_option_word(l->o, "strict")) return 0;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return llm_fail(e, EX_DATAERR, "%s", text);
}

static int parse_line(const struct llm_buf *line, int64_t number, llm_line_take *take, void *arg, struct llm_err *e)
{
    size_t blank = 0;
    while (blank < line->n && strchr(" \t\r\n", line->p[blank]) && line->p[blank]) blank++;
    if (blank == line->n) return 0;
    json_t *j = llm_json_parse_python(line->p, line->n, e);
    if (!j) return -1;
    int got = take(arg, j, number, e);
    json_decref(j);
    return got;
}

int llm_lines_each(const char *path, llm_line_take *take, void *arg, struct llm_err *e)
{
    struct llm_file *f = llm_file_open(path, e);
    struct llm_buf line = {0};
    char block[1 << 14];
    int64_t got = f ? 1 : -1, number = 0;
    while (got > 0) {
        got = llm_file_read_some(f, block, sizeof block, e);
        for (const char *p = block, *end = block + (got > 0 ? got : 0); got > 0 && p < end;) {
            const char *newline = memchr(p, '\n', (size_t)(end - p)), *stop = newline ? newline + 1 : end;
            if (llm_buf_put(&line, p, (size_t)(stop - p), e) < 0) got = -1;
            p = stop;
            if (got < 0 || !newline) continue;
            number++;
            if (parse_line(&line, number, take, arg, e) < 0) got = llm_in(e, "%s: line %" PRId64, llm_file_name(f), number);
            line.n = 0;
        }
    }
    if (got == 0 && line.n > 0 && parse_line(&line, number + 1, take, arg, e) < 0) {
        got = llm_in(e, "%s: line %" PRId64, llm_file_name(f), number + 1);
    }
    llm_buf_release(&line);
    llm_file_close(f);
    return got < 0 ? -1 : 0;
}

static int take_line(void *arg, json_t *line, int64_t number, struct llm_err *e)
{
    struct llm_lines *l = arg;
    (void)number;
    l->n_lines++;
    return l->objective->record(l, line, e);
}

/* Says how many lines are not learned, and why. -1: all. */
static int report(const struct llm_lines *l, const char *name, struct llm_err *e)
{
    const int64_t n = l->skipped[LLM_SKIP_MASKED] + l->skipped[LLM_SKIP_LONG] + l->skipped[LLM_SKIP_ROLE];
    char why[200];
    snprintf(why, sizeof why, "%" PRId64 " without a token that counts, %" PRId64 " longer than --context %" PRId64 ", %" PRId64
             " with an unknown role", l->skipped[LLM_SKIP_MASKED], l->skipped[LLM_SKIP_LONG], l->context, l->skipped[LLM_SKIP_ROLE]);
    if (llm_records_count(l->records) > 0) {
        if (n > 0) llm_note("%" PRId64 " of %" PRId64 " lines are not learned: %s", n, l->n_lines, why);
        return 0;
    }
    if (n == 0) return llm_fail(e, EX_DATAERR, "%s: expected lines to learn from, found none", name);
    return llm_fail(e, EX_DATAERR, "%s: expected lines to learn from, found none among %" PRId64 ": %s", name, l->n_lines, why);
}

struct llm_records *llm_lines_read(struct llm_lines *l, const char *const *paths, size_t n_paths, struct llm_err *e)
{
    struct llm_records *r = l->records = llm_records_create(l->objective->columns, e);
    int status = r ? 0 : -1;
    l->n_lines = 0;
    memset(l->skipped, 0, sizeof l->skipped);
    for (size_t i = 0; i < n_paths && status == 0; i++) status = llm_lines_each(paths[i], take_line, l, e);
    if (l->objective->recorded && l->objective->recorded(l, e, status < 0) < 0) status = -1;
    if (status == 0) status = report(l, n_paths > 0 ? paths[0] : "data", e);
    l->records = NULL;
    if (status == 0) return r;
    llm_records_destroy(r);
    return NULL;
}
