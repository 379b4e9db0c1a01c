#include "bin/infer/edit.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/signals.h"
#include "token/unicode.h"
#ifdef LLM_LIBEDIT
#include <histedit.h>
#endif

#define PASTE_BEGIN "\033[200~" /* a terminal in bracketed paste mode puts these around what is pasted */
#define PASTE_END "\033[201~"
enum { PASTE_MARK = sizeof PASTE_BEGIN - 1, SEQUENCE_MS = 50 /* the rest of a sequence follows its escape character within this time */ };

struct edit {
    unsigned char bytes[4096]; /* read and not yet used: from `at` up to `n` */
    size_t at, n;
    bool prompts;              /* standard error is a terminal */
    bool pasting, pasted;      /* inside a paste; the last newline came from one */
#ifdef LLM_LIBEDIT
    EditLine *line;            /* NULL: the terminal's own lines */
    HistoryW *history;
    FILE *in, *out;
    const char *prompt;
#endif
};

/* Reads more bytes after those in the buffer. 1; 0 at the end of the input; -1 with errno, EINTR for a signal that was caught. */
static int read_more(struct edit *ed)
{
    if (ed->at > 0) memmove(ed->bytes, ed->bytes + ed->at, ed->n -= ed->at);
    ed->at = 0;
    ssize_t got = llm_signal_wait_input(STDIN_FILENO) < 0 ? -1 : read(STDIN_FILENO, ed->bytes + ed->n, sizeof ed->bytes - ed->n);
    if (got > 0) ed->n += (size_t)got;
    return got > 0 ? 1 : (int)got;
}

static void say(const struct edit *ed, const char *text)
{
    ssize_t ignored = ed->prompts ? write(STDERR_FILENO, text, strlen(text)) : 0;
    (void)ignored;
}

#ifdef LLM_LIBEDIT

/* Whether the bytes at hand begin with `mark`; waits a moment for the rest of one that is cut. */
static bool begins(struct edit *ed, const char *mark)
{
    for (;;) {
        size_t have = ed->n - ed->at < PASTE_MARK ? ed->n - ed->at : PASTE_MARK;
        struct pollfd more = {STDIN_FILENO, POLLIN, 0};
        if (memcmp(ed->bytes + ed->at, mark, have) != 0) return false;
        if (have == PASTE_MARK) return true;
        if (poll(&more, 1, SEQUENCE_MS) <= 0 || read_more(ed) <= 0) return false;
    }
}

/* libedit's source of characters. A newline inside a paste ends the line, and is noted. 1, 0 at the end, -1 on error or signal. */
static int next_char(EditLine *line, wchar_t *c)
{
    struct edit *ed;
    el_wget(line, EL_CLIENTDATA, &ed);
    for (;;) {
        while (ed->at == ed->n) {
            int got = read_more(ed);
            if (got <= 0) return got;
        }
        if (ed->bytes[ed->at] != '\033' || !begins(ed, ed->pasting ? PASTE_END : PASTE_BEGIN)) break;
        ed->pasting = !ed->pasting;
        ed->at += PASTE_MARK;
    }
    uint32_t code = 0;
    int n;
    while ((n = llm_utf8_next(ed->bytes + ed->at, ed->n - ed->at, &code)) < 0 && read_more(ed) > 0) {}
    if (n <= 0) code = 0xfffd;
    ed->at += n > 0 ? (size_t)n : 1;
    if (code == '\r') code = '\n';
    if (code == '\n') ed->pasted = ed->pasting;
    if (ed->pasting && code == '\t') code = ' '; /* a tabulator that is typed would complete */
    *c = (wchar_t)code;
    return 1;
}

static char *prompt_of(EditLine *line)
{
    struct edit *ed;
    el_wget(line, EL_CLIENTDATA, &ed);
    return (char *)(uintptr_t)ed->prompt;
}

/* libedit, where the terminal can be written to freely. Without memory for it, plain lines serve. */
static void open_rich(struct edit *ed)
{
    const char *term = getenv("TERM");
    HistEventW event;
    if (!ed->prompts || !term || !*term || strcmp(term, "dumb") == 0) return;
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
    int in = dup(STDIN_FILENO), out = dup(STDERR_FILENO);
    ed->in = in >= 0 ? fdopen(in, "r") : NULL;
    ed->out = out >= 0 ? fdopen(out, "w") : NULL;
    if (!ed->in && in >= 0) close(in);
    if (!ed->out && out >= 0) close(out);
    ed->history = history_winit();
    if (ed->in && ed->out && ed->history) ed->line = el_init("llm-infer", ed->in, ed->out, ed->out);
    if (!ed->line) return;
    history_w(ed->history, &event, H_SETSIZE, 1000);
    history_w(ed->history, &event, H_SETUNIQUE, 1);
    el_wset(ed->line, EL_CLIENTDATA, ed);
    el_wset(ed->line, EL_HIST, history_w, ed->history);
    el_wset(ed->line, EL_EDITOR, L"emacs");
    el_wset(ed->line, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
    el_wset(ed->line, EL_SIGNAL, 0);
    el_set(ed->line, EL_PROMPT, prompt_of);
    el_source(ed->line, NULL);
    el_wset(ed->line, EL_GETCFN, next_char); /* last: changing the editor would take it back */
}

static enum edit_result rich_line(struct edit *ed, const char *prompt, struct llm_buf *line, struct llm_err *e)
{
    HistEventW event;
    int n = 0;
    ed->prompt = prompt;
    el_resize(ed->line);
    say(ed, "\033[?2004h"); /* bracketed paste */
    const wchar_t *text = el_wgets(ed->line, &n);
    say(ed, "\033[?2004l");
    if (!text) {
        const LineInfoW *typed = el_wline(ed->line);
        bool some = typed->lastchar > typed->buffer;
        say(ed, llm_signal_caught() && some ? "^C\n" : "\n");
        ed->pasting = false;
        return llm_signal_caught() ? some ? EDIT_DISCARDED : EDIT_INTERRUPTED : EDIT_END;
    }
    while (n > 0 && text[n - 1] == L'\n') n--;
    for (int i = 0; i < n; i++) {
        unsigned char bytes[4];
        uint32_t code = (uint32_t)text[i];
        int length = llm_utf8_put(code < 0x110000 ? code : 0xfffd, bytes);
        if (llm_buf_put(line, bytes, (size_t)length, e) < 0) return EDIT_FAILED;
    }
    if (n > 0) history_w(ed->history, &event, H_ENTER, text);
    return EDIT_LINE;
}

bool edit_is_rich(const struct edit *ed)
{
    return ed->line != NULL;
}

void edit_close(struct edit *ed)
{
    if (!ed) return;
    if (ed->line) el_end(ed->line);
    if (ed->history) history_wend(ed->history);
    if (ed->in) fclose(ed->in);
    if (ed->out) fclose(ed->out);
    free(ed);
}

#else

bool edit_is_rich(const struct edit *ed)
{
    (void)ed;
    return false;
}

void edit_close(struct edit *ed)
{
    free(ed);
}

#endif

/* A line of the terminal's own. Ctrl-C: the terminal drops what was typed before the signal comes, so that nobody knows whether there was any. */
static enum edit_result plain_line(struct edit *ed, const char *prompt, struct llm_buf *line, struct llm_err *e)
{
    say(ed, prompt);
    for (;;) {
        const unsigned char *from = ed->bytes + ed->at, *end = memchr(from, '\n', ed->n - ed->at);
        size_t n = end ? (size_t)(end - from) : ed->n - ed->at;
        if (llm_buf_put(line, from, n, e) < 0) return EDIT_FAILED;
        ed->at += n + (end != NULL);
        if (end) return EDIT_LINE;
        int got = read_more(ed);
        if (got > 0) continue;
        say(ed, "\n");
        if (llm_signal_caught()) return line->n > 0 ? EDIT_DISCARDED : EDIT_INTERRUPTED;
        if (got < 0) {
            llm_fail_errno(e, EX_IOERR, "standard input: cannot read");
            return EDIT_FAILED;
        }
        return line->n > 0 ? EDIT_LINE : EDIT_END;
    }
}

struct edit *edit_open(struct llm_err *e)
{
    struct edit *ed = llm_calloc(1, sizeof *ed, "a line editor", e);
    if (!ed) return NULL;
    ed->prompts = isatty(STDERR_FILENO);
#ifdef LLM_LIBEDIT
    open_rich(ed);
#endif
    return ed;
}

enum edit_result edit_line(struct edit *ed, const char *prompt, struct llm_buf *line, bool *pasted, struct llm_err *e)
{
    line->n = 0;
    ed->pasted = false;
#ifdef LLM_LIBEDIT
    enum edit_result got = ed->line ? rich_line(ed, prompt, line, e) : plain_line(ed, prompt, line, e);
#else
    enum edit_result got = plain_line(ed, prompt, line, e);
#endif
    *pasted = ed->pasted;
    return got;
}
